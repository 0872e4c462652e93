"""Measuring rankings for an audit: estimates and intervals, on draws of queries that are the same for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fultr.audits.checks import new_lists
from fultr.audits.contributions import Clicks, RankingContributions
from fultr.audits.pairs import (
    PairColumns,
    PairIntervals,
    pair_intervals,
    queries_of_pairs,
    query_numbers,
    worst_pairs,
)
from fultr.audits.ranking_result import (
    LOGGED,
    AuditEstimate,
    Difference,
    GroupAudit,
    NewQueries,
    OtherBias,
    PairAudit,
    RankingAudit,
)
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import Counts
from fultr.evaluation.bootstrap import (
    Resampled,
    percentile_interval,
    resampled_sums,
    separate_intervals,
    sum_of_squares_bounds,
)
from fultr.evaluation.contributions import Ranker
from fultr.evaluation.exposure import (
    exposure_ratio_bounds,
    exposure_ratios,
    exposure_to_move,
    exposure_to_move_bounds,
    interval_of_bounds,
    ratio,
)
from fultr.training.overlap import Overlap, recurring_queries

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Measuring:
    """Measures rankings under position biases.

    Parameters
    ----------
    log
        The clicks.
    rankers, overlaps
        The policies by name, and what the log shares with the training of those that were trained.
    noise, max_disparity, level, resamples, seed, top_k
        As in `fultr.audit`.
    report
        Called after each ranking under each position bias.
    """

    log: Counts
    rankers: Mapping[str, Ranker]
    overlaps: Mapping[str, Overlap]
    noise: ClickNoise | None
    max_disparity: float | None
    level: float
    resamples: int
    seed: int
    top_k: int | None
    report: Callable[[], None]

    def rankings(
        self, bias: PositionBias, others: Mapping[str, PositionBias], met: Codes
    ) -> dict[str, RankingAudit]:
        """Return the measures of each ranking under the bias, and their disparity under others.

        `met` is in how many queries pairs of groups meet.
        """
        contributions = self._contributions(bias)
        totals = _impressions_of_queries(self.log)
        intervals = {name: self._pair_intervals(one.pairs, totals) for name, one in contributions.items()}
        kept = worst_pairs([one.value for one in intervals.values()])
        under = [self._under(name, other, totals, kept) for name, other in others.items()]
        logged = contributions[LOGGED]
        rankings = {}
        for name, one in contributions.items():
            measured = self._measured(one, None if name == LOGGED else logged, totals, intervals[name], kept)
            rankings[name] = RankingAudit(
                name=name,
                utility=measured.utility,
                groups=self._groups(measured.drawn),
                pairs=measured.pair_audits(self.log.data.group_names, met),
                disparity=measured.disparity,
                exposure_to_move=measured.exposure_to_move,
                passes=self._passes(measured.disparity),
                difference=measured.difference,
                other_biases=tuple(of_rankings[name] for of_rankings in under),
            )
        for name, overlap in self.overlaps.items():
            rankings[name] = replace(
                rankings[name],
                recurring_queries=recurring_queries(overlap, self.log.data),
                new_queries=self._new_queries(overlap, contributions[name], logged, kept),
            )
        return rankings

    def _contributions(self, bias: PositionBias) -> dict[str, RankingContributions]:
        clicks = Clicks(self.log, bias, self.noise, self.top_k)
        contributions = {LOGGED: clicks.of_logged()}
        self.report()
        for name, ranker in self.rankers.items():
            contributions[name] = clicks.of_policy(ranker)
            self.report()
        return contributions

    def _new_queries(
        self, overlap: Overlap, policy: RankingContributions, logged: RankingContributions, kept: Codes
    ) -> NewQueries | None:
        """Return what a policy does on queries that its training never saw; None if it knows all, or most."""
        lists = new_lists(overlap, self.log)
        if lists is None:
            return None
        log, queries = self.log[lists], np.unique(query_numbers(self.log.data)[lists])
        policy, logged = policy.at(queries), logged.at(queries)
        totals = _impressions_of_queries(log)
        measured = self._measured(policy, logged, totals, self._pair_intervals(policy.pairs, totals), kept)
        assert measured.difference is not None  # noqa: S101 - there is one beside the logged ranking
        return NewQueries(
            queries=int(queries.size),
            impressions=int(log.impressions.sum()),
            utility=measured.utility,
            pairs=measured.pair_audits(log.data.group_names, queries_of_pairs(log)),
            disparity=measured.disparity,
            exposure_to_move=measured.exposure_to_move,
            passes=self._passes(measured.disparity),
            difference=measured.difference,
        )

    def _under(self, name: str, bias: PositionBias, totals: Array, kept: Codes) -> dict[str, OtherBias]:
        """Return the disparity of each ranking under another position bias."""
        outcome = {}
        for ranking, one in self._contributions(bias).items():
            intervals = self._pair_intervals(one.pairs, totals, separate=False)
            disparity = root_of_squares(intervals)
            outcome[ranking] = OtherBias(
                bias=name,
                disparities=tuple(intervals.value[kept].tolist()),
                disparity=disparity.value,
                upper=disparity.high,
                passes=self._passes(disparity),
            )
        return outcome

    def _pair_intervals(self, pairs: PairColumns, totals: Array, *, separate: bool = True) -> PairIntervals:
        return pair_intervals(pairs, totals, self.resamples, self.seed, self.level, separate=separate)

    def _measured(
        self,
        one: RankingContributions,
        logged: RankingContributions | None,
        totals: Array,
        intervals: PairIntervals,
        kept: Codes,
    ) -> Measures:
        """Return the measures of a ranking, and what it has more than the logged one if that is given."""
        drawn = self._resample(one.columns(logged), totals)
        difference = None
        if logged is not None:
            more = self._pair_intervals(one.pairs.less(logged.pairs, kept), totals)
            difference = Difference(
                _each(drawn["more_utility"], self.level)[0], tuple(estimates(more.value, more.low, more.high))
            )
        return Measures(drawn, intervals, kept, self.level, difference)

    def _resample(self, columns: Mapping[str, Array], totals: Array) -> dict[str, Resampled]:
        """Resample columns of queries together; the same seed draws the same queries."""
        together = resampled_sums(np.hstack(list(columns.values())), totals, self.resamples, self.seed)
        ends = np.cumsum([0, *(block.shape[1] for block in columns.values())])
        return {name: together.at(slice(*ends[at : at + 2])) for at, name in enumerate(columns)}

    def _passes(self, disparity: AuditEstimate) -> bool | None:
        return None if self.max_disparity is None else disparity.high <= self.max_disparity

    def _groups(self, drawn: Mapping[str, Resampled]) -> tuple[GroupAudit, ...]:
        data, exposure, merit = self.log.data, drawn["exposure"], drawn["merit"]
        items = np.bincount(data.group[data.group >= 0], minlength=len(data.group_names))
        # merit over exposure has a denominator that does not vanish; its reciprocal is what is asked for
        worth = self._ratios(merit, exposure)
        columns = (
            data.group_names,
            items.tolist(),
            _each(exposure, self.level),
            _each(merit, self.level),
            [_reciprocal(one) for one in worth],
            self._ratios(exposure, _total(exposure)),
            self._ratios(merit, _total(merit)),
        )
        return tuple(GroupAudit(*of_group) for of_group in zip(*columns, strict=True))

    def _ratios(self, numerator: Resampled, denominator: Resampled) -> list[AuditEstimate]:
        """Return ratios of means with percentile intervals; NaN where the denominator is not above 0."""
        value = ratio(numerator.estimate, denominator.estimate)
        low, high = percentile_interval(ratio(numerator.means, denominator.means), self.level)
        return estimates(value, *(np.where(np.isnan(value), np.nan, end) for end in (low, high)))


@dataclass(frozen=True)
class Measures:
    """The measures of a ranking: draws of its sums, intervals of all pairs, and the pairs that are kept."""

    drawn: Mapping[str, Resampled]
    intervals: PairIntervals
    kept: Codes
    level: float
    difference: Difference | None

    @property
    def utility(self) -> AuditEstimate:
        """DCG of an impression."""
        return _each(self.drawn["utility"], self.level)[0]

    @property
    def disparity(self) -> AuditEstimate:
        """The root of the sum of squares of all pairs."""
        return root_of_squares(self.intervals)

    @property
    def exposure_to_move(self) -> AuditEstimate:
        """The share of all exposure that would have to go to other groups."""
        exposure, merit = self.drawn["exposure"], self.drawn["merit"]
        value = exposure_to_move(exposure.estimate, merit.estimate)
        if self._all_seen:
            low, high = percentile_interval(exposure_to_move(exposure.means, merit.means), self.level)
        else:
            low, high = interval_of_bounds(exposure_to_move_bounds(*self._bounded), self.level)
        return AuditEstimate(float(value), float(low), float(high))

    def pair_audits(self, names: tuple[str, ...], met: Codes) -> tuple[PairAudit, ...]:
        """Return the pairs that are kept; `met` is in how many queries each pair meets."""
        pairs = tuple(index[self.kept] for index in np.triu_indices(len(names), k=1))
        intervals = PairIntervals(*(column[self.kept] for column in self.intervals))
        columns = (
            pairs[0].tolist(),
            pairs[1].tolist(),
            estimates(intervals.value, intervals.low, intervals.high),
            zip(intervals.band_low.tolist(), intervals.band_high.tolist(), strict=True),
            self._exposure_ratios((pairs[0], pairs[1])),
            met[self.kept].tolist(),
        )
        return tuple(
            PairAudit(names[first], names[second], *rest)
            for first, second, *rest in zip(*columns, strict=True)
        )

    def _exposure_ratios(self, pairs: tuple[Codes, Codes]) -> list[AuditEstimate]:
        """Return R_ij of some pairs."""
        exposure, merit = self.drawn["exposure"], self.drawn["merit"]
        value = exposure_ratios(exposure.estimate, merit.estimate, pairs)
        if self._all_seen:
            ends = percentile_interval(exposure_ratios(exposure.means, merit.means, pairs), self.level)
        else:
            ends = interval_of_bounds(exposure_ratio_bounds(*self._bounded, pairs), self.level)
        return estimates(value, *ends)

    @property
    def _all_seen(self) -> bool:
        return not self.drawn["unknown"].means.any()

    @property
    def _bounded(self) -> tuple[Array, Array, Array]:
        """For bounds: exposure of all items, merit of those that were seen, and the most of the others."""
        exposure = self.drawn["exposure"].means + self.drawn["unseen_exposure"].means
        return exposure, self.drawn["merit"].means, self.drawn["unknown"].means


def root_of_squares(pairs: PairIntervals) -> AuditEstimate:
    """Return the root of the sum of squares, with bounds from the band of all pairs."""
    bounds = sum_of_squares_bounds(pairs.band_low, pairs.band_high)
    value = float(np.sqrt(np.sum(pairs.value**2)))
    return AuditEstimate(value, *(float(np.sqrt(end)) for end in bounds))


def estimates(value: Array, low: Array, high: Array) -> list[AuditEstimate]:
    """Return estimates with their intervals."""
    return [AuditEstimate(*map(float, row)) for row in zip(value, low, high, strict=True)]


def _each(drawn: Resampled, level: float) -> list[AuditEstimate]:
    """Return estimates with intervals, each by itself."""
    return estimates(drawn.estimate, *separate_intervals(drawn, level))


def _impressions_of_queries(log: Counts) -> Array:
    return np.asarray(np.bincount(query_numbers(log.data), weights=log.impressions), dtype=np.float64)


def _total(drawn: Resampled) -> Resampled:
    """Return means of all groups together, without errors."""
    estimate, means = drawn.estimate.sum(keepdims=True), drawn.means.sum(axis=1, keepdims=True)
    return Resampled(estimate, np.zeros_like(estimate), means, np.zeros_like(means))


def _reciprocal(of: AuditEstimate) -> AuditEstimate:
    """Return 1 / x: NaN where x is not above 0, and with no upper end where x may be 0."""
    value, low, high = (
        1 / one if one > 0 else missing
        for one, missing in ((of.value, np.nan), (of.high, np.nan), (of.low, np.inf))
    )
    # nothing is known of the ends of what is not defined
    return AuditEstimate(value, low, high) if of.value > 0 else AuditEstimate(np.nan, np.nan, np.nan)
