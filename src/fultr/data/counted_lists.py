"""Candidate lists and their counts, learned impression by impression.

What is held is each list once, with its candidates, and each cell once (an item of a list at a position, and
with a propensity where logged), with its impressions and clicks. The impressions themselves are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.merging import sorted_within
from fultr.data.propensity import NOT_SHOWN

KIND_BITS = 31
"""A cell is held as one number: its row, and its kind, which is mostly the position, in these bits."""

WHOLE, SAME_POSITION, SAME_DOCUMENT = 0, 1, 2
"""What became of impressions: all counted, or a position or a document stands twice in one of them."""

ALL_CLICKED, NOTHING_SHOWN, GAPS, ENTRIES, SHOWN = range(5)
"""The places of totals: impressions of a kind, and entries, all and shown."""


@dataclass(frozen=True)
class Impressions:
    """Some complete impressions: their candidates and the planted items among them.

    `kind` is what tells the cells of an item apart: the position, or a number for position and propensity.
    Planted items come in the order of their impressions, which are counted from 0.
    """

    item: NDArray[np.int32]
    position: NDArray[np.int32]
    kind: NDArray[np.int32]
    click: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    planted_impression: NDArray[np.int32]
    planted_position: NDArray[np.int32]


class CountedLists:
    """The lists that impressions showed, in the order of their first appearance, and the counts of each."""

    def __init__(self) -> None:
        self.size = 0
        self.totals = np.zeros(5, dtype=np.int64)
        self._slots = np.full(0, -1, dtype=np.int32)
        self._starts = np.zeros(1, dtype=np.int64)
        self._shown = np.zeros((0, 2), dtype=np.int64)  # impressions, and those with a click
        self._items = np.empty(0, dtype=np.int32)  # of each list, in rising order
        self._place = np.empty(0, dtype=np.int32)  # where in its list each of them stands
        self._cells = np.full((0, 3), -1, dtype=np.int64)  # a hash table of cell, impressions and clicks
        self._cell_count = 0
        self._taken = np.zeros(DEEPEST_POSITION + 1, dtype=np.int64)
        self._impressions_before = 0

    def count(self, some: Impressions) -> tuple[int, NDArray[np.uint64], NDArray[np.bool_]]:
        """Count impressions; say what became of them, and return a key for each and whether it was clicked.

        Keys of equal impressions are equal (the same list, positions and clicks), and those of different
        ones hardly ever; an impression that shows nothing has the key 0.
        """
        size = some.offsets.size - 1
        items, place = sorted_within(some.item, some.offsets)
        self._make_room(size, items.size)
        keys, clicked = np.zeros(size, dtype=np.uint64), np.zeros(size, dtype=np.bool_)
        outcome, self.size, self._cell_count = _count_impressions(
            (items, place, some.offsets, some.position, some.kind, some.click),
            (some.planted_impression, some.planted_position),
            (self._slots, self._starts, self._shown, self._items, self._place),
            self._cells,
            (self._taken, self._impressions_before, self.size, self._cell_count),
            (keys, clicked, self.totals),
        )
        self._impressions_before += size
        return outcome, keys, clicked

    def _make_room(self, lists: int, rows: int) -> None:
        """Have room for nothing but new lists and cells, so that the compiled loop need not stop."""
        held = int(self._starts[self.size])
        self._items = _grown(self._items, held, held + rows)
        self._place = _grown(self._place, held, held + rows)
        self._shown = _grown(self._shown, self.size, self.size + lists)
        self._starts = _grown(self._starts, self.size + 1, self.size + 1 + lists)
        if 2 * (self.size + lists) > self._slots.size:
            self._slots = np.full(_slots_for(self.size + lists), -1, dtype=np.int32)
            _enter_lists(self._slots, self._starts, self._items, self.size)
        if 3 * (self._cell_count + rows) > 2 * self._cells.shape[0]:
            # a cell that is not there has the number -1
            cells = np.full((_slots_for(self._cell_count + rows), 3), -1, dtype=np.int64)
            _enter_cells(self._cells, cells)
            self._cells = cells

    def lists(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where each list starts, and the items of all, in the order of its first impression."""
        starts = self._starts[: self.size + 1].copy()
        items = np.empty(int(starts[-1]), dtype=np.int32)
        before = np.repeat(starts[:-1], np.diff(starts))
        items[before + self._place[: items.size]] = self._items[: items.size]
        return starts, items

    def impressions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how often each list was shown, and how often with a click."""
        return self._shown[: self.size, 0].copy(), self._shown[: self.size, 1].copy()

    def cells(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return row, kind, impressions and clicks of each cell, in the order of rows and kinds."""
        found = self._cells[self._cells[:, 0] >= 0]
        found = found[np.argsort(found[:, 0])]
        kinds = (1 << KIND_BITS) - 1
        return found[:, 0] >> KIND_BITS, found[:, 0] & kinds, found[:, 1].copy(), found[:, 2].copy()


def _slots_for(entries: int) -> int:
    """Return a power of two, twice to four times as many as there are entries."""
    return 1 << (2 * max(entries, 8) - 1).bit_length()


