"""Regression-EM with a relevance of its own for each document, drawn from a distribution that is estimated.

With a single best value for each document, examination would come out wrong however many documents there
are, since none of these values is known well. So the relevance of a document is one of some values g_m, each
with a probability pi_m that EM estimates too, and what its clicks leave open is averaged over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.clicks.bias_cells import ItemCells
from fultr.clicks.bias_em_steps import EDGE, examination_of, starting_examination
from fultr.compiled import compiled

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

VALUES = 21
"""How many values of relevance there are, the squares of evenly spaced numbers from 0 to 1."""

LEAST_SHARE = 1e-13
"""The smallest probability of a value."""

LEAST_INFORMATION = 1e-10
"""What the clicks say less of, relative to what they say most of, is not known from them."""


@dataclass(frozen=True)
class MixtureModel:
    """Clicks with probability v_k g_m on a document of relevance g_m, which it has with probability pi_m.

    The parameters of relevance in a state are pi_m.
    """

    cells: ItemCells
    positions: int

    @cached_property
    def _columns(self) -> tuple[Whole, Whole, Whole, Whole]:
        """Where the cells of each item start, with their number at the end; then what the cells hold."""
        cells = self.cells
        starts = np.concatenate([np.flatnonzero(np.diff(cells.item, prepend=-1)), [cells.item.size]])
        return starts, cells.position, cells.impressions, cells.clicks

    def start(self) -> Array:
        """Return a state in which all values are equally likely."""
        cells = self.cells
        examined = starting_examination(cells.position, cells.impressions, cells.clicks)
        return np.concatenate([np.log(examined), np.full(VALUES, 1 / VALUES)])

    def step(self, state: Array) -> Array:
        """Expect what is hidden, and maximise given that."""
        examined, share = np.zeros(self.positions), np.zeros(VALUES)
        chance, relevance = self._chances(state)
        though_not_clicked = chance * (1 - relevance) / (1 - chance * relevance)
        _expect(*self._columns, *self._logs(state), though_not_clicked, examined, share)
        impressions = np.bincount(self.cells.position, weights=self.cells.impressions)
        return np.concatenate([np.log(examined / impressions), share / share.sum()])

    def value(self, state: Array) -> float:
        """Return the log-likelihood."""
        nowhere = np.zeros((self.positions, VALUES))
        logs = self._logs(state)
        return _expect(*self._columns, *logs, nowhere, np.zeros(self.positions), np.zeros(VALUES))

    def influence(self, state: Array, block: Whole, blocks: int) -> Array:
        """Return by how much each block of queries moves log v_k - log v_1, to first order.

        The slopes of a block over the information, which is the sum of squares of those of the documents.
        """
        chance, relevance = self._chances(state)
        rest = 1 - chance * relevance
        size = self.positions + VALUES
        slopes, information = np.zeros((blocks, size)), np.zeros((size, size))
        logs = self._logs(state)
        share = np.exp(logs[2])
        _add_slopes(*self._columns, *logs, chance * relevance, rest, share, block, slopes, information)
        moved = slopes @ np.linalg.pinv(information, rcond=LEAST_INFORMATION, hermitian=True)
        return np.asarray(moved[:, : self.positions] - moved[:, :1])

    def _chances(self, state: Array) -> tuple[Array, Array]:
        values = np.clip(np.linspace(0.0, 1.0, VALUES) ** 2, EDGE, 1 - EDGE)
        return examination_of(state, self.positions)[:, None], values

    def _logs(self, state: Array) -> tuple[Array, Array, Array]:
        """Return the logarithms of a click and of none, by position and value, and of the values' shares."""
        chance, relevance = self._chances(state)
        rate = chance * relevance
        # an extrapolation may have gone below 0
        share = np.maximum(state[self.positions :], LEAST_SHARE)
        return np.log(rate), np.log1p(-rate), np.log(share / share.sum())


@compiled
def _weigh(
    start: int,
    stop: int,
    position: Any,
    impressions: Any,
    clicks: Any,
    log_click: Any,
    log_none: Any,
    log_share: Any,
    weight: Any,
) -> float:
    """Fill in the probabilities of the values, given a document's clicks; return its log-likelihood."""
    weight[:] = log_share
    for cell in range(start, stop):
        where, clicked, unclicked = position[cell], clicks[cell], impressions[cell] - clicks[cell]
        for value in range(weight.size):
            weight[value] += clicked * log_click[where, value] + unclicked * log_none[where, value]
    highest, total = weight.max(), 0.0
    for value in range(weight.size):
        weight[value] = np.exp(weight[value] - highest)
        total += weight[value]
    weight /= total
    return float(highest + np.log(total))


@compiled
def _expect(
    starts: Any,
    position: Any,
    impressions: Any,
    clicks: Any,
    log_click: Any,
    log_none: Any,
    log_share: Any,
    though_not_clicked: Any,
    examined: Any,
    share: Any,
) -> float:
    """Add up how often positions were examined and documents had each value; return the log-likelihood."""
    weight = np.empty(share.size)
    likelihood = 0.0
    for item in range(starts.size - 1):
        start, stop = starts[item], starts[item + 1]
        likelihood += _weigh(
            start, stop, position, impressions, clicks, log_click, log_none, log_share, weight
        )
        share += weight
        for cell in range(start, stop):
            where = position[cell]
            part = 0.0
            for value in range(weight.size):
                part += weight[value] * though_not_clicked[where, value]
            examined[where] += clicks[cell] + (impressions[cell] - clicks[cell]) * part
    return likelihood


@compiled
def _add_slopes(
    starts: Any,
    position: Any,
    impressions: Any,
    clicks: Any,
    log_click: Any,
    log_none: Any,
    log_share: Any,
    rate: Any,
    rest: Any,
    share: Any,
    block: Any,
    slopes: Any,
    information: Any,
) -> None:
    """Add up slopes of the log-likelihood by log v_k and by the logarithms of the shares."""
    positions = slopes.shape[1] - share.size
    weight, slope = np.empty(share.size), np.empty(slopes.shape[1])
    for item in range(starts.size - 1):
        start, stop = starts[item], starts[item + 1]
        _weigh(start, stop, position, impressions, clicks, log_click, log_none, log_share, weight)
        slope[:] = 0.0
        for cell in range(start, stop):
            where = position[cell]
            for value in range(weight.size):
                missed = clicks[cell] - impressions[cell] * rate[where, value]
                slope[where] += weight[value] * missed / rest[where, value]
        slope[positions:] = weight - share
        slopes[block[item]] += slope
        for row in range(slope.size):
            for column in range(slope.size):
                information[row, column] += slope[row] * slope[column]
