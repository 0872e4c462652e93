"""LambdaRank: its lambdas against plain torch, merging, what it reaches, and what misleads it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus

from fultr import (
    ClickLog,
    InputError,
    PositionBias,
    RandomRanking,
    RankingDataset,
    datasets,
    evaluate,
    simulate_clicks,
)
from fultr.baselines import lambda_rank
from fultr.baselines.lambda_kernel import MergedImpressions
from fultr.baselines.lambda_rank import Judge, LambdaAscent, LambdaRank, Training
from fultr.policy import FixedScorer, MLPScorer
from fultr.training.models import LinearModel, Model, ModuleModel
from fultr.training.paper_steps import PaperSettings
from fultr.training.scaling import Scaling
from tests.ranker_contract import WIDTH, Candidate, Contract, clicks_on, lists
from tests.training_tasks import BIAS, random_lists, random_log

Array = NDArray[np.float64]


def made(**settings: Any) -> Any:
    """Return a function that makes a ranker with these settings and those of a test."""
    known = {"l2": 0.01, "position_bias": BIAS, **settings}
    return lambda **more: LambdaRank(**{**known, **more})


def some_module() -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    module = nn.Sequential(nn.Linear(WIDTH, 3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


CANDIDATES = {
    "mlp": Candidate(made(), per_impression=True),
    "linear": Candidate(made(model="linear", l2=[0.001, 0.1]), per_impression=True),
    "labelled": Candidate(made(model="linear"), labelled=True, per_impression=True),
    "module": Candidate(made(model=some_module()), per_impression=True),
}


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train briefly, which is enough for small data."""
    for name, value in {"PATIENCE": 4, "MOST_ROUNDS": 8, "ROUNDS_WITHOUT_VALIDATION": 4}.items():
        monkeypatch.setattr(lambda_rank, name, value)


class TestContract(Contract):
    """All tests of the contract."""

    @pytest.fixture(params=CANDIDATES)
    def candidate(self, request: pytest.FixtureRequest) -> Candidate:
        return CANDIDATES[request.param]


def ranks_of(scores: Array) -> list[int]:
    """Ranks from 1 by descending score; items of the same score in their order."""
    order = sorted(range(scores.size), key=lambda place: (-scores[place], place))
    return [order.index(place) + 1 for place in range(scores.size)]


def plain_loss(log: ClickLog | RankingDataset, scores: Tensor) -> tuple[Tensor, int]:
    """Sum over impressions and pairs of |delta DCG| log(1 + exp(s_j - s_i)), and impressions with a pair."""
    data = log if isinstance(log, RankingDataset) else log.data
    shown_lists = range(len(data)) if isinstance(log, RankingDataset) else log.lists
    total, impressions = torch.zeros((), dtype=torch.float64), 0
    for number, which in enumerate(shown_lists):
        rows = slice(data.offsets[which], data.offsets[which + 1])
        if isinstance(log, RankingDataset):
            assert data.relevance is not None
            gain, shown = data.relevance[rows], np.ones(data.lengths[which], bool)
        else:
            entries = slice(log.offsets[number], log.offsets[number + 1])
            gain, shown = log.click[entries].astype(np.float64), log.position[entries] > 0
        own = scores[rows]
        worth = [1 / np.log2(1 + rank) for rank in ranks_of(own.detach().numpy())]
        pairs = [
            (better, worse)
            for better in range(len(gain))
            for worse in range(len(gain))
            if shown[better] and shown[worse] and gain[better] > gain[worse]
        ]
        impressions += bool(pairs)
        for better, worse in pairs:
            before = gain[better] * worth[better] + gain[worse] * worth[worse]
            after = gain[better] * worth[worse] + gain[worse] * worth[better]
            total = total + abs(float(before - after)) * softplus(own[worse] - own[better])
    return total, impressions


def source_of(kind: str) -> ClickLog | RankingDataset:
    data = random_lists(seed=2)
    if kind == "clicks":
        return random_log(data, impressions=150)
    assert data.relevance is not None
    return data if kind == "relevance" else replace(data, relevance=np.round(2 * data.relevance))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kind", ["clicks", "relevance", "grades"])
