"""Labelled tables that others made: rows in any order, columns of any type, with no metadata of ours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fultr.data import columns
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Place, require_columns
from fultr.data.dataset import RankingDataset
from fultr.data.grouping import first_repeat
from fultr.data.id_codes import IdCodes, encode_ids
from fultr.data.ids import TEXT, UNKNOWN_GROUP, document_twice, order_of_appearance
from fultr.data.table_files import Batch, Table
from fultr.data.tally import Columns
from fultr.errors import InputError

KIND = "dataset"
ID_COLUMNS = ("query_id", "doc_id", "comment")
OTHER_COLUMNS = (*ID_COLUMNS, "list", "group")


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
    wanted = [name for name in (*OTHER_COLUMNS, label) if name in names]
    codes = {name: IdCodes(may_be_integers=table.is_text) for name in ("query_id", "list", "doc_id", "group")}
    place, batches = Place(), []
    for batch, place in table.batches([*wanted, *features]):
        batches.append(_checked(batch, place, codes, label, features))
    if not batches:
        raise InputError("has no rows", file=table.file)
    if len({checked["features"].shape[1] for checked in batches}) > 1:
        raise InputError("the number of features differs between rows", file=table.file, column=LIST_COLUMN)
    rows = {name: np.concatenate([checked[name] for checked in batches]) for name in batches[0]}
    del batches
    list_of_row, first = order_of_appearance(rows.get("list", rows["query_id"]))
    _check_lists(rows, list_of_row, first[list_of_row], codes["doc_id"], replace(place, numbers=rows["row"]))
    order = np.argsort(list_of_row, kind="stable")
    labels = codes["group"].texts.to_list()
    recode = np.array([*map(sorted(labels).index, labels), UNKNOWN_GROUP], dtype=np.int32)
    prefixed = all(name.startswith(FEATURE_PREFIX) for name in features)
    try:
        return RankingDataset(
            rows["features"][order],
            np.concatenate([[0], np.cumsum(np.bincount(list_of_row))]),
            group=recode[rows["group"][order]] if "group" in rows else None,
            group_names=sorted(labels),
            relevance=rows["relevance"][order],
            query_id=codes["query_id"].ids(rows["query_id"][first]),
            doc_id=codes["doc_id"].ids(rows["doc_id"][order]) if "doc_id" in rows else None,
            feature_names=()
            if features == [LIST_COLUMN]
            else [name.removeprefix(FEATURE_PREFIX if prefixed else "") for name in features],
            comment=rows["comment"][order] if "comment" in rows else None,
        )
    except InputError as error:
        raise error.located(table.file or "table") from None


def _feature_columns(table: Table, label: str) -> list[str]:
    if LIST_COLUMN in table.schema.names:
        return [LIST_COLUMN]
    others = [field for field in table.own_fields if field.name not in (*OTHER_COLUMNS, label)]
    for field in others:
        if not table.is_text and not columns.is_number(field.type):
            problem = f"a feature must be a number, not {field.type}; leave the column out or encode it"
            raise InputError(problem, file=table.file, column=field.name)
    if not others:
        problem = "the column is missing, and there is no other column of numbers to use as a feature"
        raise InputError(problem, file=table.file, column=LIST_COLUMN)
    return [field.name for field in others]


def _checked(
    batch: Batch, place: Place, codes: dict[str, IdCodes], label: str, features: list[str]
) -> Columns:
    """Return the rows of a batch, with codes for ids and groups."""
    rows: Columns = {}
    for name in ("query_id", "list", "doc_id"):
        if name in batch:
            rows[name] = encode_ids(codes[name], columns.ids(batch[name], name, place), name, place)
    if "group" in batch:
        labels = columns.labels(batch["group"], "group", place)
        rows["group"] = codes["group"].encode(pl.Series(pl.from_arrow(labels)))
    if "comment" in batch:
        comment = columns.labels(batch["comment"], "comment", place).fill_null("")
        rows["comment"] = comment.to_numpy(zero_copy_only=False).astype(TEXT)
    relevance = columns.numbers(batch[label], label, place)
    with np.errstate(over="ignore"):
        rows["relevance"] = relevance.astype(np.float32)
    wrong = ~(np.isfinite(rows["relevance"]) & (relevance >= 0))
    place.check(wrong, "must be finite and 0 or more", label, relevance)
    table = {name: batch[name] for name in features}
    rows["features"] = columns.feature_table(table, relevance.size, place)
    rows["row"] = place.rows(relevance.size)
    return rows


def _check_lists(
    rows: Columns, list_of_row: NDArray[np.int64], first: NDArray[np.int64], documents: IdCodes, place: Place
) -> None:
    """Refuse a list of two queries, or with a document twice; `first` is the first row of each one's list."""
    differs = np.flatnonzero(rows["query_id"] != rows["query_id"][first])
    if differs.size:
        row = place.shown(rows["row"][first[differs[0]]])
        raise place.error(f"the list has another query in row {row}", differs[0], "query_id")
    repeat = first_repeat(list_of_row, rows["doc_id"]) if "doc_id" in rows else None
    if repeat is not None:
        first_row, second_row = (place.shown(rows["row"][index]) for index in repeat)
        document = documents.ids(rows["doc_id"])[repeat[1]]
        error = document_twice(first_row, second_row, "list", document)
        raise error if place.file is None else error.located(place.file)
