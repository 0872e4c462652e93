"""Do other estimators of merit help? Their errors, and what training with them comes to on new queries.

    python -m benchmarks.evidence --splits 10 --out evidence.csv

For each data set and number of clicks a list, over independent splits: the error of the utility U and the
disparity D of one fixed policy on the training lists (root mean square over several logs), and DCG and
squared disparity on test queries after training. Everything is paired: each estimator sees the same clicks,
and its difference to inverse propensity scores ("ips") comes with a standard error over splits.

Logged rankings vary: they are drawn from the Plackett-Luce model of a Ranking SVM that was trained on 1% of
the queries. Users look at position k with probability 1/k.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fultr import Counts, FairRanker, PlackettLuce, PositionBias, RankingDataset, evaluate, simulate_clicks
from fultr.estimators import Evidence, disparity, evidence_from_relevance, utility
from fultr.expectation import dcg_weights, examination_weights, expected_weights
from fultr.experiments.reproduction import write_table
from fultr.experiments.worlds import Conditions, splits_of
from fultr.policy import RankingSVM
from fultr.training.task import ESTIMATORS

BIAS = PositionBias.power(1.0)
CLICKS = (0.3, 1.0, 3.0, 10.0)
"""Impressions with a click, as a multiple of the training lists."""

LISTS = 300
"""Training lists of synthetic data; German Credit has 500."""

LOGS = 10
"""Logs of a split from which errors of U and D are taken; training sees the first."""

SETTINGS = {"fairness_weight": 10.0, "l2": 0.03, "folds": 0, "position_bias": BIAS}
"""How rankers are trained: one configuration, so that only the evidence differs."""

MEASURES = ("error of U", "error of D", "test DCG", "test D^2")


class FixedPolicy:
    """The Plackett-Luce policy of a Ranking SVM, which logs the clicks and whose U and D are estimated."""

    def __init__(self, data: RankingDataset, seed: int) -> None:
        svm = RankingSVM.train(data, seed=seed)
        scale = float(svm.predict(data).std())
        self.weights = svm.weights / scale
        self.policy = PlackettLuce(lambda features: features @ self.weights)

    def measures(self, data: RankingDataset, evidence: Evidence) -> NDArray[np.float64]:
        """Return U and D on some lists."""
        longest = int(data.lengths.max())
        tables = np.stack([dcg_weights(longest, None), examination_weights(BIAS, longest)])
        scores = torch.from_numpy(self.policy.predict(data))
        value, exposure = expected_weights(scores, tables, offsets=data.offsets)
        return np.array([float(utility(value, evidence)), float(disparity(exposure, evidence)[0, 1])])


def measure_split(data: str, clicks: float, split: int) -> dict[str, list[float]]:
    """Return the measures of each estimator on one split."""
    lists = splits_of(Conditions(data, clicks, split=split, lists=LISTS))
    fixed = FixedPolicy(lists.train, split)
    truth = fixed.measures(lists.train, evidence_from_relevance(lists.train))
    impressions = max(20, round(clicks * len(lists.train)))
    logs: list[Counts] = []
    for number in range(LOGS):
        rng = np.random.default_rng([split, number])
        logs.append(simulate_clicks(lists.train, fixed.policy, BIAS, clicks=impressions, seed=rng).compact())
    measures = {}
    for name, estimate in ESTIMATORS.items():
        errors = [fixed.measures(log.data, estimate(log)) - truth for log in logs]
        ranker = FairRanker(**SETTINGS, evidence=name, seed=split).fit(logs[0])  # type: ignore[arg-type]
        tested = evaluate(ranker, lists.test, position_bias=BIAS, intervals=None)
        of_test = [tested.dcg, tested.disparity_squared]
        measures[name] = [*np.sqrt(np.mean(np.square(errors), axis=0)).tolist(), *of_test]
    return measures


def rows_of(data: str, clicks: float, splits: int) -> list[dict[str, object]]:
    """Return a row for each estimator: means over splits, and paired differences to "ips"."""
    by_name: defaultdict[str, list[list[float]]] = defaultdict(list)
    for split in range(splits):
        for name, measured in measure_split(data, clicks, split).items():
            by_name[name].append(measured)
    base = np.array(by_name["ips"])
    rows = []
    for name, measures in by_name.items():
        values, difference = np.array(measures), np.array(measures) - base
        row: dict[str, object] = {"data": data, "clicks": clicks, "evidence": name, "splits": splits}
        for number, measure in enumerate(MEASURES):
            row[measure] = round(float(values[:, number].mean()), 4)
            row[f"{measure} - ips"] = round(float(difference[:, number].mean()), 4)
            row[f"{measure} s.e."] = round(float(difference[:, number].std(ddof=1) / np.sqrt(splits)), 4)
        rows.append(row)
        differences = [f"{row[m]:.3f} ({row[f'{m} - ips']:+.3f} +- {row[f'{m} s.e.']:.3f})" for m in MEASURES]
        print(f"{data}, {clicks:g} clicks a list, {name}:", ", ".join(differences), flush=True)
    return rows


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description="Do other estimators of merit help?")
    parser.add_argument("data", nargs="*", default=["synthetic", "german"])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("evidence.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        row for data in arguments.data for clicks in CLICKS for row in rows_of(data, clicks, arguments.splits)
    ]
    print(f"wrote {write_table(arguments.out, rows)}")


if __name__ == "__main__":
    main()
