"""Ids and group labels: whole numbers or text, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.errors import InputError

Ids = NDArray[Any]
"""Ids of one kind: int64, or text of any length (numpy's StringDType)."""

TEXT = np.dtypes.StringDType()
UNKNOWN_GROUP = -1


def as_column(values: ArrayLike | Sequence[object]) -> NDArray[Any]:
    """Return values as an array that holds what was given.

    numpy would turn a list of text with a number or a missing value in it into text all through.
    """
    column = np.asarray(values)
    return column if column.dtype.kind in "iufbT" else np.asarray(values, dtype=object)


def as_ids(values: ArrayLike, column: str) -> Ids:
    """Return ids as int64 or text; refuse missing values and any other type, naming the row."""
    array = as_column(values)
    if array.ndim != 1:
        raise InputError("ids must be one value for each row", column=column, value=array.shape)
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "T":
        return array
    whole = [isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in array]
    if all(whole):
        return array.astype(np.int64)
    kind = str if not any(whole) else int
    for row, value in enumerate(array, start=1):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(
                "ids must be all whole numbers or all text, none missing", row=row, column=column, value=value
            )
    return array.astype(TEXT)


def codes_of(ids: Ids) -> NDArray[np.int64]:
    """Give each id a number from 0 on, the same for equal ids."""
    return np.unique(ids, return_inverse=True)[1].astype(np.int64, copy=False)


def order_of_appearance(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Renumber codes in the order they first appear; also return where each first appears."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return rank[inverse], first[order]


def encode_groups(
    labels: Sequence[object] | NDArray[Any],
    names: Sequence[str] | None = None,
    column: str = "group",
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Turn group labels into small numbers and their names.

    A missing label (None or NaN) is an unknown group, -1. With `names` given, any other label is an
    error; without, the names are the labels found, sorted.
    """
    texts = [None if label is None or label != label else str(label) for label in labels]
    known = tuple(sorted({text for text in texts if text is not None})) if names is None else tuple(names)
    number_or_unknown: dict[str | None, int] = {name: code for code, name in enumerate(known)}
    number_or_unknown[None] = UNKNOWN_GROUP
    try:
        codes = [number_or_unknown[text] for text in texts]
    except KeyError:
        row = next(row for row, text in enumerate(texts) if text not in number_or_unknown)
        expected = ", ".join(known)
        problem = f"unknown group; expected one of: {expected}; leave it empty where it is unknown"
        raise InputError(problem, row=row + 1, column=column, value=texts[row]) from None
    return np.asarray(codes, dtype=np.int32), known
