"""Rows of a long table, checked, with ids as codes, and brought together by impression.

A long table has a row for each candidate of each impression. It is read in blocks. Each block is checked by
itself, so that threads can share the work, and cut where an impression ends. Rows of one impression that do
not stand together are brought together first, on disk if they are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import one_of
from fultr.data import columns as checks
from fultr.data.categories import RawFeatures
from fultr.data.columns import Location, require_columns
from fultr.data.fields import DEEPEST_POSITION
from fultr.data.grouping import first_repeat, group_rows, run_numbers, run_starts, sort_key
from fultr.data.ids import IdCodes, document_twice
from fultr.data.propensity import NOT_SHOWN
from fultr.data.table_files import Batch, Table
from fultr.data.tally import Columns, PlantedRows, RepeatedDocumentError, Rows, Tally, count_rows, joined
from fultr.errors import InputError
from fultr.logs.partitions import in_parts

REQUIRED = ("impression_id", "query_id", "doc_id", "position", "click")
OPTIONAL = ("propensity", "group", "planted", "timestamp")

ROW_BITS = 48
"""A row is known by one integer: its number in its table in these bits, and the table above them."""

ROWS_A_BLOCK = 1 << 21
"""Rows that are counted together, about 100 MB: with fewer, more cells are left to be merged."""

WORKERS = 2
"""Threads that check and count blocks, besides the one that reads."""

BLOCKS_AHEAD = 3
"""Blocks that are under way at once: more would only take memory."""

OnRepeat = Literal["error", "first"]

Check = Callable[[Any, str, Location], NDArray[Any]]
"""From a column, its name and the location of its rows to checked values; `columns.flags` is one."""

Value = TypeVar("Value")
Result = TypeVar("Result")


class NumberedRows:
    """Rows of several tables, each known by one integer; errors name it as a person would count it."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.files = [table.file for table in tables]
        self._places = [Location(table.file) for table in tables]

    def number(self, table: int, location: Location, size: int) -> NDArray[np.int64]:
        """Return the integers of rows of a table."""
        self._places[table] = location
        return location.rows(size) | (table << ROW_BITS)

    def file_of(self, row: int) -> str | Path | None:
        """Return the file of a row."""
        return self.files[int(row) >> ROW_BITS]

    def shown(self, row: int) -> int:
        """Return the number of a row as a person would count it."""
        return self._places[int(row) >> ROW_BITS].shown(int(row) & ((1 << ROW_BITS) - 1))

    def error(self, problem: str, row: int, column: str, value: object = None, *options: str) -> InputError:
        """Return an error about a row; `options` are arguments that the problem names."""
        file, shown = self.file_of(row), self.shown(row)
        return InputError(problem, file=file, row=shown, column=column, value=value, options=options)


class ScatteredRowsError(Exception):
    """The rows of some impression do not stand together."""


