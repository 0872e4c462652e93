"""Equity of Attention: rank a stream of queries so that the attention of groups follows their relevance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fultr.arguments import checked_number
from fultr.baselines.post_processing import PostProcessing
from fultr.click_model import PositionBias
from fultr.data import RankingDataset
from fultr.expectation import dcg_weights, examination_weights

Array = NDArray[np.float64]

ROUNDING = 1e-12
"""Differences that count as none, of numbers that are at most about 1."""

NEXT_TO_NOTHING = 1e-9
"""The share of the lesser concern where only one counts: enough to decide between equals."""

MOST_STEPS = 100
"""Steps along a trade-off; it has far fewer corners."""


class EquityOfAttention(PostProcessing):
    """Rank each query so that attention, amortized over all queries so far, follows relevance.

    The method of Biega, Gummadi and Weikum (SIGIR 2018), with groups of items as the subjects. The stream
    adds up the attention A_g that each group got (the examination v_k of its positions) and its relevance
    R_g. A ranking of the next query, which gives exposure e_g to the groups, leaves the unfairness

        F = 1/2 sum_g a_g^2,   a_g = A_g + e_g - rho R_g,   rho = sum_g (A_g + e_g) / sum_g R_g,

    R_g being inclusive of this query. It is to be as low as possible, while the DCG by estimated relevance
    stays at least `theta` times that of ranking by it.

    The publication has one subject for each item and adds up |A_i + v_k - (R_i + r_i)|, which is a sum over
    the positions of items: an integer programme of assignment with one further constraint. With groups it is
    not, since e_g depends on all items of g. So F is linearised where ranking by relevance would lead, with
    slope c_g = a_g - sum_h (R_h / sum R) a_h, and the ranking is an assignment of items d to positions k of

        least  sum v_k c_g(d) - mu sum f_k r_d.

    As mu falls from infinity to 0, it goes from relevance to fairness alone. The smallest mu is taken that
    keeps to `theta` and does not push attention beyond the balance (sum c_g a_g < 0, with two groups: the
    other one is now worse off), or the next ranking if that keeps to `theta` and leaves less unfairness. No
    more DCG is given up than the balance asks for, even with `theta=0`.

    With `theta=1`, lists are ranked by relevance; what is equally relevant may change places. Items of
    unknown group are no subjects, and cost nothing anywhere. Each stream starts anew, with nothing added up.

    Parameters
    ----------
    theta
        The share of the best DCG that each ranking keeps.
    relevance
        "regression", estimated from what it is trained on, or "true": that of the lists that are ranked.
    model, l2, position_bias, valid_share
        Of the regression, see `RelevanceRegression`.
    passes
        How often the stream goes through the lists when positions are counted.
    seed
        All randomness comes from here: that of training, and the order of the stream.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> ranker = EquityOfAttention(theta=0.9, relevance="true", l2=0.01, position_bias=bias).fit(data.train)
    >>> float(ranker.evaluate(data.test).ndcg) > 0.9
    True
    """

    def __init__(
        self,
        theta: float = 0.9,
        *,
        relevance: str = "regression",
        model: str = "linear",
        l2: float | Sequence[float] | None = None,
        position_bias: PositionBias | None = None,
        passes: int = 10,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.theta = theta
        self.relevance = relevance
        self.model = model
        self.l2 = l2
        self.position_bias = position_bias
        self.passes = passes
        self.valid_share = valid_share
        self.seed = seed

    def check(self) -> None:
        """Refuse settings that can be right for no data."""
        super().check()
        rule = "must be a share of the best DCG, from 0 to 1"
        checked_number(self.theta, "theta", rule, lambda given: 0 <= given <= 1)

    def rank_stream(
        self, data: RankingDataset, lists: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int32]:
        """Rank some lists one after another, repeats allowed: the position of each row of each of them."""
        del rng  # the order of the stream decides all
        self.check()
        relevance = self.predict(data)
        longest = int(data.lengths.max(initial=0))
        stream = AttentionStream(
            len(data.group_names), examination_weights(self.position_bias_, longest), self.theta
        )
        rankings = [np.empty(0, dtype=np.int32)]
        for which in lists.tolist():
            rows = slice(int(data.offsets[which]), int(data.offsets[which + 1]))
            rankings.append(stream.rank(relevance[rows], data.group[rows]))
        return np.concatenate(rankings)


class AttentionStream:
    """What groups have had so far, and the ranking of the query that comes next.

    Parameters
    ----------
    groups
        The number of groups.
    examination
        v_k of positions 1, 2, ..., as many as the longest list has.
    theta
        The share of the best DCG that each ranking keeps.
    """

    def __init__(self, groups: int, examination: Array, theta: float) -> None:
        self.examination = examination
        self.utility = dcg_weights(examination.size)
        self.theta = theta
        self.attention = np.zeros(groups)
        self.relevance = np.zeros(groups)

    def rank(self, relevance: Array, group: NDArray[np.int32]) -> NDArray[np.int32]:
        """Rank a query by the relevance and the group of its items: their positions, from 1."""
        self.relevance += self._by_group(group, relevance)
        positions = self._best_positions(relevance, group)
        self.attention += self._by_group(group, self.examination[positions])
        return (positions + 1).astype(np.int32)

    def gaps(self, exposure: Array) -> Array:
        """Return a_g, what groups have had too much if they get this exposure; 0 while none is relevant."""
        after, total = self.attention + exposure, self.relevance.sum()
        return after - after.sum() / total * self.relevance if total > 0 else np.zeros_like(after)

    def _best_positions(self, relevance: Array, group: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the place of each item, from 0."""
        size = relevance.size
        examination, utility = self.examination[:size], self.utility[:size]
        by_relevance = np.empty(size, dtype=np.int64)
        by_relevance[np.argsort(-relevance, kind="stable")] = np.arange(size)
        gaps = self.gaps(self._by_group(group, examination[by_relevance]))
        slopes = gaps - self._mean(gaps)
        steepest = np.abs(slopes).max(initial=0.0)
        if size == 1 or not steepest > ROUNDING * (1 + self.attention.sum()):
            return by_relevance
        # the last of them is that of the unknown group, whose number is -1
        cost = np.append(slopes / steepest, 0.0)[group]
        highest = relevance.max()
        trade_off = TradeOff(cost, relevance / (highest if highest > 0 else 1.0), examination, utility)
        start = trade_off.measured(by_relevance)
        # the cost at which sum c_g a_g has come down from what it is at the start to 0
        balance = start.cost - float(gaps @ gaps) / steepest
        kept, beyond = trade_off.least_cost(start, self.theta * start.dcg, balance)
        candidates = [kept] if beyond is None else [kept, beyond]
        unfairness = [self._unfairness(candidate.positions, group, examination) for candidate in candidates]
        return candidates[int(np.argmin(unfairness))].positions

    def _mean(self, gaps: Array) -> float:
        """Return the mean of gaps, by relevance: the slope of F where exposure moves to the unknown group."""
        total = self.relevance.sum()
        return float(gaps @ self.relevance / total) if total > 0 else 0.0

    def _unfairness(
        self, positions: NDArray[np.int64], group: NDArray[np.int32], examination: Array
    ) -> float:
        gaps = self.gaps(self._by_group(group, examination[positions]))
        return float(gaps @ gaps) / 2

    def _by_group(self, group: NDArray[np.int32], values: Array) -> Array:
        """Add up the values of each known group; that of the unknown one, -1, comes first and is left out."""
        sums = np.bincount(group + 1, values, minlength=self.attention.size + 1)
        return np.asarray(sums[1:], dtype=np.float64)


