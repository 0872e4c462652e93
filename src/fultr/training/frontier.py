"""Sweeps over the fairness weight, and the frontier of utility and disparity they find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from fultr.training.candidates import CandidatePolicies
from fultr.training.checkpoints import Checkpoints, nothing_kept
from fultr.training.cross_fitting import CrossFit
from fultr.training.fair_ranker import FairRanker, train_all_as_paper
from fultr.training.goals import Penalised, squared
from fultr.training.overlap import training_evidence
from fultr.training.preparation import Prepared
from fultr.training.solving import Watcher
from fultr.training.sources import source_of

FAIRNESS_WEIGHTS = (0.0, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The paper's."""


@dataclass(frozen=True)
class FrontierPoint:
    """One trained policy: its settings, and its utility and disparity on training and validation clicks.

    Parameters
    ----------
    fairness_weight
        lambda.
    l2
        What moving away from the most useful policy cost; or large parameters, where that was a single
        number or the policy has offsets.
    temperature
        What scores are divided by; 1 where `l2` was a single number.
    fairness
        "training" or "offsets".
    seed
        Of the initial parameters.
    train_utility, train_disparity
        On the training clicks; the disparity is sqrt(sum of D_ij^2), |D| for two groups.
    valid_utility, valid_disparity
        On clicks that a policy was not trained on: the ones given, or those of each fold that was left out.
    chosen
        Whether it did best on these, of those with its fairness weight and seed.
    """

    fairness_weight: float
    l2: float
    temperature: float
    fairness: str
    seed: int
    train_utility: float
    train_disparity: float
    valid_utility: float
    valid_disparity: float
    chosen: bool


