"""Compacted logs: impressions of the same candidates merged into counts.

Utility, disparity and noise-corrected disparity are linear in the clicks of an impression, so the counts of
impressions and clicks of each item at each position hold all that they need, whatever the position bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.click_model import ClickNoise, PositionBias
from fultr.compiled import compiled, part_of_kernel
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.ids import codes_of
from fultr.data.merging import paired
from fultr.data.propensity import NOT_SHOWN, click_weights, examination

if TYPE_CHECKING:
    from fultr.data.click_log import ClickLog

ENTRIES_A_BLOCK = 1 << 19
"""Entries of a log that are counted together."""


@dataclass(frozen=True, eq=False, repr=False)
class Cells:
    """Impressions and clicks of items, counted by item, position and, where logged, propensity."""

    row: NDArray[np.int64]
    position: NDArray[np.int32]
    propensity: NDArray[np.float64] | None
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class CompactLog:
    """A click log as counts for each list and item; made by `ClickLog.compact`.

    `impressions` counts how often each list of `data` was shown, those without a click included;
    `clicked_impressions` how often with a click, -1 where counts from elsewhere do not say.
    `cells` counts how often each row of `data` was shown and clicked at each position. `planted` does
    the same for planted items, all under row 0, since they belong to no list.
    """

    data: RankingDataset
    impressions: NDArray[np.int64]
    clicked_impressions: NDArray[np.int64]
    cells: Cells
    planted: Cells
    position_bias: PositionBias | None = None
    noise: ClickNoise | None = None
    empties_dropped: bool = False

    def __repr__(self) -> str:
        shape = f"{int(self.impressions.sum())} impressions of {len(self.data)} lists"
        return f"<CompactLog: {shape}, {self.cells.row.size} cells>"

    def __getitem__(self, lists: NDArray[np.int64]) -> CompactLog:
        """Return some of the lists, each at most once, with their counts; planted items belong to none."""
        chosen = np.asarray(lists, dtype=np.int64)
        rows = rows_of(self.data.offsets, chosen)
        new_row = np.full(self.data.rows, -1)
        new_row[rows] = np.arange(rows.size)
        kept = new_row[self.cells.row] >= 0
        cells = Cells(
            row=new_row[self.cells.row[kept]],
            position=self.cells.position[kept],
            propensity=None if self.cells.propensity is None else self.cells.propensity[kept],
            impressions=self.cells.impressions[kept],
            clicks=self.cells.clicks[kept],
        )
        return replace(
            self,
            data=self.data[chosen],
            impressions=self.impressions[chosen],
            clicked_impressions=self.clicked_impressions[chosen],
            cells=cells,
            planted=self.planted,
        )

    def propensities(self, position_bias: PositionBias | None = None) -> NDArray[np.float64]:
        """Return p(o = 1) for each cell; see `examination`."""
        return examination(self.cells.position, self.cells.propensity, position_bias, self.position_bias)

    def ips_weights(
        self, position_bias: PositionBias | None = None, *, clip: float | None = None
    ) -> NDArray[np.float64]:
        """Return the sum over impressions of c / p for each row; weights are clipped before summing."""
        clicks = self.cells.clicks.astype(np.float64)
        return self._by_row(click_weights(clicks, self.propensities(position_bias), clip))

    def squared_ips_weights(
        self, position_bias: PositionBias | None = None, *, clip: float | None = None
    ) -> NDArray[np.float64]:
        """Return the sum over impressions of (c / p)^2 for each row."""
        clicks = self.cells.clicks.astype(np.float64)
        ones = (clicks > 0).astype(np.float64)
        weights = click_weights(ones, self.propensities(position_bias), clip)
        return self._by_row(clicks * weights**2)

    def logged_exposure(self, position_bias: PositionBias | None = None) -> NDArray[np.float64]:
        """Return the sum over impressions of the examination each row had in the logged rankings."""
        return self._by_row(self.cells.impressions * self.propensities(position_bias))

    def shown(self) -> NDArray[np.float64]:
        """Return how often each row was shown."""
        return self._by_row(self.cells.impressions.astype(np.float64))

    def clicks(self) -> NDArray[np.float64]:
        """Return how often each row was clicked."""
        return self._by_row(self.cells.clicks.astype(np.float64))

    @property
    def knows_clicked_impressions(self) -> bool:
        """Whether it is known of every list how often it was shown with a click."""
        return int(self.clicked_impressions.min(initial=0)) >= 0

    def least_clicked_impressions(self) -> NDArray[np.int64]:
        """Return how often each list was shown with a click; where that is not known, the least it can be."""
        if self.knows_clicked_impressions:
            return self.clicked_impressions
        # clicks on one item at different times are in different impressions
        most = np.maximum.reduceat(self.clicks(), self.data.offsets[:-1]).astype(np.int64)
        return np.where(self.clicked_impressions < 0, most, self.clicked_impressions)

    def _by_row(self, of_cells: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.bincount(self.cells.row, weights=of_cells, minlength=self.data.rows)
        return np.asarray(sums, dtype=np.float64)


def count_log(log: ClickLog, new_row: NDArray[np.int64]) -> Cells:
    """Count what was shown, some impressions at a time: a long log takes no more room.

    `new_row` is the row under which each row of the log's lists counts.
    """
    blocks = list(impression_blocks(log)) or [(0, 0)]
    return reduce(merge_cells, (_count_block(log, new_row, start, stop) for start, stop in blocks))


def impression_blocks(log: ClickLog) -> Iterator[tuple[int, int]]:
    """Yield from which impression to which a log can be looked at in little memory, block after block."""
    cuts = np.searchsorted(log.offsets, np.arange(ENTRIES_A_BLOCK, log.entries, ENTRIES_A_BLOCK))
    return pairwise(np.unique([0, *cuts.tolist(), len(log)]).tolist())


def _count_block(log: ClickLog, new_row: NDArray[np.int64], start: int, stop: int) -> Cells:
    entries = slice(log.offsets[start], log.offsets[stop])
    shown = log.position[entries] != NOT_SHOWN
    return count_cells(
        new_row[rows_of(log.data.offsets, log.lists[start:stop])[shown]],
        log.position[entries][shown],
        None if log.propensity is None else log.propensity[entries][shown],
        log.click[entries][shown],
    )


def count_cells(
    row: NDArray[np.int64],
    position: NDArray[np.int32],
    propensity: NDArray[np.float64] | None,
    click: NDArray[np.bool_],
) -> Cells:
    """Count how often each row was shown and clicked at each position, and with each propensity if given."""
    kind, first = position.astype(np.int64), None
    if propensity is not None:
        _, first, kind = np.unique(paired(kind, codes_of(propensity)), return_index=True, return_inverse=True)
    cell_row, cell_kind, impressions, clicks = _count(
        row, kind, click, int(row.max(initial=-1)) + 1, int(kind.max(initial=-1)) + 1
    )
    return Cells(
        row=cell_row,
        position=cell_kind.astype(np.int32) if first is None else position[first[cell_kind]],
        propensity=None if propensity is None or first is None else propensity[first[cell_kind]],
        impressions=impressions,
        clicks=clicks,
    )


def merge_cells(some: Cells, more: Cells) -> Cells:
    """Add up the counts of equal cells."""
    row, position = np.concatenate([some.row, more.row]), np.concatenate([some.position, more.position])
    kind, propensity = position.astype(np.int64), None
    if some.propensity is not None and more.propensity is not None:
        propensity = np.concatenate([some.propensity, more.propensity])
        kind = paired(kind, codes_of(propensity))
    _, first, same = np.unique(paired(row, kind), return_index=True, return_inverse=True)
    # sums of whole numbers below 2^53 are exact as floats
    impressions, clicks = (
        np.bincount(same, weights=np.concatenate(counts), minlength=first.size).astype(np.int64)
        for counts in ((some.impressions, more.impressions), (some.clicks, more.clicks))
    )
    found = None if propensity is None else propensity[first]
    return Cells(row[first], position[first], found, impressions, clicks)


@compiled
def _count(row: Any, kind: Any, click: Any, rows: int, kinds: int) -> Any:
    """Count entries and clicks, in the order of rows and kinds: a counting sort by row, a table of kinds."""
    starts = np.zeros(rows + 1, np.int64)
    for entry in range(row.size):
        starts[row[entry] + 1] += 1
    for index in range(rows):
        starts[index + 1] += starts[index]
    free, by_row = starts[:-1].copy(), np.empty(row.size, np.int64)
    for entry in range(row.size):
        by_row[free[row[entry]]] = 2 * kind[entry] + click[entry]
        free[row[entry]] += 1
    seen, clicked = np.zeros(kinds, np.int64), np.zeros(kinds, np.int64)
    own = np.empty(kinds, np.int64)  # the kinds of a row
    cells = 0
    # first count the cells, so that the result can be allocated, then fill them
    for _ in range(2):
        cell_row, cell_kind = np.empty(cells, np.int64), np.empty(cells, np.int64)
        impressions, clicks = np.empty(cells, np.int64), np.empty(cells, np.int64)
        filling, cells = cells > 0, 0
        for index in range(rows):
            different = 0
            for place in range(starts[index], starts[index + 1]):
                which = by_row[place] >> 1
                if seen[which] == 0:
                    own[different] = which
                    different += 1
                seen[which] += 1
                clicked[which] += by_row[place] & 1
            if filling:
                _sort(own, different, seen)
            for place in range(different):
                which = own[place]
                if filling:
                    cell_row[cells], cell_kind[cells] = index, which
                    impressions[cells], clicks[cells] = seen[which], clicked[which]
                cells += 1
                seen[which] = clicked[which] = 0
    return cell_row, cell_kind, impressions, clicks


@part_of_kernel
def _sort(own: Any, different: int, seen: Any) -> None:
    """Sort the kinds of a row: all that were seen in turn if they are many, else each into its place."""
    if 8 * different > seen.size:
        place = 0
        for which in range(seen.size):
            if seen[which]:
                own[place] = which
                place += 1
        return
    for last in range(1, different):
        which, place = own[last], last
        while place > 0 and own[place - 1] > which:
            own[place] = own[place - 1]
            place -= 1
        own[place] = which