class AttentionMeasures(NamedTuple):
    """A ranking, by the place of each item, with its cost and its DCG."""

    positions: NDArray[np.int64]
    cost: float
    dcg: float


class TradeOff:
    """Rankings of one query between the best DCG and the least cost of exposure.

    Parameters
    ----------
    cost
        What exposure costs for each item, of absolute value 1 at most; below 0, it is wanted.
    relevance
        Of each item, 1 at most.
    examination, utility
        v_k and f_k of the positions.
    """

    def __init__(self, cost: Array, relevance: Array, examination: Array, utility: Array) -> None:
        self.items = np.arange(cost.size)
        self.costs = np.multiply.outer(cost, examination)
        self.gains = np.multiply.outer(relevance, utility)

    def measured(self, positions: NDArray[np.int64]) -> AttentionMeasures:
        """Return a ranking with its cost and DCG."""
        cost, gain = self.costs[self.items, positions].sum(), self.gains[self.items, positions].sum()
        return AttentionMeasures(positions, float(cost), float(gain))

    def best(self, cost_weight: float, dcg_weight: float) -> AttentionMeasures:
        """Return the ranking of least `cost_weight` cost - `dcg_weight` DCG."""
        return self.measured(linear_sum_assignment(cost_weight * self.costs - dcg_weight * self.gains)[1])

    def least_cost(
        self, start: AttentionMeasures, least_dcg: float, balance: float = -np.inf
    ) -> tuple[AttentionMeasures, AttentionMeasures | None]:
        """Return the least costly ranking that keeps to a DCG, and whose cost is not below the balance.

        Only rankings that are best for some price mu of DCG are looked at: the corners of the lower boundary
        of all (DCG, cost). The second returned is the next corner, if it passes the balance but keeps to the
        DCG. `start` is returned where no corner will do. The two corners come nearer to each other from both
        ends: the price at which both are as good either finds one that is better, between them, or shows
        that there is none.
        """
        kept, beyond = self.best(NEXT_TO_NOTHING, 1.0), self.best(1.0, NEXT_TO_NOTHING)

        def keeps(one: AttentionMeasures) -> bool:
            return one.dcg >= least_dcg - ROUNDING * (1 + least_dcg)

        if not keeps(kept) or kept.cost < balance:
            return start, kept if keeps(kept) else None
        if keeps(beyond) and beyond.cost >= balance:
            return beyond, None
        for _ in range(MOST_STEPS):
            saved, lost = kept.cost - beyond.cost, kept.dcg - beyond.dcg
            between = self.best(lost, saved)
            gained = lost * (kept.cost - between.cost) - saved * (kept.dcg - between.dcg)
            if gained <= ROUNDING:
                break
            if keeps(between) and between.cost >= balance:
                kept = between
            else:
                beyond = between
        return kept, beyond if keeps(beyond) else None
