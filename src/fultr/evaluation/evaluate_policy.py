"""Exact utility and disparity of a policy, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import one_of, random_generator, whole_number
from fultr.click_model import ClickNoise
from fultr.clicks.examination import AnyBias, with_examination
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.estimators import Evidence
from fultr.evaluation.bootstrap import checked_level, percentile_interval, resampled_means
from fultr.evaluation.contributions import (
    DCG,
    MERIT,
    NDCG,
    RANK,
    WITH_RELEVANT,
    Contributions,
    Layout,
    contributions_of,
)
from fultr.evaluation.exposure import (
    exposure_ratio_bounds,
    exposure_ratios,
    exposure_to_move,
    exposure_to_move_bounds,
    interval_of_bounds,
    ratio,
)
from fultr.evaluation.inputs import ScoringPolicy, checked_source, evidence_of, examination_of, ranker_of
from fultr.evaluation.result import PAIR_MEASURES, Evaluation, of_two_groups

if TYPE_CHECKING:
    from fultr.expectation.exact import Accuracy

Array = NDArray[np.float64]

MOST_CELLS = 1 << 28
"""The most values of pairs of groups that an evaluation keeps at once, 2 GB of them."""


def evaluate(
    policy: ScoringPolicy,
    data: Any,
    *,
    position_bias: AnyBias | None = None,
    noise: ClickNoise | None = None,
    at: int | None = None,
    depth: int | None = None,
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
        rankings from the Plackett-Luce model of the scores, or always ranks by descending score (ties in the
        order of the rows).
    data
        Lists with relevance, each counting as one impression; or a log of clicks, whose clicks
        weigh 1 / propensity; or a pandas, polars or Arrow frame of either. The policy scores the rows of
        `log.compact().data`; one that was trained finds its features by name.
    position_bias
        The examination of positions, which gives exposure; by default that of the log, or else that of the
        policy. Clicks are weighed by the propensities of the log or, if it has none, by this too.
    noise
        What to take off the merit that clicks speak for, such as `log.noise`; nothing by default.
    at
        Cut DCG and nDCG after this position, and count any later rank as the one after it.
    depth
        How many positions a page has; nobody looks beyond them, so that they have neither exposure nor
        utility. By default as the position bias says, and on a log as many as anything was shown at.
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
    source, curve = with_examination(checked_source(data, policy).compact(), position_bias)
    rng = random_generator(seed)
    lists, from_relevance = source.data, isinstance(source, RankingDataset)
    bias = examination_of(curve, source, policy, depth)
    evidence = evidence_of(source, bias, noise)
    _check_pairs(len(lists), len(lists.group_names), 0 if intervals is None else resamples)
    ranker = ranker_of(policy, lists, stochastic, accuracy)
    at = at if bias is None else bias.last_position(at)
    of_lists = contributions_of(
        evidence, ranker, bias if lists.group_names else None, at, ideal=from_relevance
    )
    queries, means, layout = lists.query_codes[of_lists.lists], of_lists.means, of_lists.layout
    exposure, merit, measures = means[layout.exposure], means[layout.merit], _measures(means, layout)
    bounds = _intervals(of_lists, queries, intervals, resamples, rng)
    return Evaluation(
        dcg=float(measures["dcg"]),
        ndcg=float(measures["ndcg"]) if from_relevance else None,
        average_rank=float(measures["average_rank"]),
        disparities=measures["disparities"],
        disparity_squared=float(np.sum(means[layout.disparity] ** 2)),
        ratio_of_sums_disparities=_ratio_of_sums(exposure, merit),
        exposure_ratios=measures["exposure_ratios"],
        exposure_to_move=float(measures["exposure_to_move"]),
        exposure=_by_name(lists.group_names, exposure),
        merit=_by_name(lists.group_names, merit),
        intervals=_of_numbers(bounds, ndcg=from_relevance),
        pair_intervals={name: ends for name, ends in bounds.items() if ends[0].ndim},
        level=None if intervals is None else float(intervals),
        at=None if at is None else int(at),
        stochastic=ranker.stochastic,
        source="relevance" if from_relevance else "clicks",
        lists=int(of_lists.lists.size),
        queries=int(np.unique(queries).size),
        impressions=round(of_lists.total),
        empties_dropped=evidence.empties_dropped,
        never_seen=_never_seen(evidence, lists.group_names),
    )


def _check_pairs(lists: int, groups: int, resamples: int) -> None:
    """Refuse more pairs of groups than there is memory for: they are kept for each list and each resample."""
    pairs = groups * (groups - 1) // 2
    if pairs * max(lists, resamples) > MOST_CELLS:
        problem = (
            f"there are {groups:,} groups, whose {pairs:,} pairs are too many for an evaluation of {lists:,}"
            " lists. Merge small groups, or audit the policy: an audit measures any number of groups"
        )
        raise InputError(problem, column="group")


def _never_seen(evidence: Evidence, names: tuple[str, ...]) -> dict[str, float]:
    """Return the share of each group's candidates that nobody could see, of the groups that have any."""
    in_arrays = evidence.in_arrays()
    if in_arrays.unseen is None:
        return {}
    hidden, seen = (
        np.bincount(candidates.group[candidates.group >= 0], minlength=len(names))
        for candidates in (in_arrays.unseen, in_arrays.candidates)
    )
    return {
        name: int(hidden[code]) / int(hidden[code] + seen[code])
        for code, name in enumerate(names)
        if hidden[code]
    }


