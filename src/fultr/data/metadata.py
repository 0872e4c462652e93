"""What a file says of its content beside the rows, as JSON: the fields of one kind of file.

A file may come from anywhere: each field is there with its type and makes a value, or the file is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fultr.errors import InputError

Kind = type | tuple[type]
"""A type, or that of the values of a list."""

Fields = Mapping[str, tuple[Kind, Callable[[Any], Any]]]
"""The type that each field has in a file, and what makes a value of it."""


def plain_fields(content: object, fields: Fields) -> dict[str, Any]:
    """Return the fields of an object as plain values for a file."""
    values = {name: getattr(content, name) for name in fields}
    return {name: value.to_dict() if hasattr(value, "to_dict") else value for name, value in values.items()}


def read_fields(
    content: Mapping[str, Any], fields: Fields, file: str | Path | None, *, optional: bool = False
) -> dict[str, Any]:
    """Return the values of fields; those that are null are left out if all are optional."""
    values: dict[str, Any] = {}
    for name, (kind, make) in fields.items():
        if optional and content.get(name) is None:
            continue
        if not _is_a(kind, content.get(name)):
            raise damaged_metadata(name, file)
        try:
            values[name] = make(content[name])
        except (InputError, TypeError, ValueError) as error:
            raise damaged_metadata(f"{name}: {error}", file) from None
    return values


def _is_a(kind: Kind, value: object) -> bool:
    if isinstance(kind, type):
        return type(value) is kind
    return type(value) is list and all(type(one) is kind[0] for one in value)


def damaged_metadata(what: str, file: str | Path | None) -> InputError:
    """Return the error of metadata that fultr cannot have written."""
    return InputError(f"its fultr metadata is damaged ({what})", file=file)
