"""Labelled data as one file: our own Arrow and Parquet files, and the tables that others make.

Both hold a row for each item with the columns `query_id`, `doc_id`, `list`, `relevance`, `group` and
`comment` (those that the data has), and its features. An Arrow file holds these as one list column read in
place, without a copy, at the speed of the disk. A Parquet file is smaller and holds a column for each
feature, which every tool can read, and which loads faster than a list column does. All else stands as JSON
in the metadata of the schema. Tables of others have rows in any order and columns of any type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import Progress, names_of
from fultr.data import columns
from fultr.data.categories import RawFeatures, with_categories
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Location, require_columns
from fultr.data.dataset import NOT_COLUMNS, RankingDataset
from fultr.data.frames import feature_columns, id_series, item_columns
from fultr.data.grouping import first_repeat, run_numbers
from fultr.data.ids import (
    UNKNOWN_GROUP,
    IdCodes,
    Ids,
    as_integers,
    as_text,
    codes_of,
    document_twice,
    rows_in_lists,
)
from fultr.data.metadata import plain_fields, read_fields
from fultr.data.table_files import (
    Batch,
    Table,
    arrow_table,
    open_table,
    read_arrow,
    write_table,
)
from fultr.data.tally import Columns, joined
from fultr.errors import InputError
from fultr.files import atomic_write, existing_file

KIND = "dataset"
ID_COLUMNS = ("query_id", "doc_id", "comment")
OTHER_COLUMNS = (*ID_COLUMNS, "list", "group")
ROWS_A_GROUP = 1 << 16
"""Rows of a row group of a Parquet file."""


def write_dataset(data: RankingDataset, path: str | Path) -> None:
    """Write a dataset to one .arrow or .parquet file, from which `read_dataset` makes the same dataset."""
    ending = Path(path).suffix.lower()
    if ending not in (".arrow", ".parquet"):
        problem = "a dataset is written to a file that ends in .arrow or .parquet (LETOR text: write_letor)"
        raise InputError(problem, file=path)
    in_lists = ending == ".arrow"
    items, form = _items(data), "list" if in_lists else "columns"
    # a single batch: only then can the features of an Arrow file be used as one array where they stand
    step = max(data.rows, 1) if in_lists else ROWS_A_GROUP

    def table_of_rows(rows: slice) -> pa.Table:
        features = feature_columns(data, data.features[rows], form) if data.feature_names else {}
        return arrow_table(items[rows].with_columns(**features))

    tables = (table_of_rows(slice(start, start + step)) for start in range(0, max(data.rows, 1), step))
    # numbers repeat so often that their dictionaries are small: compressing them too gains little space and
    # makes reading slower by half
    compression = {name: "zstd" for name in ID_COLUMNS if name in items.columns}
    metadata = {"kind": KIND, **plain_fields(data, NOT_COLUMNS)}
    with atomic_write(path) as temporary:
        schema = table_of_rows(slice(0)).schema
        write_table(temporary, schema, metadata, tables, as_arrow=in_lists, compression=compression)


def read_dataset(
    path: str | Path,
    *,
    categories: Sequence[str] = (),
    keep_missing: bool = False,
    progress: Progress | None = None,
) -> RankingDataset:
    """Read a dataset from a file of `write_dataset`, or from a labelled table of your own.

    A table of your own (.parquet, .arrow or .csv) has the columns `query_id` and `relevance` (or `label`),
    features as one list column `features` or as all other columns, which must then be numbers, and if
    known `doc_id`, `group` (missing where unknown), `comment`, and `list` where a query has several.
    Features in the columns `categories` are categories and no numbers. Missing ones are an error, unless they
    are to be kept for a policy to fill in (`keep_missing`).

    The features of an Arrow file of ours stay on disk and are read when they are used: do not change the
    file in place meanwhile (`write_dataset` never does, it puts a new file in its place).

    `progress` is called with how much has been read, and with the size; an Arrow file takes no time to read.
    """
    file = existing_file(path)
    if file.suffix.lower() not in (".arrow", ".parquet", ".csv"):
        problem = "a dataset is read from a .arrow, .parquet or .csv file (LETOR text: read_letor)"
        raise InputError(problem, file=file)
    table = open_table(file, progress)
    if not table.metadata:
        return labelled_dataset(table, categories, keep_missing=keep_missing)
    if table.metadata.get("kind") != KIND:
        raise InputError(f"holds no dataset; it was written as {table.metadata.get('kind')}", file=file)
    about = read_fields(table.metadata, NOT_COLUMNS, file)
    in_lists = file.suffix.lower() == ".arrow"
    features = [FEATURE_PREFIX + name for name in about["feature_names"]]
    features = features[:1] and [LIST_COLUMN] if in_lists else features
    require_columns(table.schema.names, ["list", *["group"][: len(about["group_names"])], *features], file)
    held = _in_place(read_arrow(file)[LIST_COLUMN]) if in_lists and features else None
    of_categories = [] if in_lists else [FEATURE_PREFIX + name for name in about["category_names"]]
    raw = RawFeatures(of_categories, allows_missing=about["allows_missing"])
    return lists_of(table, features, label_of(table), about, held, raw)[0]


def _items(data: RankingDataset) -> pl.DataFrame:
    """Return all columns but the features; those that the data does not have are left out."""
    rows = np.arange(data.rows)
    frame = pl.DataFrame({"list": data.list_of_row, **item_columns(data, rows)})
    if data.group_names:
        frame = frame.cast({"group": pl.Enum(data.group_names)})
    if data.relevance is not None:
        frame = frame.with_columns(relevance=pl.Series(data.relevance))
    if data.comment is not None:
        frame = frame.with_columns(comment=id_series(data.comment, rows))
    return frame


def _in_place(column: pa.ChunkedArray) -> NDArray[np.float32] | None:
    """Return lists of features where they stand; None if fultr would not have written them so."""
    kind = column.type
    if not pa.types.is_fixed_size_list(kind) or kind.value_type != pa.float32() or column.num_chunks > 1:
        return None
    lists = column.chunk(0) if column.num_chunks else pa.array([], kind)
    if lists.null_count or lists.values.null_count:
        return None
    flat = lists.flatten().to_numpy(zero_copy_only=True)
    return np.asarray(flat.reshape(len(column), kind.list_size))


def labelled_dataset(
    table: Table, categories: Sequence[str] = (), *, keep_missing: bool = False
) -> RankingDataset:
    """Make a dataset of a table that is not ours."""
    names = table.schema.names
    if "relevance" not in names and "label" not in names and {"impression_id", "click"} <= set(names):
        problem = "looks like a click log, not like labelled data; logs are .parquet or .csv, for read_log"
        raise InputError(problem, file=table.file)
    label = label_of(table) or "relevance"
    require_columns(names, ("query_id", label), table.file)
    of_categories = [
        name if name in names else FEATURE_PREFIX + name for name in names_of(categories, "categories")
    ]
    require_columns(names, of_categories, table.file)
    raw = RawFeatures(of_categories, allows_missing=keep_missing)
    return lists_of(table, _feature_columns(table, label, of_categories), label, raw=raw)[0]


def label_of(table: Table) -> str | None:
    """Return the column with the relevance of rows, if there is one."""
    return next((name for name in ("relevance", "label") if name in table.schema.names), None)


def lists_of(
    table: Table,
    features: list[str],
    label: str | None,
    about: Mapping[str, Any] | None = None,
    held: NDArray[np.float32] | None = None,
    raw: RawFeatures | None = None,
) -> tuple[RankingDataset, NDArray[np.int64]]:
    """Return the rows of a table as lists, and the index in the table of each row of the lists.

    Its columns `list`, `query_id`, `doc_id`, `group`, `comment` and the one with the relevance, `label`, are
    read if there are any. Rows of a query are one list; without queries, all rows are. `features` are columns
    of numbers, or one list column, or of what `raw` says; `held` are those of all rows, if they need not be
    read. `about` are the fields of the dataset that the table says itself.
    """
    raw = RawFeatures() if raw is None else raw
    codes = {name: IdCodes(may_be_integers=table.is_text) for name in ("query_id", "list", "group")}
    group_names = None if about is None else about["group_names"]
    batches, location = _read_parts(table, codes, label, features if held is None else [], group_names, raw)
    values = _stacked([rows.pop("features") for rows in batches], table.file) if held is None else held
    kinds: dict[str, Any] = {}
    if held is None:
        values, kinds = raw.in_order(values, features)
    rows = joined(batches)
    if table.is_text and "doc_id" in rows:
        rows["doc_id"] = as_integers(rows["doc_id"])
    zeros = np.zeros(rows["row"].size, dtype=np.int64)
    query = rows.get("query_id", zeros)
    order, offsets, _ = rows_in_lists(rows.get("list", query))
    values, rows = values[order], {name: column[order] for name, column in rows.items()}
    query, located = query[order], replace(location, numbers=rows["row"])
    list_of_row = run_numbers(offsets[:-1], query.size)
    differs = np.flatnonzero(query != query[offsets[list_of_row]])
    if differs.size:
        row = location.shown(rows["row"][offsets[list_of_row[differs[0]]]])
        raise located.error(f"the list has another query in row {row}", differs[0], "query_id")
    if group_names is None:
        group_names = sorted(codes["group"].texts.to_list())
    code = [*map(list(group_names).index, codes["group"].texts), UNKNOWN_GROUP]
    prefixed = all(name.startswith(FEATURE_PREFIX) for name in features)
    if about is not None and kinds.get("category_names"):
        values = with_categories(
            values, about["feature_names"], kinds["category_names"], about["category_names"]
        )
    fields = about or {
        **kinds,
        "group_names": group_names,
        "feature_names": ()
        if features == [LIST_COLUMN]
        else [name.removeprefix(FEATURE_PREFIX if prefixed else "") for name in features],
    }
    try:
        data = RankingDataset(
            values,
            offsets,
            group=np.array(code, dtype=np.int32)[rows["group"]] if "group" in rows else None,
            relevance=rows.get("relevance"),
            query_id=codes["query_id"].ids(query[offsets[:-1]]) if "query_id" in rows else None,
            doc_id=rows.get("doc_id"),
            comment=rows.get("comment"),
            **fields,
        )
    except InputError as error:
        if error.column == "doc_id":
            _name_repeated_document(rows, list_of_row, located)
        raise error if table.file is None else error.located(table.file) from None
    return data, np.arange(query.size)[order]


def _read_parts(
    table: Table,
    codes: dict[str, IdCodes],
    label: str | None,
    features: list[str],
    group_names: Sequence[str] | None,
    raw: RawFeatures,
) -> tuple[list[Columns], Location]:
    """Return the checked rows of each batch, and the last location; only a dataset may have no rows."""
    names = [*OTHER_COLUMNS, *([label] if label else ()), *features]
    present = [name for name in names if name in table.schema.names]
    batches, location = [], Location()
    for batch, location in table.batches(present):
        batches.append(_checked(batch, location, codes, label, features, group_names, raw))
    if not batches and group_names is None:
        raise InputError("has no rows", file=table.file)
    if not batches:
        empty = {name: pa.array([], table.schema.field(name).type) for name in present}
        batches = [_checked(empty, location, codes, label, features, group_names, raw)]
    return batches, location


def _stacked(tables: list[NDArray[np.float32]], file: str | Path | None) -> NDArray[np.float32]:
    """Return the features of all rows; those of each part are freed once they are copied."""
    if len({table.shape[1] for table in tables}) > 1:
        raise InputError("the number of features differs between rows", file=file, column=LIST_COLUMN)
    if len(tables) == 1:
        return tables[0]
    features = np.empty((sum(table.shape[0] for table in tables), tables[0].shape[1]), dtype=np.float32)
    for start in np.cumsum([0, *(table.shape[0] for table in tables)])[:-1].tolist():
        table = tables.pop(0)
        features[start : start + table.shape[0]] = table
    return features


def _feature_columns(table: Table, label: str, categories: Sequence[str] = ()) -> list[str]:
    if LIST_COLUMN in table.schema.names:
        return [LIST_COLUMN]
    others = [field for field in table.own_fields if field.name not in (*OTHER_COLUMNS, label)]
    for field in others:
        if not table.is_text and not columns.is_number(field.type) and field.name not in categories:
            problem = (
                f"a feature must be a number, not {field.type}; name it in {{categories}}, or leave it out"
            )
            raise InputError(problem, file=table.file, column=field.name, options=["categories"])
    if not others:
        problem = "the column is missing, and there is no other column of numbers to use as a feature"
        raise InputError(problem, file=table.file, column=LIST_COLUMN)
    return [field.name for field in others]


def _checked(
    batch: Batch,
    location: Location,
    codes: dict[str, IdCodes],
    label: str | None,
    features: list[str],
    group_names: Sequence[str] | None,
    raw: RawFeatures,
) -> Columns:
    """Return the rows of a batch, with codes for ids and groups."""
    size = len(next(iter(batch.values()), ()))
    rows: Columns = {"row": location.rows(size)}
    for name in ("query_id", "list"):
        if name in batch:
            rows[name] = codes[name].encode(columns.ids(batch[name], name, location))
    if "doc_id" in batch:
        rows["doc_id"] = _numpy_ids(columns.ids(batch["doc_id"], "doc_id", location))
    if "group" in batch:
        rows["group"] = columns.encode_labels(batch["group"], location, codes["group"], group_names)
    if "comment" in batch:
        rows["comment"] = _numpy_ids(columns.labels(batch["comment"], "comment", location).fill_null(""))
    if label is not None:
        relevance = columns.numbers(batch[label], label, location)
        with np.errstate(over="ignore"):
            rows["relevance"] = relevance.astype(np.float32)
        wrong = ~(np.isfinite(rows["relevance"]) & (relevance >= 0))
        location.check(wrong, "must be finite and 0 or more", label, relevance)
    rows["features"] = raw.table({name: batch[name] for name in features}, size, location)
    return rows


def _numpy_ids(ids: pa.Array) -> Ids:
    return columns.as_numpy(ids) if pa.types.is_integer(ids.type) else as_text(pl.Series(pl.from_arrow(ids)))


def _name_repeated_document(rows: Columns, list_of_row: NDArray[np.int64], location: Location) -> None:
    """Raise the error of the first document that stands twice in a list, by its rows in the table."""
    repeat = first_repeat(list_of_row, codes_of(rows["doc_id"]))
    if repeat is not None:
        first_row, second_row = (location.shown(rows["row"][index]) for index in repeat)
        error = document_twice(first_row, second_row, "list", rows["doc_id"][repeat[1]])
        raise (error if location.file is None else error.located(location.file)) from None
