"""Pairs of groups that meet in lists, and what each query contributes to their disparity.

A thousand groups make half a million pairs, of which few meet in any one list. So sums are kept
for groups that are in a list, and for pairs that meet in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data import Counts, RankingDataset
from fultr.evaluation.bootstrap import Bands, Columns, resampled_sums

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

DENSE_PAIRS = 100
"""Up to so many pairs, sums are kept for all of them in every query: most pairs meet in most queries."""

MEETINGS_A_BLOCK = 1 << 21
"""Meetings of two groups in a list that are worked on at a time, of 8 bytes in each of about ten arrays."""

PAIRS_A_BLOCK = 1 << 11
"""Pairs whose resamples are held at a time: 1,000 resamples of each take 16 kB."""

MOST_PAIRS = 5_000
"""Pairs whose numbers an audit keeps: all of 100 groups; of more pairs, the worst."""

ROUNDING = 1e-12
"""What two numbers differ by, relative to their size, if they differ by rounding only."""


class Meetings(NamedTuple):
    """Meetings of two groups i < j in a list.

    Parameters
    ----------
    first, second
        The cells of the two groups; a cell is a group in a list.
    pair
        The number of the pair, in the order (0, 1), (0, 2), ..., (1, 2), ...
    query
        The query of the list, counted from 0.
    """

    first: Codes
    second: Codes
    pair: Codes
    query: Codes


@dataclass(frozen=True, eq=False)
class GroupCells:
    """Which groups are in which lists.

    Parameters
    ----------
    of_row
        The cell of each row; -1 for a row of unknown group.
    group, query
        Of each cell.
    offsets
        Where the cells of each list begin, and the number of cells at the end.
    groups, queries
        How many there are.
    """

    of_row: Codes
    group: Codes
    query: Codes
    offsets: Codes
    groups: int
    queries: int

    @classmethod
    def of(cls, data: RankingDataset) -> GroupCells:
        """Return the cells of some lists."""
        groups, rows = len(data.group_names), np.flatnonzero(data.group >= 0)
        of_row = np.full(data.rows, -1)
        cells, of_row[rows] = np.unique(
            data.list_of_row[rows].astype(np.int64) * max(groups, 1) + data.group[rows], return_inverse=True
        )
        where, group = np.divmod(cells, max(groups, 1))
        query = query_numbers(data)
        offsets = np.searchsorted(where, np.arange(len(data) + 1))
        queries = int(query.max(initial=-1)) + 1
        return cls(of_row, group, query[where], offsets, groups, queries)

    @property
    def pairs(self) -> int:
        """How many pairs of groups there are."""
        return self.groups * (self.groups - 1) // 2

    def sums(self, of_rows: Array) -> Array:
        """Add up the rows of each cell."""
        has_group = self.of_row >= 0
        sums = np.bincount(self.of_row[has_group], weights=of_rows[has_group], minlength=self.group.size)
        return np.asarray(sums, dtype=np.float64)

    def by_query(self, of_cells: Array) -> Array:
        """Add up cells by query and group: (queries, groups)."""
        at = self.query * self.groups + self.group
        sums = np.bincount(at, weights=of_cells, minlength=self.queries * self.groups)
        return np.asarray(sums, dtype=np.float64).reshape(self.queries, self.groups)

    def meetings(self) -> Iterator[Meetings]:
        """Yield all meetings, those of some lists at a time."""
        counts = np.diff(self.offsets)
        ends = np.cumsum(counts * (counts - 1) // 2)
        start = 0
        while start < counts.size:
            before = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, before + MEETINGS_A_BLOCK, side="right")), start + 1)
            yield self._meetings(self.offsets[start : stop + 1])
            start = stop

    def _meetings(self, offsets: Codes) -> Meetings:
        """Return the meetings in lists whose cells begin at the offsets."""
        cells = np.arange(offsets[0], offsets[-1])
        # each cell meets those that come after it in its list
        later = np.repeat(offsets[1:], np.diff(offsets)) - cells - 1
        first = np.repeat(cells, later)
        second = first + 1 + np.arange(first.size) - np.repeat(np.cumsum(later) - later, later)
        return Meetings(first, second, self._pair(first, second), self.query[first])

    def _pair(self, first: Codes, second: Codes) -> Codes:
        one, other = self.group[first], self.group[second]
        return one * self.groups - one * (one + 1) // 2 + other - one - 1


def query_numbers(data: RankingDataset) -> Codes:
    """Return the query of each list, counted from 0 without gaps."""
    return np.unique(data.query_codes, return_inverse=True)[1].reshape(-1)


def sums_of_queries(of_lists: Array, data: RankingDataset) -> Array:
    """Add up what lists contribute by query."""
    return np.asarray(np.bincount(query_numbers(data), weights=of_lists), dtype=np.float64)


def queries_of_pairs(log: Counts) -> Codes:
    """Return in how many queries each pair of groups i < j meets in a list with a click on either."""
    cells = GroupCells.of(log.data)
    clicked = cells.sums(log.clicks()) > 0
    # pair and query as one number; a query may have several lists
    meetings = [np.empty(0, dtype=np.int64)]
    for met in cells.meetings():
        counted = clicked[met.first] | clicked[met.second]
        meetings.append(np.unique(met.pair[counted] * cells.queries + met.query[counted]))
    pair = np.unique(np.concatenate(meetings)) // max(cells.queries, 1)
    return np.bincount(pair, minlength=cells.pairs).astype(np.int64)


class PairColumns(NamedTuple):
    """What queries contribute to D_ij, (queries, pairs) for i < j.

    `bounds` are the least and the most that it can be, whatever the merit of candidates that nobody could
    see; None where all were seen.
    """

    value: Columns
    bounds: tuple[Columns, Columns] | None = None

    def at(self, queries: Codes) -> PairColumns:
        """Return some of the queries."""
        if self.bounds is None:
            return PairColumns(self.value[queries])
        low, high = self.bounds
        return PairColumns(self.value[queries], (low[queries], high[queries]))

    def less(self, other: PairColumns, pairs: Codes) -> PairColumns:
        """Return the difference of the values of some pairs, and 0 where it is but rounding."""
        return PairColumns(difference(self.value[:, pairs], other.value[:, pairs]))


def difference(values: Columns, others: Columns) -> Columns:
    """Return the difference, and 0 where it is but rounding: rankings that are the same do not differ."""
    apart = values - others
    return apart * (abs(apart) > ROUNDING * (abs(values) + abs(others)))


def disparity_columns(
    cells: GroupCells,
    exposure: Array,
    merit: Array,
    hidden: Array | None = None,
    unknown: Array | None = None,
) -> PairColumns:
    r"""Return what queries contribute to the disparity of all pairs, by sums over the cells of their lists.

    $$
    \hat D_{ij}(\pi \mid q) = \hat M_q(G_j) \, \mathrm{Exp}_q(G_i \mid \pi)
        - \hat M_q(G_i) \, \mathrm{Exp}_q(G_j \mid \pi)
    $$

    With exposure `hidden` of items of unknown merit, of which each can add up to `unknown` to that of its
    group, it lies between two values, as `fultr.estimators.list_disparity_bounds` says for lists.

    Parameters
    ----------
    cells
        The groups of each list.
    exposure, merit
        Of each cell: the exposure in one impression, the merit summed over impressions.
    hidden, unknown
        The same of items that nobody could see, if there are any.
    """
    values, lows, highs = [], [], []
    for met in cells.meetings():
        values.append(_columns(cells, met, _products(met, exposure, merit)))
        if hidden is not None and unknown is not None:
            whole = exposure + hidden
            product = _products(met, whole, merit)
            lows.append(_columns(cells, met, product - whole[met.second] * unknown[met.first]))
            highs.append(_columns(cells, met, product + whole[met.first] * unknown[met.second]))
    return PairColumns(_sum(values), (_sum(lows), _sum(highs)) if lows else None)


def _products(met: Meetings, exposure: Array, merit: Array) -> Array:
    return merit[met.second] * exposure[met.first] - merit[met.first] * exposure[met.second]


def _columns(cells: GroupCells, met: Meetings, values: Array) -> Columns:
    """Add up the values of meetings by query and pair."""
    shape = cells.queries, cells.pairs
    if cells.pairs <= DENSE_PAIRS:
        sums = np.bincount(met.query * cells.pairs + met.pair, values, minlength=shape[0] * shape[1])
        return np.asarray(sums, dtype=np.float64).reshape(shape)
    from scipy.sparse import csc_array

    made = csc_array((values, (met.query, met.pair)), shape=shape)
    made.sum_duplicates()
    return made


def _sum(parts: list[Columns]) -> Columns:
    total = parts[0]
    for block in parts[1:]:
        total = total + block
    return total


class PairIntervals(NamedTuple):
    """D_ij of each pair i < j, with its interval by itself, and the band that holds all of them at once."""

    value: Array
    low: Array
    high: Array
    band_low: Array
    band_high: Array


def pair_intervals(
    columns: PairColumns, totals: Array, resamples: int, seed: int, level: float, *, separate: bool = True
) -> PairIntervals:
    """Resample queries to see how certain D_ij is, some pairs at a time; low ends are those of the least.

    Without `separate` there are no intervals of each pair by itself, only the band.
    """
    pairs = columns.value.shape[1]
    low, high = columns.bounds or (columns.value, columns.value)
    lowest, highest = Bands(level, separate=separate), Bands(level, separate=separate)
    met = np.flatnonzero(abs(low).sum(axis=0) + abs(high).sum(axis=0))
    for start in range(0, met.size, PAIRS_A_BLOCK):
        chosen = met[start : start + PAIRS_A_BLOCK]
        lowest.add(resampled_sums(low[:, chosen], totals, resamples, seed))
        if columns.bounds is not None:
            highest.add(resampled_sums(high[:, chosen], totals, resamples, seed))
    highest = lowest if columns.bounds is None else highest
    value = np.asarray(columns.value.sum(axis=0)) / totals.sum()
    ends = [lowest.separate()[0], highest.separate()[1], lowest.together()[0], highest.together()[1]]
    return PairIntervals(value, *(_of_all(end, met, pairs) for end in ends))


def worst_pairs(disparities: list[Array]) -> Codes:
    """Return the numbers of up to `MOST_PAIRS` pairs, those with the largest |D| under any ranking."""
    largest = np.abs(disparities).max(axis=0, initial=0.0)
    if largest.size <= MOST_PAIRS:
        return np.arange(largest.size)
    return np.sort(np.argpartition(-largest, MOST_PAIRS)[:MOST_PAIRS])


def _of_all(values: Array, met: Codes, pairs: int) -> Array:
    """Return values of all pairs, from those of the pairs that meet anywhere."""
    every = np.zeros(pairs)
    every[met] = values
    return every
