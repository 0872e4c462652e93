"""Click logs from User Behavior Insights (UBI), the event log of OpenSearch and others; schema 1.3.0.

A search of `ubi_queries` is an impression, and its query is what the user typed. `ubi_events` says what was
clicked, and what was shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import polars as pl

from fultr.arguments import Progress, names_of, whole_number
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.table_files import Table
from fultr.errors import InputError
from fultr.logs.other_layouts import long_table
from fultr.logs.ubi_records import (
    EVENT_FIELDS,
    HITS,
    OBJECT,
    ORDINAL,
    QUERY_FIELDS,
    UbiRecord,
    is_text,
    records,
)

VERSION = "1.3.0"
CLICKS = ("click", "click_through")
IMPRESSION = "impression"
ID_COLUMNS = {"query_id": "impression_id", HITS: "doc_id", OBJECT: "doc_id"}
THEIR_NAMES = {"impression_id": "query_id", "query_id": "user_query", "doc_id": HITS, "position": ORDINAL}

RECORDS_A_PART = 1 << 16
"""Records that are brought into columns together, in which they take less memory."""

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
    if positions not in ("response", "events"):
        raise InputError("must be 'response' or 'events'", column="positions", value=positions)
    if on_stray not in ("error", "skip"):
        raise InputError("must be 'error' or 'skip'", column="on_stray", value=on_stray)
    if first_position is not None and whole_number(first_position, "first_position") > 1:
        raise InputError("the first position is called 0 or 1", column="first_position", value=first_position)
    by_events, event_source = positions == "events", queries if events is None else events
    files = [source if isinstance(source, (str, Path)) else None for source in (queries, event_source)]
    ubi = _Ubi(on_stray, first_position, files[0], files[1])
    searches = ubi.searches(records(queries, QUERY_FIELDS, progress), compare_hits=not by_events)
    if not by_events and not searches["hits"].list.len().sum():
        problem = "no search has results; if events have impressions, take positions from 'events'"
        raise InputError(problem, file=ubi.file, column=HITS)
    actions = {
        **({IMPRESSION: False} if by_events else {}),
        **dict.fromkeys(names_of(clicks, "clicks"), True),
    }
    told = ubi.events(records(event_source, EVENT_FIELDS, progress), actions, by_events=by_events)
    if by_events:
        searches = _with_searches_of_events(searches, told)
    told = told.join(searches.select("name", "search"), on="name", how="left")
    problem = "there is no such search among the queries"
    told = ubi.without(told, pl.col("search").is_null(), problem, "query_id", "name")
    position = pl.int_ranges(1, pl.col("hits").list.len() + 1)
    hits = searches.select("search", document="hits", position=position).explode("document", "position")
    entries = (ubi.entries_of_events if by_events else ubi.entries_of_response)(hits, told)
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

    def id_of(self, value: object, record: UbiRecord, path: str) -> str:
        """Return an id as text."""
        if is_text(value):
            self.text_ids.add(ID_COLUMNS[path])
        elif type(value) is not int:
            raise record.error("ids must be text or whole numbers", path, value)
        return str(value)

    def searches(self, given: Iterable[UbiRecord], *, compare_hits: bool) -> pl.DataFrame:
        """Return the searches that have a query, each once, those that stand there again being the same."""
        found = (self._search(record) for record in given if record.content.get("action_name") is None)
        searches = _frame((row for row in found if row is not None), SEARCH)
        first = searches.unique("name", keep="first", maintain_order=True)
        again = searches.filter(~pl.col("name").is_first_distinct()).join(first, on="name", suffix="_first")
        same = ["user_query", "hits"] if compare_hits else ["user_query"]
        differs = again.filter(pl.any_horizontal(pl.col(name) != pl.col(f"{name}_first") for name in same))
        for row, name, first_row in differs.sort("row").select("row", "name", "row_first").rows():
            problem = f"the search stands in row {first_row} already, with another query or response"
            self.skip(InputError(problem, file=self.file, row=row, column="query_id", value=name))
        return first.with_row_index("search")

    def _search(self, record: UbiRecord) -> tuple[object, ...] | None:
        text, hits = record.at("user_query"), record.at(HITS)
        if not is_text(text):
            self.skip(record.error("what the user typed is missing", "user_query", text))
            return None
        if hits is not None and not isinstance(hits, list):
            raise record.error("must be a list of ids", HITS, hits)
        name = self.id_of(record.at("query_id"), record, "query_id")
        found = list(dict.fromkeys(self.id_of(hit, record, HITS) for hit in hits or []))
        if len(found) != len(hits or []):
            self.skip(record.error("a document stands twice in the response", HITS, hits))
        return record.row, name, text, record.text_at("timestamp"), found

    def events(
        self, given: Iterable[UbiRecord], actions: Mapping[str, bool], *, by_events: bool
    ) -> pl.DataFrame:
        """Return the events of some actions, which are clicks or not; with positions if events have them."""

        def rows() -> Iterator[tuple[object, ...]]:
            for record in given:
                action = record.content.get("action_name")
                if not isinstance(action, str) or action not in actions:
                    continue
                name, document, ordinal = record.text_at("query_id"), record.text_at(OBJECT), None
                query: str | None = None
                if by_events:
                    ordinal = _integer_or_none(record.at(ORDINAL))
                    if record.at(OBJECT) is None:
                        self.skip(record.error("the document is missing", OBJECT))
                        continue
                    is_good = ordinal is None or (type(ordinal) is int and 0 <= ordinal <= DEEPEST_POSITION)
                    if not is_good:
                        problem = f"must be a whole number from 0 to {DEEPEST_POSITION}"
                        self.skip(record.error(problem, ORDINAL, ordinal))
                        continue
                    document = self.id_of(record.at(OBJECT), record, OBJECT)
                    if is_text(record.at("user_query")):
                        query = record.at("user_query")
                        name = self.id_of(record.at("query_id"), record, "query_id")
                about = (record.row, name, query, record.text_at("timestamp"))
                yield *about, document, ordinal, actions[action]

        return _frame(rows(), EVENT)

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
        events = events.with_columns(told=pl.first("ordinal").over(ITEM))
        elsewhere = (pl.col("ordinal") != pl.col("told")).fill_null(False)
        self.without(events, elsewhere, "another event has it at another position")
        shown = events.group_by(ITEM, maintain_order=True).agg(pl.first("row", "ordinal"), pl.any("click"))
        shown = self.without(shown, pl.col("ordinal").is_null(), "no event says where")
        first = self.first_position
        if first is None:
            first = 0 if (shown["ordinal"] == 0).any() else 1
        shown = shown.with_columns(position=pl.col("ordinal") + 1 - first).sort("row")
        shown = self.without(shown, pl.col("position") < 1, "is before the first position")
        again = ~pl.struct("search", "position").is_first_distinct()
        shown = self.without(shown, again, "another document of the search has this position")
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


def _frame(rows: Iterable[tuple[object, ...]], schema: Mapping[str, Any]) -> pl.DataFrame:
    """Return rows as columns."""
    parts, waiting = [pl.DataFrame(schema=schema)], iter(rows)
    while part := list(islice(waiting, RECORDS_A_PART)):
        parts.append(pl.DataFrame(part, schema=schema, orient="row"))
    return pl.concat(parts)


def _integer_or_none(value: object) -> object:
    """Return a number that a table without integers holds as what it is."""
    if not isinstance(value, float):
        return value
    return None if value != value else int(value) if value.is_integer() else value
