"""How fast training is, how good what it finds is, and how much memory it takes; on two cores.

python -m benchmarks.bench_training [--quick]

Ours against the paper's own protocol, for the same fairness weight and cost of large parameters: the exact
training objective, which neither sees the other's way, the time, and utility and disparity on test queries.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fultr
from fultr.training.fair_ranker import FairRanker
from fultr.training.frontier import FAIRNESS_WEIGHTS
from fultr.training.goals import Penalised
from fultr.training.models import LinearModel, ModuleModel
from fultr.training.objective import Objective
from fultr.training.scaling import Scaling
from fultr.training.task import Task, Weighing

BIAS = fultr.PositionBias.power(1.0)

PRESETS: dict[str, dict[str, Any]] = {
    "exact": {"l2": 1e-3, "scale_features": False},
    "paper": {"l2": 1e-3, "scale_features": False, "protocol": "paper"},
    "exact, as it comes": {},
}
"""The two presets on the same terms, and ours with its defaults."""

PRESET_SPLITS = 6
"""Splits that presets are compared on."""

PRESET_KINDS = (("linear", 0.1), ("linear", 10.0), ("mlp", 1.0))
"""Scorers and fairness weights that presets are compared for."""


def main() -> None:
    """Print one table after another; ratios are within this run."""
    parser = argparse.ArgumentParser(description="Speed, quality and memory of training.")
    parser.add_argument("--quick", action="store_true", help="less data, fewer configurations")
    quick = parser.parse_known_args()[0].quick
    torch.set_num_threads(2)
    for lines in (preset_lines, german_sweep_lines, synthetic_lines, compaction_lines):
        for line in lines(quick):
            print(line, flush=True)


def simulated(data: fultr.DataSplits, clicks: int, seed: int = 0) -> tuple[fultr.ClickLog, fultr.ClickLog]:
    """Return training and validation clicks of a Ranking SVM trained on 1% of the labels."""
    logging = fultr.RankingSVM.train(data.train, seed=seed)
    train = fultr.simulate_clicks(data.train, logging, BIAS, clicks=clicks, seed=seed)
    share = len(data.valid) / len(data.train)
    valid = fultr.simulate_clicks(
        data.valid, logging, BIAS, clicks=max(100, round(clicks * share)), seed=seed + 1
    )
    return train, valid


def presets_data(quick: bool, split: int) -> Iterator[tuple[str, fultr.DataSplits, int]]:
    """Yield a split of each data set to compare the presets on, with the number of clicks."""
    yield "German Credit", fultr.datasets.german_credit(seed=split), 5_000
    folder = os.environ.get("FULTR_MSLR")
    if folder:
        yield "MSLR sample", fultr.datasets.mslr(folder, lists_per_query=10, resplit=split, seed=split), 1_200
    yield "synthetic", fultr.datasets.synthetic(queries=200 if quick else 1_200, seed=split), 1_200


def preset_lines(quick: bool) -> Iterator[str]:
    """Compare what both presets reach on the log, the time they take, and their policies on test queries."""
    yield "presets: on the log (U - lambda |D|^2) / (1 + lambda) - l2 |w|^2 / 2, exactly, with l2 = 0.001;"
    yield "on test queries the same without l2; 'as it comes' chooses l2 on validation clicks"
    yield "(seconds on one core, two trainings at a time)"
    yield f"{'':<52}{'on the log':>11}{'seconds':>9}{'on test':>9}{'DCG':>7}{'|D|':>7}"
    kinds = (("linear", 1.0),) if quick else PRESET_KINDS
    names = [name for name, _, _ in presets_data(True, 0)]
    if "FULTR_MSLR" not in os.environ:
        yield "not on Microsoft's data: set FULTR_MSLR to a folder with Fold1/train.txt, ..."
    asked = list(itertools.product(names, kinds))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=in_one_thread) as pool:
        runs = {
            (name, kind): [
                pool.submit(measured_presets, name, *kind, quick, split)
                for split in range(1 if quick else PRESET_SPLITS)
            ]
            for name, kind in asked
        }
        for name, (model, weight) in asked:
            yield from lines_of_presets(
                f"{name}, {model}, lambda {weight:g}", [run.result() for run in runs[name, (model, weight)]]
            )


def in_one_thread() -> None:
    """Let a process use one core, and compile what it needs before anything is timed."""
    torch.set_num_threads(1)
    lists = fultr.datasets.synthetic(queries=20).train
    for model in ("linear", "mlp"):
        FairRanker(model=model, position_bias=BIAS, l2=1e-3).fit(lists)


def lines_of_presets(title: str, splits: list[list[tuple[float, ...]]]) -> Iterator[str]:
    """Show the means over splits of each preset, and how much better ours is on test, split by split."""
    for preset, rows in zip(PRESETS, zip(*splits, strict=True), strict=True):
        reached, seconds, on_test, dcg, root = np.mean(rows, axis=0)
        shown = f"{reached:.4f}" if PRESETS[preset] else ""
        row = f"{title}, {preset}"
        yield f"{row:<52}{shown:>11}{seconds:>9.1f}{on_test:>9.3f}{dcg:>7.3f}{root:>7.3f}"
    _, paper, ours = np.array(splits).transpose(1, 0, 2)[:, :, 2]
    gains = ours - paper
    error = gains.std(ddof=1) / gains.size**0.5 if gains.size > 1 else np.nan
    yield f"  on test, as it comes - paper: {gains.mean():+.3f} +- {error:.3f} ({gains.size} splits)"


def measured_presets(
    name: str, model: str, weight: float, quick: bool, split: int
) -> list[tuple[float, ...]]:
    """Train all presets on one split."""
    _, data, clicks = next(entry for entry in presets_data(quick, split) if entry[0] == name)
    logs = simulated(data, clicks, split)
    return [
        measured_preset(
            FairRanker(weight, model=model, position_bias=BIAS, seed=split, **settings), logs, data.test
        )
        for settings in PRESETS.values()
    ]


def measured_preset(
    ranker: FairRanker, logs: tuple[fultr.ClickLog, fultr.ClickLog], test: fultr.RankingDataset
) -> tuple[float, ...]:
    """Train, and return the objective on the log, the time, and objective, DCG and disparity on test."""
    (log, valid), weight = logs, float(ranker.fairness_weight or 0.0)
    start = time.perf_counter()
    ranker.fit(log, valid=valid)
    seconds = time.perf_counter() - start
    reached = training_objective(ranker, log, weight) if ranker.l2 is not None else np.nan
    evaluation = fultr.evaluate(ranker, test, position_bias=BIAS, intervals=None)
    on_test = (evaluation.dcg - weight * evaluation.disparity_squared) / (1 + weight)
    return reached, seconds, on_test, evaluation.dcg, evaluation.disparity_squared**0.5


def training_objective(ranker: FairRanker, log: fultr.ClickLog, weight: float, l2: float = 1e-3) -> float:
    """Return the objective that both presets maximise, exactly."""
    task = Task.of(log, Weighing(BIAS))
    scaling = Scaling.none(task.data)
    inner = copy.deepcopy(ranker.fitted_scorer().scorer).requires_grad_(True)
    flat = [parameter.detach().double().reshape(-1).numpy() for parameter in inner.parameters()]
    vector = np.concatenate(flat)
    linear = ranker.model == "linear"
    model = LinearModel(task.data, scaling) if linear else ModuleModel(task.data, scaling, inner)
    objective = Objective(task, model, np.array([l2]), accuracy="double")
    value, _ = objective.value(Penalised(np.array([weight])), vector[None], np.arange(1))
    return float(value[0])


def german_sweep_lines(quick: bool) -> Iterator[str]:
    """Measure the paper's sweep on German Credit: 10 fairness weights x 6 costs, linear."""
    log, valid = simulated(fultr.datasets.german_credit(seed=0), 5_000)
    costs = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)[: 2 if quick else 6]
    start = time.perf_counter()
    front = fultr.sweep(log, valid=valid, l2=costs)
    seconds = time.perf_counter() - start
    yield f"German Credit, 5,000 clicks, linear: {len(front.points)} policies in {seconds:.1f} s"


