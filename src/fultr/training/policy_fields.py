"""Checks of what a policy file says, shared by all that load one; nothing here needs torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import finite_number
from fultr.errors import InputError

Tensors = Mapping[str, NDArray[Any]]


def checked_names(given: Any, name: str) -> list[str]:
    """Return a list of different names."""
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise InputError("must be a list of names", column=name, value=given)
    if len(set(given)) < len(given):
        raise InputError("must be different names", column=name, value=given)
    return given


def checked_scaling(
    tensors: Tensors, prefix: str, features: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the scale of each feature."""
    mean, scale = (checked_row(tensors, f"{prefix}{name}", features) for name in ("mean", "scale"))
    if not (scale > 0).all():
        raise InputError("must be above 0", column=f"{prefix}scale")
    return mean, scale


def checked_row(tensors: Tensors, name: str, size: int) -> NDArray[np.float32]:
    """Return a tensor of one finite number for each feature."""
    row = tensors[name]
    if row.shape != (size,) or row.dtype != np.float32 or not np.isfinite(row).all():
        raise InputError(f"must be {size} finite numbers", column=name, value=row.shape)
    return row


def checked_widths(given: Any, features: int, parameters: int) -> tuple[int, ...]:
    """Return the widths of layers, before any is made: none may need more weights than the file holds."""
    if not isinstance(given, list) or not given or not all(type(width) is int for width in given):
        raise InputError("must be a list of integers", column="model.hidden", value=given)
    before = features
    for width in given:
        if width < 1 or before * width > parameters:
            raise InputError("does not fit the weights in the file", column="model.hidden", value=given)
        before = width
    return tuple(given)


def checked_hidden(given: Any, features: int) -> list[int]:
    """Return the columns of features that are hidden from the scorer."""
    if any(type(column) is not int or not 0 <= column < features for column in given):
        raise InputError("must be columns of the features", column="hidden_columns", value=given)
    return list(given)


def checked_temperature(given: Any) -> float:
    """Return what scores are divided by."""
    temperature = finite_number(given, "temperature", 0.0)
    if temperature == 0:
        raise InputError("must be above 0", column="temperature", value=temperature)
    return temperature


def checked_offsets(given: Any, groups: list[str]) -> dict[str, float]:
    """Return what is added to the scores of each group; empty if nothing is."""
    if not isinstance(given, dict) or list(given) not in ([], sorted(groups), groups):
        raise InputError("must be one number for each group, or none", column="offsets", value=given)
    return {
        name: finite_number(given[name], f"offsets.{name}", -math.inf) for name in groups if name in given
    }
