"""Are limits with confidence kept on new queries? Promises made and broken, over many logs with known truth.

    python -m benchmarks.promises --logs 500 --outcomes outcomes.jsonl --out docs/promises.csv
    python -m benchmarks.promises --data german --fairness training --outcomes outcomes.jsonl

Each log has clicks on other lists, drawn from one large set, shown in random order; users look at position k
with probability 1/k. `FairRanker(max_disparity=, confidence=0.95)` is trained on it. The truth is the
disparity of the policy by the relevance of lists that were not trained on. It has an error of its own: small
on synthetic data, and about as large as that of the log on German Credit, where these are lists of other
people, so that promises count as broken rather too often than too rarely. Each outcome is written at once,
and no log is trained on twice.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

from fultr import FairRanker, PositionBias, RandomRanking, evaluate, simulate_clicks
from fultr.data import RankingDataset
from fultr.datasets import german_credit, synthetic
from fultr.errors import FultrWarning
from fultr.experiments.reproduction import write_table
from fultr.training import UnsupportedLimitError

BIAS = PositionBias.power(1.0)
CONFIDENCE = 0.95

CLICKS = (0.3, 1.0, 10.0, 100.0)
"""Impressions with a click for each list."""

LIMITS = {
    ("synthetic", "offsets"): dict(zip(CLICKS, (2.0, 1.1, 0.5, 0.4), strict=True)),
    ("synthetic", "training"): dict(zip(CLICKS, (2.6, 1.6, 1.0, 0.9), strict=True)),
    ("german", "offsets"): dict(zip(CLICKS, (1.4, 1.1, 1.0, 1.0), strict=True)),
    ("german", "training"): dict(zip(CLICKS, (1.6, 1.2, 1.0, 1.0), strict=True)),
}
"""The limits asked for: each near the median of the lowest that such logs support. There, chance decides
whether a promise is made, which is the hardest case for it."""

LISTS, NEW_LISTS = 150, 4_000
"""Lists of each synthetic log, and those that give the true disparity. The standard error of the truth is a
fifth of the error that the choice of the log's lists alone causes."""

L2 = (0.1,)
"""The cost of large parameters: one instead of several to choose from, which takes a tenth of the time. The
temperature and the offsets are still chosen by the clicks by which limits are promised."""

ROUND = 50
"""Logs of one setting before the next setting has its turn: a run that is cut off is balanced."""

Outcome = dict[str, Any]
"""What came of one log: what it was, whether a limit was promised, and the true disparity if so."""

KEYS = ("data", "fairness", "l2", "clicks", "limit", "log")


class Setting(NamedTuple):
    """What is asked for of logs of one kind."""

    data: str
    fairness: str
    l2: tuple[float, ...]
    clicks: float
    limit: float


@cache
def synthetic_lists() -> RankingDataset:
    """Return the lists from which synthetic logs are drawn, and by which policies are judged."""
    return synthetic(queries=LISTS + NEW_LISTS, seed=0).train


def lists_of(data: str, number: int) -> tuple[RankingDataset, RankingDataset]:
    """Return the lists of one log, and those that give the true disparity."""
    if data == "german":
        splits = german_credit(seed=number)
        return splits.train, splits.test
    lists = synthetic_lists()
    order = np.random.default_rng(number).permutation(len(lists))
    return lists[order[:LISTS]], lists[order[LISTS:]]


def outcome_of(setting: Setting, number: int) -> Outcome:
    """Train on one log, and compare what is promised with the truth."""
    lists, new_lists = lists_of(setting.data, number)
    clicks = max(20, round(setting.clicks * len(lists)))
    log = simulate_clicks(lists, RandomRanking(), BIAS, clicks=clicks, seed=number)
    ranker = FairRanker(
        max_disparity=setting.limit,
        confidence=CONFIDENCE,
        fairness=setting.fairness,
        l2=setting.l2,
        seed=number,
    )
    outcome: Outcome = {**setting._asdict(), "log": number}
    try:
        ranker.fit(log)
    except UnsupportedLimitError as error:
        return {**outcome, "promised": False, "lowest": error.lowest}
    truth = evaluate(ranker, new_lists, position_bias=BIAS, intervals=None)
    expected = ranker.new_queries_ or {}
    return {
        **outcome,
        "promised": True,
        "truth": float(np.sqrt(truth.disparity_squared)),
        "expected": expected["disparity"],
    }


