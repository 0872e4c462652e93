"""Position bias estimated from logs whose true bias is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from fultr import (
    ClickLog,
    ClickNoise,
    FixedScorer,
    InputError,
    Planting,
    PositionBias,
    RandomRanking,
    RankingDataset,
    count,
    datasets,
    simulate_clicks,
)
from fultr.clicks import (
    BiasEstimate,
    compare_biases,
    estimate_bias,
    estimate_bias_em,
    estimate_bias_harvest,
    estimate_bias_swap,
    supported_methods,
)
from fultr.clicks.bias_cells import counts_of_rankers, item_cells
from fultr.clicks.bias_em_mixture import VALUES, MixtureModel
from fultr.clicks.bias_em_regression import RegressionModel
from fultr.clicks.bias_em_steps import HiddenClickModel, climb, relative_logs
from fultr.clicks.bias_pairs import fitted_logs, pairs_of
from fultr.clicks.bias_resampling import MOST_BLOCKS, blocks_of, drawn_sums, residual_test
from fultr.policy import RankingPolicy, RankingSampler

TRUE = np.array([1.0, 0.6, 0.35, 0.3, 0.1])
BIAS = PositionBias(TRUE.tolist())
NOISE = ClickNoise(0.9, 0.1)


class Swaps:
    """Exchange position 1 with one drawn at random, the first included, and remember which."""

    def __init__(self, policy: RankingPolicy) -> None:
        self.policy = policy
        self.steps: list[NDArray[np.int64]] = []

    def sampler(self, data: RankingDataset) -> RankingSampler:
        ranking = self.policy.sampler(data)

        def swapped(lists: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int32]:
            position, lengths = ranking(lists, rng), data.lengths[lists]
            rank = rng.integers(1, lengths + 1)
            self.steps.append(rank)
            other = np.repeat(rank, lengths)
            moved = np.where(position == 1, other, np.where(position == other, 1, position))
            return moved.astype(np.int32)

        return swapped

    def drawn(self, log: ClickLog) -> NDArray[np.int64]:
        return np.concatenate(self.steps)[: len(log)]


class Rankers:
    """Let one of several rankers, drawn at random, rank each impression, and remember which."""

    def __init__(self, *policies: RankingPolicy) -> None:
        self.policies = policies
        self.steps: list[NDArray[np.int64]] = []

    def sampler(self, data: RankingDataset) -> RankingSampler:
        rankings = [policy.sampler(data) for policy in self.policies]

        def ranked(lists: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int32]:
            which = rng.integers(len(rankings), size=lists.size)
            self.steps.append(which)
            positions = np.stack([ranking(lists, rng) for ranking in rankings])
            chosen = np.repeat(which, data.lengths[lists])
            return np.asarray(positions[chosen, np.arange(chosen.size)])

        return ranked

    def drawn(self, log: ClickLog) -> NDArray[np.int64]:
        return np.concatenate(self.steps)[: len(log)]


@cache
def lists_of(queries: int = 100) -> RankingDataset:
    return datasets.synthetic(queries=queries, list_length=TRUE.size, features=5, relevant=2).train


def scorer(number: int) -> FixedScorer:
    weights = np.random.default_rng(number).normal(size=5)
    return FixedScorer(lambda features: features @ weights)


def swap_log(seed: int, impressions: int = 8_000, bias: PositionBias = BIAS) -> tuple[ClickLog, Any]:
    policy = Swaps(scorer(0))
    log = simulate_clicks(lists_of(), policy, bias, NOISE, impressions=impressions, seed=seed)
    return log, policy.drawn(log)


def ranker_log(seed: int, impressions: int = 8_000) -> tuple[ClickLog, Any]:
    policy = Rankers(*(scorer(number) for number in range(4)))
    log = simulate_clicks(lists_of(), policy, BIAS, NOISE, impressions=impressions, seed=seed)
    return log, policy.drawn(log)


def random_log(seed: int = 0, impressions: int = 8_000, **arguments: Any) -> ClickLog:
    data = arguments.pop("data", lists_of())
    return simulate_clicks(
        data, RandomRanking(), BIAS, NOISE, impressions=impressions, seed=seed, **arguments
    )


def by_swap(seed: int) -> BiasEstimate:
    log, rank = swap_log(seed)
    return estimate_bias_swap(log, rank, resamples=300, seed=seed)


def by_harvest(seed: int) -> BiasEstimate:
    log, ranker = ranker_log(seed)
    return estimate_bias_harvest(log, ranker=ranker, resamples=300, seed=seed)


def by_em(seed: int) -> BiasEstimate:
    return estimate_bias_em(random_log(seed, 4_000), resamples=300, seed=seed)


def by_regression(seed: int) -> BiasEstimate:
    return estimate_bias_em(random_log(seed, 4_000), relevance="features", resamples=300, seed=seed)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("estimate", "repetitions", "largest_bias"),
    # EM is unbiased only as data grows; what is left of bias is small beside its intervals
    [(by_swap, 200, 3.0), (by_harvest, 200, 3.0), (by_em, 50, 5.0), (by_regression, 60, 5.0)],
)
def test_estimates_are_unbiased_and_intervals_cover(
    estimate: Callable[[int], BiasEstimate], repetitions: int, largest_bias: float
) -> None:
    found = [estimate(seed) for seed in range(repetitions)]
    values, low, high = (
        np.array([getattr(one, name) for one in found]) for name in ("values", "low", "high")
    )
    error = values[:, 1:].std(axis=0, ddof=1) / np.sqrt(repetitions)
    missed = (values[:, 1:].mean(axis=0) - TRUE[1:]) / error
    covered = ((low <= TRUE) & (high >= TRUE))[:, 1:].mean()
    rejected = np.mean([one.fit is not None and one.fit.p_value < 0.05 for one in found])
    print(
        f"{found[0].method}: coverage {covered:.1%}, bias {missed.round(1)} errors, rejected {rejected:.1%}"
    )
    assert np.abs(missed).max() <= largest_bias
    assert values.mean(axis=0) == pytest.approx(TRUE, rel=0.03)
    assert 0.90 <= covered <= 0.98
    assert rejected <= 0.12  # of data that follow the model, at a level of 5%
    assert (values[:, 0] == 1).all()
    assert (low[:, 0] == 1).all()


@pytest.mark.statistical
def test_each_method_recovers_the_truth_from_a_large_log() -> None:
    log, rank = swap_log(1, 100_000)
    shown, ranker = ranker_log(1, 100_000)
    random = random_log(1, 60_000)
    estimates = [
        estimate_bias_swap(log, rank, level=0.999),
        estimate_bias_harvest(shown, ranker=ranker, level=0.999),
        estimate_bias_harvest(random, randomised=True, level=0.999),
        estimate_bias_em(random, level=0.999),
        estimate_bias_em(random, relevance="features", level=0.999),
    ]
    for found in estimates:
        assert found.values == pytest.approx(TRUE, rel=0.06)
        assert all(low <= true <= high for low, true, high in zip(found.low, TRUE, found.high, strict=True))
        assert found.insufficient == ()
        assert found.tail == "error"
        # the truth is no power law, and so many clicks tell
        assert found.power_fit is not None
        assert found.power_fit.p_value < 0.01
        assert found.fit is not None
        assert found.fit.p_value > 1e-4


def test_power_law_is_summed_up_by_its_power() -> None:
    bias = PositionBias.power(0.7)
    log, rank = swap_log(2, 60_000, bias)
    found = estimate_bias_swap(log, rank, level=0.999)
    assert found.eta_low < 0.7 < found.eta_high
    assert found.eta_high - found.eta_low < 0.15
    assert found.power_fit is not None
    assert found.power_fit.p_value > 0.001


def plain_rates(log: ClickLog, rank: NDArray[np.int64], position: int) -> float:
    """v_k / v_1 of one swap experiment, impression by impression."""
    rates = np.zeros((2, 2))
    shown = np.zeros(2)
    for impression, swap in enumerate(rank):
        at = log.position[log.offsets[impression] : log.offsets[impression + 1]].tolist()
        click = log.click[log.offsets[impression] : log.offsets[impression + 1]]
        if swap in (1, position) and position in at and 1 in at:
            arm = int(swap == position)
            shown[arm] += 1
            rates[arm] += click[at.index(1)], click[at.index(position)]
    first, other = (rates / shown[:, None]).sum(axis=0)
    return float(other / first)


def test_swaps_are_counted_as_defined_also_around_planted_items_and_in_short_lists() -> None:
    data = datasets.synthetic(queries=40, list_length=(2, 5), features=3, relevant=1).train
    policy = Swaps(RandomRanking())
    bias = PositionBias([*TRUE.tolist(), 0.05])
    log = simulate_clicks(
        data, policy, bias, NOISE, impressions=3_000, planting=Planting(0.3, (1, 3)), seed=3
    )
    rank = policy.drawn(log)
    found = estimate_bias_swap(log, rank, least_clicks=1)
    for position in (2, 3, 4, 5):
        assert found.values[position - 1] == pytest.approx(plain_rates(log, rank, position))


@pytest.mark.statistical
def test_swaps_with_arms_of_their_own_use_these_only() -> None:
    rng = np.random.default_rng(0)
    policy = Swaps(scorer(0))
    log = simulate_clicks(lists_of(), policy, BIAS, NOISE, impressions=60_000, seed=5)
    made = policy.drawn(log)
    # of the impressions left as they were, each was drawn for some position, at odds that differ by position
    drawn = np.where(made > 1, made, rng.choice([2, 3, 4, 5], size=len(log), p=[0.4, 0.3, 0.2, 0.1]))
    found = estimate_bias_swap(log, drawn, made > 1, level=0.999)
    assert all(low <= true <= high for low, true, high in zip(found.low, TRUE, found.high, strict=True))
    assert found.pairs[1] == np.count_nonzero(drawn == 2)
    outside = estimate_bias_swap(log, np.where(drawn == 3, 0, drawn), made > 1)
    assert outside.insufficient == (3,)
    assert outside.values[1] == found.values[1]


@pytest.mark.statistical
def test_a_system_whose_users_trust_the_top_does_not_fit() -> None:
    """Where the first position makes the irrelevant look relevant, the two swapped items disagree."""
    policy = Swaps(FixedScorer(lambda features: features[:, 0]))
    features = np.tile([[5.0], [4.0], [3.0]], (200, 1))
    data = RankingDataset(features, np.arange(0, 601, 3), relevance=np.tile([1.0, 0.2, 0.1], 200))
    log = simulate_clicks(data, policy, PositionBias([1.0, 0.5, 0.3]), impressions=20_000, seed=0)
    rng = np.random.default_rng(0)
    trusted = log.click | ((log.position == 1) & (rng.random(log.entries) < 0.3))
    distorted = ClickLog(log.data, log.lists, log.position, trusted)
    fits = [estimate_bias_swap(one, policy.drawn(log)).fit for one in (log, distorted)]
    assert fits[0] is not None
    assert fits[1] is not None
    assert fits[0].p_value > 0.01
    assert fits[1].p_value < 1e-4


def plain_pairs(log: ClickLog, ranker: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """W_kl and H_kl by dictionaries."""
    seen: dict[tuple[int, int], list[int]] = {}
    who: dict[tuple[int, int], set[int]] = {}
    for entry, (row, position, click) in enumerate(
        zip(log.row_of_entry.tolist(), log.position.tolist(), log.click.tolist(), strict=True)
    ):
        if position:
            counts = seen.setdefault((row, position), [0, 0])
            counts[0] += 1
            counts[1] += click
            of = 0 if ranker is None else int(ranker[log.impression_of_entry[entry]])
            who.setdefault((row, position), set()).add(of)
    size = int(log.position.max())
    tables = np.zeros((2, size, size))
    for (row, k), (times, clicks) in seen.items():
        for l in range(1, size + 1):  # noqa: E741
            if l == k or (row, l) not in seen:
                continue
            if ranker is not None and len(who[row, k] | who[row, l]) < 2:
                continue
            other = seen[row, l][0]
            tables[0, k - 1, l - 1] += clicks * other / (times + other)
            tables[1, k - 1, l - 1] += times * other / (times + other)
    return tables


@pytest.mark.parametrize("named", [False, True])
def test_pairs_are_those_of_the_plain_sums(named: bool) -> None:
    policy = Rankers(scorer(1), scorer(2))
    log = simulate_clicks(lists_of(20), policy, BIAS, NOISE, impressions=300, top_k=4, seed=0)
    ranker = np.minimum(policy.drawn(log), log.lists % 2) if named else None
    cells = item_cells(counts_of_rankers(log, ranker), 50, by_ranker=named)
    blocks = blocks_of(cells.query, np.random.default_rng(0))
    pairs = pairs_of(cells, blocks, 4, between_rankers=named)
    assert pairs.tables.sum(axis=0) == pytest.approx(plain_pairs(log, ranker))
    assert pairs.tables.any()


@pytest.mark.parametrize("rate", [1e-3, 0.2, 0.9])
def test_the_curve_maximises_the_likelihood_of_all_pairs(rate: float) -> None:
    """The published objective, relevances and all, climbed by a general optimiser."""
    rng = np.random.default_rng(2)
    upper = np.triu_indices(4, k=1)
    shown = np.zeros((3, 4, 4))
    shown[:, *upper] = rng.uniform(20.0, 500.0, size=(3, 6))
    shown[0, 1, 2] = 0  # a pair that was never seen
    shown += shown.transpose(0, 2, 1)
    clicks = shown * rate * rng.uniform(0.3, 1.0, size=shown.shape)
    clicks[1, 0, 3] = 0  # a pair of which one side was never clicked
    for one, all_shown, logs in zip(clicks, shown, fitted_logs(np.stack([clicks, shown], 1)), strict=True):

        def loss(
            free: NDArray[np.float64], one: NDArray[np.float64] = one, every: NDArray[np.float64] = all_shown
        ) -> float:
            relevance = np.zeros((4, 4))
            relevance[upper] = free[3:]
            rates = np.exp(np.concatenate([[0.0], free[:3]])[:, None] + relevance + relevance.T)
            if rates[every > 0].max() >= 1:
                return np.inf
            apart = ~np.eye(4, dtype=np.bool_) & (every > 0)
            terms = one * np.log(rates) + (every - one) * np.log1p(-np.minimum(rates, 0.999999))
            return -float(np.sum(terms[apart]))

        free = np.concatenate([logs[1:], np.full(6, np.log(rate * 0.3))])
        start = minimize(loss, free, method="Nelder-Mead", options={"maxiter": 20_000}).x
        best = minimize(loss, start, method="Powell", options={"xtol": 1e-10, "ftol": 1e-14}).x
        assert logs[1:] == pytest.approx(best[:3], abs=2e-4)
        assert logs[0] == 0


@pytest.mark.parametrize("relevance", [1e-6, 0.3, 1.0])
def test_exact_proportions_are_found_exactly(relevance: float) -> None:
    v = np.array([1.0, 0.5, 0.2, 0.8])
    shown = np.array([[0, 7, 0, 2], [7, 0, 3, 0], [0, 3, 0, 1], [2, 0, 1, 0]])
    tables = np.stack([shown * v[:, None] * relevance, shown])
    assert np.exp(fitted_logs(tables)) == pytest.approx(v, rel=1e-4 if relevance == 1 else 1e-9)


def test_where_everything_or_nothing_is_clicked_the_curve_is_finite() -> None:
    shown = 5.0 * (1 - np.eye(3))
    all_clicked = np.stack([shown, shown])
    assert fitted_logs(all_clicked) == pytest.approx(np.zeros(3), abs=1e-6)
    nothing_at_the_third = np.stack([shown * [[1.0], [0.5], [0.0]], shown])
    assert np.exp(fitted_logs(nothing_at_the_third)) == pytest.approx([1, 0.5, 0], abs=1e-5)


def test_compacted_logs_give_the_same() -> None:
    log = random_log(4, 4_000)
    for estimate in (estimate_bias_harvest, estimate_bias_em):
        assert estimate(log.compact()) == estimate(log)


def test_one_document_in_several_lists_is_one_document() -> None:
    whole = random_log(1, 3_000)
    first = ClickLog(whole.data, whole.lists, whole.position, whole.click)
    twice = RankingDataset(
        np.concatenate([whole.data.features] * 2),
        np.concatenate([whole.data.offsets, whole.data.offsets[1:] + whole.data.rows]),
        group=np.concatenate([whole.data.group] * 2),
        group_names=whole.data.group_names,
        query_id=np.concatenate([whole.data.query_id] * 2),
        doc_id=np.concatenate([whole.data.doc_id] * 2),
    )
    lists = whole.lists + len(whole.data) * (np.arange(len(whole)) % 2)
    second = ClickLog(twice, lists, whole.position, whole.click)
    assert estimate_bias_harvest(second) == estimate_bias_harvest(first)


def models() -> list[HiddenClickModel]:
    counts = random_log(3, 3_000, data=lists_of(40)).compact()
    cells = item_cells(counts, 50)
    return [MixtureModel(cells, 5), RegressionModel(cells, 5, counts.data.features[cells.row])]


def test_em_never_lowers_the_likelihood_and_ends_at_its_top() -> None:
    for model in models():
        state = model.start()
        before = model.value(state)
        for _ in range(30):
            state = model.step(state)
            assert model.value(state) >= before - 1e-9 * abs(before)
            before = model.value(state)
        end, at_rest = climb(model)
        assert at_rest
        assert model.value(end) >= before
        for place in range(1, 5):
            for change in (-0.01, 0.01):
                moved = end.copy()
                moved[place] += change
                assert model.value(moved) < model.value(end)


def test_likelihood_of_the_mixture_is_the_plain_one() -> None:
    model = models()[0]
    assert isinstance(model, MixtureModel)
    v, share = np.array([0.9, 0.5, 0.6, 0.2, 0.1]), np.arange(1, VALUES + 1) / (VALUES * (VALUES + 1) / 2)
    state = np.concatenate([np.log(v), share])
    values = np.clip(np.linspace(0, 1, VALUES) ** 2, 1e-9, 1 - 1e-9)
    cells, total = model.cells, 0.0
    for item in range(cells.row.size):
        mine = np.flatnonzero(cells.item == item)
        rate = v[cells.position[mine], None] * values
        clicks, rest = cells.clicks[mine, None], (cells.impressions - cells.clicks)[mine, None]
        total += float(np.log(share @ np.prod(rate**clicks * (1 - rate) ** rest, axis=0)))
    assert model.value(state) == pytest.approx(total)


@pytest.mark.parametrize("relevance", ["items", "features"])
def test_influence_tells_how_a_query_that_comes_again_moves_the_curve(relevance: str) -> None:
    log = random_log(6, 20_000, data=lists_of(60))
    again = np.concatenate([np.arange(len(log)), np.flatnonzero(log.lists < 6)])
    model, more = (
        MixtureModel(item_cells(one, 50), 5)
        if relevance == "items"
        else RegressionModel(item_cells(one, 50), 5, one.data.features[item_cells(one, 50).row])
        for one in (log.compact(), repeated(log, again).compact())
    )
    state, moved = climb(model)[0], climb(more)[0]
    block = model.cells.query
    told = model.influence(state, block, 60)[:6].sum(axis=0)
    happened = relative_logs(moved, 5) - relative_logs(state, 5)
    assert np.abs(happened[1:]).max() > 0.005
    # to first order, and a tenth of the queries is much
    assert told == pytest.approx(happened, abs=0.4 * float(np.abs(happened).max()))


def repeated(log: ClickLog, impressions: NDArray[np.int64]) -> ClickLog:
    """Return impressions of a log in which those that come again belong to copies of their queries."""
    again = impressions.size - len(log)
    data = log.data
    new = RankingDataset(
        np.concatenate([data.features] * 2),
        np.concatenate([data.offsets, data.offsets[1:] + data.rows]),
        query_id=np.arange(2 * len(data)),
        doc_id=np.concatenate([data.doc_id] * 2),
    )
    lists = log.lists[impressions]
    lists[-again:] += len(data)
    entries = np.concatenate([np.arange(log.offsets[i], log.offsets[i + 1]) for i in impressions])
    return ClickLog(new, lists, log.position[entries], log.click[entries])


def test_em_without_variation_is_refused_unless_a_regression_decides() -> None:
    log = simulate_clicks(lists_of(), scorer(0), BIAS, NOISE, impressions=20_000, seed=0)
    for estimate in (estimate_bias_em, estimate_bias_harvest, estimate_bias):
        with pytest.raises(InputError, match="no document was shown at two positions"):
            estimate(log)
    found = estimate_bias_em(log, relevance="features")
    assert found.fit is None
    assert any("nothing in the log tests it" in note for note in found.notes)
    assert supported_methods(log) == ()
    with pytest.raises(InputError, match="supports no method"):
        compare_biases(log)


def test_positions_that_follow_the_clicks_are_warned_of() -> None:
    log, ranker = ranker_log(0, 4_000)
    assert any("biased" in note for note in estimate_bias_harvest(log).notes)
    assert estimate_bias_harvest(log, ranker=ranker).notes == ()
    assert estimate_bias_harvest(log, randomised=True).notes == ()
    with pytest.raises(InputError, match="by two different rankers"):
        estimate_bias_harvest(log, ranker=["one"] * len(log))


def test_positions_without_enough_clicks_are_said_and_not_estimated() -> None:
    bias = PositionBias([1.0, 0.5, 0.0, 0.4, 0.001])
    log = simulate_clicks(lists_of(), RandomRanking(), bias, impressions=5_000, seed=0)
    policy = Swaps(RandomRanking())
    swaps = simulate_clicks(lists_of(), policy, bias, impressions=5_000, seed=0)
    for found in (
        estimate_bias_harvest(log, randomised=True),
        estimate_bias_em(log),
        estimate_bias_em(log, relevance="features"),
        estimate_bias_swap(swaps, policy.drawn(swaps)),
    ):
        assert found.insufficient == (3, 5)
        assert found.tail == "power"  # so that the estimate can be used for the log it came from
        assert found.to_position_bias().at([5]) > 0
        assert np.isnan(found.values)[[2, 4]].all()
        assert found.clicks[2] == 0
        assert found.impressions[2] == 5_000
        assert found.values[3] == pytest.approx(0.4, abs=0.08)
        assert any("positions 3, 5" in note for note in found.notes)


def test_positions_never_compared_with_the_first_are_not_estimated() -> None:
    data = RankingDataset(np.zeros((4, 1)), [0, 4], doc_id=[1, 2, 3, 4], relevance=np.ones(4))
    rng = np.random.default_rng(0)
    position = np.concatenate([[*rng.permutation([1, 2]), *rng.permutation([3, 4])] for _ in range(400)])
    click = rng.random(1600) < 1 / position
    log = ClickLog(data, np.zeros(400, dtype=np.int64), position, click)
    for estimate in (estimate_bias_harvest, estimate_bias_em):
        found = estimate(log)
        assert found.insufficient == (3, 4)
        # a single query: a value, but neither intervals nor tests
        assert found.values[1] == pytest.approx(0.5, abs=0.1)
        assert np.isnan(found.low).all()
        assert found.fit is None
        assert found.power_fit is None
        assert np.isnan(found.eta_low)
        assert any("one query only" in note for note in found.notes)


def test_planted_items_and_candidates_not_shown_take_no_part() -> None:
    bias = PositionBias([*TRUE.tolist(), 0.1])
    log = simulate_clicks(
        lists_of(), RandomRanking(), bias, NOISE, impressions=20_000, planting=Planting(0.2, (1,)), top_k=3
    )
    found = estimate_bias_harvest(log, randomised=True, level=0.999)
    assert len(found.values) == 3
    assert all(low <= true <= high for low, true, high in zip(found.low, TRUE[:3], found.high, strict=True))
    assert found.impressions[0] == np.count_nonzero(log.position == 1)
    assert found.impressions[0] < len(log)


def test_lists_of_different_lengths() -> None:
    data = datasets.synthetic(queries=150, list_length=(2, 5), features=5, relevant=1).train
    log = random_log(0, 20_000, data=data)
    for found in (
        estimate_bias_harvest(log, randomised=True, level=0.999),
        estimate_bias_em(log, level=0.999),
    ):
        assert all(low <= true <= high for low, true, high in zip(found.low, TRUE, found.high, strict=True))


def test_deeper_positions_than_asked_for_are_left_out() -> None:
    found = estimate_bias_harvest(random_log(), longest=3)
    assert len(found.values) == 3
    assert any("beyond 3" in note for note in found.notes)


def test_without_documents_ids_tied_rows_stay_apart() -> None:
    data = RankingDataset(np.zeros((60, 1)), np.arange(0, 61, 3), relevance=np.tile([1.0, 0.5, 0.0], 20))
    log = simulate_clicks(data, RandomRanking(), BIAS, impressions=4_000, seed=0)
    assert item_cells(log.compact(), 50).row.size == 60


def test_what_cannot_be_estimated_is_refused() -> None:
    log = random_log(0, 500)
    deeper = ClickLog(log.data, log.lists, log.position + 1, log.click)
    rank = np.full(len(log), 2)
    for estimate in (
        estimate_bias_harvest,
        estimate_bias_em,
        lambda given: estimate_bias_em(given, relevance="features"),
        lambda given: estimate_bias_swap(given, rank),
    ):
        with pytest.raises(InputError, match="position 1 was never shown"):
            estimate(deeper)
        with pytest.raises(InputError, match="were dropped"):
            estimate(ClickLog(log.data, log.lists, log.position, log.click, empties_dropped=True))
        with pytest.raises(InputError, match="no position has at least 10 clicks"):
            estimate(ClickLog(log.data, log.lists, log.position, np.zeros(log.entries, dtype=np.bool_)))
    empty = log[np.array([], dtype=np.int64)]
    for estimate in (estimate_bias_harvest, estimate_bias_em, lambda given: estimate_bias_swap(given, [])):
        with pytest.raises(InputError, match="position 1 was never shown"):
            estimate(empty)
    with pytest.raises(InputError, match="an arm that was left"):
        estimate_bias_swap(log, rank)  # all were swapped


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"level": 1.0}, "column 'level'"),
        ({"resamples": 3}, "column 'resamples'"),
        ({"longest": 1}, "column 'longest'"),
        ({"least_clicks": 0}, "column 'least_clicks'"),
        ({"seed": -1}, "column 'seed'"),
        ({"colour": 1}, "unknown"),
        ({"ranker": [1, 2]}, "one value for each of 500 impressions"),
        ({"ranker": [None] * 500}, "column 'ranker'"),
        ({"method": "guess"}, "column 'method'"),
        ({"method": "swap"}, "column 'swap_rank'"),
        ({"method": "swap", "swap_rank": [-1] * 500}, "column 'swap_rank'"),
        ({"method": "swap", "swap_rank": [1.5] * 500}, "column 'swap_rank'"),
        ({"method": "swap", "swap_rank": [1]}, "column 'swap_rank'"),
        ({"method": "swap", "swap_rank": [2] * 500, "swapped": [3] * 500}, "column 'swapped'"),
        ({"method": "em", "relevance": "guess"}, "column 'relevance'"),
        ({"context": {"device": ["phone"]}}, "column 'device'"),
        ({"context": ["phone"] * 500}, "column 'context'"),
        ({"context": {}}, "column 'context'"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        estimate_bias(random_log(0, 500), **wrong)


def test_a_compacted_log_does_not_know_its_impressions() -> None:
    compact = random_log(0, 2_000).compact()
    for wrong in (
        {"ranker": [1]},
        {"context": {"device": [1]}},
        {"method": "swap", "swap_rank": [1]},
    ):
        with pytest.raises(InputError, match="does not know its impressions"):
            estimate_bias(compact, **wrong)
    assert supported_methods(compact, swap_rank=[1]) == ("harvest", "em")


def test_each_context_has_its_own_curve() -> None:
    phone, rank = swap_log(1, 20_000, PositionBias([1.0, 0.3, 0.2, 0.1, 0.05]))
    desk, other_rank = swap_log(2, 20_000, BIAS)
    log = ClickLog(
        phone.data,
        np.concatenate([phone.lists, desk.lists]),
        np.concatenate([phone.position, desk.position]),
        np.concatenate([phone.click, desk.click]),
    )
    device = ["phone"] * len(phone) + ["desk"] * len(desk)
    both = np.concatenate([rank, other_rank])
    found = estimate_bias(log, "swap", swap_rank=both, context={"device": device})
    assert sorted(found) == ["desk", "phone"]
    assert found["phone"].context == ("device", "phone")
    assert found["phone"].values == estimate_bias_swap(phone, rank).values
    assert found["desk"].values == estimate_bias_swap(desk, other_rank).values
    assert found["phone"].high[1] < found["desk"].low[1]
    with pytest.raises(InputError, match="with device desk: no position has at least"):
        only_phone = np.where(np.array(device) == "phone", both, 0)
        estimate_bias(log, "swap", swap_rank=only_phone, context={"device": device})


def test_counts_that_tell_contexts_apart_need_no_labels() -> None:
    """Counts of a column, be it a device or the ranker, give what labels of single impressions give."""
    policy = Rankers(scorer(1), scorer(2))
    log = simulate_clicks(lists_of(100), policy, BIAS, NOISE, impressions=20_000, seed=0)
    ranker = np.array(["old", "new"])[policy.drawn(log)]
    device = np.array(["phone", "desk"])[np.random.default_rng(0).integers(2, size=len(log))]
    impression, row = log.impression_of_entry, log.row_of_entry
    table = {
        "impression_id": impression,
        "query_id": log.lists[impression],
        "doc_id": row,
        "position": log.position,
        "click": log.click.astype(int),
        "system": ranker[impression].tolist(),
        "device": device[impression].tolist(),
    }
    counts = count(table, context="system")
    one, other = estimate_bias_harvest(log, ranker=ranker), estimate_bias_harvest(counts, ranker="system")
    assert one.to_dict() == other.to_dict()
    assert supported_methods(counts, ranker="system") == ("harvest", "em")
    apart = estimate_bias(count(table, context="device"), "em", context="device")
    labelled = estimate_bias(log, "em", context={"device": device})
    assert {name: found.to_dict() for name, found in apart.items()} == {
        name: found.to_dict() for name, found in labelled.items()
    }
    assert apart["phone"].context == ("device", "phone")
    with pytest.raises(InputError, match="position 1 was never shown"):
        estimate_bias(log[:0], "harvest", ranker=[])
    # without asking for it, contexts are no part of an estimate
    assert estimate_bias_em(counts).to_dict() == estimate_bias_em(log).to_dict()
    wrong: dict[str, Any]
    for wrong in ({"ranker": "device"}, {"context": "device"}, {"context": {"system": ranker}}):
        with pytest.raises(InputError, match="does not know its impressions"):
            estimate_bias(counts, "harvest", **wrong)


def test_methods_are_compared_where_the_log_supports_them() -> None:
    log, rank = swap_log(0, 20_000)
    assert supported_methods(log, swap_rank=rank) == ("swap", "harvest", "em")
    assert supported_methods(log) == ("harvest", "em")
    assert estimate_bias(log, swap_rank=rank).method == "swap"
    found = compare_biases(log, swap_rank=rank, randomised=True)
    assert list(found.estimates) == ["swap", "harvest", "em"]
    assert found.disagreements == ()
    assert [row["position"] for row in found.table()] == [1, 2, 3, 4, 5]
    assert found.table()[1]["harvest"]["value"] == found.estimates["harvest"].values[1]


def test_disagreement_is_found_where_items_move_because_of_their_clicks() -> None:
    """Documents that interest has moved to the top fool the harvest, but not the swaps made beside it."""
    rng = np.random.default_rng(0)
    queries, times = 200, 200
    data = RankingDataset(
        np.zeros((2 * queries, 1)), np.arange(0, 2 * queries + 1, 2), doc_id=[1, 2] * queries
    )
    lists = np.repeat(np.arange(queries), times)
    in_fashion = rng.random(lists.size) < 0.5  # which of the two documents is, and is shown first
    first = np.where(in_fashion, 1, 2)
    swap = rng.random(lists.size) < 0.3
    position = np.column_stack([first, 3 - first])
    position[swap] = position[swap][:, ::-1]
    relevance = np.where(np.column_stack([in_fashion, ~in_fashion]), 0.8, 0.2)
    click = rng.random(position.shape) < relevance * np.where(position == 1, 1.0, 0.5)
    log = ClickLog(data, lists, position.ravel(), click.ravel())
    found = compare_biases(log, swap_rank=np.where(swap, 2, 1), level=0.999)
    assert found.estimates["swap"].low[1] < 0.5 < found.estimates["swap"].high[1]
    assert found.estimates["harvest"].high[1] < 0.45
    assert (2, "swap", "harvest") in found.disagreements
    assert found.table()[1]["disagree"]


def test_refused_methods_are_told_in_a_comparison() -> None:
    log = random_log(0, 4_000)
    found = compare_biases(log, swap_rank=np.zeros(len(log), dtype=np.int64))
    assert list(found.estimates) == ["harvest", "em"]
    assert "an arm that was left" in found.refused["swap"]


def test_the_same_seed_gives_the_same_intervals() -> None:
    log = random_log(0, 3_000)
    one, again, other = (estimate_bias_harvest(log, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.values == other.values
    assert one.low != other.low


def test_very_many_queries_are_drawn_in_groups() -> None:
    blocks = blocks_of(np.arange(3 * MOST_BLOCKS), np.random.default_rng(0))
    assert blocks.queries == 3 * MOST_BLOCKS
    assert (np.bincount(blocks.of_query) == 3).all()
    values = np.random.default_rng(1).normal(size=3 * MOST_BLOCKS)
    sums = np.zeros(blocks.count)
    np.add.at(sums, blocks.of_query, values)
    drawn = drawn_sums(sums[:, None], 2_000, np.random.default_rng(2))
    assert drawn.std() == pytest.approx(np.sqrt(values.size) * values.std(), rel=0.08)


@pytest.mark.statistical
def test_residuals_of_chance_are_found_rarely_and_others_often() -> None:
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 3))  # three dimensions in six correlated residuals
    p_values = []
    for _ in range(400):
        spread = rng.normal(size=(300, 3)) @ mix.T
        found = residual_test(rng.normal(size=3) @ mix.T, spread)
        assert found is not None
        p_values.append(found.p_value)
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.09
    far = residual_test(6 * mix[:, 0], rng.normal(size=(300, 3)) @ mix.T)
    assert far is not None
    assert far.p_value < 0.01
    assert residual_test(np.zeros(2), np.zeros((10, 2))) is None
