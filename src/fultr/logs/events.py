"""Events of `fultr serve` as a long table: SQLite files of a folder, or tables of a PostgreSQL database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Location
from fultr.data.table_files import Batch, Table, open_table
from fultr.errors import FultrError, InputError
from fultr.logs.metadata import LOG

POSTGRES = ("postgresql://", "postgres://")
FILES = "events-*.sqlite"
IMPRESSIONS_A_BATCH = 1 << 13
BYTES_A_BATCH = 32 << 20
"""Of candidates, groups and features: a batch ends with the impression that reaches it."""

ROWS_FETCHED = 64
"""How many impressions a PostgreSQL database sends at once, each with all its features."""

COLUMNS = {
    "impression_id": pa.string(),
    "query_id": pa.string(),
    "doc_id": pa.string(),
    "position": pa.int64(),
    "click": pa.bool_(),
    "group": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "policy": pa.string(),
}
"""What every table of events has; features come besides if they were recorded."""

FEATURE_FIELDS = ("feature_names", "category_names")
"""What the metadata says of features in lists."""

ROWS = """
    SELECT ranking_id, time, query_id, policy, doc_ids, groups, shown, features,
        (SELECT {gather}(doc_id) FROM clicks WHERE clicks.ranking_id = impressions.ranking_id)
    FROM impressions WHERE {chosen} ORDER BY time, ranking_id
