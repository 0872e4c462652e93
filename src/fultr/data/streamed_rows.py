"""From the rows of a long table, taken batch by batch, to lists and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.data.coding import Coder, Remembered
from fultr.data.columns import Place, flags, is_text
from fultr.data.compact_log import Cells, count_cells, merge_cells
from fultr.data.counted_lists import ENTRIES, SAME_DOCUMENT, SAME_POSITION, CountedLists, Impressions
from fultr.data.dataset import RankingDataset
from fultr.data.impression_keys import ImpressionKeys
from fultr.data.impression_runs import ImpressionRuns, ScatteredRowsError
from fultr.data.log_rows import Column, count_of
from fultr.data.log_table import (
    Batch,
    DatasetFields,
    LogBuilder,
    Rows,
    _Grouped,
    _joined,
    _RowNumbers,
    no_clicks,
)
from fultr.data.merging import sorted_within
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

ROWS_A_CHUNK = 1 << 18
"""Rows that are counted together, but for the last impression, which may continue."""

NEVER_SEEN = -2
"""In place of the group of a document that has not been seen in the log."""


class StreamedRows(LogBuilder):
    """Count the impressions of a table whose rows stand together by impression.

    Rows are checked as those of any log. They are held only until their impression is complete.

    Parameters
    ----------
    keys
        Takes a key for each impression, if it is to be known which of them are equal.
    options
        Those of `LogBuilder`.
    """

    def __init__(self, keys: ImpressionKeys | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.impressions = self.runs = ImpressionRuns()
        self.lists, self.keys = CountedLists(), keys
        self.planted_cells: Cells | None = None
        self._propensities, self._kinds = Coder("propensity"), Coder("propensity")
        self._has_propensity = False
        self._known_group = np.empty(0, dtype=np.int32)
        self._rows = 0
        self._first_row = 1

    def take(self, batch: Batch, place: Place, features: Sequence[str]) -> None:
        """Take rows, and count the impressions that are complete with them once there are enough."""
        size = len(batch["impression_id"])
        if self._rows + size > ROWS_A_CHUNK:
            starts = np.flatnonzero(self.runs.starts(self._ids(batch, "impression_id", place)))
            if starts.size:
                # the last impression of the batch may continue in the next one
                cut = int(starts[-1])
                self._add({name: column.slice(0, cut) for name, column in batch.items()}, place, features)
                self.count()
                batch = {name: column.slice(cut) for name, column in batch.items()}
                place = replace(place, first_row=place.first_row + cut)
        self._add(batch, place, features)

    def _add(self, batch: Batch, place: Place, features: Sequence[str]) -> None:
        if not self._rows:
            self._first_row = place.first_row
        if size := len(batch["impression_id"]):
            self.add(batch, place, features)
            self._rows += size

    def add(self, batch: Batch, place: Place, features: Sequence[str] = ()) -> None:
        """Take rows of the log until they are counted."""
        self.place = place
        rows = self._impression_rows(batch, place)
        batch = {name: batch[name] for name in ("doc_id", "group", "planted", *features) if name in batch}
        if "planted" in batch:
            planted = flags(batch["planted"], "planted", place)
            if planted.any():
                self._set_aside(planted, rows, place)
                kept = pa.array(~planted)
                batch = {name: column.filter(kept) for name, column in batch.items()}
                rows = {name: column[~planted] for name, column in rows.items()}
                place = place.only(~planted, planted.size)
        item = self._items(batch, place, rows.pop("query"))
        if "group" in batch and not self._groups_are_known(item, batch["group"]):
            self._learn_groups(item, batch, place)
            self._remember_groups(item)
        if item.size and not self.items_given:
            self._learn_features(item, batch, place, features)
        for name, values in {**rows, "item": item}.items():
            self.candidates.setdefault(name, Column(values.dtype.type)).append(values)

    def _groups_are_known(self, item: NDArray[np.int32], labels: pa.Array) -> bool:
        """Say whether all these documents have been seen with these groups, as after a while they have."""
        if not pa.types.is_dictionary(labels.type) or not is_text(labels.type.value_type):
            return False
        codes = self.labels.lookup(labels.dictionary.cast(pa.string()), self.place)
        index = labels.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
        return bool(_all_known(item, np.append(codes, np.int32(-1)), index, self._known_group))

    def _remember_groups(self, item: NDArray[np.int32]) -> None:
        held = self._known_group.size
        if len(self.items) > held:
            size = max(len(self.items), held + held // 2)
            self._known_group = np.append(self._known_group, np.full(size - held, NEVER_SEEN, np.int32))
        self._known_group[item] = self.item_group.of(item)

    def count(self) -> None:
        """Count what has been taken: the impressions must be complete."""
        if not self._rows:
            return
        rows, planted = {name: column.finished() for name, column in self.candidates.items()}, self._planted()
        lengths = count_of(rows["impression"], len(self.runs))
        if not lengths.all():
            lonely = planted["row"][planted["impression"] == np.argmin(lengths)][0]
            problem = "the impression has planted items only, and no candidate beside them"
            row = self.place.shown(int(lonely))
            raise ScatteredRowsError(problem, file=self.file, row=row, column="impression_id")
        nothing = np.empty(0, dtype=np.int32)
        some = Impressions(
            item=rows["item"],
            position=rows["position"],
            kind=self._kind(rows),
            click=rows["click"],
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            planted_impression=planted.get("impression", nothing),
            planted_position=planted.get("position", nothing),
        )
        outcome, keys, clicked = self.lists.count(some)
        if outcome in (SAME_POSITION, SAME_DOCUMENT):
            self._refuse(some, planted, outcome)
        if self.keys is not None:
            self.keys.add(keys, clicked, self._times())
        self._forget()

    def _planted(self) -> Rows:
        planted = _joined(self.planted)
        if planted:
            cells = count_cells(
                np.zeros(planted["row"].size, dtype=np.int64),
                planted["position"],
                planted.get("propensity"),
                planted["click"],
            )
            known = self.planted_cells
            self.planted_cells = cells if known is None else merge_cells(known, cells)
        return planted

    def _kind(self, rows: Rows) -> NDArray[np.int32]:
        """Return the position of each row, or a number for its position and propensity."""
        position = rows["position"]
        if "propensity" not in rows:
            return np.asarray(position)
        self._has_propensity = True
        propensity = np.where(position == NOT_SHOWN, 0.0, rows["propensity"])
        code = self._propensities.encode(pa.array(propensity.view(np.int64)), self.place)
        return self._kinds.encode(pa.array(code.astype(np.int64) << 32 | position), self.place)

    def _times(self) -> NDArray[np.int64] | None:
        if not self.time_of_impression:
            return None
        return np.asarray(self.time_of_impression.of(np.arange(len(self.runs))).view(np.int64))

    def _refuse(self, some: Impressions, planted: Rows, outcome: int) -> None:
        """Raise the error of a position or document that stands twice in an impression."""
        # rows are numbered from 1 in what is being counted
        before, place = self._first_row - 1, self.place
        self.place = replace(place, line_of=lambda number: place.shown(number + before))
        planted = {**planted, "row": planted["row"] - before} if planted else {}
        numbers = _RowNumbers(None, planted.get("row"))
        if outcome == SAME_POSITION:
            self._refuse_repeated_positions(some.position, some.offsets, planted, numbers)
        items, _ = sorted_within(some.item, some.offsets)
        self._refuse_repeated_documents(items, some.item, some.offsets, numbers)

    def _forget(self) -> None:
        """Let go of the rows that have been counted."""
        times = self.time_of_impression
        self.candidates, self.planted, self._rows = {}, [], 0
        self.runs.restart()
        self.query_of_impression = Remembered("query_id", "impression")
        self.time_of_impression = Remembered("timestamp", "impression", "first")
        if times:
            # that they are numbers or dates holds for the whole table
            self.time_of_impression.learn(np.empty(0, np.int32), times.of(np.empty(0, np.int32)), self.place)

    def refuse_nothing(self) -> None:
        """Raise if there were no rows, or no clicks."""
        if not self.lists.totals[ENTRIES]:
            raise InputError("the log has no rows", file=self.file)
        if not self.lists.impressions()[1].any():
            raise no_clicks(self.file)

    def dataset(self, fields: DatasetFields) -> RankingDataset:
        """Return the lists, in the order of their first appearance, with the fields that are no columns."""
        starts, item = self.lists.lists()
        numbers = np.arange(self.lists.size, dtype=np.int64)
        query = self.items.ids(whole_if_possible=False)[item[starts[:-1]]] >> 31
        self.query_of_impression.learn(numbers.astype(np.int32), query, self.place)
        return self._dataset({"item": item}, _Grouped(numbers, numbers, starts), fields)

    def cells(self) -> Cells:
        """Return the counts of each row of the dataset, in the order of rows and positions."""
        row, kind, impressions, clicks = self.lists.cells()
        if not self._has_propensity:
            return Cells(row, kind.astype(np.int32), None, impressions, clicks)
        kinds = self._kinds.ids(whole_if_possible=False)[kind]
        position = (kinds & 0xFFFFFFFF).astype(np.int32)
        propensity = self._propensities.ids(whole_if_possible=False)[kinds >> 32].view(np.float64)
        order = np.lexsort((propensity, position, row))
        return Cells(row[order], position[order], propensity[order], impressions[order], clicks[order])


@compiled
def _all_known(item: Any, codes: Any, index: Any, known: Any) -> bool:
    """Say whether the group known of each item is the one whose code stands at `index`."""
    for row in range(item.size):
        if item[row] >= known.size or known[item[row]] != codes[index[row]]:
            return False
    return True
