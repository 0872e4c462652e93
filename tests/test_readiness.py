from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from fultr import (
    ClickLog,
    PositionBias,
    RandomRanking,
    RankingDataset,
    read_log,
    simulate_clicks,
    write_log,
)
from fultr.clicks import supported_methods
from fultr.clicks.readiness import Readiness, judge_readiness, severe_lines
from fultr.data import Counts
from fultr.datasets import synthetic
from fultr.estimators import effective_sample_size
from tests.commands import json_of, refusal, result_of
from tests.strategies import logs

POWER = PositionBias.power(1.0)


def some_log(lists: int = 30, **fields: Any) -> ClickLog:
    """Return a log of lists of three, each shown twice, the second time reversed."""
    rng = np.random.default_rng(0)
    data = RankingDataset(
        rng.normal(size=(3 * lists, 2)), np.arange(0, 3 * lists + 1, 3), group=["a", "b", "b"] * lists
    )
    content: dict[str, Any] = {
        "data": data,
        "lists": [*range(lists)] * 2,
        "position": [1, 2, 3] * lists + [3, 2, 1] * lists,
        "click": [1, 0, 0] * lists + [0, 1, 0] * (lists - 1) + [0, 0, 0],
        "position_bias": PositionBias([1.0, 0.8, 0.7]),
        "timestamp": [*range(2 * lists)],
        **fields,
    }
    return ClickLog(**content)


def said(readiness: Readiness, about: str) -> str | None:
    """Return the severity of the finding that says something, if there is one."""
    found = [finding.severity for finding in readiness.findings if about in finding.sentence]
    assert len(found) < 2, found
    return found[0] if found else None


def both(log: ClickLog, about: str, bias: PositionBias | None = None) -> str | None:
    """Return the severity of a finding that a log and its counts have in common."""
    raw, compact = (said(judge_readiness(one, bias), about) for one in (log, log.compact()))
    assert raw == compact
    return raw


def test_a_good_log_has_notes_only() -> None:
    for log in (some_log(31), some_log(31).compact()):
        readiness = judge_readiness(log)
        assert {finding.severity for finding in readiness.findings} == {"note"}
        assert not readiness.severe
        assert severe_lines(readiness) == []


def test_the_worst_comes_first_and_severe_lines_are_sentences() -> None:
    log = some_log(position_bias=None, empties_dropped=True, position=[1, 2, 3] * 60)
    readiness = judge_readiness(log)
    order = [finding.severity for finding in readiness.findings]
    assert order == sorted(order, key=["severe", "warning", "note"].index)
    assert len(set(order)) == 3
    assert readiness.severe
    assert severe_lines(readiness) == [finding.sentence for finding in readiness.severe]
    assert any(
        line.startswith("Impressions without a click were dropped") for line in severe_lines(readiness)
    )
    assert both(replace(log, empties_dropped=False), "were dropped") is None


def test_overlap_is_what_position_bias_needs() -> None:
    fixed = some_log(position=[1, 2, 3] * 60)
    assert both(fixed, "None of 90 query-document pairs") == "note"
    assert both(replace(fixed, position_bias=None), "None of 90 query-document pairs") == "severe"
    assert both(replace(fixed, position_bias=None), "None of", POWER) == "note"
    assert supported_methods(fixed) == ()
    position = fixed.position.copy()
    position[[0, 1]] = position[[1, 0]]
    moved = replace(fixed, position=position)
    assert both(moved, "2 of 90 query-document pairs (2%)") == "note"
    assert supported_methods(moved) == ("harvest", "em")
    assert both(moved, "29 of 30 queries that came more than once always showed the same ranking") == "note"
    assert both(moved[:-1], "28 of 29 queries that came more than once") == "note"
    assert both(some_log(), "always showed the same ranking") is None
    assert judge_readiness(moved).facts["overlap"]["positions_not_linked"] == [3]


