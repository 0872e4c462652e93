"""Groups and features of items, as the rows of a log or a table of documents give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from fultr.data import columns as checks
from fultr.data.columns import Place, require_columns
from fultr.data.counts import ItemTable
from fultr.data.grouping import group_rows
from fultr.data.ids import UNKNOWN_GROUP
from fultr.data.table_files import Table
from fultr.data.tally import Columns, Tally
from fultr.errors import InputError
from fultr.logs.rows import ROW_BITS, RowReader

OnConflict = Literal["error", "first", "last"]

KEYS = ("query_id", "doc_id")

ROWS_A_COMPARISON = 1 << 16
"""Rows whose features are compared at once, so that little memory is needed."""


class ItemCollector:
    """Collects what is said of items: a document of a query each.

    Parameters
    ----------
    reader
        Reads the log.
    on_conflict
        What to do when rows say different things of an item: "error", or take the "first" or the "last".
    documents
        Tables of documents, if any: they have the features, and the groups unless only the log has any.
    features
        The columns with features of these tables.
    """

    def __init__(
        self,
        reader: RowReader,
        on_conflict: OnConflict,
        documents: Sequence[Table],
        features: tuple[str, ...],
    ) -> None:
        if on_conflict not in ("error", "first", "last"):
            raise InputError("must be 'error', 'first' or 'last'", column="on_conflict", value=on_conflict)
        self.reader, self.on_conflict = reader, on_conflict
        self._documents: Columns | None = None
        self._document_row: Callable[[int], int] = int
        self._parts: list[Columns] = []
        if documents:
            self._read(documents, features)

    def _read(self, tables: Sequence[Table], features: tuple[str, ...]) -> None:
        """Read tables of documents, keyed by query_id and doc_id."""
        places, parts = [Place(table.file) for table in tables], []
        grouped = all("group" in table.schema.names for table in tables)
        for index, table in enumerate(tables):
            require_columns(table.schema.names, (*KEYS, *features), table.file)
            for batch, place in table.batches([*KEYS, *(["group"] if grouped else []), *features]):
                places[index] = place
                rows = place.rows(len(batch["query_id"]))
                part = {"row": rows | (index << ROW_BITS), **self.reader.encode_items(batch, place)}
                if grouped:
                    part["group"] = self.reader.encode_groups(batch["group"], place)
                given = {name: batch[name] for name in features}
                part["features"] = checks.feature_table(given, rows.size, place)
                parts.append(part)
        if not parts:
            raise InputError("the table of documents has no rows", file=tables[0].file)

        def shown_row(row: int) -> int:
            return places[row >> ROW_BITS].shown(row & ((1 << ROW_BITS) - 1))

        def conflict(column: str, row: int, other: int) -> NoReturn:
            problem = f"{column} of the same document and query in row {shown_row(other)} differs"
            raise InputError(problem, file=tables[row >> ROW_BITS].file, row=shown_row(row), column=column)

        self._documents = self._once_each(_joined(parts), conflict)
        self._document_row = shown_row

    def part(self, block: Columns) -> Columns | None:
        """Return what some rows say, once for each item; None if counting keeps all that they say."""
        names = ["features"] if "features" in block else []
        if "group" in block and self.on_conflict != "error":
            names.append("group")
        if not names:
            return None
        kept = np.flatnonzero(~block["planted"]) if "planted" in block else slice(None)
        values = {name: block[name][kept] for name in ("row", "query", "document", *names)}
        return self._once_each(values, self._conflict_of_rows)

    def add(self, part: Columns | None) -> None:
        """Collect a part; parts come in the order of the rows."""
        if part is not None:
            self._parts.append(part)

    def clear(self) -> None:
        """Remove all parts."""
        self._parts = []

    def _once_each(self, values: Columns, conflict: Callable[[str, int, int], NoReturn]) -> Columns:
        """Return each item once; what differs between its rows is a conflict."""
        order, starts = group_rows(values["query"], values["document"])
        ends = np.append(starts[1:], order.size)
        if self.on_conflict == "error":
            first = np.repeat(order[starts], ends - starts)
            for name in values.keys() & {"group", "features"}:
                differs = _first_difference(values[name], order, first)
                if differs is not None:
                    conflict(name, *(int(values["row"][index]) for index in differs))
        chosen = order[ends - 1 if self.on_conflict == "last" else starts]
        return {name: column[chosen] for name, column in values.items()}

    def items(self, tally: Tally) -> tuple[ItemTable, tuple[str, ...]]:
        """Return all items that were counted, and the names of their groups."""
        said = self._once_each(_joined(self._parts), self._conflict_of_rows) if self._parts else {}
        if tally.groups:
            self._check_groups(tally.groups)
            said = _with_groups(said, tally.groups) if said else tally.groups
        if self._documents is None:
            items = ItemTable.of(said or _candidates(tally))
        else:
            items = self._with_documents(self._documents, said)
            self._check_known(tally, items)
        names = self.reader.group_names
        labels = self.reader.groups.texts.to_list()
        if names is None:
            names = sorted(labels)
        code = np.array([*(names.index(label) for label in labels), UNKNOWN_GROUP], dtype=np.int64)
        return items._replace(group=code[items.group]), tuple(names)

    def _with_documents(self, documents: Columns, said: Columns) -> ItemTable:
        """Return the items of the table of documents, with the groups of the log if only that has any."""
        if "group" not in said:
            return ItemTable.of(documents)
        if "group" not in documents:
            return ItemTable.of(_with_groups(documents, said))
        index = ItemTable.of(said).find(documents["query"], documents["document"])
        group = np.append(said["group"], UNKNOWN_GROUP)[index]
        differs = np.flatnonzero((index >= 0) & (group != documents["group"]))
        if differs.size and self.on_conflict == "error":
            item = int(differs[0])
            row = f"{self._document_row(int(documents['row'][item]))} of the table of documents"
            first = documents["group"][item : item + 1]
            self._conflict("group", documents["query"][item], documents["document"][item], first, row)
        if self.on_conflict == "last":
            documents = {**documents, "group": np.where(index >= 0, group, documents["group"])}
        return ItemTable.of(documents)

    def _check_groups(self, groups: Columns) -> None:
        query, document = groups["query"], groups["document"]
        again = (query[1:] == query[:-1]) & (document[1:] == document[:-1])
        if again.any():
            index = int(np.argmax(again))
            self._conflict("group", query[index], document[index])

    def _check_known(self, tally: Tally, items: ItemTable) -> None:
        """Refuse candidates that the table of documents does not have."""

        def is_missing(block: Columns) -> NDArray[np.bool_]:
            unknown = items.find(block["query"], block["document"]) < 0
            return unknown & ~block["planted"] if "planted" in block else unknown

        if is_missing(_candidates(tally)).any():
            row, found = next(self.reader.find_rows(is_missing))
            problem = "the document is not in the table of documents for this query"
            value = self.reader.documents.ids(found["document"])[0]
            raise self.reader.error(problem, row, "doc_id", value)

    def _conflict_of_rows(self, column: str, row: int, other: int) -> NoReturn:
        problem = f"{column} of the same document and query in row {self.reader.shown_row(other)} differs"
        raise self.reader.error(problem, row, column)

    def _conflict(
        self, column: str, query: int, document: int, first: Any = None, row_of_first: str = ""
    ) -> NoReturn:
        """Find the first row that says something else of an item than its first row does."""

        def of_item(block: Columns) -> NDArray[np.bool_]:
            same = (block["query"] == query) & (block["document"] == document)
            return np.asarray(same & ~block["planted"] if "planted" in block else same)

        for row, found in self.reader.find_rows(of_item):
            if first is None:
                first, row_of_first = found[column], str(self.reader.shown_row(row))
            elif (found[column] != first).any():
                problem = f"{column} of the same document and query in row {row_of_first} differs"
                raise self.reader.error(problem, row, column)
        raise RuntimeError("the rows that say different things were not found again")


def _first_difference(
    values: NDArray[Any], rows: NDArray[np.int64], others: NDArray[np.int64]
) -> tuple[int, int] | None:
    """Return the first of some rows whose value differs from that of its other row, and that row."""
    found = []
    for start in range(0, rows.size, ROWS_A_COMPARISON):
        row, other = rows[start : start + ROWS_A_COMPARISON], others[start : start + ROWS_A_COMPARISON]
        differs = values[row] != values[other]
        differs = differs.any(axis=1) if differs.ndim == 2 else differs
        if differs.any():
            found.append(min(zip(row[differs].tolist(), other[differs].tolist(), strict=True)))
    return min(found) if found else None


def _with_groups(items: Columns, groups: Columns) -> Columns:
    """Return items with the groups that another table has of them."""
    index = ItemTable.of(groups).find(items["query"], items["document"])
    return {**items, "group": np.append(groups["group"], UNKNOWN_GROUP)[index]}


def _candidates(tally: Tally) -> Columns:
    """Return each item that was counted, and nothing else of it."""
    query, document = tally.lists["query"][tally.cells["list"]], tally.cells["document"]
    order, starts = group_rows(query, document)
    return {"query": query[order[starts]], "document": document[order[starts]]}


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
