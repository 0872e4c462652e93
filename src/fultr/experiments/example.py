"""The example of the paper's introduction: three studios, from ranking by relevance to a fair policy."""

from __future__ import annotations

from pathlib import Path

from fultr.click_model import PositionBias
from fultr.datasets import studios
from fultr.experiments.runs import Row
from fultr.experiments.statistics import Estimate
from fultr.experiments.verdicts import Verdict, inside
from fultr.plots import draw_bars
from fultr.training import FairRanker

POLICIES = {"by relevance": 0.0, "FULTR, lambda 30": 30.0}
"""The fairness weights of the two policies."""

TITLE = "three studios"


def run_example() -> list[Row]:
    """Train on the true relevance, and return the exposure of each studio under both policies, exactly."""
    data = studios()
    rows = []
    for name, weight in POLICIES.items():
        ranker = FairRanker(
            weight, l2=0.0, folds=0, position_bias=PositionBias.power(1.0), scale_features=False
        ).fit(data)
        evaluation = ranker.evaluate(data, intervals=None)
        exposure = {f"exposure of {group}": value for group, value in evaluation.exposure.items()}
        rows.append(
            {
                "policy": name,
                **exposure,
                "disparity_squared": evaluation.disparity_squared,
                "dcg": evaluation.dcg,
            }
        )
    return rows


def judge_example(rows: list[Row]) -> list[Verdict]:
    """Compare with the exposures that follow from the definition (claim E1)."""
    by_relevance, fair = rows
    first, second, third = (f"exposure of studio {number}" for number in (1, 2, 3))
    findings = (
        inside(
            "by relevance: exposure of studio 1 / studio 2",
            _exact(by_relevance[first] / by_relevance[second]),
            2.0,
        ),
        inside("FULTR: exposure of studio 1 / studio 2", _exact(fair[first] / fair[second]), 0.95, 1.05),
        inside("FULTR: exposure of studio 3 / studio 2", _exact(fair[third] / fair[second]), 0.0, 0.5),
        inside(
            "squared disparity, FULTR / by relevance",
            _exact(fair["disparity_squared"] / by_relevance["disparity_squared"]),
            0.0,
            0.01,
        ),
    )
    statement = (
        "ranking by relevance gives studio 1 far more exposure than studio 2; FULTR gives both nearly the"
        " same, and studio 3 much less"
    )
    return [Verdict("E1", statement, TITLE, "the one query, exactly", findings)]


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value, 1)


def draw_example(rows: list[Row], path: Path) -> Path:
    """Draw the exposure of the studios under both policies."""
    groups = [f"studio {number}" for number in (1, 2, 3)]
    bars = {row["policy"]: [row[f"exposure of {group}"] for group in groups] for row in rows}
    return draw_bars(
        "Example: exposure of three studios of relevance 0.7, 0.69 and 0.1", groups, bars, "exposure", path
    )
