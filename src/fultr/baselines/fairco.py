"""FairCo: a controller that raises the items of a group for as long as it has had too little exposure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import finite_number
from fultr.baselines.post_processing import PostProcessing
from fultr.click_model import PositionBias
from fultr.compiled import compiled
from fultr.data import RankingDataset
from fultr.policy.policies import RankingSampler


class FairCo(PostProcessing):
    """Rank a stream of queries by relevance, plus a share of the exposure that an item's group lacks.

    The list that comes t-th is ranked by falling

        r(d) + gain err_t(d),    err_t(d) = (t - 1) max_g (E_g - E_g(d)),

        E_g = [mean over lists s < t of sum_{d in g} v_{rank of d in s}] / [mean of sum_{d in g} r(d)],

    the exposure that group g has had for each unit of its merit: the proportional controller of Morik,
    Singh, Hong and Joachims (SIGIR 2020) with merit-based exposure. There, all queries rank the same items,
    and exposure and merit are means over the items of a group; here each query has its own items, so both
    are means over the lists so far, and the number of items of a group cancels. v_k is the examination of
    positions, `position_bias_`. The disparity E_i - E_j falls like 1 / t.

    Items of unknown group, and of groups that have had no merit yet, are ranked by relevance alone.

    Parameters
    ----------
    gain
        lambda, how strongly the controller acts. 0 ranks by relevance alone.
    relevance
        r: "regression", estimated as by `RelevanceRegression`; or "true", that of the lists to be ranked.
    model, l2, position_bias, valid_share
        As those of `RelevanceRegression`.
    passes
        How often each list comes in the stream by which the policy is evaluated.
    seed
        All randomness comes from here: the split for validation, and the order of that stream.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=500, seed=0)
    >>> ranker = FairCo(gain=0.1, l2=0.001).fit(log)
    >>> ranker.sample_rankings(data.test, n=4).shape == (4, data.test.rows)
    True
    """

    def __init__(
        self,
        gain: float = 0.01,
        *,
        relevance: str = "regression",
        model: str = "linear",
        l2: float | Sequence[float] | None = None,
        position_bias: PositionBias | None = None,
        passes: int = 10,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.gain = gain
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
        finite_number(self.gain, "gain")

    def rank_stream(
        self, data: RankingDataset, lists: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int32]:
        """Rank some lists one after another, repeats allowed: the position of each row of each of them."""
        return self.sampler(data)(lists, rng)

    def sampler(self, data: RankingDataset) -> RankingSampler:
        """Prepare to rank a stream of the lists of `data`; each call goes on where the last one ended."""
        merit = np.ascontiguousarray(self.predict(data))
        group, offsets = data.group.astype(np.int64), data.offsets.astype(np.int64)
        examined = self.position_bias_.curve(int(data.lengths.max(initial=0)))[1:]
        ledger = np.zeros((2, len(data.group_names)))
        gain, before = float(self.gain), 0

        def rank(lists: NDArray[np.int64], _rng: np.random.Generator) -> NDArray[np.int32]:
            nonlocal before
            numbers = np.asarray(lists, dtype=np.int64)
            ranked = np.empty(int(np.diff(offsets)[numbers].sum()), dtype=np.int32)
            control(merit, group, offsets, numbers, examined, gain, before, ledger, ranked)
            before += numbers.size
            return ranked

        return rank


@compiled
def control(
    merit: Any,
    group: Any,
    offsets: Any,
    lists: Any,
    examined: Any,
    gain: float,
    before: int,
    ledger: Any,
    ranked: Any,
) -> None:
    """Rank a stream of lists, and write down the exposure and the merit of groups.

    Parameters
    ----------
    merit, group
        (rows,) The relevance of each item, and its group; -1 for none.
    offsets
        Where each list starts, and the number of rows at the end.
    lists
        The lists, in the order in which they come.
    examined
        (positions,) v_1, v_2, ...
    gain
        lambda.
    before
        How many lists came before these.
    ledger
        (2, groups) The exposure and the merit of each group in those; added to.
    ranked
        The position, from 1, of each row of each list: the result.
    """
    groups = ledger.shape[1]
    lacking = np.zeros(groups + 1)  # what the last one lacks, the place of group -1, stays 0
    done = 0
    for turn in range(lists.size):
        start, stop = offsets[lists[turn]], offsets[lists[turn] + 1]
        most = 0.0
        for code in range(groups):
            if ledger[1, code] > 0:
                most = max(most, ledger[0, code] / ledger[1, code])
        for code in range(groups):
            if ledger[1, code] > 0:
                lacking[code] = (before + turn) * (most - ledger[0, code] / ledger[1, code])
        wanted = np.empty(stop - start)
        for row in range(start, stop):
            wanted[row - start] = -(merit[row] + gain * lacking[group[row]])
        # a stable sort: ties keep the order of the rows
        order = np.argsort(wanted, kind="mergesort")
        for index in range(stop - start):
            row = start + order[index]
            ranked[done + order[index]] = index + 1
            if group[row] >= 0:
                ledger[0, group[row]] += examined[index]
                ledger[1, group[row]] += merit[row]
        done += stop - start
