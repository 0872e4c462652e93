"""Figure 4: what is lost without inverse propensity weights, in the disparity or altogether."""

from __future__ import annotations

from pathlib import Path

from fultr.experiments.figures import Figure, Line, clicks_text, draw_trade_offs
from fultr.experiments.results import PARTS, Plan, Results
from fultr.experiments.runs import Run
from fultr.experiments.statistics import NEAR_ZERO, estimate, ratio
from fultr.experiments.verdicts import Verdict, above_zero, inside

METHODS = ("fultr", "no-ips", "utility-ips")


def clicks_of(plan: Plan) -> float:
    """Return clicks as a multiple of the training lists: 12K of 12,000; few lists need more of them."""
    return 10.0 if plan.quick else 1.0


def _runs(plan: Plan) -> list[Run]:
    return plan.runs(METHODS, [clicks_of(plan)])


def _judge(results: Results) -> list[Verdict]:
    verdicts, clicks = [], clicks_of(results.plan)
    for part, queries in PARTS.items():
        utility = {method: results.at(f"{part}_dcg", method, clicks, 0.0) for method in METHODS}
        lowest = {method: results.lowest(part, method, clicks)[1] for method in METHODS}
        start = results.at(f"{part}_disparity_squared", "fultr", clicks, 0.0)
        about = (results.plan.title, queries)
        verdicts += [
            Verdict(
                "F4a",
                "without IPS, utility is lower and disparity does not come as low",
                *about,
                (
                    above_zero(
                        "DCG at lambda 0, FULTR - No-IPS", estimate(utility["fultr"] - utility["no-ips"])
                    ),
                    above_zero(
                        "lowest squared disparity, No-IPS - FULTR",
                        estimate(lowest["no-ips"] - lowest["fultr"]),
                    ),
                    inside(
                        "lowest squared disparity of No-IPS / that of FULTR at lambda 0",
                        ratio(lowest["no-ips"], start),
                        NEAR_ZERO,
                    ),
                ),
            ),
            Verdict(
                "F4b",
                "with IPS in the utility alone, utility is kept but disparity stays above that of FULTR",
                *about,
                (
                    inside(
                        "DCG at lambda 0, Utility-IPS / FULTR",
                        ratio(utility["utility-ips"], utility["fultr"]),
                        0.98,
                    ),
                    above_zero(
                        "lowest squared disparity, Utility-IPS - FULTR",
                        estimate(lowest["utility-ips"] - lowest["fultr"]),
                    ),
                ),
            ),
        ]
    return verdicts


def _draw(results: Results, path: Path) -> Path:
    lines = [Line(method, clicks_of(results.plan)) for method in METHODS]
    settings = f"{clicks_text(clicks_of(results.plan))}, no click noise"
    return draw_trade_offs("Figure 4: without propensities", settings, results, lines, path)


FIGURE = Figure("fig4", "what inverse propensities are for", _runs, _judge, _draw)
