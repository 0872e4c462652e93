"""Counting logs: from rows, wherever they are, to counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fultr.arguments import Progress
from fultr.click_model import ClickNoise, PositionBias
from fultr.data.count_impressions import without_ids
from fultr.data.counts import CountedFile, Counts
from fultr.data.counts_files import holds_counts, read_counts
from fultr.data.merging import merge
from fultr.data.table_files import Table, file_digest, is_address, name_of
from fultr.errors import InputError
from fultr.logs.items import OnConflict
from fultr.logs.opening import LogOptions, OpenedLog
from fultr.logs.sources import files_of


def count(
    source: Any,
    *,
    items: Any = None,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    group_names: Sequence[str] | None = None,
    on_conflict: OnConflict = "error",
    context: str | None = None,
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    empties_dropped: bool = False,
    progress: Progress | None = None,
) -> Counts:
    """Count the impressions and clicks of a log while it is read; the log may be larger than memory.

    Rows may come in any order. They are fastest to count if those of an impression stand together; others are
    brought together first, on disk if they are many.

    Parameters
    ----------
    source
        A long table with a row for each candidate of each impression: a Parquet, CSV, Arrow or NDJSON file, a
        glob, a folder (parts of its path such as `device=phone` are columns), an address (s3://, gs://,
        az://), a pandas, polars or Arrow frame, a mapping of columns; or a list of them. Files of counts are
        taken as they are.
    items
        The table of documents with their groups and features, keyed by query_id and doc_id. By default the
        one that was written with the log, if any.
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
    context
        A column with one value for each impression, such as the device. Impressions with different values are
        counted apart.
    position_bias, noise, empties_dropped
        The click model that belongs to the log, if the file does not say it, and whether impressions without
        a click are missing.
    progress
        Called with how much of a file has been read, and with its size, 0 if that is not known.

    Examples
    --------
    >>> count({"impression_id": [1, 1, 2, 2], "query_id": ["jobs"] * 4, "doc_id": [7, 8, 8, 7],
    ...        "position": [1, 2, 1, 2], "click": [0, 1, 1, 0]})
    <Counts: 2 impressions of 1 lists, 4 cells>
    """
    options = LogOptions(
        items,
        columns,
        features,
        group_names,
        on_conflict,
        context,
        position_bias,
        noise,
        empties_dropped,
        progress,
    )
    counted, logs = _counted_already(source)
    if logs is not None:
        counted.append(_count(logs, options))
    return merge(*counted)


def _counted_already(source: Any) -> tuple[list[Counts], Any]:
    """Read the files of counts among sources; return them, and what is left to be counted."""
    if isinstance(source, (str, Path)):
        source = files_of([source]) if is_address(source) or not Path(source).is_file() else [source]
    if not isinstance(source, Sequence) or isinstance(source, Table):
        return [], source
    if not all(isinstance(one, (str, Path)) for one in source):
        return [], source
    files = files_of(source)
    is_counts = [holds_counts(file) for file in files]
    counted = [read_counts(file) for file, holds in zip(files, is_counts, strict=True) if holds]
    logs = [file for file, holds in zip(files, is_counts, strict=True) if not holds]
    return counted, logs or None


def _count(source: Any, options: LogOptions) -> Counts:
    log = OpenedLog(source, options)
    files = counted_files(log)
    counts, _ = log.counts(log.tally())
    rows = log.reader.rows_read
    named = (CountedFile(name, rows[index], digest) for index, name, digest in files)
    return finished(replace(counts, files=tuple(sorted(named))), log)


def counted_files(log: OpenedLog) -> list[tuple[int, str, str]]:
    """Return index, name and digest of each file of a log; refuse one that stands there twice."""
    found: dict[str, tuple[int, str, str]] = {}
    for index, table in enumerate(log.tables):
        if table.file is None:
            continue
        digest = file_digest(table.file)
        if digest in found:
            problem = f"holds the same as {found[digest][1]}: its impressions would be counted twice"
            raise InputError(problem, file=table.file)
        found[digest] = (index, name_of(table.file), digest)
    return list(found.values())


def finished(counts: Counts, log: OpenedLog) -> Counts:
    """Return counts without the ids that were made up to write the log."""
    return without_ids(counts, "query_id" in log.about.invented, "doc_id" in log.about.invented)
