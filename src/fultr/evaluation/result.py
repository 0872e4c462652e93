"""What an evaluation found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fultr.results import Result, Tables

Array = NDArray[np.float64]
GROUP_MEASURES = ("exposure", "merit", "exposure_share", "merit_share", "exposure_per_merit")
PAIR_MEASURES = {
    "disparity": "disparities",
    "ratio_of_sums_disparity": "ratio_of_sums_disparities",
    "exposure_ratio": "exposure_ratios",
}
"""Measures of a pair of groups, and the matrices that have those of all pairs."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Result):
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
    disparities
        The antisymmetric matrix of D_ij, above 0 where group i has more exposure than its merit asks for
        beside group j; whatever the number of groups. `disparity` is D_01 of two groups.
    disparity_squared
        The sum of squares of D_ij over pairs of groups.
    ratio_of_sums_disparities
        The matrix of D', the differences of exposure for each unit of merit; 0 for a pair of groups that do
        not both have merit. `ratio_of_sums_disparity` is that of two groups.
    exposure_ratios
        The matrix of how many times the exposure for each unit of merit of group j group i has; 1 is fair,
        NaN where a group has no merit. `exposure_ratio` is that of two groups.
    exposure_to_move
        The share of all exposure that would have to go to other groups to be in proportion to merit.
    exposure, merit
        The mean exposure and merit of each group, by name.
    intervals
        Low and high of "dcg", "ndcg" (if there is one), "average_rank" and "exposure_to_move", and of two
        groups "disparity" and "exposure_ratio"; NaN where there is one query only. Empty if none were asked
        for. Those of the last three hold whatever the merit of candidates that nobody could see.
    pair_intervals
        The same of "disparities" and "exposure_ratios", as matrices.
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
    disparities: Array
    disparity_squared: float
    ratio_of_sums_disparities: Array
    exposure_ratios: Array
    exposure_to_move: float
    exposure: dict[str, float]
    merit: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    pair_intervals: dict[str, tuple[Array, Array]]
    level: float | None
    at: int | None
    stochastic: bool
    source: Literal["relevance", "clicks"]
    lists: int
    queries: int
    impressions: int
    empties_dropped: bool = False
    never_seen: dict[str, float] = field(default_factory=dict)

    derived = (
        "groups",
        "disparity",
        "ratio_of_sums_disparity",
        "exposure_ratio",
        "exposure_share",
        "merit_share",
        "exposure_per_merit",
    )

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, in the order of the rows of a matrix of disparities."""
        return tuple(self.exposure)

    @property
    def disparity(self) -> float:
        """D_01 of two groups; NaN if there are not two, of which `disparities` has all pairs."""
        return of_two_groups(self.disparities)

    @property
    def ratio_of_sums_disparity(self) -> float:
        """D' of two groups; NaN if there are not two."""
        return of_two_groups(self.ratio_of_sums_disparities)

    @property
    def exposure_ratio(self) -> float:
        """The ratio of exposure for each unit of merit of two groups; NaN if there are not two."""
        return of_two_groups(self.exposure_ratios)

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

    def tables(self) -> Tables:
        """Return the measures, and what each group has."""
        cut = "" if self.at is None else f"@{self.at}"
        rows = [
            _row(f"{name}{cut}", getattr(self, name), self.intervals.get(name))
            for name in ("dcg", "ndcg", "average_rank")
            if getattr(self, name) is not None
        ]
        rows += [_row(f"{name} ({pair})", *values) for name, pair, *values in self._of_pairs()]
        if self.groups:
            rows.append(_row("disparity_squared", self.disparity_squared, None))
            interval = self.intervals.get("exposure_to_move")
            rows.append(_row("exposure_to_move", self.exposure_to_move, interval))
        of_groups = {name: getattr(self, name) for name in GROUP_MEASURES}
        groups = [
            {"group": group, **{name: values[group] for name, values in of_groups.items()}}
            for group in self.groups
        ]
        return {"measures": rows, "groups": groups}

    def _of_pairs(self) -> Iterator[tuple[str, str, Any, Any]]:
        """Yield the name of a measure, the pair of groups, the value and its interval."""
        for first, second in combinations(range(len(self.groups)), 2):
            pair = f"{self.groups[first]}, {self.groups[second]}"
            for name, matrix in PAIR_MEASURES.items():
                interval = self.pair_intervals.get(matrix)
                bounds = None if interval is None else tuple(float(one[first, second]) for one in interval)
                yield name, pair, float(getattr(self, matrix)[first, second]), bounds

    def __repr__(self) -> str:
        ndcg = "" if self.ndcg is None else f", ndcg {self.ndcg:.4f}"
        if len(self.groups) == 2:
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
        lines += [f"{_line(name, *values)} ({pair})" for name, pair, *values in self._of_pairs()]
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


def of_two_groups(matrix: Array) -> float:
    """Return what a matrix of pairs of groups says of two groups; NaN if there are not two."""
    return float(matrix[0, 1]) if matrix.shape == (2, 2) else math.nan


def _row(name: str, value: float, interval: tuple[Any, ...] | None) -> dict[str, Any]:
    low, high = (None, None) if interval is None else interval
    return {"measure": name, "value": value, "low": low, "high": high}


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
