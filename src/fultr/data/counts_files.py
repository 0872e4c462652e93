"""Counts as one Parquet file that keeps all there is.

A row is an item, a list or a cell, as `kind` says. An item has `query_id`, `doc_id`, `group` and `features`.
A list has the numbers of its `items`, which are the item rows from 0 on, `impressions`, and `clicks` for the
impressions with a click. A cell has its `list`, the lists being numbered from 0 on too, its `item`,
`position`, `propensity` where known, `impressions` and `clicks`. All else stands as JSON in the metadata of
the schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.data.columns import require_columns
from fultr.data.counts import Cells, Counts
from fultr.data.dataset import NOT_COLUMNS, RankingDataset
from fultr.data.frames import feature_columns, group_series, id_series
from fultr.data.grouping import group_numbers, group_rows
from fultr.data.ids import Ids, as_text, codes_of, encode_groups
from fultr.data.merging import ID_FIELDS, MODEL
from fultr.data.metadata import plain_fields, read_fields
from fultr.data.table_files import Table, arrow_table, kind_of, open_table, write_table
from fultr.errors import InputError
from fultr.files import atomic_write

COUNTS = "counts"
"""What the metadata of a file of counts calls its content."""

ITEM, LIST, CELL, PLANTED = "item", "list", "cell", "planted"

ROWS_A_TABLE = 1 << 16
"""Rows that are written together."""

FIELDS = (*MODEL, *NOT_COLUMNS, "origin", "facts", "context_name", "context_values", "files")
"""What the metadata says of counts and of their lists."""

TYPES: dict[str, Any] = {
    "items": pl.List(pl.Int64),
    "list": pl.Int64,
    "context": pl.Int64,
    "item": pl.Int64,
    "position": pl.Int32,
    "propensity": pl.Float64,
    "impressions": pl.Int64,
    "clicks": pl.Int64,
}
"""The types of the columns that are neither ids nor what is known of items."""


def holds_counts(path: str | Path | Table) -> bool:
    """Say whether a file is one of counts."""
    table = path
    if not isinstance(table, Table):
        if kind_of(table) != "Parquet":
            return False
        table = open_table(table)
    return bool(table.metadata.get("kind") == COUNTS)


def write_counts(counts: Counts, path: str | Path) -> None:
    """Write counts to a Parquet file, from which `read_counts` makes the same counts.

    What was at `path` is replaced only once all is written.
    """
    if Path(path).suffix.lower() not in (".parquet", ".pq"):
        raise InputError("counts are written to a .parquet file; name it so", file=path)
    frames = _frames(counts)
    no_rows = pl.concat([frame.clear() for frame in frames], how="diagonal")
    tables = (
        arrow_table(pl.concat([no_rows, frame.slice(start, ROWS_A_TABLE)], how="diagonal"))
        for frame in frames
        for start in range(0, frame.height, ROWS_A_TABLE)
    )
    with atomic_write(path) as temporary:
        write_table(temporary, arrow_table(no_rows).schema, _metadata(counts), tables)


def _frames(counts: Counts) -> list[pl.DataFrame]:
    """Return items, lists, cells and planted items as frames, each with the columns that it has."""
    data = counts.data
    query = np.arange(len(data)) if data.query_id is None else data.query_id
    document = np.arange(data.rows) if data.doc_id is None else data.doc_id
    order, starts = group_rows(codes_of(query)[data.list_of_row], codes_of(document))
    first, item_of_row = order[starts], group_numbers(order, starts)
    items = {
        "query_id": id_series(query, data.list_of_row[first]),
        "doc_id": id_series(document, first),
        "group": group_series(data.group_names, data.group[first]),
        **(feature_columns(data, data.features[first], "list") if data.feature_names else {}),
    }
    lists = {
        "items": pl.DataFrame({"list": data.list_of_row, "item": item_of_row})
        .group_by("list", maintain_order=True)
        .agg("item")["item"],
        "impressions": counts.impressions,
        "clicks": counts.clicked_impressions,
        "context": np.zeros(len(data), np.int64) if counts.context is None else counts.context,
    }
    cells, planted = (
        {name: values for name, values in vars(table).items() if values is not None and name != "row"}
        for table in (counts.cells, counts.planted)
    )
    cells |= {"list": data.list_of_row[counts.cells.row], "item": item_of_row[counts.cells.row]}
    kinds = {ITEM: items, LIST: lists, CELL: cells, PLANTED: planted}
    return [
        pl.DataFrame(columns)
        .cast({name: TYPES[name] for name in TYPES.keys() & columns.keys()})
        .with_columns(kind=pl.lit(kind))
        for kind, columns in kinds.items()
    ]


def _metadata(counts: Counts) -> dict[str, Any]:
    return {
        "kind": COUNTS,
        **plain_fields(counts.data, NOT_COLUMNS),
        **plain_fields(counts, (name for name in FIELDS if name not in NOT_COLUMNS)),
        "files": [file._asdict() for file in counts.files],
        **{f"has_{name}s": getattr(counts.data, name) is not None for name in ID_FIELDS},
    }


def read_counts(path: str | Path, *, progress: Progress | None = None) -> Counts:
    """Read counts that `write_counts` wrote."""
    table = open_table(path, progress)
    if not holds_counts(table):
        kind = table.metadata.get("kind")
        problem = "holds no counts" + (f" but a {kind}" if kind else "") + "; fultr count makes them of a log"
        raise InputError(problem, file=path)
    names = ["kind", *ID_FIELDS, "group", *(name for name in TYPES if name != "propensity")]
    require_columns(table.schema.names, names, path)
    columns = [*names, *(name for name in ("features", "propensity") if name in table.schema.names)]
    frames = [pl.DataFrame(pl.from_arrow(pa.record_batch(batch))) for batch, _ in table.batches(columns)]
    try:
        about = read_fields(table.metadata, FIELDS, None, optional=True)
        without_ids = [name for name in ID_FIELDS if table.metadata.get(f"has_{name}s") is False]
        return _checked(pl.concat(frames), about, without_ids)
    except InputError as error:
        raise InputError(f"is damaged: {error}", file=path) from None
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, pl.exceptions.PolarsError) as error:
        raise InputError(f"is damaged: {type(error).__name__} in its counts", file=path) from None


def _checked(rows: pl.DataFrame, about: dict[str, Any], without_ids: list[str]) -> Counts:
    """Make counts of the rows of a file, which may have been changed by anyone."""
    for name, kind in TYPES.items():
        _require(name not in rows.columns or rows.schema[name] == kind, name)
    items, lists, cells, planted = (
        rows.filter(pl.col("kind") == kind) for kind in (ITEM, LIST, CELL, PLANTED)
    )
    impressions, clicks = pl.col("impressions"), pl.col("clicks")
    values = about.get("context_values", ())
    _require(len(set(values)) == len(values), "context_values")
    _require_all(lists, impressions=impressions >= 0, clicks=clicks.is_between(-1, impressions))
    _require_all(lists, context=pl.col("context").is_between(0, max(len(values) - 1, 0)))
    for table in (cells, planted):
        _require_all(table, impressions=impressions >= 0, clicks=clicks.is_between(0, impressions))
        _require_all(table, position=pl.col("position") > 0)
        if "propensity" in rows.columns:
            _require_all(table, propensity=pl.col("propensity").is_between(0, 1, closed="right"))
    lists = lists.select("items", "impressions", "clicks", "context").with_row_index("list")
    entries = lists.select(pl.col("list").cast(pl.Int64), item="items").explode("item", empty_as_null=False)
    _require(not entries.is_duplicated().any(), "items")
    _require_all(entries, items=pl.col("item").is_between(0, items.height - 1))
    items = items[entries["item"]].with_columns(list=entries["list"])
    _require_all(items, query_id=pl.col("query_id") == pl.first("query_id").over("list"))
    lengths = lists["items"].list.len().to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    names = about["feature_names"]
    features = items["features"].to_numpy() if names else np.empty(0)
    query, document = _ids(items["query_id"]), _ids(items["doc_id"])
    data = RankingDataset(
        np.asarray(features, dtype=np.float32).reshape(items.height, len(names)),
        offsets,
        group=encode_groups(items["group"].to_list(), about["group_names"])[0],
        query_id=None if "query_id" in without_ids else query[offsets[:-1]],
        doc_id=None if "doc_id" in without_ids else document,
        **{name: about.pop(name) for name in NOT_COLUMNS},
    )
    row = cells.join(entries.with_row_index("row"), on=["list", "item"], how="left", maintain_order="left")
    _require(not row["row"].null_count(), "item")
    counts = Counts(
        data=data,
        impressions=lists["impressions"].to_numpy(),
        clicked_impressions=lists["clicks"].to_numpy(),
        cells=_cells(cells, row["row"].to_numpy().astype(np.int64)),
        planted=_cells(planted, np.zeros(planted.height, dtype=np.int64)),
        context=lists["context"].to_numpy() if values else None,
        **about,
    )
    _require((counts.shown() <= np.repeat(counts.impressions, lengths)).all(), "impressions")
    return counts


def _cells(frame: pl.DataFrame, row: NDArray[np.int64]) -> Cells:
    names = ("position", "propensity", "impressions", "clicks")
    columns: dict[str, Any] = {
        name: frame[name].to_numpy() if name in frame.columns else None for name in names
    }
    return Cells(row, **columns)


def _ids(column: pl.Series) -> Ids:
    _require(not column.null_count() and column.dtype in (pl.Int64, pl.String), column.name)
    return as_text(column) if column.dtype == pl.String else column.to_numpy()


def _require_all(frame: pl.DataFrame, **rules: pl.Expr) -> None:
    """Refuse a table of which a rule does not hold in every row, or has no answer."""
    for column, rule in rules.items():
        _require(frame.select(rule.fill_null(False).all()).item(), column)


def _require(holds: Any, column: str) -> None:
    if not holds:
        raise InputError("its values contradict each other", column=column)
