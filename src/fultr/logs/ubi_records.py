"""Searches and events of User Behavior Insights as they stand in files, one by one.

A search has `query_id`, `user_query` and `query_response_hit_ids`; an event has `action_name`, `query_id`,
`event_attributes.object.object_id` and `event_attributes.position.ordinal`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fultr.arguments import Progress
from fultr.errors import InputError
from fultr.files import existing_file
from fultr.logs.other_layouts import open_source

OBJECT, ORDINAL = "event_attributes.object.object_id", "event_attributes.position.ordinal"
HITS = "query_response_hit_ids"
QUERY_FIELDS = ("query_id", "user_query", HITS, "timestamp", "action_name")
EVENT_FIELDS = ("action_name", "query_id", "user_query", "timestamp", "event_attributes", OBJECT, ORDINAL)
LINE_ENDINGS = (".ndjson", ".jsonl", ".json")


@dataclass(frozen=True)
class UbiRecord:
    """A search or an event, and where it stands."""

    content: Mapping[str, Any]
    file: str | Path | None
    row: int

    def at(self, path: str) -> Any:
        """Return a field of fields, which may also stand in one column with dots in its name."""
        if path in self.content:
            return self.content[path]
        value: Any = self.content
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def text_at(self, path: str) -> str | None:
        """Return a field, of whatever type, as text; None if it is missing or cannot be text."""
        value = self.at(path)
        return str(value) if value is not None and is_text(str(value)) else None

    def error(self, problem: str, column: str, value: object = None) -> InputError:
        """Return an error about a field."""
        return InputError(problem, file=self.file, row=self.row, column=column, value=value)


def is_text(value: object) -> bool:
    """Say whether a value is text; JSON can also write halves of characters, which are none."""
    return isinstance(value, str) and (
        value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)
    )


def records(source: Any, fields: Sequence[str], progress: Progress | None) -> Iterator[UbiRecord]:
    """Read the records of a file or a frame; of a table only the fields that are named."""
    if isinstance(source, (str, Path)) and Path(source).suffix.lower() in LINE_ENDINGS:
        return _lines(existing_file(source), progress or (lambda _done, _total: None))
    return _rows(source, fields, progress)


def _lines(file: Path, progress: Progress) -> Iterator[UbiRecord]:
    """Read a JSON object from each line; readers of whole files do not say which line is wrong."""
    done, size = 0, file.stat().st_size
    with file.open("rb") as lines:
        for row, line in enumerate(lines, start=1):
            done += len(line)
            if row % 4096 == 0:
                progress(done, size)
            if not line.strip():
                continue
            try:
                content = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"the line is no JSON object: {error}", file=file, row=row) from None
            if not isinstance(content, dict):
                raise InputError("each line must be one JSON object", file=file, row=row, value=content)
            if content.keys() <= {"index", "create"} and len(content) == 1:
                continue  # says where OpenSearch is to put the next line
            within = content.get("_source")
            yield UbiRecord(within if isinstance(within, dict) else content, file, row)


def _rows(source: Any, fields: Sequence[str], progress: Progress | None) -> Iterator[UbiRecord]:
    table = open_source(source, progress)
    if "query_id" not in table.schema.names:
        raise InputError("the column is missing; it is no UBI table", file=table.file, column="query_id")
    for batch, place in table.batches([name for name in fields if name in table.schema.names]):
        for name, column in batch.items():
            if pa.types.is_timestamp(column.type):
                batch[name] = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.string())
        for row, values in enumerate(pa.record_batch(batch).to_pylist(), start=place.first_row):
            content = {name: value for name, value in values.items() if value is not None}
            yield UbiRecord(content, table.file, row)
