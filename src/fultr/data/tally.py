"""From rows of impressions to counts, with ids as codes: how rows are counted, and how counts merge.

Counts are sums over impressions. So those of a log are the merged counts of its parts, whatever the parts.
Facts about how a log was made, taken from single impressions, merge like counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data.grouping import Key, Packing, group_numbers, group_rows, mixed, run_starts
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

FEW_CELLS = 1 << 20
"""Cells that may wait to be merged, about 50 MB of them, however few were merged before."""

SAMPLE_SIZE = 4096
"""Different impressions that are kept to find repeated ones. A share of 1% is then known to 0.2%."""

SAMPLE: dict[str, Any] = {"key": np.uint64, "count": np.int64, "clicked": np.bool_, "time": np.int64}
"""What is kept of an impression: its hash, how often it stands there, whether it has a click, and when."""

COUNTED_FACTS = ("all_clicked", "nothing_shown", "gaps")

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
    """Complete impressions, each with a candidate at least; rows of one stand together, and ids are codes."""

    starts: Integers  # the first row of each impression
    impression: Integers  # of each row, counted from 0
    query: Integers  # of each impression, as are the context and the time
    query_hash: Key
    document: Integers  # of each row, as is all that follows
    document_hash: Key
    position: NDArray[np.int32]  # 0 for a candidate that was not shown
    click: NDArray[np.bool_]
    planted: PlantedRows  # items known to be irrelevant that were shown among the candidates
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


class Tally(NamedTuple):
    """Counts of some impressions, with ids as codes.

    `lists` are the lists of candidates that were shown: `query, context, length, key, impressions, clicked`,
    where `key` is a sum of hashes of the documents. `cells`, in ascending order, say how often a candidate of
    a list was shown and clicked at a position: `list, document, position, impressions, clicks`, and
    `propensity` where known; position 0 counts the impressions that did not show it. `planted` has the same
    without lists and documents. `groups` is what rows said of items, `query, document, group`, if anything.
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
    all_lists = joined([tally.lists for tally in given])
    lists = _summed(all_lists, ("impressions", "clicked"))
    number = group_numbers(*group_rows(*(all_lists[name] for name in ("query", "context", "length", "key"))))
    cells = joined([tally.cells for tally in given])
    first = np.repeat(sizes[:-1], [tally.cells["list"].size for tally in given])
    cells["list"] = number[cells["list"] + first]
    groups = [tally.groups for tally in given if tally.groups]
    return Tally(
        lists,
        _summed(cells, ("impressions", "clicks")),
        _summed(joined([tally.planted for tally in given]), ("impressions", "clicks")),
        _summed(joined(groups), ()) if groups else {},
        ImpressionFacts.merge([tally.facts for tally in given]),
    )


