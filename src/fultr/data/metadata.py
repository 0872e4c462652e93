"""What a file says of its content beside the rows, as JSON.

A file may come from anywhere: each field is there with its type and makes a value, or the file is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fultr.click_model import ClickNoise, PositionBias
from fultr.data.counts import CountedFile
from fultr.data.tally import ImpressionFacts
from fultr.errors import InputError

Kind = type | tuple[type]
"""A type, or that of the values of a list."""

FIELDS: Mapping[str, tuple[Kind, Callable[[Any], Any]]] = {
    "feature_names": ((str,), tuple),
    "group_names": ((str,), tuple),
    "group_columns": ((int,), tuple),
    "source": (str, str),
    "position_bias": (dict, PositionBias.from_dict),
    "noise": (dict, ClickNoise.from_dict),
    "empties_dropped": (bool, bool),
    "origin": (dict, dict),
    "facts": (dict, ImpressionFacts.from_dict),
    "context_name": (str, str),
    "context_values": ((str,), tuple),
    "files": ((dict,), lambda files: tuple(map(_counted_file, files))),
    "invented": ((str,), tuple),
    "text_ids": ((str,), tuple),
    "items": (dict, dict),
    "category_names": (dict, lambda names: {name: _texts(texts) for name, texts in names.items()}),
    "allows_missing": (bool, bool),
}
"""The type that each field has in a file, whatever its kind, and what makes a value of it."""

ADDED: Mapping[str, Any] = {"category_names": {}, "allows_missing": False}
"""Fields that files of earlier versions do not have, and what they would say."""


def _texts(content: object) -> tuple[str, ...]:
    if not _is_a((str,), content):
        raise TypeError("names of categories are a list of text")
    return tuple(content)  # type: ignore[arg-type]


def _counted_file(content: Mapping[str, Any]) -> CountedFile:
    file = CountedFile(**content)
    if tuple(map(type, file)) != (str, int, str):
        raise TypeError("a file has a name, a number of rows and a digest")
    return file


def plain_fields(content: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of an object as plain values for a file."""
    values = {name: getattr(content, name) for name in names}
    return {name: value.to_dict() if hasattr(value, "to_dict") else value for name, value in values.items()}


def read_fields(
    content: Mapping[str, Any], names: Iterable[str], file: str | Path | None, *, optional: bool = False
) -> dict[str, Any]:
    """Return the values of fields; those that are null are left out if all are optional."""
    values: dict[str, Any] = {}
    for name in names:
        kind, make = FIELDS[name]
        value = content.get(name, ADDED.get(name))
        if optional and value is None:
            continue
        if not _is_a(kind, value):
            raise damaged_metadata(name, file)
        try:
            values[name] = make(value)
        except (InputError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise damaged_metadata(f"{name}: {error}", file) from None
    return values


def _is_a(kind: Kind, value: object) -> bool:
    if isinstance(kind, type):
        return type(value) is kind
    return type(value) is list and all(type(element) is kind[0] for element in value)


def damaged_metadata(field: str, file: str | Path | None) -> InputError:
    """Return the error of metadata that fultr cannot have written."""
    return InputError(f"its fultr metadata is damaged ({field})", file=file)
