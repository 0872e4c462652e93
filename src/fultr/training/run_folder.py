"""Run folders: all that a training run leaves behind, and from which a stopped one goes on.

    config.json                 what was asked for; written first
    metrics.jsonl               how training went, one JSON object a line
    checkpoints/                the state of each stage of training; removed once the run has finished
    policy.safetensors          what was trained, and whatever else the command writes
    results.json                the final numbers; written last, so that it marks a finished run

Everything but metrics.jsonl appears whole or not at all, so that a run can be killed at any moment.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from fultr.arguments import finite_number
from fultr.errors import InputError, WriteError
from fultr.files import existing_file, nearest_folder, parse_json, write_text
from fultr.training.checkpoints import Tensors
from fultr.training.limits import UnreachableLimitError
from fultr.training.policy_files import PolicyFile, read_policy_file, write_policy_file
from fultr.training.promises import UnsupportedLimitError
from fultr.training.solving import StepReached

CONFIG, METRICS, CHECKPOINTS, RESULTS = "config.json", "metrics.jsonl", "checkpoints", "results.json"

CHECKPOINT_EVERY = 5.0
"""Seconds between the checkpoints of a stage."""

TIMES_AS_LONG = 20
"""Before the next checkpoint, training goes on for this many times as long as writing the last one took."""

_NOT_COMPARED = "path"
"""A file may have moved since a run began; what it holds must be the same."""


class RunFolder:
    """The folder of one training run, which keeps the stages of training (see `Checkpoints`).

    Use `RunFolder.open`. It holds the folder until it is closed: no other process can train into it.
    """

    def __init__(
        self, path: Path, metrics: FileIO, checkpoint_every: float, created: Sequence[Path] = ()
    ) -> None:
        self.path = path
        self.stages_done = 0
        self.results: dict[str, Any] | None = None
        self._metrics = metrics
        self._made = tuple(created)
        self._every = checkpoint_every
        self._due = time.monotonic() + checkpoint_every
        self._began = time.monotonic()
        self._before, self._lines = 0.0, 0

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        checkpoint_every: float = CHECKPOINT_EVERY,
    ) -> RunFolder:
        """Begin a run, or go on with one.

        Parameters
        ----------
        path
            The folder; it is made if need be. A new run needs an empty one.
        config
            What was asked for, as plain values. A run goes on only with the same; a "path" may differ.
        resume
            Go on with the run that is there, if there is one. `results` are those of a finished one.
        checkpoint_every
            Seconds between checkpoints; 0 keeps every step. What finishes a stage is kept in any case.
        """
        finite_number(checkpoint_every, "checkpoint_every")
        folder = Path(path)
        results = results_of_run(folder, config, resume=resume)
        created = _missing(folder) if not (folder / CONFIG).exists() else ()
        with writing(folder):
            (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            metrics = (folder / METRICS).open("a+b", buffering=0)
        try:
            _hold(metrics, folder)
            opened = cls(folder, metrics, checkpoint_every, created)
            opened._take_up(config, results)
        except BaseException:
            metrics.close()
            raise
        return opened

    def _take_up(self, config: Mapping[str, Any], results: dict[str, Any] | None) -> None:
        with writing(self.path):
            for left in self.path.rglob(".*.part"):  # what was being written when the run was killed
                left.unlink(missing_ok=True)
        self.results = results
        if results is not None:
            _remove_checkpoints(self.path)
        elif (self.path / CONFIG).exists():
            self._cut_metrics()
        else:
            self._write_json(CONFIG, config)

    def _cut_metrics(self) -> None:
        """Drop the lines of steps that no checkpoint knows: they will be taken again."""
        lines = 0
        for file in sorted((self.path / CHECKPOINTS).glob("*.safetensors")):
            # the state is kept before the line of its step is written
            lines = max(lines, int(_read_checkpoint(file).content["lines"]) + 1)
        self._metrics.seek(0)
        whole_lines = []
        for line in self._metrics.read().split(b"\n")[:-1][:lines]:
            try:
                self._before = float(json.loads(line)["seconds"])
            except (ValueError, KeyError, TypeError):
                break
            whole_lines.append(line)
        with writing(self.path / METRICS):
            self._metrics.truncate(sum(len(line) + 1 for line in whole_lines))
        self._lines = len(whole_lines)

    def load(self, stage: str) -> dict[str, NDArray[Any]] | None:
        """Return what was kept of a stage last, if anything."""
        file = self._checkpoint(stage)
        if not file.exists():
            return None
        checkpoint = _read_checkpoint(file)
        self.stages_done += bool(checkpoint.content["finished"])
        return checkpoint.tensors

    def save(self, stage: str, state: Callable[[], Tensors], *, finished: bool) -> None:
        """Keep the state of a stage if it has finished, or if nothing was kept for a while."""
        file, start = self._checkpoint(stage), time.monotonic()
        if not finished and start < self._due:
            return
        content = {"stage": stage, "finished": finished, "lines": self._lines}
        with writing(file):
            write_policy_file(file, state(), content)
        self.stages_done += finished
        now = time.monotonic()
        self._due = now + (max(self._every, TIMES_AS_LONG * (now - start)) if self._every else 0.0)

    def _checkpoint(self, stage: str) -> Path:
        if not re.fullmatch(r"\w[\w.-]*", stage):
            raise InputError("must be a name that a file can have", column="stage", value=stage)
        return self.path / CHECKPOINTS / f"{stage}.safetensors"

    def record(self, reached: StepReached) -> None:
        """Add a line to metrics.jsonl; to be called as training goes on."""
        about = {
            "stage": reached.stage,
            "iterations": reached.iterations,
            "utility": reached.utility,
            "disparity": reached.disparity,
            "seconds": round(self._before + time.monotonic() - self._began, 3),
        }
        line = json.dumps(about).encode() + b"\n"
        with writing(self.path / METRICS):
            while line:  # a disk that fills up takes a part first
                line = line[self._metrics.write(line) :]
        self._lines += 1

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write the results, after all else; from now on the run is a finished one."""
        self._write_json(RESULTS, results)
        self.results = dict(results)
        _remove_checkpoints(self.path)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        with writing(self.path / name):
            write_text(self.path / name, text)

    def close(self) -> None:
        """Let go of the folder."""
        self._metrics.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if isinstance(error, (InputError, UnreachableLimitError, UnsupportedLimitError)):
            # what was asked for cannot be done: no trace of it, so that it can be asked for in another way
            self._undo()
        self.close()

    def _undo(self) -> None:
        """Remove what this call has made; what an earlier one left, and what is not of a run, stays."""
        with suppress(OSError, WriteError):
            for path in self._made:
                if path.name == CHECKPOINTS and path.parent == self.path:
                    _remove_checkpoints(self.path)
                elif path.is_dir():
                    path.rmdir()
                else:
                    path.unlink(missing_ok=True)


