"""From how likely each item is at each position to rankings that can be drawn: Birkhoff and von Neumann."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from fultr.arguments import number_array
from fultr.errors import InputError

Array = NDArray[np.float64]

GIVEN_ERROR = 1e-6
"""How far rows and columns of what is given may be from adding up to 1."""

NOTHING = 1e-13
"""A probability that counts as 0: far above rounding, and far below what a decomposition may miss."""

BALANCING_ROUNDS = 50
"""Of rows and columns in turn; the error that an optimiser leaves is gone after a few."""


def decompose(probabilities: ArrayLike) -> tuple[Array, NDArray[np.int32]]:
    """Write a doubly stochastic matrix as a mixture of rankings.

    One ranking after another is taken out of it, each with the largest probability it can have: one that
    only has places of probability above 0, with the largest product of them. Each leaves at least one of
    them with nothing, which is why there are at most (n - 1)^2 + 1.

    Parameters
    ----------
    probabilities
        (n, n) How likely each item is at each position; rows and columns add up to 1.

    Returns
    -------
    shares
        (rankings,) How likely each ranking is; they add up to 1.
    rankings
        (rankings, n) The position of each item, from 1.

    Examples
    --------
    >>> shares, rankings = decompose([[0.75, 0.25], [0.25, 0.75]])
    >>> shares.tolist(), rankings.tolist()
    ([0.75, 0.25], [[1, 2], [2, 1]])
    """
    left = balanced(probabilities)
    items = np.arange(left.shape[0])
    shares, rankings = [], []
    while True:
        possible = left > NOTHING
        likelihood = np.full(left.shape, -np.inf)
        np.log(left, out=likelihood, where=possible)
        # an impossible place costs more than all possible ones together
        worst = items.size * np.log(NOTHING) - 1
        position = linear_sum_assignment(np.where(possible, likelihood, worst), maximize=True)[1]
        share = left[items, position].min()
        if not share > NOTHING:
            break
        shares.append(share)
        rankings.append(position + 1)
        left[items, position] -= share
    probabilities = np.array(shares)
    return probabilities / probabilities.sum(), np.array(rankings, dtype=np.int32)


def balanced(probabilities: ArrayLike) -> Array:
    """Return a matrix whose rows and columns add up to 1, from one where they nearly do."""
    given = np.asarray(number_array(probabilities, "probabilities"), dtype=np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.size:
        raise InputError("must be as many positions as items", column="probabilities", value=given.shape)
    error = max(np.abs(given.sum(axis=axis) - 1.0).max() for axis in (0, 1))
    if not (error <= GIVEN_ERROR and given.min() >= -GIVEN_ERROR):
        problem = "must be probabilities; those of each item, and of each position, must add up to 1"
        raise InputError(problem, column="probabilities")
    table = np.where(given > NOTHING, given, 0.0)
    for _ in range(BALANCING_ROUNDS):
        table /= table.sum(axis=0)
        table /= table.sum(axis=1, keepdims=True)
        if np.abs(table.sum(axis=0) - 1.0).max() <= np.finfo(np.float64).eps * len(table):
            break
    return table