MEASURED = """
import sys, time
from pathlib import Path
import torch
import fultr
from benchmarks.bench_training import simulated
torch.set_num_threads(2)

def memory(name):
    return 1024 * int(Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0])

queries, clicks, model, weights = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
# what torch loads with its first step is no memory of ours
fultr.sweep(fultr.datasets.synthetic(queries=20).train, model=model, l2=1e-3, fairness_weights=[1.0],
            position_bias=fultr.PositionBias.power(1.0))
data = fultr.datasets.synthetic(queries=queries, seed=0)
log, valid = simulated(data, clicks)
held = log.data.features.nbytes + log.position.nbytes + log.click.nbytes + log.lists.nbytes
from fultr.training.frontier import FAIRNESS_WEIGHTS
settings = {} if model == "linear" else {"l2": 1e-3}
Path("/proc/self/clear_refs").write_text("5")
before, start = memory("VmRSS"), time.perf_counter()
fultr.sweep(log, valid=valid, model=model, fairness_weights=FAIRNESS_WEIGHTS[-weights:], **settings)
print(time.perf_counter() - start, memory("VmHWM") - before, held)
"""


def in_process(queries: int, clicks: int, model: str, weights: int) -> tuple[float, float, float]:
    """Return seconds, bytes beyond what was there before, and bytes of the data, of a sweep by itself."""
    command = [sys.executable, "-c", MEASURED, str(queries), str(clicks), model, str(weights)]
    folder = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    seconds, extra, held = map(float, done.stdout.split())
    return seconds, extra, held


def synthetic_lines(quick: bool) -> Iterator[str]:
    """Measure sweeps over ten fairness weights on data of the size of the paper's MSLR."""
    queries, weights = (600, 3) if quick else (12_000, len(FAIRNESS_WEIGHTS))
    for model in ("linear", "mlp"):
        seconds, extra, held = in_process(queries, 10 * queries, model, weights)
        peak = (extra + held) / held
        yield (
            f"synthetic, {queries} queries, {10 * queries} clicks, {model}, {weights} fairness weights:"
            f" {seconds:.0f} s; peak memory {peak:.1f} times the data"
        )


def compaction_lines(quick: bool) -> Iterator[str]:
    """Compare training on ten times the clicks of the same lists."""
    queries = 300 if quick else 2_000
    few, many = (in_process(queries, factor * queries, "linear", 3) for factor in (10, 100))
    memory = (many[1] + 1e6) / (few[1] + 1e6)
    ratios = f"{many[0] / few[0]:.2f} times the time, {memory:.2f} times the memory"
    yield f"ten times the clicks on the same lists: {ratios}"


if __name__ == "__main__":
    main()
