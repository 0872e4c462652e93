"""Numbers for values, and one value for each number, learned batch by batch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.arguments import LARGEST_WHOLE
from fultr.compiled import compiled
from fultr.data.columns import Place
from fultr.data.ids import TEXT, Ids
from fultr.errors import InputError

OnConflict = Literal["error", "first", "last"]

LONGEST_WHOLE = len(str(LARGEST_WHOLE))


class Coder:
    """Number values in the order of their first appearance, over any number of batches.

    Values are whole numbers (Arrow int64, none missing) or text; those of one column are all of one kind.
    """

    def __init__(self, column: str) -> None:
        self.column = column
        self.kind: pa.DataType | None = None
        self._text: dict[str, int] = {}
        self._whole = _WholeNumbers()

    def __len__(self) -> int:
        return self._whole.count if self.kind == pa.int64() else len(self._text)

    def encode(self, array: pa.Array, place: Place, *, in_runs: bool = False) -> NDArray[np.int32]:
        """Return the number of each value; new values get new numbers, missing text gets -1.

        `in_runs` says that equal values are likely to stand together, which makes text faster.
        """
        return self._translate(array, place, new=True, in_runs=in_runs)

    def lookup(self, array: pa.Array, place: Place) -> NDArray[np.int32]:
        """Return the number of each value, -1 for values never seen."""
        return self._translate(array, place, new=False)

    def _translate(
        self, array: pa.Array, place: Place, *, new: bool, in_runs: bool = False
    ) -> NDArray[np.int32]:
        kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if self.kind is not None and kind != self.kind and len(array):
            problem = f"the ids are {kind} here, but {self.kind} where they came before"
            raise place.error(problem, 0, self.column, array[0].as_py())
        self.kind = kind
        if kind == pa.int64():
            return self._whole.translate(array.to_numpy(), new=new)
        if in_runs:
            runs = pc.run_end_encode(array)
            lengths = np.diff(runs.run_ends.to_numpy(), prepend=0)
            return np.repeat(self._number_text(runs.values, new), lengths)
        return self._number_text(array, new)

    def _number_text(self, array: pa.Array, new: bool) -> NDArray[np.int32]:
        """Only the distinct values of a batch pass through Python."""
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        values, known = encoded.dictionary.to_pylist(), self._text
        if new:
            numbers = [-1 if value is None else known.setdefault(value, len(known)) for value in values]
        else:
            numbers = [known.get(value, -1) for value in values]
        return np.asarray(np.array([*numbers, -1], dtype=np.int32)[_indices(encoded)])

    def value(self, number: int) -> Any:
        """Return the value of a number, as Python has it."""
        return int(self._whole.keys[number]) if self.kind == pa.int64() else self.texts()[number]

    def texts(self) -> list[str]:
        """Return all text by number."""
        return list(self._text)

    def ids(self, *, whole_if_possible: bool) -> Ids:
        """Return the values by number; text that is all whole numbers as such, if asked."""
        if self.kind == pa.int64():
            return self._whole.values()
        values = self.texts()
        if values and whole_if_possible and all(map(_is_whole, values)):
            return np.array([int(value) for value in values], dtype=np.int64)
        return np.array(values, dtype=TEXT)


def _indices(encoded: pa.DictionaryArray) -> NDArray[Any]:
    """Return where in the dictionary each value stands, past its end for a missing one."""
    return np.asarray(
        encoded.indices.cast(pa.int64()).fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    )


class _WholeNumbers:
    """A hash table from whole numbers to their order of appearance."""

    def __init__(self) -> None:
        self.count = 0
        self.keys = np.empty(0, dtype=np.int64)
        self._slots = np.full(16, -1, dtype=np.int32)

    def values(self) -> NDArray[np.int64]:
        return self.keys[: self.count].copy()

    def translate(self, values: NDArray[np.int64], *, new: bool) -> NDArray[np.int32]:
        if new:
            self._make_room(self.count + values.size)
        codes = np.empty(values.size, dtype=np.int32)
        self.count = _number_whole(values, self._slots, self.keys, self.count, new, codes)
        return codes

    def _make_room(self, needed: int) -> None:
        """Have room for a batch of nothing but new values, so that the compiled loop need not stop."""
        if needed > self.keys.size:
            keys = np.empty(max(needed, self.keys.size + self.keys.size // 2), dtype=np.int64)
            keys[: self.count] = self.keys[: self.count]
            self.keys = keys
        if 2 * needed > self._slots.size:
            size = 1 << (2 * needed - 1).bit_length()
            self._slots = np.full(size, -1, dtype=np.int32)
            _number_whole(self.keys[: self.count], self._slots, self.keys, 0, True, self._slots[:0])


@compiled
def _number_whole(values: Any, slots: Any, keys: Any, count: int, new: bool, codes: Any) -> int:
    """Look up values, or add them if they are `new`; return how many are known then.

    Without room in `codes` the values are only added.
    """
    mask = slots.size - 1
    last, code = np.int64(0), -2
    for index in range(values.size):
        value = values[index]
        if code == -2 or value != last:
            last, code = value, -1
            mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
            slot = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
            while slots[slot] >= 0 and keys[slots[slot]] != value:
                slot = (slot + 1) & mask
            code = slots[slot]
            if code < 0 and new:
                code = count
                slots[slot] = count
                keys[count] = value
                count += 1
        if codes.size:
            codes[index] = code
    return count


def _is_whole(text: str) -> bool:
    """Say whether text is a whole number as numbers are written, and an int64 can hold it."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_WHOLE):
        return False
    return str(int(text)) == text and -LARGEST_WHOLE - 1 <= int(text) <= LARGEST_WHOLE


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
        self.learned_from = ""
        """What to say of where the first values come from, if later ones are those of another table."""
        self._place = Place()
        self._values: NDArray[Any] | None = None
        self._row = np.full(0, -1, dtype=np.int64)

    def __bool__(self) -> bool:
        return self._values is not None

    @property
    def kind(self) -> np.dtype[Any] | None:
        """The type of the values, once there are any."""
        return None if self._values is None else self._values.dtype

    def learn(self, codes: NDArray[np.int32], values: NDArray[Any], place: Place) -> None:
        """Take the values given for some codes, in the rows of `place`."""
        if self._values is None:
            self._place = place
        stored = self._grown(int(codes.max(initial=-1)) + 1, values)
        if stored.shape[1:] != values.shape[1:]:
            row = self._place.shown(self._row[0])
            problem = f"there are {values.shape[1]} features, but {stored.shape[1]} in row {row}"
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
            row = self._place.shown(self._row[codes[index]])
            problem = f"{self.column} of the same {self.owner} in row {row}{self.learned_from} differs"
            raise place.error(problem, index, self.column)
        stored[codes] = values  # of several the last one stays

    def of(self, codes: NDArray[Any]) -> NDArray[Any]:
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
