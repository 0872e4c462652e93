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
def row_of_zeros(size: int, number: Any) -> Any:
    """Return a row of numbers of a type."""
    return np.zeros(np.int64(size), number)


@part_of_kernel
def rows_of_zeros(rows: int, columns: int, number: Any) -> Any:
    """Return rows of numbers of a type."""
    return np.zeros((np.int64(rows), np.int64(columns)), number)


@part_of_kernel
def prepared(scores: Any, offsets: Any, lists: Any, step: Any, left: Any, right: Any) -> Any:
    """Return w and their sums for each lane, the first time node, the longest list and the number of nodes.

    Lanes beyond the last list, and places beyond the end of a shorter list, hold items of weight 0, which
    never arrive.
    """
    length: Any = np.int64(0)
    for lane in range(lists.size):
        length = max(length, offsets[lists[lane] + 1] - offsets[lists[lane]])
    weight = rows_of_zeros(length, LANES, scores.dtype)
    total, start = row_of_zeros(LANES, scores.dtype), row_of_zeros(LANES, scores.dtype)
    for lane in range(LANES):
        total[lane] = start[lane] = 1.0
    times = 1
    for lane in range(lists.size):
        row, stop = offsets[lists[lane]], offsets[lists[lane] + 1]
        highest, lowest = scores[row], scores[row]
        for item in range(row, stop):
            highest, lowest = max(highest, scores[item]), min(lowest, scores[item])
        total[lane] = 0.0
        for item in range(row, stop):
            w = math.exp(scores[item] - highest)
            weight[item - row, lane] = w
            total[lane] += w
        u = -math.log(total[lane]) - left
        start[lane] = math.exp(u)
        times = max(times, math.ceil((right - (lowest - highest) - u) / step) + 1)
    return weight, total, start, length, times


@part_of_kernel
def first_rates(weight: Any, start: Any, octaves: Any, phases: Any) -> Any:
    """Return y = w t and e = exp(-y) at the first time nodes, until t has doubled once or twice.

    Each phase, a time node, has as many rows as there are items.
    """
    # loops, since whole-array expressions take seconds to compile
    length = weight.shape[0]
    rows, number = phases * length, weight.dtype
    y, e = rows_of_zeros(rows, LANES, number), rows_of_zeros(rows, LANES, number)
    for phase in range(phases):
        factor = 2.0 ** (octaves * phase / phases)
        for j in range(length):
            for lane in range(LANES):
                rate = factor * start[lane] * weight[j, lane]
                y[phase * length + j, lane] = rate
                e[phase * length + j, lane] = math.exp(-rate)
    return y, e


@part_of_kernel
def advance(y_next: Any, e_next: Any, phase: Any, y: Any, e: Any, own: Any, octaves: Any) -> None:
    """Take over y, e and y e of a time node, and go on to where y is 2 or 4 times as large.

    exp(-2 y) is the square of exp(-y), so no exponential is needed. While y is small, and squaring would
    double the error of a number near 1 again and again, four terms of its series are exact.
    """
    factor, twice = 2.0**octaves, octaves == 2
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
    """Return the indices of the scores from the highest to the lowest, ties as they come."""
    # numpy's own sort would take four times as long to compile
    size = scores.size
    order, merged = row_of_zeros(size, np.int64), row_of_zeros(size, np.int64)
    for index in range(size):
        order[index] = index
    width = 1
    while width < size:
        for start in range(0, size, 2 * width):
            middle, stop = min(start + width, size), min(start + 2 * width, size)
            left, right = start, middle
            for index in range(start, stop):
                if left < middle and (right == stop or scores[order[left]] >= scores[order[right]]):
                    merged[index] = order[left]
                    left += 1
                else:
                    merged[index] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


