"""Rankings drawn from Plackett-Luce as an exponential race, at any range of scores.

Drawing items without replacement from Softmax(h) is a race: item j arrives at an independent time
T_j = E_j / exp(h_j) with E_j ~ Exp(1), and the ranking is the order of arrival.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled, part_of_one_kernel
from fultr.errors import InputError
from fultr.expectation.lanes import falling_order, row_of_zeros
from fultr.expectation.threads import for_kernel, over_threads

WIDEST_RANGE = 600.0
"""Up to this difference between the scores of a list, exp(score) is computed as it stands."""

SURE_GAP = 50.0
"""Across a gap this wide in the sorted scores the order is certain: exp(-50) = 2e-22."""

LONGEST_COUNTED = 256
"""Up to this length counting earlier arrivals, which vectorises, beats a general sort."""

NUMBERS_AT_ONCE = 2**21
"""Waiting times drawn before they are used, 16 MB (more only for one longer list): threads seldom wait."""

WORTH_A_THREAD = 2**15
"""Places to fill (samples times rows) that are worth a thread of their own, some 0.3 ms of work."""


def draw_rankings(
    scores: NDArray[np.float64],
    offsets: NDArray[np.int64],
    samples: int,
    seed: int | np.random.Generator,
) -> NDArray[np.int32]:
    """Draw rankings of every list from its Plackett-Luce model.

    Parameters
    ----------
    scores
        A score h for each row; any finite number.
    offsets
        Where each list starts in `scores`, and the number of rows at the end.
    samples
        How many rankings of each list to draw.
    seed
        All randomness comes from here, one list after another: the rankings of a list depend neither on the
        number of threads nor on the lists that follow it.

    Returns
    -------
    order
        (samples, rows): `order[s, offsets[l] + i]` is the item, from 0 within its list, at position i + 1
        of list l in sample s.
    """
    if samples < 1:
        raise InputError("at least one ranking must be drawn", column="samples", value=samples)
    rng = np.random.default_rng(seed)
    offsets = for_kernel(offsets, np.int64)
    levels = centred_scores(scores, offsets)
    order = np.empty((samples, levels.size), dtype=np.int32)
    rows_together = NUMBERS_AT_ONCE // samples
    first = 0
    while first < offsets.size - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + rows_together, side="right")) - 1)
        waiting = rng.standard_exponential(samples * int(offsets[last] - offsets[first]))
        _run_race(levels, offsets[first : last + 1], waiting, order)
        first = last
    return order


def order_of_arrival(
    levels: NDArray[np.float64], offsets: NDArray[np.int64], waiting: NDArray[np.float64]
) -> NDArray[np.int32]:
    """Rank every list once by T = waiting / exp(levels), where `levels` are `centred_scores`.

    Parameters
    ----------
    levels
        A centred score for each row.
    offsets
        Where each list starts, and the number of rows at the end.
    waiting
        An independent draw from Exp(1) for each row.

    Returns
    -------
    order
        `order[offsets[l] + i]` is the item, from 0 within its list, at position i + 1 of list l.
    """
    order = np.empty((1, levels.size), dtype=np.int32)
    _run_race(
        for_kernel(levels, np.float64), for_kernel(offsets, np.int64), for_kernel(waiting, np.float64), order
    )
    return np.asarray(order[0], dtype=np.int32)


def centred_scores(scores: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shift each list's scores so that the largest is 0, and shrink gaps that make no difference.

    Plackett-Luce only knows differences of scores. In a list that spans more than `WIDEST_RANGE`, a gap
    between neighbours in the sorted scores that is wider than `SURE_GAP` becomes `SURE_GAP`: no probability
    changes by more than about n exp(-50), and scores of +-1e30 become ordinary numbers, their ties and
    near-ties kept.
    """
    return levels_and_spreads(scores, offsets)[0]


