"""A saved policy as an ONNX model, with a card in JSON beside it that says what it is."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import finite_number
from fultr.errors import FultrError, InputError
from fultr.files import atomic_write, write_text, written_together
from fultr.serving.export_trees import ML_DOMAIN, ML_OPSET, TREES, add_trees, linear_part, trees_of
from fultr.serving.light_policy import encoding_of, layers_of, load_policy, scorer_weights
from fultr.training.policy_fields import checked_scaling
from fultr.training.policy_files import PolicyFile, read_policy_file

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from fultr.policy.feature_encoding import FeatureEncoding

OPSET = 17
"""The version of ONNX's operators: old enough for runtimes of 2022 and later."""

IR_VERSION = 8
"""The version of ONNX's file format that came with these operators."""

FLOAT, BOOL = 1, 9
"""The numbers of types in ONNX."""

INTENDED_USE = (
    "Scores for one list of candidates at a time. Rankings are to be drawn from the Plackett-Luce model of"
    " the scores: add independent Gumbel noise to each score and sort. Sorting the scores themselves always"
    " shows the same items first, and undoes the fairness that the policy was trained for."
)


def export_onnx(policy: str | Path, out: str | Path) -> tuple[Path, Path]:
    """Write a linear policy, a network or trees as an ONNX model, and its card beside it; return both paths.

    The model takes `features`, (items, d) float32 in the order of its metadata `features`, and returns
    `scores`, (items). Scaling, hidden columns and the temperature are within. A policy with an offset for
    each group also takes `group`, (items) int64: the index in its metadata `groups`, -1 for an unknown one.
    A feature of categories is the index in its list of the metadata `categories`, -1 for another category;
    NaN is a missing value where the policy takes one.
    """
    out = Path(out)
    if out.suffix.lower() != ".onnx":
        raise InputError("an ONNX model is written to a .onnx file; name it so", file=out)
    load_policy(policy)  # refuses what cannot be scored without torch, and all damage
    file = read_policy_file(policy)
    model = _model(file).SerializeToString()
    card = model_card(file, hashlib.sha256(model).hexdigest())
    with written_together():
        with atomic_write(out) as temporary:
            temporary.write_bytes(model)
        text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
        beside = write_text(out.with_suffix(".card.json"), text)
    return out, beside


def model_card(file: PolicyFile, onnx_sha256: str | None = None) -> dict[str, Any]:
    """Return what is to be known of a policy: its training, limits, intervals, use, version and digests."""
    content = file.content
    names = ("max_disparity", "min_utility", "confidence", "fairness_weight", "fairness", "top_k")
    settings = content.get("settings", {})
    return {
        "kind": "fultr model card",
        "ranker": content.get("ranker", "FairRanker"),
        "model": content["model"],
        "intended_use": INTENDED_USE,
        "features": content["features"],
        "encoding": content.get("encoding"),
        "hidden_columns": content["hidden_columns"],
        "groups": content["groups"],
        "offsets": content.get("offsets", {}),
        "limits": {name: settings[name] for name in names if name in settings},
        "settings": settings,
        "position_bias": content.get("position_bias"),
        "noise": content.get("noise"),
        "trained": content.get("trained", {}),
        "validation": content.get("validation"),
        "intervals_on_new_queries": content.get("new_queries"),
        "training_queries": int(file.tensors["training_queries"].size)
        if "training_queries" in file.tensors
        else None,
        "fultr_version": file.fultr_version,
        "digests": {
            "policy_sha256": file.sha256,
            "onnx_sha256": onnx_sha256,
            "training_evidence": content.get("evidence"),
        },
    }


