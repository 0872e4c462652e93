"""Groups and features of items, as the rows of a log or a table of documents give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fultr.arguments import one_of
from fultr.data import columns as checks
from fultr.data.categories import differ
from fultr.data.columns import LIST_COLUMN, require_columns
from fultr.data.grouping import first_equals, group_numbers, group_rows
from fultr.data.ids import UNKNOWN_GROUP
from fultr.data.merging import ID_FIELDS, ItemTable
from fultr.data.table_files import Table
from fultr.data.tally import Columns, Tally, joined
from fultr.errors import InputError
from fultr.logs.rows import NumberedRows, RowReader

OnConflict = Literal["error", "first", "last", "mean"]

ROWS_A_COMPARISON = 1 << 16
"""Rows whose features are compared at once, so that little memory is needed."""


class ItemCollector:
    """Collects what is said of items: a document of a query each.

    `documents` are tables of documents, if any: they have the `features`, and the groups, in the column
    `group`, unless only the log has any.
    """

    def __init__(
        self,
        reader: RowReader,
        on_conflict: OnConflict,
        documents: Sequence[Table],
        features: tuple[str, ...],
        group: str = "group",
    ) -> None:
        one_of(on_conflict, "on_conflict", *get_args(OnConflict))
        self.reader, self.on_conflict, self.features = reader, on_conflict, features
        self._documents: Columns | None = None
        self._numbered_documents = NumberedRows(documents)
        self._statements: list[Columns] = []
        if documents:
            self._read(documents, group)

    def _read(self, tables: Sequence[Table], group: str) -> None:
        """Read tables of documents, keyed by query_id and doc_id."""
        batches = []
        grouped = all(group in table.schema.names for table in tables)
        for index, table in enumerate(tables):
            require_columns(table.schema.names, (*ID_FIELDS, *self.features), table.file)
            self.reader.check_kinds(table, dict(zip(ID_FIELDS, ID_FIELDS, strict=True)))
            for batch, location in table.batches([*ID_FIELDS, *([group] if grouped else []), *self.features]):
                rows = self._numbered_documents.number(index, location, len(batch["query_id"]))
                rows_of_batch = {"row": rows, **self.reader.encode_items(batch, location)}
                if grouped:
                    rows_of_batch["group"] = checks.encode_labels(
                        batch[group], location, self.reader.groups, self.reader.group_names
                    )
                given = {name: batch[name] for name in self.features}
                rows_of_batch["features"] = self.reader.raw.table(given, rows.size, location)
                batches.append(rows_of_batch)
        if not batches:
            raise InputError("the table of documents has no rows", file=tables[0].file)
        self._documents = _means(self._once_each(joined(batches), self._numbered_documents))

    def statements_of(self, block: Columns) -> Columns | None:
        """Return what some rows say, once for each item; None if counting keeps all that they say."""
        names = ["features"] if "features" in block else []
        if "group" in block and self.on_conflict in ("first", "last"):
            names.append("group")
        if not names:
            return None
        candidates = np.flatnonzero(~block["planted"]) if "planted" in block else slice(None)
        values = {name: block[name][candidates] for name in ("row", "query", "document", *names)}
        return self._once_each(values, self.reader.numbered)

    def add(self, items: Columns | None) -> None:
        """Collect what rows say; it comes in the order of the rows."""
        if items is not None:
            self._statements.append(items)

    def clear(self) -> None:
        """Remove all that was collected."""
        self._statements = []

    def _once_each(self, values: Columns, numbered: NumberedRows) -> Columns:
        """Return each item once, or for means each thing said of it; what differs may be a conflict."""
        if self.on_conflict == "mean" and "features" in values:
            return self._different_statements(values, numbered)
        if (values["row"][1:] < values["row"][:-1]).any():  # rows that were brought together by impression
            by_row = np.argsort(values["row"])
            values = {name: column[by_row] for name, column in values.items()}
        order, starts = group_rows(values["query"], values["document"])
        if self.on_conflict in ("error", "mean"):
            for name in sorted(values.keys() & {"group", "features"}):
                self._check_same(values, name, order[starts][group_numbers(order, starts)], numbered)
        chosen = order[np.append(starts[1:], order.size) - 1 if self.on_conflict == "last" else starts]
        return {name: column[chosen] for name, column in values.items()}

    def _check_same(
        self, values: Columns, name: str, first: NDArray[np.int64], numbered: NumberedRows
    ) -> None:
        """Refuse rows that differ from the first row of the same item."""
        column = values[name]
        for start in range(0, first.size, ROWS_A_COMPARISON):
            rows = slice(start, start + ROWS_A_COMPARISON)
            differs = differ(column[rows], column[first[rows]])
            wrong = np.asarray(differs.any(axis=1)) if differs.ndim == 2 else differs
            if wrong.any():
                row = start + int(np.argmax(wrong))
                if name == "features":
                    index = int(np.argmax(differ(column[row], column[first[row]])))
                    listed = self.features == (LIST_COLUMN,)
                    name = f"{LIST_COLUMN}[{index}]" if listed else self.features[index]
                first_row = str(numbered.shown(values["row"][first[row]]))
                raise _conflict_error(name, numbered, values["row"][row], first_row)

    def _different_statements(self, values: Columns, numbered: NumberedRows) -> Columns:
        """Return each item with each of its different features once, and how many rows had them."""
        hashes = hashes_of_rows(values["features"])
        order, starts = group_rows(values["query"], values["document"], hashes)
        rows = values.get("rows", np.ones(order.size, dtype=np.int64))
        once = {name: column[order[starts]] for name, column in values.items()}
        once["rows"] = np.add.reduceat(rows[order], starts) if starts.size else rows
        if "group" in values:
            first = first_equals(values["query"], values["document"])
            self._check_same(values, "group", first, numbered)
        return once

    def items(self, tally: Tally) -> tuple[ItemTable, tuple[str, ...]]:
        """Return all items that were counted, and the names of their groups."""
        statements = (
            _means(self._once_each(joined(self._statements), self.reader.numbered))
            if self._statements
            else {}
        )
        if tally.groups and "group" not in statements:
            self._check_groups(tally.groups)
            statements = _with_groups(statements, tally.groups) if statements else tally.groups
        if self._documents is None:
            items = ItemTable.of(statements or _candidates(tally))
        else:
            items = self._with_documents(self._documents, statements)
            self._check_in_table(tally, items)
        names = self.reader.group_names
        labels = self.reader.groups.texts.to_list()
        if names is None:
            names = sorted(labels)
        code = np.array([*(names.index(label) for label in labels), UNKNOWN_GROUP], dtype=np.int64)
        return items._replace(group=code[items.group]), tuple(names)

    def _with_documents(self, documents: Columns, statements: Columns) -> ItemTable:
        """Return the items of the table of documents, with the groups of the log if only that has any."""
        if "group" not in statements:
            return ItemTable.of(documents)
        if "group" not in documents:
            return ItemTable.of(_with_groups(documents, statements))
        index = ItemTable.of(statements).find(documents["query"], documents["document"])
        group = np.append(statements["group"], UNKNOWN_GROUP)[index]
        differs = np.flatnonzero((index >= 0) & (group != documents["group"]))
        if differs.size and self.on_conflict in ("error", "mean"):
            item = int(differs[0])
            row = f"{self._numbered_documents.shown(documents['row'][item])} of the table of documents"
            first = documents["group"][item : item + 1]
            self._conflict("group", documents["query"][item], documents["document"][item], first, row)
        if self.on_conflict == "last":
            documents = {**documents, "group": np.where(index >= 0, group, documents["group"])}
        return ItemTable.of(documents)

    def _check_groups(self, groups: Columns) -> None:
        query, document = groups["query"], groups["document"]
        repeated = (query[1:] == query[:-1]) & (document[1:] == document[:-1])
        if repeated.any():
            index = int(np.argmax(repeated))
            self._conflict("group", query[index], document[index])

    def _check_in_table(self, tally: Tally, items: ItemTable) -> None:
        """Refuse candidates that the table of documents does not have."""

        def is_missing(block: Columns) -> NDArray[np.bool_]:
            unknown = items.find(block["query"], block["document"]) < 0
            return unknown & ~block["planted"] if "planted" in block else unknown

        if is_missing(_candidates(tally)).any():
            row, values = next(self.reader.find_rows(is_missing))
            problem = "the document is not in the table of documents for this query"
            value = self.reader.documents.ids(values["document"])[0]
            raise self.reader.numbered.error(problem, row, "doc_id", value)

    def _conflict(
        self, column: str, query: int, document: int, first: Any = None, row_of_first: str = ""
    ) -> NoReturn:
        """Find the first row that says something else of an item than its first row does."""

        def of_item(block: Columns) -> NDArray[np.bool_]:
            same = (block["query"] == query) & (block["document"] == document)
            return np.asarray(same & ~block["planted"] if "planted" in block else same)

        for row, values in self.reader.find_rows(of_item):
            if first is None:
                first, row_of_first = values[column], str(self.reader.numbered.shown(row))
            elif (values[column] != first).any():
                raise _conflict_error(column, self.reader.numbered, row, row_of_first)
        raise RuntimeError("the rows that say different things were not found again")


def _conflict_error(column: str, numbered: NumberedRows, row: int, first_row: str) -> InputError:
    """Return the error of rows that say different things of an item, and what can be done."""
    advice = "{on_conflict} 'first' or 'last' says which to take"
    if column != "group":
        advice = "{on_conflict} 'first', 'last' or 'mean' says what to take"
        advice += f", {{exclude}} '{column}' leaves it out" if "[" not in column else ""
    problem = f"{column} of the same document and query in row {first_row} differs; {advice}"
    return numbered.error(problem, row, column, None, "on_conflict", "exclude")


def _means(statements: Columns) -> Columns:
    """Return each item once, with the mean of its features over rows, if there are rows to be counted.

    Values are added up in ascending order: the sum does not depend on the order of the rows.
    """
    if "rows" not in statements:
        return statements
    order, starts = group_rows(statements["query"], statements["document"])
    number, rows = group_numbers(order, starts), statements["rows"].astype(np.float64)
    total = np.bincount(number, weights=rows)
    features = np.empty((starts.size, statements["features"].shape[1]), dtype=np.float32)
    for column, values in enumerate(statements["features"].T):
        ascending = np.lexsort((values, number))
        sums = np.bincount(number[ascending], weights=(values * rows)[ascending])
        features[:, column] = sums / total
    once = {name: values[order[starts]] for name, values in statements.items() if name != "rows"}
    return {**once, "features": features}


def hashes_of_rows(table: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return a hash of each row of numbers, the same for equal rows."""
    if not table.shape[1]:
        return np.zeros(table.shape[0], dtype=np.uint64)
    # adding 0 makes one number of the two zeros
    return pl.DataFrame(table + np.float32(0)).hash_rows().to_numpy()


def _with_groups(items: Columns, groups: Columns) -> Columns:
    """Return items with the groups that another table has of them."""
    index = ItemTable.of(groups).find(items["query"], items["document"])
    return {**items, "group": np.append(groups["group"], UNKNOWN_GROUP)[index]}


def _candidates(tally: Tally) -> Columns:
    """Return each item that was counted, and nothing else of it."""
    query, document = tally.lists["query"][tally.cells["list"]], tally.cells["document"]
    order, starts = group_rows(query, document)
    return {"query": query[order[starts]], "document": document[order[starts]]}
