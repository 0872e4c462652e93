"""Saved policies: what comes back, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

import fultr
from fultr import ClickLog, ClickNoise, FairRanker, InputError, PositionBias, TreeSettings
from fultr.training.policy_files import read_policy_file, write_policy_file
from tests.mutations import mutations
from tests.ranker_contract import lists as learnable
from tests.training_tasks import random_log

NOISE = ClickNoise(0.9, [0.3, 0.2, 0.1])


class Own(nn.Module):
    """A scorer with a buffer, in double precision nowhere, and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 1)
        self.norm = nn.BatchNorm1d(3)
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters()):
                parameter.copy_(
                    torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape) + number / 10
                )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.norm(self.first(features))))  # type: ignore[no-any-return]


TREES = TreeSettings(rounds=10, min_rows=5, leaves=4, learning_rate=0.2)
FORMS: dict[str, dict[str, Any]] = {
    "linear": {"fairness_weight": 2.0, "l2": [0.01, 0.1]},
    "mlp": {"model": "mlp", "hidden": (3, 2), "l2": 0.01, "seed": 5},
    "group-blind": {"group_blind": True, "l2": 0.01, "min_utility": 0.95},
    "group-blind mlp": {"group_blind": True, "model": "mlp", "l2": 0.01},
    "module": {"model": Own(), "l2": 0.01},
    "limited": {
        "max_disparity": np.float64(0.1),
        "l2": np.array([0.01]),
        "clip": 3.0,
        "top_k": 4,
        "evidence": "doubly_robust",
    },
    "own utility": {"utility": np.linspace(1, 0, 6), "l2": 0.01, "utility_ips": False, "folds": 0},
    "trees": {"model": "trees", "trees": TREES, "fairness_weight": 3.0},
    "group-blind linear+trees": {
        "model": "linear+trees",
        "trees": replace(TREES, interactions=[["1", "2"]]),
        "group_blind": True,
        "max_disparity": 0.2,
    },
    "full scale": {"scale_features": False, "l2": 0.01, "entropy_weight": 0.1},
}


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return random_log(learnable(), impressions=400, noise=NOISE)


@pytest.fixture(scope="module")
def trained(log: ClickLog) -> dict[str, FairRanker]:
    return {name: FairRanker(**settings).fit(log) for name, settings in FORMS.items()}


@pytest.fixture
def saved(trained: dict[str, FairRanker], tmp_path: Path) -> Path:
    return fultr.save(trained["group-blind mlp"], tmp_path / "policy")


