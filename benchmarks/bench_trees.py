"""How fast trees grow and score, against LightGBM itself; on one core.

python -m benchmarks.bench_trees [--quick] [--rows 2300000]

Growing: processor time of 300 rounds from exact gradients against LightGBM's lambdarank, with the same
settings on the same binned rows. Scoring: our nodes against its predict, for one request and for many rows.
With --rows, instead: the memory and time of training on so many rows of 136 features, with folds and all.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator

import lightgbm
import numpy as np
import torch

import fultr
from fultr.policy.lightgbm_text import trees_of_text
from fultr.training.growing import ScoreSlopes
from fultr.training.lightgbm_trees import BinnedRows
from fultr.training.task import Task, Weighing
from fultr.training.tree_settings import TreeSettings

BIAS = fultr.PositionBias.power(1.0)
ROUNDS = 300

FEATURES = 136
ROUNDS_OF_MANY = 20
"""Rounds of growing on many rows; a hundred more take a byte for each row and tree, up to a gigabyte."""


def main() -> None:
    """Print one line after another."""
    parser = argparse.ArgumentParser(description="Speed of trees.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds and rows")
    parser.add_argument("--rows", type=int, help="train on so many rows instead")
    given = parser.parse_known_args()[0]
    quick = given.quick
    torch.set_num_threads(1)
    if given.rows is not None:
        print(training_line(given.rows))
        return
    for line in growing_lines(quick):
        print(line, flush=True)
    for line in scoring_lines(quick):
        print(line, flush=True)
    print(f"highest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")


def training_line(rows: int) -> str:
    """Train on many rows, in lists of 20."""
    rng = np.random.default_rng(0)
    features = np.empty((rows, FEATURES), dtype=np.float32)
    for start in range(0, rows, 1 << 16):
        rng.standard_normal(out=features[start : start + (1 << 16)], dtype=np.float32)
    group = (rng.random(rows) < 0.5).astype(np.int64)
    score = features[:, 0] * features[:, 1] + features[:, 2] - group
    data = fultr.RankingDataset(
        features,
        np.arange(0, rows + 1, 20),
        group=group,
        group_names=["a", "b"],
        relevance=1 / (1 + np.exp(2 - score)),
    )
    log = fultr.simulate_clicks(data, fultr.RandomRanking(), BIAS, clicks=2 * len(data), seed=0).compact()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    settings = TreeSettings(rounds=ROUNDS_OF_MANY)
    ranker = fultr.FairRanker(1.0, model="trees", trees=settings, position_bias=BIAS)
    took = seconds(lambda: ranker.fit(log))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"{rows:,} rows x {FEATURES}, {ROUNDS_OF_MANY} rounds, 4 folds: {took:.0f} s of processor time;"
        f" highest memory {after:.2f} GB, {before:.2f} GB of it before training"
    )


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Return the processor time of some work, done once before."""
    if times > 1:
        work()
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def growing_lines(quick: bool) -> Iterator[str]:
    """Compare growing for utility and for fairness with lambdarank."""
    rounds = ROUNDS // 10 if quick else ROUNDS
    data = fultr.datasets.synthetic(queries=1200, seed=0).train
    log = fultr.simulate_clicks(data, fultr.RandomRanking(), BIAS, clicks=12_000, seed=0)
    task, settings = Task.of(log, Weighing(BIAS)), TreeSettings()
    binned = BinnedRows(task.data, (), settings)

    def ours(weight: float, rounds: int) -> None:
        slopes = ScoreSlopes(task, weight)
        binned.grow(slopes, rounds, 0)

    ours(1.0, 2)  # compiles
    relevance = np.asarray(task.data.relevance) if task.data.relevance is not None else task.utility.weight
    label = (np.asarray(relevance) > np.median(np.asarray(relevance))).astype(int)
    options = {**binned.options, "objective": "lambdarank", "min_sum_hessian_in_leaf": 1e-3, "num_threads": 1}
    given = lightgbm.Dataset(task.data.features, label, group=task.data.lengths, params=options).construct()
    theirs = seconds(lambda: lightgbm.train(dict(options), given, rounds))
    for weight in (0.0, 1.0):
        took = seconds(lambda weight=weight: ours(weight, rounds))  # type: ignore[misc]
        yield (
            f"{rounds} rounds on {task.data.rows:,} rows x {task.data.features.shape[1]}, lambda {weight:g}:"
            f" {took:.1f} s; lambdarank {theirs:.1f} s; {took / theirs:.2f} times"
        )


def scoring_lines(quick: bool) -> Iterator[str]:
    """Compare scoring with LightGBM's predict."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20_000, 136)).astype(np.float32)
    target = features[:, 0] * features[:, 1] + rng.normal(size=len(features))
    options = {"verbosity": -1, "num_leaves": 31, "num_threads": 1}
    booster = lightgbm.train(options, lightgbm.Dataset(features, target), ROUNDS // 10 if quick else ROUNDS)
    trees = trees_of_text(booster.model_to_string())
    for rows, times in ((50, 200), (100_000 if quick else 1_000_000, 1)):
        given = rng.normal(size=(rows, 136)).astype(np.float32)
        ours = seconds(lambda given=given: trees.scores(given), times)  # type: ignore[misc]
        theirs = seconds(lambda given=given: booster.predict(given, num_threads=1), times)  # type: ignore[misc]
        yield (
            f"scores of {rows:,} rows by {len(trees)} trees: {ours * 1e3:.2f} ms;"
            f" LightGBM {theirs * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main()
