"""Policies as ONNX models: the same scores in another runtime, and a card that says what they are."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fultr
from fultr import FairRanker, InputError
from fultr.serving import export_onnx, load_policy
from tests.commands import json_of, refusal
from tests.ranker_contract import lists as learnable
from tests.training_tasks import random_log

onnxruntime = pytest.importorskip("onnxruntime")

FORMS = {
    "linear": FairRanker(2.0, l2=0.01, scale_features=True),
    "group-blind mlp": FairRanker(2.0, model="mlp", hidden=(5, 3), l2=0.01, group_blind=True),
    "offsets": FairRanker(max_disparity=0.05, fairness="offsets", l2=0.01),
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
    trees = fultr.TreeSettings(rounds=3, min_rows=5, leaves=4)
    ranker = FairRanker(3.0, model="trees", trees=trees).fit(random_log(learnable(), impressions=400))
    path = fultr.save(ranker, tmp_path / "trees")
    assert "only linear policies and networks" in refusal(
        capsys, "export", path, "--out", tmp_path / "a.onnx", unchanged=tmp_path
    )
    with pytest.raises(InputError, match=r"\.onnx file"):
        export_onnx(saved["linear"], tmp_path / "a.txt")
