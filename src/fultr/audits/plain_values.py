"""Results as plain values for JSON, and back: a dataclass becomes a dictionary of its fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType
from typing import Any, Self, get_args, get_origin, get_type_hints


class PlainValues:
    """A dataclass that can be written as plain values and made of them again.

    Numbers that JSON does not know, NaN and infinity, become None; None becomes NaN where a number must be.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make the same from what `to_dict` gave; a field with a default may be missing."""
        hints = _hints(cls)  # type: ignore[arg-type]
        given = {
            one.name: made_of(hints[one.name], content[one.name])
            for one in fields(cls)  # type: ignore[arg-type]
            if one.name in content or one.default is MISSING
        }
        return cls(**given)


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, PlainValues):
        return value.to_dict()
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def made_of(kind: Any, content: Any) -> Any:
    """Return a value of a type from what `plain` gave; anything else is a TypeError or a ValueError."""
    choices = get_args(kind)
    if NoneType in choices:
        (kind,) = (one for one in choices if one is not NoneType)
        return None if content is None else made_of(kind, content)
    if get_origin(kind) is tuple:
        if not isinstance(content, list):
            raise TypeError(f"a list must be here, not {type(content).__name__}")
        kinds = [choices[0]] * len(content) if choices[-1] is Ellipsis else choices
        return tuple(made_of(one, element) for one, element in zip(kinds, content, strict=True))
    if isinstance(kind, type) and issubclass(kind, PlainValues):
        return kind.from_dict(content)
    if kind is float:
        return math.nan if content is None else float(content)
    if not isinstance(content, kind) or (kind is int and isinstance(content, bool)):
        raise TypeError(f"{kind.__name__} must be here, not {type(content).__name__}")
    return content


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
