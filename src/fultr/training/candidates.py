"""Trained policies among which one is chosen: those trained for fairness, and those made fair by offsets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.training.folds import Folds
from fultr.training.models import CentredModel, Model
from fultr.training.objective import Measured, stacked
from fultr.training.offset_search import (
    OffsetScores,
    OffsetSearch,
    best_temperature,
    measure_scores,
    named_offsets,
)
from fultr.training.scaling import ScaledScorer
from fultr.training.task import Task

Array = NDArray[np.float64]


class Start(NamedTuple):
    """What is trained for fairness: scorers on each part, and what |parameters|^2 / 2 may cost.

    `scores` are those of left-out rows by the most useful policies, from which training goes on, and `l2`
    what their parameters cost. Without scores, parameters are trained from nothing.
    """

    models: Sequence[Model | CentredModel]
    costs: Array
    scores: Array = np.empty(0)
    l2: float = 0.0

    @property
    def is_trained(self) -> bool:
        """Whether the scorers are the most useful ones already."""
        return self.scores.size > 0


class Choice(NamedTuple):
    """The policy that was chosen, trained on everything.

    Parameters
    ----------
    scorer
        From features to scores.
    offsets
        What is added to the scores of each group by its name; empty if nothing is.
    l2, fairness_weight
        Those it was trained with.
    left_out_scores
        Of the rows it was judged on, by policies that did not see them; None if there are no such rows.
    """

    scorer: ScaledScorer
    offsets: dict[str, float]
    l2: float
    fairness_weight: float
    left_out_scores: Array | None


class CandidatePolicies(ABC):
    """Policies of several fairness weights, each trained on all parts of the log.

    Parameters
    ----------
    folds
        The parts, and what policies are judged on.
    start
        The scorers.
    fairness_weights, costs, temperatures
        Of each policy: lambda, what |parameters|^2 / 2 cost, and what its scores are divided by.
    """

    fairness: str
    """How the policies were made fair: "training" or "offsets"."""

    def __init__(self, folds: Folds, start: Start, fairness_weights: Array, costs: Array) -> None:
        self.folds, self.start = folds, start
        self.fairness_weights, self.costs = fairness_weights, costs
        self.temperatures = np.ones(fairness_weights.size)

    def __len__(self) -> int:
        return int(self.fairness_weights.size)

    @abstractmethod
    def scores(self, number: int) -> Array:
        """Return the scores of the judged rows by a policy that did not see them."""

    @abstractmethod
    def training_scores(self, number: int) -> Array:
        """Return the scores of the training rows by a policy trained on all of them."""

    @abstractmethod
    def choice(self, number: int) -> Choice:
        """Return one of the policies, trained on everything."""

    def judge(self) -> Measured:
        """Return utility and disparity on clicks that were not trained on; on all, if there are none."""
        if not self.folds.is_judged:
            return self.measure()
        return self._measured(self.folds.judged, self.scores)

    def measure(self) -> Measured:
        """Return utility and disparity on the training clicks."""
        return self._measured(self.folds.parts[0].task, self.training_scores)

    def _measured(self, task: Task, scores: Callable[[int], Array]) -> Measured:
        return stacked(measure_scores(task, scores(number)) for number in range(len(self)))

    def total_temperature(self, number: int) -> float:
        """Return what the scores of the trained scorer are divided by."""
        model = self.start.models[0]
        given = model.temperature if isinstance(model, CentredModel) else 1.0
        return given * float(self.temperatures[number])


class TrainedPolicies(CandidatePolicies):
    """Policies whose parameters were trained for fairness.

    `parameters` are those on each part, the first on everything: a row for each policy.
    """

    fairness = "training"

    def __init__(
        self, folds: Folds, start: Start, parameters: Sequence[Array], fairness_weights: Array, costs: Array
    ) -> None:
        super().__init__(folds, start, fairness_weights, costs)
        self.parameters = parameters

    def at_best_temperatures(self) -> TrainedPolicies:
        """Return the same policies at the temperatures of the highest U - lambda |D|^2 on left-out clicks."""
        scaled = copy(self)
        scaled.temperatures = self.temperatures * [
            best_temperature(self.folds.judged, self.scores(number), float(weight))[0]
            for number, weight in enumerate(self.fairness_weights)
        ]
        return scaled

    def scores(self, number: int) -> Array:
        """Return the scores of the judged rows by a policy that did not see them."""
        of_policy = [of_part[number : number + 1] for of_part in self.parameters]
        scores = self.folds.scores(self.start.models, of_policy)[0]
        return np.asarray(scores / self.temperatures[number])

    def training_scores(self, number: int) -> Array:
        """Return the scores of the training rows by a policy trained on all of them."""
        scores = self.start.models[0].scores(self.parameters[0][number : number + 1], slice(None))[0]
        return np.asarray(scores.astype(np.float64) / self.temperatures[number])

    def choice(self, number: int) -> Choice:
        """Return one of the policies, trained on everything."""
        scorer = self.start.models[0].scorer(self.parameters[0][number])
        scorer.temperature *= float(self.temperatures[number])
        left_out = self.scores(number) if self.folds.is_judged else None
        l2 = self.start.l2 if self.start.is_trained else float(self.costs[number])
        return Choice(scorer, {}, l2, float(self.fairness_weights[number]), left_out)


class OffsetPolicies(CandidatePolicies):
    """The most useful policy with offsets, one row of them for each fairness weight."""

    fairness = "offsets"

    def __init__(
        self, folds: Folds, start: Start, search: OffsetSearch, offsets: Array, fairness_weights: Array
    ) -> None:
        super().__init__(folds, start, fairness_weights, np.full(fairness_weights.size, start.l2))
        self.search, self.offsets = search, offsets

    def scores(self, number: int) -> Array:
        """Return the scores of the judged rows by a policy that did not see them."""
        return np.asarray(self.search.scores(self.offsets[number : number + 1])[0])

    def training_scores(self, number: int) -> Array:
        """Return the scores of the training rows by a policy trained on all of them."""
        model = self.start.models[0]
        plain = model.scores(model.initial(0)[None], slice(None))[0].astype(np.float64)
        shifted = OffsetScores(self.folds.parts[0].task.data, plain)
        scores = shifted.scores(self.offsets[number : number + 1], slice(None))[0]
        return np.asarray(scores.astype(np.float64))

    def choice(self, number: int) -> Choice:
        """Return one of the policies, trained on everything."""
        model = self.start.models[0]
        offsets = named_offsets(self.folds.judged.data, self.offsets[number])
        weight = float(self.fairness_weights[number])
        return Choice(model.scorer(model.initial(0)), offsets, self.start.l2, weight, self.scores(number))
