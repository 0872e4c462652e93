"""Checks of what callers pass; each names the argument that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.errors import InputError

LARGEST_WHOLE = (1 << 63) - 1
"""What an int64 can hold."""

Progress = Callable[[int, int], None]
"""Called now and then during long work with what is done and with all there is to do."""


def whole_number(value: object, column: str, least: int = 0) -> int:
    """Return `value` if it is an integer from `least` on."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"must be an integer, {least} or more", column=column, value=value)
    return int(value)


def one_of(value: object, column: str, *choices: str) -> None:
    """Raise if a value is none of the choices."""
    if value not in choices:
        others = ", ".join(f"'{choice}'" for choice in choices[:-1])
        raise InputError(f"must be {others} or '{choices[-1]}'", column=column, value=value)


def finite_number(value: object, column: str, least: float = 0.0) -> float:
    """Return `value` if it is a finite number from `least` on."""
    return checked_number(
        value, column, f"must be a number, {least:g} or more", lambda given: least <= given < np.inf
    )


def checked_number(value: object, column: str, rule: str, holds: Callable[[float], bool]) -> float:
    """Return `value` if it is a number for which something holds; `rule` says what, and is the error."""
    if isinstance(value, bool) or not isinstance(value, Real) or not holds(float(value)):
        raise InputError(rule, column=column, value=value)
    return float(value)


def whole_numbers(values: ArrayLike, column: str) -> NDArray[np.int64]:
    """Return an array of integers; fractions are not cut off, and text is not read."""
    array = _array(values, column, "must be integers")
    if array.size and array.dtype.kind not in "iu":
        raise InputError("must be integers", column=column, value=values)
    if array.dtype == np.uint64 and array.size and int(array.max()) > LARGEST_WHOLE:
        raise InputError("must be integers of at most 63 bits", column=column, value=array.max())
    return array.astype(np.int64, copy=False)


def number_array(values: ArrayLike, column: str) -> NDArray[Any]:
    """Return an array of numbers of whatever type; None counts as NaN, and text is not read."""
    array = _array(values, column, "must be numbers")
    if array.dtype.kind in "iufb":
        return array
    if array.dtype.kind == "O" and not any(isinstance(value, (str, bytes)) for value in array.flat):
        with suppress(TypeError, ValueError):
            return array.astype(np.float64)
    raise InputError("must be numbers", column=column, value=values)


def names_of(values: Iterable[object], column: str) -> tuple[str, ...]:
    """Return several names as text; a single one is not taken for a sequence of letters."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InputError("must be a list of names", column=column, value=values)
    names = tuple(map(str, values))
    for name in names:
        if not is_encodable(name):
            raise InputError("must be text in UTF-8", column=column, value=name)
    return names


def is_encodable(text: str) -> bool:
    """Say whether text can be written down; JSON and Python also know halves of characters, which cannot."""
    return text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text)


def random_generator(seed: int | np.random.Generator) -> np.random.Generator:
    """Return the generator given, or that of a seed."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(whole_number(seed, "seed"))


def fresh_generator(seed: int | np.random.Generator | None) -> np.random.Generator:
    """Return the generator given, or that of a seed; without one, a generator that nobody can repeat."""
    return np.random.default_rng() if seed is None else random_generator(seed)


def _array(values: ArrayLike, column: str, problem: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError):  # lists of different lengths, and what is no array at all
        raise InputError(problem, column=column, value=values) from None
