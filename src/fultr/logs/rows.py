"""Rows of a long table, checked, with ids as codes, and brought together by impression.

A long table has a row for each candidate of each impression. It is read in blocks. Each block is checked by
itself, so that threads can share the work, and cut where an impression ends. Rows of one impression that do
not stand together are brought together first, on disk if they are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data import columns as checks
from fultr.data.columns import Place, require_columns
from fultr.data.grouping import first_repeat, group_rows, mixed, run_starts
from fultr.data.id_codes import IdCodes, encode_ids
from fultr.data.ids import document_twice
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.propensity import NOT_SHOWN
from fultr.data.table_files import Batch, Table
from fultr.data.tally import Columns, PlantedRows, RepeatedDocumentError, Rows, Tally, count_rows
from fultr.errors import InputError
from fultr.logs.partitions import Partitions

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

Check = Callable[[Any, str, Place], NDArray[Any]]
"""From a column of a batch, its name and the place of its rows to checked values; `columns.flags` is one."""

Value = TypeVar("Value")
Result = TypeVar("Result")


class ScatteredRowsError(Exception):
    """The rows of some impression do not stand together."""


@dataclass(eq=False)
class RowReader:
    """Reads long tables as checked rows with ids as codes.

    Parameters
    ----------
    tables
        The tables, one after another.
    renamed
        What the tables call a column, where they call it otherwise.
    features
        The columns with features.
    group_names
        The groups there are; a label that is not among them is an error. By default those found.
    text_ids
        Treat ids as text, as a CSV file gives them.
    keep_text
        The columns of ids that stay text even if all of it looks like integers.
    context
        A column that tells impressions apart, such as the device.
    of_impressions
        Further columns with one value for each impression, and how to check them.
    keep_impressions
        Give text ids of impressions codes from which they can be had back, instead of hashes.
    """

    tables: Sequence[Table]
    renamed: Mapping[str, str]
    features: Sequence[str] = ()
    group_names: Sequence[str] | None = None
    text_ids: bool = False
    keep_text: Sequence[str] = ()
    context: str | None = None
    of_impressions: Mapping[str, tuple[str, Check]] = field(default_factory=dict)
    keep_impressions: bool = False

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
        self._places = [Place(table.file) for table in self.tables]
        for name in self.renamed:
            if name not in (*REQUIRED, *OPTIONAL):
                known = ", ".join((*REQUIRED, *OPTIONAL))
                raise InputError(f"no such column to rename; there are: {known}", column=name)

    def read(self, use: Callable[[Columns], Result], clear: Callable[[], None]) -> Iterator[Result]:
        """Yield what `use` makes of each block of complete impressions, in order, threads sharing the work.

        `clear` is called if everything starts anew, since rows turned out not to stand together.
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
                problem = "must be all whole numbers, or all dates"
                raise self.error(problem, first, "timestamp", time[0])
            self.time_type, block["time"] = time.dtype, time.view(np.int64)
        if "features" in block:
            width = block["features"].shape[1]
            if self.width is None:
                self.width = (width, self.shown_row(first))
            elif self.width[0] != width:
                problem = f"there are {width} features, but {self.width[0]} in row {self.width[1]}"
                raise self.error(problem, first, "features")

    def _contiguous(self, pool: ThreadPoolExecutor) -> Iterator[Columns]:
        """Yield blocks of complete impressions; raise if one comes back after another."""
        returns = _ReturnCheck()
        waiting: list[Columns] = []
        for block in self._checked(pool):
            waiting.append(block)
            if sum(one["row"].size for one in waiting) < ROWS_A_BLOCK:
                continue
            # the last impression may continue in what comes next
            joined = _joined(waiting)
            cut = int(_impression_starts(joined)[-1])
            if cut:
                complete = {name: values[:cut] for name, values in joined.items()}
                returns.add(complete)
                yield complete
            waiting = [{name: values[cut:] for name, values in joined.items()}]
        last = _joined(waiting) if waiting else {"row": np.empty(0)}
        if last["row"].size:
            returns.add(last)
            yield last
        returns.finish()

    def _scattered(self, pool: ThreadPoolExecutor) -> Iterator[Columns]:
        """Bring the rows of impressions together, some impressions at a time, and yield them."""
        with Partitions() as partitions:
            for block in self._checked(pool):
                partitions.add(block, _impression_hashes(block))
            for part in partitions:
                keys = [part[name] for name in ("impression", "impression_check") if name in part]
                order, _ = group_rows(*keys, part["row"])
                yield {name: values[order] for name, values in part.items()}

    def _batches(self) -> Iterator[tuple[Batch, Place, int]]:
        """Read the columns that are needed, under our names."""
        for index, table in enumerate(self.tables):
            names = table.schema.names
            asked = {name: self.renamed.get(name, name) for name in (*REQUIRED, *OPTIONAL)}
            require_columns(names, [asked[name] for name in REQUIRED], table.file)
            require_columns(names, [asked[name] for name in OPTIONAL if name in self.renamed], table.file)
            wanted = {name: column for name, column in asked.items() if column in names}
            self._check_columns(wanted, index)
            wanted.update((name, name) for name in self.features)
            if self.context is not None:
                wanted["context"] = self.context
            wanted.update((name, column) for name, (column, _) in self.of_impressions.items())
            require_columns(names, wanted.values(), table.file)
            for batch, place in table.batches(list(dict.fromkeys(wanted.values()))):
                self._places[index] = place
                named = {name: batch[column] for name, column in wanted.items()}
                self._check_kinds(named, place)
                yield named, place, index

    def _check_columns(self, wanted: Mapping[str, str], index: int) -> None:
        """Refuse a table that has other columns than the first one has."""
        first = {self.renamed.get(name, name) for name in OPTIONAL} & set(self.tables[0].schema.names)
        differs = first ^ {wanted[name] for name in OPTIONAL if name in wanted}
        if differs:
            one, other = self.tables[0].file, self.tables[index].file
            problem = f"must be in all files or in none; see {one}"
            raise InputError(problem, file=other, column=min(differs))

    def _check_kinds(self, batch: Batch, place: Place) -> None:
        """Refuse text ids where integers came before; here, since threads check batches in any order."""
        for codes, column in (
            (self.impressions, "impression_id"),
            (self.queries, "query_id"),
            (self.documents, "doc_id"),
        ):
            ids = batch[column]
            kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
            if len(ids) and (checks.is_text(kind) or pa.types.is_integer(kind)):
                is_text = self.text_ids or checks.is_text(kind)
                codes.require_kind("string" if is_text else "int64", column, place, ids[0].as_py())

    def _check(self, batch: Batch, place: Place, table: int) -> Columns:
        """Return the rows of a batch, checked one by one."""
        position = checks.positions(batch["position"], "position", place, DEEPEST_POSITION)
        shown = position != NOT_SHOWN
        click = checks.flags(batch["click"], "click", place, missing=~shown)
        if (click & ~shown).any():
            problem = "a click on an item that was not shown: its position is empty"
            raise place.error(problem, int(np.argmax(click & ~shown)), "click", 1)
        rows: Columns = {
            "row": place.rows(position.size) | (table << ROW_BITS),
            **self._impression_keys(batch, place),
            **self.encode_items(batch, place),
            "position": position,
            "click": click,
        }
        if "propensity" in batch:
            rows["propensity"] = checks.propensities(batch["propensity"], "propensity", place, shown)
        if "planted" in batch:
            rows["planted"] = checks.flags(batch["planted"], "planted", place)
            unplaced = rows["planted"] & ~shown
            if unplaced.any():
                raise place.error("a planted item needs a position", int(np.argmax(unplaced)), "position")
        if "timestamp" in batch:
            rows["time"] = checks.timestamps(batch["timestamp"], "timestamp", place)
        if "group" in batch:
            rows["group"] = self.encode_groups(batch["group"], place)
        if self.context is not None:
            values = checks.context_labels(batch["context"], self.context, place)
            rows["context"] = self.contexts.encode(values)
        if self.features:
            given = {name: batch[name] for name in self.features}
            rows["features"] = checks.feature_table(given, position.size, place)
        for name, (column, check) in self.of_impressions.items():
            rows[name] = check(batch[name], column, place)
        return rows

    def _impression_keys(self, batch: Batch, place: Place) -> Columns:
        ids = checks.ids(batch["impression_id"], "impression_id", place, as_text=self.text_ids)
        if pa.types.is_integer(ids.type) or self.keep_impressions:
            return {"impression": encode_ids(self.impressions, ids, "impression_id", place)}
        texts = pl.Series(pl.from_arrow(ids))
        return {"impression": texts.hash(0).to_numpy(), "impression_check": texts.hash(1).to_numpy()}

    def encode_items(self, batch: Batch, place: Place) -> Columns:
        """Return codes of the query and of the document of each row."""
        found = {}
        for name, column, codes in (
            ("query", "query_id", self.queries),
            ("document", "doc_id", self.documents),
        ):
            ids = checks.ids(batch[column], column, place, as_text=self.text_ids)
            found[name] = encode_ids(codes, ids, column, place)
        return found

    def encode_groups(self, column: Any, place: Place) -> NDArray[np.int64]:
        """Return a code for each label, -1 where the group is unknown."""
        labels = checks.encoded_labels(column, "group", place)
        if pa.types.is_dictionary(labels.type):
            of_label = np.append(self.groups.encode(pl.Series(pl.from_arrow(labels.dictionary))), -1)
            index = labels.indices.fill_null(of_label.size - 1).to_numpy(zero_copy_only=False)
            codes = np.asarray(of_label[index])
        else:
            codes = self.groups.encode(pl.Series(pl.from_arrow(labels)))
        if self.group_names is not None:
            allowed = np.array([*(name in self.group_names for name in self.groups.texts), True])
            if not allowed[codes].all():
                index = int(np.argmin(allowed[codes]))
                problem = f"unknown group; expected one of: {', '.join(self.group_names)}"
                raise place.error(problem, index, "group", labels[index].as_py())
        return codes

    def tally(self, block: Columns) -> tuple[Tally, Rows]:
        """Count complete impressions, after checking what concerns each of them as a whole."""
        rows = self.rows(block)
        try:
            return count_rows(rows), rows
        except RepeatedDocumentError:
            self._name_repeated_document(block)

    def rows(self, block: Columns) -> Rows:
        """Return complete impressions as the rows that are counted; refuse those that make no sense."""
        starts = _impression_starts(block)
        number = np.repeat(np.arange(starts.size), np.diff(np.append(starts, block["row"].size)))
        self._check_constant(block, "query", "query_id", starts, number)
        self._check_positions(block, number)
        for name, (column, _) in self.of_impressions.items():
            self._check_constant(block, name, column, starts, number)
        if self.context is not None:
            self._check_constant(block, "context", self.context, starts, number)
        per_impression = {name: block[name][starts] for name in ("query", "context", "time") if name in block}
        planted, kept = _planted(block, number)
        if kept is not None:
            lengths = np.bincount(number[kept], minlength=starts.size)
            if not lengths.all():
                if not self.gathered:
                    raise ScatteredRowsError  # its candidates may stand elsewhere
                row = block["row"][starts[np.argmin(lengths)]]
                problem = "the impression has planted items only, and no candidate"
                raise self.error(problem, row, "impression_id")
            starts, number = np.cumsum(lengths) - lengths, number[kept]
            block = {name: values[kept] for name, values in block.items()}
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
        first = self.shown_row(block["row"][starts[number[index]]])
        if name == "query":
            rows = block["row"][[starts[number[index]], index]]
            problem, value = (
                f"query_id of the same impression in row {first} differs" + self._hint(*rows),
                None,
            )
        else:
            problem = (
                f"must be the same in all rows of an impression, but {column} of the same impression in row"
                f" {first} differs"
            )
            value = self.contexts.texts[int(values[index])] if name == "context" else values[index]
        raise self.error(problem, block["row"][index], column, value)

    def _check_positions(self, block: Columns, number: NDArray[np.int64]) -> None:
        shown = np.flatnonzero(block["position"] != NOT_SHOWN)
        repeat = first_repeat(number[shown], block["position"][shown])
        if repeat is not None:
            first, second = (int(shown[index]) for index in repeat)
            problem = (
                f"the position is taken in row {self.shown_row(block['row'][first])} of the same impression"
                " already" + self._hint(block["row"][first], block["row"][second])
            )
            raise self.error(problem, block["row"][second], "position", block["position"][second])

    def _name_repeated_document(self, block: Columns) -> NoReturn:
        number = np.cumsum(np.isin(np.arange(block["row"].size), _impression_starts(block)))
        candidates = np.flatnonzero(~block["planted"]) if "planted" in block else np.arange(number.size)
        repeat = first_repeat(number[candidates], block["document"][candidates])
        if repeat is None:
            raise RuntimeError("two lists of different documents have the same hash")
        first, second = (int(candidates[index]) for index in repeat)
        document = self.documents.ids(block["document"][[second]])[0]
        twice = document_twice(self.shown_row(block["row"][first]), 0, "impression", document)
        hint = self._hint(block["row"][first], block["row"][second])
        raise self.error(twice.problem + hint, block["row"][second], "doc_id", document)

    def _hint(self, first: int, second: int) -> str:
        """Say what is wrong if rows of two files are taken for one impression."""
        one, other = self.tables[int(first) >> ROW_BITS].file, self.tables[int(second) >> ROW_BITS].file
        return "" if one == other else f", in {one}; impressions of different files need different ids"

    def shown_row(self, row: int) -> int:
        """Return the number of a row as a person would count it."""
        return self._places[int(row) >> ROW_BITS].shown(int(row) & ((1 << ROW_BITS) - 1))

    def error(self, problem: str, row: int, column: str, value: object = None) -> InputError:
        """Return an error about a row."""
        file = self.tables[int(row) >> ROW_BITS].file
        return InputError(problem, file=file, row=self.shown_row(row), column=column, value=value)

    def find_rows(self, wanted: Callable[[Columns], NDArray[np.bool_]]) -> Iterator[tuple[int, Columns]]:
        """Read the tables again and yield the rows that are wanted, one after another: for error messages."""
        for given in self._batches():
            block = self._check(*given)
            for index in np.flatnonzero(wanted(block)):
                yield (
                    int(block["row"][index]),
                    {name: values[index : index + 1] for name, values in block.items()},
                )


