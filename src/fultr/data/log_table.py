"""From a long table, one row for each candidate of an impression, to a click log.

The table may come in batches, its rows in any order. Ids become small numbers as they arrive, and features
are kept once for each document of a query. What a row needs is its impression, document, position and click,
13 bytes (21 with a propensity), and 12 more at most while rows are brought together by impression.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data import columns
from fultr.data.click_log import ClickLog, Planted, first_repeated
from fultr.data.coding import Coder, OnConflict, Remembered
from fultr.data.columns import Place
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.ids import UNKNOWN_GROUP, Ids, document_twice, first_repeat
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.log_rows import Column, arrange_like, count_of, order_by_code, taken
from fultr.data.merging import group_equal_lists, sorted_within
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

REQUIRED = ("impression_id", "query_id", "doc_id", "position", "click")
OPTIONAL = ("propensity", "group", "planted", "timestamp")

DOCUMENT_BITS = (1 << 31) - 1
"""A document of a query is held as one number: the query's, and the document's in these bits."""

Batch = Mapping[str, pa.Array]
"""Columns of a table by name, all of one length."""

Rows = dict[str, NDArray[Any]]
"""Columns of the log as numbers."""

DatasetFields = Callable[[int], Mapping[str, Any]]
"""From the number of features to the fields of a dataset that are no columns of a table."""


class LogBuilder:
    """Collect batches of a long table and make a click log of them.

    Parameters
    ----------
    group_names
        The groups there are; a label that is not among them is an error. By default those found, sorted.
    on_conflict
        What to do when a document of a query comes with other features or another group than before:
        raise an error that names both rows, or take the first or the last.
    text_ids
        Treat ids as text while reading, as a CSV file gives them, and as whole numbers in the end if all of
        a column are and it is not one of `keep_text`.
    file
        Where the table comes from, for errors that concern no single row.
    rows
        How many rows there will be, if that is known.
    """

    def __init__(
        self,
        *,
        group_names: Sequence[str] | None = None,
        on_conflict: OnConflict = "error",
        text_ids: bool = False,
        keep_text: Collection[str] = (),
        file: Path | None = None,
        rows: int = 0,
    ) -> None:
        self.group_names = None if group_names is None else tuple(group_names)
        self.text_ids = text_ids
        self.keep_text = keep_text
        self.file = file
        self.expected = rows
        self.impressions, self.queries = Coder("impression_id"), Coder("query_id")
        self.documents, self.items, self.labels = Coder("doc_id"), Coder("doc_id"), Coder("group")
        self.item_group = Remembered("group", "document and query", on_conflict)
        self.item_features = Remembered("features", "document and query", on_conflict)
        self.query_of_impression = Remembered("query_id", "impression")
        self.time_of_impression = Remembered("timestamp", "impression", "first")
        self.items_given = False
        self.place = Place(file)
        self.candidates: dict[str, Column] = {}
        self.planted: list[Rows] = []

    def add_items(self, batch: Batch, place: Place, features: Sequence[str]) -> None:
        """Take groups and features (the columns named) of documents, keyed by query_id and doc_id."""
        query = self.queries.encode(self._ids(batch, "query_id", place), place, in_runs=True)
        document = self.documents.encode(self._ids(batch, "doc_id", place), place)
        item = self.items.encode(_pairs(query, document), place)
        self.items_given = True
        self._learn_groups(item, batch, place)
        self._learn_features(item, batch, place, features)
        self.item_group.learned_from = " of the table of documents" if self.item_group else ""

    def add(self, batch: Batch, place: Place, features: Sequence[str] = ()) -> None:
        """Take rows of the log, with features in the columns named if there was no table of documents."""
        self.place = place
        rows = self._impression_rows(batch, place)
        if "planted" in batch:
            planted = columns.flags(batch["planted"], "planted", place)
            if planted.any():
                self._set_aside(planted, rows, place)
                kept = pa.array(~planted)
                batch = {name: columns.plain(column).filter(kept) for name, column in batch.items()}
                rows = {name: column[~planted] for name, column in rows.items()}
                place = place.only(~planted, planted.size)
        item = self._items(batch, place, rows.pop("query"))
        self._learn_groups(item, batch, place)
        if not self.items_given:
            self._learn_features(item, batch, place, features)
        for name, values in {**rows, "item": item}.items():
            if name not in self.candidates:
                self.candidates[name] = Column(values.dtype.type, self.expected)
            self.candidates[name].append(values)

    def _set_aside(self, planted: NDArray[np.bool_], rows: Rows, place: Place) -> None:
        unplaced = planted & (rows["position"] == NOT_SHOWN)
        if unplaced.any():
            raise place.error("a planted item needs a position", int(np.argmax(unplaced)), "position")
        numbered = {**rows, "row": place.rows(planted.size)}
        self.planted.append({name: column[planted] for name, column in numbered.items()})

    def _impression_rows(self, batch: Batch, place: Place) -> Rows:
        position = columns.positions(batch["position"], "position", place, DEEPEST_POSITION)
        shown = position != NOT_SHOWN
        click = columns.flags(batch["click"], "click", place, missing=~shown)
        if (click & ~shown).any():
            problem = "a click on an item that was not shown: its position is empty"
            raise place.error(problem, int(np.argmax(click & ~shown)), "click", 1)
        impression = self.impressions.encode(self._ids(batch, "impression_id", place), place, in_runs=True)
        query = self.queries.encode(self._ids(batch, "query_id", place), place, in_runs=True)
        self._learn_of_impressions(impression, query, batch, place)
        rows: Rows = {"impression": impression, "query": query, "position": position, "click": click}
        if "propensity" in batch:
            rows["propensity"] = columns.propensities(batch["propensity"], "propensity", place, shown)
        return rows

    def _learn_of_impressions(
        self, impression: NDArray[np.int32], query: NDArray[np.int32], batch: Batch, place: Place
    ) -> None:
        # rows of an impression mostly stand together: the others say what the first of them said
        other = (impression[1:] != impression[:-1]) | (query[1:] != query[:-1])
        first = np.concatenate([np.arange(min(impression.size, 1)), np.flatnonzero(other) + 1])
        where = place.only(first, impression.size)
        self.query_of_impression.learn(impression[first], query[first], where)
        if "timestamp" in batch:
            times = columns.timestamps(batch["timestamp"], "timestamp", place)
            if self.time_of_impression and self.time_of_impression.kind != times.dtype:
                problem = "must be all whole numbers, or all dates"
                raise place.error(problem, 0, "timestamp", times[0])
            self.time_of_impression.learn(impression[first], times[first], where)

    def _ids(self, batch: Batch, column: str, place: Place) -> pa.Array:
        return columns.ids(batch[column], column, place, as_text=self.text_ids)

    def _items(self, batch: Batch, place: Place, query: NDArray[np.int32]) -> NDArray[np.int32]:
        documents = self._ids(batch, "doc_id", place)
        if not self.items_given:
            return self.items.encode(_pairs(query, self.documents.encode(documents, place)), place)
        document = self.documents.lookup(documents, place)
        item = self.items.lookup(_pairs(query, document), place)
        unknown = (item < 0) | (document < 0)
        if unknown.any():
            index = int(np.argmax(unknown))
            problem = "the document is not in the table of documents for this query"
            raise place.error(problem, index, "doc_id", documents[index].as_py())
        return item

    def _learn_groups(self, item: NDArray[np.int32], batch: Batch, place: Place) -> None:
        if "group" not in batch:
            return
        labels = columns.encoded_labels(batch["group"], "group", place)
        code = self.labels.encode(labels, place)
        if self.group_names is not None:
            allowed = np.array([*(name in self.group_names for name in self.labels.texts()), True])
            if not allowed[code].all():
                index = int(np.argmin(allowed[code]))
                problem = f"unknown group; expected one of: {', '.join(self.group_names)}"
                raise place.error(problem, index, "group", labels[index].as_py())
        self.item_group.learn(item, code, place)

    def _learn_features(
        self, item: NDArray[np.int32], batch: Batch, place: Place, names: Sequence[str]
    ) -> None:
        if names:
            table = columns.feature_table({name: batch[name] for name in names}, item.size, place)
            self.item_features.learn(item, table, place)

    def build(self, dataset: DatasetFields | None = None, **fields: Any) -> ClickLog:
        """Make the log, with the given fields of `ClickLog`, and those of its dataset that are no columns.

        What `dataset` returns may depend on the number of features.
        """
        rows = {name: column.finished() for name, column in self.candidates.items()}
        self.candidates = {}
        if not rows or not rows["click"].size:
            raise InputError("the log has no rows", file=self.file)
        if not rows["click"].any():
            raise no_clicks(self.file)
        planted = _joined(self.planted)
        grouped = self._grouped(rows, planted)
        return ClickLog(
            data=self._dataset(rows, grouped, dataset),
            lists=grouped.lists,
            position=rows["position"],
            click=rows["click"],
            propensity=rows.get("propensity"),
            planted=Planted(
                impression=planted["impression"],
                position=planted["position"],
                click=planted["click"],
                propensity=planted.get("propensity"),
            )
            if planted
            else None,
            impression_id=self._values(self.impressions),
            timestamp=self.time_of_impression.of(np.arange(len(self.impressions)))
            if self.time_of_impression
            else None,
            **fields,
        )

    def _values(self, coder: Coder) -> Ids:
        return coder.ids(whole_if_possible=self.text_ids and coder.column not in self.keep_text)

    def _grouped(self, rows: Rows, planted: Rows) -> _Grouped:
        """Bring the rows of each impression together, in the order of the list it showed.

        Impressions with the same candidates show the same list, whatever order they came in; a list holds
        its candidates in the order of the first of them.
        """
        impression = rows.pop("impression")
        lengths = count_of(impression, len(self.impressions))
        if not lengths.all():
            lonely = self.impressions.value(int(np.argmin(lengths)))
            problem = "the impression has planted items only, and no candidate"
            raise InputError(problem, file=self.file, column="impression_id", value=lonely)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        order = None
        if (impression[1:] < impression[:-1]).any():
            order = order_by_code(impression, offsets)
            for name in rows:
                rows[name] = taken(rows[name], order)
        del impression
        numbers = _RowNumbers(order, planted.get("row"))
        self._refuse_repeated_positions(rows["position"], offsets, planted, numbers)
        items, place = sorted_within(rows["item"], offsets)
        self._refuse_repeated_documents(items, rows["item"], offsets, numbers)
        lists, representative = group_equal_lists(items, offsets)
        del items, order, numbers
        for name in rows.keys() - {"item"}:
            arrange_like(representative[lists], place, offsets, rows[name])
        return _Grouped(lists, representative, offsets)

    def _refuse_repeated_positions(
        self, position: NDArray[np.int32], offsets: NDArray[np.int64], planted: Rows, numbers: _RowNumbers
    ) -> None:
        nothing = np.empty(0, dtype=np.int32)
        where, at = planted.get("impression", nothing), planted.get("position", nothing)
        repeat = first_repeat(where, at)
        if repeat is not None:
            found, rows = at[repeat[0]], [int(planted["row"][index]) for index in repeat]
        else:
            entry = first_repeated(position, offsets, where, at)
            if entry < 0:
                return
            found, impression = position[entry], int(np.searchsorted(offsets, entry, side="right")) - 1
            first, stop = offsets[impression : impression + 2]
            same = first + np.flatnonzero(position[first:stop] == found)
            rows = [numbers.of(index) for index in same.tolist()]
            rows += planted["row"][(where == impression) & (at == found)].tolist() if planted else []
        first_row, second_row = map(self.place.shown, sorted(rows)[:2])
        problem = f"the position is taken in row {first_row} of the same impression already"
        raise InputError(problem, file=self.file, row=second_row, column="position", value=found)

    def _refuse_repeated_documents(
        self,
        in_order: NDArray[np.int32],
        item: NDArray[np.int32],
        offsets: NDArray[np.int64],
        numbers: _RowNumbers,
    ) -> None:
        same = in_order[1:] == in_order[:-1]
        same[offsets[1:-1] - 1] = False  # the last of an impression and the first of the next
        if not same.any():
            return
        entry = int(np.argmax(same))
        impression = int(np.searchsorted(offsets, entry, side="right")) - 1
        first, stop = offsets[impression : impression + 2]
        rows = first + np.flatnonzero(item[first:stop] == in_order[entry])
        first_row, second_row = (self.place.shown(numbers.of(row)) for row in rows[:2].tolist())
        document = self.documents.value(self.items.value(int(in_order[entry])) & DOCUMENT_BITS)
        error = document_twice(first_row, second_row, "impression", document)
        raise error if self.file is None else error.located(self.file)

    def _dataset(self, rows: Rows, grouped: _Grouped, fields: DatasetFields | None) -> RankingDataset:
        lengths = np.diff(grouped.offsets)[grouped.representative]
        item = rows.pop("item")[rows_of(grouped.offsets, grouped.representative)]
        document = self.items.ids(whole_if_possible=False)[item] & DOCUMENT_BITS
        query = self.query_of_impression.of(grouped.representative)
        names = self.group_names
        if names is None:
            names = tuple(sorted(self.labels.texts()))
        recode = np.array([*(names.index(name) for name in self.labels.texts()), UNKNOWN_GROUP])
        group = recode[self.item_group.of(item)] if self.item_group else None
        features = self.item_features.of(item) if self.item_features else np.empty((item.size, 0), np.float32)
        return RankingDataset(
            features=features,
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            group=group,
            group_names=names,
            query_id=self._values(self.queries)[query],
            doc_id=self._values(self.documents)[document],
            **({} if fields is None else fields(features.shape[1])),
        )


@dataclass(frozen=True)
class _Grouped:
    """The list of each impression, the first impression of each list, and where impressions start."""

    lists: NDArray[np.int64]
    representative: NDArray[np.int64]
    offsets: NDArray[np.int64]


class _RowNumbers:
    """The numbers that candidates have as rows of the table, worked out when an error asks for them."""

    def __init__(self, order: NDArray[Any] | None, planted: NDArray[np.int64] | None) -> None:
        self._order = order
        rows = np.empty(0, dtype=np.int64) if planted is None else planted
        self._candidates_before = rows - np.arange(1, rows.size + 1)

    def of(self, entry: int) -> int:
        """Return the row, from 1, of a candidate, counted from 0 with impressions brought together."""
        index = entry if self._order is None else int(self._order[entry])
        return index + 1 + int(np.searchsorted(self._candidates_before, index, side="right"))


def _joined(parts: list[Rows]) -> Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def no_clicks(file: Path | None) -> InputError:
    """Return the error of a log without a single click."""
    problem = "the log has no clicks, so nothing can be learned or measured from it"
    return InputError(problem, file=file, column="click")


def _pairs(query: NDArray[np.int32], document: NDArray[np.int32]) -> pa.Array:
    pair = query.astype(np.int64) << DOCUMENT_BITS.bit_length()
    return pa.array(pair | (document & DOCUMENT_BITS))
