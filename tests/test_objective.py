"""The training objective and its gradient, against enumeration of all rankings and finite differences."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fultr import ClickLog, ClickNoise, InputError, RankingDataset
from fultr.data.dataset import rows_of
from fultr.estimators import Candidates, Evidence
from fultr.policy import MLPScorer
from fultr.training.goals import Goal, Limited, Penalised, squared
from fultr.training.models import LinearModel, Model, ModuleModel
from fultr.training.objective import Measured, Objective
from fultr.training.scaling import Scaling
from fultr.training.task import Task, Weighing
from tests.reference import enumerated_values, plain_disparity
from tests.training_tasks import BIAS, random_lists, random_log, random_task

Array = NDArray[np.float64]
ONE = np.zeros(1, dtype=np.int64)


def linear(task: Task, hidden: tuple[int, ...] = ()) -> LinearModel:
    return LinearModel(task.data, Scaling.standard(task.data), hidden)


def network(task: Task, module: nn.Module | None = None, hidden: tuple[int, ...] = ()) -> ModuleModel:
    width = task.data.features.shape[1]
    return ModuleModel(task.data, Scaling.standard(task.data), module or MLPScorer(width, (5,)), hidden)


class Smooth(nn.Module):
    """A scorer without kinks that returns a column, and has one parameter that plays no part."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.inner = nn.Parameter(torch.randn(4, 3, generator=generator))
        self.outer = nn.Parameter(torch.randn(3, 1, generator=generator))
        self.idle = nn.Parameter(torch.ones(2))
        self.fixed = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.tanh(features @ self.inner) @ self.outer * self.fixed


def plain_measures(task: Task, scores: Array) -> tuple[float, Array]:
    """U and D of one policy: all rankings of each list, one list and one pair of groups after another."""
    offsets = task.data.offsets
    expected = np.concatenate(
        [
            enumerated_values(scores[start:stop], task.tables[:, : stop - start])
            for start, stop in itertools.pairwise(offsets)
        ],
        axis=1,
    )
    shown = task.utility.impressions.numpy()
    utility = float(task.utility.weight.numpy() @ expected[0]) / shown.sum()
    return utility, plain_disparity(task.data, task.disparity.weight.numpy(), shown, expected[1])


def plain_entropy(task: Task, scores: Array) -> float:
    """The mean over impressions of the entropy of Softmax(h)."""
    total = 0.0
    for number, (start, stop) in enumerate(itertools.pairwise(task.data.offsets)):
        share = np.exp(scores[start:stop]) / np.exp(scores[start:stop]).sum()
        total -= float(task.utility.impressions[number]) * float((share * np.log(share)).sum())
    return total / task.utility.total_impressions


def exact(task: Task, model: Model, l2: Any = (0.0,), entropy: Any = None) -> Objective:
    bonus = None if entropy is None else np.asarray(entropy, dtype=np.float64)
    return Objective(task, model, np.asarray(l2, dtype=np.float64), bonus, accuracy="double")


def differences(objective: Objective, goal: Goal, parameters: Array, step: float) -> Array:
    """The derivative of the goal by each parameter, by central differences."""
    found = np.zeros_like(parameters)
    for index in range(parameters.shape[1]):
        values = []
        for sign in (1, -1):
            moved = parameters.copy()
            moved[:, index] += sign * step
            values.append(objective.value(goal, moved, np.arange(parameters.shape[0]))[0])
        found[:, index] = (values[0] - values[1]) / (2 * step)
    return found


NOISY = Weighing(BIAS, noise=ClickNoise(0.9, 0.1))
TASKS: dict[str, Task] = {
    "one group": random_task(groups=1),
    "two groups": random_task(groups=2, seed=1),
    "three groups": random_task(groups=3, seed=2),
    "unknown groups": random_task(groups=3, unknown=0.4, seed=3),
    "all groups unknown": random_task(groups=2, unknown=1.0, seed=4),
    "noise": random_task(NOISY, groups=2, seed=5),
    "average rank": random_task(Weighing(BIAS, utility="average_rank"), groups=2, seed=6),
    "own weights": random_task(Weighing(BIAS, utility=np.array([3.0, 0.0, 1.0, -1.0, 2.0])), seed=7),
    "top 2": random_task(Weighing(BIAS, top_k=2), groups=2, seed=8),
    "own weights, top 2": random_task(Weighing(BIAS, utility=np.arange(9.0), top_k=2), seed=8),
    "clicks as they are": random_task(Weighing(BIAS, utility_ips=False, disparity_ips=False), seed=9),
    "weighted utility only": random_task(Weighing(BIAS, disparity_ips=False, noise=NOISY.noise), seed=10),
    "clipped": random_task(Weighing(BIAS, clip=1.5), seed=11),
    "relevance": Task.of(random_lists(groups=3, seed=12), Weighing(BIAS)),
}


