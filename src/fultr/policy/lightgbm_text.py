"""Trees in LightGBM's text format: read from what it has grown, and written for those who serve with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.policy.trees import MISSING_LEFT, MISSING_ZERO, NEAR_ZERO, Trees

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

CATEGORICAL, DEFAULT_LEFT, MISSING_KIND = 1, 2, 2
"""Bits of the decision type of a node, and how many bits stand before the kind of its missing values."""

NO_MISSING, ZERO_MISSING, NAN_MISSING = 0, 1, 2
"""Kinds of missing values."""

WORD = 32
"""Bits of a word of a set of categories."""


def trees_of_text(text: str) -> Trees:
    """Return the trees in the text of a model, in which numbers are written in full."""
    trees = [_tree(block) for block in text.split("\nTree=")[1:]]
    return Trees.joined([tree for tree in trees if tree.feature.size])


def _tree(block: str) -> Trees:
    lines = dict(line.split("=", 1) for line in block.split("\n\n", 1)[0].splitlines()[1:])

    def integers(name: str) -> Integers:
        return np.array(lines.get(name, "").split(), dtype=np.int64)

    def numbers(name: str) -> Array:
        return np.array(lines.get(name, "").split(), dtype=np.float64)

    threshold, kinds = numbers("threshold"), integers("decision_type")
    categorical = (kinds & CATEGORICAL) > 0
    starts, categories = _categories(
        categorical, threshold[categorical], integers("cat_boundaries"), integers("cat_threshold")
    )
    return Trees(
        starts=np.array([0, threshold.size]),
        feature=integers("split_feature"),
        threshold=np.where(categorical, 0.0, _usable(threshold)),
        missing=np.where(categorical, 0, _missing(kinds, threshold)),
        left=integers("left_child"),
        right=integers("right_child"),
        gain=numbers("split_gain"),
        value=numbers("leaf_value"),
        category_starts=starts,
        categories=categories,
    )


def _usable(threshold: Array) -> Array:
    """Return finite thresholds, by which values that LightGBM takes for 0 go where 0 goes."""
    # a split of what is missing from all the rest is at infinity; features are finite
    finite = np.nan_to_num(threshold, posinf=np.finfo(np.float64).max, nan=np.nan)
    return np.where(finite == -NEAR_ZERO, np.nextafter(-NEAR_ZERO, -1.0), finite)


def _missing(kinds: Integers, threshold: Array) -> Integers:
    """Return where missing values go: where training has seen none, NaN counts as 0."""
    kind, left = (kinds >> MISSING_KIND) & 3, ((kinds & DEFAULT_LEFT) > 0).astype(np.int64)
    as_zero = (threshold >= 0).astype(np.int64)
    return np.select([kind == NO_MISSING, kind == ZERO_MISSING], [as_zero, left | MISSING_ZERO], left)


def _categories(
    categorical: NDArray[np.bool_], number: Array, boundaries: Integers, words: Integers
) -> tuple[Integers, Integers]:
    """Return the categories of each node from sets of bits; `number` is that of a categorical node's set."""
    sets = [
        np.flatnonzero(np.unpackbits(words[first:last].astype("<u4").view(np.uint8), bitorder="little"))
        for first, last in (boundaries[one : one + 2] for one in number.astype(np.int64))
    ]
    sizes = np.zeros(categorical.size, dtype=np.int64)
    sizes[categorical] = [one.size for one in sets]
    return np.concatenate([[0], sizes.cumsum()]).astype(np.int64), np.concatenate([[], *sets]).astype(
        np.int64
    )


class LinearTerm(NamedTuple):
    """A linear function of the features that is added to the scores of trees."""

    constant: float
    weights: Array


