"""The columns of a click log, checked as they are given."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import number_array, whole_numbers
from fultr.data.ids import Ids, as_ids, codes_of, first_repeat
from fultr.errors import InputError

DEEPEST_POSITION = 1_000_000


def as_lists(values: ArrayLike, lists: int) -> NDArray[np.int64]:
    """Return the list of each impression, one of so many."""
    given = whole_numbers(values, "lists")
    outside = np.flatnonzero((given < 0) | (given >= lists))
    if given.ndim != 1 or outside.size:
        value = given[outside[0]] if outside.size else given.shape
        raise InputError(
            f"a list must be one of 0..{lists - 1} for each impression", column="lists", value=value
        )
    return given


def as_impression_ids(values: ArrayLike, size: int) -> Ids:
    """Return ids of impressions, no two the same."""
    ids = as_ids(values, "impression_id")
    _one_for_each_impression(ids, size, "impression_id")
    rising = ids.dtype.kind == "i" and bool(np.all(ids[1:] > ids[:-1]))
    if not rising and np.unique(ids).size != size:
        repeat = first_repeat(np.zeros(size, dtype=np.int8), codes_of(ids))
        first, second = repeat or (0, 0)
        problem = f"impression {first + 1} has the same id"
        raise InputError(problem, row=second + 1, column="impression_id", value=ids[second])
    return ids


def as_times(values: ArrayLike, size: int) -> NDArray[Any]:
    """Return whole numbers, or dates in microseconds."""
    times = np.asarray(values)
    _one_for_each_impression(times, size, "timestamp")
    if times.dtype.kind != "M":
        if size and times.dtype.kind not in "iu":
            raise InputError("must be whole numbers or dates (datetime64)", column="timestamp", value=values)
        return whole_numbers(times, "timestamp")
    held = times.astype("datetime64[us]")
    # what microseconds cannot count comes back as another second
    wrong = np.isnat(held) | (held.astype("datetime64[s]") != times.astype("datetime64[s]"))
    if wrong.any():
        index = int(np.argmax(wrong))
        problem = "a time is missing, or beyond what microseconds can count"
        raise InputError(problem, row=index + 1, column="timestamp", value=str(times[index]))
    return held


def _one_for_each_impression(values: NDArray[Any], size: int, column: str) -> None:
    if values.shape != (size,):
        problem = f"must have one value for each of {size} impressions"
        raise InputError(problem, column=column, value=values.shape)


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
    wrong = np.flatnonzero((given < 0) | (given > DEEPEST_POSITION))
    if wrong.size:
        problem = f"a position is 1 to {DEEPEST_POSITION}, or 0 for an item that was not shown"
        raise InputError(problem, row=wrong[0] + 1, column=column, value=given[wrong[0]])
    return given.astype(np.int32, copy=False)


def as_clicks(values: ArrayLike, entries: int, column: str = "click") -> NDArray[np.bool_]:
    """Return whether each item was clicked."""
    given = number_array(values, column)
    if given.shape != (entries,):
        problem = f"must be 0 or 1 for each of {entries} entries"
        raise InputError(problem, column=column, value=(given.dtype, given.shape))
    wrong = np.flatnonzero((given != 0) & (given != 1))
    if wrong.size:
        raise InputError("a click is 0 or 1", row=wrong[0] + 1, column=column, value=given[wrong[0]])
    return given.astype(np.bool_, copy=False)


def as_propensities(
    values: ArrayLike, shown: NDArray[np.bool_], column: str = "propensity"
) -> NDArray[np.float64]:
    """Return probabilities above 0 and at most 1 where an item was shown, and NaN elsewhere."""
    given = number_array(values, column).astype(np.float64, copy=False)
    if given.shape != shown.shape:
        problem = f"must be a number for each of {shown.size} entries"
        raise InputError(problem, column=column, value=given.shape)
    wrong = np.flatnonzero(shown & ~((given > 0) & (given <= 1)))
    if wrong.size:
        problem = "a propensity must lie above 0 and be at most 1"
        raise InputError(problem, row=wrong[0] + 1, column=column, value=given[wrong[0]])
    return np.where(shown, given, np.nan)
