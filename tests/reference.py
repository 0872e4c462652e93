"""Slow, plain implementations of what the library computes fast, written straight from the formulas."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from fultr import ClickLog, CompactLog, PositionBias


def plackett_luce_probability(scores: list[float], ranking: tuple[int, ...]) -> float:
    """P(ranking) = prod_i exp(h_i) / sum_{j >= i} exp(h_j)."""
    left = list(ranking)
    probability = 1.0
    for item in ranking:
        probability /= sum(math.exp(min(scores[other] - scores[item], 700.0)) for other in left)
        left.remove(item)
    return probability


def all_rankings(items: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(items)))


def raw_estimates(
    log: ClickLog,
    bias: PositionBias | None,
    value: NDArray[np.float64],
    exposure: NDArray[np.float64],
    eps: float,
) -> tuple[float, float, float]:
    """Utility, disparity and noise-corrected disparity of groups 0 and 1, one impression after another.

    `value` and `exposure` stand for E[f(rank)] and E[v(rank)] of each row under some policy.
    """
    utility = disparity = corrected = 0.0
    for number in range(len(log)):
        start, stop = log.offsets[number], log.offsets[number + 1]
        first_row = log.data.offsets[log.lists[number]]
        merit, shown, exposed = [0.0, 0.0], [0, 0], [0.0, 0.0]
        for entry in range(start, stop):
            row = first_row + entry - start
            position = int(log.position[entry])
            group = int(log.data.group[row])
            weight = 0.0
            if log.click[entry]:
                if bias is not None:
                    propensity = float(bias.at([position])[0])
                elif log.propensity is not None:
                    propensity = float(log.propensity[entry])
                else:
                    assert log.position_bias is not None
                    propensity = float(log.position_bias.at([position])[0])
                weight = 1.0 / propensity
            utility += weight * value[row]
            if group >= 0:
                merit[group] += weight
                exposed[group] += exposure[row]
                shown[group] += position > 0
        one = merit[1] * exposed[0] - merit[0] * exposed[1]
        disparity += one
        corrected += one - eps * (shown[1] * exposed[0] - shown[0] * exposed[1])
    return utility / len(log), disparity / len(log), corrected / len(log)


def compact_estimates(
    log: CompactLog,
    bias: PositionBias | None,
    value: NDArray[np.float64],
    exposure: NDArray[np.float64],
    eps: float,
) -> tuple[float, float, float]:
    """The same from a compacted log."""
    weight, shown = log.ips_weights(bias), log.shown()
    impressions = float(log.impressions.sum())
    utility = float(weight @ value)
    disparity = corrected = 0.0
    for start, stop in itertools.pairwise(log.data.offsets):
        rows = slice(int(start), int(stop))
        of = [log.data.group[rows] == code for code in (0, 1)]
        exposed = [float(exposure[rows][mask].sum()) for mask in of]
        merit = [float(weight[rows][mask].sum()) for mask in of]
        times = [float(shown[rows][mask].sum()) for mask in of]
        one = merit[1] * exposed[0] - merit[0] * exposed[1]
        disparity += one
        corrected += one - eps * (times[1] * exposed[0] - times[0] * exposed[1])
    return utility / impressions, disparity / impressions, corrected / impressions
