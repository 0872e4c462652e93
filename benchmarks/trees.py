"""Which scorer for which data? Trees, a linear scorer, a network, and trees on a linear scorer.

    python -m benchmarks.trees --splits 10 --outcomes outcomes.jsonl --out trees.csv

For each data set, over independent splits: DCG and squared disparity on training and test queries of each
scorer, of a sweep over the fairness weights 0, 1 and 10 with 10 clicks a list. Everything is paired: each
scorer sees the same clicks, and its difference to the linear one comes with a standard error over the splits
that both were measured on. "raw" is the synthetic data with heavy-tailed features. LightGBM's lambdarank is
trained on the true relevance of the training lists, and on the clicks with its position debiasing; it knows
no fairness. What came of each sweep is kept as it comes, one split of all data sets after another, and
nothing is done twice.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
from numpy.typing import NDArray

import fultr
from fultr import (
    ClickLog,
    DataSplits,
    FairRanker,
    FixedScorer,
    PositionBias,
    RandomRanking,
    RankingDataset,
    datasets,
    evaluate,
    simulate_clicks,
)
from fultr.errors import FultrWarning
from fultr.experiments.reproduction import write_table

BIAS = PositionBias.power(1.0)
CLICKS = 10
"""Impressions with a click, as a multiple of the training lists."""

FAIRNESS_WEIGHTS = (0.0, 1.0, 10.0)
MODELS = ("linear", "mlp", "trees", "linear+trees")
ON_RELEVANCE, ON_CLICKS = "lambdarank on relevance", "lambdarank on clicks"
MEASURES = ("train DCG", "train D^2", "test DCG", "test D^2")

LAMBDARANK = {"objective": "lambdarank", "verbosity": -1, "num_leaves": 15, "learning_rate": 0.1}
LAMBDARANK_ROUNDS = 100

TEST_LISTS, FEATURES = 600, 40
"""Test lists of synthetic data, since few of them say little of a disparity; and its features."""

Outcome = dict[str, Any]
"""Measures of one scorer and fairness weight on one split."""


def splits_of(name: str, lists: int, split: int, mslr: Path | None) -> DataSplits:
    """Return training, validation and test lists."""
    if name == "german":
        return datasets.german_credit(seed=split)
    if name == "mslr" and mslr is not None:
        return datasets.mslr(mslr, seed=split)
    scale = "raw" if name == "raw" else "standard"
    sizes = {"queries": lists, "test_queries": TEST_LISTS, "features": FEATURES}
    return datasets.synthetic(**sizes, scale=scale, seed=split)


def lambdarank(log: ClickLog | RankingDataset) -> FixedScorer:
    """Return LightGBM's own ranker, trained on relevance, or on clicks with its position debiasing."""
    data = log.data if isinstance(log, ClickLog) else log
    if isinstance(log, ClickLog):
        shown = np.flatnonzero(log.position > 0)
        rows, label = log.row_of_entry[shown], log.click[shown].astype(int)
        sizes = np.bincount(np.repeat(np.arange(log.lists.size), data.lengths[log.lists])[shown])
        position = log.position[shown] - 1
        given = lightgbm.Dataset(data.features[rows], label, group=sizes, position=position)
    else:
        given = lightgbm.Dataset(data.features, np.asarray(data.relevance) > 0.5, group=data.lengths)
    booster = lightgbm.train({**LAMBDARANK, "num_threads": 1}, given, LAMBDARANK_ROUNDS)
    return FixedScorer(lambda features: booster.predict(features))


def policies_of(model: str, train: RankingDataset, split: int) -> Iterator[tuple[float, Any]]:
    """Yield fairness weights and the policies of a scorer for them, trained on the clicks of a split."""
    log = simulate_clicks(train, RandomRanking(), BIAS, clicks=CLICKS * len(train), seed=split)
    if model in (ON_RELEVANCE, ON_CLICKS):
        yield 0.0, lambdarank(train if model == ON_RELEVANCE else log)
        return
    ranker = FairRanker(model=model, position_bias=BIAS)
    front = fultr.sweep(log, ranker=ranker, fairness_weights=FAIRNESS_WEIGHTS, seeds=[split])
    for point in front.chosen:
        yield point.fairness_weight, front.ranker(point)


def outcomes_of(name: str, model: str, split: int, data: DataSplits) -> Iterator[Outcome]:
    """Yield what the policies of a scorer come to on one split."""
    began = time.process_time()
    for weight, policy in policies_of(model, data.train, split):
        took, measures = time.process_time() - began, []
        for part in (data.train, data.test):
            tested = evaluate(policy, part, position_bias=BIAS, intervals=None)
            measures += [tested.dcg, tested.disparity_squared]
        outcome = {"data": name, "model": model, "split": split, "lambda": weight, "seconds": round(took, 1)}
        yield {**outcome, **dict(zip(MEASURES, measures, strict=True))}


def measure_all(names: Sequence[str], splits: int, lists: int, mslr: Path | None, kept: Path) -> None:
    """Measure what was not measured before, one split of all data sets after another."""
    measured = {(one["data"], one["model"], one["split"]) for one in outcomes_in(kept)}
    for split in range(splits):
        for name in names:
            data = splits_of(name, lists, split, mslr)
            for model in (*MODELS, ON_RELEVANCE, ON_CLICKS):
                if (name, model, split) in measured:
                    continue
                lines = [json.dumps(one) + "\n" for one in outcomes_of(name, model, split, data)]
                with kept.open("a", encoding="utf-8") as file:
                    file.writelines(lines)


def outcomes_in(kept: Path) -> list[Outcome]:
    """Return what was measured before."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    return [json.loads(line) for line in lines]


def table_of(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """Return a row for each scorer: means over splits, and paired differences to the linear one."""
    by_key: defaultdict[tuple[str, float, str], dict[int, NDArray[np.float64]]] = defaultdict(dict)
    for one in outcomes:
        values = np.array([one[measure] for measure in MEASURES])
        by_key[one["data"], one["lambda"], one["model"]][one["split"]] = values
    rows = []
    for (name, weight, model), measured in by_key.items():
        linear = by_key[name, weight, "linear"]
        values = np.array(list(measured.values()))
        apart = np.array([measured[split] - linear[split] for split in measured if split in linear])
        row: dict[str, object] = {"data": name, "lambda": weight, "model": model, "splits": len(measured)}
        for number, measure in enumerate(MEASURES):
            row[measure] = round(float(values[:, number].mean()), 4)
            if model != "linear" and len(apart):
                row[f"{measure} - linear"] = round(float(apart[:, number].mean()), 4)
            if model != "linear" and len(apart) > 1:
                error = apart[:, number].std(ddof=1) / np.sqrt(len(apart))
                row[f"{measure} s.e."] = round(float(error), 4)
        rows.append(row)
    return rows


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description="Which scorer for which data?")
    parser.add_argument("data", nargs="*", default=["synthetic", "raw", "german"])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--lists", type=int, default=300, help="training lists of synthetic data")
    parser.add_argument("--mslr", type=Path, help="the folder of MSLR, for the data 'mslr'")
    parser.add_argument("--outcomes", type=Path, default=Path("outcomes.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("trees.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FultrWarning)
    measure_all(given.data, given.splits, given.lists, given.mslr, given.outcomes)
    print(f"wrote {write_table(given.out, table_of(outcomes_in(given.outcomes)))}")


if __name__ == "__main__":
    main()