def lightgbm_text(trees: Trees, names: Sequence[str], linear: LinearTerm | None = None) -> str:
    """Return a model that LightGBM reads, whose raw scores are those of the trees to the last bit.

    A linear term becomes one more tree, of LightGBM's linear trees: all its leaves hold the same function.
    It ignores the linear term where a feature is NaN.

    Parameters
    ----------
    trees
        The trees.
    names
        The names of all features; LightGBM has no blanks in them.
    linear
        What is added to the scores, if anything.
    """
    blocks = [_tree_lines(trees, number) for number in range(len(trees))]
    blocks += [] if linear is None else [_linear_lines(linear)]
    written = [f"Tree={number}\n" + "".join(block) + "\n\n" for number, block in enumerate(blocks)]
    head = {
        "version": "v4",
        "num_class": 1,
        "num_tree_per_iteration": 1,
        "label_index": 0,
        "max_feature_idx": len(names) - 1,
        "feature_names": " ".join("_".join(name.split()) or "_" for name in names),
        "feature_infos": " ".join("[-inf:inf]" for _ in names),
        "tree_sizes": " ".join(str(len(block.encode())) for block in written),
    }
    return f"tree\n{''.join(_lines(head))}\n{''.join(written)}end of trees\n"


def _tree_lines(trees: Trees, number: int) -> Iterator[str]:
    """Return the lines of a tree."""
    first, last = trees.starts[number : number + 2]
    nodes, leaves = slice(first, last), slice(first + number, last + number + 1)
    sets = [
        trees.categories[start:stop]
        for start, stop in zip(
            trees.category_starts[first:last], trees.category_starts[first + 1 : last + 1], strict=True
        )
    ]
    categorical = trees.is_categorical[nodes]
    words = [_words(categories) for categories in sets if categories.size]
    threshold = trees.threshold[nodes].copy()
    threshold[categorical] = np.arange(len(words))
    missing = trees.missing[nodes]
    kind = np.where(missing & MISSING_ZERO, ZERO_MISSING, NAN_MISSING) << MISSING_KIND
    decision = np.where(missing & MISSING_LEFT, kind | DEFAULT_LEFT, kind)
    return _lines(
        {
            "num_leaves": int(last - first + 1),
            "num_cat": len(words),
            "split_feature": trees.feature[nodes],
            "split_gain": trees.gain[nodes],
            "threshold": threshold,
            "decision_type": np.where(categorical, CATEGORICAL, decision),
            "left_child": trees.left[nodes],
            "right_child": trees.right[nodes],
            "leaf_value": trees.value[leaves],
            **({"cat_boundaries": np.cumsum([0, *map(len, words)])} if words else {}),
            **({"cat_threshold": np.concatenate(words)} if words else {}),
            "is_linear": 0,
            "shrinkage": 1,
        }
    )


def _linear_lines(linear: LinearTerm) -> Iterator[str]:
    """Return the lines of a tree with one split, both of whose leaves are the same linear function."""
    used = np.flatnonzero(linear.weights)
    return _lines(
        {
            "num_leaves": 2,
            "num_cat": 0,
            "split_feature": 0,
            "split_gain": 0,
            "threshold": 0,
            "decision_type": NAN_MISSING << MISSING_KIND,
            "left_child": -1,
            "right_child": -2,
            "leaf_value": [0.0, 0.0],
            "is_linear": 1,
            "leaf_const": [linear.constant] * 2,
            "num_features": [used.size] * 2,
            "leaf_features": [*used, *used],
            "leaf_coeff": [*linear.weights[used]] * 2,
            "shrinkage": 1,
        }
    )


def _lines(content: dict[str, Any]) -> Iterator[str]:
    for name, value in content.items():
        values: Iterable[Any] = np.asarray(value).tolist() if np.ndim(value) else [value]
        yield f"{name}={' '.join(map(str, values))}\n"


def _words(categories: Integers) -> NDArray[np.uint32]:
    """Return a set of bits: bit c is set if c is one of the categories."""
    bits = np.zeros((int(categories[-1]) // WORD + 1) * WORD, dtype=np.uint8)
    bits[categories] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)
