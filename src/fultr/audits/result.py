"""What an audit found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fultr.click_model import ClickNoise, PositionBias
from fultr.errors import InputError
from fultr.results import PlainValues, Result, Tables

LOGGED = "logged"
"""The name of the ranking that was logged, among those of the candidate policies."""

FORMAT = 2
"""The version of what `Audit.to_dict` returns."""

SETTINGS = ("level", "resamples", "seed", "max_disparity", "bias_uncertainty", "noise")
COUNTED = ("impressions", "clicks", "lists", "queries", "longest", "empties_dropped")
"""The fields of an audit that stand together in what it returns."""


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
        By group, and by pair of groups.
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
    def disparity_range(self) -> tuple[float, float]:
        """The least and the largest root of the sum of squares over all position biases."""
        found = [self.disparity.value, *(one.disparity for one in self.other_biases)]
        return min(found), max(found)

    @property
    def upper_range(self) -> tuple[float, float]:
        """The least and the largest upper confidence bound over all position biases."""
        found = [self.disparity.high, *(one.upper for one in self.other_biases)]
        return min(found), max(found)

    @property
    def pair_ranges(self) -> tuple[tuple[float, float], ...]:
        """The least and the largest D_ij of each pair over all position biases."""
        curves = [one.disparities for one in self.other_biases]
        values = zip((pair.disparity.value for pair in self.pairs), *curves, strict=True)
        return tuple((min(found), max(found)) for found in values)

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


@dataclass(frozen=True, repr=False)
class Audit(Result):
    """How fair and how useful rankings are, from clicks.

    Parameters
    ----------
    rankings
        By name, the logged one first.
    position_bias, bias_source
        The examination of positions, and where it comes from: "given", "estimate", "log", "propensities"
        (of the log) or "policies".
    other_biases
        Position biases that are possible as well, by what they are.
    bias_uncertainty
        Where those come from: the "intervals" of the estimate, or an "assumption".
    noise
        The click noise that was taken off; None for none.
    max_disparity
        The limit; None for none.
    level, resamples, seed
        Of the intervals.
    impressions, clicks, lists, queries
        How many there were. `clicks` are those on candidates.
    longest
        The last position whose examination counts.
    empties_dropped
        Whether impressions without a click are missing, so that merit, utility and disparity are known only
        up to a factor.
    notes
        What to know before relying on the numbers, in sentences.
    findings
        What is suspicious of the log, as plain values; see `fultr.clicks.judge_readiness`.
    """

    rankings: Mapping[str, RankingAudit]
    position_bias: PositionBias
    bias_source: str
    other_biases: Mapping[str, PositionBias]
    bias_uncertainty: str
    noise: ClickNoise | None
    max_disparity: float | None
    level: float
    resamples: int
    seed: int
    impressions: int
    clicks: int
    lists: int
    queries: int
    longest: int
    empties_dropped: bool
    notes: tuple[str, ...] = ()
    findings: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def logged(self) -> RankingAudit:
        """The ranking that was logged."""
        return self.rankings[LOGGED]

    @property
    def candidates(self) -> tuple[RankingAudit, ...]:
        """The rankings of the policies."""
        return tuple(one for name, one in self.rankings.items() if name != LOGGED)

    @property
    def passes(self) -> bool | None:
        """Whether all candidates keep the limit, or without one the logged ranking; None without a limit."""
        if self.max_disparity is None:
            return None
        return all(one.passes for one in self.candidates or (self.logged,))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        content = super().to_dict()
        curve = self.position_bias.curve(self.longest)[1:].tolist()
        bias = {**content.pop("position_bias"), "source": content.pop("bias_source"), "curve": curve}
        return {
            "kind": "audit",
            "format": FORMAT,
            "settings": {name: content.pop(name) for name in SETTINGS},
            "counts": {name: content.pop(name) for name in COUNTED},
            "position_bias": bias,
            "passes": self.passes,
            **content,
            "rankings": list(content["rankings"].values()),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Audit:
        """Make the audit from what `to_dict` gave."""
        if not isinstance(content, Mapping) or content.get("kind") != "audit":
            raise InputError("is no audit as fultr writes it")
        if content.get("format") != FORMAT:
            problem = "is an audit of a form that this version cannot read"
            raise InputError(problem, column="format", value=content.get("format"))
        try:
            fields = {**content, **content["settings"], **content["counts"]}
            fields["bias_source"] = content["position_bias"]["source"]
            fields["rankings"] = {one["name"]: one for one in content["rankings"]}
            made = super().from_dict(fields)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"is no audit as fultr writes it ({type(error).__name__}: {error})"
            raise InputError(problem) from None
        if LOGGED not in made.rankings:
            raise InputError("is no audit as fultr writes it (the logged ranking is missing)")
        return made

    def tables(self) -> Tables:
        """Return all rankings, and each of them by group and by pair of groups."""
        rankings = [
            {
                "ranking": one.name,
                **columns_of("utility", one.utility),
                **columns_of("disparity", one.disparity),
                **columns_of("exposure_to_move", one.exposure_to_move),
                "passes": one.passes,
            }
            for one in self.rankings.values()
        ]
        return {"rankings": rankings, "groups": list(self.group_rows()), "pairs": list(self.pair_rows())}

    def group_rows(self) -> Iterator[dict[str, Any]]:
        """Yield what each group has under each ranking."""
        for ranking in self.rankings.values():
            for group in ranking.groups:
                row: dict[str, Any] = {"ranking": ranking.name, "group": group.name, "items": group.items}
                for name in GROUP_MEASURES:
                    row |= columns_of(name, getattr(group, name))
                yield row

    def pair_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the disparity of each pair of groups under each ranking."""
        for ranking in self.rankings.values():
            yield from ranking.pair_rows()

    def __repr__(self) -> str:
        def of_ranking(one: RankingAudit) -> str:
            verdict = "" if one.passes is None else ", passes" if one.passes else ", fails"
            found = f"disparity {one.disparity.value:.4f} (at most {one.disparity.high:.4f}{verdict})"
            return f"{one.name}: utility {one.utility.value:.4f}, {found}"

        return f"<Audit: {'; '.join(map(of_ranking, self.rankings.values()))}>"
