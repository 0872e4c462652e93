"""Files of any of our kinds, told apart by what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fultr.cli.output import progress
from fultr.data import ClickLog, RankingDataset, read_log
from fultr.data.log_metadata import LOG
from fultr.data.table_files import open_table
from fultr.datasets import load
from fultr.files import existing_file

LOG_COLUMNS = ("impression_id", "position", "click")


@dataclass(frozen=True)
class Content:
    """What a file holds: labelled data, or a click log and its data."""

    data: RankingDataset
    log: ClickLog | None = None

    @property
    def kind(self) -> str:
        """The kind of content in a word."""
        return "labelled data" if self.log is None else "click log"


def read_any(path: Path, *, items: Path | None = None, columns: Mapping[str, str] | None = None) -> Content:
    """Read a click log, a LETOR file or a converted file, showing how far it is."""
    with progress("reading") as report:
        if holds_log(path, columns or {}):
            log = read_log(path, items=items, columns=columns, progress=report)
            return Content(log.data, log)
        return Content(load(path, progress=report))


def holds_log(path: Path, columns: Mapping[str, str]) -> bool:
    """Say whether a file is a click log, or at least is more like one than like labelled data."""
    if existing_file(path).suffix.lower() not in (".parquet", ".pq", ".csv"):
        return False
    table = open_table(path)
    if "kind" in table.metadata:
        return bool(table.metadata["kind"] == LOG)
    names = {name.lower() for name in table.schema.names}
    return any(columns.get(name, name) in names for name in LOG_COLUMNS) or not names & {"relevance", "label"}
