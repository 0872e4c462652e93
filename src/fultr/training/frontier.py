"""Sweeps over the fairness weight, and the frontier of utility and disparity they find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone

from fultr.arguments import checked_number, number_array
from fultr.errors import InputError
from fultr.files import write_text
from fultr.plots import draw_frontier, frontier_on, new_axes
from fultr.training.checkpoints import Checkpoints, nothing_kept
from fultr.training.fair_ranker import FairRanker, paper_settings
from fultr.training.goals import Penalised, squared
from fultr.training.objective import Measured
from fultr.training.overlap import training_evidence
from fultr.training.paper_protocol import train_as_paper
from fultr.training.preparation import Prepared, prepare
from fultr.training.solving import Solver, Watcher
from fultr.training.sources import single_impressions, source_of

FAIRNESS_WEIGHTS = (0.0, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The paper's."""


@dataclass(frozen=True)
class FrontierPoint:
    """One trained policy: its settings, and its utility and disparity on training and validation clicks.

    `disparity` is sqrt(sum of D_ij^2), |D| for two groups. `chosen` marks, for each fairness weight and seed,
    the cost of large parameters (`l2`) that did best on validation clicks.
    """

    fairness_weight: float
    l2: float
    seed: int
    train_utility: float
    train_disparity: float
    valid_utility: float
    valid_disparity: float
    chosen: bool


class Frontier:
    """What a sweep found: one policy for each fairness weight, and what each achieves.

    Parameters
    ----------
    points
        All policies that were trained.
    parameters
        Their parameters, one row each.
    ranker
        An untrained ranker with the settings of the sweep.
    ready
        What it was trained on.
    evidence
        By which its impressions are known again; see `training_evidence`.
    """

    def __init__(
        self,
        points: Sequence[FrontierPoint],
        parameters: NDArray[np.float64],
        ranker: FairRanker,
        ready: Prepared,
        evidence: tuple[str, ...] | None = None,
    ) -> None:
        self.points = tuple(points)
        self.parameters = parameters
        self._ranker = ranker
        self._ready = ready
        self._evidence = evidence

    @property
    def chosen(self) -> tuple[FrontierPoint, ...]:
        """The policies that stand for their fairness weight, by rising weight."""
        kept = [point for point in self.points if point.chosen]
        return tuple(sorted(kept, key=lambda point: (point.fairness_weight, point.seed)))

    @property
    def non_dominated(self) -> tuple[FrontierPoint, ...]:
        """Those than which no other has both more utility and less disparity on validation clicks."""
        kept, lowest = [], np.inf
        for point in sorted(self.chosen, key=lambda one: (-one.valid_utility, one.valid_disparity)):
            if point.valid_disparity < lowest:
                kept.append(point)
                lowest = point.valid_disparity
        return tuple(kept)

    def select(self, *, max_disparity: float | None = None, min_utility: float | None = None) -> FairRanker:
        """Return the most useful policy under a limit, or the fairest that keeps a share of the utility.

        Both are judged on validation clicks; a share is one of the highest utility of the frontier.
        """
        if (max_disparity is None) == (min_utility is None):
            raise InputError("give either max_disparity or min_utility", column="select")
        if max_disparity is not None:
            checked_number(max_disparity, "max_disparity", "must be 0 or more", lambda got: got >= 0)
            fit = [point for point in self.chosen if point.valid_disparity <= max_disparity]
            if not fit:
                lowest = min(point.valid_disparity for point in self.chosen)
                problem = f"no policy of the sweep stays below it; the lowest is {lowest:.6g}"
                raise InputError(problem, column="max_disparity", value=max_disparity)
            most = {point: self._ready.most_disparity(self._parameters_of(point)) for point in fit}
            fit = [point for point in fit if most[point] <= max_disparity]
            if not fit:
                raise self._ready.unknown_merit(min(most.values()), max_disparity)
            return self.ranker(max(fit, key=lambda point: point.valid_utility))
        rule = "must be a share above 0 and at most 1"
        share = checked_number(min_utility, "min_utility", rule, lambda got: 0 < got <= 1)
        highest = max(point.valid_utility for point in self.chosen)
        # of a negative utility, such as an average rank, a share is more than the whole
        least = highest - (1 - share) * abs(highest)
        fit = [point for point in self.chosen if point.valid_utility >= least]
        return self.ranker(min(fit, key=lambda point: point.valid_disparity))

    def ranker(self, point: FrontierPoint) -> FairRanker:
        """Return the trained ranker of a point."""
        made: FairRanker = clone(self._ranker)
        made.set_params(fairness_weight=point.fairness_weight, l2=point.l2, seed=point.seed)
        made.training_evidence_ = self._evidence
        return made.take(self._ready, self._parameters_of(point), point.l2, point.fairness_weight)

    def _parameters_of(self, point: FrontierPoint) -> NDArray[np.float64]:
        return np.asarray(self.parameters[self.points.index(point)])

    def rows(self) -> list[dict[str, Any]]:
        """Return all policies as plain values."""
        return [dict(vars(point)) for point in self.points]

    def to_frame(self) -> pl.DataFrame:
        """Return all policies as a polars frame."""
        return pl.DataFrame(self.rows())

    def to_csv(self, path: str | Path) -> Path:
        """Write all policies as a table."""
        names = list(vars(self.points[0]))
        lines = [",".join(names)]
        lines += [",".join(str(row[name]) for name in names) for row in self.rows()]
        return write_text(path, "\n".join(lines) + "\n")

    def to_json(self, path: str | Path) -> Path:
        """Write all policies as a list of objects."""
        return write_text(path, json.dumps(self.rows(), indent=1) + "\n")

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Any:
        """Draw utility against disparity, on training and on validation clicks.

        To a file, PNG, SVG or PDF by the ending of `path`, which is returned; or on axes of matplotlib, new
        ones if `ax` is None, which are returned.
        """
        points = [dict(vars(point)) for point in self.chosen]
        if path is not None:
            if ax is not None:
                raise InputError("give a file or axes, not both", column="ax")
            return draw_frontier(points, path)
        axes = new_axes() if ax is None else ax
        frontier_on(axes, points)
        return axes

    def __repr__(self) -> str:
        weights = sorted({point.fairness_weight for point in self.points})
        return f"<Frontier: {len(self.points)} policies, {len(weights)} fairness weights>"


