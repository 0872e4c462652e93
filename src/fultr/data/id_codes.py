"""Integers that stand for ids while rows are counted."""

from __future__ import annotations

from hashlib import blake2b
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import LARGEST_WHOLE
from fultr.data.columns import Place
from fultr.data.grouping import Key, mixed
from fultr.data.ids import Ids, as_text, text_series

Codes = NDArray[np.int64]

LONGEST_INTEGER = len(str(LARGEST_WHOLE)) + 1
"""Characters of the longest text that can be an int64, its sign included."""


class IdCodes:
    """Codes of the ids of one column: an integer stands for itself, text for its place in one dictionary.

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
        """Return the codes of ids: a numpy array of integers, or a polars series of text (-1 if missing)."""
        if isinstance(ids, np.ndarray):
            self.is_text = False
            return ids.astype(np.int64, copy=False)
        self.is_text = True
        codes = ids.cast(pl.Categorical(self._categories)).to_physical()
        return np.asarray(codes.cast(pl.Int64).fill_null(-1).to_numpy())

    def require_kind(self, kind: str, column: str, place: Place, value: object) -> None:
        """Refuse ids of another kind, "string" or "int64", than came before; `value` is the first of them."""
        known = {None: kind, True: "string", False: "int64"}[self.is_text]
        if kind != known:
            problem = f"the ids are {kind} here, but {known} where they came before"
            raise place.error(problem, 0, column, value)
        self.is_text = kind == "string"

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
            known = self._hashes.size
            if codes.size and int(codes.max()) >= known:
                self._hashes = np.concatenate([self._hashes, _text_hashes(self.texts[known:])])
            return np.asarray(self._hashes[codes])


def encode_ids(codes: IdCodes, ids: pa.Array, column: str, place: Place) -> Codes:
    """Return the codes of checked ids; refuse text where integers came before, and the other way round."""
    is_text = not pa.types.is_integer(ids.type)
    if len(ids):
        codes.require_kind("string" if is_text else "int64", column, place, ids[0].as_py())
    return codes.encode(pl.Series(pl.from_arrow(ids)) if is_text else ids.to_numpy())


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