def test_positions_that_no_document_links_to_the_first_are_named() -> None:
    log = some_log()
    assert judge_readiness(log).facts["overlap"]["positions_not_linked"] == [2]
    assert both(log, "No documents link position 1 with 2,") == "note"
    assert both(replace(log, position_bias=None), "No documents link position 1 with 2,") == "warning"
    position = log.position.copy()
    position[[0, 1]] = position[[1, 0]]
    assert both(replace(log, position=position), "No documents link") is None
    # 1-2 and 2-3 lead from 1 to 3; 4-5 stays apart
    data = RankingDataset(np.zeros((5, 1)), [0, 5], doc_id=range(5))
    chained = ClickLog(data, [0] * 2, [1, 2, 0, 4, 0, 2, 3, 0, 5, 0], [1, 0, 0, 0, 0] * 2)
    assert judge_readiness(chained).facts["overlap"]["positions_not_linked"] == [4, 5]
    deep = ClickLog(data, [0] * 2, [2, 3, 0, 0, 0, 3, 2, 0, 0, 0], [1, 0, 0, 0, 0] * 2)
    assert judge_readiness(deep).facts["overlap"]["positions_not_linked"] == [2, 3]


def test_a_document_is_the_same_in_other_lists_of_its_query() -> None:
    for queries, pairs, several in (([7, 7], 3, 1), ([7, 8], 4, 0)):
        data = RankingDataset(np.zeros((4, 1)), [0, 2, 4], doc_id=[1, 2, 2, 3], query_id=queries)
        log = ClickLog(data, [0, 1], [1, 2, 1, 2], [1, 0, 1, 0], position_bias=POWER)
        for one in (log, log.compact()):
            overlap = judge_readiness(one).facts["overlap"]
            assert (overlap["pairs"], overlap["pairs_at_several_positions"]) == (pairs, several)


def test_without_a_position_bias_weights_are_not_judged() -> None:
    log = replace(some_log(), position_bias=None)
    assert both(log, "neither propensities nor a position bias") == "warning"
    assert judge_readiness(log).facts["weights"] is None
    assert judge_readiness(log).facts["groups"]["a"]["merit"] is None
    for known in (judge_readiness(log, POWER), judge_readiness(some_log(propensity=[0.5] * 180))):
        assert said(known, "neither propensities nor a position bias") is None
        assert known.facts["weights"] is not None


def test_clicks_that_no_bias_explains_are_severe_and_no_error() -> None:
    for bias in (PositionBias([1.0, 0.5]), PositionBias([1.0], beyond="zero")):
        assert both(some_log(position_bias=bias), "Clicks cannot be weighted") == "severe"
    assert both(some_log(), "Clicks cannot be weighted") is None
    tiny = some_log(propensity=[5e-324] * 180, position_bias=None)
    assert both(tiny, "beyond all numbers") == "severe"
    readiness = judge_readiness(some_log(position_bias=PositionBias([1.0], beyond="zero")))
    assert "29 clicks stand at positions that are never examined" in severe_lines(readiness)[0]


def test_huge_weights_are_severe_where_they_decide_alone() -> None:
    log = some_log(lists=100)
    assert both(log, "A click weighs up to 1.25") == "note"
    few = log.click.copy()
    few[302:] = False  # of the second half one click is left, at position 2
    for weight, severity in ((1e3, "severe"), (1e200, "severe"), (2.0, "note")):
        bias = PositionBias([1.0, 1 / weight, 1.0])
        readiness = judge_readiness(replace(log, click=few), bias)
        assert said(readiness, "A click weighs up to") == severity
        facts = readiness.facts["weights"]
        assert facts["largest"] == pytest.approx(weight)
        size = (100 / weight + 1) ** 2 / (100 / weight / weight + 1)
        assert facts["effective_sample_size"] == pytest.approx(size)
        assert facts["share_of_largest_clicks"] == pytest.approx(weight / (100 + weight))
        json.dumps(readiness.to_dict(), allow_nan=False)
    # 200 clicks of weight 1 and one of 60 are worth 260^2 / 3800 = 17.8: few, but not hardly any
    log = some_log(lists=200)
    few = log.click.copy()
    few[602:] = False
    assert both(replace(log, click=few), "Few clicks decide", PositionBias([1.0, 1 / 60, 1.0])) == "warning"


