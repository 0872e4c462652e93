"""Cross-fitting: policies are judged on clicks that they were not trained on, then trained on all of them.

The log is cut into folds. Each configuration is trained once without each fold, which gives every item a
score from a policy that never saw its clicks, and once on everything. The scores of the left-out items say
what new queries will show of the policy trained on everything.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data import RankingDataset
from fultr.errors import FultrWarning, InputError
from fultr.evaluation.clustered import root_bounds
from fultr.evaluation.clusters import clusters_of
from fultr.training.checkpoints import Checkpoints
from fultr.training.goals import Penalised, squared
from fultr.training.growing import Grower, flattened
from fultr.training.limits import UnreachableLimitError, fairest, lowest_disparity, most_useful
from fultr.training.models import CentredModel, Model, ScaledScorer
from fultr.training.objective import Measured, measure, stacked
from fultr.training.offsets import (
    LEVEL,
    OffsetSearch,
    UnsupportedLimitError,
    best_temperature,
    check_supported,
    estimates_of,
    is_supported,
    measure_scores,
    named_offsets,
    spread_within,
)
from fultr.training.preparation import Prepared, has_two_groups
from fultr.training.solving import EARLY_STOPS, KeptStops, Solution, Solver, Watcher
from fultr.training.task import Task
from fultr.training.tree_model import TreeModel

if TYPE_CHECKING:
    from fultr.training.fair_ranker import FairRanker

Array = NDArray[np.float64]

FAIRNESS_WEIGHTS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
MOVING_COSTS = (1e-2, 1e-1, 1.0)
"""The fairness weights among which a limit with confidence is looked for, and the costs of moving away from
the most useful policy: of |delta|^2 / 2, in the unit of the utility."""

FEW_FAIRNESS_WEIGHTS, FEW_MOVING_COSTS = (0.0, 1.0, 10.0, 100.0), (1e-1,)
"""The same where configurations are trained one by one."""

LOWER_AIMS, FURTHER = 5, 1.1
"""How often training aims lower than a limit that unseen candidates could break, and by how many times what
they add beyond the limit."""

HIGHEST_PRICE = 30.0
"""The largest fairness weight that left-out clicks are judged by: the largest of the paper's."""


class Part(NamedTuple):
    """The log without one fold, or all of it.

    `left_out` marks the rows, of those that policies are judged on, that it says nothing of.
    """

    prefix: str
    task: Task
    model: Model
    left_out: NDArray[np.bool_]


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


