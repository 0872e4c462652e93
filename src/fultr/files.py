"""Writing files so that a reader sees all of the old content or all of the new."""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fultr.errors import InputError, WriteError

Made = TypeVar("Made")

LONGEST_NAME = 160
"""Bytes of a file's name that a temporary name repeats; file systems allow 255 in all."""

LONGEST_INTEGER = 40
"""Characters of the longest integer that is read: seeds have up to 128 bits."""


@dataclass(frozen=True)
class _Written:
    """A file that is complete under its temporary name."""

    temporary: Path
    target: Path
    companion: bool


@dataclass(frozen=True)
class _Together:
    """Complete files that wait for others before they take their names, and what removes them on failure."""

    files: list[_Written] = field(default_factory=list)
    temporaries: ExitStack = field(default_factory=ExitStack)


_together: ContextVar[_Together | None] = ContextVar("together", default=None)


@contextmanager
def atomic_write(path: str | Path, *, companion: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; it takes the name `path` only when the block succeeds.

    Whatever goes wrong, the old file stays as it was and the temporary one is removed; what a killed process
    left is removed by the next that writes the same file. An existing file keeps its mode. A symbolic link
    stays, and what it leads to is replaced. A device or a pipe is written to when the block ends.

    Parameters
    ----------
    path
        The file.
    companion
        Whether another file, written together with this one, says which it is by its SHA-256. Readers ask
        `companion_file`, so that at any moment one of the two pairs is complete.
    """
    target = writable_file(path)
    if _is_stream(target):
        with _copied_to(target) as temporary:
            yield temporary
        return
    target, together = _followed(target), _together.get()
    with ExitStack() as held:
        temporary = held.enter_context(_temporary_file(target))
        with _write_errors(target):
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        if together is None:
            _rename_all([_Written(temporary, target, companion)])
        else:
            together.files.append(_Written(temporary, target, companion))
            together.temporaries.push(held.pop_all())


@contextmanager
def written_together() -> Iterator[None]:
    """Let all files that are written within the block take their names when it ends: all, or none of them.

    So a disk that fills up leaves no new file beside old ones.
    """
    if _together.get() is not None:  # more files belong together than those of this block
        yield
        return
    together = _Together()
    with together.temporaries:
        before = _together.set(together)
        try:
            yield
        finally:
            _together.reset(before)
        _rename_all(together.files)


def companion_file(path: Path, sha256: str) -> Path:
    """Return where the companion with a digest is: under its name, or still waiting to take it."""
    waiting = _waiting_file(path, sha256)
    return waiting if waiting.exists() else path


def _rename_all(files: list[_Written]) -> None:
    """Rename complete files; a companion waits under another name until what says its digest is there."""
    waiting: dict[Path, Path] = {}
    outdated: list[Path] = []
    for file in files:
        if file.companion:
            outdated += file.target.parent.glob(f"{glob.escape(_waiting_name(file.target))}.*")
            waiting[file.target] = _waiting_file(file.target, _digest(file.temporary))
            _rename(file.temporary, waiting[file.target])
    named = [file for file in files if not file.companion]
    outdated += _record_renames(named) if len(named) > 1 else []
    for file in named:
        # whoever reads one of several files just now may have renamed it already
        _rename(file.temporary, file.target, may_be_done=len(named) > 1)
    for target, temporary in waiting.items():
        _rename(temporary, target)
    for left in outdated:
        left.unlink(missing_ok=True)


def _rename(old: Path, new: Path, *, may_be_done: bool = False) -> None:
    with _write_errors(new):
        try:
            old.replace(new)
        except FileNotFoundError:
            if not may_be_done:
                raise


def _record_renames(files: list[_Written]) -> list[Path]:
    """Write down beside each file which renames belong together, and return these records.

    Once all records are there, so are all files, under the new names or under those to be changed: if this
    process is killed, whoever reads or writes one of them next goes on. Before, the old files count. That
    holds for files of one folder; a record says nothing of other folders.
    """
    records: list[Path] = []
    try:
        for file in files:
            folder, record = file.target.parent, _record_of(file.target)
            names = {one.temporary.name: one.target.name for one in files if one.target.parent == folder}
            begun = file.target.with_name(_temporary_name(file.target))
            records += [record, begun]
            with _write_errors(record):
                begun.write_text(json.dumps(names), encoding="utf-8")
                begun.replace(record)
    except BaseException:
        for record in records:
            record.unlink(missing_ok=True)
        raise
    return records


def _record_of(target: Path) -> Path:
    return target.with_name(f".{_short_name(target)}.renames")


def _finish_renames(path: Path, *, to_write: bool = False) -> None:
    """Rename what a killed process had written completely, together with `path`, but not renamed yet."""
    target = path.resolve() if path.is_symlink() else path
    record = _record_of(target)
    if not record.is_file():
        return
    renames = _recorded_renames(record)
    recorded = all(_record_of(new).is_file() for new in renames.values())
    if recorded or not all(old.is_file() for old in renames):
        for old, new in renames.items():
            if not _is_newer(new, old):
                with suppress(FileNotFoundError):  # renamed already
                    old.replace(new)
            with suppress(PermissionError):  # all is in place; its owner removes the record
                _record_of(new).unlink(missing_ok=True)
    elif to_write:  # never begun: the old files count, all of them
        for new in renames.values():
            _record_of(new).unlink(missing_ok=True)
    if to_write or not renames:
        record.unlink(missing_ok=True)


def _recorded_renames(record: Path) -> dict[Path, Path]:
    """Return temporary files and their names; a record of anything else is none."""
    try:
        names = parse_json(record.read_text(encoding="utf-8"))
        renames = {
            record.with_name(Path(old).name): record.with_name(Path(new).name) for old, new in names.items()
        }
    except (AttributeError, FileNotFoundError, RecursionError, TypeError, ValueError):
        return {}
    return {old: new for old, new in renames.items() if old.name.startswith(f".{_short_name(new)}.")}


def _is_newer(file: Path, other: Path) -> bool:
    """Say whether a file was written after another one, which may be gone."""
    try:
        return file.stat().st_mtime_ns > other.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def _digest(path: Path) -> str:
    with _write_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _waiting_file(target: Path, sha256: str) -> Path:
    return target.with_name(f"{_waiting_name(target)}.{sha256[:16]}{target.suffix[:16]}")


def _waiting_name(target: Path) -> str:
    return f".{_short_name(target)}.waiting"


def _short_name(target: Path) -> str:
    """Return a file's name, or what is as good as one of long names."""
    name = os.fsencode(target.name)
    return target.name if len(name) <= LONGEST_NAME else hashlib.sha256(name).hexdigest()


@contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(f"{target}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _temporary_file(target: Path) -> Iterator[Path]:
    """Make an empty file beside `target`, with its mode; it is removed if it is still there at the end."""
    start = f".{_short_name(target)}."
    with _write_errors(target):
        _finish_renames(target, to_write=True)
    _remove_strays(target.parent, start)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    temporary = target.with_name(_temporary_name(target))
    try:
        # the system takes the umask off; a file that is there may be private
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=target) from error
    try:
        _lock(handle)
        if mode is not None:
            with suppress(OSError):  # a file system without modes
                temporary.chmod(mode)
        yield temporary
    finally:
        try:
            temporary.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _temporary_name(target: Path) -> str:
    return f".{_short_name(target)}.{secrets.token_hex(4)}.part"


def _remove_strays(folder: Path, start: str) -> None:
    """Remove what killed processes left of a file; what another process writes now is locked."""
    for stray in folder.glob(f"{glob.escape(start)}????????.part"):
        with suppress(OSError):
            handle = os.open(stray, os.O_RDWR)
            try:
                if _lock(handle):
                    stray.unlink(missing_ok=True)
            finally:
                os.close(handle)


def _lock(handle: int) -> bool:
    """Lock an open file until it is closed, however its process ends; say whether it was free."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover  Windows, which keeps open files from being removed
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked, or a file system without locks
        return False
    return True


def _is_stream(target: Path) -> bool:
    """Say whether a file cannot be replaced: a device, a pipe, or an open file such as /dev/stdout."""
    return _open_handle(target) is not None or (target.exists() and not target.is_file())


def _open_handle(stream: Path) -> int | None:
    """Return the number of the open file that a name such as /dev/stdout or /dev/fd/3 stands for, if any."""
    named = re.fullmatch(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/(\d{1,9})", str(stream.absolute()))
    return None if named is None else int(named[2] or ("stdout", "stderr").index(named[1]) + 1)


@contextmanager
def _copied_to(stream: Path) -> Iterator[Path]:
    """Give a temporary file, which is copied to a device or a pipe at the end."""
    with tempfile.TemporaryDirectory(prefix="fultr-") as folder, _write_errors(stream):
        temporary = Path(folder) / stream.name
        temporary.touch()
        yield temporary
        with open(_stream_handle(stream), "wb") as out, temporary.open("rb") as written:
            shutil.copyfileobj(written, out)


def _stream_handle(stream: Path) -> int:
    """Open a device or a pipe; of a file that is open already, what is written stays around this."""
    handle = _open_handle(stream)
    if handle is None:
        return os.open(stream, os.O_WRONLY | os.O_APPEND)
    for out in (sys.stdout, sys.stderr):
        if out is not None:
            out.flush()
    return os.dup(handle)


def _followed(target: Path) -> Path:
    """Return the file that a symbolic link leads to, which need not be there yet."""
    if not target.is_symlink():
        return target
    try:
        return writable_file(target.resolve())
    except (OSError, RuntimeError):  # a loop
        raise InputError("cannot be written: a symbolic link that leads to itself", file=target) from None


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file, as a whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def make_folder(path: str | Path) -> Path:
    """Make a folder, and those above it, if they are not there."""
    folder = _checked_path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", file=folder) from error
    return folder


def nearest_folder(path: str | Path) -> Path:
    """Return a folder, or the nearest one above it if it is not there yet; refuse what can be none."""
    folder = _checked_path(path)
    try:
        nearest = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    except OSError as error:  # a name that is too long, or a folder that cannot be entered
        raise InputError(f"cannot be made: {error.strerror}", file=folder) from error
    if not nearest.is_dir():
        raise InputError("is a file, not a folder", file=nearest)
    return nearest


def check_writable_folder(path: str | Path) -> None:
    """Refuse a folder that cannot be made or written to; to be asked before long work, not only after it."""
    nearest = nearest_folder(path)
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError("cannot be written to: permission denied", file=nearest)


def writable_file(path: str | Path) -> Path:
    """Return `path` if a file can have that name; to be asked before long work, and not only after it."""
    target = _checked_path(path)
    try:
        if not target.parent.is_dir():
            raise InputError("cannot be written: its folder does not exist", file=target)
        if target.is_dir():
            raise InputError("cannot be written: it is a folder", file=target)
    except OSError as error:  # a name that is too long, or a folder that cannot be entered
        raise InputError(f"cannot be written: {error.strerror}", file=target) from error
    return target


def check_outputs(written: Iterable[str | Path], read: Iterable[str | Path | None]) -> None:
    """Refuse files that cannot be written, two that are the same, and those that are read."""
    before = [Path(file).resolve() for file in read if file is not None]
    outputs = list(map(writable_file, written))
    for number, out in enumerate(outputs):
        if out.resolve() in before:
            raise InputError("would be written over, though it is read; give another name", file=out)
        if out.resolve() in [other.resolve() for other in outputs[:number]]:
            raise InputError("files that are written must be different files", file=out)


def _checked_path(path: str | Path) -> Path:
    """Return a path that every part of the program can write down."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError("the name of a file must be text in UTF-8", file=ascii(str(path))[1:-1]) from None
    return Path(path)


def existing_file(path: str | Path) -> Path:
    """Return `path` if it is a file that can be read and is not empty; say what is wrong otherwise."""
    file = _checked_path(path)
    try:
        if file.is_dir():
            raise InputError("is a folder, not a file", file=file)
        _finish_renames(file)
        if not file.exists():
            raise InputError("no such file", file=file)
        if not file.is_file():
            raise InputError("is a device or a pipe, not a file that can be read again", file=file)
    except OSError as error:  # a name that is too long
        raise InputError(f"cannot be read: {error.strerror}", file=file) from error
    if not os.access(file, os.R_OK):
        raise InputError("cannot be read: permission denied", file=file)
    if file.stat().st_size == 0:
        raise InputError("is empty", file=file)
    return file


def read_json(path: str | Path, make: Callable[[Any], Made]) -> Made:
    """Return what `make` makes of the content of a JSON file; what is wrong is said with the file's name."""
    file = existing_file(path)
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON file: {error}", file=file) from None
    try:
        return make(content)
    except InputError as error:
        raise error.located(file) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"does not hold what it should ({type(error).__name__}: {error})"
        raise InputError(problem, file=file) from None


def parse_json(text: str) -> Any:
    """Return the content of JSON text with numbers that are finite, and integers of at most 128 bits."""
    return json.loads(text, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite_number)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer of {len(text)} digits is too large")
    return int(text)


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number
