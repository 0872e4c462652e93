"""What the recipes have in common: names of parts, checks of arguments, random streams."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Integral, Real

import numpy as np

from fultr.errors import InputError

PARTS = ("train", "valid", "test")
"""The parts of a split, in the order of `DataSplits`."""


def whole_number(value: object, column: str, least: int = 0) -> int:
    """Return `value` if it is a whole number from `least` on; name the argument if it is not."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"must be a whole number, {least} or more", column=column, value=value)
    return int(value)


def finite_number(value: object, column: str, least: float = 0.0) -> float:
    """Return `value` if it is a finite number from `least` on; name the argument if it is not."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) < np.inf:
        raise InputError(f"must be a number, {least:g} or more", column=column, value=value)
    return float(value)


def generator_of(seed: object, part: int) -> np.random.Generator:
    """Return the generator of one part of a recipe.

    Each part draws from its own stream, so that what one part holds changes nothing in another.
    """
    return np.random.default_rng([whole_number(seed, "seed"), part])


def known_names(value: str, names: Iterable[str]) -> str:
    """Return the end of an error message: the name probably meant, if any, and all there are."""
    choices = list(names)
    close = difflib.get_close_matches(value, choices, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}There are: {', '.join(choices)}"