@pytest.mark.parametrize("name", TASKS)
def test_utility_and_disparity_are_those_of_all_rankings(name: str) -> None:
    task, model = TASKS[name], linear(TASKS[name])
    parameters = np.random.default_rng(0).normal(size=(3, model.size))
    found = exact(task, model, np.zeros(3)).measure(parameters)
    for number in range(3):
        scores = model.scores(parameters[number : number + 1], slice(None))[0].astype(np.float64)
        utility, disparity = plain_measures(task, scores)
        assert found.utility[number] == pytest.approx(utility, abs=1e-9)
        np.testing.assert_allclose(found.disparity[number], disparity, atol=1e-9)
        upper = np.triu_indices(task.groups, 1)
        assert squared(found.disparity)[number] == pytest.approx((disparity[upper] ** 2).sum(), abs=1e-9)


def test_the_training_accuracy_is_near_the_exact_one() -> None:
    task = TASKS["three groups"]
    parameters = np.random.default_rng(1).normal(size=(2, 4))
    fast, slow = (
        Objective(task, linear(task), np.zeros(2), accuracy=accuracy).measure(parameters)
        for accuracy in ("single", "double")
    )
    np.testing.assert_allclose(fast.utility, slow.utility, atol=5e-3)
    np.testing.assert_allclose(fast.disparity, slow.disparity, atol=5e-3)


def goals(count: int, groups: int) -> dict[str, Goal]:
    rng = np.random.default_rng(7)
    multiplier = rng.normal(size=(count, groups, groups))
    return {
        "penalised": Penalised(np.linspace(0.5, 30, count)),
        "limited": Limited(
            np.full(count, 0.01), multiplier - multiplier.transpose(0, 2, 1), np.full(count, 3.0)
        ),
        "limited to 0": Limited(np.zeros(count), np.zeros_like(multiplier), np.full(count, 50.0)),
    }


@pytest.mark.parametrize("name", TASKS)
def test_gradients_of_linear_scorers_are_right(name: str) -> None:
    task, model = TASKS[name], linear(TASKS[name])
    parameters = np.random.default_rng(2).normal(size=(2, model.size))
    for which, goal in goals(2, task.groups).items():
        objective = exact(task, model, (0.1, 0.0), (0.0, 0.7))
        _, measured = objective.value(goal, parameters, np.arange(2))
        found = objective.gradient(goal, parameters, np.arange(2), measured)
        expected = differences(objective, goal, parameters, 2e-3)
        scale = max(1.0, float(np.abs(expected).max()))
        # scores are float32, so that differences are known to a few digits
        np.testing.assert_allclose(found, expected, atol=2e-3 * scale, err_msg=which)


@pytest.mark.parametrize("hidden", [(), (2, 3)])
def test_gradients_of_modules_are_right(hidden: tuple[int, ...]) -> None:
    for task in (TASKS["unknown groups"], TASKS["noise"]):
        model = network(task, Smooth(), hidden)
        assert model.size == 4 * 3 + 3 + 2
        parameters = model.initial(0)[None]
        for which, goal in goals(1, task.groups).items():
            objective = exact(task, model, (0.05,), (0.3,))
            measured = objective.value(goal, parameters, ONE)[1]
            found = objective.gradient(goal, parameters, ONE, measured)
            expected = differences(objective, goal, parameters, 2e-3)
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(found, expected, atol=2e-3 * scale, err_msg=which)
            np.testing.assert_allclose(found[0, -2:], -0.05, rtol=1e-6)  # idle: only its own cost


