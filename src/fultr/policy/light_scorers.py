"""Scores of saved policies with numpy alone: what their torch modules compute, without torch.

A scorer takes the features of the items of one request, (items, d) as float32, and returns their scores in
double precision. What does not depend on the items is multiplied in when the policy is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.errors import InputError
from fultr.policy.trees import LARGEST_CATEGORY, MISSING_LEFT, MISSING_ZERO, NEAR_ZERO, Trees

Array = NDArray[np.float64]
LightScorer = Callable[[NDArray[np.float32]], Array]


@dataclass(frozen=True, eq=False)
class Preparation:
    """What happens to features before a scorer sees them: (x - mean) / scale, and 0 where they are hidden."""

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    hidden: tuple[int, ...] = ()

    def rows(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return prepared features, in the arithmetic of the training."""
        prepared = (features - self.mean) / self.scale
        prepared[:, list(self.hidden)] = 0.0
        return prepared

    def folded(self, weights: Array) -> tuple[Array, Array]:
        """Return weights and constants by which `x @ weights + constants` is `rows(x) @ weights` as given."""
        scale = self.scale.astype(np.float64).reshape(-1, *[1] * (weights.ndim - 1))
        visible = weights / scale
        visible[list(self.hidden)] = 0.0
        return np.ascontiguousarray(visible), -(self.mean.astype(np.float64) @ visible)


@dataclass(frozen=True, eq=False)
class LinearScores:
    """h(x) = w x + c."""

    weight: Array
    constant: float

    def __call__(self, features: NDArray[np.float32]) -> Array:
        """Return the score of each item."""
        scores: Array = features @ self.weight
        scores += self.constant
        return scores


@dataclass(frozen=True, eq=False)
class NetworkScores:
    """h(x) = w ReLU(... ReLU(W_1 x + b_1) ...) + c; `weights` are (inputs, outputs) of each layer."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    last: Array
    constant: float

    def __call__(self, features: NDArray[np.float32]) -> Array:
        """Return the score of each item."""
        rows: NDArray[Any] = features
        for weight, bias in zip(self.weights, self.biases, strict=True):
            rows = rows @ weight
            rows += bias
            np.maximum(rows, 0.0, out=rows)
        scores: Array = rows @ self.last
        return scores + self.constant


class TreeScores:
    """The sum of the values of the leaves an item falls into; all trees and items go down a step at a time.

    `arrays` are those of `fultr.policy.Trees`, by name.
    """

    def __init__(self, arrays: dict[str, NDArray[Any]], preparation: Preparation) -> None:
        self.preparation = preparation
        self.trees = Trees(**arrays).check(preparation.mean.size)
        self.roots, self.children = self.trees.roots_and_children()
        self.is_categorical = self.trees.is_categorical
        node = np.repeat(np.arange(self.trees.feature.size), np.diff(self.trees.category_starts))
        self.members = _member(node, self.trees.categories)

    def __call__(self, features: NDArray[np.float32]) -> Array:
        """Return the score of each item."""
        return self.of_prepared(self.preparation.rows(features))

    def of_prepared(self, rows: NDArray[np.float32]) -> Array:
        """Return the score of each item whose features are prepared."""
        node = np.repeat(self.roots[:, None], rows.shape[0], axis=1)  # (trees, items)
        inner = np.nonzero(node >= 0)
        while inner[0].size:
            at = node[inner]
            value = rows[inner[1], self.trees.feature[at]]
            right = self._goes_right(value, at)
            below = self.children[at, right.astype(np.intp)]
            node[inner] = below
            further = below >= 0
            inner = inner[0][further], inner[1][further]
        # tree by tree, as they are summed elsewhere
        return np.asarray(self.trees.value[-1 - node].sum(axis=0))

    def _goes_right(self, value: NDArray[np.float32], node: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say which values go to the right of their nodes; see `Trees`."""
        missing = self.trees.missing[node]
        is_missing = np.isnan(value) | (((missing & MISSING_ZERO) > 0) & (np.abs(value) <= NEAR_ZERO))
        right = np.where(is_missing, (missing & MISSING_LEFT) == 0, ~(value <= self.trees.threshold[node]))
        categorical = self.is_categorical[node]
        if categorical.any():
            given = value[categorical]
            usable = (given > -1) & (given <= LARGEST_CATEGORY)
            member = _member(node[categorical], np.where(usable, given, 0).astype(np.int64))
            right[categorical] = ~(usable & np.isin(member, self.members))
        return right


def _member(node: NDArray[np.int64], category: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for a node and a category."""
    return node * (LARGEST_CATEGORY + 1) + category


@dataclass(frozen=True, eq=False)
class SummedScores:
    """The sum of a linear score and that of trees."""

    linear: LinearScores
    trees: TreeScores

    def __call__(self, features: NDArray[np.float32]) -> Array:
        """Return the score of each item."""
        rows = self.trees.preparation.rows(features)
        return self.trees.of_prepared(rows) + self.linear(rows)


@dataclass(frozen=True, eq=False)
class AffineScores:
    """(h(x) + shift) / temperature, or the sigmoid of it."""

    scorer: LightScorer
    shift: float
    temperature: float
    probability: bool

    def __call__(self, features: NDArray[np.float32]) -> Array:
        """Return the score of each item."""
        scores = (self.scorer(features) + self.shift) / self.temperature
        return 1 / (1 + np.exp(-scores)) if self.probability else scores


def linear_scores(weight: NDArray[Any], preparation: Preparation) -> LinearScores:
    """Return the scorer of features as they are given."""
    folded, constant = preparation.folded(weight.astype(np.float64))
    return LinearScores(folded, float(constant))


def network_scores(layers: list[NDArray[Any]], preparation: Preparation) -> NetworkScores:
    """Return the scorer of features as they are given; layers are weight, bias, ..., and the last weight."""
    given = [layer.astype(np.float64) for layer in layers]
    weights, biases = [layer.T for layer in given[:-1:2]], given[1:-1:2]
    for before, after in pairwise([*weights, given[-1].T]):
        if before.shape[1] != after.shape[0]:
            raise InputError("the weights in the file do not fit the scorer", column="scorer.layers")
    first, constant = preparation.folded(weights[0])
    weights = [first, *(np.ascontiguousarray(weight) for weight in weights[1:])]
    return NetworkScores(tuple(weights), (biases[0] + constant, *biases[1:]), given[-1].reshape(-1), 0.0)


def with_affine(scorer: LightScorer, shift: float, temperature: float, *, probability: bool) -> LightScorer:
    """Return (h(x) + shift) / temperature, multiplied in where that is the same."""
    if probability or not isinstance(scorer, (LinearScores, NetworkScores)):
        return AffineScores(scorer, shift, temperature, probability)
    constant = (scorer.constant + shift) / temperature
    if isinstance(scorer, LinearScores):
        return LinearScores(scorer.weight / temperature, constant)
    return NetworkScores(scorer.weights, scorer.biases, scorer.last / temperature, constant)
