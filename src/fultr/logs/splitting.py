"""A log file in two parts: rows go to one file or the other, and nothing in them is changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import Progress, checked_number, one_of
from fultr.data.click_log import ClickLog
from fultr.data.columns import Location, ids
from fultr.data.frames import id_series
from fultr.data.table_files import Table, is_csv, write_table
from fultr.errors import InputError
from fultr.files import atomic_write, check_outputs, written_together
from fultr.logs.metadata import LogMetadata
from fultr.logs.reading import LogOptions, items_beside, read_log
from fultr.logs.sources import tables_of
from fultr.logs.writing import check_replaceable, items_file


class LogPart(NamedTuple):
    """One of the two parts: its impressions, without features, and the files that hold it."""

    log: ClickLog
    files: list[Path]


def split_log(
    source: str | Path,
    out_train: str | Path,
    out_test: str | Path,
    *,
    by: Literal["query", "time"] = "query",
    share: float = 0.2,
    columns: Mapping[str, str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[LogPart, LogPart]:
    """Split a click log file in two, row by row: both parts have all its columns and its metadata.

    A table of documents that was written with the log is copied beside each part. Both parts appear whole, or
    nothing is written.

    Parameters
    ----------
    source
        The log, a long table in one file.
    out_train, out_test
        Where the part to train on, and the one put aside, are written: .parquet or .csv files. The parts of a
        CSV file are CSV files, since its columns have no types.
    by
        "query": all impressions of a query go to one side, drawn at random. "time": the last impressions are
        put aside; those of one moment stay on one side.
    share
        Of the queries, or of the impressions by time, that is put aside.
    columns
        What the file calls a column of a log, where it calls it otherwise.
    seed
        Which queries are drawn.
    progress
        Told how far reading is.

    Returns
    -------
    tuple of LogPart
        The part to train on, and the one put aside.
    """
    checked_number(share, "share", "must lie between 0 and 1", lambda given: 0 < given < 1)
    one_of(by, "by", "query", "time")
    outs = (Path(out_train), Path(out_test))
    tables = tables_of(source, progress)
    if len(tables) > 1:
        raise InputError("a log is split file by file; name one", file=str(source))
    table = tables[0]
    items = _items_of(table)
    _check_outputs(table, items, outs)
    id_column = (columns or {}).get("impression_id", "impression_id")
    # what rows say of their items does not matter here: they are passed on as they are
    options = LogOptions(columns=columns, features=[], on_conflict="first", on_repeat="first")
    # ids of impressions that were made up for the file still say which rows are one impression
    invented = [name for name in table.metadata.get("invented", ()) if name != "impression_id"]
    log = read_log(replace(table, metadata={**table.metadata, "invented": invented}), **options)
    aside = _put_aside(log, by, share, seed, table.file)
    names = id_series(log.impression_id, np.flatnonzero(aside)).cast(pl.String)
    files: list[list[Path]] = []
    with written_together(), ExitStack() as complete:
        for out, is_aside in zip(outs, (False, True), strict=True):
            metadata, written = dict(table.metadata), [out]
            if items is not None:
                copy = items_file(out)
                shutil.copyfile(items, complete.enter_context(atomic_write(copy, companion=True)))
                metadata["items"] = {**metadata["items"], "file": copy.name}
                written.append(copy)
            temporary = complete.enter_context(atomic_write(out))
            rows = _rows(table, id_column, names, is_aside)
            write_table(temporary, table.schema, metadata, rows, as_csv=is_csv(out))
            files.append(written)
    return LogPart(log[~aside], files[0]), LogPart(log[aside], files[1])


def _items_of(table: Table) -> Path | None:
    """Return the table of documents that was written with a log, if one was."""
    items = LogMetadata.from_dict(table.metadata, table.file).items
    return None if items is None or table.file is None else Path(items_beside(items, table.file))


def _check_outputs(table: Table, items: Path | None, outs: tuple[Path, Path]) -> None:
    """Refuse what cannot be written, before the work, and to write over what is read."""
    copies = [] if items is None else [items_file(out) for out in outs]
    check_outputs([*outs, *copies], [table.file, items])
    for copy in copies:
        check_replaceable(copy)
    for out in outs:
        if not is_csv(out) and table.is_text:
            problem = (
                "the columns of a CSV file have no types, so that its parts are CSV files, too; name it so"
            )
            raise InputError(problem, file=out)
        nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
        if is_csv(out) and nested:
            problem = "a CSV file cannot hold lists; split into .parquet files"
            raise InputError(problem, file=out, column=nested[0])


def _put_aside(log: ClickLog, by: str, share: float, seed: int, file: str | Path | None) -> NDArray[np.bool_]:
    """Return which impressions are put aside; refuse parts without clicks."""
    try:
        aside = log.chosen_queries(share, seed) if by == "query" else log.chosen_by_time(share)
    except InputError as error:
        raise error.about(file, error.row, error.column) from None
    for name, part in (("to train on", ~aside), ("put aside", aside)):
        if not log[part].click.any():
            problem = f"the part {name} would have no click; change {{share}}"
            raise InputError(problem, file=file, options=["share"])
    return aside


def _text(column: Any, name: str, location: Location) -> pl.Series:
    return pl.Series(pl.from_arrow(ids(column, name, location, as_text=True)), dtype=pl.String)


def _rows(table: Table, id_column: str, aside: pl.Series, is_aside: bool) -> Iterator[pa.Table]:
    """Yield the rows of one part, all columns as they are."""
    for batch, location in table.batches(table.schema.names):
        chosen = _text(batch[id_column], id_column, location).is_in(aside.implode()) == is_aside
        yield pa.table(batch).filter(pa.array(chosen.to_numpy()))
