"""Writing click logs: a long Parquet or CSV table, and the features of its documents.

Columns: `impression_id, query_id, doc_id, position, click` and, where known, `propensity`, `group`, `planted`
and `timestamp`. An empty position means that the candidate was not shown. Features are columns named
`feature_...`, one list column `features`, or stand in a second table keyed by `query_id, doc_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import polars as pl
import pyarrow as pa

from fultr.arguments import one_of
from fultr.data.click_log import ClickLog
from fultr.data.dataset import RankingDataset
from fultr.data.frames import feature_columns, frame_of_log, id_series
from fultr.data.ids import IdCodes
from fultr.data.merging import id_codes_of, item_table
from fultr.data.table_files import arrow_table, file_digest, is_csv, open_table, write_table
from fultr.errors import InputError
from fultr.files import atomic_write, written_together
from fultr.logs.metadata import ITEMS, LogMetadata
from fultr.logs.reading import no_clicks

IMPRESSIONS_A_TABLE = 16_384
"""Impressions that are written together."""

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
    starts = range(0, max(len(log), 1), IMPRESSIONS_A_TABLE)
    parts = (log[start : start + IMPRESSIONS_A_TABLE] for start in starts)
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

    `about` is a log without impressions that has all the rest, and `parts` are its impressions, over the same
    lists; what is raised while they are made leaves the old files. `planted` says whether there may be
    planted items; each part need not have any.
    """
    one_of(features, "features", *get_args(FeatureForm))
    target, as_csv = Path(path), is_csv(path)
    if as_csv and features == "list":
        raise InputError("a CSV file cannot hold lists; write features as columns", file=target)
    form: FeatureForm = features if about.data.features.shape[1] else "none"
    ids = {"query_id": about.data.query_id, "doc_id": about.data.doc_id, "impression_id": about.impression_id}
    invented = [name for name, values in ids.items() if values is None]
    metadata = LogMetadata.of(about, invented, with_features=form != "none")

    def tables() -> Iterator[pa.Table]:
        before = 0
        for part in parts:
            if part.impression_id is None:
                part = replace(part, impression_id=np.arange(before, before + len(part)))
            before += len(part)
            yield _table(part, form, as_csv, planted=planted)

    def write(temporary: Path, about_file: LogMetadata) -> None:
        schema = _table(about, form, as_csv, planted=planted).schema
        write_table(temporary, schema, about_file.to_dict(), tables(), as_csv=as_csv)

    if form != "table":
        with atomic_write(target) as temporary:
            write(temporary, metadata)
        return [target]
    items = items_file(target)
    check_replaceable(items)
    with (
        written_together(),
        atomic_write(items, companion=True) as temporary_items,
        atomic_write(target) as temporary,
    ):
        _write_items(about.data, temporary_items, as_csv)
        write(
            temporary, replace(metadata, items={"file": items.name, "sha256": file_digest(temporary_items)})
        )
    return [target, items]


def items_file(path: str | Path) -> Path:
    """Return the name of the table of documents that is written beside a log."""
    log = Path(path)
    return log.with_name(f"{log.stem}.items{log.suffix}")


def check_replaceable(items: Path) -> None:
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
            " in it, as a list or as columns"
        )
        raise InputError(problem, file=items)


def _write_items(data: RankingDataset, path: Path, as_csv: bool) -> None:
    queries, documents = IdCodes(), IdCodes()
    items = item_table(data, *id_codes_of(data, queries, documents))
    rows = np.arange(items.query.size)
    columns = {
        "query_id": id_series(queries.ids(items.query), rows),
        "doc_id": id_series(documents.ids(items.document), rows),
        **feature_columns(data, items.features, "columns" if as_csv else "list"),
    }
    table = arrow_table(pl.DataFrame(columns))
    write_table(path, table.schema, {"kind": ITEMS}, [table], as_csv=as_csv)


def _table(log: ClickLog, features: FeatureForm, as_csv: bool, *, planted: bool) -> pa.Table:
    """Return the long table of a log: for each impression its candidates, then its planted items."""
    frame = frame_of_log(log, features)
    if planted and not len(log.planted):
        frame = frame.with_columns(planted=pl.lit(0, pl.Int8))
    if log.data.group_names and not as_csv:
        frame = frame.cast({"group": pl.Enum(log.data.group_names)})
    return arrow_table(frame)
