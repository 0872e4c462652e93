"""The checks on the columns of a dataset: each names the row, column and value that is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import number_array, whole_numbers
from fultr.data.columns import IN_MEMORY, finite_features
from fultr.data.ids import UNKNOWN_GROUP, Ids, as_column, as_ids, check_size, encode_groups
from fultr.errors import InputError


def column_names_of(features: object) -> tuple[str, ...]:
    """Return the names of the columns of a frame, if it has names for them and not just numbers."""
    columns = tuple(getattr(features, "columns", ()))
    return columns if all(isinstance(name, str) for name in columns) else ()


def numbered_names(width: int) -> tuple[str, ...]:
    """Return the names that features have by default: 1, 2, ..."""
    return tuple(str(column + 1) for column in range(width))


def as_features(values: ArrayLike, names: Sequence[str] = ()) -> NDArray[np.float32]:
    """Return features as float32, rows x features, all finite."""
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "fiub":
            given = given.astype(np.float64)
    except (TypeError, ValueError):
        problem = "features must be numbers, the same number of them in each row"
        raise InputError(problem, column="features") from None
    if given.ndim != 2:
        raise InputError("features must be rows x features", column="features", value=given.shape)
    return finite_features(given, tuple(names) or numbered_names(given.shape[1]), IN_MEMORY)


def as_offsets(values: ArrayLike, rows: int) -> NDArray[np.int64]:
    """Return where each list starts; none may be empty."""
    offsets = whole_numbers(values, "offsets")
    if offsets.ndim != 1 or offsets.size == 0 or offsets[0] != 0 or offsets[-1] != rows:
        raise InputError(f"offsets must run from 0 to the number of rows, {rows}", column="offsets")
    empty = np.flatnonzero(np.diff(offsets) < 1)
    if empty.size:
        raise InputError(f"list {empty[0] + 1} has no items", column="offsets")
    return offsets


def as_groups(
    values: ArrayLike | Sequence[object] | None, names: tuple[str, ...], rows: int
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the group of each row, -1 where it is unknown, and the names of the groups."""
    if len(set(names)) != len(names):
        raise InputError("group names must differ", column="group_names", value=names)
    if values is None:
        return np.full(rows, UNKNOWN_GROUP, dtype=np.int32), names
    group = as_column(values)
    check_size(group, rows, "rows", "group")
    if group.dtype.kind not in "iu":
        return encode_groups(group, names or None)
    if not names:
        names = tuple(str(code) for code in range(int(group.max(initial=UNKNOWN_GROUP)) + 1))
    problem = f"a group must be one of 0..{len(names) - 1}, or -1 where it is unknown"
    IN_MEMORY.check((group < UNKNOWN_GROUP) | (group >= len(names)), problem, "group", group)
    return group.astype(np.int32, copy=False), names


def as_relevance(values: ArrayLike, rows: int) -> NDArray[np.float32]:
    """Return a relevance for each row, finite and 0 or more."""
    with np.errstate(over="ignore"):  # what is too large is refused below
        relevance = number_array(values, "relevance").astype(np.float32, copy=False)
    check_size(relevance, rows, "rows", "relevance")
    wrong = ~(np.isfinite(relevance) & (relevance >= 0))
    IN_MEMORY.check(wrong, "must be finite and 0 or more", "relevance", relevance)
    return relevance


def as_ids_of(values: ArrayLike | None, column: str, size: int, unit: str) -> Ids | None:
    """Return ids, one for each list or row."""
    if values is None:
        return None
    ids = as_ids(values, column)
    if ids.size != size:
        raise InputError(f"must have one value for each {unit}, {size}", column=column, value=ids.size)
    return ids
