"""Ensembles of trees as a family of scorers: given their nodes, scores are linear in the leaf values."""

from __future__ import annotations

import copy
from typing import Any, Self
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fultr.data import RankingDataset
from fultr.policy.tree_kernels import exchange
from fultr.policy.tree_scorers import SummedScorer, TreeScorer
from fultr.policy.trees import Trees
from fultr.training.models import LinearModel, Model, with_columns_hidden
from fultr.training.scaling import ScaledScorer, Scaling
from fultr.training.tree_settings import TreeSettings

Array = NDArray[np.float64]


MOST_BYTES = 1 << 30
"""Bytes of leaves that are kept at a time; further ones are found again when they are needed."""


class KeptLeaves:
    """The leaves that rows fall into, by family: finding them takes longer than using them once."""

    def __init__(self) -> None:
        self.kept: list[tuple[ReferenceType[TreeModel], NDArray[Any]]] = []

    def of(self, family: TreeModel) -> NDArray[Any]:
        """Return the leaves of the rows of a family, (trees, rows)."""
        self.kept = [one for one in self.kept if one[0]() is not None]
        for reference, leaves in self.kept:
            if reference() is family:
                return leaves
        added = family.trees.leaves(family.data.features)
        while self.kept and sum(leaves.nbytes for _, leaves in self.kept) + added.nbytes > MOST_BYTES:
            del self.kept[0]
        self.kept.append((ref(family), added))
        return added


class TreeModel(Model):
    """h(x) = [w (x - mean) / scale +] sum_t v_t(leaf of x in tree t): nodes are fixed, v (and w) trained.

    The parameter of a leaf is its value times sqrt(its share of the rows trained on). So |parameters|^2 of a
    tree is the mean square of what it adds to the scores, however many rows its leaves have.

    Parameters
    ----------
    data, hidden
        As for any model.
    settings
        How trees are to be grown; there are none at first.
    linear
        The linear part, if there is one: its weights are the first parameters.
    """

    together = True
    entries_a_block = 1 << 19
    most_iterations = 100

    def __init__(
        self,
        data: RankingDataset,
        settings: TreeSettings,
        linear: LinearModel | None = None,
        hidden: tuple[int, ...] = (),
    ) -> None:
        super().__init__(data, Scaling.none(data), hidden)
        self.settings, self.linear = settings, linear
        self.weights = np.zeros(0 if linear is None else linear.size)
        self._kept = KeptLeaves()
        self._set_trees(Trees.none())

    def _set_trees(self, trees: Trees) -> None:
        self.trees = trees
        self._leaf_starts = trees.leaf_starts
        self._elsewhere: Self | None = None

    @property
    def leaves(self) -> NDArray[Any]:
        """(trees, rows) The leaf of each row, counted from the first of the tree."""
        return self._kept.of(self)

    def with_trees(self, trees: Trees, weights: Array | None = None) -> TreeModel:
        """Return the family of these trees, and of the weights that the linear part starts from."""
        other = copy.copy(self)
        other._set_trees(trees)
        other.weights = self.weights if weights is None else weights
        starts = trees.leaf_starts
        counts = [
            np.bincount(leaf, minlength=int(n)) for leaf, n in zip(other.leaves, np.diff(starts), strict=True)
        ]
        share = np.concatenate([*counts, np.zeros(0)]) / max(self.data.rows, 1)
        # a leaf without rows, which other data may have, counts as if it had half of one
        other._root_share = np.sqrt(np.maximum(share, 0.5 / max(self.data.rows, 1)))
        return other

    _root_share: Array = np.zeros(0)

    @property
    def content(self) -> list[Any]:
        """All that scores depend on besides the parameters and the features."""
        linear = None if self.linear is None else self.linear.content
        return [*super().content, self.settings, linear, self.weights, self.trees]

    def on(self, data: RankingDataset) -> Self:
        """Return the same family on the rows of other data; the last is kept: finding leaves takes time."""
        if self._elsewhere is None or self._elsewhere.data is not data:
            other = super().on(data)
            other.linear = None if self.linear is None else self.linear.on(data)
            other._set_trees(self.trees)
            self._elsewhere = other
        return self._elsewhere

    @property
    def size(self) -> int:
        """Number of leaves, and of features if there is a linear part."""
        return self.weights.size + self.trees.value.size

    def initial(self, seed: int) -> Array:
        """Return the values that the trees were grown with, and the weights they were grown on."""
        del seed
        return np.concatenate([self.weights, self.trees.value * self._root_share])

    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (configurations, rows)."""
        first, last, _ = rows.indices(self.data.rows)
        weights, values = self._parts(parameters)
        scores = np.zeros((parameters.shape[0], last - first))
        if self.linear is not None:
            scores += self.linear.scores(weights, rows)
        values = np.ascontiguousarray(values / self._root_share)
        exchange(self.leaves, first, self._leaf_starts, values, scores, False)
        return scores.astype(np.float32)

    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return the sum of the slopes of the rows in each leaf, (configurations, parameters)."""
        first = rows.indices(self.data.rows)[0]
        weights, values = self._parts(parameters)
        by_value = np.zeros(values.shape)
        slopes = np.ascontiguousarray(slopes, dtype=np.float64)
        exchange(self.leaves, first, self._leaf_starts, by_value, slopes, True)
        by_value /= self._root_share
        if self.linear is None:
            return by_value
        return np.concatenate([self.linear.pull_back(weights, rows, slopes), by_value], axis=1)

    def _parts(self, parameters: Array) -> tuple[Array, Array]:
        return parameters[:, : self.weights.size], parameters[:, self.weights.size :]

    def scorer(self, parameters: Array) -> ScaledScorer:
        """Return the scorer of one configuration."""
        weights, values = parameters[: self.weights.size], parameters[self.weights.size :]
        tensors: dict[str, Any] = {**self.trees.to_tensors(), "value": values / self._root_share}
        trees = TreeScorer(self.data.features.shape[1], Trees(**tensors))
        made: nn.Module = trees
        if self.linear is not None:
            made = SummedScorer(ScaledScorer(self.linear.of_scaled(weights), self.linear.scaling), trees)
        return ScaledScorer(with_columns_hidden(made, self.blind), self.scaling).requires_grad_(False)