def bits(values: Any) -> bytes:
    return np.asarray(values, dtype=np.float64).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_policy_comes_back_to_the_last_bit(
    trained: dict[str, FairRanker], log: ClickLog, tmp_path: Path, form: str
) -> None:
    ranker, test = trained[form], learnable(seed=9)
    path = fultr.save(ranker, tmp_path / "policy")
    module = Own() if form == "module" else None
    loaded = fultr.load(path, module) if module else fultr.load(path)
    assert bits(loaded.predict(test)) == bits(ranker.predict(test))
    np.testing.assert_array_equal(loaded.rank(test), ranker.rank(test))
    np.testing.assert_array_equal(
        loaded.sample_rankings(test, 3, seed=1), ranker.sample_rankings(test, 3, seed=1)
    )
    assert loaded.position_bias_ == ranker.position_bias_ == log.position_bias
    assert loaded.noise_ == ranker.noise_ == NOISE
    for name in (
        "l2_",
        "multiplier_",
        "training_utility_",
        "training_disparity_",
        "group_names_",
        "validation_",
    ):
        assert getattr(loaded, name) == getattr(ranker, name), name
    np.testing.assert_array_equal(loaded.training_queries_, ranker.training_queries_)
    assert loaded.feature_names_in_.tolist() == ranker.feature_names_in_.tolist()
    assert loaded.n_features_in_ == 4
    assert loaded.evaluate(test, intervals=None).to_dict() == ranker.evaluate(test, intervals=None).to_dict()
    # and once more, to the same bytes
    assert fultr.save(loaded, tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("form", [form for form in FORMS if form != "module"])
def test_settings_come_back_and_train_the_same_policy(
    trained: dict[str, FairRanker], log: ClickLog, tmp_path: Path, form: str
) -> None:
    ranker = trained[form]
    loaded = fultr.load(fultr.save(ranker, tmp_path / "policy"))
    for name, value in ranker.get_params().items():
        if name not in ("position_bias", "noise"):
            np.testing.assert_array_equal(getattr(loaded, name), value, err_msg=name)
    assert loaded.position_bias == ranker.position_bias_
    assert loaded.noise == ranker.noise_
    assert bits(loaded.fit(log).predict(log.data)) == bits(ranker.predict(log.data))


def test_any_position_bias_travels(log: ClickLog, tmp_path: Path) -> None:
    for bias in (
        PositionBias([1, 0.5, 0.3, 0.2, 0.1, 0.05], beyond="zero"),
        PositionBias([0.9, 0.5, 0.3], beyond=0.7),
        PositionBias((1 / np.arange(1, 7) ** 0.3).tolist()),
    ):
        ranker = FairRanker(1.0, position_bias=bias, l2=0.01).fit(log)
        assert fultr.load(fultr.save(ranker, tmp_path / "policy")).position_bias_ == bias


def test_labelled_lists_leave_no_noise(tmp_path: Path) -> None:
    ranker = FairRanker(1.0, position_bias=PositionBias.power(1.0), l2=0.01).fit(learnable())
    assert fultr.load(fultr.save(ranker, tmp_path / "policy")).noise_ is None


def test_untrained_rankers_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        fultr.save(FairRanker(1.0), tmp_path / "policy")
    assert not list(tmp_path.iterdir())


def test_modules_must_be_given_again(trained: dict[str, FairRanker], tmp_path: Path) -> None:
    path = fultr.save(trained["module"], tmp_path / "policy")
    with pytest.raises(InputError, match="a module of your own, Own; give it"):
        fultr.load(path)
    with pytest.raises(InputError, match="do not fit the scorer"):
        fultr.load(path, nn.Linear(4, 1))


def test_nothing_of_a_policy_can_be_trained_by_accident(
    trained: dict[str, FairRanker], tmp_path: Path
) -> None:
    for form, ranker in trained.items():
        module = Own() if form == "module" else None
        for policy in (ranker, fultr.load(fultr.save(ranker, tmp_path / "policy"), module)):
            assert not any(parameter.requires_grad for parameter in policy.scorer_.parameters())


# --- files that are not what they say ---


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """Write a policy again, with the right checksum, after a change of its tensors and content."""
    file = read_policy_file(path)
    tensors, content = dict(file.tensors), json.loads(json.dumps(file.content))
    change(tensors, content)
    return write_policy_file(path, tensors, content)


def put(*place: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Return a change that puts a value, the last argument, at a place of the content."""

    def change(_tensors: dict[str, Any], content: dict[str, Any]) -> None:
        where: Any = content
        for key in place[:-2]:
            where = where[key]
        where[place[-2]] = place[-1]

    return change


def put_tensor(name: str, values: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(tensors: dict[str, Any], _content: dict[str, Any]) -> None:
        tensors[name] = values(tensors[name]) if callable(values) else values

    return change


CHANGES: dict[str, Any] = {
    "no model": lambda _tensors, content: content.pop("model"),
    "no settings": lambda _tensors, content: content.pop("settings"),
    "no mean": lambda tensors, _content: tensors.pop("scaling.mean"),
    "a layer less": lambda tensors, _content: tensors.pop("scorer.layers.2.weight"),
    "a layer more": put_tensor("scorer.layers.9.weight", np.ones(3, np.float32)),
    "another kind": put("model", "kind", "forest"),
    "another width": put("model", "features", 5),
    "no width": put("model", "hidden", []),
    "a huge width": put("model", "hidden", [10**9]),
    "widths of text": put("model", "hidden", ["2"]),
    "no features": put("features", []),
    "a feature less": put("features", ["1", "2", "3"]),
    "a feature twice": put("features", ["1", "2", "3", "3"]),
    "features of numbers": put("features", [1, 2, 3, 4]),
    "a group twice": put("groups", ["a", "a"]),
    "groups of text": put("groups", "ab"),
    "a hidden column beyond": put("hidden_columns", [4]),
    "a hidden column before": put("hidden_columns", [-1]),
    "half a hidden column": put("hidden_columns", [1.5]),
    "a hidden column of text": put("hidden_columns", ["1"]),
    "no position bias": put("position_bias", None),
    "a position bias of nothing": put("position_bias", {"values": []}),
    "a falling bias below 0": put("position_bias", "values", [1.0, -1.0]),
    "noise above 1": put("noise", {"eps_plus": 2.0, "eps_minus": 0.0}),
    "noise of text": put("noise", "none"),
    "a utility of text": put("trained", "training_utility", "high"),
    "a cost that is true": put("trained", "l2", True),
    "validation by a number": put("validation", 3),
    "a wrong model": put("settings", "model", "forest"),
    "a wrong goal": put("settings", "fairness_weight", -1.0),
    "a wrong seed": put("settings", "seed", 0.5),
    "a wrong protocol": put("settings", "protocol", "other"),
    "no utility": put("settings", "utility", None),
    "a wrong utility": put("settings", "utility", ["1"]),
    "a wrong switch": put("settings", "group_blind", "yes"),
    "infinite weights": put_tensor("scorer.layers.2.weight", lambda old: old * np.inf),
    "whole weights": put_tensor("scorer.layers.2.weight", lambda old: old.astype(np.int64)),
    "weights of another shape": put_tensor("scorer.layers.2.weight", lambda old: old.T),
    "a scale of 0": put_tensor("scaling.scale", lambda old: old * 0),
    "a scale that is no number": put_tensor("scaling.scale", lambda old: old * np.nan),
    "a mean of another length": put_tensor("scaling.mean", lambda old: old[:3]),
    "a mean of another type": put_tensor("scaling.mean", lambda old: old.astype(np.float64)),
    "queries that are no numbers": put_tensor("training_queries", np.array([np.nan])),
    "queries in a table": put_tensor("training_queries", np.zeros((2, 2), dtype=np.int64)),
}


TREE_CHANGES: dict[str, Any] = {
    "no nodes": lambda tensors, _content: tensors.pop("scorer.trees.feature"),
    "a node more": put_tensor("scorer.trees.feature", lambda old: np.append(old, 0)),
    "a circle": put_tensor("scorer.trees.left", lambda old: old * 0),
    "a feature beyond": put_tensor("scorer.trees.feature", lambda old: old + 4),
    "an infinite threshold": put_tensor("scorer.trees.threshold", lambda old: old + np.inf),
    "short thresholds": put_tensor("scorer.trees.threshold", lambda old: old.astype(np.float32)),
    "values of another length": put_tensor("scorer.trees.value", lambda old: old[1:]),
    "values that are no numbers": put_tensor("scorer.trees.value", lambda old: old * np.nan),
    "nodes that are no whole numbers": put_tensor("scorer.trees.right", lambda old: old / 2),
    "no weights": lambda tensors, _content: tensors.pop("scorer.linear.scorer.weight"),
    "no linear scale": lambda tensors, _content: tensors.pop("scorer.linear.scale"),
    "a linear scale of 0": put_tensor("scorer.linear.scale", lambda old: old * 0),
    "trees alone": put("model", "kind", "trees"),
    "a network": put("model", "kind", "mlp"),
    "settings of text": put("settings", "trees", "many"),
    "unknown settings": put("settings", "trees", {"boosting": "dart"}),
    "settings out of range": put("settings", "trees", {"leaves": 1}),
}


@pytest.mark.parametrize("name", TREE_CHANGES)
def test_well_sealed_nonsense_of_trees_is_refused(
    trained: dict[str, FairRanker], tmp_path: Path, name: str
) -> None:
    path = fultr.save(trained["group-blind linear+trees"], tmp_path / "policy")
    rewritten(path, TREE_CHANGES[name])
    with pytest.raises(InputError) as caught:
        fultr.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CHANGES)
def test_well_sealed_nonsense_is_refused(saved: Path, name: str) -> None:
    rewritten(saved, CHANGES[name])
    with pytest.raises(InputError) as caught:
        fultr.load(saved)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


def well_formed(ranker: FairRanker, folder: Path) -> bool:
    """Say whether a loaded ranker can be all that one must be: it scores, and can be saved and loaded."""
    test = learnable(seed=9)
    if ranker.n_features_in_ != 4 or len(ranker.feature_names_in_) != 4:
        return False
    try:
        scores = ranker.predict(test)
    except InputError as error:  # weights of 1e38 are weights, but rank nothing
        return "score" in str(error)
    again = fultr.load(fultr.save(ranker, folder / "again"))
    return bits(again.predict(test)) == bits(scores) and bool(np.isfinite(scores).all())


def overwrite(path: Path, data: bytes) -> None:
    """Write into an existing file, which is much faster than a new one."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


@pytest.mark.slow
def test_no_mutation_crashes_or_loads_unnoticed(trained: dict[str, FairRanker], tmp_path: Path) -> None:
    """10,000 files: damaged ones are refused, and those with a right checksum load only if well-formed."""
    files = {}
    for form in ("linear", "group-blind mlp", "group-blind linear+trees"):
        files[form] = fultr.save(trained[form], tmp_path / form.replace(" ", "-")).read_bytes()
    one, other, trees = files.values()
    target, outcomes = tmp_path / "mutated", Counter[str]()
    target.touch()
    for data, rest, count, seed in ((one, other, 5_000, 0), (other, one, 2_500, 1), (trees, one, 2_500, 2)):
        for mutation in mutations(data, rest, count=count, seed=seed):
            overwrite(target, mutation.data)
            try:
                loaded = fultr.load(target)
            except InputError as error:
                outcomes["refused" if error.file == str(target) else "refused without a name"] += 1
                continue
            # pieces of the other file may make up the whole of it
            assert mutation.resealed or mutation.data in files.values(), mutation.kind
            assert well_formed(loaded, tmp_path), mutation.kind
            outcomes["loaded"] += 1
    assert outcomes["refused"] + outcomes["loaded"] == 10_000
    assert outcomes["refused"] > 9_000
    assert outcomes["loaded"] > 50
