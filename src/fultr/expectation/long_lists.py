"""Exact expectations on long lists and on lists whose scores lie far apart: one list at a time.

The items are sorted by score, and each is followed only while it may arrive: before, it is as good as
absent and enters through sums over all such items; after, it has certainly arrived. So the cost does not
grow with the range of the scores. The formulas stand in `exact.py`; letters are those used there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fultr.compiled import compiled_fused, part_of_one_kernel
from fultr.expectation.lanes import (
    LARGEST_RATE,
    add_tail,
    below_highest,
    row_of_zeros,
    rows_of_zeros,
    series_before,
    tail_value,
)

SMALLEST = 1e-30
"""Products below this add nothing."""

BEFORE = 8.0
"""An item is followed from exp(-8) of its rate on: earlier its arrival is so unlikely that it is linear."""


def long_list_values(problems: Any, scores: Any, offsets: Any, grid: Any, sums: Any, values: Any) -> None:
    """Write E[f(rank d)] of each row of the given lists into `values` (functions x rows)."""
    nothing = np.empty((0, 0))
    _run(problems, scores, offsets, grid, sums, nothing, values, nothing.ravel(), nothing.ravel())


def long_list_gradient(
    problems: Any, scores: Any, offsets: Any, grid: Any, sums: Any, upstream: Any, value: Any, gradient: Any
) -> None:
    """Write V = sum_{f, d} upstream[f, d] E[f(rank d)] of each list, and dV/dh of each of its rows."""
    _run(problems, scores, offsets, grid, sums, upstream, np.empty((0, 0)), value, gradient)


@compiled_fused
def _run(
    problems: Any,
    scores: Any,
    offsets: Any,
    grid: Any,
    sums: Any,
    upstream: Any,
    values: Any,
    value: Any,
    gradient: Any,
) -> None:
    """Write the values or, where upstream gradients are given, V and its gradient.

    One kernel for both, since two would take twice as long to compile; for the same reason what is wanted is
    seen from the sizes of arrays: a constant argument would have everything below compiled for each value.
    """
    step, left, _ = grid
    nodes, _, coefficients, first, second = sums
    functions, count = coefficients.shape
    differentiate = upstream.size > 0
    once, twice = series_before(step)
    for which in problems:
        row, length = offsets[which], offsets[which + 1] - offsets[which]
        order, h, weight, total = below_highest(scores[row : row + length])
        item_upstream = rows_of_zeros(functions if differentiate else 0, length, scores.dtype)
        alpha = rows_of_zeros(count if differentiate else 0, length, nodes.dtype)
        for f in range(item_upstream.shape[0]):
            for j in range(length):
                item_upstream[f, j] = upstream[f, row + order[j]]
                for m in range(count):
                    alpha[m, j] += item_upstream[f, j] * coefficients[f, m]
        expected = rows_of_zeros(0 if differentiate else functions, length, nodes.dtype)
        slopes = row_of_zeros(length, nodes.dtype)
        whole = _follow(h, total, grid, sums, alpha, expected, slopes)
        start = math.exp(-left) / total
        s1, s2 = once * start, twice * start**2
        if differentiate:
            list_slopes = row_of_zeros(length, scores.dtype)
            for j in range(length):
                list_slopes[j] = slopes[j]
            value[which] = step * (
                whole + add_tail(list_slopes, weight, total, s1, s2, item_upstream, first, second)
            )
            for j in range(length):
                gradient[row + order[j]] = step * list_slopes[j]
        for f in range(expected.shape[0]):
            for j in range(length):
                tail = tail_value(weight[j], total, first[f], second[f], s1, s2)
                values[f, row + order[j]] = step * (expected[f, j] + tail)


@part_of_one_kernel
def _follow(h: Any, total: Any, grid: Any, sums: Any, alpha: Any, values: Any, gradient: Any) -> float:
    """Run through the time nodes; add to the values or, with alpha, to the gradient and return V."""
    differentiate = alpha.size > 0
    step, left, right = grid
    nodes, rests, coefficients, _, _ = sums
    count, length = nodes.size, h.size
    y_next, e_next = row_of_zeros(length, h.dtype), row_of_zeros(length, h.dtype)
    y, e = row_of_zeros(length, nodes.dtype), row_of_zeros(length, nodes.dtype)
    own, share = row_of_zeros(length, nodes.dtype), row_of_zeros(length, nodes.dtype)
    later, later_alpha = _sums_of_later(h, alpha, count, differentiate)
    # sums over the time nodes so far, relative to the present one, for items that are followed later on
    past, past_all = row_of_zeros(count, h.dtype), 0.0
    typed = row_of_zeros(3, nodes.dtype)  # numbers that enter vector loops must have their type
    typed[2] = 1
    u = -math.log(total) - left
    # a bare 0 is a type of its own to numba, and would have what it is passed to compiled once more
    arrived: Any = np.int64(0)
    followed: Any = np.int64(0)
    whole = 0.0
    while arrived < length:
        while followed < length and h[followed] + u >= -BEFORE:
            rate = math.exp(h[followed] + u)
            y_next[followed], e_next[followed] = rate, math.exp(-rate)
            if differentiate:
                slope = -past_all
                for m in range(count):
                    slope += alpha[m, followed] * past[m]
                gradient[followed] += 0.5 * rate * slope
            else:
                for f in range(coefficients.shape[0]):
                    for m in range(count):
                        values[f, followed] += 0.5 * rate * coefficients[f, m] * past[m]
            followed += 1
        _take(y_next, e_next, y, e, own, arrived, followed)
        rate = math.exp(h[followed] + u) if followed < length else 0.0
        past_all *= 0.5
        for m in range(count):
            past[m] *= 0.5
            product = nodes[m] ** arrived * math.exp(-rests[m] * rate * later[followed])
            if product < SMALLEST:
                continue
            product *= _gather(share, own, e, nodes[m], rests[m], arrived, followed)
            past[m] += product
            typed[0] = product
            if differentiate:
                sum_own = _dot(alpha[m], share, arrived, followed) + rate * later_alpha[m, followed]
                whole += product * sum_own
                past_all += rests[m] * product * sum_own
                typed[1] = sum_own
                _add_gradient(gradient, y, share, alpha[m], typed, rests[m], arrived, followed)
            else:
                for f in range(coefficients.shape[0]):
                    _add_scaled(values[f], share, typed[0] * coefficients[f, m], arrived, followed)
        u += step
        while arrived < followed and h[arrived] + u > right:
            arrived += 1
    return whole


@part_of_one_kernel
def _sums_of_later(h: Any, alpha: Any, count: int, differentiate: bool) -> Any:
    """Return for each item the sums of w and of alpha w from it on, relative to its own w."""
    length = h.size
    later, later_alpha = row_of_zeros(length + 1, h.dtype), rows_of_zeros(count, length + 1, h.dtype)
    for j in range(length - 1, -1, -1):
        ratio = math.exp(h[j + 1] - h[j]) if j + 1 < length else 0.0
        later[j] = 1.0 + ratio * later[j + 1]
        if differentiate:
            for m in range(count):
                later_alpha[m, j] = alpha[m, j] + ratio * later_alpha[m, j + 1]
    return later, later_alpha


@part_of_one_kernel
def _take(y_next: Any, e_next: Any, y: Any, e: Any, own: Any, start: int, stop: int) -> None:
    for j in range(start, stop):
        y[j] = y_next[j]
        e[j] = e_next[j]
        own[j] = y_next[j] * e_next[j]
        y_next[j] = min(2.0 * y_next[j], LARGEST_RATE)
        e_next[j] *= e_next[j]


@part_of_one_kernel
def _gather(share: Any, own: Any, e: Any, node: Any, rest: Any, start: int, stop: int) -> Any:
    """Return the product of all g_j = s + (1 - s) e_j, and set share = y e / g."""
    product = node / node
    for j in range(start, stop):
        g = node + rest * e[j]
        product *= g
        share[j] = own[j] / g
    return product


@part_of_one_kernel
def _dot(left: Any, right: Any, start: int, stop: int) -> Any:
    result = left[0] - left[0]
    for j in range(start, stop):
        result += left[j] * right[j]
    return result


@part_of_one_kernel
def _add_scaled(expected: Any, share: Any, factor: float, start: int, stop: int) -> None:
    for j in range(start, stop):
        expected[j] += factor * share[j]


@part_of_one_kernel
def _add_gradient(
    slopes: Any, y: Any, share: Any, alpha: Any, typed: Any, rest: Any, start: int, stop: int
) -> None:
    product, sum_own, one = typed[0], typed[1], typed[2]
    for j in range(start, stop):
        item_share, a = share[j], alpha[j]
        slopes[j] += product * item_share * (a * (one - y[j]) - rest * (sum_own - a * item_share))