def _missing(folder: Path) -> tuple[Path, ...]:
    """Return what a new run in a folder makes, innermost first: files, the folder, those above it.

    Empty metrics and checkpoints that are there are those of a run that was killed before it began.
    """
    files = [folder / name for name in (CONFIG, METRICS, CHECKPOINTS)]
    return (*files, *(path for path in (folder, *folder.parents) if not path.exists()))


def results_of_run(path: str | Path, config: Mapping[str, Any], *, resume: bool) -> dict[str, Any] | None:
    """Return the results of a run that has finished; refuse what `RunFolder.open` would refuse.

    To be asked before long work; nothing is written. Checkpoints that a finished run left, since it was
    killed before it removed them, are removed.
    """
    nearest_folder(path)
    folder, asked = Path(path), json.loads(json.dumps(config, allow_nan=False))
    if not (folder / CONFIG).exists():
        _check_no_other_files(folder)
        return None
    if not resume:
        problem = "holds a run already; go on with it ({resume}), or choose another folder"
        raise InputError(problem, file=folder, options=["resume"])
    _check_same_settings(_read_json(folder / CONFIG), asked, folder / CONFIG)
    if not (folder / RESULTS).exists():
        return None
    _remove_checkpoints(folder)
    return _read_json(folder / RESULTS)


def _remove_checkpoints(folder: Path) -> None:
    checkpoints = folder / CHECKPOINTS
    if checkpoints.is_dir():
        with writing(checkpoints):
            for file in checkpoints.glob("*.safetensors"):
                file.unlink(missing_ok=True)
            checkpoints.rmdir()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn whatever keeps a file from being written into a WriteError."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}") from error
    except InputError as error:
        if isinstance(error.__cause__, OSError):
            raise WriteError(str(error)) from error
        raise


def _hold(metrics: FileIO, folder: Path) -> None:
    """Keep other processes out; the system lets go of the folder when this one ends, however it does."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover  Windows
        return
    try:
        fcntl.flock(metrics, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        problem = "another process is training into this folder; wait for it, or choose another folder"
        raise InputError(problem, file=folder) from None
    except OSError:  # a file system without locks
        return


def _check_no_other_files(folder: Path) -> None:
    """Refuse a folder that holds anything but what is there before config.json is."""
    if not folder.is_dir():
        return
    for file in sorted(folder.iterdir()):
        begun = file.name.startswith(".") and file.name.endswith(".part")
        empty = file.name == METRICS and not file.stat().st_size
        empty = empty or (file.name == CHECKPOINTS and file.is_dir() and not any(file.iterdir()))
        if not begun and not empty:
            problem = f"is not empty ('{file.name}') and holds no run; choose another folder"
            raise InputError(problem, file=folder)


def _check_same_settings(saved: dict[str, Any], asked: dict[str, Any], file: Path) -> None:
    before, now = dict(_flat(saved)), dict(_flat(asked))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name) and name.split(".")[-1] != _NOT_COMPARED:
            problem = (
                f"the run was started with {name} = {json.dumps(before.get(name))}, not"
                f" {json.dumps(now.get(name))}; give the same, or choose another folder"
            )
            raise InputError(problem, file=file)


def _flat(content: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Yield values by the names that lead to them."""
    if isinstance(content, dict) and content:
        for name, inner in content.items():
            yield from _flat(inner, *path, name)
    else:
        yield ".".join(path), content


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(existing_file(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError("is damaged; choose another folder", file=path)
    return content


def _read_checkpoint(file: Path) -> PolicyFile:
    checkpoint = None
    with suppress(InputError):
        checkpoint = read_policy_file(file)
    about = (
        {}
        if checkpoint is None
        else {name: type(checkpoint.content.get(name)) for name in ("finished", "lines")}
    )
    if checkpoint is None or about != {"finished": bool, "lines": int} or checkpoint.content["lines"] < 0:
        raise InputError("is damaged; remove it, and its stage is trained again", file=file)
    return checkpoint
