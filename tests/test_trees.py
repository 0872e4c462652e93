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
from fultr.policy.lightgbm_text import LinearTerm, lightgbm_text, trees_of_text

WIDTH = 6


def grown(*, rows: int = 700, rounds: int = 30, missing: float = 0.0, seed: int = 0, **options: Any) -> Any:
    """Return a booster of LightGBM, and its training features, of which 4 and 5 can be categories."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    features[:, 1] = np.exp(3 * features[:, 1])
    features[:, 2] = rng.integers(-1, 2, size=rows)
    features[:, 4], features[:, 5] = rng.integers(100, size=rows), rng.integers(3, size=rows)
    target = features[:, 0] * features[:, 2] + np.log1p(features[:, 1]) + rng.normal(size=rows)
    target += rng.normal(size=100)[features[:, 4].astype(int)] * (1 + (features[:, 5] == 1))
    features[rng.random(features.shape) < missing] = np.nan
    settings = {"verbosity": -1, "num_leaves": 15, "min_data_in_leaf": 5, "num_threads": 1, **options}
    categories = settings.pop("categories", [])
    given = lightgbm.Dataset(features, target, categorical_feature=categories)
    return lightgbm.train(settings, given, rounds), features


def stump(**changes: Any) -> Trees:
    """Return two trees on two features: one with two nodes, one with one."""
    arrays: dict[str, Any] = {
        "starts": np.array([0, 2, 3]),
        "feature": np.array([0, 1, 1]),
        "threshold": np.array([0.5, -1.0, 2.0]),
        "missing": np.array([0, 1, 1]),
        "left": np.array([-1, -2, -1]),
        "right": np.array([1, -3, -2]),
        "gain": np.array([5.0, 2.0, 1.0]),
        "value": np.array([1.0, 2.0, 4.0, 10.0, 20.0]),
        "category_starts": np.zeros(4, dtype=np.int64),
        "categories": np.zeros(0, dtype=np.int64),
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


def test_categories_by_hand() -> None:
    """A category of the node, cut to an integer, goes to the left; any other and none to the right."""
    trees = stump(category_starts=np.array([0, 0, 0, 3]), categories=np.array([0, 2, 70])).check(2)
    values = [0, 2, 70, -0.5, 2.9, 1, 3, 69, 71, -1, 1e9, -1e9, np.nan]
    rows = np.array([[0.0, value] for value in values], dtype=np.float32)
    assert trees.scores(rows).tolist() == [11.0] * 5 + [21.0] * 8
    assert trees.first(1).categories.size == 0
    twice = Trees.joined([trees, trees])
    assert twice.category_starts.tolist() == [0, 0, 0, 3, 3, 3, 6]
    assert twice.check(2).scores(rows).tolist() == [22.0] * 5 + [42.0] * 8


def test_zeros_that_are_missing_by_hand() -> None:
    rows = np.array([[0.0, 9], [1e-36, 9], [-1.0, 9], [np.nan, 9], [0.6, 9]], dtype=np.float32)
    for missing, expected in ((2, [4, 4, 1, 4, 4]), (3, [1, 1, 1, 1, 4]), (1, [1, 1, 1, 1, 4])):
        scores = stump(missing=np.array([missing, 1, 1])).check(2).scores(rows)
        assert scores.tolist() == [20.0 + value for value in expected]


def test_no_trees_score_0() -> None:
    rows = np.ones((3, 2), dtype=np.float32)
    for trees in (Trees.none(), Trees.joined([]), stump().first(0)):
        assert trees.check(2).scores(rows).tolist() == [0.0] * 3
        assert trees.leaves(rows).shape == (0, 3)
    assert stump().scores(rows[:0]).size == 0


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_leaves": 300, "min_data_in_leaf": 1},
        {"num_leaves": 2},
        {"extra_trees": True},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"categories": [4, 5]},
        {"categories": [4, 5], "zero_as_missing": True, "min_data_per_group": 5, "cat_smooth": 1},
    ],
)
def test_scores_are_those_of_lightgbm_to_the_last_bit(missing: float, options: dict[str, Any]) -> None:
    booster, features = grown(missing=missing, **options)
    trees = trees_of_text(booster.model_to_string()).check(WIDTH)
    assert len(trees) == 30
    assert trees.is_categorical.any() == ("categories" in options)
    rng = np.random.default_rng(1)
    other = (rng.normal(size=(400, WIDTH)) * 3).astype(np.float32)
    other[200:, 4:] = rng.integers(-3, 300, size=(200, 2))
    other[300:, 4:] += 0.7
    other[rng.random(other.shape) < 0.1] = np.nan
    other[rng.random(other.shape) < 0.1] = 0
    # what LightGBM takes for 0, and next to it
    tiny = np.nextafter(np.float32(1e-35), [0, 1, 1e-35]).astype(np.float32)
    tiny = np.repeat(np.concatenate([tiny, -tiny, [0]])[:, None], WIDTH, axis=1)
    # values on a threshold, and between the floats next to it
    edges = trees.threshold[np.abs(trees.threshold) < 1e30][:200]
    edges = np.repeat(edges[:, None], WIDTH, axis=1).astype(np.float32)
    near = [edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))]
    for rows in (features, other, tiny, *near):
        assert trees.scores(rows).tobytes() == booster.predict(rows, raw_score=True).tobytes()
        np.testing.assert_array_equal(trees.leaves(rows).T, booster.predict(rows, pred_leaf=True))


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("options", [{}, {"zero_as_missing": True}, {"categories": [4, 5], "num_leaves": 40}])
def test_lightgbm_reads_what_is_written(missing: float, options: dict[str, Any]) -> None:
    booster, features = grown(missing=missing, **options)
    trees = trees_of_text(booster.model_to_string())
    names = ["a", "b of c", "", "d", "e", "f"]
    text = lightgbm_text(trees, names)
    again = lightgbm.Booster(model_str=text)
    assert again.feature_name() == ["a", "b_of_c", "_", "d", "e", "f"]
    assert again.num_trees() == len(trees)
    np.testing.assert_array_equal(again.predict(features, raw_score=True), trees.scores(features))
    for name, values in trees_of_text(text).to_tensors().items():
        np.testing.assert_array_equal(values, trees.to_tensors()[name], err_msg=name)


def test_lightgbm_reads_a_linear_term() -> None:
    booster, features = grown()
    trees = trees_of_text(booster.model_to_string())
    weights = np.array([0.5, 0.0, -2.0, 0.0, 1e-3, 7.0])
    text = lightgbm_text(trees, list("abcdef"), LinearTerm(3.0, weights))
    found = lightgbm.Booster(model_str=text).predict(features)
    np.testing.assert_allclose(found, trees.scores(features) + 3.0 + features @ weights, rtol=1e-12)


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
    "another way": {"missing": np.array([0, 4, 1])},
    "a way less": {"missing": np.array([0, 1])},
    "a gain less": {"gain": np.array([0.0, 1.0])},
    "a gain that is no number": {"gain": np.array([0.0, 1.0, np.nan])},
    "categories of nodes beyond": {"category_starts": np.array([0, 0, 0, 0, 0])},
    "categories beyond": {"category_starts": np.array([0, 0, 0, 1])},
    "categories without a node": {"categories": np.array([3])},
    "falling categories": {"category_starts": np.array([0, 2, 2, 2]), "categories": np.array([4, 3])},
    "a category twice": {"category_starts": np.array([0, 2, 2, 2]), "categories": np.array([3, 3])},
    "a negative category": {"category_starts": np.array([0, 1, 1, 1]), "categories": np.array([-1])},
    "a category too large": {"category_starts": np.array([0, 1, 1, 1]), "categories": np.array([1 << 24])},
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
