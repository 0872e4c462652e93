"""Ensembles of decision trees as arrays of nodes, and the scores they give; nothing here needs LightGBM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fultr.compiled import compiled
from fultr.errors import InputError
from fultr.expectation.threads import for_kernel, over_threads

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

ROWS_A_BLOCK = 64
"""Rows that go through one tree after another: their scores and the nodes of a tree stay in the cache."""

BLOCKS_A_THREAD = 32
"""Fewer blocks than this are not worth another thread."""


@dataclass(frozen=True, eq=False)
class Trees:
    """The nodes of all trees, one tree after another.

    A node sends a row to the left if its feature is at most the threshold, or is missing (NaN) and
    `missing_left` is 1; else to the right. Children from 0 on are nodes of the tree, and those below 0 are
    leaves: -1 is the first leaf of the tree, -2 the second. A tree with n nodes has n + 1 leaves.

    Parameters
    ----------
    starts
        (trees + 1) Where the nodes of each tree start, and how many there are in all. The leaves of tree t
        start at `starts[t] + t`.
    feature, threshold, missing_left, left, right
        Of each node.
    value
        Of each leaf: what it adds to the score.
    """

    starts: Numbers
    feature: Numbers
    threshold: Array
    missing_left: Numbers
    left: Numbers
    right: Numbers
    value: Array

    @classmethod
    def none(cls) -> Trees:
        """Return no trees at all."""
        numbers, values = np.zeros(0, dtype=np.int64), np.zeros(0)
        return cls(np.zeros(1, dtype=np.int64), numbers, values, numbers, numbers, numbers, values)

    @classmethod
    def joined(cls, ensembles: Sequence[Trees]) -> Trees:
        """Return the trees of several ensembles, in this order."""
        ensembles = [cls.none(), *ensembles]
        sizes = [np.diff(one.starts) for one in ensembles]
        starts = np.concatenate([[0], *sizes]).cumsum().astype(np.int64)
        rest = [field.name for field in fields(cls)][1:]
        return cls(starts, *(np.concatenate([getattr(one, name) for one in ensembles]) for name in rest))

    def __len__(self) -> int:
        return int(self.starts.size - 1)

    @property
    def leaf_starts(self) -> Numbers:
        """(trees + 1) Where the leaves of each tree start, and how many there are in all."""
        return self.starts + np.arange(self.starts.size)

    def first(self, count: int) -> Trees:
        """Return the first so many trees."""
        starts = self.starts[: count + 1]
        sizes = {"starts": count + 1, "value": int(starts[-1]) + count}
        tensors: dict[str, Any] = self.to_tensors()
        return Trees(**{name: tensors[name][: sizes.get(name, int(starts[-1]))] for name in tensors})

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, as a file of tensors can hold them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def scores(self, features: NDArray[np.float32]) -> Array:
        """Return the sum of the leaf values of each row, trees in their order."""
        found = np.zeros(features.shape[0])
        self._walk(_add_leaf_values, features, for_kernel(self.value, np.float64), found)
        return found

    def leaves(self, features: NDArray[np.float32]) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """Return the leaf of each row in each tree, (trees, rows), counted from the first of the tree."""
        most = int(np.diff(self.starts).max(initial=0))
        kind = np.uint8 if most < 1 << 8 else np.uint16
        found = np.zeros((len(self), features.shape[0]), dtype=kind)
        self._walk(_find_leaves, features, for_kernel(self.leaf_starts, np.int64), found)
        return found

    def _walk(self, kernel: Any, features: NDArray[np.float32], *further: Any) -> None:
        rows = features.shape[0]
        if not rows or not len(self):
            return
        blocks = np.arange(-(-rows // ROWS_A_BLOCK))
        threads = 1 + blocks.size // BLOCKS_A_THREAD
        given = for_kernel(features, np.float32)
        over_threads(kernel, blocks, threads, given, *self._for_kernels, *further)

    @cached_property
    def _for_kernels(self) -> tuple[Any, ...]:
        """Roots and nodes as kernels walk along them: children counted over all trees, leaves below 0."""
        sizes, leaf_starts = np.diff(self.starts), self.leaf_starts[:-1]
        roots = np.where(sizes > 0, self.starts[:-1], -1 - leaf_starts)
        tree = np.repeat(np.arange(len(self)), sizes)
        children = np.stack([self.left, self.right], axis=1)
        first_node, first_leaf = self.starts[:-1][tree, None], leaf_starts[tree, None]
        children = np.where(children >= 0, children + first_node, children - first_leaf)
        return (
            for_kernel(roots, np.int32),
            for_kernel(self.feature, np.int32),
            for_kernel(self.threshold, np.float64),
            for_kernel(self.missing_left, np.int8),
            for_kernel(children, np.int32),
        )

    def check(self, features: int) -> Trees:
        """Return the trees if every row of so many features ends in a leaf of each of them; else refuse."""
        self._check_arrays()
        sizes = np.diff(self.starts)
        tree = np.repeat(np.arange(len(self)), sizes)
        number = np.arange(self.feature.size) - self.starts[:-1][tree]
        children = np.stack([self.left, self.right], axis=1)
        inside = (children < sizes[tree, None]) & (children >= -1 - sizes[tree, None])
        # with numbers that rise from parent to child, no path runs in a circle
        rising = (children < 0) | (children > number[:, None])
        _require(bool((inside & rising).all()), "children must be later nodes, or leaves, of their tree")
        # 2 n children of n nodes, all different, are the n - 1 nodes but the root and the n + 1 leaves
        ends = np.unique(np.stack([np.repeat(tree, 2), children.reshape(-1)], axis=1), axis=0)
        _require(ends.shape[0] == children.size, "no node or leaf may have two parents")
        of_data = (self.feature >= 0) & (self.feature < features)
        _require(bool(of_data.all()), f"trees must split on one of {features} features")
        return self

    def _check_arrays(self) -> None:
        """Refuse arrays of other kinds or lengths, and numbers that are not finite."""
        for name, values in self.to_tensors().items():
            kind = np.float64 if name in ("threshold", "value") else np.int64
            fits = values.ndim == 1 and values.dtype == kind and bool(np.isfinite(values).all())
            _require(fits, f"{name} must be a row of finite numbers, {kind.__name__}")
        starts, nodes = self.starts, self.feature.size
        fits = (
            starts.size > 0 and starts[0] == 0 and starts[-1] == nodes and bool((np.diff(starts) >= 0).all())
        )
        _require(fits, "trees must start one after another")
        of_nodes = (self.threshold, self.missing_left, self.left, self.right)
        fits = all(values.size == nodes for values in of_nodes) and self.value.size == nodes + len(self)
        _require(fits, "every node needs its numbers, and every leaf its value")
        _require(bool(np.isin(self.missing_left, (0, 1)).all()), "missing_left must be 0 or 1")


class TreeScorer(nn.Module):
    """Score an item by the sum of the values of the leaves it falls into, in double precision.

    Parameters
    ----------
    features
        Number of features.
    trees
        The trees; every row must end in a leaf (`Trees.check`).
    """

    def __init__(self, features: int, trees: Trees) -> None:
        super().__init__()
        self.features = features
        for name, values in trees.check(features).to_tensors().items():
            self.register_buffer(name, torch.from_numpy(values.copy()))
        self.trees = trees

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (...), of items with the given features, (..., d)."""
        width = features.shape[-1] if features.ndim else 0
        if width != self.features:
            raise InputError(f"the scorer takes {self.features} features", column="features", value=width)
        rows = features.detach().reshape(-1, width).to("cpu", torch.float32).numpy()
        return torch.from_numpy(self.trees.scores(rows)).reshape(features.shape[:-1])

    def extra_repr(self) -> str:
        """Return what `repr` shows between the brackets."""
        return f"{self.features}, trees={len(self.trees)}"


