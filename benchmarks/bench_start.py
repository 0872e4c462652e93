"""How long commands take to start: processor time against what they cannot do without.

    python -m benchmarks.bench_start [--training]

Each figure is the least user and system time of a few processes, ours and theirs in turn, so that the ratios
hold on a busy machine too. `--training` adds `fultr train` on German Credit with and without a cache of
compiled kernels, which takes minutes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

REPEATS = 7
COMMAND = "from fultr.cli.main import main; main()"
Call = Sequence[str | Path]


def main() -> None:
    """Print one table of all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--training", action="store_true", help="train with an empty cache, too")
    arguments, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "clicks.parquet"
        run([COMMAND, "simulate", "studios", "--impressions", "2000", "--out", log])
        print_row("fultr --help", [COMMAND, "--help"], "import typer, rich", most=1.5)
        print_row("fultr inspect, a small log", [COMMAND, "inspect", log], "import polars", most=2.0)
        if arguments.training:
            print_training(Path(name))


def print_row(what: str, ours: Call, theirs: str, most: float) -> None:
    """Print the processor time of one of our commands against that of imports."""
    times = [(run(ours), run([theirs])) for _ in range(REPEATS)]
    mine, other = (min(column) for column in zip(*times, strict=True))
    ratio = f"{mine / other:.2f} x {theirs} ({other:.2f} s), to be at most {most:g}"
    print(f"{what:42} {mine:6.2f} s   {ratio}")


def print_training(folder: Path) -> None:
    """Print the processor time of a first training, which compiles, and of a second one."""
    log, caching = folder / "german.parquet", {"NUMBA_CACHE_DIR": str(folder / "cache")}
    run([COMMAND, "simulate", "german", "--clicked-impressions", "2000", "--out", log])
    for what in ("an empty cache", "a full cache"):
        out = folder / what.replace(" ", "-")
        seconds = run([COMMAND, "train", log, "--eta", "1", "--max-disparity", "0.1", "--out", out], caching)
        print(f"{'fultr train, German Credit, ' + what:42} {seconds:6.2f} s")


def run(call: Call, environment: Mapping[str, str] | None = None) -> float:
    """Run Python code with arguments in a process of its own; return its user and system time."""
    # an install holds its modules compiled to bytecode
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", *map(str, call)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**given, **(environment or {})},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
