"""Processes that write two versions of a result in turn until they are killed; see `test_kills.py`.

This process does nothing itself but start others by fork, which is quick: it must have no threads.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np

from fultr import ClickLog, FairRanker, load, read_log, save, write_log
from fultr.audits import audit, read_audit, write_audit
from fultr.data.counts_files import read_counts, write_counts
from tests.training_tasks import BIAS, random_lists, random_log


def logs() -> list[ClickLog]:
    """Return two versions of a log, whose clicks and features differ."""
    old = random_log(random_lists(seed=3), seed=1)
    return [old, random_log(replace(old.data, features=old.data.features + np.float32(1)), seed=2)]


def write_both_logs(folder: Path) -> list[Callable[[], object]]:
    return [partial(write_log, log, folder / "log.parquet") for log in logs()]


def write_both_counts(folder: Path) -> list[Callable[[], object]]:
    return [partial(write_counts, log.compact(), folder / "counts.parquet") for log in logs()]


def save_both_policies(folder: Path) -> list[Callable[[], object]]:
    rankers = [FairRanker(1.0, l2=cost, folds=0, position_bias=BIAS).fit(logs()[0]) for cost in (0.1, 1.0)]
    return [partial(save, ranker, folder / "policy.safetensors") for ranker in rankers]


def write_both_audits(folder: Path) -> list[Callable[[], object]]:
    audits = [audit(log, position_bias=BIAS, resamples=50) for log in logs()]
    return [partial(write_audit, found, folder) for found in audits]


def seen_of_log(folder: Path) -> str:
    log = read_log(folder / "log.parquet")
    return f"{log.click.sum()} {log.data.features.sum():.3f}"


def seen_of_counts(folder: Path) -> str:
    counts = read_counts(folder / "counts.parquet")
    return f"{counts.cells.clicks.sum()} {counts.data.features.sum():.3f}"


def seen_of_policy(folder: Path) -> str:
    return str(load(folder / "policy.safetensors").coef_.tolist())


def seen_of_audit(folder: Path) -> str:
    return str(read_audit(folder / "audit.json").clicks)


KINDS = {
    "log": (write_both_logs, seen_of_log),
    "counts": (write_both_counts, seen_of_counts),
    "policy": (save_both_policies, seen_of_policy),
    "audit": (write_both_audits, seen_of_audit),
}
"""How a kind of result is written in two versions, and what a reader sees of it."""


def main() -> None:
    """Kill a writer of a kind so many times, and say after each what a reader sees."""
    kind, folder, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    write, seen = KINDS[kind]
    rng = np.random.default_rng(len(kind))
    for _ in range(kills):
        ready, told = os.pipe()
        writer = os.fork()
        if not writer:
            versions = write(folder)
            versions[0]()
            os.write(told, b"!")
            for version in cycle(reversed(versions)):
                version()
        os.read(ready, 1)
        time.sleep(float(rng.uniform(0, 0.05)))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        reader = os.fork()
        if not reader:
            print(seen(folder), flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0
        os.close(ready)
        os.close(told)
    print(*sorted(one.name for one in folder.iterdir()))


if __name__ == "__main__":
    main()
