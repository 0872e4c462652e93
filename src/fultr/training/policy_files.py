"""The file of a saved policy: its tensors, a description of them in JSON, and a checksum over both.

Any safetensors tool can open it. Its `__metadata__` has a single key, `fultr`, since the library writes
several in random order and the same policy shall give the same bytes. Under that key stands the JSON text

    {"sha256": ..., "content": {...}, "format": "fultr policy", "format_version": 1, "fultr_version": ...}

`sha256` is the digest of the whole file, with zeros in place of its own 64 digits. It comes first, so that
it has the same place in every file and a file is checked before any of it is parsed. Later versions of the
format are to keep it there: that is how this one can tell a newer file from a damaged one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fultr.errors import FultrError, InputError
from fultr.files import atomic_write, existing_file

FORMAT = "fultr policy"
FORMAT_VERSION = 1
LARGEST_HEADER = 16 << 20
LARGEST_FILE = 4 << 30
DEEPEST_NESTING = 64
LARGEST_WHOLE_BITS = 1024
"""More than any seed has, and few enough for Python to write and read whatever limits it has been given."""

_LENGTH_BYTES = 8
_METADATA, _KEY = "__metadata__", "fultr"
_START = b'{"__metadata__":{"fultr":"{\\"sha256\\":\\"'
_DIGEST = slice(_LENGTH_BYTES + len(_START), _LENGTH_BYTES + len(_START) + 64)
_NO_DIGEST = "0" * 64
_TYPES = (np.float32, np.float64, np.int64)
_READ_AT_ONCE = 1 << 20
_MALFORMED = (ArithmeticError, LookupError, RecursionError, SafetensorError, TypeError, ValueError)
"""What is raised for a malformed file by json, safetensors and numpy: types that are unknown, deep nesting,
sizes that overflow or do not fit."""


@dataclass(frozen=True, eq=False)
class PolicyFile:
    """What a policy file holds: tensors by name, their description, the fultr that wrote it, its digest."""

    tensors: dict[str, NDArray[Any]]
    content: dict[str, Any]
    fultr_version: str
    sha256: str


def write_policy_file(
    path: str | Path, tensors: Mapping[str, NDArray[Any]], content: Mapping[str, Any]
) -> Path:
    """Write tensors and their description to one file, all of it or nothing, and return its path.

    The same tensors and content give the same bytes, in whatever order they come.

    Parameters
    ----------
    path
        The file; an old one is replaced.
    tensors
        Arrays of float32, float64 or int64, of any shape.
    content
        Plain JSON: text as keys; text, finite numbers, True, False, None, lists and mappings as values. It
        comes back as it was, floats to the last bit.
    """
    data = _file_bytes(Path(path), _plain_tensors(tensors), _plain_content(content))
    digest = _digest(data[: _DIGEST.stop], [memoryview(data)[_DIGEST.stop :]])
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(data[: _DIGEST.start] + digest)
        file.write(memoryview(data)[_DIGEST.stop :])
    return Path(path)


def read_policy_file(path: str | Path) -> PolicyFile:
    """Read a file of `write_policy_file`; refuse one that is damaged, of something else, or of a newer fultr.

    Nothing in the file is ever run, and nothing is parsed before the checksum of all of it is found right.
    """
    try:
        return _policy_of(_intact_bytes(existing_file(path)), path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except MemoryError:
        raise InputError("does not fit into memory", file=path) from None


def _file_bytes(path: Path, tensors: dict[str, NDArray[Any]], content: dict[str, Any]) -> bytes:
    """Return the bytes of the file with zeros for its digest."""
    description = {
        "content": content,
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "fultr_version": _fultr_version(),
    }
    options: dict[str, Any] = {"sort_keys": True, "ensure_ascii": False, "allow_nan": False}
    rest = json.dumps(description, separators=(",", ":"), **options)
    text = f'{{"sha256":"{_NO_DIGEST}",{rest[1:]}'
    try:
        data = save(tensors, {_KEY: text})
        header = int.from_bytes(data[:_LENGTH_BYTES], "little")
        too_large = header > LARGEST_HEADER or len(data) > LARGEST_FILE
    except SafetensorError:  # its own limit of the header is beyond ours
        too_large = True
    if too_large:
        limits = f"{LARGEST_HEADER >> 20} MB of names and description, and {LARGEST_FILE >> 30} GB in all"
        raise InputError(f"is too large for a policy, which may have {limits}", file=path)
    if data[_LENGTH_BYTES : _DIGEST.stop] != _START + _NO_DIGEST.encode():
        raise FultrError("this safetensors lays out its files anew; install a version fultr is tested with")
    return data


def _plain_tensors(tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    plain = {}
    for name, values in tensors.items():
        if not isinstance(name, str) or name == _METADATA or not _is_text(name):
            raise InputError("is no name for a tensor", column="tensors", value=name)
        if not isinstance(values, np.ndarray) or values.dtype.newbyteorder("=") not in _TYPES:
            given = getattr(values, "dtype", type(values).__name__)
            problem = f"tensor '{name}' must be an array of float32, float64 or int64"
            raise InputError(problem, column="tensors", value=str(given))
        # the library minds the order of bytes, but takes the memory as it lies, whatever the strides
        plain[name] = np.asarray(values, order="C")
    return plain


def _plain_content(content: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise InputError("must be a mapping", column="content", value=type(content).__name__)
    plain = dict(content)
    _check_plain(plain)
    return plain


def _check_plain(value: object, *path: object) -> None:
    """Refuse what JSON cannot hold, or what would come back as something else (a tuple as a list, say)."""
    problem, shown = "", value
    if len(path) > DEEPEST_NESTING:
        problem, shown = f"is nested more than {DEEPEST_NESTING} deep", None
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or not _is_text(key):
                problem, shown = "has a key that is no text", key
                break
            _check_plain(inner, *path, key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_plain(inner, *path, index)
    elif isinstance(value, str):
        problem = "" if _is_text(value) else "is no text that can be written as UTF-8"
    elif isinstance(value, int):
        fits = value.bit_length() <= LARGEST_WHOLE_BITS
        problem, shown = "" if fits else f"has more than {LARGEST_WHOLE_BITS} bits", None
    elif isinstance(value, float):
        problem = "" if math.isfinite(value) else "must be finite"
    elif value is not None:
        problem = "must be text, a number, true, false, null, a list or a mapping, as JSON has them"
        shown = type(value).__name__
    if problem:
        raise InputError(problem, column=".".join(map(str, ("content", *path))), value=shown)


def _is_text(text: str) -> bool:
    """Say whether a string is text; half of a surrogate pair is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fultr_version() -> str:
    try:
        return importlib.metadata.version("fultr")
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return "unknown"


