"""Counting for lists that are long or whose scores lie far apart: one list at a time.

The same recurrences as in `counting.py`, over the few items that may arrive about now: those with higher
scores have arrived, and only shift the counts; those with much lower ones are still to come.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fultr.compiled import compiled, part_of_kernel, part_of_one_kernel
from fultr.expectation.lanes import (
    add_tail,
    below_highest,
    row_of_zeros,
    rows_of_zeros,
    series_before,
    tail_value,
)

BEFORE = 30.0
"""An item is followed from exp(-30) of its rate on."""


def wide_counted_values(
    problems: Any, scores: Any, offsets: Any, grid: Any, tables: Any, values: Any
) -> None:
    """Write E[f(rank d)] of each row of the given lists into `values` (functions x rows)."""
    nothing = np.empty((0, 0))
    _run(problems, scores, offsets, grid, tables, nothing, values, nothing.ravel(), nothing.ravel())


def wide_counted_gradient(
    problems: Any, scores: Any, offsets: Any, grid: Any, tables: Any, upstream: Any, value: Any, gradient: Any
) -> None:
    """Write V = sum_{f, d} upstream[f, d] E[f(rank d)] of each list, and dV/dh of each of its rows."""
    _run(problems, scores, offsets, grid, tables, upstream, np.empty((0, 0)), value, gradient)


@compiled
def _run(
    problems: Any,
    scores: Any,
    offsets: Any,
    grid: Any,
    tables: Any,
    upstream: Any,
    values: Any,
    value: Any,
    gradient: Any,
) -> None:
    """Write the values or, where upstream gradients are given, V and its gradient: see `long_lists.py`."""
    functions, differentiate = tables.shape[0], upstream.size > 0
    first, second = row_of_zeros(functions, scores.dtype), row_of_zeros(functions, scores.dtype)
    for f in range(functions):
        first[f] = tables[f, 0]
        second[f] = tables[f, 1] if tables.shape[1] > 1 else 0.0
    step, left, _, _, _ = grid
    once, twice = series_before(step)
    for which in problems:
        row, length = offsets[which], offsets[which + 1] - offsets[which]
        order, h, weight, total = below_highest(scores[row : row + length])
        alpha = rows_of_zeros(functions if differentiate else 0, length, scores.dtype)
        for f in range(alpha.shape[0]):
            for j in range(length):
                alpha[f, j] = upstream[f, row + order[j]]
        expected = rows_of_zeros(0 if differentiate else functions, length, scores.dtype)
        slopes = row_of_zeros(length, scores.dtype)
        whole = _follow(h, total, grid, tables, alpha, expected, slopes)
        start = math.exp(-left) / total
        s1, s2 = once * start, twice * start**2
        if differentiate:
            value[which] = step * (whole + add_tail(slopes, weight, total, s1, s2, alpha, first, second))
            for j in range(length):
                gradient[row + order[j]] = step * slopes[j]
        for f in range(expected.shape[0]):
            for j in range(length):
                tail = tail_value(weight[j], total, first[f], second[f], s1, s2)
                values[f, row + order[j]] = step * (expected[f, j] + tail)


@part_of_one_kernel
def _follow(h: Any, total: float, grid: Any, tables: Any, alpha: Any, values: Any, gradient: Any) -> float:
    """Run through the time nodes; add to the values or, with alpha, to the gradient and return V."""
    differentiate = alpha.size > 0
    step, left, right, _, _ = grid
    length, positions = h.size, tables.shape[1]
    y, e = row_of_zeros(length, h.dtype), row_of_zeros(length, h.dtype)
    u = -math.log(total) - left
    # a bare 0 is a type of its own to numba, and would have what it is passed to compiled once more
    arrived: Any = np.int64(0)
    followed: Any = np.int64(0)
    whole = 0.0
    while arrived < min(length, positions):
        while followed < length and h[followed] + u >= -BEFORE:
            followed += 1
        for j in range(arrived, followed):
            y[j] = math.exp(h[j] + u)
            e[j] = math.exp(-y[j])
        states = min(positions - arrived, followed - arrived)
        before = _before(e, arrived, followed, states)
        if differentiate:
            whole += _add_gradient(before, y, e, tables, alpha, gradient, arrived)
        else:
            _add_values(before, y, e, tables, values, arrived)
        u += step
        while arrived < followed and h[arrived] + u > right:
            arrived += 1
    return whole


# the items that may arrive about now are those after the first that have arrived; views of them would double
# the time that all this takes to compile
@part_of_one_kernel
def _before(e: Any, arrived: int, followed: int, states: int) -> Any:
    """Return A_j for all items that are followed, in their first states."""
    items = followed - arrived
    before = rows_of_zeros(items + 1, states, e.dtype)
    before[0, 0] = 1.0
    for j in range(items):
        waiting = e[arrived + j]
        before[j + 1, 0] = waiting * before[j, 0]
        for c in range(1, min(j + 2, states)):
            before[j + 1, c] = waiting * before[j, c] + (1.0 - waiting) * before[j, c - 1]
    return before


@part_of_kernel
def _weights_after(tables: Any, arrived: int, states: int) -> Any:
    """Return R_n of each function in its first states, and one more."""
    after = rows_of_zeros(tables.shape[0], states + 1, tables.dtype)
    for f in range(tables.shape[0]):
        for c in range(min(states + 1, tables.shape[1] - arrived)):
            after[f, c] = tables[f, arrived + c]
    return after


@part_of_one_kernel
def _add_values(before: Any, y: Any, e: Any, tables: Any, values: Any, arrived: int) -> None:
    items, states = before.shape[0] - 1, before.shape[1]
    after = _weights_after(tables, arrived, states)
    for f in range(tables.shape[0]):
        for j in range(items - 1, -1, -1):
            waiting, expected = e[arrived + j], 0.0
            for c in range(min(j + 1, states)):
                expected += before[j, c] * after[f, c]
            values[f, arrived + j] += y[arrived + j] * waiting * expected
            for c in range(min(j + 1, states)):
                after[f, c] = waiting * after[f, c] + (1.0 - waiting) * after[f, c + 1]


@part_of_one_kernel
def _add_gradient(before: Any, y: Any, e: Any, tables: Any, alpha: Any, gradient: Any, arrived: int) -> float:
    items, states = before.shape[0] - 1, before.shape[1]
    functions, whole = tables.shape[0], 0.0
    marked = rows_of_zeros(functions * (items + 1), states, e.dtype)
    for f in range(functions):
        for j in range(items):
            here, waiting = f * (items + 1) + j, e[arrived + j]
            mark = alpha[f, arrived + j] * y[arrived + j] * waiting
            marked[here + 1, 0] = waiting * marked[here, 0] + mark * before[j, 0]
            for c in range(1, min(j + 2, states)):
                moved = waiting * marked[here, c] + (1.0 - waiting) * marked[here, c - 1]
                marked[here + 1, c] = moved + mark * before[j, c]
    after, future = _weights_after(tables, arrived, states), row_of_zeros(states + 1, e.dtype)
    for j in range(items - 1, -1, -1):
        waiting, reach = e[arrived + j], min(j + 1, states)
        own, change, direct = y[arrived + j] * waiting, 0.0, 0.0
        for f in range(functions):
            expected = 0.0
            for c in range(reach):
                expected += before[j, c] * after[f, c]
                change += marked[f * (items + 1) + j, c] * (after[f, c] - after[f, c + 1])
            direct += alpha[f, arrived + j] * own * expected
        for c in range(reach):
            change += before[j, c] * (future[c] - future[c + 1])
        whole += direct
        gradient[arrived + j] += direct * (1.0 - y[arrived + j]) - own * change
        for c in range(reach):
            future[c] = waiting * future[c] + (1.0 - waiting) * future[c + 1]
        for f in range(functions):
            mark = alpha[f, arrived + j] * own
            for c in range(reach):
                future[c] += mark * after[f, c]
                after[f, c] = waiting * after[f, c] + (1.0 - waiting) * after[f, c + 1]
    return whole
