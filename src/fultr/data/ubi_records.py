"""Searches and events of User Behavior Insights as they stand in files, one by one.

A search has `query_id`, `user_query` and `query_response_hit_ids`; an event has `action_name`, `query_id`,
`event_attributes.object.object_id` and `event_attributes.position.ordinal`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from fultr.arguments import LARGEST_WHOLE, Progress
from fultr.data.foreign_logs import opened
from fultr.errors import InputError
from fultr.files import existing_file

OBJECT, ORDINAL = "event_attributes.object.object_id", "event_attributes.position.ordinal"
HITS = "query_response_hit_ids"
QUERY_FIELDS = ("query_id", "user_query", HITS, "timestamp", "action_name")
EVENT_FIELDS = ("action_name", "query_id", "user_query", "event_attributes", OBJECT, ORDINAL)
LINE_ENDINGS = (".ndjson", ".jsonl", ".json")

OnStray = Literal["error", "skip"]


@dataclass(frozen=True)
class UbiRecord:
    """A search or an event, and where it stands."""

    content: Mapping[str, Any]
    file: Path | None
    row: int

    def at(self, path: str) -> Any:
        """Return a field of fields, which may also stand in one column with dots in its name."""
        if path in self.content:
            return self.content[path]
        value: Any = self.content
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def error(self, problem: str, column: str, value: object = None) -> InputError:
        """Return an error about a field."""
        return InputError(problem, file=self.file, row=self.row, column=column, value=value)


def records(source: Any, fields: Sequence[str], progress: Progress | None) -> Iterator[UbiRecord]:
    """Read the records of a file or a frame; of a table only the fields that are named."""
    if isinstance(source, (str, Path)) and Path(source).suffix.lower() in LINE_ENDINGS:
        return _lines(existing_file(source), progress)
    return _rows(source, fields, progress)


def _lines(file: Path, progress: Progress | None) -> Iterator[UbiRecord]:
    """Read a JSON object from each line."""
    done, size = 0, file.stat().st_size
    with file.open("rb") as lines:
        for row, line in enumerate(lines, start=1):
            done += len(line)
            if not line.strip():
                continue
            try:
                content = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"the line is no JSON object: {error}", file=file, row=row) from None
            if not isinstance(content, dict):
                raise InputError("each line must be one JSON object", file=file, row=row, value=content)
            if len(content) == 1 and next(iter(content)) in ("index", "create"):
                continue  # says where OpenSearch is to put the next line
            within = content.get("_source")
            yield UbiRecord(within if isinstance(within, dict) else content, file, row)
            if progress is not None and row % 4096 == 0:
                progress(done, size)


def _rows(source: Any, fields: Sequence[str], progress: Progress | None) -> Iterator[UbiRecord]:
    table = opened(source, progress)
    if "query_id" not in table.schema.names:
        raise InputError("the column is missing; it is no UBI table", file=table.file, column="query_id")
    names = [name for name in fields if name in table.schema.names]
    for batch, place in table.batches(names):
        columns = []
        for name in names:
            column = batch[name]
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.string())
            columns.append(column.to_pylist())
        for row, values in enumerate(zip(*columns, strict=True), start=place.first_row):
            content = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            yield UbiRecord(content, table.file, row)


@dataclass
class Strays:
    """What to do with what cannot be placed, and how much of it was skipped."""

    policy: OnStray
    count: int = 0

    def take(self, error: InputError) -> None:
        """Raise the error, or count what it is about."""
        if self.policy == "error":
            raise error
        self.count += 1


def is_text(value: object) -> bool:
    """Say whether a value is text; JSON can also write halves of characters, which are none."""
    return isinstance(value, str) and (
        value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)
    )


def whole_or_none(value: object) -> object:
    """Return a number that a table without whole numbers holds as what it is."""
    if not isinstance(value, float):
        return value
    return None if value != value else int(value) if value.is_integer() else value


class UbiNames:
    """Ids as numbers; 7 and "7" are the same one, since searches and events may write it differently."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.whole = True

    def code(self, value: object, record: UbiRecord, column: str) -> int:
        """Return the number of an id, a new one if it was not seen before."""
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole and not is_text(value):
            raise record.error("ids must be text or whole numbers", column, value)
        self.whole &= is_whole and abs(int(str(value))) <= LARGEST_WHOLE
        return self.codes.setdefault(str(value), len(self.codes))

    def array(self) -> pa.Array:
        """Return the ids: whole numbers if all came as such."""
        texts = list(self.codes)
        return pa.array(map(int, texts), pa.int64()) if self.whole else pa.array(texts, pa.string())
