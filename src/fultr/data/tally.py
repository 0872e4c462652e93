"""From rows of impressions to counts, with ids as codes: how rows are counted, and how counts merge.

Counts are sums over impressions. So those of a log are the merged counts of its parts, whatever the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data.facts import ImpressionFacts
from fultr.data.grouping import Key, Packing, group_numbers, group_rows, run_starts
from fultr.data.propensity import NOT_SHOWN

FEW_CELLS = 1 << 20
"""Cells that may wait to be merged, about 50 MB of them, however few were merged before."""

Integers = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
"""Columns of one table by name, all of one length."""


class RepeatedDocumentError(Exception):
    """A document stands twice in an impression of some list."""

    def __init__(self, impression: int) -> None:
        super().__init__(impression)
        self.impression = impression


class PlantedRows(NamedTuple):
    """Planted items of some impressions, which are counted from 0."""

    impression: Integers
    position: NDArray[np.int32]
    click: NDArray[np.bool_]
    propensity: NDArray[np.float64] | None


class Rows(NamedTuple):
    """Complete impressions; the rows of one stand together, and ids are codes.

    Parameters
    ----------
    starts
        The first row of each impression; each has at least one candidate.
    impression
        The impression of each row, counted from 0.
    query, context, time
        For each impression; context and time where known.
    query_hash, document_hash
        Hashes of the ids, for each impression and for each row.
    document, position, click, propensity, group
        For each row; position 0 is a candidate that was not shown. Propensity and group where known.
    planted
        Items known to be irrelevant that were shown among the candidates.
    """

    starts: Integers
    impression: Integers
    query: Integers
    query_hash: Key
    document: Integers
    document_hash: Key
    position: NDArray[np.int32]
    click: NDArray[np.bool_]
    planted: PlantedRows
    propensity: NDArray[np.float64] | None = None
    group: Integers | None = None
    context: Integers | None = None
    time: Integers | None = None

    @property
    def lengths(self) -> Integers:
        """The number of candidates of each impression."""
        return np.diff(np.append(self.starts, self.document.size))

    def clicks(self) -> Integers:
        """Return the number of clicks of each impression."""
        return np.bincount(self.impression[self.click], minlength=self.starts.size)


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of some impressions, with ids as codes.

    Parameters
    ----------
    lists
        `query, context, length, key, impressions, clicked`: lists of candidates that were shown. `key` is a
        sum of hashes of the documents.
    cells
        `list, document, position, impressions, clicks`, and `propensity` where known: how often a candidate
        of a list was shown and clicked at a position; position 0 counts the impressions that did not show it.
        In ascending order.
    planted
        `position, impressions, clicks`, and `propensity` where known.
    groups
        `query, document, group`: what rows said of items; empty if they said nothing.
    facts
        What single impressions tell of how the log was made.
    """

    lists: Columns
    cells: Columns
    planted: Columns
    groups: Columns
    facts: ImpressionFacts


def count_rows(rows: Rows) -> Tally:
    """Count impressions by list, and what they show by list, document and position."""
    lengths = rows.lengths
    context = np.zeros(rows.query.size, dtype=np.int64) if rows.context is None else rows.context
    seen = {
        "query": rows.query,
        "context": context,
        "length": lengths,
        "key": np.add.reduceat(rows.document_hash, rows.starts) if rows.starts.size else rows.document_hash,
    }
    order, starts = group_rows(*seen.values())
    number = group_numbers(order, starts)
    lists = {name: values[order[starts]] for name, values in seen.items()}
    lists["impressions"] = np.bincount(number, minlength=starts.size)
    lists["clicked"] = np.bincount(number[rows.clicks() > 0], minlength=starts.size)
    keys: Columns = {"list": number[rows.impression], "document": rows.document, "position": rows.position}
    if rows.propensity is not None:
        keys["propensity"] = _without_nan(rows.propensity)
    if rows.group is not None:
        keys["group"] = rows.group
    cells = _count_clicks(keys, rows.click)
    wrong = repeated_lists(lists, cells)
    if wrong.size:
        raise RepeatedDocumentError(int(np.flatnonzero(np.isin(number, wrong))[0]))
    groups: Columns = {}
    if rows.group is not None:
        cells, groups = _without_groups(cells, lists)
    planted = rows.planted
    of_planted: Columns = {"position": planted.position}
    if planted.propensity is not None:
        of_planted["propensity"] = planted.propensity
    return Tally(lists, cells, _count_clicks(of_planted, planted.click), groups, ImpressionFacts.of(rows))