def add_outcomes(settings: Sequence[Setting], logs: int, file: Path) -> None:
    """Train on the logs that the file has no outcome of, and write what came of each."""
    done = {_key(outcome) for outcome in outcomes_in(file)}
    for first in range(0, logs, ROUND):
        for setting in settings:
            for number in range(first, min(first + ROUND, logs)):
                if _key({**setting._asdict(), "log": number}) not in done:
                    outcome = outcome_of(setting, number)
                    with file.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(outcome) + "\n")


def _key(outcome: Outcome) -> tuple[Any, ...]:
    """Return which log an outcome is of, and what was asked for."""
    return (*(outcome[name] for name in KEYS if name != "l2"), tuple(outcome["l2"]))


def outcomes_in(file: Path) -> list[Outcome]:
    """Return the outcomes that a file has so far."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def table_of(outcomes: Sequence[Outcome]) -> list[dict[str, float | str]]:
    """Return promises made and broken of each kind of log, with 95% intervals of their shares."""
    by_setting: dict[Setting, list[Outcome]] = {}
    for outcome in outcomes:
        values = {name: outcome[name] for name in Setting._fields}
        setting = Setting(**{**values, "l2": tuple(outcome["l2"])})
        by_setting.setdefault(setting, []).append(outcome)
    return [_row(setting, by_setting[setting]) for setting in sorted(by_setting, key=_order)]


def _order(setting: Setting) -> tuple[Any, ...]:
    """Sort as data sets are listed, and by clicks."""
    return list(LIMITS).index((setting.data, setting.fairness)), len(setting.l2), setting.clicks


def _row(setting: Setting, outcomes: Sequence[Outcome]) -> dict[str, float | str]:
    promises = [outcome for outcome in outcomes if outcome["promised"]]
    truths = np.array([promise["truth"] for promise in promises])
    broken = int((truths > setting.limit).sum())
    inside = sum(promise["expected"][1] <= promise["truth"] <= promise["expected"][2] for promise in promises)
    lowest = [outcome["lowest"] for outcome in outcomes if not outcome["promised"]]
    return {
        "data": setting.data,
        "fairness": setting.fairness,
        "l2": " ".join(map(str, setting.l2)),
        "clicks a list": setting.clicks,
        "limit": setting.limit,
        "logs": len(outcomes),
        "promised": len(promises),
        "broken": broken,
        **_share("broken, of promises", broken, len(promises)),
        **_share("broken, of logs", broken, len(outcomes)),
        **_share("truth within the interval", inside, len(promises)),
        "mean true disparity": round(float(truths.mean()), 4) if promises else "",
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
    options.add_argument("--data", default="synthetic", choices=["synthetic", "german"])
    options.add_argument("--fairness", default="offsets", choices=["offsets", "training"])
    options.add_argument("--clicks", nargs="+", type=float, default=list(CLICKS), choices=list(CLICKS))
    options.add_argument("--logs", type=int, default=500)
    options.add_argument("--outcomes", type=Path, default=Path("outcomes.jsonl"))
    options.add_argument("--out", type=Path)
    options.add_argument("--l2", nargs="+", type=float, default=list(L2))
    given = options.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FultrWarning)
    limits = LIMITS[given.data, given.fairness]
    settings = [
        Setting(given.data, given.fairness, tuple(given.l2), level, limits[level]) for level in given.clicks
    ]
    add_outcomes(settings, given.logs, given.outcomes)
    rows = table_of(outcomes_in(given.outcomes))
    for row in rows:
        print(row)
    if given.out is not None:
        write_table(given.out, rows)


if __name__ == "__main__":
    main()
