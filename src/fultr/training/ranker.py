"""What all trainable rankers have in common: how they take data, score, rank and are evaluated."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from torch import nn

from fultr.click_model import PositionBias
from fultr.data import RankingDataset, Source
from fultr.data.fields import check_dense
from fultr.errors import FultrWarning, InputError
from fultr.evaluation import Evaluation, evaluate
from fultr.logs.frames import GivenItems, items_of
from fultr.policy import GroupBlind, LinearScorer, TorchPolicy
from fultr.policy.feature_encoding import FeatureEncoding, sentence_of_unknown
from fultr.policy.policies import ScoredPolicy
from fultr.training.overlap import query_digests, training_evidence
from fultr.training.scaling import ScaledScorer
from fultr.training.settings import check_each
from fultr.training.sources import (
    SourceReading,
    check_categories,
    encoded_validation,
    lists_with_groups,
    source_of,
)


class KnownScores(ScoredPolicy):
    """A stochastic policy for the rows of one dataset, whose scores are known."""

    stochastic = True

    def __init__(self, scores: NDArray[np.float64]) -> None:
        self.scores = scores

    def predict(self, data: RankingDataset) -> NDArray[np.float64]:
        """Return the known scores."""
        del data
        return self.scores


class TrainableRanker(ScoredPolicy, BaseEstimator):  # type: ignore[misc]
    """A ranker with `fit`, whose scorer is found by `learn`; settings are its parameters, as in scikit-learn.

    A subclass says how it learns, and ends with `set_scorer`. Attributes with a trailing underscore are there
    once it is trained: `scorer_`, a torch module from features to scores; `position_bias_`; `group_names_`;
    `feature_names_in_`; `n_features_in_`; `training_queries_` and `training_evidence_`, by which an audit
    recognises queries and impressions that training or validation saw.
    """

    missing: str | None = None
    categories: Sequence[str] | None = None
    training_evidence_: tuple[str, ...] | None = None
    offsets_: dict[str, float] = {}  # noqa: RUF012  never changed in place

    def __new__(cls, *_arguments: Any, **settings: Any) -> Self:
        """Make a ranker; refuse what other libraries take and this one has no use for."""
        check_no_device(settings)
        ranker: Self = super().__new__(cls)
        return ranker

    @property
    def needs_impressions(self) -> bool:
        """Whether it learns from single impressions; others learn from their counts."""
        return False

    @property
    def needs_one_hot(self) -> bool:
        """Whether categories must become columns of 0 and 1; some scorers take them as they are."""
        return True

    @property
    def needs_relevance(self) -> bool:
        """Whether it ranks by known relevance; others do not look at it."""
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
            pandas, polars or Arrow frame of either; or features, rows x d, of items as they were shown.
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
        check_no_device(training)
        check_dense(X, "X")
        source = source_of(
            X,
            y,
            reading=self.reading(),
            qid=qid,
            impression=impression,
            position=position,
            sensitive_features=sensitive_features,
            propensity=propensity,
        )
        aside = None if valid is None else source_of(valid, reading=self.reading())
        evidence = training_evidence(source, aside)
        encoding, source, aside = self.encoded(source, aside)
        self.learn(source, aside, **training)
        self.set_encoding(encoding)
        self.training_evidence_ = evidence
        return self

    def reading(self) -> SourceReading:
        """Return how frames are read that this is trained on."""
        return SourceReading(self.needs_impressions, self.categories, self.missing is not None)

    def encoded(self, source: Source, valid: Source | None) -> tuple[FeatureEncoding, Source, Source | None]:
        """Learn what the policy makes of the features of its training data; return both with them encoded."""
        check_categories(self.categories, source.data)
        encoding = FeatureEncoding.of(source.data, self.missing, one_hot=self.needs_one_hot)
        encoded = source.with_lists(encoding.apply(source.data))
        return encoding, encoded, None if valid is None else encoded_validation(valid, encoding)

    def set_encoding(self, encoding: FeatureEncoding) -> None:
        """Set what the policy makes of features as they are given."""
        self.encoding_ = encoding
        self.feature_names_in_ = np.array(encoding.names, dtype=object)
        self.n_features_in_ = len(encoding.names)

    @abstractmethod
    def learn(self, source: Source, valid: Source | None) -> Self:
        """Train on counts, on single impressions if they are needed, or on labelled lists."""

    def check(self) -> None:
        """Refuse settings that can be right for no data; a subclass checks what goes together besides."""
        check_each(self.get_params(deep=False))

    def restore(self) -> None:
        """Make, after a policy was loaded, what follows from what it has learned."""

    def set_scorer(self, scorer: nn.Module, data: RankingDataset, position_bias: PositionBias | None) -> None:
        """Become the policy of a trained scorer, a module from features to scores."""
        self.scorer_: Any = scorer
        self.position_bias_: Any = position_bias
        self.group_names_ = data.group_names
        self.set_encoding(FeatureEncoding.of_encoded(data))
        self.training_queries_ = query_digests(data)

    def copy_trained(self, trained: TrainableRanker) -> None:
        """Take over all that another ranker has learned."""
        for name, value in vars(trained).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(self, name, value)

    @property
    def coef_(self) -> NDArray[np.float64]:
        """What each feature, in the unit it is given in, adds to the score of an item; of linear models.

        A score is `features @ coef_`, but for a constant that changes no ranking.
        """
        scorer = self.fitted_scorer()
        inner: Any = getattr(scorer, "scorer", None)
        hidden = [int(column) for column in inner.columns] if isinstance(inner, GroupBlind) else []
        inner = inner.scorer if isinstance(inner, GroupBlind) else inner
        if not isinstance(scorer, ScaledScorer) or not isinstance(inner, LinearScorer):
            raise AttributeError("coef_ is there for linear models only")  # noqa: TRY004 - so hasattr is False
        weights = inner.weight.detach().double() / scorer.scale.double() / scorer.temperature
        weights[hidden] = 0.0
        return np.asarray(weights.numpy())

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the score of each row of a dataset, a frame, or features (rows x d); see `items_of`.

        For a frame they are a series of its kind, in the order of its rows and with its index; see
        `like_frame`.
        """
        given = self.items_of(X, in_lists=False)
        return given.as_given(self.feature_scores(given.data) + self.offsets_of(given.data), "score")

    def feature_scores(self, X: Any) -> Any:  # noqa: N803
        """Return the score of each row by its features alone, without the offset of its group."""
        given = self.items_of(X, in_lists=False, warns=False)
        encoded = self.encoding_.apply(given.data)
        return given.as_given(TorchPolicy(self.fitted_scorer()).predict(encoded), "score")

    def offsets_of(self, data: RankingDataset) -> NDArray[np.float64]:
        """Return what the policy adds to the score of each row: the offset of its group, 0 if it has none."""
        if not self.offsets_:
            return np.zeros(data.rows)
        names = list(self.offsets_)
        if not data.group_names:
            problem = (
                f"the policy adds a number to the scores of each group; give the groups of items, {names}"
            )
            raise InputError(problem, column="group")
        codes = lists_with_groups(data, tuple(names)).group
        return np.array([*self.offsets_.values(), 0.0])[codes]

    def rank(self, data: Any) -> Any:
        """Return the position of each row in the most likely ranking of its list; see `items_of`.

        For a frame they are a series of its kind, as those of `predict`.
        """
        given = self.items_of(data, warns=False)  # `predict` does
        return given.as_given(super().rank(given.data), "position")

    def sample_rankings(
        self,
        data: Any,
        n: int = 1,
        *,
        top_k: int | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> Any:
        """Draw n rankings of every list: n x rows, the position of each row; see `items_of`.

        For a frame they are a frame of its kind, with a column for each ranking. With `top_k`, only the first
        so many items of a ranking are shown; the position of the others is 0.
        """
        given = self.items_of(data, warns=False)  # `predict` does
        return given.as_given(super().sample_rankings(given.data, n, top_k=top_k, seed=seed), "position")

    def rotation(self, data: Any, n: int = 8, **options: Any) -> Any:
        """Choose n rankings of every list to show in turn; see `ScoredPolicy.rotation`."""
        given = self.items_of(data, warns=False)  # `predict` does
        return given.as_given(super().rotation(given.data, n, **options), "position")

    def evaluate(self, data: Any, **options: Any) -> Evaluation:
        """Return utility, exposure and disparity on lists, clicks or a frame; see `fultr.evaluate`."""
        self.fitted_scorer()
        return evaluate(self, data, **options)

    def score(
        self,
        X: Any,  # noqa: N803
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        sample_weight: None = None,
        **options: Any,
    ) -> float:
        """Return the utility on labelled lists or clicks, of which more is better: the expected DCG.

        It is cut after `top_k` if the ranker has one. It says nothing of fairness; `evaluate`, which takes
        the same options, does.

        Parameters
        ----------
        X
            Labelled lists, clicks, or a frame of either; or features, rows x d.
        y, qid
            With features: the relevance of each row, and its query; by default all rows are one list.
        sample_weight
            None, which is what a `Pipeline` passes: lists have no weights.
        """
        if sample_weight is not None:
            raise InputError("lists have no weights; leave it out", column="sample_weight")
        data = X
        if y is not None:
            query = np.zeros(len(np.asarray(y)), dtype=np.int64) if qid is None else qid
            data = RankingDataset.from_rows(X, query, relevance=y)
        at = {"at": getattr(self, "top_k", None), "intervals": None}
        return float(self.evaluate(data, **{**at, **options}).dcg)

    def __sklearn_tags__(self) -> Tags:
        """Say what data this takes, as scikit-learn asks."""
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing is not None
        tags.input_tags.categorical = tags.input_tags.string = bool(self.categories)
        return tags

    def fitted_scorer(self) -> Any:
        """Return the trained scorer; not to be asked before `fit`."""
        if not hasattr(self, "scorer_"):
            raise NotFittedError(f"this {type(self).__name__} is not trained yet; call fit first")
        return self.scorer_

    def items_of(self, given: Any, *, in_lists: bool = True, warns: bool = True) -> GivenItems:
        """Return items with the features of the training, found by name and not encoded yet.

        A dataset and a frame (pandas, polars, Arrow, a mapping of columns) may have features in any order,
        with or without `feature_` before their names, and other columns besides; one that is missing is an
        error. Bare features, and features without names, must be as many and in the order of the training.
        Rows of a frame that have the same `query_id` (or `qid`) are one list; without it, all rows are.
        Of categories that the training did not have, a warning says how many there are.
        """
        self.fitted_scorer()
        check_dense(given, "X")
        encoding = self.encoding_
        found = items_of(
            given,
            encoding.names,
            in_lists=in_lists,
            with_relevance=self.needs_relevance,
            with_groups=bool(self.offsets_),
            categories=encoding.categories,
            keep_missing=encoding.missing is not None,
            encoded=encoding.output_names,
        )
        unknown = encoding.unknown(found.data) if warns else {}
        if unknown:
            warnings.warn(sentence_of_unknown(unknown, found.data.rows), FultrWarning, stacklevel=3)
        return found

    def unknown_categories(self, X: Any) -> dict[str, dict[str, int]]:  # noqa: N803
        """Return how many rows have each category that the training did not have, by feature.

        They are scored as average ones.
        """
        self.fitted_scorer()
        encoding = self.encoding_
        given = items_of(
            X,
            encoding.names,
            in_lists=False,
            categories=encoding.categories,
            keep_missing=True,
            encoded=encoding.output_names,
        )
        return encoding.unknown(given.data)

    def get_feature_names_out(self) -> NDArray[Any]:
        """Return the names of the columns that the scorer gets, which `coef_` is about."""
        self.fitted_scorer()
        return np.array(self.encoding_.output_names, dtype=object)

    @property
    def known_features(self) -> list[str]:
        """The names of the features of the training."""
        return [str(name) for name in self.feature_names_in_]


def check_no_device(settings: dict[str, Any]) -> None:
    """Refuse a device: kernels are compiled for the CPU."""
    if "device" in settings:
        problem = "training and ranking run on the CPU, on all its cores; leave device out"
        raise InputError(problem, column="device", value=settings["device"])
