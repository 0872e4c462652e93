"""Figure 3: the trade-off approaches that of full information as clicks grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fultr.experiments.figures import Figure, Line, clicks_text, draw_trade_offs
from fultr.experiments.results import PARTS, Array, Plan, Results
from fultr.experiments.runs import Run
from fultr.experiments.statistics import estimate, slopes
from fultr.experiments.verdicts import Verdict, below_zero

SKYLINE = "full"


def multiples(plan: Plan) -> tuple[float, ...]:
    """Return the numbers of clicks, as multiples of the training lists: 1K to 120K of 12,000."""
    return (0.1, 1.0) if plan.quick else (0.1, 0.3, 1.0, 3.0, 10.0)


def _runs(plan: Plan) -> list[Run]:
    return plan.runs(["fultr"], multiples(plan)) + plan.runs([SKYLINE], [1.0])


def _distance(results: Results, part: str, clicks: float) -> Array:
    """Return how far a curve lies from that of full information, at the same lambdas: one for each split.

    The mean over lambdas of the distance between (DCG, root of the squared disparity) of the two.
    """
    gaps = []
    for column in (f"{part}_dcg", f"{part}_disparity_squared"):
        ours, full = results.table(column, "fultr", clicks), results.table(column, SKYLINE, 1.0)
        gaps.append(ours - full if column.endswith("dcg") else np.sqrt(ours) - np.sqrt(full))
    return np.asarray(np.hypot(*gaps).mean(axis=1))


def _judge(results: Results) -> list[Verdict]:
    numbers, verdicts = multiples(results.plan), []
    for part, queries in PARTS.items():
        distances = np.stack([_distance(results, part, clicks) for clicks in numbers], axis=1)
        findings = (
            below_zero(
                "change of the distance for 10 times the clicks",
                estimate(slopes(distances, np.log10(numbers))),
            ),
            below_zero("distance, most clicks - fewest", estimate(distances[:, -1] - distances[:, 0])),
        )
        statement = "the trade-off curve approaches that of full information as clicks grow"
        verdicts.append(Verdict("F3", statement, results.plan.title, queries, findings))
    return verdicts


def _draw(results: Results, path: Path) -> Path:
    lines = [Line("fultr", clicks, clicks_text(clicks)) for clicks in multiples(results.plan)]
    lines.append(Line(SKYLINE, 1.0, "full information"))
    return draw_trade_offs("Figure 3: more clicks", "FULTR-Linear, no click noise", results, lines, path)


FIGURE = Figure("fig3", "the trade-off as clicks grow", _runs, _judge, _draw)
