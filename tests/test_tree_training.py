"""Training of trees: gradients, what is grown, and what is kept of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fultr
import fultr.baselines
from fultr import ClickLog, FairRanker, InputError, RankingDataset, TreeSettings
from fultr.policy import GroupBlind, SummedScorer, Trees, TreeScorer
from fultr.training import growing, tree_model
from fultr.training.goals import Penalised
from fultr.training.growing import ScoreSlopes, stops_of
from fultr.training.lightgbm_trees import BinnedRows
from fultr.training.models import LinearModel
from fultr.training.objective import Objective
from fultr.training.offset_search import best_temperature
from fultr.training.scaling import Scaling
from fultr.training.tree_model import TreeModel
from tests.training_tasks import BIAS, random_log, random_task

Array = NDArray[np.float64]

SMALL = TreeSettings(rounds=40, min_rows=10, leaves=6)
MODELS = ("trees", "linear+trees")


def curved(
    *, lists: int = 240, seed: int = 0, groups: int = 2, product: float = 2.0, gap: float = 1.2
) -> RankingDataset:
    """Lists of 6 items, relevant where two features have the same sign, and mostly of the first group."""
    rng = np.random.default_rng(seed)
    rows = 6 * lists
    group = rng.integers(groups, size=rows)
    features = rng.normal(size=(rows, 5)).astype(np.float32)
    features[:, 4] = group + rng.normal(size=rows) / 10
    hidden = product * features[:, 0] * features[:, 1] + gap / 2 - gap * group
    return RankingDataset(
        features,
        np.arange(0, rows + 1, 6),
        group=group,
        group_names=[f"group {code}" for code in range(groups)],
        relevance=1 / (1 + np.exp(-hidden)),
        query_id=np.arange(lists) + 10_000 * seed,
        doc_id=np.arange(rows) + 100_000 * seed,
        feature_names=["a", "b", "c", "d", "shade"],
        group_columns=[4],
    )


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return random_log(curved(), impressions=12_000)


@pytest.fixture(scope="module")
def free(log: ClickLog) -> dict[str, FairRanker]:
    return {model: made(model, fairness_weight=0.0).fit(log) for model in (*MODELS, "linear")}


def made(model: str, **settings: Any) -> FairRanker:
    trees = SMALL if model in MODELS else None
    return FairRanker(**{"model": model, "position_bias": BIAS, "trees": trees, **settings})


def trees_of(ranker: FairRanker) -> Trees:
    scorer = ranker.scorer_.scorer
    scorer = scorer.scorer if isinstance(scorer, GroupBlind) else scorer
    scorer = scorer.trees if isinstance(scorer, SummedScorer) else scorer
    assert isinstance(scorer, TreeScorer)
    return scorer.trees


# --- gradients ---


@pytest.mark.parametrize("fairness_weight", [0.0, 5.0])
def test_slopes_by_scores_are_those_of_the_objective(fairness_weight: float) -> None:
    task = random_task(lists=30, groups=3, unknown=0.1)
    slopes = ScoreSlopes(task, fairness_weight)
    slopes.objective.accuracy = "double"
    scores = np.random.default_rng(0).normal(size=task.data.rows).astype(np.float32).astype(np.float64)
    found, step = slopes(scores), 2.0**-6

    def value(at: Array) -> float:
        measured = slopes.objective.measure(at[None])
        return float(Penalised(np.full(1, fairness_weight))(*measured).value[0])

    for row in range(0, task.data.rows, 7):
        move = np.zeros(task.data.rows)
        move[row] = step
        # of fourth order, with steps that float32 can hold
        wide = (value(scores + 2 * move) - value(scores - 2 * move)) / (4 * step)
        near = (value(scores + move) - value(scores - move)) / (2 * step)
        assert found[row] == pytest.approx((4 * near - wide) / 3, abs=1e-5, rel=1e-3)


@pytest.mark.parametrize("linear", [False, True])
def test_slopes_by_parameters_are_sums_over_leaves(linear: bool) -> None:
    task = random_task(lists=60)
    model = family(task.data, linear=linear)
    rng = np.random.default_rng(0)
    parameters, move = rng.normal(size=(2, 3, model.size))
    slopes = rng.normal(size=(3, task.data.rows))
    rows = slice(7, task.data.rows - 5)
    change = model.scores(parameters + move, rows).astype(np.float64) - model.scores(parameters, rows)
    found = model.pull_back(parameters, rows, slopes[:, rows])
    expected = (change * slopes[:, rows]).sum(axis=1)
    np.testing.assert_allclose((found * move).sum(axis=1), expected, rtol=1e-4, atol=1e-3)


def family(data: RankingDataset, *, linear: bool = False) -> TreeModel:
    """Return a family of trees grown on noise."""
    settings = TreeSettings(min_rows=3, leaves=5)
    slopes = np.random.default_rng(1).normal(size=data.rows)
    trees = BinnedRows(data, (), settings).grow(lambda added: slopes - added, 8, 0)
    part = LinearModel(data, Scaling.standard(data)) if linear else None
    model = TreeModel(data, settings, part)
    return model.with_trees(trees, np.linspace(-1, 1, data.features.shape[1]) if linear else None)


@pytest.mark.parametrize("linear", [False, True])
def test_a_scorer_gives_the_scores_of_the_family(linear: bool) -> None:
    data = random_task(lists=60).data
    model = family(data, linear=linear)
    for parameters in (model.initial(0), np.random.default_rng(0).normal(size=model.size)):
        scores = fultr.policy.TorchPolicy(model.scorer(parameters)).predict(data)
        known = model.scores(parameters[None], slice(None))[0]
        np.testing.assert_allclose(scores - scores.mean(), known - known.mean(), atol=1e-5)


def test_the_size_of_parameters_is_that_of_scores() -> None:
    model = family(random_task(lists=60).data)
    rng = np.random.default_rng(0)
    starts = model.trees.leaf_starts
    for start, stop in pairwise(starts):
        parameters = np.zeros(model.size)
        parameters[start:stop] = rng.normal(size=stop - start)
        scores = model.scores(parameters[None], slice(None))[0]
        assert (parameters**2).sum() == pytest.approx((scores.astype(np.float64) ** 2).mean(), rel=1e-4)


def test_other_rows_have_the_same_scores() -> None:
    data = random_task(lists=60).data
    model = family(data)
    some = data[[5, 3, 2]]
    parameters = np.random.default_rng(0).normal(size=(2, model.size))
    rows = np.concatenate([np.arange(data.offsets[q], data.offsets[q + 1]) for q in (5, 3, 2)])
    elsewhere = model.on(some)
    expected = model.scores(parameters, slice(None))[:, rows]
    np.testing.assert_array_equal(elsewhere.scores(parameters, slice(None)), expected)
    assert model.on(some) is elsewhere


def test_gradients_of_the_objective_by_leaf_values() -> None:
    task = random_task(lists=60)
    model = family(task.data, linear=True)
    objective = Objective(task, model, np.full(1, 0.1), accuracy="double")
    goal, which = Penalised(np.full(1, 3.0)), np.zeros(1, dtype=np.int64)
    rng = np.random.default_rng(0)
    point, direction = rng.normal(size=(2, 1, model.size)) / 4
    measured = objective.measure(point)
    slope = float((objective.gradient(goal, point, which, measured) * direction).sum())
    step = 1e-2

    def value(length: float) -> float:
        return float(objective.value(goal, point + length * direction, which)[0][0])

    assert slope == pytest.approx((value(step) - value(-step)) / (2 * step), rel=2e-3, abs=1e-5)


# --- what is learned ---


def test_trees_learn_what_is_not_linear() -> None:
    world: dict[str, Any] = {"product": 4.0, "gap": 0.0}
    log, test = random_log(curved(**world), impressions=6000), curved(**world, seed=7)
    found = {}
    for model in (*MODELS, "linear"):
        ranker = made(model, fairness_weight=0.0).fit(log)
        found[model] = fultr.evaluate(ranker, test, intervals=None).dcg
    random, ideal = (
        fultr.evaluate(policy, test, position_bias=BIAS, intervals=None).dcg
        for policy in (
            fultr.RandomRanking(),
            fultr.FixedScorer(lambda features: features[:, 0] * features[:, 1]),
        )
    )
    # of what there is to learn, a linear scorer gets next to nothing
    shares = {model: (dcg - random) / (ideal - random) for model, dcg in found.items()}
    assert shares["linear"] < 0.2
    assert shares["trees"] > 0.6
    assert shares["linear+trees"] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_limits_hold(log: ClickLog, free: dict[str, FairRanker], model: str) -> None:
    limit = free[model].training_disparity_ / 4
    ranker = made(model, max_disparity=limit).fit(log)
    assert ranker.training_disparity_ <= limit * (1 + 1e-6)
    assert ranker.training_utility_ > 0.8 * free[model].training_utility_
    assert free[model].training_disparity_ > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_share_of_the_utility_is_kept(log: ClickLog, free: dict[str, FairRanker], model: str) -> None:
    ranker = made(model, min_utility=0.95).fit(log)
    assert ranker.training_utility_ >= 0.95 * free[model].training_utility_ * (1 - 1e-6)
    assert ranker.training_disparity_ < 0.7 * free[model].training_disparity_


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_fairness_weight_makes_fairer(log: ClickLog, free: dict[str, FairRanker], model: str) -> None:
    ranker, test = made(model, fairness_weight=100.0).fit(log), curved(seed=7)
    fairer = fultr.evaluate(ranker, test, intervals=None).disparity_squared
    assert fairer < 0.2 * fultr.evaluate(free[model], test, intervals=None).disparity_squared


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_confidence_and_offsets(log: ClickLog, model: str) -> None:
    sure = made(model, max_disparity=0.5, confidence=0.9).fit(log)
    assert sure.new_queries_ is not None
    assert sure.new_queries_["disparity"][2] <= 0.5
    shifted = made(model, max_disparity=0.05, fairness="offsets").fit(log)
    assert shifted.new_queries_ is not None
    assert shifted.new_queries_["disparity"][0] <= 0.05 * (1 + 1e-6)
    assert shifted.offsets_["group 1"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_group_blind_trees_split_on_no_column_of_the_group(log: ClickLog, model: str) -> None:
    blind = made(model, fairness_weight=3.0, group_blind=True).fit(log)
    assert set(trees_of(blind).feature.tolist()) <= {0, 1, 2, 3}
    seeing = made(model, fairness_weight=3.0).fit(log)
    assert 4 in trees_of(seeing).feature
    test = curved(seed=7)
    other = test.features.copy()
    other[:, 4] = 1e6
    np.testing.assert_array_equal(blind.predict(test), blind.predict(replace(test, features=other)))


@pytest.mark.slow
def test_sweeps(log: ClickLog) -> None:
    front = fultr.sweep(log, ranker=made("trees"), fairness_weights=[0.0, 1.0, 30.0])
    assert len(front.points) == 9
    chosen = [point.train_disparity for point in front.chosen]
    assert chosen[2] < 0.5 * chosen[0]
    ranker = front.ranker(front.chosen[1])
    assert ranker.training_utility_ == pytest.approx(front.chosen[1].train_utility, rel=1e-3)


def test_one_cost_grows_all_rounds_and_needs_no_folds(log: ClickLog) -> None:
    ranker = made("trees", fairness_weight=0.0, l2=0.01, folds=0).fit(log)
    assert len(trees_of(ranker)) == SMALL.rounds
    costly = made("trees", fairness_weight=0.0, l2=1.0, folds=0).fit(log)
    assert np.abs(costly.predict(log.data)).max() < np.abs(ranker.predict(log.data)).max()


# --- how many rounds ---


def test_stops() -> None:
    assert stops_of(1) == [1]
    assert stops_of(5) == [5]
    assert stops_of(60) == [5, 10, 20, 40, 60]
    assert stops_of(320) == [5, 10, 20, 40, 70, 100, 150, 200, 250, 300, 320]


@pytest.mark.parametrize("validated", [False, True])
def test_left_out_clicks_choose_the_rounds(
    log: ClickLog, monkeypatch: pytest.MonkeyPatch, validated: bool
) -> None:
    utilities = []

    def recorded(*given: Any) -> tuple[float, float]:
        utilities.append(best_temperature(*given)[1])
        return best_temperature(*given)

    monkeypatch.setattr(growing, "best_temperature", recorded)
    valid = random_log(curved(seed=3), impressions=2000) if validated else None
    ranker = made("trees", fairness_weight=0.0).fit(log, valid=valid)
    assert len(utilities) == len(stops_of(SMALL.rounds))
    assert len(trees_of(ranker)) == stops_of(SMALL.rounds)[int(np.argmax(utilities))]
    assert ranker.validation_ is not None
    assert ranker.validation_["dcg"] == pytest.approx(max(utilities), rel=2e-3)


def test_growing_stops_where_it_no_longer_pays(log: ClickLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def falling(_task: Any, scores: Array) -> tuple[float, float]:
        asked.append(scores)
        return 1.0, -float(len(asked))

    monkeypatch.setattr(growing, "best_temperature", falling)
    ranker = made("trees", fairness_weight=0.0, trees=replace(SMALL, rounds=500)).fit(log)
    assert len(trees_of(ranker)) == 5
    # twice the best number, and 200 more
    assert len(asked) == len([stop for stop in stops_of(500) if stop <= 250])


def test_without_any_tree_the_policy_is_the_linear_one(
    log: ClickLog, free: dict[str, FairRanker], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def first_is_best(task: Any, scores: Array) -> tuple[float, float]:
        calls.append(scores)
        return 1.0, -float(len(calls))

    monkeypatch.setattr(growing, "best_temperature", first_is_best)
    ranker = made("linear+trees", fairness_weight=0.0).fit(log)
    assert not len(trees_of(ranker))
    # at another temperature, which the counterfeit has chosen
    found, expected = (one.predict(log.data) for one in (ranker, free["linear"]))
    np.testing.assert_allclose(found / np.ptp(found), expected / np.ptp(expected), atol=1e-5)


# --- settings ---


def test_monotone_features_never_turn_round(log: ClickLog) -> None:
    trees = replace(SMALL, monotone={"a": 1, "b": -1})
    ranker = made("trees", fairness_weight=0.0, trees=trees).fit(log)
    test = curved(seed=7)
    for column, sign in ((0, 1), (1, -1)):
        features = test.features.copy()
        low = ranker.predict(replace(test, features=features))
        features[:, column] += 0.7
        assert (sign * (ranker.predict(replace(test, features=features)) - low) >= 0).all()
    assert len(trees_of(ranker))


def test_interactions_keep_features_apart() -> None:
    trees = replace(SMALL, interactions=[["a", "b"], ["b", "c"]])
    even = random_log(curved(gap=0.0), impressions=12_000)  # else trees split on the group alone
    ranker = made("trees", fairness_weight=0.0, trees=trees).fit(even)
    grown = trees_of(ranker)
    allowed = [{0, 1}, {1, 2}, {3}, {4}]
    paths = [path for tree in range(len(grown)) for path in paths_of(grown, tree)]
    assert all(any(path <= group for group in allowed) for path in paths)
    assert any(path == {0, 1} for path in paths)  # whose product is what is relevant
    assert any(path == {1, 2} for path in paths)


def paths_of(trees: Trees, tree: int, node: int = 0) -> list[set[int]]:
    """Return the features that are split on along each path to a leaf."""
    if node < 0:
        return [set()]
    at = int(trees.starts[tree]) + node
    below = [
        path for child in (trees.left[at], trees.right[at]) for path in paths_of(trees, tree, int(child))
    ]
    return [path | {int(trees.feature[at])} for path in below]


def test_settings_of_trees(log: ClickLog) -> None:
    wide = made(
        "trees", fairness_weight=0.0, l2=0.1, folds=0, trees=TreeSettings(rounds=7, leaves=3, min_rows=100)
    ).fit(log)
    trees = trees_of(wide)
    assert len(trees) == 7
    assert np.diff(trees.starts).max() == 2
    leaves = trees.leaves(log.data.features)
    assert min(np.bincount(leaf).min() for leaf in leaves) >= 100
    one, other = (
        made(
            "trees", fairness_weight=0.0, seed=seed, trees=replace(SMALL, column_share=0.5, row_share=0.5)
        ).fit(log)
        for seed in (0, 1)
    )
    assert not np.array_equal(one.predict(log.data), other.predict(log.data))


@pytest.mark.parametrize(
    ("settings", "column"),
    [
        ({"leaves": 1}, "leaves"),
        ({"leaves": 1 << 20}, "leaves"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"min_rows": 0}, "min_rows"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"column_share": 1.5}, "column_share"),
        ({"row_share": "all"}, "row_share"),
        ({"monotone": {"a": 2}}, "monotone"),
        ({"monotone": ["a"]}, "monotone"),
        ({"interactions": ["ab"]}, "interactions"),
        ({"interactions": [5]}, "interactions"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], column: str) -> None:
    with pytest.raises(InputError) as caught:
        TreeSettings(**settings)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "trees", "protocol": "paper"}, "cannot grow trees"),
        ({"model": "linear", "trees": SMALL}, "'trees' or 'linear\\+trees'"),
        ({"model": "trees", "trees": {"leaves": 3}}, "must be TreeSettings"),
        ({"model": "trees", "l2": [0.1, 1.0]}, "must be a single number"),
        ({"model": "trees", "trees": replace(SMALL, monotone={"a": 1})}, "moves their leaves"),
        (
            {"model": "linear+trees", "fairness_weight": 0.0, "trees": replace(SMALL, monotone={"a": 1})},
            "trees alone",
        ),
        (
            {"model": "trees", "fairness_weight": 0.0, "trees": replace(SMALL, monotone={"z": 1})},
            "no such feature",
        ),
        ({"model": "trees", "trees": replace(SMALL, interactions=[["a", "z"]])}, "no such feature"),
        (
            {"model": "trees", "group_blind": True, "trees": replace(SMALL, interactions=[["shade"]])},
            "no such feature",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(log: ClickLog, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        FairRanker(position_bias=BIAS, **settings).fit(log)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [fultr.baselines.LambdaRank, fultr.baselines.FairPGRank])
def test_other_rankers_check_not_trees(log: ClickLog, make: Any) -> None:
    with pytest.raises(InputError, match="cannot grow trees"):
        make(model="trees", position_bias=BIAS).fit(log)


def test_without_lightgbm_one_line_says_what_to_install(
    log: ClickLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(InputError, match=r"pip install 'fultr\[trees\]'"):
        made("trees").fit(log)


def test_features_without_a_split_leave_no_trees(log: ClickLog) -> None:
    flat = replace(log, data=replace(log.data, features=np.ones_like(log.data.features)))
    ranker = made("trees", fairness_weight=1.0).fit(flat)
    assert not len(trees_of(ranker))
    assert np.ptp(ranker.predict(log.data)) == 0


def test_leaves_of_many_rows_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    task = random_task(lists=60)
    model = family(task.data)
    parameters = np.random.default_rng(0).normal(size=(2, model.size))
    expected = model.scores(parameters, slice(None))
    assert model.leaves is model.leaves
    monkeypatch.setattr(tree_model, "MOST_BYTES", model.leaves.nbytes)
    halves = [model.with_trees(model.trees) for _ in range(2)]
    assert all(one.leaves is one.leaves for one in halves)
    kept = halves[1].leaves
    np.testing.assert_array_equal(halves[0].scores(parameters, slice(None)), expected)
    assert halves[1].leaves is not kept  # given up for those of the other
    np.testing.assert_array_equal(halves[1].leaves, kept)