def test_a_network_is_scored_like_the_scorer_it_becomes() -> None:
    task = TASKS["two groups"]
    for model in (network(task), network(task, Smooth()), linear(task), linear(task, (1, 3))):
        parameters = model.initial(5)[None] + 0.1
        scorer = model.scorer(parameters[0])
        assert not any(parameter.requires_grad for parameter in scorer.parameters())
        made = scorer(torch.from_numpy(task.data.features.copy())).numpy()
        trained = model.scores(parameters, slice(None))[0]
        # a linear model trains without the mean, which shifts all scores alike
        np.testing.assert_allclose(made - made.mean(), trained - trained.mean(), atol=1e-5)


def test_the_value_takes_off_large_parameters_and_adds_entropy() -> None:
    task, model = TASKS["three groups"], linear(TASKS["three groups"])
    parameters = np.random.default_rng(3).normal(size=(2, model.size))
    goal = Penalised(np.array([0.0, 2.0]))
    value, measured = exact(task, model, (0.5, 0.0), (0.0, 1.5)).value(goal, parameters, np.arange(2))
    plain = (measured.utility - [0, 2] * squared(measured.disparity)) / [1, 3]
    assert value[0] == pytest.approx(plain[0] - 0.25 * (parameters[0] ** 2).sum())
    scores = model.scores(parameters, slice(None)).astype(np.float64)
    assert value[1] == pytest.approx(plain[1] + 1.5 * plain_entropy(task, scores[1]))


def test_entropy_of_scores_far_apart_is_finite() -> None:
    task = TASKS["two groups"]
    objective = exact(task, linear(task), (0.0,), (1.0,))
    for size in (1e3, 1e6):
        parameters = np.full((1, 4), size)
        value, measured = objective.value(Penalised(np.ones(1)), parameters, ONE)
        gradient = objective.gradient(Penalised(np.ones(1)), parameters, ONE, measured)
        assert np.isfinite(value).all()
        assert np.isfinite(gradient).all()


def test_many_configurations_at_once_are_the_same_as_one_by_one() -> None:
    task, model = TASKS["unknown groups"], linear(TASKS["unknown groups"])
    rng = np.random.default_rng(4)
    parameters = rng.normal(size=(7, model.size))
    l2, bonus, weight = rng.random(7), rng.random(7), rng.random(7) * 10
    together = exact(task, model, l2, bonus)
    value, measured = together.value(Penalised(weight), parameters, np.arange(7))
    gradient = together.gradient(Penalised(weight), parameters, np.arange(7), measured)
    for one in range(7):
        alone = exact(task, model, l2[one : one + 1], bonus[one : one + 1])
        goal, point = Penalised(weight[one : one + 1]), parameters[one : one + 1]
        its_value, its_measures = alone.value(goal, point, ONE)
        assert value[one] == pytest.approx(its_value[0], abs=1e-7)  # products in float32
        np.testing.assert_allclose(
            gradient[one], alone.gradient(goal, point, ONE, its_measures)[0], atol=1e-6
        )
    some = np.array([5, 2])
    picked = together.value(Penalised(weight).pick(some), parameters[some], some)[0]
    np.testing.assert_allclose(picked, value[some], atol=1e-7)


@pytest.mark.parametrize("entries", [1, 3, 7, 20, 100, 10_000])
def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    task, model = TASKS["three groups"], linear(TASKS["three groups"])
    parameters = np.random.default_rng(5).normal(size=(3, model.size))
    goal, everyone = Penalised(np.array([0.0, 1.0, 10.0])), np.arange(3)

    def found() -> tuple[Array, Measured, Array]:
        objective = exact(task, model, np.full(3, 0.1), np.full(3, 0.2))
        value, measured = objective.value(goal, parameters, everyone)
        return value, measured, objective.gradient(goal, parameters, everyone, measured)

    whole = found()
    monkeypatch.setattr(model, "entries_a_block", entries)
    parts = found()
    np.testing.assert_allclose(parts[0], whole[0], atol=1e-7)
    np.testing.assert_allclose(parts[1].disparity, whole[1].disparity, atol=1e-7)
    np.testing.assert_allclose(parts[2], whole[2], atol=1e-6)


