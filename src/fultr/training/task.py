"""What training optimises for: lists, and what is known of their items' relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import number_array
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import Counts, CountsOrLabels, RankingDataset, Source
from fultr.errors import InputError
from fultr.estimators import (
    Evidence,
    doubly_robust_evidence,
    evidence_from_relevance,
    evidence_of_bare_clicks,
    merit_evidence,
    pooled_evidence,
)
from fultr.expectation import average_rank_weights, dcg_weights, examination_weights

Array = NDArray[np.float64]

ESTIMATORS = {
    "ips": merit_evidence,
    "pooled": pooled_evidence,
    "doubly_robust": doubly_robust_evidence,
}
"""How the merit of items is estimated from weighted clicks, by their names in `FairRanker(evidence=)`."""


@dataclass(frozen=True)
class Weighing:
    """How clicks become evidence, and what a position is worth; the defaults are the paper's.

    Parameters
    ----------
    position_bias
        The examination probabilities v_k.
    noise
        Taken off the merit of shown items.
    utility
        "dcg", "average_rank", or the weights of positions 1, 2, ...
    top_k
        Positions beyond it have no utility; exposure is as the position bias says. Nor do
        positions that nobody looks at.
    utility_ips, disparity_ips
        Whether clicks are weighted by 1 / p in the utility, and in the disparity; without, they count as one.
    clip
        The most that 1 / p may be.
    estimator
        How merit is estimated from weighted clicks: one of `ESTIMATORS`.
    """

    position_bias: PositionBias
    noise: ClickNoise | None = None
    utility: str | NDArray[np.float64] = "dcg"
    top_k: int | None = None
    utility_ips: bool = True
    disparity_ips: bool = True
    clip: float | None = None
    estimator: str = "ips"

    def tables(self, longest: int) -> Array:
        """Return the weights of positions for the utility and for exposure: 2 x longest."""
        return np.stack([self._utility_weights(longest), examination_weights(self.position_bias, longest)])

    def _utility_weights(self, longest: int) -> Array:
        last = self.position_bias.last_position(self.top_k)
        if isinstance(self.utility, str):
            if self.utility == "dcg":
                return dcg_weights(longest, last)
            if self.utility == "average_rank" and self.top_k is None:
                ranks = average_rank_weights(longest)
                return ranks if last is None else np.maximum(ranks, -last - 1.0)
            problem = "must be 'dcg', 'average_rank' (without top_k), or the weights of positions 1, 2, ..."
            raise InputError(problem, column="utility", value=self.utility)
        weights = number_array(self.utility, "utility").astype(np.float64)
        if weights.ndim != 1 or not np.isfinite(weights).all():
            raise InputError("the weights of positions must be a row of finite numbers", column="utility")
        if weights.size < longest:
            problem = f"a list has {longest} items, but there are weights for {weights.size} positions only"
            raise InputError(problem, column="utility")
        weights = weights[:longest]
        return weights if last is None else np.where(np.arange(longest) < last, weights, 0.0)

    def evidence(self, source: CountsOrLabels) -> tuple[Evidence, Evidence]:
        """Return what is known of relevance, for the utility and for the disparity.

        From clicks it is without the noise; labels are full information.
        """
        if isinstance(source, RankingDataset):
            evidence = evidence_from_relevance(source)
            return evidence, evidence
        utility = self._of_clicks(source, weighted=self.utility_ips)
        if self.utility_ips == self.disparity_ips:
            return utility, utility
        return utility, self._of_clicks(source, weighted=self.disparity_ips)

    def _of_clicks(self, counts: Counts, *, weighted: bool) -> Evidence:
        """Return the evidence of clicks, weighted by 1 / p or not, without the noise."""
        if not weighted:
            return evidence_of_bare_clicks(counts, noise=self.noise)
        bias = self.position_bias if counts.cells.propensity is None else None
        return ESTIMATORS[self.estimator](counts, bias, noise=self.noise, clip=self.clip)


@dataclass(frozen=True, eq=False)
class Task:
    """Lists with features, and the evidence from which their utility and disparity follow.

    Parameters
    ----------
    data
        The lists.
    utility, disparity
        What is known of the items' relevance, for the one and for the other.
    tables
        Weights of positions: 2 x longest, of the utility and of exposure.
    """

    data: RankingDataset
    utility: Evidence
    disparity: Evidence
    tables: Array

    @classmethod
    def of(cls, source: Source, weighing: Weighing) -> Task:
        """Take the counts of a log; or the relevance of labelled lists: full information."""
        counts = source.compact()
        data = counts.data
        return cls(data, *weighing.evidence(counts), weighing.tables(int(data.lengths.max(initial=1))))

    def with_rows(self, which: NDArray[np.bool_]) -> Task:
        """Return the task without some of its rows; a list that keeps none is left out."""
        utility = self.utility.with_rows(which)
        same = self.disparity is self.utility
        disparity = utility if same else self.disparity.with_rows(which)
        return Task(self.data.of_rows(which)[0], utility, disparity, self.tables)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.data.group_names)

    @property
    def content(self) -> list[Any]:
        """All that training depends on."""
        return [
            self.data.features,
            self.data.offsets,
            self.data.group,
            self.utility,
            self.disparity,
            self.tables,
        ]
