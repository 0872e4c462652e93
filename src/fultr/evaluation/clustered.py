"""Standard errors of utility and disparity where lists depend on each other, and bounds that hold at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.estimators import Evidence, group_merit
from fultr.evaluation.bootstrap import checked_level, sum_of_squares_bounds

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

DRAWS = 4_000
"""Draws of the largest of many t-distributed errors: its 95% quantile is then known to about 1%."""

PANELS = 1_000
"""Panels of Simpson's rule: quantiles of Student's t are then right to seven digits or more."""


def student_t(freedom: int, level: float) -> float:
    """Return the t within which Student's t lies with a probability, its sign left out.

    P(|T_n| <= sqrt(n) tan a) = int_0^a cos^{n-1}(u) du / int_0^{pi/2} cos^{n-1}(u) du,   n = freedom,

    solved for a by Newton's method, which never overshoots, as the left side is concave. Loading scipy for
    it would take longer than inspecting a log.
    """
    whole = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    weights = np.tile([2.0, 4.0], PANELS // 2 + 1)[: PANELS + 1]
    weights[[0, -1]] = 1.0
    angle, step = 0.0, math.inf
    while step > 1e-9 * angle:  # digits double with each step
        heights = np.cos(np.linspace(0.0, angle, PANELS + 1)) ** (freedom - 1)
        step = (level * whole - angle / (3 * PANELS) * float(weights @ heights)) / float(heights[-1])
        angle += step
    return math.sqrt(freedom) * math.tan(angle)


class Estimates(NamedTuple):
    """Estimates of one quantity for several policies, and how they err.

    Parameters
    ----------
    values
        (m,) The estimates.
    covariance
        (m, m) Of their errors.
    clusters
        How many independent parts of the data they come from.
    """

    values: Array
    covariance: Array
    clusters: int

    @property
    def errors(self) -> Array:
        """(m,) Their standard errors."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def reach(self, level: float, seed: int = 0) -> float:
        """Return how many standard errors around the estimates hold all true values at once.

        The quantile of max_j |t_j|, t being multivariate t-distributed with the correlation of the errors
        and one degree of freedom less than there are clusters.
        """
        freedom = max(self.clusters - 1, 1)
        errors = self.errors
        varies = errors > 0
        if varies.sum() <= 1:
            return student_t(freedom, checked_level(level))
        rng = np.random.default_rng(seed)
        correlation = self.covariance[np.ix_(varies, varies)] / np.outer(errors[varies], errors[varies])
        values, vectors = np.linalg.eigh(correlation)
        drawn = rng.standard_normal((DRAWS, values.size)) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        drawn /= np.sqrt(rng.chisquare(freedom, DRAWS) / freedom)[:, None]
        return float(np.quantile(np.abs(drawn).max(axis=1), checked_level(level)))


def utility_estimates(
    expected: Array, evidence: Evidence[Any], of_list: Codes, of_row: Codes | None
) -> Estimates:
    """Return the utility of several policies, from their expected position weights, (policies, rows)."""
    evidence = evidence.in_arrays()
    by_row = expected * evidence.weight / evidence.total_impressions
    return _estimates(by_row, _by_list(by_row, evidence), evidence, of_list, of_row)


def disparity_estimates(
    exposure: Array, evidence: Evidence[Any], of_list: Codes, of_row: Codes | None
) -> Estimates:
    """Return D_ij of several policies, from the exposure of items, (policies, rows): (policies x pairs,).

    The pairs i < j of a policy stand together. D_ij of a list is a sum over pairs of items, one of each
    group. What a document adds, and takes along when it is not there, is the sum over all its pairs:

    r_d = M_q(G_j) Exp(d) - M(d) Exp_q(G_j) for d in G_i, and M(d) Exp_q(G_i) - M_q(G_i) Exp(d) for d in G_j

    Parameters
    ----------
    exposure
        E[v] of each row under each policy.
    evidence
        The merit of each row.
    of_list, of_row
        As in `fultr.evaluation.clusters.Clusters`. Errors of documents add to those of queries.
    """
    evidence = evidence.in_arrays()
    candidates, total = evidence.candidates, evidence.total_impressions
    group, where = candidates.group, candidates.list_of_row
    merit, weight = group_merit(evidence), evidence.weight
    first, second = np.triu_indices(candidates.groups, k=1)
    by_row = np.zeros((exposure.shape[0], first.size, exposure.shape[1]))
    by_list = np.zeros((exposure.shape[0], first.size, candidates.lists))
    starts = candidates.offsets[:-1]
    for policy, given in enumerate(exposure):
        of_group = np.stack(
            [
                np.add.reduceat(np.where(group == code, given, 0.0), starts)
                for code in range(candidates.groups)
            ]
        )
        for pair, (one, other) in enumerate(zip(first, second, strict=True)):
            by_list[policy, pair] = merit[:, other] * of_group[one] - merit[:, one] * of_group[other]
            if of_row is not None:
                of_one = merit[where, other] * given - weight * of_group[other, where]
                of_other = weight * of_group[one, where] - merit[where, one] * given
                by_row[policy, pair] = np.where(group == one, of_one, np.where(group == other, of_other, 0.0))
    shape = (exposure.shape[0] * first.size, -1)
    return _estimates(
        by_row.reshape(shape) / total, by_list.reshape(shape) / total, evidence, of_list, of_row
    )


def root_bounds(estimates: Estimates, policies: int, level: float) -> tuple[Array, Array]:
    """Return bounds of sqrt(sum of D_ij^2) that hold for all policies at once: (low, high), each (policies,).

    Whichever policy is then chosen by them, its bounds hold with probability `level`.
    """
    reach = estimates.reach(level) * estimates.errors
    values = estimates.values.reshape(policies, -1)
    reach = reach.reshape(policies, -1)
    bounds = [
        sum_of_squares_bounds(value - apart, value + apart)
        for value, apart in zip(values, reach, strict=True)
    ]
    low, high = np.sqrt(np.array(bounds).reshape(policies, 2).T)
    return low, high


def _by_list(by_row: Array, evidence: Evidence[NDArray[Any]]) -> Array:
    starts = evidence.candidates.offsets[:-1]
    return np.asarray(np.add.reduceat(by_row, starts, axis=1))


def _estimates(
    by_row: Array, by_list: Array, evidence: Evidence[NDArray[Any]], of_list: Codes, of_row: Codes | None
) -> Estimates:
    values = by_list.sum(axis=1)
    share = evidence.impressions / evidence.total_impressions
    apart = _sums(by_list, of_list) - values[:, None] * _sums(share[None], of_list)
    clusters = apart.shape[1]
    covariance = apart @ apart.T * clusters / max(clusters - 1, 1)
    if of_row is not None:
        documents = _sums(by_row, of_row)
        documents -= documents.mean(axis=1, keepdims=True)
        count = documents.shape[1]
        covariance = covariance + documents @ documents.T * count / max(count - 1, 1)
        clusters = min(clusters, count)
    return Estimates(values, covariance, clusters)


def _sums(values: Array, codes: Codes) -> Array:
    """Add up the columns that have the same code."""
    index = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return np.stack([np.bincount(index, weights=row) for row in values])
