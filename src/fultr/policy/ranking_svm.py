"""The Ranking SVM (Joachims 2002), the paper's logging policy."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import checked_number, whole_number
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.policy.policies import ScoredPolicy


class RankingSVM(ScoredPolicy):
    """Rank by a linear score that orders pairs of items of one list by relevance with a margin."""

    def __init__(self, weights: NDArray[np.float64], trained_on: int = 0) -> None:
        self.weights = weights
        self.trained_on = trained_on

    @classmethod
    def train(
        cls, data: RankingDataset, *, share: float = 0.01, regularization: float = 1.0, seed: int = 0
    ) -> RankingSVM:
        """Train on a share of the labelled queries, at least one.

        Minimises |w|^2 / 2 + C sum max(0, 1 - w (x_i - x_j)) over all pairs of a list in which i is more
        relevant than j. Queries without such a pair teach nothing and are not drawn.

        Parameters
        ----------
        data
            Lists with relevance.
        share
            The share of the queries to train on; the paper takes 1%.
        regularization
            C above: the weight of the training pairs against that of short weights.
        seed
            Decides which queries are drawn.
        """
        if data.relevance is None:
            raise InputError("a Ranking SVM needs lists with relevance", column="relevance")
        if not data.features.shape[1]:
            raise InputError("a Ranking SVM needs features; a random ranking needs none", column="features")
        rule = "a share must lie above 0 and be at most 1"
        share = checked_number(share, "share", rule, lambda given: 0 < given <= 1)
        rule = "must be a finite number above 0"
        checked_number(regularization, "regularization", rule, lambda given: 0 < given < np.inf)
        whole_number(seed, "seed")
        starts = data.offsets[:-1]
        highest = np.maximum.reduceat(data.relevance, starts)
        useful = data[highest > np.minimum.reduceat(data.relevance, starts)]
        if not len(useful):
            problem = "no list has items of different relevance, so there is nothing to learn an order from"
            raise InputError(problem, column="relevance")
        size = max(1, round(share * np.unique(data.query_codes).size))
        sample = useful.sample_queries(min(size, np.unique(useful.query_codes).size), seed)
        return cls(_solve(_pair_differences(sample), regularization, seed), trained_on=len(sample))

    def predict(self, data: RankingDataset) -> NDArray[np.float64]:
        """Return the score of each row."""
        if data.features.shape[1] != self.weights.size:
            problem = f"the policy was trained on {self.weights.size} features"
            raise InputError(problem, column="features", value=data.features.shape[1])
        return np.asarray(data.features @ self.weights, dtype=np.float64)

    def __repr__(self) -> str:
        return f"RankingSVM({self.weights.size} features, trained on {self.trained_on} lists)"


def _pair_differences(data: RankingDataset) -> NDArray[np.float64]:
    """Return x_i - x_j for all pairs of a list in which i is more relevant than j."""
    assert data.relevance is not None  # noqa: S101 - the caller has checked
    differences = []
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        relevance = data.relevance[start:stop]
        better, worse = np.nonzero(relevance[:, None] > relevance[None, :])
        features = data.features[start:stop].astype(np.float64)
        differences.append(features[better] - features[worse])
    return np.concatenate(differences)


def _solve(differences: NDArray[np.float64], regularization: float, seed: int) -> NDArray[np.float64]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    # a classifier needs two classes: turn every other pair round
    sign = np.where(np.arange(differences.shape[0]) % 2 == 0, 1.0, -1.0)
    if differences.shape[0] == 1:
        differences, sign = np.repeat(differences, 2, axis=0), np.array([1.0, -1.0])
    classifier = LinearSVC(
        C=regularization,
        loss="hinge",
        fit_intercept=False,
        max_iter=100_000,
        random_state=seed % (1 << 32),  # scikit-learn takes no larger seeds
    )
    with warnings.catch_warnings():
        # what a hundred thousand rounds find is near enough to the best for a policy that only logs
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(differences * sign[:, None], sign)
    return np.asarray(classifier.coef_[0], dtype=np.float64)
