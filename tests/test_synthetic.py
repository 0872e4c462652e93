"""Synthetic data: its shape, its known truth, and that it is a problem worth learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPRegressor

from fultr.data import DataSplits, RankingDataset
from fultr.datasets import synthetic
from fultr.datasets.interval_groups import interval_codes, interval_names, quantile_cuts
from fultr.datasets.synthetic_world import draw_items, make_world
from fultr.errors import InputError

Numbers = NDArray[np.float64]


@pytest.fixture(scope="module")
def splits() -> DataSplits:
    return synthetic(queries=1200, seed=1)


def relevance_of(data: RankingDataset) -> Numbers:
    assert data.relevance is not None
    return data.relevance.reshape(len(data), -1).astype(np.float64)


def gain(scores: Numbers, relevance: Numbers) -> float:
    """Mean DCG of the ranking by score, as a part of the best possible."""
    rank = np.argsort(np.argsort(-scores, axis=1), axis=1)
    discount = 1 / np.log2(np.arange(scores.shape[1]) + 2)
    best = -np.sort(-relevance, axis=1) @ discount
    return float(np.mean(np.sum(relevance * discount[rank], axis=1) / best))


def disparity(scores: Numbers, data: RankingDataset) -> float:
    """D_01 of the ranking by score, with v_k = 1/k."""
    exposure = 1 / (1 + np.argsort(np.argsort(-scores, axis=1), axis=1))
    relevance, group = relevance_of(data), data.group.reshape(scores.shape)
    exposures = [np.sum(exposure * (group == code), axis=1) for code in (0, 1)]
    merits = [np.sum(relevance * (group == code), axis=1) for code in (0, 1)]
    return float(np.mean(merits[1] * exposures[0] - merits[0] * exposures[1]))


def errors_by_group(predicted: Numbers, data: RankingDataset) -> list[float]:
    """Accumulated error of a regression in each group, relative to the group's true relevance."""
    truth, flat = relevance_of(data).ravel(), predicted.ravel()
    sums = [(flat[data.group == code].sum(), truth[data.group == code].sum()) for code in (0, 1)]
    return [(sum_predicted - sum_true) / sum_true for sum_predicted, sum_true in sums]


def test_default_has_the_shape_of_the_papers_data(splits: DataSplits) -> None:
    assert [len(data) for _, data in splits] == [1200, 400, 400]
    for name, data in splits:
        assert data.features.dtype == np.float32
        assert data.features.shape == (20 * len(data), 136)
        assert data.source == f"synthetic, {name}"
        assert data.group_columns == (135,)
        assert relevance_of(data).sum(axis=1).tolist() == [3.0] * len(data)
        assert np.all(np.abs(data.features.mean(axis=0)) < 0.2)
        assert np.all(np.abs(data.features.std(axis=0) - 1) < 0.2)
    assert np.mean(splits.train.group == 0) == pytest.approx(0.4, abs=0.01)
    assert "MSLR" in (synthetic.__doc__ or "")


def test_groups_are_intervals_of_the_quality_column(splits: DataSplits) -> None:
    quality = splits.train.features[:, 135]
    assert quality[splits.train.group == 0].max() < quality[splits.train.group == 1].min()
    # the limit is that of the training items, in the other parts too
    limit = quality[splits.train.group == 0].max()
    assert np.array_equal(splits.test.group == 0, splits.test.features[:, 135] <= limit)


@pytest.mark.parametrize("groups", [3, 5, 7])
def test_more_groups_are_of_equal_size(groups: int) -> None:
    data = synthetic(queries=300, groups=groups).train
    shares = np.bincount(data.group, minlength=groups) / data.rows
    assert len(data.group_names) == groups
    assert np.abs(shares - 1 / groups).max() < 0.01


def test_a_seed_reproduces_and_another_differs(splits: DataSplits) -> None:
    again, other = synthetic(queries=1200, seed=1), synthetic(queries=1200, seed=2)
    for (_, first), (_, second), (_, third) in zip(splits, again, other, strict=True):
        assert np.array_equal(first.features, second.features)
        assert np.array_equal(relevance_of(first), relevance_of(second))
        assert not np.array_equal(first.features, third.features)


