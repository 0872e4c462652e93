"""From a long table, one row for each candidate of an impression, to a click log.

The table may come in batches, its rows in any order. Ids become small numbers as they arrive, and features
are kept once for each document of a query, so that memory is bounded by what the log itself needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data import columns
from fultr.data.click_log import DEEPEST_POSITION, ClickLog, Planted, first_repeated
from fultr.data.coding import Coder, OnConflict, Remembered
from fultr.data.columns import Place
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.ids import UNKNOWN_GROUP, Ids
from fultr.data.merging import group_equal_lists, order_within
from fultr.errors import InputError

REQUIRED = ("impression_id", "query_id", "doc_id", "position", "click")
OPTIONAL = ("propensity", "group", "planted", "timestamp")

DOCUMENT_BITS = (1 << 31) - 1
"""A document of a query is held as one number: the query's, and the document's in these bits."""

Batch = Mapping[str, pa.Array]
"""Columns of a table by name, all of one length."""

Rows = dict[str, NDArray[Any]]
"""Columns of the log as numbers."""


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
    """

    def __init__(
        self,
        *,
        group_names: Sequence[str] | None = None,
        on_conflict: OnConflict = "error",
        text_ids: bool = False,
        keep_text: Collection[str] = (),
        file: Path | None = None,
    ) -> None:
        self.group_names = None if group_names is None else tuple(group_names)
        self.text_ids = text_ids
        self.keep_text = keep_text
        self.file = file
        self.impressions, self.queries = Coder("impression_id"), Coder("query_id")
        self.documents, self.items, self.labels = Coder("doc_id"), Coder("doc_id"), Coder("group")
        self.item_group = Remembered("group", "document and query", on_conflict)
        self.item_features = Remembered("features", "document and query", on_conflict)
        self.query_of_impression = Remembered("query_id", "impression")
        self.time_of_impression = Remembered("timestamp", "impression", "first")
        self.items_given = self.groups_given = False
        self.candidates: list[Rows] = []
        self.planted: list[Rows] = []

    def add_items(self, batch: Batch, place: Place, features: Sequence[str]) -> None:
        """Take groups and features (the columns named) of documents, keyed by query_id and doc_id."""
        query = self.queries.encode(self._ids(batch, "query_id", place), place)
        document = self.documents.encode(self._ids(batch, "doc_id", place), place)
        item = self.items.encode(_pairs(query, document), place)
        self.items_given, self.groups_given = True, "group" in batch
        self._learn_groups(item, batch, place)
        self._learn_features(item, batch, place, features)

    def add(self, batch: Batch, place: Place, features: Sequence[str] = ()) -> None:
        """Take rows of the log, with features in the columns named if there was no table of documents."""
        rows = self._impression_rows(batch, place)
        planted = np.zeros(rows["position"].size, dtype=np.bool_)
        if "planted" in batch:
            planted = columns.flags(batch["planted"], "planted", place)
            self.planted.append({name: column[planted] for name, column in rows.items()})
            unplaced = planted & (rows["position"] == 0)
            if unplaced.any():
                raise place.error("a planted item needs a position", int(np.argmax(unplaced)), "position")
        if planted.any():
            kept = pa.array(~planted)
            batch = {name: columns.plain(column).filter(kept) for name, column in batch.items()}
            rows = {name: column[~planted] for name, column in rows.items()}
            place = place.only(~planted)
        rows["item"] = self._items(batch, place, rows["query"])
        if not self.groups_given:
            self._learn_groups(rows["item"], batch, place)
        if not self.items_given:
            self._learn_features(rows["item"], batch, place, features)
        self.candidates.append(rows)

    def _impression_rows(self, batch: Batch, place: Place) -> Rows:
        position = columns.positions(batch["position"], "position", place, DEEPEST_POSITION)
        shown = position > 0
        click = columns.flags(batch["click"], "click", place, missing=~shown)
        if (click & ~shown).any():
            problem = "a click on an item that was not shown: its position is empty"
            raise place.error(problem, int(np.argmax(click & ~shown)), "click", 1)
        impression = self.impressions.encode(self._ids(batch, "impression_id", place), place)
        query = self.queries.encode(self._ids(batch, "query_id", place), place)
        self.query_of_impression.learn(impression, query, place)
        if "timestamp" in batch:
            times = columns.timestamps(batch["timestamp"], "timestamp", place)
            self.time_of_impression.learn(impression, times, place)
        rows: Rows = {
            "impression": impression,
            "query": query,
            "position": position,
            "click": click,
            "row": place.rows(position.size),
        }
        if "propensity" in batch:
            rows["propensity"] = columns.propensities(batch["propensity"], "propensity", place, shown)
        return rows

    def _ids(self, batch: Batch, column: str, place: Place) -> pa.Array:
        return columns.ids(batch[column], column, place, as_text=self.text_ids)

    def _items(self, batch: Batch, place: Place, query: NDArray[np.int64]) -> NDArray[np.int64]:
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

    def _learn_groups(self, item: NDArray[np.int64], batch: Batch, place: Place) -> None:
        if "group" not in batch:
            return
        labels = columns.labels(batch["group"], "group", place)
        code = self.labels.encode(labels, place)
        if self.group_names is not None:
            allowed = np.array([*(name in self.group_names for name in self.labels.codes), True])
            if not allowed[code].all():
                index = int(np.argmin(allowed[code]))
                problem = f"unknown group; expected one of: {', '.join(self.group_names)}"
                raise place.error(problem, index, "group", labels[index].as_py())
        self.item_group.learn(item, code, place)

    def _learn_features(
        self, item: NDArray[np.int64], batch: Batch, place: Place, names: Sequence[str]
    ) -> None:
        if names:
            table = columns.feature_table({name: batch[name] for name in names}, item.size, place)
            self.item_features.learn(item, table, place)

    def build(self, dataset: Mapping[str, Any] | None = None, **fields: Any) -> ClickLog:
        """Make the log, with the given fields of `ClickLog` and of its dataset that are no columns."""
        rows = _joined(self.candidates)
        if not rows or not rows["row"].size:
            raise InputError("the log has no rows", file=self.file)
        if not rows["click"].any():
            problem = "the log has no clicks, so nothing can be learned or measured from it"
            raise InputError(problem, file=self.file, column="click")
        planted = _joined(self.planted) or {name: column[:0] for name, column in rows.items()}
        _refuse_repeated_positions(rows, planted, self.file)
        grouped = self._grouped(rows)
        numbers = np.arange(len(self.impressions))
        return ClickLog(
            data=self._dataset(rows, grouped, dataset or {}),
            lists=grouped.lists,
            position=rows["position"][grouped.entry],
            click=rows["click"][grouped.entry],
            propensity=rows["propensity"][grouped.entry] if "propensity" in rows else None,
            planted=Planted(
                impression=planted["impression"],
                position=planted["position"],
                click=planted["click"],
                propensity=planted.get("propensity"),
            ),
            impression_id=self._values(self.impressions),
            timestamp=self.time_of_impression.of(numbers) if self.time_of_impression else None,
            **fields,
        )

    def _values(self, coder: Coder) -> Ids:
        return coder.ids(whole_if_possible=self.text_ids and coder.column not in self.keep_text)

    def _grouped(self, rows: Rows) -> _Grouped:
        """Group rows by impression, and impressions by the candidates they had, in whatever order."""
        impression, item = rows["impression"], rows["item"]
        lengths = np.bincount(impression, minlength=len(self.impressions))
        if not lengths.all():
            lonely = list(self.impressions.codes)[int(np.argmin(lengths))]
            problem = "the impression has planted items only, and no candidate"
            raise InputError(problem, file=self.file, column="impression_id", value=lonely)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        in_order = bool(np.all(impression[1:] >= impression[:-1]))
        by_file = np.arange(impression.size) if in_order else np.argsort(impression, kind="stable")
        rank = order_within(item[by_file], offsets)
        by_item = by_file[rank]
        _refuse_repeated_documents(rows, by_item, self)
        lists, representative = group_equal_lists(item[by_item], offsets)
        # a list holds its candidates in the order of the first impression that shows it
        list_offsets = np.concatenate([[0], np.cumsum(lengths[representative])])
        place_by_item = np.empty(impression.size, dtype=np.int64)
        place_by_item[rank] = np.arange(impression.size)
        first = rows_of(offsets, representative)
        within = place_by_item[first] - np.repeat(offsets[representative], lengths[representative])
        entry = by_item[np.repeat(offsets[:-1], lengths) + within[rows_of(list_offsets, lists)]]
        return _Grouped(lists, list_offsets, by_file[first], entry)

    def _dataset(self, rows: Rows, grouped: _Grouped, fields: Mapping[str, Any]) -> RankingDataset:
        item, query = rows["item"][grouped.row_of_item], rows["query"][grouped.row_of_item]
        document = np.fromiter(self.items.codes, dtype=np.int64, count=len(self.items))[item] & DOCUMENT_BITS
        names = self.group_names
        if names is None:
            names = tuple(sorted(self.labels.codes))
        recode = np.array([*(names.index(name) for name in self.labels.codes), UNKNOWN_GROUP])
        group = recode[self.item_group.of(item)] if self.item_group else None
        features = self.item_features.of(item) if self.item_features else np.empty((item.size, 0), np.float32)
        return RankingDataset(
            features=features,
            offsets=grouped.list_offsets,
            group=group,
            group_names=names,
            query_id=self._values(self.queries)[query[grouped.list_offsets[:-1]]],
            doc_id=self._values(self.documents)[document],
            **fields,
        )


