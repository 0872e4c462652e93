"""What clicks say of a policy on new queries: estimates, intervals, and limits that they cannot support."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.errors import FultrError, FultrWarning, InputError
from fultr.evaluation.clustered import Estimates, disparity_estimates, root_bounds, utility_estimates
from fultr.evaluation.clusters import clusters_of
from fultr.expectation.exact import Accuracy, Problems, exact_values
from fultr.training.preparation import has_two_groups
from fultr.training.task import Task

Array = NDArray[np.float64]

LEVEL = 0.95
"""The level of intervals, where no confidence was asked for."""


class UnsupportedLimitError(FultrError):
    """The clicks do not support a limit with the confidence asked for.

    `lowest` is the lowest limit that could be promised now, and `times` about how many times as many
    impressions the one asked for needs.
    """

    exit_code = 3

    def __init__(self, limit: float, confidence: float, lowest: float) -> None:
        self.limit, self.confidence, self.lowest = limit, confidence, lowest
        # standard errors fall with the root of the number of impressions
        self.times = (lowest / limit) ** 2 if limit > 0 else math.inf
        needs = f"needs about {self.times:.3g} times as many impressions, on more queries"
        super().__init__(
            f"a disparity of at most {limit:g} on new queries cannot be promised with {confidence:.4g}"
            f" confidence; the lowest limit that can be promised is {lowest:.3g}, and {limit:g}"
            f" {needs if limit > 0 else 'never can be'}"
        )

    def to_dict(self) -> dict[str, float | None]:
        """Return what was asked for and what could be promised, as plain values."""
        return {
            "limit": self.limit,
            "confidence": self.confidence,
            "lowest_limit": self.lowest,
            "times_as_many_impressions": self.times if math.isfinite(self.times) else None,
        }


class Promise(NamedTuple):
    """What clicks say of a policy on new queries: an estimate and its interval."""

    value: float
    low: float
    high: float


def is_supported(task: Task) -> bool:
    """Say whether the disparity on new queries can be bounded.

    Nothing in the log may be unknown, and two independent queries at least say how much queries differ.
    """
    is_known = task.disparity.unseen is None and not task.disparity.empties_dropped
    return is_known and has_two_clusters(task)


def has_two_clusters(task: Task) -> bool:
    """Say whether there are two independent queries, or documents that queries share, at least."""
    clusters = clusters_of(task.data)
    codes = clusters.of_list if clusters.of_row is None else clusters.of_row
    return bool((codes != codes[:1]).any())


def check_supported(task: Task) -> None:
    """Refuse a log whose disparity on new queries cannot be bounded."""
    if not has_two_clusters(task):
        problem = "needs clicks on two independent queries at least, to say what new ones will show"
        raise InputError(problem, column="log", value=f"{len(task.data)} lists")
    if not is_supported(task):
        problem = "needs a log that kept all impressions, and without candidates that were never shown"
        raise InputError(
            f"{problem} ({{shown_only()}} leaves them out)", column="log", options=["shown_only()"]
        )


def estimates_of(task: Task, scores: Array, accuracy: Accuracy = "single") -> tuple[Estimates, Estimates]:
    """Return utility and disparities of policies with their errors, from the scores (policies, rows)."""
    clusters = clusters_of(task.data)
    expected = np.stack(
        [
            exact_values(Problems.of(of_policy, task.data.offsets), task.tables, accuracy)
            for of_policy in scores
        ]
    )
    return (
        utility_estimates(expected[:, 0], task.utility, *clusters),
        disparity_estimates(expected[:, 1], task.disparity, *clusters),
    )


class Expected(NamedTuple):
    """What new queries are expected to show of a policy."""

    utility: Promise
    disparity: Promise


def expected_on_new_queries(task: Task, scores: Array, level: float) -> Expected:
    """Return utility and sqrt(sum of D_ij^2), with intervals, of the policy of scores (1, rows)."""
    utility, disparity = estimates_of(task, scores, "double")
    reach = utility.reach(level) * float(utility.errors[0])
    low, high = root_bounds(disparity, 1, level)
    value = float(utility.values[0])
    root = float(np.sqrt((disparity.values**2).sum()))
    return Expected(
        Promise(value, value - reach, value + reach), Promise(root, float(low[0]), float(high[0]))
    )


def is_within_noise(task: Task, scores: Array) -> bool:
    """Say, also to the user, whether clicks cannot show any disparity of the policy of scores of the rows.

    Training for fairness would then chase noise, and could raise the true disparity.
    """
    if not (has_two_groups(task.data) and is_supported(task)):
        return False
    _, disparity = estimates_of(task, scores[None])
    if (np.abs(disparity.values) > disparity.reach(LEVEL) * disparity.errors).any():
        return False
    root = float(np.sqrt((disparity.values**2).sum()))
    line = (
        f"the disparity of the most useful policy on left-out clicks, {root:.3g}, is within its noise: these"
        " clicks cannot say what would be fairer, so that nothing is changed. Collect more, on more queries"
    )
    warnings.warn(line, FultrWarning, stacklevel=2)
    return True
