"""Limits of the disparity and prices in utility: they hold on the training estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fultr import (
    ClickLog,
    DataSplits,
    FairRanker,
    InputError,
    RandomRanking,
    UnreachableLimitError,
    datasets,
    simulate_clicks,
)
from fultr import evaluate as evaluate_policy
from fultr.training.goals import squared
from fultr.training.limits import MARGIN, fairest, most_useful
from fultr.training.preparation import prepare
from fultr.training.solving import Solver
from tests.training_tasks import BIAS, small_log


def trained(log: Any, **settings: Any) -> FairRanker:
    return FairRanker(**{"l2": 0.003, "folds": 0, "position_bias": BIAS, **settings}).fit(log)


@pytest.fixture(scope="module")
def two() -> ClickLog:
    return small_log(2)


@pytest.fixture(scope="module")
def three() -> ClickLog:
    return small_log(3)


@pytest.fixture(scope="module")
def german_log(german: DataSplits) -> ClickLog:
    return simulate_clicks(german.train[:250], RandomRanking(), BIAS, clicks=2000, seed=0)


def check_limits(log: ClickLog, shares: list[float], **settings: Any) -> None:
    """Train below shares of the disparity without a limit, and measure what is reached."""
    free = trained(log, fairness_weight=0.0, **settings)
    assert free.training_disparity_ > 0.05
    for share in shares:
        limit = share * free.training_disparity_
        ranker = trained(log, max_disparity=limit, **settings)
        # measured apart from training
        found = evaluate_policy(ranker, log, position_bias=BIAS, intervals=None)
        assert np.sqrt(found.disparity_squared) == pytest.approx(ranker.training_disparity_, abs=1e-6)
        # a limit of 0 holds up to a thousandth of what there was
        assert ranker.training_disparity_ <= (limit or MARGIN * free.training_disparity_)
        assert ranker.training_utility_ > 0.5 * free.training_utility_


@pytest.mark.slow
def test_limits_hold_for_two_groups(two: ClickLog) -> None:
    check_limits(two, [0.9, 0.5, 0.2, 0.05, 0.01, 0.003, 0.0005, 0.0])


@pytest.mark.slow
def test_limits_hold_on_german_credit(german_log: ClickLog) -> None:
    check_limits(german_log, [0.5, 0.1, 0.01, 0.0], l2=0.01)


def test_limits_hold_for_three_groups(three: ClickLog) -> None:
    check_limits(three, [0.9, 0.7, 0.5])


@pytest.mark.slow
@pytest.mark.parametrize("groups", [2, 3])
def test_limits_hold_for_a_network(groups: int) -> None:
    log = small_log(groups, queries=30, clicks=1000)
    check_limits(log, [0.5, 0.1, 0.0], model="mlp", hidden=[4], l2=0.01)


def test_limits_hold_for_every_cost_of_large_parameters(two: ClickLog) -> None:
    ready = prepare(FairRanker(0.0, l2=[0.1, 0.01, 0.001], position_bias=BIAS), two)
    solution = most_useful(Solver(ready.task, ready.model, ready.l2), 0.2)
    assert solution.held.all()
    assert (solution.root_disparity <= 0.2).all()
    measured = Solver(ready.task, ready.model, ready.l2).measure(solution.parameters, "double")
    np.testing.assert_allclose(np.sqrt(squared(measured.disparity)), solution.root_disparity)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_a_limit_that_does_not_bind_changes_nothing(two: ClickLog, model: str) -> None:
    free = trained(two, fairness_weight=0.0, model=model)
    ranker = trained(two, max_disparity=1.01 * free.training_disparity_, model=model)
    np.testing.assert_array_equal(ranker.predict(two.data), free.predict(two.data))
    assert ranker.multiplier_ == 0


def test_tighter_limits_cost_more(two: ClickLog) -> None:
    free = trained(two, fairness_weight=0.0)
    found = [trained(two, max_disparity=share * free.training_disparity_) for share in (0.8, 0.5, 0.2)]
    utility = [ranker.training_utility_ for ranker in (free, *found)]
    assert (np.diff(utility) < 0).all()
    assert (np.diff([ranker.multiplier_ for ranker in (free, *found)]) > 0).all()
    # the most useful one uses what it is allowed
    for ranker, share in zip(found, (0.8, 0.5, 0.2), strict=True):
        assert ranker.training_disparity_ == pytest.approx(share * free.training_disparity_, rel=0.01)


@pytest.mark.parametrize("groups", [2, 3])
def test_the_multiplier_is_the_weight_that_gives_the_same_policy(
    two: ClickLog, three: ClickLog, groups: int
) -> None:
    log, share = (two, 0.3) if groups == 2 else (three, 0.6)
    free = trained(log, fairness_weight=0.0, l2=0.01)
    limited = trained(log, max_disparity=share * free.training_disparity_, l2=0.01)
    weight = limited.multiplier_
    same = trained(log, fairness_weight=weight, l2=0.01)
    assert same.training_disparity_ == pytest.approx(limited.training_disparity_, rel=0.03)
    assert same.training_utility_ == pytest.approx(limited.training_utility_, rel=0.002)
    one, other = same.predict(log.data), limited.predict(log.data)
    assert np.corrcoef(one, other)[0, 1] > 0.999


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_the_share_of_utility_is_kept(two: ClickLog, model: str) -> None:
    cost = 0.01
    free = trained(two, fairness_weight=0.0, model=model, l2=cost)
    reached = []
    for share in (0.99, 0.95):
        ranker = trained(two, min_utility=share, model=model, l2=cost)
        assert ranker.training_utility_ >= share * free.training_utility_
        reached.append(ranker.training_disparity_)
    assert free.training_disparity_ > reached[0] >= reached[1]
    # a network is fair up to rounding for less than a hundredth of the utility
    assert reached[0] > reached[1] or (model == "mlp" and reached[0] < MARGIN * free.training_disparity_)


def test_all_of_the_utility_can_be_kept(two: ClickLog, three: ClickLog) -> None:
    for log in (two, three):
        free = trained(log, fairness_weight=0.0)
        ranker = trained(log, min_utility=1.0)
        assert ranker.training_utility_ >= free.training_utility_ * (1 - 1e-12)
        assert ranker.training_disparity_ <= free.training_disparity_


def test_the_fairest_policy_is_as_fair_as_a_limit_that_costs_as_much(two: ClickLog) -> None:
    free = trained(two, fairness_weight=0.0, l2=0.01)
    for part in (0.0, 0.3):
        limited = trained(two, max_disparity=part * free.training_disparity_, l2=0.01)
        kept = limited.training_utility_ / free.training_utility_
        ranker = trained(two, min_utility=kept - 0.002, l2=0.01)
        assert ranker.training_utility_ >= (kept - 0.002) * free.training_utility_
        assert ranker.training_disparity_ <= (part + 0.01) * free.training_disparity_


def test_shares_of_negative_utilities_are_below_them(two: ClickLog) -> None:
    settings: dict[str, Any] = {"utility": "average_rank", "l2": 0.01}
    free = trained(two, fairness_weight=0.0, **settings)
    assert free.training_utility_ < 0
    ranker = trained(two, min_utility=0.97, **settings)
    assert 1.03 * free.training_utility_ <= ranker.training_utility_ < free.training_utility_
    assert ranker.training_disparity_ < 0.9 * free.training_disparity_


def test_without_two_groups_there_is_nothing_to_limit(two: ClickLog) -> None:
    one = replace(two, data=replace(two.data, group=np.zeros(two.data.rows, dtype=int), group_names=("all",)))
    for limit in ({"min_utility": 0.9}, {"max_disparity": 0.1}):
        with pytest.raises(InputError, match="there are no two groups"):
            trained(one, **limit)


def test_shares_are_kept_for_every_cost_of_large_parameters(two: ClickLog) -> None:
    ready = prepare(FairRanker(min_utility=0.97, l2=[0.1, 0.01, 0.001], position_bias=BIAS), two)
    solver = Solver(ready.task, ready.model, ready.l2)
    free, kept = solver.penalised(np.zeros(3)), fairest(solver, 0.97)
    exact = solver.measure(free.parameters, "double").utility
    assert (kept.measured.utility >= 0.97 * exact).all()
    assert (kept.root_disparity < free.root_disparity).all()


def test_limits_out_of_reach_say_what_is_in_reach() -> None:
    data = datasets.studios(films=5)
    with pytest.raises(UnreachableLimitError, match="the lowest found is") as caught:
        trained(data, max_disparity=0.0, l2=0.0)
    lowest = caught.value.lowest
    assert caught.value.limit == 0.0
    assert 0 < lowest < 2
    # what is said to be in reach is
    ranker = trained(data, max_disparity=1.05 * lowest, l2=0.0)
    assert ranker.training_disparity_ <= 1.05 * lowest


def test_impossible_limits_are_refused(two: ClickLog) -> None:
    for settings in ({"max_disparity": -0.1}, {"max_disparity": np.inf}, {"min_utility": 0.0}):
        with pytest.raises(InputError, match=f"column '{next(iter(settings))}'"):
            trained(two, **settings)
    with pytest.raises(InputError, match="only one of"):
        trained(two, max_disparity=0.1, min_utility=0.9)


# --- the example of the paper's introduction ---


def exposures(ranker: FairRanker) -> list[float]:
    return list(ranker.evaluate(datasets.studios(), intervals=None).exposure.values())


def test_ranking_by_relevance_favours_the_first_studio() -> None:
    ranker = trained(datasets.studios(), fairness_weight=0.0, l2=0.0)
    assert exposures(ranker) == pytest.approx([3.99, 0.68, 0.40], abs=0.01)
    assert ranker.training_disparity_**2 == pytest.approx(4720, rel=0.002)


@pytest.mark.parametrize("goal", [{"fairness_weight": 30.0}, {"min_utility": 0.99}])
def test_the_fairest_policy_treats_two_studios_alike(goal: dict[str, float]) -> None:
    ranker = trained(datasets.studios(), l2=0.0, **goal)
    assert exposures(ranker) == pytest.approx([2.36, 2.32, 0.40], abs=0.01)
    assert ranker.training_disparity_**2 == pytest.approx(3.8, abs=0.02)
    # for two thousandths of the utility
    assert (
        ranker.training_utility_
        > 0.998 * trained(datasets.studios(), fairness_weight=0.0, l2=0.0).training_utility_
    )


def test_a_limit_between_the_two_is_met() -> None:
    ranker = trained(datasets.studios(), max_disparity=2.5, l2=0.0)
    first, second, third = exposures(ranker)
    assert ranker.training_disparity_ <= 2.5
    assert 0 < first - second < 0.2
    assert third == pytest.approx(0.40, abs=0.01)


def test_the_studios_from_clicks_alone() -> None:
    data = datasets.studios()
    log = simulate_clicks(data, RandomRanking(), BIAS, impressions=20_000, seed=0)
    ranker = trained(log, fairness_weight=30.0, l2=1e-4)
    assert exposures(ranker) == pytest.approx([2.36, 2.32, 0.40], abs=0.15)
    utility_only = trained(log, fairness_weight=0.0, l2=1e-4)
    assert exposures(utility_only)[2] == pytest.approx(0.40, abs=0.01)
    assert ranker.evaluate(data, intervals=None).disparity_squared < 60
    assert utility_only.evaluate(data, intervals=None).disparity_squared > 1000