def test_lists_never_shown_play_no_part() -> None:
    data = random_lists(lists=8, groups=2, seed=13)
    log = random_log(data, impressions=40)
    shown = [0, 1, 2, 5]
    kept = log[np.isin(log.lists, shown)]
    evidence = Task.of(kept, Weighing(BIAS))
    assert len(evidence.data) == len(np.unique(kept.lists))
    parameters = np.random.default_rng(6).normal(size=(1, 4))
    scaling = Scaling.standard(data)
    found = exact(evidence, LinearModel(evidence.data, scaling)).measure(parameters)
    # a task over all lists, of which some have no impressions
    used = np.unique(kept.lists)
    weight, impressions = (torch.zeros(size, dtype=torch.float64) for size in (data.rows, len(data)))
    weight[rows_of(data.offsets, used)] = evidence.utility.weight
    impressions[used] = evidence.utility.impressions
    assert (impressions == 0).any()
    everything = Evidence(Candidates.of(data), weight, impressions)
    wide = Task(data, everything, everything, Weighing(BIAS).tables(5))
    objective = exact(wide, LinearModel(data, scaling), (0.0,), (1.0,))
    also = objective.measure(parameters)
    assert also.utility == pytest.approx(found.utility)
    np.testing.assert_allclose(also.disparity, found.disparity, atol=1e-10)
    narrow = exact(evidence, LinearModel(evidence.data, scaling), (0.0,), (1.0,))
    goal = Penalised(np.ones(1))
    assert objective.value(goal, parameters, ONE)[0] == pytest.approx(narrow.value(goal, parameters, ONE)[0])


def test_hidden_columns_have_no_influence() -> None:
    data = random_lists(groups=2, seed=14)
    log = random_log(data)
    other = data.features.copy()
    other[:, [2, 3]] = np.random.default_rng(8).normal(size=(data.rows, 2)) * 100
    changed = RankingDataset(
        other, data.offsets, group=data.group, group_names=data.group_names, query_id=data.query_id
    )
    scaling = Scaling.standard(data)
    evidence = Task.of(log, Weighing(BIAS))
    goal = Penalised(np.ones(1))
    for make in (
        lambda lists: LinearModel(lists, scaling, (2, 3)),
        lambda lists: ModuleModel(lists, scaling, MLPScorer(4, (5,), seed=1), (2, 3)),
    ):
        results = []
        for lists in (data, changed):
            relabelled = Task.of(ClickLog(lists, log.lists, log.position, log.click), Weighing(BIAS))
            model = make(relabelled.data)
            parameters = make(evidence.data).initial(1)[None] + 0.2
            objective = exact(relabelled, model, (0.0,))
            value, measured = objective.value(goal, parameters, ONE)
            results.append((value, objective.gradient(goal, parameters, ONE, measured)))
        assert results[0][0] == results[1][0]
        np.testing.assert_array_equal(results[0][1], results[1][1])
        if isinstance(model, LinearModel):
            np.testing.assert_array_equal(results[0][1][0, [2, 3]], 0)


def test_scaling_is_that_of_the_training_rows() -> None:
    data = random_lists(seed=15)
    constant = data.features.copy()
    constant[:, 0], constant[:, 1] = 7.0, 1e9
    lists = RankingDataset(constant, data.offsets)
    scaling = Scaling.standard(lists)
    assert scaling.scale[:2].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(scaling.scale[2:], constant[:, 2:].std(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scaling.mean, constant.mean(axis=0, dtype=np.float64), rtol=1e-5)
    none = Scaling.none(lists)
    assert none.mean.tolist() == [0.0] * 4
    assert none.scale.tolist() == [1.0] * 4


def test_a_module_without_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="no parameters"):
        network(TASKS["two groups"], nn.Identity())


@pytest.mark.parametrize(
    ("weighing", "problem"),
    [
        (Weighing(BIAS, utility="precision"), "must be 'dcg'"),
        (Weighing(BIAS, utility="average_rank", top_k=3), "must be 'dcg'"),
        (Weighing(BIAS, utility=np.array([1.0, 0.5])), "weights for 2 positions only"),
        (Weighing(BIAS, utility=np.array([1.0, np.nan, 1, 1, 1])), "finite"),
        (Weighing(BIAS, utility=np.ones((5, 5))), "finite"),
    ],
)
def test_wrong_utilities_are_refused(weighing: Weighing, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        random_task(weighing)
