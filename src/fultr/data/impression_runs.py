"""Impressions of a table whose rows stand together by impression, without a memory of all of them.

Rows next to each other with the same id are one impression. That holds only if no id comes back later, which
is found out in three steps: ids that rise all through the table cannot come back; one that comes back within
a batch is noticed there; for any other table its column of ids is read once more, and eight bytes are held
for each impression while that lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.data.coding import Coder
from fultr.data.columns import Place
from fultr.data.log_rows import Column
from fultr.errors import InputError

IdBatches = Callable[[], Iterator[tuple[pa.Array, Place]]]
"""Reads the ids of a table from its start, batch by batch."""


class ScatteredRowsError(InputError):
    """The rows of an impression do not stand together; `read_log` can read such a table."""


class ImpressionRuns(Coder):
    """Number impressions in the order of the table; only the last one is remembered.

    Numbers start at 0 again after `restart`, which is for the boundary of two impressions.
    """

    def __init__(self, column: str = "impression_id") -> None:
        super().__init__(column)
        self.total = 0
        self.rising = True
        """Whether each id so far was larger than the one before it, so that none can have come back."""
        self._number = -1
        self._last: Any = None

    def __len__(self) -> int:
        return self._number + 1

    def restart(self) -> None:
        """Begin to count at 0 with the next impression."""
        self._number = -1

    def encode(self, array: pa.Array, place: Place, *, in_runs: bool = True) -> NDArray[np.int32]:  # noqa: ARG002
        """Return the number of the impression of each row."""
        starts = self.starts(array)
        numbers = np.cumsum(starts, dtype=np.int32)
        numbers += np.int32(self._number)
        self._watch(array, np.flatnonzero(starts), place)
        if len(array):
            self._number, self._last = int(numbers[-1]), array[-1].as_py()
        return numbers

    def starts(self, array: pa.Array) -> NDArray[np.bool_]:
        """Say for each row whether an impression starts there."""
        starts = np.empty(len(array), dtype=np.bool_)
        if len(array):
            starts[0] = self._number < 0 or array[0].as_py() != self._last
            starts[1:] = _differ(array)
        return starts

    def _watch(self, array: pa.Array, first: NDArray[np.int64], place: Place) -> None:
        """Count the impressions that start at the rows `first`, and see whether one is there twice."""
        self.total += first.size
        ids = array.take(pa.array(first))
        if not (_rises(ids) and (self._last is None or not first.size or ids[0].as_py() > self._last)):
            self.rising = False
            refuse_return(zip(ids.to_pylist(), first.tolist(), strict=True), place)


def refuse_return(starts: Iterator[tuple[Any, int]], place: Place) -> None:
    """Raise if one of the ids, each with the row of `place` that it starts at, is there twice."""
    seen: dict[Any, int] = {}
    for value, index in starts:
        if value in seen:
            raise came_back(place, seen[value], place, index, value)
        seen[value] = index


def refuse_returns(batches: IdBatches, impressions: int) -> None:
    """Read ids again, of so many impressions, and raise if one of them comes back after another."""
    prints = Column(np.int64, impressions)
    for ids, _, _ in _starts(batches):
        prints.append(_fingerprints(ids))
    held = prints.finished()
    held.sort()
    twice = np.unique(held[1:][held[1:] == held[:-1]])
    if not twice.size:
        return
    # text may only look the same by its fingerprint
    seen: dict[Any, tuple[Place, int]] = {}
    for ids, first, place in _starts(batches):
        for which in np.flatnonzero(np.isin(_fingerprints(ids), twice)).tolist():
            value = ids[which].as_py()
            if value in seen:
                raise came_back(*seen[value], place, int(first[which]), value)
            seen[value] = (place, int(first[which]))


def came_back(earlier: Place, first: int, place: Place, index: int, value: object) -> ScatteredRowsError:
    """Return the error of an impression that started in a row of `earlier`, and again in one of `place`."""
    row, again = (
        where.shown(where.first_row + number) for where, number in ((earlier, first), (place, index))
    )
    problem = (
        f"the impression started in row {row} and comes back after another one; sort the table by"
        " impression_id, or read it with read_log, which takes rows in any order"
    )
    return ScatteredRowsError(problem, file=place.file, row=again, column="impression_id", value=value)


def _starts(batches: IdBatches) -> Iterator[tuple[pa.Array, NDArray[np.int64], Place]]:
    """Yield the ids of the impressions that start in a batch, and the rows at which they do."""
    last: Any = None
    for array, place in batches():
        if not len(array):
            continue
        first = np.flatnonzero(_differ(array)) + 1
        if array[0].as_py() != last:
            first = np.concatenate([[0], first])
        last = array[-1].as_py()
        yield array.take(pa.array(first)), first, place


def _differ(array: pa.Array) -> NDArray[np.bool_]:
    """Say for each value but the first whether it differs from the one before."""
    if array.type == pa.int64():
        values = array.to_numpy()
        return np.asarray(values[1:] != values[:-1])
    differ = pc.not_equal(array.slice(1), array.slice(0, max(len(array) - 1, 0)))
    return np.asarray(differ.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _rises(ids: pa.Array) -> bool:
    return bool(pc.all(pc.greater(ids.slice(1), ids.slice(0, max(len(ids) - 1, 0)))).as_py() is not False)


def _fingerprints(ids: pa.Array) -> NDArray[np.int64]:
    """Return whole numbers as they are, and text as hashes."""
    if ids.type == pa.int64():
        return np.asarray(ids.to_numpy())
    return np.fromiter(map(hash, ids.to_pylist()), dtype=np.int64, count=len(ids))
