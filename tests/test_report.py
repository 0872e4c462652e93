from __future__ import annotations

import html
import json
import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import markupsafe
import numpy as np
import pytest

from fultr import (
    ClickLog,
    DataSplits,
    FairRanker,
    PositionBias,
    RandomRanking,
    RankingDataset,
    datasets,
    evaluate,
    load,
    read_log,
    simulate_clicks,
    write_dataset,
    write_log,
)
from fultr.audits import GROUP_MEASURES, AuditEstimate, audit, read_audit, write_audit
from fultr.cli.main import run
from fultr.errors import InputError
from fultr.reports import (
    find_inputs,
    page_of,
    read_run,
    report_on_audit,
    report_on_run,
    run_of_frontier,
    write_report,
)
from fultr.reports.content import (
    DataPart,
    Detail,
    Group,
    MeasuredRanking,
    Pair,
    Ranking,
    Report,
    best_under,
    exactly,
    shortened,
    within,
)
from fultr.reports.examples import examples_of
from fultr.reports.page import LARGEST, embedded
from fultr.reports.run_report import detailed
from fultr.reports.sentences import number_text, share_text, summary_of_run
from fultr.training import sweep
from tests.commands import json_of, refusal, result_of

BIAS = PositionBias.power(1.0)
HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)> \"'&amp;"]


@pytest.fixture(scope="module")
def data() -> DataSplits:
    return datasets.synthetic(queries=40, features=4, list_length=(3, 12), relevant=2, seed=0)


@pytest.fixture(scope="module")
def log(data: DataSplits) -> ClickLog:
    return simulate_clicks(data.train, RandomRanking(), BIAS, clicks=300, seed=0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, log: ClickLog) -> Path:
    """A folder with a log, a run of `fultr sweep` and one of `fultr train` on it."""
    folder = tmp_path_factory.mktemp("runs")
    write_log(log, folder / "clicks.parquet")
    common = (str(folder / "clicks.parquet"), "--l2", "0.1", "--out")
    assert run(["sweep", *common, str(folder / "sweep"), "--lambdas", "0,1,10"]) == 0
    assert run(["train", *common, str(folder / "train"), "--max-disparity", "0.2"]) == 0
    return folder


