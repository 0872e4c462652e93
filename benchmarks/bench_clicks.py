"""How fast clicks are simulated, compacted, written and read, on one core, and what memory reading takes.

python -m benchmarks.bench_clicks [--quick]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from fultr import (
    ClickLog,
    PlackettLuce,
    PositionBias,
    RankingDataset,
    RankingSVM,
    read_log,
    simulate_clicks,
    write_log,
)
from fultr.policy import RankingPolicy

Result = TypeVar("Result")

BIAS = PositionBias.power(1.0)
LISTS, LENGTH, FEATURES = 1_000, 20, 50
PLAIN_IMPRESSIONS = 5_000


def main() -> None:
    """Print one table; each ratio is within this run."""
    parser = argparse.ArgumentParser(description="Speed of click simulation and compaction.")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the impressions")
    quick = parser.parse_known_args()[0].quick
    impressions = 50_000 if quick else 1_000_000
    data = some_data()
    stochastic, fixed = PlackettLuce(lambda x: x[:, 0]), RankingSVM.train(data)
    simulate_clicks(data, stochastic, BIAS, impressions=100).compact()  # compile
    print(f"clicks: {impressions} impressions of {LENGTH} items, {LISTS} lists, one core")
    plain = timed(lambda: plain_simulation(data, PLAIN_IMPRESSIONS))[0] / PLAIN_IMPRESSIONS * impressions
    policies: list[tuple[str, RankingPolicy]] = [("Ranking SVM", fixed), ("Plackett-Luce", stochastic)]
    for name, policy in policies:
        seconds, log = timed(partial(simulate_clicks, data, policy, BIAS, impressions=impressions))
        row(f"simulate, {name}", seconds, f"{plain / seconds:.0f} x a loop over impressions in numpy")
    seconds, compacted = timed(log.compact)
    table = long_frame(log)
    grouping = timed(lambda: group_by(table))[0]
    row("compact", seconds, f"{grouping / seconds:.2f} x polars group_by of the long table")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clicks.parquet"
        row("write Parquet", timed(lambda: write_log(log, path))[0], f"{path.stat().st_size / 1e6:.0f} MB")
        reading = timed(lambda: pl.read_parquet(path))[0]
        seconds, again = timed(lambda: read_log(path))
        row("read Parquet", seconds, f"{reading / seconds:.2f} x polars read_parquet, which checks nothing")
        small = Path(folder) / "small.parquet"
        write_log(log[:100], small)
        grown = peak_memory_of_reading(small, path) - peak_memory_of_reading(small)
        print(f"{'read Parquet, peak memory':<32}{grown / 1e6:<7.0f}MB {grown / log.entries:.0f} bytes a row")
    if compacted.impressions.sum() != impressions or len(again) != impressions:
        raise RuntimeError("the log was not compacted or read completely")


def peak_memory_of_reading(*logs: Path) -> int:
    """Return the most memory, in bytes, that a process has that reads some logs, the first to compile all."""
    code = (
        "import sys; from benchmarks.bench_files import peak_memory; from fultr import read_log\n"
        "for path in sys.argv[1:]: log = read_log(path)\n"
        "print(peak_memory())"
    )
    command = [sys.executable, "-c", code, *map(str, logs)]
    root = Path(__file__).parent.parent
    return int(subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout)


def some_data() -> RankingDataset:
    """Return lists with one relevant item in ten."""
    rng = np.random.default_rng(0)
    rows = LISTS * LENGTH
    return RankingDataset(
        rng.normal(size=(rows, FEATURES)),
        np.arange(0, rows + 1, LENGTH),
        group=rng.integers(0, 2, size=rows),
        relevance=rng.random(rows) < 0.1,
        query_id=np.arange(LISTS),
        doc_id=np.arange(rows),
    )


def plain_simulation(data: RankingDataset, impressions: int) -> int:
    """Simulate one impression after another, as one would write it down; returns the number of clicks."""
    rng, clicks = np.random.default_rng(0), 0
    relevance = data.relevance if data.relevance is not None else np.zeros(data.rows)
    for _ in range(impressions):
        which = rng.integers(len(data))
        rows = slice(data.offsets[which], data.offsets[which + 1])
        order = np.argsort(-(data.features[rows, 0] + rng.gumbel(size=LENGTH)))
        examined = rng.random(LENGTH) < 1 / np.arange(1, LENGTH + 1)
        clicks += int((examined & (relevance[rows][order] == 1)).sum())
    return clicks


def long_frame(log: ClickLog) -> pl.DataFrame:
    """Return what polars needs to count by itself."""
    return pl.DataFrame({"row": log.row_of_entry, "position": log.position, "click": log.click})


def group_by(table: pl.DataFrame) -> pl.DataFrame:
    """Count impressions and clicks by item and position with polars."""
    return table.group_by("row", "position").agg(pl.len(), pl.col("click").sum())


def timed(action: Callable[[], Result]) -> tuple[float, Result]:
    """Return how long an action takes, and its result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def row(name: str, seconds: float, comparison: str) -> None:
    """Print a row of the table."""
    print(f"{name:<32}{seconds:<10.2f}{comparison}", flush=True)


if __name__ == "__main__":
    main()