def test_depth_is_told() -> None:
    log = some_log(click=[1, 0, 0] * 30 + [0] * 90)
    assert (
        both(log, "Nothing below position 1 was clicked, though items are shown down to 3 (67%") == "warning"
    )
    click = log.click.copy()
    click[1] = True
    assert both(replace(log, click=click), "Nothing below position 2 was clicked") == "note"
    assert both(some_log(click=[0, 0, 1] * 60), "was clicked, though") is None
    top = some_log(position=[1, 2, 0] * 30 + [0, 2, 1] * 30)
    assert both(top, "Nothing is shown below position 2, though lists have up to 3 candidates") == "note"
    assert both(some_log(), "Nothing is shown below") is None


def test_candidates_that_were_never_shown_are_counted() -> None:
    position = np.array([1, 2, 3] * 60)
    position[2::3] = 0
    hidden = some_log(position=position, click=[1, 0, 0] * 59 + [0] * 3)
    assert both(hidden, "30 of 90 query-document pairs (33%, ") == "severe"
    assert both(hidden, "33% of the candidates of impressions were not shown") == "note"
    position[2] = 3
    position[5::3] = 3
    position[-1] = 0
    once = some_log(position=position, click=[1, 0, 0] * 59 + [0] * 3)
    assert both(once, "were never shown") is None
    assert both(once, "of the candidates of impressions were not shown") == "note"
    assert both(some_log(), "not shown") is None
    # a list that nobody asked for has no candidates that were never shown
    assert both(some_log()[np.arange(60) % 30 > 0], "were never shown") is None


def test_queries_are_counted() -> None:
    log = some_log(click=[0, 0, 0] + [1, 0, 0] * 29 + [0] * 90)
    assert both(log, "1 of 30 queries were never clicked") == "note"
    assert both(some_log(), "were never clicked") is None
    most = some_log(click=[0, 0, 0] * 16 + [1, 0, 0] * 14 + [0] * 90)
    assert both(most, "16 of 30 queries were never clicked") == "warning"
    assert both(some_log(), "queries only") is None
    assert both(some_log(lists=19), "There are 19 queries only") == "note"
    assert both(some_log(lists=1), "There is one query only") == "warning"


def test_groups_without_evidence_are_named() -> None:
    log = some_log()
    assert both(log, "Group 'b'") == "warning"  # 29 clicks
    assert both(log, "Group 'a'") is None  # 30
    assert both(log, "Group 'b' has 29 clicks, worth 29 of equal weight") == "warning"
    assert both(replace(log, position_bias=None), "Group 'b' has 29 clicks: intervals") == "warning"
    never = some_log(click=[1, 0, 0] * 30 + [0] * 90)
    assert both(never, "Group 'b' was never clicked") == "severe"
    hidden = some_log(position=[1, 0, 0] * 60, click=[1, 0, 0] * 30 + [0] * 90)
    assert both(hidden, "Group 'b' was never shown") == "severe"
    assert both(hidden, "was never clicked") is None


def test_a_group_without_items_is_no_group_to_judge() -> None:
    data = some_log().data
    log = some_log(data=replace(data, group_names=("a", "b", "c")))
    assert both(log, "Group 'c'") == "warning"
    assert both(log, "Group 'c' has no item.") == "warning"
    for one in (log, log.compact()):
        facts = judge_readiness(one).facts["groups"]["c"]
        assert (facts["pairs"], facts["shown"], facts["mean_position"], facts["merit"]) == (0, 0, None, 0.0)
        assert (facts["effective_sample_size"], facts["largest_weight"]) == (0.0, 0.0)
    without = some_log(data=replace(data, group=np.full(90, -1, dtype=np.int32), group_names=()))
    assert both(without, "Group '") is None
    assert both(without, "There are no groups") == "note"


def test_hundreds_of_groups_without_evidence_are_a_few_findings() -> None:
    groups = [f"g{row}" for row in range(300)]
    relevance = np.arange(300) % 2
    data = RankingDataset(np.zeros((300, 1)), range(0, 301, 3), group=groups, relevance=relevance)
    log = simulate_clicks(data, RandomRanking(), POWER, impressions=300, seed=0)
    about = [one.sentence for one in judge_readiness(log).findings if "roup" in one.sentence]
    assert 5 < len(about) < 20
    assert any("more groups were never clicked. Merge small groups" in sentence for sentence in about)


