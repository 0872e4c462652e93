"""How fast a long log is compacted while it is read, and what memory making and reading it takes.

    python -m benchmarks.bench_streaming [--quick] [--rows 100000000] [--folder /tmp]

The log is made with `fultr simulate` in a temporary folder that is removed at the end. Everything runs in a
process of its own with two threads. polars counts rows and sums clicks by query, document and position; we
check every row beside that, and find lists, groups and impressions.
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
from pathlib import Path

from fultr.data.log_files import items_file

ROWS_AN_IMPRESSION = 20
THREADS = "2"
FUNCTIONS = ("stream_compact", "stream_log")
REPEATS, TURNS = 3, 5
BYTES_A_ROW = 4
"""More than a row of such a log takes on disk."""


def main() -> None:
    """Print one table; ratios are within this run, medians over turns."""
    parser = argparse.ArgumentParser(description="Speed and memory of streaming compaction.")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the log")
    parser.add_argument("--folder", type=Path, default=None, help="where temporary files go")
    arguments = parser.parse_known_args()[0]
    rows = arguments.rows // 20 if arguments.quick else arguments.rows
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        free, needed = shutil.disk_usage(name).free, rows * BYTES_A_ROW
        if free < needed:
            print(f"no log: {free / 1e9:.1f} GB free in {name}, {needed / 1e9:.1f} GB needed")
            return
        measure(Path(name), rows)


def measure(folder: Path, rows: int) -> None:
    """Make a log of so many rows, and compare ways to count it."""
    log, small = folder / "clicks.parquet", folder / "small.parquet"
    in_process(SIMULATE, small, 50)
    made = in_process(SIMULATE, log, rows // ROWS_AN_IMPRESSION)
    size = (log.stat().st_size + items_file(log).stat().st_size) / 1e6
    print(f"streaming: {rows} rows, {THREADS} threads, {size:.0f} MB of Parquet")
    row("fultr simulate", made, rows, "")
    # in turns, since the speed of a machine changes
    turns = [
        {
            "polars": in_process(GROUP_BY, log, small),
            **{function: in_process(STREAM, log, small, function) for function in FUNCTIONS},
        }
        for _ in range(TURNS)
    ]
    for function in FUNCTIONS:
        ratios = [turn["polars"]["seconds"] / turn[function]["seconds"] for turn in turns]
        fastest = min((turn[function] for turn in turns), key=lambda measured: measured["seconds"])
        row(function, fastest, rows, f"{statistics.median(ratios):.2f} x polars")
    theirs = min((turn["polars"] for turn in turns), key=lambda measured: measured["seconds"])
    row("polars group_by, streaming", theirs, rows, "")


def row(name: str, measured: dict[str, float], rows: int, comparison: str) -> None:
    """Print a row of the table."""
    speed = f"{measured['seconds']:.2f} s, {rows / measured['seconds'] / 1e6:.1f} M rows/s"
    print(f"{name:<30}{speed:<28}peak {measured['peak'] / 1e6:<6.0f}MB  {comparison}".rstrip(), flush=True)


def in_process(code: str, *arguments: object) -> dict[str, float]:
    """Run code in a process of its own with two threads, and return the JSON it prints."""
    limits = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **dict.fromkeys(limits, THREADS)},
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


PRELUDE = f"""
import json, sys, time
import pyarrow as pa
pa.set_cpu_count({THREADS})
from benchmarks.bench_files import peak_memory
def report(action, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    print(json.dumps(dict(seconds=min(times), peak=peak_memory())))
"""
SIMULATE = """
from fultr.cli.main import run
out, impressions = sys.argv[1:]
options = ["--impressions", impressions, "--logging", "random", "--eps-minus", "0.1", "--json"]
report(lambda: run(["simulate", "synthetic", *options, "--out", out]), 1)
"""
STREAM = f"""
from fultr.data import streaming
log, small, function = sys.argv[1:]
stream = getattr(streaming, function)
stream(small)  # compile
report(lambda: stream(log), {REPEATS})
"""
GROUP_BY = f"""
import polars as pl
def count(path):
    frame = pl.scan_parquet(path).group_by("query_id", "doc_id", "position")
    return frame.agg(pl.len(), pl.col("click").sum()).collect(engine="streaming")
log, small = sys.argv[1:]
count(small)
report(lambda: count(log), {REPEATS})
"""

if __name__ == "__main__":
    main()
