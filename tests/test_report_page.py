"""The page of a report in a real browser."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fultr import PositionBias, RandomRanking, RankingDataset, datasets, simulate_clicks, write_log
from fultr.audits import audit, write_audit
from fultr.cli.main import run
from fultr.reports.sentences import number_text
from tests.browser import BROWSERS, DESKTOP, PHONE, Browser

pytestmark = pytest.mark.browser

HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)> \"'&amp;"]
"""Names of groups that would run as scripts where they are not escaped."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        problem = f"no browser ({', '.join(BROWSERS)}): install Debian's package chromium to test the page"
        assert "FULTR_NEEDS_BROWSER" not in os.environ, problem
        pytest.skip(problem)
    made = Browser(program, tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep, a trained policy and an audit of hostile data, with their pages."""
    place = tmp_path_factory.mktemp("pages")
    plain = datasets.synthetic(queries=40, features=4, list_length=(3, 12), relevant=2, seed=0).train
    lists = RankingDataset(
        plain.features,
        plain.offsets,
        group=[HOSTILE[code] for code in plain.group],
        relevance=plain.relevance,
        query_id=[f"{HOSTILE[0]} {number}" for number in range(len(plain))],
        doc_id=[f"{HOSTILE[1]} {number}" for number in range(plain.rows)],
    )
    log = simulate_clicks(lists, RandomRanking(), PositionBias.power(1.0), clicks=400, seed=0)
    write_log(log, place / "clicks.parquet")
    common = [str(place / "clicks.parquet"), "--l2", "0.1", "--out"]
    assert run(["sweep", *common, str(place / "sweep"), "--lambdas", "0,1,10"]) == 0
    assert run(["train", *common, str(place / "train"), "--max-disparity", "0.2"]) == 0
    write_audit(audit(log, {HOSTILE[0]: RandomRanking()}, max_disparity=0.4), place / "audit")
    for name in ("sweep", "train", "audit"):
        assert run(["report", str(place / name), "--out", str(place / f"{name}.html")]) == 0
    return place


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the policies of the sweep's results by the key of their point."""
    results = json.loads((folder / "sweep/results.json").read_text())
    return {f"lambda={row['fairness_weight']:g}": row for row in results["policies"]}


def shown(browser: Browser, selector: str) -> list[tuple[float, str]]:
    """Return the exact numbers in a part of the page, and the texts that people see."""
    places = json.dumps(f"{selector} data")
    script = f"[...document.querySelectorAll({places})].map((one) => [one.value, one.textContent])"
    return [(float(value), text) for value, text in browser.run(script)]


def check_picked(browser: Browser, folder: Path, key: str, part: str = "validation") -> None:
    """Check that everything shows one policy, with the numbers of the run."""
    row = rows_of(folder)[key]
    short = {"validation": "valid", "training": "train"}[part]
    utility, disparity = row[f"{short}_utility"], row[f"{short}_disparity"]
    assert shown(browser, "#picked-utility") == [(utility, number_text(utility))]
    assert shown(browser, "#picked-disparity") == [(disparity, number_text(disparity))]
    assert browser.run("document.getElementById('choice').value") == key
    assert browser.run("document.querySelector('[aria-checked=true]').dataset.key") == key
    assert browser.run("document.querySelectorAll('[role=radio][tabindex=\\'0\\']').length") == 1
    assert browser.run("document.querySelector('tr.picked').dataset.key") == key
    said = browser.run("document.getElementById('status').textContent")
    assert said == f"λ = {key[7:]}: utility {number_text(utility)}, disparity {number_text(disparity)}"


def test_a_page_opens_without_a_word_on_the_console(browser: Browser, folder: Path) -> None:
    for name in ("sweep", "train", "audit"):
        page = folder / f"{name}.html"
        assert page.stat().st_size < 2_000_000
        for size in (DESKTOP, PHONE):
            browser.open(page, size=size)
            assert browser.run("document.querySelectorAll('#chart [role=radio]').length") >= 2
            assert browser.run("document.querySelectorAll('#curve rect').length") >= 3
            assert browser.trouble() == []


def test_the_address_picks_a_point_and_its_numbers_are_those_of_the_run(
    browser: Browser, folder: Path
) -> None:
    for key in rows_of(folder):
        browser.open(folder / "sweep.html", f"#{key}")
        check_picked(browser, folder, key)
        browser.open(folder / "sweep.html", f"#{key}&on=training")
        check_picked(browser, folder, key, "training")
    for unknown in ("#lambda=77", "#%3Cscript%3E", "#lambda=1&on=nowhere", "#explore"):
        browser.open(folder / "sweep.html", unknown)
        assert browser.run("document.getElementById('choice').value") in rows_of(folder)
    browser.run("location.hash = '#lambda=10'")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    check_picked(browser, folder, "lambda=10")
    assert browser.trouble() == []


def test_groups_and_pairs_of_the_picked_policy_are_those_of_its_evaluation(
    browser: Browser, folder: Path
) -> None:
    found = json.loads((folder / "train/results.json").read_text())["validation"]
    browser.open(folder / "train.html", "#policy")
    names = browser.run(
        "[...document.querySelectorAll('#picked-groups tbody bdi')].map((one) => one.textContent)"
    )
    assert names == found["groups"] == HOSTILE or names == found["groups"] == HOSTILE[::-1]
    expected = [
        found[measure][group] for group in names for measure in ("exposure", "merit", "exposure_per_merit")
    ]
    assert shown(browser, "#picked-groups") == [(value, number_text(value, 3)) for value in expected]
    shares = [found[measure][group] for group in names for measure in ("exposure_share", "merit_share")]
    assert [value for value, _ in shown(browser, ".shares")] == shares
    low, high = found["intervals"]["disparity"]
    expected = [found["disparity"], low, high, found["exposure_ratio"]]
    assert [value for value, _ in shown(browser, "#picked-pairs")] == expected


def test_a_point_is_picked_with_mouse_touch_and_lists(browser: Browser, folder: Path) -> None:
    browser.open(folder / "sweep.html", "#lambda=0")
    browser.click('#chart [data-key="lambda=10"] .mark')
    check_picked(browser, folder, "lambda=10")
    assert browser.run("location.hash") == "#lambda=10"
    browser.click('input[name=part][value="training"]')
    check_picked(browser, folder, "lambda=10", "training")
    assert browser.run("location.hash") == "#lambda=10&on=training"
    browser.run(
        "(() => { const one = document.getElementById('choice'); one.value = 'lambda=1';"
        " one.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    check_picked(browser, folder, "lambda=1", "training")
    browser.click('#table-validation tr[data-key="lambda=0"] a')
    browser.run("new Promise((done) => setTimeout(done, 50))")
    check_picked(browser, folder, "lambda=0")
    browser.open(folder / "sweep.html", "#lambda=0", PHONE)
    browser.tap('#chart [data-key="lambda=10"] .mark')
    browser.run("new Promise((done) => setTimeout(done, 50))")
    check_picked(browser, folder, "lambda=10")
    assert browser.trouble() == []


def test_a_point_is_picked_with_the_keyboard(browser: Browser, folder: Path) -> None:
    content = json.loads((folder / "sweep.html").read_text().split('id="content">')[1].split("</script>")[0])
    by_disparity = sorted(
        content["rankings"], key=lambda one: one["measured"]["validation"]["disparity"]["value"]
    )
    keys = [one["key"] for one in by_disparity]
    browser.open(folder / "sweep.html", f"#{keys[0]}")
    # one stop for all points: Tab goes from the controls to the one that is picked
    browser.run("document.querySelector('#parts input:checked').focus()")
    browser.key("Tab")
    focused = "document.activeElement.dataset.key"
    assert browser.run(focused) == keys[0]
    for key in keys[1:]:
        browser.key("ArrowRight")
        assert browser.run(focused) == key
        assert browser.run("location.hash") == f"#{key}"
    browser.key("ArrowRight")
    assert browser.run(focused) == keys[-1]
    browser.key("Home")
    assert browser.run(focused) == keys[0]
    browser.key("End")
    browser.key("ArrowLeft")
    assert browser.run(focused) == keys[-2]
    ring = "getComputedStyle(document.activeElement.querySelector('.ring')).strokeWidth"
    assert browser.run(ring) == "4px"
    if keys[-2].startswith("lambda="):
        check_picked(browser, folder, keys[-2])
    assert browser.trouble() == []


def test_examples_show_the_ranking_before_and_after(browser: Browser, folder: Path) -> None:
    content = json.loads((folder / "sweep.html").read_text().split('id="content">')[1].split("</script>")[0])
    picked = next(key for key in rows_of(folder) if key != content["reference"])
    browser.open(folder / "sweep.html", f"#{picked}")
    for number, example in enumerate(content["examples"]):
        browser.run(
            f"(() => {{ const one = document.getElementById('example'); one.value = '{number}';"
            " one.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )
        columns = browser.run(
            "[...document.querySelectorAll('#rankings > div')].map((column) =>"
            " [...column.querySelectorAll('li')].map((one) =>"
            " [one.querySelector('bdi').textContent, Number(one.querySelector('data').value)]))"
        )
        assert columns == [
            [[example["items"][item]["name"], exposure] for item, exposure in example["rankings"][key]]
            for key in ("logged", content["reference"], picked)
        ]


def test_names_from_data_are_shown_and_never_run(browser: Browser, folder: Path) -> None:
    for name in ("sweep", "train", "audit"):
        browser.open(folder / f"{name}.html")
        assert browser.run("document.scripts.length") == 2
        assert browser.run("document.images.length") == 0
        text = browser.run("document.body.innerText")
        for hostile in HOSTILE:
            assert hostile in text
        assert browser.trouble() == []


def test_the_page_cannot_ask_for_anything_and_runs_no_other_script(browser: Browser, folder: Path) -> None:
    browser.open(folder / "sweep.html")
    blocked = browser.run(
        "new Promise((done) => { addEventListener('securitypolicyviolation', (event) =>"
        " done(event.effectiveDirective)); fetch('http://127.0.0.1:9/').catch(() => 0); })"
    )
    assert blocked == "connect-src"
    browser.run(
        "(() => { const one = document.createElement('script'); one.textContent = 'window.ran = true';"
        " document.body.append(one); })()"
    )
    assert browser.run("window.ran === undefined")
    requests = [event for event in browser.events if event.get("method") == "Network.responseReceived"]
    assert all(event["params"]["response"]["url"].startswith(("file:", "data:")) for event in requests)


CONTRAST = """
(() => {
  const channels = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const rgb = channels(getComputedStyle(one).backgroundColor);
      if (rgb.length === 3 || rgb[3] > 0) return rgb;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const parent = walk.currentNode.parentElement, box = parent.getBoundingClientRect();
    if (!walk.currentNode.textContent.trim() || !box.width) continue;
    if (parent.closest('script, noscript, title')) continue;
    const style = getComputedStyle(parent);
    const ink = channels(parent.closest('svg') ? style.fill : style.color);
    const [one, other] = [light(ink), light(ground(parent))].sort((a, b) => b - a);
    found.push([(one + 0.05) / (other + 0.05), walk.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_in_dark(browser: Browser, folder: Path, scheme: str) -> None:
    for name in ("sweep", "audit"):
        browser.open(folder / f"{name}.html", prefers_color_scheme=scheme)
        found = browser.run(CONTRAST)
        assert len(found) > 100
        assert [one for one in found if one[0] < 4.5] == []
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]


def test_a_phone_scrolls_only_up_and_down(browser: Browser, folder: Path) -> None:
    for name in ("sweep", "train", "audit"):
        browser.open(folder / f"{name}.html", size=PHONE)
        assert browser.run("document.documentElement.scrollWidth") <= PHONE[0]
        # text in the picture keeps its size: one unit of the picture is one pixel of the screen
        assert (
            browser.run(
                "(() => { const one = document.querySelector('#chart svg');"
                " return Math.abs(one.getBoundingClientRect().width / one.viewBox.baseVal.width - 1); })()"
            )
            < 0.02
        )
        assert browser.run("document.getElementById('choice').getBoundingClientRect().height") >= 40


def test_a_screen_reader_finds_its_way(browser: Browser, folder: Path) -> None:
    browser.open(folder / "sweep.html", "#lambda=1")
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    seen = [
        (node["role"]["value"], node.get("name", {}).get("value", ""), node)
        for node in nodes
        if not node.get("ignored")
    ]
    roles = [role for role, _, _ in seen]
    for landmark in ("banner", "main", "contentinfo"):
        assert roles.count(landmark) == 1
    headings = [name for role, name, _ in seen if role == "heading"]
    for text in ("In short", "What fairness costs", "Why equal shares are not D = 0", "Settings"):
        assert text in headings
    radios = [name for role, name, _ in seen if role == "radio" and "utility" in name]
    assert len(radios) == 4
    row = rows_of(folder)["lambda=10"]
    utility, disparity = number_text(row["valid_utility"]), number_text(row["valid_disparity"])
    assert f"λ = 10: utility {utility}, disparity {disparity}" in radios
    assert "radiogroup" in roles
    for role in ("combobox", "status", "table", "image", "region", "figure"):
        assert role in roles
    # whatever can be used has a name
    assert [
        role for role, name, _ in seen if role in ("combobox", "radio", "link", "image", "table") and not name
    ] == []
    assert browser.run("document.documentElement.lang") == "en"


def test_verdicts_of_an_audit_are_said_in_words(browser: Browser, folder: Path) -> None:
    stored = {one["name"]: one for one in json.loads((folder / "audit/audit.json").read_text())["rankings"]}
    browser.open(folder / "audit.html")
    keys = browser.run("[...document.querySelectorAll('#chart [role=radio]')].map((one) => one.dataset.key)")
    for key, found in zip(keys, stored.values(), strict=True):
        browser.open(folder / "audit.html", f"#{key}")
        verdict = browser.run("document.querySelector('#panel .verdict').textContent")
        assert ("does not keep" in verdict) == (not found["passes"])
        assert number_text(found["disparity"]["high"]) in verdict
        ends = [found["utility"][end] for end in ("value", "low", "high")]
        assert [value for value, _ in shown(browser, "#panel .numbers div:first-child")] == ends


def test_without_scripts_the_tables_remain(browser: Browser, folder: Path) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(folder / "sweep.html")
        text = browser.run("document.body.innerText")
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert "need JavaScript" in text
    for row in rows_of(folder).values():
        assert number_text(row["valid_utility"]) in text
    assert "Measured on" not in text


def test_a_page_prints_in_the_colours_of_paper(browser: Browser, folder: Path) -> None:
    browser.open(folder / "sweep.html", prefers_color_scheme="dark")
    printed = base64.b64decode(browser.ask("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF")
    browser.ask(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("document.getElementById('choice').getBoundingClientRect().height") == 0
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("[...document.querySelectorAll('details')].every((one) => one.open)")