@dataclass(eq=False)
class RowReader:
    """Reads long tables, one after another, as checked rows with ids as codes."""

    tables: Sequence[Table]
    renamed: Mapping[str, str]  # what the tables call a column, where they call it otherwise
    features: Sequence[str] = ()
    group_names: Sequence[str] | None = None  # a label that is not among them is an error
    text_ids: bool = False  # treat ids as text, as a CSV file gives them
    keep_text: Sequence[str] = ()  # columns of ids that stay text even if all of it looks like integers
    context: str | None = None  # a column that separates impressions, such as the device
    of_impressions: Mapping[str, tuple[str, Check]] = field(default_factory=dict)
    """Further columns with one value for each impression, and how to check them."""
    keep_impressions: bool = False
    """Give text ids of impressions codes from which they can be had back, instead of hashes."""
    on_repeat: OnRepeat = "error"
    raw: RawFeatures = field(default_factory=RawFeatures)

    def __post_init__(self) -> None:
        self.impressions, self.queries, self.documents = (
            IdCodes(may_be_integers=self.text_ids and column not in self.keep_text)
            for column in ("impression_id", "query_id", "doc_id")
        )
        self.groups, self.contexts = IdCodes(), IdCodes()
        self.time_type: np.dtype[Any] | None = None
        self.width: tuple[int, int] | None = None
        self.rows_read: list[int] = [0] * len(self.tables)
        self.gathered = False
        self.numbered = NumberedRows(self.tables)
        if self.context is not None:
            self.of_impressions = {**self.of_impressions, "context": (self.context, self._contexts)}
        one_of(self.on_repeat, "on_repeat", *get_args(OnRepeat))
        for name in self.renamed:
            if name not in (*REQUIRED, *OPTIONAL):
                allowed = ", ".join((*REQUIRED, *OPTIONAL))
                raise InputError(f"no such column to rename; there are: {allowed}", column=name)

    def _contexts(self, column: Any, name: str, location: Location) -> NDArray[np.int64]:
        return self.contexts.encode(checks.context_labels(column, name, location))

    def read(self, use: Callable[[Columns], Result], clear: Callable[[], None]) -> Iterator[Result]:
        """Yield what `use` makes of each block of complete impressions, in order, threads sharing the work.

        `clear` is called before a second start, when the rows of an impression do not stand together.
        """
        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                yield from in_order(pool, use, self._contiguous(pool))
            except ScatteredRowsError:
                clear()
                self.rows_read, self.gathered = [0] * len(self.tables), True
                yield from in_order(pool, use, self._scattered(pool))

    def _checked(self, pool: ThreadPoolExecutor) -> Iterator[Columns]:
        for block in in_order(pool, lambda given: self._check(*given), self._batches()):
            self._check_alike(block)
            yield block

    def _check_alike(self, block: Columns) -> None:
        """Count the rows of a block; refuse other kinds of times, or numbers of features, than before."""
        if not block["row"].size:
            return
        first = int(block["row"][0])
        self.rows_read[first >> ROW_BITS] += block["row"].size
        if "time" in block:
            time = block["time"]
            if self.time_type not in (None, time.dtype):
                problem = "must be all integers, or all dates"
                raise self.numbered.error(problem, first, "timestamp", time[0])
            self.time_type, block["time"] = time.dtype, time.view(np.int64)
        if "features" in block:
            width = block["features"].shape[1]
            if self.width is None:
                self.width = (width, self.numbered.shown(first))
            elif self.width[0] != width:
                problem = f"there are {width} features, but {self.width[0]} in row {self.width[1]}"
                raise self.numbered.error(problem, first, "features")

    def _contiguous(self, pool: ThreadPoolExecutor) -> Iterator[Columns]:
        """Yield blocks of complete impressions; raise if one comes back after another."""
        seen: list[NDArray[Any]] = []
        waiting: list[Columns] = []

        def complete(rows: Columns) -> Columns:
            seen.append(rows["impression"][impression_starts(rows)])
            _check_returns(seen[-1])
            return rows

        for block in self._checked(pool):
            waiting.append(block)
            if sum(rows["row"].size for rows in waiting) < ROWS_A_BLOCK:
                continue
            # the last impression may continue in what comes next
            rows = joined(waiting)
            cut = int(impression_starts(rows)[-1])
            if cut:
                yield complete({name: values[:cut] for name, values in rows.items()})
            waiting = [{name: values[cut:] for name, values in rows.items()}]
        if any(block["row"].size for block in waiting):
            yield complete(joined(waiting))
        if seen:
            _check_returns(np.concatenate(seen))

    def _scattered(self, pool: ThreadPoolExecutor) -> Iterator[Columns]:
        """Bring the rows of impressions together, some impressions at a time, and yield them."""
        for rows in in_parts(self._checked(pool)):
            keys = [rows[name] for name in ("impression", "impression_check") if name in rows]
            order, _ = group_rows(*keys)  # rows of an impression come in their order
            yield {name: values[order] for name, values in rows.items()}

    def _batches(self) -> Iterator[tuple[Batch, Location, int]]:
        """Read the columns that are needed, under our names."""
        for index, table in enumerate(self.tables):
            names = table.schema.names
            column_of = {name: self.renamed.get(name, name) for name in (*REQUIRED, *OPTIONAL)}
            require_columns(names, [column_of[name] for name in REQUIRED], table.file)
            require_columns(names, [column_of[name] for name in OPTIONAL if name in self.renamed], table.file)
            needed = {name: column for name, column in column_of.items() if column in names}
            self._check_columns(needed, index)
            needed.update((name, name) for name in self.features)
            needed.update((name, column) for name, (column, _) in self.of_impressions.items())
            require_columns(names, needed.values(), table.file)
            self.check_kinds(table, needed)
            for batch, location in table.batches(list(dict.fromkeys(needed.values()))):
                named = {name: batch[column] for name, column in needed.items()}
                yield named, location, index

    def _check_columns(self, needed: Mapping[str, str], index: int) -> None:
        """Refuse a table that has other columns than the first one has."""
        first = {self.renamed.get(name, name) for name in OPTIONAL} & set(self.tables[0].schema.names)
        differs = first ^ {needed[name] for name in OPTIONAL if name in needed}
        if differs:
            problem = f"must be in all files or in none; see {self.tables[0].file}"
            raise InputError(problem, file=self.tables[index].file, column=min(differs))

    def check_kinds(self, table: Table, names: Mapping[str, str]) -> None:
        """Refuse a table with text as ids where tables before it have integers, or the other way round."""
        kinds = {"impression_id": self.impressions, "query_id": self.queries, "doc_id": self.documents}
        for column in kinds.keys() & names.keys():
            kind = pa.string() if self.text_ids else table.schema.field(names[column]).type
            kinds[column].check_kind(kind, column, table.file)

    def _check(self, batch: Batch, location: Location, table: int) -> Columns:
        """Return the rows of a batch, checked one by one."""
        position = checks.positions(batch["position"], "position", location, DEEPEST_POSITION)
        shown = position != NOT_SHOWN
        click = checks.flags(batch["click"], "click", location, missing=~shown)
        problem = "a click on an item that was not shown: its position is empty"
        location.check(click & ~shown, problem, "click", click, int)
        rows: Columns = {
            "row": self.numbered.number(table, location, position.size),
            **self._impression_keys(batch, location),
            **self.encode_items(batch, location),
            "position": position,
            "click": click,
        }
        if "propensity" in batch:
            rows["propensity"] = checks.propensities(batch["propensity"], "propensity", location, shown)
        if "planted" in batch:
            rows["planted"] = checks.flags(batch["planted"], "planted", location)
            location.check(rows["planted"] & ~shown, "a planted item needs a position", "position")
        if "timestamp" in batch:
            rows["time"] = checks.timestamps(batch["timestamp"], "timestamp", location)
        if "group" in batch:
            rows["group"] = checks.encode_labels(batch["group"], location, self.groups, self.group_names)
        if self.features:
            rows["features"] = self._features(batch, position.size, location)
        for name, (column, check) in self.of_impressions.items():
            rows[name] = check(batch[name], column, location)
        return rows

    def _features(self, batch: Batch, rows: int, location: Location) -> NDArray[np.float32]:
        try:
            return self.raw.table({name: batch[name] for name in self.features}, rows, location)
        except InputError as error:
            if error.column not in self.features or error.column == checks.LIST_COLUMN:
                raise
            advice = f"; {{exclude}} '{error.column}' leaves the column out"
            raise error.adding(advice, "exclude") from None

    def _impression_keys(self, batch: Batch, location: Location) -> Columns:
        ids = checks.ids(batch["impression_id"], "impression_id", location, as_text=self.text_ids)
        if pa.types.is_integer(ids.type) or self.keep_impressions:
            return {"impression": self.impressions.encode(ids)}
        texts = pl.Series(pl.from_arrow(ids))
        return {"impression": texts.hash(0).to_numpy(), "impression_check": texts.hash(1).to_numpy()}

    def encode_items(self, batch: Batch, location: Location) -> Columns:
        """Return codes of the query and of the document of each row."""
        query, document = (
            checks.ids(batch[column], column, location, as_text=self.text_ids)
            for column in ("query_id", "doc_id")
        )
        return {"query": self.queries.encode(query), "document": self.documents.encode(document)}

    def without_repeats(self, block: Columns) -> Columns:
        """Return complete impressions, with `on_repeat` "first" each document once: at its first position.

        Of rows at one position the one with a click comes first, and rows without a position come last.
        """
        if self.on_repeat == "error":
            return block
        number = _impression_numbers(block)
        position = block["position"]
        unlike = np.arange(number.size) * block["planted"] if "planted" in block else np.zeros_like(number)
        depth = np.where(position == NOT_SHOWN, DEEPEST_POSITION + 1, position)
        order = np.lexsort((block["row"], ~block["click"], depth, block["document"], unlike, number))
        key = sort_key(number, unlike, block["document"])[order]
        remaining = np.sort(order[run_starts(key)])
        return (
            block
            if remaining.size == number.size
            else {name: values[remaining] for name, values in block.items()}
        )

    def tally(self, block: Columns) -> Tally:
        """Count complete impressions, after checking what concerns each of them as a whole."""
        try:
            return count_rows(self.rows(block))
        except RepeatedDocumentError:
            self._name_repeated_document(block)

    def rows(self, block: Columns) -> Rows:
        """Return complete impressions as the rows that are counted; refuse those that make no sense."""
        starts, number = impression_starts(block), _impression_numbers(block)
        self._check_constant(block, "query", "query_id", starts, number)
        self._check_positions(block, number)
        for name, (column, _) in self.of_impressions.items():
            self._check_constant(block, name, column, starts, number)
        per_impression = {name: block[name][starts] for name in ("query", "context", "time") if name in block}
        planted, candidates = _planted(block, number)
        if candidates is not None:
            lengths = np.bincount(number[candidates], minlength=starts.size)
            if not lengths.all():
                if not self.gathered:
                    raise ScatteredRowsError  # its candidates may stand elsewhere
                row = block["row"][starts[np.argmin(lengths)]]
                problem = "the impression has planted items only, and no candidate"
                raise self.numbered.error(problem, row, "impression_id")
            starts, number = np.cumsum(lengths) - lengths, number[candidates]
            block = {name: values[candidates] for name, values in block.items()}
        return Rows(
            starts=starts,
            impression=number,
            query=per_impression["query"],
            query_hash=self.queries.hashes(per_impression["query"]),
            document=block["document"],
            document_hash=self.documents.hashes(block["document"]),
            position=block["position"],
            click=block["click"],
            planted=planted,
            propensity=block.get("propensity"),
            group=block.get("group"),
            context=per_impression.get("context"),
            time=per_impression.get("time"),
        )

    def _check_constant(
        self,
        block: Columns,
        name: str,
        column: str,
        starts: NDArray[np.int64],
        number: NDArray[np.int64],
    ) -> None:
        values = block[name]
        changes = values[1:] != values[:-1]
        changes[starts[1:] - 1] = False
        if not changes.any():
            return
        index = int(np.argmax(changes)) + 1
        first = self.numbered.shown(block["row"][starts[number[index]]])
        if name == "query":
            hint = self._hint(block["row"][starts[number[index]]], block["row"][index])
            problem, value = f"query_id of the same impression in row {first} differs{hint}", None
        else:
            problem = f"must be the same in all rows of an impression, but {column} in row {first} differs"
            value = self.contexts.texts[int(values[index])] if name == "context" else values[index]
        raise self.numbered.error(problem, block["row"][index], column, value)

    def _check_positions(self, block: Columns, number: NDArray[np.int64]) -> None:
        shown = np.flatnonzero(block["position"] != NOT_SHOWN)
        repeat = first_repeat(number[shown], block["position"][shown])
        if repeat is not None:
            first, second = (int(shown[index]) for index in repeat)
            row = self.numbered.shown(block["row"][first])
            problem = f"the position is taken in row {row} of the same impression already"
            problem += self._hint(block["row"][first], block["row"][second])
            raise self.numbered.error(problem, block["row"][second], "position", block["position"][second])

    def _name_repeated_document(self, block: Columns) -> NoReturn:
        number = _impression_numbers(block)
        candidates = np.flatnonzero(~block["planted"]) if "planted" in block else np.arange(number.size)
        repeat = first_repeat(number[candidates], block["document"][candidates])
        if repeat is None:
            raise RuntimeError("two lists of different documents have the same hash")
        first, second = (int(candidates[index]) for index in repeat)
        document = self.documents.ids(block["document"][[second]])[0]
        twice = document_twice(self.numbered.shown(block["row"][first]), 0, "impression", document)
        hint = (
            self._hint(block["row"][first], block["row"][second]) or "; {on_repeat} 'first' keeps the first"
        )
        raise self.numbered.error(twice.problem + hint, block["row"][second], "doc_id", document, "on_repeat")

    def _hint(self, first: int, second: int) -> str:
        """Return what to add to an error if rows of two files have the same impression id."""
        one, other = self.numbered.file_of(first), self.numbered.file_of(second)
        return "" if one == other else f", in {one}; impressions of different files need different ids"

    def find_rows(self, is_searched: Callable[[Columns], NDArray[np.bool_]]) -> Iterator[tuple[int, Columns]]:
        """Read the tables again and yield the rows that a function marks, one by one: for error messages."""
        for given in self._batches():
            block = self._check(*given)
            for index in np.flatnonzero(is_searched(block)):
                yield int(block["row"][index]), {name: values[[index]] for name, values in block.items()}


