"""Ranking policies: what decides in which order a list is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import fresh_generator, random_generator, whole_number
from fultr.click_model import PositionBias
from fultr.data import RankingDataset
from fultr.data.dataset import rows_of
from fultr.errors import InputError
from fultr.expectation import examination_weights
from fultr.expectation.race import check_scores
from fultr.policy.plackett_luce import cut_positions, rank_positions, sample_positions
from fultr.policy.rotation import expected_exposure, rotated_positions

RankingSampler = Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int32]]
"""From lists (repeats allowed) and randomness to the position of each row of each of them."""

Scorer = Callable[[NDArray[np.float32]], ArrayLike]
"""From features (rows x features) to a score for each row."""


class RankingPolicy(Protocol):
    """Anything that can rank the lists of a dataset."""

    def sampler(self, data: RankingDataset) -> RankingSampler:
        """Prepare to draw rankings of the lists of `data`."""
        ...


class ScoredPolicy(ABC):
    """A policy that follows from a score for each row.

    A stochastic one draws rankings from the Plackett-Luce model of the scores; the others always rank by
    descending score.
    """

    stochastic: bool = False

    @abstractmethod
    def predict(self, data: RankingDataset) -> NDArray[np.float64]:
        """Return the score of each row."""

    def rank(self, data: RankingDataset) -> NDArray[np.int32]:
        """Return the position of each row in the most likely ranking of its list."""
        return rank_positions(self.predict(data), data.offsets)

    def sampler(self, data: RankingDataset) -> RankingSampler:
        """Prepare to draw rankings of the lists of `data`; the scores are computed once."""
        scores = self.predict(data)
        if self.stochastic:
            return lambda lists, rng: sample_positions(scores, data.offsets, lists, rng)
        positions = rank_positions(scores, data.offsets)
        return lambda lists, _rng: positions[rows_of(data.offsets, lists)]

    def sample_rankings(
        self,
        data: RankingDataset,
        n: int = 1,
        *,
        top_k: int | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> NDArray[np.int32]:
        """Draw n rankings of every list: n x rows, the position of each row in each of them.

        They are different in every call, as people who search need them, unless there is a seed.
        With `top_k`, only the first so many items of a ranking are shown; the position of the others is 0.
        """
        n, rng = whole_number(n, "n", least=1), fresh_generator(seed)
        lists = np.tile(np.arange(len(data)), n)
        positions = self.sampler(data)(lists, rng)
        return cut_positions(positions, top_k).reshape(n, data.rows)

    def rotation(
        self,
        data: RankingDataset,
        n: int = 8,
        *,
        position_bias: PositionBias | None = None,
        top_k: int | None = None,
        seed: int | np.random.Generator = 0,
    ) -> NDArray[np.int32]:
        """Choose n rankings of every list to be shown in turn: n x rows, as `sample_rankings` returns them.

        The mean exposure of each item over them is close to that under the policy, closer than over n
        rankings that are drawn. See `rotated_positions`.

        Parameters
        ----------
        data, n, top_k
            As for `sample_rankings`.
        position_bias
            The examination of positions; by default the one the policy was trained with.
        seed
            Decides between items that are owed the same exposure.
        """
        n, rng = whole_number(n, "n", least=1), random_generator(seed)
        bias = position_bias or getattr(self, "position_bias_", None)
        if bias is None:
            problem = "exposure needs the examination of positions; give one, such as PositionBias.power(1.0)"
            raise InputError(problem, column="position_bias")
        weights = examination_weights(bias, int(data.lengths.max(initial=1)), top_k)
        exposure = self._exposure(data, weights)
        positions = rotated_positions(exposure, data.offsets, n, weights, rng.random(data.rows))
        return cut_positions(positions, top_k)

    def _exposure(self, data: RankingDataset, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return E[v_rank] of each row."""
        probabilities = getattr(self, "position_probabilities", None)
        if probabilities is not None:
            return np.asarray(probabilities(data) @ weights)
        scores = self.predict(data)
        if not self.stochastic:
            return weights[rank_positions(scores, data.offsets) - 1]
        return expected_exposure(scores, data.offsets, weights)


class FixedScorer(ScoredPolicy):
    """Always rank by the score that a function gives to the features of an item."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def predict(self, data: RankingDataset) -> NDArray[np.float64]:
        """Return the score of each row."""
        given = self.scorer(data.features)
        if isinstance(given, torch.Tensor):
            given = given.detach().double().cpu().numpy()
        scores = np.asarray(given, dtype=np.float64)
        if scores.shape != (data.rows,):
            problem = f"a scorer must return one score for each of {data.rows} rows"
            raise InputError(problem, column="scorer", value=scores.shape)
        check_scores(scores)
        return scores

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self.scorer, '__name__', self.scorer)})"


class PlackettLuce(FixedScorer):
    """Draw rankings from the Plackett-Luce model of a scorer's scores: the softmax, without replacement."""

    stochastic = True


class RandomRanking(ScoredPolicy):
    """Draw each ranking at random, all orders being equally likely."""

    stochastic = True

    def predict(self, data: RankingDataset) -> NDArray[np.float64]:
        """Return the same score for each row."""
        return np.zeros(data.rows)

    def __repr__(self) -> str:
        return "RandomRanking()"