def _model(file: PolicyFile) -> ModelProto:
    try:
        from onnx import TensorProto, checker, helper
    except ImportError as error:
        raise FultrError("needs the package onnx: pip install 'fultr[onnx]'") from error
    content, offsets = file.content, file.content.get("offsets") or {}
    width = len(content["features"])
    graph = Graph()
    scores = _scores(graph, file)
    inputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["items", width])]
    if offsets:
        inputs.append(helper.make_tensor_value_info("group", TensorProto.INT64, ["items"]))
        # an index of -1 is the last, which is the 0 of items of no known group
        values = np.array([*(offsets[name] for name in content["groups"]), 0.0])
        scores = graph.add("Add", scores, graph.add("Gather", graph.constant(values), "group"))
    graph.add("Identity", scores, output="scores")
    output = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["items"])
    model = helper.make_model(
        helper.make_graph(graph.nodes, "fultr policy", inputs, [output], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(ML_DOMAIN, ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="fultr",
        producer_version=file.fultr_version,
    )
    about = {name: json.dumps(content[name], ensure_ascii=False) for name in ("features", "groups")}
    encoding = encoding_of(content)
    if encoding is not None:
        categories = {column.name: column.categories for column in encoding.columns if column.categories}
        about["categories"] = json.dumps(categories, ensure_ascii=False)
    helper.set_model_props(model, {**about, "policy_sha256": file.sha256, "intended_use": INTENDED_USE})
    checker.check_model(model, full_check=True)
    return model


class Graph:
    """Nodes and constants of an ONNX graph, each with a name of its own."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[Any] = []

    def constant(self, values: NDArray[Any]) -> str:
        """Add an array, as float32 if it holds floats."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        kind = np.float32 if np.issubdtype(values.dtype, np.floating) else values.dtype
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, kind), name))
        return name

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of what it computes."""
        from onnx import helper

        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name


def _scores(graph: Graph, file: PolicyFile) -> str:
    """Add what goes from `features` to scores, as the torch modules compute them; return the name."""
    content, encoding = file.content, encoding_of(file.content)
    rows = "features" if encoding is None else _encoded(graph, encoding)
    width = len(content["features"]) if encoding is None else len(encoding.output_names)
    mean, scale = checked_scaling(file.tensors, "scaling.", width)
    rows = graph.add("Div", graph.add("Sub", rows, graph.constant(mean)), graph.constant(scale))
    if content["hidden_columns"]:
        hidden = np.zeros(width, dtype=bool)
        hidden[content["hidden_columns"]] = True
        rows = graph.add("Where", graph.constant(hidden), graph.constant(np.zeros(1)), rows)
    if content["model"]["kind"] in TREES:
        scores = _scores_of_trees(graph, file, rows)
    else:
        scores = _scores_of_layers(graph, layers_of(content["model"], scorer_weights(file.tensors)), rows)
    shift = _number(content, "constant", 0.0)
    if shift:
        scores = graph.add("Add", scores, graph.constant(np.array(shift)))
    scores = graph.add("Div", scores, graph.constant(np.array(_number(content, "temperature", 1.0))))
    return graph.add("Sigmoid", scores) if content.get("probability") else scores


def _scores_of_layers(graph: Graph, layers: list[NDArray[Any]], rows: str) -> str:
    for weight, bias in zip(layers[:-1:2], layers[1:-1:2], strict=True):
        product = graph.add("MatMul", rows, graph.constant(weight.T))
        rows = graph.add("Relu", graph.add("Add", product, graph.constant(bias)))
    return graph.add("MatMul", rows, graph.constant(layers[-1][0]))


def _scores_of_trees(graph: Graph, file: PolicyFile, rows: str) -> str:
    scores, linear = add_trees(graph, trees_of(file), rows), linear_part(file)
    if linear is None:
        return scores
    product = graph.add("MatMul", rows, graph.constant(linear.weights))
    return graph.add("Add", graph.add("Add", scores, product), graph.constant(np.array(linear.constant)))


def _encoded(graph: Graph, encoding: FeatureEncoding) -> str:
    """Add what makes numbers of categories and missing values, as `FeatureEncoding.apply` does."""
    blocks = []
    for index, column in enumerate(encoding.columns):
        values = graph.add("Gather", "features", graph.constant(np.array([index])), axis=1)
        if encoding.missing == "native" or (column.categories and not encoding.one_hot):
            blocks.append(values)
            continue
        is_missing = graph.add("IsNaN", values)
        means = graph.constant(np.array([column.means]))
        indicator = encoding.missing == "indicator" and column.was_missing
        if column.categories:
            codes = graph.constant(np.arange(len(column.categories), dtype=np.float64)[None])
            is_code = graph.add("Equal", values, codes)
            ones = graph.add("Cast", is_code, to=FLOAT)
            is_known = graph.add("Cast", graph.add("ReduceMax", ones, axes=[1]), to=BOOL)
            block = graph.add("Where", is_known, ones, means)
            if indicator:
                block = graph.add("Where", is_missing, graph.constant(np.zeros((1, 1))), block)
        else:
            block = graph.add("Where", is_missing, means, values)
        blocks.append(block)
        if indicator:
            blocks.append(graph.add("Cast", is_missing, to=FLOAT))
    return graph.add("Concat", *blocks, axis=1)


def _number(content: Mapping[str, Any], name: str, default: float) -> float:
    given = content.get(name)
    return default if given is None else finite_number(given, name, -math.inf)
