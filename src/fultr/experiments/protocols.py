"""The paper's training protocol beside ours: what each reaches on the same clicks, and in what time."""

from __future__ import annotations

from fultr.experiments.figure_2 import PAPER, clicks_of
from fultr.experiments.methods import L2_OF_LINEAR
from fultr.experiments.results import Array, Plan, Results
from fultr.experiments.runs import Row
from fultr.experiments.statistics import estimate
from fultr.training.cross_fitting import MOVING_COSTS

PROTOCOLS = {"fultr": "default", PAPER: "paper"}
DIFFERENCE = "paper - default"
LOW, HIGH = ", low", ", high"
"""What the columns of the ends of an interval are called after."""

MEASURES = {
    "DCG, training queries": "train_dcg",
    "squared disparity, training queries": "train_disparity_squared",
    "DCG, test queries": "test_dcg",
    "squared disparity, test queries": "test_disparity_squared",
}


def side_by_side(results: Results) -> list[Row]:
    """Return means over the splits on which both protocols were run, for each fairness weight of the paper's.

    Each measure has its interval, and a third row the differences between the two, split by split. The
    default protocol trains the most useful policy for all costs of large parameters at once, and from it all
    fairness weights. `seconds` are those of one processor for each policy that was trained, and
    `seconds_in_all` those of the whole run.
    """
    clicks, plan = clicks_of(results.plan), results.plan
    splits = plan.paper_splits
    if not splits:
        return []
    rows: list[Row] = []
    for weight in plan.trade_offs(PAPER):
        measured: dict[str, dict[str, Array]] = {}
        for method, protocol in PROTOCOLS.items():
            trained = len(plan.trade_offs(method))
            if method != PAPER:
                trained = trained * len(MOVING_COSTS) + len(L2_OF_LINEAR)
            seconds = results.at("run_seconds", method, clicks, weight)[:splits].mean()
            measured[protocol] = {
                title: results.at(column, method, clicks, weight)[:splits]
                for title, column in MEASURES.items()
            }
            time = {
                "policies": trained,
                "seconds": float(seconds / trained),
                "seconds_in_all": float(seconds),
            }
            rows.append(_row(plan, weight, protocol, measured[protocol]) | time)
        apart = {title: measured["paper"][title] - measured["default"][title] for title in MEASURES}
        rows.append(_row(plan, weight, DIFFERENCE, apart))
    return rows


def _row(plan: Plan, weight: float, protocol: str, measured: dict[str, Array]) -> Row:
    row: Row = {"data": plan.title, "lambda": weight, "protocol": protocol, "splits": plan.paper_splits}
    for title, values in measured.items():
        estimated = estimate(values)
        row |= {title: estimated.mean, f"{title}{LOW}": estimated.low, f"{title}{HIGH}": estimated.high}
    return row
