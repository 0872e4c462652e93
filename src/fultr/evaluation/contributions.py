"""What each list contributes to the measures of a policy, computed block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.click_model import PositionBias
from fultr.estimators import (
    Evidence,
    group_exposure,
    group_merit,
    list_disparities,
    list_disparity_bounds,
    list_utilities,
    utility_of_rankings,
    weights_at,
)
from fultr.expectation import dcg_weights, examination_weights

if TYPE_CHECKING:
    from torch import Tensor

    from fultr.expectation.exact import Accuracy

Array = NDArray[np.float64]

CELLS_A_BLOCK = 1 << 22
"""How many values (rows or lists x pairs of groups) are held at a time."""

DCG, NDCG, WITH_RELEVANT, RANK, MERIT, FIRST_GROUP = range(6)
"""The columns of contributions; `Layout` says where those of groups and pairs of groups are."""


@dataclass(frozen=True)
class Layout:
    """Where the columns of groups and of pairs of groups i < j stand.

    Parameters
    ----------
    groups
        How many groups there are.
    bounded
        Whether there are bounds of D_ij, since items were never seen.
    """

    groups: int
    bounded: bool

    @property
    def pairs(self) -> int:
        """How many pairs of groups there are."""
        return self.groups * (self.groups - 1) // 2

    @property
    def size(self) -> int:
        """How many columns there are."""
        further = 2 * self.groups + 2 * self.pairs if self.bounded else 0
        return FIRST_GROUP + 2 * self.groups + self.pairs + further

    @property
    def exposure(self) -> slice:
        """Exposure of each group."""
        return slice(FIRST_GROUP, FIRST_GROUP + self.groups)

    @property
    def merit(self) -> slice:
        """Merit of each group."""
        return slice(FIRST_GROUP + self.groups, FIRST_GROUP + 2 * self.groups)

    @property
    def disparity(self) -> slice:
        """D_ij."""
        return self._pairs(0)

    @property
    def low(self) -> slice:
        """The least that D_ij can be."""
        return self._pairs(1 if self.bounded else 0)

    @property
    def high(self) -> slice:
        """The most that D_ij can be."""
        return self._pairs(2 if self.bounded else 0)

    @property
    def unseen_exposure(self) -> slice:
        """Exposure of the items of each group that were never seen, if there are bounds."""
        return slice(self.size - 2 * self.groups, self.size - self.groups)

    @property
    def unknown(self) -> slice:
        """The most that these can add to the merit of each group."""
        return slice(self.size - self.groups, self.size)

    def _pairs(self, number: int) -> slice:
        first = FIRST_GROUP + 2 * self.groups + number * self.pairs
        return slice(first, first + self.pairs)


@dataclass(frozen=True)
class Ranker:
    """A score for each row, and how rankings follow from it.

    Parameters
    ----------
    scores
        (rows,) The scores.
    stochastic
        Whether rankings are drawn from the Plackett-Luce model of the scores, or are always its mode.
    accuracy
        Of expectations under the Plackett-Luce model.
    probabilities
        (rows, positions) How likely each row is at each position, of a policy that does not follow from
        scores; it alone counts then.
    """

    scores: Array
    stochastic: bool
    accuracy: Accuracy = "double"
    probabilities: Array | None = None

    def position_weights(self, rows: NDArray[np.int64], offsets: NDArray[np.int64], tables: Array) -> Tensor:
        """Return E[f(rank)] of the rows of some lists, for each function f of the tables."""
        import torch

        from fultr.expectation import expected_weights
        from fultr.policy import rank_positions

        if self.probabilities is not None:
            longest = self.probabilities.shape[1]
            return torch.from_numpy(tables[:, :longest] @ self.probabilities[rows].T[: tables.shape[1]])
        scores = self.scores[rows]
        if self.stochastic:
            return expected_weights(torch.from_numpy(scores), tables, offsets=offsets, accuracy=self.accuracy)
        positions = rank_positions(scores, offsets)
        return torch.stack([weights_at(positions, table) for table in tables])


@dataclass(frozen=True, eq=False)
class Contributions:
    """Sums over the impressions of each list, of which every measure is a ratio.

    Parameters
    ----------
    columns
        (lists, columns) As `DCG` and its successors name them; lists that were never shown are left out.
    impressions
        (lists,) How often each list was shown.
    lists
        (lists,) The number of each list in the data.
    layout
        Where the columns of groups are.
    """

    columns: Array
    impressions: Array
    lists: NDArray[np.int64]
    layout: Layout

    @property
    def total(self) -> float:
        """The number of impressions."""
        return float(self.impressions.sum())

    @property
    def means(self) -> Array:
        """(columns,) The mean over all impressions of what lists contribute."""
        return np.asarray(self.columns.sum(axis=0) / self.total)


def contributions_of(
    evidence: Evidence, ranker: Ranker, position_bias: PositionBias | None, at: int | None, *, ideal: bool
) -> Contributions:
    """Return what each list that was shown contributes.

    Parameters
    ----------
    evidence
        What is known of relevance.
    ranker
        What ranks the lists.
    position_bias
        The examination of positions; None where there are no groups that could be exposed.
    at
        Where DCG and ranks are cut, if anywhere.
    ideal
        Whether the weights of the evidence are relevances, by which the ideal ranking is known.
    """
    import torch

    candidates = evidence.candidates
    layout = Layout(candidates.groups, evidence.unseen is not None)
    lists = np.flatnonzero(evidence.impressions.numpy() > 0)
    lengths = candidates.offsets.diff().numpy()[lists]
    tables = _tables(int(lengths.max()), position_bias, at)
    columns = np.zeros((lists.size, layout.size))
    for block in _blocks(lengths, CELLS_A_BLOCK // (tables.shape[0] + layout.groups**2)):
        chosen = torch.from_numpy(lists[block])
        rows = candidates.rows_of(chosen)
        selected = Evidence(
            candidates.pick(chosen, rows),
            evidence.weight[rows],
            evidence.impressions[chosen],
            unseen_group=None if evidence.unseen_group is None else evidence.unseen_group[rows],
        )
        weights = ranker.position_weights(rows.numpy(), selected.candidates.offsets.numpy(), tables)
        columns[block, :FIRST_GROUP] = _utility_columns(selected, weights, tables[0], ideal=ideal)
        columns[block, layout.merit] = group_merit(selected).numpy()
        if position_bias is not None:
            exposure = group_exposure(weights[2], selected)
            columns[block, layout.exposure] = (selected.impressions.unsqueeze(1) * exposure).numpy()
            columns[block, layout.disparity] = pairs_of(list_disparities(weights[2], selected))
            low, high = list_disparity_bounds(weights[2], selected)
            columns[block, layout.low], columns[block, layout.high] = pairs_of(low), pairs_of(high)
            if selected.unseen is not None:
                hidden, most = unseen_columns(weights[2], selected)
                columns[block, layout.unseen_exposure], columns[block, layout.unknown] = hidden, most
    return Contributions(columns, evidence.impressions.numpy()[lists], lists, layout)


def _tables(longest: int, position_bias: PositionBias | None, at: int | None) -> Array:
    """Return the weights of positions for DCG, for the rank and, if asked for, for exposure."""
    ranks = np.arange(1.0, longest + 1)
    tables = [dcg_weights(longest, at), ranks if at is None else np.minimum(ranks, at + 1)]
    if position_bias is not None:
        tables.append(examination_weights(position_bias, longest))
    return np.stack(tables)


def _blocks(lengths: NDArray[np.int64], most: int) -> Iterator[slice]:
    """Yield consecutive lists that have at most so many rows together, or are single ones."""
    ends = np.cumsum(lengths)
    start = 0
    while start < lengths.size:
        before = int(ends[start] - lengths[start])
        stop = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        yield slice(start, stop)
        start = stop


def _utility_columns(evidence: Evidence, weights: Tensor, dcg_table: Array, *, ideal: bool) -> Array:
    columns = np.zeros((evidence.candidates.lists, FIRST_GROUP))
    columns[:, DCG], columns[:, RANK] = list_utilities(weights[:2], evidence).numpy()
    columns[:, MERIT] = evidence.candidates.sum_by_list(evidence.weight).numpy()
    if ideal:
        from fultr.policy import rank_positions

        best = rank_positions(evidence.weight.numpy(), evidence.candidates.offsets.numpy())
        most = utility_of_rankings(best, dcg_table, evidence).numpy()
        columns[:, WITH_RELEVANT] = most > 0
        np.divide(columns[:, DCG], most, out=columns[:, NDCG], where=most > 0)
    return columns


def unseen_columns(exposure: Tensor | Array, evidence: Evidence[Any]) -> tuple[Array, Array]:
    """Return the exposure of items never seen, and the most merit they can have: (lists, groups)."""
    evidence, exposure = evidence.in_arrays(), np.asarray(exposure)
    if evidence.unseen is None:
        nothing = np.zeros((evidence.candidates.lists, evidence.candidates.groups))
        return nothing, nothing.copy()
    impressions = evidence.impressions[:, None]
    items = evidence.unseen.sum_by_group(np.ones_like(exposure))
    return impressions * evidence.unseen.sum_by_group(exposure), impressions * items


def pairs_of(disparities: Tensor | Array) -> Array:
    """Return D_ij for i < j: from (lists, groups, groups) to (lists, pairs)."""
    first, second = np.triu_indices(disparities.shape[-1], k=1)
    return np.asarray(disparities)[:, first, second]
