"""Writing a click log that is made part by part, so that it is never held as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fultr.data.click_log import ClickLog
from fultr.data.log_files import (
    FeatureForm,
    _digest,
    _part,
    _refuse_foreign,
    _with_ids,
    _write_items,
    items_file,
)
from fultr.data.log_metadata import LogMetadata
from fultr.data.table_files import is_csv, write_table
from fultr.errors import InputError
from fultr.files import atomic_write

BEFORE_PLANTED = ("click", "propensity", "group")
"""The columns that stand before that of planted items."""


def write_log_parts(
    about: ClickLog,
    parts: Iterable[ClickLog],
    path: str | Path,
    *,
    features: FeatureForm = "table",
    planted: bool = False,
) -> list[Path]:
    """Write a log that comes in parts as `write_log` would write the whole; return the files written.

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

    def table_of(log: ClickLog) -> pa.Table:
        table = _part(replace(log, data=named.data), slice(None), form, as_csv)
        return _with_planted(table) if planted else table

    def write(temporary: Path, metadata: LogMetadata) -> None:
        tables = (table_of(part) for part in parts)
        write_table(temporary, table_of(named).schema, metadata.to_dict(), tables, as_csv=as_csv)

    metadata = LogMetadata.of(named, invented, with_features=form != "none")
    if form != "table":
        with atomic_write(target) as temporary:
            write(temporary, metadata)
        return [target]
    items = items_file(target)
    _refuse_foreign(items)
    with atomic_write(target) as temporary, atomic_write(items) as temporary_items:
        _write_items(named.data, temporary_items, as_csv)
        write(temporary, replace(metadata, items={"file": items.name, "sha256": _digest(temporary_items)}))
    return [target, items]


def _with_planted(table: pa.Table) -> pa.Table:
    """Say of all rows of a part without planted items that they are none."""
    if "planted" in table.column_names:
        return table
    place = max(table.column_names.index(name) for name in BEFORE_PLANTED if name in table.column_names) + 1
    return table.add_column(place, "planted", pa.array(np.zeros(table.num_rows, dtype=np.int8)))
