"""What the layouts of others share: each is a function that makes a long table, which every reader takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from fultr.arguments import Progress
from fultr.data import table_files
from fultr.data.columns import Place
from fultr.data.table_files import Batch, Table, open_table, table_of


def open_source(source: Any, progress: Progress | None = None) -> Table:
    """Open a file by its name, or a frame."""
    return open_table(source, progress) if isinstance(source, (str, Path)) else table_of(source)


def long_table(frame: pl.DataFrame, file: str | Path | None, **fields: Any) -> Table:
    """Return a frame as a long table; its column `row` has the rows of the file that errors name."""

    def batches(names: list[str]) -> Iterator[tuple[Batch, Place]]:
        for part in frame.iter_slices(table_files.ROWS_A_BATCH):
            place = Place(file, numbers=part["row"].cast(pl.Int64).to_numpy())
            yield {name: part[name].to_arrow() for name in names}, place

    return Table(frame.clear().drop("row").to_arrow().schema, batches=batches, file=file, **fields)
