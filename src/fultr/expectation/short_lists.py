"""Exact expectations of sums of exponentials on short lists, many of them side by side.

All items are followed over all time nodes, which is cheap as long as the scores of a list do not lie far
apart. The formulas stand in `exact.py`; letters are those used there.
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

SMALLEST = np.float32(1e-30)
"""Where products stop falling: what is below adds nothing, and numbers that are nearly zero are slow."""


@compiled_fused
def short_list_values(problems: Any, scores: Any, offsets: Any, grid: Any, sums: Any, values: Any) -> None:
    """Write E[f(rank d)] of each row of the given lists into `values` (functions x rows)."""
    step, left, right = grid
    nodes, rests, coefficients, first, second = sums
    functions, number = coefficients.shape[0], nodes.dtype
    once, twice = series_before(step)
    phase, octaves = np.int64(0), np.int64(1)  # bare numbers are types of their own to numba
    for block in range(0, problems.size, LANES):
        lists = problems[block : block + LANES]
        weight, total, start, length, times = prepared(scores, offsets, lists, step, left, right)
        y_next, e_next = first_rates(weight, start, octaves, octaves)
        y, e, own, share = _room(length, number)
        expected = rows_of_zeros(functions * length, LANES, number)
        product = row_of_zeros(LANES, number)
        for _ in range(times):
            advance(y_next, e_next, phase, y, e, own, octaves)
            for m in range(nodes.size):
                _products(product, e, nodes[m], rests[m])
                _shares(share, own, e, nodes[m], rests[m])
                for f in range(functions):
                    _add_values(expected, f * length, share, product, coefficients[f, m])
        for lane in range(lists.size):
            row = offsets[lists[lane]]
            s1, s2 = once * start[lane], twice * start[lane] ** 2
            for j in range(offsets[lists[lane] + 1] - row):
                for f in range(functions):
                    tail = tail_value(weight[j, lane], total[lane], first[f], second[f], s1, s2)
                    values[f, row + j] = step * (expected[f * length + j, lane] + tail)


@compiled_fused
def short_list_gradient(
    problems: Any, scores: Any, offsets: Any, grid: Any, sums: Any, upstream: Any, value: Any, gradient: Any
) -> None:
    """Write V = sum_{f, d} upstream[f, d] E[f(rank d)] of each list, and dV/dh of each of its rows."""
    step, left, right = grid
    nodes, rests, coefficients, _, _ = sums
    number, one = nodes.dtype, nodes[0] / nodes[0]  # of the right type
    ones = row_of_zeros(nodes.size, number)
    for m in range(nodes.size):
        ones[m] = one
    phase, octaves = np.int64(0), np.int64(1)  # bare numbers are types of their own to numba
    for block in range(0, problems.size, LANES):
        lists = problems[block : block + LANES]
        weight, total, start, length, times = prepared(scores, offsets, lists, step, left, right)
        y_next, e_next = first_rates(weight, start, octaves, octaves)
        y, e, own, share = _room(length, number)
        alpha = _alphas(offsets, lists, length, upstream, coefficients)
        slopes = rows_of_zeros(length, LANES, number)
        product, sum_own = row_of_zeros(LANES, number), row_of_zeros(LANES, number)
        whole = row_of_zeros(LANES, scores.dtype)
        for _ in range(times):
            advance(y_next, e_next, phase, y, e, own, octaves)
            for m in range(nodes.size):
                _products(product, e, nodes[m], rests[m])
                _shares(share, own, e, nodes[m], rests[m])
                _sum_own(sum_own, share, alpha, m * length)
                for lane in range(LANES):
                    whole[lane] += product[lane] * sum_own[lane]
                _add_gradient(slopes, y, share, alpha, m * length, product, sum_own, rests[m], one)
        # of s^(k-1), the first is 1, and the second less by 1 - s
        add_tails(slopes, whole, weight, total, start, step, alpha, ones, rests)
        for lane in range(lists.size):
            row = offsets[lists[lane]]
            value[lists[lane]] = step * whole[lane]
            for j in range(offsets[lists[lane] + 1] - row):
                gradient[row + j] = step * slopes[j, lane]


@part_of_kernel
def _room(length: int, number: Any) -> Any:
    return (
        rows_of_zeros(length, LANES, number),
        rows_of_zeros(length, LANES, number),
        rows_of_zeros(length, LANES, number),
        rows_of_zeros(length, LANES, number),
    )


@part_of_one_kernel
def _alphas(offsets: Any, lists: Any, length: Any, upstream: Any, coefficients: Any) -> Any:
    """Return alpha_{d,m} = sum_f upstream[f, d] c[f, m], the rows of each m after those of the one before."""
    functions, count = coefficients.shape
    alpha = rows_of_zeros(count * length, LANES, coefficients.dtype)
    for lane in range(lists.size):
        row = offsets[lists[lane]]
        for j in range(offsets[lists[lane] + 1] - row):
            for m in range(count):
                mixed = 0.0
                for f in range(functions):
                    mixed += upstream[f, row + j] * coefficients[f, m]
                alpha[m * length + j, lane] = mixed
    return alpha


@part_of_kernel
def _products(product: Any, e: Any, node: Any, rest: Any) -> None:
    """Set product to that of all g_j = s + (1 - s) e_j."""
    for lane in range(LANES):
        product[lane] = 1
    for j in range(e.shape[0]):
        for lane in range(LANES):
            product[lane] = max(product[lane] * (node + rest * e[j, lane]), SMALLEST)


@part_of_kernel
def _shares(share: Any, own: Any, e: Any, node: Any, rest: Any) -> None:
    """Set share = y e / g for all items."""
    for j in range(e.shape[0]):
        for lane in range(LANES):
            share[j, lane] = own[j, lane] / (node + rest * e[j, lane])


@part_of_one_kernel
def _add_values(expected: Any, start: int, share: Any, product: Any, coefficient: Any) -> None:
    for j in range(share.shape[0]):
        for lane in range(LANES):
            expected[start + j, lane] += coefficient * product[lane] * share[j, lane]


@part_of_kernel
def _sum_own(sum_own: Any, share: Any, alpha: Any, start: int) -> None:
    """Set A_m = sum_d alpha_{d,m} y_d e_d / g_d."""
    for lane in range(LANES):
        sum_own[lane] = 0
    for j in range(share.shape[0]):
        for lane in range(LANES):
            sum_own[lane] += alpha[start + j, lane] * share[j, lane]


@part_of_kernel
def _add_gradient(
    slopes: Any, y: Any, share: Any, alpha: Any, start: int, product: Any, sum_own: Any, rest: Any, one: Any
) -> None:
    for j in range(y.shape[0]):
        for lane in range(LANES):
            item_share, a = share[j, lane], alpha[start + j, lane]
            change = a * (one - y[j, lane]) - rest * (sum_own[lane] - a * item_share)
            slopes[j, lane] += product[lane] * item_share * change
