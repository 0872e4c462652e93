from .bootstrap import (
    Resampled,
    checked_level,
    percentile_interval,
    resampled_errors,
    resampled_means,
    separate_intervals,
    simultaneous_intervals,
    sum_of_squares_bounds,
)
from .evaluate_policy import evaluate
from .inputs import ScoringPolicy
from .permutation import FeatureEffect, feature_effects
from .result import Evaluation

__all__ = [
    "Evaluation",
    "FeatureEffect",
    "Resampled",
    "ScoringPolicy",
    "checked_level",
    "evaluate",
    "feature_effects",
    "percentile_interval",
    "resampled_errors",
    "resampled_means",
    "separate_intervals",
    "simultaneous_intervals",
    "sum_of_squares_bounds",
]
