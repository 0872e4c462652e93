"""Training does not depend on the units of features: a salary in cents or in millions is the same salary."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fultr import ClickLog, FairRanker, RankingDataset, evaluate
from fultr.baselines import PropensitySVMRank, RelevanceRegression
from fultr.training.impressions import batch_scorer
from fultr.training.preparation import prepare
from fultr.training.scaling import Scaling
from tests.ranker_contract import WIDTH, clicks_on, lists
from tests.training_tasks import BIAS

PLAIN: dict[str, Any] = {"position_bias": BIAS, "l2": 0.1}
RANKERS: dict[str, Any] = {
    "linear": lambda **more: FairRanker(1.0, folds=0, **PLAIN, **more),
    "mlp": lambda **more: FairRanker(1.0, folds=0, model="mlp", hidden=[3], **PLAIN, **more),
    "limit": lambda **more: FairRanker(max_disparity=0.05, folds=0, **PLAIN, **more),
    "svm": lambda **more: PropensitySVMRank(valid_share=0, **PLAIN, **more),
    "regression": lambda **more: RelevanceRegression(valid_share=0, **PLAIN, **more),
}
UNITS = st.sampled_from([1e-30, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e2, 1e3, 1e6, 1e9, 1e12, 1e30])
MIXED = st.lists(st.floats(-12, 12).map(lambda power: 10.0**power), min_size=WIDTH, max_size=WIDTH)


@cache
def log() -> ClickLog:
    return clicks_on(lists(count=40))


@cache
def new_lists() -> RankingDataset:
    return lists(seed=9, count=40)


def in_units(data: RankingDataset, units: NDArray[np.float64]) -> RankingDataset:
    return replace(data, features=(data.features * units).astype(np.float32))


def policy(kind: str, units: NDArray[np.float64], **more: Any) -> tuple[Any, float]:
    """Train on features in other units; return the ranker and its nDCG on new lists in the same units."""
    train = replace(log(), data=in_units(log().data, units))
    ranker = RANKERS[kind](**more).fit(train)
    found = evaluate(ranker, in_units(new_lists(), units), position_bias=BIAS)
    assert found.ndcg is not None
    return ranker, found.ndcg


@cache
def scaled_policy(kind: str) -> float:
    return policy(kind, np.ones(WIDTH), scale_features=True)[1]


@pytest.mark.parametrize("kind", RANKERS)
@given(unit=UNITS)
@settings(max_examples=3, deadline=None)
def test_policies_are_the_same_in_any_unit(kind: str, unit: float) -> None:
    # networks follow the rounding of features to other ends
    tolerance = 0.02 if kind == "mlp" else 2e-3
    assert policy(kind, np.full(WIDTH, unit))[1] == pytest.approx(scaled_policy(kind), abs=tolerance)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@given(units=MIXED)
@settings(max_examples=5, deadline=None)
def test_policies_are_the_same_in_mixed_units(kind: str, units: list[float]) -> None:
    # units near 1 may all be left as they are
    tolerance = 0.02 if kind == "mlp" or (min(units) > 0.01 and max(units) < 20) else 2e-3
    assert policy(kind, np.array(units))[1] == pytest.approx(scaled_policy(kind), abs=tolerance)


@pytest.mark.parametrize("unit", [1.0, 1e-2, 1e-4, 1e-12, 1e12])
def test_small_features_are_not_taken_for_noise(unit: float) -> None:
    # with features of deviation 0.01 and less, policies once were no better than random
    assert policy("linear", np.full(WIDTH, unit))[1] == pytest.approx(scaled_policy("linear"), abs=0.01)
    random = evaluate(FairRanker(0.0, folds=0, position_bias=BIAS, l2=1e6).fit(log()), new_lists())
    assert random.ndcg is not None
    assert scaled_policy("linear") > random.ndcg + 0.05


def test_features_on_a_common_scale_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "normal": rng.normal(size=5000),
        "share": rng.random(5000),
        "rare": (rng.random(5000) < 0.002).astype(float),  # of deviation 0.04, and 1 where it is not 0
        "constant": np.full(5000, 3.0),
        "shifted": 8 + rng.normal(size=5000),
    }
    data = RankingDataset(np.column_stack(list(columns.values())), [0, 5000])
    assert Scaling.wanted(data, None).scale.tolist() == [1.0] * 5
    for name, factor, shift in (
        ("normal", 0.01, 0.0),
        ("rare", 0.05, 0.0),
        ("share", 1e-4, 5.0),
        ("normal", 20, 0.0),
        ("shifted", 3, 0.0),
    ):
        changed = {**columns, name: columns[name] * factor + shift}
        other = RankingDataset(np.column_stack(list(changed.values())), [0, 5000])
        found = Scaling.wanted(other, None)
        expected = [other.features[:, column].std(dtype=np.float64) for column in range(5)]
        expected[3] = 1.0
        np.testing.assert_allclose(found.scale, expected, rtol=1e-3)
        assert Scaling.wanted(other, False).scale.tolist() == [1.0] * 5


@pytest.mark.parametrize("unit", [1e-30, 1e-12, 1e12, 1e30])
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_the_papers_batches_have_the_same_scores_in_any_unit(kind: str, unit: float) -> None:
    known: list[NDArray[np.float64]] = []
    for scale in (1.0, unit):
        data = in_units(log().data, np.full(WIDTH, scale))
        ranker = FairRanker(1.0, protocol="paper", model=kind, hidden=[3], scale_features=scale == 1 or None)
        model = prepare(ranker.set_params(**PLAIN), replace(log(), data=data)).model
        rows, every = batch_scorer(model, data), np.arange(data.rows)
        scores = rows.scores(np.linspace(0.1, 1.0, model.size), every)
        slopes = rows.pull_back(scores / 1e6)
        known += [scores - scores.mean(), slopes]
    np.testing.assert_allclose(known[2], known[0], rtol=1e-3, atol=1e-4)
    if kind == "mlp":  # the mean that linear scores of the batch keep is a constant in each list
        np.testing.assert_allclose(known[3], known[1], rtol=1e-2, atol=1e-8)
    else:
        assert np.isfinite(known[3]).all()
        assert known[3].all()


@pytest.mark.parametrize("size", [1e-45, 1e-38, 1e37])
def test_features_at_the_ends_of_float32_give_finite_scores(size: float) -> None:
    ranker, _ = policy("linear", np.array([1.0, size, 1.0, size]))
    scores = ranker.predict(in_units(new_lists(), np.array([1.0, size, 1.0, size])))
    assert np.isfinite(scores).all()
    assert np.isfinite(ranker.training_utility_)