def _check_options(at: object, intervals: object, resamples: object, accuracy: object) -> None:
    if at is not None:
        whole_number(at, "at", least=1)
    if intervals is not None:
        checked_level(intervals, "intervals")
    whole_number(resamples, "resamples", least=1)
    one_of(accuracy, "accuracy", "single", "double")


def _measures(means: Array, layout: Layout) -> dict[str, Array]:
    """Return measures from mean contributions, (..., columns), each (...) or (..., groups, groups)."""
    exposure, merit = means[..., layout.exposure], means[..., layout.merit]
    return {
        "dcg": means[..., DCG],
        "ndcg": ratio(means[..., NDCG], means[..., WITH_RELEVANT]),
        "average_rank": ratio(means[..., RANK], means[..., MERIT]),
        "disparities": _matrix(means[..., layout.disparity], layout.groups),
        "exposure_ratios": exposure_ratios(exposure, merit),
        "exposure_to_move": exposure_to_move(exposure, merit),
    }


def _intervals(
    contributions: Contributions,
    queries: NDArray[np.int64],
    level: float | None,
    resamples: int,
    rng: np.random.Generator,
) -> dict[str, tuple[Array, Array]]:
    """Return low and high of each measure, none without a level."""
    if level is None:
        return {}
    layout = contributions.layout
    means = resampled_means(contributions.columns, contributions.impressions, queries, resamples, rng)
    if np.unique(queries).size < 2:  # one query drawn again and again says nothing of others
        means = np.full_like(means, np.nan)
    bounds = {name: percentile_interval(samples, level) for name, samples in _measures(means, layout).items()}
    if layout.bounded:
        # from the low end of the least that it can be to the high end of the most that it can be
        least = _matrix(percentile_interval(means[:, layout.low], level)[0], layout.groups)
        most = _matrix(percentile_interval(means[:, layout.high], level)[1], layout.groups)
        upper = np.triu(np.ones_like(least, dtype=np.bool_))
        bounds["disparities"] = np.where(upper, least, most), np.where(upper, most, least)
        exposure = means[:, layout.exposure] + means[:, layout.unseen_exposure]
        given = exposure, means[:, layout.merit], means[:, layout.unknown]
        bounds["exposure_ratios"] = interval_of_bounds(exposure_ratio_bounds(*given), level)
        bounds["exposure_to_move"] = interval_of_bounds(exposure_to_move_bounds(*given), level)
    return bounds


def _of_numbers(bounds: dict[str, tuple[Array, Array]], *, ndcg: bool) -> dict[str, tuple[float, float]]:
    """Return the intervals of single numbers; of two groups, those of their pair too."""
    chosen = {name: ends for name, ends in bounds.items() if not ends[0].ndim and (ndcg or name != "ndcg")}
    intervals = {name: (float(low), float(high)) for name, (low, high) in chosen.items()}
    for name, matrix in PAIR_MEASURES.items():
        if matrix in bounds and bounds[matrix][0].shape == (2, 2):
            low, high = bounds[matrix]
            intervals[name] = of_two_groups(low), of_two_groups(high)
    return intervals


def _matrix(pairs: Array, groups: int) -> Array:
    """Return the antisymmetric matrix of D_ij from its values for i < j."""
    first, second = np.triu_indices(groups, k=1)
    matrix = np.zeros((*pairs.shape[:-1], groups, groups))
    matrix[..., first, second] = pairs
    matrix[..., second, first] = -pairs
    return matrix


def _ratio_of_sums(exposure: Array, merit: Array) -> Array:
    has_merit = merit > 0
    ratio = exposure / np.where(has_merit, merit, 1.0)
    return np.where(has_merit[:, None] & has_merit, ratio[:, None] - ratio, 0.0)


def _by_name(names: tuple[str, ...], values: Array) -> dict[str, float]:
    return dict(zip(names, map(float, values), strict=True))