def test_the_world_stays_when_the_seed_changes() -> None:
    one, other = make_world(10, 0), make_world(135, 0)
    properties = np.random.default_rng(0).standard_normal((5000, 8))
    assert np.array_equal(one.score(properties), other.score(properties))
    assert not np.array_equal(one.score(properties), make_world(10, 1).score(properties))
    assert one.score(properties).mean() == pytest.approx(0, abs=0.05)
    assert one.score(properties).std() == pytest.approx(1, abs=0.05)


def test_items_of_a_query_have_something_in_common() -> None:
    items = draw_items(make_world(5, 0), np.full(2000, 20), np.random.default_rng(0))
    by_query = items.properties.reshape(2000, 20, -1)
    assert by_query.mean(axis=1).var() == pytest.approx(0.2 + 0.8 / 20, abs=0.02)
    assert np.corrcoef(items.score, np.log(items.quality + 0.01))[0, 1] == pytest.approx(0.25, abs=0.03)


def test_noise_differs_between_groups() -> None:
    data = synthetic(queries=600, feature_noise=[2.0, 0.0]).train
    deviations = [data.features[data.group == code, :135].std(axis=0).mean() for code in (0, 1)]
    # signal 1 plus noise 2 or 0
    assert deviations[0] / deviations[1] == pytest.approx(np.sqrt(1 + 4), rel=0.1)


def test_relevance_as_a_probability() -> None:
    data = synthetic(queries=200, relevant=None).train
    relevance = relevance_of(data)
    assert 0 < relevance.min() < 0.05
    assert 0.8 < relevance.max() < 1
    assert relevance.mean() == pytest.approx(0.2, abs=0.05)
    # the same seed has the same items: its relevant ones are those of the highest probability
    binary = relevance_of(synthetic(queries=200, relevant=3).train)
    assert gain(relevance, binary) == pytest.approx(1.0)


def test_learners_rank_better_than_chance_and_a_network_better_than_a_linear_one(splits: DataSplits) -> None:
    train, test = splits.train, splits.test
    truth = relevance_of(test)
    linear = LogisticRegression(C=0.01, max_iter=200).fit(train.features, train.relevance)
    network = MLPRegressor(hidden_layer_sizes=(32,), alpha=1.0, random_state=0, learning_rate_init=0.002)
    fitted = _fit_for_some_epochs(network, train)
    of_linear = gain(linear.decision_function(test.features).reshape(truth.shape), truth)
    of_network = gain(fitted.predict(test.features).reshape(truth.shape), truth)
    of_chance = gain(np.random.default_rng(0).random(truth.shape), truth)
    assert of_chance < 0.55
    assert of_linear > 0.75
    assert of_network > of_linear + 0.015


def _fit_for_some_epochs(network: Any, data: RankingDataset) -> Any:
    # partial_fit: fit warns where it stops before it has converged, and this much is enough
    for _ in range(12):
        network.partial_fit(data.features, data.relevance)
    return network


def test_ranking_by_relevance_alone_is_unfair(splits: DataSplits) -> None:
    random = np.random.default_rng(0)
    for _, data in splits:
        # among equally relevant items the order is random
        truth = relevance_of(data) + 1e-6 * random.random((len(data), 20))
        assert 0.3 < disparity(truth, data) < 1.5
    train = splits.train
    predicted = Ridge(10.0).fit(train.features, train.relevance).predict(train.features)
    assert 0.3 < disparity(predicted.reshape(len(train), 20), train) < 1.5


@pytest.mark.parametrize("seed", [1, 2])
def test_regressions_err_more_on_one_group(seed: int) -> None:
    train = synthetic(queries=1200, seed=seed).train
    ridge = Ridge(10.0).fit(train.features, train.relevance)
    logistic = LogisticRegression(C=0.01, max_iter=200).fit(train.features, train.relevance)
    for predicted in (ridge.predict(train.features), logistic.predict_proba(train.features)[:, 1]):
        lower, upper = errors_by_group(predicted, train)
        # the noisy group of low merit is taken for better than it is, the other for worse
        assert lower > 0.02 > -0.005 > upper
        assert lower - upper > 0.05


