"""Rankings drawn from a Plackett-Luce model.

Drawing items without replacement from Softmax(h) is an exponential race: item j arrives at an independent
time T_j ~ Exp(exp(h_j)), and the ranking is the order of arrival.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.data.dataset import rows_of
from fultr.errors import InputError

LONGEST_SIMPLE_SORT = 40
"""Up to this length insertion sort beats a general sort."""


def sample_positions(
    scores: NDArray[np.float64],
    offsets: NDArray[np.int64],
    lists: NDArray[np.int64],
    rng: np.random.Generator,
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

    Returns
    -------
    positions
        The position, from 1, of each row of each list in `lists`, one list after another.
    """
    refuse_unusable_scores(scores)
    rows = rows_of(offsets, lists)
    lengths = np.diff(offsets)[lists]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # log T_j = log E_j - h_j with E_j ~ Exp(1)
    waiting = np.log(rng.standard_exponential(rows.size))
    return np.asarray(_positions_by_arrival(waiting - scores[rows], waiting, starts), dtype=np.int32)


def rank_positions(scores: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rank each list by falling score: the mode of the Plackett-Luce model. Ties keep the row order."""
    refuse_unusable_scores(scores)
    list_of_row = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    order = np.lexsort((-scores, list_of_row))
    positions = np.empty(scores.size, dtype=np.int32)
    positions[order] = np.arange(scores.size) - offsets[list_of_row] + 1
    return positions


def refuse_unusable_scores(scores: NDArray[np.float64]) -> None:
    """Raise if a score is not a finite number."""
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        raise InputError("a score must be finite", row=wrong[0] + 1, column="score", value=scores[wrong[0]])


@compiled
def _positions_by_arrival(arrival: Any, waiting: Any, starts: Any) -> Any:
    """Rank each list by arrival; where large scores round arrivals to a tie, the waiting time decides."""
    positions = np.empty(arrival.size, np.int32)
    for index in range(starts.size - 1):
        start, stop = starts[index], starts[index + 1]
        length = stop - start
        order = np.arange(length) if length <= LONGEST_SIMPLE_SORT else np.argsort(arrival[start:stop])
        # insertion sort: does all the work on a short list, and settles ties on a long one
        for place in range(1, length):
            item = order[place]
            time, wait = arrival[start + item], waiting[start + item]
            before = place - 1
            while before >= 0:
                other = start + order[before]
                if arrival[other] < time or (arrival[other] == time and waiting[other] <= wait):
                    break
                order[before + 1] = order[before]
                before -= 1
            order[before + 1] = item
        for place in range(length):
            positions[start + order[place]] = place + 1
    return positions
