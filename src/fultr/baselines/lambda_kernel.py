"""The impressions that LambdaRank learns from, equal ones merged, and the lambdas of their pairs.

A pair is an item and one of lower gain, both shown in the same impression. For scores s and ranks r by
falling score among all candidates of the list, it pulls the two apart with

    lambda_ij = (gain_i - gain_j) |f(r_i) - f(r_j)| / (1 + exp(s_i - s_j)),   f(k) = 1 / log2(1 + k),

what DCG would change by if the two swapped places, times the slope of log(1 + exp(s_j - s_i)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.data import ClickLog, CompactLog, RankingDataset
from fultr.data.dataset import rows_of
from fultr.data.merging import group_equal_lists, order_within
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError
from fultr.expectation import dcg_weights
from fultr.training.sources import Source

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
        The lists that have such impressions, in rising order.
    first
        (lists + 1) Where the impressions of each of them start.
    starts
        (impressions + 1) Where the shown items of each impression start.
    place, gain
        (items) The place of each item in its list, from 0, and its gain, falling within an impression.
    count
        (impressions) How many of the log each stands for.
    """

    data: RankingDataset
    lists: Numbers
    first: Numbers
    starts: Numbers
    place: Numbers
    gain: Array
    count: Array

    @classmethod
    def of(cls, source: Source) -> MergedImpressions:
        """Take clicks as gains; or labelled lists as one impression each, with their relevance as gains."""
        if isinstance(source, CompactLog):
            problem = (
                "LambdaRank learns from single impressions, not from a compacted log; give the log itself"
            )
            raise InputError(problem, column="X")
        if isinstance(source, RankingDataset):
            gain = relevance_of(source).astype(np.float64)
            useful = _with_different(gain, np.ones(source.rows, dtype=np.bool_), source.offsets)
            count = np.ones(useful.size)
            return cls._of_entries(source, useful, rows_of(source.offsets, useful), gain, count)
        chosen, count = _merged(source)
        entries = rows_of(source.offsets, chosen)
        gain = source.click.astype(np.float64)
        return cls._of_entries(source.data, source.lists[chosen], entries, gain, count, source.position)

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
        """Take impressions of lists, in rising order, all entries of which are given."""
        if not lists.size:
            problem = "no impression has a clicked and an unclicked item, so there is no order to learn"
            raise InputError(problem, column="click")
        lengths = data.lengths[lists]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        place = np.arange(entries.size) - np.repeat(offsets[:-1], lengths)
        shown = np.ones(entries.size, dtype=np.bool_) if position is None else position[entries] != NOT_SHOWN
        starts = np.concatenate([[0], np.cumsum(shown)])[offsets]
        place, gain = place[shown], gain[entries[shown]]
        falling = order_within(-gain, starts)
        used, first = np.unique(lists, return_index=True)
        return cls(data, used, np.append(first, lists.size), starts, place[falling], gain[falling], count)

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
            self.place,
            self.gain,
            self.count,
            weights,
            slopes,
        )
        return slopes


def relevance_of(data: RankingDataset) -> NDArray[np.float32]:
    """Return the relevance of labelled lists."""
    if data.relevance is None:
        raise InputError("lists to learn from must have relevance, or clicks on them", column="relevance")
    return data.relevance


def _merged(log: ClickLog) -> tuple[Numbers, Array]:
    """Return one of each kind of impressions, by list, and how many there are of it.

    Two of a kind show the same items of the same list, and the same ones of them were clicked.
    """
    useful = _with_different(log.click.astype(np.float64), log.position != NOT_SHOWN, log.offsets)
    entries = rows_of(log.offsets, useful)
    state = log.click[entries].astype(np.int64) + (log.position[entries] != NOT_SHOWN)
    rows = rows_of(log.data.offsets, log.lists[useful])
    offsets = np.concatenate([[0], np.cumsum(log.data.lengths[log.lists[useful]])])
    number, representative = group_equal_lists(rows * STATES + state, offsets)
    kept = useful[representative]
    by_list = np.argsort(log.lists[kept], kind="stable")
    return kept[by_list], np.bincount(number, minlength=kept.size)[by_list].astype(np.float64)


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
    place: Any,
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
            _add_pairs(scores[rows], worth, place[items], gain[items], count[impression], slopes[rows])


@compiled
def _add_pairs(scores: Any, worth: Any, place: Any, gain: Any, count: float, slopes: Any) -> None:
    """Add the lambdas of an impression, `count` times; its items come by falling gain."""
    lower = 0
    for better in range(place.size):
        while lower < place.size and gain[lower] >= gain[better]:
            lower += 1
        here = place[better]
        for worse in range(lower, place.size):
            there = place[worse]
            change = (gain[better] - gain[worse]) * abs(worth[here] - worth[there])
            force = count * change / (1.0 + np.exp(scores[here] - scores[there]))
            slopes[here] += force
            slopes[there] -= force
