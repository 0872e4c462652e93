"""What an audit found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fultr.click_model import ClickNoise, PositionBias
from fultr.errors import InputError

LOGGED = "logged"
"""The name of the ranking that was logged, among those of the candidate policies."""

FORMAT = 2
"""The version of what `Audit.to_dict` returns."""


@dataclass(frozen=True)
class AuditEstimate:
    """A number from clicks, with the interval that holds the true one at the level of the audit.

    NaN is what is not defined, such as exposure for each unit of merit of a group without merit; an interval
    without an upper end goes to infinity. Both are None in JSON.
    """

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """Return the three numbers by name."""
        return {"value": _plain(self.value), "low": _plain(self.low), "high": _plain(self.high)}

    @classmethod
    def from_dict(cls, content: Mapping[str, float | None]) -> AuditEstimate:
        """Make the estimate from what `to_dict` gave."""
        return cls(*(_number(content[name]) for name in ("value", "low", "high")))


GROUP_MEASURES = ("exposure", "merit", "exposure_per_merit", "exposure_share", "merit_share")


@dataclass(frozen=True)
class GroupAudit:
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        found = {name: getattr(self, name).to_dict() for name in GROUP_MEASURES}
        return {"name": self.name, "items": self.items, **found}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> GroupAudit:
        """Make the same from what `to_dict` gave."""
        estimates = {name: AuditEstimate.from_dict(content[name]) for name in GROUP_MEASURES}
        return cls(str(content["name"]), int(content["items"]), **estimates)


@dataclass(frozen=True)
class PairAudit:
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "first": self.first,
            "second": self.second,
            "disparity": self.disparity.to_dict(),
            "band": [_plain(end) for end in self.band],
            "exposure_ratio": self.exposure_ratio.to_dict(),
            "queries": self.queries,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PairAudit:
        """Make the same from what `to_dict` gave."""
        low, high = content["band"]
        return cls(
            str(content["first"]),
            str(content["second"]),
            AuditEstimate.from_dict(content["disparity"]),
            (_number(low), _number(high)),
            AuditEstimate.from_dict(content["exposure_ratio"]),
            int(content["queries"]),
        )


@dataclass(frozen=True)
class Difference:
    """What a candidate has more than the logged ranking, on the same draws of queries.

    `disparities` are those of the pairs of groups, in their order.
    """

    utility: AuditEstimate
    disparities: tuple[AuditEstimate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        pairs = [one.to_dict() for one in self.disparities]
        return {"utility": self.utility.to_dict(), "disparities": pairs}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Difference:
        """Make the same from what `to_dict` gave."""
        pairs = tuple(AuditEstimate.from_dict(one) for one in content["disparities"])
        return cls(AuditEstimate.from_dict(content["utility"]), pairs)


@dataclass(frozen=True)
class NewQueries:
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "queries": self.queries,
            "impressions": self.impressions,
            "utility": self.utility.to_dict(),
            "disparity": self.disparity.to_dict(),
            "exposure_to_move": self.exposure_to_move.to_dict(),
            "passes": self.passes,
            "pairs": [pair.to_dict() for pair in self.pairs],
            "difference": self.difference.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> NewQueries:
        """Make the same from what `to_dict` gave."""
        return cls(
            queries=int(content["queries"]),
            impressions=int(content["impressions"]),
            utility=AuditEstimate.from_dict(content["utility"]),
            pairs=tuple(PairAudit.from_dict(one) for one in content["pairs"]),
            disparity=AuditEstimate.from_dict(content["disparity"]),
            exposure_to_move=AuditEstimate.from_dict(content["exposure_to_move"]),
            passes=content["passes"],
            difference=Difference.from_dict(content["difference"]),
        )


@dataclass(frozen=True)
class OtherBias:
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**vars(self), "disparities": list(self.disparities)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> OtherBias:
        """Make the same from what `to_dict` gave."""
        found = {name: content[name] for name in ("bias", "disparity", "upper", "passes")}
        return cls(disparities=tuple(content["disparities"]), **found)


@dataclass(frozen=True)
class RankingAudit:
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

    @property
    def verdict_depends_on_bias(self) -> bool | None:
        """Whether the limit is kept under one of the position biases and not under another."""
        if self.passes is None:
            return None
        return any(one.passes != self.passes for one in self.other_biases)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "name": self.name,
            "utility": self.utility.to_dict(),
            "disparity": self.disparity.to_dict(),
            "exposure_to_move": self.exposure_to_move.to_dict(),
            "passes": self.passes,
            "verdict_depends_on_bias": self.verdict_depends_on_bias,
            "groups": [group.to_dict() for group in self.groups],
            "pairs": [pair.to_dict() for pair in self.pairs],
            "difference": None if self.difference is None else self.difference.to_dict(),
            "other_biases": [one.to_dict() for one in self.other_biases],
            "recurring_queries": self.recurring_queries,
            "new_queries": None if self.new_queries is None else self.new_queries.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RankingAudit:
        """Make the same from what `to_dict` gave."""
        # audits that were written before these two were measured have none
        difference, new = content["difference"], content.get("new_queries")
        return cls(
            name=str(content["name"]),
            utility=AuditEstimate.from_dict(content["utility"]),
            groups=tuple(GroupAudit.from_dict(one) for one in content["groups"]),
            pairs=tuple(PairAudit.from_dict(one) for one in content["pairs"]),
            disparity=AuditEstimate.from_dict(content["disparity"]),
            exposure_to_move=AuditEstimate.from_dict(content["exposure_to_move"]),
            passes=content["passes"],
            difference=None if difference is None else Difference.from_dict(difference),
            other_biases=tuple(OtherBias.from_dict(one) for one in content["other_biases"]),
            recurring_queries=content.get("recurring_queries"),
            new_queries=None if new is None else NewQueries.from_dict(new),
        )


@dataclass(frozen=True, repr=False)
class Audit:
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
        plain = ("level", "resamples", "seed", "max_disparity", "bias_uncertainty")
        counts = ("impressions", "clicks", "lists", "queries", "longest", "empties_dropped")
        curve = self.position_bias.curve(self.longest)[1:].tolist()
        return {
            "kind": "audit",
            "format": FORMAT,
            "settings": {
                **{name: getattr(self, name) for name in plain},
                "noise": None if self.noise is None else self.noise.to_dict(),
            },
            "counts": {name: getattr(self, name) for name in counts},
            "position_bias": {**self.position_bias.to_dict(), "source": self.bias_source, "curve": curve},
            "other_biases": {name: bias.to_dict() for name, bias in self.other_biases.items()},
            "passes": self.passes,
            "rankings": [one.to_dict() for one in self.rankings.values()],
            "notes": list(self.notes),
            "findings": [dict(one) for one in self.findings],
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
            settings, rankings = dict(content["settings"]), content["rankings"]
            noise = settings.pop("noise")
            made = cls(
                rankings={one["name"]: RankingAudit.from_dict(one) for one in rankings},
                position_bias=PositionBias.from_dict(content["position_bias"]),
                bias_source=str(content["position_bias"]["source"]),
                other_biases={
                    name: PositionBias.from_dict(bias) for name, bias in content["other_biases"].items()
                },
                noise=None if noise is None else ClickNoise.from_dict(noise),
                notes=tuple(content["notes"]),
                findings=tuple(content["findings"]),
                **settings,
                **content["counts"],
            )
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"is no audit as fultr writes it ({type(error).__name__}: {error})"
            raise InputError(problem) from None
        if LOGGED not in made.rankings:
            raise InputError("is no audit as fultr writes it (the logged ranking is missing)")
        return made

    def __repr__(self) -> str:
        def of_ranking(one: RankingAudit) -> str:
            verdict = "" if one.passes is None else ", passes" if one.passes else ", fails"
            found = f"disparity {one.disparity.value:.4f} (at most {one.disparity.high:.4f}{verdict})"
            return f"{one.name}: utility {one.utility.value:.4f}, {found}"

        return f"<Audit: {'; '.join(map(of_ranking, self.rankings.values()))}>"


def _distance_from_merit(group: GroupAudit) -> float:
    distance = abs(group.exposure_share.value - group.merit_share.value)
    return 0.0 if math.isnan(distance) else distance


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
