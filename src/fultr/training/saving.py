"""Saved policies: a trained ranker as one file, and back."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fultr.arguments import finite_number, number_array
from fultr.click_model import ClickNoise, PositionBias
from fultr.errors import InputError
from fultr.policy import (
    GroupBlind,
    LinearScorer,
    MLPScorer,
    Probability,
    Shifted,
    SummedScorer,
    Trees,
    TreeScorer,
)
from fultr.policy.feature_encoding import EncodedColumn, FeatureEncoding
from fultr.policy.trees import TREE_ARRAYS
from fultr.training.fair_ranker import FairRanker
from fultr.training.policy_fields import (
    checked_hidden,
    checked_names,
    checked_offsets,
    checked_scaling,
    checked_temperature,
    checked_widths,
)
from fultr.training.policy_files import read_policy_file, write_policy_file
from fultr.training.ranker import TrainableRanker
from fultr.training.scaling import ScaledScorer, Scaling
from fultr.training.tree_settings import TreeSettings

ADDED = {
    "evidence": "ips",
    "confidence": None,
    "fairness": "training",
    "folds": 0,
    "trees": None,
    "missing": None,
    "categories": None,
}
"""Settings that were added later, and what policies that were saved before have been trained with."""


RANKERS = {
    "FairRanker": "fultr.training.fair_ranker",
    "ClickSVMRank": "fultr.baselines.svm_rank",
    "EquityOfAttention": "fultr.baselines.equity_of_attention",
    "ExposureLP": "fultr.baselines.exposure_lp",
    "FairCo": "fultr.baselines.fairco",
    "FairPGRank": "fultr.baselines.fair_pg_rank",
    "LambdaRank": "fultr.baselines.lambda_rank",
    "PGRank": "fultr.baselines.pg_rank",
    "PropensitySVMRank": "fultr.baselines.svm_rank",
    "RelevanceRegression": "fultr.baselines.relevance",
}
"""The rankers that files may hold, and the modules that they are defined in."""

TRAINED = ("l2", "multiplier", "training_utility", "training_disparity")
"""What `FairRanker` says of its training; other rankers say some of it."""

FURTHER = ("gap", "epochs")
"""What other rankers say of their training besides."""


def save(ranker: TrainableRanker, path: str | Path) -> Path:
    """Write a trained ranker: weights, features and their scaling, groups, position bias, noise, settings.

    A scorer of your own is written as its weights; give the module again when loading.
    """
    kind = type(ranker).__name__
    if not isinstance(ranker, TrainableRanker) or RANKERS.get(kind) != type(ranker).__module__:
        problem = f"can be saved if it is one of {', '.join(RANKERS)}"
        raise InputError(problem, column="ranker", value=kind)
    scorer = ranker.fitted_scorer()
    probability = isinstance(scorer, Probability)
    scorer = scorer.scorer if probability else scorer
    inner = scorer.scorer
    blind = inner.columns if isinstance(inner, GroupBlind) else ()
    inner = inner.scorer if isinstance(inner, GroupBlind) else inner
    constant = float(inner.constant) if isinstance(inner, Shifted) else None
    inner = inner.scorer if isinstance(inner, Shifted) else inner
    tensors = {"scaling.mean": scorer.mean.numpy(), "scaling.scale": scorer.scale.numpy()}
    tensors["training_queries"] = ranker.training_queries_
    for name, tensor in inner.state_dict().items():
        tensors[f"scorer.{name}"] = tensor.detach().cpu().numpy()
    bias = ranker.position_bias_
    # what only a `FairRanker` says; another ranker that was trained as one may have it too
    names = ("noise_", "bias_context_", "new_queries_", "validation_")
    noise, context, new_queries, validation = (
        getattr(ranker, name, None) if kind == "FairRanker" else None for name in names
    )
    content = {
        "ranker": kind,
        "model": _describe(inner),
        "probability": probability,
        "constant": constant,
        "hidden_columns": [int(column) for column in blind],
        "features": list(ranker.encoding_.names),
        **({} if ranker.encoding_.is_identity else {"encoding": ranker.encoding_.to_dict()}),
        "groups": list(ranker.group_names_),
        "position_bias": None if bias is None else {**bias.to_dict(), "context": context},
        "noise": None if noise is None else noise.to_dict(),
        "settings": _settings(ranker),
        "trained": {
            name: _plain(getattr(ranker, f"{name}_"))
            for name in (*TRAINED, *FURTHER)
            if hasattr(ranker, f"{name}_")
        },
        "temperature": float(scorer.temperature),
        "offsets": ranker.offsets_,
        "new_queries": new_queries,
        "validation": validation,
        "evidence": None if ranker.training_evidence_ is None else list(ranker.training_evidence_),
    }
    return write_policy_file(path, tensors, content)


def load_ranker(path: str | Path, module: nn.Module | None = None) -> Any:
    """Read a trained ranker, of the class that was saved.

    No code is run from the file, and any damage to it is noticed. `module` is needed for a scorer of your
    own: it takes over the weights in the file.
    """
    file = read_policy_file(path)
    try:
        return _ranker_of(file.content, file.tensors, module)
    except InputError as error:
        raise error.located(path) from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        problem = f"is not a policy that this version can read ({type(error).__name__}: {error})"
        raise InputError(problem, file=path) from error


load = load_ranker
"""`load_ranker` by its short name, beside `save`."""


def _settings(ranker: TrainableRanker) -> dict[str, Any]:
    given = ranker.get_params(deep=False)
    settings = {
        name: _plain(value) for name, value in given.items() if name not in ("position_bias", "noise")
    }
    if "utility" in settings and not isinstance(ranker.utility, str):
        settings["utility"] = np.asarray(ranker.utility, dtype=float).tolist()
    if isinstance(settings.get("model"), nn.Module):
        settings["model"] = "module"
    if settings.get("trees") is not None:
        settings["trees"] = settings["trees"].to_dict()
    return settings


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _describe(scorer: nn.Module) -> dict[str, Any]:
    if isinstance(scorer, LinearScorer):
        return {"kind": "linear", "features": scorer.features}
    if isinstance(scorer, MLPScorer):
        return {"kind": "mlp", "features": scorer.features, "hidden": list(scorer.hidden)}
    if isinstance(scorer, TreeScorer):
        return {"kind": "trees", "features": scorer.features}
    if isinstance(scorer, SummedScorer):
        return {"kind": "linear+trees", "features": scorer.trees.features}
    return {"kind": "module", "name": type(scorer).__name__}


def _ranker_of(content: dict[str, Any], tensors: dict[str, NDArray[Any]], module: nn.Module | None) -> Any:
    features = checked_names(content["features"], "features")
    groups = checked_names(content["groups"], "groups")
    encoding = _encoding_of(content, features)
    inputs = len(encoding.output_names)
    inner = _scorer_of(content["model"], inputs, tensors, module)
    bias = None if content["position_bias"] is None else PositionBias.from_dict(content["position_bias"])
    noise = None if content["noise"] is None else ClickNoise.from_dict(content["noise"])
    ranker = _untrained(content, inner, bias, noise)
    ranker.scorer_ = _scaled(content, inner, tensors, inputs)
    ranker.offsets_ = checked_offsets(content.get("offsets", {}), groups)
    ranker.position_bias_ = bias
    ranker.group_names_ = tuple(groups)
    ranker.set_encoding(encoding)
    ranker.training_queries_ = tensors["training_queries"]
    if ranker.training_queries_.ndim != 1 or ranker.training_queries_.dtype != np.int64:
        raise InputError("must be a row of integers", column="training_queries")
    # policies that were saved before there were digests of what they were trained on have none
    evidence = content.get("evidence")
    ranker.training_evidence_ = None if evidence is None else tuple(checked_names(evidence, "evidence"))
    is_fair = type(ranker) is FairRanker
    trained = content["trained"]
    for name in TRAINED if is_fair else sorted(trained):
        if name not in (*TRAINED, *FURTHER):
            raise InputError("says of its training what no ranker does", column=f"trained.{name}")
        number = finite_number(trained[name], f"trained.{name}", -math.inf)
        setattr(ranker, f"{name}_", int(number) if name == "epochs" else number)
    if is_fair:
        _tell_of_training(ranker, content, noise)
    ranker.restore()
    return ranker


def _encoding_of(content: dict[str, Any], features: list[str]) -> FeatureEncoding:
    """Return what the policy makes of features; those of most policies stay as they are."""
    if "encoding" not in content:
        return FeatureEncoding(tuple(map(EncodedColumn, features)))
    encoding = FeatureEncoding.from_dict(content["encoding"])
    if list(encoding.names) != features:
        raise InputError("must be of the features of the policy", column="encoding")
    return encoding


def _untrained(
    content: dict[str, Any], inner: nn.Module, bias: PositionBias | None, noise: ClickNoise | None
) -> Any:
    """Return the ranker with its settings, which it checks."""
    kind = content.get("ranker", "FairRanker")  # all were, before others could be saved
    if kind not in RANKERS:
        raise InputError(f"must be one of {', '.join(RANKERS)}", column="ranker", value=kind)
    ranker_class = getattr(importlib.import_module(RANKERS[kind]), kind)
    saved = dict(content["settings"])
    defaults = ranker_class().get_params(deep=False)
    if ranker_class is FairRanker:
        saved = {**ADDED, **saved, "noise": noise}
        if bias is None:
            raise InputError("must be that of the clicks it was trained on", column="position_bias")
    settings = {name: saved[name] for name in defaults if name != "position_bias"}
    if isinstance(settings.get("utility"), list):
        settings["utility"] = number_array(settings["utility"], "utility").astype(np.float64)
    if settings.get("model") == "module":
        settings["model"] = inner
    if settings.get("trees") is not None:
        settings["trees"] = TreeSettings.from_dict(settings["trees"])
    ranker = ranker_class(**settings, position_bias=bias)
    ranker.check()
    return ranker


def _scaled(
    content: dict[str, Any], inner: nn.Module, tensors: dict[str, NDArray[Any]], features: int
) -> nn.Module:
    """Return the scorer of features as they are given."""
    blind = checked_hidden(content["hidden_columns"], features)
    scaling = _scaling(tensors, "scaling.", features)
    temperature = checked_temperature(content.get("temperature", 1.0))
    constant, probability = content.get("constant"), content.get("probability", False)
    if type(probability) is not bool:
        raise InputError("must be true or false", column="probability", value=probability)
    if constant is not None:
        inner = Shifted(inner, finite_number(constant, "constant", -math.inf))
    scorer: nn.Module = ScaledScorer(GroupBlind(inner, blind) if blind else inner, scaling, temperature)
    return (Probability(scorer) if probability else scorer).requires_grad_(False)


def _tell_of_training(ranker: FairRanker, content: dict[str, Any], noise: ClickNoise | None) -> None:
    """Give a `FairRanker` what only it says of its training."""
    ranker.noise_ = noise
    ranker.new_queries_ = _new_queries(content.get("new_queries"))
    ranker.bias_context_ = content["position_bias"].get("context")
    if not isinstance(ranker.bias_context_, (str, type(None))):
        raise InputError("must be the name of a column", column="context", value=ranker.bias_context_)
    ranker.validation_ = content["validation"]
    if ranker.validation_ is not None and not isinstance(ranker.validation_, dict):
        raise InputError("must be null or the measures by name", column="validation")


def _new_queries(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    names = ("utility", "disparity")
    if not isinstance(given, dict) or set(given) != {"confidence", *names}:
        raise InputError("must be null or the measures on new queries", column="new_queries", value=given)
    confidence = finite_number(given["confidence"], "new_queries.confidence", 0.0)
    checked: dict[str, Any] = {"confidence": confidence}
    for name in names:
        if not isinstance(given[name], list) or len(given[name]) != 3:
            raise InputError("must be a value and its interval", column=f"new_queries.{name}")
        checked[name] = [finite_number(number, f"new_queries.{name}", -math.inf) for number in given[name]]
    return checked


def _scorer_of(
    about: dict[str, Any], features: int, tensors: dict[str, NDArray[Any]], module: nn.Module | None
) -> nn.Module:
    prefix = "scorer."
    weights = {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
    kind = about["kind"]
    if kind != "module" and about["features"] != features:
        raise InputError("must be the number of features", column="model.features", value=about["features"])
    scorer: nn.Module
    if kind == "linear":
        scorer = LinearScorer(features)
    elif kind == "mlp":
        hidden = checked_widths(about["hidden"], features, sum(value.size for value in weights.values()))
        scorer = MLPScorer(features, hidden)
    elif kind == "trees":
        scorer = _trees_of(weights, features)
    elif kind == "linear+trees":
        linear = ScaledScorer(LinearScorer(features), _scaling(weights, "linear.", features))
        nodes = {name: weights[f"trees.{name}"] for name in TREE_ARRAYS}
        scorer = SummedScorer(linear, _trees_of(nodes, features))
    elif kind == "module":
        if module is None:
            problem = f"the scorer is a module of your own, {about['name']}; give it ({{module}})"
            raise InputError(problem, column="model", options=["module"])
        scorer = module
    else:
        raise InputError(
            "must be 'linear', 'mlp', 'trees', 'linear+trees' or 'module'", column="model.kind", value=kind
        )
    expected_shapes = {name: tuple(value.shape) for name, value in scorer.state_dict().items()}
    shapes = {name: value.shape for name, value in weights.items()}
    if expected_shapes != shapes:
        name = next(iter(sorted(set(expected_shapes.items()) ^ set(shapes.items()))))[0]
        raise InputError("the weights in the file do not fit the scorer", column=f"scorer.{name}")
    for name, value in weights.items():
        same_kind = np.issubdtype(value.dtype, np.floating) == scorer.state_dict()[name].is_floating_point()
        if not same_kind or not np.isfinite(value).all():
            raise InputError("weights must be finite numbers", column=f"scorer.{name}")
    scorer.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    return scorer


def _trees_of(tensors: dict[str, NDArray[Any]], features: int) -> TreeScorer:
    return TreeScorer(features, Trees(**{name: tensors[name] for name in TREE_ARRAYS}))


def _scaling(tensors: dict[str, NDArray[Any]], prefix: str, features: int) -> Scaling:
    return Scaling(*checked_scaling(tensors, prefix, features))