def test_groups_that_never_meet_have_no_disparity() -> None:
    data = some_log().data
    apart = some_log(data=replace(data, group=np.repeat([0, 1] * 15, 3)))
    assert both(apart, "No impression has candidates of two groups") == "severe"
    once = np.repeat([0, 1] * 15, 3)
    once[0] = 1
    assert both(some_log(data=replace(data, group=once)), "No impression has") is None


def test_unknown_groups_are_counted_in_items_and_clicks() -> None:
    data = some_log().data
    group = data.group.copy()
    group[2] = -1
    few = some_log(data=replace(data, group=group))
    assert both(few, "1 of 90 query-document pairs (1%) are in no known group; they have 0%") == "note"
    group[0:60:3] = -1
    many = some_log(data=replace(data, group=group))
    assert both(many, "21 of 90 query-document pairs (23%) are in no known group; they have 34%") == "warning"
    group = data.group.copy()
    group[0:21:3] = -1
    clicked = some_log(data=replace(data, group=group))
    assert both(clicked, "7 of 90 query-document pairs (8%) are in no known group; they have 12") == "warning"
    assert both(some_log(), "no known group") is None


def test_single_impressions_are_judged_where_they_were_seen() -> None:
    log = some_log(click=[1, 1, 1] + [1, 0, 0] * 29 + [0] * 90)
    assert said(judge_readiness(log), "1 of 60 impressions had every item clicked") == "warning"
    assert said(judge_readiness(log.compact()), "1 of 60 impressions had every item clicked") == "warning"
    unseen = replace(log.compact(), facts=None)
    assert said(judge_readiness(unseen), "every item clicked") is None
    assert said(judge_readiness(some_log()), "every item clicked") is None
    again = replace(log, lists=np.array([*range(30)] * 2), position=np.array([1, 2, 3] * 60))
    again = replace(again, click=np.array([1, 0, 0] * 60), timestamp=np.array([*range(30)] * 2))
    assert said(judge_readiness(again), "30 of 60 impressions with a click equal another one") == "warning"
    assert judge_readiness(unseen).facts["single_impressions"] is None
    assert judge_readiness(log).facts["single_impressions"]["all_clicked"] == 1


def slow_facts(log: ClickLog, bias: PositionBias) -> dict[str, Any]:
    """Return what a log shows and what its clicks weigh, entry by entry.

    Where candidates are not shown, a click weighs 1 over the mean examination in all impressions of the list.
    """
    examined: dict[Any, list[float]] = defaultdict(list)
    clicked: list[tuple[int, Any, float]] = []
    positions: dict[Any, set[int]] = defaultdict(set)
    weights: dict[Any, list[float]] = defaultdict(list)
    candidates: dict[Any, int] = {}
    shown_at: dict[int, int] = defaultdict(int)
    for number, which in enumerate(log.lists):
        query = which if log.data.query_id is None else log.data.query_id[which]
        rows = np.arange(log.data.offsets[which], log.data.offsets[which + 1])
        documents = rows.tolist() if log.data.doc_id is None else log.data.doc_id[rows].tolist()
        same_list = (str(query), tuple(sorted(map(str, documents))))
        for place in range(log.data.lengths[which]):
            entry, row = log.offsets[number] + place, log.data.offsets[which] + place
            item = (str(query), str(row if log.data.doc_id is None else log.data.doc_id[row]))
            candidates[item] = int(log.data.group[row])
            where = int(log.position[entry])
            if where:
                positions[item].add(where)
                shown_at[where] += 1
            examined[same_list, item].append(float(bias.at([where])[0]))
            if log.click[entry]:
                clicked.append((candidates[item], (same_list, item), examined[same_list, item][-1]))
    for group, key, at_position in clicked:
        mean = float(np.mean(examined[key]))
        weights[group].append(1 / (mean if (log.position == 0).any() else at_position))
    return {
        "pairs": len(candidates),
        "shown": len(positions),
        "several": sum(len(found) > 1 for found in positions.values()),
        "shown_at": dict(shown_at),
        "weights": weights,
        "groups": list(candidates.values()),
    }


