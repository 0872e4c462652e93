"""Files of any of our kinds, told apart by what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fultr.cli.output import progress, say
from fultr.data import ClickLog, Counts, RankingDataset, read_counts
from fultr.data.counts_files import holds_counts
from fultr.data.table_files import COMPRESSED, KINDS, Table, open_table
from fultr.datasets import load
from fultr.errors import InputError
from fultr.files import existing_file
from fultr.logs import count, read_aggregated_log, read_log
from fultr.logs.aggregated import AGGREGATED, ASSUMPTION
from fultr.logs.metadata import LOG

LOG_COLUMNS = ("impression_id", "position", "click")
COUNT_COLUMNS = {"impressions", "clicks"}
TABLE_ENDINGS = tuple(
    ending + packed for ending in KINDS for packed in ("", *COMPRESSED) if ending != ".arrow"
)
"""What the names of files end in that may hold clicks; an .arrow file of ours holds labelled data."""

NO_CLICK_LOG = "is no click log, but labelled data; simulate clicks on it first"
NO_IMPRESSIONS = "holds counts of clicks, but single impressions are needed"


@dataclass(frozen=True)
class Content:
    """What a file holds: labelled data, or a click log as counts and its data."""

    kind: str
    data: RankingDataset
    counts: Counts | None = None

    def describe(self) -> dict[str, Any]:
        """Return how much of everything there is, as plain values."""
        return self.data.describe() if self.counts is None else self.counts.describe()


def read_any(
    path: Path,
    *,
    items: Path | None = None,
    columns: Mapping[str, str] | None = None,
    context: str | None = None,
    features: Sequence[str] | None = None,
) -> Content:
    """Read a click log as counts, a file of counts, a LETOR file or a converted file, showing progress.

    A click log is counted while it is read, so that it may be larger than memory. `context` is the column
    that tells its impressions apart, if any.
    """
    renamed = columns or {}
    with progress("reading") as report:
        table = _table(path)
        if table is None:
            return Content("labelled data", load(path, progress=report))
        if holds_counts(table):
            counts = read_counts(path, progress=report)
            return Content("counts", counts.data, counts)
        if holds_aggregated(table, renamed):
            counts = read_aggregated_log(path, items=items, columns=renamed, progress=report)
            say(f"fultr: {path}: assumes that {ASSUMPTION}")
            return Content("aggregated log", counts.data, counts)
        if holds_log(table, renamed):
            counts = count(
                path, items=items, columns=renamed, features=features, context=context, progress=report
            )
            return Content("click log", counts.data, counts)
        return Content("labelled data", load(path, progress=report))


def read_impressions(
    path: Path, *, items: Path | None = None, columns: Mapping[str, str] | None = None
) -> ClickLog:
    """Read the single impressions of a click log; counts of clicks and labelled data are refused."""
    renamed, table = columns or {}, _table(path)
    if not holds_impressions(path, renamed):
        labelled = table is None or not (holds_counts(table) or holds_aggregated(table, renamed))
        raise InputError(NO_CLICK_LOG if labelled else NO_IMPRESSIONS, file=path)
    with progress("reading") as report:
        return read_log(path, items=items, columns=renamed, progress=report)


def holds_impressions(path: Path, columns: Mapping[str, str]) -> bool:
    """Say whether a file is a click log with single impressions."""
    table = _table(path)
    if table is None or holds_counts(table) or holds_aggregated(table, columns):
        return False
    return holds_log(table, columns)


def _table(path: Path) -> Table | None:
    """Open a file that may hold clicks."""
    if not existing_file(path).name.lower().endswith(TABLE_ENDINGS):
        return None
    return open_table(path)


def holds_aggregated(table: Table, columns: Mapping[str, str]) -> bool:
    """Say whether a table counts impressions and clicks by query, document and position."""
    if "kind" in table.metadata:
        return bool(table.metadata["kind"] == AGGREGATED)
    names = set(table.schema.names)
    return names >= COUNT_COLUMNS and not names & {
        columns.get(name, name) for name in ("impression_id", "click")
    }


def holds_log(table: Table, columns: Mapping[str, str]) -> bool:
    """Say whether a table is a click log, or at least is more like one than like labelled data."""
    if "kind" in table.metadata:
        return bool(table.metadata["kind"] == LOG)
    names = {name.lower() for name in table.schema.names}
    return any(columns.get(name, name) in names for name in LOG_COLUMNS) or not names & {"relevance", "label"}
