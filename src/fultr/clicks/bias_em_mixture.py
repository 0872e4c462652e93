"""Regression-EM with a relevance of its own for each document, drawn from a distribution that is estimated.

With a single best value for each document, examination would come out wrong however many documents there
are, since none of these values is known well. So the relevance of a document is one of some values g_m, each
with a probability pi_m that EM estimates too, and what its clicks leave open is averaged over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fultr.clicks.bias_cells import ItemCells
from fultr.clicks.bias_em_steps import EDGE, examination_of, starting_examination
from fultr.data.grouping import run_starts

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

VALUES = 21
"""How many values of relevance there are, the squares of evenly spaced numbers from 0 to 1."""

ITEMS_A_BLOCK = 1 << 15
"""Documents whose probabilities are held at a time, 5 MB of them."""

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
    def _blocks(self) -> list[_Block]:
        """All items, some of them at a time."""
        cells = self.cells
        shape = (cells.row.size, self.positions)
        starts = np.append(run_starts(cells.item), cells.item.size)
        clicks, unclicked = (
            csr_array((values.astype(np.float64), cells.position, starts), shape=shape)
            for values in (cells.clicks, cells.impressions - cells.clicks)
        )
        blocks = (slice(start, start + ITEMS_A_BLOCK) for start in range(0, cells.row.size, ITEMS_A_BLOCK))
        return [_Block(items, clicks[items], unclicked[items]) for items in blocks]

    def start(self) -> Array:
        """Return a state in which all values are equally likely."""
        cells = self.cells
        examined = starting_examination(cells.position, cells.impressions, cells.clicks)
        return np.concatenate([np.log(examined), np.full(VALUES, 1 / VALUES)])

    def step(self, state: Array) -> Array:
        """Expect what is hidden, and maximise given that."""
        cells, logs = self.cells, self._logs(state)
        chance, relevance = self._chances(state)
        though_not_clicked = chance * (1 - relevance) / (1 - chance * relevance)
        examined, share = np.bincount(cells.position, weights=cells.clicks), np.zeros(VALUES)
        for block in self._blocks:
            probability, _ = block.probabilities(*logs)
            examined += np.sum((block.unclicked.T @ probability) * though_not_clicked, axis=1)
            share += probability.sum(axis=0)
        impressions = np.bincount(cells.position, weights=cells.impressions)
        return np.concatenate([np.log(examined / impressions), share / share.sum()])

    def value(self, state: Array) -> float:
        """Return the log-likelihood."""
        logs = self._logs(state)
        return sum(block.probabilities(*logs)[1] for block in self._blocks)

    def influence(self, state: Array, block: Whole, blocks: int) -> Array:
        """Return by how much each block of queries moves log v_k - log v_1, to first order.

        The slopes of a block over the information, which is the sum of squares of those of the documents.
        """
        chance, relevance = self._chances(state)
        odds, logs = chance * relevance / (1 - chance * relevance), self._logs(state)
        size = self.positions + VALUES
        slopes, information = np.zeros((blocks, size)), np.zeros((size, size))
        for items in self._blocks:
            probability, _ = items.probabilities(*logs)
            # by log v_k, which every click raises and every impression without one lowers; then by log pi_m
            by_position = items.clicks.toarray() - items.unclicked.toarray() * (probability @ odds.T)
            slope = np.hstack([by_position, probability - np.exp(logs[2])])
            own = block[items.items]
            members = csr_array((np.ones(own.size), (own, np.arange(own.size))), shape=(blocks, own.size))
            slopes += members @ slope
            information += slope.T @ slope
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


@dataclass(frozen=True, eq=False)
class _Block:
    """Some items, and their clicks and impressions without a click by position."""

    items: slice
    clicks: csr_array
    unclicked: csr_array

    def probabilities(self, log_click: Array, log_none: Array, log_share: Array) -> tuple[Array, float]:
        """Return how likely each item has each value, given its clicks; and the log-likelihood of them."""
        logs = self.clicks @ log_click + self.unclicked @ log_none + log_share
        highest = logs.max(axis=1, keepdims=True)
        probability = np.exp(logs - highest)
        total = probability.sum(axis=1, keepdims=True)
        return probability / total, float(highest.sum() + np.log(total).sum())
