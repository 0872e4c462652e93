"""The exact training objective and its gradient over all lists, in blocks that bound the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.estimators import group_merit
from fultr.expectation.exact import Accuracy, Problems, exact_value_and_gradient, exact_values
from fultr.expectation.operation import tiled_offsets
from fultr.training.goals import Goal, Slopes
from fultr.training.models import Scores
from fultr.training.task import Task

Array = NDArray[np.float64]


class Measured(NamedTuple):
    """Utility, (configurations,), and disparity, (configurations, groups, groups), of policies."""

    utility: Array
    disparity: Array


class Objective:
    """U and D of the policies of a model on a task, the value of a goal, and its gradient.

    Parameters
    ----------
    task
        The lists and what is known of them.
    model
        The scorers, on the rows of the same lists.
    l2
        (configurations,) What |parameters|^2 / 2 costs.
    entropy_weight
        (configurations,) What the mean entropy of Softmax(h) is worth.
    accuracy
        Of expectations: see `fultr.expectation`.
    """

    def __init__(
        self,
        task: Task,
        model: Scores,
        l2: Array,
        entropy_weight: Array | None = None,
        accuracy: Accuracy = "single",
    ) -> None:
        self.task = task
        self.model = model
        self.l2 = l2
        self.entropy_weight = np.zeros_like(l2) if entropy_weight is None else entropy_weight
        self.accuracy = accuracy
        self._by_utility = task.utility.weight.numpy() / task.utility.total_impressions
        self._share = (task.utility.impressions / task.utility.total_impressions).numpy()
        self._merit = group_merit(task.disparity).numpy()

    def measure(self, parameters: Array) -> Measured:
        """Return utility and disparity of each configuration, one row of parameters each."""
        return self._measure(parameters)[0]

    def value(self, goal: Goal, parameters: Array, which: NDArray[np.int64]) -> tuple[Array, Measured]:
        """Return the goal of some configurations, without the cost of large parameters: to be maximised."""
        measured, entropy = self._measure(parameters, which)
        return self._regularised(goal(*measured).value, entropy, parameters, which), measured

    def gradient(self, goal: Goal, parameters: Array, which: NDArray[np.int64], measured: Measured) -> Array:
        """Return the derivative of `value` by the parameters, where U and D are known."""
        slopes = goal(*measured)
        found = -self.l2[which, None] * parameters
        for lists, rows in self._blocks(parameters.shape[0]):
            traced, pull_back = self.model.trace(parameters, rows)
            scores = traced.astype(np.float64)
            by_score = self._by_score(scores, lists, rows, slopes)
            if self.entropy_weight[which].any():
                entropy, slope = softmax_entropies(
                    scores, self.task.data.offsets[lists.start : lists.stop + 1]
                )
                del entropy
                weight = np.repeat(self._share[lists], self.task.data.lengths[lists])
                by_score += self.entropy_weight[which, None] * weight * slope
            found += pull_back(by_score)
        return np.asarray(found)

    def _measure(self, parameters: Array, which: NDArray[np.int64] | None = None) -> tuple[Measured, Array]:
        count, groups = parameters.shape[0], self.task.groups
        utility, entropy = np.zeros(count), np.zeros(count)
        disparity = np.zeros((count, groups, groups))
        with_entropy = which is not None and bool(self.entropy_weight[which].any())
        for lists, rows in self._blocks(count):
            scores = self.model.scores(parameters, rows).astype(np.float64)
            found = exact_values(self._problems(scores, lists), self.task.tables, self.accuracy)
            expected = found.reshape(2, count, -1)
            utility += expected[0] @ self._by_utility[rows]
            disparity += self._disparity(expected[1], lists, rows)
            if with_entropy:
                inside = self.task.data.offsets[lists.start : lists.stop + 1]
                entropy += softmax_entropies(scores, inside)[0] @ self._share[lists]
        return Measured(utility, disparity), entropy

    def _regularised(
        self, value: Array, entropy: Array, parameters: Array, which: NDArray[np.int64]
    ) -> Array:
        cost = self.l2[which] * (parameters**2).sum(axis=1) / 2
        return np.asarray(value + self.entropy_weight[which] * entropy - cost)

    def _blocks(self, configurations: int) -> Iterator[tuple[slice, slice]]:
        """Yield lists that follow one another and their rows, as many as may be worked on together."""
        offsets, first = self.task.data.offsets, 0
        rows = max(1, self.model.entries_a_block // configurations)
        while first < offsets.size - 1:
            last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
            last = max(last, first + 1)
            yield slice(first, last), slice(int(offsets[first]), int(offsets[last]))
            first = last

    def _problems(self, scores: Array, lists: slice) -> Problems:
        inside = self.task.data.offsets[lists.start : lists.stop + 1]
        return Problems.of(scores.reshape(-1), tiled_offsets(inside - inside[0], scores.shape[0]))

    def _disparity(self, exposure: Array, lists: slice, rows: slice) -> Array:
        """Return what some lists add to D_ij: (1/|Q|) sum_q (M_j Exp_i - M_i Exp_j)."""
        groups, group = self.task.groups, self.task.data.group[rows]
        total = self.task.disparity.total_impressions
        merit = np.repeat(self._merit[lists], self.task.data.lengths[lists], axis=0)
        products = np.zeros((exposure.shape[0], groups, groups))
        for code in range(groups):
            mine = group == code
            products[:, code] = exposure[:, mine] @ merit[mine] / total
        return products - products.transpose(0, 2, 1)

    def _by_score(self, scores: Array, lists: slice, rows: slice, slopes: Slopes) -> Array:
        count, size = scores.shape
        upstream = np.empty((2, count, size))
        np.multiply(slopes.by_utility[:, None], self._by_utility[rows], out=upstream[0])
        upstream[1] = self._by_exposure(slopes.by_disparity, lists, rows)
        problems = self._problems(scores, lists)
        found = exact_value_and_gradient(problems, self.task.tables, upstream.reshape(2, -1), self.accuracy)
        return found[1].reshape(count, size)

    def _by_exposure(self, by_disparity: Array, lists: slice, rows: slice) -> Array:
        """Return the derivative by each item's exposure, (configurations, rows)."""
        evidence = self.task.disparity
        total = evidence.total_impressions
        of_groups = np.einsum("cij,lj->cli", by_disparity, self._merit[lists] / total)
        group, lengths = self.task.data.group[rows], self.task.data.lengths[lists]
        where = np.repeat(np.arange(lengths.size), lengths)
        padded = np.concatenate([of_groups, np.zeros((*of_groups.shape[:2], 1))], axis=2)
        return np.asarray(padded[:, where, group])


def softmax_entropies(scores: Array, offsets: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return H = -sum p log(p) of p = Softmax(h) for each list, and dH/dh = -p (log(p) + H) for each row."""
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    highest = np.maximum.reduceat(scores, starts, axis=1).repeat(lengths, axis=1)
    weights = np.exp(scores - highest)
    total = np.add.reduceat(weights, starts, axis=1).repeat(lengths, axis=1)
    share = weights / total
    logarithm = (scores - highest) - np.log(total)
    surprise = np.where(share > 0, share * logarithm, 0.0)
    entropy = -np.add.reduceat(surprise, starts, axis=1)
    return entropy, -(surprise + share * entropy.repeat(lengths, axis=1))


def measure(task: Task, model: Scores, parameters: Array, accuracy: Accuracy = "single") -> Measured:
    """Return utility and disparity of policies on a task, one row of parameters each."""
    objective = Objective(task, model, np.zeros(1), accuracy=accuracy)
    return stacked(map(objective.measure, [parameters] if model.together else parameters[:, None]))


def stacked(measured: Iterable[Measured]) -> Measured:
    """Return measures of one policy after another."""
    return Measured(*(np.concatenate(field) for field in zip(*measured, strict=True)))
