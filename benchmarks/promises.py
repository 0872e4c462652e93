"""Are limits with confidence kept on new queries? Promises made and broken, over many logs with known truth.

    python -m benchmarks.promises --logs 500 --out promises.csv
    python -m benchmarks.promises --data german --fairness training

Each log has clicks on other lists, drawn from one large set, shown in random order; users look at position k
with probability 1/k. `FairRanker(max_disparity=, confidence=0.95)` is trained on it. The truth is the
disparity of the policy by the relevance of lists that were not trained on. On German Credit these are lists
of other people, so few that the truth has an error of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from fultr import FairRanker, PositionBias, RandomRanking, evaluate, simulate_clicks
from fultr.data import DataSplits, RankingDataset
from fultr.datasets import german_credit, synthetic
from fultr.experiments.reproduction import write_table
from fultr.training import UnsupportedLimitError

BIAS = PositionBias.power(1.0)
CONFIDENCE = 0.95

LIMITS = {0.3: 1.5, 1.0: 1.0, 10.0: 0.5, 100.0: 0.4}
"""The limit that is asked for, by the impressions with a click for each list: each is near the lowest that
such logs support."""

LISTS, NEW_LISTS = 300, 1_500
"""Lists of each synthetic log, and those by which the truth is known."""


class Outcome(NamedTuple):
    """What came of one log: whether a limit was promised, the true disparity, and the lowest limit if not."""

    promised: bool
    truth: float
    lowest: float


def lists_of(data: str, number: int) -> tuple[RankingDataset, RankingDataset]:
    """Return the lists of one log, and those by which the truth is known."""
    parts: DataSplits
    if data == "german":
        parts = german_credit(seed=number)
        return parts.train, parts.test
    every = synthetic(queries=5 * LISTS + NEW_LISTS, seed=0).train
    order = np.random.default_rng(number).permutation(len(every))
    return every[order[:LISTS]], every[order[LISTS : LISTS + NEW_LISTS]]


def try_log(data: str, clicks: float, fairness: str, limit: float, number: int) -> Outcome:
    """Train on one log, and compare what is promised with the truth."""
    lists, new = lists_of(data, number)
    wanted = max(20, round(clicks * len(lists)))
    log = simulate_clicks(lists, RandomRanking(), BIAS, clicks=wanted, seed=number)
    ranker = FairRanker(max_disparity=limit, confidence=CONFIDENCE, fairness=fairness, seed=number)
    try:
        ranker.fit(log)
    except UnsupportedLimitError as error:
        return Outcome(False, 0.0, error.lowest)
    found = evaluate(ranker, new, position_bias=BIAS, intervals=None)
    return Outcome(True, float(np.sqrt(found.disparity_squared)), 0.0)


def try_all(
    data: str, clicks: float, fairness: str, logs: Sequence[int], pool: ProcessPoolExecutor
) -> dict[str, float | str]:
    """Return a row of the table: promises made and broken, with a 95% interval of the share broken."""
    limit = LIMITS[clicks]
    jobs = [pool.submit(try_log, data, clicks, fairness, limit, number) for number in logs]
    found = [job.result() for job in jobs]
    truths = np.array([one.truth for one in found if one.promised])
    lowest = [one.lowest for one in found if not one.promised]
    broken = int((truths > limit).sum())
    interval = (0.0, 1.0)
    if truths.size:
        interval = tuple(stats.binomtest(broken, truths.size).proportion_ci(0.95))
    return {
        "data": data,
        "fairness": fairness,
        "clicks a list": clicks,
        "limit": limit,
        "logs": len(found),
        "promised": int(truths.size),
        "broken": broken,
        "share broken, low": round(interval[0], 4),
        "share broken, high": round(interval[1], 4),
        "mean true disparity": round(float(truths.mean()), 4) if truths.size else "",
        "median lowest limit where refused": round(float(np.median(lowest)), 4) if lowest else "",
    }


def main() -> None:
    """Measure what was asked for, and print and write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", nargs="+", default=["synthetic"], choices=["synthetic", "german"])
    options.add_argument("--fairness", nargs="+", default=["offsets"], choices=["offsets", "training"])
    options.add_argument("--clicks", nargs="+", type=float, default=list(LIMITS), choices=list(LIMITS))
    options.add_argument("--logs", type=int, default=500)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    rows = []
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for data in given.data:
            for fairness in given.fairness:
                for clicks in given.clicks:
                    rows.append(try_all(data, clicks, fairness, range(given.logs), pool))
                    print(rows[-1], flush=True)
                    if given.out is not None:
                        write_table(given.out, rows)


if __name__ == "__main__":
    main()
