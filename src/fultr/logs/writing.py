"""Writing click logs: a long Parquet or CSV table, and the features of its documents.

Columns: `impression_id, query_id, doc_id, position, click` and, where known, `propensity`, `group`, `planted`
and `timestamp`. An empty position means that the candidate was not shown. Features are columns named
`feature_...`, one list column `features`, or stand in a second table keyed by `query_id, doc_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data.click_log import ClickLog
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN
from fultr.data.count_impressions import id_codes_of, item_table
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.grouping import group_rows
from fultr.data.id_codes import IdCodes
from fultr.data.ids import UNKNOWN_GROUP, Ids
from fultr.data.propensity import NOT_SHOWN
from fultr.data.table_files import file_digest, is_csv, open_table, write_table
from fultr.errors import InputError
from fultr.files import atomic_write
from fultr.logs.metadata import ITEMS, LogMetadata
from fultr.logs.opening import no_clicks

IMPRESSIONS_A_PART = 16_384
"""Impressions that are written together."""

PLANTED_TEXT, PLANTED_NUMBER = "(planted)", -1
"""The document id of a planted item, which is no document of the log."""

FeatureForm = Literal["table", "list", "columns", "none"]


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
    is_csv(path)
    if not log.click.any():
        raise no_clicks(Path(path))
    starts = range(0, max(len(log), 1), IMPRESSIONS_A_PART)
    parts = (log[start : start + IMPRESSIONS_A_PART] for start in starts)
    return write_log_parts(log[:0], parts, path, features=features, planted=len(log.planted) > 0)


def write_log_parts(
    about: ClickLog,
    parts: Iterable[ClickLog],
    path: str | Path,
    *,
    features: FeatureForm = "table",
    planted: bool = False,
) -> list[Path]:
    """Write a log that comes in parts, so that it is never held as a whole; return the files written.

    Parameters
    ----------
    about
        A log without impressions that has all the rest: the lists, with their ids, and what is known of it.
    parts
        Its impressions, over the same lists. What is raised while they are made leaves the old files.
    path, features
        As for `write_log`.
    planted
        Whether there may be planted items; each part need not have any.
    """
    if features not in ("table", "list", "columns", "none"):
        raise InputError("must be 'table', 'list', 'columns' or 'none'", column="features", value=features)
    target, as_csv = Path(path), is_csv(path)
    if as_csv and features == "list":
        raise InputError("a CSV file cannot hold lists; write features as columns", file=target)
    form: FeatureForm = features if about.data.features.shape[1] else "none"
    named, invented = _with_ids(about)
    metadata = LogMetadata.of(named, invented, with_features=form != "none")

    def tables() -> Iterator[pa.Table]:
        before = 0
        for part in parts:
            ids = np.arange(before, before + len(part)) if part.impression_id is None else part.impression_id
            before += len(part)
            yield _table(replace(part, data=named.data, impression_id=ids), form, as_csv, planted=planted)

    def write(temporary: Path, about_file: LogMetadata) -> None:
        schema = _table(named, form, as_csv, planted=planted).schema
        write_table(temporary, schema, about_file.to_dict(), tables(), as_csv=as_csv)

    if form != "table":
        with atomic_write(target) as temporary:
            write(temporary, metadata)
        return [target]
    items = items_file(target)
    _check_replaceable(items)
    with atomic_write(target) as temporary, atomic_write(items) as temporary_items:
        _write_items(named.data, temporary_items, as_csv)
        write(
            temporary, replace(metadata, items={"file": items.name, "sha256": file_digest(temporary_items)})
        )
    return [target, items]


def items_file(path: str | Path) -> Path:
    """Return the name of the table of documents that is written beside a log."""
    log = Path(path)
    return log.with_name(f"{log.stem}.items{log.suffix}")


def _check_replaceable(items: Path) -> None:
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
    of_lists, of_rows = id_codes_of(data, IdCodes(), IdCodes())
    item_table(data, of_lists, of_rows)  # refuses documents with different features
    order, starts = group_rows(np.repeat(of_lists, data.lengths), of_rows)
    first = np.sort(order[starts])
    query = _ids_of(data.query_id)[data.list_of_row[first]]
    table = {"query_id": pa.array(query), "doc_id": pa.array(_ids_of(data.doc_id)[first])}
    table |= feature_columns(data, first, "columns" if as_csv else "list")
    whole = pa.table(table)
    write_table(path, whole.schema, {"kind": ITEMS}, [whole], as_csv=as_csv)


def _table(log: ClickLog, features: FeatureForm, as_csv: bool, *, planted: bool) -> pa.Table:
    """Make the long table of a log: for each impression its candidates, then its planted items."""
    data, items = log.data, log.planted
    impression = np.concatenate([log.impression_of_entry, items.impression])
    order = np.argsort(impression, kind="stable")

    def joined(of_entries: NDArray[Any], of_planted: NDArray[Any] | None) -> NDArray[Any]:
        return (of_entries if of_planted is None else np.concatenate([of_entries, of_planted]))[order]

    row = joined(rows_of(data.offsets, log.lists), np.full(len(items), -1))
    is_planted, impression = row < 0, impression[order]
    position = joined(log.position, items.position)
    document = _ids_of(data.doc_id)[row]
    document[is_planted] = PLANTED_TEXT if document.dtype.kind == "T" else PLANTED_NUMBER
    columns = {
        "impression_id": pa.array(_ids_of(log.impression_id)[impression]),
        "query_id": pa.array(_ids_of(data.query_id)[log.lists[impression]]),
        "doc_id": pa.array(document),
        "position": pa.array(position, mask=position == NOT_SHOWN),
        "click": pa.array(joined(log.click, items.click).astype(np.int8)),
    }
    if log.propensity is not None:
        propensity = joined(log.propensity, items.propensity)
        columns["propensity"] = pa.array(propensity, mask=np.isnan(propensity))
    if data.group_names:
        code = np.where(is_planted, UNKNOWN_GROUP, data.group[row])
        codes = pa.array(code, mask=code == UNKNOWN_GROUP)
        group = pa.DictionaryArray.from_arrays(codes, pa.array(data.group_names))
        columns["group"] = group.cast(pa.string()) if as_csv else group
    if planted:
        columns["planted"] = pa.array(is_planted.astype(np.int8))
    if log.timestamp is not None:
        columns["timestamp"] = pa.array(log.timestamp[impression])
    if features in ("list", "columns"):
        columns |= feature_columns(data, np.where(is_planted, 0, row), features)
    return pa.table(columns)


def feature_columns(data: RankingDataset, rows: NDArray[np.int64], form: str) -> dict[str, pa.Array]:
    """Return the features of some rows as one list column, or as a column for each."""
    table = data.features[rows]
    if form == "list":
        return {LIST_COLUMN: pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), table.shape[1])}
    names = [FEATURE_PREFIX + name for name in data.feature_names]
    return {name: pa.array(table[:, column]) for column, name in enumerate(names)}


def _ids_of(ids: Ids | None) -> Ids:
    assert ids is not None  # noqa: S101 - `_with_ids` has filled them in
    return ids
