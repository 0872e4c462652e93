"""Writing files so that a reader sees the old content or the new, and never a part."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fultr.errors import InputError, WriteError

Made = TypeVar("Made")


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; it takes the name `path` only when the block succeeds.

    Whatever goes wrong, the old file stays as it was and the temporary one is removed.
    """
    target = writable_file(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=target) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes private files; a result is as readable as any other file of its user
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except OSError as error:
        raise WriteError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file, as a whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def make_folder(path: str | Path) -> Path:
    """Make a folder, and those above it, if they are not there."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", file=folder) from error
    return folder


def writable_file(path: str | Path) -> Path:
    """Return `path` if a file can have that name; to be asked before long work, and not only after it."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError("cannot be written: its folder does not exist", file=target)
    if target.is_dir():
        raise InputError("cannot be written: it is a folder", file=target)
    return target


def existing_file(path: str | Path) -> Path:
    """Return `path` if it is a file that can be read and is not empty; say what is wrong otherwise."""
    found = Path(path)
    try:
        if found.is_dir():
            raise InputError("is a folder, not a file", file=found)
        if not found.exists():
            raise InputError("no such file", file=found)
    except OSError as error:  # a name that is too long
        raise InputError(f"cannot be read: {error.strerror}", file=found) from error
    if not os.access(found, os.R_OK):
        raise InputError("cannot be read: permission denied", file=found)
    if found.stat().st_size == 0:
        raise InputError("is empty", file=found)
    return found


def read_json(path: str | Path, make: Callable[[Any], Made]) -> Made:
    """Return what `make` makes of the content of a JSON file; what is wrong is said with the file's name."""
    file = existing_file(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON file: {error}", file=file) from None
    try:
        return make(content)
    except InputError as error:
        raise error.located(file) from None
