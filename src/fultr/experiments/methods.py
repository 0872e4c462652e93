"""The methods that are compared, by name: each trains its policies, one for each trade-off, on a world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fultr.baselines import (
    ClickSVMRank,
    EquityOfAttention,
    ExposureLP,
    FairCo,
    LambdaRank,
    PGRank,
    PropensitySVMRank,
    fair_pg_rank_sweep,
)
from fultr.click_model import ClickNoise
from fultr.data import concatenate
from fultr.errors import InputError
from fultr.experiments.worlds import World
from fultr.training import FairRanker, sweep
from fultr.training.frontier import FAIRNESS_WEIGHTS
from fultr.training.preparation import L2_TOGETHER
from fultr.training.ranker import TrainableRanker

LAMBDAS = FAIRNESS_WEIGHTS
LAMBDAS_WITHIN_QUERIES = (0.0, 1.0, 10.0, 100.0, 1000.0)
"""Of Fair-PG-Rank: few impressions have clicks on both groups, so its mean disparity is small."""

LAMBDAS_OF_NETWORKS = (0.0, 0.03, 0.3, 3.0, 30.0)
"""Networks are trained one by one, and take most of the time."""

THETAS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.0)
GAINS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
ONLY = (0.0,)
"""Of a method that has one policy."""

NO_NOISE = ClickNoise()
"""So that a log's own noise is not corrected for."""

L2_OF_PAPER = 1e-3
"""One cost for the paper's protocol, which stops early and takes a minute for each policy."""

L2_OF_NETWORKS = (1e-4, 1e-2)
"""They stop early beside that, and need less of it."""

L2_OF_LINEAR = L2_TOGETHER
"""Those of `FairRanker` itself: strong ones too, since the temperature sharpens what they flatten."""

Policies = Iterator[tuple[float, TrainableRanker]]
"""The trade-off of each trained policy, and the policy."""


@dataclass(frozen=True)
class Method:
    """A way to learn rankings from clicks.

    Parameters
    ----------
    title
        How it is called in pictures and tables.
    train
        Makes its policies on a world, for some trade-offs.
    trade_offs
        What can be varied, from useful to fair: a fairness weight, a quality limit, a gain.
    knob
        What that is called.
    trained_on_labels
        Whether it learns from the true relevance of the training lists, which a log does not have.
    l2
        Costs of large parameters to choose from, if it has its own.
    """

    title: str
    train: Callable[[World, Sequence[float]], Policies]
    trade_offs: tuple[float, ...] = LAMBDAS
    knob: str = "lambda"
    trained_on_labels: bool = False
    l2: tuple[float, ...] | None = None


def _fultr(*, labelled: bool = False, corrected: bool = False, **settings: Any) -> Any:
    """Return the training of FULTR with some settings: a sweep over the fairness weight."""

    def train(world: World, weights: Sequence[float]) -> Policies:
        source, valid = _sources(world, labelled=labelled)
        front = sweep(
            source,
            valid=valid,
            fairness_weights=weights,
            seeds=[world.seed],
            position_bias=world.position_bias,
            noise=(world.noise or NO_NOISE) if corrected or world.always_corrected else NO_NOISE,
            l2=world.l2,
            top_k=world.top_k,
            **settings,
        )
        for point in front.chosen:
            yield point.fairness_weight, front.ranker(point)

    return train


def _sources(world: World, *, labelled: bool) -> tuple[Any, Any]:
    """Return what to train on, and what to choose policies by; None leaves out one part after the other.

    Of one cost there is nothing to choose, and nothing needs to be left out.
    """
    source: Any = world.train if labelled else world.log
    valid: Any = world.train_valid if labelled else world.valid
    if world.whole is None or (world.l2 is not None and len(world.l2) == 1):
        return source, valid
    return (concatenate([source, valid]) if labelled else world.whole), None


def _single(make: Callable[..., TrainableRanker], **settings: Any) -> Any:
    """Return the training of a method with one policy; what large parameters cost, each knows for itself."""

    def train(world: World, _trade_offs: Sequence[float]) -> Policies:
        ranker = make(position_bias=world.position_bias, seed=world.seed, **settings)
        yield 0.0, ranker.fit(world.log, valid=world.valid)

    return train


