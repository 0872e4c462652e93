"""Counts as one Parquet file that keeps all there is.

A row is an item, a list or a cell, as `kind` says. An item has `query_id`, `doc_id`, `group` and `features`.
A list has the numbers of its `items`, which are the item rows from 0 on, `impressions`, and `clicks` for the
impressions with a click. A cell has its `list`, the lists being numbered from 0 on too, its `item`,
`position`, `propensity` where known, `impressions` and `clicks`. All else stands as JSON in the metadata of
the schema.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.click_model import ClickNoise, PositionBias
from fultr.data.columns import require_columns
from fultr.data.counts import Cells, CountedFile, Counts
from fultr.data.dataset import NOT_COLUMNS, RankingDataset
from fultr.data.frames import feature_columns, group_series, id_series
from fultr.data.grouping import group_numbers, group_rows
from fultr.data.ids import Ids, as_text, codes_of, encode_groups
from fultr.data.table_files import Table, arrow_table, kind_of, open_table, write_table
from fultr.data.tally import ImpressionFacts
from fultr.errors import InputError
from fultr.files import atomic_write

COUNTS = "counts"
"""What the metadata of a file of counts calls its content."""

ITEM, LIST, CELL, PLANTED = "item", "list", "cell", "planted"

ROWS_A_PART = 1 << 16

MODELS: dict[str, Callable[[Any], Any]] = {
    "position_bias": PositionBias.from_dict,
    "noise": ClickNoise.from_dict,
    "facts": ImpressionFacts.from_dict,
}
"""The fields of counts that are written as mappings, and what makes a value of each."""


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
    parts = (
        arrow_table(pl.concat([no_rows, frame.slice(start, ROWS_A_PART)], how="diagonal"))
        for frame in frames
        for start in range(0, frame.height, ROWS_A_PART)
    )
    with atomic_write(path) as temporary:
        write_table(temporary, arrow_table(no_rows).schema, _metadata(counts), parts, as_csv=False)


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
    return [pl.DataFrame(columns).with_columns(kind=pl.lit(kind)) for kind, columns in kinds.items()]


def _metadata(counts: Counts) -> dict[str, Any]:
    data, plain = counts.data, ("empties_dropped", "origin", "context_name", "context_values")
    models = {name: getattr(counts, name) for name in MODELS}
    return {
        "kind": COUNTS,
        **{name: None if model is None else model.to_dict() for name, model in models.items()},
        **{name: getattr(counts, name) for name in plain},
        **{name: getattr(data, name) for name in NOT_COLUMNS},
        "files": [file._asdict() for file in counts.files],
        "has_query_ids": data.query_id is not None,
        "has_doc_ids": data.doc_id is not None,
        "has_propensity": counts.cells.propensity is not None,
        "has_context": counts.context is not None,
    }


def read_counts(path: str | Path, *, progress: Progress | None = None) -> Counts:
    """Read counts that `write_counts` wrote."""
    table = open_table(path, progress)
    if not holds_counts(table):
        kind = table.metadata.get("kind")
        problem = "holds no counts" + (f" but a {kind}" if kind else "") + "; fultr count makes them of a log"
        raise InputError(problem, file=path)
    names = ["kind", "query_id", "doc_id", "group", "items", "list", "context", "item", "position"]
    names += ["impressions", "clicks"]
    about = dict(table.metadata)
    require_columns(table.schema.names, names, path)
    wanted = [*names, *(name for name in ("features", "propensity") if name in table.schema.names)]
    frames = [pl.DataFrame(pl.from_arrow(pa.record_batch(batch))) for batch, _ in table.batches(wanted)]
    try:
        return _checked(pl.concat(frames), about)
    except InputError as error:
        raise InputError(f"is damaged: {error}", file=path) from None
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, pl.exceptions.PolarsError) as error:
        raise InputError(f"is damaged: {type(error).__name__} in its counts", file=path) from None


def _checked(rows: pl.DataFrame, about: dict[str, Any]) -> Counts:
    """Make counts of the rows of a file, which may have been changed by anyone."""
    items, lists, cells, planted = (
        rows.filter(pl.col("kind") == kind) for kind in (ITEM, LIST, CELL, PLANTED)
    )
    lengths = lists["items"].list.len().to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    item_of_row = lists["items"].explode(empty_as_null=False).to_numpy().astype(np.int64)
    _require((item_of_row >= 0).all() and (item_of_row < items.height).all(), "items")
    of_list = np.repeat(np.arange(lists.height), lengths)
    order, starts = group_rows(of_list, item_of_row)
    _require(starts.size == order.size, "items")
    group_names = [str(name) for name in about["group_names"]]
    names = [str(name) for name in about["feature_names"]]
    features = np.empty((items.height, 0), dtype=np.float32)
    if names:
        values = np.asarray(items["features"].to_numpy(), dtype=np.float32)
        features = values.reshape(items.height, len(names))
    query = _ids(items["query_id"])[item_of_row]
    _require((codes_of(query) == codes_of(query)[offsets[:-1]][of_list]).all(), "query_id")
    data = RankingDataset(
        features[item_of_row],
        offsets,
        group=encode_groups(items["group"].to_list(), group_names)[0][item_of_row],
        group_names=group_names,
        query_id=query[offsets[:-1]] if about["has_query_ids"] else None,
        doc_id=_ids(items["doc_id"])[item_of_row] if about["has_doc_ids"] else None,
        feature_names=names,
        group_columns=about["group_columns"],
        source=str(about["source"]),
    )
    row = _rows_of_cells(cells, of_list, item_of_row)
    impressions, clicked = _counts(lists["impressions"]), lists["clicks"].to_numpy().astype(np.int64)
    _require((clicked <= impressions).all() and (clicked >= -1).all(), "clicks")
    context = _counts(lists["context"]) if about["has_context"] else None
    _require(context is None or bool((context < len(about["context_values"])).all()), "context")
    counts = Counts(
        data=data,
        impressions=impressions,
        clicked_impressions=clicked,
        cells=_cells(cells, row, about["has_propensity"]),
        planted=_cells(planted, np.zeros(planted.height, dtype=np.int64), about["has_propensity"]),
        **{name: None if about[name] is None else make(about[name]) for name, make in MODELS.items()},
        empties_dropped=about["empties_dropped"] is True,
        origin=dict(about["origin"]),
        context=context,
        context_name=str(about["context_name"]),
        context_values=tuple(str(value) for value in about["context_values"]),
        files=tuple(CountedFile(str(f["name"]), int(f["rows"]), str(f["sha256"])) for f in about["files"]),
    )
    _require((counts.shown() <= np.repeat(impressions, lengths)).all(), "impressions")
    return counts


def _rows_of_cells(
    cells: pl.DataFrame, of_list: NDArray[np.int64], item_of_row: NDArray[np.int64]
) -> NDArray[np.int64]:
    keys = ["list", "item"]
    rows = pl.DataFrame({"list": of_list, "item": item_of_row}).with_row_index("row")
    row = cells.select(keys).join(rows, on=keys, how="left", maintain_order="left")["row"]
    _require(not row.null_count(), "item")
    return np.asarray(row.to_numpy().astype(np.int64))


def _cells(frame: pl.DataFrame, row: NDArray[np.int64], has_propensity: bool) -> Cells:
    impressions, clicks = _counts(frame["impressions"]), _counts(frame["clicks"])
    position = _counts(frame["position"])
    _require((clicks <= impressions).all() and (position > 0).all(), "clicks")
    propensity = None
    if has_propensity:
        propensity = frame["propensity"].to_numpy().astype(np.float64)
        _require(((propensity > 0) & (propensity <= 1)).all(), "propensity")
    return Cells(row, position.astype(np.int32), propensity, impressions, clicks)


def _counts(column: pl.Series) -> NDArray[np.int64]:
    _require(not column.null_count() and column.dtype.is_integer(), column.name)
    values = column.to_numpy().astype(np.int64)
    _require((values >= 0).all(), column.name)
    return values


def _ids(column: pl.Series) -> Ids:
    _require(
        not column.null_count() and (column.dtype.is_integer() or column.dtype == pl.String), column.name
    )
    return as_text(column) if column.dtype == pl.String else np.asarray(column.to_numpy().astype(np.int64))


def _require(holds: Any, column: str) -> None:
    if not holds:
        raise InputError("its values contradict each other", column=column)
