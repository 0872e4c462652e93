"""Exact expectations of any position weights that end after K positions, many lists side by side.

At a time t the items arrive independently, so the number of earlier arrivals is a sum of independent 0/1
variables. Its first K probabilities are built item by item: A_j before item j, and from the other end
R_j[c], the expected weight of an item with c earlier arrivals before item j. No division is needed. With
e_j = exp(-w_j t), y_j = w_j t and the upstream gradient alpha,

    A_{j+1}[c] = e_j A_j[c] + (1 - e_j) A_j[c-1]
    R_j[c] = e_j R_{j+1}[c] + (1 - e_j) R_{j+1}[c+1],   R_n[c] = f(c + 1)
    E[f(rank d)] = integral y_d e_d <A_d, R_{d+1}> du,  u = log t

and for the gradient B_j, the same as A_j with one of the items marked and weighted by alpha_d y_d e_d, and
Z_j[c], the expected weight of the items still to be marked:

    B_{j+1}[c] = e_j B_j[c] + (1 - e_j) B_j[c-1] + alpha_j y_j e_j A_j[c]
    Z_j[c] = e_j Z_{j+1}[c] + (1 - e_j) Z_{j+1}[c+1] + alpha_j y_j e_j R_{j+1}[c]
    dV/dh_j = integral alpha_j y_j (1 - y_j) e_j <A_j, R_{j+1}>
              - y_j e_j sum_c (B_j[c] (R_{j+1}[c] - R_{j+1}[c+1]) + A_j[c] (Z_{j+1}[c] - Z_{j+1}[c+1])) du.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr.compiled import compiled_reordered
from fultr.expectation.lanes import LANES, add_tail, advance, first_rates, prepared, tail_alphas, tail_value


@compiled_reordered
def counted_values(problems: Any, scores: Any, offsets: Any, grid: Any, tables: Any, values: Any) -> None:
    """Write E[f(rank d)] of each row of the given lists into `values` (functions x rows).

    `tables` (functions x K) holds the weights of the first K positions; all others are zero.
    """
    step, left, right, phases, never = grid
    functions, states = tables.shape
    s1_factor, s2_factor = _tail_factors(step)
    for block in range(0, problems.size, LANES):
        lists = problems[block : block + LANES]
        weight, total, start, length, times = prepared(scores, offsets, lists, step, left, right)
        y_next, e_next = first_rates(weight, start, phases)
        y, e, own = _room(length, tables)
        before = np.empty((length + 1, states, LANES), tables.dtype)
        after = np.empty((functions, states + 1, LANES), tables.dtype)
        found = np.zeros((functions, length, LANES), tables.dtype)
        dot = np.empty(LANES, tables.dtype)
        for node in range(times):
            advance(y_next[node % phases], e_next[node % phases], y, e, own)
            if not _count_forward(before, e, never):
                break
            _start_backward(after, tables)
            for j in range(length - 1, -1, -1):
                for f in range(functions):
                    _inner(dot, before[j], after[f])
                    for lane in range(LANES):
                        found[f, j, lane] += own[j, lane] * dot[lane]
                    _step_backward(after[f], e[j])
        for lane in range(lists.size):
            row = offsets[lists[lane]]
            s1, s2 = s1_factor * start[lane], s2_factor * start[lane] ** 2
            for j in range(offsets[lists[lane] + 1] - row):
                for f in range(functions):
                    second = tables[f, 1] if states > 1 else 0.0
                    tail = tail_value(weight[j, lane], total[lane], tables[f, 0], second, s1, s2)
                    values[f, row + j] = step * found[f, j, lane] + tail


@compiled_reordered
def counted_gradient(
    problems: Any, scores: Any, offsets: Any, grid: Any, tables: Any, upstream: Any, value: Any, gradient: Any
) -> None:
    """Write V = sum_{f, d} upstream[f, d] E[f(rank d)] of each list, and dV/dh of each of its rows."""
    step, left, right, phases, never = grid
    functions, states = tables.shape
    s1_factor, s2_factor = _tail_factors(step)
    first, second = np.zeros(functions), np.zeros(functions)
    for f in range(functions):
        first[f] = tables[f, 0]
        second[f] = tables[f, 1] if states > 1 else 0.0
    for block in range(0, problems.size, LANES):
        lists = problems[block : block + LANES]
        weight, total, start, length, times = prepared(scores, offsets, lists, step, left, right)
        y_next, e_next = first_rates(weight, start, phases)
        y, e, own = _room(length, tables)
        alpha = _upstream_lanes(offsets, lists, length, upstream, tables)
        before = np.empty((length + 1, states, LANES), tables.dtype)
        marked = np.empty((functions, length + 1, states, LANES), tables.dtype)
        after = np.empty((functions, states + 1, LANES), tables.dtype)
        future = np.empty((states + 1, LANES), tables.dtype)
        found = np.zeros((length, LANES), tables.dtype)
        whole, dot = np.zeros(LANES), np.empty(LANES, tables.dtype)
        for node in range(times):
            advance(y_next[node % phases], e_next[node % phases], y, e, own)
            if not _count_forward(before, e, never):
                break
            for f in range(functions):
                _mark_forward(marked[f], before, e, own, alpha[f])
            _start_backward(after, tables)
            future[:] = 0
            for j in range(length - 1, -1, -1):
                for f in range(functions):
                    _inner(dot, before[j], after[f])
                    for lane in range(LANES):
                        part = alpha[f, j, lane] * own[j, lane] * dot[lane]
                        whole[lane] += part
                        found[j, lane] += part * (1 - y[j, lane])
                    _inner_difference(dot, marked[f, j], after[f])
                    for lane in range(LANES):
                        found[j, lane] -= own[j, lane] * dot[lane]
                _inner_difference(dot, before[j], future)
                for lane in range(LANES):
                    found[j, lane] -= own[j, lane] * dot[lane]
                _step_backward(future, e[j])
                for f in range(functions):
                    _add_marks(future, after[f], own[j], alpha[f, j])
                    _step_backward(after[f], e[j])
        for lane in range(lists.size):
            row, stop = offsets[lists[lane]], offsets[lists[lane] + 1]
            for j in range(stop - row):
                gradient[row + j] = step * found[j, lane]
            first_alpha, crossed_alpha = tail_alphas(upstream, first, second, row, stop)
            s1, s2 = s1_factor * start[lane], s2_factor * start[lane] ** 2
            value[lists[lane]] = step * whole[lane] + add_tail(
                gradient[row:stop], weight[:, lane], total[lane], first_alpha, crossed_alpha, s1, s2
            )


@compiled_reordered
def _tail_factors(step: Any) -> Any:
    """Return the sums of the geometric series over the time nodes before the first, for t and for t^2."""
    ratio = np.exp(step)
    return step / (ratio - 1), step / (ratio**2 - 1)


@compiled_reordered
def _room(length: int, tables: Any) -> Any:
    shape = (length, LANES)
    return np.empty(shape, tables.dtype), np.empty(shape, tables.dtype), np.empty(shape, tables.dtype)


@compiled_reordered
def _upstream_lanes(offsets: Any, lists: Any, length: int, upstream: Any, tables: Any) -> Any:
    alpha = np.zeros((upstream.shape[0], length, LANES), tables.dtype)
    for lane in range(lists.size):
        row = offsets[lists[lane]]
        for f in range(upstream.shape[0]):
            for j in range(offsets[lists[lane] + 1] - row):
                alpha[f, j, lane] = upstream[f, row + j]
    return alpha


@compiled_reordered
def _count_forward(before: Any, e: Any, never: float) -> bool:
    """Set A_j for all items; return whether fewer than K arrivals are still possible."""
    states = before.shape[1]
    before[0] = 0
    before[0, 0] = 1
    for j in range(e.shape[0]):
        for lane in range(LANES):
            before[j + 1, 0, lane] = e[j, lane] * before[j, 0, lane]
        for c in range(1, states):
            for lane in range(LANES):
                same, one_less = before[j, c, lane], before[j, c - 1, lane]
                before[j + 1, c, lane] = one_less + e[j, lane] * (same - one_less)
    return bool(before[e.shape[0]].max() > never)


@compiled_reordered
def _mark_forward(marked: Any, before: Any, e: Any, own: Any, alpha: Any) -> None:
    """Set B_j for all items."""
    states = before.shape[1]
    marked[0] = 0
    for j in range(e.shape[0]):
        for lane in range(LANES):
            mark = alpha[j, lane] * own[j, lane]
            marked[j + 1, 0, lane] = e[j, lane] * marked[j, 0, lane] + mark * before[j, 0, lane]
        for c in range(1, states):
            for lane in range(LANES):
                mark = alpha[j, lane] * own[j, lane]
                same, one_less = marked[j, c, lane], marked[j, c - 1, lane]
                moved = one_less + e[j, lane] * (same - one_less)
                marked[j + 1, c, lane] = moved + mark * before[j, c, lane]


@compiled_reordered
def _start_backward(after: Any, tables: Any) -> None:
    functions, states = tables.shape
    for f in range(functions):
        for c in range(states):
            after[f, c] = tables[f, c]
        after[f, states] = 0


@compiled_reordered
def _step_backward(after: Any, e: Any) -> None:
    """Go from R_{j+1} to R_j, or the same for Z; the state beyond the last stays zero."""
    for c in range(after.shape[0] - 1):
        for lane in range(LANES):
            one_more = after[c + 1, lane]
            after[c, lane] = one_more + e[lane] * (after[c, lane] - one_more)


@compiled_reordered
def _add_marks(future: Any, after: Any, own: Any, alpha: Any) -> None:
    for c in range(future.shape[0] - 1):
        for lane in range(LANES):
            future[c, lane] += alpha[lane] * own[lane] * after[c, lane]


@compiled_reordered
def _inner(dot: Any, before: Any, after: Any) -> None:
    dot[:] = 0
    for c in range(before.shape[0]):
        for lane in range(LANES):
            dot[lane] += before[c, lane] * after[c, lane]


@compiled_reordered
def _inner_difference(dot: Any, before: Any, after: Any) -> None:
    dot[:] = 0
    for c in range(before.shape[0]):
        for lane in range(LANES):
            dot[lane] += before[c, lane] * (after[c, lane] - after[c + 1, lane])