def _fair_pg_rank(*, ips: bool) -> Any:
    def train(world: World, weights: Sequence[float]) -> Policies:
        rankers = fair_pg_rank_sweep(
            world.log,
            weights,
            valid=world.valid,
            ips=ips,
            l2=world.l2,
            position_bias=world.position_bias,
            seed=world.seed,
        )
        yield from zip(weights, rankers, strict=True)

    return train


def _post_processed(make: Callable[..., Any], knob: str, **settings: Any) -> Any:
    """Return the training of a method in two steps: one regression serves all trade-offs."""

    def train(world: World, trade_offs: Sequence[float]) -> Policies:
        trained = None
        for value in trade_offs:
            ranker = make(
                **({knob: value} if knob else {}),
                position_bias=world.position_bias,
                l2=world.l2,
                seed=world.seed,
                **settings,
            )
            if trained is None:
                ranker.fit(world.log, valid=world.valid)
                trained = ranker
            else:
                ranker.copy_trained(trained)
            yield value, ranker

    return train


def _as_paper(world: World, weights: Sequence[float]) -> Policies:
    for weight in weights:
        ranker = FairRanker(
            weight,
            protocol="paper",
            l2=L2_OF_PAPER,
            position_bias=world.position_bias,
            noise=NO_NOISE,
            top_k=world.top_k,
            seed=world.seed,
        )
        yield weight, ranker.fit(world.log, valid=world.valid)


METHODS: dict[str, Method] = {
    "fultr": Method("FULTR-Linear", _fultr(), l2=L2_OF_LINEAR),
    "fultr-mlp": Method("FULTR-MLP", _fultr(model="mlp"), LAMBDAS_OF_NETWORKS, l2=L2_OF_NETWORKS),
    "fultr-corrected": Method("FULTR, noise-corrected", _fultr(corrected=True), l2=L2_OF_LINEAR),
    "fultr-paper": Method("FULTR-Linear, the paper's protocol", _as_paper, (0.1, 10.0)),
    "group-blind": Method("Group-blind", _fultr(group_blind=True), ONLY, l2=L2_OF_LINEAR),
    "no-ips": Method("No-IPS", _fultr(utility_ips=False, disparity_ips=False), l2=L2_OF_LINEAR),
    "utility-ips": Method("Utility-IPS", _fultr(disparity_ips=False), l2=L2_OF_LINEAR),
    "full": Method("Full-Linear", _fultr(labelled=True), trained_on_labels=True, l2=L2_OF_LINEAR),
    "full-mlp": Method(
        "Full-MLP",
        _fultr(labelled=True, model="mlp"),
        LAMBDAS_OF_NETWORKS,
        trained_on_labels=True,
        l2=L2_OF_NETWORKS,
    ),
    "pg-rank": Method("PG-Rank", _single(PGRank), ONLY),
    "lambda-rank": Method("LambdaRank", _single(LambdaRank, model="mlp"), ONLY),
    "click-svm": Method("Ranking SVM", _single(ClickSVMRank), ONLY),
    "propensity-svm": Method("Propensity SVM-Rank", _single(PropensitySVMRank), ONLY),
    "fair-pg-rank": Method("Fair-PG-Rank", _fair_pg_rank(ips=False), LAMBDAS_WITHIN_QUERIES),
    "fair-pg-rank-ips": Method("Fair-PG-Rank-IPS", _fair_pg_rank(ips=True), LAMBDAS_WITHIN_QUERIES),
    "equity-of-attention": Method(
        "Equity of Attention", _post_processed(EquityOfAttention, "theta"), THETAS, "theta"
    ),
    "equity-of-attention-true": Method(
        "Equity of Attention, true relevance",
        _post_processed(EquityOfAttention, "theta", relevance="true"),
        THETAS,
        "theta",
    ),
    "fairco": Method("FairCo", _post_processed(FairCo, "gain"), GAINS, "gain"),
    "exposure-lp": Method("Exposure LP", _post_processed(ExposureLP, ""), ONLY),
}

LEARN_FROM_CLICKS = tuple(name for name, method in METHODS.items() if not method.trained_on_labels)
"""The methods that can be trained on any log."""


def method_called(name: str, among: Sequence[str] = tuple(METHODS)) -> Method:
    """Return a method by its name; the error of an unknown name lists those that can be used."""
    if name not in METHODS:
        raise InputError(f"no such method; there are {', '.join(among)}", column="method", value=name)
    return METHODS[name]
