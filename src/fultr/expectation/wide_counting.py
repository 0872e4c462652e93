"""Counting for lists that are long or whose scores lie far apart: one list at a time.

The same recurrences as in `counting.py`, over the few items that may arrive about now: those with higher
scores have arrived, and only shift the counts; those with much lower ones are still to come.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fultr.compiled import compiled, part_of_kernel
from fultr.expectation.lanes import (
    add_tail,
    below_highest,
    row_of_zeros,
    rows_of_zeros,
    tail_alphas,
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
    first, second = row_of_zeros(functions, scores), row_of_zeros(functions, scores)
    for f in range(functions):
        first[f] = tables[f, 0]
        second[f] = tables[f, 1] if tables.shape[1] > 1 else 0.0
    for which in problems:
        row, length = offsets[which], offsets[which + 1] - offsets[which]
        order, h, weight, total = below_highest(scores[row : row + length])
        alpha = rows_of_zeros(functions if differentiate else 0, length, scores)
        for f in range(alpha.shape[0]):
            for j in range(length):
                alpha[f, j] = upstream[f, row + order[j]]
        expected = rows_of_zeros(0 if differentiate else functions, length, scores)
        found = row_of_zeros(length, scores)
        whole = _follow(h, total, grid, tables, alpha, expected, found)
        s1, s2 = _tail_sums(total, grid)
        if differentiate:
            first_alpha, crossed_alpha = tail_alphas(alpha, first, second, np.int64(0), length)
            value[which] = whole + add_tail(found, weight, total, first_alpha, crossed_alpha, s1, s2)
            for j in range(length):
                gradient[row + order[j]] = found[j]
        for f in range(expected.shape[0]):
            for j in range(length):
                tail = tail_value(weight[j], total, first[f], second[f], s1, s2)
                values[f, row + order[j]] = expected[f, j] + tail


@part_of_kernel
def _tail_sums(total: Any, grid: Any) -> Any:
    step, left, _, _, _ = grid
    start, ratio = math.exp(-left) / total, math.exp(step)
    return step * start / (ratio - 1), step * start**2 / (ratio**2 - 1)


@part_of_kernel
def _follow(h: Any, total: float, grid: Any, tables: Any, alpha: Any, values: Any, gradient: Any) -> float:
    """Run through the time nodes; add to the values or, with alpha, to the gradient and return V."""
    differentiate = alpha.size > 0
    step, left, right, _, _ = grid
    length, positions = h.size, tables.shape[1]
    y, e = row_of_zeros(length, h), row_of_zeros(length, h)
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
        before = _before(e[arrived:followed], states)
        rate, waiting, ahead = y[arrived:followed], e[arrived:followed], tables[:, arrived:]
        if differentiate:
            known, slope = alpha[:, arrived:followed], gradient[arrived:followed]
            whole += step * _add_gradient(before, rate, waiting, ahead, known, slope, step)
        else:
            _add_values(before, rate, waiting, ahead, values[:, arrived:followed], step)
        u += step
        while arrived < followed and h[arrived] + u > right:
            arrived += 1
    return whole


@part_of_kernel
def _before(e: Any, states: int) -> Any:
    """Return A_j for all items, in their first states."""
    before = rows_of_zeros(e.size + 1, states, e)
    before[0, 0] = 1.0
    for j in range(e.size):
        before[j + 1, 0] = e[j] * before[j, 0]
        for c in range(1, min(j + 2, states)):
            before[j + 1, c] = e[j] * before[j, c] + (1.0 - e[j]) * before[j, c - 1]
    return before


@part_of_kernel
def _weights_after(tables: Any, states: int) -> Any:
    """Return R_n of each function in its first states, and one more."""
    after = rows_of_zeros(tables.shape[0], states + 1, tables)
    for f in range(tables.shape[0]):
        for c in range(min(states + 1, tables.shape[1])):
            after[f, c] = tables[f, c]
    return after


@part_of_kernel
def _add_values(before: Any, y: Any, e: Any, tables: Any, values: Any, step: float) -> None:
    states = before.shape[1]
    after = _weights_after(tables, states)
    for f in range(tables.shape[0]):
        for j in range(e.size - 1, -1, -1):
            expected = 0.0
            for c in range(min(j + 1, states)):
                expected += before[j, c] * after[f, c]
            values[f, j] += step * y[j] * e[j] * expected
            for c in range(min(j + 1, states)):
                after[f, c] = e[j] * after[f, c] + (1.0 - e[j]) * after[f, c + 1]


@part_of_kernel
def _add_gradient(before: Any, y: Any, e: Any, tables: Any, alpha: Any, gradient: Any, step: float) -> float:
    states, whole = before.shape[1], 0.0
    functions = tables.shape[0]
    items = e.size + 1
    marked = rows_of_zeros(functions * items, states, e)
    for f in range(functions):
        for j in range(e.size):
            mark = alpha[f, j] * y[j] * e[j]
            for c in range(min(j + 2, states)):
                here = f * items + j
                moved = (1.0 - e[j]) * marked[here, c - 1] if c > 0 else 0.0
                marked[here + 1, c] = e[j] * marked[here, c] + moved + mark * before[j, c]
    after, future = _weights_after(tables, states), row_of_zeros(states + 1, e)
    for j in range(e.size - 1, -1, -1):
        own, reach = y[j] * e[j], min(j + 1, states)
        change = 0.0
        for f in range(functions):
            expected = 0.0
            for c in range(reach):
                expected += before[j, c] * after[f, c]
                change += marked[f * items + j, c] * (after[f, c] - after[f, c + 1])
            whole += alpha[f, j] * own * expected
            gradient[j] += step * alpha[f, j] * own * (1.0 - y[j]) * expected
        for c in range(reach):
            change += before[j, c] * (future[c] - future[c + 1])
        gradient[j] -= step * own * change
        for c in range(reach):
            future[c] = e[j] * future[c] + (1.0 - e[j]) * future[c + 1]
            for f in range(functions):
                future[c] += alpha[f, j] * own * after[f, c]
        for f in range(functions):
            for c in range(reach):
                after[f, c] = e[j] * after[f, c] + (1.0 - e[j]) * after[f, c + 1]
    return whole
