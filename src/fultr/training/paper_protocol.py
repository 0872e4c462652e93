"""Training as the paper does it: REINFORCE over batches of impressions, with early stopping on validation.

Each step goes uphill on

    (U - lambda sum_{i<j} 2 Dbar_ij D_ij) / (1 + lambda) + gamma H - l2 / 2 |theta|^2,

where U, D and the mean entropy H of Softmax(h) are those of a batch, U and D from S sampled rankings of each
list, and Dbar is the disparity averaged over the last impressions. `fultr.training.solving` maximises the
same objective with exact gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import finite_number, whole_number
from fultr.data import ClickLog, RankingDataset
from fultr.errors import InputError
from fultr.training.checkpoints import BoundCheckpoints, Checkpoints, nothing_kept
from fultr.training.goals import squared
from fultr.training.impressions import Impressions
from fultr.training.models import LinearModel, Model
from fultr.training.objective import Objective
from fultr.training.paper_steps import PAPER, Ascent, PaperSettings, move_by_adam, move_by_momentum
from fultr.training.solving import StepReached, Watcher
from fultr.training.task import Task, Weighing

Array = NDArray[np.float64]

RANKINGS_OF_STEP = 2
"""Says, in a seed, what the random numbers are for."""


@dataclass(frozen=True, eq=False)
class PaperResult:
    """The best parameters on validation, and how training went.

    Parameters
    ----------
    parameters
        In the order of `Model.initial`.
    steps, validations
        How many there were.
    best_value
        U - lambda sum_{i<j} D_ij^2 of these parameters on the validation task.
    stopped_early
        Whether training ended because validation gained no more, not because it had its most steps.
    """

    parameters: Array
    steps: int
    validations: int
    best_value: float
    stopped_early: bool


def train_as_paper(
    source: ClickLog | RankingDataset,
    weighing: Weighing,
    model: Model,
    *,
    fairness_weight: float,
    l2: float,
    valid: Task,
    seed: int = 0,
    settings: PaperSettings = PAPER,
    checkpoints: Checkpoints = nothing_kept,
    stage: str = "paper",
    watch: Watcher | None = None,
) -> PaperResult:
    """Train a scorer by the paper's own protocol.

    Parameters
    ----------
    source
        The training impressions: a log, not its counts; or labelled lists, each taken as one impression.
    weighing
        How clicks become evidence, and what a position is worth.
    model
        Linear scorers are trained by SGD with momentum, all others by Adam. A module is trained in its
        evaluation mode: dropout would make training depend on torch's global random state.
    fairness_weight
        lambda.
    l2
        Weight decay: what |parameters|^2 / 2 costs.
    valid
        Where U - lambda sum_{i<j} D_ij^2 is computed, exactly, to see whether training still gains.
    seed
        Of the initial parameters, the order of impressions and the sampled rankings.
    settings
        The numbers of the protocol.
    checkpoints, stage
        Where training is kept at each validation, and under which name. Taken up again, it ends with the
        very same parameters; if it had ended, its result is returned at once.
    watch
        Called after each validation.

    Examples
    --------
    >>> from fultr import PositionBias
    >>> from fultr.training.scaling import Scaling
    >>> data = RankingDataset([[0.0], [1.0]], [0, 2], relevance=[0, 1])
    >>> weighing, model = Weighing(PositionBias.power(1.0)), LinearModel(data, Scaling.none(data))
    >>> valid, quick = Task.of(data, weighing), PaperSettings(validate_every=50, most_steps=100)
    >>> result = train_as_paper(
    ...     data, weighing, model, fairness_weight=0.0, l2=0.0, valid=valid, settings=quick
    ... )
    >>> result.steps, bool(result.parameters[0] > 0)
    (100, True)
    """
    whole_number(seed, "seed")
    weight, l2 = finite_number(fairness_weight, "fairness_weight"), finite_number(l2, "l2")
    impressions = Impressions.of(source, weighing)
    _check_width(model, source=impressions.data, valid=valid.data)
    ascent = Ascent(impressions, weighing, model, weight, l2, settings.samples)
    validation = Objective(valid, model.on(valid.data), np.zeros(1))
    problem = (impressions.content, weighing, model.content, weight, l2, valid.content, seed, settings)
    checkpoints = BoundCheckpoints(checkpoints, problem, model.initial(seed))
    progress, tensors = Progress.blank(seed, model, impressions.groups, settings), checkpoints.load(stage)
    if tensors is None:
        progress.fill_window(Task.of(source, weighing), model)
    else:
        progress = progress.taken_up(tensors)
    return _Training(ascent, validation, weight, seed, settings).run(progress, checkpoints, stage, watch)


def _check_width(model: Model, **given: RankingDataset) -> None:
    width = int(model.features.shape[1])
    for name, data in given.items():
        if data.features.shape[1] != width:
            problem = f"the model takes {width} features"
            raise InputError(problem, column=name, value=data.features.shape[1])


@dataclass(eq=False)
class Progress:
    """All that training has reached and needs to go on: no random state, since each step has its own seed.

    Parameters
    ----------
    parameters
        Those of the next step.
    memory
        What the optimiser remembers: one row of as many numbers for SGD, two for Adam.
    window
        (impressions, groups, groups) The disparities of the last impressions: that of impression n, counted
        over all steps, at n modulo their number.
    best_parameters, best_value
        The best on validation.
    entropy_weight
        gamma.
    step, validations, without_gain
        Steps taken, validations done, and how many of them, up to the last, gained nothing.
    """

    parameters: Array
    memory: Array
    window: Array
    best_parameters: Array
    entropy_weight: float
    step: int = 0
    validations: int = 0
    without_gain: int = 0
    best_value: float = -np.inf

    @classmethod
    def blank(cls, seed: int, model: Model, groups: int, settings: PaperSettings) -> Progress:
        """Begin with the initial parameters, and without disparities."""
        initial = model.initial(seed)
        return cls(
            initial.copy(),
            np.zeros((1 if isinstance(model, LinearModel) else 2, initial.size)),
            np.zeros((settings.window, groups, groups)),
            initial.copy(),
            settings.entropy_weight,
        )

    def fill_window(self, task: Task, model: Model) -> None:
        """Take all of the last impressions to have the exact disparity of this policy on a task."""
        objective = Objective(task, model.on(task.data), np.zeros(1))
        self.window[:] = objective.measure(self.parameters[None]).disparity

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return copies of everything by name, as a file of tensors can hold them."""
        return {entry.name: np.atleast_1d(getattr(self, entry.name)).copy() for entry in fields(self)}

    def taken_up(self, tensors: dict[str, NDArray[Any]]) -> Progress:
        """Return the progress that was kept; this one says what it must look like."""
        taken: dict[str, Any] = {}
        for name, mine in self.to_tensors().items():
            values = tensors.get(name)
            if values is None or (values.shape, values.dtype) != (mine.shape, mine.dtype):
                problem = "what was kept is of another training; remove it, or choose another stage"
                raise InputError(problem, column=name, value=None if values is None else values.shape)
            taken[name] = values.copy() if isinstance(getattr(self, name), np.ndarray) else values[0].item()
        return Progress(**taken)