def merge_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the counts of all impressions of several parts of a log."""
    given = list(tallies)
    if len(given) == 1:
        return given[0]
    sizes = np.cumsum([0, *(tally.lists["query"].size for tally in given)])
    all_lists = _joined([tally.lists for tally in given])
    lists = _summed(all_lists, ("impressions", "clicked"))
    number = group_numbers(*group_rows(*(all_lists[name] for name in ("query", "context", "length", "key"))))
    cells = _joined([tally.cells for tally in given])
    first = np.repeat(sizes[:-1], [tally.cells["list"].size for tally in given])
    cells["list"] = number[cells["list"] + first]
    groups = [tally.groups for tally in given if tally.groups]
    return Tally(
        lists,
        _summed(cells, ("impressions", "clicks")),
        _summed(_joined([tally.planted for tally in given]), ("impressions", "clicks")),
        _summed(_joined(groups), ()) if groups else {},
        ImpressionFacts.merge(tally.facts for tally in given),
    )


def repeated_lists(lists: Columns, cells: Columns) -> Integers:
    """Return the lists that have fewer different documents than candidates.

    That is so if an impression has a document twice. It would also be so if lists of different documents had
    got one key; so where there are none, lists are told apart by their documents, and not by hashes alone.
    """
    documents = np.bincount(cells["list"][candidate_starts(cells)], minlength=lists["length"].size)
    return np.flatnonzero(documents != lists["length"])


def candidate_starts(cells: Columns) -> Integers:
    """Return the first cell of each candidate of a list."""
    of_list, document = cells["list"], cells["document"]
    changes = (of_list[1:] != of_list[:-1]) | (document[1:] != document[:-1])
    return np.concatenate([np.arange(min(of_list.size, 1)), np.flatnonzero(changes) + 1])


def _count_clicks(keys: Columns, click: NDArray[np.bool_]) -> Columns:
    """Count rows and clicks by the columns of `keys`, in ascending order."""
    columns = [*keys.values(), click]
    packing = Packing(columns) if all(column.dtype.kind != "f" for column in columns) else None
    if packing is None or not packing.fits:
        table = {**keys, "impressions": np.ones(click.size, np.int64), "clicks": click.astype(np.int64)}
        return _summed(table, ("impressions", "clicks"))
    # sorting the packed columns themselves takes a third of the time of sorting an order of them
    key = np.sort(packing.pack(columns))
    of_click = np.uint64(packing.bits[-1])
    starts = run_starts(key >> of_click)
    found = dict(zip(keys, packing.unpack(key[starts]), strict=False))
    found["impressions"] = np.diff(np.append(starts, key.size))
    clicks = (
        (key & np.uint64(1)).astype(np.int64) if of_click else np.full(key.size, click[:1].any(), np.int64)
    )
    found["clicks"] = np.add.reduceat(clicks, starts) if starts.size else clicks
    return found


def _summed(table: Columns, counts: tuple[str, ...]) -> Columns:
    """Add up the counts of rows that are equal in all other columns."""
    keys = {name: values for name, values in table.items() if name not in counts}
    order, starts = group_rows(*keys.values())
    found = {name: values[order[starts]] for name, values in keys.items()}
    for name in counts:
        values = table[name][order]
        found[name] = np.add.reduceat(values, starts) if starts.size else values
    return found


def _joined(tables: list[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _without_groups(cells: Columns, lists: Columns) -> tuple[Columns, Columns]:
    """Take the groups out of cells, and return them by item."""
    first = candidate_starts(cells)
    own = np.repeat(cells["group"][first], np.diff(np.append(first, cells["group"].size)))
    kept = {name: values for name, values in cells.items() if name != "group"}
    if (own != cells["group"]).any():  # a candidate of two groups has too many cells
        first, kept = np.arange(own.size), _summed(kept, ("impressions", "clicks"))
    groups = {
        "query": lists["query"][cells["list"][first]],
        "document": cells["document"][first],
        "group": cells["group"][first],
    }
    return kept, _summed(groups, ())


def _without_nan(propensity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give what was not shown one propensity, so that it makes one cell."""
    return np.where(np.isnan(propensity), float(NOT_SHOWN), propensity)


class RunningTally:
    """The counts of the parts of a log that have been counted so far."""

    def __init__(self) -> None:
        self._parts: list[Tally] = []
        self._merged_cells = 0
        self._waiting_cells = 0

    def add(self, tally: Tally) -> None:
        """Add the counts of a part; parts are merged when they have several times the cells of the whole."""
        self._parts.append(tally)
        self._waiting_cells += tally.cells["list"].size
        if self._waiting_cells > max(4 * self._merged_cells, FEW_CELLS):
            self._parts = [merge_tallies(self._parts)]
            self._merged_cells = self._parts[0].cells["list"].size
            self._waiting_cells = 0

    def result(self) -> Tally | None:
        """Return the counts of all parts; None if there was none."""
        return merge_tallies(self._parts) if self._parts else None
