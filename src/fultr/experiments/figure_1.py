"""Figure 1: utility alone, against the number of clicks, under click noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fultr.experiments.figures import DCG, NOTE, Figure, estimates, splits_text
from fultr.experiments.methods import METHODS
from fultr.experiments.results import PARTS, Array, Plan, Results
from fultr.experiments.runs import Run
from fultr.experiments.statistics import estimate, ratio, slopes
from fultr.experiments.verdicts import Verdict, above_zero, inside
from fultr.plots import Curve, Panel, draw_panels

NOISE = 0.1
LEARNERS = ("fultr", "fultr-mlp", "propensity-svm", "click-svm", "pg-rank", "lambda-rank")
SKYLINES = ("full", "full-mlp")


def multiples(plan: Plan) -> tuple[float, ...]:
    """Return the numbers of clicks, as multiples of the training lists."""
    clicks = (0.1, 1.0, 10.0, 100.0, 500.0) if plan.is_german else (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    return clicks[1::3] if plan.quick else clicks


def _runs(plan: Plan) -> list[Run]:
    runs = plan.runs(LEARNERS, multiples(plan), eps_minus=NOISE)
    runs += plan.runs(SKYLINES, multiples(plan)[-1:], eps_minus=NOISE)
    # utility alone needs no other trade-off
    return [replace(run, trade_offs=(0.0,)) for run in runs]


def _mode_dcg(results: Results, part: str, method: str, clicks: float) -> Array:
    return results.table(f"{part}_mode_dcg", method, clicks, eps_minus=NOISE)[:, 0]


def _judge(results: Results) -> list[Verdict]:
    numbers, verdicts = multiples(results.plan), []
    most = numbers[-1]
    for part, queries in PARTS.items():
        last = {method: _mode_dcg(results, part, method, most) for method in (*LEARNERS, *SKYLINES)}
        trends = {
            method: slopes(
                np.stack([_mode_dcg(results, part, method, clicks) for clicks in numbers], axis=1),
                np.log10(numbers),
            )
            for method in ("fultr", "fultr-mlp")
        }
        about = (results.plan.title, queries)
        verdicts += [
            Verdict(
                "F1a",
                "DCG of FULTR rises with clicks and comes close to that of full information",
                *about,
                (
                    above_zero("FULTR-Linear: DCG gained for 10 times the clicks", estimate(trends["fultr"])),
                    inside(
                        "FULTR-Linear / Full-Linear, most clicks", ratio(last["fultr"], last["full"]), 0.98
                    ),
                    above_zero(
                        "FULTR-MLP: DCG gained for 10 times the clicks", estimate(trends["fultr-mlp"])
                    ),
                    inside(
                        "FULTR-MLP / Full-MLP, most clicks", ratio(last["fultr-mlp"], last["full-mlp"]), 0.98
                    ),
                ),
            ),
            Verdict(
                "F1b",
                "FULTR-Linear and Propensity SVM-Rank perform alike",
                *about,
                (
                    inside(
                        "FULTR-Linear / Propensity SVM-Rank, most clicks",
                        ratio(last["fultr"], last["propensity-svm"]),
                        0.98,
                        1.02,
                    ),
                ),
            ),
            Verdict(
                "F1c",
                "methods that ignore position bias stay below FULTR",
                *about,
                (
                    above_zero(
                        "FULTR-Linear - PG-Rank, most clicks", estimate(last["fultr"] - last["pg-rank"])
                    ),
                    above_zero(
                        "FULTR-MLP - LambdaRank, most clicks",
                        estimate(last["fultr-mlp"] - last["lambda-rank"]),
                    ),
                ),
            ),
        ]
    return verdicts


def _draw(results: Results, path: Path) -> Path:
    panels, numbers = [], multiples(results.plan)
    for part, queries in PARTS.items():
        curves = []
        for method in LEARNERS:
            table = np.stack([_mode_dcg(results, part, method, clicks) for clicks in numbers], axis=1)
            columns = estimates(table)
            bounds = ([column.low for column in columns], [column.high for column in columns])
            title = METHODS[method].title
            curves.append(Curve(title, numbers, [column.mean for column in columns], up_bounds=bounds))
        for style, method in enumerate(SKYLINES):
            (column,) = estimates(_mode_dcg(results, part, method, numbers[-1])[:, None])
            bounds = ([column.low], [column.high])
            title = METHODS[method].title
            curves.append(Curve(title, [0.0], [column.mean], up_bounds=bounds, level=True, style=style))
        panels.append(Panel(queries, "clicks for each training list", DCG, curves, logarithmic=True))
    settings = f"the mode of each policy, click noise ε₋ = {NOISE:g}, {splits_text(results.plan.splits)}"
    title = f"Figure 1: learning from noisy clicks · {results.plan.title}\n{settings}"
    return draw_panels(title, panels, path, NOTE)


FIGURE = Figure("fig1", "utility from noisy clicks", _runs, _judge, _draw, on_german=True)
