"""Click logs on disk: a long Parquet or CSV table, and the features of its documents.

Columns: `impression_id, query_id, doc_id, position, click` and, where known, `propensity`, `group`, `planted`
and `timestamp`. An empty position means that the candidate was not shown. Features are columns named
`feature_...`, one list column `features`, or stand in a second table keyed by `query_id, doc_id`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import Progress, names_of
from fultr.click_model import ClickNoise, PositionBias
from fultr.data.click_log import ClickLog
from fultr.data.coding import OnConflict
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Place, is_number, require_columns
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.ids import UNKNOWN_GROUP, Ids
from fultr.data.log_metadata import ITEMS, LogMetadata
from fultr.data.log_table import OPTIONAL, REQUIRED, LogBuilder, no_clicks
from fultr.data.merging import item_codes
from fultr.data.propensity import NOT_SHOWN
from fultr.data.table_files import Table, is_csv, open_table, table_of, write_table
from fultr.errors import InputError
from fultr.files import atomic_write

KEYS = ("query_id", "doc_id")
IMPRESSIONS_A_PART = 16_384
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
    progress: Progress | None = None,
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
    progress
        Called with how much of the table has been read, and with its size.
    """
    table = open_table(path, progress)
    about = LogMetadata.from_dict(table.metadata, table.file)
    features_wanted = features is None or len(features) > 0
    if items is None and features_wanted and about.items is not None:
        items = _items_beside(about.items, Path(path))
    documents = None if items is None else open_table(items)
    return _build(table, documents, about, columns or {}, features, group_names, on_conflict)


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
    about = LogMetadata(position_bias=position_bias, noise=noise, empties_dropped=empties_dropped)
    return _build(table_of(frame), documents, about, columns or {}, features, group_names, on_conflict)


def _build(
    table: Table,
    documents: Table | None,
    about: LogMetadata,
    renamed: Mapping[str, str],
    features: Sequence[str] | None,
    group_names: Sequence[str] | None,
    on_conflict: OnConflict,
) -> ClickLog:
    builder = LogBuilder(
        group_names=about.group_names if group_names is None else names_of(group_names, "group_names"),
        on_conflict=on_conflict,
        text_ids=table.is_text or (documents is not None and documents.is_text),
        keep_text=about.text_ids,
        file=table.file,
        rows=table.rows,
    )
    found: tuple[str, ...] = ()
    if documents is not None:
        found = _find_features(documents, features, all_numbers=True)
        for batch, place in _batches(documents, {}, KEYS, ("group",), found):
            builder.add_items(batch, place, found)
    in_log = _find_features(table, features, all_numbers=False) if documents is None else ()
    for batch, place in _batches(table, renamed, REQUIRED, OPTIONAL, in_log):
        builder.add(batch, place, in_log)
    try:
        log = builder.build(
            dataset=lambda width: about.dataset_fields(found or in_log, width),
            position_bias=about.position_bias,
            noise=about.noise,
            empties_dropped=about.empties_dropped,
            origin=about.origin,
        )
    except InputError as error:
        # of what is wrong with the log as a whole; rows have been found wrong before, with their file
        raise error if error.file is not None or table.file is None else error.located(table.file) from None
    return _without(log, about.invented)


def _find_features(table: Table, chosen: Sequence[str] | None, *, all_numbers: bool) -> tuple[str, ...]:
    if chosen is not None:
        names = names_of(chosen, "features")
        require_columns(table.schema.names, names, table.file)
        return names
    fields = {field.name: field for field in table.own_fields}
    if LIST_COLUMN in fields:
        return (LIST_COLUMN,)
    prefixed = tuple(name for name in fields if name.startswith(FEATURE_PREFIX))
    if prefixed or not all_numbers:
        return prefixed
    others = [field for name, field in fields.items() if name not in (*KEYS, "group", "relevance", "label")]
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


