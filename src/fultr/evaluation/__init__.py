"""Exact utility and disparity of a policy, and bootstrap intervals over queries."""

from fultr.evaluation.bootstrap import (
    Resampled,
    percentile_interval,
    resampled_errors,
    resampled_means,
    separate_intervals,
    simultaneous_intervals,
    sum_of_squares_bounds,
)
from fultr.evaluation.evaluate_policy import evaluate
from fultr.evaluation.result import Evaluation

__all__ = [
    "Evaluation",
    "Resampled",
    "evaluate",
    "percentile_interval",
    "resampled_errors",
    "resampled_means",
    "separate_intervals",
    "simultaneous_intervals",
    "sum_of_squares_bounds",
]
