"""Counts as one Parquet file that keeps all there is.

A row is an item, a list or a cell, as `kind` says. An item has `query_id`, `doc_id`, `group` and `features`.
A list has the numbers of its `items`, which are the item rows from 0 on, `impressions`, and `clicks` for the
impressions with a click. A cell has its `list`, the lists being numbered from 0 on too, its `item`,
`position`, `propensity` where known, `impressions` and `clicks`. All else stands as JSON in the metadata of
the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from fultr.data.dataset import RankingDataset
from fultr.data.facts import ImpressionFacts
from fultr.data.grouping import group_numbers, group_rows
from fultr.data.ids import UNKNOWN_GROUP, Ids, as_text, codes_of, text_series
from fultr.data.table_files import Table, kind_of, open_table, write_table
from fultr.errors import InputError
from fultr.files import atomic_write

COUNTS = "counts"
"""What the metadata of a file of counts calls its content."""

ITEM, LIST, CELL, PLANTED = "item", "list", "cell", "planted"

ROWS_A_PART = 1 << 16


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
    schema = pl.concat([frame.clear() for frame in frames], how="diagonal").to_arrow().schema

    def parts() -> Iterator[pa.Table]:
        for frame in frames:
            for start in range(0, frame.height, ROWS_A_PART):
                part = frame.slice(start, ROWS_A_PART).to_arrow()
                missing = {field.name: pa.nulls(part.num_rows, field.type) for field in schema}
                columns = {
                    name: part[name] if name in part.column_names else missing[name] for name in missing
                }
                yield pa.table(columns)

    with atomic_write(path) as temporary:
        write_table(temporary, schema, _metadata(counts), parts(), as_csv=False)


def _frames(counts: Counts) -> list[pl.DataFrame]:
    """Return items, lists and cells as frames, each with the columns that it has."""
    data, cells = counts.data, counts.cells
    query = np.arange(len(data)) if data.query_id is None else data.query_id
    document = np.arange(data.rows) if data.doc_id is None else data.doc_id
    order, starts = group_rows(codes_of(query)[data.list_of_row], codes_of(document))
    first, item_of_row = order[starts], group_numbers(order, starts)
    group = pl.Series(data.group[first].astype(np.int64))
    names = pl.Series("group", [*data.group_names, None], dtype=pl.String)
    width = data.features.shape[1]
    columns: dict[str, Any] = {
        "kind": pl.repeat(ITEM, first.size, eager=True),
        "query_id": _series(query[data.list_of_row[first]]),
        "doc_id": _series(document[first]),
        "group": names.gather(pl.Series(np.where(group < 0, len(data.group_names), group))),
    }
    if width:
        columns["features"] = pl.Series(data.features[first], dtype=pl.Array(pl.Float32, width))
    items = pl.DataFrame(columns)
    rows = pl.DataFrame({"list": data.list_of_row, "items": item_of_row})
    lists = (
        rows.group_by("list", maintain_order=True)
        .agg("items")
        .with_columns(
            kind=pl.lit(LIST),
            impressions=pl.Series(counts.impressions),
            clicks=pl.Series(counts.clicked_impressions),
            context=pl.Series(np.zeros(len(data), np.int64) if counts.context is None else counts.context),
        )
    )
    found = [items, lists]
    for kind, table in ((CELL, cells), (PLANTED, counts.planted)):
        frame = pl.DataFrame(
            {
                "kind": pl.repeat(kind, table.row.size, eager=True),
                "position": table.position,
                "impressions": table.impressions,
                "clicks": table.clicks,
            }
        )
        if table.propensity is not None:
            frame = frame.with_columns(propensity=pl.Series(table.propensity))
        if kind == CELL:
            frame = frame.with_columns(
                list=pl.Series(data.list_of_row[table.row]), item=pl.Series(item_of_row[table.row])
            )
        found.append(frame)
    return found


def _series(ids: Ids) -> pl.Series:
    return text_series(ids) if ids.dtype.kind == "T" else pl.Series(ids)


def _metadata(counts: Counts) -> dict[str, Any]:
    data = counts.data
    return {
        "kind": COUNTS,
        "position_bias": None if counts.position_bias is None else counts.position_bias.to_dict(),
        "noise": None if counts.noise is None else counts.noise.to_dict(),
        "empties_dropped": counts.empties_dropped,
        "origin": counts.origin,
        "context_name": counts.context_name,
        "context_values": counts.context_values,
        "facts": None if counts.facts is None else counts.facts.to_dict(),
        "files": [file._asdict() for file in counts.files],
        "group_names": data.group_names,
        "feature_names": data.feature_names,
        "group_columns": data.group_columns,
        "source": data.source,
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
        features = np.asarray(items["features"].to_numpy(), dtype=np.float32).reshape(
            items.height, len(names)
        )
    query = _ids(items["query_id"])[item_of_row]
    _require((codes_of(query) == codes_of(query)[offsets[:-1]][of_list]).all(), "query_id")
    data = RankingDataset(
        features[item_of_row],
        offsets,
        group=items["group"].to_list() and np.array(_codes(items["group"], group_names))[item_of_row],
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
        position_bias=_made(about["position_bias"], PositionBias.from_dict),
        noise=_made(about["noise"], ClickNoise.from_dict),
        empties_dropped=about["empties_dropped"] is True,
        origin=dict(about["origin"]),
        context=context,
        context_name=str(about["context_name"]),
        context_values=tuple(str(value) for value in about["context_values"]),
        facts=_made(about["facts"], ImpressionFacts.from_dict),
        files=tuple(CountedFile(str(f["name"]), int(f["rows"]), str(f["sha256"])) for f in about["files"]),
    )
    _require((counts.shown() <= np.repeat(impressions, lengths)).all(), "impressions")
    return counts


def _made(content: Any, make: Callable[[Any], Any]) -> Any:
    return None if content is None else make(content)


def _rows_of_cells(
    cells: pl.DataFrame, of_list: NDArray[np.int64], item_of_row: NDArray[np.int64]
) -> NDArray[np.int64]:
    known = pl.DataFrame({"list": of_list, "item": item_of_row}).with_row_index("row")
    found = cells.select("list", "item").join(known, on=["list", "item"], how="left", maintain_order="left")[
        "row"
    ]
    _require(not found.null_count(), "item")
    return np.asarray(found.to_numpy().astype(np.int64))


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


def _codes(column: pl.Series, names: list[str]) -> list[int]:
    known: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    known[None] = UNKNOWN_GROUP
    return [known[label] for label in column.to_list()]


def _require(holds: Any, column: str) -> None:
    if not holds:
        raise InputError("its values contradict each other", column=column)
