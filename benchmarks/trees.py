"""Which scorer for which data? Trees, a linear scorer, a network, and trees on a linear scorer.

    python -m benchmarks.trees --splits 10 --out trees.csv

For each data set, over independent splits: DCG and squared disparity on training and test queries of each
scorer, trained for the fairness weights 0, 1 and 10 on 10 clicks a list. Everything is paired: each scorer
sees the same clicks, and its difference to the linear one comes with a standard error over splits. "raw" is
the synthetic data with heavy-tailed features. LightGBM's lambdarank is trained on the true relevance of the
training lists, and on the clicks with its position debiasing; it knows no fairness.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
import torch
from numpy.typing import NDArray

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
from fultr.experiments.reproduction import write_table

BIAS = PositionBias.power(1.0)
CLICKS = 10
"""Impressions with a click, as a multiple of the training lists."""

FAIRNESS_WEIGHTS = (0.0, 1.0, 10.0)
MODELS = ("linear", "mlp", "trees", "linear+trees")
MEASURES = ("train DCG", "train D^2", "test DCG", "test D^2")

LAMBDARANK = {"objective": "lambdarank", "verbosity": -1, "num_leaves": 15, "learning_rate": 0.1}
LAMBDARANK_ROUNDS = 100


def splits_of(name: str, lists: int, split: int, mslr: Path | None) -> DataSplits:
    """Return training, validation and test lists."""
    if name == "german":
        return datasets.german_credit(seed=split)
    if name == "mslr" and mslr is not None:
        return datasets.mslr(mslr, seed=split)
    return datasets.synthetic(queries=lists, scale="raw" if name == "raw" else "standard", seed=split)


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
    booster = lightgbm.train(dict(LAMBDARANK), given, LAMBDARANK_ROUNDS)
    return FixedScorer(lambda features: booster.predict(features))


def measure_split(
    name: str, lists: int, split: int, mslr: Path | None
) -> dict[tuple[str, float], list[float]]:
    """Return the measures of each scorer and fairness weight on one split."""
    data = splits_of(name, lists, split, mslr)
    log = simulate_clicks(data.train, RandomRanking(), BIAS, clicks=CLICKS * len(data.train), seed=split)
    makers: dict[tuple[str, float], Callable[[], FairRanker | FixedScorer]] = {
        (model, weight): lambda model=model, weight=weight: FairRanker(weight, model=model, seed=split).fit(
            log
        )  # type: ignore[misc]
        for weight in FAIRNESS_WEIGHTS
        for model in MODELS
    }
    makers["lambdarank on relevance", 0.0] = lambda: lambdarank(data.train)
    makers["lambdarank on clicks", 0.0] = lambda: lambdarank(log)
    found = {}
    for key, make in makers.items():
        began = time.process_time()
        ranker = make()
        measures: list[float] = []
        for part in (data.train, data.test):
            tested = evaluate(ranker, part, position_bias=BIAS, intervals=None)
            measures += [tested.dcg, tested.disparity_squared]
        found[key] = measures
        shown = ", ".join(f"{measure} {value:.4f}" for measure, value in zip(MEASURES, measures, strict=True))
        print(f"{name} {split} {key}: {shown}, {time.process_time() - began:.0f} s", flush=True)
    return found


def rows_of(name: str, lists: int, splits: int, mslr: Path | None) -> list[dict[str, object]]:
    """Return a row for each scorer: means over splits, and paired differences to the linear one."""
    by_key: defaultdict[tuple[str, float], list[list[float]]] = defaultdict(list)
    for split in range(splits):
        for key, measured in measure_split(name, lists, split, mslr).items():
            by_key[key].append(measured)
    rows = []
    for (model, weight), measures in by_key.items():
        values: NDArray[np.float64] = np.array(measures)
        difference = values - np.array(by_key["linear", weight])
        row: dict[str, object] = {"data": name, "lambda": weight, "model": model, "splits": splits}
        for number, measure in enumerate(MEASURES):
            row[measure] = round(float(values[:, number].mean()), 4)
            row[f"{measure} - linear"] = round(float(difference[:, number].mean()), 4)
            error = difference[:, number].std(ddof=1) / np.sqrt(splits) if splits > 1 else np.nan
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
    parser.add_argument("--out", type=Path, default=Path("trees.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for name in arguments.data:
        rows += rows_of(name, arguments.lists, arguments.splits, arguments.mslr)
    print(f"wrote {write_table(arguments.out, rows)}")


if __name__ == "__main__":
    main()
