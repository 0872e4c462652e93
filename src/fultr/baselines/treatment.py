"""Disparity of treatment within single queries, as Singh and Joachims (2019) define it, to be trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fultr.data import ClickLog, RankingDataset, Source
from fultr.data.grouping import group_numbers, group_rows, mixed
from fultr.data.ids import codes_of
from fultr.estimators.evidence import Candidates
from fultr.expectation.exact import Accuracy, exact_value_and_gradient, exact_values
from fultr.training.goals import Slopes
from fultr.training.impressions import Impressions
from fultr.training.models import Scores
from fultr.training.objective import Objective
from fultr.training.solving import Solver
from fultr.training.task import Task, Weighing

Array = NDArray[np.float64]

ROUNDING = 1e-9
"""Average merits that differ by less than this part of them are the same."""

WIDTHS = (0.1, 0.01, 0.001)
"""How far the corner of max(0, x) is rounded off, in units of the mean of 1 / M, one search after another."""


@dataclass(frozen=True, eq=False)
class Comparisons:
    """The pairs of groups to compare in each impression; equal ones of a list are counted together.

    Parameters
    ----------
    candidates
        The list and the group of each row.
    lists
        (comparisons,) The list, ascending.
    higher, lower
        (comparisons,) The group of the higher average merit, and the other.
    higher_merit, lower_merit
        (comparisons,) The merit of their items, summed.
    share
        (comparisons,) The share of all impressions that are alike in this.
    """

    candidates: Candidates
    lists: Tensor
    higher: Tensor
    lower: Tensor
    higher_merit: Tensor
    lower_merit: Tensor
    share: Tensor

    def of_lists(self, lists: slice) -> Comparisons:
        """Return the comparisons in lists that follow one another."""
        edges = torch.tensor([lists.start, lists.stop])
        first, last = torch.searchsorted(self.lists, edges).tolist()
        names = ("higher", "lower", "higher_merit", "lower_merit", "share")
        return replace(
            self,
            candidates=self.candidates[torch.arange(lists.start, lists.stop)],
            lists=self.lists[first:last] - lists.start,
            **{name: getattr(self, name)[first:last] for name in names},
        )

    @property
    def scale(self) -> float:
        """What a unit of exposure amounts to: the mean of 1 / merit over all that is compared."""
        total = float(self.share.sum())
        inverse = (1 / self.higher_merit + 1 / self.lower_merit) / 2
        return float(self.share @ inverse) / total if total > 0 else 1.0


def compare_groups(source: Source, weighing: Weighing, data: RankingDataset) -> Comparisons:
    """Take the merit of groups from each impression by itself, or from the relevance of labelled lists.

    Parameters
    ----------
    source
        A log of single impressions, or labelled lists.
    weighing
        How clicks become merit.
    data
        The lists that are ranked: those of the source, or those that its compaction leaves.
    """
    impressions = Impressions.of(source, weighing)
    everything = next(impressions.cut(np.arange(len(impressions)), len(impressions)))
    candidates = Candidates.of(data)
    lists = lists_of_counts(source) if isinstance(source, ClickLog) else impressions.lists
    sizes = candidates.sum_by_group(torch.ones(candidates.rows)).numpy().astype(np.float64)[lists]
    found = [
        _pairs(lists, everything.merit, sizes, higher, lower)
        for higher, lower in permutations(range(candidates.groups), 2)
    ]
    columns = np.concatenate([np.empty((5, 0)), *found], axis=1)
    kinds, count = np.unique(columns, axis=1, return_counts=True)
    where, higher, lower, higher_merit, lower_merit = torch.from_numpy(np.ascontiguousarray(kinds))
    share = torch.from_numpy(count / len(impressions))
    return Comparisons(
        candidates, where.long(), higher.long(), lower.long(), higher_merit, lower_merit, share
    )


def lists_of_counts(log: ClickLog) -> NDArray[np.int64]:
    """Return which list of its counts each impression of a log is of.

    Lists of the same documents are one there, in the order of their queries, lengths and hashed documents.
    """
    shown, number = np.unique(log.lists, return_inverse=True)
    data = log.data[shown]
    document = np.arange(data.rows) if data.doc_id is None else codes_of(data.doc_id)
    key = np.add.reduceat(mixed(document), data.offsets[:-1])
    return group_numbers(*group_rows(data.query_codes, data.lengths, key))[number]


def _pairs(lists: NDArray[np.int64], merit: Array, sizes: Array, higher: int, lower: int) -> Array:
    """Return list, groups and merits of the impressions in which one group has no less merit than another."""
    mine, other = merit[:, higher], merit[:, lower]
    no_less = mine * sizes[:, lower] >= other * sizes[:, higher] * (1 - ROUNDING)
    kept = no_less & (mine > 0) & (other > 0)
    number = int(kept.sum())
    return np.stack([lists[kept], np.full(number, higher), np.full(number, lower), mine[kept], other[kept]])


def treatment_disparity(exposure: Tensor, comparisons: Comparisons, width: float = 0.0) -> Tensor:
    """Return the mean over impressions of the disparity of treatment within each of them.

    D_ij(pi|q) = max(0, Exp_q(G_i|pi) / M_q(G_i) - Exp_q(G_j|pi) / M_q(G_j)) where M_q(G_i) >= M_q(G_j) > 0,
    and 0 for any other pair

    Exp_q(G|pi) and M_q(G) are the averages of exposure and merit over the items of the group in the list, so
    that the ratios are those of the sums. Only the group of higher merit can have too much exposure; of two
    groups of the same merit either can, and then both D_ij and D_ji may be above 0.

    From the items' `exposure` E[v], (..., rows), to (..., groups, groups). With a `width` the corner of
    max(0, x) is rounded off between 0 and there, to x^2 / (2 width), which lowers it by width / 2 at most.
    """
    groups = comparisons.candidates.groups
    exposed = comparisons.candidates.sum_by_group(exposure)
    excess = (
        exposed[..., comparisons.lists, comparisons.higher] / comparisons.higher_merit
        - exposed[..., comparisons.lists, comparisons.lower] / comparisons.lower_merit
    )
    beyond = (excess - width).clamp(min=0)
    if width:
        beyond = beyond + excess.clamp(0, width) ** 2 / (2 * width)
    pair = comparisons.higher * groups + comparisons.lower
    sums = exposed.new_zeros(*exposed.shape[:-2], groups**2)
    return sums.index_add(-1, pair, beyond * comparisons.share).reshape(*exposed.shape[:-2], groups, groups)


@dataclass(frozen=True, eq=False)
class Treated:
    """(U - lambda sum_ij D_ij) / (1 + lambda), for the disparities of treatment D_ij."""

    fairness_weight: Array

    def __call__(self, utility: Array, disparity: Array) -> Slopes:
        """Return its value and derivatives."""
        weight, share = self.fairness_weight, 1 / (1 + self.fairness_weight)
        value = (utility - weight * disparity.sum(axis=(1, 2))) * share
        return Slopes(value, share, np.ones_like(disparity) * -(weight * share)[:, None, None])

    def pick(self, which: NDArray[np.int64]) -> Treated:
        """Return the same for some of the configurations."""
        return Treated(self.fairness_weight[which])


class TreatmentObjective(Objective):
    """U and the disparities of treatment of the policies of a model on a task; see `Objective`.

    Parameters
    ----------
    comparisons
        The pairs of groups to compare in the lists of the task.
    width
        How far the corner of max(0, x) is rounded off.
    """

    def __init__(
        self,
        comparisons: Comparisons,
        task: Task,
        model: Scores,
        l2: Array,
        *,
        width: float = 0.0,
        accuracy: Accuracy = "single",
    ) -> None:
        super().__init__(task, model, l2, accuracy=accuracy)
        self.comparisons = comparisons
        self.width = width

    def _disparity(self, exposure: Array, lists: slice, rows: slice) -> Array:
        """Return what some lists add to the disparities of treatment."""
        del rows
        some = self.comparisons.of_lists(lists)
        return np.asarray(treatment_disparity(torch.from_numpy(exposure), some, self.width).numpy())

    def _by_score(self, scores: Array, lists: slice, rows: slice, slopes: Slopes) -> Array:
        count, size = scores.shape
        problems = self._problems(scores, lists)
        expected = exact_values(problems, self.task.tables[1:], self.accuracy).reshape(count, size)
        exposure = torch.from_numpy(expected).requires_grad_()
        disparity = treatment_disparity(exposure, self.comparisons.of_lists(lists), self.width)
        (by_exposure,) = torch.autograd.grad(disparity, exposure, torch.from_numpy(slopes.by_disparity))
        by_utility = slopes.by_utility[:, None] * self._by_utility[rows]
        upstream = np.stack([by_utility, by_exposure.numpy()]).reshape(2, -1)
        found = exact_value_and_gradient(problems, self.task.tables, upstream, self.accuracy)
        return found[1].reshape(count, size)


class TreatmentSolver(Solver):
    """Solve for the parameters of a model by utility and disparity of treatment; see `Solver`."""

    def __init__(self, comparisons: Comparisons, task: Task, model: Scores, l2: Array, seed: int) -> None:
        super().__init__(task, model, l2, seed=seed)
        self.comparisons = comparisons
        self.width = 0.0

    def treated(self, fairness_weight: Array) -> Array:
        """Maximise (U - lambda D) / (1 + lambda) - l2 |w|^2 / 2 for each configuration: one row each.

        D has a corner wherever the groups of an impression have their fair shares, which is where a large
        lambda leads. So the corners are rounded off, less and less.
        """
        found, goal = self.initial, Treated(fairness_weight)
        for width in WIDTHS:
            self.width = width * self.comparisons.scale
            found = self.maximise(f"width-{width:g}", goal, found)[0]
        return found

    def _objective(self, some: NDArray[np.int64], entropy_weight: float = 0.0) -> Objective:
        del entropy_weight
        return TreatmentObjective(self.comparisons, self.task, self.model, self.l2[some], width=self.width)
