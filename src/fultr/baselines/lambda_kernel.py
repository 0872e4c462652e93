"""The impressions that LambdaRank learns from, equal ones merged, and the lambdas of their pairs.

A pair is an item and one of lower gain, both shown in the same impression. For scores s and ranks r by
descending score among all candidates of the list, it pulls the two apart with

    lambda_ij = (gain_i - gain_j) |f(r_i) - f(r_j)| / (1 + exp(s_i - s_j)),   f(k) = 1 / log2(1 + k),

what DCG would change by if the two swapped places, times the slope of log(1 + exp(s_j - s_i)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.data import ClickLog, RankingDataset, Source
from fultr.data.dataset import rows_of
from fultr.data.grouping import group_rows, mixed
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError
from fultr.expectation import dcg_weights
from fultr.training.sources import single_impressions

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

STATES = 3
"""Of an entry of an impression: not shown, shown, clicked."""


@dataclass(frozen=True, eq=False)
class MergedImpressions:
    """Impressions with something to learn, those of one list together, and equal ones merged into one.

    Parameters
    ----------
    data
        The lists.
    lists
        The lists that have such impressions, in ascending order.
    first
        (lists + 1) Where the impressions of each of them start.
    starts
        (impressions + 1) Where the shown items of each impression start.
    place, gain
        (items) The index of each item in its list, from 0, and its gain, descending within an impression.
    count
        (impressions) How many of the log each stands for.
    """

    data: RankingDataset
    lists: Numbers
    first: Numbers
    starts: Numbers
    index: Numbers
    gain: Array
    count: Array

    @classmethod
    def of(cls, source: Source) -> MergedImpressions:
        """Take clicks as gains; or labelled lists as one impression each, with their relevance as gains."""
        single = single_impressions(source, "LambdaRank")
        if isinstance(single, RankingDataset):
            gain = single.gains()
            useful = _with_different(gain, np.ones(single.rows, dtype=np.bool_), single.offsets)
            count = np.ones(useful.size)
            return cls._of_entries(single, useful, rows_of(single.offsets, useful), gain, count)
        chosen, count = _merged(single)
        entries = rows_of(single.offsets, chosen)
        gain = single.click.astype(np.float64)
        return cls._of_entries(single.data, single.lists[chosen], entries, gain, count, single.position)

    @classmethod
    def _of_entries(
        cls,
        data: RankingDataset,
        lists: Numbers,
        entries: Numbers,
        gain: Array,
        count: Array,
        position: NDArray[np.int32] | None = None,
    ) -> MergedImpressions:
        """Merge impressions of lists, in ascending order, all entries of which are given."""
        if not lists.size:
            problem = "no impression has a clicked and an unclicked item, so there is no order to learn"
            raise InputError(problem, column="click")
        lengths = data.lengths[lists]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        index = np.arange(entries.size) - np.repeat(offsets[:-1], lengths)
        shown = np.ones(entries.size, dtype=np.bool_) if position is None else position[entries] != NOT_SHOWN
        starts = np.concatenate([[0], np.cumsum(shown)])[offsets]
        index, gain = index[shown], gain[entries[shown]]
        falling, _ = group_rows(np.repeat(np.arange(lists.size), np.diff(starts)), -gain)
        used, first = np.unique(lists, return_index=True)
        return cls(data, used, np.append(first, lists.size), starts, index[falling], gain[falling], count)

    def __len__(self) -> int:
        return int(self.count.size)

    def lambdas(self, chosen: Numbers, scores: Array, offsets: Numbers) -> Array:
        """Return the sum of the lambdas of each row of some lists, uphill, over all their impressions.

        Parameters
        ----------
        chosen
            Which of `lists`.
        scores, offsets
            A score for each of their rows, and where each of the chosen lists starts in them.
        """
        slopes = np.zeros(scores.size)
        weights = dcg_weights(int(np.diff(offsets).max(initial=1)))
        _add_lambdas(
            scores,
            offsets,
            chosen,
            self.first,
            self.starts,
            self.index,
            self.gain,
            self.count,
            weights,
            slopes,
        )
        return slopes


def _merged(log: ClickLog) -> tuple[Numbers, Array]:
    """Return one of each kind of impressions, by list, and how many there are of it.

    Two of a kind show the same items of the same list, and the same ones of them were clicked.
    """
    shown = log.position != NOT_SHOWN
    useful = _with_different(log.click.astype(np.float64), shown, log.offsets)
    state = shown.astype(np.int64) + log.click
    # a hash of 64 bits tells impressions of one list apart
    key = np.add.reduceat(mixed(log.row_of_entry * STATES + state), log.offsets[:-1])
    order, starts = group_rows(log.lists[useful], key[useful])
    count = np.diff(np.append(starts, order.size))
    return useful[order[starts]], count.astype(np.float64)


def _with_different(gain: Array, shown: NDArray[np.bool_], offsets: Numbers) -> Numbers:
    """Return the impressions that show items of different gains."""
    number = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))[shown]
    lowest, highest = np.full(offsets.size - 1, np.inf), np.full(offsets.size - 1, -np.inf)
    np.minimum.at(lowest, number, gain[shown])
    np.maximum.at(highest, number, gain[shown])
    return np.flatnonzero(lowest < highest)


@compiled
def _add_lambdas(
    scores: Any,
    offsets: Any,
    chosen: Any,
    first: Any,
    starts: Any,
    index: Any,
    gain: Any,
    count: Any,
    weights: Any,
    slopes: Any,
) -> None:
    for number in range(chosen.size):
        rows = slice(offsets[number], offsets[number + 1])
        # stable: items of the same score are ranked in the order of their rows
        order = np.argsort(-scores[rows], kind="mergesort")
        worth = np.empty(order.size)
        for rank in range(order.size):
            worth[order[rank]] = weights[rank]
        for impression in range(first[chosen[number]], first[chosen[number] + 1]):
            items = slice(starts[impression], starts[impression + 1])
            _add_pairs(scores[rows], worth, index[items], gain[items], count[impression], slopes[rows])


@compiled
def _add_pairs(scores: Any, worth: Any, index: Any, gain: Any, count: float, slopes: Any) -> None:
    """Add the lambdas of an impression, `count` times; its items come by descending gain."""
    lower = 0
    for better in range(index.size):
        while lower < index.size and gain[lower] >= gain[better]:
            lower += 1
        here = index[better]
        for worse in range(lower, index.size):
            there = index[worse]
            change = (gain[better] - gain[worse]) * abs(worth[here] - worth[there])
            force = count * change / (1.0 + np.exp(scores[here] - scores[there]))
            slopes[here] += force
            slopes[there] -= force