@settings(max_examples=20, deadline=None)
@given(
    queries=st.integers(3, 6),
    low=st.integers(2, 6),
    extra=st.integers(0, 5),
    features=st.integers(2, 12),
    seed=st.integers(0, 2**31),
)
def test_any_shape(queries: int, low: int, extra: int, features: int, seed: int) -> None:
    data = synthetic(
        queries=queries,
        valid_queries=2,
        test_queries=3,
        list_length=(low, low + extra),
        features=features,
        relevant=1,
        seed=seed,
    )
    assert [len(part) for _, part in data] == [queries, 2, 3]
    for _, part in data:
        assert part.features.shape[1] == features
        assert low <= part.lengths.min() <= part.lengths.max() <= low + extra
        assert part.relevance is not None
        assert np.add.reduceat(part.relevance, part.offsets[:-1]).tolist() == [1.0] * len(part)


@pytest.mark.parametrize(
    ("arguments", "column"),
    [
        ({"queries": 0}, "queries"),
        ({"valid_queries": 0}, "valid_queries"),
        ({"test_queries": -1}, "test_queries"),
        ({"list_length": 1}, "list_length"),
        ({"list_length": (9, 5)}, "list_length"),
        ({"list_length": (5, 7, 9)}, "list_length"),
        ({"relevant": 0}, "relevant"),
        ({"relevant": 20}, "relevant"),
        ({"relevant": 5, "list_length": (5, 9)}, "relevant"),
        ({"features": 1}, "features"),
        ({"groups": 1}, "groups"),
        ({"queries": 1, "groups": 30}, "groups"),
        ({"feature_noise": -1.0}, "feature_noise"),
        ({"feature_noise": float("nan")}, "feature_noise"),
        ({"feature_noise": "much"}, "feature_noise"),
        ({"feature_noise": [1.0, 2.0, 3.0]}, "feature_noise"),
        ({"feature_noise": [1.0, -2.0]}, "feature_noise"),
        ({"function_seed": -1}, "function_seed"),
        ({"seed": -1}, "seed"),
    ],
)
def test_unusable_arguments_are_named(arguments: dict[str, Any], column: str) -> None:
    with pytest.raises(InputError) as caught:
        synthetic(**arguments)
    assert caught.value.column == column


def test_quantile_cuts_divide_as_said() -> None:
    values = np.arange(1, 11)
    assert quantile_cuts(values, 2, "q").tolist() == [4.0]
    assert quantile_cuts(values, 5, "q").tolist() == [2.0, 4.0, 6.0, 8.0]
    assert np.bincount(interval_codes(values, [4.0])).tolist() == [4, 6]
    assert interval_names("q", [4.0]) == ("q<=4", "q>4")


def test_ties_limit_the_number_of_groups() -> None:
    values = [1] * 5 + [2] * 3 + [3] * 2
    assert quantile_cuts(values, 2, "q").tolist() == [1.0]
    with pytest.raises(InputError, match="the same q; at most 3 groups are possible"):
        quantile_cuts(values, 5, "q")
    with pytest.raises(InputError, match="it cannot divide items"):
        quantile_cuts([7, 7, 7], 2, "q")
    with pytest.raises(InputError, match="column 'groups'"):
        quantile_cuts(values, 1, "q")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(2, 6))
def test_every_group_holds_something_or_it_is_refused(values: list[int], groups: int) -> None:
    try:
        cuts = quantile_cuts(values, groups, "q")
    except InputError:
        return
    assert np.bincount(interval_codes(values, cuts), minlength=groups).min() > 0


def test_raw_features_say_the_same_on_a_heavy_tailed_scale() -> None:
    standard, raw = (synthetic(queries=20, features=5, scale=scale, seed=3) for scale in ("standard", "raw"))
    for one, other in zip(
        (standard.train, standard.valid, standard.test), (raw.train, raw.valid, raw.test), strict=True
    ):
        np.testing.assert_allclose(np.log(other.features) / 2, one.features, atol=1e-5)
        np.testing.assert_array_equal(other.relevance, one.relevance)
        np.testing.assert_array_equal(other.group, one.group)
    with pytest.raises(InputError, match="'standard' or 'raw'"):
        synthetic(queries=20, scale="log")
