"""Paired comparisons over independent splits, with t intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.evaluation.clustered import student_t

LEVEL = 0.95

TOWARDS_ZERO, NEAR_ZERO = 0.2, 0.05
"""What may be left of a squared disparity that is said to fall towards zero, or to reach it."""


@dataclass(frozen=True)
class Estimate:
    """A mean over splits with its interval."""

    mean: float
    low: float
    high: float
    splits: int

    @property
    def above(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.low > 0

    @property
    def below(self) -> bool:
        """Whether the whole interval lies below 0."""
        return self.high < 0


def estimate(values: ArrayLike, level: float = LEVEL) -> Estimate:
    """Return the mean of one number for each split, and its t interval.

    With s the standard deviation of n numbers: mean +- t_{n-1} s / sqrt(n). One split has no interval.
    """
    given: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    mean, count = float(given.mean()), int(given.size)
    if count < 2:
        return Estimate(mean, -math.inf, math.inf, count)
    half = float(student_t(count - 1, level) * given.std(ddof=1) / math.sqrt(count))
    return Estimate(mean, mean - half, mean + half, count)


def slopes(values: NDArray[np.float64], across: ArrayLike) -> NDArray[np.float64]:
    """Return the least-squares slope of each row of `values` (splits x places) over the places."""
    place = np.asarray(across, dtype=np.float64)
    centred = place - place.mean()
    return np.asarray(values @ centred / (centred @ centred))


def ratio(upper: ArrayLike, lower: ArrayLike, level: float = LEVEL) -> Estimate:
    """Return the ratio of two means over the same splits, and Fieller's interval.

    All r for which the mean of upper - r lower is not significantly different from 0: the roots of
    (aa) - 2 r (ab) + r^2 (bb) with (xy) = mean x mean y - t^2 cov(x, y) / n. Where the lower mean itself
    may be 0 the interval is unbounded.
    """
    a, b = np.asarray(upper, dtype=np.float64), np.asarray(lower, dtype=np.float64)
    count, mean = int(a.size), float(a.mean() / b.mean()) if b.mean() else math.nan
    if count < 2 or math.isnan(mean):
        return Estimate(mean, -math.inf, math.inf, count)
    factor = student_t(count - 1, level) ** 2 / count
    cov = np.cov(a, b)
    aa, bb = a.mean() ** 2 - factor * cov[0, 0], b.mean() ** 2 - factor * cov[1, 1]
    ab = a.mean() * b.mean() - factor * cov[0, 1]
    if bb <= 0:
        return Estimate(mean, -math.inf, math.inf, count)
    root = math.sqrt(max(ab**2 - aa * bb, 0.0))  # below 0 by rounding alone
    return Estimate(mean, float((ab - root) / bb), float((ab + root) / bb), count)
