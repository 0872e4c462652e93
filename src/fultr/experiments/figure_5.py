"""Figure 5: click noise, and the correction for it."""

from __future__ import annotations

import math
from pathlib import Path

from fultr.experiments.figures import Figure, Line, clicks_text, draw_trade_offs
from fultr.experiments.results import PARTS, Plan, Results
from fultr.experiments.runs import Run
from fultr.experiments.statistics import TOWARDS_ZERO, estimate, ratio
from fultr.experiments.verdicts import Verdict, above_zero, inside
from fultr.experiments.worlds import PLANTED

NOISE = 0.1
FEW, MANY = 3.0, 10.0
"""Clicks as multiples of the training lists: 36K and 120K of 12,000."""

ESTIMATED = (
    f"the noise is estimated from {PLANTED:,} impressions with a planted item, which is 1% of the paper's"
    " data, and more than 1% here"
)


def _multiples(plan: Plan) -> tuple[float, ...]:
    return (FEW * MANY,) if plan.quick else (FEW, MANY)


def _runs(plan: Plan) -> list[Run]:
    return plan.runs(["fultr", "fultr-corrected"], _multiples(plan), eps_minus=NOISE)


def _judge(results: Results) -> list[Verdict]:
    verdicts = []
    for part, queries in PARTS.items():
        pure, corrected = (
            {
                clicks: results.lowest(part, method, clicks, eps_minus=NOISE)[1]
                for clicks in _multiples(results.plan)
            }
            for method in ("fultr", "fultr-corrected")
        )
        findings = [
            above_zero(
                f"lowest squared disparity, pure IPS - corrected, {clicks:g} clicks for each list",
                estimate(pure[clicks] - corrected[clicks]),
            )
            for clicks in pure
        ]
        most = max(pure)
        start = results.at(f"{part}_disparity_squared", "fultr-corrected", most, 0.0, eps_minus=NOISE)
        findings.append(
            inside(
                f"corrected: lowest squared disparity / that at lambda 0, {most:g} clicks for each list",
                ratio(corrected[most], start),
                -math.inf,
                TOWARDS_ZERO,
            )
        )
        if MANY in pure:
            effect = f"pure IPS: lowest squared disparity, {MANY:g} clicks for each list / {FEW:g}"
            findings.append(inside(effect, ratio(pure[MANY], pure[FEW]), 0.5))
        statement = (
            "with click noise, the corrected estimator reaches low disparity; pure IPS does not, and more"
            " clicks do not help it"
        )
        verdicts.append(Verdict("F5", statement, results.plan.title, queries, tuple(findings), ESTIMATED))
    return verdicts


def _draw(results: Results, path: Path) -> Path:
    lines = [
        Line(method, clicks, f"{title}, {clicks_text(clicks)}", (("eps_minus", NOISE),))
        for clicks in _multiples(results.plan)
        for method, title in (("fultr", "pure IPS"), ("fultr-corrected", "noise-corrected"))
    ]
    settings = f"FULTR-Linear, click noise ε₋ = {NOISE:g}"
    return draw_trade_offs("Figure 5: the correction for noise", settings, results, lines, path)


FIGURE = Figure("fig5", "the correction for click noise", _runs, _judge, _draw)
