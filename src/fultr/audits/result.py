"""What an audit found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fultr.audits.ranking_result import GROUP_MEASURES, LOGGED, RankingAudit, columns_of
from fultr.click_model import ClickNoise, PositionBias
from fultr.errors import InputError
from fultr.results import Result, Tables

FORMAT = 2
"""The version of what `Audit.to_dict` returns."""

SETTINGS = ("level", "resamples", "seed", "max_disparity", "bias_uncertainty", "noise")
COUNTED = ("impressions", "clicks", "lists", "queries", "longest", "empties_dropped")
"""The fields of an audit that stand together in what it returns."""


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
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
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
            disparity = f"disparity {one.disparity.value:.4f} (at most {one.disparity.high:.4f}{verdict})"
            return f"{one.name}: utility {one.utility.value:.4f}, {disparity}"

        return f"<Audit: {'; '.join(map(of_ranking, self.rankings.values()))}>"
