"""Labelled data as one file: our own Arrow and Parquet files, and the tables that others make.

Both hold a row for each item with the columns `query_id`, `doc_id`, `list`, `relevance`, `group` and
`comment` (those that the data has), and its features. An Arrow file holds these as one list column read in
place, without a copy, at the speed of the disk. A Parquet file is smaller and holds a column for each
feature, which every tool can read, and which loads faster than a list column does. All else stands as JSON
in the metadata of the schema. Tables of others have rows in any order and columns of any type.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.data import columns
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Place, check_unique_names, require_columns
from fultr.data.dataset import NOT_COLUMNS, RankingDataset
from fultr.data.grouping import first_repeat
from fultr.data.ids import TEXT, UNKNOWN_GROUP, IdCodes, Ids, document_twice, encode_ids, order_of_appearance
from fultr.data.table_files import (
    FORMAT_VERSION,
    METADATA_KEY,
    UNREADABLE,
    Batch,
    Table,
    damaged,
    open_table,
    read_arrow,
    schema_metadata,
    table_of,
)
from fultr.data.tally import Columns
from fultr.errors import InputError
from fultr.files import atomic_write, existing_file

KIND = "dataset"
ID_COLUMNS = ("query_id", "doc_id", "comment")
OTHER_COLUMNS = (*ID_COLUMNS, "list", "group")
ROWS_A_GROUP = 1 << 16


def write_dataset(data: RankingDataset, path: str | Path) -> None:
    """Write a dataset to one .arrow or .parquet file, from which `read_dataset` makes the same dataset."""
    ending = Path(path).suffix.lower()
    if ending not in (".arrow", ".parquet"):
        problem = "a dataset is written to a file that ends in .arrow or .parquet (LETOR text: write_letor)"
        raise InputError(problem, file=path)
    with atomic_write(path) as temporary:
        (_write_arrow if ending == ".arrow" else _write_parquet)(data, temporary)


def read_dataset(path: str | Path, *, progress: Progress | None = None) -> RankingDataset:
    """Read a dataset from a file of `write_dataset`, or from a labelled table of your own.

    A table of your own (.parquet, .arrow or .csv) has the columns `query_id` and `relevance` (or `label`),
    features as one list column `features` or as all other columns, which must then be numbers, and if
    known `doc_id`, `group` (missing where unknown), `comment`, and `list` where a query has several.

    The features of an Arrow file of ours stay on disk and are read when they are used: do not change the
    file in place meanwhile (`write_dataset` never does, it puts a new file in its place).

    `progress` is called with how much has been read, and with the size; an Arrow file takes no time to read.
    """
    file = existing_file(path)
    ending = file.suffix.lower()
    if ending == ".arrow":
        return _read_arrow(file)
    if ending == ".parquet":
        return _read_parquet(file, progress)
    if ending == ".csv":
        return labelled_dataset(open_table(file, progress))
    problem = "a dataset is read from a .arrow, .parquet or .csv file (LETOR text: read_letor)"
    raise InputError(problem, file=file)


def _write_arrow(data: RankingDataset, path: Path) -> None:
    table = _item_columns(data)
    width = data.features.shape[1]
    if width:
        values = pa.array(np.ascontiguousarray(data.features).reshape(-1))
        table[LIST_COLUMN] = pa.FixedSizeListArray.from_arrays(values, width)
    # a single batch: only then can the features be used as one array where they stand
    batch = pa.record_batch(table).replace_schema_metadata(_metadata(data))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _write_parquet(data: RankingDataset, path: Path) -> None:
    names = [FEATURE_PREFIX + name for name in data.feature_names]
    items = pa.table(_item_columns(data))
    schema = pa.schema([*items.schema, *((name, pa.float32()) for name in names)], metadata=_metadata(data))
    # numbers repeat so often that their dictionaries are small: compressing them too gains little space and
    # makes reading slower by half
    compression = {name: "zstd" for name in ID_COLUMNS if name in items.column_names}
    with parquet.ParquetWriter(path, schema, compression=compression) as writer:
        for start in range(0, data.rows, ROWS_A_GROUP):
            part = {name: items[name].slice(start, ROWS_A_GROUP) for name in items.column_names}
            features = np.ascontiguousarray(data.features[start : start + ROWS_A_GROUP].T)
            part |= {name: pa.array(values) for name, values in zip(names, features, strict=True)}
            writer.write_table(pa.table(part, schema=schema), row_group_size=ROWS_A_GROUP)


def _metadata(data: RankingDataset) -> dict[bytes, bytes]:
    content = {name: getattr(data, name) for name in NOT_COLUMNS}
    content |= {"version": FORMAT_VERSION, "kind": KIND, "has_query_ids": data.query_id is not None}
    return {METADATA_KEY: json.dumps(content).encode()}


def _item_columns(data: RankingDataset) -> dict[str, pa.Array]:
    """Return all columns but the features; those that the data does not have are left out."""
    list_of_row = pa.array(data.list_of_row)
    table: dict[str, pa.Array] = {}
    if data.query_id is not None:
        table["query_id"] = columns.arrow_ids(data.query_id).take(list_of_row)
    if data.doc_id is not None:
        table["doc_id"] = columns.arrow_ids(data.doc_id)
    table["list"] = list_of_row
    if data.relevance is not None:
        table["relevance"] = pa.array(data.relevance)
    if data.group_names:
        codes = pa.array(data.group, mask=data.group == UNKNOWN_GROUP)
        names = pa.array(data.group_names, type=pa.string())
        table["group"] = pa.DictionaryArray.from_arrays(codes, names)
    if data.comment is not None:
        table["comment"] = columns.arrow_ids(data.comment)
    return table


def _read_arrow(file: Path) -> RankingDataset:
    table = read_arrow(file)
    about = schema_metadata(table.schema, file)
    if not about:
        return labelled_dataset(table_of(table, file))
    _check_metadata(about, table.schema, file)
    features = np.empty((table.num_rows, 0), dtype=np.float32)
    if about["feature_names"]:
        require_columns(table.column_names, [LIST_COLUMN], file)
        features = _in_place(table[LIST_COLUMN], Place(file))
    return _own_dataset(table, features, about, file)


def _in_place(column: pa.ChunkedArray, place: Place) -> NDArray[np.float32]:
    """Return lists of features where they stand; copy or refuse what we would not have written."""
    kind = column.type
    ours = pa.types.is_fixed_size_list(kind) and kind.value_type == pa.float32() and column.num_chunks == 1
    if ours and not column.null_count and not column.chunk(0).values.null_count:
        flat = column.chunk(0).flatten().to_numpy(zero_copy_only=True)
        return np.asarray(flat.reshape(len(column), kind.list_size))
    return columns.feature_table({LIST_COLUMN: column}, len(column), place)


def _read_parquet(file: Path, progress: Progress | None) -> RankingDataset:
    try:
        with parquet.ParquetFile(file, memory_map=True) as opened:
            schema = opened.schema_arrow
            about = schema_metadata(schema, file)
            if not about:
                return labelled_dataset(open_table(file, progress))
            _check_metadata(about, schema, file)
            names = [FEATURE_PREFIX + name for name in about["feature_names"]]
            require_columns(schema.names, names, file)
            features = np.empty((opened.metadata.num_rows, len(names)), dtype=np.float32)
            items, start = [], 0
            for batch in opened.iter_batches(ROWS_A_GROUP, use_threads=False):
                _fill(features[start : start + batch.num_rows], batch, names, Place(file, start + 1))
                items.append(pa.table(batch).drop_columns(names))
                start += batch.num_rows
                if progress is not None:
                    progress(start, features.shape[0])
        table = pa.concat_tables(items) if items else schema.empty_table()
        table.validate(full=True)
    except InputError:
        raise
    except UNREADABLE as error:
        raise damaged(file, "Parquet", error) from None
    return _own_dataset(table, features, about, file)


def _fill(features: NDArray[np.float32], batch: pa.RecordBatch, names: list[str], place: Place) -> None:
    for column, name in enumerate(names):
        values = batch.column(name)
        if values.type != pa.float32() or values.null_count:
            values = pa.array(columns.numbers(values, name, place), type=pa.float64())
        features[:, column] = values.to_numpy(zero_copy_only=False)


def _own_dataset(
    table: pa.Table, features: NDArray[np.float32], about: dict[str, Any], file: Path
) -> RankingDataset:
    place = Place(file)
    present = [name for name in table.column_names if name != "group" or about["group_names"]]
    needed = ["list", *["query_id"][: about["has_query_ids"]], *["group"][: len(about["group_names"])]]
    require_columns(present, needed, file)
    starts = _starts(table["list"], place)
    fields: dict[str, Any] = {
        name: _numpy_ids(table[name], name, place) for name in ID_COLUMNS if name in present
    }
    fields["query_id"] = fields["query_id"][starts] if about["has_query_ids"] else None
    if "relevance" in present:
        fields["relevance"] = columns.numbers(table["relevance"], "relevance", place)
    if "group" in present:
        fields["group"] = _group_codes(table["group"], about["group_names"], place)
    fields |= {name: about[name] for name in NOT_COLUMNS}
    try:
        return RankingDataset(features, np.append(starts, table.num_rows), **fields)
    except InputError as error:
        raise error.located(file) from None


def _check_metadata(about: dict[str, Any], schema: pa.Schema, file: Path) -> None:
    """Refuse metadata that we cannot have written: a file may come from anywhere."""
    kind = about.get("kind")
    if kind != KIND:
        raise InputError(f"holds no dataset; it was written as {kind}", file=file)

    def are(name: str, of: type) -> bool:
        values = about.get(name)
        return isinstance(values, list) and all(type(value) is of for value in values)

    good = are("feature_names", str) and are("group_names", str) and are("group_columns", int)
    if not good or type(about.get("source")) is not str or type(about.get("has_query_ids")) is not bool:
        raise InputError("its fultr metadata is damaged", file=file)
    check_unique_names(schema.names, file)


def _starts(column: pa.ChunkedArray, place: Place) -> NDArray[np.int64]:
    """Return the first row of each list."""
    lists = columns.plain(column)
    if lists.type != pa.int64() or lists.null_count:
        raise place.error("lists must be whole numbers, none missing", 0, "list")
    steps = np.diff(lists.to_numpy(), prepend=-1)
    wrong = (steps < 0) | (steps > 1)
    wrong[:1] |= steps[:1] != 1
    problem = "lists must be numbered 0, 1, ... and their rows stand together"
    place.check(wrong, problem, "list", lists)
    return np.flatnonzero(steps)


def _numpy_ids(column: pa.ChunkedArray, name: str, place: Place) -> Ids:
    array = columns.plain(column)
    if array.null_count or not (columns.is_text(array.type) or array.type == pa.int64()):
        array = columns.ids(array, name, place)  # says what is wrong
    values: Ids = array.to_numpy(zero_copy_only=False)
    return values.astype(TEXT) if columns.is_text(array.type) else values


def _group_codes(column: pa.ChunkedArray, names: list[str], place: Place) -> NDArray[np.int32]:
    labels = columns.labels(column, "group", place)
    codes = pc.index_in(labels, value_set=pa.array(names, type=labels.type))
    unknown = pc.and_(pc.is_null(codes), pc.is_valid(labels))
    problem = f"unknown group; expected one of: {', '.join(names)}"
    place.check(unknown, problem, "group", labels)
    return np.asarray(codes.fill_null(UNKNOWN_GROUP), dtype=np.int32)


def labelled_dataset(table: Table) -> RankingDataset:
    """Make a dataset of a table that is not ours."""
    if table.metadata.get("kind", KIND) != KIND:
        raise InputError(f"holds no dataset; it was written as {table.metadata['kind']}", file=table.file)
    names = table.schema.names
    if "relevance" not in names and "label" not in names and {"impression_id", "click"} <= set(names):
        problem = "looks like a click log, not like labelled data; logs are .parquet or .csv, for read_log"
        raise InputError(problem, file=table.file)
    label = label_of(table) or "relevance"
    require_columns(names, ("query_id", label), table.file)
    return lists_of(table, _feature_columns(table, label), label)[0]


def label_of(table: Table) -> str | None:
    """Return the column with the relevance of rows, if there is one."""
    return next((name for name in ("relevance", "label") if name in table.schema.names), None)


def lists_of(
    table: Table, features: list[str], label: str | None
) -> tuple[RankingDataset, NDArray[np.int64]]:
    """Return the rows of a table as lists, and the index in the table of each row of the lists.

    Its columns `list`, `query_id`, `doc_id`, `group`, `comment` and the one with the relevance, `label`, are
    read if there are any. Rows of a query are one list; without queries, all rows are. `features` are columns
    of numbers, or one list column.
    """
    names = table.schema.names
    wanted = [name for name in (*OTHER_COLUMNS, *([label] if label else ())) if name in names]
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
    one_list = np.zeros(rows["row"].size, dtype=np.int64)
    list_of_row, first = order_of_appearance(rows.get("list", rows.get("query_id", one_list)))
    _check_lists(rows, list_of_row, first[list_of_row], codes["doc_id"], replace(place, numbers=rows["row"]))
    order = np.argsort(list_of_row, kind="stable")
    labels = codes["group"].texts.to_list()
    recode = np.array([*map(sorted(labels).index, labels), UNKNOWN_GROUP], dtype=np.int32)
    prefixed = all(name.startswith(FEATURE_PREFIX) for name in features)
    try:
        data = RankingDataset(
            rows["features"][order],
            np.concatenate([[0], np.cumsum(np.bincount(list_of_row))]),
            group=recode[rows["group"][order]] if "group" in rows else None,
            group_names=sorted(labels),
            relevance=rows["relevance"][order] if "relevance" in rows else None,
            query_id=codes["query_id"].ids(rows["query_id"][first]) if "query_id" in rows else None,
            doc_id=codes["doc_id"].ids(rows["doc_id"][order]) if "doc_id" in rows else None,
            feature_names=()
            if features == [LIST_COLUMN]
            else [name.removeprefix(FEATURE_PREFIX if prefixed else "") for name in features],
            comment=rows["comment"][order] if "comment" in rows else None,
        )
    except InputError as error:
        raise error if table.file is None else error.located(table.file) from None
    return data, order


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
    batch: Batch, place: Place, codes: dict[str, IdCodes], label: str | None, features: list[str]
) -> Columns:
    """Return the rows of a batch, with codes for ids and groups."""
    size = len(next(iter(batch.values())))
    rows: Columns = {"row": place.rows(size)}
    for name in ("query_id", "list", "doc_id"):
        if name in batch:
            rows[name] = encode_ids(codes[name], columns.ids(batch[name], name, place), name, place)
    if "group" in batch:
        labels = columns.labels(batch["group"], "group", place)
        rows["group"] = codes["group"].encode(pl.Series(pl.from_arrow(labels)))
    if "comment" in batch:
        comment = columns.labels(batch["comment"], "comment", place).fill_null("")
        rows["comment"] = comment.to_numpy(zero_copy_only=False).astype(TEXT)
    if label is not None:
        relevance = columns.numbers(batch[label], label, place)
        with np.errstate(over="ignore"):
            rows["relevance"] = relevance.astype(np.float32)
        wrong = ~(np.isfinite(rows["relevance"]) & (relevance >= 0))
        place.check(wrong, "must be finite and 0 or more", label, relevance)
    rows["features"] = columns.feature_table({name: batch[name] for name in features}, size, place)
    return rows


def _check_lists(
    rows: Columns, list_of_row: NDArray[np.int64], first: NDArray[np.int64], documents: IdCodes, place: Place
) -> None:
    """Refuse a list of two queries, or with a document twice; `first` is the first row of each one's list."""
    query = rows.get("query_id", list_of_row)
    differs = np.flatnonzero(query != query[first])
    if differs.size:
        row = place.shown(rows["row"][first[differs[0]]])
        raise place.error(f"the list has another query in row {row}", differs[0], "query_id")
    repeat = first_repeat(list_of_row, rows["doc_id"]) if "doc_id" in rows else None
    if repeat is not None:
        first_row, second_row = (place.shown(rows["row"][index]) for index in repeat)
        document = documents.ids(rows["doc_id"])[repeat[1]]
        error = document_twice(first_row, second_row, "list", document)
        raise error if place.file is None else error.located(place.file)
