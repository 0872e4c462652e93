"""Trees as arrays: the scores they give, those of LightGBM, and arrays that are no trees."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fultr import InputError
from fultr.policy import SummedScorer, Trees, TreeScorer
from fultr.training.lightgbm_trees import trees_of_text

WIDTH = 6


def grown(*, rows: int = 700, rounds: int = 30, missing: float = 0.0, seed: int = 0, **options: Any) -> Any:
    """Return a booster of LightGBM, and the features it was trained on."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    features[:, 1] = np.exp(3 * features[:, 1])
    features[:, 2] = rng.integers(-1, 2, size=rows)
    target = features[:, 0] * features[:, 2] + np.log1p(features[:, 1]) + rng.normal(size=rows)
    features[rng.random(features.shape) < missing] = np.nan
    settings = {"verbosity": -1, "num_leaves": 15, "min_data_in_leaf": 5, "num_threads": 1, **options}
    return lightgbm.train(settings, lightgbm.Dataset(features, target), rounds), features


def stump(**changes: Any) -> Trees:
    """Return two trees on two features: one with two nodes, one with one."""
    arrays: dict[str, Any] = {
        "starts": np.array([0, 2, 3]),
        "feature": np.array([0, 1, 1]),
        "threshold": np.array([0.5, -1.0, 2.0]),
        "missing_left": np.array([0, 1, 1]),
        "left": np.array([-1, -2, -1]),
        "right": np.array([1, -3, -2]),
        "value": np.array([1.0, 2.0, 4.0, 10.0, 20.0]),
    }
    return Trees(**{**arrays, **changes})


def test_scores_by_hand() -> None:
    rows = np.array([[0.5, 9], [0.6, -1], [0.6, 0], [np.nan, 3], [9, np.nan]], dtype=np.float32)
    trees = stump().check(2)
    assert trees.scores(rows).tolist() == [21.0, 12.0, 14.0, 24.0, 12.0]
    assert trees.leaves(rows).tolist() == [[0, 1, 2, 2, 1], [1, 0, 0, 1, 0]]
    assert trees.first(1).check(2).scores(rows).tolist() == [1.0, 2.0, 4.0, 4.0, 2.0]
    twice = Trees.joined([trees, trees]).check(2)
    assert twice.scores(rows).tolist() == [42.0, 24.0, 28.0, 48.0, 24.0]
    assert twice.first(2).to_tensors().keys() == trees.to_tensors().keys()
    for name, values in twice.first(2).to_tensors().items():
        np.testing.assert_array_equal(values, trees.to_tensors()[name])


def test_no_trees_score_0() -> None:
    rows = np.ones((3, 2), dtype=np.float32)
    for trees in (Trees.none(), Trees.joined([]), stump().first(0)):
        assert trees.check(2).scores(rows).tolist() == [0.0] * 3
        assert trees.leaves(rows).shape == (0, 3)
    assert stump().scores(rows[:0]).size == 0


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(
    "options", [{}, {"num_leaves": 300, "min_data_in_leaf": 1}, {"num_leaves": 2}, {"extra_trees": True}]
)
def test_scores_are_those_of_lightgbm_to_the_last_bit(missing: float, options: dict[str, Any]) -> None:
    booster, features = grown(missing=missing, **options)
    trees = trees_of_text(booster.model_to_string()).check(WIDTH)
    assert len(trees) == 30
    rng = np.random.default_rng(1)
    other = (rng.normal(size=(400, WIDTH)) * 3).astype(np.float32)
    other[rng.random(other.shape) < 0.1] = np.nan
    # values on a threshold, and between the floats next to it
    # (what is within 1e-35 of 0 is 0 to LightGBM when it predicts)
    edges = trees.threshold[(np.abs(trees.threshold) > 1e-30) & (np.abs(trees.threshold) < 1e30)][:200]
    edges = np.repeat(edges[:, None], WIDTH, axis=1).astype(np.float32)
    near = [edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))]
    for rows in (features, other, np.zeros((1, WIDTH), np.float32), *near):
        assert trees.scores(rows).tobytes() == booster.predict(rows, raw_score=True).tobytes()
        np.testing.assert_array_equal(trees.leaves(rows).T, booster.predict(rows, pred_leaf=True))


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    booster, _ = grown()
    trees = trees_of_text(booster.model_to_string())
    rows = np.random.default_rng(0).normal(size=(9000, WIDTH)).astype(np.float32)
    once = trees.scores(rows)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert trees.scores(rows).tobytes() == once.tobytes()
    np.testing.assert_array_equal(trees.leaves(rows)[0], trees.first(1).leaves(rows)[0])


