"""The rows of a click log as a table gave them, brought together by impression with little memory.

A log has many more rows than anything else it holds. So each column is one array of the smallest type that
serves, is filled where it stands, and is rearranged in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.data.dataset_fields import ROWS_A_CHECK


class Column:
    """Values that come in batches.

    Parameters
    ----------
    kind
        The type of the values.
    expected
        How many there will be at most, if that is known; memory that is not written to is not taken.
    """

    def __init__(self, kind: type[np.generic], expected: int = 0) -> None:
        self.size = 0
        self._held: NDArray[Any] = np.empty(expected, dtype=kind)

    def append(self, values: NDArray[Any]) -> None:
        """Take the values of a batch."""
        size = self.size + values.size
        if size > self._held.size:
            # grows where it stands, or moves without a copy; nobody else has seen the array yet
            self._held.resize(max(size, self._held.size + self._held.size // 4), refcheck=False)
        self._held[self.size : size] = values
        self.size = size

    def finished(self) -> NDArray[Any]:
        """Return all values, and give back the room that was not needed."""
        self._held.resize(self.size, refcheck=False)
        return self._held


def count_of(codes: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """Count each code from 0 to size - 1; numpy would first make a large number of each code."""
    counts = np.zeros(size, dtype=np.int64)
    _count_of(codes, counts)
    return counts


@compiled
def _count_of(codes: Any, counts: Any) -> None:
    for row in range(codes.size):
        counts[codes[row]] += 1


def taken(values: NDArray[Any], order: NDArray[Any]) -> NDArray[Any]:
    """Return values in another order; step by step, since numpy would make large numbers of all of it."""
    result = np.empty_like(values)
    for start in range(0, order.size, ROWS_A_CHECK):
        result[start : start + ROWS_A_CHECK] = values[order[start : start + ROWS_A_CHECK]]
    return result


def order_by_code(codes: NDArray[np.int32], offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Return the order that brings equal codes together and keeps that of their rows.

    `offsets` is where the rows of each code start then.
    """
    order = np.empty(codes.size, dtype=np.int32 if codes.size < 1 << 31 else np.int64)
    _order_by_code(codes, offsets[:-1].copy(), order)
    return order


@compiled
def _order_by_code(codes: Any, free: Any, order: Any) -> None:
    for row in range(codes.size):
        order[free[codes[row]]] = row
        free[codes[row]] += 1


@compiled
def arrange_like(twin: Any, place: Any, offsets: Any, column: Any) -> None:
    """Bring the values of each impression into the order of its twin, which has the same candidates.

    `place` is where in its impression the candidate with the k-th smallest code stands.
    """
    longest = 0
    for index in range(twin.size):
        longest = max(longest, offsets[index + 1] - offsets[index])
    values = np.empty(longest, column.dtype)
    for index in range(twin.size):
        start, other = offsets[index], offsets[twin[index]]
        length = offsets[index + 1] - start
        if start == other:
            continue
        for rank in range(length):
            values[place[other + rank]] = column[start + place[start + rank]]
        column[start : start + length] = values[:length]