"""
FACTS = "SELECT count(*), count(features), count(groups) FROM impressions WHERE {chosen}"
NAMES = (
    "SELECT DISTINCT policies.features FROM impressions"
    " LEFT JOIN policies ON impressions.policy = policies.version"
    " WHERE impressions.features IS NOT NULL AND {chosen}"
)
NOT_FALLBACK = " AND SUBSTR(COALESCE(impressions.policy, ''), 1, 8) <> 'fallback'"
"""Leaves out rankings in the order of the request, which were shown because a policy failed."""


def is_events(source: object) -> bool:
    """Say whether a source is a database of events: an address, a SQLite file, or a folder of them."""
    if not isinstance(source, (str, Path)):
        return False
    if str(source).startswith(POSTGRES):
        return True
    path = Path(source)
    return path.suffix == ".sqlite" or (path.is_dir() and next(path.glob(FILES), None) is not None)


def event_tables(
    source: str | Path, since: int = 0, *, with_fallback: bool = True, alike: bool = True
) -> list[Table]:
    """Return the long tables of events: one for each file, or one for a database.

    Impressions from before `since`, in microseconds since 1970, are left out; there may be none after it.
    Those that no policy ranked are left out if `with_fallback` is false. If `alike`, columns that not all
    tables have are left out, and so are features of several kinds.
    """
    chosen = f"impressions.time >= {int(since)}" + ("" if with_fallback else NOT_FALLBACK)
    databases: list[_SQLite | _Postgres]
    if str(source).startswith(POSTGRES):
        databases, path = [_Postgres(str(source))], None
    else:
        path = Path(source)
        databases = [_SQLite(file) for file in (sorted(path.glob(FILES)) if path.is_dir() else [path])]
    tables = [_table(database, chosen) for database in databases]
    shown = [table for table in tables if table is not None]
    if not shown and not since:
        raise InputError("no ranking was shown yet", file=path)
    if not shown:
        return []
    return _alike(shown) if alike else shown


def first_table(source: str | Path) -> Table:
    """Return the table of a log, or of events the first one."""
    return event_tables(source)[0] if is_events(source) else open_table(source)


class _SQLite:
    """A file of events."""

    gather = "json_group_array"

    def __init__(self, file: Path) -> None:
        self.file: Path | None = file
        self.name = str(file)
        if not file.is_file():
            raise InputError("no such file", file=file)

    @contextmanager
    def rows(self, statement: str) -> Iterator[Iterator[tuple[Any, ...]]]:
        try:
            with closing(
                sqlite3.connect(f"{Path(self.name).resolve().as_uri()}?mode=ro", uri=True)
            ) as connection:
                yield iter(connection.execute(statement))
        except sqlite3.Error as error:
            raise InputError(f"is no file of events that can be read: {error}", file=self.name) from None


class _Postgres:
    """A database of events."""

    gather = "json_agg"

    def __init__(self, url: str) -> None:
        self.file: Path | None = None
        self.url = url
        self.name = "the database"

    @contextmanager
    def rows(self, statement: str) -> Iterator[Iterator[tuple[Any, ...]]]:
        try:
            import psycopg
        except ImportError as error:
            raise FultrError("a PostgreSQL database needs psycopg: pip install 'fultr[serve]'") from error
        try:
            with psycopg.connect(self.url) as connection, connection.cursor("events") as cursor:
                cursor.itersize = ROWS_FETCHED
                cursor.execute(statement)
                yield iter(cursor)
        except psycopg.Error as error:
            problem = " ".join(str(error).split())
            raise InputError(f"the database of events cannot be read: {problem}") from None


def _table(database: _SQLite | _Postgres, chosen: str) -> Table | None:
    """Return the long table of a database; None of one without impressions."""
    with database.rows(FACTS.replace("{chosen}", chosen)) as rows:
        impressions, with_features, with_groups = next(rows)
    if not impressions:
        return None
    with database.rows(NAMES.replace("{chosen}", chosen)) as rows:
        named = [None if text is None else json.loads(text) for (text,) in rows]
    schema = {name: kind for name, kind in COLUMNS.items() if with_groups or name != "group"}
    metadata: dict[str, Any] = {"kind": LOG, "text_ids": ["doc_id", "impression_id", "query_id"]}
    items = _items(database)
    if items is not None:
        features = [name for name in items.columns if name.startswith(FEATURE_PREFIX)]
        schema |= {name: pa.float32() for name in features}
        if "group" in items.columns:
            schema["group"] = pa.string()
    elif with_features == impressions and named[0] is not None and all(one == named[0] for one in named):
        schema[LIST_COLUMN] = pa.list_(pa.float32(), len(named[0]))
        metadata |= _names_of_features(named[0])

    statement = ROWS.replace("{gather}", database.gather).replace("{chosen}", chosen)

    def batches(names: list[str]) -> Iterator[tuple[Batch, Location]]:
        first = 1
        with database.rows(statement) as rows:
            for block in _blocks(rows):
                batch = _batch(block, set(names), schema, items)
                yield {name: batch[name] for name in names}, Location(database.file, first)
                first += sum(len(one) for one in batch.values()) // len(batch)

    return Table(pa.schema(list(schema.items())), metadata, batches, database.file, is_text=True)


def _names_of_features(listed: list[Any]) -> dict[str, Any]:
    """Return the names of the features that a policy recorded, and those of categories."""
    categories = {one["name"]: one["categories"] for one in listed if isinstance(one, dict)}
    names = {"feature_names": [one["name"] if isinstance(one, dict) else one for one in listed]}
    return {**names, "category_names": categories} if categories else names


def _blocks(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield impressions by and by, as many at once as a batch holds."""
    block: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        _, _, _, _, docs, groups, _, features, _ = row
        block.append(row)
        size += sum(len(one) for one in (docs, groups, features) if one is not None)
        if len(block) == IMPRESSIONS_A_BATCH or size >= BYTES_A_BATCH:
            yield block
            block, size = [], 0
    if block:
        yield block