def levels_and_spreads(
    scores: NDArray[np.float64], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centred scores, and for each list how far the lowest is below 0."""
    check_scores(scores)
    score_array, starts = for_kernel(scores, np.float64), for_kernel(offsets, np.int64)
    levels, spreads = np.empty(scores.size), np.zeros(starts.size - 1)
    threads = 1 + scores.size // WORTH_A_THREAD
    over_threads(_centre, np.arange(spreads.size), threads, score_array, starts, levels, spreads)
    return levels, spreads


def check_scores(scores: NDArray[np.float64]) -> None:
    """Raise if a score is not a finite number."""
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        raise InputError("a score must be finite", row=wrong[0] + 1, column="score", value=scores[wrong[0]])


@compiled
def _centre(lists: Any, scores: Any, offsets: Any, levels: Any, spreads: Any) -> None:
    for index in lists:
        start, stop = offsets[index], offsets[index + 1]
        if start == stop:
            continue
        # loops, since whole-array expressions take seconds to compile
        highest = lowest = scores[start]
        for row in range(start, stop):
            highest, lowest = max(highest, scores[row]), min(lowest, scores[row])
        if highest - lowest <= WIDEST_RANGE:
            spreads[index] = highest - lowest
            for row in range(start, stop):
                levels[row] = scores[row] - highest
            continue
        own = scores[start:stop]
        level = 0.0
        above = highest
        for item in falling_order(own):
            level -= min(above - own[item], SURE_GAP)
            above = own[item]
            levels[start + item] = level
        spreads[index] = -level


def _run_race(
    levels: NDArray[np.float64],
    offsets: NDArray[np.int64],
    waiting: NDArray[np.float64],
    order: NDArray[np.int32],
) -> None:
    threads = 1 + waiting.size // WORTH_A_THREAD
    over_threads(_race, np.arange(offsets.size - 1), threads, levels, offsets, waiting, order)


@compiled
def _race(lists: Any, levels: Any, offsets: Any, waiting: Any, order: Any) -> None:
    """Rank these lists in every sample; each list has its own rows of `order`.

    `waiting` holds, one list after another, all samples of the list.
    """
    samples = order.shape[0]
    for index in lists:
        start, stop = offsets[index], offsets[index + 1]
        if start < stop:
            own = waiting[samples * (start - offsets[0]) : samples * (stop - offsets[0])]
            _race_of_list(levels[start:stop], own, start, order)


@part_of_one_kernel
def _race_of_list(levels: Any, waiting: Any, start: int, order: Any) -> None:
    length = levels.size
    lowest = 0.0
    for item in range(length):
        lowest = min(lowest, levels[item])
    in_logarithms = lowest < -WIDEST_RANGE
    delay, arrival = row_of_zeros(length, np.float64), row_of_zeros(length, np.float64)
    for item in range(length):
        delay[item] = -levels[item] if in_logarithms else math.exp(-levels[item])
    earlier = row_of_zeros(length, np.int64)
    for sample in range(order.shape[0]):
        waits = waiting[sample * length : (sample + 1) * length]
        ranking = order[sample, start : start + length]
        for item in range(length):
            wait = waits[item]
            arrival[item] = np.log(wait) + delay[item] if in_logarithms else wait * delay[item]
        if length > LONGEST_COUNTED:
            for item in range(length):
                arrival[item] = -arrival[item]
            fastest = falling_order(arrival)
            for item in range(length):
                ranking[item] = fastest[item]
        else:
            _count_earlier(arrival, earlier)
            for item in range(length):
                ranking[earlier[item]] = item


@part_of_one_kernel
def _count_earlier(arrival: Any, earlier: Any) -> None:
    """Count, for each item, those that arrive before it; the first of two equals counts as earlier.

    Without branches, so that the inner loop handles several items in one instruction.
    """
    for item in range(arrival.size):
        time = arrival[item]
        count = np.int64(0)
        for other in range(item):
            is_earlier = np.int64(arrival[other] <= time)
            count += is_earlier
            earlier[other] += 1 - is_earlier
        earlier[item] = count
