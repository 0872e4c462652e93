"""What a log shows, what was clicked and what the clicks weigh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fultr.click_model import PositionBias
from fultr.clicks.bias_cells import deepest_position, items_of_rows, sums_by
from fultr.data import Counts
from fultr.errors import InputError

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


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
    first_position
        For each item the first position it was shown at, 0 if it never was.
    is_at_several
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
    first_position: NDArray[np.int32]
    is_at_several: Flags
    links: Whole

    @classmethod
    def of(cls, counts: Counts) -> Shown:
        """Count what a log shows."""
        data, cells = counts.data, counts.cells
        positions, groups = deepest_position(counts) + 1, len(data.group_names) + 1
        group = data.group[cells.row] % groups  # the remainder makes the last group of -1
        item_of_row = items_of_rows(data)
        item = item_of_row[cells.row]
        first_position, deepest = np.zeros((2, int(item_of_row.max(initial=-1)) + 1), dtype=np.int32)
        np.maximum.at(deepest, item, cells.position)
        first_position[:] = deepest
        np.minimum.at(first_position, item, cells.position)
        first = first_position[item].astype(np.int64)
        links = np.unique((first * positions + cells.position)[first != cells.position])
        return cls(
            shown_at=sums_by(cells.position, cells.impressions, positions),
            clicks_at=sums_by(cells.position, cells.clicks, positions),
            shown_of=sums_by(group, cells.impressions, groups),
            clicks_of=sums_by(group, cells.clicks, groups),
            depth_of=sums_by(group, cells.impressions * cells.position, groups),
            item_of_row=item_of_row,
            first_position=first_position,
            is_at_several=first_position != deepest,
            links=np.column_stack(np.divmod(links, positions)),
        )

    def not_linked(self) -> list[int]:
        """Return the positions that no chain of items leads to from the first one."""
        here, there = self.links.T
        linked = np.arange(self.shown_at.size) == 1
        before = 0
        while (after := int(linked.sum())) > before:
            before = after
            linked[there[linked[here]]] = True
            linked[here[linked[there]]] = True
        return np.flatnonzero((self.shown_at > 0) & ~linked).tolist()


@dataclass(frozen=True, eq=False)
class ClickWeights:
    """Weights 1 / p of clicks, how many clicks have each, and their groups, the unknown one the last."""

    weight: Floats
    clicks: Whole
    group: NDArray[np.int32]

    @classmethod
    def of(cls, counts: Counts, position_bias: PositionBias | None) -> ClickWeights:
        """Weigh the clicks of a log as `merit_evidence` does; what cannot be weighed is an `InputError`."""
        # what was shown must be in reach of the position bias, clicked or not
        examined, clicks, row = counts.propensities(position_bias), counts.cells.clicks, counts.cells.row
        if never := int(clicks[examined <= 0].sum()):
            problem = f"{never} clicks stand at positions that are never examined under this position bias"
            raise InputError(problem, column="position")
        if counts.hides_candidates:
            examined, clicks = counts.mean_examination(position_bias), counts.clicks().astype(np.int64)
            row = np.arange(counts.data.rows)
        chosen = np.flatnonzero(clicks)
        examined, clicks, row = examined[chosen], clicks[chosen], row[chosen]
        with np.errstate(over="ignore"):
            weight = 1 / examined
            total = weight.max(initial=0.0) * float(clicks.sum())
        if not np.isfinite(total):
            problem = "propensities are so small that the weights of clicks are beyond all numbers"
            raise InputError(problem, column="propensity", value=examined.min())
        return cls(weight, clicks, counts.data.group[row] % (len(counts.data.group_names) + 1))

    def by_group(self, groups: int) -> tuple[Floats, Floats, Floats]:
        """Return the largest weight, the sum of weights and the effective sample size of each group."""
        largest = np.zeros(groups)
        np.maximum.at(largest, self.group, self.weight)
        # relative to the largest, so that squares of huge weights stay finite
        relative = self.weight / largest[self.group]
        sums = np.bincount(self.group, weights=relative * self.clicks, minlength=groups)
        squares = np.bincount(self.group, weights=relative**2 * self.clicks, minlength=groups)
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
    relative = weight / weight.max()
    return float((relative @ clicks) ** 2 / (relative**2 @ clicks))


def share_of_largest(weight: Floats, up_to: Whole, count: int) -> float:
    """Return the part of the total weight that the `count` largest of the weights in order carry."""
    relative = weight / weight[-1]
    clicks = np.diff(up_to, prepend=0)
    among = np.minimum(clicks, np.maximum(up_to - (up_to[-1] - count), 0))
    return float((relative @ among) / (relative @ clicks))