class _ReturnCheck:
    """Notices an impression that comes back after another one."""

    def __init__(self) -> None:
        self._seen: list[NDArray[Any]] = []
        self._last: int | None = None
        self._ascending = True

    def add(self, block: Columns) -> None:
        """Look at complete impressions; those that come back within a block are noticed at once."""
        keys = block["impression"][_impression_starts(block)]
        if self._ascending and "impression_check" not in block:
            follows = self._last is None or (keys.size and int(keys[0]) > self._last)
            self._ascending = bool(follows and (keys[1:] > keys[:-1]).all())
            self._last = int(keys[-1]) if keys.size else self._last
        else:
            self._ascending = False
        self._seen.append(keys)
        if not self._ascending and np.unique(keys).size < keys.size:
            raise ScatteredRowsError

    def finish(self) -> None:
        """Look at the whole log; keys that ascend cannot come back."""
        if not self._ascending and self._seen:
            keys = np.concatenate(self._seen)
            if np.unique(keys).size < keys.size:
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


def _impression_starts(block: Columns) -> NDArray[np.int64]:
    """Return where each run of rows of one impression starts."""
    starts = run_starts(block["impression"])
    if "impression_check" not in block:
        return starts
    return np.union1d(starts, run_starts(block["impression_check"]))


def _impression_hashes(block: Columns) -> NDArray[np.uint64]:
    return mixed(block["impression"])


def _joined(blocks: Sequence[Columns]) -> Columns:
    if len(blocks) == 1:
        return blocks[0]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _planted(block: Columns, number: NDArray[np.int64]) -> tuple[PlantedRows, NDArray[np.bool_] | None]:
    """Return planted items, and which rows are candidates if not all are."""
    planted = block.get("planted")
    chosen = np.empty(0, dtype=np.int64) if planted is None else np.flatnonzero(planted)
    propensity = block["propensity"][chosen] if "propensity" in block else None
    rows = PlantedRows(number[chosen], block["position"][chosen], block["click"][chosen], propensity)
    return rows, None if planted is None or not chosen.size else ~planted
