"""Trees of saved policies for others: ONNX's operator for tree ensembles, and LightGBM's text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.errors import InputError
from fultr.files import write_text
from fultr.policy.lightgbm_text import LinearTerm, lightgbm_text
from fultr.policy.trees import MISSING_LEFT, MISSING_ZERO, TREE_ARRAYS, Trees
from fultr.serving.light_policy import encoding_of, scorer_weights
from fultr.training.policy_fields import checked_scaling, checked_temperature
from fultr.training.policy_files import PolicyFile, read_policy_file

if TYPE_CHECKING:
    from fultr.serving.export import Graph

Array = NDArray[np.float64]

TREES = ("trees", "linear+trees")
ML_DOMAIN, ML_OPSET = "ai.onnx.ml", 3
"""The domain of ONNX's operators of machine learning, and their version."""


def trees_of(file: PolicyFile) -> Trees:
    """Return the trees of a policy."""
    weights = scorer_weights(file.tensors)
    prefix = "" if file.content["model"]["kind"] == "trees" else "trees."
    trees = Trees(**{name: weights[f"{prefix}{name}"] for name in TREE_ARRAYS})
    return trees.check(file.content["model"]["features"])


def linear_part(file: PolicyFile) -> LinearTerm | None:
    """Return the linear part of a policy, of features as the scorer gets them, if it has one."""
    if file.content["model"]["kind"] != "linear+trees":
        return None
    weights = scorer_weights(file.tensors)
    mean, scale = checked_scaling(weights, "linear.", file.content["model"]["features"])
    slopes = weights["linear.scorer.weight"].astype(np.float64) / scale
    constant = -float(slopes @ mean.astype(np.float64))
    slopes[file.content["hidden_columns"]] = 0.0
    return LinearTerm(constant, slopes)


def export_lightgbm(policy: str | Path, out: str | Path) -> Path:
    """Write a policy of trees as a model that LightGBM reads; its raw scores are those of the policy.

    Features are those that the scorer gets, in their order: for `missing="native"` as they are, categories as
    codes in the order of the training.
    """
    file = read_policy_file(policy)
    kind, content = file.content["model"]["kind"], file.content
    if kind not in TREES:
        raise InputError("only trees can be written for LightGBM", file=policy, value=kind)
    if content.get("offsets"):
        problem = "adds a number to the scores of each group, which LightGBM has no place for"
        raise InputError(problem, file=policy, column="offsets")
    temperature = checked_temperature(content.get("temperature", 1.0))
    trees, linear = trees_of(file), linear_part(file)
    scaled = Trees(**{**trees.to_tensors(), "value": trees.value / temperature})
    if linear is not None:
        linear = LinearTerm(linear.constant / temperature, linear.weights / temperature)
    encoding = encoding_of(content)
    names = content["features"] if encoding is None else list(encoding.output_names)
    return write_text(out, lightgbm_text(scaled, names, linear))


def add_trees(graph: Graph, trees: Trees, rows: str) -> str:
    """Add what goes from rows of features to the scores of trees; return the name, (items,)."""
    from onnx import helper

    if ((trees.missing & MISSING_ZERO) > 0).any():
        raise InputError("trees for which 0 is missing have no counterpart in ONNX", column="trees")
    feature, threshold = trees.feature.copy(), float32_below(trees.threshold)
    width = int(feature.max(initial=-1)) + 1
    categorical = np.flatnonzero(trees.is_categorical)
    if categorical.size:
        # a column of 0 and 1 for each set of categories: 0 is inside, and goes to the left
        blocks = [graph.add("Gather", rows, graph.constant(np.arange(width)), axis=1)]
        blocks += [_outside(graph, trees, int(node), rows) for node in categorical]
        rows = graph.add("Concat", *blocks, axis=1)
        feature[categorical], threshold[categorical] = width + np.arange(categorical.size), 0.5
    if not len(trees):
        zeros = graph.constant(np.zeros(1))
        return graph.add(
            "Mul", graph.add("ReduceSum", rows, graph.constant(np.array([1])), keepdims=0), zeros
        )
    attributes = tree_attributes(trees, feature, threshold)
    node = helper.make_node("TreeEnsembleRegressor", [rows], ["tree_scores"], domain=ML_DOMAIN, **attributes)
    graph.nodes.append(node)
    return graph.add("Squeeze", "tree_scores", graph.constant(np.array([1])))


def _outside(graph: Graph, trees: Trees, node: int, rows: str) -> str:
    """Add a column that is 1 where the category of a row is none of those of a node."""
    first, last = trees.category_starts[node : node + 2]
    codes = graph.constant(trees.categories[first:last].astype(np.float64)[None])
    values = graph.add("Gather", rows, graph.constant(trees.feature[node : node + 1]), axis=1)
    inside = graph.add("ReduceMax", graph.add("Cast", graph.add("Equal", values, codes), to=1), axes=[1])
    return graph.add("Sub", graph.constant(np.ones((1, 1))), inside)


def float32_below(values: Array) -> NDArray[np.float32]:
    """Return the largest float32 up to each value: a feature of float32 is at most the one as the other."""
    limit = np.finfo(np.float32).max
    rounded = np.clip(values, -limit, limit).astype(np.float32)
    above = rounded.astype(np.float64) > values
    return np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def tree_attributes(
    trees: Trees, feature: NDArray[np.int64], threshold: NDArray[np.float32]
) -> Mapping[str, Any]:
    """Return the attributes of ONNX's `TreeEnsembleRegressor`; leaves are numbered after a tree's nodes."""
    sizes = np.diff(trees.starts)
    tree_of_node, tree_of_leaf = (np.repeat(np.arange(len(trees)), counts) for counts in (sizes, sizes + 1))
    node = np.arange(feature.size) - trees.starts[:-1][tree_of_node]
    leaf = np.arange(tree_of_leaf.size) - trees.leaf_starts[:-1][tree_of_leaf] + sizes[tree_of_leaf]
    inside = sizes[tree_of_node]
    left, right = (np.where(child >= 0, child, inside - 1 - child) for child in (trees.left, trees.right))
    nothing, leaves = np.zeros(leaf.size, dtype=np.int64), trees.value.size
    missing_left = np.where(trees.is_categorical, 0, trees.missing & MISSING_LEFT)
    tree = np.concatenate([tree_of_node, tree_of_leaf])
    number = np.concatenate([node, leaf])
    order = np.lexsort([number, tree])  # runtimes take the nodes of a tree to stand together

    def ordered(of_nodes: NDArray[Any], of_leaves: NDArray[Any] = nothing) -> list[Any]:
        return list(np.concatenate([of_nodes, of_leaves])[order].tolist())

    return {
        "n_targets": 1,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
        "nodes_treeids": tree[order].tolist(),
        "nodes_nodeids": number[order].tolist(),
        "nodes_featureids": ordered(feature),
        "nodes_values": ordered(threshold, nothing.astype(np.float32)),
        "nodes_modes": ordered(np.full(feature.size, "BRANCH_LEQ"), np.full(leaves, "LEAF")),
        "nodes_truenodeids": ordered(left),
        "nodes_falsenodeids": ordered(right),
        "nodes_missing_value_tracks_true": ordered(missing_left),
        "target_treeids": tree_of_leaf.tolist(),
        "target_nodeids": leaf.tolist(),
        "target_ids": [0] * leaves,
        "target_weights": trees.value.astype(np.float32).tolist(),
    }
