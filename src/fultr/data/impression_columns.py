"""Columns of a click log's table that tell something of a whole impression, such as its ranker or device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.data.coding import Coder, Remembered
from fultr.data.columns import Place, ids, is_text, numbers, plain, require_columns
from fultr.data.ids import TEXT
from fultr.data.table_files import open_table
from fultr.errors import InputError

Check = Callable[[Any, str, Place], NDArray[Any]]
"""From a column of a batch, its name and the place of its rows to checked values; `columns.flags` is one."""


@dataclass(frozen=True)
class ImpressionColumn:
    """A column of the table, and what makes checked values of it."""

    column: str
    check: Check


def read_impression_columns(
    path: str | Path,
    wanted: Mapping[str, ImpressionColumn],
    *,
    impression_id: str = "impression_id",
    progress: Progress | None = None,
) -> dict[str, NDArray[Any]]:
    """Read columns that are constant within an impression, one value for each impression of the log.

    The values stand in the order of the impressions of `read_log`, that of their first rows in the table.

    Parameters
    ----------
    path
        The table of the log, Parquet or CSV.
    wanted
        By what name to return a column, and which one it is.
    impression_id
        What the table calls the column of impressions.
    progress
        Called with how much of the table has been read, and with its size.
    """
    table = open_table(path, progress)
    needed = list(dict.fromkeys([impression_id, *(asked.column for asked in wanted.values())]))
    require_columns(table.schema.names, needed, table.file)
    impressions = Coder(impression_id)
    known = {name: Remembered(asked.column, "impression") for name, asked in wanted.items()}
    for batch, place in table.batches(needed):
        given = ids(batch[impression_id], impression_id, place, as_text=table.is_text)
        codes = impressions.encode(given, place, in_runs=True)
        for name, asked in wanted.items():
            _learn(known[name], codes, asked.check(batch[asked.column], asked.column, place), place)
    if not len(impressions):
        raise InputError("the log has no rows", file=table.file)
    return {name: values.of(np.arange(len(impressions))) for name, values in known.items()}


def labels(column: Any, name: str, place: Place) -> NDArray[Any]:
    """Return names, or whole numbers as such, as text; none may be missing."""
    array = plain(column)
    kind = array.type
    if not (
        is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    ):
        raise place.error(f"must be names or whole numbers, not {kind}", 0, name, array[0].as_py())
    text = array.cast(pa.string())
    missing = pc.equal(text.fill_null(""), "")
    if pc.any(missing).as_py():
        problem = "must be there for each impression; give what is not known a name of its own"
        raise place.error(problem, int(np.argmax(np.asarray(missing))), name)
    encoded = text.dictionary_encode()
    return np.asarray(np.array(encoded.dictionary.to_pylist(), dtype=TEXT)[encoded.indices.to_numpy()])


def whole_numbers(least: int, most: int, rule: str) -> Check:
    """Return a check that gives whole numbers from `least` to `most`; `rule` is the error of any other."""

    def check(column: Any, name: str, place: Place) -> NDArray[Any]:
        values = numbers(column, name, place)
        wrong = ~((values >= least) & (values <= most) & (values == np.floor(values)))
        if wrong.any():
            index = int(np.argmax(wrong))
            raise place.error(rule, index, name, plain(column)[index].as_py())
        return values.astype(np.int64)

    return check


def _learn(known: Remembered, codes: NDArray[np.int32], values: NDArray[Any], place: Place) -> None:
    try:
        known.learn(codes, values, place)
    except InputError as error:
        # what came first is kept, so that the value that differs can be told
        index = int(np.argmax(known.of(codes) != values))
        raise InputError(
            f"must be the same in all rows of an impression, but {error.problem}",
            file=error.file,
            row=error.row,
            column=error.column,
            value=values[index],
        ) from None