def _digest(start: bytes, rest: Iterable[bytes | memoryview]) -> bytes:
    """Return the digest of a file, given what it starts with, up to its digest, and the rest."""
    sha256 = hashlib.sha256(start[: _DIGEST.start] + _NO_DIGEST.encode())
    for further in rest:
        sha256.update(further)
    return sha256.hexdigest().encode()


def _intact_bytes(path: Path) -> bytes:
    """Return the bytes of a policy file whose checksum is right; others cost little time and memory."""
    damaged = InputError("is damaged or incomplete: its checksum is wrong; copy it again", file=path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE:
            problem = f"is larger than a policy can be, which is {LARGEST_FILE >> 30} GB"
            raise InputError(problem, file=path, value=size)
        start = file.read(_DIGEST.stop)
        header = int.from_bytes(start[:_LENGTH_BYTES], "little")
        _check_start(start, header, size, path)
        if header > LARGEST_HEADER or _LENGTH_BYTES + header > size:
            raise damaged
        if start[_DIGEST] != _digest(start, iter(lambda: file.read(_READ_AT_ONCE), b"")):
            raise damaged
        file.seek(0)
        data = file.read(size)
    # once more, for the very bytes that are used: the file may have been changed since
    if data[_DIGEST] != _digest(data[: _DIGEST.stop], [memoryview(data)[_DIGEST.stop :]]):
        raise damaged
    return data


def _check_start(start: bytes, header: int, size: int, path: Path) -> None:
    if start[_LENGTH_BYTES : _DIGEST.start] == _START:
        return
    if start[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{" and _LENGTH_BYTES + header <= size:
        raise InputError("is a safetensors file, but not a policy that fultr saved", file=path)
    raise InputError("is no safetensors file, and so not a policy that fultr saved", file=path)


def _policy_of(data: bytes, path: str | Path) -> PolicyFile:
    """Parse a file that is intact; it may still have been made by someone else, with any intention."""
    problem = "has the right checksum, but is no well-formed policy; save it again with fultr"
    try:
        description = _description(data)
    except _MALFORMED as error:
        raise InputError(problem, file=path) from error
    if description.get("format") != FORMAT:
        raise InputError("was saved by fultr, but is not a policy", file=path)
    version = description.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        newer = f"is of a format newer than {FORMAT_VERSION}, the last known here; install a newer fultr"
        raise InputError(newer, file=path, value=version)
    try:
        _check_fields(description)
        return PolicyFile(
            _tensors(data), description["content"], description["fultr_version"], data[_DIGEST].decode()
        )
    except _MALFORMED as error:
        raise InputError(problem, file=path) from error


def _description(data: bytes) -> dict[str, Any]:
    """Parse the description; that it is a mapping, and where, is known from how the file starts."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    header = _parsed(data[_LENGTH_BYTES : _LENGTH_BYTES + length].decode())
    return _parsed(header[_METADATA][_KEY])


def _parsed(text: str) -> dict[str, Any]:
    """Parse a mapping; a name that stands twice is refused, since readers differ in which they take."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        named = dict(pairs)
        if len(named) < len(pairs):
            raise ValueError("a name stands twice")
        return named

    parsed: dict[str, Any] = json.loads(text, object_pairs_hook=unique)
    return parsed


def _check_fields(description: dict[str, Any]) -> None:
    if description.keys() != {"sha256", "content", "format", "format_version", "fultr_version"}:
        raise KeyError("the description has other fields")
    content, number, writer = (description[key] for key in ("content", "format_version", "fultr_version"))
    if not isinstance(content, dict) or type(number) is not int or not isinstance(writer, str):
        raise TypeError("a field of the description has another type")
    if number != FORMAT_VERSION:
        raise ValueError("there never was that version of the format")
    _check_plain(content)
    _check_plain(writer)


def _tensors(data: bytes) -> dict[str, NDArray[Any]]:
    tensors = load(data)
    for values in tensors.values():
        if values.dtype not in _TYPES:
            raise TypeError("a tensor has another type")
    return {name: tensors[name] for name in sorted(tensors)}