def sweep(
    X: Any,  # noqa: N803  as in fit
    *,
    fairness_weights: Sequence[float] = FAIRNESS_WEIGHTS,
    l2: float | Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    valid: Any = None,
    ranker: FairRanker | None = None,
    checkpoints: Checkpoints = nothing_kept,
    watch: Watcher | None = None,
    **settings: Any,
) -> Frontier:
    """Train a policy for every fairness weight, cost of large parameters and seed.

    Where the scorer allows it (a linear one does), all of them are trained together.

    Parameters
    ----------
    X, valid
        As in `FairRanker.fit`.
    fairness_weights
        The lambdas; by default the paper's.
    l2
        Costs of large parameters to choose from, for each lambda on validation clicks.
    seeds
        Of the initial parameters; the split by query is that of the first.
    ranker, settings
        A ranker with all other settings, or the settings themselves.
    """
    weights = number_array(fairness_weights, "fairness_weights").astype(np.float64).reshape(-1)
    if not weights.size or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("must be finite numbers, 0 or more", column="fairness_weights")
    if not len(seeds):
        raise InputError("give at least one", column="seeds")
    base: FairRanker = FairRanker(**settings) if ranker is None else clone(ranker).set_params(**settings)
    base.set_params(fairness_weight=float(weights[0]), seed=int(seeds[0]))
    if l2 is not None:
        base.set_params(l2=l2)
    impressions = base.needs_impressions
    aside = None if valid is None else source_of(valid, impressions=impressions)
    source = source_of(X, impressions=impressions)
    evidence = training_evidence(source, aside)
    ready = prepare(base, source, aside)
    grid = [
        (float(weight), float(cost), int(seed)) for seed in seeds for weight in weights for cost in ready.l2
    ]
    columns = [np.array(column) for column in zip(*grid, strict=True)]
    parameters = _train(base, ready, columns, checkpoints, watch)
    return Frontier(_points(ready, columns, parameters), parameters, base, ready, evidence)


def _train(
    base: FairRanker,
    ready: Prepared,
    columns: list[NDArray[Any]],
    checkpoints: Checkpoints,
    watch: Watcher | None,
) -> NDArray[np.float64]:
    weights, costs, seeds = columns
    if base.protocol == "paper":
        source = single_impressions(ready.source, "the paper's protocol")
        found = [
            train_as_paper(
                source,
                ready.weighing,
                ready.model,
                fairness_weight=float(weight),
                l2=float(cost),
                valid=ready.valid_task,
                seed=int(seed),
                checkpoints=checkpoints,
                settings=paper_settings(base),
                stage=f"paper-{number}",
                watch=watch,
            ).parameters
            for number, (weight, cost, seed) in enumerate(zip(weights, costs, seeds, strict=True))
        ]
        return np.stack(found)
    solver = Solver(
        ready.task,
        ready.model,
        costs,
        entropy_weight=base.entropy_weight or 0.0,
        seed=seeds,
        checkpoints=checkpoints,
        watch=watch,
    )
    early = ready.early_stopping
    return solver.penalised(weights, early).parameters


def _points(
    ready: Prepared, columns: list[NDArray[Any]], parameters: NDArray[np.float64]
) -> list[FrontierPoint]:
    weights, costs, seeds = columns
    train, valid = ready.measure_training(parameters), ready.measure_validation(parameters)
    value = Penalised(weights)(*valid).value
    best: dict[tuple[float, int], int] = {}
    for number, key in enumerate(zip(weights, seeds, strict=True)):
        if key not in best or value[number] > value[best[key]]:
            best[key] = number
    kept = set(best.values())

    def disparity(measured: Measured) -> NDArray[np.float64]:
        return np.sqrt(squared(measured.disparity))

    return [
        FrontierPoint(
            fairness_weight=float(weights[number]),
            l2=float(costs[number]),
            seed=int(seeds[number]),
            train_utility=float(train.utility[number]),
            train_disparity=float(disparity(train)[number]),
            valid_utility=float(valid.utility[number]),
            valid_disparity=float(disparity(valid)[number]),
            chosen=number in kept,
        )
        for number in range(weights.size)
    ]
