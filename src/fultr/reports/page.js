"use strict";
(function () {
  const content = JSON.parse(document.getElementById("content").textContent);
  const rankings = content.rankings;
  const state = { key: content.picked, part: content.parts[0].key, example: 0 };
  const MARKS = 8;
  const groups = [];

  function element(name, attributes, ...children) {
    return filled(document.createElement(name), attributes, children);
  }
  function drawn(name, attributes, ...children) {
    return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  }
  function filled(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined) made.setAttribute(name, value);
    }
    // names come from data: they are only ever put in as text
    for (const child of children.flat()) {
      if (child !== null && child !== undefined) made.append(child);
    }
    return made;
  }
  function byId(id) {
    return document.getElementById(id);
  }
  function numberText(value, decimals = 4) {
    if (value === null || value === undefined) return "–";
    const text = value.toFixed(Math.abs(value) >= 100 ? 1 : decimals);
    return Number(text) === 0 ? text.replace("-", "") : text;
  }
  function shareText(value) {
    return value === null || value === undefined ? "–" : numberText(100 * value, 1) + "%";
  }
  function number(value, decimals = 4) {
    return value === null ? "–" : element("data", { value: value }, numberText(value, decimals));
  }
  function share(value) {
    return value === null ? "–" : element("data", { value: value }, shareText(value));
  }
  function interval(estimate) {
    if (estimate.low === null || estimate.high === null) return null;
    return ["between ", number(estimate.low), " and ", number(estimate.high)];
  }
  function named(name) {
    return element("bdi", {}, name);
  }
  function groupMark(name) {
    if (name === null) return null;
    if (!groups.includes(name)) groups.push(name);
    return "mark-" + (groups.indexOf(name) % MARKS);
  }
  function rankingOf(key) {
    return rankings.find((one) => one.key === key);
  }
  function measured(ranking) {
    return ranking.measured[state.part];
  }
  function shownRankings() {
    return rankings.filter(measured);
  }
  function part() {
    return content.parts.find((one) => one.key === state.part);
  }

  // ---- what is picked, and the address that names it
  function address() {
    return "#" + state.key + (state.part === content.parts[0].key ? "" : "&on=" + state.part);
  }
  function takeAddress() {
    const [, key, on] = /^#(.*?)(?:&on=(\w+))?$/.exec(location.hash) || [];
    if (!key || !rankingOf(key)) return;
    if (!on || content.parts.some((one) => one.key === on)) state.part = on || content.parts[0].key;
    state.key = key;
  }
  function pick(key, focus) {
    state.key = key;
    if (location.hash !== address()) history.replaceState(null, "", address());
    show();
    if (focus) byId("chart").querySelector('[aria-checked="true"]').focus();
  }
  function show() {
    if (!measured(rankingOf(state.key))) state.key = shownRankings()[0].key;
    drawChart();
    showPanel();
    showExample();
    byId("choice").value = state.key;
    for (const radio of document.querySelectorAll('#parts input')) radio.checked = radio.value === state.part;
    for (const row of document.querySelectorAll("tr[data-key]")) {
      row.classList.toggle("picked", row.dataset.key === state.key);
    }
    const text = sentence(rankingOf(state.key));
    if (byId("status").textContent !== text) byId("status").textContent = text;
  }
  function sentence(ranking) {
    const found = measured(ranking);
    const verdict = found.passes === null ? "" : found.passes ? ", keeps the limit" : ", does not keep the limit";
    return ranking.name + ": utility " + numberText(found.utility.value) + ", disparity " +
      numberText(found.disparity.value) + verdict;
  }

  // ---- the picture
  function ticks(low, high, wanted) {
    const rough = (high - low) / wanted || 1;
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    const found = [];
    for (let tick = Math.ceil(low / step - 1e-9); tick * step <= high + step * 1e-9; tick += 1) found.push(tick * step);
    return { values: found, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  }
  function range(values, floor) {
    let low = Math.min(...values), high = Math.max(...values);
    // differences of less than a few percent should not look like large ones
    const room = Math.max((high - low) * 0.12, 0.03 * Math.abs(high) - (high - low) / 2) || 0.1;
    low -= room;
    high += room;
    // where 0 is not far away it is shown, since it is what fairness aims at
    if (floor !== null && low < high / 2) low = floor;
    return [low, high];
  }
  function frame() {
    const width = Math.max(240, Math.round(byId("chart").clientWidth) || 600);
    const height = Math.round(Math.min(460, Math.max(270, width * 0.68)));
    const found = shownRankings().map(measured);
    const limit = part().limit;
    const across = range(found.map((one) => one.disparity.value).concat(limit === null ? [] : [limit]), 0);
    const up = range(found.map((one) => one.utility.value), null);
    const edge = { left: 56, right: width - 14, top: 12, bottom: height - 46 };
    return {
      width, height, edge, across, up,
      x: (value) => edge.left + ((value - across[0]) / (across[1] - across[0])) * (edge.right - edge.left),
      y: (value) => edge.bottom - ((value - up[0]) / (up[1] - up[0])) * (edge.bottom - edge.top),
    };
  }
  function drawChart() {
    const place = frame();
    const svg = drawn("svg", {
      viewBox: "0 0 " + place.width + " " + place.height, role: "radiogroup",
      "aria-label": "Rankings by disparity (from left to right) and utility (from bottom to top) on " + part().name,
    });
    svg.append(...axes(place), ...way(place), ...limitLine(place), ...intervals(place), ...points(place), ...labels(place));
    svg.addEventListener("click", (event) => pick(nearest(event, svg, place).key, true));
    svg.addEventListener("keydown", onKey);
    const before = byId("chart").contains(document.activeElement);
    byId("chart").replaceChildren(svg);
    if (before) svg.querySelector('[aria-checked="true"]').focus();
  }
  function axes(place) {
    const { edge } = place, made = [];
    const across = ticks(...place.across, Math.max(3, place.width / 110)), up = ticks(...place.up, 5);
    for (const value of across.values) {
      const x = place.x(value);
      made.push(drawn("line", { class: "grid", x1: x, x2: x, y1: edge.top, y2: edge.bottom }));
      made.push(drawn("text", { x: x, y: edge.bottom + 17, "text-anchor": "middle", "aria-hidden": "true" },
        value.toFixed(across.decimals)));
    }
    for (const value of up.values) {
      const y = place.y(value);
      made.push(drawn("line", { class: "grid", x1: edge.left, x2: edge.right, y1: y, y2: y }));
      made.push(drawn("text", { x: edge.left - 7, y: y + 4, "text-anchor": "end", "aria-hidden": "true" },
        value.toFixed(up.decimals)));
    }
    made.push(drawn("path", { class: "axis", fill: "none",
      d: "M" + edge.left + " " + edge.top + "V" + edge.bottom + "H" + edge.right }));
    made.push(drawn("text", { x: (edge.left + edge.right) / 2, y: edge.bottom + 37, "text-anchor": "middle",
      "aria-hidden": "true" }, "← fairer · disparity"));
    made.push(drawn("text", { transform: "translate(13 " + (edge.top + edge.bottom) / 2 + ") rotate(-90)",
      "text-anchor": "middle", "aria-hidden": "true" }, "utility (DCG)"));
    return made;
  }
  function way(place) {
    // in the order they came in, which is that of their fairness weight; with several seeds there is no one way
    const policies = shownRankings().filter((one) => one.key.startsWith("lambda="));
    if (policies.length < 3 || policies.some((one) => one.key.includes("&"))) return [];
    const steps = policies.map((one) => place.x(measured(one).disparity.value) + " " + place.y(measured(one).utility.value));
    return [drawn("path", { class: "way", d: "M" + steps.join("L") })];
  }
  function limitLine(place) {
    if (part().limit === null) return [];
    const x = place.x(part().limit), left = x - 70 > place.edge.left;
    return [
      drawn("line", { class: "limit", x1: x, x2: x, y1: place.edge.top, y2: place.edge.bottom }),
      drawn("text", { x: left ? x - 5 : x + 5, y: place.edge.bottom - 6, class: "named", "aria-hidden": "true",
        "text-anchor": left ? "end" : "start" },
        "limit " + Number(part().limit.toPrecision(6))),
    ];
  }
  function intervals(place) {
    const found = measured(rankingOf(state.key)), made = [];
    const x = place.x(found.disparity.value), y = place.y(found.utility.value);
    const kept = (value, low, high) => Math.min(Math.max(value, low), high);
    const { edge } = place;
    if (found.disparity.low !== null && found.disparity.high !== null) {
      made.push(drawn("line", { class: "interval", y1: y, y2: y,
        x1: kept(place.x(found.disparity.low), edge.left, edge.right),
        x2: kept(place.x(found.disparity.high), edge.left, edge.right) }));
    }
    if (found.utility.low !== null && found.utility.high !== null) {
      made.push(drawn("line", { class: "interval", x1: x, x2: x,
        y1: kept(place.y(found.utility.low), edge.top, edge.bottom),
        y2: kept(place.y(found.utility.high), edge.top, edge.bottom) }));
    }
    return made;
  }
  function points(place) {
    return shownRankings().map((ranking) => {
      const found = measured(ranking), checked = ranking.key === state.key;
      const x = place.x(found.disparity.value), y = place.y(found.utility.value);
      const kind = [ranking.kind, found.passes === false ? "fails" : ""].join(" ").trim();
      const mark = ranking.kind === "logged"
        ? drawn("path", { class: "mark", d: "M" + x + " " + (y - 8) + "l8 8l-8 8l-8 -8z" })
        : drawn("circle", { class: "mark", cx: x, cy: y, r: 6.5 });
      return drawn("g", { class: "point " + kind, role: "radio", tabindex: checked ? 0 : -1, "data-key": ranking.key,
        "aria-checked": checked, "aria-label": sentence(ranking) },
        drawn("circle", { class: "ring", cx: x, cy: y, r: 12 }), mark, drawn("title", {}, sentence(ranking)));
    });
  }
  function labels(place) {
    const ordered = byDisparity(), ends = [ordered[0], ordered[ordered.length - 1]];
    const wanted = [rankingOf(state.key), ...shownRankings().filter((one) => one.kind === "logged"), ...ends];
    const taken = [], made = [];
    for (const ranking of new Set(wanted)) {
      const x = place.x(measured(ranking).disparity.value), y = place.y(measured(ranking).utility.value);
      const text = ranking.name.length > 24 ? ranking.name.slice(0, 23) + "…" : ranking.name;
      const length = text.length * 7, right = x + 16 + length < place.edge.right;
      const box = { left: right ? x + 14 : x - 14 - length, top: y - 9, length };
      if (taken.some((one) => Math.abs(one.top - box.top) < 16 && box.left < one.left + one.length && one.left < box.left + length)) continue;
      taken.push(box);
      made.push(drawn("text", { x: right ? x + 15 : x - 15, y: y - 6, class: "named", "aria-hidden": "true",
        "text-anchor": right ? "start" : "end" }, text));
    }
    return made;
  }
  function nearest(event, svg, place) {
    const box = svg.getBoundingClientRect(), scale = place.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    const far = (one) => Math.hypot(place.x(measured(one).disparity.value) - x, place.y(measured(one).utility.value) - y);
    return shownRankings().reduce((best, one) => (far(one) < far(best) ? one : best));
  }
  function byDisparity() {
    return shownRankings().slice().sort((one, other) => measured(one).disparity.value - measured(other).disparity.value);
  }
  function onKey(event) {
    const ordered = byDisparity(), now = ordered.findIndex((one) => one.key === state.key);
    const to = { ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1, Home: 0,
      End: ordered.length - 1, " ": now, Enter: now }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    pick(ordered[Math.min(Math.max(to, 0), ordered.length - 1)].key, true);
  }

  // ---- what is to be said of the one that is picked
  function showPanel() {
    const ranking = rankingOf(state.key), found = measured(ranking);
    byId("panel").replaceChildren(
      element("h3", { id: "panel-title" }, named(ranking.name)),
      ...verdict(found), headline(ranking, found), ...ofGroups(found), ...ofPairs(found), ...facts(ranking));
  }
  function verdict(found) {
    if (found.passes === null) return [];
    const limit = Number(part().limit.toPrecision(6));
    const why = found.disparity.high === null ? "" : ": the disparity may be as high as " + numberText(found.disparity.high);
    return [element("p", { class: "verdict " + (found.passes ? "passes" : "fails") },
      (found.passes ? "✓ keeps the limit of " : "✗ does not keep the limit of ") + limit + why)];
  }
  function headline(ranking, found) {
    const best = measured(rankingOf(content.reference)).utility.value;
    const kept = best > 0 && found.utility.value >= 0 && ranking.key !== content.reference
      ? shareText(found.utility.value / best) + " of the most useful policy’s" : null;
    const one = (id, name, estimate, ...more) => element("div", {}, element("dt", {}, name),
      element("dd", { class: "large", id: id }, number(estimate.value)),
      ...[interval(estimate), ...more].filter(Boolean).map((text) => element("dd", { class: "quiet" }, text)));
    return element("dl", { class: "numbers" }, one("picked-utility", "Utility (DCG)", found.utility, kept),
      one("picked-disparity", "Disparity", found.disparity),
      ...(found.exposure_to_move.value === null ? [] : [element("div", {}, element("dt", {}, "Exposure to move"),
        element("dd", { class: "large", id: "picked-move" }, share(found.exposure_to_move.value)),
        element("dd", { class: "quiet" }, found.exposure_to_move.low === null ? "to be in proportion to merit"
          : shareText(found.exposure_to_move.low) + " to " + shareText(found.exposure_to_move.high)))]));
  }
  function ofGroups(found) {
    if (!found.groups.length) {
      return [element("p", { class: "note" }, "What each group has is not known here; see what is missing, above.")];
    }
    const cut = found.groups_in_all > found.groups.length
      ? [element("p", { class: "quiet" }, "The first " + found.groups.length + " of " + found.groups_in_all + " groups.")] : [];
    const heads = ["Exposure", "Merit", "Exposure per merit"];
    const cell = (estimate) => element("td", {}, number(estimate.value, 3),
      estimate.low === null || estimate.high === null ? null
        : element("small", {}, numberText(estimate.low, 3) + " to " + numberText(estimate.high, 3)));
    // the name has a row of its own: on a phone there is no room for it beside the numbers
    const rows = found.groups.map((group) => element("tbody", {},
      element("tr", {}, element("th", { scope: "rowgroup", colspan: 3 }, named(group.name))),
      element("tr", {}, cell(group.exposure), cell(group.merit), cell(group.exposure_per_merit))));
    const bars = found.groups.map((group) => element("div", {}, element("p", {}, named(group.name)),
      bar("exposure", group.exposure_share.value), bar("merit", group.merit_share.value)));
    return [
      table("picked-groups", "Exposure against merit of each group", heads, rows),
      element("div", { class: "shares", role: "group", "aria-label": "Shares of exposure and of merit" }, ...bars), ...cut];
  }
  function bar(name, value) {
    const inner = element("i", { class: name });
    inner.style.width = 100 * Math.min(Math.max(value || 0, 0), 1) + "%";
    return element("div", { class: "share" }, element("span", {}, name), element("div", { class: "track" }, inner),
      element("span", {}, share(value)));
  }
  function ofPairs(found) {
    if (!found.pairs.length) return [];
    const cut = found.pairs_in_all > found.pairs.length
      ? ", the " + found.pairs.length + " largest of " + found.pairs_in_all : "";
    const rows = found.pairs.map((pair) => element("tr", {},
      element("th", { scope: "row" }, named(pair.first), ", ", named(pair.second)),
      element("td", {}, number(pair.disparity.value)),
      element("td", {}, pair.disparity.low === null || pair.disparity.high === null ? "–"
        : [number(pair.disparity.low), " to ", number(pair.disparity.high)]),
      element("td", {}, number(pair.exposure_ratio.value, 3),
        pair.exposure_ratio.low === null || pair.exposure_ratio.high === null ? null
          : element("small", {}, numberText(pair.exposure_ratio.low, 3) + " to " + numberText(pair.exposure_ratio.high, 3)))));
    const level = Math.round(content.level * 1000) / 10 + "% interval";
    return [table("picked-pairs", "Disparity D of pairs of groups" + cut, ["Pair", "D", level, "Ratio of exposure per merit"], rows)];
  }
  function facts(ranking) {
    if (!ranking.facts.length) return [];
    return [element("dl", { class: "numbers" }, ...ranking.facts.map(([name, text]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, text))))];
  }
  function table(id, caption, heads, rows) {
    return element("div", { class: "scrolls", role: "group", "aria-label": caption, tabindex: 0 },
      element("table", { id: id }, element("caption", {}, caption),
        element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
        ...(rows.length && rows[0].localName === "tbody" ? rows : [element("tbody", {}, ...rows)])));
  }

  // ---- examples
  function showExample() {
    const place = byId("rankings"), example = content.examples[state.example];
    if (!place || !example) return;
    const before = rankings.find((one) => one.kind === "logged") || null;
    const columns = new Map();
    if (before) columns.set(before.key, "As logged");
    columns.set(content.reference, "Most useful policy");
    if (!columns.has(state.key)) columns.set(state.key, "Picked");
    const keys = [...columns.keys()].filter((key) => example.rankings[key]);
    byId("example-about").textContent = example.about;
    place.replaceChildren(...keys.map((key, number) => element("div", {},
      element("h3", {}, columns.get(key) + (key === state.key && columns.get(key) !== "Picked" ? " (picked)" : ""),
        ...(rankingOf(key).kind === "policy" ? [": ", named(rankingOf(key).name)] : [])),
      list(example, key, number ? keys[0] : null))));
  }
  function list(example, key, compared) {
    const shown = example.rankings[key];
    const before = compared === null ? null : new Map(example.rankings[compared].map(([item], place) => [item, place]));
    const rows = shown.map(([item, exposure], place) => {
      const { name, group, evidence } = example.items[item];
      return element("li", { class: groupMark(group) }, element("span", { class: "place" }, String(place + 1)),
        element("span", {}, named(name), moved(before, item, place)),
        element("span", { class: "number" }, element("span", { class: "heard-only" }, "exposure "), number(exposure, 3)),
        element("span", { class: "about" }, ...(group === null ? ["no group"] : [named(group)]), " · " + evidence));
    });
    const rest = example.length - shown.length;
    const more = rest > 0 ? element("p", { class: "quiet" }, "and " + rest + " more") : null;
    return element("div", {}, element("ol", {}, ...rows), more);
  }
  function moved(before, item, place) {
    if (before === null) return null;
    if (!before.has(item)) return " ▲ new here";
    const step = before.get(item) - place;
    if (!step) return null;
    return element("span", { class: "quiet" }, step > 0 ? " ▲ " + step : " ▼ " + -step,
      element("span", { class: "heard-only" }, step > 0 ? " places up" : " places down"));
  }

  // ---- the curve of examination
  function drawCurve() {
    const width = Math.max(240, Math.round(byId("curve").clientWidth) || 600), height = 200;
    const edge = { left: 44, right: width - 4, top: 8, bottom: height - 40 }, values = content.curve;
    const high = Math.max(1, ...values), step = (edge.right - edge.left) / values.length, made = [];
    const y = (value) => edge.bottom - (value / high) * (edge.bottom - edge.top);
    for (const value of ticks(0, high, 4).values) {
      made.push(drawn("line", { class: "grid", x1: edge.left, x2: edge.right, y1: y(value), y2: y(value) }));
      made.push(drawn("text", { x: edge.left - 7, y: y(value) + 4, "text-anchor": "end" }, String(Math.round(value * 100) / 100)));
    }
    const every = Math.max(1, Math.ceil(values.length / (width / 40)));
    values.forEach((value, place) => {
      const x = edge.left + place * step;
      made.push(drawn("rect", { class: "bar", x: x + step * 0.12, width: step * 0.76, y: y(value), height: edge.bottom - y(value) }));
      if (place % every === 0) {
        made.push(drawn("text", { x: x + step / 2, y: edge.bottom + 16, "text-anchor": "middle" }, String(place + 1)));
      }
    });
    made.push(drawn("text", { x: (edge.left + edge.right) / 2, y: height - 6, "text-anchor": "middle" }, "position"));
    byId("curve").replaceChildren(drawn("svg", { viewBox: "0 0 " + width + " " + height, role: "img",
      "aria-label": "Bars: how likely each position is looked at, relative to position 1; the table below has the numbers" }, ...made));
  }

  function begin() {
    document.documentElement.classList.add("scripted");
    for (const ranking of rankings) {
      for (const found of Object.values(ranking.measured)) found.groups.forEach((group) => groupMark(group.name));
    }
    byId("choice").append(...rankings.map((one) => element("option", { value: one.key }, one.name)));
    byId("choice").addEventListener("change", (event) => pick(event.target.value, false));
    byId("parts").append(...content.parts.map((one) => element("label", {},
      element("input", { type: "radio", name: "part", value: one.key }), " " + one.name)));
    byId("parts").hidden = content.parts.length < 2;
    byId("parts").addEventListener("change", (event) => {
      state.part = event.target.value;
      pick(state.key, false);
    });
    const level = Math.round(content.level * 1000) / 10;
    byId("legend").textContent = "● policy" + (rankings.some((one) => one.kind === "logged") ? "  ◆ as logged" : "") +
      (rankings.some((one) => Object.values(one.measured).some((found) => found.passes === false)) ? "  ○ does not keep the limit" : "") +
      ". Lines through the picked point are its " + level + "% intervals, where they are known; one that ends at the edge goes on beyond it.";
    if (byId("example")) {
      byId("example").append(...content.examples.map((one, number) => element("option", { value: number }, one.query)));
      byId("example").addEventListener("change", (event) => {
        state.example = Number(event.target.value);
        showExample();
      });
    }
    takeAddress();
    show();
    drawCurve();
    addEventListener("hashchange", () => {
      takeAddress();
      show();
    });
    addEventListener("resize", () => {
      drawChart();
      drawCurve();
    });
    addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  }
  begin();
})();
