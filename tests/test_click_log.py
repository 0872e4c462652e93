from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fultr import ClickLog, InputError, PositionBias, RankingDataset
from fultr.data import Planted
from tests.comparison import same_logs
from tests.strategies import logs


def two_lists() -> RankingDataset:
    return RankingDataset(
        np.arange(5.0)[:, None],
        [0, 2, 5],
        group=["a", "b", "a", "b", None],
        query_id=[10, 20],
        doc_id=[1, 2, 1, 2, 3],
    )


def small(**fields: Any) -> ClickLog:
    content: dict[str, Any] = {
        "data": two_lists(),
        "lists": [1, 0, 1],
        "position": [1, 2, 3, 2, 1, 2, 0, 1],
        "click": [0, 1, 0, 0, 0, 0, 0, 1],
        **fields,
    }
    return ClickLog(**content)


def test_entries_follow_the_rows_of_their_list() -> None:
    log = small()
    assert (len(log), log.entries) == (3, 8)
    assert log.offsets.tolist() == [0, 3, 5, 8]
    assert log.row_of_entry.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert log.impression_of_entry.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert log.clicked.tolist() == [True, False, True]
    assert log.impressions_of_lists().tolist() == [1, 2]
    assert repr(log) == "<ClickLog: 3 impressions of 2 lists, 2 clicks>"


def test_ips_weights_are_clicks_over_propensities() -> None:
    log = small(position_bias=PositionBias.power(1.0))
    assert log.ips_weights().tolist() == [0, 2, 0, 0, 0, 0, 0, 1]
    assert log.ips_weights(PositionBias([1, 0.1, 0.1])).tolist() == [0, 10, 0, 0, 0, 0, 0, 1]
    assert log.ips_weights(PositionBias([1, 0.1, 0.1]), clip=3).tolist() == [0, 3, 0, 0, 0, 0, 0, 1]
    assert log.propensities().tolist() == [1, 0.5, 1 / 3, 0.5, 1, 0.5, 0, 1]


def test_logged_propensities_come_before_the_carried_bias_and_after_the_one_asked_for() -> None:
    propensity = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, np.nan, 0.2])
    log = small(propensity=propensity, position_bias=PositionBias.power(1.0))
    np.testing.assert_allclose(log.propensities(), np.nan_to_num(propensity))
    assert log.propensities(PositionBias.power(0.0)).tolist() == [1, 1, 1, 1, 1, 1, 0, 1]


def test_without_any_propensity_weights_are_refused() -> None:
    with pytest.raises(InputError, match="neither propensities nor a position bias"):
        small().ips_weights()
    with pytest.raises(InputError, match="position 3 lies beyond"):
        small().ips_weights(PositionBias([1, 0.5]))
    with pytest.raises(InputError, match="never examined"):
        small().ips_weights(PositionBias([1], beyond="zero"))
    with pytest.raises(InputError, match="column 'clip'"):
        small().ips_weights(PositionBias.power(1), clip=0.5)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"lists": [1, 0, 2]}, "a list must be one of 0..1"),
        ({"position": [1, 2, 3, 2, 1, 2, -1, 1]}, "row 7, column 'position': .*got -1"),
        ({"position": [1, 2, 3, 2, 1, 2, 10**9, 1]}, "row 7, column 'position'"),
        ({"position": [1, 2, 2, 2, 1, 2, 0, 1]}, "row 3, column 'position': .*twice in impression 1 .*got 2"),
        ({"position": [1.0] * 8}, "must be an integer"),
        ({"position": [1, 2]}, "for each of 8 entries"),
        ({"click": [0, 2, 0, 0, 0, 0, 0, 1]}, "row 2, column 'click': a click is 0 or 1 .*got 2"),
        ({"click": [0, 1, 0, 0, 0, 0, 1, 1]}, "row 7, column 'click': a click on an item that was not shown"),
        ({"click": [0]}, "for each of 8 entries"),
        ({"propensity": [1, 1, 1, 1, 1, 1, 1, 1.5]}, "row 8, column 'propensity': .*got 1.5"),
        ({"propensity": [1, 0, 1, 1, 1, 1, 1, 1]}, "row 2, column 'propensity': .*got 0.0"),
        ({"propensity": [1, np.nan, 1, 1, 1, 1, 1, 1]}, "row 2, column 'propensity': .*got nan"),
        ({"propensity": [1]}, "for each of 8 entries"),
        ({"impression_id": [1]}, "one value for each of 3 impressions"),
        ({"timestamp": np.array([1])}, "one value for each of 3 impressions"),
    ],
)
def test_wrong_content_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        small(**fields)


