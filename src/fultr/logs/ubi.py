"""Click logs from User Behavior Insights (UBI), the event log of OpenSearch and others; schema 1.3.0.

A search of `ubi_queries` is an impression, and its query is what the user typed. `ubi_events` says what was
clicked, and what was shown. A search has `query_id`, `user_query` and `query_response_hit_ids`; an event has
`action_name`, `query_id`, `event_attributes.object.object_id` and `event_attributes.position.ordinal`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import polars as pl
import pyarrow as pa

from fultr.arguments import Progress, is_encodable, names_of, one_of
from fultr.data.fields import DEEPEST_POSITION
from fultr.data.table_files import Table
from fultr.errors import InputError
from fultr.files import existing_file
from fultr.logs.sources import check_first_position, long_table, open_source

OBJECT, ORDINAL = "event_attributes.object.object_id", "event_attributes.position.ordinal"
HITS = "query_response_hit_ids"
FIELDS = ("action_name", "query_id", "user_query", "timestamp", HITS, "event_attributes", OBJECT, ORDINAL)
LINE_ENDINGS = (".ndjson", ".jsonl", ".json")
VERSION = "1.3.0"
CLICKS = ("click", "click_through")
ID_COLUMNS = {"query_id": "impression_id", HITS: "doc_id", OBJECT: "doc_id"}
THEIR_NAMES = {"impression_id": "query_id", "query_id": "user_query", "doc_id": HITS, "position": ORDINAL}

RECORD: Mapping[str, Any] = {
    "row": pl.Int64, "name": pl.String, "user_query": pl.String, "timestamp": pl.String
}  # fmt: skip
SEARCH = {**RECORD, "hits": pl.List(pl.String)}
EVENT = {**RECORD, "document": pl.String, "ordinal": pl.Int64, "click": pl.Boolean}
ITEM = ["search", "document"]

Positions = Literal["response", "events"]
OnStray = Literal["error", "skip"]


def ubi_table(
    queries: Any,
    events: Any = None,
    *,
    positions: Positions = "response",
    clicks: Sequence[str] = CLICKS,
    first_position: int | None = None,
    on_stray: OnStray = "error",
    progress: Progress | None = None,
) -> Table:
    """Return the long table of searches and events, for `fultr.count` and other readers.

    Searches without results are left out, since they showed nothing. `origin` of what is read says how many
    they were, and how much was skipped. A table of documents (`items`) has the `user_query` as query_id.

    Parameters
    ----------
    queries, events
        `ubi_queries` and `ubi_events`: files with a JSON object in each line (also as OpenSearch exports or
        takes them, with `_source` or with lines of actions between), Parquet files, or frames. Without
        `events`, those of both are in the first.
    positions
        Where positions come from. "response": all of `query_response_hit_ids` were shown, in that order.
        "events": what has an impression or a click was shown, at its ordinal; other hits were not shown.
    clicks
        The actions that are clicks.
    first_position
        The ordinal of the first position, 0 or 1; by default 0 if any event has it, and else 1.
    on_stray
        What to do with what cannot be placed: events of unknown searches, on documents the response did not
        have, without a document or an ordinal; searches without a `user_query`. "error", or "skip" it.
    progress
        Called with how much of a file has been read, and with its size.
    """
    one_of(positions, "positions", *get_args(Positions))
    one_of(on_stray, "on_stray", *get_args(OnStray))
    check_first_position(first_position)
    by_events, event_source = positions == "events", queries if events is None else events
    files = [source if isinstance(source, (str, Path)) else None for source in (queries, event_source)]
    ubi = _Ubi(on_stray, first_position, files[0], files[1])
    searches = ubi.searches(_records(queries, progress), compare_hits=not by_events)
    if not by_events and not searches["hits"].list.len().sum():
        problem = "no search has results; if events have impressions, take positions from 'events'"
        raise InputError(problem, file=ubi.file, column=HITS)
    actions = {"impression": False} if by_events else {}
    actions |= dict.fromkeys(names_of(clicks, "clicks"), True)
    actual = ubi.events(_records(event_source, progress), actions, by_events=by_events)
    if by_events:
        searches = _with_searches_of_events(searches, actual)
    actual = actual.join(searches.select("name", "search"), on="name", how="left")
    problem = "there is no such search among the queries"
    actual = ubi.without(actual, pl.col("search").is_null(), problem, "query_id", "name")
    position = pl.int_ranges(1, pl.col("hits").list.len() + 1)
    hits = searches.select("search", document="hits", position=position).explode("document", "position")
    entries = (ubi.entries_of_events if by_events else ubi.entries_of_response)(hits, actual)
    origin = {
        "format": f"UBI {VERSION}",
        "positions": positions,
        "searches_without_results": searches.height - entries["search"].n_unique(),
        "skipped": ubi.skipped,
    }
    of_searches = searches.select("search", "row", "timestamp", impression_id="name", query_id="user_query")
    if searches["timestamp"].has_nulls():
        of_searches = of_searches.drop("timestamp")
    long = entries.rename({"document": "doc_id"}).join(of_searches, on="search", maintain_order="left")
    metadata = {"origin": origin, "text_ids": sorted(ubi.text_ids)}
    return long_table(long.drop("search"), ubi.file, metadata=metadata, is_text=True, names=THEIR_NAMES)


class _Record(NamedTuple):
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
        return str(value) if value is not None and _is_text(str(value)) else None

    def error(self, problem: str, column: str, value: object = None) -> InputError:
        """Return an error about a field."""
        return InputError(problem, file=self.file, row=self.row, column=column, value=value)


@dataclass
class _Ubi:
    """Brings searches and events into columns and joins them; refuses or counts what cannot be placed.

    Ids are text here: 7 and "7" are the same one, since searches and events may write it differently. Those
    of `text_ids` remain text; others become integers again.
    """

    on_stray: OnStray
    first_position: int | None
    file: str | Path | None
    events_file: str | Path | None
    skipped: int = 0
    text_ids: set[str] = field(default_factory=lambda: {"query_id"})

    def skip(self, error: InputError) -> None:
        """Raise the error, or count what it is about."""
        if self.on_stray == "error":
            raise error
        self.skipped += 1

    def without(
        self, rows: pl.DataFrame, strays: pl.Expr, problem: str, column: str = ORDINAL, value: str = "ordinal"
    ) -> pl.DataFrame:
        """Return events without those that cannot be placed; the error names the first of them."""
        skipped = rows.filter(strays)
        if self.on_stray == "error" and skipped.height:
            row = skipped.sort("row").row(0, named=True)
            raise InputError(problem, file=self.events_file, row=row["row"], column=column, value=row[value])
        self.skipped += skipped.height
        return rows.filter(~strays)

    def id_of(self, value: object, record: _Record, path: str) -> str:
        """Return an id as text."""
        if _is_text(value):
            self.text_ids.add(ID_COLUMNS[path])
        elif type(value) is not int:
            raise record.error("ids must be text or integers", path, value)
        return str(value)

    def searches(self, given: Iterable[_Record], *, compare_hits: bool) -> pl.DataFrame:
        """Return the searches that have a query, each once, those that stand there again being the same."""
        rows = (self._search(record) for record in given if record.content.get("action_name") is None)
        searches = pl.DataFrame((row for row in rows if row is not None), SEARCH, orient="row")
        first = searches.unique("name", keep="first", maintain_order=True)
        repeated = searches.filter(~pl.col("name").is_first_distinct()).join(
            first, on="name", suffix="_first"
        )
        same = ["user_query", "hits"] if compare_hits else ["user_query"]
        differs = repeated.filter(pl.any_horizontal(pl.col(name) != pl.col(f"{name}_first") for name in same))
        for row, name, first_row in differs.sort("row").select("row", "name", "row_first").rows():
            problem = f"the search stands in row {first_row} already, with another query or response"
            self.skip(InputError(problem, file=self.file, row=row, column="query_id", value=name))
        return first.with_row_index("search")

    def _search(self, record: _Record) -> tuple[object, ...] | None:
        text, hits = record.at("user_query"), record.at(HITS)
        if not (_is_text(text) and text):
            self.skip(record.error("what the user typed is missing", "user_query", text))
            return None
        if hits is not None and not isinstance(hits, list):
            raise record.error("must be a list of ids", HITS, hits)
        name = self.id_of(record.at("query_id"), record, "query_id")
        documents = list(dict.fromkeys(self.id_of(hit, record, HITS) for hit in hits or []))
        if len(documents) != len(hits or []):
            self.skip(record.error("a document stands twice in the response", HITS, hits))
        return record.row, name, text, record.text_at("timestamp"), documents

    def events(
        self, given: Iterable[_Record], actions: Mapping[str, bool], *, by_events: bool
    ) -> pl.DataFrame:
        """Return the events of some actions, which are clicks or not; with positions if events have them."""

        def rows() -> Iterator[tuple[object, ...]]:
            for record in given:
                action = record.content.get("action_name")
                if action is not None and not _is_text(action):
                    self.skip(record.error("must be the name of an action", "action_name", action))
                if not isinstance(action, str) or action not in actions:
                    continue
                name, document, ordinal = record.text_at("query_id"), record.text_at(OBJECT), None
                query: str | None = None
                if by_events:
                    ordinal = _integer_or_none(record.at(ORDINAL))
                    if record.at(OBJECT) is None:
                        self.skip(record.error("the document is missing", OBJECT))
                        continue
                    if ordinal is not None and not (
                        type(ordinal) is int and 0 <= ordinal <= DEEPEST_POSITION
                    ):
                        problem = f"must be an integer from 0 to {DEEPEST_POSITION}"
                        self.skip(record.error(problem, ORDINAL, ordinal))
                        continue
                    document = self.id_of(record.at(OBJECT), record, OBJECT)
                    if _is_text(record.at("user_query")):
                        query = record.at("user_query")
                        name = self.id_of(record.at("query_id"), record, "query_id")
                about = (record.row, name, query, record.text_at("timestamp"))
                yield *about, document, ordinal, actions[action]

        return pl.DataFrame(rows(), EVENT, orient="row")

    def entries_of_response(self, hits: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
        """Return what was found, all of which was shown; events say what was clicked."""
        events = events.join(hits, on=ITEM, how="left")
        problem = "the document was not in the response to its search"
        events = self.without(events, pl.col("position").is_null(), problem, OBJECT, "document")
        clicked = events.select(*ITEM, click=True).unique()
        entries = hits.join(clicked, on=ITEM, how="left", maintain_order="left")
        return entries.with_columns(pl.col("click").fill_null(False))

    def entries_of_events(self, hits: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
        """Return what events say was shown, at their ordinals, and the hits that no event is about."""
        if not events.height:
            problem = "has no impression or click of any search"
            raise InputError(problem, file=self.events_file, column="action_name")
        # an event with an ordinal says where, wherever it stands
        events = events.sort(pl.col("ordinal").is_null(), "row")
        events = events.with_columns(first_ordinal=pl.first("ordinal").over(ITEM))
        elsewhere = (pl.col("ordinal") != pl.col("first_ordinal")).fill_null(False)
        self.without(events, elsewhere, "another event has it at another position")
        shown = events.group_by(ITEM, maintain_order=True).agg(pl.first("row", "ordinal"), pl.any("click"))
        shown = self.without(shown, pl.col("ordinal").is_null(), "no event says where")
        first = self.first_position
        if first is None:
            first = 0 if (shown["ordinal"] == 0).any() else 1
        shown = shown.with_columns(position=pl.col("ordinal") + 1 - first).sort("row")
        shown = self.without(shown, pl.col("position") < 1, "is before the first position")
        repeated = ~pl.struct("search", "position").is_first_distinct()
        shown = self.without(shown, repeated, "another document of the search has this position")
        hidden = hits.join(shown, on=ITEM, how="anti").select(*ITEM, click=False)
        shown = shown.select(*ITEM, "click", "position")
        return pl.concat([shown, hidden], how="diagonal").sort("search", maintain_order=True)


def _with_searches_of_events(searches: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Add the searches that only events know, by the query that they say themselves."""
    new = events.filter(pl.col("user_query").is_not_null()).join(searches, on="name", how="anti")
    new = new.unique("name", keep="first", maintain_order=True).select(
        *RECORD, hits=pl.lit([], SEARCH["hits"])
    )
    return pl.concat([searches.select(*SEARCH), new]).with_row_index("search")


