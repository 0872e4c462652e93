"""Ensembles of decision trees as arrays of nodes; nothing here needs LightGBM, torch or numba to be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.errors import InputError

if TYPE_CHECKING:
    from fultr.policy.tree_kernels import Nodes

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

ROWS_A_BLOCK = 64
"""Rows that go through one tree after another: their scores and the nodes of a tree stay in the cache."""

BLOCKS_A_THREAD = 32
"""Fewer blocks than this are not worth another thread."""

MISSING_LEFT, MISSING_ZERO = 1, 2
"""Bits of `Trees.missing`: missing values go to the left; 0 is a missing value, too."""

NEAR_ZERO = float(np.float32(1e-35))
"""LightGBM takes values up to this for 0."""

LARGEST_CATEGORY = (1 << 24) - 1
"""Integers up to here are exact in float32."""


@dataclass(frozen=True, eq=False)
class Trees:
    """The nodes of all trees, one tree after another.

    A node sends a row to the left if its feature is at most the threshold or, where the node has categories,
    if it is one of them; else to the right. A missing value (NaN) goes to the left if bit 0 of `missing` is
    set, and 0 counts as missing if bit 1 is; a missing category goes to the right. Children from 0 on are
    nodes of the tree, and those below 0 are leaves: -1 is the first leaf of the tree, -2 the second. A tree
    with n nodes has n + 1 leaves.

    Parameters
    ----------
    starts
        (trees + 1) Where the nodes of each tree start, and how many there are in all. The leaves of tree t
        start at `starts[t] + t`.
    feature, threshold, missing, left, right
        Of each node.
    gain
        Of each node: how much its split gained when the tree was grown, in units of the growing.
    value
        Of each leaf: what it adds to the score.
    category_starts
        (nodes + 1) Where the categories of each node start, and how many there are in all.
    categories
        The categories that go to the left, ascending in each node.
    """

    starts: Integers
    feature: Integers
    threshold: Array
    missing: Integers
    left: Integers
    right: Integers
    gain: Array
    value: Array
    category_starts: Integers
    categories: Integers

    @classmethod
    def none(cls) -> Trees:
        """Return no trees at all."""
        start, integers, numbers = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        arrays: dict[str, Any] = dict.fromkeys(TREE_ARRAYS, integers)
        arrays |= dict.fromkeys(STARTS, start) | dict.fromkeys(("threshold", "gain", "value"), numbers)
        return cls(**arrays)

    @classmethod
    def joined(cls, ensembles: Sequence[Trees]) -> Trees:
        """Return the trees of several ensembles, in this order."""
        tensors = [one.to_tensors() for one in [cls.none(), *ensembles]]
        arrays = {name: np.concatenate([one[name] for one in tensors]) for name in tensors[0]}
        for name in STARTS:
            sizes = [np.diff(one[name]) for one in tensors]
            arrays[name] = np.concatenate([[0], *sizes]).cumsum().astype(np.int64)
        return cls(**arrays)

    def __len__(self) -> int:
        return int(self.starts.size - 1)

    @property
    def leaf_starts(self) -> Integers:
        """(trees + 1) Where the leaves of each tree start, and how many there are in all."""
        return self.starts + np.arange(self.starts.size)

    def first(self, count: int) -> Trees:
        """Return the first so many trees."""
        starts = self.starts[: count + 1]
        nodes = int(starts[-1])
        sizes = {
            "starts": count + 1,
            "value": nodes + count,
            "category_starts": nodes + 1,
            "categories": int(self.category_starts[nodes]),
        }
        tensors: dict[str, Any] = self.to_tensors()
        return Trees(**{name: tensors[name][: sizes.get(name, nodes)] for name in tensors})

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, as a file of tensors can hold them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def scores(self, features: NDArray[np.float32]) -> Array:
        """Return the sum of the leaf values of each row, trees in their order."""
        return self._walk(features, np.zeros((len(self), 0), dtype=np.uint8))

    def leaves(self, features: NDArray[np.float32]) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """Return the leaf of each row in each tree, (trees, rows), counted from the first of the tree."""
        most = int(np.diff(self.starts).max(initial=0))
        leaves = np.zeros((len(self), features.shape[0]), dtype=np.uint8 if most < 1 << 8 else np.uint16)
        self._walk(features, leaves)
        return leaves

    def _walk(self, features: NDArray[np.float32], leaves: NDArray[Any]) -> Array:
        """Return the scores of rows; their leaves are written to `leaves`, if it has rows."""
        from fultr.expectation.threads import for_kernel, over_threads
        from fultr.policy.tree_kernels import add_trees

        scores = np.zeros(features.shape[0])
        if features.shape[0] and len(self):
            blocks = np.arange(-(-features.shape[0] // ROWS_A_BLOCK))
            threads = 1 + blocks.size // BLOCKS_A_THREAD
            given, value = for_kernel(features, np.float32), for_kernel(self.value, np.float64)
            starts = for_kernel(self.leaf_starts, np.int64)
            over_threads(add_trees, blocks, threads, given, self._nodes, starts, value, scores, leaves)
        return scores

    def gain_by_feature(self, features: int) -> Array:
        """Return what the splits on each of so many features gained, summed over all trees."""
        return np.asarray(np.bincount(self.feature, weights=self.gain, minlength=features), dtype=np.float64)

    @property
    def is_categorical(self) -> NDArray[np.bool_]:
        """Whether each node splits on a set of categories."""
        return np.diff(self.category_starts) > 0

    @cached_property
    def _nodes(self) -> Nodes:
        """The nodes as kernels walk along them."""
        from fultr.expectation.threads import for_kernel
        from fultr.policy.tree_kernels import Nodes

        roots, children = self.roots_and_children()
        column = np.where(self.is_categorical, -1 - self.feature, self.feature)
        return Nodes(
            roots=for_kernel(roots, np.int32),
            column=for_kernel(column, np.int32),
            threshold=for_kernel(self.threshold, np.float64),
            missing=for_kernel(self.missing, np.int8),
            children=for_kernel(children, np.int32),
            category_starts=for_kernel(self.category_starts, np.int32),
            categories=for_kernel(self.categories, np.int32),
        )

    def roots_and_children(self) -> tuple[Integers, Integers]:
        """Return the root of each tree, and both children of each node, (nodes, 2), counted over all trees.

        A leaf is -1 - its number.
        """
        sizes, leaf_starts = np.diff(self.starts), self.leaf_starts[:-1]
        tree = np.repeat(np.arange(len(self)), sizes)
        children = np.stack([self.left, self.right], axis=1)
        first_node, first_leaf = self.starts[:-1][tree, None], leaf_starts[tree, None]
        children = np.where(children >= 0, children + first_node, children - first_leaf)
        return np.where(sizes > 0, self.starts[:-1], -1 - leaf_starts), children

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
            kind = np.float64 if name in ("threshold", "gain", "value") else np.int64
            fits = values.ndim == 1 and values.dtype == kind and bool(np.isfinite(values).all())
            _require(fits, f"{name} must be a row of finite numbers, {kind.__name__}")
        nodes = self.feature.size
        _require(_are_starts(self.starts, nodes), "trees must start one after another")
        of_nodes = (self.threshold, self.missing, self.left, self.right, self.gain)
        fits = all(values.size == nodes for values in of_nodes) and self.value.size == nodes + len(self)
        _require(fits, "every node needs its numbers, and every leaf its value")
        _require(bool(np.isin(self.missing, (0, 1, 2, 3)).all()), "missing must be 0, 1, 2 or 3")
        fits = _are_starts(self.category_starts, self.categories.size)
        _require(fits and self.category_starts.size == nodes + 1, "categories must start node after node")
        node = np.repeat(np.arange(nodes), np.diff(self.category_starts))
        fits = bool(((self.categories >= 0) & (self.categories <= LARGEST_CATEGORY)).all())
        ascending = (np.diff(self.categories) > 0) | (np.diff(node) > 0)
        _require(fits and bool(ascending.all()), "categories must be ascending integers from 0 on")


TREE_ARRAYS = tuple(field.name for field in fields(Trees))
"""The names of the arrays of trees."""

STARTS = ("starts", "category_starts")
"""Arrays that say where the parts of others start."""


def _are_starts(starts: Integers, size: int) -> bool:
    """Say whether these numbers can be where the parts of an array start, its size being the last."""
    return bool(starts.size > 0 and starts[0] == 0 and starts[-1] == size and (np.diff(starts) >= 0).all())


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise InputError(problem, column="trees")
