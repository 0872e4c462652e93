"""PG-Rank and Fair-PG-Rank: the contract, the disparity of treatment, its gradient, what training reaches."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fultr import ClickLog, ClickNoise, FairRanker, InputError, RankingDataset, datasets
from fultr.baselines.fair_pg_rank import FairPGRank, fair_pg_rank_sweep
from fultr.baselines.pg_rank import PGRank
from fultr.baselines.treatment import (
    Comparisons,
    Treated,
    TreatmentObjective,
    compare_groups,
    lists_of_counts,
    treatment_disparity,
)
from fultr.estimators.evidence import Candidates
from fultr.policy import MLPScorer
from fultr.training.goals import Goal
from fultr.training.models import LinearModel, Model, ModuleModel
from fultr.training.scaling import Scaling
from fultr.training.task import Task, Weighing
from tests.ranker_contract import Candidate, Contract, clicks_on, lists
from tests.reference import enumerated_values
from tests.training_tasks import BIAS, random_lists, random_log

Array = NDArray[np.float64]
NAIVE = Weighing(BIAS, utility_ips=False, disparity_ips=False)
WEIGHTED = Weighing(BIAS)


def made(kind: Any, **settings: Any) -> Any:
    """Return a function that makes a ranker with these settings and those of a test."""
    known = {"l2": 0.01, "position_bias": BIAS, **settings}
    return lambda **more: kind(**{**known, **more})


CANDIDATES = {
    "PG-Rank": Candidate(made(PGRank, l2=[0.001, 0.1])),
    "Fair-PG-Rank": Candidate(made(FairPGRank, l2=[0.001, 0.1]), per_impression=True),
    "Fair-PG-Rank, mlp": Candidate(made(FairPGRank, model="mlp", hidden=[3]), per_impression=True),
    "Fair-PG-Rank-IPS": Candidate(made(FairPGRank, ips=True), per_impression=True),
    "Fair-PG-Rank, full information": Candidate(made(FairPGRank), labelled=True, per_impression=True),
}


@pytest.fixture(params=CANDIDATES)
def candidate(request: pytest.FixtureRequest) -> Candidate:
    return CANDIDATES[request.param]


class TestPolicyGradients(Contract):
    """All tests of the contract."""


def plain_treatment(merit: list[float], group: list[int], exposure: Array, groups: int) -> Array:
    """D_ij of one impression, from the averages of its groups and the rule of signs."""
    found = np.zeros((groups, groups))
    for i, j in itertools.permutations(range(groups), 2):
        places = {code: [place for place, own in enumerate(group) if own == code] for code in (i, j)}
        if not places[i] or not places[j]:
            continue
        merits = {code: sum(merit[place] for place in own) / len(own) for code, own in places.items()}
        exposed = {code: sum(exposure[place] for place in own) / len(own) for code, own in places.items()}
        if merits[i] >= merits[j] - 1e-12 and merits[j] > 0:
            found[i, j] = max(0.0, exposed[i] / merits[i] - exposed[j] / merits[j])
    return found


def plain_mean(source: ClickLog | RankingDataset, weighing: Weighing, scores: Array) -> tuple[float, Array]:
    """U and the D_ij of one policy: all rankings of each list, one impression after another."""
    data = source if isinstance(source, RankingDataset) else source.data
    groups = len(data.group_names)
    utility, disparity = 0.0, np.zeros((groups, groups))
    if isinstance(source, RankingDataset):
        assert source.relevance is not None
        entries, shown = source.relevance.astype(np.float64), np.arange(len(source))
    else:
        clicks = source.click.astype(np.float64)
        entries, shown = (source.ips_weights(BIAS) if weighing.disparity_ips else clicks), source.lists
    start, tables = 0, weighing.tables(int(data.lengths.max()))
    expected = [
        enumerated_values(scores[first:last], tables) for first, last in itertools.pairwise(data.offsets)
    ]
    for which in shown:
        rows = slice(int(data.offsets[which]), int(data.offsets[which + 1]))
        merit = entries[start : start + rows.stop - rows.start].tolist()
        start += len(merit)
        value, exposure = expected[which]
        utility += float(np.dot(merit, value))
        disparity += plain_treatment(merit, data.group[rows].tolist(), exposure, groups)
    return utility / len(shown), disparity / len(shown)


def clicked(data: RankingDataset, impressions: int = 300) -> ClickLog:
    """Return clicks on items that are more relevant than not, so that many impressions have several."""
    assert data.relevance is not None
    return random_log(
        replace(data, relevance=(0.5 + data.relevance / 2).astype(np.float32)), impressions=impressions
    )


def repeated_lists(seed: int) -> ClickLog:
    """Clicks on lists that come twice, the second time with their items the other way round."""
    data = random_lists(lists=6, groups=2, seed=seed)
    backwards = np.concatenate(
        [np.arange(start, stop)[::-1] for start, stop in itertools.pairwise(data.offsets)]
    )
    rows = np.concatenate([np.arange(data.rows), backwards])
    assert data.relevance is not None
    assert data.doc_id is not None
    twice = RankingDataset(
        data.features[rows],
        [*data.offsets, *(data.offsets[1:] + data.rows)],
        group=data.group[rows],
        group_names=data.group_names,
        relevance=data.relevance[rows],
        query_id=np.tile(np.arange(6), 2),
        doc_id=data.doc_id[rows],
    )
    return clicked(twice)


SOURCES: dict[str, tuple[ClickLog | RankingDataset, Weighing]] = {
    "clicks": (clicked(random_lists(seed=1)), NAIVE),
    "weighted clicks": (clicked(random_lists(seed=1)), WEIGHTED),
    "three groups": (clicked(random_lists(groups=3, seed=2)), NAIVE),
    "three groups, weighted": (clicked(random_lists(groups=3, seed=2)), WEIGHTED),
    "unknown groups": (clicked(random_lists(groups=3, unknown=0.3, seed=3)), NAIVE),
    "all groups unknown": (clicked(random_lists(unknown=1.0, seed=4)), NAIVE),
    "one group": (clicked(random_lists(groups=1, seed=5)), NAIVE),
    "repeated lists": (repeated_lists(6), NAIVE),
    "repeated lists, weighted": (repeated_lists(6), WEIGHTED),
    "relevance": (random_lists(groups=3, seed=7), NAIVE),
}


def objective_of(
    name: str, *, kind: str = "linear", width: float = 0.0, l2: tuple[float, ...] = (0.0,)
) -> TreatmentObjective:
    source, weighing = SOURCES[name]
    task = Task.of(source, weighing)
    scaling, columns = Scaling.standard(task.data), task.data.features.shape[1]
    model: Model = LinearModel(task.data, scaling)
    if kind == "mlp":
        model = ModuleModel(task.data, scaling, MLPScorer(columns, (3,), seed=1))
    comparisons = compare_groups(source, weighing, task.data)
    return TreatmentObjective(comparisons, task, model, np.array(l2), width=width, accuracy="double")


@pytest.mark.parametrize("name", SOURCES)
def test_utility_and_disparity_are_those_of_the_definition(name: str) -> None:
    source, weighing = SOURCES[name]
    data = source if isinstance(source, RankingDataset) else source.data
    objective = objective_of(name)
    parameters = np.random.default_rng(0).normal(size=(2, objective.model.size))
    found = objective.measure(parameters)
    assert isinstance(objective.model, Model)
    scores = objective.model.on(data).scores(parameters, slice(None)).astype(np.float64)
    for number in range(2):
        utility, disparity = plain_mean(source, weighing, scores[number])
        assert found.utility[number] == pytest.approx(utility, abs=1e-6)
        np.testing.assert_allclose(found.disparity[number], disparity, atol=1e-6)
    assert (found.disparity.sum() > 0) == (name not in ("one group", "all groups unknown"))


def test_equal_impressions_are_counted_together() -> None:
    source, weighing = SOURCES["repeated lists"]
    assert isinstance(source, ClickLog)
    once = compare_groups(source, weighing, source.compact().data)
    # two comparisons at most in an impression of two groups, and only where both have merit
    total = float(once.share.sum()) * len(source)
    assert total == pytest.approx(round(total))
    assert 0 < once.lists.numel() < total <= 2 * len(source)
    assert (once.lists.diff() >= 0).all()
    twice = replace(
        source,
        lists=np.tile(source.lists, 2),
        position=np.tile(source.position, 2),
        click=np.tile(source.click, 2),
        impression_id=None,
    )
    again = compare_groups(twice, weighing, twice.compact().data)
    for field in ("lists", "higher", "lower", "higher_merit", "lower_merit", "share"):
        np.testing.assert_array_equal(getattr(again, field), getattr(once, field))


@pytest.mark.parametrize("ids", ["numbers", "text", "none"])
def test_each_impression_is_of_its_list_in_the_counts(ids: str) -> None:
    rng = np.random.default_rng(0)
    # two documents or three of four of each query, in any order, so that lists differ, and differ in length
    chosen = [rng.permutation(4)[: rng.integers(2, 4)] for _ in range(40)]
    rows = np.concatenate([4 * (number % 5) + some for number, some in enumerate(chosen)])
    query, document = np.arange(40) % 5, 7 * rows % 20
    text = ids == "text"
    data = RankingDataset(
        rows[:, None].astype(np.float32),
        np.cumsum([0, *map(len, chosen)]),
        query_id=None if ids == "none" else [f"q{code}" for code in query] if text else query,
        doc_id=None if ids == "none" else [f"d{code}" for code in document] if text else document,
    )
    shown = rng.permutation(40)[:30].repeat(2)
    entries = int(data.lengths[shown].sum())
    log = ClickLog(data, shown, np.zeros(entries, int), np.zeros(entries, int))
    counts, found = log.compact(), lists_of_counts(log)
    assert len(counts.data) == (30 if ids == "none" else len(np.unique(found))) <= 30
    np.testing.assert_array_equal(np.bincount(found), counts.impressions)
    for own, number in zip(shown.tolist(), found.tolist(), strict=True):
        one, other = data[own], counts.data[number]
        assert sorted(one.features.ravel()) == sorted(other.features.ravel())


def treatment_of(merit: list[float], exposure: list[float], group: list[int], width: float = 0.0) -> Any:
    """The disparities of a single labelled list, for given exposures."""
    data = RankingDataset(
        np.zeros((len(group), 1)), [0, len(group)], group=group, group_names=["a", "b"], relevance=merit
    )
    comparisons = compare_groups(data, NAIVE, data)
    return treatment_disparity(torch.tensor(exposure, dtype=torch.float64), comparisons, width).numpy()


def test_only_the_group_of_higher_merit_can_have_too_much_exposure() -> None:
    found = treatment_of([1.0, 0.5], [1.0, 0.4], [0, 1])
    np.testing.assert_allclose(found, [[0.0, 1.0 / 1.0 - 0.4 / 0.5], [0.0, 0.0]])
    # the other way round, the group of lower merit has more than its share
    assert not treatment_of([1.0, 0.5], [0.4, 1.0], [0, 1]).any()
    np.testing.assert_allclose(treatment_of([0.5, 1.0], [0.4, 1.0], [0, 1]), [[0.0, 0.0], [0.2, 0.0]])
    # of two groups of the same merit, either can
    np.testing.assert_allclose(treatment_of([1.0, 1.0], [0.4, 1.0], [0, 1]), [[0.0, 0.0], [0.6, 0.0]])
    np.testing.assert_allclose(treatment_of([1.0, 1.0], [1.0, 0.4], [0, 1]), [[0.0, 0.6], [0.0, 0.0]])


def test_merit_is_that_of_the_average_item() -> None:
    # group a has more merit in sum, 0.9 to 0.6, but less for an item, 0.3 to 0.6
    merit, group = [0.3, 0.3, 0.3, 0.6], [0, 0, 0, 1]
    assert not treatment_of(merit, [1.0, 0.5, 0.3, 0.2], group).any()
    found = treatment_of(merit, [0.2, 0.3, 0.1, 1.0], group)
    np.testing.assert_allclose(found, [[0.0, 0.0], [1.0 / 0.6 - 0.2 / 0.3, 0.0]])


def test_a_group_without_merit_is_not_compared() -> None:
    assert not treatment_of([1.0, 0.0], [1.0, 0.5], [0, 1]).any()
    assert not treatment_of([0.0, 0.0], [1.0, 0.5], [0, 1]).any()


def test_a_corner_is_rounded_off_within_its_width() -> None:
    width = 0.1
    for excess in (-0.3, 0.0, 0.02, 0.0999, 0.1, 0.5):
        sharp = treatment_of([1.0, 1.0], [0.5 + excess, 0.5], [0, 1])[0, 1]
        soft = treatment_of([1.0, 1.0], [0.5 + excess, 0.5], [0, 1], width)[0, 1]
        assert sharp - width / 2 - 1e-12 <= soft <= sharp
    assert soft == pytest.approx(sharp - width / 2)
    slopes = []
    for excess in (0.05, 0.5):
        exposure = torch.tensor([0.5 + excess, 0.5], dtype=torch.float64, requires_grad=True)
        one = Comparisons(
            Candidates(torch.tensor([0, 2]), torch.tensor([0, 1]), 2),
            *(torch.tensor([number]) for number in (0, 0, 1)),
            *(torch.ones(1, dtype=torch.float64) for _ in range(3)),
        )
        (slope,) = torch.autograd.grad(treatment_disparity(exposure, one, width).sum(), exposure)
        slopes.append(slope.tolist())
    np.testing.assert_allclose(slopes, [[0.5, -0.5], [1.0, -1.0]])


def differences(objective: TreatmentObjective, goal: Goal, parameters: Array, step: float) -> Array:
    """The derivative of the goal by each parameter, by central differences."""
    found, everyone = np.zeros_like(parameters), np.arange(parameters.shape[0])
    for index in range(parameters.shape[1]):
        values = []
        for sign in (1, -1):
            moved = parameters.copy()
            moved[:, index] += sign * step
            values.append(objective.value(goal, moved, everyone)[0])
        found[:, index] = (values[0] - values[1]) / (2 * step)
    return found


@pytest.mark.parametrize("width", [0.0, 0.2])
@pytest.mark.parametrize("name", SOURCES)
def test_gradients_of_linear_scorers_are_right(name: str, width: float) -> None:
    objective = objective_of(name, width=width, l2=(0.1, 0.0))
    parameters = np.random.default_rng(2).normal(size=(2, objective.model.size))
    goal, everyone = Treated(np.array([1.0, 30.0])), np.arange(2)
    measured = objective.value(goal, parameters, everyone)[1]
    found = objective.gradient(goal, parameters, everyone, measured)
    # scores are float32, so that differences are known to a few digits
    np.testing.assert_allclose(found, differences(objective, goal, parameters, 1e-3), atol=2e-3)


@pytest.mark.parametrize("name", ["three groups", "weighted clicks"])
def test_gradients_of_networks_are_right(name: str) -> None:
    objective = objective_of(name, kind="mlp", l2=(0.1,))
    parameters, goal = objective.model.initial(3)[None], Treated(np.array([3.0]))
    measured = objective.value(goal, parameters, np.zeros(1, dtype=np.int64))[1]
    found = objective.gradient(goal, parameters, np.zeros(1, dtype=np.int64), measured)
    np.testing.assert_allclose(found, differences(objective, goal, parameters, 1e-3), atol=2e-3)


def test_lists_are_worked_on_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = np.random.default_rng(3).normal(size=(3, 4))
    goal, everyone = Treated(np.array([0.0, 1.0, 30.0])), np.arange(3)
    for name in ("three groups", "relevance"):
        found = []
        for entries in (1 << 19, 20, 1):
            monkeypatch.setattr(LinearModel, "entries_a_block", entries)
            objective = objective_of(name, l2=(0.1, 0.0, 0.2))
            value, measured = objective.value(goal, parameters, everyone)
            found.append((value, objective.gradient(goal, parameters, everyone, measured)))
        for value, gradient in found[1:]:
            np.testing.assert_allclose(value, found[0][0], atol=1e-9)
            np.testing.assert_allclose(gradient, found[0][1], atol=1e-6)


def best_of_subgradients(objective: TreatmentObjective, goal: Goal, steps: int) -> Array:
    """Return the best values that a long run of Adam without any rounding off comes across."""
    everyone = np.arange(objective.l2.size)
    points = np.zeros((everyone.size, objective.model.size))
    mean, square, best = np.zeros_like(points), np.zeros_like(points), np.full(everyone.size, -np.inf)
    for step in range(1, steps + 1):
        value, measured = objective.value(goal, points, everyone)
        best = np.maximum(best, value)
        gradient = objective.gradient(goal, points, everyone, measured)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        rate = 0.05 * (1 - step / steps) ** 2
        points = points + rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-10)
    return best


def test_training_does_not_stop_at_a_corner() -> None:
    # the same search without rounding off ends 3% below at the largest weight
    data, weights = lists(), np.array([1.0, 10.0, 100.0])
    settings = {"l2": 0.001, "valid_share": 0, "position_bias": BIAS}
    found = np.stack(
        [
            ranker.scorer_.scorer.weight.numpy().astype(np.float64)
            for ranker in fair_pg_rank_sweep(data, weights.tolist(), **settings)
        ]
    )
    task = Task.of(data, NAIVE)
    comparisons, model = compare_groups(data, NAIVE, data), LinearModel(data, Scaling.none(data))
    objective = TreatmentObjective(comparisons, task, model, np.full(3, 0.001))
    reached = objective.value(Treated(weights), found, np.arange(3))[0]
    assert (reached >= (1 - 1e-3) * best_of_subgradients(objective, Treated(weights), 400)).all()


def test_fair_shares_are_found_in_closed_form() -> None:
    # two items, merits 1 and 0.9: the better one comes first for utility alone, an excess of 4/9; shares of
    # the exposure 1.5 by merit ask for 0.5 + p / 2 = 1.5 / 1.9, p being how often it comes first
    data = RankingDataset(
        np.tile([[1.0], [-1.0]], (10, 1)),
        np.arange(0, 21, 2),
        group=np.tile([0, 1], 10),
        group_names=["a", "b"],
        relevance=np.tile([1.0, 0.9], 10),
    )
    settings = {"l2": 1e-6, "valid_share": 0, "position_bias": BIAS}
    greedy, fair = fair_pg_rank_sweep(data, [0.0, 10.0], **settings)
    assert greedy.training_disparity_ == pytest.approx(1 - 0.5 / 0.9, abs=0.02)
    assert fair.training_disparity_ == pytest.approx(0, abs=1e-3)
    score = fair.predict(data)
    first = 1 / (1 + np.exp(score[1] - score[0]))
    assert first == pytest.approx(2 * 1.5 / 1.9 - 1, abs=2e-3)


@pytest.mark.slow
def test_a_growing_fairness_weight_lowers_disparity_towards_0() -> None:
    data = datasets.synthetic(queries=60, features=10, seed=0).train
    settings = {"l2": 1e-4, "valid_share": 0, "position_bias": BIAS}
    rankers = fair_pg_rank_sweep(data, [0.0, 1.0, 10.0, 100.0], **settings)
    disparity = np.array([ranker.training_disparity_ for ranker in rankers])
    utility = np.array([ranker.training_utility_ for ranker in rankers])
    assert disparity[0] > 0.05
    assert (np.diff(disparity) < 0).all()
    assert disparity[-1] < 0.005 * disparity[0]
    assert (np.diff(utility) < 0).all()


def test_a_sweep_is_many_rankers_at_once() -> None:
    log, test = clicks_on(lists()), lists(seed=9)
    several: list[dict[str, Any]] = [
        {"ips": True, "l2": [0.001, 0.3]},
        {"model": "mlp", "hidden": [2], "l2": 0.3, "valid_share": 0},
    ]
    for settings in several:
        swept = fair_pg_rank_sweep(log, [0.0, 2.0], **settings)
        for ranker, weight in zip(swept, [0.0, 2.0], strict=True):
            alone = FairPGRank(weight, **settings).fit(log)
            assert ranker.get_params() == alone.get_params()
            assert ranker.l2_ == alone.l2_
            # training together rounds in another way, and ends at another point of the same height
            np.testing.assert_allclose(ranker.predict(test), alone.predict(test), atol=0.05)
            assert ranker.training_utility_ == pytest.approx(alone.training_utility_, rel=1e-3)
    assert len(fair_pg_rank_sweep(log, [1.0], valid=clicks_on(lists(seed=3)), l2=0.1)) == 1


def test_the_cost_of_large_parameters_is_chosen_on_validation_impressions() -> None:
    log, valid, costs = clicks_on(lists()), clicks_on(lists(seed=3)), [0.0001, 0.01, 1.0]
    for weight in (0.0, 30.0):
        chosen = FairPGRank(weight, ips=True, l2=costs).fit(log, valid=valid)
        values = []
        for cost in costs:
            scores = FairPGRank(weight, ips=True, l2=cost).fit(log, valid=valid).predict(valid.data)
            utility, disparity = plain_mean(valid, WEIGHTED, scores)
            values.append(utility - weight * disparity.sum())
        assert chosen.l2_ == costs[int(np.argmax(values))]


def test_pg_rank_is_training_for_the_utility_of_clicks() -> None:
    log, valid, test = clicks_on(lists()), clicks_on(lists(seed=8)), lists(seed=9)
    given: list[dict[str, Any]] = [{}, {"model": "mlp", "hidden": [3], "l2": 0.01, "scale_features": True}]
    for settings in given:
        found = PGRank(**settings).fit(log, valid=valid)
        other = FairRanker(fairness_weight=0, utility_ips=False, **settings).fit(log, valid=valid)
        np.testing.assert_array_equal(found.predict(test), other.predict(test))
        np.testing.assert_array_equal(found.training_queries_, other.training_queries_)
    weighted = FairRanker(fairness_weight=0).fit(log, valid=valid)
    assert np.abs(PGRank().fit(log, valid=valid).predict(test) - weighted.predict(test)).max() > 0.01


def test_without_a_fairness_weight_fair_pg_rank_is_pg_rank() -> None:
    log, test = clicks_on(lists()), lists(seed=9)
    naive = PGRank(l2=0.01, valid_share=0).fit(log).predict(test)
    weighted = FairRanker(fairness_weight=0, l2=0.01, folds=0).fit(log).predict(test)
    for ips, expected in ((False, naive), (True, weighted)):
        found = FairPGRank(0.0, ips=ips, l2=0.01, valid_share=0).fit(log).predict(test)
        np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("ips", [False, True])
def test_clicks_are_weighted_as_asked(ips: bool) -> None:
    source = SOURCES["three groups"][0]
    ranker = FairPGRank(0.1, ips=ips, l2=0.01, valid_share=0, scale_features=False).fit(source)
    assert isinstance(source, ClickLog)
    utility, disparity = plain_mean(source, WEIGHTED if ips else NAIVE, ranker.predict(source.data))
    assert disparity.sum() > 0.001
    assert ranker.training_utility_ == pytest.approx(utility, abs=1e-5)
    assert ranker.training_disparity_ == pytest.approx(disparity.sum(), abs=1e-5)


def test_click_noise_is_not_known_of() -> None:
    log, test = clicks_on(lists()), lists(seed=9)
    noisy = replace(log, noise=ClickNoise(0.9, 0.1))
    for make in (PGRank, FairPGRank, lambda **more: FairPGRank(ips=True, **more)):
        settings: dict[str, Any] = {"l2": 0.01}
        found, expected = (make(**settings).fit(source).predict(test) for source in (noisy, log))
        np.testing.assert_array_equal(found, expected)


def test_lists_without_groups_are_ranked_for_utility() -> None:
    data = lists()
    plain = RankingDataset(data.features, data.offsets, relevance=data.relevance)
    ranker = FairPGRank(10.0, l2=0.01, position_bias=BIAS).fit(plain)
    assert ranker.training_disparity_ == 0
    assert ranker.training_utility_ > 0


def test_bad_settings_are_refused() -> None:
    log = clicks_on(lists())
    for weights in ([], [-1.0], [1.0, np.nan]):
        with pytest.raises(InputError, match="fairness_weights"):
            fair_pg_rank_sweep(log, weights)
    with pytest.raises(InputError, match="fairness_weight"):
        FairPGRank(-1.0).fit(log)
    with pytest.raises(InputError, match="ips"):
        FairPGRank(ips="yes").fit(log)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="single impressions.*valid|valid.*single impressions"):
        FairPGRank().fit(log, valid=clicks_on(lists(seed=3)).compact())
    with pytest.raises(InputError, match="l2"):
        FairPGRank(valid_share=0).fit(log)
