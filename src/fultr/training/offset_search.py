"""Scores that are there already: the temperature that suits them, and the offsets that make them fair."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.evaluation.clustered import root_bounds
from fultr.expectation.exact import Accuracy
from fultr.training.goals import squared
from fultr.training.limits import fairest, most_useful
from fultr.training.models import Scores
from fultr.training.objective import Measured, measure, stacked
from fultr.training.promises import UnsupportedLimitError, estimates_of
from fultr.training.solving import WITHOUT_PRICE, Solver
from fultr.training.task import Task

Array = NDArray[np.float64]

SHARPNESS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Temperatures to choose from, as the standard deviation of scores within lists that they lead to. Twice as
sharp as the last gained at most 0.6% of the utility on three data sets, takes twice as long, and leaves
hardly any randomness to be fair with."""

PRICES = tuple(np.logspace(-4, 2, 15).tolist())
"""Prices of disparity at which offsets are tried for a limit with confidence, beside 0 and any. Their unit is
the utility over the squared disparity of the scores as they are."""


class OffsetScores(Scores):
    """h(x) = s(x) + b_g: scores that are there already, and one number for each group but the first.

    Parameters are the offsets b. Items of the first group, and of no known group, have none.
    """

    together = True
    entries_a_block = 1 << 19
    most_iterations = 300

    def __init__(self, data: RankingDataset, scores: Array) -> None:
        self.group, self.groups = data.group, len(data.group_names)
        self.given_scores = scores
        self.first = np.zeros(max(self.size, 0))

    @property
    def size(self) -> int:
        """Number of groups, less one."""
        return self.groups - 1

    @property
    def content(self) -> list[Any]:
        """All that scores depend on besides the parameters and the features."""
        return [type(self).__name__, self.group, self.groups, self.given_scores]

    def initial(self, seed: int) -> Array:
        """Return where the search begins: at the scores as they are, unless told otherwise."""
        del seed
        return self.first

    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (configurations, rows)."""
        none = np.zeros((parameters.shape[0], 1))
        offsets = np.concatenate([none, parameters, none], axis=1)  # the last is that of no group, -1
        return np.asarray((self.given_scores[rows] + offsets[:, self.group[rows]]).astype(np.float32))

    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return the sum of the slopes of each group but the first, (configurations, groups - 1)."""
        del parameters
        group = self.group[rows]
        return np.stack([slopes[:, group == code].sum(axis=1) for code in range(1, self.groups)], axis=1)


def best_temperature(task: Task, scores: Array, fairness_weight: float = 0.0) -> tuple[float, float]:
    """Return what scores of rows are to be divided by for the highest U - lambda |D|^2, and that value."""
    spread = spread_within(task.data, scores) or 1.0
    temperatures = [spread / sharpness for sharpness in SHARPNESS]
    measured = stacked(measure_scores(task, scores / temperature) for temperature in temperatures)
    values = measured.utility - fairness_weight * squared(measured.disparity)
    best = int(np.argmax(values))
    return temperatures[best], float(values[best])


def spread_within(data: RankingDataset, scores: Array) -> float:
    """Return the standard deviation of scores within lists."""
    mean = np.add.reduceat(scores, data.offsets[:-1]) / data.lengths
    return float(np.sqrt(((scores - mean.repeat(data.lengths)) ** 2).mean()))


def measure_scores(task: Task, scores: Array, accuracy: Accuracy = "single") -> Measured:
    """Return utility and disparity of the policy of scores of the rows."""
    model = OffsetScores(task.data, scores)
    return measure(task, model, np.zeros((1, max(model.size, 0))), accuracy)


class OffsetSearch:
    """Searches offsets to given scores of the rows of a task.

    All searches begin at the fairest offsets. From the scores as they are, a step can put one group above all
    others, where nothing tells the way back.
    """

    def __init__(self, task: Task, scores: Array) -> None:
        self.task = task
        self.model = OffsetScores(task.data, scores)
        self.solver = Solver(task, self.model, np.zeros(1))
        self.model.first = self._priced(WITHOUT_PRICE, self.model.first)

    def scores(self, parameters: Array) -> Array:
        """Return the scores with offsets (policies, groups - 1) added to them, (policies, rows)."""
        return self.model.scores(parameters, slice(None)).astype(np.float64)

    def priced(self, fairness_weight: float) -> Array:
        """Return the offsets of the highest U - lambda sum of D_ij^2 on these clicks."""
        utility, disparity = self.solver.measure(self.path)
        best = int(np.argmax(utility - fairness_weight * squared(disparity)))
        return self._priced(fairness_weight, self.path[best])

    def _priced(self, fairness_weight: float, start: Array) -> Array:
        return np.asarray(self.solver.penalised(np.full(1, fairness_weight), start[None]).parameters[0])

    @cached_property
    def path(self) -> Array:
        """The most useful offsets for several prices of disparity, ascending, (prices, groups - 1).

        Each is searched from those of the next higher price.
        """
        plain = self.solver.measure(np.zeros((1, self.model.size)))
        unit = abs(float(plain.utility[0])) / max(float(squared(plain.disparity)[0]), 1e-12)
        descending = [self.model.first]
        for price in (*(unit * np.array(PRICES[::-1])), 0.0):
            descending.append(self._priced(float(price), descending[-1]))
        return np.stack(descending[::-1])

    def fairest(self, min_utility: float) -> Array:
        """Return the fairest offsets that keep a share of the best utility on these clicks."""
        return np.asarray(fairest(self.solver, min_utility).parameters[0])

    def below(self, limit: float) -> Array:
        """Return the offsets of the highest utility below a limit on these clicks."""
        solution = most_useful(self.solver, limit)
        if not solution.held.any():
            lowest = float(np.sqrt(squared(solution.measured.disparity)).min())
            problem = f"no offsets leave so little disparity; the least found is {lowest:.3g}"
            raise InputError(problem, column="max_disparity", value=limit)
        return np.asarray(solution.parameters[0])

    def promised(self, limit: float, confidence: float) -> Array:
        """Return offsets whose disparity on new queries is below a limit, with confidence.

        Of the most useful offsets at ascending prices of disparity, the first that keep it are chosen.
        """
        _, disparity = estimates_of(self.task, self.scores(self.path))
        high = root_bounds(disparity, len(self.path), confidence)[1]
        below = np.flatnonzero(high <= limit)
        if not below.size:
            raise UnsupportedLimitError(limit, confidence, float(high.min()))
        return np.asarray(self.path[below[0]])


def named_offsets(data: RankingDataset, parameters: Array) -> dict[str, float]:
    """Return the offset of each group by its name; that of the first is 0."""
    return dict(zip(data.group_names, [0.0, *parameters.tolist()], strict=True))
