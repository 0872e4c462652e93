"""Policies as ONNX models: the same scores in another runtime, and a card that says what they are."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import polars as pl
import pytest

import fultr
from fultr import FairRanker, InputError
from fultr.serving import export_lightgbm, export_onnx, load_policy
from tests.commands import json_of, refusal
from tests.ranker_contract import lists as learnable
from tests.training_tasks import random_log

onnxruntime = pytest.importorskip("onnxruntime")

TREES = fultr.TreeSettings(rounds=20, min_rows=5, leaves=4)
FORMS = {
    "linear": FairRanker(2.0, l2=0.01, scale_features=True),
    "group-blind mlp": FairRanker(2.0, model="mlp", hidden=(5, 3), l2=0.01, group_blind=True),
    "offsets": FairRanker(max_disparity=0.05, fairness="offsets", l2=0.01),
    "trees": FairRanker(2.0, model="trees", trees=TREES),
    "linear+trees": FairRanker(2.0, model="linear+trees", trees=TREES, scale_features=True, group_blind=True),
    "tree offsets": FairRanker(max_disparity=0.05, fairness="offsets", model="trees", trees=TREES),
    "relevance": fultr.baselines.RelevanceRegression(l2=0.1),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    log, folder = random_log(learnable(), impressions=400), tmp_path_factory.mktemp("policies")
    return {name: fultr.save(ranker.fit(log), folder / name) for name, ranker in FORMS.items()}


@pytest.mark.parametrize("form", FORMS)
def test_another_runtime_gives_the_same_scores(saved: dict[str, Path], tmp_path: Path, form: str) -> None:
    data, policy = learnable(seed=9), load_policy(saved[form])
    model, _ = export_onnx(saved[form], tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(model))
    given = {"features": data.features}
    if policy.offsets:
        given["group"] = data.group.astype(np.int64)
    scores = session.run(["scores"], given)[0]
    expected = fultr.load(saved[form]).predict(data)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["features"]) == list(policy.feature_names)
    assert json.loads(about["groups"]) == list(policy.group_names)


@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_categories_and_missing_values_are_encoded_within(tmp_path: Path, missing: str) -> None:
    from tests.test_feature_encoding import COLOURS, PRICES, trained

    full = trained(missing, model="mlp", hidden=(4,))
    model, _ = export_onnx(fultr.save(full, tmp_path / "policy"), tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(model))
    categories = json.loads(session.get_modelmeta().custom_metadata_map["categories"])
    colours = ["violet", *COLOURS[1:]]
    given: dict[str, list[Any]] = {"price": PRICES, "colour": colours, "remote": [True, False] * 3}
    with pytest.warns(fultr.FultrWarning, match="violet"):
        expected = full.predict(pl.DataFrame(given))

    def code(name: str, value: Any) -> float:
        if value is None:
            return math.nan
        text = str(value).lower() if isinstance(value, bool) else value
        if name not in categories:
            return float(text)
        return float(categories[name].index(text)) if text in categories[name] else -1.0

    columns = [[code(name, value) for value in given[name]] for name in full.feature_names_in_]
    rows = np.array(columns, np.float32).T
    np.testing.assert_allclose(session.run(None, {"features": rows})[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("missing", ["native", "mean"])
def test_trees_take_categories_and_missing_values(tmp_path: Path, missing: str) -> None:
    from tests.test_tree_features import made, raw, trees_of

    ranker = made(fairness_weight=0.0, missing=missing).fit(random_log(raw(), impressions=4_000))
    assert trees_of(ranker).is_categorical.any()
    path, test = fultr.save(ranker, tmp_path / "policy"), raw(seed=7)
    expected = ranker.predict(test)
    model, _ = export_onnx(path, tmp_path / "policy.onnx")
    scores = onnxruntime.InferenceSession(str(model)).run(None, {"features": test.features})[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    text = export_lightgbm(path, tmp_path / "policy.txt")
    rows = ranker.encoding_.apply(test).features
    theirs = lightgbm.Booster(model_file=str(text)).predict(rows)
    np.testing.assert_allclose(theirs, expected, rtol=1e-12)
    light = load_policy(path).scores(test.features, category_names=test.category_names)
    np.testing.assert_allclose(light, expected, rtol=1e-12)


@pytest.mark.parametrize("form", ["trees", "linear+trees"])
def test_lightgbm_gives_the_scores_of_the_policy(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    out = tmp_path / "policy.txt"
    assert json_of(capsys, "export", saved[form], "--to", "lightgbm", "--out", out) == {"file": str(out)}
    data = learnable(seed=9)
    booster = lightgbm.Booster(model_file=str(out))
    assert booster.num_trees() > 0
    theirs, ours = np.asarray(booster.predict(data.features)), fultr.load(saved[form]).predict(data)
    np.testing.assert_allclose(theirs - theirs.mean(), ours - ours.mean(), rtol=1e-5, atol=1e-6)


def test_the_card_says_what_the_model_is(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = json_of(capsys, "export", saved["linear"], "--to", "onnx", "--out", tmp_path / "a.onnx")
    card = json.loads(Path(written["card"]).read_text(encoding="utf-8"))
    assert card["digests"]["onnx_sha256"] == hashlib.sha256(Path(written["file"]).read_bytes()).hexdigest()
    assert card["digests"]["policy_sha256"][:12] == load_policy(saved["linear"]).version
    assert card["limits"]["fairness_weight"] == 2.0
    assert card["features"] == list(load_policy(saved["linear"]).feature_names)
    assert card["training_queries"] > 0
    assert "Gumbel" in card["intended_use"]


def test_what_cannot_be_exported_is_refused(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "only trees" in refusal(
        capsys, "export", saved["linear"], "--to", "lightgbm", "--out", tmp_path / "a.txt", unchanged=tmp_path
    )
    assert "no place for" in refusal(
        capsys, "export", saved["tree offsets"], "--to", "lightgbm", "--out", tmp_path / "a.txt"
    )
    with pytest.raises(InputError, match=r"\.onnx file"):
        export_onnx(saved["linear"], tmp_path / "a.txt")