@part_of_kernel
def below_highest(scores: Any) -> Any:
    """Return the order by falling score, the scores below the highest, their weights and the sum of these."""
    order = falling_order(scores)
    h, weight = row_of_zeros(scores.size, scores.dtype), row_of_zeros(scores.size, scores.dtype)
    total = 0.0
    for j in range(scores.size):
        h[j] = scores[order[j]] - scores[order[0]]
        weight[j] = math.exp(h[j])
        total += weight[j]
    return order, h, weight, total


@part_of_kernel
def series_before(step: Any) -> Any:
    """Return what time nodes before the first sum up to, in units of t and of t^2 there: geometric series."""
    ratio = math.exp(step)
    return 1.0 / (ratio - 1.0), 1.0 / (ratio * ratio - 1.0)


@part_of_kernel
def tail_value(w: Any, total: Any, first: Any, second: Any, s1: Any, s2: Any) -> Any:
    """Return what lies before the first time node, to second order in t: E[f(rank d)] of one item."""
    return w * first * s1 - w * s2 * (w * first + (total - w) * (first - second))


@part_of_kernel
def tail_change(w: Any, total: Any, first: Any, crossed: Any, all_crossed: Any, s1: Any, s2: Any) -> Any:
    """Return what lies before the first time node of one item's part of V, and of the gradient there.

    `first` is alpha_d f(1), `crossed` alpha_d (f(1) - f(2)), both summed over functions, and `all_crossed`
    the sum of w_d times the latter over the list.
    """
    others = total - w
    term = w * first * s1 - w * s2 * (w * first + others * crossed)
    return term, first * w * s1 - s2 * w * (2 * first * w + others * crossed + all_crossed - crossed * w)


@part_of_kernel
def add_tails(
    slopes: Any,
    whole: Any,
    weight: Any,
    total: Any,
    start: Any,
    step: Any,
    alpha: Any,
    first: Any,
    crossed: Any,
) -> None:
    """Add to the gradients and to V of all lanes, in units of the step, what lies before the first time node.

    `alpha` holds the rows of one function after those of another; `first` is f(1) of each, `crossed` is
    f(1) - f(2).
    """
    length, number = weight.shape[0], weight.dtype
    once, twice = series_before(step)
    first_alpha, crossed_alpha = rows_of_zeros(length, LANES, number), rows_of_zeros(length, LANES, number)
    all_crossed = row_of_zeros(LANES, number)
    for f in range(first.size):
        for j in range(length):
            for lane in range(LANES):
                first_alpha[j, lane] += alpha[f * length + j, lane] * first[f]
                crossed_alpha[j, lane] += alpha[f * length + j, lane] * crossed[f]
    for j in range(length):
        for lane in range(LANES):
            all_crossed[lane] += crossed_alpha[j, lane] * weight[j, lane]
    for j in range(length):
        for lane in range(LANES):
            s1, s2 = once * start[lane], twice * start[lane] * start[lane]
            a1, a12 = first_alpha[j, lane], crossed_alpha[j, lane]
            term, slope = tail_change(weight[j, lane], total[lane], a1, a12, all_crossed[lane], s1, s2)
            whole[lane] += term
            slopes[j, lane] += slope


@part_of_kernel
def add_tail(
    slopes: Any, weight: Any, total: Any, s1: Any, s2: Any, alpha: Any, first: Any, second: Any
) -> float:
    """Add to the gradient of one list what lies before the first time node, and return its part of V."""
    first_alpha, crossed_alpha = (
        row_of_zeros(slopes.size, slopes.dtype),
        row_of_zeros(slopes.size, slopes.dtype),
    )
    all_crossed, whole = 0.0, 0.0
    for f in range(first.size):
        for j in range(slopes.size):
            first_alpha[j] += alpha[f, j] * first[f]
            crossed_alpha[j] += alpha[f, j] * (first[f] - second[f])
    for j in range(slopes.size):
        all_crossed += crossed_alpha[j] * weight[j]
    for j in range(slopes.size):
        term, slope = tail_change(weight[j], total, first_alpha[j], crossed_alpha[j], all_crossed, s1, s2)
        whole += term
        slopes[j] += slope
    return whole
