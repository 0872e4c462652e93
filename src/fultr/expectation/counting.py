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

All states of a kind and item stand in one row, the LANES lists of the first count before those of the next:
loops are long, and the next count is LANES places ahead. At most j items have arrived before item j, so more
are left out, and stay zero. Loops take whole arrays and the number of a row, since to make a view of a
row would take as long as some of them do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr.compiled import compiled_fused, part_of_kernel, part_of_one_kernel
from fultr.expectation.lanes import (
    LANES,
    add_tails,
    advance,
    first_rates,
    prepared,
    row_of_zeros,
    rows_of_zeros,
    series_before,
    tail_value,
)


@compiled_fused
def counted_values(problems: Any, scores: Any, offsets: Any, grid: Any, tables: Any, values: Any) -> None:
    """Write E[f(rank d)] of each row of the given lists into `values` (functions x rows).

    `tables` (functions x K) holds the weights of the first K positions; all others are zero.
    """
    step, left, right, phases, never = grid
    functions, states = tables.shape
    octaves = np.int64(2)
    number, (once, twice) = tables.dtype, series_before(step)
    for block in range(0, problems.size, LANES):
        lists = problems[block : block + LANES]
        weight, total, start, length, times = prepared(scores, offsets, lists, step, left, right)
        y_next, e_next = first_rates(weight, start, octaves, phases)
        y, e = rows_of_zeros(length, LANES, number), rows_of_zeros(length, LANES, number)
        own = rows_of_zeros(length, LANES, number)
        before = rows_of_zeros(length + 1, (states + 1) * LANES, number)
        after = rows_of_zeros(2 * functions, (states + 1) * LANES, number)
        expected = rows_of_zeros(functions * length, LANES, number)
        wide_e = row_of_zeros(states * LANES, number)
        for node in range(times):
            advance(y_next, e_next, node % phases, y, e, own, octaves)
            _start_forward(before)
            for j in range(length):
                width = min(j + 2, states) * LANES
                _repeat(wide_e, e, j, width)
                _count(before, j + 1, j, wide_e, width)
            if _surely_arrived(before, length, lists.size, never):
                break
            _start_backward(after, tables, length)
            for j in range(length - 1, -1, -1):
                width = min(j + 1, states) * LANES
                _repeat(wide_e, e, j, width)
                for f in range(functions):
                    here, ahead = 2 * f + j % 2, 2 * f + (j + 1) % 2
                    _add_inner(expected, f * length + j, own, j, before, after, ahead, width)
                    _turn_back(after, here, ahead, wide_e, width)
        for lane in range(lists.size):
            row = offsets[lists[lane]]
            s1, s2 = once * start[lane], twice * start[lane] ** 2
            for j in range(offsets[lists[lane] + 1] - row):
                for f in range(functions):
                    second = tables[f, 1] if states > 1 else 0.0
                    tail = tail_value(weight[j, lane], total[lane], tables[f, 0], second, s1, s2)
                    values[f, row + j] = step * (expected[f * length + j, lane] + tail)


