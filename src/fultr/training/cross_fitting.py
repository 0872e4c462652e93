"""Cross-fitting: policies are judged on clicks that they were not trained on, then trained on all of them.

The log is cut into folds. Each configuration is trained once without each fold, which gives every item a
score from a policy that never saw its clicks, and once on everything. The scores of the left-out items say
what new queries will show of the policy trained on everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.evaluation.clustered import root_bounds
from fultr.evaluation.clusters import clusters_of
from fultr.training.checkpoints import Checkpoints
from fultr.training.goals import Penalised
from fultr.training.models import CentredModel, Model, ScaledScorer
from fultr.training.offsets import (
    LEVEL,
    Expected,
    OffsetSearch,
    UnsupportedLimitError,
    best_temperature,
    check_supported,
    estimates_of,
    expected_on_new_queries,
    named_offsets,
)
from fultr.training.preparation import Prepared
from fultr.training.solving import EARLY_STOPS, KeptStops, Solver, Watcher
from fultr.training.task import Task

if TYPE_CHECKING:
    from fultr.training.fair_ranker import FairRanker

Array = NDArray[np.float64]

L2 = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 10.0)
L2_ONE_BY_ONE = (1e-4, 1e-2, 1e-1)
"""Costs of large parameters to choose from, where configurations are trained together and where not. They
reach far up, since the temperature makes good the flatness of a strongly regularised policy."""

FAIRNESS_WEIGHTS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
MOVING_COSTS = (1e-2, 1e-1, 1.0)
"""The fairness weights among which a limit with confidence is looked for, and the costs of moving away from
the most useful policy: of |delta|^2 / 2, in the unit of the utility."""

FEW_FAIRNESS_WEIGHTS, FEW_MOVING_COSTS = (0.0, 1.0, 10.0, 100.0), (1e-1,)
"""The same where configurations are trained one by one."""


class Part(NamedTuple):
    """The log without one fold, or all of it.

    `left_out` marks the rows, of those that policies are judged on, that it says nothing of.
    """

    prefix: str
    task: Task
    model: Model
    left_out: NDArray[np.bool_]


class Base(NamedTuple):
    """The most useful policies: their parameters on each part, l2, temperature, and scores when left out."""

    parameters: list[Array]
    l2: float
    temperature: float
    scores: Array


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
    expected
        What new queries are expected to show of it.
    left_out_scores
        Of the rows it was judged on, by policies that did not see them.
    """

    scorer: ScaledScorer
    offsets: dict[str, float]
    l2: float
    fairness_weight: float
    expected: Expected
    left_out_scores: Array


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
        problem = f"there are only {names.size} independent queries to put into folds"
        raise InputError(problem, column="folds", value=folds)
    of_unit = np.random.default_rng(seed).permutation(names.size) % folds
    return np.asarray(of_unit[index.reshape(-1)])


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
    """

    def __init__(
        self, ranker: FairRanker, ready: Prepared, checkpoints: Checkpoints, watch: Watcher | None
    ) -> None:
        self.ranker, self.checkpoints, self.watch = ranker, checkpoints, watch
        self.judged, self.judged_model = ready.valid_task, ready.valid_model
        check_supported(self.judged)
        rows = self.judged.data.rows
        self.parts = [Part("", ready.task, ready.model, np.full(rows, ready.validated))]
        if not ready.validated:
            fold = folds_of(ready.task.data, ranker.folds, ranker.seed)
            for number in range(ranker.folds):
                task = ready.task.with_rows(fold != number)
                model = ready.model.on(task.data)
                self.parts.append(Part(f"fold-{number}-", task, model, fold == number))

    def most_useful(self) -> Base:
        """Choose l2, where to stop, and the temperature, by the utility of scores of left-out rows."""
        together = self.judged_model.together
        usual = L2 if together else L2_ONE_BY_ONE
        costs = np.asarray(usual if self.ranker.l2 is None else self.ranker.l2, dtype=np.float64).reshape(-1)
        stops = () if together or costs.size == 1 else EARLY_STOPS
        models = [part.model for part in self.parts]
        parameters = self._train("useful", models, Penalised(np.zeros(costs.size)), costs, stops)
        scores = self._scores(models, parameters)
        found = [best_temperature(self.judged, one) for one in scores]
        best = int(np.argmax([utility for _, utility in found]))
        temperature = found[best][0]
        chosen = [of_part[best] for of_part in parameters]
        return Base(chosen, float(costs[best // (len(stops) + 1)]), temperature, scores[best] / temperature)

    def with_offsets(self, base: Base) -> Choice:
        """Make the most useful policy fair by one number for each group."""
        ranker, search = self.ranker, OffsetSearch(self.judged, base.scores)
        weight = 0.0
        if ranker.max_disparity is not None:
            limit = float(ranker.max_disparity)
            if ranker.confidence is None:
                offsets = search.below(limit)
            else:
                offsets = search.promised(limit, ranker.confidence)
        elif ranker.min_utility is not None:
            offsets = search.fairest(float(ranker.min_utility))
        else:
            weight = 1.0 if ranker.fairness_weight is None else float(ranker.fairness_weight)
            offsets = search.priced(weight)
        scorer = self.parts[0].model.scorer(base.parameters[0])
        scorer.temperature = base.temperature
        scores = search.scores(offsets[None])
        names = named_offsets(self.judged.data, offsets)
        return Choice(scorer, names, base.l2, weight, self._expected(scores), scores[0])

    def with_confidence(self, base: Base) -> Choice:
        """Train for fairness from the most useful policy on, and take what keeps the limit with confidence.

        Bounds of the disparity on new queries hold for all policies that are tried at once. Of those whose
        upper bound is below the limit, the one of the highest utility is taken.
        """
        limit, level = float(self.ranker.max_disparity or 0.0), float(self.ranker.confidence or LEVEL)
        together = self.judged_model.together
        prices = FAIRNESS_WEIGHTS if together else FEW_FAIRNESS_WEIGHTS
        moving = MOVING_COSTS if together else FEW_MOVING_COSTS
        weights, costs = (grid.reshape(-1) for grid in np.meshgrid(prices, moving, indexing="ij"))
        models = [
            CentredModel(part.model, centre, base.temperature)
            for part, centre in zip(self.parts, base.parameters, strict=True)
        ]
        # the goal is divided by 1 + lambda, so that the cost is, too
        parameters = self._train("fair", models, Penalised(weights), costs / (1 + weights), ())
        scores = self._scores(models, parameters)
        utility, disparity = estimates_of(self.judged, scores)
        high = root_bounds(disparity, weights.size, level)[1]
        if not (high <= limit).any():
            raise UnsupportedLimitError(limit, level, float(high.min()))
        best = int(np.where(high <= limit, utility.values, -np.inf).argmax())
        scorer = models[0].scorer(parameters[0][best])
        chosen = scores[best : best + 1]
        return Choice(scorer, {}, base.l2, float(weights[best]), self._expected(chosen), chosen[0])

    def _train(
        self,
        stage: str,
        models: Sequence[Model | CentredModel],
        goal: Penalised,
        l2: Array,
        stops: tuple[int, ...],
    ) -> list[Array]:
        """Return the parameters of every configuration, at every stop, on each part."""
        found = []
        for part, model in zip(self.parts, models, strict=True):
            solver = Solver(
                part.task,
                model,
                l2,
                entropy_weight=self.ranker.entropy_weight or 0.0,
                seed=self.ranker.seed,
                checkpoints=self.checkpoints,
                watch=self.watch,
                prefix=part.prefix,
            )
            kept = KeptStops(stops)
            solver.maximise(stage, goal, solver.initial, kept)
            found.append(kept.parameters)
        return found

    def _scores(self, models: Sequence[Model | CentredModel], parameters: Sequence[Array]) -> Array:
        """Return the scores of all rows by policies that did not see them, (policies, rows).

        Their mean over a list is 0: scores of one list may come from policies of several folds, which agree
        only up to a constant.
        """
        data = self.judged.data
        found = np.zeros((parameters[0].shape[0], data.rows))
        for part, model, of_part in zip(self.parts, models, parameters, strict=True):
            if part.left_out.any():
                on_judged = model.on(data)
                turns = [of_part] if model.together else list(of_part[:, None])
                scores = np.concatenate([on_judged.scores(turn, slice(None)) for turn in turns])
                scores = scores.astype(np.float64)
                mean = np.add.reduceat(scores, data.offsets[:-1], axis=1) / data.lengths
                found[:, part.left_out] = (scores - mean[:, data.list_of_row])[:, part.left_out]
        return found

    def _expected(self, scores: Array) -> Expected:
        return expected_on_new_queries(self.judged, scores, self.ranker.confidence or LEVEL)
