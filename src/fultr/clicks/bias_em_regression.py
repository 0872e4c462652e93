"""Regression-EM with relevance as a logistic regression on the features of a document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import expit, logit

from fultr.clicks.bias_cells import ItemCells
from fultr.clicks.bias_em_steps import EDGE, examination_of, starting_examination

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

RIDGE = 1.0
"""The prior precision of the coefficients of standardised features."""

LEAST_START = 0.01
"""How near to 0 and 1 the relevance may be that EM starts from."""

LONGEST_STEP = 2.0
"""How far a step of the regression may move a log-odds."""


@dataclass(frozen=True)
class RegressionModel:
    """Clicks with probability v_k g_i, g_i being a logistic regression on the features of item i.

    The parameters of relevance in a state are its coefficients.
    """

    cells: ItemCells
    positions: int
    features: NDArray[np.float32]

    @cached_property
    def design(self) -> Array:
        """A constant column, and the features that vary, each of mean 0 and deviation 1."""
        table = self.features.astype(np.float64)
        deviation = table.std(axis=0)
        varies = deviation > 0
        scaled = (table[:, varies] - table[:, varies].mean(axis=0)) / deviation[varies]
        return np.column_stack([np.ones(len(table)), scaled])

    @cached_property
    def precision(self) -> Array:
        """The prior precision of the coefficients; the constant has next to none."""
        precision = np.full(self.design.shape[1], RIDGE)
        precision[0] = EDGE
        return precision

    @cached_property
    def impressions(self) -> Array:
        """The impressions of each item."""
        return _sums(self.cells.item, self.cells.impressions)

    def start(self) -> Array:
        """Return a state in which all documents are equally relevant."""
        cells = self.cells
        examined = starting_examination(cells.position, cells.impressions, cells.clicks)
        coefficients = np.zeros(self.design.shape[1])
        expected = float(cells.impressions @ examined[cells.position])
        coefficients[0] = logit(np.clip(cells.clicks.sum() / expected, LEAST_START, 1 - LEAST_START))
        return np.concatenate([np.log(examined), coefficients])

    def step(self, state: Array) -> Array:
        """Expect what is hidden, maximise examination given that, and improve the regression."""
        cells = self.cells
        examined, relevance = self._chances(state)
        unclicked = (cells.impressions - cells.clicks) / (1 - examined * relevance)
        was_examined = cells.clicks + unclicked * examined * (1 - relevance)
        was_relevant = cells.clicks + unclicked * relevance * (1 - examined)
        share = _sums(cells.position, was_examined) / _sums(cells.position, cells.impressions)
        relevant = _sums(cells.item, was_relevant)
        return np.concatenate([np.log(share), self._improved(state[self.positions :], relevant)])

    def value(self, state: Array) -> float:
        """Return the log-likelihood with the prior of the coefficients."""
        examined, relevance = self._chances(state)
        rate, coefficients = examined * relevance, state[self.positions :]
        clicked, unclicked = self.cells.clicks, self.cells.impressions - self.cells.clicks
        prior = 0.5 * float(self.precision @ coefficients**2)
        return float(clicked @ np.log(rate) + unclicked @ np.log1p(-rate)) - prior

    def influence(self, state: Array, block: Whole, blocks: int) -> Array:
        """Return by how much each block of queries moves log v_k - log v_1, to first order.

        Its slopes, over the information that is left of v_k when the coefficients are estimated too.
        """
        cells, positions = self.cells, self.positions
        examined, relevance = self._chances(state)
        rate = examined * relevance
        slope = (cells.clicks - cells.impressions * rate) / (1 - rate)
        information = cells.impressions * rate / (1 - rate)
        moved = self.design * (1 - self._relevance(state))[:, None]
        by_position = csr_array((information, (cells.item, cells.position)), shape=(len(moved), positions))
        common = np.asarray(by_position.T @ moved)
        of_items = _sums(cells.item, information)
        of_coefficients = (moved.T * of_items) @ moved + np.diag(self.precision)
        through = np.asarray(np.linalg.solve(of_coefficients, common.T))
        left = np.diag(by_position.sum(axis=0)) - common @ through
        members = csr_array((np.ones(block.size), (block, np.arange(block.size))), shape=(blocks, block.size))
        of_model = np.asarray(members @ (moved * _sums(cells.item, slope)[:, None]))
        cell_number = block[cells.item] * positions + cells.position
        slopes = np.bincount(cell_number, weights=slope, minlength=blocks * positions).reshape(
            blocks, positions
        )
        influence = np.zeros((blocks, positions))
        # v_1 stays as it is; what it would add is in the constant of the regression
        influence[:, 1:] = np.linalg.solve(left[1:, 1:], (slopes - of_model @ through)[:, 1:].T).T
        return influence

    def _relevance(self, state: Array) -> Array:
        return np.asarray(np.clip(expit(self.design @ state[self.positions :]), EDGE, 1 - EDGE))

    def _chances(self, state: Array) -> tuple[Array, Array]:
        """Return examination and relevance for each cell."""
        examined = examination_of(state, self.positions)
        return examined[self.cells.position], self._relevance(state)[self.cells.item]

    def _improved(self, coefficients: Array, relevant: Array) -> Array:
        """Take one step of Newton's method towards how often items are expected to have been relevant."""
        chance = np.clip(expit(self.design @ coefficients), EDGE, 1 - EDGE)
        slope = self.design.T @ (relevant - self.impressions * chance) - self.precision * coefficients
        curvature = (self.design.T * (self.impressions * chance * (1 - chance))) @ self.design
        step = np.linalg.solve(curvature + np.diag(self.precision), slope)
        largest = float(np.abs(self.design @ step).max(initial=0.0))
        return np.asarray(coefficients + step * min(1.0, LONGEST_STEP / max(largest, EDGE)))


def _sums(number: Whole, values: NDArray[Any]) -> Array:
    """Return sums by place."""
    return np.asarray(np.bincount(number, weights=values), dtype=np.float64)
