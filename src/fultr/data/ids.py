"""Ids and group labels: integers or text, and nothing else; and integers that stand for ids."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import LARGEST_WHOLE, is_encodable
from fultr.data.grouping import Key, dense, inverse, mixed
from fultr.errors import InputError

Ids = NDArray[Any]
"""Ids of one kind: int64, or text of any length (numpy's StringDType)."""

Codes = NDArray[np.int64]
TEXT = np.dtypes.StringDType()
LONGEST_INTEGER = len(str(LARGEST_WHOLE)) + 1
"""Characters of the longest text that can be an int64, its sign included."""

UNKNOWN_GROUP = -1
ID_TOO_LARGE = "an integer as an id must fit 64 bits with a sign; give it as text"


def as_column(values: ArrayLike | Sequence[object]) -> NDArray[Any]:
    """Return values as an array that holds what was given.

    numpy would turn a list of text with a number or a missing value in it into text all through.
    """
    try:
        column = np.asarray(values)
    except ValueError:  # of lists of different lengths
        return np.asarray(values, dtype=object)
    return column if column.dtype.kind in "iufbT" else np.asarray(values, dtype=object)


def as_ids(values: ArrayLike, column: str) -> Ids:
    """Return ids as int64 or text that is not empty; the row of anything else is named."""
    ids = as_integers_or_text(values, column)
    empty = np.flatnonzero(ids == "") if ids.dtype.kind == "T" else np.empty(0, np.int64)
    if empty.size:
        raise InputError("an id is missing", row=int(empty[0]) + 1, column=column)
    return ids


def as_integers_or_text(values: ArrayLike, column: str) -> Ids:
    """Return values as int64 or text; refuse missing values and any other type, naming the row."""
    array = as_column(values)
    if array.ndim != 1:
        raise InputError("ids must be one value for each row", column=column, value=array.shape)
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "T":
        return array
    if array.dtype.kind == "f":  # also what numpy makes of a small and of a very large integer
        array = np.asarray(values, dtype=object)
    whole = [isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in array]
    are_whole = any(whole) or not array.size
    for row, (value, is_whole) in enumerate(zip(array, whole, strict=True), start=1):
        if not (is_whole if are_whole else isinstance(value, str)):
            problem = "ids must be all integers or all text, none missing"
            raise InputError(problem, row=row, column=column, value=value)
        if are_whole and not -LARGEST_WHOLE - 1 <= int(value) <= LARGEST_WHOLE:
            raise InputError(ID_TOO_LARGE, row=row, column=column, value=value)
        if not are_whole and not is_encodable(value):
            raise InputError("must be text in UTF-8", row=row, column=column, value=value)
    return array.astype(np.int64 if are_whole else TEXT)


def check_size(values: NDArray[Any], size: int, units: str, column: str) -> None:
    """Raise if an array has not one value for each of `size` rows, or whatever else there are `units` of."""
    if values.shape != (size,):
        raise InputError(f"must have one value for each of {size} {units}", column=column, value=values.shape)


def codes_of(ids: Ids) -> NDArray[np.int64]:
    """Return the rank of each id among the different ones, from 0; text is sorted by its UTF-8 bytes.

    Text is sorted by polars: numpy 2.4 crashes on some orders of it.
    """
    if ids.dtype.kind != "T":
        return dense(ids)
    ranks = text_series(ids).rank("dense").to_numpy()
    return np.asarray(ranks.astype(np.int64) - 1)


def distinct(ids: Ids) -> Ids:
    """Return the different ids in ascending order."""
    if ids.dtype.kind != "T":
        return np.unique(ids)
    return as_text(text_series(ids).unique().sort())


def text_series(ids: Ids) -> pl.Series:
    """Return text as a polars series."""
    return pl.Series(ids.tolist(), dtype=pl.String)


def as_text(texts: pl.Series) -> Ids:
    """Return a polars series of text, none missing, as numpy holds ids."""
    return np.array(texts.to_list(), dtype=TEXT)


def order_of_appearance(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Renumber codes in the order they first appear; also return where each first appears."""
    _, first, index = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    return inverse(order)[index], first[order]


def rows_in_lists(
    codes: NDArray[np.int64],
) -> tuple[NDArray[np.int64] | slice, NDArray[np.int64], NDArray[np.int64]]:
    """Bring rows of one list together; lists come as they first appear, and their rows keep their order.

    Return the index of each row of the lists (all of them, if they are in order), where lists start, and the
    index of the first row of each list.
    """
    number, first = order_of_appearance(codes)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(number))]).astype(np.int64)
    in_order = bool(np.all(number[1:] >= number[:-1]))
    return slice(None) if in_order else np.argsort(number, kind="stable"), offsets, first


def encode_groups(
    labels: Sequence[object] | NDArray[Any],
    names: Sequence[str] | None = None,
    column: str = "group",
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Turn group labels into small numbers and their names.

    A missing label (None, NaN, pandas' NA or empty text) is an unknown group, -1. With `names` given, any
    other label is an error; without, the names are the labels, sorted.
    """
    texts = [None if _is_missing(label) else str(label) for label in labels]
    if names is None:
        names = sorted({text for text in texts if text is not None})
    code_of: dict[str | None, int] = {None: UNKNOWN_GROUP, **{name: code for code, name in enumerate(names)}}
    row = next((row for row, text in enumerate(texts) if text not in code_of), None)
    if row is not None:
        expected = ", ".join(names)
        problem = f"unknown group; expected one of: {expected}; leave it empty where it is unknown"
        raise InputError(problem, row=row + 1, column=column, value=texts[row])
    return np.asarray([code_of[text] for text in texts], dtype=np.int32), tuple(names)


def _is_missing(label: object) -> bool:
    if label is None or (isinstance(label, str) and not label):
        return True
    differs = label != label  # NaN differs from itself; whether pandas' NA does is NA again
    return not isinstance(differs, (bool, np.bool_)) or bool(differs)


def unknown_group_name(names: Sequence[str]) -> str:
    """Return what to call the items of no known group beside groups of the given names."""
    name = "(unknown)"
    while name in names:
        name = f"({name})"
    return name


def document_twice(first_row: int, second_row: int, of: str, document: object) -> InputError:
    """Return the error of a document that stands twice in a list or an impression."""
    problem = f"the document stands in row {first_row} of the same {of} already"
    return InputError(problem, row=second_row, column="doc_id", value=document)


class IdCodes:
    """Codes of the ids of one column: an integer stands for itself, text for its index in one dictionary.

    Threads may share it. With `may_be_integers`, text is but a way to write integers, if all of it can be
    read so, as in a CSV file.
    """

    def __init__(self, *, may_be_integers: bool = False) -> None:
        self.may_be_integers = may_be_integers
        self.is_text: bool | None = None
        self._categories = pl.Categories.random(namespace="fultr")
        # polars keeps a dictionary only as long as there is a series that uses it
        self._anchor = pl.Series([], dtype=pl.Categorical(self._categories))
        self._hashes = np.empty(0, dtype=np.uint64)
        self._lock = Lock()

    def encode(self, ids: Any) -> Codes:
        """Return the codes of ids: integers (numpy or Arrow), or text (polars or Arrow; -1 if missing)."""
        of_arrow = isinstance(ids, pa.Array)
        self.is_text = not (pa.types.is_integer(ids.type) if of_arrow else isinstance(ids, np.ndarray))
        values = pl.Series(pl.from_arrow(ids)) if of_arrow else ids
        if not self.is_text:
            return np.asarray(values).astype(np.int64, copy=False)
        codes = values.cast(pl.Categorical(self._categories)).to_physical()
        return np.asarray(codes.cast(pl.Int64).fill_null(-1).to_numpy())

    def check_kind(self, kind: pa.DataType, column: str, file: str | Path | None) -> None:
        """Refuse a column of text where integers came before, and the other way round."""
        own = getattr(kind, "value_type", kind)  # of categories and of lists
        is_text = not pa.types.is_integer(own)
        if is_text and str(own) not in ("string", "large_string", "string_view"):
            return  # no ids at all, which is for the check of its values to say
        if self.is_text not in (None, is_text):
            kind_now, kind_before = ("text", "integers") if is_text else ("integers", "text")
            raise InputError(
                f"the ids are {kind_now} here, but {kind_before} before", file=file, column=column
            )
        self.is_text = is_text

    @property
    def texts(self) -> pl.Series:
        """The dictionary of text, by code."""
        return self._categories.to_series()

    def ids(self, codes: Codes) -> Ids:
        """Return the ids of codes; text as integers if all of it may be."""
        if not self.is_text:
            return codes
        texts = as_text(self.texts.gather(codes))
        return as_integers(texts) if self.may_be_integers else texts

    def hashes(self, codes: Codes) -> Key:
        """Return a hash for the id of each code; it depends on the id alone, not on the process.

        Text that is an integer has the hash of that integer.
        """
        if not self.is_text:
            return mixed(codes)
        with self._lock:
            size = self._hashes.size
            if codes.size and int(codes.max()) >= size:
                self._hashes = np.concatenate([self._hashes, _text_hashes(self.texts[size:])])
            return np.asarray(self._hashes[codes])


def as_integers(ids: Ids) -> Ids:
    """Return text ids as integers if every one of them is an int64 as numbers are written; "007" is text."""
    if ids.dtype.kind != "T" or not ids.size:
        return ids
    numbers = _integers(text_series(ids))
    return ids if numbers.null_count() else np.asarray(numbers.to_numpy())


def _integers(texts: pl.Series) -> pl.Series:
    """Return the integers that texts are, null for any other text."""
    short = pl.when(texts.str.len_bytes() <= LONGEST_INTEGER).then(texts)
    numbers = pl.select(short).to_series().cast(pl.Int64, strict=False)
    return pl.select(pl.when(numbers.cast(pl.String) == texts).then(numbers)).to_series()


def _text_hashes(texts: pl.Series) -> Key:
    numbers = _integers(texts)
    digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts.to_list())
    hashes = np.frombuffer(digests, dtype="<u8")
    return np.where(numbers.is_null().to_numpy(), hashes, mixed(numbers.fill_null(0).to_numpy()))
