"""The paper's protocol: against the exact gradient, a plain loop of torch's parts, and itself resumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fultr import (
    ClickLog,
    ClickNoise,
    DataSplits,
    InputError,
    PositionBias,
    RandomRanking,
    RankingDataset,
    RankingSVM,
    simulate_clicks,
)
from fultr.estimators import disparity, disparity_squared_slopes, evidence_from_relevance, list_disparities
from fultr.expectation import expected_weights
from fultr.policy import MLPScorer, softmax_entropy
from fultr.training.goals import Penalised, squared
from fultr.training.impressions import BATCHES_TOGETHER, Batch, Impressions, batch_scorer
from fultr.training.models import LinearModel, Model, ModuleModel, fill_parameters
from fultr.training.objective import Objective
from fultr.training.paper_protocol import PaperResult, train_as_paper
from fultr.training.paper_steps import Ascent, PaperSettings
from fultr.training.scaling import Scaling
from fultr.training.solving import StepReached
from fultr.training.task import Task, Weighing

Array = NDArray[np.float64]

BIAS = PositionBias.power(1.0)
WEIGHING = Weighing(BIAS)
LENGTHS = [5, 1, 8, 3, 6, 2]


class Kept:
    """Checkpoints in memory: every state that was saved, and the one to go on from."""

    def __init__(self, state: dict[str, NDArray[Any]] | None = None) -> None:
        self.state = state
        self.states: list[dict[str, NDArray[Any]]] = []
        self.finished: list[bool] = []

    def load(self, stage: str) -> dict[str, NDArray[Any]] | None:
        assert stage == "paper"
        return self.state

    def save(self, stage: str, state: Callable[[], Any], *, finished: bool) -> None:
        assert stage == "paper"
        self.states.append(dict(state()))
        self.finished.append(finished)


def lists_of(groups: int, *, width: int = 3, seed: int = 0, relevant: float = 0.4) -> RankingDataset:
    """Lists of several lengths, some items of which are in no group."""
    rng = np.random.default_rng(seed)
    rows = sum(LENGTHS)
    return RankingDataset(
        rng.normal(size=(rows, width)),
        np.cumsum([0, *LENGTHS]),
        group=rng.integers(-1, groups, size=rows),
        group_names=[f"g{number}" for number in range(groups)],
        relevance=(rng.random(rows) < relevant).astype(np.float32),
    )


def clicks_on(data: RankingDataset, impressions: int = 12, **fields: Any) -> ClickLog:
    return simulate_clicks(data, RandomRanking(), BIAS, impressions=impressions, seed=3, **fields)


def scaled(data: RankingDataset) -> Scaling:
    width = data.features.shape[1]
    return Scaling(np.full(width, 0.3, np.float32), np.linspace(0.5, 2, width, dtype=np.float32))


def some_module(width: int) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    module = nn.Sequential(nn.Linear(width, 3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def model_on(kind: str, data: RankingDataset, hidden: tuple[int, ...] = ()) -> Model:
    width = data.features.shape[1]
    if kind == "linear":
        return LinearModel(data, scaled(data), hidden)
    module = MLPScorer(width, (4, 3)) if kind == "mlp" else some_module(width).eval()
    return ModuleModel(data, scaled(data), module, hidden)


def quick(**changes: Any) -> PaperSettings:
    numbers = {"samples": 4, "window": 10, "validate_every": 20, "patience": 3, "most_steps": 120}
    return PaperSettings(**{**numbers, **changes})


def train(
    source: ClickLog | RankingDataset, model: Model, *, valid: Task | None = None, **changes: Any
) -> PaperResult:
    arguments: dict[str, Any] = {"fairness_weight": 0.5, "l2": 0.01, "settings": quick()}
    task = Task.of(source, WEIGHING) if valid is None else valid
    return train_as_paper(source, WEIGHING, model, valid=task, **{**arguments, **changes})


def test_the_numbers_are_the_papers() -> None:
    settings = PaperSettings()
    assert (settings.samples, settings.batch_size, settings.window) == (32, 4, 1000)
    assert (settings.learning_rate, settings.momentum, settings.adam_learning_rate) == (1e-3, 0.9, 1e-4)
    assert (settings.entropy_weight, settings.entropy_divisor) == (1.0, 3.0)
    assert (settings.validate_every, settings.patience) == (3000, 20)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples", 0),
        ("batch_size", 1.5),
        ("window", 3),
        ("learning_rate", 0.0),
        ("adam_learning_rate", np.inf),
        ("momentum", 1.0),
        ("entropy_weight", -1),
        ("entropy_divisor", 0.5),
        ("validate_every", 0),
        ("patience", True),
        ("most_steps", "many"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"column '{name}'"):
        PaperSettings(**{name: value})


WEIGHINGS = {
    "the paper's": Weighing(BIAS),
    "clipped": Weighing(BIAS, clip=2.0),
    "noise": Weighing(BIAS, noise=ClickNoise(0.9, 0.2)),
    "noise by position": Weighing(BIAS, noise=ClickNoise([0.9, 0.8], [0.3, 0.1])),
    "noise, clipped": Weighing(BIAS, noise=ClickNoise(0.9, 0.2), clip=2.0),
    "utility without weights": Weighing(BIAS, utility_ips=False),
    "disparity without weights, noise": Weighing(BIAS, noise=ClickNoise(1.0, 0.1), disparity_ips=False),
    "no weights, clipped": Weighing(BIAS, utility_ips=False, disparity_ips=False, clip=2.0),
}


def plain_weight(log: ClickLog, entry: int, weighing: Weighing, weighted: bool) -> float:
    """(c / p - eps_minus) / (eps_plus - eps_minus) for a shown item, with 1 / p clipped."""
    position = int(log.position[entry])
    if position == 0:
        return 0.0
    chance = 1.0
    if weighted:
        chance = float(BIAS.at([position])[0]) if log.propensity is None else float(log.propensity[entry])
    inverse = 1 / chance
    if weighted and weighing.clip is not None:
        inverse = min(inverse, weighing.clip)
    plus, minus = (weighing.noise or ClickNoise()).at(position)
    taken = log.click[entry] * inverse - minus * inverse * chance
    return float(taken / (plus - minus))


@pytest.mark.parametrize("with_propensities", [False, True])
@pytest.mark.parametrize("name", WEIGHINGS)
def test_impressions_have_the_evidence_that_weighing_gives(name: str, with_propensities: bool) -> None:
    weighing, log = WEIGHINGS[name], clicks_on(lists_of(2), impressions=40)
    position = np.where(log.position > 5, 0, log.position)
    log = ClickLog(
        log.data,
        log.lists,
        position,
        log.click & (position > 0),
        propensity=np.where(position > 0, 0.9 / np.maximum(position, 1), 0.5) if with_propensities else None,
    )
    found = Impressions.of(log, weighing)
    entries = range(log.entries)
    for weights, weighted in (
        (found.utility, weighing.utility_ips),
        (found.disparity, weighing.disparity_ips),
    ):
        plain = [plain_weight(log, entry, weighing, weighted) for entry in entries]
        np.testing.assert_allclose(weights, plain, rtol=1e-12, atol=1e-12)
    # where all candidates are shown, it adds up to that of the counts
    shown = clicks_on(lists_of(2), impressions=40)
    found, task = Impressions.of(shown, weighing), Task.of(shown, weighing)
    assert found.utility.sum() == pytest.approx(float(task.utility.weight.sum()))
    assert found.disparity.sum() == pytest.approx(float(task.disparity.weight.sum()))


def test_batches_go_through_all_impressions_in_a_new_order_each_time() -> None:
    log = clicks_on(lists_of(2), impressions=10)
    # each impression is told by its utilities
    marked = Impressions(
        log.data,
        log.lists,
        log.offsets,
        log.impression_of_entry.astype(np.float64),
        np.ones(log.entries),
    )

    def drawn(steps: range, seed: int = 0) -> list[int]:
        batches = marked.batches(4, steps, seed)
        return [int(batch.utility[start]) for batch in batches for start in batch.offsets[:-1]]

    row = drawn(range(50))
    epochs = np.reshape(row, (20, 10))
    assert (np.sort(epochs, axis=1) == np.arange(10)).all()
    assert len({tuple(epoch) for epoch in epochs}) == 20
    assert drawn(range(13, 50)) == row[52:]
    assert drawn(range(50), seed=1) != row
    more = drawn(range(2 * BATCHES_TOGETHER + 3))
    assert more[: len(row)] == row
    assert drawn(range(BATCHES_TOGETHER - 1, BATCHES_TOGETHER + 2)) == more[4 * BATCHES_TOGETHER - 4 :][:12]


def test_a_batch_holds_its_impressions() -> None:
    log = clicks_on(lists_of(3))
    impressions = Impressions.of(log, WEIGHING)
    first, second = impressions.cut(np.array([7, 0, 7, 5, 2]), 3)
    for batch, chosen in ((first, [7, 0, 7]), (second, [5, 2])):
        assert batch.size == len(chosen)
        for number, impression in enumerate(chosen):
            inside = slice(batch.offsets[number], batch.offsets[number + 1])
            entries = slice(log.offsets[impression], log.offsets[impression + 1])
            assert (batch.rows[inside] == log.row_of_entry[entries]).all()
            assert (batch.utility[inside] == impressions.utility[entries]).all()
            group = log.data.group[batch.rows[inside]]
            assert (batch.cell[inside] == 4 * number + np.where(group < 0, 3, group)).all()
            merit = [impressions.disparity[entries][group == code].sum() for code in range(3)]
            assert batch.merit[number] == pytest.approx(merit)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "kind"), [(2, "linear"), (3, "linear"), (2, "mlp"), (3, "mlp"), (2, "module")]
)
def test_the_mean_step_is_the_exact_gradient(groups: int, kind: str) -> None:
    log = clicks_on(lists_of(groups))
    model = model_on(kind, log.data)
    parameters = np.random.default_rng(5).normal(size=model.size)
    task, weight, l2, entropy_weight = Task.of(log, WEIGHING), 8.0, 0.05, 0.3
    objective = Objective(
        task, model.on(task.data), np.array([l2]), np.array([entropy_weight]), accuracy="double"
    )
    measured, goal = objective.measure(parameters[None]), Penalised(np.array([weight]))
    truth = objective.gradient(goal, parameters[None], np.array([0]), measured)[0]
    fair = measured._replace(disparity=np.zeros_like(measured.disparity))
    by_disparity = truth - objective.gradient(goal, parameters[None], np.array([0]), fair)[0]

    impressions = Impressions.of(log, WEIGHING)
    ascent = Ascent(impressions, WEIGHING, model, weight, l2, samples=6)
    epochs, size = 1000, 3
    batches = impressions.batches(size, range(epochs * len(log) // size), seed=1)
    steps = np.array(
        [
            ascent.direction(
                parameters, batch, measured.disparity[0], entropy_weight, np.random.default_rng([1, number])
            )[0]
            for number, batch in enumerate(batches)
        ]
    )
    # along the gradient, along the part of it that is due to disparity, and along a few other directions
    along = np.stack([truth, by_disparity, *np.random.default_rng(2).normal(size=(3, model.size))])
    means = steps.reshape(epochs, -1, model.size).mean(axis=1) @ along.T
    error = means.std(axis=0, ddof=1) / np.sqrt(epochs)
    assert (np.abs(means.mean(axis=0) - along @ truth) <= 3 * error).all()
    # and the test would notice if a part were missing
    assert np.abs(along[0] @ truth) > 5 * error[0]
    assert np.abs(along[1] @ by_disparity) > 5 * error[1]


@pytest.mark.parametrize("groups", [0, 1, 2, 4])
def test_the_disparities_of_a_batch_are_those_of_its_rankings(groups: int) -> None:
    data = lists_of(groups, relevant=0.6)
    impressions = Impressions.of(data, WEIGHING)
    (batch,) = impressions.cut(np.arange(len(data)), len(data))
    model = model_on("linear", data)
    ascent = Ascent(impressions, WEIGHING, model, 1.0, 0.0, samples=4000)
    parameters = np.array([0.5, -1.0, 0.2])
    found = ascent.direction(parameters, batch, np.zeros((groups, groups)), 0.0, np.random.default_rng(0))[1]
    scores = torch.from_numpy(model.scores(parameters[None], slice(None))[0].astype(np.float64))
    exposure = expected_weights(scores, WEIGHING.tables(8), offsets=data.offsets)[1]
    exact = list_disparities(exposure, evidence_from_relevance(data)).numpy()
    assert found.shape == (len(data), groups, groups)
    np.testing.assert_allclose(found, exact, atol=0.1)
    if groups > 1:
        assert np.abs(exact).max() > 1


def plain_training(
    log: ClickLog, model: Model, valid: Task, *, weight: float, l2: float, seed: int, settings: PaperSettings
) -> Iterator[tuple[Array, float, Array]]:
    """The protocol in plain torch; yields parameters, gamma and the window at each validation."""
    tables = WEIGHING.tables(int(log.data.lengths.max()))
    network = model.scorer(model.initial(seed)).requires_grad_(True)
    trained = list(network.parameters())
    optimiser: torch.optim.Optimizer
    if isinstance(model, LinearModel):
        optimiser = torch.optim.SGD(
            trained, settings.learning_rate, momentum=settings.momentum, weight_decay=l2
        )
    else:
        optimiser = torch.optim.Adam(trained, settings.adam_learning_rate, weight_decay=l2)
    train_task = Task.of(log, WEIGHING)
    start = model.on(train_task.data).scores(model.initial(seed)[None], slice(None))[0].astype(np.float64)
    exposure = expected_weights(torch.from_numpy(start), tables, offsets=train_task.data.offsets)[1]
    window = deque([disparity(exposure, train_task.disparity)] * settings.window, maxlen=settings.window)
    gamma, best, row = settings.entropy_weight, -np.inf, np.empty(0, np.int64)
    for step in range(settings.most_steps):
        while row.size < (step + 1) * settings.batch_size:
            order = np.random.default_rng([seed, 1, row.size // len(log)]).permutation(len(log))
            row = np.concatenate([row, order])
        chosen = row[step * settings.batch_size : (step + 1) * settings.batch_size]
        alone = [log[[impression]] for impression in chosen]
        features = [log.data[int(log.lists[impression])].features for impression in chosen]
        scores = [network(torch.from_numpy(some)).double() for some in features]
        offsets = np.cumsum([0, *(len(some) for some in scores)])
        rng = np.random.default_rng([seed, 2, step])
        drawn = expected_weights(
            torch.cat(scores),
            tables,
            offsets=offsets,
            estimator="reinforce",
            samples=settings.samples,
            seed=rng,
        )
        running = torch.stack(list(window)).mean(dim=0)
        total, seen = torch.zeros(()), []
        for number, one in enumerate(alone):
            evidence = Task.of(one, WEIGHING).utility
            mine = drawn[:, offsets[number] : offsets[number + 1]]
            utility = mine[0] @ evidence.weight
            slopes = disparity_squared_slopes(running, evidence)
            entropy = softmax_entropy(scores[number])
            gain = (utility - weight * mine[1] @ slopes) / (1 + weight) + gamma * entropy
            total = total - gain / settings.batch_size
            seen.append(disparity(mine[1], evidence).detach())
        window.extend(seen)
        optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if (step + 1) % settings.validate_every == 0:
            flat = np.concatenate([parameter.detach().double().numpy().reshape(-1) for parameter in trained])
            measured = Objective(valid, model.on(valid.data), np.zeros(1)).measure(flat[None])
            value = float(measured.utility[0] - weight * squared(measured.disparity)[0])
            gamma = gamma if value > best else gamma / settings.entropy_divisor
            best = max(value, best)
            yield flat, gamma, torch.stack(list(window)).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("groups", [2, 3])
def test_training_is_the_plain_protocol(groups: int, kind: str) -> None:
    log, valid = clicks_on(lists_of(groups), impressions=10), Task.of(lists_of(groups, seed=1), WEIGHING)
    settings = quick(
        samples=8,
        window=14,
        validate_every=5,
        most_steps=40,
        patience=20,
        learning_rate=0.02,
        adam_learning_rate=0.02,
    )
    model, kept = model_on(kind, log.data), Kept()
    result = train(
        log,
        model,
        valid=valid,
        fairness_weight=1.5,
        l2=0.1,
        seed=4,
        settings=settings,
        checkpoints=kept,
    )
    plain = plain_training(log, model, valid, weight=1.5, l2=0.1, seed=4, settings=settings)
    gammas = []
    for state, (parameters, gamma, window) in zip(kept.states, plain, strict=True):
        np.testing.assert_allclose(state["parameters"], parameters, rtol=2e-4, atol=2e-5)
        assert state["entropy_weight"][0] == pytest.approx(gamma)
        gammas.append(gamma)
        # the plain window begins with its oldest entry
        turned = np.roll(state["window"], -int(state["step"][0]) * 4 % 14, axis=0)
        np.testing.assert_allclose(turned, window, rtol=1e-4, atol=1e-5)
    assert len(gammas) == 8
    assert gammas[-1] < 1
    assert not result.stopped_early


def test_the_window_starts_full_of_the_exact_disparity() -> None:
    log = clicks_on(lists_of(3))
    model, kept = model_on("mlp", log.data), Kept()
    train(log, model, seed=7, settings=quick(most_steps=1, window=9), checkpoints=kept)
    task = Task.of(log, WEIGHING)
    exact = Objective(task, model.on(task.data), np.zeros(1)).measure(model.initial(7)[None]).disparity[0]
    window = kept.states[0]["window"]
    assert window.shape == (9, 3, 3)
    assert (window[4:] == exact).all()
    assert (window[:4] != exact).any()


def nothing_to_gain(groups: int = 2) -> Task:
    """A task on which all policies are alike."""
    return Task.of(lists_of(groups, relevant=0.0), WEIGHING)


def test_without_gain_the_entropy_bonus_fades_and_training_stops() -> None:
    log, kept, seen = clicks_on(lists_of(2)), Kept(), list[StepReached]()
    result = train(
        log,
        model_on("linear", log.data),
        valid=nothing_to_gain(),
        settings=quick(most_steps=10_000),
        checkpoints=kept,
        watch=seen.append,
    )
    # the first validation is a gain over nothing, the next three are none
    assert [state["entropy_weight"][0] for state in kept.states] == pytest.approx([1, 1 / 3, 1 / 9, 1 / 27])
    assert kept.finished == [False, False, False, True]
    assert (result.steps, result.validations, result.best_value) == (80, 4, 0.0)
    assert result.stopped_early
    assert (result.parameters == kept.states[0]["parameters"]).all()
    assert (result.parameters != kept.states[-1]["parameters"]).any()
    assert [settled.iterations for settled in seen] == [20, 40, 60, 80]
    assert {(settled.stage, settled.value, settled.disparity) for settled in seen} == {("paper", 0.0, 0.0)}


def test_a_gain_restores_patience_and_the_best_parameters_are_returned() -> None:
    log, kept, seen = clicks_on(lists_of(2)), Kept(), list[StepReached]()
    settings = quick(validate_every=7, most_steps=300, patience=4, learning_rate=0.05)
    model = model_on("linear", log.data)
    result = train(log, model, settings=settings, checkpoints=kept, watch=seen.append)
    values = [settled.value for settled in seen]
    without_gain, best = list[int](), -np.inf
    for value in values:
        without_gain.append(0 if value > best else without_gain[-1] + 1)
        best = max(best, value)
    assert [int(state["without_gain"][0]) for state in kept.states] == without_gain
    assert 0 in without_gain[without_gain.index(1) :]
    assert result.best_value == best
    assert (result.parameters == kept.states[int(np.argmax(values))]["parameters"]).all()
    task = Task.of(log, WEIGHING)
    measured = Objective(task, model.on(task.data), np.zeros(1)).measure(result.parameters[None])
    assert result.best_value == pytest.approx(
        float(measured.utility[0] - 0.5 * squared(measured.disparity)[0])
    )
    assert all(
        settled.value == pytest.approx(settled.utility - 0.5 * settled.disparity**2) for settled in seen
    )


def test_the_last_steps_are_validated_too() -> None:
    log = clicks_on(lists_of(2))
    result = train(log, model_on("linear", log.data), settings=quick(most_steps=50, patience=9))
    assert (result.steps, result.validations, result.stopped_early) == (50, 3, False)


@pytest.mark.parametrize("kind", ["linear", "mlp", "module"])
def test_taken_up_anywhere_training_ends_the_same(kind: str) -> None:
    log, valid = clicks_on(lists_of(3), impressions=30), Task.of(lists_of(3, seed=1), WEIGHING)
    settings = quick(patience=6, most_steps=150, learning_rate=0.01, adam_learning_rate=0.01)

    def run(kept: Kept, watch: Callable[[StepReached], None] | None = None) -> PaperResult:
        model = model_on(kind, log.data)
        return train(log, model, valid=valid, seed=2, settings=settings, checkpoints=kept, watch=watch)

    whole = Kept()
    result = run(whole)
    assert len(whole.states) == result.validations == 8
    for number, state in enumerate(whole.states):
        assert {array.dtype for array in state.values()} <= {np.dtype(np.float64), np.dtype(np.int64)}
        before = {name: array.copy() for name, array in state.items()}
        later = Kept(state)
        resumed = run(later)
        assert (resumed.parameters == result.parameters).all()
        assert resumed.steps == result.steps
        assert resumed.validations == result.validations
        assert resumed.best_value == result.best_value
        assert resumed.stopped_early == result.stopped_early
        assert len(later.states) == len(whole.states) - number - 1
        for mine, theirs in zip(later.states, whole.states[number + 1 :], strict=True):
            assert all((mine[name] == theirs[name]).all() for name in theirs)
        assert all((before[name] == array).all() for name, array in state.items())
    ended, seen = Kept(whole.states[-1]), list[StepReached]()
    assert (run(ended, seen.append).parameters == result.parameters).all()
    assert not ended.states
    assert not seen


def test_what_another_training_has_kept_is_refused() -> None:
    log, kept = clicks_on(lists_of(2)), Kept()
    train(log, model_on("linear", log.data), checkpoints=kept)
    with pytest.raises(InputError, match="of another training"):
        train(log, model_on("mlp", log.data), checkpoints=Kept(kept.states[0]))
    without_window = {name: array for name, array in kept.states[0].items() if name != "window"}
    with pytest.raises(InputError, match="column 'window'.*of another training"):
        train(log, model_on("linear", log.data), checkpoints=Kept(without_window))


def test_seeds_decide_everything_and_nothing_else_is_touched() -> None:
    log, module = clicks_on(lists_of(2)), some_module(3)
    before = torch.get_rng_state(), np.random.get_state(legacy=False), log.data.features.copy()  # noqa: NPY002
    given = [parameter.detach().clone() for parameter in module.parameters()]
    first, again, other = (
        train(log, ModuleModel(log.data, scaled(log.data), module.eval()), seed=seed).parameters
        for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first != other).any()
    assert (torch.get_rng_state() == before[0]).all()
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    known: Any = before[1]
    assert (state["state"]["key"] == known["state"]["key"]).all()
    assert (log.data.features == before[2]).all()
    assert all((one == two).all() for one, two in zip(given, module.parameters(), strict=True))


@pytest.mark.parametrize("hidden", [(), (0, 2)])
@pytest.mark.parametrize("kind", ["linear", "mlp", "module"])
def test_scores_of_batches_are_those_of_the_model(kind: str, hidden: tuple[int, ...]) -> None:
    data, rng = lists_of(2, width=4), np.random.default_rng(8)
    model = model_on(kind, data, hidden)
    parameters, slopes = rng.normal(size=model.size), rng.normal(size=data.rows)
    scorer, rows = batch_scorer(model, data), rng.permutation(data.rows)
    found = scorer.scores(parameters, rows)
    pulled = scorer.pull_back(slopes[rows])
    wanted = model.scores(parameters[None], slice(None))[0]
    # the mean of the features shifts all scores of a linear model alike, and is left out in both
    np.testing.assert_allclose(found, wanted[rows], rtol=1e-5, atol=1e-5)
    exact = model.pull_back(parameters[None], slice(None), slopes[None])[0]
    np.testing.assert_allclose(pulled, exact, rtol=1e-4, atol=1e-4)
    assert found.dtype == pulled.dtype == np.float64


def test_frozen_parameters_stay_as_they_are() -> None:
    log, module = clicks_on(lists_of(2)), some_module(3)
    first, *others, last = module.parameters()
    for parameter in (first, *others):
        parameter.requires_grad_(False)
    model = ModuleModel(log.data, scaled(log.data), module.eval())
    result = train(log, model, settings=quick(adam_learning_rate=0.01))
    assert result.parameters.shape == (last.numel(),)
    assert (result.parameters != last.detach().double().numpy().reshape(-1)).any()
    scorer = model.scorer(result.parameters)
    assert any(torch.equal(first, parameter) for parameter in scorer.parameters())


def one_batch(source: RankingDataset) -> tuple[Impressions, Batch]:
    impressions = Impressions.of(source, WEIGHING)
    return impressions, next(impressions.cut(np.arange(len(source)), len(source)))


def test_a_batch_without_clicks_moves_by_entropy_alone() -> None:
    data = lists_of(2, relevant=0.0)
    impressions, batch = one_batch(data)
    model, parameters = model_on("mlp", data), np.random.default_rng(0).normal(size=34)
    ascent = Ascent(impressions, WEIGHING, model, 3.0, 0.0, samples=5)
    running, rng = np.array([[0.0, 2.0], [-2.0, 0.0]]), np.random.default_rng(0)
    gradient, disparities = ascent.direction(parameters, batch, running, 0.0, rng)
    assert not gradient.any()
    assert not disparities.any()
    gradient, _ = ascent.direction(parameters, batch, running, 0.7, rng)
    network = MLPScorer(3, (4, 3))
    fill_parameters(list(network.parameters()), parameters)
    features = torch.from_numpy((data.features - model.scaling.mean) / model.scaling.scale)
    lists = [features[start:stop] for start, stop in zip(data.offsets, data.offsets[1:], strict=False)]
    entropy = torch.stack([softmax_entropy(network(rows)) for rows in lists]).mean()
    wanted = torch.autograd.grad(0.7 * entropy, list(network.parameters()))
    flat = torch.cat([part.reshape(-1) for part in wanted]).numpy()
    np.testing.assert_allclose(gradient, flat, rtol=1e-4, atol=1e-5)


def test_lists_of_one_teach_nothing() -> None:
    data = RankingDataset(np.eye(3), [0, 1, 2, 3], group=[0, 1, 0], group_names=["a", "b"], relevance=[1] * 3)
    result = train(data, LinearModel(data, Scaling.none(data)), l2=0.0)
    assert not result.parameters.any()
    assert result.steps == 80


@pytest.mark.parametrize("groups", [0, 1])
def test_without_two_groups_there_is_only_utility(groups: int) -> None:
    data = lists_of(groups)
    model = model_on("linear", data)
    result = train(data, model, settings=quick(entropy_weight=0.0, learning_rate=0.05, most_steps=200))
    objective = Objective(Task.of(data, WEIGHING), model, np.zeros(1))
    start, end = (objective.measure(at[None]).utility[0] for at in (model.initial(0), result.parameters))
    assert end > start


def test_items_of_unknown_group_have_no_part_in_disparity() -> None:
    data = lists_of(2)
    impressions, batch = one_batch(data)
    ascent = Ascent(impressions, Weighing(BIAS, utility=np.zeros(8)), model_on("linear", data), 1.0, 0.0, 50)
    running = np.array([[0.0, 5.0], [-5.0, 0.0]])
    found = ascent.direction(np.zeros(3), batch, running, 0.0, np.random.default_rng(0))
    relevance = np.asarray(data.relevance)
    other = RankingDataset(
        data.features,
        data.offsets,
        group=data.group,
        group_names=data.group_names,
        relevance=np.where(data.group < 0, 1 - relevance, relevance),
    )
    impressions, batch = one_batch(other)
    ascent = Ascent(impressions, Weighing(BIAS, utility=np.zeros(8)), model_on("linear", other), 1.0, 0.0, 50)
    same = ascent.direction(np.zeros(3), batch, running, 0.0, np.random.default_rng(0))
    assert (data.group < 0).any()
    assert found[0].any()
    assert (found[0] == same[0]).all()
    assert (found[1] == same[1]).all()


def test_more_in_a_batch_than_impressions() -> None:
    data = lists_of(2)[:2]
    result = train(data, model_on("linear", data), settings=quick(batch_size=7))
    assert np.isfinite(result.parameters).all()


def test_what_cannot_be_trained_on_is_refused() -> None:
    log = clicks_on(lists_of(2))
    task, model = Task.of(log, WEIGHING), model_on("linear", log.data)
    with pytest.raises(InputError, match="single impressions"):
        train(log.compact(), model, valid=task)  # type: ignore[arg-type]
    for name, value in {"fairness_weight": -1.0, "l2": np.nan, "seed": -1}.items():
        with pytest.raises(InputError, match=f"column '{name}'"):
            train(log, model, valid=task, **{name: value})
    wide = lists_of(2, width=5)
    with pytest.raises(InputError, match="column 'source'.*takes 3 features"):
        train(wide, model, valid=task)
    with pytest.raises(InputError, match="column 'valid'.*takes 3 features"):
        train(log, model, valid=Task.of(wide, WEIGHING))
    with pytest.raises(InputError, match="column 'model'.*LinearModel or a ModuleModel"):
        batch_scorer(MLPScorer(3), log.data)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no relevance"):
        train(RankingDataset(np.ones((2, 3)), [0, 2]), model, valid=task)
    dropped = log.drop_empties()
    noisy = Weighing(BIAS, noise=ClickNoise(1.0, 0.1))
    with pytest.raises(InputError, match="were dropped"):
        train_as_paper(dropped, noisy, model, fairness_weight=1.0, l2=0.0, valid=task)


def test_steps_out_of_bounds_are_an_error() -> None:
    log = clicks_on(lists_of(2))
    settings = quick(learning_rate=1e300, momentum=0.0)
    with (
        np.errstate(all="ignore"),
        pytest.raises(InputError, match="beyond all bounds"),
    ):
        train(log, model_on("linear", log.data), settings=settings)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_german_credit_gains_utility_and_fairness(german: DataSplits, kind: str) -> None:
    policy = RankingSVM.train(german.train)
    log = simulate_clicks(german.train, policy, BIAS, clicks=2_000, seed=0)
    valid = Task.of(simulate_clicks(german.valid, policy, BIAS, clicks=2_000, seed=1), WEIGHING)
    scaling = Scaling.standard(german.train)
    model: Model = LinearModel(german.train, scaling)
    if kind == "mlp":
        model = ModuleModel(german.train, scaling, MLPScorer(61, (30,)))
    settings = PaperSettings(
        validate_every=150, most_steps=1_500, entropy_weight=0.1, learning_rate=5e-3, adam_learning_rate=2e-3
    )
    weight = 1.0
    result = train_as_paper(
        log, WEIGHING, model, fairness_weight=weight, l2=1e-3, valid=valid, settings=settings
    )
    true = Objective(Task.of(german.train, WEIGHING), model, np.zeros(1))
    on_valid = Objective(valid, model.on(valid.data), np.zeros(1))
    values = []
    for objective in (true, on_valid):
        start, end = (objective.measure(at[None]) for at in (model.initial(0), result.parameters))
        values.append([float(at.utility[0] - weight * squared(at.disparity)[0]) for at in (start, end)])
        assert end.utility[0] > start.utility[0]
    print(f"{kind}: true {values[0]}, validation {values[1]}")
    assert values[0][1] > values[0][0] + 0.05
    assert values[1][1] > values[1][0] + 0.05
    assert values[1][1] == pytest.approx(result.best_value)
