"""Labelled data as one file: our own Arrow and Parquet files, and the tables that others make.

Both hold a row for each item with the columns `query_id`, `doc_id`, `list`, `relevance`, `group` and `comment`
(those that the data has), and its features. An Arrow file holds these as one list column that is read in
place, without a copy, at the speed of the disk. A Parquet file is smaller and holds a column for each
feature, which every tool can read, and which loads faster than a list column does. All else stands as JSON
in the metadata of the schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from fultr.data import columns
from fultr.data.columns import LIST_COLUMN, Place, require_columns
from fultr.data.dataset import RankingDataset
from fultr.data.ids import TEXT, UNKNOWN_GROUP, Ids
from fultr.data.labelled_tables import FEATURE_PREFIX, labelled_dataset
from fultr.data.table_files import FORMAT_VERSION, METADATA_KEY, Table, open_table, parse_metadata
from fultr.errors import InputError
from fultr.files import atomic_write, existing_file

KIND = "dataset"
ROWS_A_GROUP = 1 << 16
TEXT_COLUMNS = ("query_id", "doc_id", "comment")


def write_dataset(data: RankingDataset, path: str | Path) -> None:
    """Write a dataset to one .arrow or .parquet file, from which `read_dataset` makes the same dataset."""
    ending = Path(path).suffix.lower()
    if ending not in (".arrow", ".parquet"):
        problem = "a dataset is written to a file that ends in .arrow or .parquet (LETOR text: write_letor)"
        raise InputError(problem, file=path)
    with atomic_write(path) as temporary:
        if ending == ".arrow":
            _write_arrow(data, temporary)
        else:
            _write_parquet(data, temporary)


def read_dataset(path: str | Path) -> RankingDataset:
    """Read a dataset from a file of `write_dataset`, or from a labelled table of your own.

    A table of your own (.parquet, .arrow or .csv) has the columns `query_id` and `relevance` (or `label`),
    features as one list column `features` or as all other columns, which must then be numbers, and if
    known `doc_id`, `group` (missing where unknown), `comment`, and `list` where a query has several.

    The features of an Arrow file of ours stay on disk and are read when they are used: do not change the
    file in place meanwhile (`write_dataset` never does, it puts a new file in its place).
    """
    file = existing_file(path)
    ending = file.suffix.lower()
    if ending == ".arrow":
        return _read_arrow(file)
    if ending == ".parquet":
        return _read_parquet(file)
    if ending == ".csv":
        return labelled_dataset(open_table(file))
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
    kinds = {name: column.type for name, column in _item_columns(data[:0]).items()}
    schema = pa.schema([*kinds.items(), *((name, pa.float32()) for name in names)], metadata=_metadata(data))
    # numbers repeat so much that their dictionaries are small; compressing them too would halve the speed
    compression = {name: "zstd" for name in kinds if name in TEXT_COLUMNS}
    items = pa.table(_item_columns(data))
    with parquet.ParquetWriter(path, schema, compression=compression) as writer:
        for start in range(0, data.rows, ROWS_A_GROUP):
            part = {name: items[name].slice(start, ROWS_A_GROUP) for name in items.column_names}
            features = np.ascontiguousarray(data.features[start : start + ROWS_A_GROUP].T)
            part |= {name: pa.array(values) for name, values in zip(names, features, strict=True)}
            writer.write_table(pa.table(part, schema=schema), row_group_size=ROWS_A_GROUP)


def _metadata(data: RankingDataset) -> dict[bytes, bytes]:
    content = {
        "version": FORMAT_VERSION,
        "kind": KIND,
        "feature_names": data.feature_names,
        "group_names": data.group_names,
        "group_columns": data.group_columns,
        "source": data.source,
        "has_query_ids": data.query_id is not None,
    }
    return {METADATA_KEY: json.dumps(content).encode()}


def _item_columns(data: RankingDataset) -> dict[str, pa.Array]:
    """Return all columns but the features; those that the data does not have are left out."""
    where = data.list_of_row
    table: dict[str, pa.Array] = {}
    if data.query_id is not None:
        table["query_id"] = _arrow_ids(data.query_id).take(pa.array(where))
    if data.doc_id is not None:
        table["doc_id"] = _arrow_ids(data.doc_id)
    table["list"] = pa.array(where)
    if data.relevance is not None:
        table["relevance"] = pa.array(data.relevance)
    if data.group_names:
        codes = pa.array(data.group, mask=data.group == UNKNOWN_GROUP)
        names = pa.array(data.group_names, type=pa.string())
        table["group"] = pa.DictionaryArray.from_arrays(codes, names)
    if data.comment is not None:
        table["comment"] = _arrow_ids(data.comment)
    return table


def _arrow_ids(ids: Ids) -> pa.Array:
    return pa.array(ids.tolist(), type=pa.large_string()) if ids.dtype.kind == "T" else pa.array(ids)


def _read_arrow(file: Path) -> RankingDataset:
    try:
        table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(file, "Arrow", error) from None
    about = parse_metadata((table.schema.metadata or {}).get(METADATA_KEY), file)
    if not about:
        return labelled_dataset(_batched(table, file))
    _check_metadata(about, file)
    features = np.empty((table.num_rows, 0), dtype=np.float32)
    if about["feature_names"]:
        require_columns(table.column_names, [LIST_COLUMN], file)
        # float32 lists of one length are used where they stand; anything else is copied or refused
        features = columns.feature_table({LIST_COLUMN: table[LIST_COLUMN]}, table.num_rows, Place(file))
    return _own_dataset(table, features, about, file)


def _read_parquet(file: Path) -> RankingDataset:
    try:
        with parquet.ParquetFile(file, memory_map=True) as opened:
            schema = opened.schema_arrow
            about = parse_metadata((schema.metadata or {}).get(METADATA_KEY), file)
            if not about:
                return labelled_dataset(open_table(file))
            _check_metadata(about, file)
            names = [FEATURE_PREFIX + name for name in about["feature_names"]]
            require_columns(schema.names, names, file)
            features = np.empty((opened.metadata.num_rows, len(names)), dtype=np.float32)
            items, start = [], 0
            for batch in opened.iter_batches(ROWS_A_GROUP, use_threads=False):
                _fill(features[start : start + batch.num_rows], batch, names, Place(file, start + 1))
                items.append(pa.table(batch).drop_columns(names))
                start += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _damaged(file, "Parquet", error) from None
    table = pa.concat_tables(items) if items else schema.empty_table()
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
    present = table.column_names
    place = Place(file)
    required = ["list", *(["query_id"] if about["has_query_ids"] else [])]
    require_columns(present, [*required, *(["group"] if about["group_names"] else [])], file)
    starts = _starts(table["list"], place)
    query = columns.ids(table["query_id"], "query_id", place) if about["has_query_ids"] else None
    try:
        return RankingDataset(
            features,
            np.append(starts, table.num_rows),
            group=_group_codes(table["group"], about["group_names"], place) if about["group_names"] else None,
            group_names=about["group_names"],
            relevance=columns.numbers(table["relevance"], "relevance", place)
            if "relevance" in present
            else None,
            query_id=None if query is None else _numpy_ids(query.take(pa.array(starts))),
            doc_id=_numpy_ids(columns.ids(table["doc_id"], "doc_id", place)) if "doc_id" in present else None,
            feature_names=about["feature_names"],
            group_columns=about["group_columns"],
            comment=_numpy_ids(columns.ids(table["comment"], "comment", place))
            if "comment" in present
            else None,
            source=about["source"],
        )
    except InputError as error:
        raise error.located(file) from None