def overlapping_log(seed: int) -> ClickLog:
    """Return a random log of few queries, whose lists have some documents in common."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, size=8)
    documents = np.concatenate([rng.permutation(6)[:length] for length in lengths])
    data = RankingDataset(
        np.zeros((documents.size, 1)),
        np.cumsum([0, *lengths]),
        query_id=rng.integers(3, size=8),
        doc_id=documents,
        group=documents % 3 - 1,
        group_names=("even", "odd"),
    )
    lists = rng.integers(7, size=12)  # the last list is never shown
    position = np.concatenate([rng.permutation(length) for length in lengths[lists]])  # 0 for one of each
    click = (rng.random(position.size) < 0.5) & (position > 0)
    return ClickLog(data, lists, position, click, position_bias=PositionBias.power(0.5))


@pytest.mark.parametrize("seed", range(20))
def test_lists_with_documents_in_common_are_counted_by_document(seed: int) -> None:
    assert_plain_count(overlapping_log(seed))
    assert_counts_say_the_same(overlapping_log(seed))


@given(logs())
def test_numbers_are_those_of_a_plain_count(log: ClickLog) -> None:
    assert_plain_count(log)


def assert_plain_count(log: ClickLog) -> None:
    expected = slow_facts(log, POWER)
    facts = judge_readiness(log, POWER).facts
    assert facts["candidates"]["pairs"] == expected["pairs"]
    assert facts["candidates"]["pairs_never_shown"] == expected["pairs"] - expected["shown"]
    assert facts["overlap"]["pairs_at_several_positions"] == expected["several"]
    assert {entry["position"]: entry["shown"] for entry in facts["positions"]} == expected["shown_at"]
    every = np.array([weight for found in expected["weights"].values() for weight in found])
    weights = facts["weights"]
    assert weights["clicks"] == every.size == facts["clicks"]
    assert weights["effective_sample_size"] == pytest.approx(effective_sample_size(every))
    assert weights["mean"] == pytest.approx(every.mean())
    assert weights["largest"] == pytest.approx(every.max())
    for share, found in weights["quantiles"].items():
        assert found == pytest.approx(np.quantile(every, float(share[:-1]) / 100, method="inverted_cdf"))
    assert weights["share_of_largest_clicks"] == pytest.approx(every.max() / every.sum())
    for code, name in enumerate(log.data.group_names):
        own, group = np.array(expected["weights"][code]), facts["groups"][name]
        assert group["pairs"] == expected["groups"].count(code)
        assert group["clicks"] == own.size
        assert group["merit"] == pytest.approx(own.sum() / len(log))
        assert group["effective_sample_size"] == pytest.approx(effective_sample_size(own))
        assert group["largest_weight"] == pytest.approx(own.max(initial=0.0))


def test_shares_and_quantiles_of_many_clicks() -> None:
    data = synthetic(queries=50, list_length=20, features=2, relevant=5).train
    log = simulate_clicks(data, RandomRanking(), POWER, impressions=2_000, seed=1)
    facts = judge_readiness(log).facts["weights"]
    weights = np.sort(log.ips_weights()[log.click])
    count = round(weights.size / 100)
    assert count > 1
    assert facts["largest_clicks"] == count
    assert facts["share_of_largest_clicks"] == pytest.approx(weights[-count:].sum() / weights.sum())
    for share in (0.5, 0.9, 0.99):
        expected = np.quantile(weights, share, method="inverted_cdf")
        assert facts["quantiles"][f"{share:.0%}"] == pytest.approx(expected)


@given(logs())
def test_counts_say_what_the_log_says(log: ClickLog) -> None:
    assert_counts_say_the_same(log)


def assert_counts_say_the_same(log: ClickLog) -> None:
    for bias in (None, POWER):
        raw = judge_readiness(log, bias).to_dict()
        assert judge_readiness(log.compact(), bias).to_dict() == raw
        json.dumps(raw, allow_nan=False)


@pytest.mark.parametrize("size", [1, 5, 64])
def test_blocks_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = synthetic(queries=20, list_length=5, features=2, relevant=2).train
    log = simulate_clicks(data, RandomRanking(), POWER, impressions=60, seed=1)
    whole = judge_readiness(log).to_dict()
    monkeypatch.setattr("fultr.data.merging.ENTRIES_A_BLOCK", size)
    assert judge_readiness(log).to_dict() == whole


def absurd_logs() -> list[ClickLog | Counts]:
    data = RankingDataset(np.zeros((2, 0)), [0, 2])
    nothing: dict[str, Any] = {"lists": [0] * 3, "position": [0] * 6, "click": [0] * 6}
    everything: dict[str, Any] = {"lists": [0] * 30, "position": [1, 2] * 30, "click": [1] * 60}
    raw = [
        ClickLog(data, **nothing),
        ClickLog(data, **nothing, position_bias=POWER),
        ClickLog(data, **everything),
        ClickLog(data, **everything, position_bias=POWER, empties_dropped=True),
        ClickLog(data, [0], [1_000_000, 0], [1, 0], position_bias=PositionBias.power(50.0)),
        ClickLog(data, [], [], [], position_bias=POWER),
        ClickLog(replace(data, group_names=("a",)), **everything, position_bias=POWER),
    ]
    return [*raw, *(log.compact() for log in raw if len(log))]


@pytest.mark.parametrize("log", absurd_logs())
def test_absurd_logs_are_judged(log: ClickLog | Counts) -> None:
    readiness = judge_readiness(log)
    assert any(finding.severity != "note" for finding in readiness.findings)
    for finding in readiness.findings:
        assert finding.sentence.endswith((".", "?"))
        assert "nan" not in finding.sentence
    assert json.loads(json.dumps(readiness.to_dict(), allow_nan=False)) == readiness.to_dict()


def test_nothing_shown_and_all_clicked_are_severe() -> None:
    nothing, _, everything = (judge_readiness(log) for log in absurd_logs()[:3])
    assert "There are no clicks" in severe_lines(nothing)[0]
    assert said(nothing, "3 of 3 impressions show nothing") == "warning"
    assert "Every impression has a click" in severe_lines(everything)[0]
    assert said(everything, "30 of 30 impressions had every item clicked") == "warning"


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    write_log(some_log(), tmp_path / "clicks.parquet")
    return tmp_path / "clicks.parquet"


def test_the_command_prints_tables_and_findings(clicks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = result_of(capsys, "inspect", clicks)
    assert code == 0
    assert "By position" in out
    assert "pairs at two positions or more" in out
    assert out.index("warning") < out.index("note")
    row = next(line.split() for line in out.splitlines() if line.startswith("b "))
    assert row[-2:] == ["0.6042", "29"]  # 29 / 0.8 / 60 impressions
    content = json_of(capsys, "inspect", clicks)
    expected = json.loads(json.dumps(judge_readiness(read_log(clicks)).to_dict()))
    assert content["facts"] == expected["facts"]
    assert content["findings"][:-2] == expected["findings"]
    of_groups = [finding["sentence"] for finding in content["findings"][-2:]]
    assert of_groups[0].startswith("The logged ranking has a disparity of ")
    assert of_groups[1].startswith("Limits of the disparity on new queries can be promised with 95%")


def test_the_command_takes_a_position_bias(
    clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json_of(capsys, "inspect", clicks, "--eta", 2)["facts"]["weights"]["largest"] == 4.0
    bias = tmp_path / "bias.json"
    bias.write_text('{"values": [1, 0.1, 0.1]}')
    facts = json_of(capsys, "inspect", clicks, "--bias", bias)["facts"]
    assert facts["weights"]["largest"] == 10.0
    assert facts["examination"]["source"] == "given"
    assert "v_k = (1/k)^2" in result_of(capsys, "inspect", clicks, "--eta", 2)[1]
    assert "not both" in refusal(capsys, "inspect", clicks, "--eta", 2, "--bias", bias)
    labelled = tmp_path / "data.txt"
    labelled.write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    assert "--eta and --bias are for click logs" in refusal(capsys, "inspect", labelled, "--eta", 1)
