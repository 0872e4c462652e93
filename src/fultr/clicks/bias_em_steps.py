"""What the models of regression-EM have in common, and the climb to the maximum."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

MOST_CYCLES = 1000
SMALLEST_CHANGE = 1e-6
"""EM ends when no log v_k - log v_1 changes by more over a cycle of three steps."""

EDGE = 1e-9
"""How near to 0 and 1 a probability may come."""

HIGHEST_START = 0.9
"""The examination that EM starts from at the position of most clicks."""


class HiddenClickModel(Protocol):
    """Examination by position and a model of relevance, whose parameters EM improves together.

    A state is one vector: the logarithms of v_k, and then the parameters of relevance.
    """

    @property
    def positions(self) -> int:
        """How many positions there are."""
        ...

    def start(self) -> Array:
        """Return a state to start from."""
        ...

    def step(self, state: Array) -> Array:
        """Expect what is hidden, and maximise given that."""
        ...

    def value(self, state: Array) -> float:
        """Return what the steps never lower: the log-likelihood, with a prior if there is one."""
        ...

    def influence(self, state: Array, block: Whole, blocks: int) -> Array:
        """Return by how much each block of queries moves log v_k - log v_1, to first order.

        `block` is that of each item; the result is (blocks, positions).
        """
        ...


def climb(model: HiddenClickModel) -> tuple[Array, bool]:
    """Run EM, extrapolating along its steps (Varadhan and Roland's squared extrapolation) where that helps.

    Returns the last state, and whether EM had come to rest.
    """
    state = model.start()
    for _ in range(MOST_CYCLES):
        once = model.step(state)
        twice = model.step(once)
        first = once - state
        bend = (twice - once) - first
        length = float(np.linalg.norm(first)) / max(float(np.linalg.norm(bend)), EDGE)
        reached = twice
        if length > 1:
            further = model.step(state + 2 * length * first + length**2 * bend)
            if model.value(further) >= model.value(twice):
                reached = further
        change = np.abs(relative_logs(reached, model.positions) - relative_logs(state, model.positions)).max()
        state = reached
        if change < SMALLEST_CHANGE:
            return state, True
    return state, False


def examination_of(state: Array, positions: int) -> Array:
    """Return v_k as the state has it, not yet relative to the first."""
    return np.exp(np.clip(state[:positions], np.log(EDGE), np.log1p(-EDGE)))


def relative_logs(state: Array, positions: int) -> Array:
    """Return log v_k - log v_1."""
    logs = np.log(examination_of(state, positions))
    return np.asarray(logs - logs[0])


def starting_examination(position: Whole, impressions: Whole, clicks: Whole) -> Array:
    """Return rates of clicks by position, as a part of the highest."""
    rate = np.bincount(position, weights=clicks) / np.bincount(position, weights=impressions)
    return np.asarray(HIGHEST_START * rate / rate.max())