def folds_of(data: RankingDataset, folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each row, at random.

    Lists of one query, and queries connected by documents that they share, are in one fold. Where nearly all
    queries are connected, documents are put into folds instead: lists are then trained on without those of
    the fold that is left out.
    """
    clusters = clusters_of(data)
    unit = clusters.of_list[data.list_of_row] if clusters.of_row is None else clusters.of_row
    names, index = np.unique(unit, return_inverse=True)
    if names.size < folds:
        problem = f"there are only {names.size} independent queries to put into folds; 0 leaves out none"
        raise InputError(problem, column="folds", value=folds)
    of_unit = np.random.default_rng(seed).permutation(names.size) % folds
    return np.asarray(of_unit[index.reshape(-1)])


class Policies:
    """Policies that were trained alike on each part of the log, one row of parameters each.

    Parameters
    ----------
    fit
        The parts, and what policies are judged on.
    start
        The scorers.
    parameters
        Those on each part, the first on everything.
    fairness_weights, costs
        Lambda, and what |parameters|^2 / 2 cost, of each policy.
    """

    def __init__(
        self,
        fit: CrossFit,
        start: Start,
        parameters: Sequence[Array],
        fairness_weights: Array,
        costs: Array,
    ) -> None:
        self.fit, self.start, self.parameters = fit, start, parameters
        self.fairness_weights, self.costs = fairness_weights, costs

    def __len__(self) -> int:
        return int(self.fairness_weights.size)

    def scores(self, number: int) -> Array:
        """Return the scores of the judged rows by a policy that did not see them."""
        one = [of_part[number : number + 1] for of_part in self.parameters]
        return np.asarray(self.fit.scores(self.start.models, one)[0])

    def judge(self) -> Measured:
        """Return utility and disparity on clicks that were not trained on; on all, if there are none."""
        if not self.fit.is_judged:
            return self.measure()
        return stacked(measure_scores(self.fit.judged, self.scores(number)) for number in range(len(self)))

    def measure(self) -> Measured:
        """Return utility and disparity on the training clicks."""
        return measure(self.fit.parts[0].task, self.start.models[0], self.parameters[0])

    def choice(self, number: int) -> Choice:
        """Return one of the policies, trained on everything."""
        scorer = self.start.models[0].scorer(self.parameters[0][number])
        left_out = self.scores(number) if self.fit.is_judged else None
        l2 = self.start.l2 if self.start.is_trained else float(self.costs[number])
        return Choice(scorer, {}, l2, float(self.fairness_weights[number]), left_out)

    def most_disparity(self, number: int) -> float:
        """Return the most that the disparity of a policy may be, whatever the merit of items never shown."""
        return self.fit.ready.most_disparity(self.start.models[0], self.parameters[0][number])


class CrossFit:
    """Trains configurations on all of the log and without each fold, and chooses among them.

    With validation clicks, policies are trained on all of the log once, and judged on those.

    Parameters
    ----------
    ranker
        The settings.
    ready
        What to train on.
    checkpoints, watch
        As for `Solver`.
    seed
        Of the initial parameters; by default that of the ranker, which the folds are always drawn with.
    """

    def __init__(
        self,
        ranker: FairRanker,
        ready: Prepared,
        checkpoints: Checkpoints,
        watch: Watcher | None,
        seed: int | None = None,
    ) -> None:
        self.ranker, self.ready, self.checkpoints, self.watch = ranker, ready, checkpoints, watch
        self.seed = ranker.seed if seed is None else seed
        self.judged, self.judged_model = ready.valid_task, ready.valid_model
        self.is_judged = ready.validated or ranker.folds > 0
        first = "" if seed is None else f"seed-{seed}-"
        rows = self.judged.data.rows
        self.parts = [Part(first, ready.task, ready.model, np.full(rows, ready.validated))]
        if ranker.folds and not ready.validated:
            fold = folds_of(ready.task.data, ranker.folds, ranker.seed)
            for number in range(ranker.folds):
                task = ready.task.with_rows(fold != number)
                model = ready.model.on(task.data)
                self.parts.append(Part(f"{first}fold-{number}-", task, model, fold == number))

    def choice(self) -> Choice:
        """Train as the settings ask for, and return the policy that was chosen."""
        ranker = self.ranker
        if ranker.is_promised:
            check_supported(self.judged)
            start = self.most_useful()
            if ranker.fairness == "offsets":
                return self.with_offsets(start)
            return self.with_confidence(self.for_fairness(start))
        start = self.start()
        asked = ranker.max_disparity is not None or ranker.min_utility is not None or ranker.weight > 0
        within_noise = asked and self.is_within_noise(start)
        if asked and not within_noise:
            start = self.for_fairness(start)
        if ranker.max_disparity is not None:
            policies, held = self._below(start, float(ranker.max_disparity))
        else:
            policies, held = self._trained(start, within_noise), None
        return policies.choice(self._best(policies, held))

    def start(self) -> Start:
        """Return what fairness is trained from: the most useful policy, or nothing where `l2` is one number.

        One number asks for the best parameters of an objective, and gets them.
        """
        if self.ready.l2.size > 1:
            return self.most_useful()
        models: Sequence[Model | CentredModel] = [part.model for part in self.parts]
        if self.grower is not None:
            models = self.grower.all_rounds(self._linear_with(self.ready.l2))
        return Start(models, self.ready.l2)

    @cached_property
    def grower(self) -> Grower | None:
        """What grows trees, if the scorers are made of them."""
        return Grower(self) if isinstance(self.judged_model, TreeModel) else None

    def most_useful(self) -> Start:
        """Choose l2, where to stop, and the temperature, by the utility of scores of left-out rows."""
        if self.grower is None:
            return self._least_costly([part.model for part in self.parts])
        linear = self._least_costly(self.grower.linear) if self.grower.linear else None
        flat = (
            None
            if linear is None
            else flattened(linear.models, spread_within(self.judged.data, linear.scores))
        )
        models, scores = self.grower.most_useful(flat)
        return Start(models, np.array(MOVING_COSTS), scores, 0.0 if linear is None else linear.l2)

    def for_fairness(self, start: Start) -> Start:
        """Return what is to be trained for fairness: of trees, with some that split on what matters to it."""
        return start if self.grower is None else start._replace(models=self.grower.for_fairness(start.models))

    def _least_costly(self, models: Sequence[Model]) -> Start:
        """Choose l2, where to stop, and the temperature, by the utility of scores of left-out rows."""
        costs, together = self.ready.l2, self.judged_model.together
        stops = () if together or costs.size == 1 else EARLY_STOPS
        parameters = []
        for part, model in zip(self.parts, models, strict=True):
            kept = KeptStops(stops)
            solver = self._solver(part, model, costs)
            solver.maximise("useful", Penalised(np.zeros(costs.size)), solver.initial, kept)
            parameters.append(kept.parameters)
        scores = self.scores(models, parameters)
        found = [best_temperature(self.judged, one) for one in scores]
        best = int(np.argmax([utility for _, utility in found]))
        temperature = found[best][0]
        centred = [
            CentredModel(model, of_part[best], temperature)
            for model, of_part in zip(models, parameters, strict=True)
        ]
        moving = np.array(MOVING_COSTS if together else FEW_MOVING_COSTS)
        return Start(centred, moving, scores[best] / temperature, float(costs[best // (len(stops) + 1)]))

    def _linear_with(self, l2: Array) -> list[CentredModel] | None:
        """Return the most useful linear scorers at one cost, on which trees are grown, if there are any."""
        models = [] if self.grower is None else self.grower.linear
        centred = []
        for part, model in zip(self.parts, models, strict=False):
            solver = self._solver(part, model, l2)
            found, _ = solver.maximise("useful", Penalised(np.zeros(1)), solver.initial)
            centred.append(CentredModel(model, found[0], 1.0))
        return centred or None

    def is_within_noise(self, start: Start) -> bool:
        """Say, also to the user, whether clicks cannot show any disparity of the most useful policy.

        Training would then chase noise, and could raise the true disparity.
        """
        if not (start.is_trained and has_two_groups(self.judged.data) and is_supported(self.judged)):
            return False
        _, found = estimates_of(self.judged, start.scores[None])
        if (np.abs(found.values) > found.reach(LEVEL) * found.errors).any():
            return False
        disparity = float(np.sqrt((found.values**2).sum()))
        line = (
            f"the disparity of the most useful policy on left-out clicks, {disparity:.3g}, is within its"
            " noise, so that these clicks cannot say what would be fairer; collect more, on more queries"
        )
        warnings.warn(line, FultrWarning, stacklevel=2)
        return True

    def trained(self, start: Start, fairness_weights: Array, costs: Array) -> Policies:
        """Train for fairness weights, each with its cost of large parameters, on every part."""
        parameters = [
            self._solver(part, model, costs).penalised(fairness_weights).parameters
            for part, model in zip(self.parts, start.models, strict=True)
        ]
        return Policies(self, start, parameters, fairness_weights, costs)

    def _trained(self, start: Start, within_noise: bool) -> Policies:
        """Train for the fairness weight of the settings, or for the fairest policy of some utility."""
        ranker, costs = self.ranker, start.costs
        if within_noise:
            return self.trained(start, np.zeros(1), costs[-1:])
        if ranker.min_utility is None:
            weight = ranker.weight
            return self.trained(start, np.full(costs.size, weight), costs)
        solver = self._solver(self.parts[0], start.models[0], costs)
        return self._on_folds(start, fairest(solver, float(ranker.min_utility)))

    def _below(self, start: Start, limit: float) -> tuple[Policies, NDArray[np.bool_]]:
        """Train under a limit, and aim lower until it holds whatever the merit of items never shown."""
        model, aim, most = start.models[0], limit, math.inf
        for turn in range(LOWER_AIMS):
            prefix = f"lower-{turn}-" if turn else ""
            solver = self._solver(self.parts[0], model, start.costs, prefix)
            solution = most_useful(solver, aim)
            if not solution.held.any():
                if turn:
                    break
                lowest = min(float(solution.root_disparity.min()), lowest_disparity(solver))
                raise UnreachableLimitError(limit, lowest)
            reached = np.array([self.ready.most_disparity(model, one) for one in solution.parameters])
            held = solution.held & (reached <= limit)
            if held.any():
                return self._on_folds(start, solution), held
            # what is unknown adds about as much again
            nearest = float(reached[solution.held].min())
            most, aim = min(most, nearest), aim - FURTHER * (nearest - limit)
            if aim <= 0:
                break
        raise self.ready.unknown_merit(most, limit)

    def _on_folds(self, start: Start, solution: Solution) -> Policies:
        """Return solutions on everything with policies of the same price of disparity on each fold.

        A policy under a limit is the best one without at the fairness weight that is its multiplier.
        """
        folds = [
            self._solver(part, model, start.costs).penalised(solution.multiplier).parameters
            for part, model in list(zip(self.parts, start.models, strict=True))[1:]
        ]
        return Policies(self, start, [solution.parameters, *folds], solution.multiplier, start.costs)

    def _best(self, policies: Policies, held: NDArray[np.bool_] | None) -> int:
        """Return the policy that does best on clicks not trained on, among those that hold the limit."""
        if len(policies) == 1:
            return 0
        held = np.ones(len(policies), dtype=bool) if held is None else held
        judged, prices, ranker = policies.judge(), policies.fairness_weights, self.ranker
        value, disparity = judged.utility, squared(judged.disparity)
        if ranker.max_disparity is not None:
            # what is above the limit counts at the highest price that any of them pays for disparity
            price = min(float(prices[held].max()), HIGHEST_PRICE)
            value = value - price * np.maximum(disparity - ranker.max_disparity**2, 0.0)
        elif ranker.min_utility is not None:
            # at the lowest price at which any of them gives up utility for disparity
            value = value - min(float(prices.min()), HIGHEST_PRICE) * disparity
        else:
            value = value - prices * disparity
        return int(np.where(held, value, -np.inf).argmax())

    def with_offsets(self, start: Start) -> Choice:
        """Make the most useful policy fair by one number for each group."""
        ranker, search = self.ranker, OffsetSearch(self.judged, start.scores)
        weight = 0.0
        if ranker.max_disparity is not None:
            limit = float(ranker.max_disparity)
            if ranker.confidence is None:
                offsets = search.below(limit)
            else:
                offsets = search.promised(limit, ranker.confidence)
        elif ranker.fairness_weight != 0 and self.is_within_noise(start):
            offsets = np.zeros(search.model.size)
        elif ranker.min_utility is not None:
            offsets = search.fairest(float(ranker.min_utility))
        else:
            weight = ranker.weight
            offsets = search.priced(weight)
        model = start.models[0]
        scorer = model.scorer(np.zeros(model.size))
        scores = search.scores(offsets[None])
        return Choice(scorer, named_offsets(self.judged.data, offsets), start.l2, weight, scores[0])

    def with_confidence(self, start: Start) -> Choice:
        """Train for fairness from the most useful policy on, and take what keeps the limit with confidence.

        Bounds of the disparity on new queries hold for all policies that are tried at once. Of those whose
        upper bound is below the limit, the one of the highest utility is taken.
        """
        limit, level = float(self.ranker.max_disparity or 0.0), float(self.ranker.confidence or LEVEL)
        prices = FAIRNESS_WEIGHTS if self.judged_model.together else FEW_FAIRNESS_WEIGHTS
        weights, costs = (grid.reshape(-1) for grid in np.meshgrid(prices, start.costs, indexing="ij"))
        policies = self.trained(start, weights, costs)
        scores = np.stack([policies.scores(number) for number in range(len(policies))])
        utility, disparity = estimates_of(self.judged, scores)
        high = root_bounds(disparity, weights.size, level)[1]
        if not (high <= limit).any():
            raise UnsupportedLimitError(limit, level, float(high.min()))
        return policies.choice(int(np.where(high <= limit, utility.values, -np.inf).argmax()))

    def _solver(self, part: Part, model: Model | CentredModel, costs: Array, prefix: str = "") -> Solver:
        return Solver(
            part.task,
            model,
            costs,
            entropy_weight=self.ranker.entropy_weight or 0.0,
            seed=self.seed,
            checkpoints=self.checkpoints,
            watch=self.watch,
            prefix=prefix + part.prefix,
        )

    def scores(self, models: Sequence[Model | CentredModel], parameters: Sequence[Array]) -> Array:
        """Return the scores of all rows by policies that did not see them, (policies, rows)."""
        data, found = self.judged.data, []
        for part, model, of_part in zip(self.parts, models, parameters, strict=True):
            if not part.left_out.any():
                found.append(np.zeros((of_part.shape[0], data.rows)))
                continue
            on_judged = model.on(data)
            turns = [of_part] if model.together else list(of_part[:, None])
            scores = np.concatenate([on_judged.scores(turn, slice(None)) for turn in turns])
            found.append(scores.astype(np.float64))
        return self.left_out(found)

    def left_out(self, scores: Sequence[Array]) -> Array:
        """Return for each row the score by the part that did not see it, of scores (policies, rows) by each.

        Their mean over a list is 0: scores of one list may come from policies of several folds, which agree
        only up to a constant.
        """
        data, found = self.judged.data, np.zeros_like(scores[0])
        for part, of_part in zip(self.parts, scores, strict=True):
            if part.left_out.any():
                mean = np.add.reduceat(of_part, data.offsets[:-1], axis=1) / data.lengths
                found[:, part.left_out] = (of_part - mean[:, data.list_of_row])[:, part.left_out]
        return found
