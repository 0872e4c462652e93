"""Clicks and impressions of each document of each query at each position, and who put it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.data import ClickLog, CompactLog, RankingDataset
from fultr.data.compact_log import count_cells
from fultr.data.ids import as_ids, codes_of
from fultr.data.merging import item_codes, merge_lists
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

SEVERAL_RANKERS = -1
"""Stands for the ranker of what more than one ranker, or an unknown one, did."""

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
        return _sums(self.position, self.impressions, deepest), _sums(self.position, self.clicks, deepest)

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


def item_cells(log: ClickLog | CompactLog, longest: int, ranker: ArrayLike | None = None) -> ItemCells:
    """Count what a log shows of each item at positions 1 to `longest`; planted items are no part of it."""
    refuse_dropped(log)
    item_of_row = _items(log.data)
    if isinstance(log, CompactLog):
        if ranker is not None:
            problem = "a compacted log does not know its impressions; give the log itself"
            raise InputError(problem, column="ranker")
        within = log.cells.position <= longest
        item, position = item_of_row[log.cells.row[within]], log.cells.position[within]
        seen, clicks = log.cells.impressions[within], log.cells.clicks[within]
        code, rankers = np.full(item.size, SEVERAL_RANKERS), 1
    else:
        shown = (log.position != NOT_SHOWN) & (log.position <= longest)
        item = item_of_row[log.row_of_entry[shown]]
        codes = np.zeros(len(log), dtype=np.int64) if ranker is None else ranker_codes(ranker, len(log))
        rankers = int(codes.max(initial=0)) + 1
        if rankers > 1:
            item = item * rankers + np.repeat(codes, np.diff(log.offsets))[shown]
        cells = count_cells(item, log.position[shown], None, log.click[shown])
        item, code = np.divmod(cells.row, rankers)
        position, seen, clicks = cells.position, cells.impressions, cells.clicks
        code = np.full(item.size, SEVERAL_RANKERS) if ranker is None else code
    return _merged(log.data, item_of_row, item, position.astype(np.int64) - 1, seen, clicks, code)


def deepest_position(log: ClickLog | CompactLog) -> int:
    """Return the deepest position at which the log shows a candidate, 0 if it shows none."""
    position = log.cells.position if isinstance(log, CompactLog) else log.position
    return int(position.max(initial=0))


def of_impressions(values: ArrayLike, size: int, column: str) -> NDArray[Any]:
    """Return a column with one value for each impression."""
    given = np.asarray(values)
    if given.shape != (size,):
        problem = f"must have one value for each of {size} impressions"
        raise InputError(problem, column=column, value=given.shape)
    return given


def ranker_codes(ranker: ArrayLike, size: int) -> Whole:
    """Number the rankers of impressions, which are named by text or whole numbers."""
    of_impressions(ranker, size, "ranker")
    return codes_of(as_ids(ranker, "ranker"))


def refuse_dropped(log: ClickLog | CompactLog) -> None:
    """Refuse a log whose click rates are unknown."""
    if log.empties_dropped:
        raise InputError(
            "impressions without a click were dropped from the log, so click rates are unknown;"
            " use a log that kept them"
        )


def _items(data: RankingDataset) -> Whole:
    """Number the rows so that the same document of the same query has one number, in whatever list."""
    # without ids, equal features say that lists are the same, but not that two items of a list are
    return merge_lists(data).row if data.doc_id is None else item_codes(data)


def _merged(
    data: RankingDataset,
    item_of_row: Whole,
    item: Whole,
    position: Whole,
    seen: Whole,
    clicks: Whole,
    ranker: Whole,
) -> ItemCells:
    """Put counts of the same item and position together."""
    order = np.lexsort((position, item))
    item, position, ranker = item[order], position[order], ranker[order]
    new = np.ones(item.size, dtype=np.bool_)
    new[1:] = (np.diff(item) != 0) | (np.diff(position) != 0)
    starts = np.flatnonzero(new)
    if not starts.size:
        empty = np.empty(0, dtype=np.int64)
        return ItemCells(empty, empty, empty, empty, empty, empty, empty)
    one = np.minimum.reduceat(ranker, starts) == np.maximum.reduceat(ranker, starts)
    used, number = np.unique(item[starts], return_inverse=True)
    row_of_item = np.empty(int(item_of_row.max()) + 1, dtype=np.int64)
    row_of_item[item_of_row] = np.arange(data.rows)
    row = row_of_item[used]
    return ItemCells(
        item=number.astype(np.int64, copy=False),
        position=position[starts],
        impressions=np.add.reduceat(seen[order], starts),
        clicks=np.add.reduceat(clicks[order], starts),
        ranker=np.where(one, ranker[starts], SEVERAL_RANKERS),
        row=row,
        query=data.query_codes[np.searchsorted(data.offsets, row, side="right") - 1],
    )


def _sums(place: Whole, values: Whole, size: int) -> Whole:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, place, values)
    return sums
