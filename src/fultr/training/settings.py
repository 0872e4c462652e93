"""What a ranker may be told: each setting by itself, before any data is seen."""

from __future__ import annotations

import math
from collections.abc import Callable
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
NATIVE_MODELS = ("trees",)
"""Models that take categories and missing values as they are: see `fultr.policy.feature_encoding`."""

NAMED_MODELS = ", ".join(f"'{name}'" for name in MODELS)

Check = Callable[[Any, str], object]
"""Refuses a value of a setting, given the name of the setting."""


def check_each(settings: dict[str, Any]) -> None:
    """Refuse settings that can be right for no data, each by itself, and say what would be.

    A ranker has those that it has: the same name means the same in all of them. What goes together is for
    the ranker to check.
    """
    for name, value in settings.items():
        check = CHECKS.get(name)
        if check is not None and (value is not None or name in NEVER_NONE):
            check(value, name)


def check_together(settings: dict[str, Any]) -> None:
    """Refuse settings of `FairRanker` that do not go together."""
    _check_goals(settings)
    _check_evidence(settings)
    _check_trees(settings)
    _check_features(settings)
    _check_cross_fitting(settings)


def _check_goals(settings: dict[str, Any]) -> None:
    given = [name for name in GOALS if settings[name] is not None]
    if len(given) > 1:
        raise InputError(f"give only one of {', '.join(GOALS)}", column=given[1])
    if settings["protocol"] == "paper" and given and given != ["fairness_weight"]:
        problem = "the paper's protocol trains for a fairness weight only ({fairness_weight})"
        raise InputError(problem, column=given[0], options=["fairness_weight"])


def _check_evidence(settings: dict[str, Any]) -> None:
    if settings["evidence"] != "ips" and settings["protocol"] == "paper":
        problem = "the paper's protocol takes impressions one by one, and weighs clicks by 'ips' only"
        raise InputError(problem, column="evidence", value=settings["evidence"])


def _check_cross_fitting(settings: dict[str, Any]) -> None:
    fairness, confidence = settings["fairness"], settings["confidence"]
    if confidence is not None and settings["max_disparity"] is None:
        problem = "is how sure a limit must hold; give one ({max_disparity})"
        raise InputError(problem, column="confidence", value=confidence, options=["max_disparity"])
    if fairness == "offsets" and settings["group_blind"]:
        problem = "offsets use the group of an item when it is ranked, which a group-blind policy must not"
        raise InputError(problem, column="fairness", value=fairness)
    if settings["protocol"] == "paper" and (confidence is not None or fairness == "offsets"):
        problem = "the paper's protocol knows neither offsets nor limits with confidence"
        column = "fairness" if confidence is None else "confidence"
        raise InputError(problem, column=column, value=settings[column])


def _check_features(settings: dict[str, Any]) -> None:
    missing, model = settings["missing"], settings["model"]
    if missing == "native" and not (isinstance(model, str) and model in NATIVE_MODELS):
        problem = "the model takes no missing values; use 'mean' or 'indicator'"
        raise InputError(problem, column="missing", value=missing)


def _check_trees(settings: dict[str, Any]) -> None:
    model, trees = settings["model"], settings["trees"]
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


def check_not_trees(model: Any, method: str) -> None:
    """Refuse a model of trees where a method trains parameters by small steps."""
    if isinstance(model, str) and model in TREES:
        raise InputError(f"{method} cannot grow trees; FairRanker does", column="model", value=model)


def _check_model(model: Any, name: str) -> None:
    if not isinstance(model, nn.Module) and model not in MODELS:
        raise InputError(f"must be {NAMED_MODELS} or a torch module", column=name, value=model)


def _check_noise(noise: Any, name: str) -> None:
    if not isinstance(noise, ClickNoise):
        raise InputError("must be a ClickNoise", column=name, value=noise)


