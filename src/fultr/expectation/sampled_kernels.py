"""The loops of the sampled estimators: each list is one thread's work and writes only its own rows.

Both gradients walk down a ranking y_1, y_2, ... with Z_k = sum_{j >= k} exp(h_{y_j}), the mass of the items
still to place, and need sums of the form exp(h_d) sum_{k <= i} x_k / Z_k, whose factors overflow separately
when scores lie far apart. With `kept`_k = Z_k / Z_{k-1} and `chance`_i = exp(h_{y_i}) / Z_i, both in [0, 1],

    X_i = X_{i-1} kept_i + x_i = Z_i sum_{k <= i} x_k / Z_k,
    exp(h_{y_i}) sum_{k <= i} x_k / Z_k = chance_i X_i,

so nothing grows beyond sum_k |x_k|.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr.compiled import compiled, part_of_kernel, part_of_one_kernel
from fultr.expectation.lanes import row_of_zeros
from fultr.expectation.race import WIDEST_RANGE


@compiled
def values_of_lists(lists: Any, order: Any, offsets: Any, tables: Any, values: Any) -> None:
    """Add to `values` (functions, rows) the mean over samples of each position weight."""
    samples = order.shape[0]
    for index in lists:
        start, stop = offsets[index], offsets[index + 1]
        for sample in range(samples):
            for position in range(stop - start):
                row = start + order[sample, start + position]
                for function in range(tables.shape[0]):
                    values[function, row] += tables[function, position]
        for function in range(tables.shape[0]):
            for row in range(start, stop):
                values[function, row] /= samples


@compiled
def reinforce_of_lists(
    lists: Any, levels: Any, offsets: Any, tables: Any, upstream: Any, order: Any, gradient: Any
) -> None:
    """Add the log-derivative estimate of every list to `gradient`."""
    for index in lists:
        start, stop = offsets[index], offsets[index + 1]
        if stop - start > 1:
            _reinforce(levels[start:stop], start, tables, upstream, order, gradient[start:stop])


@compiled
def plrank_of_lists(
    lists: Any, levels: Any, offsets: Any, tables: Any, upstream: Any, order: Any, gradient: Any
) -> None:
    """Add the PL-Rank-3 estimate of every list to `gradient`."""
    for index in lists:
        start, stop = offsets[index], offsets[index + 1]
        cut = _last_weighted_position(tables, stop - start)
        if stop - start > 1 and cut > 0:
            _plrank(levels[start:stop], start, cut, tables, upstream, order, gradient[start:stop])


@part_of_one_kernel
def _reinforce(levels: Any, start: int, tables: Any, upstream: Any, order: Any, gradient: Any) -> None:
    samples, length = order.shape[0], levels.size
    masses, in_logarithms = _masses(levels)
    chance, kept = row_of_zeros(length, np.float64), row_of_zeros(length, np.float64)
    rewards = row_of_zeros(samples, np.float64)
    for sample in range(samples):
        rewards[sample] = _reward(order[sample, start : start + length], start, tables, upstream)
    # see sampled.reinforce_gradient: the mean contains the sample itself, S - 1 makes up for it
    baseline = 0.0
    for sample in range(samples):
        baseline += rewards[sample] / samples if samples > 1 else 0.0
    divisor = max(samples - 1, 1)
    for sample in range(samples):
        ranking = order[sample, start : start + length]
        _walk(masses, in_logarithms, ranking, length, chance, kept)
        advantage = (rewards[sample] - baseline) / divisor
        passed = 0.0
        for position in range(length):
            passed = passed * kept[position] + 1.0
            gradient[ranking[position]] += advantage * (1.0 - chance[position] * passed)


@part_of_one_kernel
def _reward(ranking: Any, start: int, tables: Any, upstream: Any) -> Any:
    reward = 0.0
    for function in range(tables.shape[0]):
        for position in range(ranking.size):
            reward += upstream[function, start + ranking[position]] * tables[function, position]
    return reward


@part_of_one_kernel
def _plrank(levels: Any, start: int, cut: int, tables: Any, upstream: Any, order: Any, gradient: Any) -> None:
    samples, length, functions = order.shape[0], levels.size, tables.shape[0]
    masses, in_logarithms = _masses(levels)
    chance, kept = row_of_zeros(length, np.float64), row_of_zeros(length, np.float64)
    own_sum = row_of_zeros(functions, np.float64)  # X of the function's weights f(k)
    to_come = row_of_zeros(cut + 1, np.float64)  # PR, with its zero after the last position
    for sample in range(samples):
        ranking = order[sample, start : start + length]
        _walk(masses, in_logarithms, ranking, cut, chance, kept)
        for position in range(cut - 1, -1, -1):
            reward = 0.0
            for function in range(functions):
                reward += upstream[function, start + ranking[position]] * tables[function, position]
            to_come[position] = to_come[position + 1] + reward
        for function in range(functions):
            own_sum[function] = 0.0
        reward_sum = 0.0  # X of the rewards to come PR_k
        for position in range(length):
            if position < cut:
                reward_sum = reward_sum * kept[position] + to_come[position]
                for function in range(functions):
                    own_sum[function] = own_sum[function] * kept[position] + tables[function, position]
            own = 0.0
            for function in range(functions):
                own += upstream[function, start + ranking[position]] * own_sum[function]
            after = to_come[position + 1] if position < cut else 0.0
            gradient[ranking[position]] += after + chance[position] * (own - reward_sum)
    for item in range(length):
        gradient[item] /= samples


@part_of_one_kernel
def _last_weighted_position(tables: Any, length: int) -> int:
    """Find the last position of a list of this length at which any weight is not 0."""
    for position in range(length - 1, -1, -1):
        for function in range(tables.shape[0]):
            if tables[function, position] != 0.0:
                return position + 1
    return 0


@part_of_kernel
def _masses(levels: Any) -> Any:
    """Return exp(h), or h itself where the range is too wide for it, and which of the two it is."""
    # loops, since whole-array expressions take seconds to compile
    lowest = 0.0
    for item in range(levels.size):
        lowest = min(lowest, levels[item])
    in_logarithms = lowest < -WIDEST_RANGE
    masses = row_of_zeros(levels.size, np.float64)
    for item in range(levels.size):
        masses[item] = levels[item] if in_logarithms else np.exp(levels[item])
    return masses, in_logarithms


@part_of_kernel
def _walk(masses: Any, in_logarithms: bool, ranking: Any, cut: int, chance: Any, kept: Any) -> None:
    """Fill `kept` up to position `cut`, and `chance` to the end, with Z_cut for the items placed after it."""
    if in_logarithms:
        _walk_in_logarithms(masses, ranking, cut, chance, kept)
        return
    left = 0.0
    for position in range(ranking.size - 1, -1, -1):
        left += masses[ranking[position]]
        kept[position] = left
    inverse = 0.0
    for position in range(ranking.size):
        if position < cut:
            left = kept[position]
            kept[position] = left * inverse
            inverse = 1.0 / left
        chance[position] = masses[ranking[position]] * inverse


@part_of_one_kernel
def _walk_in_logarithms(levels: Any, ranking: Any, cut: int, chance: Any, kept: Any) -> None:
    left = -np.inf
    for position in range(ranking.size - 1, -1, -1):
        level = levels[ranking[position]]
        left = max(left, level) + np.log1p(np.exp(-abs(left - level)))
        kept[position] = left
    before = np.inf
    for position in range(ranking.size):
        if position < cut:
            left = kept[position]
            kept[position] = np.exp(left - before)
            before = left
        chance[position] = np.exp(levels[ranking[position]] - before)
