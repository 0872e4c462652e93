"""What a ranker may be told: each setting by itself, before any data is seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import nn

from fultr.arguments import checked_number, names_of, number_array, one_of, whole_number
from fultr.click_model import ClickNoise
from fultr.clicks.examination import check_bias
from fultr.errors import InputError
from fultr.evaluation.bootstrap import checked_level
from fultr.policy.feature_encoding import MISSING
from fultr.training.task import ESTIMATORS
from fultr.training.tree_settings import TreeSettings

GOALS = ("fairness_weight", "max_disparity", "min_utility")
TREES = ("trees", "linear+trees")
MODELS = ("linear", "mlp", *TREES)
NATIVE_MODELS: tuple[str, ...] = ()
"""Models that take categories and missing values as they are: see `fultr.policy.feature_encoding`."""

NAMED_MODELS = ", ".join(f"'{name}'" for name in MODELS)
SWITCHES = ("utility_ips", "disparity_ips", "group_blind", "scale_features")


def check_settings(settings: dict[str, Any]) -> None:
    """Refuse settings of `FairRanker` that can be right for no data, and say what would be."""
    _check_goals(settings)
    _check_kinds(settings)
    whole_number(settings["seed"], "seed")
    for name in ("top_k", "depth"):
        if settings[name] is not None:
            whole_number(settings[name], name, least=1)
    positive = ("clip", "must be above 0", lambda got: got > 0)
    at_least = ("entropy_weight", "must be 0 or more", lambda got: 0 <= got < math.inf)
    for name, rule, holds in (positive, at_least):
        if settings[name] is not None:
            checked_number(settings[name], name, rule, holds)
    rule = "must be 0 or more and less than 1"
    if settings["valid_share"] is not None:
        checked_number(settings["valid_share"], "valid_share", rule, lambda got: 0 <= got < 1)
    if settings["l2"] is not None:
        costs = number_array(settings["l2"], "l2")
        if costs.ndim > 1 or not costs.size or not np.isfinite(costs).all() or (costs < 0).any():
            raise InputError(
                "must be one or more finite numbers, 0 or more", column="l2", value=settings["l2"]
            )
    _check_cross_fitting(settings)
    _check_utility(settings["utility"])
    for width in _widths(settings["hidden"]):
        whole_number(width, "hidden", least=1)


def _check_goals(settings: dict[str, Any]) -> None:
    given = {name: settings[name] for name in GOALS if settings[name] is not None}
    if len(given) > 1:
        raise InputError(f"give only one of {', '.join(GOALS)}", column=list(given)[1])
    for name, value in given.items():
        if name == "min_utility":
            checked_number(value, name, "must be a share above 0 and at most 1", lambda got: 0 < got <= 1)
        else:
            checked_number(value, name, "must be 0 or more", lambda got: 0 <= got < math.inf)
    protocol = settings["protocol"]
    one_of(protocol, "protocol", "exact", "paper")
    if protocol == "paper" and "fairness_weight" not in given and given:
        problem = "the paper's protocol trains for a fairness weight only ({fairness_weight})"
        raise InputError(problem, column=next(iter(given)), options=["fairness_weight"])


def _check_cross_fitting(settings: dict[str, Any]) -> None:
    fairness, confidence = settings["fairness"], settings["confidence"]
    if fairness not in ("training", "offsets"):
        raise InputError("must be 'training' or 'offsets'", column="fairness", value=fairness)
    if whole_number(settings["folds"], "folds", least=0) == 1:
        raise InputError("must be 2 or more, or 0 to leave out nothing", column="folds", value=1)
    if confidence is not None:
        checked_level(confidence, "confidence")
        if settings["max_disparity"] is None:
            problem = "is how sure a limit must hold; give one ({max_disparity})"
            raise InputError(problem, column="confidence", value=confidence, options=["max_disparity"])
    if fairness == "offsets" and settings["group_blind"]:
        problem = "offsets use the group of an item when it is ranked, which a group-blind policy must not"
        raise InputError(problem, column="fairness", value=fairness)
    if settings["protocol"] == "paper" and (confidence is not None or fairness == "offsets"):
        problem = "the paper's protocol knows neither offsets nor limits with confidence"
        column = "fairness" if confidence is None else "confidence"
        raise InputError(problem, column=column, value=settings[column])


def _check_kinds(settings: dict[str, Any]) -> None:
    model, bias, noise = (settings[name] for name in ("model", "position_bias", "noise"))
    if not isinstance(model, nn.Module) and model not in MODELS:
        raise InputError(f"must be {NAMED_MODELS} or a torch module", column="model", value=model)
    _check_trees(settings)
    _check_features(settings)
    check_bias(bias)
    if noise is not None and not isinstance(noise, ClickNoise):
        raise InputError("must be a ClickNoise", column="noise", value=noise)
    if settings["evidence"] not in list(ESTIMATORS):
        problem = f"must be one of {', '.join(ESTIMATORS)}"
        raise InputError(problem, column="evidence", value=settings["evidence"])
    if settings["evidence"] != "ips" and settings["protocol"] == "paper":
        problem = "the paper's protocol takes impressions one by one, and weighs clicks by 'ips' only"
        raise InputError(problem, column="evidence", value=settings["evidence"])
    for name in SWITCHES:
        value = settings[name]
        if not isinstance(value, (bool, np.bool_)) and not (name == "scale_features" and value is None):
            raise InputError("must be True or False", column=name, value=value)


def _check_features(settings: dict[str, Any]) -> None:
    missing, model = settings["missing"], settings["model"]
    if missing is not None:
        one_of(missing, "missing", *MISSING)
    if missing == "native" and not (isinstance(model, str) and model in NATIVE_MODELS):
        problem = "the model takes no missing values; use 'mean' or 'indicator'"
        raise InputError(problem, column="missing", value=missing)
    names_of(settings["categories"] or (), "categories")


def _check_trees(settings: dict[str, Any]) -> None:
    model, trees = settings["model"], settings["trees"]
    if not isinstance(trees, (TreeSettings, type(None))):
        raise InputError("must be TreeSettings", column="trees", value=trees)
    if model not in TREES:
        if trees is not None:
            names = " or ".join(f"'{name}'" for name in TREES)
            raise InputError(f"are settings of {names} ({{model}})", column="trees", options=["model"])
        return
    if settings["protocol"] == "paper":
        problem = "the paper's protocol has gradient steps for parameters, and cannot grow trees"
        raise InputError(problem, column="model", value=model)
    if model == "trees" and settings["l2"] is not None and np.size(settings["l2"]) > 1:
        problem = "of trees must be a single number, or left out: left-out clicks choose the number of trees"
        raise InputError(problem, column="l2", value=settings["l2"])
    if trees is not None and trees.monotone:
        moved = settings["fairness"] != "offsets" and settings["fairness_weight"] != 0
        if moved or model != "trees" or settings["l2"] is not None:
            problem = (
                "is kept only by trees alone that are trained for utility ({fairness_weight} 0) or made fair"
                " by offsets ({fairness} 'offsets'), without {l2}; anything else moves their leaves"
            )
            named = ["fairness_weight", "fairness", "l2"]
            raise InputError(problem, column="monotone", value=dict(trees.monotone), options=named)


def refuse_trees(model: Any, method: str) -> None:
    """Refuse a model of trees where a method trains parameters by small steps."""
    if isinstance(model, str) and model in TREES:
        raise InputError(f"{method} cannot grow trees; FairRanker does", column="model", value=model)


def _check_utility(utility: Any) -> None:
    if isinstance(utility, str) and utility in ("dcg", "average_rank"):
        return
    weights = None if isinstance(utility, str) or utility is None else number_array(utility, "utility")
    if weights is None or weights.ndim != 1 or not weights.size or not np.isfinite(weights).all():
        problem = "must be 'dcg', 'average_rank', or the weights of positions 1, 2, ..., all finite"
        raise InputError(problem, column="utility", value=utility)


def _widths(hidden: Any) -> tuple[Any, ...]:
    if hidden is None:
        return ()
    if isinstance(hidden, (str, bytes)) or not hasattr(hidden, "__iter__") or not len(hidden):
        problem = "must be the widths of one or more hidden layers, such as [64]"
        raise InputError(problem, column="hidden", value=hidden)
    return tuple(hidden)
