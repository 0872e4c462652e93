"""Clicks and impressions of each document of each query at each position, and who put it there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.data import ClickLog, Counts, RankingDataset, merge
from fultr.data.grouping import dense, group_rows, run_starts, sort_key
from fultr.data.ids import Ids, as_ids, codes_of, distinct
from fultr.errors import InputError

SEVERAL_RANKERS = -1
"""Stands for the ranker of what more than one ranker, or an unknown one, did."""

NO_SINGLE_IMPRESSIONS = "a compacted log does not know its impressions; give the log itself"

Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ItemCells:
    """Counts by item, a document of a query, and position; sorted by item.

    Parameters
    ----------
    item, position, impressions, clicks
        For each cell; positions are counted from 0, items numbered from 0 on.
    ranker
        For each cell the one ranker that put the item there, or `SEVERAL_RANKERS`.
    row, query
        For each item a row of the data that holds it, and the code of its query.
    """

    item: Whole
    position: Whole
    impressions: Whole
    clicks: Whole
    ranker: Whole
    row: Whole
    query: Whole

    def totals(self) -> tuple[Whole, Whole]:
        """Return impressions and clicks by position, from the first to the deepest one shown."""
        deepest = int(self.position.max(initial=-1)) + 1
        return sums_by(self.position, self.impressions, deepest), sums_by(self.position, self.clicks, deepest)

    def chosen(self, cells: NDArray[np.bool_]) -> ItemCells:
        """Return some of the cells; their items are numbered anew."""
        used, item = np.unique(self.item[cells], return_inverse=True)
        return ItemCells(
            item.astype(np.int64, copy=False),
            self.position[cells],
            self.impressions[cells],
            self.clicks[cells],
            self.ranker[cells],
            self.row[used],
            self.query[used],
        )


def item_cells(counts: Counts, longest: int, *, by_ranker: bool = False) -> ItemCells:
    """Count what a log shows of each item at positions 1 to `longest`; planted items are no part of it.

    With `by_ranker`, the context of the counts is the ranker; see `counts_of_rankers`.
    """
    check_empties_kept(counts)
    data = counts.data
    cells = counts.cells[np.flatnonzero(counts.cells.position <= longest)]
    item = items_of_rows(data)[cells.row]
    order, starts = group_rows(item, cells.position)
    if not starts.size:
        empty = np.empty(0, dtype=np.int64)
        return ItemCells(empty, empty, empty, empty, empty, empty, empty)
    of_lists = counts.context if by_ranker else None
    if of_lists is None:
        of_lists = np.full(len(data), SEVERAL_RANKERS)
    ranker = of_lists[data.list_of_row[cells.row[order]]]
    one = np.minimum.reduceat(ranker, starts) == np.maximum.reduceat(ranker, starts)
    first_cell = order[starts]
    of_item = run_starts(item[first_cell])
    row_of_item = cells.row[first_cell[of_item]]
    return ItemCells(
        item=dense(item[first_cell]),
        position=cells.position[first_cell].astype(np.int64) - 1,
        impressions=np.add.reduceat(cells.impressions[order], starts),
        clicks=np.add.reduceat(cells.clicks[order], starts),
        ranker=np.where(one, ranker[starts], SEVERAL_RANKERS),
        row=row_of_item,
        query=data.query_codes[data.list_of_row[row_of_item]],
    )


def items_of_rows(data: RankingDataset) -> Whole:
    """Number the rows so that the same document of the same query has one number, in whatever list.

    Without ids of documents, each row is an item of its own.
    """
    query = data.query_codes
    if data.doc_id is None or int(query.max(initial=-1)) + 1 == len(data):
        return np.arange(data.rows)
    return dense(sort_key(np.repeat(query, data.lengths), codes_of(data.doc_id)))


def counts_of_rankers(log: ClickLog | Counts, ranker: ArrayLike | None) -> Counts:
    """Return the counts of a log; if rankers are named, their lists are told apart by them as a context.

    `ranker` names that of each impression or, of counts that have it as their context, the column.
    """
    if ranker is None:
        return log.compact()
    if isinstance(log, ClickLog):
        return _counted_apart(log, labels_of(ranker, len(log), "ranker"))
    if isinstance(ranker, str) and log.context is not None and ranker == log.context_name:
        return log
    raise InputError(NO_SINGLE_IMPRESSIONS, column="ranker")


def _counted_apart(log: ClickLog, labels: Ids) -> Counts:
    """Return the counts of a log whose impressions are told apart by labels."""
    named = with_ids(log)
    codes = codes_of(labels)
    parts = []
    for code, label in enumerate(distinct(labels).tolist()):
        counts = named[np.flatnonzero(codes == code)].compact()
        context = np.zeros(len(counts.data), dtype=np.int64)
        parts.append(replace(counts, context=context, context_name="ranker", context_values=(str(label),)))
    if not parts:
        return replace(named.compact(), context=np.empty(0, dtype=np.int64), context_name="ranker")
    return merge(*parts)


def with_ids(log: ClickLog) -> ClickLog:
    """Number what has no ids, so that counts of several parts of the log can be merged."""
    data = log.data
    query_id = np.arange(len(data)) if data.query_id is None else data.query_id
    doc_id = np.arange(data.rows) if data.doc_id is None else data.doc_id
    return replace(log, data=replace(data, query_id=query_id, doc_id=doc_id))


def deepest_position(counts: Counts) -> int:
    """Return the deepest position at which the log shows a candidate, 0 if it shows none."""
    return int(counts.cells.position.max(initial=0))


def of_impressions(values: ArrayLike, size: int, column: str) -> NDArray[Any]:
    """Return a column with one value for each impression."""
    given = np.asarray(values)
    if given.shape != (size,):
        problem = f"must have one value for each of {size} impressions"
        raise InputError(problem, column=column, value=given.shape)
    return given


def labels_of(values: ArrayLike, size: int, column: str) -> Ids:
    """Return a column with text or an integer for each impression."""
    of_impressions(values, size, column)
    return as_ids(values, column)


def check_empties_kept(log: ClickLog | Counts) -> None:
    """Refuse a log whose click rates are unknown."""
    if log.empties_dropped:
        raise InputError(
            "impressions without a click were dropped from the log, so click rates are unknown;"
            " use a log that kept them"
        )


def sums_by(where: NDArray[Any], values: NDArray[Any], size: int) -> Whole:
    """Add up integers by place; sums below 2^53 are exact as floats."""
    return np.bincount(where, weights=values, minlength=size).astype(np.int64)
