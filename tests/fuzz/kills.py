"""Commands that are killed while they write: what was there is old as a whole, or new as a whole."""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import fultr
from fultr import FairRanker, read_log
from fultr.audits import audit, read_audit, write_audit
from fultr.cli.main import run
from fultr.experiments import reproduce
from fultr.files import existing_file
from tests.training_tasks import BIAS, random_lists, random_log

CHANGES = ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync", "link")
"""The functions of `os` that change what is on disk, by which all of Python does."""


class Killed(BaseException):
    """The process ends here: nothing that comes after is done."""


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    """Raise `Killed` at the change of a file of this number, and at all that follow: none of them is made."""
    left = step

    def counted(change: Callable[..., Any], is_change: Callable[..., bool]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if is_change(*arguments, **options):
                left -= 1
                if left < 0:
                    raise Killed
            return change(*arguments, **options)

        return changed

    def opens_to_write(_file: Any, mode: Any = "r", *_: Any, **__: Any) -> bool:
        return any(letter in str(mode) for letter in "wax+")

    def makes_file(_file: Any, flags: int, *_: Any, **__: Any) -> bool:
        return bool(flags & os.O_CREAT)

    opened = counted(builtins.open, opens_to_write)
    with contextlib.ExitStack() as patches:
        for name in CHANGES:
            changed = counted(getattr(os, name), lambda *_, **__: True)
            patches.enter_context(mock.patch.object(os, name, changed))
        patches.enter_context(mock.patch.object(os, "open", counted(os.open, makes_file)))
        for module in (builtins, io):
            patches.enter_context(mock.patch.object(module, "open", opened))
        yield


@dataclass(frozen=True)
class Case:
    """What writes one of two versions of a result into a folder, and what a reader then sees of it."""

    write: Callable[[int, Path], Any]
    seen: Callable[[Path], Any]


# --- what the commands read, made once for all cases ---


INPUTS = "FULTR_KILLS"
"""The variable with the folder of inputs that several processes share."""


@cache
def inputs() -> Path:
    """Return a folder with two versions of everything that commands read."""
    folder = Path(os.environ.get(INPUTS) or tempfile.mkdtemp(prefix="fultr-kills-"))
    if any(folder.iterdir()):
        return folder
    for version in (0, 1):
        log, ranker = _log(version), _ranker(version)
        fultr.write_log(log, folder / f"log-{version}.parquet")
        fultr.write_dataset(log.data, folder / f"lists-{version}.parquet")
        fultr.save(ranker, folder / f"policy-{version}.safetensors")
        write_audit(audit(log, position_bias=BIAS, resamples=50), folder / f"audit-{version}")
    return folder


@cache
def _log(version: int) -> fultr.ClickLog:
    data = random_lists(lists=10, seed=3)
    data = replace(data, features=data.features + np.float32(version))
    return random_log(data, impressions=200, seed=version)


@cache
def _ranker(version: int) -> FairRanker:
    return FairRanker(1.0, l2=(0.1, 1.0)[version], folds=0, position_bias=BIAS).fit(_log(version))


def command(*words: object) -> None:
    """Run a command, which must succeed, without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = run([str(word) for word in words])
    if code:
        raise RuntimeError(said.getvalue())


# --- what readers see ---


def of_log(path: Path) -> Any:
    log = read_log(path)
    return log.click.tolist(), log.data.features.sum(), len(log)


def of_bytes(folder: Path) -> Any:
    """Return all files that are not hidden."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def of_audit(folder: Path) -> Any:
    read_audit(folder / "audit.json")
    return of_bytes(folder)


def of_reproduction(folder: Path) -> Any:
    existing_file(folder / "verdicts.json")
    return of_bytes(folder)


def train(version: int, folder: Path) -> None:
    """Train, or go on with a training that was killed."""
    goal = ("--lambda", version + 1)
    log = inputs() / "log-0.parquet"
    command("train", log, "--eta", 1, *goal, "--l2", 0.1, "--out", folder / f"run-{version}", "--resume")


def of_training(folder: Path) -> Any:
    """Return the finished runs; one that has not finished is not there yet."""
    runs = [path for path in sorted(folder.glob("run-*")) if (path / "results.json").exists()]
    return [fultr.load(path / "policy.safetensors").coef_.tolist() for path in runs]


CASES = {
    "save": Case(
        lambda version, folder: fultr.save(_ranker(version), folder / "policy"),
        lambda folder: fultr.load(folder / "policy").coef_.tolist(),
    ),
    "simulate": Case(
        lambda version, folder: command(
            *("simulate", "studios", "--impressions", 30, "--eta", 1, "--seed", version),
            *("--out", folder / "log.csv"),
        ),
        lambda folder: of_log(folder / "log.csv"),
    ),
    "convert": Case(
        lambda version, folder: command(
            "convert", inputs() / f"log-{version}.parquet", folder / "log.parquet"
        ),
        lambda folder: of_log(folder / "log.parquet"),
    ),
    "split": Case(
        lambda version, folder: command(
            *("split", inputs() / "log-0.parquet", "--by", "query", "--share", 0.4, "--seed", version),
            *("--out-train", folder / "train.parquet", "--out-test", folder / "test.parquet"),
        ),
        lambda folder: [of_log(folder / name) for name in ("train.parquet", "test.parquet")],
    ),
    "count": Case(
        lambda version, folder: command(
            "count", inputs() / f"log-{version}.parquet", "--out", folder / "counts.parquet"
        ),
        lambda folder: fultr.read_counts(folder / "counts.parquet").cells.clicks.tolist(),
    ),
    "propensity": Case(
        lambda version, folder: command(
            "propensity", inputs() / f"log-{version}.parquet", "--out", folder / "bias.json"
        ),
        of_bytes,
    ),
    "audit": Case(
        lambda version, folder: command(
            "audit", inputs() / f"log-{version}.parquet", "--eta", 1, "--out", folder
        ),
        of_audit,
    ),
    "rank": Case(
        lambda version, folder: command(
            *("rank", inputs() / f"policy-{version}.safetensors", inputs() / "lists-0.parquet"),
            *("--samples", 2, "--seed", 0, "--out", folder / "rankings.csv"),
        ),
        of_bytes,
    ),
    "report": Case(
        lambda version, folder: command(
            "report", inputs() / f"audit-{version}", "--out", folder / "page.html"
        ),
        of_bytes,
    ),
    "reproduce": Case(
        lambda version, folder: reproduce(
            ["example"], folder, command="fultr reproduce" + " --quick" * version
        ),
        of_reproduction,
    ),
    "train": Case(train, of_training),
}
"""All that writes: how, in two versions, and what a reader sees."""


@dataclass(frozen=True)
class Seen:
    """What a reader sees of the old and of the new version, and the files of the new one."""

    old: Any
    new: Any
    files: list[str]


def prepared(case: Case, folder: Path) -> Seen:
    """Write the old version into `folder`/old, and try the new one."""
    (folder / "old").mkdir()
    case.write(0, folder / "old")
    shutil.copytree(folder / "old", folder / "new")
    case.write(1, folder / "new")
    seen = Seen(case.seen(folder / "old"), case.seen(folder / "new"), names_in(folder / "new"))
    if seen.old == seen.new:
        raise RuntimeError("the two versions look the same")
    return seen


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def check_kill(case: Case, seen: Seen, folder: Path, step: int) -> bool:
    """Kill at a step, look at what is there, and go on; say whether it was killed at all."""
    place = folder / f"step-{step}"
    shutil.copytree(folder / "old", place)
    killed = False
    try:
        with killed_at(step):
            case.write(1, place)
    except Killed:
        killed = True
    found = case.seen(place)
    if found not in ((seen.old, seen.new) if killed else (seen.new,)):
        raise AssertionError(f"killed at step {step}: neither old nor new: {names_in(place)}")
    case.write(1, place)
    if case.seen(place) != seen.new or names_in(place) != seen.files:
        raise AssertionError(f"killed at step {step}: the next run leaves {names_in(place)}")
    shutil.rmtree(place)
    return killed


def kill_at_random(times: int) -> int:
    """Kill processes that write both versions in turn at any moment; print how often for each command.

    This process starts others by fork, which is quick: it does nothing itself, so that it has no threads.
    """
    failed, os.environ[INPUTS] = 0, tempfile.mkdtemp(prefix="fultr-kills-")
    _in_child(inputs)
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            versions = _in_child(lambda: prepared(case, place))  # noqa: B023
            done = versions and all(_killed_once(case, place, number) for number in range(times))
        sys.stdout.write(
            f"{name}: {times if done else 'not'} kills, {'all old or all new' if done else 'FAILED'}\n"
        )
        failed += not done
    return int(failed > 0)


def _in_child(work: Callable[[], Any]) -> bool:
    """Do work in a process of its own; say whether it succeeded."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _killed_once(case: Case, folder: Path, number: int) -> bool:
    place = folder / "killed"
    ready, told = os.pipe()
    writer = os.fork()
    if not writer:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            place.mkdir(exist_ok=True)
            case.write(0, place)  # also what prepares the rest: what comes after is but writing
            os.write(told, b"!")
            for version in range(1, 1 << 30):
                case.write(version % 2, place)
    os.read(ready, 1)
    os.close(ready)
    os.close(told)
    time.sleep(float(np.random.default_rng(number).uniform(0, 0.2)))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)

    def look() -> None:
        found = case.seen(place)
        known = [case.seen(folder / name) for name in ("old", "new")]
        if found not in known:
            raise AssertionError(f"kill {number}: neither old nor new: {names_in(place)}")

    return _in_child(look)