def test_a_scorer_takes_any_shape_and_no_other_width() -> None:
    scorer = TreeScorer(2, stump())
    rows = torch.tensor([[0.5, 9.0], [0.6, -1.0], [0.6, 0.0], [0.0, 3.0]])
    assert scorer(rows).tolist() == [21.0, 12.0, 14.0, 21.0]
    assert scorer(rows.reshape(2, 2, 2)).tolist() == [[21.0, 12.0], [14.0, 21.0]]
    assert scorer(rows).dtype == torch.float64
    both = SummedScorer(torch.nn.Flatten(0), scorer)
    assert both.trees is scorer
    with pytest.raises(InputError, match="takes 2 features"):
        scorer(torch.ones(2, 3))


NOT_TREES: dict[str, dict[str, Any]] = {
    "a circle": {"right": np.array([0, -3, -2])},
    "a child before": {"right": np.array([1, 0, -2])},
    "a child of another tree": {"right": np.array([2, -3, -2])},
    "a leaf of another tree": {"left": np.array([-4, -2, -1])},
    "a leaf twice": {"left": np.array([-2, -2, -1])},
    "the largest number": {"left": np.array([-1, -2, np.iinfo(np.int64).min])},
    "a feature beyond": {"feature": np.array([0, 2, 1])},
    "a feature before": {"feature": np.array([0, -1, 1])},
    "an infinite threshold": {"threshold": np.array([0.5, np.inf, 2.0])},
    "a threshold that is no number": {"threshold": np.array([0.5, np.nan, 2.0])},
    "an infinite value": {"value": np.array([1.0, 2.0, 4.0, 10.0, -np.inf])},
    "a value less": {"value": np.array([1.0, 2.0, 4.0, 10.0])},
    "another way": {"missing_left": np.array([0, 2, 1])},
    "a way less": {"missing_left": np.array([0, 1])},
    "no first start": {"starts": np.array([1, 2, 3])},
    "falling starts": {"starts": np.array([0, 4, 3])},
    "nodes beyond": {"starts": np.array([0, 2, 4])},
    "no starts": {"starts": np.zeros(0, dtype=np.int64)},
    "starts of another type": {"starts": np.array([0.0, 2.0, 3.0])},
    "values of another type": {"value": np.array([1, 2, 4, 10, 20])},
    "values in a table": {"value": np.ones((5, 1))},
}


@pytest.mark.parametrize("name", NOT_TREES)
def test_arrays_that_are_no_trees_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="trees"):
        stump(**NOT_TREES[name]).check(2)


def test_random_arrays_are_refused_or_scored() -> None:
    rng, rows = np.random.default_rng(0), np.zeros((5, 2), dtype=np.float32)
    scored = 0
    for _ in range(3000):
        changes: dict[str, NDArray[np.int64]] = {}
        for name in rng.choice(["left", "right", "feature", "starts"], size=2):
            values = stump().to_tensors()[name].copy()
            values[rng.integers(values.size)] = rng.integers(-4, 4)
            changes[name] = values
        try:
            trees = stump(**changes).check(2)
        except InputError:
            continue
        scored += 1
        assert np.isfinite(trees.scores(rows)).all()
    assert 10 < scored < 1500


@pytest.mark.slow
def test_scoring_needs_no_lightgbm() -> None:
    code = (
        "import sys; sys.modules['lightgbm'] = None\n"
        "import numpy as np, fultr\n"
        "from fultr.policy import Trees, TreeScorer\n"
        "assert Trees.none().scores(np.ones((2, 3), np.float32)).tolist() == [0.0, 0.0]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
