"""Compiled loops over rows and trees: which leaf a row falls into, and what leaves add to scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.policy.trees import LARGEST_CATEGORY, MISSING_LEFT, MISSING_ZERO, NEAR_ZERO, ROWS_A_BLOCK

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

ROWS_TOGETHER = 2048
"""Rows whose leaves are known and that are worked on tree by tree: the scores of a few configurations stay in
the cache."""


class Nodes(NamedTuple):
    """The nodes of all trees as kernels walk along them.

    Parameters
    ----------
    roots
        (trees,) The first node of each tree, or -1 - the leaf of a tree without nodes.
    column
        Of each node, the feature it looks at, or -1 - feature if that is a category.
    threshold
        Of each node.
    missing
        Of each node: the bits `MISSING_LEFT` and `MISSING_ZERO`.
    children
        (nodes, 2) The node to the left and to the right, counted over all trees; -1 - leaf for a leaf.
    category_starts
        (nodes + 1,) Where the categories of each node start.
    categories
        Those that go to the left, ascending in each node.
    """

    roots: NDArray[np.int32]
    column: NDArray[np.int32]
    threshold: Array
    missing: NDArray[np.int8]
    children: NDArray[np.int32]
    category_starts: NDArray[np.int32]
    categories: NDArray[np.int32]


@compiled
def _goes_right(value: float, node: int, nodes: Nodes) -> bool:
    """Say whether a row whose feature has this value goes to the right."""
    if nodes.column[node] < 0:
        # NaN, too; what is above -1 is cut to an integer, as LightGBM does
        if not (-1.0 < value <= LARGEST_CATEGORY):
            return True
        category = int(value)
        first, last = nodes.category_starts[node], nodes.category_starts[node + 1]
        while first < last:
            middle = (first + last) // 2
            if nodes.categories[middle] < category:
                first = middle + 1
            else:
                last = middle
        return bool(first == nodes.category_starts[node + 1] or nodes.categories[first] != category)
    missing = nodes.missing[node]
    if missing and (np.isnan(value) or (missing & MISSING_ZERO and abs(value) <= NEAR_ZERO)):
        return not missing & MISSING_LEFT
    return not value <= nodes.threshold[node]


@compiled
def add_trees(
    blocks: Integers,
    features: NDArray[np.float32],
    nodes: Nodes,
    leaf_starts: Integers,
    value: Array,
    scores: Array,
    leaves: NDArray[Any],
) -> None:
    """Add to the scores of some blocks of rows the values of their leaves, and note the leaves.

    `leaves` is (trees, rows), or has no rows where nobody asks for the leaves.
    """
    noted = leaves.shape[1] > 0
    for block in blocks:
        first = block * ROWS_A_BLOCK
        last = min(first + ROWS_A_BLOCK, features.shape[0])
        for tree in range(nodes.roots.size):
            for row in range(first, last):
                node = nodes.roots[tree]
                while node >= 0:
                    column = nodes.column[node]
                    value_of_row = features[row, column if column >= 0 else -1 - column]
                    node = nodes.children[node, np.intp(_goes_right(value_of_row, node, nodes))]
                leaf = -1 - node
                scores[row] += value[leaf]
                if noted:
                    leaves[tree, row] = leaf - leaf_starts[tree]


@compiled
def exchange(
    leaves: NDArray[Any], first: int, leaf_starts: Integers, values: Array, scores: Array, pull_back: bool
) -> None:
    """Add the values of leaves to the scores of their rows; or, pulled back, slopes of rows to their leaves.

    Rows are those from `first` on.
    `leaves` are (trees, rows), `values` (configurations, leaves), `scores` (configurations, rows).
    """
    configurations, rows = scores.shape
    for begin in range(0, rows, ROWS_TOGETHER):
        end = min(begin + ROWS_TOGETHER, rows)
        for tree in range(leaves.shape[0]):
            start = leaf_starts[tree]
            for number in range(configurations):
                of_leaf, of_row = values[number], scores[number]
                if pull_back:
                    for row in range(begin, end):
                        of_leaf[start + leaves[tree, first + row]] += of_row[row]
                else:
                    for row in range(begin, end):
                        of_row[row] += of_leaf[start + leaves[tree, first + row]]
