"""Labelled tables that others made: rows in any order, columns of any type, with no metadata of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data import columns
from fultr.data.coding import Coder
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Place, require_columns
from fultr.data.dataset import RankingDataset
from fultr.data.ids import TEXT, UNKNOWN_GROUP, document_twice, first_repeat
from fultr.data.table_files import Table
from fultr.errors import InputError

KIND = "dataset"
ID_COLUMNS = ("query_id", "doc_id", "comment")


def labelled_dataset(table: Table) -> RankingDataset:
    """Make a dataset of a table that is not ours."""
    if table.metadata.get("kind", KIND) != KIND:
        raise InputError(f"holds no dataset; it was written as {table.metadata['kind']}", file=table.file)
    names = table.schema.names
    if "relevance" not in names and "label" not in names and {"impression_id", "click"} <= set(names):
        problem = "looks like a click log, not like labelled data; logs are .parquet or .csv, for read_log"
        raise InputError(problem, file=table.file)
    label = "label" if "label" in names and "relevance" not in names else "relevance"
    require_columns(names, ("query_id", label), table.file)
    features = _feature_columns(table, label)
    wanted = [name for name in ("query_id", "doc_id", "list", "group", "comment", label) if name in names]
    rows = _Labelled(label, features, text_ids=table.is_text)
    for batch, place in table.batches([*wanted, *features]):
        rows.add(batch, place)
    return rows.dataset(table.file)


def _feature_columns(table: Table, label: str) -> list[str]:
    if LIST_COLUMN in table.schema.names:
        return [LIST_COLUMN]
    others = [field for field in table.own_fields if field.name not in (*ID_COLUMNS, "list", "group", label)]
    for field in others:
        if not table.is_text and not columns.is_number(field.type):
            problem = f"a feature must be a number, not {field.type}; leave the column out or encode it"
            raise InputError(problem, file=table.file, column=field.name)
    if not others:
        problem = "the column is missing, and there is no other column of numbers to use as a feature"
        raise InputError(problem, file=table.file, column=LIST_COLUMN)
    return [field.name for field in others]


class _Labelled:
    """The rows of a labelled table, batch by batch."""

    def __init__(self, label: str, features: list[str], *, text_ids: bool) -> None:
        self.label = label
        self.features = features
        self.text_ids = text_ids
        self.coders = {name: Coder(name) for name in ("query_id", "list", "doc_id", "group")}
        self.parts: dict[str, list[NDArray[Any]]] = {}
        self.place = Place()

    def add(self, batch: dict[str, pa.Array], place: Place) -> None:
        """Take the rows of a batch."""
        self.place = place
        found: dict[str, NDArray[Any]] = {}
        for name in ("query_id", "list", "doc_id"):
            if name in batch:
                found[name] = self.coders[name].encode(columns.ids(batch[name], name, place), place)
        if "group" in batch:
            found["group"] = self.coders["group"].encode(
                columns.encoded_labels(batch["group"], "group", place), place
            )
        if "comment" in batch:
            comment = columns.labels(batch["comment"], "comment", place).fill_null("")
            found["comment"] = comment.to_numpy(zero_copy_only=False).astype(TEXT)
        relevance = columns.numbers(batch[self.label], self.label, place)
        with np.errstate(over="ignore"):
            found["relevance"] = relevance.astype(np.float32)
        wrong = ~(np.isfinite(found["relevance"]) & (relevance >= 0))
        if wrong.any():
            index = int(np.argmax(wrong))
            raise place.error("must be finite and 0 or more", index, self.label, relevance[index])
        table = {name: batch[name] for name in self.features}
        found["features"] = columns.feature_table(table, relevance.size, place)
        found["row"] = place.rows(relevance.size)
        for name, values in found.items():
            self.parts.setdefault(name, []).append(values)

    def dataset(self, file: Path | None) -> RankingDataset:
        """Bring the rows of each list together and make the dataset."""
        if not self.parts:
            raise InputError("has no rows", file=file)
        for part in self.parts["features"]:
            if part.shape[1] != self.parts["features"][0].shape[1]:
                raise InputError("the number of features differs between rows", file=file, column=LIST_COLUMN)
        rows = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        where = rows.get("list", rows["query_id"])
        self._check_lists(rows, where)
        order = np.argsort(where, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(where))])
        rows = {name: values[order] for name, values in rows.items()}
        query = self.coders["query_id"].ids(whole_if_possible=self.text_ids)
        document = self.coders["doc_id"].ids(whole_if_possible=self.text_ids)
        labels = self.coders["group"].texts()
        names = sorted(labels)
        recode = np.array([*map(names.index, labels), UNKNOWN_GROUP], dtype=np.int32)
        try:
            return RankingDataset(
                rows["features"],
                offsets,
                group=recode[rows["group"]] if "group" in rows else None,
                group_names=names,
                relevance=rows["relevance"],
                query_id=query[rows["query_id"][offsets[:-1]]],
                doc_id=document[rows["doc_id"]] if "doc_id" in rows else None,
                feature_names=() if self.features == [LIST_COLUMN] else _without_prefix(self.features),
                comment=rows.get("comment"),
            )
        except InputError as error:
            raise error.located(file or "table") from None

    def _check_lists(self, rows: dict[str, NDArray[Any]], where: NDArray[Any]) -> None:
        """Refuse a list of two queries, or with a document twice, naming the rows of the table."""
        place = replace(self.place, numbers=rows["row"])
        _, first, inverse = np.unique(where, return_index=True, return_inverse=True)
        differs = rows["query_id"] != rows["query_id"][first[inverse]]
        if differs.any():
            index = int(np.argmax(differs))
            row = place.shown(rows["row"][first[inverse[index]]])
            raise place.error(f"the list has another query in row {row}", index, "query_id")
        repeat = first_repeat(where, rows["doc_id"]) if "doc_id" in rows else None
        if repeat is not None:
            first_row, second_row = (place.shown(rows["row"][index]) for index in repeat)
            document = self.coders["doc_id"].value(int(rows["doc_id"][repeat[1]]))
            error = document_twice(first_row, second_row, "list", document)
            raise error if place.file is None else error.located(place.file)


def _without_prefix(names: list[str]) -> list[str]:
    if all(name.startswith(FEATURE_PREFIX) for name in names):
        return [name.removeprefix(FEATURE_PREFIX) for name in names]
    return names
