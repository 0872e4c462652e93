"""What the recipes have in common: names of parts, names that were probably meant, random streams."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import numpy as np

from fultr.arguments import whole_number

PARTS = ("train", "valid", "test")
"""The parts of a split, in the order of `DataSplits`."""


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