def planted_at(impression: int, position: int) -> Planted:
    return Planted(np.array([impression]), np.array([position], dtype=np.int32), np.array([True]))


def test_planted_items_take_a_position_of_their_own() -> None:
    log = small(planted=planted_at(2, 3))
    assert log.describe()["planted"] == {"items": 1, "clicks": 1}
    with pytest.raises(InputError, match="row 6, column 'position': .*twice in impression 3"):
        small(planted=planted_at(2, 2))
    with pytest.raises(InputError, match="an impression of the log, which has 3"):
        small(planted=planted_at(3, 5))
    with pytest.raises(InputError, match="column 'planted.position': a planted item needs a position"):
        planted_at(0, 0)
    with pytest.raises(InputError, match="for all items or for none"):
        small(planted=planted_at(2, 3), propensity=np.full(8, 0.5))


@given(logs(), st.data())
def test_choosing_impressions_keeps_what_belongs_to_them(log: ClickLog, drawn: st.DataObject) -> None:
    order = np.array(drawn.draw(st.permutations(range(len(log)))))
    shuffled = log[order]
    assert same_logs(shuffled[np.argsort(order)], log)
    kept = log[order[:1]]
    assert len(kept) == 1
    assert len(kept.planted) == int((log.planted.impression == order[0]).sum())
    with pytest.raises(InputError, match="only once"):
        log[np.array([0, 0])]


@given(logs(ids=True))
def test_equality_ignores_how_lists_are_held(log: ClickLog) -> None:
    # hold each list the other way round, and in another dataset order
    data = log.data
    turned_lists = np.arange(len(data))[::-1]
    rows = np.concatenate([np.arange(data.offsets[k], data.offsets[k + 1])[::-1] for k in turned_lists])
    assert data.query_id is not None
    assert data.doc_id is not None
    held = replace(
        data,
        features=data.features[rows],
        offsets=np.cumsum([0, *data.lengths[turned_lists]]),
        group=data.group[rows],
        relevance=None,
        query_id=data.query_id[turned_lists],
        doc_id=data.doc_id[rows],
    )
    entries = np.concatenate([np.arange(log.offsets[k], log.offsets[k + 1])[::-1] for k in range(len(log))])
    again = replace(
        log,
        data=held,
        lists=len(data) - 1 - log.lists,
        position=log.position[entries],
        click=log.click[entries],
        propensity=None if log.propensity is None else log.propensity[entries],
    )
    assert same_logs(again, log)
    flipped = log.click.copy()
    shown = np.flatnonzero(log.position > 0)
    flipped[shown[0]] = ~flipped[shown[0]]
    assert not same_logs(replace(log, click=flipped), log)


def test_split_is_by_query() -> None:
    data = RankingDataset(np.zeros((8, 1)), np.arange(9), query_id=np.repeat([5, 6, 7, 8], 2))
    lists = np.tile(np.arange(8), 10)
    log = ClickLog(data=data, lists=lists, position=np.ones(80, int), click=np.ones(80, bool))
    train, valid = log.split(0.25, seed=1)
    queries = [set(data.query_codes[part.lists].tolist()) for part in (train, valid)]
    assert not queries[0] & queries[1]
    assert (len(queries[0]), len(queries[1])) == (3, 1)
    assert len(train) + len(valid) == len(log)
    assert same_logs(log.split(0.25, seed=1)[1], valid)
    for share in (0.0, 1.0, -1, 2):
        with pytest.raises(InputError, match="column 'share'"):
            log.split(share)
    with pytest.raises(InputError, match="cannot split by query: there are 1"):
        log[log.lists == 0].split(0.5)


def test_dropping_empties_says_so() -> None:
    log = small().drop_empties()
    assert len(log) == 2
    assert log.empties_dropped
    assert log.clicked.all()


def test_describe_counts_by_position_and_group() -> None:
    summary = small(position_bias=PositionBias.power(1)).describe()
    assert summary["impressions"] == 3
    assert summary["impressions_without_click"] == 1
    assert summary["not_shown"] == 1
    assert [entry["shown"] for entry in summary["positions"]] == [3, 3, 1]
    assert [entry["clicks"] for entry in summary["positions"]] == [1, 1, 0]
    assert summary["groups"]["b"] == {"shown": 2, "clicks": 1, "click_rate": 0.5, "mean_position": 1.5}
    assert summary["groups"]["(unknown)"]["clicks"] == 1