def repeated_lists(lists: Columns, cells: Columns) -> Integers:
    """Return the lists that have fewer different documents than candidates.

    That is so if an impression has a document twice, or if lists of different documents have the same hash:
    lists are taken as the same only if their documents are.
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
    sums = dict(zip(keys, packing.unpack(key[starts]), strict=False))
    sums["impressions"] = np.diff(np.append(starts, key.size))
    clicks = (
        (key & np.uint64(1)).astype(np.int64) if of_click else np.full(key.size, click[:1].any(), np.int64)
    )
    sums["clicks"] = np.add.reduceat(clicks, starts) if starts.size else clicks
    return sums


def _summed(table: Columns, counts: tuple[str, ...]) -> Columns:
    """Add up the counts of rows that are equal in all other columns."""
    keys = {name: values for name, values in table.items() if name not in counts}
    order, starts = group_rows(*keys.values())
    sums = {name: values[order[starts]] for name, values in keys.items()}
    for name in counts:
        values = table[name][order]
        sums[name] = np.add.reduceat(values, starts) if starts.size else values
    return sums


def joined(tables: Sequence[Columns]) -> Columns:
    """Return the rows of several tables one after another."""
    if len(tables) == 1:
        return tables[0]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _without_groups(cells: Columns, lists: Columns) -> tuple[Columns, Columns]:
    """Take the groups out of cells, and return them by item."""
    first = candidate_starts(cells)
    own = np.repeat(cells["group"][first], np.diff(np.append(first, cells["group"].size)))
    without_group = {name: values for name, values in cells.items() if name != "group"}
    if (own != cells["group"]).any():  # a candidate of two groups has too many cells
        first, without_group = np.arange(own.size), _summed(without_group, ("impressions", "clicks"))
    groups = {
        "query": lists["query"][cells["list"][first]],
        "document": cells["document"][first],
        "group": cells["group"][first],
    }
    return without_group, _summed(groups, ())


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


@dataclass(frozen=True, eq=False)
class ImpressionFacts:
    """What the single impressions of a log show of how it was made."""

    all_clicked: int = 0  # impressions that show two items or more, every one of which was clicked
    nothing_shown: int = 0  # impressions without any position
    gaps: int = 0  # impressions that skip positions, such as 1, 2, 4; planted items fill theirs
    timed: bool = False  # whether impressions have times
    sample: Columns = field(default_factory=lambda: {name: np.empty(0, SAMPLE[name]) for name in SAMPLE})

    @property
    def scale(self) -> float:
        """How many different impressions each of the sample stands for; 1 while all of them are in it."""
        key = self.sample["key"]
        return 1.0 if key.size < SAMPLE_SIZE else (SAMPLE_SIZE - 1) / (float(key[-1]) / 2.0**64) / SAMPLE_SIZE

    @property
    def repeated(self) -> int:
        """Impressions with a click that equal an earlier one; an estimate in a log of many."""
        repeats = self.sample["count"][self.sample["clicked"]] - 1
        return round(float(repeats.sum()) * self.scale)

    @property
    def copies(self) -> int:
        """The largest number that divides how often each different impression stands in the log."""
        return int(np.gcd.reduce(self.sample["count"])) if self.sample["count"].size else 1

    @property
    def different(self) -> int:
        """How many different impressions show anything; an estimate in a log of many."""
        return round(self.sample["key"].size * self.scale)

    @property
    def times_tell(self) -> bool:
        """Whether times are so fine that equal impressions at the same time must be one."""
        clicked = self.sample["clicked"]
        times = np.unique(self.sample["time"][clicked]).size if self.timed else 0
        # of all that happened at one time, hardly more than one thing is different
        return 0 < int(clicked.sum()) <= 2 * times

    def describe(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        names = ("all_clicked", "nothing_shown", "gaps", "repeated", "copies", "different", "times_tell")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def merge(cls, facts: Sequence[ImpressionFacts]) -> ImpressionFacts:
        """Return the facts of all impressions of several parts of a log."""
        sums = {name: sum(getattr(of_log, name) for of_log in facts) for name in COUNTED_FACTS}
        sample = _smallest(joined([of_log.sample for of_log in facts]))
        return cls(**sums, timed=any(of_log.timed for of_log in facts), sample=sample)

    @classmethod
    def of(cls, rows: Rows) -> ImpressionFacts:
        """Return the facts of the impressions of rows."""
        impressions, first = rows.starts.size, rows.starts
        if not impressions:
            return cls(timed=rows.time is not None)
        hidden = np.flatnonzero(rows.position == NOT_SHOWN)
        seen = rows.lengths - np.bincount(rows.impression[hidden], minlength=impressions)
        clicks = rows.clicks()
        deepest = np.maximum.reduceat(rows.position, first)
        filled = seen
        if rows.planted.impression.size:
            np.maximum.at(deepest, rows.planted.impression, rows.planted.position)
            filled = seen + np.bincount(rows.planted.impression, minlength=impressions)
        return cls(
            all_clicked=int(((clicks == seen) & (seen > 1)).sum()),
            nothing_shown=int((seen == 0).sum()),
            gaps=int((deepest > filled).sum()),
            timed=rows.time is not None,
            sample=_sample(rows, seen > 0, clicks > 0),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values from which `from_dict` makes the same facts."""
        return {**vars(self), "sample": {name: values.tolist() for name, values in self.sample.items()}}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ImpressionFacts:
        """Make facts of what `to_dict` gave, which may have been damaged since."""
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            sample = {name: np.array(content["sample"][name], dtype=kind) for name, kind in SAMPLE.items()}
            sums = {name: int(content[name]) for name in COUNTED_FACTS}
            timed, key = bool(content["timed"]), sample["key"]
            same_size = len({values.shape for values in sample.values()}) == 1 and key.ndim == 1
            if same_size and (key[1:] > key[:-1]).all() and (sample["count"] >= 1).all():
                return cls(**sums, timed=timed, sample=sample)
        raise InputError("facts about impressions are damaged", column="facts")


def _smallest(sample: Columns) -> Columns:
    """Return the different impressions with the smallest hashes, and how often each stands in the log.

    The sample of a log is that of the samples of its parts, however it was cut into parts.
    """
    order, first = group_rows(sample["key"])
    chosen = {name: values[order[first[:SAMPLE_SIZE]]] for name, values in sample.items()}
    if first.size:
        chosen["count"] = np.add.reduceat(sample["count"][order], first)[:SAMPLE_SIZE]
    return chosen


def _sample(rows: Rows, any_shown: NDArray[np.bool_], clicked: NDArray[np.bool_]) -> Columns:
    """Return a sample of the impressions that show anything, by hashes of what they show, where and when."""
    where = (rows.position.astype(np.uint64) << np.uint64(1)) | rows.click
    entry = mixed(rows.document_hash + where * np.uint64(0xD6E8FEB86659FD93))
    entry[rows.position == NOT_SHOWN] = 0
    key = mixed(np.add.reduceat(entry, rows.starts) + rows.query_hash)
    time = np.zeros(key.size, dtype=np.int64)
    if rows.time is not None:
        time = rows.time
        key += mixed(time.view(np.uint64) + np.uint64(1))
    impressions = {"key": key, "count": np.ones_like(time), "clicked": clicked, "time": time}
    return _smallest({name: values[any_shown] for name, values in impressions.items()})
