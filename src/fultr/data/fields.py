"""The columns of lists and logs that are given as arrays: each check names the row, column and value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import names_of, number_array, whole_numbers
from fultr.data.columns import IN_MEMORY, NO_PROPENSITY, finite_features
from fultr.data.grouping import first_repeat
from fultr.data.ids import (
    UNKNOWN_GROUP,
    Ids,
    as_column,
    as_ids,
    as_integers_or_text,
    check_size,
    codes_of,
    encode_groups,
)
from fultr.errors import InputError
from fultr.files import parse_json

DEEPEST_POSITION = 1_000_000
"""The last position that is accepted: what lies beyond is an id or a time in the wrong column."""


def column_names_of(features: object) -> tuple[str, ...]:
    """Return the names of the columns of a frame, if it has names for them and not just numbers."""
    columns = tuple(getattr(features, "columns", ()))
    return columns if all(isinstance(name, str) for name in columns) else ()


def numbered_names(width: int) -> tuple[str, ...]:
    """Return the names that features have by default: 1, 2, ..."""
    return tuple(str(column + 1) for column in range(width))


def check_dense(values: object, column: str = "features") -> None:
    """Refuse a sparse matrix, of which numpy would make an array without rows."""
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        problem = "features must be a dense array; give .toarray() of a sparse one, or fewer features"
        raise InputError(problem, column=column, value=type(values).__name__)


def as_features(
    values: ArrayLike, names: Sequence[str] = (), *, allows_missing: bool = False
) -> NDArray[np.float32]:
    """Return features as float32, rows x features, all finite; or else NaN, if they may be missing."""
    check_dense(values)
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "fiub":
            given = given.astype(np.float64, casting="unsafe" if given.dtype.kind != "c" else "safe")
    except (TypeError, ValueError):
        problem = "features must be numbers, the same number of them in each row"
        raise InputError(problem, column="features") from None
    if given.ndim != 2:
        raise InputError("features must be rows x features", column="features", value=given.shape)
    named = tuple(names) or numbered_names(given.shape[1])
    return finite_features(given, named, IN_MEMORY, allows_missing=allows_missing)


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
    if len(set(names)) != len(names) or not all(names):
        raise InputError("group names must differ, and none be empty", column="group_names", value=names)
    if values is None:
        return np.full(rows, UNKNOWN_GROUP, dtype=np.int32), names
    group = as_column(values)
    check_size(group, rows, "rows", "group")
    if group.dtype.kind not in "iu":
        codes, names = encode_groups(group, names or None)
        return codes, names_of(names, "group")
    if not names:
        names = tuple(str(code) for code in range(int(group.max(initial=UNKNOWN_GROUP)) + 1))
    problem = f"a group must be one of 0..{len(names) - 1}, or -1 where it is unknown"
    IN_MEMORY.check((group < UNKNOWN_GROUP) | (group >= len(names)), problem, "group", group)
    return group.astype(np.int32, copy=False), names


def as_relevance(values: ArrayLike, rows: int) -> NDArray[np.float32]:
    """Return a relevance for each row, finite and 0 or more."""
    with np.errstate(over="ignore"):  # what is too large is refused below
        relevance = _numbers(values, rows, "rows", "relevance").astype(np.float32, copy=False)
    wrong = ~(np.isfinite(relevance) & (relevance >= 0))
    IN_MEMORY.check(wrong, "must be finite and 0 or more", "relevance", relevance)
    return relevance


def as_ids_of(values: ArrayLike | None, column: str, size: int, units: str) -> Ids | None:
    """Return ids, one for each list, row or impression; comments may be empty."""
    if values is None:
        return None
    ids = (as_integers_or_text if column == "comment" else as_ids)(values, column)
    check_size(ids, size, units, column)
    return ids


def as_lists(values: ArrayLike, lists: int) -> NDArray[np.int64]:
    """Return the list of each impression, one of so many."""
    given = whole_numbers(values, "lists")
    outside = np.flatnonzero((given < 0) | (given >= lists))
    if given.ndim != 1 or outside.size:
        problem = f"a list must be one of 0..{lists - 1} for each impression"
        value = given[outside[0]] if outside.size else given.shape
        raise InputError(problem, column="lists", value=value)
    return given


def as_impression_ids(values: ArrayLike | None, size: int) -> Ids | None:
    """Return ids of impressions, no two the same."""
    ids = as_ids_of(values, "impression_id", size, "impressions")
    if ids is None or (ids.dtype.kind == "i" and bool(np.all(ids[1:] > ids[:-1]))):
        return ids
    repeat = first_repeat(codes_of(ids))
    if repeat is not None:
        first, second = repeat
        raise IN_MEMORY.error(f"impression {first + 1} has the same id", second, "impression_id", ids[second])
    return ids


def as_times(values: ArrayLike, size: int) -> NDArray[Any]:
    """Return integers, or dates in microseconds."""
    times = np.asarray(values)
    check_size(times, size, "impressions", "timestamp")
    if times.dtype.kind != "M":
        if size and times.dtype.kind not in "iu":
            raise InputError("must be integers or dates (datetime64)", column="timestamp", value=values)
        return whole_numbers(times, "timestamp")
    held = times.astype("datetime64[us]")
    # what microseconds cannot count comes back as another second
    wrong = np.isnat(held) | (held.astype("datetime64[s]") != times.astype("datetime64[s]"))
    problem = "a time is missing, or beyond what microseconds can count"
    IN_MEMORY.check(wrong, problem, "timestamp", times, str)
    return held


def as_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Return a copy; refuse what would not come back from a file as it was."""
    with suppress(TypeError, ValueError, RecursionError):
        text = json.dumps(origin, allow_nan=False, ensure_ascii=False)
        text.encode()
        copy = parse_json(text)
        if isinstance(copy, dict) and copy == origin:
            return copy
    problem = "must be plain values (text, finite numbers, lists and mappings of them), with text as keys"
    raise InputError(problem, column="origin", value=origin)


def as_positions(values: ArrayLike, entries: int, column: str = "position") -> NDArray[np.int32]:
    """Return positions from 1 on, 0 for an item that was not shown."""
    given = _numbers(values, entries, "entries", column)
    problem = f"must be an integer from 1 to {DEEPEST_POSITION}, or 0 for an item that was not shown"
    if entries and given.dtype.kind not in "iu":
        raise InputError(problem, column=column, value=given.dtype)
    IN_MEMORY.check((given < 0) | (given > DEEPEST_POSITION), problem, column, given)
    return given.astype(np.int32, copy=False)


def as_clicks(values: ArrayLike, entries: int, column: str = "click") -> NDArray[np.bool_]:
    """Return whether each item was clicked."""
    given = _numbers(values, entries, "entries", column)
    IN_MEMORY.check((given != 0) & (given != 1), "a click is 0 or 1", column, given)
    return given.astype(np.bool_, copy=False)


def as_propensities(
    values: ArrayLike, shown: NDArray[np.bool_], column: str = "propensity"
) -> NDArray[np.float64]:
    """Return probabilities above 0 and at most 1 where an item was shown, and NaN elsewhere."""
    given = _numbers(values, shown.size, "entries", column).astype(np.float64, copy=False)
    IN_MEMORY.check(shown & ~((given > 0) & (given <= 1)), NO_PROPENSITY, column, given)
    return np.where(shown, given, np.nan)


def _numbers(values: ArrayLike, size: int, units: str, column: str) -> NDArray[Any]:
    given = number_array(values, column)
    check_size(given, size, units, column)
    return given
