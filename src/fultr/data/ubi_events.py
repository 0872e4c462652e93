"""Click logs from User Behavior Insights (UBI), the event log of OpenSearch and others; schema 1.3.0.

A search of `ubi_queries` is an impression, and its query is what the user typed. `ubi_events` says what was
clicked, and what was shown.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import Progress, names_of, whole_number
from fultr.click_model import ClickNoise, PositionBias
from fultr.data.click_log import ClickLog
from fultr.data.coding import OnConflict
from fultr.data.columns import Place
from fultr.data.foreign_logs import add_documents, in_their_names, opened
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.log_metadata import LogMetadata
from fultr.data.log_table import LogBuilder
from fultr.data.propensity import NOT_SHOWN
from fultr.data.ubi_records import (
    EVENT_FIELDS,
    HITS,
    OBJECT,
    ORDINAL,
    QUERY_FIELDS,
    OnStray,
    Strays,
    UbiNames,
    UbiRecord,
    is_text,
    records,
    whole_or_none,
)
from fultr.errors import InputError

VERSION = "1.3.0"
CLICKS = ("click", "click_through")
IMPRESSION = "impression"
OUR_NAMES = {"impression_id": "query_id", "query_id": "user_query", "doc_id": HITS, "position": ORDINAL}
ENTRIES_A_BLOCK = 1 << 18
NO_ORDINAL = -1

Positions = Literal["response", "events"]
Whole = NDArray[np.int64]


def read_ubi_log(
    queries: Any,
    events: Any = None,
    *,
    positions: Positions = "response",
    clicks: Sequence[str] = CLICKS,
    first_position: int | None = None,
    on_stray: OnStray = "error",
    items: Any = None,
    group_names: Sequence[str] | None = None,
    on_conflict: OnConflict = "error",
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    progress: Progress | None = None,
) -> ClickLog:
    """Read a click log from the searches and events of User Behavior Insights, schema 1.3.0.

    Searches without results are left out, since they showed nothing. `origin` of the log says how many they
    were, and how much was skipped.

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
    items, group_names, on_conflict
        A table of documents with features and groups, keyed by query_id (the `user_query`) and doc_id, and
        the rest as in `read_log`.
    position_bias, noise
        As in `log_from_frame`.
    progress
        Called with how much of a file has been read, and with its size.
    """
    if positions not in ("response", "events"):
        raise InputError("must be 'response' or 'events'", column="positions", value=positions)
    if on_stray not in ("error", "skip"):
        raise InputError("must be 'error' or 'skip'", column="on_stray", value=on_stray)
    actions = frozenset(names_of(clicks, "clicks"))
    searches = _Searches(Strays(on_stray), from_response=positions == "response")
    for record in records(queries, QUERY_FIELDS, progress):
        if record.content.get("action_name") is None:
            searches.add(record)
    source = queries if events is None else events
    found: _Response | _Shown = _Response(searches) if positions == "response" else _Shown(searches)
    for record in records(source, EVENT_FIELDS, progress):
        action = record.content.get("action_name")
        if action in actions or (action == IMPRESSION and positions == "events"):
            found.add(record, clicked=action in actions)
    entries = found.entries() if isinstance(found, _Response) else found.entries(first_position)
    builder = LogBuilder(
        group_names=None if group_names is None else names_of(group_names, "group_names"),
        on_conflict=on_conflict,
        file=searches.file,
    )
    features = add_documents(builder, None if items is None else opened(items))
    with in_their_names(OUR_NAMES, searches.file):
        searches.give(entries, builder)
        return builder.build(
            dataset=lambda width: LogMetadata().dataset_fields(features, width),
            position_bias=position_bias,
            noise=noise,
            origin={
                "format": f"UBI {VERSION}",
                "positions": positions,
                "searches_without_results": searches.without_results(entries),
                "skipped": searches.strays.count,
            },
        )


@dataclass(frozen=True)
class _Entries:
    """Documents of searches, those of each search together, with their positions and clicks."""

    search: Whole
    document: Whole
    position: Whole
    click: NDArray[np.bool_]


class _Searches:
    """The searches, and the documents that each had in its response."""

    def __init__(self, strays: Strays, *, from_response: bool) -> None:
        self.strays = strays
        self.from_response = from_response
        self.names, self.documents = UbiNames(), UbiNames()
        self.row = array("q")
        self.texts: list[str] = []
        self.times: list[Any] = []
        self.hits = array("q")
        self.ends = array("q", [0])
        self.file: Path | None = None

    def add(self, record: UbiRecord) -> None:
        """Take a search, as long as it has a query, and was not there already."""
        self.file = self.file or record.file
        text, hits = record.at("user_query"), record.at(HITS)
        if not is_text(text):
            problem = "what the user typed is missing"
            return self.strays.take(record.error(problem, "user_query", text))
        if hits is not None and not isinstance(hits, list):
            raise record.error("must be a list of ids", HITS, hits)
        known = self._known(record)
        found = list(dict.fromkeys(self.documents.code(hit, record, HITS) for hit in hits or []))
        if len(found) != len(hits or []):
            self.strays.take(record.error("a document stands twice in the response", HITS, hits))
        if known is not None:
            if text != self.texts[known] or (self.from_response and found != self.response(known).tolist()):
                problem = (
                    f"the search stands in row {self.row[known]} already, with another query or response"
                )
                self.strays.take(record.error(problem, "query_id", record.at("query_id")))
            return None
        return self._new(record, text, found)

    def _known(self, record: UbiRecord) -> int | None:
        before = len(self.names.codes)
        code = self.names.code(record.at("query_id"), record, "query_id")
        return code if code < before else None

    def _new(self, record: UbiRecord, text: str, hits: Sequence[int]) -> None:
        self.row.append(record.row)
        self.texts.append(text)
        self.times.append(record.at("timestamp"))
        self.hits.extend(hits)
        self.ends.append(len(self.hits))

    def of(self, event: UbiRecord, *, may_be_new: bool) -> int | None:
        """Return the search of an event; one that says its query itself may make a new search."""
        name = event.at("query_id")
        known = self.names.codes.get(str(name))
        if known is None and may_be_new and is_text(event.at("user_query")):
            known = self.names.code(name, event, "query_id")
            self._new(event, event.at("user_query"), [])
        if known is None:
            self.strays.take(event.error("there is no such search among the queries", "query_id", name))
        return known

    def response(self, search: int) -> Whole:
        """Return the documents of a search, in the order of the response."""
        return np.array(self.hits[self.ends[search] : self.ends[search + 1]], dtype=np.int64)

    def without_results(self, entries: _Entries) -> int:
        """Return how many searches have no documents."""
        return len(self.texts) - int(np.unique(entries.search).size)

    def give(self, entries: _Entries, builder: LogBuilder) -> None:
        """Give the entries to the builder of a log, as rows of the searches they belong to."""
        names, documents, texts = (
            self.names.array(),
            self.documents.array(),
            pa.array(self.texts, pa.string()),
        )
        times = self._times()
        for start in range(0, entries.search.size, ENTRIES_A_BLOCK):
            part = slice(start, start + ENTRIES_A_BLOCK)
            search = pa.array(entries.search[part])
            position = entries.position[part]
            batch = {
                "impression_id": names.take(search),
                "query_id": texts.take(search),
                "doc_id": documents.take(pa.array(entries.document[part])),
                "position": pa.array(position, mask=position == NOT_SHOWN),
                "click": pa.array(entries.click[part]),
            }
            if times is not None:
                batch["timestamp"] = times.take(search)
            place = Place(
                self.file, start + 1, line_of=lambda number: self.row[int(entries.search[number - 1])]
            )
            builder.add(batch, place)

    def _times(self) -> pa.Array | None:
        """Return the times of the searches, if all have one."""
        if any(time is None for time in self.times) or not self.times:
            return None
        try:
            return pa.array(self.times)
        except (pa.ArrowException, ValueError, OverflowError):
            problem = "must be all whole numbers or all dates as text"
            raise InputError(problem, file=self.file, column="timestamp") from None


class _Response:
    """What was shown is what was found; events say what was clicked."""

    def __init__(self, searches: _Searches) -> None:
        self.searches = searches
        self.clicked = bytearray(len(searches.hits))
        if not searches.hits:
            problem = "no search has results; if events have impressions, take positions from 'events'"
            raise InputError(problem, file=searches.file, column=HITS)

    def add(self, event: UbiRecord, *, clicked: bool) -> None:
        searches = self.searches
        search = searches.of(event, may_be_new=False)
        if search is None:
            return
        document = event.at(OBJECT)
        code = searches.documents.codes.get(str(document))
        place = np.flatnonzero(searches.response(search) == (-1 if code is None else code))
        if not place.size:
            problem = "the document was not in the response to its search"
            searches.strays.take(event.error(problem, OBJECT, document))
            return
        self.clicked[searches.ends[search] + int(place[0])] |= clicked

    def entries(self) -> _Entries:
        ends = np.array(self.searches.ends, dtype=np.int64)
        lengths = np.diff(ends)
        search = np.repeat(np.arange(lengths.size), lengths)
        position = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths) + 1
        clicks = np.frombuffer(bytes(self.clicked), dtype=np.bool_)
        return _Entries(search, np.array(self.searches.hits, dtype=np.int64), position, clicks)


class _Shown:
    """What was shown is what events say, at the ordinals that they say."""

    def __init__(self, searches: _Searches) -> None:
        self.searches = searches
        self.columns = {name: array("q") for name in ("search", "document", "ordinal", "click", "row")}
        self.file: Path | None = None

    def add(self, event: UbiRecord, *, clicked: bool) -> None:
        self.file = event.file
        document, ordinal = event.at(OBJECT), whole_or_none(event.at(ORDINAL))
        strays = self.searches.strays
        if document is None:
            return strays.take(event.error("the document is missing", OBJECT))
        if ordinal is not None and (
            isinstance(ordinal, bool) or not isinstance(ordinal, int) or not 0 <= ordinal <= DEEPEST_POSITION
        ):
            problem = f"must be a whole number from 0 to {DEEPEST_POSITION}"
            return strays.take(event.error(problem, ORDINAL, ordinal))
        search = self.searches.of(event, may_be_new=True)
        if search is not None:
            code = self.searches.documents.code(document, event, OBJECT)
            values = (search, code, NO_ORDINAL if ordinal is None else ordinal, int(clicked), event.row)
            for column, value in zip(self.columns.values(), values, strict=True):
                column.append(value)
        return None

    def entries(self, first_position: int | None) -> _Entries:
        """Bring together what events say of a document, and add the hits that no event is about."""
        if first_position is not None and whole_number(first_position, "first_position") > 1:
            problem = "the first position is called 0 or 1"
            raise InputError(problem, column="first_position", value=first_position)
        told = {name: np.array(column, dtype=np.int64) for name, column in self.columns.items()}
        if not told["search"].size:
            raise InputError("has no impression or click of any search", file=self.file, column="action_name")
        # events with an ordinal before those without, and each in the order of the file
        order = np.lexsort((told["row"], told["ordinal"] == NO_ORDINAL, told["document"], told["search"]))
        told = {name: column[order] for name, column in told.items()}
        same = (np.diff(told["search"]) == 0) & (np.diff(told["document"]) == 0)
        first = np.flatnonzero(np.concatenate([[True], ~same]))
        click = np.maximum.reduceat(told["click"], first).astype(np.bool_)
        ordinal = told["ordinal"]
        differs = ordinal != np.repeat(ordinal[first], np.diff(np.append(first, ordinal.size)))
        self._complain(told, differs & (ordinal != NO_ORDINAL), "another event has it at another position")
        lacking = ordinal[first] == NO_ORDINAL
        self._complain({name: column[first] for name, column in told.items()}, lacking, "no event says where")
        kept = first[~lacking]
        start = first_position
        if start is None:
            start = int(ordinal[kept].min(initial=1) > 0)
        shown = {name: column[kept] for name, column in told.items()}
        shown["click"], shown["position"] = click[~lacking].astype(np.int64), ordinal[kept] + 1 - start
        if (shown["position"] < 1).any():
            self._complain(shown, shown["position"] < 1, "is before the first position")
            shown = {name: column[shown["position"] >= 1] for name, column in shown.items()}
        return self._with_hits(self._without_repeats(shown))

    def _complain(self, told: dict[str, Whole], wrong: NDArray[np.bool_], problem: str) -> None:
        rows = np.flatnonzero(wrong)
        for index in rows[np.argsort(told["row"][rows])]:
            value = int(told["ordinal"][index])
            self.searches.strays.take(
                InputError(
                    problem,
                    file=self.file,
                    row=int(told["row"][index]),
                    column=ORDINAL,
                    value=None if value == NO_ORDINAL else value,
                )
            )

    def _without_repeats(self, shown: dict[str, Whole]) -> dict[str, Whole]:
        """Leave out what would stand where another document of its search stands already."""
        order = np.lexsort((shown["row"], shown["position"], shown["search"]))
        same = (np.diff(shown["search"][order]) == 0) & (np.diff(shown["position"][order]) == 0)
        again = np.zeros(order.size, dtype=np.bool_)
        again[order[1:][same]] = True
        self._complain(shown, again, "another document of the search has this position")
        return {name: column[~again] for name, column in shown.items()}

    def _with_hits(self, shown: dict[str, Whole]) -> _Entries:
        """Add the documents of responses that were not shown."""
        response = _Response(self.searches).entries() if self.searches.hits else None
        if response is not None:
            width = len(self.searches.documents.codes)
            other = ~np.isin(
                response.search * width + response.document, shown["search"] * width + shown["document"]
            )
            hidden = int(other.sum())
            for name, values in (
                ("search", response.search[other]),
                ("document", response.document[other]),
                ("position", np.full(hidden, NOT_SHOWN)),
                ("click", np.zeros(hidden, dtype=np.int64)),
            ):
                shown[name] = np.concatenate([shown[name], values])
        order = np.argsort(shown["search"], kind="stable")
        return _Entries(
            shown["search"][order],
            shown["document"][order],
            shown["position"][order],
            shown["click"][order].astype(np.bool_),
        )