class Frontier(Displayed):
    """All candidates of a sweep, what each achieves, and the lower envelope of disparity over utility.

    Parameters
    ----------
    points
        All policies that were trained.
    candidates
        The same in that order.
    ranker
        An untrained ranker with the settings of the sweep.
    ready
        What it was trained on.
    evidence
        Identifies its impressions; see `training_evidence`.
    encoding
        What the policies make of features as they are given.
    """

    def __init__(
        self,
        points: Sequence[FrontierPoint],
        candidates: Sequence[CandidatePolicies],
        ranker: FairRanker,
        ready: Prepared,
        evidence: tuple[str, ...] | None = None,
        encoding: FeatureEncoding | None = None,
    ) -> None:
        self.points = tuple(points)
        self._policies = [(policies, number) for policies in candidates for number in range(len(policies))]
        self._ranker = ranker
        self._ready = ready
        self._evidence = evidence
        self._encoding = encoding

    @property
    def chosen(self) -> tuple[FrontierPoint, ...]:
        """The policies that stand for their fairness weight, by ascending weight."""
        chosen = [point for point in self.points if point.chosen]
        return tuple(sorted(chosen, key=lambda point: (point.fairness_weight, point.seed)))

    @property
    def non_dominated(self) -> tuple[FrontierPoint, ...]:
        """The lower envelope over fairness weights, costs, temperatures and offsets, the most useful first.

        No other candidate has both more utility and less disparity on validation clicks.
        """
        envelope, lowest = [], np.inf
        for point in sorted(self.points, key=lambda point: (-point.valid_utility, point.valid_disparity)):
            if point.valid_disparity < lowest:
                envelope.append(point)
                lowest = point.valid_disparity
        return tuple(envelope)

    @property
    def shown(self) -> tuple[FrontierPoint, ...]:
        """The policies to look at: those of the envelope, and those that stand for their fairness weight."""

        def order(point: FrontierPoint) -> tuple[Any, ...]:
            return point.fairness_weight, point.seed, not point.chosen, point.l2, point.fairness

        return tuple(sorted({*self.non_dominated, *self.chosen}, key=order))

    def select(self, *, max_disparity: float | None = None, min_utility: float | None = None) -> FairRanker:
        """Return the most useful policy under a limit, or the fairest that keeps a share of the utility.

        Both are judged on validation clicks; a share is one of the highest utility of the frontier.
        """
        if (max_disparity is None) == (min_utility is None):
            raise InputError("give either max_disparity or min_utility", column="select")
        if max_disparity is not None:
            checked_number(max_disparity, "max_disparity", "must be 0 or more", lambda got: got >= 0)
            self._ready.check_limit(max_disparity)
            fit = [point for point in self.points if point.valid_disparity <= max_disparity]
            if not fit:
                lowest = min(point.valid_disparity for point in self.points)
                problem = f"no policy of the sweep stays below it; the lowest is {lowest:.6g}"
                raise InputError(problem, column="max_disparity", value=max_disparity)
            nearest = np.inf
            for point in sorted(fit, key=lambda point: -point.valid_utility):
                policies, number = self._policy_of(point)
                most = self._ready.most_disparity(policies.training_scores(number))
                if most <= max_disparity:
                    return self.ranker(point)
                nearest = min(nearest, most)
            raise self._ready.unknown_merit(nearest, max_disparity)
        rule = "must be a share above 0 and at most 1"
        share = checked_number(min_utility, "min_utility", rule, lambda got: 0 < got <= 1)
        highest = max(point.valid_utility for point in self.points)
        # of a negative utility, such as an average rank, a share is more than the whole
        least = highest - (1 - share) * abs(highest)
        fit = [point for point in self.points if point.valid_utility >= least]
        return self.ranker(min(fit, key=lambda point: point.valid_disparity))

    def ranker(self, point: FrontierPoint) -> FairRanker:
        """Return the trained ranker of a point."""
        policies, number = self._policy_of(point)
        ranker: FairRanker = clone(self._ranker)
        ranker.set_params(fairness_weight=point.fairness_weight, fairness=point.fairness, seed=point.seed)
        if not policies.start.is_trained:
            ranker.set_params(l2=point.l2)
        ranker.training_evidence_ = self._evidence
        ranker.set_choice(self._ready, policies.choice(number))
        if self._encoding is not None:
            ranker.set_encoding(self._encoding)
        return ranker

    def _policy_of(self, point: FrontierPoint) -> tuple[CandidatePolicies, int]:
        return self._policies[self.points.index(point)]

    def rows(self) -> list[dict[str, Any]]:
        """Return all policies as plain values, with whether they are on the envelope."""
        envelope = set(self.non_dominated)
        return [{**vars(point), "non_dominated": point in envelope} for point in self.points]

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
        rows = self.rows()
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        return write_text(path, "\n".join(lines) + "\n")

    def to_json(self, path: str | Path) -> Path:
        """Write all policies as a list of objects."""
        return write_text(path, json.dumps(self.rows(), indent=1) + "\n")

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Any:
        """Draw the envelope of utility and disparity on validation clicks, and the same policies on others.

        All candidates are drawn as dots.

        To a file, PNG, SVG or PDF by the ending of `path`, which is returned; or on axes of matplotlib, new
        ones if `ax` is None, which are returned.
        """
        points = self.rows()
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
    fairness: str | Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    valid: Any = None,
    ranker: FairRanker | None = None,
    checkpoints: Checkpoints = nothing_kept,
    watch: Watcher | None = None,
    **settings: Any,
) -> Frontier:
    """Train a policy for every fairness weight and seed.

    Where the scorer allows it (a linear one does), all of them are trained together. As in `FairRanker`, each
    is judged on clicks that it was not trained on, and has the temperature that does best there. Every
    policy is a candidate; the envelope of the frontier has those that no other one beats.

    Parameters
    ----------
    X, valid
        As in `FairRanker.fit`.
    fairness_weights
        The lambdas; by default the paper's.
    l2
        Costs of large parameters to choose from for the most useful policy; or one, with which all policies
        are trained from nothing.
    fairness
        "training", "offsets", or both; by default that of the ranker. Offsets need the groups of items when
        they are ranked.
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
    # settings are checked with the largest weight: some are for utility alone
    base.set_params(fairness_weight=float(weights.max()), seed=int(seeds[0]))
    if l2 is not None:
        base.set_params(l2=l2)
    kinds = _kinds_of(fairness, base)
    base.set_params(fairness_weight=float(weights[0]))
    aside = None if valid is None else source_of(valid, reading=base.reading())
    source = source_of(X, reading=base.reading())
    evidence = training_evidence(source, aside)
    encoding, source, aside = base.encoded(source, aside)
    ready = base.prepare(source, aside)
    points: list[FrontierPoint] = []
    candidates: list[CandidatePolicies] = []
    for seed in seeds:
        if base.protocol == "paper":
            grid = [(float(weight), float(cost), int(seed)) for weight in weights for cost in ready.l2]
            of_seed: list[CandidatePolicies] = [train_all_as_paper(base, ready, grid, checkpoints, watch)[0]]
        else:
            fit = CrossFit(base, ready, checkpoints, watch, int(seed) if len(seeds) > 1 else None)
            of_seed = _train(fit, weights, kinds)
        points += _points(of_seed, int(seed))
        candidates += of_seed
    return Frontier(points, candidates, base, ready, evidence, encoding)


def _kinds_of(fairness: str | Sequence[str] | None, base: FairRanker) -> tuple[str, ...]:
    """Return how policies are to be made fair, and set the ranker to the one that asks for more."""
    given = base.fairness if fairness is None else fairness
    kinds = (given,) if isinstance(given, str) else tuple(given)
    if not kinds:
        raise InputError("give at least one", column="fairness")
    for kind in sorted(kinds, reverse=True):
        base.set_params(fairness=kind)
        base.check()
    return kinds


def _train(fit: CrossFit, weights: NDArray[np.float64], kinds: Sequence[str]) -> list[CandidatePolicies]:
    """Train a policy for every fairness weight, and every cost of large parameters, of each kind."""
    start, candidates = fit.start(), list[CandidatePolicies]()
    if weights.any():
        fit.is_within_noise(start)
    if "training" in kinds:
        models = fit.for_fairness(start) if weights.any() else start
        pairs = np.meshgrid(weights, models.costs, indexing="ij")
        candidates.append(fit.priced(models, *(grid.reshape(-1) for grid in pairs)))
    if "offsets" in kinds:
        candidates.append(fit.with_offsets_at(start if start.is_trained else fit.most_useful(), weights))
    return candidates


def _points(candidates: Sequence[CandidatePolicies], seed: int) -> list[FrontierPoint]:
    """Return what the candidates of one seed are and achieve; the best of each fairness weight is marked."""
    points, values = [], []
    for policies in candidates:
        train, valid = policies.measure(), policies.judge()
        values.append(Penalised(policies.fairness_weights)(*valid).value)
        disparities = np.sqrt(squared(train.disparity)), np.sqrt(squared(valid.disparity))
        points += [
            FrontierPoint(
                fairness_weight=float(policies.fairness_weights[number]),
                l2=float(policies.costs[number]),
                temperature=policies.total_temperature(number),
                fairness=policies.fairness,
                seed=seed,
                train_utility=float(train.utility[number]),
                train_disparity=float(disparities[0][number]),
                valid_utility=float(valid.utility[number]),
                valid_disparity=float(disparities[1][number]),
                chosen=False,
            )
            for number in range(len(policies))
        ]
    value = np.concatenate(values)
    best: dict[float, int] = {}
    for number, point in enumerate(points):
        first = best.setdefault(point.fairness_weight, number)
        if value[number] > value[first]:
            best[point.fairness_weight] = number
    return [replace(point, chosen=number in best.values()) for number, point in enumerate(points)]