def _integer_or_none(value: object) -> object:
    """Return a number that a table without integers holds as what it is."""
    if not isinstance(value, float):
        return value
    return None if value != value else int(value) if value.is_integer() else value


def _is_text(value: object) -> bool:
    """Say whether a value is text; JSON can also write halves of characters, which are none."""
    return isinstance(value, str) and is_encodable(value)


def _records(source: Any, progress: Progress | None) -> Iterator[_Record]:
    """Read the searches and events of a file or a frame."""
    if isinstance(source, (str, Path)) and Path(source).suffix.lower() in LINE_ENDINGS:
        return _lines(existing_file(source), progress or (lambda _done, _total: None))
    return _rows(open_source(source, progress))


def _lines(file: Path, progress: Progress) -> Iterator[_Record]:
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
            yield _Record(within if isinstance(within, dict) else content, file, row)


def _rows(table: Table) -> Iterator[_Record]:
    if "query_id" not in table.schema.names:
        raise InputError("the column is missing; it is no UBI table", file=table.file, column="query_id")
    for batch, location in table.batches([name for name in FIELDS if name in table.schema.names]):
        for name, column in batch.items():
            if pa.types.is_timestamp(column.type):
                batch[name] = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.string())
        for row, values in enumerate(pa.record_batch(batch).to_pylist(), start=location.first_row):
            content = {name: value for name, value in values.items() if value is not None}
            yield _Record(content, table.file, row)
