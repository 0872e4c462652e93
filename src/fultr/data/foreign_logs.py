"""What readers of click logs that others laid out have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fultr.arguments import Progress
from fultr.data.log_files import KEYS, _batches, _find_features
from fultr.data.log_table import LogBuilder
from fultr.data.table_files import Table, open_table, table_of
from fultr.errors import InputError


def opened(source: Any, progress: Progress | None = None) -> Table:
    """Open a file by its name, or take a frame as the table that it is."""
    return open_table(source, progress) if isinstance(source, (str, Path)) else table_of(source)


def add_documents(
    builder: LogBuilder, documents: Table | None, features: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Take a table of documents, keyed by query_id and doc_id, if there is one; return its features."""
    if documents is None:
        return ()
    found = _find_features(documents, features, all_numbers=True)
    for batch, place in _batches(documents, {}, KEYS, ("group",), found):
        builder.add_items(batch, place, found)
    return found


@contextmanager
def in_their_names(names: Mapping[str, str], file: Path | None = None) -> Iterator[None]:
    """Let errors call columns as the file does, and name the file if they name none."""
    try:
        yield
    except InputError as error:
        column, bracket, place = (error.column or "").partition("[")
        raise InputError(
            error.problem,
            file=file if error.file is None else error.file,
            row=error.row,
            column=(names.get(column, column) + bracket + place) or None,
            value=error.value,
        ) from None
