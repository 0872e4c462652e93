"""Growing trees on each part of a cross-fit: for utility, and then for what drives disparity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.policy.trees import Trees
from fultr.training.checkpoints import BoundCheckpoints
from fultr.training.goals import Penalised, squared
from fultr.training.lightgbm_trees import BinnedRows
from fultr.training.models import CentredModel, Model, Scores
from fultr.training.objective import Measured, Objective
from fultr.training.offset_search import best_temperature
from fultr.training.solving import StepReached
from fultr.training.task import Task
from fultr.training.tree_model import TreeModel
from fultr.training.tree_settings import TreeSettings

if TYPE_CHECKING:
    from fultr.training.cross_fitting import CrossFit
    from fultr.training.folds import Part

Array = NDArray[np.float64]

STOPS, STEP = (5, 10, 20, 40, 70, 100), 50
"""Rounds after which growing may stop, and how far apart the further ones are."""

LONGER, FURTHER = 2, 200
"""Growing goes on for this many times the best number of rounds so far, and for this many rounds more. On
scores of a linear policy, utility may fall for a hundred rounds before it rises above where it began."""

FAIRNESS_ROUNDS = 20
FAIRNESS_WEIGHTS = (1.0, 10.0)
"""Trees grown for each of these fairness weights, whose leaves are 0 in the most useful policy."""


class FreeScores(Scores):
    """Scores that are the parameters themselves: their gradient is d(goal)/d(score) of each row."""

    together = True
    entries_a_block = 1 << 19
    most_iterations = 0

    def __init__(self, rows: int) -> None:
        self.rows = rows

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.rows

    @property
    def content(self) -> list[Any]:
        """All that scores depend on besides the parameters and the features: nothing."""
        return [type(self).__name__, self.rows]

    def initial(self, seed: int) -> Array:
        """Return zeros."""
        del seed
        return np.zeros(self.rows)

    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (configurations, rows)."""
        return parameters[:, rows].astype(np.float32)

    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return the slopes of the rows, 0 for all others."""
        by_parameter = np.zeros_like(parameters)
        by_parameter[:, rows] = slopes
        return by_parameter


class ScoreSlopes:
    """d(U - lambda |D|^2)/d(score) / (1 + lambda) of each row of a task."""

    def __init__(self, task: Task, fairness_weight: float) -> None:
        self.objective = Objective(task, FreeScores(task.data.rows), np.zeros(1))
        self.goal = Penalised(np.full(1, fairness_weight))
        # without a price, disparity has no slope and need not be measured
        self.unpriced = (
            None if fairness_weight else Measured(np.zeros(1), np.zeros((1, task.groups, task.groups)))
        )

    def step_reached(self, stage: str, rounds: int, scores: Array) -> StepReached:
        """Return what some rounds have reached, for those who watch."""
        measured = self.objective.measure(scores[None])
        value, disparity = self.goal(*measured).value[0], np.sqrt(squared(measured.disparity)[0])
        return StepReached(stage, rounds, float(value), float(measured.utility[0]), float(disparity))

    def __call__(self, scores: Array) -> Array:
        """Return the slopes at some scores."""
        given = scores[None]
        measured = self.objective.measure(given) if self.unpriced is None else self.unpriced
        slopes = self.objective.gradient(self.goal, given, np.zeros(1, dtype=np.int64), measured)
        return np.asarray(slopes[0])


class PartGrower:
    """Grows trees on one part of the log, a stage of them at a time; each stage is a checkpoint.

    Parameters
    ----------
    fit, part, model
        What is trained, the part of it, and its family of trees.
    binned
        The rows of the part.
    linear
        The scorers that trees are grown on, if there are any.
    """

    def __init__(
        self, fit: CrossFit, part: Part, model: TreeModel, binned: BinnedRows, linear: CentredModel | None
    ) -> None:
        self.fit, self.part, self.model, self.binned = fit, part, model, binned
        self.stages: list[Trees] = []
        self.weights = np.zeros(0)
        self.scores, self.judged = np.zeros(model.data.rows), np.zeros(fit.folds.judged.data.rows)
        if linear is not None:
            start = linear.initial(0)
            self.weights = linear.moved(start) / linear.temperature
            self.scores += linear.scores(start[None], slice(None))[0]
            self.judged += linear.on(fit.folds.judged.data).scores(start[None], slice(None))[0]

    def grow_on(self, done: int, stop: int) -> None:
        """Grow for utility, from `done` rounds to `stop`."""
        trees = self.grown(f"trees-{stop}", self.scores, stop - done)
        self.stages.append(trees)
        self.scores += trees.scores(self.model.data.features)
        if self.part.left_out.any():
            self.judged += trees.scores(self.fit.folds.judged.data.features)

    def grown(self, stage: str, scores: Array, rounds: int, fairness_weight: float = 0.0) -> Trees:
        """Return trees grown on scores of the rows of the part."""
        fit, name = self.fit, f"{self.part.prefix}{stage}"
        problem = (self.part.task.content, self.model.content, scores, rounds, fairness_weight, fit.seed)
        checkpoints = BoundCheckpoints(fit.checkpoints, *problem)
        kept = checkpoints.load(name)
        if kept is not None:
            return Trees(**kept)
        slopes = ScoreSlopes(self.part.task, fairness_weight)
        seed = np.random.SeedSequence([fit.seed, *name.encode()]).generate_state(1)
        trees = self.binned.grow(lambda added: slopes(scores + added), rounds, int(seed[0]))
        checkpoints.save(name, trees.to_tensors, finished=True)
        if fit.watch is not None:
            fit.watch(slopes.step_reached(name, rounds, scores + trees.scores(self.model.data.features)))
        return trees

    def family(self, stages: int) -> TreeModel:
        """Return the family of the trees of the first stages."""
        return self.model.with_trees(Trees.joined(self.stages[:stages]), self.weights)


class Grower:
    """Grows the trees of all parts of a cross-fit, whose models are all of trees."""

    def __init__(self, fit: CrossFit) -> None:
        self.fit = fit
        self.models = [part.model for part in fit.folds.parts if isinstance(part.model, TreeModel)]
        self.linear = [model.linear for model in self.models if model.linear is not None]
        first = self.models[0]
        self.stops = stops_of(first.settings.rounds)
        whole = BinnedRows(first.data, first.blind, first.settings)
        self.binned = [whole, *(whole.of_rows(~part.left_out) for part in fit.folds.parts[1:])]

    def _parts(self, linear: Sequence[Model | CentredModel] | None) -> list[PartGrower]:
        begun = (
            [None for _ in self.models]
            if linear is None
            else [one for one in linear if isinstance(one, CentredModel)]
        )
        each = zip(self.fit.folds.parts, self.models, self.binned, begun, strict=True)
        return [PartGrower(self.fit, *one) for one in each]

    def all_rounds(self, linear: Sequence[Model | CentredModel] | None) -> list[TreeModel]:
        """Grow all rounds for utility."""
        parts = self._parts(linear)
        for part in parts:
            for done, stop in pairwise([0, *self.stops]):
                part.grow_on(done, stop)
        return [part.family(len(self.stops)) for part in parts]

    def most_useful(self, linear: Sequence[Model | CentredModel] | None) -> tuple[list[CentredModel], Array]:
        """Choose the number of rounds, and the temperature, by the utility of scores of left-out rows.

        With a linear policy, trees are grown on its scores, and none at all is one of the choices. The scores
        of left-out rows are returned, too.
        """
        parts = self._parts(linear)
        judges = [part for part in parts if part.part.left_out.any()]
        stops = [0, *self.stops]
        best = self._judged(0, parts) if linear is not None else _Stop(0, -np.inf, 1.0, np.zeros(0))
        for number, (done, stop) in enumerate(pairwise(stops), start=1):
            for part in judges:
                part.grow_on(done, stop)
            reached = self._judged(number, parts)
            best = reached if reached.utility > best.utility else best
            if stop >= LONGER * stops[best.number] + FURTHER:
                break
        for part in parts:
            for done, stop in pairwise(stops[len(part.stages) : best.number + 1]):
                part.grow_on(done, stop)
        models = [part.family(best.number) for part in parts]
        centred = [CentredModel(model, model.initial(0), best.temperature) for model in models]
        return centred, best.scores / best.temperature

    def _judged(self, number: int, parts: Sequence[PartGrower]) -> _Stop:
        scores = self.fit.folds.left_out([part.judged[None] for part in parts])[0]
        temperature, utility = best_temperature(self.fit.folds.judged, scores)
        return _Stop(number, utility, temperature, scores)

    def for_fairness(self, models: Sequence[Model | CentredModel]) -> list[TreeModel | CentredModel]:
        """Add trees that split on what drives disparity, whose leaves are 0 at first.

        Those grown for utility alone need not split on it, and then no values of their leaves are fair.
        """
        parts = self._parts(None)
        return [self._fairer(part, model) for part, model in zip(parts, models, strict=True)]

    def _fairer(self, part: PartGrower, model: Model | CentredModel) -> TreeModel | CentredModel:
        family = model.model if isinstance(model, CentredModel) else model
        if not isinstance(family, TreeModel):
            raise TypeError("only trees can be grown")
        scores = model.scores(model.initial(0)[None], slice(None))[0].astype(np.float64)
        grown = [
            part.grown(f"fairness-trees-{weight:g}", scores, FAIRNESS_ROUNDS, weight)
            for weight in FAIRNESS_WEIGHTS
        ]
        added = [replace(trees, value=np.zeros_like(trees.value)) for trees in grown]
        made = family.with_trees(Trees.joined([family.trees, *added]))
        if not isinstance(model, CentredModel):
            return made
        return CentredModel(made, made.initial(0), model.temperature)


def flattened(models: Sequence[Model | CentredModel], spread: float) -> list[Model | CentredModel]:
    """Return scorers whose scores deviate by at most 1 within lists, where they did by `spread`.

    The rankings of sharper ones hardly vary, so that they have no slopes left to grow trees along.
    """
    by = max(spread, 1.0)
    return [
        CentredModel(one.model, one.centre, one.temperature * by) if isinstance(one, CentredModel) else one
        for one in models
    ]


class _Stop(NamedTuple):
    """A number of stages to stop after: the utility of left-out scores, their temperature, and the scores."""

    number: int
    utility: float
    temperature: float
    scores: Array


def stops_of(rounds: int) -> list[int]:
    """Return the rounds after which growing may stop, the last one included."""
    further = range(STOPS[-1] + STEP, rounds, STEP)
    return [stop for stop in (*STOPS, *further) if stop < rounds] + [rounds]


def stages_of_growing(settings: TreeSettings) -> int:
    """Return in how many stages trees grow on each part: up to every stop, then for each fairness weight."""
    return len(stops_of(settings.rounds)) + len(FAIRNESS_WEIGHTS)
