"""Click logs with one row for each impression, whose documents, positions and clicks are lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.arguments import Progress, names_of
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import columns
from fultr.data.click_log import ClickLog
from fultr.data.coding import OnConflict
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Place, require_columns
from fultr.data.foreign_logs import add_documents, in_their_names, opened
from fultr.data.log_metadata import LogMetadata
from fultr.data.log_table import LogBuilder
from fultr.data.table_files import Batch
from fultr.errors import InputError

ENTRIES_A_BLOCK = 1 << 18
"""Entries of lists that are taken out of them together."""


def read_nested_log(
    source: Any,
    *,
    query: str = "query_id",
    documents: str = "doc_ids",
    clicks: str = "clicks",
    positions: str | None = None,
    impression: str | None = None,
    features: str | Sequence[str] | None = None,
    groups: str | None = None,
    timestamp: str | None = None,
    items: Any = None,
    group_names: Sequence[str] | None = None,
    on_conflict: OnConflict = "error",
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    empties_dropped: bool = False,
    progress: Progress | None = None,
) -> ClickLog:
    """Read a click log that has one row for each impression, with lists for what it showed.

    Parameters
    ----------
    source
        A Parquet file, or a pandas, polars or Arrow frame.
    query, documents, clicks
        The columns with the query, the list of documents, and a list with 0 or 1 for each of them.
    positions
        The column with lists of positions from 1; an empty value is a candidate that was not shown. Without
        it, the order of the documents is that in which they were shown.
    impression
        The column with the id of the impression, if there is one.
    features
        The column with a list of features for each document, or several columns with a list of numbers each.
    groups
        The column with lists of the documents' groups.
    timestamp
        The column with the time of the impression.
    items
        Instead of `features` and `groups`: a table of documents, keyed by query_id and doc_id.
    group_names, on_conflict, progress
        As in `read_log`.
    position_bias, noise, empties_dropped
        As in `log_from_frame`.

    Examples
    --------
    >>> read_nested_log({"query_id": ["jobs", "jobs"], "doc_ids": [[7, 8, 9], [9, 7]],
    ...                  "clicks": [[0, 1, 0], [0, 0]]})
    <ClickLog: 2 impressions of 2 lists, 1 clicks>
    """
    table = opened(source, progress)
    chosen = {
        "query_id": query,
        "doc_id": documents,
        "click": clicks,
        "position": positions,
        "impression_id": impression,
        "group": groups,
        "timestamp": timestamp,
    }
    names = {name: column for name, column in chosen.items() if column is not None}
    wanted = (features,) if isinstance(features, str) else names_of(features or (), "features")
    needed = list(dict.fromkeys([*names.values(), *wanted]))
    require_columns(table.schema.names, needed, table.file)
    if items is not None and (wanted or groups is not None):
        problem = "features and groups come with the documents' table, or with the log, not with both"
        raise InputError(problem, column="items")
    builder = LogBuilder(
        group_names=None if group_names is None else names_of(group_names, "group_names"),
        on_conflict=on_conflict,
        file=table.file,
    )
    found = add_documents(builder, None if items is None else opened(items))
    rows = _NestedRows(builder, names, wanted)
    with in_their_names(names, table.file):
        for batch, place in table.batches(needed):
            rows.add(batch, place)
        log = builder.build(
            dataset=lambda width: LogMetadata().dataset_fields(found or rows.features, width),
            position_bias=position_bias,
            noise=noise,
            empties_dropped=empties_dropped,
        )
    return log if impression is not None else replace(log, impression_id=None)


class _NestedRows:
    """Rows with lists on their way to long rows, which remember the row they came from."""

    def __init__(self, builder: LogBuilder, names: dict[str, str], features: Sequence[str]) -> None:
        self.builder = builder
        self.names = names
        self.columns = features
        self.features: tuple[str, ...] = ()
        self.impressions = 0
        self.entries = 0
        self._ends: list[NDArray[np.int64]] = []

    def add(self, batch: Batch, place: Place) -> None:
        """Take rows, some at a time: their lists may be long, and hold long lists of features."""
        documents = plain_lists(batch[self.names["doc_id"]], self.names["doc_id"], place)
        lengths = list_lengths(documents)
        empty = np.flatnonzero(lengths == 0)
        if empty.size:
            problem = "the list is empty: leave out impressions that showed nothing"
            raise place.error(problem, int(empty[0]), self.names["doc_id"])
        ends = np.cumsum(lengths)
        cuts = np.searchsorted(
            ends, np.arange(ENTRIES_A_BLOCK, ends[-1] if ends.size else 0, ENTRIES_A_BLOCK)
        )
        starts = np.unique(np.concatenate([[0], cuts])).astype(np.int64)
        for start, stop in zip(starts, [*starts[1:], lengths.size], strict=True):
            part = {name: column.slice(start, stop - start) for name, column in batch.items()}
            self._add_part(part, Place(place.file, place.first_row + int(start)))

    def _add_part(self, batch: Batch, place: Place) -> None:
        names = self.names
        documents, lengths = flat_lists(batch[names["doc_id"]], names["doc_id"], place)
        row_of_entry = np.repeat(np.arange(lengths.size), lengths)

        def entries(column: str) -> pa.Array:
            flat, others = flat_lists(batch[column], column, place)
            differs = np.flatnonzero(others != lengths)
            if differs.size:
                index = int(differs[0])
                problem = f"the list has {others[index]} values, but {names['doc_id']} has {lengths[index]}"
                raise place.error(problem, index, column, batch[column][index].as_py())
            return flat

        first = np.cumsum(lengths) - lengths
        long: Batch = {
            "doc_id": documents,
            "click": entries(names["click"]),
            "position": entries(names["position"])
            if "position" in names
            else pa.array(np.arange(len(documents)) - np.repeat(first, lengths) + 1),
            "impression_id": pa.array(self.impressions + 1 + row_of_entry),
        }
        if "group" in names:
            long["group"] = entries(names["group"])
        for name in ("query_id", "impression_id", "timestamp"):
            if name in names:
                long[name] = columns.plain(batch[names[name]]).take(pa.array(row_of_entry))
        long |= self._features({name: entries(name) for name in self.columns})
        self._ends.append(self.entries + np.cumsum(lengths))
        before = len(self.builder.impressions)
        self.builder.add(long, Place(place.file, self.entries + 1, line_of=self._row_of), self.features)
        if len(self.builder.impressions) - before < lengths.size:
            self._refuse_repeated_impression(batch, place, before)
        self.entries += int(lengths.sum())
        self.impressions += lengths.size

    def _features(self, given: Batch) -> Batch:
        """Tell one column with lists of features from columns with a number each."""
        if len(given) == 1 and is_list(next(iter(given.values())).type):
            found = {LIST_COLUMN: next(iter(given))}
        else:
            found = {FEATURE_PREFIX + name.removeprefix(FEATURE_PREFIX): name for name in given}
        self.features = tuple(found)
        self.names.update(found)
        return {name: given[column] for name, column in found.items()}

    def _refuse_repeated_impression(self, batch: Batch, place: Place, before: int) -> None:
        """Name the first row whose impression stood in an earlier row; each row is one of its own."""
        column = batch[self.names["impression_id"]]
        codes = self.builder.impressions.lookup(
            columns.ids(column, "impression_id", place), Place(place.file, place.first_row)
        )
        expected = before
        for index, code in enumerate(codes.tolist()):
            if code != expected:
                problem = "the impression stands in an earlier row already; one row is one impression"
                raise place.error(problem, index, "impression_id", column[index].as_py())
            expected += 1

    def _row_of(self, entry: int) -> int:
        """Return the row of the table that an entry, counted from 1, came from."""
        return int(np.searchsorted(np.concatenate(self._ends), entry)) + 1


def is_list(kind: Any) -> bool:
    """Say whether an Arrow type holds lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def plain_lists(column: Any, name: str, place: Place) -> pa.Array:
    """Return a column of lists, none missing."""
    array = columns.plain(column)
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = array.cast(pa.large_list(array.type.value_type))
    if not is_list(array.type):
        value = array[0].as_py() if len(array) else None
        raise place.error(f"must be lists, not {array.type}", 0, name, value)
    if array.null_count:
        problem = "the list is missing; an impression without clicks has a list of zeros"
        raise place.error(problem, int(np.argmax(pc.is_null(array).to_numpy(zero_copy_only=False))), name)
    return array


def list_lengths(array: pa.Array) -> NDArray[np.int64]:
    """Return the length of each list."""
    return np.asarray(pc.list_value_length(array).to_numpy(zero_copy_only=False), dtype=np.int64)


def flat_lists(column: Any, name: str, place: Place) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the values of all lists after one another, and the length of each list."""
    array = plain_lists(column, name, place)
    return array.flatten(), list_lengths(array)
