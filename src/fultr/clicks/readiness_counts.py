"""What a log shows, what was clicked and what the clicks weigh, counted in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fultr.click_model import PositionBias
from fultr.clicks.bias_cells import deepest_position
from fultr.data import Cells, ClickLog, CompactLog, RankingDataset
from fultr.data.compact_log import ENTRIES_A_BLOCK, impression_blocks
from fultr.data.dataset import rows_of
from fultr.data.ids import codes_of
from fultr.data.merging import merge_lists, paired
from fultr.data.propensity import NOT_SHOWN, examination
from fultr.errors import InputError

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ShownLists:
    """How often each list was shown, and how often with a click."""

    impressions: Whole
    clicked: Whole

    @classmethod
    def of(cls, log: ClickLog | CompactLog) -> ShownLists:
        """Count the impressions of each list of a log."""
        if isinstance(log, CompactLog):
            return cls(log.impressions, log.least_clicked_impressions())
        return cls(log.impressions_of_lists(), np.bincount(log.lists[log.clicked], minlength=len(log.data)))

    @property
    def used(self) -> Whole:
        """The lists that were shown at all."""
        return np.flatnonzero(self.impressions)


@dataclass(frozen=True, eq=False)
class Shown:
    """What was shown and clicked, by position, by group and by item, a document of a query.

    Parameters
    ----------
    shown_at, clicks_at
        By position; at 0 there is nothing.
    shown_of, clicks_of, depth_of
        By group, the unknown one the last; `depth_of` is the sum of positions.
    item_of_row
        The item of each row of the data; not each number need be an item.
    place
        For each item a position it was shown at, 0 if it never was.
    moved
        For each item whether it was shown at another position too.
    links
        Pairs of positions at which the same item was shown, (pairs, 2); not all, but enough to lead from any
        position to all that are linked to it.
    """

    shown_at: Whole
    clicks_at: Whole
    shown_of: Whole
    clicks_of: Whole
    depth_of: Whole
    item_of_row: Whole
    place: NDArray[np.int32]
    moved: Flags
    links: Whole

    @classmethod
    def of(cls, log: ClickLog | CompactLog) -> Shown:
        """Count what a log shows, some of it at a time."""
        positions, groups = deepest_position(log) + 1, len(log.data.group_names) + 1
        at, of = np.zeros((2, positions), dtype=np.int64), np.zeros((3, groups), dtype=np.int64)
        item_of_row = items_of_rows(log.data)
        items = int(item_of_row.max(initial=-1)) + 1
        place, moved = np.zeros(items, dtype=np.int32), np.zeros(items, dtype=np.bool_)
        links = np.empty(0, dtype=np.int64)
        for cells in _blocks(log):
            # the remainder makes the last group of -1
            position, group = cells.position, log.data.group[cells.row] % groups
            for sums, where, values in (
                (at[0], position, cells.impressions),
                (at[1], position, cells.clicks),
                (of[0], group, cells.impressions),
                (of[1], group, cells.clicks),
                (of[2], group, cells.impressions * position),
            ):
                sums += sums_by(where, values, sums.size)
            item = item_of_row[cells.row]
            new = place[item] == NOT_SHOWN
            place[item[new]] = position[new]
            elsewhere = place[item] != position
            moved[item[elsewhere]] = True
            found = paired_positions(place[item[elsewhere]], position[elsewhere], positions)
            links = np.union1d(links, found)
        pairs = np.column_stack(np.divmod(links, positions))
        return cls(at[0], at[1], of[0], of[1], of[2], item_of_row, place, moved, pairs)

    def not_linked(self) -> list[int]:
        """Return the positions that no chain of items leads to from the first one."""
        size = self.shown_at.size
        here, there = self.links.T
        graph = coo_array((np.ones(here.size, dtype=np.int8), (here, there)), shape=(size, size))
        part = connected_components(graph, directed=False)[1]
        shown = np.flatnonzero(self.shown_at)
        return shown[part[shown] != part[1]].tolist() if shown.size else []


@dataclass(frozen=True, eq=False)
class ClickWeights:
    """Weights 1 / p of clicks, how many clicks have each, and their groups, the unknown one the last."""

    weight: Floats
    clicks: Whole
    group: NDArray[np.int32]

    @classmethod
    def of(cls, log: ClickLog | CompactLog, position_bias: PositionBias | None) -> ClickWeights:
        """Weigh the clicks of a log; what cannot be weighed is an `InputError`."""
        position, propensity, row, clicks = _clicked(log)
        if position_bias is not None or propensity is None:
            # what was shown must be in reach of the position bias, clicked or not
            deepest = np.array([deepest_position(log)], dtype=np.int32)
            examination(deepest, None, position_bias, log.position_bias)
        examined = examination(position, propensity, position_bias, log.position_bias)
        if never := int(clicks[examined <= 0].sum()):
            problem = f"{never} clicks stand at positions that are never examined under this position bias"
            raise InputError(problem, column="position")
        with np.errstate(over="ignore"):
            weight = 1 / examined
            total = weight.max(initial=0.0) * float(clicks.sum())
        if not np.isfinite(total):
            problem = "propensities are so small that the weights of clicks are beyond all numbers"
            raise InputError(problem, column="propensity", value=examined.min())
        return cls(weight, clicks, log.data.group[row] % (len(log.data.group_names) + 1))

    def by_group(self, groups: int) -> tuple[Floats, Floats, Floats]:
        """Return the largest weight, the sum of weights and the effective sample size of each group."""
        largest = np.zeros(groups)
        np.maximum.at(largest, self.group, self.weight)
        # relative to the largest, so that squares of huge weights stay finite
        part = self.weight / largest[self.group]
        sums = np.bincount(self.group, weights=part * self.clicks, minlength=groups)
        squares = np.bincount(self.group, weights=part**2 * self.clicks, minlength=groups)
        sizes = np.divide(sums**2, squares, out=np.zeros(groups), where=squares > 0)
        return largest, sums * largest, sizes

    def in_order(self) -> tuple[Floats, Whole]:
        """Return the weights from small to large, and how many clicks weigh so much or less."""
        order = np.argsort(self.weight)
        return self.weight[order], np.cumsum(self.clicks[order])


def effective_size(weight: Floats, clicks: Whole) -> float:
    """Return (sum of weights)^2 / sum of squared weights, 0 without any; see `effective_sample_size`."""
    if not weight.size:
        return 0.0
    part = weight / weight.max()
    return float((part @ clicks) ** 2 / (part**2 @ clicks))


def share_of_largest(weight: Floats, up_to: Whole, count: int) -> float:
    """Return the part of the total weight that the `count` largest of the weights in order carry."""
    part = weight / weight[-1]
    clicks = np.diff(up_to, prepend=0)
    among = np.minimum(clicks, np.maximum(up_to - (up_to[-1] - count), 0))
    return float((part @ among) / (part @ clicks))


def items_of_rows(data: RankingDataset) -> Whole:
    """Number the rows so that the same document of the same query has one number, in whatever list."""
    query = data.query_codes
    if int(query.max(initial=-1)) + 1 == len(data):
        return np.arange(data.rows)
    if data.doc_id is None:
        return merge_lists(data).row
    return codes_of(paired(np.repeat(query, data.lengths), codes_of(data.doc_id)))


def sums_by(where: NDArray[Any], values: Whole, size: int) -> Whole:
    """Add up whole numbers by place; sums below 2^53 are exact as floats."""
    return np.bincount(where, weights=values, minlength=size).astype(np.int64)


def paired_positions(one: NDArray[np.int32], other: NDArray[np.int32], positions: int) -> Whole:
    """Return one number for each two positions."""
    return np.unique(one.astype(np.int64) * positions + other)


def _blocks(log: ClickLog | CompactLog) -> Iterator[Cells]:
    """Yield all that was shown, as counts of rows at positions, in blocks."""
    if isinstance(log, CompactLog):
        for start in range(0, log.cells.row.size, ENTRIES_A_BLOCK):
            block = slice(start, start + ENTRIES_A_BLOCK)
            cells = log.cells
            yield Cells(
                cells.row[block], cells.position[block], None, cells.impressions[block], cells.clicks[block]
            )
        return
    for start, stop in impression_blocks(log):
        entries = slice(int(log.offsets[start]), int(log.offsets[stop]))
        seen = log.position[entries] != NOT_SHOWN
        row = rows_of(log.data.offsets, log.lists[start:stop])[seen]
        click = log.click[entries][seen].astype(np.int64)
        yield Cells(row, log.position[entries][seen], None, np.ones(row.size, dtype=np.int64), click)


def _clicked(log: ClickLog | CompactLog) -> tuple[NDArray[np.int32], Floats | None, Whole, Whole]:
    """Return position, propensity if logged, row and number of what was clicked."""
    if isinstance(log, CompactLog):
        cells = log.cells
        chosen = np.flatnonzero(cells.clicks)
        propensity = None if cells.propensity is None else cells.propensity[chosen]
        return cells.position[chosen], propensity, cells.row[chosen], cells.clicks[chosen]
    chosen = np.flatnonzero(log.click)
    impression = np.searchsorted(log.offsets, chosen, side="right") - 1
    row = log.data.offsets[log.lists[impression]] + chosen - log.offsets[impression]
    propensity = None if log.propensity is None else log.propensity[chosen]
    return log.position[chosen], propensity, row, np.ones(chosen.size, dtype=np.int64)
