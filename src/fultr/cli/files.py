"""Files of any of our kinds, told apart by what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fultr.cli.output import progress
from fultr.data import (
    ClickLog,
    CompactLog,
    RankingDataset,
    ScatteredRowsError,
    StreamedLog,
    read_aggregated_log,
    read_log,
    stream_log,
)
from fultr.data.aggregated_logs import AGGREGATED
from fultr.data.log_metadata import LOG
from fultr.data.log_summary import describe_counts
from fultr.data.table_files import Table, open_table
from fultr.datasets import load
from fultr.errors import InputError
from fultr.files import existing_file

LOG_COLUMNS = ("impression_id", "position", "click")
COUNTS = {"impressions", "clicks"}


NO_IMPRESSIONS = "holds counts of clicks (an aggregated log), but single impressions are needed"


@dataclass(frozen=True)
class Content:
    """What a file holds: labelled data, a click log and its data, or the counts of one and its data.

    `streamed` is there if the counts are those of a click log that was counted while it was read.
    """

    data: RankingDataset
    log: ClickLog | None = None
    counts: CompactLog | None = None
    streamed: StreamedLog | None = None

    @property
    def clicks(self) -> ClickLog | CompactLog | None:
        """The clicks, as single impressions or as counts, if the file holds any."""
        return self.counts if self.log is None else self.log

    @property
    def kind(self) -> str:
        """The kind of content in a word."""
        if self.log is not None or self.streamed is not None:
            return "click log"
        return "labelled data" if self.counts is None else "aggregated log"

    def describe(self) -> dict[str, Any]:
        """Return how much of everything there is, as plain values."""
        if self.streamed is not None:
            return self.streamed.describe()
        if self.counts is not None:
            return describe_counts(self.counts)
        return self.data.describe() if self.log is None else self.log.describe()


def read_any(
    path: Path,
    *,
    items: Path | None = None,
    columns: Mapping[str, str] | None = None,
    counts: bool = False,
    stream: bool = False,
) -> Content:
    """Read a click log, a LETOR file or a converted file, showing how far it is.

    Counts of clicks are refused unless `counts` says that they will do. With `stream` no more than that is
    needed, and a click log is counted while it is read, so that it may be larger than memory. Where the rows
    of an impression do not stand together all of it is read.
    """
    renamed = columns or {}
    with progress("reading") as report:
        table = _table(path)
        if table is not None and holds_counts(table, renamed):
            if not counts:
                raise InputError(NO_IMPRESSIONS, file=path)
            found = read_aggregated_log(path, items=items, columns=renamed, progress=report)
            return Content(found.data, counts=found)
        if table is not None and holds_log(table, renamed):
            if stream:
                try:
                    streamed = stream_log(path, items=items, columns=columns, progress=report)
                    return Content(streamed.compact.data, counts=streamed.compact, streamed=streamed)
                except ScatteredRowsError:
                    pass
            log = read_log(path, items=items, columns=columns, progress=report)
            return Content(log.data, log)
        return Content(load(path, progress=report))


def refuse_counts(path: Path, columns: Mapping[str, str]) -> None:
    """Refuse counts of clicks where single impressions are needed."""
    if holds_counts(open_table(existing_file(path)), columns):
        raise InputError(NO_IMPRESSIONS, file=path)


def _table(path: Path) -> Table | None:
    """Open a file that may hold clicks."""
    if existing_file(path).suffix.lower() not in (".parquet", ".pq", ".csv"):
        return None
    return open_table(path)


def holds_counts(table: Table, columns: Mapping[str, str]) -> bool:
    """Say whether a table counts impressions and clicks, and has no row for each impression."""
    if "kind" in table.metadata:
        return bool(table.metadata["kind"] == AGGREGATED)
    names = set(table.schema.names)
    return names >= COUNTS and not names & {columns.get(name, name) for name in ("impression_id", "click")}


def holds_log(table: Table, columns: Mapping[str, str]) -> bool:
    """Say whether a table is a click log, or at least is more like one than like labelled data."""
    if "kind" in table.metadata:
        return bool(table.metadata["kind"] == LOG)
    names = {name.lower() for name in table.schema.names}
    return any(columns.get(name, name) in names for name in LOG_COLUMNS) or not names & {"relevance", "label"}
