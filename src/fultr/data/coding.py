"""Numbers for values, and one value for each number, learned batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data.columns import Place
from fultr.data.ids import TEXT, Ids
from fultr.errors import InputError

OnConflict = Literal["error", "first", "last"]


class Coder:
    """Number values in the order of their first appearance, over any number of batches."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.codes: dict[Any, int] = {}
        self.kind: pa.DataType | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def encode(self, array: pa.Array, place: Place) -> NDArray[np.int64]:
        """Return the number of each value; new values get new numbers, a missing one gets -1."""

        def number(value: Any) -> int:
            return self.codes.setdefault(value, len(self.codes))

        return self._translate(array, place, number)

    def lookup(self, array: pa.Array, place: Place) -> NDArray[np.int64]:
        """Return the number of each value, -1 for values never seen."""
        return self._translate(array, place, lambda value: self.codes.get(value, -1))

    def _translate(self, array: pa.Array, place: Place, number: Callable[[Any], int]) -> NDArray[np.int64]:
        if self.kind is not None and array.type != self.kind and len(array):
            problem = f"the ids are {array.type} here, but {self.kind} where they came before"
            raise place.error(problem, 0, self.column, array[0].as_py())
        self.kind = array.type
        # only the distinct values of a batch pass through Python
        encoded = array.dictionary_encode()
        known = np.array([*map(number, encoded.dictionary.to_pylist()), -1], dtype=np.int64)
        return np.asarray(known[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])

    def ids(self, *, whole_if_possible: bool) -> Ids:
        """Return the values by number; text that is all whole numbers as such, if asked."""
        values = list(self.codes)
        text = bool(values) and isinstance(values[0], str)
        if text and not (whole_if_possible and all(map(_is_whole, values))):
            return np.array(values, dtype=TEXT)
        return np.array(values, dtype=np.int64)


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19 and str(int(text)) == text


class Remembered:
    """One value (a number or a row of them) for each code, and the row it was first given in.

    A later value that differs is a conflict: an error that names both rows, unless the first or the last
    value is to be taken.
    """

    def __init__(self, column: str, owner: str, on_conflict: OnConflict = "error") -> None:
        if on_conflict not in ("error", "first", "last"):
            raise InputError("must be 'error', 'first' or 'last'", column="on_conflict", value=on_conflict)
        self.column = column
        self.owner = owner
        self.on_conflict = on_conflict
        self._values: NDArray[Any] | None = None
        self._row = np.full(0, -1, dtype=np.int64)

    def __bool__(self) -> bool:
        return self._values is not None

    def learn(self, codes: NDArray[np.int64], values: NDArray[Any], place: Place) -> None:
        """Take the values given for some codes, in the rows of `place`."""
        stored = self._grown(int(codes.max(initial=-1)) + 1, values)
        if stored.shape[1:] != values.shape[1:]:
            problem = f"there are {values.shape[1]} features, but {stored.shape[1]} in row {self._row[0]}"
            raise place.error(problem, 0, self.column)
        unseen = np.flatnonzero(self._row[codes] < 0)
        fresh, first = np.unique(codes[unseen], return_index=True)
        stored[fresh] = values[unseen[first]]
        self._row[fresh] = place.rows(codes.size)[unseen[first]]
        differs = stored[codes] != values
        differs = differs.any(axis=1) if differs.ndim == 2 else differs
        if not differs.any() or self.on_conflict == "first":
            return
        if self.on_conflict == "error":
            index = int(np.argmax(differs))
            problem = f"{self.column} of the same {self.owner} in row {self._row[codes[index]]} differs"
            raise place.error(problem, index, self.column)
        stored[codes] = values  # of several the last one stays

    def of(self, codes: NDArray[np.int64]) -> NDArray[Any]:
        """Return the value of each code."""
        assert self._values is not None  # noqa: S101 - nothing asks before something was learned
        return np.asarray(self._values[codes])

    def _grown(self, size: int, like: NDArray[Any]) -> NDArray[Any]:
        if self._values is None:
            self._values = np.empty((0, *like.shape[1:]), dtype=like.dtype)
        if size > self._row.size:
            capacity = max(size, self._row.size + self._row.size // 2)
            values = np.zeros((capacity, *self._values.shape[1:]), dtype=self._values.dtype)
            values[: self._row.size] = self._values
            self._values = values
            self._row = np.concatenate([self._row, np.full(capacity - self._row.size, -1)])
        return self._values
