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
from fultr.policy.feature_encoding import FeatureEncoding
from fultr.results import Displayed, Tables, frame_of, to_plain
from fultr.training.checkpoints import Checkpoints, nothing_kept
from fultr.training.cross_fitting import CrossFit, Policies
from fultr.training.fair_ranker import FairRanker, train_all_as_paper
from fultr.training.goals import Penalised, squared
from fultr.training.objective import Measured
from fultr.training.overlap import training_evidence
from fultr.training.preparation import Prepared
from fultr.training.solving import Watcher
from fultr.training.sources import source_of

FAIRNESS_WEIGHTS = (0.0, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The paper's."""


@dataclass(frozen=True)
class FrontierPoint:
    """One trained policy: its settings, and its utility and disparity on training and validation clicks.

    `disparity` is sqrt(sum of D_ij^2), |D| for two groups. Validation clicks are those that a policy was not
    trained on: the ones given, or those of each fold that was left out. `l2` is what moving away from the
    most useful policy cost; or large parameters, where that was a single number. `chosen` marks, for each
    fairness weight and seed, the one that did best on validation clicks.
    """

    fairness_weight: float
    l2: float
    seed: int
    train_utility: float
    train_disparity: float
    valid_utility: float
    valid_disparity: float
    chosen: bool


class Frontier(Displayed):
    """What a sweep found: one policy for each fairness weight, and what each achieves.

    Parameters
    ----------
    points
        All policies that were trained.
    policies
        The same in that order, those of each seed together.
    ranker
        An untrained ranker with the settings of the sweep.
    ready
        What it was trained on.
    evidence
        By which its impressions are known again; see `training_evidence`.
    encoding
        What the policies make of features as they are given.
    """

    def __init__(
        self,
        points: Sequence[FrontierPoint],
        policies: Sequence[Policies],
        ranker: FairRanker,
        ready: Prepared,
        evidence: tuple[str, ...] | None = None,
        encoding: FeatureEncoding | None = None,
    ) -> None:
        self.points = tuple(points)
        self._policies = [(some, number) for some in policies for number in range(len(some))]
        self._ranker = ranker
        self._ready = ready
        self._evidence = evidence
        self._encoding = encoding

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
            self._ready.check_candidates(max_disparity)
            fit = [point for point in self.chosen if point.valid_disparity <= max_disparity]
            if not fit:
                lowest = min(point.valid_disparity for point in self.chosen)
                problem = f"no policy of the sweep stays below it; the lowest is {lowest:.6g}"
                raise InputError(problem, column="max_disparity", value=max_disparity)
            most = {}
            for point in fit:
                policies, number = self._policy_of(point)
                most[point] = policies.most_disparity(number)
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
        policies, number = self._policy_of(point)
        made: FairRanker = clone(self._ranker)
        made.set_params(fairness_weight=point.fairness_weight, seed=point.seed)
        if not policies.start.is_trained:
            made.set_params(l2=point.l2)
        made.training_evidence_ = self._evidence
        made.set_choice(self._ready, policies.choice(number))
        if self._encoding is not None:
            made.set_encoding(self._encoding)
        return made

    def _policy_of(self, point: FrontierPoint) -> tuple[Policies, int]:
        return self._policies[self.points.index(point)]

    def rows(self) -> list[dict[str, Any]]:
        """Return all policies as plain values."""
        return [dict(vars(point)) for point in self.points]

    def tables(self) -> Tables:
        """Return the policies that stand for their fairness weight, and all that were trained."""
        return {"chosen": [dict(vars(point)) for point in self.chosen], "all": self.rows()}

    def to_frame(self) -> pl.DataFrame:
        """Return all policies as a polars frame."""
        return frame_of(self.tables(), "all")

    def to_dict(self) -> dict[str, Any]:
        """Return all policies as plain values."""
        content: dict[str, Any] = to_plain({"policies": self.rows()})
        return content

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
    """Train a policy for every fairness weight and seed.

    Where the scorer allows it (a linear one does), all of them are trained together. As in `FairRanker`, each
    is judged on clicks that it was not trained on.

    Parameters
    ----------
    X, valid
        As in `FairRanker.fit`.
    fairness_weights
        The lambdas; by default the paper's.
    l2
        Costs of large parameters to choose from for the most useful policy; or one, with which all policies
        are trained from nothing.
    seeds
        Of the initial parameters; folds are drawn with the first.
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
    aside = None if valid is None else source_of(valid, reading=base.reading())
    source = source_of(X, reading=base.reading())
    evidence = training_evidence(source, aside)
    encoding, source, aside = base.encoded(source, aside)
    ready = base.prepare(source, aside)
    policies = [_train(base, ready, weights, int(seed), len(seeds) > 1, checkpoints, watch) for seed in seeds]
    points = [point for some in policies for point in _points(some)]
    return Frontier(points, policies, base, ready, evidence, encoding)


def _train(
    base: FairRanker,
    ready: Prepared,
    weights: NDArray[np.float64],
    seed: int,
    several_seeds: bool,
    checkpoints: Checkpoints,
    watch: Watcher | None,
) -> Policies:
    """Train a policy for every fairness weight and cost of large parameters."""
    if base.protocol == "paper":
        grid = [(float(weight), float(cost), seed) for weight in weights for cost in ready.l2]
        return train_all_as_paper(base, ready, grid, checkpoints, watch)[0]
    fit = CrossFit(base, ready, checkpoints, watch, seed if several_seeds else None)
    start = fit.start()
    if weights.any():
        fit.is_within_noise(start)
        start = fit.for_fairness(start)
    pairs = np.meshgrid(weights, start.costs, indexing="ij")
    return fit.trained(start, *(grid.reshape(-1) for grid in pairs))


def _points(policies: Policies) -> list[FrontierPoint]:
    weights = policies.fairness_weights
    train, valid = policies.measure(), policies.judge()
    value = Penalised(weights)(*valid).value
    best: dict[float, int] = {}
    for number, weight in enumerate(weights):
        if weight not in best or value[number] > value[best[weight]]:
            best[weight] = number
    kept = set(best.values())

    def disparity(measured: Measured) -> NDArray[np.float64]:
        return np.sqrt(squared(measured.disparity))

    return [
        FrontierPoint(
            fairness_weight=float(weights[number]),
            l2=float(policies.costs[number]),
            seed=policies.fit.seed,
            train_utility=float(train.utility[number]),
            train_disparity=float(disparity(train)[number]),
            valid_utility=float(valid.utility[number]),
            valid_disparity=float(disparity(valid)[number]),
            chosen=number in kept,
        )
        for number in range(weights.size)
    ]
