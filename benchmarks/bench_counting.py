"""How fast a long log is counted, what memory that takes, and how soon a small log is inspected.

    python -m benchmarks.bench_counting [--quick] [--rows 100000000] [--turns 3] [--folder /tmp]

The log is made with `fultr simulate` in a temporary folder that is removed at the end. Everything runs in a
process of its own on two cores. Ratios compare medians of turns in one run, since machines differ: of the
clock, and of the processor, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fultr.logs.writing import items_file

ROWS_AN_IMPRESSION = 20
CORES = "2"
TURNS = 3
BYTES_A_ROW = 80
"""Disk that a row takes at most, here and while rows are brought together by impression."""


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description="Speed and memory of counting.")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows")
    parser.add_argument("--rows", type=int, default=100_000_000, help="rows of the log")
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each way is measured")
    parser.add_argument("--folder", type=Path, default=None, help="where temporary files go")
    arguments = parser.parse_known_args()[0]
    rows = arguments.rows // 20 if arguments.quick else arguments.rows
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        free, needed = shutil.disk_usage(name).free, rows * BYTES_A_ROW
        if free < needed:
            print(f"no log: {free / 1e9:.1f} GB free in {name}, {needed / 1e9:.1f} GB needed")
            return
        measure_counting(Path(name), rows, arguments.turns)
        measure_start(Path(name))


def measure_counting(folder: Path, rows: int, number_of_turns: int) -> None:
    """Make a log, and compare ways to count it and to use it."""
    log, scattered = folder / "clicks.parquet", folder / "scattered.parquet"
    simulated = in_process(SIMULATE, log, rows // ROWS_AN_IMPRESSION)
    shutil.copy(items_file(log), items_file(scattered))
    in_process(SCATTER, log, scattered)
    size = (log.stat().st_size + items_file(log).stat().st_size) / 1e6
    print(f"counting: {rows} rows, {CORES} cores, {size:.0f} MB of Parquet")
    row("fultr simulate", simulated, rows, "")
    ways = {
        "fultr count": (COUNT, log),
        "polars, equal query": (POLARS, log),
        "scattered rows": (COUNT, scattered),
    }
    # in turns, since the speed of a machine changes
    turns = [{name: in_process(*way) for name, way in ways.items()} for _ in range(number_of_turns)]
    for name in ways:
        clock, processor = (
            statistics.median(turn[name][time] / turn["fultr count"][time] for turn in turns)
            for time in ("seconds", "processor")
        )
        fastest = min((turn[name] for turn in turns), key=lambda measured: measured["seconds"])
        ratio = f"{clock:.2f} x the time of fultr count, {processor:.2f} x the processor time"
        row(name, fastest, rows, "" if name == "fultr count" else ratio)
    for command in ("train", "sweep"):
        row(f"fultr {command}", in_process(TRAIN, command, log, folder / command), rows, "reading included")


def measure_start(folder: Path) -> None:
    """Measure the first inspection of a small log, with nothing compiled."""
    log, cache = folder / "small.parquet", folder / "cache"
    in_process(SIMULATE, log, 500)
    command = [sys.executable, "-m", "fultr", "inspect", str(log)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    seconds = time.perf_counter() - start
    compiled = len(list(cache.rglob("*.nbc"))) if cache.exists() else 0
    print(f"fultr inspect, 10,000 rows, nothing compiled before: {seconds:.2f} s, {compiled} loops compiled")


def row(name: str, measured: dict[str, float], rows: int, comparison: str) -> None:
    """Print a row of the table."""
    speed = f"{measured['seconds']:.2f} s, {rows / measured['seconds'] / 1e6:.1f} M rows/s"
    used = f"processor {measured['processor']:.1f} s"
    print(
        f"{name:<24}{speed:<28}{used:<22}peak {measured['peak'] / 1e6:<6.0f}MB  {comparison}".rstrip(),
        flush=True,
    )


def in_process(code: str, *arguments: object) -> dict[str, float]:
    """Run code in a process of its own on two cores, and return the JSON it prints."""
    limits = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **dict.fromkeys(limits, CORES)},
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


PRELUDE = f"""
import json, sys, time
import pyarrow as pa
pa.set_cpu_count({CORES})
from benchmarks.bench_files import peak_memory
def report(action):
    start, before = time.perf_counter(), time.process_time()
    action()
    used = dict(seconds=time.perf_counter() - start, processor=time.process_time() - before)
    print(json.dumps(dict(**used, peak=peak_memory())))
"""
SIMULATE = """
from fultr.cli.main import run
out, impressions = sys.argv[1:]
options = ["--impressions", impressions, "--logging", "random", "--eps-minus", "0.1", "--json"]
report(lambda: run(["simulate", "synthetic", *options, "--out", out]))
"""
SCATTER = """
import numpy as np, pyarrow.parquet as pq
log, out = sys.argv[1:]
table = pq.read_table(log)
order = np.random.default_rng(0).permutation(len(table))
with pq.ParquetWriter(out, table.schema) as writer:
    for start in range(0, len(table), 1 << 20):
        writer.write_table(table.take(order[start : start + (1 << 20)]))
report(lambda: None)
"""
COUNT = """
from fultr.logs import count
report(lambda: count(sys.argv[1]))
"""
POLARS = """
import polars as pl
# the same checks of duplicates, of candidate sets and of groups, and the same cells
rows = pl.scan_parquet(sys.argv[1])
column = pl.col
impressions = rows.group_by("impression_id").agg(
    column("query_id").min().alias("query"),
    column("query_id").max().alias("other_query"),
    column("doc_id").hash().sum().alias("list"),
    column("doc_id").n_unique().alias("documents"),
    column("position").n_unique().alias("positions"),
    pl.len().alias("length"),
    column("click").max().alias("clicked"),
)
def count():
    found = impressions.collect(engine="streaming")
    assert found.select(
        ((column("query") == column("other_query")) & (column("documents") == column("length"))
         & (column("positions") == column("length"))).all()
    ).item()
    lists = found.group_by("query", "list", "length").agg(pl.len(), column("clicked").sum())
    keyed = rows.join(found.lazy().select("impression_id", "list"), on="impression_id")
    cells = keyed.group_by("list", "query_id", "doc_id", "position").agg(
        pl.len(), column("click").sum(), column("group").min().alias("group"),
        column("group").max().alias("other")
    ).collect(engine="streaming")
    assert (cells["group"] == cells["other"]).all()
    return lists, cells
report(count)
"""
TRAIN = """
from fultr.cli.main import run
command, log, out = sys.argv[1:]
weights = ["--lambda", "1"] if command == "train" else ["--lambdas", "0,1,10"]
report(lambda: run([command, log, *weights, "--out", out]))
"""

if __name__ == "__main__":
    main()