@compiled_fused
def counted_gradient(
    problems: Any, scores: Any, offsets: Any, grid: Any, tables: Any, upstream: Any, value: Any, gradient: Any
) -> None:
    """Write V = sum_{f, d} upstream[f, d] E[f(rank d)] of each list, and dV/dh of each of its rows."""
    step, left, right, phases, never = grid
    functions, states = tables.shape
    octaves = np.int64(2)
    number = tables.dtype
    first, crossed = row_of_zeros(functions, number), row_of_zeros(functions, number)
    for f in range(functions):
        first[f] = tables[f, 0]
        crossed[f] = tables[f, 0] - (tables[f, 1] if states > 1 else 0.0)
    for block in range(0, problems.size, LANES):
        lists = problems[block : block + LANES]
        weight, total, start, length, times = prepared(scores, offsets, lists, step, left, right)
        y_next, e_next = first_rates(weight, start, octaves, phases)
        y, e = rows_of_zeros(length, LANES, number), rows_of_zeros(length, LANES, number)
        own = rows_of_zeros(length, LANES, number)
        alpha = _upstream_lanes(offsets, lists, length, upstream, number)
        before = rows_of_zeros(length + 1, (states + 1) * LANES, number)
        marked = rows_of_zeros(functions * (length + 1), (states + 1) * LANES, number)
        after = rows_of_zeros(2 * functions, (states + 1) * LANES, number)
        future = rows_of_zeros(2, (states + 1) * LANES, number)
        wide_e, wide_mark = row_of_zeros(states * LANES, number), row_of_zeros(states * LANES, number)
        direct, change = row_of_zeros(states * LANES, number), row_of_zeros(states * LANES, number)
        slopes, whole = rows_of_zeros(length, LANES, number), row_of_zeros(LANES, scores.dtype)
        for node in range(times):
            advance(y_next, e_next, node % phases, y, e, own, octaves)
            _start_forward(before)
            for j in range(length):
                width = min(j + 2, states) * LANES
                _repeat(wide_e, e, j, width)
                _count(before, j + 1, j, wide_e, width)
                for f in range(functions):
                    here = f * (length + 1) + j
                    _repeat_product(wide_mark, own, j, alpha, f * length + j, width)
                    _mark(marked, here + 1, here, before, j, wide_e, wide_mark, width)
            if _surely_arrived(before, length, lists.size, never):
                break
            for f in range(functions):
                _add_marked(whole, marked, f * (length + 1) + length, tables, f)
            _start_backward(after, tables, length)
            _clear(future, length % 2)
            for j in range(length - 1, -1, -1):
                width, here, ahead = min(j + 1, states) * LANES, j % 2, (j + 1) % 2
                _repeat(wide_e, e, j, width)
                _turn(future, here, ahead, before, j, wide_e, change, width)
                for f in range(functions):
                    _repeat_product(wide_mark, own, j, alpha, f * length + j, width)
                    _add_marks(future, here, before, j, after, 2 * f + ahead, wide_mark, direct, width)
                    _turn(
                        after,
                        2 * f + here,
                        2 * f + ahead,
                        marked,
                        f * (length + 1) + j,
                        wide_e,
                        change,
                        width,
                    )
                _add_gradient(slopes, y, own, j, direct, change, width)
        add_tails(slopes, whole, weight, total, start, step, alpha, first, crossed)
        for lane in range(lists.size):
            row = offsets[lists[lane]]
            value[lists[lane]] = step * whole[lane]
            for j in range(offsets[lists[lane] + 1] - row):
                gradient[row + j] = step * slopes[j, lane]


@part_of_one_kernel
def _upstream_lanes(offsets: Any, lists: Any, length: int, upstream: Any, number: Any) -> Any:
    alpha = rows_of_zeros(upstream.shape[0] * length, LANES, number)
    for lane in range(lists.size):
        row = offsets[lists[lane]]
        for f in range(upstream.shape[0]):
            for j in range(offsets[lists[lane] + 1] - row):
                alpha[f * length + j, lane] = upstream[f, row + j]
    return alpha


@part_of_kernel
def _repeat(wide: Any, of_lanes: Any, j: int, width: int) -> None:
    """Give each count the same values of the lanes."""
    for lane in range(LANES):
        wide[lane] = of_lanes[j, lane]
    for k in range(width - LANES):
        wide[np.uint64(k + LANES)] = wide[k]


@part_of_kernel
def _repeat_product(wide: Any, left: Any, i: int, right: Any, j: int, width: int) -> None:
    for lane in range(LANES):
        wide[lane] = left[i, lane] * right[j, lane]
    for k in range(width - LANES):
        wide[np.uint64(k + LANES)] = wide[k]


@part_of_kernel
def _start_forward(before: Any) -> None:
    for k in range(LANES, 2 * LANES):
        before[0, k] = 1


@part_of_kernel
def _count(before: Any, to: int, j: int, wide_e: Any, width: int) -> None:
    """Go from A_j to A_{j+1}; A_j[c] stands at index (c + 1) LANES, after zeros."""
    for k in range(width):
        one_less, next_k = before[j, k], np.uint64(k + LANES)
        before[to, next_k] = one_less + wide_e[k] * (before[j, next_k] - one_less)


