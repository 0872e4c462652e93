"""Why some claims do not hold as printed: what the cost of large parameters decides.

    python -m benchmarks.regularisation german synthetic mslr:FOLDER --out regularisation.csv

For each data set and cost, over several splits: the DCG of the mode of FULTR-Linear and of Propensity
SVM-Rank on training and on test queries, from as many noisy clicks as figure 1 has at most (a fifth of that
on German Credit), and by how much the regression of Equity of Attention errs for each group, from the clicks
of figure 2.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fultr.baselines import PropensitySVMRank, RelevanceRegression
from fultr.experiments.reproduction import write_table
from fultr.experiments.runs import measures
from fultr.experiments.worlds import Conditions, make_world
from fultr.training import FairRanker

COSTS = {
    "FULTR-Linear": (1e-4, 1e-3, 1e-2, 1e-1, 3e-1),
    "Propensity SVM-Rank": (1e-3, 1e-1, 1.0, 10.0),
    "regression": (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1),
}
RANKERS: dict[str, Any] = {"FULTR-Linear": FairRanker, "Propensity SVM-Rank": PropensitySVMRank}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="What the cost of large parameters decides.")
    parser.add_argument("data", nargs="+", help="german, synthetic or mslr:FOLDER")
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("regularisation.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for data in arguments.data for row in rows_of(data, arguments.splits)]
    print(f"wrote {write_table(arguments.out, rows)}")


def rows_of(data: str, splits: int) -> list[dict[str, Any]]:
    """Return the means over splits for each method and cost."""
    german = data == "german"
    by_method: dict[tuple[str, float], list[dict[str, float]]] = {}
    for split in range(splits):
        noisy = make_world(Conditions(data, 100.0 if german else 10.0, eps_minus=0.1, split=split))
        for name, make in RANKERS.items():
            for l2 in COSTS[name]:
                weight = {"fairness_weight": 0.0, "noise": None} if make is FairRanker else {}
                ranker = make(l2=l2, position_bias=noisy.position_bias, seed=split, **weight)
                ranker.fit(noisy.log, valid=noisy.valid)
                measured = {
                    f"{part}_mode_dcg": measures(ranker, lists, noisy, part)[f"{part}_mode_dcg"]
                    for part, lists in (("train", noisy.train), ("test", noisy.test))
                    if lists is not None
                }
                by_method.setdefault((name, l2), []).append(measured)
        clean = make_world(Conditions(data, 10.0 if german else 1.0, split=split))
        for l2 in COSTS["regression"]:
            regression = RelevanceRegression(l2=l2, position_bias=clean.position_bias, seed=split)
            regression.fit(clean.log, valid=clean.valid)
            errors = {} if clean.train is None else regression.relative_error(clean.train)
            named = {
                f"relative_error_{number}": error for number, error in enumerate(errors.values(), start=1)
            }
            by_method.setdefault(("regression", l2), []).append(named)
    return [
        {
            "data": data.partition(":")[0],
            "method": name,
            "l2": l2,
            "splits": splits,
            **{column: float(np.mean([row[column] for row in rows])) for column in rows[0]},
        }
        for (name, l2), rows in by_method.items()
    ]


if __name__ == "__main__":
    main()
