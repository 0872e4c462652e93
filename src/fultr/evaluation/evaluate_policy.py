"""Exact utility and disparity of a policy, with intervals."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import random_generator, whole_number
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.evaluation.bootstrap import checked_level, percentile_interval, resampled_means
from fultr.evaluation.contributions import (
    DCG,
    FIRST_PAIR,
    MERIT,
    NDCG,
    RANK,
    WITH_RELEVANT,
    Contributions,
    contributions_of,
)
from fultr.evaluation.inputs import (
    Data,
    ScoringPolicy,
    counted,
    evidence_of,
    examination_of,
    lists_of,
    ranker_of,
)
from fultr.evaluation.result import Evaluation, Interval
from fultr.expectation.exact import Accuracy

Array = NDArray[np.float64]


def evaluate(
    policy: ScoringPolicy,
    data: Data,
    *,
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    at: int | None = None,
    stochastic: bool | None = None,
    intervals: float | None = 0.95,
    resamples: int = 1000,
    seed: int | np.random.Generator = 0,
    accuracy: Accuracy = "double",
) -> Evaluation:
    """Return the expected utility and disparity of a policy, exact for its scores and the data.

    Parameters
    ----------
    policy
        What has `predict(data)`, a score for each row, and says whether it is `stochastic`: whether it draws
        rankings from the Plackett-Luce model of the scores, or always ranks by falling score (ties in the
        order of the rows).
    data
        Lists with relevance, each counting as one impression; or a log of clicks, whose clicks
        weigh 1 / propensity. The policy scores the rows of `log.compact().data`.
    position_bias
        The examination of positions, which gives exposure; by default that of the log, or else that of the
        policy. Clicks are weighed by the propensities of the log or, if it has none, by this too.
    noise
        What to take off the merit that clicks speak for, such as `log.noise`; nothing by default.
    at
        Cut DCG and nDCG after this position, and count any later rank as the one after it.
    stochastic
        Evaluate the policy as one that draws rankings, or as one that does not, whatever it is itself.
    intervals
        The confidence level of percentile intervals by bootstrap over queries; None for no intervals.
    resamples, seed
        How often queries are drawn for the intervals, and from what randomness.
    accuracy
        Of expectations: "double", or "single" (error below 5e-4 of the largest weight), which is faster.

    Examples
    --------
    >>> from fultr import PlackettLuce, PositionBias, RankingDataset
    >>> data = RankingDataset([[2.0], [1.0], [0.0]], [0, 3], group=["a", "b", "b"], relevance=[1, 0, 1])
    >>> policy = PlackettLuce(lambda features: features[:, 0])
    >>> evaluate(policy, data, position_bias=PositionBias.power(1.0))
    <Evaluation: dcg 1.4417, ndcg 0.8840, average_rank 2.00, disparity -0.1859>
    """
    _check_options(at, intervals, resamples, accuracy)
    source, rng = counted(data), random_generator(seed)
    lists, from_relevance = lists_of(source), isinstance(source, RankingDataset)
    bias = examination_of(position_bias, source, policy)
    evidence = evidence_of(source, bias, noise)
    ranker = ranker_of(policy, lists, stochastic, accuracy)
    found = contributions_of(evidence, ranker, bias if lists.group_names else None, at, ideal=from_relevance)
    groups, queries = len(lists.group_names), lists.query_codes[found.lists]
    measures = _measures(found.means, groups)
    return Evaluation(
        dcg=float(measures["dcg"]),
        ndcg=float(measures["ndcg"]) if from_relevance else None,
        average_rank=float(measures["average_rank"]),
        disparity=_as_held(measures["disparity"]),
        disparity_squared=float(np.sum(found.means[FIRST_PAIR:] ** 2)),
        ratio_of_sums_disparity=_as_held(_ratio_of_sums(found)),
        exposure=_by_name(lists.group_names, found.exposure / found.total),
        merit=_by_name(lists.group_names, found.merit / found.total),
        intervals={
            name: interval
            for name, interval in _intervals(found, queries, groups, intervals, resamples, rng).items()
            if from_relevance or name != "ndcg"
        },
        level=None if intervals is None else float(intervals),
        at=None if at is None else int(at),
        stochastic=ranker.stochastic,
        source="relevance" if from_relevance else "clicks",
        lists=int(found.lists.size),
        queries=int(np.unique(queries).size),
        impressions=round(found.total),
        empties_dropped=evidence.empties_dropped,
    )


def _check_options(at: object, intervals: object, resamples: object, accuracy: object) -> None:
    if at is not None:
        whole_number(at, "at", least=1)
    if intervals is not None:
        checked_level(intervals, "intervals")
    whole_number(resamples, "resamples", least=1)
    if accuracy not in ("single", "double"):
        raise InputError("must be 'single' or 'double'", column="accuracy", value=accuracy)


def _measures(means: Array, groups: int) -> dict[str, Array]:
    """Return measures from mean contributions, (..., columns), each (...) or (..., groups, groups)."""
    return {
        "dcg": means[..., DCG],
        "ndcg": _ratio(means[..., NDCG], means[..., WITH_RELEVANT]),
        "average_rank": _ratio(means[..., RANK], means[..., MERIT]),
        "disparity": _matrix(means[..., FIRST_PAIR:], groups),
    }


def _intervals(
    found: Contributions,
    queries: NDArray[np.int64],
    groups: int,
    level: float | None,
    resamples: int,
    rng: np.random.Generator,
) -> dict[str, Interval]:
    """Return low and high of each measure, none without a level."""
    if level is None:
        return {}
    means = resampled_means(found.columns, found.impressions, queries, resamples, rng)
    if np.unique(queries).size < 2:  # one query drawn again and again says nothing of others
        means = np.full_like(means, np.nan)
    bounds = {name: percentile_interval(samples, level) for name, samples in _measures(means, groups).items()}
    return {
        name: (_as_held(low), _as_held(high)) if low.ndim else (float(low), float(high))
        for name, (low, high) in bounds.items()
    }


def _ratio(numerator: Array, denominator: Array) -> Array:
    known = denominator > 0
    return np.asarray(np.where(known, numerator / np.where(known, denominator, 1.0), math.nan))


def _matrix(pairs: Array, groups: int) -> Array:
    """Return the antisymmetric matrix of D_ij from its values for i < j."""
    first, second = np.triu_indices(groups, k=1)
    matrix = np.zeros((*pairs.shape[:-1], groups, groups))
    matrix[..., first, second] = pairs
    matrix[..., second, first] = -pairs
    return matrix


def _ratio_of_sums(found: Contributions) -> Array:
    known = found.merit > 0
    ratio = found.exposure / np.where(known, found.merit, 1.0)
    return np.where(known[:, None] & known, ratio[:, None] - ratio, 0.0)


def _as_held(matrix: Array) -> float | Array:
    """Return D_01 of two groups, and the whole matrix of any other number."""
    return float(matrix[0, 1]) if matrix.shape == (2, 2) else matrix


def _by_name(names: tuple[str, ...], values: Array) -> dict[str, float]:
    return dict(zip(names, map(float, values), strict=True))