def test_lambdas_are_the_slopes_of_the_pairwise_loss(kind: str, ties: bool) -> None:
    source = source_of(kind)
    merged = MergedImpressions.of(source)
    assert merged.count.sum() > len(merged) if kind == "clicks" else (merged.count == 1).all()
    rng = np.random.default_rng(0)
    scores = 2 * rng.normal(size=merged.data.rows)
    scores = np.round(scores / 2) if ties else scores
    given = torch.tensor(scores, requires_grad=True)
    loss, impressions = plain_loss(source, given)
    (slopes,) = torch.autograd.grad(loss, given)
    assert impressions == merged.count.sum()
    # some lists only, in another order
    chosen = rng.permutation(merged.lists.size)[:-1]
    rows = [np.arange(*merged.data.offsets[which : which + 2]) for which in merged.lists[chosen]]
    offsets = np.cumsum([0, *map(len, rows)])
    found = merged.lambdas(chosen, scores[np.concatenate(rows)], offsets)
    np.testing.assert_allclose(found, -slopes.numpy()[np.concatenate(rows)], rtol=1e-12, atol=1e-12)
    left_out = set(range(len(merged.data))) - set(merged.lists.tolist())
    assert left_out
    assert all(
        not slopes[merged.data.offsets[which] : merged.data.offsets[which + 1]].any() for which in left_out
    )


def model_on(kind: str, data: RankingDataset) -> Model:
    width = data.features.shape[1]
    scaling = Scaling(np.full(width, 0.3, np.float32), np.linspace(0.5, 2, width, dtype=np.float32))
    if kind == "linear":
        return LinearModel(data, scaling)
    return ModuleModel(data, scaling, MLPScorer(width, (4, 3)) if kind == "mlp" else some_module())


@pytest.mark.parametrize("kind", ["linear", "mlp", "module"])
def test_a_step_goes_uphill_on_the_mean_over_impressions(kind: str) -> None:
    log, l2 = source_of("clicks"), 0.05
    assert isinstance(log, ClickLog)
    model = model_on(kind, log.data)
    ascent = LambdaAscent(MergedImpressions.of(log), model, l2, seed=0)
    ascent.parameters = np.random.default_rng(5).normal(size=model.size)
    lists = ascent.impressions.lists.size
    found = ascent.gradient(np.arange(lists))
    scorer = model.scorer(ascent.parameters).double().requires_grad_(True)
    loss, impressions = plain_loss(log, scorer(torch.tensor(log.data.features).double()))
    slopes = torch.autograd.grad(loss / impressions, list(scorer.parameters()))
    wanted = -np.concatenate([slope.numpy().reshape(-1) for slope in slopes]) - l2 * ascent.parameters
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    # a batch stands for all lists, and each list counts alike
    single = [ascent.gradient(np.array([number])) for number in range(lists)]
    np.testing.assert_allclose(np.mean(single, axis=0), found, rtol=1e-4, atol=1e-5)
    some = np.array([4, 0, 7])
    np.testing.assert_allclose(
        ascent.gradient(some), np.mean([single[number] for number in some], axis=0), rtol=1e-4, atol=1e-5
    )


