"""From what a user has (logs, frames, arrays) to what training needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from fultr import ClickLog, Counts, InputError, PositionBias
from fultr.training.overlap import query_digests
from fultr.training.sources import (
    SourceReading,
    position_bias_of,
    single_impressions,
    source_of,
    with_groups,
)
from tests.training_tasks import BIAS, random_lists, random_log


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return random_log(random_lists(groups=3, unknown=0.2, lists=10, seed=1), impressions=50)


def columns_of(log: ClickLog) -> dict[str, Any]:
    """The rows of a log, one for each entry, as columns."""
    row = log.row_of_entry
    names = np.array([*log.data.group_names, None], dtype=object)
    found = {
        "impression_id": log.impression_of_entry,
        "query_id": log.data.list_of_row[row],
        "doc_id": row,
        "position": np.where(log.position > 0, log.position, np.nan),
        "click": log.click.astype(int),
        "group": names[log.data.group[row]],
    }
    features = {f"feature_x{number}": column for number, column in enumerate(log.data.features[row].T)}
    return {**found, **features}


def weights_of(log: ClickLog | Counts) -> dict[tuple[bytes, str], tuple[float, int]]:
    """What training takes from a log: of each item its click weights and its impressions."""
    counts = log.compact()
    names = [*counts.data.group_names, "unknown"]
    found: dict[tuple[bytes, str], tuple[float, int]] = {}
    for row, which in enumerate(counts.data.list_of_row):
        key = (counts.data.features[row].tobytes(), names[counts.data.group[row]])
        assert key not in found
        found[key] = (round(float(counts.ips_weights(BIAS)[row]), 9), int(counts.impressions[which]))
    return found


def made_of(*arguments: Any, **columns: Any) -> Counts:
    """The counts of what is given; single impressions hold the same."""
    made = source_of(*arguments, **columns)
    assert isinstance(made, Counts)
    single = source_of(*arguments, **columns, reading=SourceReading(impressions=True))
    assert isinstance(single, ClickLog)
    assert weights_of(single) == weights_of(made)
    assert single.data.feature_names == made.data.feature_names
    assert single.compact().cells.clicks.tolist() == made.cells.clicks.tolist()
    return made


def test_counts_and_lists_are_taken_as_they_are(log: ClickLog) -> None:
    for source in (log.compact(), log.data):
        assert source_of(source) is source
        assert source_of(source, reading=SourceReading(impressions=True)) is source


def test_a_log_is_counted_unless_its_impressions_are_needed(log: ClickLog) -> None:
    assert source_of(log, reading=SourceReading(impressions=True)) is log
    found = source_of(log)
    assert isinstance(found, Counts)
    assert weights_of(found) == weights_of(log)


def test_a_log_brings_its_own_columns(log: ClickLog) -> None:
    for source in (log, log.compact(), log.data):
        with pytest.raises(InputError, match="brings its own clicks"):
            source_of(source, [1, 0])
        with pytest.raises(InputError, match="column 'qid'"):
            source_of(source, qid=[1, 0])


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, pyarrow.table, dict])
def test_frames_hold_the_same_as_the_log(log: ClickLog, make: Any) -> None:
    made = made_of(make(columns_of(log)))
    assert made.data.feature_names == ("x0", "x1", "x2", "x3")
    assert weights_of(made) == weights_of(log)


@pytest.mark.parametrize("as_frame", [False, True])
def test_arrays_hold_the_same_as_the_log(log: ClickLog, as_frame: bool) -> None:
    columns = columns_of(log)
    features: Any = np.column_stack([columns[f"feature_x{number}"] for number in range(4)])
    if as_frame:
        features = pandas.DataFrame(features, columns=["a", "b", "c", "d"])
    made = made_of(
        features,
        columns["click"],
        qid=columns["query_id"],
        impression=columns["impression_id"],
        position=columns["position"],
        sensitive_features=columns["group"],
        propensity=np.where(log.position > 0, BIAS.at(log.position), np.nan),
    )
    assert weights_of(made) == weights_of(log)
    assert made.cells.propensity is not None
    assert made.data.feature_names == (("a", "b", "c", "d") if as_frame else ("1", "2", "3", "4"))


def test_rows_of_arrays_may_come_in_any_order(log: ClickLog) -> None:
    columns = columns_of(log)
    order = np.random.default_rng(0).permutation(log.entries)
    mixed = {name: np.asarray(column)[order] for name, column in columns.items()}
    made = made_of(
        np.column_stack([mixed[f"feature_x{number}"] for number in range(4)]),
        mixed["click"],
        qid=mixed["query_id"],
        impression=mixed["impression_id"],
        position=mixed["position"],
        sensitive_features=mixed["group"],
    )
    assert weights_of(made) == weights_of(log)


def test_without_impressions_each_query_is_one() -> None:
    features = np.arange(10.0).reshape(5, 2)
    made = made_of(features, [1, 0, 0, 1, 0], qid=["a", "a", "b", "b", "b"], position=[1, 2, 1, 2, 3])
    assert made.impressions.tolist() == [1, 1]
    assert made.data.lengths.tolist() == [2, 3]
    assert int(made.cells.clicks.sum()) == 2


def test_items_with_the_same_features_stay_apart() -> None:
    features = np.zeros((4, 2))
    columns: dict[str, Any] = {"qid": [1, 1, 1, 1], "impression": [1, 1, 2, 2], "position": [1, 2, 1, 2]}
    made = source_of(features, [1, 0, 0, 1], **columns)
    assert isinstance(made, Counts)
    assert made.data.lengths.tolist() == [2]
    assert made.impressions.tolist() == [2]


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"qid": None}, "qid"),
        ({"position": None}, "position"),
        ({"qid": [1, 1]}, "qid"),
        ({"sensitive_features": ["a"]}, "sensitive_features"),
        ({"clicks": [2, 0, 0]}, "y"),
        ({"position": [1, 2, 3, 4]}, "position"),
        ({"clicks": [1, 0]}, "y"),
        ({"X": np.zeros(3)}, "X"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any], column: str) -> None:
    arguments = {"X": np.eye(3), "clicks": [1, 0, 0], "qid": [1, 1, 1], "position": [1, 2, 3], **change}
    with pytest.raises(InputError, match=f"column '{column}'"):
        source_of(arguments.pop("X"), arguments.pop("clicks"), **arguments)


def test_inputs_are_not_changed(log: ClickLog) -> None:
    columns = columns_of(log)
    before = {name: np.array(column) for name, column in columns.items()}
    features = np.column_stack([columns[f"feature_x{number}"] for number in range(4)])
    copied = features.copy()
    source_of(columns)
    given = {"qid": "query_id", "impression": "impression_id", "position": "position"}
    source_of(features, columns["click"], **{name: columns[column] for name, column in given.items()})
    np.testing.assert_array_equal(features, copied)
    for name, column in before.items():
        np.testing.assert_array_equal(columns[name], column)


# --- position bias ---


def test_the_position_bias_asked_for_comes_first(log: ClickLog) -> None:
    other = PositionBias.power(0.5)
    assert log.position_bias == BIAS
    assert position_bias_of(other, log) is other
    assert position_bias_of(None, log) == BIAS
    assert position_bias_of(None, log.compact()) == BIAS


def test_propensities_that_follow_positions_are_a_bias(log: ClickLog) -> None:
    shown = np.where(log.position > 0, 0.5 * BIAS.at(log.position), np.nan)
    followed = replace(log, position_bias=None, propensity=shown)
    for source in (followed, followed.compact()):
        found = position_bias_of(None, source)
        np.testing.assert_allclose(found.at([1, 2, 3, 4]), BIAS.at([1, 2, 3, 4]))


def test_propensities_that_do_not_are_none(log: ClickLog) -> None:
    wild = np.where(log.position > 0, np.random.default_rng(0).uniform(0.1, 1, log.entries), np.nan)
    for source in (
        replace(log, position_bias=None, propensity=wild),
        replace(log, position_bias=None),
        replace(log, position_bias=None).compact(),
        log.data,
    ):
        with pytest.raises(InputError, match=r"give them \(position_bias=\)"):
            position_bias_of(None, source)


# --- groups, splits, ids ---


def test_groups_are_matched_by_name(log: ClickLog) -> None:
    names = ("group 2", "other", "group 0", "group 1")
    for source in (log, log.compact(), log.data):
        data, found = source.data, with_groups(source, names).data
        assert found.group_names == names
        old = np.array([*data.group_names, "?"])[data.group]
        assert old.tolist() == np.array([*names, "?"])[found.group].tolist()
        assert with_groups(source, data.group_names) is source
    with pytest.raises(InputError, match="no such group"):
        with_groups(log, ("group 0", "group 1"))


def test_a_split_keeps_all_of_a_query_on_one_side() -> None:
    data = random_lists(lists=20, seed=2)
    doubled = replace(data, query_id=np.arange(20) // 2)
    log = random_log(doubled, impressions=200)
    found = []
    for source in (log, log.compact(), doubled):
        kept, aside = source.split(0.3, 0)
        if isinstance(kept, ClickLog) and isinstance(aside, ClickLog):
            sides = [set(doubled.query_codes[part.lists]) for part in (kept, aside)]
        else:
            sides = [set(np.asarray(part.data.query_id).tolist()) for part in (kept, aside)]
        assert sides[0] & sides[1] == set()
        assert (len(sides[0]), len(sides[1])) == (7, 3)
        found.append(sides)
        again = source.split(0.3, 0)[1]
        np.testing.assert_array_equal(again.data.features, aside.data.features)
    # impressions, their counts and labels are split in the same way
    assert found[0] == found[1] == found[2]


def test_a_split_of_counts_keeps_the_counts() -> None:
    log = random_log(random_lists(lists=10, seed=3), impressions=100).compact()
    kept, aside = log.split(0.5, 1)
    assert isinstance(kept, Counts)
    assert isinstance(aside, Counts)
    assert kept.impressions.sum() + aside.impressions.sum() == 100
    total = log.ips_weights(BIAS).sum()
    assert kept.ips_weights(BIAS).sum() + aside.ips_weights(BIAS).sum() == pytest.approx(total)


def test_one_query_cannot_be_split() -> None:
    for source in (random_lists(lists=3, seed=1)[:1], random_log(random_lists(lists=3)[1:2]).compact()):
        with pytest.raises(InputError, match="cannot split by query"):
            source.split(0.5, 0)


def test_digests_tell_queries_apart() -> None:
    data = random_lists(lists=10, seed=4)
    found = query_digests(data)
    assert found.dtype == np.int64
    assert np.unique(found).size == 10
    assert (np.diff(found) > 0).all()
    np.testing.assert_array_equal(query_digests(data[::-1]), found)
    np.testing.assert_array_equal(np.intersect1d(query_digests(data[:4]), found), query_digests(data[:4]))
    assert query_digests(replace(data, query_id=None)).size == 0
    # numbers and the same numbers as text are one query
    np.testing.assert_array_equal(query_digests(replace(data, query_id=data.query_codes.astype(str))), found)


def test_items_of_equal_features_are_told_apart_by_their_groups() -> None:
    made = made_of(
        np.zeros((4, 1)),
        [1, 0, 0, 1],
        qid=["q"] * 4,
        impression=[1, 1, 2, 2],
        position=[1, 2, 1, 2],
        sensitive_features=["x", "y", "y", "x"],
    )
    assert made.impressions.tolist() == [2]
    assert dict(zip(made.data.group.tolist(), made.clicks().tolist(), strict=True)) == {0: 2, 1: 0}


def test_counts_are_no_single_impressions(log: ClickLog) -> None:
    for source in (log, log.data):
        assert single_impressions(source, "this") is source
    with pytest.raises(InputError, match="column 'X'.*this needs single impressions, not a compacted log"):
        single_impressions(log.compact(), "this")


def test_gains_are_clicks_or_relevance(log: ClickLog) -> None:
    clicks = log.compact().gains()
    assert clicks.sum() == log.click.sum()
    data = random_lists()
    assert data.relevance is not None
    np.testing.assert_array_equal(data.gains(), data.relevance.astype(np.float64))
    with pytest.raises(InputError, match="must have relevance, or clicks"):
        replace(data, relevance=None).gains()


@pytest.mark.parametrize("column", ["qid", "impression"])
def test_a_missing_id_in_arrays_is_named(column: str) -> None:
    given: dict[str, Any] = {"qid": ["nurse"] * 3, "impression": ["s-1"] * 3}
    given[column] = [*given[column][:2], None]
    with pytest.raises(InputError, match=f"row 3, column '{column}': ids must be all integers or all text"):
        source_of(np.zeros((3, 1)), [1, 0, 0], position=[1, 2, 3], **given)
