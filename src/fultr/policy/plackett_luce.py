"""Rankings drawn from a Plackett-Luce model.

Drawing items without replacement from Softmax(h) is an exponential race: item j arrives at an independent
time T_j ~ Exp(exp(h_j)), and the ranking is the order of arrival.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.data.dataset import rows_of
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError
from fultr.expectation.race import centred_scores, check_scores, order_of_arrival


def sample_positions(
    scores: NDArray[np.float64],
    offsets: NDArray[np.int64],
    lists: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    top_k: int | None = None,
) -> NDArray[np.int32]:
    """Draw one ranking for each of the given lists (repeats allowed) from their Plackett-Luce model.

    Parameters
    ----------
    scores
        A score for each row.
    offsets
        Where each list starts in `scores`, and the number of rows at the end.
    lists
        The lists to rank.
    rng
        All randomness comes from here, in the order of `lists`.
    top_k
        Show only the first so many items of each ranking. The same randomness gives the same ranking, cut.

    Returns
    -------
    positions
        The position, from 1, of each row of each list in `lists`, one list after another; 0 for an item that
        is not shown.
    """
    rows = rows_of(offsets, lists)
    lengths = np.diff(offsets)[lists]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    levels = centred_scores(scores, offsets)[rows]
    order = order_of_arrival(levels, starts, rng.standard_exponential(rows.size))
    first = np.repeat(starts[:-1], lengths)
    positions = np.empty(rows.size, dtype=np.int32)
    positions[first + order] = np.arange(1, rows.size + 1) - first
    return cut_positions(positions, top_k)


def rank_positions(scores: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rank each list by descending score: the mode of the Plackett-Luce model. Ties keep the row order."""
    check_scores(scores)
    list_of_row = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    order = np.lexsort((-scores, list_of_row))
    positions = np.empty(scores.size, dtype=np.int32)
    positions[order] = np.arange(scores.size) - offsets[list_of_row] + 1
    return positions


def cut_positions(positions: NDArray[np.int32], top_k: int | None) -> NDArray[np.int32]:
    """Show only the first `top_k` positions, all of them if that is None; the others become 0."""
    if top_k is None:
        return positions
    if top_k < 1:
        raise InputError("must be 1 or more", column="top_k", value=top_k)
    return np.where(positions > top_k, np.int32(NOT_SHOWN), positions)
