"""Cross-fitting: policies are judged on clicks that they were not trained on, then trained on all of them.

The log is cut into folds. Each configuration is trained once without each fold, which gives every item a
score from a policy that never saw its clicks, and once on everything. The scores of the left-out items say
what new queries will show of the policy trained on everything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fultr.evaluation.clustered import root_bounds
from fultr.training.candidates import CandidatePolicies, Choice, OffsetPolicies, Start, TrainedPolicies
from fultr.training.checkpoints import Checkpoints
from fultr.training.folds import Folds, Part
from fultr.training.goals import Penalised, squared
from fultr.training.growing import Grower, flattened
from fultr.training.limits import UnreachableLimitError, fairest, lowest_disparity, most_useful
from fultr.training.models import CentredModel, Model
from fultr.training.offset_search import OffsetSearch, best_temperature, spread_within
from fultr.training.preparation import Prepared
from fultr.training.promises import (
    LEVEL,
    UnsupportedLimitError,
    check_supported,
    estimates_of,
    is_within_noise,
)
from fultr.training.solving import EARLY_STOPS, KeptStops, Solution, Solver, Watcher
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
        self.folds = Folds(ready, ranker.folds, ranker.seed, "" if seed is None else f"seed-{seed}-")

    def choice(self) -> Choice:
        """Train as the settings ask for, and return the policy that was chosen."""
        ranker = self.ranker
        if ranker.is_promised:
            check_supported(self.folds.judged)
            start = self.most_useful()
            if ranker.fairness == "offsets":
                return self.with_offsets(start)
            return self.with_confidence(self.for_fairness(start))
        start = self.start()
        if not self.is_fairness_asked:
            return self._best(self.priced(start, np.zeros(start.costs.size), start.costs))
        if self.is_within_noise(start):
            return self._best(self.priced(start, np.zeros(1), start.costs[-1:]))
        start = self.for_fairness(start)
        if ranker.max_disparity is not None:
            return self._best(*self._below(start, float(ranker.max_disparity)))
        if ranker.min_utility is not None:
            solver = self._solver(self.folds.parts[0], start.models[0], start.costs)
            return self._best(self._on_folds(start, fairest(solver, float(ranker.min_utility))))
        return self._best(self.priced(start, np.full(start.costs.size, ranker.weight), start.costs))

    @property
    def is_fairness_asked(self) -> bool:
        """Whether the settings ask for anything but utility."""
        ranker = self.ranker
        return ranker.max_disparity is not None or ranker.min_utility is not None or ranker.weight > 0

    def start(self) -> Start:
        """Return what fairness is trained from: the most useful policy, or nothing where `l2` is one number.

        One number asks for the best parameters of an objective, and gets them.
        """
        if self.ready.l2.size > 1:
            return self.most_useful()
        models: Sequence[Model | CentredModel] = [part.model for part in self.folds.parts]
        if self.grower is not None:
            models = self.grower.all_rounds(self._linear_with(self.ready.l2))
        return Start(models, self.ready.l2)

    @cached_property
    def grower(self) -> Grower | None:
        """What grows trees, if the scorers are made of them."""
        return Grower(self) if isinstance(self.folds.judged_model, TreeModel) else None

    def most_useful(self) -> Start:
        """Choose l2, where to stop, and the temperature, by the utility of scores of left-out rows."""
        if self.grower is None:
            return self._least_costly([part.model for part in self.folds.parts])
        linear = self._least_costly(self.grower.linear) if self.grower.linear else None
        flat = (
            None
            if linear is None
            else flattened(linear.models, spread_within(self.folds.judged.data, linear.scores))
        )
        models, scores = self.grower.most_useful(flat)
        return Start(models, np.array(MOVING_COSTS), scores, 0.0 if linear is None else linear.l2)

    def for_fairness(self, start: Start) -> Start:
        """Return what is trained for fairness; among trees, some are to split on what drives disparity."""
        return start if self.grower is None else start._replace(models=self.grower.for_fairness(start.models))

    def _least_costly(self, models: Sequence[Model]) -> Start:
        """Choose l2, where to stop, and the temperature, by the utility of scores of left-out rows."""
        costs, together = self.ready.l2, self.folds.judged_model.together
        stops = () if together or costs.size == 1 else EARLY_STOPS
        parameters = []
        for part, model in zip(self.folds.parts, models, strict=True):
            stopped = KeptStops(stops)
            solver = self._solver(part, model, costs)
            solver.maximise("useful", Penalised(np.zeros(costs.size)), solver.initial, stopped)
            parameters.append(stopped.parameters)
        scores = self.folds.scores(models, parameters)
        by_temperature = [best_temperature(self.folds.judged, of_policy) for of_policy in scores]
        best = int(np.argmax([utility for _, utility in by_temperature]))
        temperature = by_temperature[best][0]
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
        for part, model in zip(self.folds.parts, models, strict=False):
            solver = self._solver(part, model, l2)
            parameters, _ = solver.maximise("useful", Penalised(np.zeros(1)), solver.initial)
            centred.append(CentredModel(model, parameters[0], 1.0))
        return centred or None

    def is_within_noise(self, start: Start) -> bool:
        """Say, also to the user, whether clicks cannot show any disparity of the most useful policy."""
        return start.is_trained and is_within_noise(self.folds.judged, start.scores)

    def trained(self, start: Start, fairness_weights: Array, costs: Array) -> TrainedPolicies:
        """Train for fairness weights, each with its cost of large parameters, on every part."""
        parameters = [
            self._solver(part, model, costs).penalised(fairness_weights).parameters
            for part, model in zip(self.folds.parts, start.models, strict=True)
        ]
        return TrainedPolicies(self.folds, start, parameters, fairness_weights, costs)

    def priced(self, start: Start, fairness_weights: Array, costs: Array) -> TrainedPolicies:
        """Train for fairness weights, and choose each temperature anew if there was a choice before."""
        policies = self.trained(start, fairness_weights, costs)
        return policies.at_best_temperatures() if start.is_trained else policies

    def with_offsets_at(self, start: Start, fairness_weights: Array) -> OffsetPolicies:
        """Return the most useful policy with the offsets that are best for each fairness weight."""
        search = OffsetSearch(self.folds.judged, start.scores)
        offsets = np.stack([search.priced(float(weight)) for weight in fairness_weights])
        return OffsetPolicies(self.folds, start, search, offsets, fairness_weights)

    def _below(self, start: Start, limit: float) -> tuple[TrainedPolicies, NDArray[np.bool_]]:
        """Train under a limit, and aim lower until it holds whatever the merit of items never shown."""
        model, aim, most = start.models[0], limit, math.inf
        for turn in range(LOWER_AIMS):
            prefix = f"lower-{turn}-" if turn else ""
            solver = self._solver(self.folds.parts[0], model, start.costs, prefix)
            solution = most_useful(solver, aim)
            if not solution.held.any():
                if turn:
                    break
                lowest = min(float(solution.root_disparity.min()), lowest_disparity(solver))
                raise UnreachableLimitError(limit, lowest)
            on_all = TrainedPolicies(
                self.folds, start, [solution.parameters], solution.multiplier, start.costs
            )
            scores = [on_all.training_scores(number) for number in range(len(on_all))]
            reached = np.array([self.ready.most_disparity(of_policy) for of_policy in scores])
            held = solution.held & (reached <= limit)
            if held.any():
                return self._on_folds(start, solution), held
            # what is unknown adds about as much again
            nearest = float(reached[solution.held].min())
            most, aim = min(most, nearest), aim - FURTHER * (nearest - limit)
            if aim <= 0:
                break
        raise self.ready.unknown_merit(most, limit)

    def _on_folds(self, start: Start, solution: Solution) -> TrainedPolicies:
        """Return solutions on everything with policies of the same price of disparity on each fold.

        A policy under a limit is the best one without at the fairness weight that is its multiplier.
        """
        folds = [
            self._solver(part, model, start.costs).penalised(solution.multiplier).parameters
            for part, model in list(zip(self.folds.parts, start.models, strict=True))[1:]
        ]
        parameters = [solution.parameters, *folds]
        return TrainedPolicies(self.folds, start, parameters, solution.multiplier, start.costs)

    def _best(self, policies: CandidatePolicies, held: NDArray[np.bool_] | None = None) -> Choice:
        """Return the policy that does best on clicks not trained on, among those that hold the limit."""
        if len(policies) == 1:
            return policies.choice(0)
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
        return policies.choice(int(np.where(held, value, -np.inf).argmax()))

    def with_offsets(self, start: Start) -> Choice:
        """Make the most useful policy fair by one number for each group."""
        ranker, search = self.ranker, OffsetSearch(self.folds.judged, start.scores)
        weight = 0.0
        if ranker.max_disparity is not None and ranker.confidence is not None:
            offsets = search.promised(float(ranker.max_disparity), ranker.confidence)
        elif self.is_fairness_asked and self.is_within_noise(start):
            offsets = np.zeros(search.model.size)
        elif ranker.max_disparity is not None:
            offsets = search.below(float(ranker.max_disparity))
        elif ranker.min_utility is not None:
            offsets = search.fairest(float(ranker.min_utility))
        else:
            weight = ranker.weight
            offsets = search.priced(weight)
        return OffsetPolicies(self.folds, start, search, offsets[None], np.array([weight])).choice(0)

    def with_confidence(self, start: Start) -> Choice:
        """Train for fairness from the most useful policy on, and choose what keeps the limit with confidence.

        Bounds of the disparity on new queries hold for all policies that are tried at once. The most useful
        of those whose upper bound is below the limit is chosen.
        """
        limit, level = float(self.ranker.max_disparity or 0.0), float(self.ranker.confidence or LEVEL)
        prices = FAIRNESS_WEIGHTS if self.folds.judged_model.together else FEW_FAIRNESS_WEIGHTS
        weights, costs = (grid.reshape(-1) for grid in np.meshgrid(prices, start.costs, indexing="ij"))
        policies = self.trained(start, weights, costs)
        scores = np.stack([policies.scores(number) for number in range(len(policies))])
        utility, disparity = estimates_of(self.folds.judged, scores)
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
