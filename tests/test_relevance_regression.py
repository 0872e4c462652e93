"""Relevance by regression: what is minimised, what is learned, and how far it is off for each group."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from fultr import ClickLog, InputError, PositionBias, RandomRanking, RankingDataset, simulate_clicks
from fultr.baselines.relevance import (
    LinearWithConstant,
    RegressionLoss,
    RegressionTask,
    RelevanceRegression,
)
from fultr.policy import MLPScorer, Shifted
from fultr.training.models import Model, ModuleModel
from fultr.training.scaling import Scaling
from tests.ranker_contract import Candidate, Contract
from tests.training_tasks import BIAS, random_lists, random_log

Array = NDArray[np.float64]

ONLY = np.zeros(1, dtype=np.int64)


def made(**settings: Any) -> Any:
    """Return a function that makes a regression with these settings and those of a test."""
    known = {"l2": 0.001, "position_bias": BIAS, **settings}
    return lambda **more: RelevanceRegression(**{**known, **more})


CANDIDATES = {
    "linear": Candidate(made(l2=[0.0001, 0.01])),
    "mlp": Candidate(made(model="mlp")),
    "full information": Candidate(made(), labelled=True),
}


@pytest.fixture(params=CANDIDATES)
def candidate(request: pytest.FixtureRequest) -> Candidate:
    return CANDIDATES[request.param]


class TestRelevanceRegression(Contract):
    """All tests of the contract."""


def loss_of(source: RankingDataset | ClickLog, *, model: str = "linear", l2: float = 0.0) -> RegressionLoss:
    """Return the loss of a family on a source, whose lists are scored as they are."""
    task = RegressionTask(source, BIAS)
    family: Model = LinearWithConstant(task.data, Scaling.none(task.data))
    if model == "mlp":
        network = Shifted(MLPScorer(task.data.features.shape[1], [3]))
        family = ModuleModel(task.data, Scaling.none(task.data), network)
    return RegressionLoss(task, family, np.array([l2]))


def logistic_lists(*, lists: int = 40, seed: int = 0) -> RankingDataset:
    """Lists whose relevance is the sigmoid of a linear function, its constant included."""
    data = random_lists(lists=lists, longest=6, seed=seed)
    relevance = expit(data.features.astype(np.float64) @ [1.0, -0.7, 0.4, 0.0] - 0.8)
    return replace(data, relevance=relevance)


def same_items(relevance: list[float], group: list[int], lengths: list[int]) -> RankingDataset:
    """Lists of items that no feature tells apart."""
    return RankingDataset(
        np.zeros((len(relevance), 1)),
        np.cumsum([0, *lengths]),
        group=group,
        group_names=["a", "b", "c"],
        relevance=relevance,
    )


def root_mean_square(values: Array) -> float:
    return float(np.sqrt((values**2).mean()))


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_the_expected_loss_is_that_of_full_information(model: str) -> None:
    # all patterns of clicks on lists of 1 and 3 items, shown in one order, with their probabilities
    data, position = random_lists(lists=2, longest=3, seed=1), np.array([1, 3, 1, 2])
    assert data.relevance is not None
    chance = data.relevance / position
    full, expected = loss_of(data, model=model), 0.0
    point = np.random.default_rng(0).normal(size=(1, full.model.size))
    for pattern in product([False, True], repeat=data.rows):
        clicks = np.array(pattern)
        likely = np.where(clicks, chance, 1 - chance).prod()
        log = ClickLog(data=data, lists=np.array([0, 1]), position=position, click=clicks)
        expected += likely * loss_of(log, model=model).value(point, ONLY)[0][0]
    assert expected == pytest.approx(full.value(point, ONLY)[0][0], rel=1e-6)


def test_the_loss_is_the_published_one_without_its_constant() -> None:
    log = random_log(random_lists(unknown=0.2, seed=3), impressions=50, top_k=4)
    loss = loss_of(log, l2=0.3)
    point = np.random.default_rng(0).normal(size=(1, loss.model.size))
    relevance = expit(point[0, 0] + log.data.features.astype(np.float64) @ point[0, 1:])
    terms, constants = [], []
    for entry, position in enumerate(log.position.tolist()):
        if position > 0:
            click, estimate = float(log.click[entry]), relevance[log.row_of_entry[entry]]
            terms.append(estimate**2 + click * position * (click - 2 * estimate))
            constants.append(click**2 * position)
    assert (log.position == 0).any()
    cost = 0.3 / 2 * float((point[0, 1:] ** 2).sum())
    wanted = np.mean(terms) - np.mean(constants) + cost
    assert loss.value(point, ONLY)[0][0] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_gradients_are_those_of_the_loss(model: str) -> None:
    loss = loss_of(random_log(random_lists()), model=model, l2=0.2)
    point = np.random.default_rng(1).normal(size=(1, loss.model.size)) / 2
    found = loss.gradient(point, ONLY, loss.value(point, ONLY)[1])[0]
    for number in range(loss.model.size):
        step = np.zeros_like(point)
        step[0, number] = 1e-2
        ahead, back = (loss.value(point + sign * step, ONLY)[0][0] for sign in (1, -1))
        assert found[number] == pytest.approx((ahead - back) / 2e-2, abs=2e-4)


def test_many_costs_at_once_are_each_alone() -> None:
    log, costs = random_log(random_lists()), np.array([0.0, 0.1, 1.0])
    task = RegressionTask(log, BIAS)
    model = LinearWithConstant(task.data, Scaling.none(task.data))
    points = np.random.default_rng(0).normal(size=(3, model.size))
    together = RegressionLoss(task, model, costs)
    which = np.array([2, 0])
    value, known = together.value(points[which], which)
    gradient = together.gradient(points[which], which, known)
    for place, number in enumerate(which):
        alone = RegressionLoss(task, model, costs[[number]])
        one, slopes = alone.value(points[[number]], ONLY)
        assert value[place] == pytest.approx(one[0], rel=1e-6)
        np.testing.assert_allclose(
            gradient[place], alone.gradient(points[[number]], ONLY, slopes)[0], atol=1e-6
        )


def test_it_finds_the_minimum_that_scipy_finds() -> None:
    data = logistic_lists(lists=30)
    log = simulate_clicks(data, RandomRanking(), BIAS, impressions=300, seed=0)
    counts = log.compact()
    features = counts.data.features.astype(np.float64)
    weight, shown = counts.ips_weights(BIAS), counts.shown()

    def loss(point: Array) -> float:
        relevance = expit(point[0] + features @ point[1:])
        mean = (shown * relevance**2 - 2 * weight * relevance).sum() / shown.sum()
        return float(mean + 0.005 * (point[1:] ** 2).sum())

    best = minimize(loss, np.zeros(5), options={"gtol": 1e-9}).x
    ranker = RelevanceRegression(l2=0.01, valid_share=0).fit(log)
    wanted = expit(best[0] + features @ best[1:])
    np.testing.assert_allclose(ranker.predict(counts.data), wanted, atol=1e-3)
    assert loss(np.zeros(5)) - loss(best) > 0.05


def test_with_a_feature_for_each_kind_of_item_it_is_the_mean_of_each() -> None:
    # three kinds, of relevance 0.1, 0.5 and 0.9: the minimum is the mean of c / p of each kind
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=400)
    lists = RankingDataset(np.eye(3)[kind], np.arange(0, 401, 4), relevance=np.array([0.1, 0.5, 0.9])[kind])
    log = simulate_clicks(lists, RandomRanking(), BIAS, impressions=2000, top_k=3, seed=0)
    counts = log.compact()
    kinds = counts.data.features.argmax(axis=1)
    sums = [np.bincount(kinds, values, 3) for values in (counts.ips_weights(BIAS), counts.shown())]
    found = RelevanceRegression(l2=0, valid_share=0).fit(log).predict(np.eye(3))
    np.testing.assert_allclose(found, sums[0] / sums[1], atol=1e-3)
    assert root_mean_square(found - [0.1, 0.5, 0.9]) < 0.1


def test_labelled_lists_are_fitted_by_least_squares() -> None:
    data = logistic_lists()
    ranker = RelevanceRegression(l2=0, valid_share=0, position_bias=BIAS).fit(data)
    assert data.relevance is not None
    np.testing.assert_allclose(ranker.predict(data), data.relevance, atol=5e-3)


@pytest.mark.statistical
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_relevance_is_recovered_from_many_clicks(model: str) -> None:
    data = logistic_lists(lists=60)
    assert data.relevance is not None
    log = simulate_clicks(data, RandomRanking(), BIAS, impressions=40_000, seed=0).compact()
    settings: dict[str, Any] = {"model": model, "hidden": [6] if model == "mlp" else None}
    ranker = RelevanceRegression(l2=1e-6, valid_share=0, **settings).fit(log)
    assert root_mean_square(ranker.predict(data) - data.relevance) < 0.03
    # which is what the correction is for
    seen = PositionBias.power(0.0)
    naive = RelevanceRegression(l2=1e-6, valid_share=0, position_bias=seen, **settings).fit(log)
    assert root_mean_square(naive.predict(data) - data.relevance) > 0.12


@pytest.mark.parametrize("hidden_by", ["not shown", "never examined"])
def test_items_that_nobody_sees_are_left_out(hidden_by: str) -> None:
    data, shown_only = logistic_lists(lists=60), hidden_by == "not shown"
    assert data.relevance is not None
    bias = BIAS if shown_only else PositionBias([1.0, 0.5], beyond="zero")
    top_k = 2 if shown_only else None
    log = simulate_clicks(data, RandomRanking(), bias, impressions=40_000, top_k=top_k, seed=0)
    ranker = RelevanceRegression(l2=1e-6, valid_share=0).fit(log)
    assert root_mean_square(ranker.predict(data) - data.relevance) < 0.03


def test_logged_propensities_come_first() -> None:
    data = logistic_lists()
    log = simulate_clicks(data, RandomRanking(), BIAS, impressions=500, seed=0)
    wrong = PositionBias.power(0.2)
    own = replace(log, propensity=BIAS.at(log.position), position_bias=None)
    by_bias, by_own = (RelevanceRegression(l2=0.01, valid_share=0, position_bias=b) for b in (None, wrong))
    np.testing.assert_allclose(by_bias.fit(log).predict(data), by_own.fit(own).predict(data), atol=1e-6)
    assert by_own.position_bias_ == wrong


def test_the_cost_is_chosen_by_the_loss_on_validation_clicks() -> None:
    data = logistic_lists(lists=60)
    train, valid = (
        simulate_clicks(part, RandomRanking(), BIAS, impressions=150, seed=number)
        for number, part in enumerate((data[:30], data[30:]))
    )
    costs, losses = [1e-5, 1e-2, 1e-1, 10.0], []
    counts = valid.compact()
    for cost in costs:
        one = RelevanceRegression(l2=cost).fit(train, valid=valid).predict(counts.data)
        losses.append(float((counts.shown() * one**2 - 2 * one * counts.ips_weights(BIAS)).sum()))
    ranker = RelevanceRegression(l2=costs).fit(train, valid=valid)
    assert ranker.l2_ == costs[int(np.argmin(losses))]
    alone = RelevanceRegression(l2=ranker.l2_).fit(train, valid=valid)
    np.testing.assert_allclose(ranker.predict(data), alone.predict(data), atol=1e-3)


@pytest.mark.parametrize(("factor", "shift"), [(50.0, 60.0), (1000.0, 1e5)])
def test_scaled_features_may_be_on_any_scale(factor: float, shift: float) -> None:
    data = logistic_lists()
    moved = replace(data, features=data.features * np.float32(factor) + np.float32(shift))
    one, other = (
        RelevanceRegression(l2=0.001, valid_share=0, position_bias=BIAS, scale_features=True).fit(part)
        for part in (data, moved)
    )
    np.testing.assert_allclose(one.predict(data), other.predict(moved), atol=2e-3)


def test_estimates_are_probabilities_even_far_out() -> None:
    data = logistic_lists()
    ranker = RelevanceRegression(l2=1e-4, valid_share=0, position_bias=BIAS).fit(data)
    far = ranker.predict(np.array([[20.0, 0, 0, 0], [21.0, 0, 0, 0], [-40.0, 0, 0, 0]]))
    assert 1 > far[1] > far[0] > 0.99
    assert 0 < far[2] < 0.01


def test_relative_errors_by_hand() -> None:
    # every item is estimated at the mean, 3 / 6
    data = same_items([1, 0, 0.5, 1, 0.5, 0], [0, 0, 1, 1, -1, 2], [3, 3])
    ranker = RelevanceRegression(l2=0.1, valid_share=0, position_bias=BIAS).fit(data)
    np.testing.assert_allclose(ranker.predict(data), 0.5, atol=1e-4)
    errors = ranker.relative_error(data)
    assert errors["a"] == pytest.approx(0.0, abs=1e-3)
    assert errors["b"] == pytest.approx((1.0 - 1.5) / 1.5, abs=1e-3)
    assert math.isnan(errors["c"])
    with pytest.raises(InputError, match="relevance"):
        ranker.relative_error(replace(data, relevance=None))


def test_without_empty_impressions_relevance_comes_out_too_high() -> None:
    log = random_log(random_lists(), impressions=500)
    every, some = (
        RelevanceRegression(l2=0.01, valid_share=0).fit(given).predict(log.data)
        for given in (log, log.drop_empties())
    )
    assert some.mean() > every.mean() + 0.05


@pytest.mark.parametrize(
    ("settings", "column"),
    [
        ({"model": "tree"}, "model"),
        ({"hidden": [0], "model": "mlp"}, "hidden"),
        ({"l2": -1.0}, "l2"),
        ({"l2": []}, "l2"),
        ({"position_bias": 0.5}, "position_bias"),
        ({"scale_features": "yes"}, "scale_features"),
        ({"valid_share": 1.0}, "valid_share"),
        ({"valid_share": 0, "l2": None}, "valid_share"),
        ({"valid_share": 0, "l2": [0.1, 0.2]}, "valid_share"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], column: str) -> None:
    with pytest.raises(InputError) as caught:
        made(**settings)().fit(random_lists())
    assert caught.value.column == column


def test_a_module_is_no_model_of_relevance() -> None:
    module = RelevanceRegression(l2=0.1, position_bias=BIAS).fit(random_lists()).scorer_
    with pytest.raises(InputError, match="'linear' or 'mlp'"):
        made(model=module)().fit(random_lists())


def test_what_cannot_be_learned_from_is_refused() -> None:
    data = random_lists()
    with pytest.raises(InputError, match="no relevance"):
        made()().fit(replace(data, relevance=None))
    with pytest.raises(InputError, match="no features"):
        made()().fit(
            replace(
                data, features=np.empty((data.rows, 0), dtype=np.float32), feature_names=(), group_columns=()
            )
        )
    log = random_log(data)
    unseen = replace(log, position=np.zeros_like(log.position), click=np.zeros_like(log.click))
    with pytest.raises(InputError, match="could be examined"):
        made(valid_share=0)().fit(unseen)
