"""What it means for two datasets, or two logs, to be the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr import ClickLog, RankingDataset
from fultr.data.dataset import NOT_COLUMNS, columns_at
from fultr.data.grouping import group_rows
from fultr.data.ids import codes_of


def assert_same_arrays(one: RankingDataset, other: RankingDataset) -> None:
    """All columns are equal, of the same type, to the last bit of a feature."""
    assert one.features.tobytes() == other.features.tobytes()
    for name in ("features", "offsets", "relevance", "group", "query_id", "doc_id", "comment"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None), name
        if first is not None:
            assert first.dtype == second.dtype, name
            np.testing.assert_array_equal(first, second, err_msg=name)


def assert_same_data(one: RankingDataset, other: RankingDataset) -> None:
    """All columns and all names are equal."""
    assert_same_arrays(one, other)
    for name in ("feature_names", "group_names", "group_columns", "source"):
        assert getattr(one, name) == getattr(other, name), name


def same_logs(one: ClickLog, other: ClickLog) -> bool:
    """Say whether both logs hold the same impressions of the same candidates, in the same order.

    Lists are compared by what they hold; the order in which the datasets keep them, lists never shown, and
    relevances do not matter.
    """
    return content_of(one) == content_of(other)


def content_of(log: ClickLog) -> tuple[list[Any], ...]:
    data, entries = log.data, np.arange(log.entries)
    if data.doc_id is not None:
        # the order in which a list holds its candidates says nothing
        entries, _ = group_rows(log.impression_of_entry, codes_of(data.doc_id)[log.row_of_entry])
    rows = log.row_of_entry[entries]
    columns = {
        **columns_at(data, log.lists, "query_id", "lengths"),
        **columns_at(data, rows, "doc_id", "group"),
        **columns_at(log, entries, "position", "click", "propensity"),
        **columns_at(log, slice(None), "impression_id", "timestamp"),
    }
    by_position = np.lexsort((log.planted.position, log.planted.impression))
    planted = columns_at(log.planted, by_position, *vars(log.planted))
    values = [
        None if column is None else [None if value != value else value for value in column.tolist()]
        for column in (*columns.values(), *planted.values())
    ]
    others = [data.features[rows].tobytes(), *(getattr(data, name) for name in NOT_COLUMNS)]
    return values, others, [log.position_bias, log.noise, log.empties_dropped, log.origin]
