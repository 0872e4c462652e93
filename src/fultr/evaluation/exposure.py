"""Exposure of groups beside their merit: ratios between groups, and the share that would have to move."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fultr.evaluation.bootstrap import percentile_interval

Array = NDArray[np.float64]

Pairs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Pairs of groups: the first of each, and the second."""

NO_MERIT = 1e-100
"""Stands for no merit where something is divided by it: percentiles of infinite numbers are not defined."""

LARGEST_RATIO = 1e50
"""Larger numbers come from dividing by `NO_MERIT`: they stand for infinity, and their reciprocals for 0."""


def ratio(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, and NaN where the denominator is not above 0."""
    is_defined = denominator > 0
    return np.asarray(np.where(is_defined, numerator / np.where(is_defined, denominator, 1.0), math.nan))


def _over(values: Array, others: Array, pairs: Pairs | None) -> Array:
    """Return each value over each of the others, or those of some pairs only."""
    if pairs is None:
        return ratio(values[..., :, None], others[..., None, :])
    return ratio(values[..., pairs[0]], others[..., pairs[1]])


def exposure_ratios(exposure: Array, merit: Array, pairs: Pairs | None = None) -> Array:
    """Return how many times the exposure for each unit of merit of group j group i has.

    R_ij = (Exp(G_i) / M(G_i)) / (Exp(G_j) / M(G_j)), from (..., groups) to (..., groups, groups), or of some
    pairs i, j only: (..., pairs)

    It is 1 where both have the exposure that their merit asks for, and NaN where one has no merit or the
    second no exposure.
    """
    worth = ratio(exposure, merit)
    return _over(worth, worth, pairs)


def exposure_to_move(exposure: Array, merit: Array) -> Array:
    """Return the share of all exposure that would have to go to other groups to be in proportion to merit.

    (1/2) sum_i |Exp(G_i) / sum_j Exp(G_j) - M(G_i) / sum_j M(G_j)|, from (..., groups) to (...)
    """
    exposed = ratio(exposure, exposure.sum(axis=-1, keepdims=True))
    deserved = ratio(merit, merit.sum(axis=-1, keepdims=True))
    return np.asarray(np.abs(exposed - deserved).sum(axis=-1) / 2)


def exposure_ratio_bounds(
    exposure: Array, merit: Array, unknown: Array, pairs: Pairs | None = None
) -> tuple[Array, Array]:
    """Return between what R_ij of `exposure_ratios` lies if group g has up to `unknown` more merit.

    `exposure` is that of all items of a group. A group that may have no merit leaves no upper bound.
    """
    least = np.maximum(merit, NO_MERIT)
    most = np.maximum(merit, 0) + unknown
    lowest, highest = ratio(exposure, most), exposure / least
    return _over(lowest, highest, pairs), _over(highest, lowest, pairs)


def exposure_to_move_bounds(exposure: Array, merit: Array, unknown: Array) -> tuple[Array, Array]:
    """Return between what the share of exposure to move lies if groups have up to `unknown` more merit.

    The merit share of a group lies between that without more of its own, and all of others', and that with
    all of its own alone. It is as far from the exposure share as the nearest and as the farthest of these.
    """
    least = np.maximum(merit, 0)
    others = least.sum(axis=-1, keepdims=True) - least
    low = ratio(least, least + others + unknown.sum(axis=-1, keepdims=True) - unknown)
    high = ratio(least + unknown, least + unknown + others)
    share = ratio(exposure, exposure.sum(axis=-1, keepdims=True))
    nearest = np.maximum(np.maximum(low - share, share - high), 0)
    farthest = np.maximum(np.abs(share - low), np.abs(share - high))
    return nearest.max(axis=-1), np.minimum(farthest.sum(axis=-1) / 2, 1.0)


def interval_of_bounds(bounds: tuple[Array, Array], level: float) -> tuple[Array, Array]:
    """Return the low end of resampled lower bounds and the high end of upper ones; infinite without merit."""
    low, high = (percentile_interval(bound, level)[number] for number, bound in enumerate(bounds))
    return np.where(low > 1 / LARGEST_RATIO, low, 0.0), np.where(high < LARGEST_RATIO, high, np.inf)
