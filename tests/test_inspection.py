from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given

from fultr import ClickLog, PositionBias, RankingDataset, inspect_dataset, inspect_log
from fultr.data import Finding, Planted
from tests.strategies import datasets, logs


def sentences(findings: list[Finding]) -> str:
    return "\n".join(finding.sentence for finding in findings)


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


def test_clean_logs_have_only_notes() -> None:
    assert {finding.severity for finding in inspect_log(some_log())} == {"note"}


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
    many = some_log(lists=[0] * 20, position=[1, 2, 3] * 20, click=[1, 0, 0] * 20)
    found = sentences(inspect_log(many))
    assert "Every impression has a click" in found
    assert "always shown at the same position" in found
    assert "Nothing below position 1 was clicked, though items are shown down to 3" in found
    assert "Group '1' was never clicked" in found
    found = sentences(inspect_log(some_log(position=[1, 2, 4, 3, 2, 1, 1, 2, 3, 0, 0, 0])))
    assert "1 of 4 impressions skip positions" in found
    assert "1 impressions show nothing" in found
    assert "25% of the candidates were not shown" in found
    found = sentences(inspect_log(some_log(click=[1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], position_bias=None)))
    assert "1 of 4 impressions had every item clicked" in found
    assert "2 of 3 queries were never clicked" in found
    assert "neither propensities nor a position bias" in found
    bare = some_log(data=some_data(features=np.zeros((9, 0)), group=None))
    assert "There are no features" in sentences(inspect_log(bare))


def test_effective_sample_size_is_told() -> None:
    found = inspect_log(some_log(position_bias=PositionBias([1, 1e-3, 1e-3])))
    # weights 1, 1000 and 1000: (2001)^2 / 2000001
    assert "A click weighs up to 1e+03; all 3 are worth 2 of equal weight." in sentences(found)


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


def test_clicks_that_no_bias_explains_are_a_finding_and_no_error() -> None:
    for bias in (PositionBias([1.0, 0.5]), PositionBias([1.0], beyond="zero")):
        found = inspect_log(some_log(position_bias=bias))
        assert [finding.severity for finding in found if "cannot be weighted" in finding.sentence] == [
            "severe"
        ]


def test_nothing_at_all_is_a_finding() -> None:
    nothing = RankingDataset(np.zeros((0, 1)), [0], relevance=[], group=[], group_names=["a"])
    assert sentences(inspect_dataset(nothing)) == "There are no lists."
    assert "no clicks" in sentences(inspect_log(some_log(click=[0] * 12)))
