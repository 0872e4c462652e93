"""Fairness of exposure for each query by itself, as a linear programme over distributions of rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

from fultr.arguments import finite_number
from fultr.baselines.decomposition import balanced, decompose
from fultr.baselines.post_processing import PostProcessing
from fultr.click_model import PositionBias
from fultr.data import RankingDataset
from fultr.data.ids import UNKNOWN_GROUP
from fultr.errors import FultrError, InputError
from fultr.expectation import dcg_weights, examination_weights
from fultr.policy.policies import RankingSampler

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

CONSTRAINTS = ("treatment", "none")

FEASIBLE = 1e-10
"""The least error of constraints that HiGHS can be asked for."""

REACHED = 1e-9
"""The violation of a constraint that counts as none."""


class ExposureLP(PostProcessing):
    r"""Rank each query by the most useful distribution of rankings that treats groups by their relevance.

    The method of Singh and Joachims ("Fairness of Exposure in Rankings", KDD 2018). For each list the
    probabilities P_dk of item d at position k, rows and columns adding up to 1, are those of

    $$
    \max_P \sum_{d,k} r_d P_{dk} f_k \quad \text{subject to} \quad
    \frac{\mathrm{Exp}(G_i)}{M(G_i)} = \frac{\mathrm{Exp}(G_j)}{M(G_j)} \quad \text{for all groups } i, j
    $$

    with the mean exposure Exp(G) = sum_{d in G, k} P_dk v_k / |G| and the mean relevance M(G): disparate
    treatment. Groups without relevance, and items of unknown group, are under no constraint. Rankings are
    drawn from P by its decomposition (see `decompose`), for each query anew.

    Often no P holds the constraint: a group without much relevance gets some exposure even in the last
    places. It is then solved in two stages, the first of which finds the least possible violation,

    $$
    \sum_{i < j} |m_j E_i - m_i E_j|, \qquad m_i = \frac{M_i}{M_i + M_j}
    $$

    with E and M added up over the items of a group: the exposure that would have to go from one group to
    the other, which is 0 exactly where the constraint holds. The second finds the most useful P that has no
    more of it. Items of one list with the same relevance and group have the same probabilities; the group
    does not count where no constraint binds it.

    Parameters
    ----------
    constraint
        "treatment", or "none" for ranking by relevance.
    slack
        How much violation there may be beyond the least possible.
    relevance
        "regression", estimated from what it is trained on, or "true": that of the lists that are ranked.
    model, l2, position_bias, valid_share, seed
        Of the regression, see `RelevanceRegression`.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, list_length=8, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> ranker = ExposureLP(relevance="true", l2=0.01, position_bias=bias).fit(data.train)
    >>> ranker.position_probabilities(data.test).shape
    (160, 8)
    """

    passes = 1  # nothing is counted: probabilities are known

    def __init__(
        self,
        constraint: str = "treatment",
        *,
        slack: float = 0.0,
        relevance: str = "regression",
        model: str = "linear",
        l2: float | Sequence[float] | None = None,
        position_bias: PositionBias | None = None,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.constraint = constraint
        self.slack = slack
        self.relevance = relevance
        self.model = model
        self.l2 = l2
        self.position_bias = position_bias
        self.valid_share = valid_share
        self.seed = seed

    def check(self) -> None:
        """Refuse settings that can be right for no data."""
        super().check()
        if self.constraint not in CONSTRAINTS:
            problem = f"must be {' or '.join(map(repr, CONSTRAINTS))}"
            raise InputError(problem, column="constraint", value=self.constraint)
        finite_number(self.slack, "slack")

    def position_probabilities(self, data: RankingDataset) -> Array:
        """Return how likely each row is at each position: rows x positions."""
        probabilities = np.zeros((data.rows, int(data.lengths.max(initial=0))))
        for which, plan in enumerate(self._plans(data, np.arange(len(data)))):
            size = int(data.lengths[which])
            probabilities[data.offsets[which] : data.offsets[which + 1], :size] = plan.probabilities
        return probabilities

    def sampler(self, data: RankingDataset) -> RankingSampler:
        """Prepare to draw rankings of the lists of `data`; each is solved once."""
        plans = self._plans(data, np.arange(len(data)))
        return lambda lists, rng: _drawn([plans[which] for which in lists.tolist()], rng)

    def rank_stream(
        self, data: RankingDataset, lists: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int32]:
        """Draw a ranking of some lists, repeats allowed: the position of each row of each of them."""
        different, which = np.unique(lists, return_inverse=True)
        plans = self._plans(data, different)
        return _drawn([plans[number] for number in which.tolist()], rng)

    def _plans(self, data: RankingDataset, lists: NDArray[np.int64]) -> list[RankingPlan]:
        """Solve some lists; those with the same items, as far as it matters, are solved together."""
        self.check()
        relevance = self.predict(data)
        examination = examination_weights(self.position_bias_, int(data.lengths.max(initial=0)))
        solved: dict[tuple[bytes, bytes], Mixture] = {}
        plans = []
        for which in lists.tolist():
            rows = slice(int(data.offsets[which]), int(data.offsets[which + 1]))
            group = np.full(data.lengths[which], UNKNOWN_GROUP)
            if self.constraint == "treatment":
                group = _bound(data.group[rows], relevance[rows])
            items = np.column_stack([group, relevance[rows]])
            kinds, kind, count = np.unique(items, axis=0, return_inverse=True, return_counts=True)
            key = kinds.tobytes(), count.tobytes()
            if key not in solved:
                programme = Programme(kinds[:, 0].astype(np.int64), kinds[:, 1], count, examination)
                solved[key] = Mixture(programme.solved(self.slack), count)
            plans.append(RankingPlan(solved[key], kind.reshape(-1)))
        return plans


def _bound(group: NDArray[np.int32], relevance: Array) -> NDArray[np.int32]:
    """Return the groups that are under the constraint: those with relevance, if there are several of them."""
    merit = np.bincount(group + 1, relevance)
    merit[0] = 0.0
    concerned = merit[group + 1] > 0
    several = np.unique(group[concerned]).size > 1
    return np.where(concerned & several, group, np.int32(UNKNOWN_GROUP))


@dataclass(frozen=True, eq=False)
class Mixture:
    """The solution for a list whose items come kind by kind.

    Parameters
    ----------
    by_kind
        (kinds, positions) How likely an item of each kind is at each position, added up over its items.
    count
        (kinds,) The items of each kind.
    """

    by_kind: Array
    count: Whole

    @cached_property
    def probabilities(self) -> Array:
        """(items, positions) How likely each item is at each position."""
        return balanced(np.repeat(self.by_kind / self.count[:, None], self.count, axis=0))

    @cached_property
    def rankings(self) -> tuple[Array, NDArray[np.int32]]:
        """The rankings to draw: how likely they and those before them are together, and their positions."""
        shares, rankings = decompose(self.probabilities)
        return np.cumsum(shares), rankings


@dataclass(frozen=True, eq=False)
class RankingPlan:
    """The solution for one list: a mixture, and the kind of each of its items."""

    mixture: Mixture
    kind: Whole

    @property
    def order(self) -> Whole:
        """The index of each item of the list in the mixture."""
        order = np.empty(self.kind.size, dtype=np.int64)
        order[np.argsort(self.kind, kind="stable")] = np.arange(self.kind.size)
        return order

    @property
    def probabilities(self) -> Array:
        """(items, positions) How likely each item is at each position."""
        return np.asarray(self.mixture.probabilities[self.order])

    def draw(self, uniform: float) -> NDArray[np.int32]:
        """Return the ranking that a number from 0 to 1 stands for: the position of each item."""
        until, rankings = self.mixture.rankings
        which = min(int(np.searchsorted(until, uniform, side="right")), len(rankings) - 1)
        return np.asarray(rankings[which, self.order])


def _drawn(plans: list[RankingPlan], rng: np.random.Generator) -> NDArray[np.int32]:
    drawn = [plan.draw(uniform) for plan, uniform in zip(plans, rng.random(len(plans)), strict=True)]
    return np.concatenate([np.empty(0, dtype=np.int32), *drawn])


@dataclass(frozen=True, eq=False)
class Programme:
    """The linear programme of one list, by kinds of items: those of the same group and relevance.

    Parameters
    ----------
    group, relevance, count
        (kinds,) The group of each kind, -1 if it is under no constraint, its relevance, and how many items
        are of it.
    examination
        v_k of positions 1, 2, ..., at least as many as there are items.
    """

    group: Whole
    relevance: Array
    count: Whole
    examination: Array

    @property
    def size(self) -> int:
        """The number of items, and of positions."""
        return int(self.count.sum())

    @cached_property
    def pairs(self) -> csr_array:
        """(pairs, kinds x positions) The weights of m_j E_i - m_i E_j, for pairs of groups."""
        rows = [np.zeros((0, self.group.size))]
        merit = np.bincount(self.group + 1, self.relevance * self.count)
        for i, j in combinations(np.unique(self.group[self.group >= 0]).tolist(), 2):
            share = merit[j + 1] / (merit[i + 1] + merit[j + 1])
            rows.append(share * (self.group == i)[None] - (1 - share) * (self.group == j)[None])
        return csr_array(kron(np.concatenate(rows), self.examination[None, : self.size]))

    def solved(self, slack: float) -> Array:
        """Return the most useful probabilities with so much violation beyond the least: kinds x positions."""
        highest = float(self.relevance.max())
        gains = np.outer(self.relevance / (highest if highest > 0 else 1.0), dcg_weights(self.size))
        pairs = self.pairs.shape[0]
        if not pairs:
            return self._best(gains, np.zeros(0), 0.0)
        all_there_is = pairs * float(self.examination.sum())
        least = self._best(np.zeros_like(gains), np.ones(pairs), all_there_is)
        violation = float(np.abs(self.pairs @ least.reshape(-1)).sum())
        # a constraint that can hold is to hold exactly
        limit = slack + (violation + FEASIBLE if violation > REACHED else 0.0)
        return self._best(gains, np.zeros(pairs), limit)

    def _best(self, gains: Array, costs: Array, limit: float) -> Array:
        """Return the probabilities of most gains less costs, the latter of a variable for each pair.

        Each of these is at least the violation of its pair, and they add up to the limit at most.
        """
        (kinds, size), pairs = gains.shape, costs.size
        positions = kron(np.ones((1, kinds)), eye_array(size))
        items = kron(eye_array(kinds), np.ones((1, size)))
        signed = [hstack([sign * self.pairs, -eye_array(pairs)]) for sign in (1, -1)]
        added_up = csr_array(np.append(np.zeros(gains.size), np.ones(pairs))[None])
        solution = linprog(
            np.append(-gains, costs),
            A_ub=vstack([*signed, added_up]),
            b_ub=np.append(np.zeros(2 * pairs), limit),
            A_eq=hstack([vstack([positions, items]), csr_array((size + kinds, pairs))]),
            b_eq=np.append(np.ones(size), self.count),
            options={"primal_feasibility_tolerance": FEASIBLE, "dual_feasibility_tolerance": FEASIBLE},
        )
        if solution.x is None:
            raise FultrError(f"the linear programme of a list of {size} was not solved: {solution.message}")
        return np.asarray(solution.x[: gains.size].reshape(kinds, size))