@given(logs())
def test_describe_adds_up(log: ClickLog) -> None:
    assume(log.entries > 0)
    summary = log.describe()
    assert sum(entry["clicks"] for entry in summary["positions"]) == summary["clicks"] == log.click.sum()
    assert sum(group["clicks"] for group in summary["groups"].values()) == summary["clicks"]
    assert sum(entry["shown"] for entry in summary["positions"]) == summary["entries"] - summary["not_shown"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (([0], [1], [1, 0]), "column 'planted.click': must have one value for each of 1"),
        (([0.5], [1], [1]), "column 'planted.impression': must be integers"),
        (([-1], [1], [1]), "column 'planted.impression'"),
        (([0], [1.5], [1]), "column 'planted.position': must be an integer"),
        (([0, 0], [2, 2], [0, 1]), "row 2, column 'planted.position': .*taken by planted item 1"),
        (([0], [1], [2]), "column 'planted.click': a click is 0 or 1"),
        (([0], [1], [1], [float("nan")]), "column 'planted.propensity': .*above 0"),
        (([0], [1], [1], ["a"]), "column 'planted.propensity': must be numbers"),
    ],
)
def test_planted_items_are_checked(fields: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Planted(*fields)


def test_planted_items_may_be_lists() -> None:
    log = small(planted=Planted([0, 2], [4, 3], [0, 1]))  # type: ignore[arg-type]
    assert log.planted.position.dtype == np.int32
    assert len(log.compact().planted.row) == 2


def test_no_planted_items_are_the_same_with_and_without_propensities() -> None:
    propensity = np.full(8, 0.5)
    nothing = replace(Planted.none(), propensity=np.empty(0))
    assert small(propensity=propensity, planted=nothing).planted.propensity is None
    assert same_logs(small(propensity=propensity, planted=nothing), small(propensity=propensity))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"click": ["0", "1", "0", "0", "0", "0", "0", "1"]}, "column 'click': must be numbers"),
        ({"lists": [0.9, 0.2, 1.5]}, "column 'lists': must be integers"),
        ({"impression_id": ["a", "b", "a"]}, "row 3, column 'impression_id': impression 1 has the same id"),
        ({"impression_id": [2**63, 1, 2]}, "row 1, column 'impression_id': .*64 bits"),
        ({"timestamp": [0.5, 1.5, 2.5]}, "column 'timestamp': must be integers or dates"),
        ({"timestamp": ["monday", "x", "y"]}, "column 'timestamp': must be integers or dates"),
        ({"timestamp": [1, 2]}, "one value for each of 3 impressions"),
        ({"timestamp": np.array(["2024-01-01", "NaT", "2024-01-02"], "datetime64[s]")}, "row 2.*missing"),
        ({"timestamp": np.array([1, 2, 2**60], "datetime64[s]")}, "row 3, .*microseconds"),
        ({"origin": {"x": float("nan")}}, "column 'origin': must be plain values"),
        ({"origin": {1: "x"}}, "column 'origin'"),
        ({"origin": {"x": np.int64(1)}}, "column 'origin'"),
    ],
)
def test_what_could_not_be_read_back_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        small(**fields)


def test_times_are_held_in_microseconds() -> None:
    times = np.array(["2024-05-01T10:00:00.123456789"] * 3, dtype="datetime64[ns]")
    held = small(timestamp=times).timestamp
    assert held is not None
    assert held.dtype == np.dtype("datetime64[us]")
    assert small(timestamp=np.array(["2024-05-01"] * 3, dtype="datetime64[D]")).timestamp is not None


def test_impressions_are_chosen_as_lists_are() -> None:
    log = small()
    assert len(log[0]) == 1
    assert len(log[[2, 0]]) == 2
    for wrong in (7, [7], "a", 1.5):
        with pytest.raises(InputError, match="no such impression; there are 3"):
            log[wrong]  # type: ignore[index]
    with pytest.raises(InputError, match="column 'share'"):
        log.split("half")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="column 'seed'"):
        log.split(0.5, seed=-1)


def test_a_group_called_unknown_is_not_mistaken_for_the_unknown_one() -> None:
    names = ("(unknown)", "b")
    data = replace(two_lists(), group=np.array([0, -1, 1, 1, -1], dtype=np.int32), group_names=names)
    groups = small(data=data).describe()["groups"]
    assert list(groups) == ["(unknown)", "b", "((unknown))"]
    assert (groups["(unknown)"]["clicks"], groups["((unknown))"]["clicks"]) == (0, 1)
    assert data.describe()["groups"]["((unknown))"]["rows"] == 2
