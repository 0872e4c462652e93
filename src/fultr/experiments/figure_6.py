"""Figure 6: two groups, five and seven."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fultr.experiments.figures import Figure, Line, clicks_text, draw_trade_offs
from fultr.experiments.results import PARTS, Array, Plan, Results
from fultr.experiments.runs import Run
from fultr.experiments.statistics import estimate, slopes
from fultr.experiments.verdicts import Verdict, above_zero, below_zero

GROUPS = (2, 5, 7)
FEW, MANY = 1 / 3, 1.0
"""Clicks as multiples of the training lists: 4K and 12K of 12,000."""


def _groups(plan: Plan) -> tuple[int, ...]:
    return (2, 5) if plan.quick else GROUPS


def _runs(plan: Plan) -> list[Run]:
    return [run for count in _groups(plan) for run in plan.runs(["fultr"], [FEW, MANY], groups=count)]


def _left(results: Results, part: str, clicks: float, count: int) -> Array:
    """Return, for each split, the log of the part of the squared disparity that is left at the lowest.

    Of that at lambda 0 of the same number of groups, from the more clicks, so that what clicks change shows.
    """
    _, lowest = results.lowest(part, "fultr", clicks, groups=count)
    start = results.at(f"{part}_disparity_squared", "fultr", MANY, 0.0, groups=count)
    return np.asarray(np.log(lowest) - np.log(start))


def _judge(results: Results) -> list[Verdict]:
    verdicts, counts = [], _groups(results.plan)
    for part, queries in PARTS.items():
        few, many = (
            np.stack([_left(results, part, clicks, count) for count in counts], axis=1)
            for clicks in (FEW, MANY)
        )
        findings = (
            above_zero(
                "log of the part of squared disparity left, for each further group, fewer clicks",
                estimate(slopes(few, counts)),
            ),
            above_zero("the same, more clicks", estimate(slopes(many, counts))),
            below_zero(
                "log of the part left with five groups or more, more clicks - fewer",
                estimate((many - few)[:, 1:].mean(axis=1)),
            ),
        )
        statement = "the lowest disparity rises with the number of groups, and falls again with more clicks"
        verdicts.append(Verdict("F6", statement, results.plan.title, queries, findings))
    return verdicts


def _draw(results: Results, path: Path) -> Path:
    lines = [
        Line("fultr", clicks, f"{count} groups, {clicks_text(clicks)}", (("groups", count),))
        for count in _groups(results.plan)
        for clicks in (FEW, MANY)
    ]
    return draw_trade_offs("Figure 6: many groups", "FULTR-Linear, no click noise", results, lines, path)


FIGURE = Figure("fig6", "many groups", _runs, _judge, _draw)
