"""Many lists side by side: each vector instruction works on the same item of several lists.

What the kernels for short lists and for counting have in common. Letters are those of `exact.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fultr.compiled import part_of_kernel

LANES = 64
"""Lists side by side: a multiple of what vector instructions take, few enough for the nearest caches."""

SERIES_LIMIT = 2.0**-9

LARGEST_RATE = 1e4
"""y beyond this is as good as this: exp(-y) is zero."""


# arrays come from these two alone: every other way to call np.zeros or np.empty is compiled by itself
@part_of_kernel
def row_of_zeros(size: int, like: Any) -> Any:
    """Return a row of numbers of the same type as those of another array."""
    return np.zeros(np.int64(size), like.dtype)


@part_of_kernel
def rows_of_zeros(rows: int, columns: int, like: Any) -> Any:
    """Return rows of numbers of the same type as those of another array."""
    return np.zeros((np.int64(rows), np.int64(columns)), like.dtype)


@part_of_kernel
def prepared(scores: Any, offsets: Any, lists: Any, step: Any, left: Any, right: Any) -> Any:
    """Return w and their sums for each lane, the first time node, the longest list and the number of nodes.

    Lanes beyond the last list, and places beyond the end of a shorter list, hold items of weight 0, which
    never arrive.
    """
    length: Any = np.int64(0)
    for lane in range(lists.size):
        length = max(length, offsets[lists[lane] + 1] - offsets[lists[lane]])
    weight = rows_of_zeros(length, LANES, scores)
    total, start = row_of_zeros(LANES, scores), row_of_zeros(LANES, scores)
    for lane in range(LANES):
        total[lane] = start[lane] = 1.0
    times = 1
    for lane in range(lists.size):
        row, stop = offsets[lists[lane]], offsets[lists[lane] + 1]
        highest, lowest = scores[row], scores[row]
        for place in range(row, stop):
            highest, lowest = max(highest, scores[place]), min(lowest, scores[place])
        total[lane] = 0.0
        for place in range(row, stop):
            w = math.exp(scores[place] - highest)
            weight[place - row, lane] = w
            total[lane] += w
        u = -math.log(total[lane]) - left
        start[lane] = math.exp(u)
        times = max(times, math.ceil((right - (lowest - highest) - u) / step) + 1)
    return weight, total, start, length, times


@part_of_kernel
def first_rates(weight: Any, start: Any, squarings: int, phases: int) -> Any:
    """Return y = w t and e = exp(-y) at the first time nodes, until t has doubled once or twice.

    Each phase, a time node, has as many rows as there are items.
    """
    # loops, since whole-array expressions take seconds to compile
    length = weight.shape[0]
    y, e = rows_of_zeros(phases * length, LANES, weight), rows_of_zeros(phases * length, LANES, weight)
    for phase in range(phases):
        factor = 2.0 ** (squarings * phase / phases)
        for j in range(length):
            for lane in range(LANES):
                rate = factor * start[lane] * weight[j, lane]
                y[phase * length + j, lane] = rate
                e[phase * length + j, lane] = math.exp(-rate)
    return y, e


@part_of_kernel
def advance(y_next: Any, e_next: Any, phase: int, y: Any, e: Any, own: Any, twice: bool) -> None:
    """Take over y, e and y e of a time node, and go on to where y is 2 or 4 times as large.

    exp(-2 y) is the square of exp(-y), so no exponential is needed. While y is small, and squaring would
    double the error of a number near 1 again and again, four terms of its series are exact.
    """
    factor = 4.0 if twice else 2.0
    length = y.shape[0]
    for j in range(length):
        row = phase * length + j
        for lane in range(LANES):
            rate, waiting = y_next[row, lane], e_next[row, lane]
            y[j, lane] = rate
            e[j, lane] = waiting
            own[j, lane] = rate * waiting
            grown = min(factor * rate, LARGEST_RATE)
            series = 1.0 - grown * (1.0 - grown / 2 * (1.0 - grown / 3 * (1.0 - grown / 4)))
            squared = waiting * waiting
            power = squared * squared if twice else squared
            y_next[row, lane] = grown
            e_next[row, lane] = series if grown < SERIES_LIMIT else power


@part_of_kernel
def falling_order(scores: Any) -> Any:
    """Return the places of the scores from the highest to the lowest, ties as they come."""
    turned = row_of_zeros(scores.size, scores)
    for place in range(scores.size):
        turned[place] = -scores[place]
    return np.argsort(turned, kind="mergesort")


@part_of_kernel
def below_highest(scores: Any) -> Any:
    """Return the order by falling score, the scores below the highest, their weights and the sum of these."""
    order = falling_order(scores)
    h, weight, total = row_of_zeros(scores.size, scores), row_of_zeros(scores.size, scores), 0.0
    for j in range(scores.size):
        h[j] = scores[order[j]] - scores[order[0]]
        weight[j] = math.exp(h[j])
        total += weight[j]
    return order, h, weight, total


@part_of_kernel
def tail_value(w: Any, total: Any, first: Any, second: Any, s1: Any, s2: Any) -> Any:
    """Return what lies before the first time node, to second order in t: E[f(rank d)] of one item."""
    return w * first * s1 - w * s2 * (w * first + (total - w) * (first - second))


@part_of_kernel
def add_tail(
    gradient: Any, weight: Any, total: Any, first_alpha: Any, crossed_alpha: Any, s1: Any, s2: Any
) -> float:
    """Add to the gradient what lies before the first time node, and return its part of V.

    `first_alpha` is alpha_d f(1), `crossed_alpha` alpha_d (f(1) - f(2)), summed over functions.
    """
    crossed = 0.0
    for j in range(gradient.size):
        crossed += crossed_alpha[j] * weight[j]
    whole = 0.0
    for j in range(gradient.size):
        w, a1, a12 = weight[j], first_alpha[j], crossed_alpha[j]
        others = total - w
        whole += w * a1 * s1 - w * s2 * (w * a1 + others * a12)
        gradient[j] += a1 * w * s1 - s2 * w * (2 * a1 * w + others * a12 + crossed - a12 * w)
    return whole


@part_of_kernel
def tail_alphas(upstream: Any, first: Any, second: Any, start: Any, stop: Any) -> Any:
    """Return alpha_d f(1) and alpha_d (f(1) - f(2)) of some rows, summed over functions."""
    first_alpha, crossed_alpha = row_of_zeros(stop - start, upstream), row_of_zeros(stop - start, upstream)
    for f in range(first.size):
        for j in range(stop - start):
            first_alpha[j] += upstream[f, start + j] * first[f]
            crossed_alpha[j] += upstream[f, start + j] * (first[f] - second[f])
    return first_alpha, crossed_alpha