def _check_returns(keys: NDArray[Any]) -> None:
    """Raise if an impression comes back after another one; keys that ascend cannot."""
    if not (keys[1:] > keys[:-1]).all() and np.unique(keys).size < keys.size:
        raise ScatteredRowsError


def in_order(
    pool: ThreadPoolExecutor, function: Callable[[Value], Result], values: Iterable[Value]
) -> Iterator[Result]:
    """Yield what a function makes of values, in their order, a few of them being worked on at once."""
    waiting: list[Future[Result]] = []
    try:
        for value in values:
            waiting.append(pool.submit(function, value))
            if len(waiting) >= BLOCKS_AHEAD:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        for future in waiting:
            future.cancel()


def impression_starts(block: Columns) -> NDArray[np.int64]:
    """Return where each run of rows of one impression starts."""
    starts = run_starts(block["impression"])
    if "impression_check" not in block:
        return starts
    return np.union1d(starts, run_starts(block["impression_check"]))


def _impression_numbers(block: Columns) -> NDArray[np.int64]:
    """Return the number of the run of rows that each row is in, from 0."""
    starts = impression_starts(block)
    return run_numbers(starts, block["row"].size)


def _planted(block: Columns, number: NDArray[np.int64]) -> tuple[PlantedRows, NDArray[np.bool_] | None]:
    """Return planted items, and which rows are candidates if not all are."""
    planted = block.get("planted")
    chosen = np.empty(0, dtype=np.int64) if planted is None else np.flatnonzero(planted)
    propensity = block["propensity"][chosen] if "propensity" in block else None
    rows = PlantedRows(number[chosen], block["position"][chosen], block["click"][chosen], propensity)
    return rows, None if planted is None or not chosen.size else ~planted
