"""From estimates of single positions to a curve: one that falls, and a power law for its tail."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_SPREAD = 0.1
"""By how much, as a standard deviation of log v_k, examination is taken to miss a power law at the least.

So a position that is known to a few percent stays as it is, and one that rests on a dozen clicks follows."""

LEAST_VARIANCE = 1e-12
"""The smallest variance of an estimate relative to its square, which stands for none."""


def falling(values: Array, weights: Array) -> Array:
    """Return the falling curve nearest to estimates in weighted least squares, at most 1.

    Isotonic regression; `values` and `weights` are those of positions after the first, which is 1.
    """
    from scipy.optimize import isotonic_regression

    fitted = isotonic_regression(values, weights=weights, increasing=False).x
    # the nearest curve under a bound is the nearest curve cut off at it
    return np.asarray(np.minimum(fitted, 1.0))


def falling_with_resamples(values: Array, resampled: Array, clicks: Array) -> tuple[Array, Array]:
    """Return the falling curve of estimates and those of their resamples; the first position is 1.

    Weights are v_k / var(v_k), the number of examinations that an estimate rests on: what is pooled then has
    all its clicks over all its examinations, the isotonic maximum likelihood of counts. Without resamples,
    clicks / v_k stands for it.
    """
    weights = clicks[1:] / values[1:]
    if len(resampled) >= 2:
        variance = np.maximum(resampled.var(axis=0, ddof=1), LEAST_VARIANCE * values**2)
        weights = values[1:] / variance[1:]
    curves = [falling(row, weights) for row in (values[1:], *resampled[:, 1:])]
    curves_with_first = np.column_stack([np.ones(len(curves)), np.array(curves)])
    return curves_with_first[0], curves_with_first[1:]


def widened(interval: Array, values: Array) -> tuple[Array, Array]:
    """Return intervals that also hold the mirror image of percentile intervals about the estimate.

    A curve that is made to fall is pulled apart where the true one is flat, and its resamples are pulled
    apart once more. Percentiles repeat that error and the mirror image takes it off, so that both ends count.
    """
    low, high = interval
    # by a ratio at the low end, since examination is never below 0, and at most that of position 1
    return np.minimum(low, values**2 / high), np.minimum(np.maximum(high, 2 * values - low), 1.0)


class PowerLaw(NamedTuple):
    """v_k = level k^-eta, which log v_k misses by the standard deviation `spread`."""

    level: float
    eta: float
    spread: float

    def at(self, positions: NDArray[np.int64]) -> Array:
        """Return v_k of the law."""
        return np.asarray(self.level * positions.astype(np.float64) ** -self.eta)

    def smoothed(self, positions: NDArray[np.int64], values: Array, errors: Array) -> Array:
        """Return values moved to the law, each by how imprecise it is; errors are those of log v_k.

        log v_k = (spread^2 log value + error^2 log law) / (spread^2 + error^2)
        """
        share = errors**2 / (self.spread**2 + errors**2)
        return np.asarray(values ** (1 - share) * self.at(positions) ** share)


def fitted_power_law(positions: NDArray[np.int64], values: Array, errors: Array) -> PowerLaw:
    """Fit log v_k = log level - eta log k to all positions, weighted by their precision.

    Weights are 1 / (error^2 + spread^2) with `errors` those of log v_k. The spread is by how much the curve
    itself misses a power law: what squared residuals exceed squared errors by, in the mean.
    """
    design, heights = np.column_stack([np.ones(positions.size), -np.log(positions)]), np.log(values)
    weights = 1 / (errors**2 + LEAST_SPREAD**2)
    law, free = _least_squares(design, heights, weights)
    spread = LEAST_SPREAD
    if positions.size > 2:
        # E[sum of w residual^2] = sum of w free (error^2 + spread^2)
        excess = weights @ (heights - design @ law) ** 2 - (weights * free) @ errors**2
        spread = max(float(excess / (weights @ free)), LEAST_SPREAD**2) ** 0.5
        law, _ = _least_squares(design, heights, 1 / (errors**2 + spread**2))
    return PowerLaw(float(np.exp(law[0])), float(law[1]), spread)


def _least_squares(design: Array, heights: Array, weights: Array) -> tuple[Array, Array]:
    """Return the solution of weighted least squares, and 1 - leverage of each row."""
    roots = np.sqrt(weights)
    basis, triangle = np.linalg.qr(design * roots[:, None])
    solution = np.linalg.solve(triangle, basis.T @ (heights * roots))
    return np.asarray(solution), np.asarray(1 - np.sum(basis**2, axis=1))