def test_an_epoch_goes_through_all_lists_in_a_new_order(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    gradient = LambdaAscent.gradient

    def recorded(ascent: LambdaAscent, chosen: NDArray[np.int64]) -> Array:
        taken.extend(chosen)
        return gradient(ascent, chosen)

    monkeypatch.setattr(LambdaAscent, "gradient", recorded)
    data = lists()
    merged, model = MergedImpressions.of(data), LinearModel(data, Scaling.none(data))
    once, in_parts = LambdaAscent(merged, model, 0.1, seed=3), LambdaAscent(merged, model, 0.1, seed=3)
    once.advance(5, 7)
    orders = np.reshape(taken, (5, merged.lists.size))
    assert (np.sort(orders, axis=1) == np.arange(merged.lists.size)).all()
    assert len({tuple(order) for order in orders}) == 5
    assert once.steps == 5 * -(-merged.lists.size // 7)
    in_parts.advance(2, 7)
    in_parts.advance(3, 7)
    np.testing.assert_array_equal(once.parameters, in_parts.parameters)


def clicks_on_three(clicks: list[list[int]], positions: list[list[int]]) -> ClickLog:
    data = RankingDataset(np.eye(3), [0, 3])
    return ClickLog(data, [0] * len(clicks), np.ravel(positions), np.ravel(clicks))


def test_only_equal_impressions_are_merged() -> None:
    positions = [[1, 2, 3], [3, 1, 2], [1, 2, 0], [1, 2, 3], [1, 2, 3], [2, 1, 0], [1, 3, 2]]
    clicks = [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1]]
    merged = MergedImpressions.of(clicks_on_three(clicks, positions))
    # the order in which items were shown does not matter; which ones were shown or clicked does
    kinds = [slice(*edges) for edges in pairwise(merged.starts)]
    found = [(merged.index[kind].tolist(), merged.gain[kind].tolist()) for kind in kinds]
    assert sorted((*kind, count) for kind, count in zip(found, merged.count.tolist(), strict=True)) == [
        ([0, 1], [1, 0], 2),
        ([0, 1, 2], [1, 0, 0], 2),
        ([0, 1, 2], [1, 1, 0], 1),
    ]


def repeated(log: ClickLog, times: int) -> ClickLog:
    return ClickLog(
        log.data,
        np.tile(log.lists, times),
        np.tile(log.position, times),
        np.tile(log.click, times),
        position_bias=log.position_bias,
    )


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_a_log_that_says_all_twice_teaches_the_same(model: str) -> None:
    log, test = clicks_on(lists()), lists(seed=9)
    ranker = made(model=model, valid_share=0)
    once, twice = ranker().fit(log), ranker().fit(repeated(log, 2))
    np.testing.assert_array_equal(once.predict(test), twice.predict(test))


def test_the_order_of_impressions_says_nothing() -> None:
    log, test = clicks_on(lists()), lists(seed=9)
    ranker = made(model="linear", valid_share=0)
    once, mixed = ranker().fit(log), ranker().fit(log[np.random.default_rng(0).permutation(len(log))])
    np.testing.assert_array_equal(once.predict(test), mixed.predict(test))


def test_impressions_with_all_or_nothing_clicked_teach_nothing() -> None:
    log, test = clicks_on(lists()), lists(seed=9)
    number = log.impression_of_entry
    clicks = np.bincount(number, log.click)
    mixed = (clicks > 0) & (clicks < np.bincount(number, log.position > 0))
    # some more of them: everything that was shown is clicked in all other impressions
    eager = replace(log, click=np.where(mixed[number], log.click, log.position > 0))
    ranker = made(valid_share=0)
    assert 0 < mixed.sum() < len(log)
    expected = ranker().fit(log[mixed]).predict(test)
    for other in (log, eager):
        np.testing.assert_array_equal(ranker().fit(other).predict(test), expected)
    with pytest.raises(InputError, match="no order to learn"):
        ranker().fit(eager[~mixed])


@pytest.mark.parametrize("size", [1e3, 1e30, 1.5e308])
def test_extreme_scores(size: float) -> None:
    positions, clicks = [[1, 2, 3]], [[0, 0, 1]]
    merged = MergedImpressions.of(clicks_on_three(clicks, positions))
    chosen, offsets = np.array([0]), np.array([0, 3])
    second, third = 1 / np.log2(3), 1 / 2
    # the clicked item is last: pairs in the wrong order pull with all that a swap would bring
    wrong = merged.lambdas(chosen, np.array([size, 0.0, -size]), offsets)
    np.testing.assert_allclose(wrong, [third - 1, third - second, 1 + second - 2 * third], rtol=1e-12)
    right = merged.lambdas(chosen, np.array([-size, 0.0, size]), offsets)
    np.testing.assert_array_equal(right, 0)


def dcg_of(policy: Any, test: RankingDataset) -> float:
    return evaluate(policy, test, position_bias=BIAS, intervals=None).dcg


def by_weights(weights: Array) -> FixedScorer:
    return FixedScorer(lambda features: features @ weights)


def pairwise_optimum(data: RankingDataset) -> Array:
    """Weights that minimise the logistic loss of all pairs of a relevant and an irrelevant item."""
    assert data.relevance is not None
    features = torch.tensor(data.features).double()
    same = torch.tensor(data.list_of_row[:, None] == data.list_of_row)
    relevance = torch.tensor(data.relevance)
    better, worse = torch.nonzero(same & (relevance[:, None] > relevance), as_tuple=True)
    weights = torch.zeros(features.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        scores = features @ weights
        loss = softplus(scores[worse] - scores[better]).mean() + 1e-3 * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return np.asarray(weights.detach().numpy())


def test_labelled_lists_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambda_rank, "PATIENCE", 10)
    monkeypatch.setattr(lambda_rank, "MOST_ROUNDS", 40)
    gained = []
    for seed in range(1, 4):
        data = datasets.synthetic(queries=150, test_queries=400, features=12, feature_noise=1.0, seed=seed)
        optimum = dcg_of(by_weights(pairwise_optimum(data.train)), data.test)
        rankers = [made(model="linear")(), made(hidden=[16])()]
        assert dcg_of(RandomRanking(), data.test) < optimum - 0.4
        gained.append([dcg_of(ranker.fit(data.train), data.test) - optimum for ranker in rankers])
    linear, network = np.mean(gained, axis=0)
    assert abs(linear) < 0.025
    # relevance is no linear function of the features
    assert network > 0.005


def lost_to_clicks(eta: float) -> Array:
    """What learning from clicks costs in DCG, against the same learner with the true relevances, by seed."""
    lost = []
    for seed in range(5):
        data = datasets.synthetic(queries=100, test_queries=300, features=10, feature_noise=1.0, seed=seed)
        # always ranks by a feature, and the wrong way round
        policy = FixedScorer(lambda features: -features[:, 0])
        log = simulate_clicks(data.train, policy, PositionBias.power(eta), impressions=1500, seed=seed)
        ranker = made(model="linear", seed=seed)
        lost.append(dcg_of(ranker().fit(data.train), data.test) - dcg_of(ranker().fit(log), data.test))
    return np.array(lost)


@pytest.mark.statistical
def test_position_bias_misleads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambda_rank, "MOST_ROUNDS", 20)
    biased, unbiased = lost_to_clicks(2.0), lost_to_clicks(0.0)
    error = biased.std(ddof=1) / np.sqrt(biased.size)
    assert biased.mean() > 0.1 + 3 * error
    # where all positions are examined alike, clicks are the relevances themselves
    assert abs(unbiased.mean()) < 0.03


