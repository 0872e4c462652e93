from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from fultr import ClickLog, PositionBias, RankingDataset, inspect_dataset, inspect_log
from fultr.data import Planted
from fultr.data.tally import ImpressionFacts
from fultr.logs import Finding
from fultr.logs.inspection import inspect_columns
from tests.counts import content
from tests.strategies import datasets, logs


def sentences(findings: list[Finding]) -> str:
    return "\n".join(finding.sentence for finding in findings)


def facts_of(log: ClickLog) -> ImpressionFacts:
    facts = log.compact().facts
    assert facts is not None
    return facts


def some_data(**fields: Any) -> RankingDataset:
    content: dict[str, Any] = {
        "features": np.random.default_rng(0).normal(size=(9, 2)),
        "offsets": [0, 3, 6, 9],
        "group": [0, 1, 0] * 3,
        "relevance": [1, 0, 0, 0, 1, 0, 1, 1, 0],
        "query_id": [1, 2, 3],
        **fields,
    }
    return RankingDataset(**content)


def some_log(**fields: Any) -> ClickLog:
    content: dict[str, Any] = {
        "data": some_data(),
        "lists": [0, 1, 2, 0],
        "position": [1, 2, 3, 3, 2, 1, 1, 2, 3, 2, 1, 3],
        "click": [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
        "position_bias": PositionBias.power(1.0),
        **fields,
    }
    return ClickLog(**content)


def test_clean_data_has_no_findings() -> None:
    assert inspect_dataset(some_data()) == []


def test_clean_logs_have_no_findings() -> None:
    assert inspect_log(some_log()) == []
    assert inspect_log(some_log().compact()) == []


def test_suspicious_data_is_named() -> None:
    found = sentences(inspect_dataset(some_data(relevance=[0, 0, 0, 4, 0, 0, 2, 2, 2])))
    assert "graded, up to 4" in found
    assert "1 of 3 lists have no relevant item" in found
    assert "1 of 3 lists have items of one relevance only" in found
    found = sentences(inspect_dataset(some_data(relevance=None, group=None)))
    assert "There is no relevance" in found
    assert "There are no groups" in found
    found = sentences(
        inspect_dataset(some_data(group=[-1, 0, 0] * 3, group_names=("a",), relevance=[1, 0, 0] * 3))
    )
    assert "3 of 9 items (33%) are in no known group" in found
    assert "Group 'a' has no relevant item" in found
    assert "There is one group only" in found
    found = sentences(inspect_dataset(some_data(group_names=("a", "b", "c"))))
    assert "Group 'c' has no item" in found
    features = np.ones((9, 2))
    features[0, 1] = 1e6
    found = sentences(inspect_dataset(some_data(features=features, feature_names=("flat", "wild"))))
    assert "1 of 2 features never vary: flat" in found
    assert "go beyond 10000: scale them. They are: wild" in found
    assert "1 of 2 lists have one item" in sentences(
        inspect_dataset(some_data(offsets=[0, 1, 9], query_id=[1, 2]))
    )


def test_suspicious_logs_are_named() -> None:
    found = sentences(inspect_log(replace(some_log(), empties_dropped=True)))
    assert "Impressions without a click were dropped" in found
    found = sentences(inspect_log(some_log(position=[1, 2, 4, 3, 2, 1, 1, 2, 3, 0, 0, 0])))
    assert "1 of 4 impressions skip positions" in found
    assert "1 of 4 impressions show nothing" in found
    bare = some_log(data=some_data(features=np.zeros((9, 0)), group=None))
    assert "There are no features" in sentences(inspect_log(bare))
    assert "There are no groups" in sentences(inspect_log(bare))


@pytest.mark.parametrize(("empty", "said"), [(0, True), (1, False)])
def test_a_long_log_without_an_empty_impression_is_severe(empty: int, said: bool) -> None:
    click = [0, 0, 0] * empty + [1, 0, 0] * (20 - empty)
    log = some_log(lists=[0] * 20, position=[1, 2, 3] * 20, click=click, timestamp=range(20))
    for seen in (log, log.compact()):
        assert [finding.severity for finding in inspect_log(seen)] == ["severe"] * said
    assert "Every impression has a click" in sentences(inspect_log(log)) or not said
    assert inspect_log(log[1:]) == []  # too few to tell


@pytest.mark.parametrize(("clicks", "full"), [([1, 1, 1], 1), ([1, 1, 0], 0)])
def test_impressions_with_every_item_clicked_are_counted(clicks: list[int], full: int) -> None:
    log = some_log(click=[*clicks, *[0] * 9])
    assert facts_of(log).all_clicked == full
    assert ("1 of 4 impressions had every item clicked" in sentences(inspect_log(log))) == bool(full)
    # one item is no list, and a click on it is no wonder
    single = some_log(position=[1, 0, 0] * 4, click=[1, 0, 0] + [0] * 9)
    assert facts_of(single).all_clicked == 0


def repeating_log(times: list[int] | None, repeated: int = 2) -> ClickLog:
    """Return 30 different impressions, some of which come again, in an order of their own."""
    data = RankingDataset(np.arange(90.0).reshape(90, 1), np.arange(0, 91, 3), group=[0, 1, 0] * 30)
    lists = [*range(30), *range(repeated)]
    size = len(lists)
    return ClickLog(data, lists, [1, 2, 3] * size, [0, 1, 0] * size, timestamp=times)


def test_impressions_of_the_same_content_and_time_are_repeated() -> None:
    log = repeating_log([*range(30), 0, 1])
    assert facts_of(log).repeated == 2
    assert "2 of 32 impressions with a click equal another one of the same time" in sentences(
        inspect_log(log)
    )
    apart = repeating_log([*range(30), 0, 7])
    assert facts_of(apart).repeated == 1
    never = repeating_log([*range(32)])
    assert facts_of(never).repeated == 0
    assert "equal another one" not in sentences(inspect_log(never))
    # what differs in a click, or in a position, is not the same
    click, position = log.click.copy(), log.position.copy()
    click[-1], position[[-4, -5]] = True, position[[-5, -4]]
    assert facts_of(replace(log, click=click)).repeated == 1
    assert facts_of(replace(log, click=click, position=position)).repeated == 0


def test_dates_do_not_tell_impressions_apart() -> None:
    log = repeating_log([0] * 32)
    counts = facts_of(log)
    assert (counts.repeated, counts.times_tell) == (2, False)
    assert "equal another one" not in sentences(inspect_log(log))


@pytest.mark.parametrize(("repeated", "copies"), [(30, 2), (29, 1), (0, 1)])
def test_a_log_put_together_with_itself_is_noticed_without_times(repeated: int, copies: int) -> None:
    log = repeating_log(None, repeated)
    assert facts_of(log).copies == copies
    assert ("Each impression stands in the log 2 times" in sentences(inspect_log(log))) == (copies == 2)


@given(logs())
def test_impressions_are_counted_as_one_by_one(log: ClickLog) -> None:
    full = nothing = gaps = 0
    seen: list[Any] = []
    clicked: list[Any] = []
    for number in range(len(log)):
        entries = slice(log.offsets[number], log.offsets[number + 1])
        position, click = log.position[entries].tolist(), log.click[entries].tolist()
        shown = [where for where in position if where]
        planted = log.planted.position[log.planted.impression == number].tolist()
        full += len(shown) > 1 and sum(click) == len(shown)
        nothing += not shown
        gaps += max([0, *shown, *planted]) > len(shown) + len(planted)
        time = None if log.timestamp is None else int(log.timestamp[number])
        content = (int(log.lists[number]), tuple(position), tuple(click), time)
        seen += [content] if shown else []
        clicked += [content] if any(click) else []
    counts = facts_of(log)
    assert (counts.all_clicked, counts.nothing_shown, counts.gaps) == (full, nothing, gaps)
    assert counts.repeated == len(clicked) - len(set(clicked))
    assert counts.different == len(set(seen))
    assert counts.copies == math.gcd(*Counter(seen).values())


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = repeating_log([*range(30), 0, 1])
    whole = content(log.compact())
    for size in (1, 4, 7):
        monkeypatch.setattr("fultr.data.merging.ENTRIES_A_BLOCK", size)
        assert content(log.compact()) == whole


def test_a_planted_item_is_no_gap() -> None:
    planted = Planted(np.array([0]), np.array([2], dtype=np.int32), np.array([False]))
    log = some_log(position=[1, 3, 4, 3, 2, 1, 1, 2, 3, 2, 1, 3], planted=planted)
    assert "skip positions" not in sentences(inspect_log(log))


@given(datasets())
def test_any_data_can_be_inspected(data: RankingDataset) -> None:
    for finding in inspect_dataset(data):
        assert finding.to_dict()["severity"] in ("note", "warning", "severe")


@given(logs())
def test_any_log_can_be_inspected(log: ClickLog) -> None:
    log = replace(log, position_bias=PositionBias.power(1.0))
    assert all(
        finding.sentence.endswith(".") or finding.sentence.endswith("?") for finding in inspect_log(log)
    )


def test_nothing_at_all_is_a_finding() -> None:
    nothing = RankingDataset(np.zeros((0, 1)), [0], relevance=[], group=[], group_names=["a"])
    assert sentences(inspect_dataset(nothing)) == "There are no lists."
    assert "no clicks" in sentences(inspect_log(some_log(click=[0] * 12)))
    assert sentences(inspect_log(some_log()[:0])) == "There are no impressions."


def test_columns_that_are_not_read_are_named() -> None:
    table = {
        "impression_id": [1, 1],
        "query_id": [1, 1],
        "doc_id": [1, 2],
        "position": [1, 2],
        "click": [0, 1],
        "feature_a": [1.0, 2.0],
        "salary": [1.0, 2.0],
        "remote": [True, False],
        "age": [1.0, float("nan")],
        "distance": [float("inf"), None],
        "title": ["nurse", "3"],
    }
    found = sentences(inspect_columns(table, [], False))
    assert "2 columns of numbers are not read: salary, remote" in found
    assert "'age' cannot be a feature as it is: of its values, 1 missing or NaN" in found
    assert "'distance' cannot be a feature as it is: of its values, 1 missing or NaN, 1 infinite" in found
    assert "'title' cannot be a feature as it is: of its values, 1 text" in found
    assert "feature_a" not in found
    assert inspect_columns(table, [], True) == []


def test_unusable_columns_of_a_csv_log_are_named(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "impression_id,query_id,doc_id,position,click,age,salary\n1,1,1,1,0,nan,3\n1,1,2,2,1,old,4\n"
    )
    found = sentences(inspect_columns(tmp_path / "log.csv", [], False))
    assert "not read" not in found  # a column of numbers is a feature
    assert "'age' cannot be a feature as it is: of its values, 1 text, 1 missing or NaN" in found
    assert inspect_columns(tmp_path / "log.csv", [], False, exclude=["age", "salary"]) == []
    assert "1 columns of numbers are not read: salary" in sentences(
        inspect_columns(tmp_path / "log.csv", [], False, features=[])
    )
