"""Click logs with one row for each impression, whose documents, positions and clicks are lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.arguments import Progress, names_of
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Location, as_numpy, plain, require_columns
from fultr.data.table_files import Batch, Table
from fultr.errors import InputError
from fultr.logs.sources import open_source

IMPRESSIONS_A_BLOCK = 1 << 14
"""Impressions whose lists are exploded together, so that lists of many features take little memory."""

OF_IMPRESSIONS = ("impression_id", "query_id", "timestamp")
"""The columns that hold one value, and no list."""

LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


def nested_table(
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
    progress: Progress | None = None,
) -> Table:
    """Return the long table of a log with one row for each impression, for `fultr.count` and other readers.

    Parameters
    ----------
    source
        A Parquet, Arrow or NDJSON file, or a pandas, polars or Arrow frame.
    query, impression, timestamp
        The columns with the query of each impression and, where known, its id and its time.
    documents, clicks
        The columns with the list of documents, and a list with 0 or 1 for each of them.
    positions
        The column with lists of positions from 1; an empty value is a candidate that was not shown. Without
        it, the order of the documents is that in which they were shown.
    features
        The column with a list of features for each document, or several columns with a list of numbers each.
    groups
        The column with lists of the documents' groups.
    progress
        As in `fultr.count`.

    Examples
    --------
    >>> import fultr
    >>> sessions = {"query_id": ["jobs", "jobs"], "doc_ids": [[7, 8], [8, 7]], "clicks": [[0, 1], [0, 0]]}
    >>> fultr.count(nested_table(sessions))
    <Counts: 2 impressions of 1 lists, 4 cells>
    """
    table = open_source(source, progress)
    chosen = {"query_id": query, "doc_id": documents, "click": clicks, "position": positions, "group": groups}
    chosen |= {"impression_id": impression, "timestamp": timestamp}
    names = {name: column for name, column in chosen.items() if column is not None}
    feature_columns = (features,) if isinstance(features, str) else names_of(features or (), "features")
    require_columns(table.schema.names, [*names.values(), *feature_columns], table.file)
    kinds = [table.schema.field(column).type for column in feature_columns]
    if len(kinds) == 1 and isinstance(kinds[0], LISTS) and isinstance(kinds[0].value_type, LISTS):
        names[LIST_COLUMN] = feature_columns[0]
    else:
        names |= {FEATURE_PREFIX + column.removeprefix(FEATURE_PREFIX): column for column in feature_columns}

    def batches(needed: list[str]) -> Iterator[tuple[Batch, Location]]:
        if impression is not None and "impression_id" in needed:
            _check_impressions(table, impression)
        given = {name: column for name, column in names.items() if name == "doc_id" or name in needed}
        for batch, location in table.batches(list(dict.fromkeys(given.values()))):
            for start in range(0, len(batch[documents]), IMPRESSIONS_A_BLOCK):
                block = {
                    name: batch[column].slice(start, IMPRESSIONS_A_BLOCK) for name, column in given.items()
                }
                yield _exploded(block, documents, replace(location, first_row=location.first_row + start))

    types = {name: table.schema.field(column).type for name, column in names.items()}
    schema = pa.schema({"impression_id": pa.int64(), "position": pa.int64(), **types})
    invented = {} if impression is not None else {"invented": ["impression_id"]}
    return Table(schema, invented, batches, table.file, names=names)


def _exploded(lists: Batch, documents: str, location: Location) -> tuple[Batch, Location]:
    """Return a row for each entry of the lists, which are of one length in each row, and its location.

    Errors name columns as we do; `OpenedLog` turns these into the names that the table has.
    """
    arrays = {name: plain(array) for name, array in lists.items()}
    lengths = _lengths(arrays["doc_id"], "doc_id", location)
    location.check(lengths == 0, "the list is empty: leave out impressions that showed nothing", "doc_id")
    impression = np.repeat(np.arange(lengths.size), lengths)
    row, first = location.first_row + impression, np.cumsum(lengths) - lengths
    long = {"position": pa.array(np.arange(row.size) - first[impression] + 1), "impression_id": pa.array(row)}
    for name, array in arrays.items():
        if name in OF_IMPRESSIONS:
            long[name] = array.take(pa.array(impression))
            continue
        own = _lengths(array, name, location)
        if (own != lengths).any():
            index = int(np.argmax(own != lengths))
            problem = f"the list has {own[index]} values, but {documents} has {lengths[index]}"
            raise location.error(problem, index, name, array[index].as_py())
        long[name] = array.flatten()
    return long, replace(location, numbers=row)


def _lengths(lists: pa.Array, name: str, location: Location) -> NDArray[np.int64]:
    """Return the length of each list; none may be missing."""
    if not isinstance(lists.type, LISTS):
        value = lists[0].as_py() if len(lists) else None
        raise location.error(f"must be lists, not {lists.type}", 0, name, value)
    problem = "the list is missing; an impression without clicks has a list of zeros"
    location.check(lists.is_null(), problem, name)
    return as_numpy(pc.list_value_length(lists)).astype(np.int64)


def _check_impressions(table: Table, column: str) -> None:
    """Refuse an impression that stands in two rows, naming the second; each row is an impression."""
    batches = [pl.Series(pl.from_arrow(plain(batch[column]))) for batch, _ in table.batches([column])]
    ids = pl.concat(batches) if batches else pl.Series(dtype=pl.Int64)
    for row in (~ids.is_first_distinct() & ids.is_not_null()).arg_true().head(1):
        problem = "the impression stands in an earlier row already; one row is one impression"
        raise InputError(problem, file=table.file, row=row + 1, column="impression_id", value=ids[row])
