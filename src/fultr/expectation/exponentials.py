"""Position weights as sums of exponentials, f(k) = sum_m c_m s_m^(k-1).

1/k^eta and 1/log2(1+k) are completely monotone: they are mixtures of such terms, and a handful of shared
nodes s_m in (0, 1) fits several of them at once. The nodes are found by least squares on their logarithms,
the coefficients being linear once the nodes are fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

MOST_NODES = 16
FITTED_POSITIONS = 120
STEEPEST = 6.0
"""Decay rates beyond exp(6) are zero from the second position on, all the same."""

LARGEST_COEFFICIENT = 100.0
"""Beyond this, terms cancel so much that the fit means nothing in single precision."""


@dataclass(frozen=True)
class Exponentials:
    """Nodes s_m, coefficients c (functions x nodes), and the largest error over functions and positions."""

    nodes: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    error: float


def fit_exponentials(tables: NDArray[np.float64], tolerance: float) -> Exponentials | None:
    """Fit position weights (functions x positions) with as few nodes as the tolerance allows.

    The tolerance is relative to the largest weight of each function. None if no small number of nodes fits
    (a top-k cut, say).
    """
    return _fit(tables.tobytes(), tables.shape, tolerance)


@lru_cache(maxsize=256)
def _fit(content: bytes, shape: tuple[int, int], tolerance: float) -> Exponentials | None:
    tables = np.frombuffer(content).reshape(shape)
    scale = np.maximum(np.abs(tables).max(axis=1), np.finfo(np.float64).tiny)
    scaled = tables / scale[:, None]
    for nodes in range(1, min(MOST_NODES, tables.shape[1]) + 1):
        fit = _fit_with(scaled, nodes)
        if fit.error <= tolerance and np.abs(fit.coefficients).max() <= LARGEST_COEFFICIENT:
            return Exponentials(fit.nodes, fit.coefficients * scale[:, None], fit.error)
        if nodes > 3 and fit.error > 0.05:
            return None  # no mixture of exponentials: more nodes would not make it one
    return None


def _fit_with(tables: NDArray[np.float64], nodes: int) -> Exponentials:
    longest = tables.shape[1]
    # far down a long list weights change so slowly that some of the positions stand for all
    places = np.unique(np.geomspace(1, longest, FITTED_POSITIONS).round().astype(np.int64)) - 1
    places = places if longest > FITTED_POSITIONS else np.arange(longest)
    wanted = tables[:, places].T

    def nodes_of(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        # the decay rates are partial sums of positive steps, so that nodes stay apart and in order
        return np.asarray(np.exp(-np.cumsum(np.exp(np.minimum(logs, STEEPEST)))))

    def coefficients(s: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.linalg.lstsq(s ** places[:, None], wanted, rcond=1e-14)[0], dtype=np.float64)

    def errors(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        s = nodes_of(logs)
        return np.asarray((s ** places[:, None] @ coefficients(s) - wanted).ravel())

    rates = np.geomspace(min(0.3 / longest, 0.2), 4.0, nodes)
    start = np.log(np.diff(rates, prepend=0.0))
    s = nodes_of(least_squares(errors, start, xtol=1e-12, ftol=1e-12, gtol=1e-14, max_nfev=60).x)
    c = coefficients(s).T
    return Exponentials(s, c, float(np.abs(c @ s[:, None] ** np.arange(longest) - tables).max()))
