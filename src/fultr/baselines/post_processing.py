"""Methods in two steps: estimate relevance, then rank the stream of queries so that exposure follows it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import fresh_generator, whole_number
from fultr.baselines.relevance import RelevanceRegression
from fultr.click_model import PositionBias
from fultr.data import RankingDataset, Source
from fultr.data.dataset import rows_of
from fultr.errors import InputError
from fultr.policy.plackett_luce import cut_positions
from fultr.policy.policies import RankingSampler
from fultr.training.ranker import TrainableRanker
from fultr.training.sources import position_bias_of

SOURCES = ("regression", "true")
"""Where relevance may come from."""


class PostProcessing(TrainableRanker):
    """Rank by estimated relevance, corrected for the exposure that groups have had so far.

    `predict` returns the estimated relevance, and `rank` ranks by it; `sample_rankings` ranks every list n
    times as part of one stream of queries, and `position_probabilities` says where the items stood in it.
    A subclass holds the parameters `relevance` ("regression", or "true" for the relevance of the lists that
    are ranked), `model`, `l2`, `position_bias`, `passes`, `valid_share` and `seed`.
    """

    stochastic = True
    relevance: str
    model: str
    l2: Any
    position_bias: PositionBias | None
    passes: int
    valid_share: float
    seed: int
    regression_: RelevanceRegression

    def learn(self, source: Source, valid: Source | None) -> Self:
        """Train the regression, which gives the relevance of items that were never shown too.

        It is trained where true relevance is to be used as well, so that the two can be compared.
        """
        self.check()
        bias = position_bias_of(self.position_bias, source)
        regression = RelevanceRegression(
            model=self.model, l2=self.l2, position_bias=bias, valid_share=self.valid_share, seed=self.seed
        ).fit(source, valid=valid)
        self.copy_trained(regression)
        return self

    def check(self) -> None:
        """Refuse settings that can be right for no data; a subclass checks its own besides."""
        super().check()
        if self.relevance not in SOURCES:
            problem = f"must be {' or '.join(map(repr, SOURCES))}"
            raise InputError(problem, column="relevance", value=self.relevance)
        whole_number(self.passes, "passes", least=1)

    def copy_trained(self, trained: TrainableRanker) -> None:
        """Take over a trained regression, or that of another ranker: one serves many settings."""
        self.check()
        super().copy_trained(trained)
        if isinstance(trained, RelevanceRegression):
            self.regression_ = trained

    def restore(self) -> None:
        """Make the regression again, after a policy was loaded."""
        settings = {name: getattr(self, name) for name in ("model", "l2", "valid_share", "seed")}
        regression = RelevanceRegression(position_bias=self.position_bias_, **settings)
        regression.copy_trained(self)
        self.regression_ = regression

    @property
    def needs_relevance(self) -> bool:
        """Whether it ranks by the relevance that lists have."""
        return self.relevance != "regression"

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the estimated relevance of each row; or the known one, if that is to be used."""
        given = self.items_of(X, in_lists=False)
        if not self.needs_relevance:
            return given.as_given(self.regression_.predict(self.encoding_.apply(given.data)), "relevance")
        if given.data.relevance is None:
            problem = "lists to be ranked by their true relevance must have one; use {relevance} 'regression'"
            raise InputError(problem, column="relevance", options=["relevance"])
        return given.as_given(given.data.relevance.astype(np.float64), "relevance")

    @abstractmethod
    def rank_stream(
        self, data: RankingDataset, lists: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int32]:
        """Rank some lists one after another, repeats allowed: the position of each row of each of them.

        Nothing has been exposed before the first of them.
        """

    def sampler(self, data: RankingDataset) -> RankingSampler:
        """Prepare to rank lists of `data`; those of one call are a stream of their own."""
        items = self.items_of(data, warns=False).data  # `predict` warns
        return lambda lists, rng: self.rank_stream(items, lists, rng)

    def sample_rankings(
        self,
        data: Any,
        n: int = 1,
        *,
        top_k: int | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> Any:
        """Rank every list n times in one stream, in random order: n x rows, the position of each row."""
        whole_number(n, "n", least=1)
        given, rng = self.items_of(data, warns=False), fresh_generator(seed)
        data = given.data
        stream = np.concatenate([rng.permutation(len(data)) for _ in range(n)])
        ranked = self.rank_stream(data, stream, rng)
        # back from the order of the stream to that of the rows, pass by pass
        positions = np.empty((n, data.rows), dtype=np.int32)
        which = np.repeat(np.repeat(np.arange(n), len(data)), data.lengths[stream])
        positions[which, rows_of(data.offsets, stream)] = ranked
        return given.as_given(cut_positions(positions, top_k), "position")

    def position_probabilities(self, data: RankingDataset) -> NDArray[np.float64]:
        """Return how often each row stood at each position in `passes` rankings: rows x positions."""
        ranked = self.sample_rankings(data, self.passes, seed=self.seed)
        probabilities = np.zeros((data.rows, int(data.lengths.max(initial=0))))
        for one in ranked:
            probabilities[np.arange(data.rows), one - 1] += 1 / len(ranked)
        return probabilities
