"""One file at a time: read it, and say whether it was refused in a line, accepted as it is, or neither."""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fultr.errors import FultrError
from tests.fuzz import oracles
from tests.fuzz.formats import Format
from tests.fuzz.generators import Files

MOST_SECONDS = 5.0
"""Of processor time that a small file may take."""

MOST_KB = 1_000_000
"""By which a small file may enlarge the process."""

LONGEST_LINE = 2000
"""Characters of an error."""


class Failure(Exception):  # noqa: N818 - what is looked for
    """A file that was neither refused in a line nor read as what it is."""


@dataclass(frozen=True)
class Case:
    """A file, known by its format and its number."""

    name: str
    number: int

    def files(self, format_: Format) -> Files:
        """Make the file again; the same number gives the same file."""
        return format_.make(Random(f"{self.name} {self.number}"))


def write_files(files: Files, folder: Path) -> Path:
    """Write the files of a case into an empty folder, and return the first."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / next(iter(files))


def empty(folder: Path) -> None:
    """Remove what is in a folder."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def outcome(format_: Format, files: Files, folder: Path) -> str:
    """Return "accepted" or "refused"; raise `Failure` for anything else."""
    path = write_files(files, folder)
    size, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    value, refusal = None, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = format_.read(path)
    except FultrError as error:
        refusal = str(error)
        _check_line(refusal)
    except BaseException as error:  # polars panics with one
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Failure(f"internal: {type(error).__name__}: {str(error)[:200]}") from error
    finally:
        empty(folder)
    seconds = time.process_time() - start
    if seconds > MOST_SECONDS:
        raise Failure(f"slow: {seconds:.1f} s")
    larger = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size
    if larger > MOST_KB:
        raise Failure(f"memory: {larger / 1e6:.1f} GB")
    if refusal:
        return "refused"
    if format_.oracle is not None:
        _check_value(format_, files, value)
    return "accepted"


def _check_line(line: str) -> None:
    try:
        line.encode()
    except UnicodeEncodeError:
        raise Failure("an error that cannot be printed") from None
    if "\n" in line or "\x1b" in line or len(line) > LONGEST_LINE:
        raise Failure(f"an error that is no line: {len(line)} characters")


def _check_value(format_: Format, files: Files, value: Any) -> None:
    assert format_.oracle is not None
    try:
        expected = format_.oracle(files)
    except oracles.Refused as error:
        raise Failure(f"accepted, though a rule is broken: {_rule_of(error)}") from error
    if expected is not None and expected != value:
        raise Failure("read as something else")


def _rule_of(error: BaseException) -> str:
    """Return the place in the oracle that refused."""
    trace = error.__traceback__
    last = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name != "need":
            last = f"{code.co_name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return last


def try_cases(
    name: str, format_: Format, numbers: Iterable[int], folder: Path, seconds: float | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the number and the outcome of cases, until there are no more or their time is over."""
    start = time.process_time()
    for number in numbers:
        try:
            found = outcome(format_, Case(name, number).files(format_), folder)
        except Failure as failure:
            found = str(failure)
        yield number, found
        if seconds is not None and time.process_time() - start > seconds:
            return


def summary(found: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in found.most_common())


if __name__ == "__main__":
    sys.exit("python -m tests.fuzz")