class Recorded:
    """Validation values as they come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values: list[float] = []
        value = Judge.value

        def recorded(judge: Judge, parameters: Array) -> float:
            self.values.append(value(judge, parameters))
            return self.values[-1]

        monkeypatch.setattr(Judge, "value", recorded)


def test_the_best_on_validation_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambda_rank, "PATIENCE", 3)
    monkeypatch.setattr(lambda_rank, "MOST_ROUNDS", 50)
    recorded, log, valid = Recorded(monkeypatch), clicks_on(lists()), clicks_on(lists(seed=3, count=200))
    ranker = made(model="linear", l2=0.0)().fit(log, valid=valid)
    values = np.array(recorded.values)
    passes = -(-lambda_rank.LEAST_STEPS // MergedImpressions.of(log).lists.size)
    # three rounds without a gain, and no three before
    assert values.size == values.argmax() + 1 + 3
    assert ranker.epochs_ == passes * (values.argmax() + 1)
    clicked = valid.compact()
    ranks = ranker.rank(clicked.data)
    assert float(clicked.clicks() @ (1 / np.log2(1 + ranks))) == pytest.approx(values.max())


def test_l2_is_chosen_on_validation_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, log, valid = Recorded(monkeypatch), clicks_on(lists()), clicks_on(lists(seed=3, count=200))
    best = {}
    for l2 in (0.0, 0.1, 100.0):
        recorded.values.clear()
        made(model="linear", l2=l2)().fit(log, valid=valid)
        best[l2] = max(recorded.values)
    assert len(set(best.values())) == 3
    ranker = made(model="linear", l2=[100.0, 0.1, 0.0])().fit(log, valid=valid)
    assert ranker.l2_ == max(best, key=lambda l2: best[l2])


def test_validation_counts_every_click_as_one() -> None:
    data = lists(seed=3)
    log = clicks_on(data)
    parameters = np.array([0.5, -1.0, 0.2, 0.0])
    model = LinearModel(data, Scaling.none(data))
    policy = by_weights(parameters)
    ranks = policy.rank(data)
    total = sum(
        1 / np.log2(1 + ranks[row]) for row, click in zip(log.row_of_entry, log.click, strict=True) if click
    )
    assert Judge(model, log).value(parameters) == pytest.approx(total)
    assert Judge(model, log.compact()).value(parameters) == pytest.approx(total)
    assert Judge(model, data).value(parameters) == pytest.approx(dcg_of(policy, data) * len(data))


def test_without_validation_training_is_of_a_fixed_length() -> None:
    log = clicks_on(lists())
    used = MergedImpressions.of(log).lists.size
    assert used < lambda_rank.LEAST_STEPS
    ranker = made(valid_share=0)().fit(log)
    assert ranker.epochs_ == 4 * -(-lambda_rank.LEAST_STEPS // used)
    for l2 in (None, [0.1, 0.2], []):
        with pytest.raises(InputError, match="l2"):
            made(valid_share=0, l2=l2)().fit(log)
    # validation clicks that are given are used all the same
    assert made(valid_share=0, l2=[0.1, 0.2])().fit(log, valid=clicks_on(lists(seed=3))).l2_ in (0.1, 0.2)


@pytest.mark.parametrize(
    ("count", "batch", "epochs"), [(1, 1, 50), (49, 1, 2), (100, 2, 1), (3200, 64, 1), (10_000, 64, 1)]
)
def test_batches_grow_with_the_number_of_lists(count: int, batch: int, epochs: int) -> None:
    data = RankingDataset(np.zeros((2 * count, 1)), 2 * np.arange(count + 1), relevance=[0, 1] * count)
    training = Training(MergedImpressions.of(data), LinearModel(data, Scaling.none(data)), None, 0)
    assert (training.batch_size, training.epochs_a_round) == (batch, epochs)


def test_one_query_is_enough() -> None:
    data = lists(count=1, seed=4)
    relevance = np.array([0, 1, 0, 1, 0], dtype=np.float32)
    ranker = made(model="linear", valid_share=0, l2=0.0)().fit(replace(data, relevance=relevance))
    assert sorted(ranker.rank(data)[[1, 3]]) == [1, 2]


def test_a_module_is_left_as_it_was() -> None:
    module, log = some_module(), clicks_on(lists())
    before = [parameter.detach().clone() for parameter in module.parameters()]
    made(model=module, valid_share=0)().fit(log)
    assert all(map(torch.equal, before, module.parameters()))
    assert module.training


def test_the_position_bias_may_be_unknown() -> None:
    log, test = replace(clicks_on(lists()), position_bias=None), lists(seed=9)
    ranker = made(model="linear", position_bias=None, valid_share=0)
    unknown = ranker().fit(log)
    assert unknown.position_bias_ is None
    with pytest.raises(InputError, match="exposure"):
        unknown.evaluate(test)
    found = unknown.evaluate(test, position_bias=BIAS, intervals=None)
    groupless = RankingDataset(test.features, test.offsets, relevance=test.relevance)
    alone = unknown.evaluate(groupless, intervals=None)
    assert alone.dcg == found.dcg
    # a log's own is taken, and changes nothing else
    known = ranker().fit(replace(log, position_bias=BIAS))
    assert known.position_bias_ == BIAS
    np.testing.assert_array_equal(known.predict(test), unknown.predict(test))
    examined = np.where(log.position > 0, 0.9 / np.maximum(log.position, 1), 0.5)
    followed = ranker().fit(replace(log, propensity=examined)).position_bias_
    np.testing.assert_allclose(followed.at([1, 2, 4]), [1, 1 / 2, 1 / 4])


def test_rankings_are_by_falling_score() -> None:
    ranker, test = made(model="linear", valid_share=0)().fit(lists()), lists(seed=9)
    drawn = ranker.sample_rankings(test, 3)
    assert (drawn == ranker.rank(test)).all()
    assert not ranker.evaluate(test).stochastic


def test_what_cannot_be_learned_from_is_refused() -> None:
    data = lists()
    log = clicks_on(data)
    silent = replace(log, click=np.zeros(log.entries, bool))
    cases: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
        (replace(data, relevance=None), {}, {}, "relevance"),
        (RankingDataset(np.empty((2, 0)), [0, 2], relevance=[0, 1]), {}, {}, "no features"),
        (silent, {"valid_share": 0}, {}, "no order to learn"),
        (log, {}, {"valid": silent}, "no validation item"),
        (log, {"model": "forest"}, {}, "'linear', 'mlp'"),
        (log, {"l2": -1.0}, {}, "l2"),
        (log, {"hidden": [0]}, {}, "hidden"),
        (log, {"seed": -1}, {}, "seed"),
        (log, {"valid_share": 1.0}, {}, "valid_share"),
        (log, {"position_bias": 1.0}, {}, "PositionBias"),
        (log, {"scale_features": "yes"}, {}, "scale_features"),
    ]
    for source, settings, more, problem in cases:
        with pytest.raises(InputError, match=problem):
            made(**settings)().fit(source, **more)


def test_training_that_diverges_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambda_rank, "NETWORK_STEPS", PaperSettings(adam_learning_rate=1e30))
    with pytest.raises(InputError, match="beyond all bounds"):
        made(valid_share=0)().fit(lists())
