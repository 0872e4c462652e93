"""Example rankings: some lists as they were logged and as policies rank them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fultr.click_model import PositionBias
from fultr.data import Counts, CountsOrLabels, RankingDataset, Source
from fultr.data.ids import UNKNOWN_GROUP
from fultr.evaluation.contributions import Ranker
from fultr.expectation import examination_weights
from fultr.policy import rank_positions
from fultr.policy.policies import ScoredPolicy
from fultr.reports.content import Example, Item, shortened

MOST_EXAMPLES = 6
SHOWN = 10
"""Items of a ranking that an example shows."""

Array = NDArray[np.float64]


def examples_of(
    source: Source,
    policies: Mapping[str, ScoredPolicy],
    position_bias: PositionBias,
    *,
    logged: str | None = None,
    seed: int = 0,
) -> tuple[Example, ...]:
    """Return rankings of lists drawn at random from those with two groups and a click (or relevance).

    Parameters
    ----------
    source
        Clicks, or lists with relevance.
    policies
        By the keys of their rankings; each is shown by its most likely ranking.
    position_bias
        The examination of positions, which gives the exposure of items.
    logged
        The key of the logged ranking, by descending mean exposure; None to leave it out.
    seed
        Which lists are drawn.
    """
    known = source.compact()
    chosen = _chosen(known.data, known.gains(), seed)
    if not chosen.size:
        return ()
    lists = _Lists(known[chosen], chosen, position_bias)
    ranked = {key: lists.by_policy(policy) for key, policy in policies.items()}
    if logged is not None and lists.logged is not None:
        ranked[logged] = lists.logged
    return tuple(lists.example(number, ranked) for number in range(chosen.size))


def _chosen(data: RankingDataset, gains: Array, seed: int) -> NDArray[np.int64]:
    known = data.group != UNKNOWN_GROUP
    lists, groups = data.list_of_row, max(len(data.group_names), 1)
    present = np.zeros((len(data), groups), dtype=np.bool_)
    present[lists[known], data.group[known]] = True
    gain = np.bincount(lists, weights=gains, minlength=len(data))
    fit = np.flatnonzero((present.sum(axis=1) >= min(2, groups)) & (gain > 0))
    if fit.size > MOST_EXAMPLES:
        fit = np.random.default_rng(seed).choice(fit, size=MOST_EXAMPLES, replace=False)
    return np.sort(fit)


@dataclass(frozen=True, eq=False)
class _Ranked:
    """The rows of each list in the order of a ranking, and the exposure of all rows."""

    order: list[NDArray[np.int64]]
    exposure: Array


class _Lists:
    """The lists that were chosen, and what is known of them and of their rows, in words."""

    def __init__(
        self, source: CountsOrLabels, numbers: NDArray[np.int64], position_bias: PositionBias
    ) -> None:
        self.numbers = numbers
        self.data = source.data
        self.position_bias = position_bias
        self.logged = None if isinstance(source, RankingDataset) else self._as_logged(source)
        self.about = [f"{length:,} candidates" for length in self.data.lengths]
        if isinstance(source, RankingDataset):
            self.words = [f"relevance {value:g}" for value in source.gains()]
        else:
            self.about = [
                f"{about}, shown {times:,} time{'' if times == 1 else 's'}"
                for about, times in zip(self.about, source.impressions.tolist(), strict=True)
            ]
            self.words = [
                f"{int(clicks):,} clicks in {int(times):,} showings" if times else "never shown"
                for clicks, times in zip(source.clicks(), source.shown(), strict=True)
            ]

    def by_policy(self, policy: ScoredPolicy) -> _Ranked:
        """Rank by descending score; exposure is what drawing rankings gives, if the policy does that."""
        scores, offsets = np.asarray(policy.predict(self.data), dtype=np.float64), self.data.offsets
        table = examination_weights(self.position_bias, int(self.data.lengths.max()))[None]
        ranker = Ranker(scores, bool(getattr(policy, "stochastic", True)))
        exposure = ranker.position_weights(np.arange(self.data.rows), offsets, table)[0].numpy()
        return self._ordered(rank_positions(scores, offsets), exposure)

    def _as_logged(self, log: Counts) -> _Ranked:
        """Rank by descending mean exposure; what was never shown is no part of it."""
        times = np.repeat(log.impressions, self.data.lengths)
        exposure = log.logged_exposure(self.position_bias) / times
        position = rank_positions(exposure, self.data.offsets)
        return self._ordered(np.where(log.shown() > 0, position, 0), exposure)

    def _ordered(self, position: NDArray[np.int32], exposure: Array) -> _Ranked:
        """Put rows in the order of their positions; 0 is none."""
        order = []
        for start, stop in pairwise(self.data.offsets):
            rows = start + np.argsort(position[start:stop], kind="stable")
            order.append(rows[position[rows] > 0])
        return _Ranked(order, exposure)

    def example(self, number: int, ranked: Mapping[str, _Ranked]) -> Example:
        """Return the rankings of one list."""
        shown = {key: one.order[number][:SHOWN] for key, one in ranked.items()}
        rows = np.unique(np.concatenate(list(shown.values())))
        index_of_row = {int(row): index for index, row in enumerate(rows)}
        return Example(
            query=self._query(number),
            about=self.about[number],
            items=tuple(self._item(int(row), number) for row in rows),
            rankings={
                key: tuple((index_of_row[int(row)], float(ranked[key].exposure[row])) for row in order)
                for key, order in shown.items()
            },
            length=int(self.data.lengths[number]),
        )

    def _query(self, number: int) -> str:
        if self.data.query_id is None:
            return f"list {self.numbers[number] + 1}"
        return shortened(self.data.query_id[number])

    def _item(self, row: int, number: int) -> Item:
        name = self.data.doc_id
        label = f"item {row - self.data.offsets[number] + 1}" if name is None else shortened(name[row])
        code = int(self.data.group[row])
        group = None if code == UNKNOWN_GROUP else shortened(self.data.group_names[code])
        return Item(label, group, self.words[row])