@dataclass(frozen=True)
class _Grouped:
    """The list of each impression, the rows of the table that make up the lists, and those of the entries."""

    lists: NDArray[np.int64]
    list_offsets: NDArray[np.int64]
    row_of_item: NDArray[np.int64]
    entry: NDArray[np.int64]


def _pairs(query: NDArray[np.int64], document: NDArray[np.int64]) -> pa.Array:
    return pa.array((query << DOCUMENT_BITS.bit_length()) | (document & DOCUMENT_BITS))


def _joined(parts: list[Rows]) -> Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _refuse_repeated_documents(rows: Rows, by_item: NDArray[np.int64], builder: LogBuilder) -> None:
    item, impression = rows["item"][by_item], rows["impression"][by_item]
    repeated = np.flatnonzero((np.diff(item) == 0) & (np.diff(impression) == 0))
    if repeated.size:
        first, second = np.sort(rows["row"][by_item[repeated[0] : repeated[0] + 2]])
        code = list(builder.items.codes)[item[repeated[0]]] & DOCUMENT_BITS
        document = list(builder.documents.codes)[code]
        problem = f"the document stands in row {first} of the same impression already"
        raise InputError(problem, file=builder.file, row=second, column="doc_id", value=document)


def _refuse_repeated_positions(candidates: Rows, planted: Rows, file: Path | None) -> None:
    impression = np.concatenate([candidates["impression"], planted["impression"]])
    position = np.concatenate([candidates["position"], planted["position"]])
    row = np.concatenate([candidates["row"], planted["row"]])
    order = np.argsort(impression, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(impression))])
    nothing = np.empty(0, dtype=np.int64)
    repeated = first_repeated(position[order], offsets, nothing, nothing.astype(np.int32))
    if repeated >= 0:
        entry = order[repeated]
        same = (impression == impression[entry]) & (position == position[entry])
        first, second = np.sort(row[same])[:2]
        problem = f"the position is taken in row {first} of the same impression already"
        raise InputError(problem, file=file, row=second, column="position", value=position[entry])