class SummedScorer(nn.Module):
    """Score an item by the sum of the scores that a linear scorer and trees give it."""

    def __init__(self, linear: nn.Module, trees: TreeScorer) -> None:
        super().__init__()
        self.linear, self.trees = linear, trees

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (...), of items with the given features, (..., d)."""
        scores: Tensor = self.trees(features) + self.linear(features)
        return scores


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise InputError(problem, column="trees")


@compiled
def _leaf_of(
    features: NDArray[np.float32],
    row: int,
    node: int,
    feature: NDArray[np.int32],
    threshold: Array,
    missing_left: NDArray[np.int8],
    children: NDArray[np.int32],
) -> int:
    """Return the leaf of a row, counted over all trees."""
    while node >= 0:
        value = features[row, feature[node]]
        right = not value <= threshold[node]
        if np.isnan(value) and missing_left[node]:
            right = False
        node = children[node, np.intp(right)]
    return -1 - node


@compiled
def _add_leaf_values(
    blocks: Numbers,
    features: NDArray[np.float32],
    roots: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: Array,
    missing_left: NDArray[np.int8],
    children: NDArray[np.int32],
    value: Array,
    scores: Array,
) -> None:
    """Add to the scores of some blocks of rows the values of their leaves."""
    for block in blocks:
        first = block * ROWS_A_BLOCK
        last = min(first + ROWS_A_BLOCK, features.shape[0])
        for root in roots:
            for row in range(first, last):
                leaf = _leaf_of(features, row, root, feature, threshold, missing_left, children)
                scores[row] += value[leaf]


@compiled
def _find_leaves(
    blocks: Numbers,
    features: NDArray[np.float32],
    roots: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: Array,
    missing_left: NDArray[np.int8],
    children: NDArray[np.int32],
    leaf_starts: Numbers,
    leaves: NDArray[Any],
) -> None:
    """Find the leaves of some blocks of rows."""
    for block in blocks:
        first = block * ROWS_A_BLOCK
        last = min(first + ROWS_A_BLOCK, features.shape[0])
        for tree in range(roots.size):
            for row in range(first, last):
                leaf = _leaf_of(features, row, roots[tree], feature, threshold, missing_left, children)
                leaves[tree, row] = leaf - leaf_starts[tree]
