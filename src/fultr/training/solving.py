"""Training with exact gradients: L-BFGS on the objective of the whole training log.

Several configurations are trained at once where the model allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.expectation.exact import Accuracy
from fultr.training import lbfgs
from fultr.training.checkpoints import BoundCheckpoints, Checkpoints, digest_of, nothing_kept
from fultr.training.goals import Goal, Penalised, squared
from fultr.training.models import Scores
from fultr.training.objective import Measured, Objective, measure
from fultr.training.task import Task

Array = NDArray[np.float64]

TOLERANCE = 1e-6
"""The gain of a step, relative to the value, below which training has converged."""

WITHOUT_PRICE = 1e6
"""A fairness weight so large that utility does not count."""

ENTROPY_DECAY, LEAST_ENTROPY = 1 / 3, 1e-3
"""An entropy bonus is divided by 3 each time training has converged, as in the paper, and ends below this."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Trained parameters, one row for each configuration, and what they achieve on the training task.

    `multiplier` is the fairness weight at which the same policy is the best one without a limit; `held` says
    whether the limit, if there is one, holds.
    """

    parameters: Array
    measured: Measured
    multiplier: Array
    held: NDArray[np.bool_]
    iterations: NDArray[np.int64]

    @property
    def root_disparity(self) -> Array:
        """sqrt(sum of D_ij^2) of each configuration."""
        return np.sqrt(squared(self.measured.disparity))


@dataclass(frozen=True)
class StepReached:
    """What a step of training has reached, for watchers."""

    stage: str
    iterations: int
    value: float
    utility: float
    disparity: float


Watcher = Callable[[StepReached], None]

EARLY_STOPS = (10, 20, 40, 70)
"""Iterations after which training may stop early: networks that converge overfit."""


class KeptStops:
    """Keeps, of the parameters on the way to the end, those at every stop, to choose from later.

    Parameters
    ----------
    stops
        Iterations after which training may stop; none keeps the end alone.
    """

    def __init__(self, stops: tuple[int, ...]) -> None:
        self.stops = stops
        self.kept: list[Array] = []

    def keep(self, search: lbfgs.Search) -> None:
        """Keep the parameters of all stops and of the end."""
        self.kept.append(np.concatenate([search.marks, search.point[:, None]], axis=1))

    @property
    def parameters(self) -> Array:
        """(configurations x stops, size) The stops of a configuration stand together, its end last."""
        stops = np.concatenate(self.kept)
        return stops.reshape(-1, stops.shape[-1])


class Solver:
    """Solve for the parameters of a model on a task.

    Parameters
    ----------
    task, model
        What is known, and the scorers.
    l2
        What |parameters|^2 / 2 costs, one for each configuration.
    entropy_weight
        The bonus for the entropy of Softmax(h) at the start; it fades out as training converges.
    seed
        Of the initial parameters.
    checkpoints
        Where searches are kept, so that a stopped one can go on.
    watch
        Called as training goes on.
    prefix
        What the names of its stages begin with, by which checkpoints and watchers know them.
    """

    def __init__(
        self,
        task: Task,
        model: Scores,
        l2: Array,
        *,
        entropy_weight: float = 0.0,
        seed: int | NDArray[np.int64] = 0,
        checkpoints: Checkpoints = nothing_kept,
        watch: Watcher | None = None,
        prefix: str = "",
    ) -> None:
        self.prefix = prefix
        self.task = task
        self.model = model
        self.l2 = np.asarray(l2, dtype=np.float64)
        self.entropy_weight = entropy_weight
        self.seed = np.broadcast_to(np.asarray(seed, dtype=np.int64), self.l2.shape)
        self.checkpoints = checkpoints
        self.watch = watch
        self.accuracy: Accuracy = "single"

    @cached_property
    def _about(self) -> str:
        """The digest of the task and the model, where anything is kept of them."""
        return "" if self.checkpoints is nothing_kept else digest_of(self.task.content, self.model.content)

    @property
    def initial(self) -> Array:
        """The parameters from which training starts."""
        return np.stack([self.model.initial(int(seed)) for seed in self.seed])

    def penalised(
        self, fairness_weight: Array, points: Array | None = None, stage: str = "penalised"
    ) -> Solution:
        """Maximise U - lambda |D|^2 - l2 |w|^2 / 2 for each configuration, from some points on.

        It is divided by 1 + lambda, which keeps its slopes of one size.
        """
        weight = np.broadcast_to(np.asarray(fairness_weight, dtype=np.float64), self.l2.shape)
        points = self.initial if points is None else points
        scaled = copy(self)
        scaled.l2 = self.l2 / (1 + weight)
        moves = (weight > 0) | (not self.model.is_most_useful)
        iterations = np.zeros(weight.size, dtype=np.int64)
        parameters = points
        if moves.any():
            parameters, iterations = scaled.maximise(stage, Penalised(weight), points)
        parameters = np.where(moves[:, None], parameters, self.initial)
        return Solution(
            parameters,
            self.measure(parameters),
            multiplier=np.minimum(weight, WITHOUT_PRICE),
            held=np.ones(weight.size, dtype=bool),
            iterations=iterations,
        )

    def measure(self, parameters: Array, accuracy: Accuracy = "single") -> Measured:
        """Return utility and disparity of each configuration on the training task."""
        return measure(self.task, self.model, parameters, accuracy)

    def _shifts(self) -> list[NDArray[np.int64]]:
        """Return the configurations that are trained together."""
        everyone = np.arange(self.l2.size)
        return [everyone] if self.model.together else [everyone[number : number + 1] for number in everyone]

    def _objective(self, which: NDArray[np.int64], entropy_weight: float = 0.0) -> Objective:
        bonus = np.full(which.size, entropy_weight)
        return Objective(self.task, self.model, self.l2[which], bonus, accuracy=self.accuracy)

    def maximise(
        self, stage: str, goal: Goal, points: Array, stopped: KeptStops | None = None
    ) -> tuple[Array, NDArray[np.int64]]:
        """Return the best parameters for a goal, from the given ones on, and the steps it took."""
        stops = () if stopped is None else stopped.stops
        parameters, iterations = points.copy(), np.zeros(points.shape[0], dtype=np.int64)
        for number, which in enumerate(self._shifts()):
            for turn, bonus in enumerate(self._bonuses()):
                name = f"{self.prefix}{stage}-{number}-{turn}"
                objective = self._objective(which, bonus)
                search = self._search(name, goal.pick(which), objective, parameters[which], stops)
                parameters[which] = search.point
                iterations[which] += search.iterations
            if stopped is not None:
                stopped.keep(search)
        return parameters, iterations

    def _bonuses(self) -> list[float]:
        bonuses, bonus = [], self.entropy_weight
        while bonus > LEAST_ENTROPY:
            bonuses.append(bonus)
            bonus *= ENTROPY_DECAY
        return [*bonuses, 0.0]

    def _search(
        self, name: str, goal: Goal, objective: Objective, points: Array, stops: tuple[int, ...]
    ) -> lbfgs.Search:
        function = _Loss(goal, objective)
        problem = (goal, objective.l2, objective.entropy_weight, objective.accuracy, points, stops)
        checkpoints = BoundCheckpoints(self.checkpoints, self._about, problem)
        tensors = checkpoints.load(name)
        search = (
            lbfgs.start(function, points, len(stops))
            if tensors is None
            else lbfgs.Search.from_tensors(tensors, points, len(stops))
        )

        def after_step(reached: lbfgs.Search) -> None:
            checkpoints.save(name, reached.to_tensors, finished=not reached.running.any())
            if self.watch is not None:
                self.watch(function.step_reached(name, reached))

        return lbfgs.minimise(
            function,
            search,
            tolerance=TOLERANCE,
            most_iterations=self.model.most_iterations,
            marked=stops,
            after_step=after_step,
        )


class _Loss:
    """A goal of an objective, as something to minimise."""

    def __init__(self, goal: Goal, objective: Objective) -> None:
        self.goal = goal
        self.objective = objective
        self.last = Measured(np.zeros(1), np.zeros((1, 1, 1)))

    def value(self, points: Array, which: NDArray[np.int64]) -> tuple[Array, Any]:
        value, measured = self.objective.value(self.goal.pick(which), points, which)
        self.last = measured
        return -value, measured

    def gradient(self, points: Array, which: NDArray[np.int64], trace: Any) -> Array:
        return -self.objective.gradient(self.goal.pick(which), points, which, trace)

    def step_reached(self, stage: str, search: lbfgs.Search) -> StepReached:
        """Return what the first of the problems that moved last has reached."""
        return StepReached(
            stage,
            int(search.iterations.max()),
            float(-search.value.mean()),
            float(self.last.utility[0]),
            float(np.sqrt(squared(self.last.disparity)[0])),
        )