@part_of_kernel
def _mark(marked: Any, to: int, i: int, before: Any, j: int, wide_e: Any, wide_mark: Any, width: int) -> None:
    """Go from B_j to B_{j+1}."""
    for k in range(width):
        one_less, next_k = marked[i, k], np.uint64(k + LANES)
        moved = one_less + wide_e[k] * (marked[i, next_k] - one_less)
        marked[to, next_k] = moved + wide_mark[k] * before[j, next_k]


@part_of_kernel
def _surely_arrived(before: Any, j: int, lanes: int, never: float) -> bool:
    """Say whether fewer than K arrivals are as good as impossible, in the lanes that hold a list."""
    highest = before[j, 0]
    for c in range(LANES, before.shape[1], LANES):
        for lane in range(lanes):
            highest = max(highest, before[j, np.uint64(c + lane)])
    return bool(highest <= never)


@part_of_one_kernel
def _add_marked(whole: Any, marked: Any, i: int, tables: Any, f: int) -> None:
    """Add <B_n, f>, the integrand of V."""
    for c in range(tables.shape[1]):
        for lane in range(LANES):
            whole[lane] += marked[i, np.uint64((c + 1) * LANES + lane)] * tables[f, c]


@part_of_kernel
def _start_backward(after: Any, tables: Any, length: int) -> None:
    for f in range(tables.shape[0]):
        for c in range(tables.shape[1]):
            for lane in range(LANES):
                after[2 * f + length % 2, np.uint64(c * LANES + lane)] = tables[f, c]


@part_of_one_kernel
def _clear(values: Any, j: int) -> None:
    for k in range(values.shape[1]):
        values[j, k] = 0


@part_of_one_kernel
def _turn_back(after: Any, here: int, ahead: int, wide_e: Any, width: int) -> None:
    """Go from R_{j+1} to R_j; the state beyond the last stays zero."""
    for k in range(width):
        one_more = after[ahead, np.uint64(k + LANES)]
        after[here, k] = one_more + wide_e[k] * (after[ahead, k] - one_more)


@part_of_one_kernel
def _add_inner(
    expected: Any, i: int, own: Any, j: int, before: Any, after: Any, ahead: int, width: int
) -> None:
    """Add y e <A_j, R_{j+1}>."""
    for c in range(0, width, LANES):
        for lane in range(LANES):
            k = np.uint64(c + lane)
            expected[i, lane] += own[j, lane] * before[j, np.uint64(c + LANES + lane)] * after[ahead, k]


@part_of_kernel
def _turn(
    after: Any, here: int, ahead: int, marked: Any, j: int, wide_e: Any, change: Any, width: int
) -> None:
    """Go from R_{j+1} to R_j and add B_j[c] (R_{j+1}[c] - R_{j+1}[c+1]); or the same for Z and A."""
    for k in range(width):
        next_k = np.uint64(k + LANES)
        one_more = after[ahead, next_k]
        less = after[ahead, k] - one_more
        change[k] += marked[j, next_k] * less
        after[here, k] = one_more + wide_e[k] * less


@part_of_kernel
def _add_marks(
    future: Any,
    here: int,
    before: Any,
    j: int,
    after: Any,
    ahead: int,
    wide_mark: Any,
    direct: Any,
    width: int,
) -> None:
    """Add the marks of item j to Z_j, and alpha y e A_j R_{j+1} to its terms."""
    for k in range(width):
        mark = wide_mark[k] * after[ahead, k]
        future[here, k] += mark
        direct[k] += mark * before[j, np.uint64(k + LANES)]


@part_of_kernel
def _add_gradient(slopes: Any, y: Any, own: Any, j: int, direct: Any, change: Any, width: int) -> None:
    """Add up the terms of an item over the counts, and clear them."""
    for k in range(width - LANES):
        direct[np.uint64(k + LANES)] += direct[k]
    for k in range(width - LANES):
        change[np.uint64(k + LANES)] += change[k]
    for lane in range(LANES):
        last = np.uint64(width - LANES + lane)
        slopes[j, lane] += direct[last] - direct[last] * y[j, lane] - own[j, lane] * change[last]
    for k in range(width):
        direct[k] = 0
    for k in range(width):
        change[k] = 0
