"""A saved policy that ranks one request with numpy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import finite_number
from fultr.errors import InputError
from fultr.policy.drawn_order import Seed, drawn_order
from fultr.policy.light_scorers import (
    LightScorer,
    LinearScores,
    Preparation,
    SummedScores,
    TreeScores,
    linear_scores,
    network_scores,
    with_affine,
)
from fultr.policy.trees import TREE_ARRAYS
from fultr.training.policy_fields import (
    checked_hidden,
    checked_names,
    checked_offsets,
    checked_scaling,
    checked_temperature,
    checked_widths,
)
from fultr.training.policy_files import read_policy_file

if TYPE_CHECKING:
    from fultr.policy.feature_encoding import FeatureEncoding

Array = NDArray[np.float64]

DRAWN = ("FairRanker", "FairPGRank", "PGRank")
"""Rankers whose rankings are drawn from their scores."""

SORTED = ("ClickSVMRank", "LambdaRank", "PropensitySVMRank", "RelevanceRegression")
"""Rankers that always rank by falling score."""


@dataclass(frozen=True, eq=False)
class LightPolicy:
    """A policy for one request at a time.

    Parameters
    ----------
    scorer
        From features (items, d) to scores.
    feature_names
        The features, in the order of the scorer.
    group_names
        The groups of the training.
    offsets
        What is added to the score of an item of each group; of none if it is empty.
    stochastic
        Whether rankings are drawn, or are always by falling score.
    version
        The first 12 digits of the SHA-256 of the file: which policy made a ranking.
    content
        What the file says of the policy.
    encoding
        What becomes of categories and missing values before the scorer; None if there are none.
    scaling
        The mean and the scale of the columns that the scorer gets, as training saw them.
    """

    scorer: LightScorer
    feature_names: tuple[str, ...]
    group_names: tuple[str, ...] = ()
    offsets: Mapping[str, float] = field(default_factory=dict)
    stochastic: bool = True
    version: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)
    encoding: FeatureEncoding | None = None
    scaling: Preparation | None = None

    @property
    def category_names(self) -> dict[str, tuple[str, ...]]:
        """The categories of the training, of each feature that holds any."""
        columns = () if self.encoding is None else self.encoding.columns
        return {column.name: column.categories for column in columns if column.categories}

    @property
    def allows_missing(self) -> bool:
        """Whether features may be missing (NaN)."""
        return self.encoding is not None and self.encoding.missing is not None

    def scores(
        self,
        features: NDArray[np.float32],
        groups: Sequence[str | None] | None = None,
        category_names: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Array:
        """Return the score of each item.

        Parameters
        ----------
        features
            A row for each item; codes of categories, and NaN where a value is missing.
        groups
            The group of each item; needed where the policy has an offset for each.
        category_names
            What the codes of categories stand for; by default those of the training, in their order.
        """
        if self.encoding is not None:
            features = self._encoded(self.encoding, features, category_names)
        scores = self.scorer(features)
        if self.offsets:
            if groups is None:
                problem = "the policy adds a number to the scores of each group; give the groups of items"
                raise InputError(problem, column="group")
            scores = scores + [self.offsets.get(group or "", 0.0) for group in groups]
        return scores

    def _encoded(
        self,
        encoding: FeatureEncoding,
        features: NDArray[np.float32],
        category_names: Mapping[str, tuple[str, ...]] | None,
    ) -> NDArray[np.float32]:
        from fultr.data.dataset import RankingDataset

        rows = RankingDataset(
            features,
            np.array([0, features.shape[0]]),
            feature_names=self.feature_names,
            category_names=self.category_names if category_names is None else dict(category_names),
            allows_missing=True,
        )
        return encoding.apply(rows).features

    def rank_one(
        self,
        items: ArrayLike,
        *,
        top_k: int | None = None,
        seed: Seed | None = None,
        groups: Sequence[str | None] | None = None,
    ) -> NDArray[np.intp]:
        """Draw one ranking of the items of one request: their rows, from 0 and best first.

        Parameters
        ----------
        items
            Features, a row for each item and a column for each of `feature_names`, in that order: numbers,
            codes of `category_names`, and NaN where a value is missing.
        top_k
            Return only the first so many.
        seed
            An integer or text. The same items and seed give the same ranking; None draws afresh.
        groups
            The group of each item, for a policy with offsets.
        """
        features = np.asarray(items, np.float32)
        if features.ndim != 2 or features.shape[1] != len(self.feature_names):
            problem = f"must be a row of {len(self.feature_names)} features for each item"
            raise InputError(problem, column="items", value=features.shape)
        scores = self.scores(features, groups)
        if not math.isfinite(scores.sum()):
            self._check_finite(features, scores)
        order = drawn_order(scores, seed) if self.stochastic else np.argsort(-scores, kind="stable")
        return order if top_k is None else order[:top_k]

    def _check_finite(self, features: NDArray[np.float32], scores: Array) -> None:
        """Refuse what has no finite score; name the feature if it is one that is to blame."""
        wrong = np.argwhere(~np.isfinite(features))
        if wrong.size and not self.allows_missing:
            row, column = wrong[0]
            problem, name = "must be a finite number", self.feature_names[column]
            raise InputError(problem, row=row + 1, column=name, value=features[row, column])
        bad = np.flatnonzero(~np.isfinite(scores))
        if bad.size:
            raise InputError("a score must be finite", row=bad[0] + 1, column="score", value=scores[bad[0]])


def load_policy(path: str | Path) -> LightPolicy:
    """Read a policy that `fultr.save` wrote, to rank one request at a time, without torch or numba.

    Linear policies, networks and trees can be read, also those of other methods that rank by their scores.

    Examples
    --------
    >>> policy = load_policy("policy.safetensors")  # doctest: +SKIP
    >>> policy.rank_one(features, top_k=10, seed="session 17")  # doctest: +SKIP
    """
    file = read_policy_file(path)
    try:
        return _policy_of(file.content, file.tensors, file.sha256[:12])
    except InputError as error:
        raise error.located(path) from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        problem = f"is not a policy that this version can read ({type(error).__name__}: {error})"
        raise InputError(problem, file=path) from error


def _policy_of(content: dict[str, Any], tensors: dict[str, NDArray[Any]], version: str) -> LightPolicy:
    kind = content.get("ranker", "FairRanker")
    if kind not in (*DRAWN, *SORTED):
        problem = "ranks in two steps, and not by its scores alone; rank with it in Python, by fultr.load"
        raise InputError(problem, column="ranker", value=kind)
    features = checked_names(content["features"], "features")
    groups = checked_names(content["groups"], "groups")
    encoding = encoding_of(content)
    width = len(features) if encoding is None else len(encoding.output_names)
    hidden = checked_hidden(content["hidden_columns"], width)
    preparation = Preparation(*checked_scaling(tensors, "scaling.", width), tuple(hidden))
    constant = content.get("constant")
    return LightPolicy(
        with_affine(
            _scorer_of(content["model"], tensors, preparation),
            0.0 if constant is None else finite_number(constant, "constant", -math.inf),
            checked_temperature(content.get("temperature", 1.0)),
            probability=content.get("probability", False) is True,
        ),
        tuple(features),
        tuple(groups),
        checked_offsets(content.get("offsets", {}), groups),
        kind in DRAWN,
        version,
        content,
        encoding,
        preparation,
    )


def encoding_of(content: Mapping[str, Any]) -> FeatureEncoding | None:
    """Return what a policy makes of categories and missing values; most have neither."""
    if "encoding" not in content:
        return None
    from fultr.policy.feature_encoding import FeatureEncoding

    encoding = FeatureEncoding.from_dict(content["encoding"])
    if list(encoding.names) != content["features"]:
        raise InputError("must be of the features of the policy", column="encoding")
    return encoding


def _scorer_of(
    about: dict[str, Any], tensors: dict[str, NDArray[Any]], preparation: Preparation
) -> LightScorer:
    kind, width = about["kind"], preparation.mean.size
    weights = scorer_weights(tensors)
    if kind != "module" and about["features"] != width:
        raise InputError("must be the number of features", column="model.features", value=about["features"])
    if kind == "linear":
        return linear_scores(_shaped(weights, "weight", width), preparation)
    if kind == "mlp":
        return network_scores(layers_of(about, weights), preparation)
    arrays = {name.removeprefix("trees.") for name in weights if not name.startswith("linear.")}
    if kind in ("trees", "linear+trees") and arrays != set(TREE_ARRAYS):
        problem = "these trees can only be scored by fultr.load"
        raise InputError(problem, column="model.kind", value=sorted(arrays ^ set(TREE_ARRAYS)))
    if kind == "trees":
        return TreeScores({name: weights[name] for name in TREE_ARRAYS}, preparation)
    if kind == "linear+trees":
        trees = TreeScores({name: weights[f"trees.{name}"] for name in TREE_ARRAYS}, preparation)
        inner = Preparation(*checked_scaling(weights, "linear.", width))
        linear: LinearScores = linear_scores(_shaped(weights, "linear.scorer.weight", width), inner)
        return SummedScores(linear, trees)
    problem = "only linear policies, networks and trees can be scored without torch"
    raise InputError(problem, column="model.kind", value=kind)


def scorer_weights(tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the tensors of the scorer, all finite."""
    weights = {
        name.removeprefix("scorer."): value for name, value in tensors.items() if name.startswith("scorer.")
    }
    for name, value in weights.items():
        if not np.isfinite(value).all():
            raise InputError("weights must be finite numbers", column=f"scorer.{name}")
    return weights


def layers_of(about: Mapping[str, Any], weights: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return weight, bias, ..., and the last weight, (outputs, inputs); a linear scorer has only that."""
    before = about["features"]
    if about["kind"] == "linear":
        return [_shaped(weights, "weight", before)[None]]
    # layers of the network are numbered 0, 2, ..., with a ReLU between
    hidden = checked_widths(about["hidden"], before, sum(value.size for value in weights.values()))
    layers = []
    for number, after in enumerate(hidden):
        layers.append(_shaped(weights, f"layers.{2 * number}.weight", after, before))
        layers.append(_shaped(weights, f"layers.{2 * number}.bias", after))
        before = after
    return [*layers, _shaped(weights, f"layers.{2 * len(hidden)}.weight", 1, before)]


def _shaped(weights: dict[str, NDArray[Any]], name: str, *shape: int) -> NDArray[Any]:
    if weights[name].shape != shape or not np.issubdtype(weights[name].dtype, np.floating):
        raise InputError("the weights in the file do not fit the scorer", column=f"scorer.{name}")
    return weights[name]
