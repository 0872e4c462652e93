"""What each query contributes to utility, exposure, merit and disparity: logged rankings and policies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fultr.audits.pairs import GroupCells, PairColumns, difference, disparity_columns, sums_of_queries
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import Counts
from fultr.data.propensity import click_weights
from fultr.estimators import list_utilities, merit_in_arrays
from fultr.evaluation.contributions import Ranker
from fultr.expectation import dcg_weights, examination_weights

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RankingContributions:
    """Sums over the impressions of each query, of which every measure is a mean.

    Parameters
    ----------
    utility
        (queries, 1) DCG.
    exposure, merit
        (queries, groups)
    unseen_exposure, unknown
        (queries, groups) The exposure of candidates that nobody could see, and the most that they can add to
        merit.
    pairs
        D_ij for i < j.
    """

    utility: Array
    exposure: Array
    merit: Array
    unseen_exposure: Array
    unknown: Array
    pairs: PairColumns

    def at(self, queries: NDArray[np.int64]) -> RankingContributions:
        """Return some of the queries."""
        sums = {name: block[queries] for name, block in self.columns().items()}
        return RankingContributions(**sums, pairs=self.pairs.at(queries))

    def columns(self, logged: RankingContributions | None = None) -> dict[str, Array]:
        """Return all but the pairs by name; with the logged ranking, also the utility beyond its own."""
        names = ("utility", "exposure", "merit", "unseen_exposure", "unknown")
        columns: dict[str, Array] = {name: getattr(self, name) for name in names}
        if logged is not None:
            columns["more_utility"] = np.asarray(difference(self.utility, logged.utility))
        return columns


class Clicks:
    """The clicks of a log, weighed by a position bias and without their noise.

    Parameters
    ----------
    log
        Counts by list; each list was shown at least once.
    position_bias
        The examination of positions. It gives exposure, and weighs clicks unless the log has propensities.
    noise
        What to take off the merit, if anything.
    top_k
        Where DCG is cut, if anywhere.
    """

    def __init__(
        self, log: Counts, position_bias: PositionBias, noise: ClickNoise | None, top_k: int | None
    ) -> None:
        self.log = log
        self.position_bias = position_bias
        self.noise = noise
        self.evidence = merit_in_arrays(log, None if log.has_own_weights else position_bias, noise=noise)
        self.last = position_bias.last_position(top_k)
        self.cells = GroupCells.of(log.data)
        unseen = self.evidence.unseen_group
        self.unseen = None if unseen is None else unseen >= 0
        self.times = np.repeat(log.impressions.astype(np.float64), np.diff(self.cells.offsets))
        """The impressions of the list of each cell."""

    def of_logged(self) -> RankingContributions:
        """Return what the rankings of the log contribute.

        Exposure of an item is its mean over the impressions of the list, so that D is a product of two means:

            sum_t M^_t(G_j) (1/n) sum_t Exp_t(G_i) - ...,   t = 1, ..., n the impressions of the list

        which is unbiased, since clicks over propensities have the same mean whatever the ranking.
        """
        times = np.repeat(self.log.impressions, self.log.data.lengths)
        exposure = self.log.logged_exposure(self.position_bias) / times
        return self._with_exposure(self._logged_utility(), exposure)

    def of_policy(self, ranker: Ranker) -> RankingContributions:
        """Return what a policy would contribute on the same lists."""
        lists = self.log.data
        longest = int(lists.lengths.max())
        tables = np.stack([dcg_weights(longest, self.last), examination_weights(self.position_bias, longest)])
        weights = ranker.position_weights(np.arange(lists.rows), lists.offsets, tables).numpy()
        utility = list_utilities(weights[0], self.evidence)
        return self._with_exposure(utility, weights[1])

    def _with_exposure(self, utility: Array, exposure: Array) -> RankingContributions:
        cells, merit = self.cells, self.cells.sums(self.evidence.weight)
        hidden = unknown = None
        if self.unseen is not None:
            hidden, unknown = (
                cells.sums(exposure * self.unseen),
                cells.sums(self.unseen.astype(np.float64)) * self.times,
            )
            exposure = exposure * ~self.unseen
        seen = cells.sums(exposure)
        nothing = np.zeros_like(seen)
        return RankingContributions(
            utility=sums_of_queries(utility, self.log.data)[:, None],
            exposure=cells.by_query(seen * self.times),
            merit=cells.by_query(merit),
            unseen_exposure=cells.by_query(nothing if hidden is None else hidden * self.times),
            unknown=cells.by_query(nothing if unknown is None else unknown),
            pairs=disparity_columns(cells, seen, merit, hidden, unknown),
        )

    def _logged_utility(self) -> Array:
        """Return DCG of the logged positions: a click counts where it was made.

            sum_t sum_{d: c=1} f(sigma_t(d)) / p(o_d = 1 | sigma_t)

        Not a product of means as D: an item that was shown now and then would have too little of it.
        """
        cells = self.log.cells
        propensity = self.log.propensities(None if self.log.has_own_weights else self.position_bias)
        weight = click_weights(cells.clicks.astype(np.float64), propensity, None)
        if self.noise is not None:
            plus, minus = (curve[cells.position] for curve in self.noise.curves(self.log.deepest))
            weight -= minus * cells.impressions * (propensity > 0)
            weight /= plus - minus
        worth = dcg_weights(max(self.log.deepest, 1), self.last)[cells.position - 1]
        which = self.log.data.list_of_row[cells.row]
        utility = np.bincount(which, weights=weight * worth, minlength=len(self.log.data))
        return np.asarray(utility, dtype=np.float64)