@dataclass(frozen=True, eq=False)
class _Training:
    """The loop: steps up to the next validation, and what follows from it."""

    ascent: Ascent
    validation: Objective
    fairness_weight: float
    seed: int
    settings: PaperSettings

    def run(
        self,
        progress: Progress,
        checkpoints: Checkpoints,
        stage: str,
        watch: Watcher | None,
    ) -> PaperResult:
        """Train to the end."""
        while not self.ended(progress):
            self.advance(progress)
            reached = self.validate(stage, progress)
            checkpoints.save(stage, progress.to_tensors, finished=self.ended(progress))
            if watch is not None:
                watch(reached)
        return PaperResult(
            progress.best_parameters,
            progress.step,
            progress.validations,
            progress.best_value,
            stopped_early=progress.without_gain >= self.settings.patience,
        )

    def ended(self, progress: Progress) -> bool:
        """Say whether training has lost its patience or had its most steps."""
        out_of_patience = progress.without_gain >= self.settings.patience
        return out_of_patience or progress.step >= self.settings.most_steps

    def advance(self, progress: Progress) -> None:
        """Go on to the next validation."""
        settings = self.settings
        last = min(progress.step + settings.validate_every, settings.most_steps)
        steps = range(progress.step, last)
        # summed anew each time, so that rounding neither piles up nor depends on where training was taken up
        total = progress.window.sum(axis=0)
        for step, batch in zip(
            steps, self.ascent.impressions.batches(settings.batch_size, steps, self.seed), strict=True
        ):
            gradient, disparities = self.ascent.direction(
                progress.parameters,
                batch,
                total / settings.window,
                progress.entropy_weight,
                np.random.default_rng([self.seed, RANKINGS_OF_STEP, step]),
            )
            slots = np.arange(step * batch.size, (step + 1) * batch.size) % settings.window
            total += (disparities - progress.window[slots]).sum(axis=0)
            progress.window[slots] = disparities
            progress.step = step + 1
            self._move(progress, gradient)

    def _move(self, progress: Progress, gradient: Array) -> None:
        if len(progress.memory) == 1:
            move_by_momentum(progress.parameters, progress.memory, gradient, self.settings)
        else:
            move_by_adam(progress.parameters, progress.memory, gradient, progress.step, self.settings)

    def validate(self, stage: str, progress: Progress) -> StepReached:
        """Look whether there is a gain on validation, and lower the entropy bonus if there is none."""
        utility, disparity = self.validation.measure(progress.parameters[None])
        value = float(utility[0] - self.fairness_weight * squared(disparity)[0])
        progress.validations += 1
        if value > progress.best_value:
            progress.best_value, progress.best_parameters = value, progress.parameters.copy()
            progress.without_gain = 0
        else:
            progress.without_gain += 1
            progress.entropy_weight /= self.settings.entropy_divisor
        root = float(np.sqrt(squared(disparity)[0]))
        return StepReached(stage, progress.step, value, float(utility[0]), root)
