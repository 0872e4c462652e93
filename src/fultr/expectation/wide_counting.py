"""Counting for lists that are long or whose scores lie far apart: one list at a time.

The same recurrences as in `counting.py`, over the few items that may arrive about now: those with higher
scores have arrived, and only shift the counts; those with much lower ones are still to come.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fultr.compiled import compiled, part_of_kernel
from fultr.expectation.lanes import add_tail, below_highest, tail_alphas, tail_value

BEFORE = 30.0
"""An item is followed from exp(-30) of its rate on."""


@compiled
def wide_counted_values(
    problems: Any, scores: Any, offsets: Any, grid: Any, tables: Any, values: Any
) -> None:
    """Write E[f(rank d)] of each row of the given lists into `values` (functions x rows)."""
    nothing = np.empty((0, 0))
    for which in problems:
        row, length = offsets[which], offsets[which + 1] - offsets[which]
        order, h, weight, total = below_highest(scores[row : row + length])
        found = np.zeros((tables.shape[0], length))
        _follow(h, total, grid, tables, nothing, found, found[0])
        s1, s2 = _tail_sums(total, grid)
        for f in range(tables.shape[0]):
            second = tables[f, 1] if tables.shape[1] > 1 else 0.0
            for j in range(length):
                tail = tail_value(weight[j], total, tables[f, 0], second, s1, s2)
                values[f, row + order[j]] = found[f, j] + tail


@compiled
def wide_counted_gradient(
    problems: Any, scores: Any, offsets: Any, grid: Any, tables: Any, upstream: Any, value: Any, gradient: Any
) -> None:
    """Write V = sum_{f, d} upstream[f, d] E[f(rank d)] of each list, and dV/dh of each of its rows."""
    functions = tables.shape[0]
    first, second = np.zeros(functions), np.zeros(functions)
    for f in range(functions):
        first[f] = tables[f, 0]
        second[f] = tables[f, 1] if tables.shape[1] > 1 else 0.0
    nothing = np.empty((0, 0))
    for which in problems:
        row, length = offsets[which], offsets[which + 1] - offsets[which]
        order, h, weight, total = below_highest(scores[row : row + length])
        alpha = np.empty((functions, length))
        for f in range(functions):
            for j in range(length):
                alpha[f, j] = upstream[f, row + order[j]]
        found = np.zeros(length)
        whole = _follow(h, total, grid, tables, alpha, nothing, found)
        s1, s2 = _tail_sums(total, grid)
        first_alpha, crossed_alpha = tail_alphas(alpha, first, second, 0, length)
        value[which] = whole + add_tail(found, weight, total, first_alpha, crossed_alpha, s1, s2)
        for j in range(length):
            gradient[row + order[j]] = found[j]


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
    y, e = np.empty(length), np.empty(length)
    u = -math.log(total) - left
    arrived, followed, whole = 0, 0, 0.0
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
    before = np.zeros((e.size + 1, states))
    before[0, 0] = 1.0
    for j in range(e.size):
        before[j + 1, 0] = e[j] * before[j, 0]
        for c in range(1, min(j + 2, states)):
            before[j + 1, c] = e[j] * before[j, c] + (1.0 - e[j]) * before[j, c - 1]
    return before


@part_of_kernel
def _weights_after(tables: Any, f: int, states: int) -> Any:
    after = np.zeros(states + 1)
    for c in range(min(states + 1, tables.shape[1])):
        after[c] = tables[f, c]
    return after


@part_of_kernel
def _add_values(before: Any, y: Any, e: Any, tables: Any, values: Any, step: float) -> None:
    states = before.shape[1]
    for f in range(tables.shape[0]):
        after = _weights_after(tables, f, states)
        for j in range(e.size - 1, -1, -1):
            expected = 0.0
            for c in range(min(j + 1, states)):
                expected += before[j, c] * after[c]
            values[f, j] += step * y[j] * e[j] * expected
            for c in range(min(j + 1, states)):
                after[c] = e[j] * after[c] + (1.0 - e[j]) * after[c + 1]


@part_of_kernel
def _add_gradient(before: Any, y: Any, e: Any, tables: Any, alpha: Any, gradient: Any, step: float) -> float:
    states, whole = before.shape[1], 0.0
    functions = tables.shape[0]
    marked = np.zeros((functions, e.size + 1, states))
    for f in range(functions):
        for j in range(e.size):
            mark = alpha[f, j] * y[j] * e[j]
            for c in range(min(j + 2, states)):
                moved = (1.0 - e[j]) * marked[f, j, c - 1] if c > 0 else 0.0
                marked[f, j + 1, c] = e[j] * marked[f, j, c] + moved + mark * before[j, c]
    after = np.zeros((functions, states + 1))
    for f in range(functions):
        after[f] = _weights_after(tables, f, states)
    future = np.zeros(states + 1)
    for j in range(e.size - 1, -1, -1):
        own, reach = y[j] * e[j], min(j + 1, states)
        change = 0.0
        for f in range(functions):
            expected = 0.0
            for c in range(reach):
                expected += before[j, c] * after[f, c]
                change += marked[f, j, c] * (after[f, c] - after[f, c + 1])
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