def _batch(
    block: list[tuple[Any, ...]], names: set[str], schema: dict[str, pa.DataType], items: pl.DataFrame | None
) -> Batch:
    """Return the long rows of some impressions."""
    ids, times, queries, policies, docs, groups, shown, features, clicks = zip(*block, strict=True)
    frame = pl.DataFrame(
        {
            "impression_id": pl.Series(ids, dtype=pl.String),
            "query_id": pl.Series(queries, dtype=pl.String),
            "policy": pl.Series(policies, dtype=pl.String),
            "timestamp": pl.Series(times, dtype=pl.Int64).cast(pl.Datetime("us", "UTC")),
            "shown": pl.Series(shown, dtype=pl.Int64),
            "doc_id": _decoded(docs),
            "clicked": _decoded(clicks),
        }
    )
    lengths = frame["doc_id"].list.len()
    frame = frame.with_columns(position=pl.int_ranges(1, lengths.cast(pl.Int64) + 1))
    if any(groups):
        unknown = [json.dumps([None] * length) for length in lengths]
        given = [text or other for text, other in zip(groups, unknown, strict=True)]
        frame = frame.with_columns(group=_decoded(given))
        long = frame.explode("doc_id", "position", "group")
    else:
        long = frame.explode("doc_id", "position").with_columns(group=pl.lit(None, pl.String))
    long = long.with_columns(
        click=pl.col("clicked").list.contains(pl.col("doc_id")).fill_null(False),
        position=pl.when(pl.col("position") <= pl.col("shown")).then(pl.col("position")),
    )
    if items is not None:
        long = _with_items(long, items)
    batch: Batch = {
        name: long[name].to_arrow().cast(kind)
        for name, kind in schema.items()
        if name in names and name != LIST_COLUMN
    }
    if LIST_COLUMN in names:
        values = pa.array(np.frombuffer(b"".join(features), "<f4"))
        batch[LIST_COLUMN] = pa.FixedSizeListArray.from_arrays(values, schema[LIST_COLUMN].list_size)
    return batch


def _decoded(texts: Any) -> pl.Series:
    """Return lists of texts from JSON, which a database may have read already."""
    plain = [json.dumps(one) if isinstance(one, list) else one for one in texts]
    return pl.Series(plain, dtype=pl.String).str.json_decode(pl.List(pl.String))


def _items(database: _SQLite | _Postgres) -> pl.DataFrame | None:
    """Return the table `items` of a PostgreSQL database, with its numbers as features, if it is there."""
    if isinstance(database, _SQLite):
        return None
    statement = (
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'items'"
        " AND table_schema = ANY (current_schemas(false)) ORDER BY ordinal_position"
    )
    with database.rows(statement) as rows:
        columns = [name for (name,) in rows]
    if not columns:
        return None
    if "doc_id" not in columns:
        raise InputError("the table items of the database needs the column", column="doc_id")
    with database.rows("SELECT * FROM items") as rows:
        frame = pl.DataFrame(list(rows), schema=columns, orient="row", infer_schema_length=None)
    keys = [name for name in ("query_id", "doc_id", "group") if name in columns]
    numbers = [name for name in columns if name not in keys and frame[name].dtype.is_numeric()]
    return frame.select(
        *(pl.col(name).cast(pl.String) for name in keys),
        *(
            pl.col(name).cast(pl.Float32).alias(FEATURE_PREFIX + name.removeprefix(FEATURE_PREFIX))
            for name in numbers
        ),
    )


def _with_items(long: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """Join features and groups of items; each must be in their table."""
    keys = [name for name in ("query_id", "doc_id") if name in items.columns]
    if "group" in items.columns:
        long = long.drop("group")
    joined = long.join(items.with_columns(is_item=True), on=keys, how="left", maintain_order="left")
    if joined.height != long.height:
        raise InputError("an item stands twice in the table items of the database", column="doc_id")
    missing = joined.filter(pl.col("is_item").is_null())
    if missing.height:
        problem = "the item is missing in the table items of the database"
        raise InputError(problem, column="doc_id", value=missing["doc_id"][0])
    return joined


def _alike(tables: list[Table]) -> list[Table]:
    """Leave out columns that not all files have: groups or features that were not recorded on a day.

    Features are left out, too, if policies with other features or categories were at work on some days.
    """
    shared = set.intersection(*(set(table.schema.names) for table in tables))
    kinds = [[table.metadata.get(name) for name in FEATURE_FIELDS] for table in tables]
    if any(kind != kinds[0] for kind in kinds):
        shared -= {LIST_COLUMN}

    def narrowed(table: Table) -> Table:
        kept = {name: name for name in table.schema.names if name in shared}
        metadata = table.metadata
        if LIST_COLUMN not in kept:
            metadata = {name: value for name, value in metadata.items() if name not in FEATURE_FIELDS}
        narrower = table if len(kept) == len(table.schema.names) else table.derived(kept, {})
        return replace(narrower, metadata=metadata)

    return [narrowed(table) for table in tables]
