"""Lists, logs and counts as polars frames: to look at, to work on, and to write to files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fultr.data.categories import category_texts
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN
from fultr.data.ids import UNKNOWN_GROUP, Ids, text_series
from fultr.data.propensity import NOT_SHOWN

if TYPE_CHECKING:
    from fultr.data.click_log import ClickLog
    from fultr.data.counts import Counts
    from fultr.data.dataset import RankingDataset

PLANTED_TEXT, PLANTED_NUMBER = "(planted)", -1
"""The document id of a planted item, which is no document of the log."""


def frame_of_lists(data: RankingDataset) -> pl.DataFrame:
    """Return a row for each item: `list`, what is known of it, and its features as columns `feature_...`."""
    columns = {"list": data.list_of_row, **item_columns(data, np.arange(data.rows))}
    if data.relevance is not None:
        columns["relevance"] = data.relevance
    return pl.DataFrame(columns | feature_columns(data, data.features, "columns"))


def frame_of_log(log: ClickLog, features: str = "columns") -> pl.DataFrame:
    """Return a row for each candidate of each impression, in the columns that `fultr.read_log` takes.

    Planted items follow the candidates of their impression, as no document of the log and with features of 0.
    `features` is as in `feature_columns`; any other form leaves them out.
    """
    data, planted = log.data, log.planted
    impression = np.concatenate([log.impression_of_entry, planted.impression])
    order = np.argsort(impression, kind="stable")
    impression = impression[order]
    row = np.concatenate([log.row_of_entry, np.full(len(planted), -1)])[order]
    is_planted = row < 0

    def joined(of_entries: NDArray[Any], of_planted: NDArray[Any] | None) -> NDArray[Any]:
        return (of_entries if of_planted is None else np.concatenate([of_entries, of_planted]))[order]

    document = id_series(data.doc_id, row)
    if len(planted):
        name = PLANTED_TEXT if document.dtype == pl.String else PLANTED_NUMBER
        document = document.set(pl.Series(is_planted), name)
    columns: dict[str, Any] = {
        "impression_id": id_series(log.impression_id, impression),
        "query_id": id_series(data.query_id, log.lists[impression]),
        "doc_id": document,
    }
    if data.group_names:
        columns["group"] = group_series(
            data.group_names, np.where(is_planted, UNKNOWN_GROUP, data.group[row])
        )
    columns["position"] = pl.Series(joined(log.position, planted.position)).replace(NOT_SHOWN, None)
    columns["click"] = joined(log.click, planted.click).astype(np.int8)
    if log.propensity is not None:
        columns["propensity"] = pl.Series(joined(log.propensity, planted.propensity)).fill_nan(None)
    if len(planted):
        columns["planted"] = is_planted.astype(np.int8)
    if log.timestamp is not None:
        columns["timestamp"] = log.timestamp[impression]
    if features in ("list", "columns"):
        table = np.where(is_planted[:, None], np.float32(0), data.features[row])
        columns |= feature_columns(data, table, features)
    return pl.DataFrame(columns)


def frame_of_counts(counts: Counts) -> pl.DataFrame:
    """Return a row for each cell: how often an item was shown at a position, and clicked there.

    A candidate that was never shown has one row, without a position. `list_impressions` is how often its list
    was shown; features are in `counts.data.to_frame()`, whose `list` is the same.
    """
    data, cells = counts.data, counts.cells
    never = np.flatnonzero(counts.shown() == 0)
    row = np.concatenate([cells.row, never])
    by_row = np.argsort(row, kind="stable")
    row = row[by_row]

    def joined(of_cells: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([of_cells, np.zeros(never.size, dtype=of_cells.dtype)])[by_row]

    lists = data.list_of_row[row]
    columns = {"list": lists, **item_columns(data, row), "list_impressions": counts.impressions[lists]}
    if counts.context is not None:
        columns[counts.context_name] = group_series(counts.context_values, counts.context[lists])
    columns["position"] = pl.Series(joined(cells.position)).replace(NOT_SHOWN, None)
    if cells.propensity is not None:
        columns["propensity"] = pl.Series(joined(cells.propensity)).replace(NOT_SHOWN, None)
    columns |= {"impressions": joined(cells.impressions), "clicks": joined(cells.clicks)}
    return pl.DataFrame(columns)


def item_columns(data: RankingDataset, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Return the query, document and group of some rows, as far as they are known."""
    columns: dict[str, Any] = {}
    if data.query_id is not None:
        columns["query_id"] = id_series(data.query_id, data.list_of_row[rows])
    if data.doc_id is not None:
        columns["doc_id"] = id_series(data.doc_id, rows)
    if data.group_names:
        columns["group"] = group_series(data.group_names, data.group[rows])
    return columns


def id_series(ids: Ids | None, index: NDArray[np.int64]) -> pl.Series:
    """Return the ids at an index; the index itself if there are no ids."""
    if ids is None:
        return pl.Series(index)
    return text_series(ids[index]) if ids.dtype.kind == "T" else pl.Series(ids[index])


def group_series(names: Sequence[str], codes: NDArray[Any]) -> pl.Series:
    """Return the names of codes, null for an unknown group."""
    return pl.Series([*names, None], dtype=pl.String).gather(codes % (len(names) + 1))


def feature_columns(data: RankingDataset, table: NDArray[np.float32], form: str) -> dict[str, Any]:
    """Return rows of features as one list column ("list"), or as a column for each ("columns")."""
    if form == "list":
        return {LIST_COLUMN: pl.Series(table, dtype=pl.Array(pl.Float32, table.shape[1]))}
    columns: dict[str, Any] = {}
    for column, name in enumerate(data.feature_names):
        values: Any = table[:, column]
        if name in data.category_names:
            values = pl.Series(category_texts(values, data.category_names[name]), dtype=pl.String)
        elif data.allows_missing:
            values = pl.Series(values).fill_nan(None)
        columns[FEATURE_PREFIX + name] = values
    return columns