def _items_beside(items: Mapping[str, str], log: Path) -> Path:
    """Find the table of documents that was written with a log, and make sure that it is that one."""
    path = log.with_name(items["file"])
    if not path.exists():
        problem = f"the features of its documents are missing: {path.name} should stand beside it"
        raise InputError(problem, file=log)
    if _digest(path) != items["sha256"]:
        problem = (
            f"{path.name} is not the table of documents it was written with; name one to use it all the same"
        )
        raise InputError(problem, file=log)
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
        ("table", named as `items_file` says), with each row as one list ("list", Parquet only) or as columns
        ("columns"), or "none". Such a second file of an earlier log is replaced, or left where it is if
        there is none now; one that fultr did not write is never replaced.
    """
    if features not in ("table", "list", "columns", "none"):
        raise InputError("must be 'table', 'list', 'columns' or 'none'", column="features", value=features)
    target, as_csv = Path(path), is_csv(path)
    if as_csv and features == "list":
        raise InputError("a CSV file cannot hold lists; write features as columns", file=target)
    if not log.data.features.shape[1]:
        features = "none"
    if not log.click.any():
        raise no_clicks(target)
    named, invented = _with_ids(log)
    about = LogMetadata.of(named, invented, with_features=features != "none")
    if features != "table":
        with atomic_write(target) as temporary:
            _write_rows(named, temporary, about, features, as_csv)
        return [target]
    items = items_file(target)
    _refuse_foreign(items)
    with atomic_write(target) as temporary, atomic_write(items) as temporary_items:
        _write_items(named.data, temporary_items, as_csv)
        about = replace(about, items={"file": items.name, "sha256": _digest(temporary_items)})
        _write_rows(named, temporary, about, features, as_csv)
    return [target, items]


def items_file(path: str | Path) -> Path:
    """Return the name of the table of documents that is written beside a log."""
    log = Path(path)
    return log.with_name(f"{log.stem}.items{log.suffix}")


def _refuse_foreign(items: Path) -> None:
    """Refuse to replace a table of documents that somebody else made: it may be all there is of it."""
    if not items.exists():
        return
    try:
        ours = open_table(items).metadata.get("kind") == ITEMS
    except InputError:
        ours = False
    if not ours:
        problem = (
            "is there already and was not written by fultr; give the log another name, or keep its features"
            " in it (features='list' or 'columns')"
        )
        raise InputError(problem, file=items)


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


def _write_items(data: RankingDataset, path: Path, as_csv: bool) -> None:
    _, first = np.unique(item_codes(data), return_index=True)
    first.sort()
    query = ids_of(data.query_id)[data.list_of_row[first]]
    table = {"query_id": pa.array(query), "doc_id": pa.array(ids_of(data.doc_id)[first])}
    table |= _feature_columns(data, first, "columns" if as_csv else "list")
    whole = pa.table(table)
    write_table(path, whole.schema, {"kind": ITEMS}, [whole], as_csv=as_csv)


def _write_rows(log: ClickLog, path: Path, about: LogMetadata, features: FeatureForm, as_csv: bool) -> None:
    starts = range(0, max(len(log), 1), IMPRESSIONS_A_PART)
    first = _part(log, slice(0, 0), features, as_csv)
    parts = (_part(log, slice(start, start + IMPRESSIONS_A_PART), features, as_csv) for start in starts)
    write_table(path, first.schema, about.to_dict(), parts, as_csv=as_csv)


@dataclass(frozen=True)
class _Rows:
    """Rows to write: their impression, their row of the data (-1 for a planted item) and what happened."""

    impression: NDArray[np.int64]
    row: NDArray[np.int64]
    position: NDArray[np.int32]
    click: NDArray[np.bool_]
    propensity: NDArray[np.float64] | None


def _rows_of(log: ClickLog, impressions: slice) -> _Rows:
    """Return the rows of some impressions: their candidates in the order of the list, then planted items."""
    start, stop, _ = impressions.indices(len(log))
    chosen = np.arange(start, stop)
    entries = slice(int(log.offsets[start]), int(log.offsets[stop]))
    planted = np.flatnonzero((log.planted.impression >= start) & (log.planted.impression < stop))
    impression = np.repeat(chosen, np.diff(log.offsets[start : stop + 1]))
    impression = np.concatenate([impression, log.planted.impression[planted]])
    order = np.argsort(impression, kind="stable")

    def merged(of_entries: NDArray[Any], of_planted: NDArray[Any] | None) -> NDArray[Any]:
        if of_planted is not None:
            of_entries = np.concatenate([of_entries, of_planted[planted]])
        return of_entries[order]

    return _Rows(
        impression=impression[order],
        row=merged(rows_of(log.data.offsets, log.lists[chosen]), np.full(len(log.planted), -1)),
        position=merged(log.position[entries], log.planted.position),
        click=merged(log.click[entries], log.planted.click),
        propensity=None
        if log.propensity is None
        else merged(log.propensity[entries], log.planted.propensity),
    )


def _part(log: ClickLog, impressions: slice, features: FeatureForm, as_csv: bool) -> pa.Table:
    """Make the table of some impressions."""
    rows, data = _rows_of(log, impressions), log.data
    is_planted = rows.row < 0
    document = ids_of(data.doc_id)[rows.row]
    document[is_planted] = PLANTED_TEXT if document.dtype.kind == "T" else PLANTED_NUMBER
    columns = {
        "impression_id": pa.array(ids_of(log.impression_id)[rows.impression]),
        "query_id": pa.array(ids_of(data.query_id)[log.lists[rows.impression]]),
        "doc_id": pa.array(document),
        "position": pa.array(rows.position, mask=rows.position == NOT_SHOWN),
        "click": pa.array(rows.click.astype(np.int8)),
    }
    if rows.propensity is not None:
        columns["propensity"] = pa.array(rows.propensity, mask=np.isnan(rows.propensity))
    if data.group_names:
        code = np.where(is_planted, UNKNOWN_GROUP, data.group[rows.row])
        codes = pa.array(code, mask=code == UNKNOWN_GROUP)
        group = pa.DictionaryArray.from_arrays(codes, pa.array(data.group_names))
        columns["group"] = group.cast(pa.string()) if as_csv else group
    if len(log.planted):
        columns["planted"] = pa.array(is_planted.astype(np.int8))
    if log.timestamp is not None:
        columns["timestamp"] = pa.array(log.timestamp[rows.impression])
    if features in ("list", "columns"):
        columns |= _feature_columns(data, np.where(is_planted, 0, rows.row), features)
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
