"""What an audit found of one ranking."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fultr.results import PlainValues

LOGGED = "logged"
"""The name of the ranking that was logged, among those of the candidate policies."""


@dataclass(frozen=True)
class AuditEstimate(PlainValues):
    """A number from clicks, with the interval that holds the true one at the level of the audit.

    NaN is what is not defined, such as exposure for each unit of merit of a group without merit; an interval
    without an upper end goes to infinity. Both are None in JSON.
    """

    value: float
    low: float
    high: float


def columns_of(name: str, estimate: AuditEstimate) -> dict[str, float]:
    """Return an estimate as columns of a table: its value, and the ends of its interval."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


GROUP_MEASURES = ("exposure", "merit", "exposure_per_merit", "exposure_share", "merit_share")


@dataclass(frozen=True)
class GroupAudit(PlainValues):
    """What a group of items has, on average over impressions.

    Parameters
    ----------
    name, items
        The group, and how many items of the candidate lists are in it.
    exposure
        The sum over its items of the probability that the item is looked at.
    merit
        The sum over its items of clicks / propensity: the estimated number of relevant ones.
    exposure_per_merit
        Exposure over merit.
    exposure_share, merit_share
        What part of the exposure and of the merit of all groups it has.
    """

    name: str
    items: int
    exposure: AuditEstimate
    merit: AuditEstimate
    exposure_per_merit: AuditEstimate
    exposure_share: AuditEstimate
    merit_share: AuditEstimate


@dataclass(frozen=True)
class PairAudit(PlainValues):
    """The disparity D_ij of a pair of groups, above 0 where the first has too much exposure.

    Parameters
    ----------
    first, second
        The groups i and j.
    disparity
        D_ij, with its interval by itself.
    band
        Low and high of the band that holds D_ij of all pairs at once.
    exposure_ratio
        How many times the exposure for each unit of merit of the second group the first has; 1 is fair.
    queries
        In how many queries the two groups meet in a list and an item of them was clicked.
    """

    first: str
    second: str
    disparity: AuditEstimate
    band: tuple[float, float]
    exposure_ratio: AuditEstimate
    queries: int


@dataclass(frozen=True)
class Difference(PlainValues):
    """What a candidate has more than the logged ranking, on the same draws of queries.

    `disparities` are those of the pairs of groups, in their order.
    """

    utility: AuditEstimate
    disparities: tuple[AuditEstimate, ...]


@dataclass(frozen=True)
class NewQueries(PlainValues):
    """What a policy does on the queries of a log that its training never saw.

    Parameters
    ----------
    queries, impressions
        How many there are of them.
    utility, pairs, disparity, exposure_to_move, passes, difference
        As in `RankingAudit`, on these queries only.
    """

    queries: int
    impressions: int
    utility: AuditEstimate
    pairs: tuple[PairAudit, ...]
    disparity: AuditEstimate
    exposure_to_move: AuditEstimate
    passes: bool | None
    difference: Difference


@dataclass(frozen=True)
class OtherBias(PlainValues):
    """The same ranking if the position bias were another one that is possible.

    Parameters
    ----------
    bias
        Which one, in words; `Audit.other_biases` has the curves.
    disparities
        D_ij of each pair, in their order.
    disparity, upper
        The root of their sum of squares, and its upper confidence bound.
    passes
        Whether the bound keeps the limit; None without a limit.
    """

    bias: str
    disparities: tuple[float, ...]
    disparity: float
    upper: float
    passes: bool | None


@dataclass(frozen=True)
class RankingAudit(PlainValues):
    """What was found of one ranking: the logged one or that of a policy.

    Parameters
    ----------
    name
        `LOGGED`, or the name of the policy.
    utility
        DCG of an impression, clicks weighing 1 / propensity.
    groups, pairs
        By group, and by pair of groups; of more than 5,000 pairs, those with the largest disparity under any
        of the rankings.
    disparity
        The root of the sum of D_ij^2 over pairs; its ends bound the true one, by the band of all pairs,
        whatever the merit of candidates that were never shown.
    exposure_to_move
        The share of all exposure that would have to go to other groups to be in proportion to merit.
    passes
        Whether the upper end of `disparity` keeps the limit; None without a limit.
    difference
        What a candidate has more than the logged ranking; None for that itself.
    other_biases
        What changes if the position bias is another one.
    recurring_queries
        How many queries of the log were in the training of the policy; None where it cannot be told.
    new_queries
        The result on the other queries, if some recur and there are enough others.
    """

    name: str
    utility: AuditEstimate
    groups: tuple[GroupAudit, ...]
    pairs: tuple[PairAudit, ...]
    disparity: AuditEstimate
    exposure_to_move: AuditEstimate
    passes: bool | None
    difference: Difference | None
    other_biases: tuple[OtherBias, ...]
    recurring_queries: int | None = None
    new_queries: NewQueries | None = None

    derived = ("verdict_depends_on_bias",)

    @property
    def pairs_in_all(self) -> int:
        """How many pairs of groups there are; `pairs` holds the worst of very many."""
        return len(self.groups) * (len(self.groups) - 1) // 2

    def furthest_groups(self, most: int) -> tuple[GroupAudit, ...]:
        """Return the groups whose share of exposure is furthest from that of merit, the furthest first."""
        return tuple(sorted(self.groups, key=_distance_from_merit, reverse=True)[:most])

    @property
    def disparity_range(self) -> tuple[float, float]:
        """The least and the largest root of the sum of squares over all position biases."""
        disparities = [self.disparity.value, *(one.disparity for one in self.other_biases)]
        return min(disparities), max(disparities)

    @property
    def upper_range(self) -> tuple[float, float]:
        """The least and the largest upper confidence bound over all position biases."""
        bounds = [self.disparity.high, *(one.upper for one in self.other_biases)]
        return min(bounds), max(bounds)

    @property
    def pair_ranges(self) -> tuple[tuple[float, float], ...]:
        """The least and the largest D_ij of each pair over all position biases."""
        curves = [one.disparities for one in self.other_biases]
        values = zip((pair.disparity.value for pair in self.pairs), *curves, strict=True)
        return tuple((min(disparities), max(disparities)) for disparities in values)

    def pair_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the disparity of each pair of groups."""
        nothing = AuditEstimate(math.nan, math.nan, math.nan)
        for number, (pair, (least, most)) in enumerate(zip(self.pairs, self.pair_ranges, strict=True)):
            more = nothing if self.difference is None else self.difference.disparities[number]
            yield {
                "ranking": self.name,
                "first": pair.first,
                "second": pair.second,
                "queries": pair.queries,
                **columns_of("disparity", pair.disparity),
                "band_low": pair.band[0],
                "band_high": pair.band[1],
                **columns_of("exposure_ratio", pair.exposure_ratio),
                "least_under_other_biases": least,
                "most_under_other_biases": most,
                **columns_of("more_than_logged", more),
            }

    @property
    def verdict_depends_on_bias(self) -> bool | None:
        """Whether the limit is kept under one of the position biases and not under another."""
        if self.passes is None:
            return None
        return any(one.passes != self.passes for one in self.other_biases)


def _distance_from_merit(group: GroupAudit) -> float:
    distance = abs(group.exposure_share.value - group.merit_share.value)
    return 0.0 if math.isnan(distance) else distance