def content_of(page: Path) -> dict[str, Any]:
    """Return the JSON that a page holds."""
    found = re.search(
        r'<script type="application/json" id="content">(.*?)</script>',
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


class Elements(HTMLParser):
    """Collects the elements of a page, and checks that they are closed in turn."""

    VOID = ("meta", "link")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def table_of(page: Path, name: str) -> dict[str, list[float]]:
    """Return the numbers in a table of a page, by the key of the ranking."""
    text = page.read_text(encoding="utf-8")
    table = text.split(f'<table id="{name}">')[1].split("</table>")[0]
    return {
        html.unescape(key): [float(value) for value in re.findall(r'<data value="([^"]+)"', row)]
        for key, row in re.findall(r'<tr data-key="([^"]+)">(.*?)</tr>', table)
    }


def test_numbers_of_a_sweep_are_those_of_its_results(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    printed = json_of(capsys, "report", runs / "sweep", "--out", page)
    assert printed["file"] == str(page)
    assert printed["bytes"] == page.stat().st_size < LARGEST
    assert printed["rankings"] == ["logged", "lambda=0", "lambda=1", "lambda=10"]
    assert printed["missing"] == []
    results = json.loads((runs / "sweep/results.json").read_text())
    content = content_of(page)
    by_key = {one["key"]: one for one in content["rankings"]}
    on_validation, on_training = table_of(page, "table-validation"), table_of(page, "table-training")
    for row in results["policies"]:
        key = f"lambda={row['fairness_weight']:g}"
        found = by_key[key]["measured"]
        assert found["validation"]["utility"]["value"] == row["valid_utility"]
        assert found["validation"]["disparity"]["value"] == row["valid_disparity"]
        assert found["training"]["utility"]["value"] == row["train_utility"]
        assert found["training"]["disparity"]["value"] == row["train_disparity"]
        assert [found["validation"]["utility"][end] for end in ("low", "high")] == row["intervals"]["dcg"]
        pair = found["validation"]["pairs"][0]["disparity"]
        assert [pair["low"], pair["high"]] == row["intervals"]["disparity"]
        assert on_validation[key] == [row["valid_utility"], row["valid_disparity"]]
        assert on_training[key] == [row["train_utility"], row["train_disparity"]]
        stored = load(runs / "sweep" / row["policy"]).validation_
        assert stored is not None
        for group in found["validation"]["groups"]:
            for name in ("exposure", "merit", "exposure_per_merit", "exposure_share", "merit_share"):
                assert group[name]["value"] == stored[name][group["name"]]


def test_groups_on_training_clicks_and_the_logged_ranking_are_measured_on_the_log(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    json_of(capsys, "report", runs / "sweep", "--out", page)
    by_key = {one["key"]: one["measured"] for one in content_of(page)["rankings"]}
    log = read_log(runs / "clicks.parquet")  # each query is left out once, and trained on otherwise
    ranker = load(runs / "sweep/policies/lambda-10.safetensors")
    expected = evaluate(ranker, log, intervals=None)
    for group in by_key["lambda=10"]["training"]["groups"]:
        assert group["exposure"]["value"] == pytest.approx(expected.exposure[group["name"]], rel=1e-12)
        assert group["merit"]["value"] == pytest.approx(expected.merit[group["name"]], rel=1e-12)
    for part in ("training", "validation"):
        logged = audit(log, position_bias=BIAS).logged
        found = by_key["logged"][part]
        assert found["utility"] == logged.utility.to_dict()
        assert found["disparity"] == logged.disparity.to_dict()
        assert [group["exposure"] for group in found["groups"]] == [
            group.exposure.to_dict() for group in logged.groups
        ]


def test_a_trained_policy_stands_next_to_the_logged_ranking(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    printed = json_of(capsys, "report", runs / "train", "--out", page)
    assert printed["rankings"] == ["logged", "policy"]
    results = json.loads((runs / "train/results.json").read_text())
    content = content_of(page)
    found = content["rankings"][1]["measured"]
    assert found["training"]["disparity"]["value"] == results["training"]["disparity"]
    assert found["training"]["passes"] is True
    assert found["validation"]["utility"]["value"] == results["validation"]["dcg"]
    assert found["validation"]["pairs"][0]["disparity"]["value"] == results["validation"]["disparity"]
    assert {part["key"]: part["limit"] for part in content["parts"]} == {"validation": None, "training": 0.2}
    text = page.read_text()
    assert "asked for a disparity of at most 0.2 on the training clicks" in text
    assert number_text(results["training"]["disparity"]) in text


def test_examples_show_the_rankings_of_the_policies_and_of_the_log(log: ClickLog) -> None:
    ranker = FairRanker(fairness_weight=0.0, l2=0.1).fit(log)
    examples = examples_of(log, {"policy": ranker}, BIAS, logged="logged", seed=3)
    assert examples == examples_of(log, {"policy": ranker}, BIAS, logged="logged", seed=3)
    assert [one.query for one in examples] != [
        one.query for one in examples_of(log, {"policy": ranker}, BIAS, logged="logged", seed=4)
    ]
    counts = log.compact()
    names = [str(name) for name in (counts.data.query_id if counts.data.query_id is not None else ())]
    scores, exposure = ranker.predict(counts.data), counts.logged_exposure(BIAS)
    for example in examples:
        number = names.index(example.query)
        rows = np.arange(counts.data.offsets[number], counts.data.offsets[number + 1])
        labels = [str(counts.data.doc_id[row]) for row in rows] if counts.data.doc_id is not None else []
        by_score = [labels[place] for place in np.argsort(-scores[rows], kind="stable")][:10]
        assert [example.items[item].name for item, _ in example.rankings["policy"]] == by_score
        # exposure of a whole list is that of its positions, whatever the policy
        if example.length <= 10:
            total = sum(value for _, value in example.rankings["policy"])
            assert total == pytest.approx(BIAS.curve(example.length).sum(), rel=1e-9)
        mean = exposure[rows] / counts.impressions[number]
        shown = example.rankings["logged"]
        assert [value for _, value in shown] == sorted((value for _, value in shown), reverse=True)
        for item, value in shown:
            assert value == pytest.approx(mean[labels.index(example.items[item].name)])
        assert len({item.group for item in example.items} - {None}) >= 1
        assert example.length == rows.size


def test_items_without_ids_are_numbered_and_what_was_never_shown_is_not_in_the_logged_ranking() -> None:
    lists = RankingDataset(np.eye(3), [0, 3], group=["a", "b", "b"])
    log = ClickLog(lists, [0, 0], [1, 2, 0, 2, 1, 0], [0, 1, 0, 0, 1, 0], position_bias=BIAS)
    (example,) = examples_of(log, {"policy": RandomRanking()}, BIAS, logged="logged")
    assert example.query == "list 1"
    assert [item.name for item in example.items] == ["item 1", "item 2", "item 3"]
    assert example.rankings["logged"] == ((0, 0.75), (1, 0.75))
    assert [item.evidence for item in example.items] == [
        "0 clicks in 2 showings",
        "2 clicks in 2 showings",
        "never shown",
    ]


def test_without_its_log_a_page_says_what_it_lacks(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "sweep", tmp_path / "elsewhere/sweep")
    config = tmp_path / "elsewhere/sweep/config.json"
    config.write_text(config.read_text().replace(str(runs), str(tmp_path / "gone")))
    page = tmp_path / "report.html"
    code, out, err = result_of(capsys, "report", tmp_path / "elsewhere/sweep", "--out", page)
    assert code == 0
    assert out == ""
    assert "is not at hand" in err
    assert "--log LOG" in html.unescape(page.read_text())
    content = content_of(page)
    assert [one["key"] for one in content["rankings"]] == ["lambda=0", "lambda=1", "lambda=10"]
    measured = content["rankings"][0]["measured"]
    assert measured["validation"]["groups"]
    assert measured["training"]["groups"] == []
    assert content["examples"] == []
    # the log as it was makes it whole, wherever it is
    moved = tmp_path / "moved.parquet"
    shutil.copy(runs / "clicks.parquet", moved)
    for items in runs.glob("clicks.items*"):
        shutil.copy(items, tmp_path / items.name)
    printed = json_of(capsys, "report", tmp_path / "elsewhere/sweep", "--log", moved, "--out", page)
    assert printed["missing"] == []
    assert printed["examples"] > 0
    # a log of the recorded name beside the run is found too, but another content is not the log of the run
    shutil.copy(moved, tmp_path / "elsewhere/clicks.parquet")
    assert find_inputs(read_run(tmp_path / "elsewhere/sweep")).missing is None
    write_log(read_log(moved)[:50], tmp_path / "elsewhere/clicks.parquet")
    missing = find_inputs(read_run(tmp_path / "elsewhere/sweep")).missing
    assert missing is not None
    assert "is not what it was" in missing


def test_labelled_lists_have_no_logged_ranking(
    tmp_path: Path, data: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(data.train, tmp_path / "train.parquet")
    options = ("--eta", 1, "--lambdas", "0,1", "--l2", 0.1, "--folds", 0)
    json_of(capsys, "sweep", tmp_path / "train.parquet", *options, "--out", tmp_path / "run")
    printed = json_of(capsys, "report", tmp_path / "run", "--out", tmp_path / "report.html")
    assert printed["rankings"] == ["lambda=0", "lambda=1"]
    assert printed["missing"] == ["There is no logged ranking: the run was trained on labelled lists."]
    content = content_of(tmp_path / "report.html")
    assert [part["key"] for part in content["parts"]] == ["training"]
    assert content["rankings"][0]["measured"]["training"]["groups"]
    assert "relevance" in content["examples"][0]["items"][0]["evidence"]


def test_a_cut_utility_is_not_compared_with_that_of_the_log(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in (("--top-k", 2), ("--clip", 1.5)):
        out = tmp_path / option[0]
        common = ("--lambda", 1, "--l2", 0.1, "--out", out)
        json_of(capsys, "train", runs / "clicks.parquet", *option, *common)
        printed = json_of(capsys, "report", out, "--out", tmp_path / "report.html")
        assert printed["rankings"] == ["policy"]
        assert any("cut by" in sentence for sentence in printed["missing"])
        results = json.loads((out / "results.json").read_text())
        found = content_of(tmp_path / "report.html")["rankings"][0]["measured"]
        assert found["training"]["utility"]["value"] == results["training"]["utility"]
        assert bool(found["training"]["groups"]) == (option[0] == "--top-k")


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, data: DataSplits, log: ClickLog) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    held_out = simulate_clicks(data.test, RandomRanking(), BIAS, clicks=300, seed=1)
    policies = {"fair": FairRanker(fairness_weight=10.0, l2=0.1).fit(log), HOSTILE[0]: RandomRanking()}
    found = audit(held_out, policies, max_disparity=0.4, seed=1)
    findings = ({"severity": "severe", "about": "x", "sentence": HOSTILE[1]},)
    write_audit(replace(found, findings=findings), folder)
    return folder


def test_numbers_of_an_audit_are_those_of_its_file(
    tmp_path: Path, audited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    json_of(capsys, "report", audited, "--out", page)
    stored = json.loads((audited / "audit.json").read_text())
    content = content_of(page)
    assert content["level"] == stored["settings"]["level"]
    assert content["curve"] == stored["position_bias"]["curve"]
    assert [part["limit"] for part in content["parts"]] == [0.4]
    for found, expected in zip(content["rankings"], stored["rankings"], strict=True):
        measured = found["measured"]["audit"]
        for name in ("utility", "disparity", "passes"):
            assert measured[name] == expected[name]
        for group, other in zip(measured["groups"], expected["groups"], strict=True):
            assert group == {name: other[name] for name in group}
        assert [pair["disparity"] for pair in measured["pairs"]] == [
            pair["disparity"] for pair in expected["pairs"]
        ]
    text = html.unescape(page.read_text())
    for ranking in stored["rankings"]:
        verdict = "passes" if ranking["passes"] else "does not pass"
        assert f"which may be as high as {number_text(ranking['disparity']['high'])}: it {verdict}" in text
    second = tmp_path / "second.html"
    json_of(capsys, "report", audited / "audit.json", "--out", second)
    assert content_of(second) == content


def test_whatever_is_in_the_data_is_text_on_the_page(tmp_path: Path, audited: Path) -> None:
    page = write_report(
        report_on_audit(read_audit(audited / "audit.json"), "<b>place</b>"), tmp_path / "p.html"
    )
    text = page.read_text(encoding="utf-8")
    elements = Elements(text)
    names = [name for name, _ in elements.found]
    assert names.count("script") == 2
    assert "img" not in names
    assert "b" not in names
    assert not any(key.startswith("on") for _, attributes in elements.found for key in attributes)
    assert str(markupsafe.escape(HOSTILE[1])) in text
    assert "alert(1)</script>" not in text
    assert HOSTILE[0] in [one["name"] for one in content_of(page)["rankings"]]


@pytest.mark.parametrize(
    "name", [*HOSTILE, "<!--", "{{script}}", "\u2028\u202e", "\ud800", "&lt;", "x" * 10_000]
)
def test_any_name_can_be_embedded(tmp_path: Path, name: str) -> None:
    assert json.loads(embedded({"name": name})) == {"name": name}
    assert not set("<>&") & set(embedded([name]))
    page = write_report(made_report(name, policies=1), tmp_path / "page.html")
    Elements(page.read_text(encoding="utf-8"))
    shown = content_of(page)["rankings"][0]["measured"]["part"]["groups"][0]["name"]
    assert shown == name or (len(name) > 80 and shown == name[:79] + "…")


def made_report(name: str, *, policies: int, groups: int = 2) -> Report:
    """Return a report of as many policies and groups as asked for."""
    one = AuditEstimate(1 / 3, 0.1, 0.9)
    names = [shortened(name if not number else f"{name[:60]} {number}") for number in range(groups)]
    pairs = tuple(
        Pair(first, second, one) for place, first in enumerate(names) for second in names[place + 1 :]
    )
    measured = MeasuredRanking(
        one, one, tuple(Group(group, one, one, one, one, one) for group in names), pairs
    )
    rankings = tuple(
        Ranking(f"lambda={number}", shortened(name), "policy", {"part": measured})
        for number in range(policies)
    )
    return Report(
        title="A title",
        source=name,
        summary=(name,),
        parts=(DataPart("part", "clicks", "all of them"),),
        rankings=rankings,
        picked="lambda=0",
        reference="lambda=0",
        curve=(1.0, 0.5),
        curve_about="",
        findings=({"severity": name, "sentence": name},),
        missing=(name,),
        settings=((name, name),),
        level=0.95,
    )


def test_a_page_stays_small_and_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    report = made_report("group", policies=3, groups=50)

    def held(page: bytes) -> tuple[int, int]:
        content = json.loads(re.findall(rb'id="content">(.*?)</script>', page, re.DOTALL)[0])
        found = content["rankings"][0]["measured"]["part"]
        assert (found["groups_in_all"], found["pairs_in_all"]) == (50, 1225)
        return len(found["groups"]), len(found["pairs"])

    whole = page_of(report)
    assert held(whole) == (40, 20)
    for most, expected in ((len(whole), (40, 20)), (len(whole) - 1, (20, 10))):
        monkeypatch.setattr("fultr.reports.page.LARGEST", most)
        smaller = page_of(report)
        assert held(smaller) == expected
        assert len(smaller) <= most
    monkeypatch.setattr("fultr.reports.page.LARGEST", 10_000)
    with pytest.raises(InputError, match="there are 3 rankings; report on fewer"):
        page_of(report)


def test_of_many_pairs_the_largest_are_shown() -> None:
    pairs = tuple(
        Pair("a", str(number), exactly(value)) for number, value in enumerate((0.1, -0.9, 0.5, 0.2))
    )
    measured = MeasuredRanking(exactly(1.0), exactly(1.0), (), pairs)
    kept = measured.cut(Detail(groups=1, pairs=2, examples=0))
    assert [pair.disparity.value for pair in kept.pairs] == [-0.9, 0.5]
    assert kept.pairs_in_all == 4


def test_the_page_asks_for_nothing(tmp_path: Path) -> None:
    text = write_report(made_report("x", policies=2), tmp_path / "page.html").read_text(encoding="utf-8")
    elements = Elements(text)
    for _, attributes in elements.found:
        for name in ("src", "href", "action", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), value
    # the one address is the name of SVG's elements
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    policy = next(one["content"] for _, one in elements.found if one.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_disparity_of_two_groups_has_the_bounds_of_its_size() -> None:
    base = MeasuredRanking(exactly(1.0), exactly(0.3))

    def bounds(low: float, high: float) -> tuple[float, float]:
        of_groups = {name: {"a": 1.0, "b": None} for name in GROUP_MEASURES}
        found = detailed(
            base,
            {
                "groups": ["a", "b"],
                "disparities": [[0.0, -0.3], [0.3, 0.0]],
                "exposure_ratios": [[1.0, None], [None, 1.0]],
                "intervals": {"dcg": [0.9, 1.1]},
                "pair_intervals": {"disparities": [[[0.0, low], [-high, 0.0]], [[0.0, high], [-low, 0.0]]]},
                **of_groups,
            },
        )
        assert found.utility == AuditEstimate(1.0, 0.9, 1.1)
        assert math.isnan(found.groups[1].merit.value)
        return found.disparity.low, found.disparity.high

    assert bounds(-0.5, 0.2) == (0.0, 0.5)
    assert bounds(-0.5, -0.1) == (0.1, 0.5)
    assert bounds(0.1, 0.7) == (0.1, 0.7)


def test_the_policy_shown_first_is_the_fairest_that_keeps_most_of_the_utility() -> None:
    def ranking(key: str, utility: float, disparity: float) -> Ranking:
        return Ranking(key, key, "policy", {"part": MeasuredRanking(exactly(utility), exactly(disparity))})

    policies = [ranking("a", 1.0, 0.9), ranking("b", 0.96, 0.5), ranking("c", 0.94, 0.1)]
    found = best_under(policies, "part", 0.95)
    assert found is not None
    assert found.key == "b"
    below = [ranking("a", -1.0, 0.9), ranking("b", -1.02, 0.5), ranking("c", -1.2, 0.1)]
    found = best_under(below, "part", 0.95)
    assert found is not None
    assert found.key == "b"
    assert best_under([], "part", 0.95) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (-1e-9, "0.0000"),
        (0.38984, "0.3898"),
        (-0.5, "-0.5000"),
        (150.25, "150.2"),
        (None, "\u2013"),
    ],
)
def test_numbers_as_text(value: float | None, text: str) -> None:
    assert number_text(value) == text
    assert share_text(None) == "\u2013"
    assert share_text(0.3333) == "33.3%"


def test_within_takes_bounds_or_none() -> None:
    assert within(1.0, [0.5, 2.0]) == AuditEstimate(1.0, 0.5, 2.0)
    assert math.isnan(within(1.0, [None, 2.0]).low)


def test_the_summary_has_the_numbers_of_the_run(runs: Path) -> None:
    run = read_run(runs / "sweep")
    report = report_on_run(run, read_log(runs / "clicks.parquet"))
    text = " ".join(report.summary)
    logged = report.ranking("logged").measured["validation"]
    assert f"As logged, the ranking has a utility (DCG) of {number_text(logged.utility.value)}" in text
    policies = [one for one in report.rankings if one.kind == "policy"]
    fairest = min(policies, key=lambda one: one.measured["validation"].disparity.value)
    assert f"{fairest.name}, has a utility (DCG) of" in text
    assert number_text(fairest.measured["validation"].disparity.value) in text
    assert "Equal shares and D = 0 are not the same thing" in text
    assert report.picked in [one.key for one in policies]
    without = " ".join(summary_of_run(run, report.parts, policies, None))
    assert "As logged" not in without


def test_a_sweep_in_memory_gives_the_report_of_one_in_a_folder(runs: Path) -> None:
    log = read_log(runs / "clicks.parquet")  # in the order of the file, so that sums are the same ones
    front = sweep(log, fairness_weights=[0.0, 1.0, 10.0], l2=0.1)
    limited = FairRanker(max_disparity=0.2, l2=0.1).fit(log)
    settings = json.loads((runs / "sweep/config.json").read_text())["settings"]
    run = run_of_frontier(front, settings, "here", {"limited": limited})
    report = report_on_run(run, log)
    stored = report_on_run(read_run(runs / "sweep"), read_log(runs / "clicks.parquet"))
    assert [one.key for one in report.rankings] == ["logged", "lambda=0", "lambda=1", "lambda=10", "policy-1"]
    for one in stored.rankings:
        found = report.ranking(one.key).measured["validation"]
        assert found.utility.value == pytest.approx(one.measured["validation"].utility.value, rel=1e-6)
    assert report.ranking("policy-1").measured["training"].disparity.value == limited.training_disparity_


def test_seeds_tell_policies_of_the_same_weight_apart(log: ClickLog, runs: Path) -> None:
    front = sweep(log, fairness_weights=[1.0], l2=0.1, seeds=[3, 4])
    settings = json.loads((runs / "sweep/config.json").read_text())["settings"] | {"seeds": [3, 4]}
    run = run_of_frontier(front, settings, "here", {})
    assert [policy.key for policy in run.policies] == ["lambda=1&seed=3", "lambda=1&seed=4"]
    assert [policy.name for policy in run.policies] == ["λ = 1, seed 3", "λ = 1, seed 4"]


def test_what_cannot_be_reported_is_said_in_a_line(
    tmp_path: Path, runs: Path, audited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", tmp_path / "report.html")
    assert "no such file or folder" in refusal(capsys, "report", tmp_path / "none", *out)
    assert "cannot be read: File name too long" in refusal(capsys, "report", "x" * 300, *out)
    (tmp_path / "empty").mkdir()
    assert "holds neither a run (config.json) nor an audit (audit.json)" in refusal(
        capsys, "report", tmp_path / "empty", *out
    )
    assert "is no JSON file" in refusal(capsys, "report", runs / "clicks.parquet", *out)
    assert "a report is an .html file" in refusal(capsys, "report", audited, "--out", tmp_path / "page.txt")
    assert "--log is for the report of a run" in refusal(
        capsys, "report", audited, "--log", runs / "clicks.parquet", *out
    )
    other = tmp_path / "other.parquet"
    write_log(read_log(runs / "clicks.parquet")[:50], other)
    assert "is not the log that the run was trained on" in refusal(
        capsys, "report", runs / "sweep", "--log", other, *out
    )
    assert "no such file" in refusal(capsys, "report", runs / "sweep", "--log", tmp_path / "no.parquet", *out)
    assert "its folder does not exist" in refusal(
        capsys, "report", runs / "sweep", "--out", tmp_path / "none/report.html"
    )
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("results.json", "{", "results.json: is damaged"),
        ("results.json", "[]", "is no JSON object"),
        ("results.json", "", "is empty"),
        ("results.json", "{}", "lacks 'policies'"),
        ("results.json", '{"policies": [], "trained": 0}', "lists no policies"),
        ("results.json", '{"policies": [{}], "trained": 1}', "lacks 'policies.0.seed'"),
        ("results.json", '{"policies": [{"seed": NaN}], "trained": 1}', "NaN is not a number in JSON"),
        ("results.json", '{"policies": [{"seed": "0"}], "trained": 1}', "must be a number"),
        ("results.json", '{"policies": [3], "trained": 1}', "lacks 'policies.0.seed'"),
        ("config.json", '{"command": "train"}', "lacks 'settings' or 'inputs'"),
        ("config.json", '{"command": "rm", "settings": {}, "inputs": {}}', "not of a run of fultr train"),
        (
            "config.json",
            '{"command": "sweep", "settings": {}, "inputs": {}}',
            "is damaged (KeyError: 'seeds')",
        ),
        ("policies/lambda-1.safetensors", "abc", "lambda-1.safetensors"),
    ],
)
def test_damaged_runs_are_refused(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, said: str
) -> None:
    shutil.copytree(runs / "sweep", tmp_path / "run")
    (tmp_path / "run" / file).write_text(text)
    assert said in refusal(capsys, "report", tmp_path / "run", "--out", tmp_path / "report.html")


def test_values_of_results_are_checked_one_by_one(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((runs / "sweep/results.json").read_text())
    shutil.copytree(runs / "sweep", tmp_path / "run")
    changes: dict[str, object] = {
        "valid_utility": "x",
        "train_disparity": None,
        "policy": "../secret",
        "l2": True,
        "seed": [],
    }
    for name, value in changes.items():
        row = {**content["policies"][0], name: value}
        changed = {**content, "policies": [row, *content["policies"][1:]]}
        (tmp_path / "run/results.json").write_text(json.dumps(changed))
        said = refusal(capsys, "report", tmp_path / "run", "--out", tmp_path / "report.html")
        assert "is damaged" in said
        assert name in said


def test_an_unfinished_run_is_refused(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(runs / "train", tmp_path / "run")
    (tmp_path / "run/results.json").unlink()
    said = refusal(capsys, "report", tmp_path / "run", "--out", tmp_path / "report.html")
    assert "has not finished" in said
    assert "--resume" in said


def test_the_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = result_of(capsys, "report", "--help")
    assert code == 0
    assert "fultr report" in out.split("Example:")[1]
    for option in ("--json", "--seed", "--log", "--out"):
        assert option in out