def _grown(values: NDArray[Any], used: int, needed: int) -> NDArray[Any]:
    if needed <= values.shape[0]:
        return values
    more = np.zeros((max(needed, values.shape[0] + values.shape[0] // 2), *values.shape[1:]), values.dtype)
    more[:used] = values[:used]
    return more


@compiled
def _hash_of_list(items: Any, start: int, stop: int) -> Any:
    mixed = np.uint64(stop - start)
    for place in range(start, stop):
        mixed = (mixed ^ np.uint64(items[place])) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@compiled
def _slot_of_cell(cell: int, mask: int) -> Any:
    mixed = np.uint64(cell) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))


@compiled
def _spread(value: int) -> Any:
    """Spread numbers over 64 bits, different ones to different ones, so that their sums hardly ever meet."""
    mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(32))


@compiled
def _enter_lists(slots: Any, starts: Any, items: Any, lists: int) -> None:
    for number in range(lists):
        mixed = _hash_of_list(items, starts[number], starts[number + 1])
        slot = np.int64(mixed & np.uint64(slots.size - 1))
        while slots[slot] >= 0:
            slot = (slot + 1) & (slots.size - 1)
        slots[slot] = number


@compiled
def _enter_cells(old: Any, cells: Any) -> None:
    mask = cells.shape[0] - 1
    for index in range(old.shape[0]):
        if old[index, 0] >= 0:
            slot = _slot_of_cell(old[index, 0], mask)
            while cells[slot, 0] >= 0:
                slot = (slot + 1) & mask
            cells[slot] = old[index]


@compiled
def _list_number(impression: Any, start: int, stop: int, lists: Any, size: int) -> Any:
    """Return the number of the list with these items, which is `size` if it has been added just now."""
    items, place = impression
    slots, starts, _, known_items, known_place = lists
    mask = slots.size - 1
    slot = np.int64(_hash_of_list(items, start, stop) & np.uint64(mask))
    # open addressing; equality is decided by the items themselves, never by the hash
    while slots[slot] >= 0:
        first = starts[slots[slot]]
        same = starts[slots[slot] + 1] - first == stop - start
        rank = 0
        while same and rank < stop - start:
            same = known_items[first + rank] == items[start + rank]
            rank += 1
        if same:
            return slots[slot]
        slot = (slot + 1) & mask
    slots[slot] = size
    first = starts[size]
    starts[size + 1] = first + stop - start
    known_items[first : first + stop - start] = items[start:stop]
    known_place[first : first + stop - start] = place[start:stop]
    return size


@compiled
def _add_to_cell(cells: Any, cell: int, click: bool) -> int:
    """Count an entry; return how many cells are new."""
    mask = cells.shape[0] - 1
    slot = _slot_of_cell(cell, mask)
    while cells[slot, 0] >= 0 and cells[slot, 0] != cell:
        slot = (slot + 1) & mask
    if cells[slot, 0] >= 0:
        cells[slot, 1] += 1
        cells[slot, 2] += click
        return 0
    cells[slot, 0] = cell
    cells[slot, 1] = 1
    cells[slot, 2] = click
    return 1


@compiled
def _count_impressions(some: Any, planted: Any, lists: Any, cells: Any, before: Any, results: Any) -> Any:
    items, place, offsets, position, kind, click = some
    planted_impression, planted_position = planted
    starts, shown_of_list, known_place = lists[1], lists[2], lists[4]
    # taken[k] is the last impression that used position k, counted from 1
    taken, impression, size, cell_count = before
    keys, clicked, totals = results
    next_planted = 0
    for index in range(offsets.size - 1):
        start, stop = offsets[index], offsets[index + 1]
        impression += 1
        deepest = filled = 0
        while next_planted < planted_impression.size and planted_impression[next_planted] == index:
            where = planted_position[next_planted]
            if taken[where] == impression:
                return SAME_POSITION, size, cell_count
            taken[where] = impression
            deepest, filled = max(deepest, where), filled + 1
            next_planted += 1
        for rank in range(start + 1, stop):
            if items[rank] == items[rank - 1]:
                return SAME_DOCUMENT, size, cell_count
        number = _list_number((items, place), start, stop, lists, size)
        size = max(size, number + 1)
        shown = clicks = 0
        key = np.uint64(0)
        first = starts[number]
        for rank in range(stop - start):
            entry = start + place[start + rank]
            where = position[entry]
            if where == NOT_SHOWN:
                continue
            if taken[where] == impression:
                return SAME_POSITION, size, cell_count
            taken[where] = impression
            row = first + known_place[first + rank]
            cell_count += _add_to_cell(cells, row << KIND_BITS | np.int64(kind[entry]), click[entry])
            key += _spread(2 * (row * (DEEPEST_POSITION + 1) + where) + click[entry])
            shown, clicks, deepest = shown + 1, clicks + click[entry], max(deepest, where)
        shown_of_list[number, 0] += 1
        shown_of_list[number, 1] += clicks > 0
        keys[index], clicked[index] = key, clicks > 0
        totals[ALL_CLICKED] += shown > 1 and clicks == shown
        totals[NOTHING_SHOWN] += shown == 0
        totals[GAPS] += deepest > shown + filled
        totals[ENTRIES] += stop - start
        totals[SHOWN] += shown
    return WHOLE, size, cell_count
