"""What all trainable rankers have in common: how they take data, score, rank and are evaluated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import nn

from fultr.click_model import PositionBias
from fultr.data import ClickLog, Counts, RankingDataset
from fultr.errors import InputError
from fultr.evaluation import Evaluation, evaluate
from fultr.policy import TorchPolicy
from fultr.policy.policies import ScoredPolicy
from fultr.training.sources import Source, query_digests, refuse_other_order, source_of


class TrainableRanker(ScoredPolicy, BaseEstimator):  # type: ignore[misc]
    """A ranker with `fit`, whose scorer is found by `learn`; settings are its parameters, as in scikit-learn.

    A subclass says how it learns, and ends with `adopt`. Attributes with a trailing underscore are there
    once it is trained: `scorer_`, a torch module from features to scores; `position_bias_`; `group_names_`;
    `feature_names_in_`; `n_features_in_`; `training_queries_`, by which an audit recognises queries
    that training or validation saw.
    """

    @property
    def needs_impressions(self) -> bool:
        """Whether it learns from single impressions; others learn from their counts."""
        return False

    def fit(
        self,
        X: Any,  # noqa: N803  scikit-learn calls it so
        y: ArrayLike | None = None,
        *,
        valid: Any = None,
        qid: ArrayLike | None = None,
        impression: ArrayLike | None = None,
        position: ArrayLike | None = None,
        sensitive_features: ArrayLike | Sequence[object] | None = None,
        propensity: ArrayLike | None = None,
        **training: Any,
    ) -> Self:
        """Train on a click log, on labelled lists (full information), on a frame, or on arrays.

        Parameters
        ----------
        X
            A `ClickLog` or `Counts`; a `RankingDataset` with relevance, which then counts as known; a
            pandas, polars or Arrow frame of a log; or features, rows x d, of items as they were shown.
        y
            With features: whether each row was clicked.
        valid
            Validation clicks (or lists) of other queries; by default a part of X, split by query.
        qid, impression, position, sensitive_features, propensity
            With features: the query of each row, the impression (by default each query is one), the
            position it was shown at, the group of the item, and p(o = 1) if it is known.
        training
            For rankers that can be watched and stopped: `watch`, called as training goes on, and
            `checkpoints`, where its state is kept.
        """
        source = source_of(
            X,
            y,
            impressions=self.needs_impressions,
            qid=qid,
            impression=impression,
            position=position,
            sensitive_features=sensitive_features,
            propensity=propensity,
        )
        aside = None if valid is None else source_of(valid, impressions=self.needs_impressions)
        return self.learn(source, aside, **training)

    @abstractmethod
    def learn(self, source: Source, valid: Source | None) -> Self:
        """Train on counts, on single impressions if they are needed, or on labelled lists."""

    def adopt(self, scorer: nn.Module, data: RankingDataset, position_bias: PositionBias | None) -> None:
        """Become the policy of a trained scorer, a module from features to scores."""
        self.scorer_: Any = scorer
        self.position_bias_: Any = position_bias
        self.group_names_ = data.group_names
        self.feature_names_in_ = np.array(data.feature_names, dtype=object)
        self.n_features_in_ = data.features.shape[1]
        self.training_queries_ = query_digests(data)

    def adopt_from(self, trained: TrainableRanker) -> None:
        """Take over all that another ranker has learned."""
        for name, value in vars(trained).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(self, name, value)

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the score of each row of a dataset, or of features (rows x d)."""
        data = self.known_features(X)
        return TorchPolicy(self.fitted_scorer()).predict(data)

    def rank(self, data: Any) -> NDArray[np.int32]:
        """Return the position of each row in the most likely ranking; bare features are one list."""
        return super().rank(self.known_features(data))

    def sample_rankings(
        self, data: Any, n: int = 1, *, top_k: int | None = None, seed: int | np.random.Generator = 0
    ) -> NDArray[np.int32]:
        """Draw n rankings of every list; see `ScoredPolicy.sample_rankings`. Bare features are one list."""
        return super().sample_rankings(self.known_features(data), n, top_k=top_k, seed=seed)

    def evaluate(self, data: Any, **options: Any) -> Evaluation:
        """Return utility, exposure and disparity on labelled lists or clicks; see `fultr.evaluate`."""
        self.fitted_scorer()
        return evaluate(self, data, **options)

    def fitted_scorer(self) -> Any:
        """Return the trained scorer; not to be asked before `fit`."""
        if not hasattr(self, "scorer_"):
            raise NotFittedError(f"this {type(self).__name__} is not trained yet; call fit first")
        return self.scorer_

    def known_features(self, given: Any) -> RankingDataset:
        """Return lists whose features are those of training, or refuse them."""
        self.fitted_scorer()
        if isinstance(given, RankingDataset):
            data = given
        elif isinstance(given, ClickLog | Counts):
            raise InputError("is a log; give its lists, log.data", column="X", value=type(given).__name__)
        else:
            table = np.asarray(given)
            if table.ndim != 2:
                raise InputError("features must be rows x features", column="X", value=table.shape)
            data = RankingDataset(given, [0, table.shape[0]])
        if data.features.shape[1] != self.n_features_in_:
            problem = f"the policy was trained on {self.n_features_in_} features"
            raise InputError(problem, column="features", value=data.features.shape[1])
        refuse_other_order(data.feature_names, tuple(self.feature_names_in_))
        return data
