"""What an evaluation found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float | Array, float | Array]
"""Low and high; matrices for a measure that is one."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Utility and fairness of a policy. Means are over impressions; from relevances each list is one.

    Attributes
    ----------
    dcg
        The mean of sum_d rel_d E[1 / log2(1 + rank)], cut after position `at` if that is given.
    ndcg
        The mean of DCG over that of the best ranking, of lists with a relevant item; NaN if there is none.
        None from clicks, which do not tell what the best ranking of an impression was.
    average_rank
        sum rel_d E[rank] / sum rel_d; with `at`, of min(rank, at + 1). NaN without relevance.
    disparity
        D_01 for two groups, above 0 where the first has more exposure than its merit asks for beside the
        second; for another number of groups the antisymmetric matrix of D_ij.
    disparity_squared
        The sum of squares of D_ij over pairs of groups.
    ratio_of_sums_disparity
        D', the difference of exposure for each unit of merit, in the form of `disparity`; 0 for a pair of
        groups that do not both have merit.
    exposure_ratio
        How many times the exposure for each unit of merit of the second group the first has, in the form of
        `disparity`; 1 is fair. NaN where a group has no merit.
    exposure_to_move
        The share of all exposure that would have to go to other groups to be in proportion to merit.
    exposure, merit
        The mean exposure and merit of each group, by name.
    intervals
        Low and high of "dcg", "ndcg" (if there is one), "average_rank", "disparity", "exposure_ratio" and
        "exposure_to_move", each in the form of the measure; NaN where there is one query only. Empty if none
        were asked for. Those of the last three hold whatever the merit of candidates that nobody could see.
    level
        The confidence level of the intervals, each by itself.
    at, stochastic, source
        Where DCG and ranks were cut; whether rankings are drawn or the mode; whether relevance is known
        from "relevance" or from "clicks".
    lists, queries, impressions
        How many there were.
    empties_dropped
        Whether the log lacked its impressions without a click: `dcg`, `merit` and what is made of merit, but
        not `average_rank`, are then known only up to a factor.
    never_seen
        The share of the candidates of a group that no impression of the log showed, by name, for the groups
        that have any. Their merit is unknown, and they count in no group.
    """

    dcg: float
    ndcg: float | None
    average_rank: float
    disparity: float | Array
    disparity_squared: float
    ratio_of_sums_disparity: float | Array
    exposure_ratio: float | Array
    exposure_to_move: float
    exposure: dict[str, float]
    merit: dict[str, float]
    intervals: dict[str, Interval]
    level: float | None
    at: int | None
    stochastic: bool
    source: Literal["relevance", "clicks"]
    lists: int
    queries: int
    impressions: int
    empties_dropped: bool = False
    never_seen: dict[str, float] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, in the order of the rows of a matrix of disparities."""
        return tuple(self.exposure)

    @property
    def exposure_share(self) -> dict[str, float]:
        """The part of the exposure of all groups that each has."""
        return _shares(self.exposure)

    @property
    def merit_share(self) -> dict[str, float]:
        """The part of the merit of all groups that each has; NaN if there is none, or less than none."""
        return _shares(self.merit)

    @property
    def exposure_per_merit(self) -> dict[str, float]:
        """Exposure over merit of each group; NaN for a group without merit."""
        return {
            name: self.exposure[name] / merit if merit > 0 else math.nan for name, merit in self.merit.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; what is not a number becomes None."""
        return {
            "source": self.source,
            "stochastic": self.stochastic,
            "at": self.at,
            "lists": self.lists,
            "queries": self.queries,
            "impressions": self.impressions,
            "empties_dropped": self.empties_dropped,
            "groups": list(self.groups),
            "dcg": _plain(self.dcg),
            "ndcg": _plain(self.ndcg),
            "average_rank": _plain(self.average_rank),
            "disparity": _plain(self.disparity),
            "disparity_squared": _plain(self.disparity_squared),
            "ratio_of_sums_disparity": _plain(self.ratio_of_sums_disparity),
            "exposure_ratio": _plain(self.exposure_ratio),
            "exposure_to_move": _plain(self.exposure_to_move),
            "exposure": _plain(self.exposure),
            "merit": _plain(self.merit),
            "exposure_share": _plain(self.exposure_share),
            "merit_share": _plain(self.merit_share),
            "exposure_per_merit": _plain(self.exposure_per_merit),
            "never_seen": _plain(self.never_seen),
            "level": self.level,
            "intervals": _plain(self.intervals),
        }

    def __repr__(self) -> str:
        ndcg = "" if self.ndcg is None else f", ndcg {self.ndcg:.4f}"
        if isinstance(self.disparity, float):
            disparity = f"disparity {self.disparity:.4f}"
        else:
            disparity = f"disparity_squared {self.disparity_squared:.4g}"
        return f"<Evaluation: dcg {self.dcg:.4f}{ndcg}, average_rank {self.average_rank:.2f}, {disparity}>"

    def __str__(self) -> str:
        kind = "stochastic" if self.stochastic else "deterministic"
        size = f"{self.impressions} impressions of {self.lists} lists, {self.queries} queries"
        lines = [f"{kind} policy, {size}, from {self.source}"]
        if self.empties_dropped:
            lines.append("impressions without a click are missing: merit is known only up to a factor")
        cut = "" if self.at is None else f"@{self.at}"
        for name, value, label in (
            ("dcg", self.dcg, f"dcg{cut}"),
            ("ndcg", self.ndcg, f"ndcg{cut}"),
            ("average_rank", self.average_rank, f"average_rank{cut}"),
        ):
            if value is not None:
                lines.append(_line(label, value, self.intervals.get(name)))
        lines += self._disparity_lines()
        lines.append(_line("disparity_squared", self.disparity_squared))
        if len(self.groups) > 1:
            interval = self.intervals.get("exposure_to_move")
            lines.append(_line("exposure_to_move", self.exposure_to_move, interval))
        lines += [
            f"  {share:.0%} of the candidates of {group} were never shown: their merit is unknown"
            for group, share in self.never_seen.items()
        ]
        lines += _table(self)
        if self.intervals:
            lines.append(f"[low, high]: intervals of level {self.level:g}, each by itself")
        return "\n".join(lines)

    def _disparity_lines(self) -> list[str]:
        """Return a line for each pair of groups."""
        lines = []
        for first in range(len(self.groups)):
            for second in range(first + 1, len(self.groups)):
                pair = f" ({self.groups[first]}, {self.groups[second]})"
                for name, value in (
                    ("disparity", self.disparity),
                    ("ratio_of_sums_disparity", self.ratio_of_sums_disparity),
                    ("exposure_ratio", self.exposure_ratio),
                ):
                    interval = self.intervals.get(name)
                    bounds = (
                        None if interval is None else tuple(_entry(one, first, second) for one in interval)
                    )
                    lines.append(_line(name, _entry(value, first, second), bounds) + pair)
        return lines


def _entry(values: float | Array, first: int, second: int) -> float:
    """Return what holds for a pair of groups; of two groups there is only one pair."""
    return values if isinstance(values, float) else float(values[first, second])


def _line(name: str, value: float, interval: tuple[Any, ...] | None = None) -> str:
    bounds = "" if interval is None else f"  [{interval[0]:.4g}, {interval[1]:.4g}]"
    return f"  {name:<24}{value:>10.4g}{bounds}"


def _table(evaluation: Evaluation) -> list[str]:
    columns = {
        "exposure": evaluation.exposure,
        "merit": evaluation.merit,
        "exposure share": evaluation.exposure_share,
        "merit share": evaluation.merit_share,
        "exposure/merit": evaluation.exposure_per_merit,
    }
    if not evaluation.groups:
        return []
    width = max(len(name) for name in (*evaluation.groups, "group")) + 2
    lines = [f"  {'group':<{width}}" + "".join(f"{name:>16}" for name in columns)]
    for group in evaluation.groups:
        lines.append(
            f"  {group:<{width}}" + "".join(f"{values[group]:>16.4g}" for values in columns.values())
        )
    return lines


def _shares(of_groups: dict[str, float]) -> dict[str, float]:
    total = sum(of_groups.values())
    return {name: value / total if total > 0 else math.nan for name, value in of_groups.items()}


def _plain(value: Any) -> Any:
    """Turn arrays into lists and numbers that JSON does not know into None."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
