"""Long click logs, compacted as they are read: the counts are held, and never the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.click_model import PositionBias
from fultr.data.columns import Place, ids
from fultr.data.compact_log import Cells, CompactLog, count_cells, merge_cells
from fultr.data.counted_lists import ENTRIES, SHOWN
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.impression_keys import ImpressionKeys
from fultr.data.impression_runs import ScatteredRowsError, refuse_returns
from fultr.data.inspection import ImpressionCounts
from fultr.data.log_files import KEYS, _batches, _find_features, _items_beside
from fultr.data.log_metadata import LogMetadata
from fultr.data.log_summary import describe_counts
from fultr.data.log_table import OPTIONAL, REQUIRED
from fultr.data.merging import merge_lists
from fultr.data.streamed_rows import StreamedRows
from fultr.data.table_files import Table, open_table
from fultr.errors import InputError

__all__ = ["ScatteredRowsError", "StreamedFacts", "StreamedLog", "stream_compact", "stream_log"]

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class StreamedFacts:
    """What a log tells beside its counts.

    Parameters
    ----------
    single_impressions
        What single impressions tell of how the log was made; as `count_impressions` of the whole log.
    lists
        The number of different lists of candidates, told apart by their ids.
    entries, not_shown
        Candidates over all impressions, and those of them that were not shown.
    """

    single_impressions: ImpressionCounts
    lists: int
    entries: int
    not_shown: int


@dataclass(frozen=True, eq=False)
class StreamedLog:
    """A click log as counts, and what else was seen when it was read."""

    compact: CompactLog
    facts: StreamedFacts

    def describe(self) -> dict[str, Any]:
        """Return what the log holds, by position and group, as `ClickLog.describe` does."""
        return {**describe_counts(self.compact), "lists": self.facts.lists}


def stream_compact(
    path: str | Path,
    *,
    items: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    position_bias: PositionBias | None = None,
    progress: Progress | None = None,
) -> CompactLog:
    """Compact a click log while it is read; the result is that of `read_log(path).compact()`.

    The rows of an impression must stand together. What is held are the lists and the cells, which do not
    grow once all of them have been seen, and some batches of rows. An impression that comes back after
    another one is always an error, `ScatteredRowsError`; unless ids rise through the table, finding out
    takes a second look at that column, and eight bytes an impression. Times are not looked at.

    Parameters
    ----------
    path
        The table, Parquet or CSV, one row for each candidate of each impression.
    items
        The table of documents with their features; by default the one that was written with the log, if any.
    columns
        Where the table calls a column otherwise, e.g. `{"query_id": "search_id"}`.
    position_bias
        The position bias of the result; by default the one that the log carries.
    progress
        Called with how much of the table has been read, and with its size.
    """
    return _streamed(path, items, columns or {}, progress, position_bias, keys=None)[0]


def stream_log(
    path: str | Path,
    *,
    items: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    position_bias: PositionBias | None = None,
    progress: Progress | None = None,
) -> StreamedLog:
    """Compact a click log while it is read, and collect what an inspection needs beside the counts.

    Parameters are those of `stream_compact`. Eight bytes more are held for each impression, and as many for
    the time of one that was clicked, to find those that stand in the log more than once.
    """
    keys = ImpressionKeys()
    log, rows = _streamed(path, items, columns or {}, progress, position_bias, keys)
    totals = rows.lists.totals
    facts = StreamedFacts(
        single_impressions=keys.counts(totals),
        lists=rows.lists.size,
        entries=int(totals[ENTRIES]),
        not_shown=int(totals[ENTRIES] - totals[SHOWN]),
    )
    return StreamedLog(log, facts)


def _streamed(
    path: str | Path,
    items: str | Path | None,
    renamed: Mapping[str, str],
    progress: Progress | None,
    position_bias: PositionBias | None,
    keys: ImpressionKeys | None,
) -> tuple[CompactLog, StreamedRows]:
    table = open_table(path, progress)
    about = LogMetadata.from_dict(table.metadata, table.file)
    if items is None and about.items is not None:
        items = _items_beside(about.items, Path(path))
    documents = None if items is None else open_table(items)
    rows = StreamedRows(
        keys,
        group_names=about.group_names,
        text_ids=table.is_text or (documents is not None and documents.is_text),
        keep_text=about.text_ids,
        file=table.file,
    )
    found: tuple[str, ...] = ()
    if documents is not None:
        found = _find_features(documents, None, all_numbers=True)
        for batch, place in _batches(documents, {}, KEYS, ("group",), found):
            rows.add_items(batch, place, found)
    in_log = _find_features(table, None, all_numbers=False) if documents is None else ()
    # times only tell whether equal impressions are one
    optional = [name for name in OPTIONAL if name != "timestamp" or keys is not None]
    for batch, place in _read_ahead(_batches(table, renamed, REQUIRED, optional, in_log)):
        rows.take(batch, place, in_log)
    rows.count()
    if not rows.runs.rising:
        refuse_returns(lambda: _ids(table, renamed, rows.text_ids), rows.runs.total)
    try:
        rows.refuse_nothing()
        data = rows.dataset(lambda width: about.dataset_fields(found or in_log, width))
    except InputError as error:
        raise error if error.file is not None or table.file is None else error.located(table.file) from None
    return _compacted(rows, data, about, position_bias), rows


def _read_ahead(batches: Iterator[Value]) -> Iterator[Value]:
    """Yield what an iterator yields, the next being read while one is used."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        ahead = reader.submit(next, batches, None)
        while (batch := ahead.result()) is not None:
            ahead = reader.submit(next, batches, None)
            yield batch


