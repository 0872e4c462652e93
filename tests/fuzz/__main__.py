"""Long runs: `python -m tests.fuzz --minutes 60`; one file: `python -m tests.fuzz --show csv 17`.

Each format is tried by a process of its own, one after another, so that a file which ends the process is
noticed, too. Counts are added to those of earlier runs. Files that fail belong into `tests/fuzz/corpus`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

from fultr.files import write_text
from tests.fuzz import kills
from tests.fuzz.formats import formats
from tests.fuzz.harness import Case, try_cases, write_files

SECONDS_A_TURN = 20.0
"""Of processor time; starting a process takes about 2."""

MOST_SECONDS = 30
"""Of processor time that a file may take before its process is ended."""

MOST_BYTES = 8 << 30
"""Of memory that a process may ask for."""

EXAMPLES = 5
"""Files that are kept of each kind of failure, by their numbers."""

CORPUS = Path(__file__).parent / "corpus"


def turn(name: str, start: int, seconds: float, at: int) -> None:
    """Try files of a format for a while; `at` is an open file that says which one is being tried."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    format_ = formats()[name]()
    outcomes: Counter[str] = Counter()
    failures: dict[str, list[int]] = {}

    def numbers() -> Any:
        for number in count(start):
            os.pwrite(at, b"%20d" % number, 0)
            signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)  # ends the process
            yield number

    with tempfile.TemporaryDirectory() as folder:
        for number, found in try_cases(name, format_, numbers(), Path(folder), seconds):
            if found not in ("accepted", "refused"):
                failures.setdefault(re.sub(r"\d+", "N", found), []).append(number)
                found = "failed"
            outcomes[found] += 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    sys.stdout.write(json.dumps({**outcomes, "failures": failures}))


def try_in_turn(name: str, known: dict[str, Any], seconds: float) -> None:
    """Let another process try files of a format, and add up what it says."""
    start = known.setdefault("tried", 0)
    with tempfile.TemporaryFile() as at:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.fuzz",
            "--turn",
            name,
            str(start),
            str(seconds),
        ]
        done = subprocess.run(
            [*command, str(at.fileno())],
            pass_fds=[at.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        last = int(os.pread(at.fileno(), 20, 0) or start)
    if done.returncode:
        found: dict[str, Any] = {
            "failed": 1,
            "failures": {f"the process ended with {done.returncode}": [last]},
        }
        found["accepted or refused"] = last - start
    else:
        found = json.loads(done.stdout)
    known["tried"] = last + 1
    for message, numbers in found.pop("failures").items():
        examples = known.setdefault("failures", {}).setdefault(message, [])
        examples += numbers[: max(EXAMPLES - len(examples), 0)]
    for outcome, times in found.items():
        known[outcome] = known.get(outcome, 0) + times


def run(minutes: float, file: Path, chosen: list[str]) -> int:
    """Try all formats in turn, those that were tried least first; return the exit code."""
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    end = time.monotonic() + 60 * minutes
    names = chosen or list(formats())
    while time.monotonic() < end:
        name = min(names, key=lambda one: known.get(one, {}).get("tried", 0))
        try_in_turn(name, known.setdefault(name, {}), SECONDS_A_TURN)
        write_text(file, json.dumps(known, indent=1) + "\n")
    sys.stdout.write(table(known))
    return int(any(of_format.get("failed") for of_format in known.values()))


def table(known: dict[str, Any]) -> str:
    """Return counts as a table for SECURITY.md."""
    lines = ["| format | files tried | accepted | refused | failed |", "|---|---:|---:|---:|---:|"]
    for name, found in sorted(known.items()):
        numbers = (found.get(key, 0) for key in ("tried", "accepted", "refused", "failed"))
        lines.append(f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |")
    return "\n".join(lines) + "\n"


def show(name: str, number: int, folder: Path) -> None:
    """Write the files of a case into a new folder."""
    folder.mkdir(parents=True)
    write_files(Case(name, number).files(formats()[name]()), folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--counts", type=Path, default=Path(".fuzz.json"))
    parser.add_argument("--formats", nargs="*", default=[])
    parser.add_argument("--kills", type=int, default=0, help="how often each command is killed instead")
    parser.add_argument("--show", nargs=3, metavar=("FORMAT", "NUMBER", "FOLDER"))
    parser.add_argument("--turn", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn:
        turn(given.turn[0], int(given.turn[1]), float(given.turn[2]), int(given.turn[3]))
        return 0
    if given.show:
        show(given.show[0], int(given.show[1]), Path(given.show[2]))
        return 0
    if given.kills:
        return kills.kill_at_random(given.kills)
    return run(given.minutes, given.counts, given.formats)


if __name__ == "__main__":
    sys.exit(main())
