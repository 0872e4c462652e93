"""The paper's training protocol beside ours: what each reaches on the same clicks, and in what time."""

from __future__ import annotations

import numpy as np

from fultr.experiments.figure_2 import PAPER, clicks_of
from fultr.experiments.results import Results
from fultr.experiments.runs import Row

PROTOCOLS = {"fultr": "default", PAPER: "paper"}
MEASURES = {
    "DCG, training queries": "train_dcg",
    "squared disparity, training queries": "train_disparity_squared",
    "DCG, test queries": "test_dcg",
    "squared disparity, test queries": "test_disparity_squared",
}


def side_by_side(results: Results) -> list[Row]:
    """Return means over the splits on which both protocols were run, for each fairness weight of the paper's.

    The default protocol trains all fairness weights and costs of large parameters at once. `seconds` are
    those of one processor for each policy that was trained, and `seconds_in_all` those of the whole run.
    """
    clicks, plan = clicks_of(results.plan), results.plan
    splits = plan.paper_splits
    if not splits:
        return []
    rows = []
    for weight in plan.trade_offs(PAPER):
        for method, protocol in PROTOCOLS.items():
            trained = len(plan.trade_offs(method)) * (len(plan.l2) if method != PAPER else 1)
            seconds = results.at("run_seconds", method, clicks, weight)[:splits].mean()
            rows.append(
                {
                    "data": plan.title,
                    "lambda": weight,
                    "protocol": protocol,
                    "splits": splits,
                    **{
                        title: float(np.mean(results.at(column, method, clicks, weight)[:splits]))
                        for title, column in MEASURES.items()
                    },
                    "policies": trained,
                    "seconds": float(seconds / trained),
                    "seconds_in_all": float(seconds),
                }
            )
    return rows