def _ids(table: Table, renamed: Mapping[str, str], as_text: bool) -> Iterator[tuple[pa.Array, Place]]:
    column = renamed.get("impression_id", "impression_id")
    for batch, place in table.batches([column]):
        yield ids(batch[column], "impression_id", place, as_text=as_text), place


def _compacted(
    rows: StreamedRows, data: RankingDataset, about: LogMetadata, position_bias: PositionBias | None
) -> CompactLog:
    nothing = count_cells(np.empty(0, np.int64), np.empty(0, np.int32), None, np.empty(0, np.bool_))
    impressions, clicked = rows.lists.impressions()
    log = CompactLog(
        data=data,
        impressions=impressions,
        clicked_impressions=clicked,
        cells=rows.cells(),
        planted=nothing if rows.planted_cells is None else rows.planted_cells,
        position_bias=about.position_bias if position_bias is None else position_bias,
        noise=about.noise,
        empties_dropped=about.empties_dropped,
    )
    return _without(log, about.invented)


def _without(log: CompactLog, invented: tuple[str, ...]) -> CompactLog:
    """Take away the ids that were invented to write the log; lists may turn out to be the same then."""
    if not {"query_id", "doc_id"}.intersection(invented):
        return log
    data = replace(
        log.data,
        query_id=None if "query_id" in invented else log.data.query_id,
        doc_id=None if "doc_id" in invented else log.data.doc_id,
    )
    merged = merge_lists(data)
    first = merged.representative
    if first.size == len(data):
        return replace(log, data=data)
    new_row = np.empty(data.rows, dtype=np.int64)
    new_row[rows_of(data.offsets, first)] = np.arange(int(data.lengths[first].sum()))
    cells = replace(log.cells, row=new_row[merged.row][log.cells.row])
    return replace(
        log,
        data=data[first],
        impressions=_summed(merged.number, log.impressions),
        clicked_impressions=_summed(merged.number, log.clicked_impressions),
        cells=merge_cells(cells, _none_of(cells)),
    )


def _summed(number: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    sums = np.zeros(int(number.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(sums, number, counts)
    return sums


def _none_of(cells: Cells) -> Cells:
    return Cells(
        row=cells.row[:0],
        position=cells.position[:0],
        propensity=None if cells.propensity is None else cells.propensity[:0],
        impressions=cells.impressions[:0],
        clicks=cells.clicks[:0],
    )
