"""Expected position weights under Plackett-Luce from sampled rankings, and two estimators of their gradient.

Problems are flat and ragged: one score for each row, `offsets` where each list starts. Position weights
come as `tables` (functions, longest list), the weight of position k of function f at [f, k - 1]; `upstream`
(functions, rows) is the derivative of the objective with respect to each E[f(rank d)]. Rankings are drawn
once, by `draw_rankings`, and serve values and gradient. Results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.errors import InputError
from fultr.expectation.race import WORTH_A_THREAD, centred_scores, draw_rankings
from fultr.expectation.sampled_kernels import plrank_of_lists, reinforce_of_lists, values_of_lists
from fultr.expectation.threads import for_kernel, over_threads

__all__ = ["draw_rankings", "plrank_gradient", "reinforce_gradient", "sampled_values"]


def sampled_values(
    order: NDArray[np.int32], offsets: NDArray[np.int64], tables: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Estimate E[f(rank d)] by the mean of f(rank d) over sampled rankings.

    Parameters
    ----------
    order
        Rankings from `draw_rankings`, (samples, rows).
    offsets
        Where each list starts, and the number of rows at the end.
    tables
        Position weights, (functions, longest list or more).

    Returns
    -------
    values
        (functions, rows).
    """
    _check_table_length(tables, offsets)
    values = np.zeros((tables.shape[0], order.shape[1]))
    rankings = np.ascontiguousarray(order, dtype=np.int32)
    starts, weights = for_kernel(offsets, np.int64), for_kernel(tables, np.float64)
    _over_lists(values_of_lists, rankings, starts, rankings, starts, weights, values)
    return values


def reinforce_gradient(
    scores: NDArray[np.float64],
    offsets: NDArray[np.int64],
    tables: NDArray[np.float64],
    upstream: NDArray[np.float64],
    order: NDArray[np.int32],
) -> NDArray[np.float64]:
    """Estimate the gradient by the log-derivative trick, with the mean reward as control variate.

    The reward of ranking sigma_s of a list, and the gradient of its log-probability, are

        R_s = sum_d sum_f upstream[f, d] f(rank_s(d)),
        d log pi(sigma_s) / dh_d = 1 - exp(h_d) sum_{i <= rank_s(d)} 1 / Z_i,
        Z_i = sum_{j >= i} exp(h_{sigma_s(j)}),

    and the estimate, with the mean reward R of the S samples, is

        1 / (S - 1)  sum_s (R_s - R) grad log pi(sigma_s).

    The divisor S - 1 makes it unbiased although R contains R_s. With R_(-s) the mean of the other S - 1
    rewards, R = R_s / S + (S - 1) R_(-s) / S, so

        R_s - R = (S - 1) / S  (R_s - R_(-s)),

    and the estimate is 1/S sum_s (R_s - R_(-s)) grad log pi(sigma_s), whose baseline is independent of
    sigma_s; E[grad log pi] = 0 does the rest. A single sample has no baseline: R_1 grad log pi(sigma_1).

    The estimate of each list sums to 0 over its items, as the gradient does.

    Parameters
    ----------
    scores
        A score h for each row; any finite number.
    offsets
        Where each list starts, and the number of rows at the end.
    tables
        Position weights, (functions, longest list or more).
    upstream
        (functions, rows): the derivative of the objective with respect to each value.
    order
        Rankings drawn from these scores, (samples, rows).

    Returns
    -------
    gradient
        The derivative of the objective with respect to each score.
    """
    return _gradient(reinforce_of_lists, scores, offsets, tables, upstream, order)


def plrank_gradient(
    scores: NDArray[np.float64],
    offsets: NDArray[np.int64],
    tables: NDArray[np.float64],
    upstream: NDArray[np.float64],
    order: NDArray[np.int32],
) -> NDArray[np.float64]:
    """Estimate the gradient by PL-Rank-3 (Oosterhuis, SIGIR 2022), for several position weights at once.

    Let y be a ranking, q(d, k) = sum_f upstream[f, d] f(k) what item d earns at position k,
    PR_i = sum_{k >= i} q(y_k, k) the reward still to come, and p_k(d) = 1[k <= rank(d)] exp(h_d) / Z_k the
    chance of d at position k given what was placed before. A placement does not change what was earned
    before it, so

        d/dh_d = E[ sum_k ( 1[y_k = d] - p_k(d) ) PR_k ]
               = E[ q(d, rank(d)) + PR_{rank(d)+1} - sum_k p_k(d) PR_k ].

    Given the earlier placements, d earns q(d, k) at position k with chance p_k(d). This expectation in place
    of the draw leaves, as the mean over samples,

        PR_{rank(d)+1} + exp(h_d) sum_{k <= rank(d)} ( q(d, k) - PR_k ) / Z_k.

    q and PR are 0 after the last position with a weight, so the sums end there. For one sample the cost is
    linear in the length of the list. The estimate is unbiased for any number of samples, one included;
    unlike the gradient, it sums to 0 over the items of a list only in expectation. It has no baseline: where
    every ranking earns much, its error can exceed that of `reinforce_gradient`, which subtracts the mean.

    Parameters and result are those of `reinforce_gradient`.
    """
    return _gradient(plrank_of_lists, scores, offsets, tables, upstream, order)


def _gradient(
    kernel: Callable[..., None],
    scores: NDArray[np.float64],
    offsets: NDArray[np.int64],
    tables: NDArray[np.float64],
    upstream: NDArray[np.float64],
    order: NDArray[np.int32],
) -> NDArray[np.float64]:
    _check_table_length(tables, offsets)
    rows = int(offsets[-1])
    if upstream.shape != (tables.shape[0], rows):
        raise InputError(
            f"must have a row for each table and a column for each score: {(tables.shape[0], rows)}",
            column="upstream",
            value=upstream.shape,
        )
    gradient = np.zeros(rows)
    starts, rankings = for_kernel(offsets, np.int64), np.ascontiguousarray(order, dtype=np.int32)
    weights, upstream_array = for_kernel(tables, np.float64), for_kernel(upstream, np.float64)
    levels = centred_scores(scores, offsets)
    _over_lists(kernel, rankings, starts, levels, starts, weights, upstream_array, rankings, gradient)
    return gradient


def _over_lists(
    kernel: Callable[..., None], order: NDArray[np.int32], offsets: NDArray[np.int64], *arguments: Any
) -> None:
    over_threads(kernel, np.arange(offsets.size - 1), 1 + order.size // WORTH_A_THREAD, *arguments)


def _check_table_length(tables: NDArray[np.float64], offsets: NDArray[np.int64]) -> None:
    longest = int(np.diff(offsets).max(initial=0))
    if tables.ndim != 2 or tables.shape[1] < longest:
        raise InputError(
            f"must have a weight for each of the {longest} positions", column="tables", value=tables.shape
        )
