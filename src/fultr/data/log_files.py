"""Click logs on disk: a long Parquet or CSV table, and the features of its documents.

Columns: `impression_id, query_id, doc_id, position, click` and, where known, `propensity`, `group`, `planted`
and `timestamp`. An empty position means that the candidate was not shown. Features are columns named
`feature_...`, one list column `features`, or stand in a second table keyed by `query_id, doc_id`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.click_model import ClickNoise, PositionBias
from fultr.data.click_log import ClickLog
from fultr.data.coding import OnConflict
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Place, is_number, require_columns
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.ids import Ids
from fultr.data.log_table import OPTIONAL, REQUIRED, LogBuilder
from fultr.data.merging import item_codes
from fultr.data.table_files import Table, is_csv, open_table, table_of, write_table
from fultr.errors import InputError
from fultr.files import atomic_write

KEYS = ("query_id", "doc_id")
IMPRESSIONS_A_PART = 16_384
LOG = "click-log"
PLANTED_TEXT, PLANTED_NUMBER = "(planted)", -1
"""The document id of a planted item, which is no document of the log."""

FeatureForm = Literal["table", "list", "columns", "none"]


def read_log(
    path: str | Path,
    *,
    items: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    group_names: Sequence[str] | None = None,
    on_conflict: OnConflict = "error",
) -> ClickLog:
    """Read a click log from a long Parquet or CSV table; its rows may come in any order.

    Parameters
    ----------
    path
        The table, one row for each candidate of each impression.
    items
        The table of documents with their features, keyed by query_id and doc_id. By default the one that was
        written with the log, if any.
    columns
        Where the table calls a column otherwise, e.g. `{"query_id": "search_id"}`.
    features
        The columns that hold features; by default `features` or those that start with `feature_`, and in a
        table of documents all other numbers. An empty list reads no features at all.
    group_names
        The groups there are; another one in the table is then an error.
    on_conflict
        What to do when a document of a query comes with different features or groups: "error", or take the
        "first" or the "last".
    """
    table = open_table(path)
    features_wanted = features is None or len(features) > 0
    if items is None and features_wanted and table.file is not None:
        items = _items_beside(table.metadata, table.file)
    documents = None if items is None else open_table(items)
    return _build(table, documents, columns or {}, features, group_names, on_conflict)


def log_from_frame(
    frame: Any,
    *,
    items: Any = None,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    group_names: Sequence[str] | None = None,
    on_conflict: OnConflict = "error",
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    empties_dropped: bool = False,
) -> ClickLog:
    """Make a click log of a pandas, polars or Arrow frame, or a mapping of columns, as `read_log` does.

    Examples
    --------
    >>> log = log_from_frame({"impression_id": [1, 1], "query_id": ["jobs", "jobs"], "doc_id": [7, 8],
    ...                       "position": [1, 2], "click": [0, 1], "group": ["a", "b"]})
    >>> log
    <ClickLog: 1 impressions of 1 lists, 1 clicks>
    """
    documents = None if items is None else table_of(items)
    log = _build(table_of(frame), documents, columns or {}, features, group_names, on_conflict)
    return replace(log, position_bias=position_bias, noise=noise, empties_dropped=empties_dropped)


def _build(
    table: Table,
    documents: Table | None,
    renamed: Mapping[str, str],
    features: Sequence[str] | None,
    group_names: Sequence[str] | None,
    on_conflict: OnConflict,
) -> ClickLog:
    about = table.metadata
    if about.get("kind", LOG) != LOG:
        raise InputError(f"holds no click log but a {about['kind']}", file=table.file)
    builder = LogBuilder(
        group_names=about.get("group_names") if group_names is None else group_names,
        on_conflict=on_conflict,
        text_ids=table.is_text or (documents is not None and documents.is_text),
        keep_text=about.get("text_ids", ()),
        file=table.file,
    )
    found: tuple[str, ...] = ()
    if documents is not None:
        found = _find_features(documents, features, all_numbers=True)
        for batch, place in _batches(documents, {}, KEYS, ("group",), found):
            builder.add_items(batch, place, found)
    in_log = _find_features(table, features, all_numbers=False) if documents is None else ()
    for batch, place in _batches(table, renamed, REQUIRED, OPTIONAL, in_log):
        builder.add(batch, place, in_log)
    found = found or in_log
    names = [] if found == (LIST_COLUMN,) else [name.removeprefix(FEATURE_PREFIX) for name in found]
    log = builder.build(
        dataset={
            "feature_names": about.get("feature_names", names) if found else (),
            "group_columns": about.get("group_columns", ()) if found else (),
            "source": about.get("source", ""),
        },
        position_bias=PositionBias.from_dict(about["position_bias"]) if about.get("position_bias") else None,
        noise=ClickNoise(**about["noise"]) if about.get("noise") else None,
        empties_dropped=bool(about.get("empties_dropped", False)),
        origin=dict(about.get("origin", {})),
    )
    return _without(log, about.get("invented", ()))


def _find_features(table: Table, chosen: Sequence[str] | None, *, all_numbers: bool) -> tuple[str, ...]:
    names = table.schema.names
    if chosen is not None:
        require_columns(names, chosen, table.file)
        return tuple(chosen)
    if LIST_COLUMN in names:
        return (LIST_COLUMN,)
    prefixed = tuple(name for name in names if name.startswith(FEATURE_PREFIX))
    if prefixed or not all_numbers:
        return prefixed
    others = [field for field in table.schema if field.name not in (*KEYS, "group", "relevance", "label")]
    return tuple(field.name for field in others if table.is_text or is_number(field.type))


def _batches(
    table: Table,
    renamed: Mapping[str, str],
    required: Sequence[str],
    optional: Sequence[str],
    features: Sequence[str],
) -> Iterator[tuple[dict[str, pa.Array], Place]]:
    """Read the columns that are needed, under our names."""
    names = table.schema.names
    for name in renamed:
        if name not in (*REQUIRED, *OPTIONAL):
            known = ", ".join((*REQUIRED, *OPTIONAL))
            raise InputError(f"no such column to rename; there are: {known}", column=name)
    require_columns(names, [renamed.get(name, name) for name in required], table.file)
    require_columns(names, [renamed[name] for name in optional if name in renamed], table.file)
    asked = {name: renamed.get(name, name) for name in (*required, *optional)}
    wanted = {name: column for name, column in asked.items() if column in names}
    wanted.update((name, name) for name in features)
    for batch, place in table.batches(list(dict.fromkeys(wanted.values()))):
        yield {name: batch[column] for name, column in wanted.items()}, place


def _items_beside(about: Mapping[str, Any], file: Path) -> Path | None:
    """Find the table of documents that was written with a log, and make sure that it is that one."""
    if "items" not in about:
        return None
    path = file.with_name(about["items"]["file"])
    if not path.exists():
        problem = f"the features of its documents are missing: {path.name} should stand beside it"
        raise InputError(problem, file=file)
    if _digest(path) != about["items"]["sha256"]:
        problem = (
            f"{path.name} is not the table of documents it was written with; name one to use it all the same"
        )
        raise InputError(problem, file=file)
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without(log: ClickLog, invented: Sequence[str]) -> ClickLog:
    """Take away the ids that the log did not have and that were invented to write it."""
    data = replace(
        log.data,
        query_id=None if "query_id" in invented else log.data.query_id,
        doc_id=None if "doc_id" in invented else log.data.doc_id,
    )
    return replace(log, data=data, impression_id=None if "impression_id" in invented else log.impression_id)


def write_log(log: ClickLog, path: str | Path, *, features: FeatureForm = "table") -> list[Path]:
    """Write a click log as a Parquet or CSV table, by the ending of `path`; return the files written.

    Parameters
    ----------
    log
        The log. Relevances of its data are not written.
    path
        Where to write it. What was there is replaced only once all is written.
    features
        How to keep the features: once for each document of a query in a second file beside the first
        ("table"), with each row as one list ("list", Parquet only) or as columns ("columns"), or "none".
    """
    if features not in ("table", "list", "columns", "none"):
        raise InputError("must be 'table', 'list', 'columns' or 'none'", column="features", value=features)
    target, as_csv = Path(path), is_csv(path)
    if as_csv and features == "list":
        raise InputError("a CSV file cannot hold lists; write features as columns", file=target)
    if not log.data.features.shape[1]:
        features = "none"
    named, invented = _with_ids(log)
    about = _metadata(named, invented, features)
    written = [target]
    with atomic_write(target) as temporary:
        if features == "table":
            items = target.with_name(f"{target.stem}.items{target.suffix}")
            with atomic_write(items) as temporary_items:
                _write_items(named.data, temporary_items, as_csv)
                about["items"] = {"file": items.name, "sha256": _digest(temporary_items)}
                _write_rows(named, temporary, about, features, as_csv)
            written.append(items)
        else:
            _write_rows(named, temporary, about, features, as_csv)
    return written


def _with_ids(log: ClickLog) -> tuple[ClickLog, list[str]]:
    """Give ids to a log without them, and say to which columns."""
    data, invented = log.data, []
    if data.query_id is None:
        invented.append("query_id")
        data = replace(data, query_id=np.arange(len(data)))
    if data.doc_id is None:
        invented.append("doc_id")
        data = replace(data, doc_id=np.arange(data.rows))
    if log.impression_id is None:
        invented.append("impression_id")
        log = replace(log, impression_id=np.arange(len(log)))
    return replace(log, data=data), invented


def _metadata(log: ClickLog, invented: list[str], features: FeatureForm) -> dict[str, Any]:
    named = {"impression_id": log.impression_id, "query_id": log.data.query_id, "doc_id": log.data.doc_id}
    return {
        "kind": LOG,
        "position_bias": None if log.position_bias is None else log.position_bias.to_dict(),
        "noise": None if log.noise is None else log.noise.to_dict(),
        "empties_dropped": log.empties_dropped,
        "origin": log.origin,
        "source": log.data.source,
        "group_names": list(log.data.group_names),
        "feature_names": [] if features == "none" else list(log.data.feature_names),
        "group_columns": [] if features == "none" else list(log.data.group_columns),
        "invented": invented,
        "text_ids": [name for name, ids in named.items() if ids is not None and ids.dtype.kind == "T"],
    }


def _write_items(data: RankingDataset, path: Path, as_csv: bool) -> None:
    _, first = np.unique(item_codes(data), return_index=True)
    first.sort()
    query = ids_of(data.query_id)[data.list_of_row[first]]
    table = {"query_id": pa.array(query), "doc_id": pa.array(ids_of(data.doc_id)[first])}
    table |= _feature_columns(data, first, "columns" if as_csv else "list")
    whole = pa.table(table)
    write_table(path, whole.schema, {"kind": "items"}, [whole], as_csv=as_csv)


def _write_rows(
    log: ClickLog, path: Path, about: Mapping[str, Any], features: FeatureForm, as_csv: bool
) -> None:
    starts = range(0, max(len(log), 1), IMPRESSIONS_A_PART)
    first = _part(log, slice(0, 0), features, as_csv)
    parts = (_part(log, slice(start, start + IMPRESSIONS_A_PART), features, as_csv) for start in starts)
    write_table(path, first.schema, about, parts, as_csv=as_csv)


def _part(log: ClickLog, impressions: slice, features: FeatureForm, as_csv: bool) -> pa.Table:
    """Make the rows of some impressions: their candidates in the order of the list, then planted items."""
    start, stop, _ = impressions.indices(len(log))
    chosen = np.arange(start, stop)
    entries = slice(int(log.offsets[start]), int(log.offsets[stop]))
    lengths = np.diff(log.offsets)[chosen]
    planted = np.flatnonzero((log.planted.impression >= start) & (log.planted.impression < stop))
    impression = np.concatenate([np.repeat(chosen, lengths), log.planted.impression[planted]])
    order = np.argsort(impression, kind="stable")
    data, rows = log.data, rows_of(log.data.offsets, log.lists[chosen])
    none = np.full(planted.size, -1)
    row = np.concatenate([rows, none])[order]
    impression, is_planted = impression[order], row < 0
    position = np.concatenate([log.position[entries], log.planted.position[planted]])[order]
    click = np.concatenate([log.click[entries], log.planted.click[planted]])[order]
    document = ids_of(data.doc_id)[row]
    document[is_planted] = PLANTED_TEXT if document.dtype.kind == "T" else PLANTED_NUMBER
    columns = {
        "impression_id": pa.array(ids_of(log.impression_id)[impression]),
        "query_id": pa.array(ids_of(data.query_id)[log.lists[impression]]),
        "doc_id": pa.array(document),
        "position": pa.array(position, mask=position == 0),
        "click": pa.array(click.astype(np.int8)),
    }
    if log.propensity is not None:
        of_planted = np.empty(0) if log.planted.propensity is None else log.planted.propensity[planted]
        propensity = np.concatenate([log.propensity[entries], of_planted])[order]
        columns["propensity"] = pa.array(propensity, mask=np.isnan(propensity))
    if data.group_names:
        code = np.where(is_planted, -1, data.group[row])
        group = pa.DictionaryArray.from_arrays(pa.array(code, mask=code < 0), pa.array(data.group_names))
        columns["group"] = group.cast(pa.string()) if as_csv else group
    if len(log.planted):
        columns["planted"] = pa.array(is_planted.astype(np.int8))
    if log.timestamp is not None:
        columns["timestamp"] = pa.array(log.timestamp[impression])
    if features in ("list", "columns"):
        columns |= _feature_columns(data, np.where(is_planted, 0, row), features)
    return pa.table(columns)


def _feature_columns(data: RankingDataset, rows: NDArray[np.int64], form: str) -> dict[str, pa.Array]:
    table = data.features[rows]
    if form == "list":
        return {LIST_COLUMN: pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), table.shape[1])}
    names = [FEATURE_PREFIX + name for name in data.feature_names]
    return {name: pa.array(table[:, column]) for column, name in enumerate(names)}


def ids_of(ids: Ids | None) -> Ids:
    """Return ids that are known to be there."""
    assert ids is not None  # noqa: S101 - `_with_ids` has filled them in
    return ids
