"""Finding lists that hold the same candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.data.dataset import RankingDataset
from fultr.data.dataset_fields import ROWS_A_CHECK
from fultr.data.ids import codes_of
from fultr.errors import InputError

LONGEST_INSERTION = 64
"""Up to this length, a list is sorted fastest by moving each value to its place."""


@dataclass(frozen=True)
class MergedLists:
    """Which lists hold the same candidates of the same query.

    `number` is the merged list of each list, `representative` the first list of each merged one, and `row`
    the row of the representative that holds the same item as each row.
    """

    number: NDArray[np.int64]
    representative: NDArray[np.int64]
    row: NDArray[np.int64]


def merge_lists(data: RankingDataset) -> MergedLists:
    """Find lists of the same query that hold the same candidates, in whatever order."""
    items, place = sorted_within(item_codes(data), data.offsets)
    number, representative = group_equal_lists(items, data.offsets)
    row = np.empty(data.rows, dtype=np.int64)
    _match_rows(place, data.offsets, representative[number], row)
    return MergedLists(number, representative, row)


@compiled
def _match_rows(place: Any, offsets: Any, twin: Any, row: Any) -> None:
    """Find for each row that of the list's twin which holds the same item.

    Sorted by item, the k-th rows of two lists of the same items hold the same one.
    """
    for index in range(twin.size):
        start, other = offsets[index], offsets[twin[index]]
        for rank in range(offsets[index + 1] - start):
            row[start + place[start + rank]] = other + place[other + rank]


def item_codes(data: RankingDataset) -> NDArray[np.int64]:
    """Number the rows so that two rows of one query are equal if and only if they are the same item.

    Items are the same if their documents are; without document ids, if their features and groups are.
    The same document of one query with other features or another group is an error.
    """
    query = np.repeat(data.query_codes, data.lengths)
    if data.doc_id is None:
        content = np.column_stack([data.features, data.group.astype(np.float32)])
        content += np.float32(0)  # -0.0 and 0.0 are one value
        row_bytes = np.dtype((np.void, content.dtype.itemsize * content.shape[1]))
        return codes_of(paired(query, codes_of(content.view(row_bytes).ravel())))
    item = codes_of(paired(query, codes_of(data.doc_id)))
    _refuse_conflicts(data, np.unique(item, return_index=True)[1][item])
    return item


def _refuse_conflicts(data: RankingDataset, first: NDArray[np.int64]) -> None:
    again = np.flatnonzero(first != np.arange(data.rows))
    for start in range(0, again.size, ROWS_A_CHECK):
        rows = again[start : start + ROWS_A_CHECK]
        other = np.any(data.features[rows] != data.features[first[rows]], axis=1)
        other |= data.group[rows] != data.group[first[rows]]
        if other.any():
            row = rows[np.argmax(other)]
            problem = f"the document has other features or another group in row {first[row] + 1} of its query"
            value = None if data.doc_id is None else data.doc_id[row]
            raise InputError(problem, row=row + 1, column="doc_id", value=value)


def paired(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for each pair of numbers from 0 on, equal for equal pairs."""
    return left * (int(right.max(initial=0)) + 1) + right


def order_within(values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order that sorts the values of each list, list after list; ties keep their order."""
    place = sorted_within(values, offsets)[1]
    return np.repeat(offsets[:-1], np.diff(offsets)).astype(np.int64, copy=False) + place


def sorted_within(values: NDArray[Any], offsets: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Sort the values of each list; also return the place in its list that each came from."""
    in_order = values.copy()
    place = np.empty(values.size, dtype=np.int32)
    _sort_within(in_order, offsets, place)
    return in_order, place


@compiled
def _sort_within(values: Any, offsets: Any, place: Any) -> None:
    for index in range(offsets.size - 1):
        start, stop = offsets[index], offsets[index + 1]
        if stop - start > LONGEST_INSERTION:
            order = np.argsort(values[start:stop], kind="mergesort")
            values[start:stop] = values[start:stop][order]
            for rank in range(order.size):
                place[start + rank] = order[rank]
            continue
        for entry in range(start, stop):
            value, rank = values[entry], entry
            while rank > start and values[rank - 1] > value:
                values[rank], place[rank] = values[rank - 1], place[rank - 1]
                rank -= 1
            values[rank], place[rank] = value, entry - start


def group_equal_lists(
    items: NDArray[Any], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number lists of sorted item codes so that equal lists, and only those, get equal numbers.

    Returns the number of each list, in order of first appearance, and the first list of each number.
    """
    number, representative, count = _group_equal_lists(items, offsets)
    return number, representative[:count]


@compiled
def _group_equal_lists(items: Any, offsets: Any) -> Any:
    lists = offsets.size - 1
    size = 16
    while size < 2 * lists:
        size *= 2
    table = np.full(size, -1, np.int64)
    number = np.empty(lists, np.int64)
    representative = np.empty(lists, np.int64)
    count = 0
    for index in range(lists):
        start, length = offsets[index], offsets[index + 1] - offsets[index]
        mixed = np.uint64(length)
        for place in range(start, start + length):
            mixed = (mixed ^ np.uint64(items[place])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(size - 1))
        # open addressing; equality is decided by the items themselves, never by the hash
        while True:
            held = table[slot]
            if held < 0:
                table[slot] = count
                number[index] = count
                representative[count] = index
                count += 1
                break
            other = offsets[representative[held]]
            same = offsets[representative[held] + 1] - other == length
            place = 0
            while same and place < length:
                same = items[other + place] == items[start + place]
                place += 1
            if same:
                number[index] = held
                break
            slot = (slot + 1) & (size - 1)
    return number, representative, count
