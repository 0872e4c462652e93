"""The columns of a click log, checked as they are given."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import number_array, whole_numbers
from fultr.data.columns import IN_MEMORY, NO_PROPENSITY
from fultr.data.grouping import first_repeat
from fultr.data.ids import Ids, as_ids, check_size, codes_of
from fultr.errors import InputError

DEEPEST_POSITION = 1_000_000


def as_lists(values: ArrayLike, lists: int) -> NDArray[np.int64]:
    """Return the list of each impression, one of so many."""
    given = whole_numbers(values, "lists")
    outside = np.flatnonzero((given < 0) | (given >= lists))
    if given.ndim != 1 or outside.size:
        problem = f"a list must be one of 0..{lists - 1} for each impression"
        value = given[outside[0]] if outside.size else given.shape
        raise InputError(problem, column="lists", value=value)
    return given


def as_impression_ids(values: ArrayLike, size: int) -> Ids:
    """Return ids of impressions, no two the same."""
    ids = as_ids(values, "impression_id")
    check_size(ids, size, "impressions", "impression_id")
    ascending = ids.dtype.kind == "i" and bool(np.all(ids[1:] > ids[:-1]))
    repeat = None if ascending else first_repeat(codes_of(ids))
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
            raise InputError("must be whole numbers or dates (datetime64)", column="timestamp", value=values)
        return whole_numbers(times, "timestamp")
    held = times.astype("datetime64[us]")
    # what microseconds cannot count comes back as another second
    wrong = np.isnat(held) | (held.astype("datetime64[s]") != times.astype("datetime64[s]"))
    problem = "a time is missing, or beyond what microseconds can count"
    IN_MEMORY.check(wrong, problem, "timestamp", times, str)
    return held


def as_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Return a copy; refuse what would not come back from a file as it was."""
    with suppress(TypeError, ValueError):
        copy = json.loads(json.dumps(origin, allow_nan=False))
        if isinstance(copy, dict) and copy == origin:
            return copy
    problem = "must be plain values (text, finite numbers, lists and mappings of them), with text as keys"
    raise InputError(problem, column="origin", value=origin)


def as_positions(values: ArrayLike, entries: int, column: str = "position") -> NDArray[np.int32]:
    """Return positions from 1 on, 0 for an item that was not shown."""
    given = number_array(values, column)
    if given.shape != (entries,) or (entries and given.dtype.kind not in "iu"):
        problem = f"must be a whole number for each of {entries} entries, 0 where it was not shown"
        raise InputError(problem, column=column, value=(given.dtype, given.shape))
    problem = f"a position is 1 to {DEEPEST_POSITION}, or 0 for an item that was not shown"
    IN_MEMORY.check((given < 0) | (given > DEEPEST_POSITION), problem, column, given)
    return given.astype(np.int32, copy=False)


def as_clicks(values: ArrayLike, entries: int, column: str = "click") -> NDArray[np.bool_]:
    """Return whether each item was clicked."""
    given = number_array(values, column)
    if given.shape != (entries,):
        problem = f"must be 0 or 1 for each of {entries} entries"
        raise InputError(problem, column=column, value=(given.dtype, given.shape))
    IN_MEMORY.check((given != 0) & (given != 1), "a click is 0 or 1", column, given)
    return given.astype(np.bool_, copy=False)


def as_propensities(
    values: ArrayLike, shown: NDArray[np.bool_], column: str = "propensity"
) -> NDArray[np.float64]:
    """Return probabilities above 0 and at most 1 where an item was shown, and NaN elsewhere."""
    given = number_array(values, column).astype(np.float64, copy=False)
    if given.shape != shown.shape:
        problem = f"must be a number for each of {shown.size} entries"
        raise InputError(problem, column=column, value=given.shape)
    IN_MEMORY.check(shown & ~((given > 0) & (given <= 1)), NO_PROPENSITY, column, given)
    return np.where(shown, given, np.nan)
