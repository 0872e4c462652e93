"""Are limits with confidence kept on new queries? Promises made and broken, over many logs with known truth.

    python -m benchmarks.promises --logs 500 --outcomes outcomes.jsonl --out promises.csv
    python -m benchmarks.promises --data german --fairness training --outcomes outcomes.jsonl

Each log has clicks on other lists, drawn from one large set, shown in random order; users look at position k
with probability 1/k. `FairRanker(max_disparity=, confidence=0.95)` is trained on it. The truth is the
disparity of the policy by the relevance of lists that were not trained on. It has an error of its own, small
on synthetic data, and about as large as that of the log on German Credit, where these are lists of
other people: the shares of broken promises are then rather too high than too low. What came of each log is
kept as it comes, and no log is done twice.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from fultr import FairRanker, PositionBias, RandomRanking, evaluate, simulate_clicks
from fultr.data import DataSplits, RankingDataset
from fultr.datasets import german_credit, synthetic
from fultr.errors import FultrWarning
from fultr.experiments.reproduction import write_table
from fultr.training import UnsupportedLimitError

BIAS = PositionBias.power(1.0)
CONFIDENCE = 0.95

CLICKS = (0.3, 1.0, 10.0, 100.0)
"""Impressions with a click for each list."""

LIMITS = {
    "synthetic": dict(zip(CLICKS, (2.0, 1.1, 0.5, 0.4), strict=True)),
    "german": dict(zip(CLICKS, (1.4, 1.1, 1.0, 1.0), strict=True)),
}
"""The limits that are asked for: each near the median of the lowest that such logs support. There, chance
decides whether a promise is made, which is the hardest case for it."""

LISTS, NEW_LISTS = 150, 1_000
"""Lists of each synthetic log, and those by which the truth is known."""

L2 = 0.1
"""The cost of large parameters: one instead of several to choose from, which takes a quarter of the time. The
temperature and the offsets are still chosen by the clicks by which limits are promised."""

Outcome = dict[str, Any]
"""What came of one log: what it was, whether a limit was promised, and the true disparity if so."""

KEYS = ("data", "fairness", "clicks", "limit", "log")


@cache
def every_list() -> RankingDataset:
    """Return the lists from which synthetic logs, and the truth of each, are drawn."""
    return synthetic(queries=2 * NEW_LISTS, seed=0).train


def lists_of(data: str, number: int) -> tuple[RankingDataset, RankingDataset]:
    """Return the lists of one log, and those by which the truth is known."""
    if data == "german":
        parts: DataSplits = german_credit(seed=number)
        return parts.train, parts.test
    every = every_list()
    order = np.random.default_rng(number).permutation(len(every))
    return every[order[:LISTS]], every[order[LISTS : LISTS + NEW_LISTS]]


def try_log(data: str, fairness: str, clicks: float, limit: float, number: int) -> Outcome:
    """Train on one log, and compare what is promised with the truth."""
    lists, new = lists_of(data, number)
    wanted = max(20, round(clicks * len(lists)))
    log = simulate_clicks(lists, RandomRanking(), BIAS, clicks=wanted, seed=number)
    ranker = FairRanker(max_disparity=limit, confidence=CONFIDENCE, fairness=fairness, seed=number, l2=L2)
    outcome: Outcome = dict(zip(KEYS, (data, fairness, clicks, limit, number), strict=True))
    try:
        ranker.fit(log)
    except UnsupportedLimitError as error:
        return {**outcome, "promised": False, "lowest": error.lowest}
    found = evaluate(ranker, new, position_bias=BIAS, intervals=None)
    expected = ranker.new_queries_ or {}
    return {
        **outcome,
        "promised": True,
        "truth": float(np.sqrt(found.disparity_squared)),
        "expected": expected["disparity"],
    }


def try_all(data: str, fairness: str, clicks: float, logs: Iterable[int], kept: Path) -> None:
    """Try the logs that were not tried before, and keep what came of each."""
    limit = LIMITS[data][clicks]
    known = {tuple(one[key] for key in KEYS) for one in outcomes_in(kept)}
    for number in logs:
        if (data, fairness, clicks, limit, number) not in known:
            outcome = try_log(data, fairness, clicks, limit, number)
            with kept.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(outcome) + "\n")


def outcomes_in(kept: Path) -> list[Outcome]:
    """Return what came of the logs that were tried."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    return [json.loads(line) for line in lines]


def table_of(outcomes: Sequence[Outcome]) -> list[dict[str, float | str]]:
    """Return promises made and broken of each kind of log, with 95% intervals of their shares."""
    found: dict[tuple[Any, ...], list[Outcome]] = {}
    for one in outcomes:
        found.setdefault(tuple(one[key] for key in KEYS[:-1]), []).append(one)
    return [_row(kind, some) for kind, some in found.items()]


def _row(kind: tuple[Any, ...], outcomes: Sequence[Outcome]) -> dict[str, float | str]:
    made = [one for one in outcomes if one["promised"]]
    limit, truths = float(kind[-1]), np.array([one["truth"] for one in made])
    broken = int((truths > limit).sum())
    inside = sum(one["expected"][1] <= one["truth"] <= one["expected"][2] for one in made)
    lowest = [one["lowest"] for one in outcomes if not one["promised"]]
    return {
        "data": kind[0],
        "fairness": kind[1],
        "clicks a list": kind[2],
        "limit": limit,
        "logs": len(outcomes),
        "promised": len(made),
        "broken": broken,
        **_share("broken, of promises", broken, len(made)),
        **_share("broken, of logs", broken, len(outcomes)),
        **_share("truth within the interval", inside, len(made)),
        "mean true disparity": round(float(truths.mean()), 4) if made else "",
        "median lowest limit where refused": round(float(np.median(lowest)), 4) if lowest else "",
    }


def _share(name: str, count: int, of: int) -> dict[str, float | str]:
    """Return a share with its interval, by the binomial distribution."""
    if not of:
        return {name: "", f"{name}, low": 0.0, f"{name}, high": 1.0}
    low, high = stats.binomtest(count, of).proportion_ci(0.95)
    return {name: round(count / of, 4), f"{name}, low": round(low, 4), f"{name}, high": round(high, 4)}


def main() -> None:
    """Measure what was asked for, and print and write the table."""
    options = argparse.ArgumentParser(description="Promises made and broken on new queries.")
    options.add_argument("--data", default="synthetic", choices=list(LIMITS))
    options.add_argument("--fairness", default="offsets", choices=["offsets", "training"])
    options.add_argument("--clicks", nargs="+", type=float, default=list(CLICKS), choices=list(CLICKS))
    options.add_argument("--logs", type=int, default=500)
    options.add_argument("--outcomes", type=Path, default=Path("outcomes.jsonl"))
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FultrWarning)
    for clicks in given.clicks:
        try_all(given.data, given.fairness, clicks, range(given.logs), given.outcomes)
    rows = table_of(outcomes_in(given.outcomes))
    for row in rows:
        print(row)
    if given.out is not None:
        write_table(given.out, rows)


if __name__ == "__main__":
    main()