def _check_tree_settings(trees: Any, name: str) -> None:
    if not isinstance(trees, TreeSettings):
        raise InputError("must be TreeSettings", column=name, value=trees)


def _check_switch(value: Any, name: str) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise InputError("must be True or False", column=name, value=value)


def _check_estimator(evidence: Any, name: str) -> None:
    if evidence not in list(ESTIMATORS):
        raise InputError(f"must be one of {', '.join(ESTIMATORS)}", column=name, value=evidence)


def _check_folds(folds: Any, name: str) -> None:
    if whole_number(folds, name, least=0) == 1:
        raise InputError("must be 2 or more, or 0 to leave out nothing", column=name, value=1)


def _check_costs(l2: Any, name: str) -> None:
    costs = number_array(l2, name)
    if costs.ndim > 1 or not costs.size or not np.isfinite(costs).all() or (costs < 0).any():
        raise InputError("must be one or more finite numbers, 0 or more", column=name, value=l2)


def _check_utility(utility: Any, name: str) -> None:
    if isinstance(utility, str) and utility in ("dcg", "average_rank"):
        return
    weights = None if isinstance(utility, str) or utility is None else number_array(utility, name)
    if weights is None or weights.ndim != 1 or not weights.size or not np.isfinite(weights).all():
        problem = "must be 'dcg', 'average_rank', or the weights of positions 1, 2, ..., all finite"
        raise InputError(problem, column=name, value=utility)


def _check_widths(hidden: Any, name: str) -> None:
    if isinstance(hidden, (str, bytes)) or not hasattr(hidden, "__iter__") or not len(hidden):
        problem = "must be the widths of one or more hidden layers, such as [64]"
        raise InputError(problem, column=name, value=hidden)
    for width in hidden:
        whole_number(width, name, least=1)


def _is_one_of(*choices: str) -> Check:
    return lambda value, name: one_of(value, name, *choices)


def _is_number(rule: str, holds: Callable[[float], bool]) -> Check:
    def check(value: Any, name: str) -> None:
        checked_number(value, name, rule, holds)

    return check


def _is_whole(least: int | None = None) -> Check:
    def check(value: Any, name: str) -> None:
        whole_number(value, name) if least is None else whole_number(value, name, least=least)

    return check


NOT_NEGATIVE = _is_number("must be 0 or more", lambda got: 0 <= got < math.inf)

CHECKS: dict[str, Check] = {
    "fairness_weight": NOT_NEGATIVE,
    "max_disparity": NOT_NEGATIVE,
    "min_utility": _is_number("must be a share above 0 and at most 1", lambda got: 0 < got <= 1),
    "confidence": checked_level,
    "fairness": _is_one_of("training", "offsets"),
    "model": _check_model,
    "hidden": _check_widths,
    "trees": _check_tree_settings,
    "position_bias": lambda bias, _name: check_bias(bias),
    "noise": _check_noise,
    "utility": _check_utility,
    "top_k": _is_whole(least=1),
    "depth": _is_whole(least=1),
    "utility_ips": _check_switch,
    "disparity_ips": _check_switch,
    "clip": _is_number("must be above 0", lambda got: got > 0),
    "evidence": _check_estimator,
    "group_blind": _check_switch,
    "missing": _is_one_of(*MISSING),
    "categories": names_of,
    "l2": _check_costs,
    "entropy_weight": NOT_NEGATIVE,
    "scale_features": _check_switch,
    "protocol": _is_one_of("exact", "paper"),
    "folds": _check_folds,
    "valid_share": _is_number("must be 0 or more and less than 1", lambda got: 0 <= got < 1),
    "seed": _is_whole(),
}
"""What each setting must be by itself, whatever ranker has it."""

NEVER_NONE = (
    "fairness",
    "model",
    "utility",
    "utility_ips",
    "disparity_ips",
    "evidence",
    "group_blind",
    "protocol",
    "folds",
    "seed",
)
"""Settings that None stands for nothing in."""
