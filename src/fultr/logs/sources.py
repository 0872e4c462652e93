"""Where logs come from: files, globs, folders, addresses in an object storage, frames."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.fs as arrow_fs
from numpy.typing import NDArray

from fultr.arguments import Progress, whole_number
from fultr.data import table_files
from fultr.data.columns import Location
from fultr.data.table_files import (
    COMPRESSED,
    KINDS,
    Batch,
    Table,
    first_line,
    is_address,
    open_table,
    table_of,
)
from fultr.errors import InputError
from fultr.logs.events import event_tables, is_events

WILDCARDS = "*?["


def tables_of(source: Any, progress: Progress | None = None) -> list[Table]:
    """Open what a log is read from: files, globs, folders, addresses, frames, or tables."""
    if isinstance(source, Table):
        return [source]
    if isinstance(source, (str, Path)) and is_events(source):
        return event_tables(source)
    if isinstance(source, (str, Path)):
        return [_with_partition_columns(open_table(file, progress)) for file in files_of([source])]
    if isinstance(source, Sequence):
        return [table for element in source for table in tables_of(element, progress)]
    return [table_of(source)]


def files_of(sources: Iterable[str | Path]) -> list[str | Path]:
    """Return the files that names, globs, folders and addresses stand for, sorted for each of them."""
    files: list[str | Path] = []
    for source in sources:
        if is_address(source):
            files += _remote_files(str(source))
        elif Path(source).is_dir():
            files += _tables_among(sorted(path for path in Path(source).rglob("*") if path.is_file()), source)
        elif any(mark in str(source) for mark in WILDCARDS) and not Path(source).exists():
            names = glob.glob(str(source), recursive=True)  # noqa: PTH207 - a pattern may be absolute
            files += _tables_among([Path(name) for name in sorted(names)], source)
        else:
            files.append(Path(source))
    return files


def _remote_files(address: str) -> list[str]:
    """List a folder or a glob of an object storage; any other address is one file."""
    pattern, mark, options = address.partition("?")
    fixed = pattern
    while "*" in fixed or "[" in fixed:
        fixed = fixed.rpartition("/")[0]
    if fixed == pattern and not pattern.endswith("/"):
        return [address]
    try:
        system, folder = arrow_fs.FileSystem.from_uri(fixed + mark + options)
        listed = system.get_file_info(arrow_fs.FileSelector(folder, recursive=True))
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot be listed: {first_line(error)}", file=address) from None
    scheme = pattern.split("://")[0]
    paths = sorted(f"{scheme}://{info.path}" for info in listed if info.is_file)
    if fixed != pattern:
        paths = [path for path in paths if fnmatch.fnmatchcase(path, pattern)]
    return [str(path) + mark + options for path in _tables_among(paths, address)]


def _tables_among(paths: Sequence[Any], source: object) -> list[Any]:
    """Return the tables among files, without hidden ones and the tables of documents of logs."""
    endings = (*KINDS, *(kind + packed for kind in (".csv", ".ndjson", ".jsonl") for packed in COMPRESSED))
    tables = [
        path
        for path in paths
        if (name := PurePosixPath(path).name).lower().endswith(endings)
        and ".items." not in name
        and name[0] not in "._"
    ]
    if not tables:
        raise InputError("no such file, and no table in a folder or of names of this form", file=str(source))
    return tables


def partition_values(file: str | Path | None) -> dict[str, str]:
    """Return what the folders of a file are named after: .../device=phone/day=3/part.parquet."""
    pairs = [folder.split("=", 1) for folder in PurePosixPath(str(file)).parts[:-1] if "=" in folder]
    return {name: value for name, value in pairs if name}


def _with_partition_columns(table: Table) -> Table:
    """Add columns that the folders of a file are named after."""
    present = table.schema.names
    given = {name: value for name, value in partition_values(table.file).items() if name not in present}
    if not given:
        return table

    def constant(value: str) -> Callable[[NDArray[np.int64]], pa.Array]:
        return lambda rows: pa.array([value] * rows.size, pa.string())

    return table.derived(
        dict(zip(present, present, strict=True)), {name: constant(value) for name, value in given.items()}
    )


def open_source(source: Any, progress: Progress | None = None) -> Table:
    """Open a file by its name, or a frame."""
    return open_table(source, progress) if isinstance(source, (str, Path)) else table_of(source)


def check_first_position(first: int | None) -> None:
    """Refuse a first position, if one is given, that is neither 0 nor 1."""
    if first is not None and whole_number(first, "first_position") > 1:
        raise InputError("the first position is called 0 or 1", column="first_position", value=first)


def long_table(
    frame: pl.DataFrame, file: str | Path | None, line_of: Callable[[int], int] | None = None, **fields: Any
) -> Table:
    """Return a frame as a long table; its column `row` has the rows of the file that errors name."""

    def batches(names: list[str]) -> Iterator[tuple[Batch, Location]]:
        for rows in frame.iter_slices(table_files.ROWS_A_BATCH):
            location = Location(file, numbers=rows["row"].cast(pl.Int64).to_numpy(), line_of=line_of)
            yield {name: rows[name].to_arrow() for name in names}, location

    return Table(frame.clear().drop("row").to_arrow().schema, batches=batches, file=file, **fields)
