"""Equity of Attention: its assignments against integer programmes, its stream against plain enumeration."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from fultr import Evaluation, InputError, RankingDataset, evaluate
from fultr.baselines.equity_of_attention import AttentionStream, EquityOfAttention, TradeOff
from fultr.expectation import dcg_weights
from tests.ranker_contract import Candidate, Contract, lists
from tests.training_tasks import BIAS

Array = NDArray[np.float64]


def made(**settings: Any) -> Any:
    return lambda **more: EquityOfAttention(**{"l2": 0.01, "position_bias": BIAS, **settings, **more})


CANDIDATES = {
    "regression": Candidate(made(l2=[0.001, 0.1])),
    "full information": Candidate(made(), labelled=True),
    "true relevance": Candidate(made(relevance="true", theta=0.5)),
}


@pytest.fixture(params=CANDIDATES)
def candidate(request: pytest.FixtureRequest) -> Candidate:
    return CANDIDATES[request.param]


class TestEquityOfAttention(Contract):
    """All tests of the contract."""


def examination(size: int) -> Array:
    return np.asarray(1 / np.arange(1.0, size + 1))


def random_trade_off(rng: np.random.Generator, size: int, groups: int = 2) -> TradeOff:
    slopes = rng.normal(size=groups)
    cost = (slopes / np.abs(slopes).max())[rng.integers(groups, size=size)]
    return TradeOff(cost, rng.random(size), examination(size), dcg_weights(size))


def best_dcg(trade_off: TradeOff) -> Any:
    return trade_off.best(0.0, 1.0)


def integer_optimum(trade_off: TradeOff, least_dcg: float) -> tuple[float, float]:
    """Return the least cost over rankings, by an integer programme, and over mixtures of rankings."""
    size = trade_off.items.size
    ones, eye = np.ones((1, size)), np.eye(size)
    places = np.concatenate([np.kron(eye, ones), np.kron(ones, eye)])
    cost, gain = trade_off.costs.reshape(-1), trade_off.gains.reshape(-1)
    limits = [LinearConstraint(places, 1, 1), LinearConstraint(gain[None], least_dcg)]
    exact = milp(cost, constraints=limits, integrality=np.ones(cost.size), bounds=Bounds(0, 1))
    mixed = linprog(cost, A_ub=-gain[None], b_ub=[-least_dcg], A_eq=places, b_eq=np.ones(2 * size))
    return float(exact.fun), float(mixed.fun)


def test_cost_is_within_the_duality_gap_of_the_integer_optimum() -> None:
    rng = np.random.default_rng(0)
    gaps = []
    for size in (5, 6, 7, 8):
        for theta in (0.8, 0.9, 0.95, 0.99):
            trade_off = random_trade_off(rng, size, groups=int(rng.integers(2, 4)))
            start = best_dcg(trade_off)
            kept, beyond = trade_off.least_cost(start, theta * start.dcg)
            exact, mixed = integer_optimum(trade_off, theta * start.dcg)
            assert kept.dcg >= theta * start.dcg - 1e-9
            assert beyond is None
            assert mixed - 1e-7 <= exact <= kept.cost + 1e-7
            unlimited = trade_off.best(1.0, 0.0).cost
            gaps.append((kept.cost - exact) / max(start.cost - unlimited, 1e-9))
    print(f"gap to the integer optimum: mean {np.mean(gaps):.1%}, largest {np.max(gaps):.1%} of the range")
    assert np.mean(gaps) < 0.1


def test_without_a_limit_it_is_the_integer_optimum() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 2, 5, 8):
        for _ in range(5):
            trade_off = random_trade_off(rng, size, groups=3)
            kept, _ = trade_off.least_cost(best_dcg(trade_off), 0.0)
            assert kept.cost == pytest.approx(integer_optimum(trade_off, 0.0)[0], abs=1e-7)


def corners(points: list[tuple[float, float]]) -> list[int]:
    """Return those of the lower boundary of (DCG, cost), by falling DCG: from the best DCG to least cost."""
    order = sorted(range(len(points)), key=lambda which: (-points[which][0], points[which][1]))
    found: list[int] = []
    for which in order:
        dcg, cost = points[which]
        if found and cost >= points[found[-1]][1] - 1e-12:
            continue
        while len(found) > 1:
            (first_dcg, first), (second_dcg, second) = points[found[-2]], points[found[-1]]
            if (first - second) * (second_dcg - dcg) > (second - cost) * (first_dcg - second_dcg):
                break
            found.pop()
        found.append(which)
    return found


class PlainStream:
    """The same by enumeration of all rankings."""

    def __init__(self, groups: int, theta: float) -> None:
        self.theta = theta
        self.attention = [0.0] * groups
        self.relevance = [0.0] * groups

    def rank(self, relevance: Array, group: NDArray[np.int64]) -> list[int]:
        size, groups = len(relevance), len(self.attention)
        v, f = examination(size), dcg_weights(size)
        for item in range(size):
            if group[item] >= 0:
                self.relevance[group[item]] += relevance[item]
        total = sum(self.relevance)

        def gaps(place: tuple[int, ...]) -> list[float]:
            after = list(self.attention)
            for item in range(size):
                if group[item] >= 0:
                    after[group[item]] += v[place[item]]
            return [after[g] - sum(after) * self.relevance[g] / total for g in range(groups)]

        rankings = list(permutations(range(size)))
        dcg = [sum(relevance[item] * f[place[item]] for item in range(size)) for place in rankings]
        start = rankings[int(np.argmax(dcg))]
        at_start = gaps(start)
        mean = sum(at_start[g] * self.relevance[g] for g in range(groups)) / total
        slope = [*(gap - mean for gap in at_start), 0.0]
        cost = [sum(slope[group[item]] * v[place[item]] for item in range(size)) for place in rankings]
        path = corners(list(zip(dcg, cost, strict=True)))
        chosen, beyond = start, None
        for which in path:
            holds = dcg[which] >= self.theta * max(dcg) - 1e-12
            if holds and sum(slope[g] * gap for g, gap in enumerate(gaps(rankings[which]))) >= -1e-12:
                chosen = rankings[which]
                continue
            beyond = rankings[which] if holds else None
            break
        if beyond and sum(gap**2 for gap in gaps(beyond)) < sum(gap**2 for gap in gaps(chosen)):
            chosen = beyond
        for item in range(size):
            if group[item] >= 0:
                self.attention[group[item]] += v[chosen[item]]
        return [place + 1 for place in chosen]


@pytest.mark.parametrize("theta", [0.0, 0.7, 0.9, 0.97, 1.0])
@pytest.mark.parametrize(("groups", "unknown"), [(2, 0.0), (3, 0.0), (3, 0.3)])
def test_stream_is_that_of_enumeration(theta: float, groups: int, unknown: float) -> None:
    rng = np.random.default_rng(2)
    stream, plain = AttentionStream(groups, examination(5), theta), PlainStream(groups, theta)
    for _ in range(25):
        size = int(rng.integers(1, 6))
        relevance = rng.random(size)
        group = np.where(rng.random(size) < unknown, -1, rng.integers(groups, size=size)).astype(np.int32)
        if not (group >= 0).any():
            continue
        assert stream.rank(relevance, group).tolist() == plain.rank(relevance, group.astype(np.int64))
        np.testing.assert_allclose(stream.attention, plain.attention, atol=1e-12)
        np.testing.assert_allclose(stream.relevance, plain.relevance, atol=1e-12)


def streamed(
    theta: float, *, groups: int = 2, queries: int = 400, binary: bool = False, unknown: float = 0.0
) -> tuple[AttentionStream, Array]:
    """Return a stream of lists of 10, the first group more relevant, and the share of DCG each one kept."""
    rng = np.random.default_rng(3)
    stream = AttentionStream(groups, examination(10), theta)
    kept = []
    for _ in range(queries):
        group = rng.integers(groups, size=10).astype(np.int32)
        relevance = rng.random(10) + 0.3 * (group == 0)
        if binary:
            relevance = (relevance > 0.6).astype(np.float64)
        group[rng.random(10) < unknown] = -1
        place = stream.rank(relevance, group)
        assert sorted(place) == list(range(1, 11))
        best = np.sort(relevance)[::-1] @ dcg_weights(10)
        kept.append(relevance @ dcg_weights(10)[place - 1] / best if best else 1.0)
    return stream, np.array(kept)


@pytest.mark.parametrize("groups", [2, 3, 5])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("unknown", [0.0, 0.3])
def test_amortized_disparity_vanishes(groups: int, binary: bool, unknown: float) -> None:
    stream, _ = streamed(0.0, groups=groups, binary=binary, unknown=unknown)
    unlimited, _ = streamed(1.0, groups=groups, unknown=unknown)
    ratio = stream.attention / stream.relevance
    assert np.ptp(ratio) / ratio.mean() < 0.03
    by_relevance = unlimited.attention / unlimited.relevance
    assert np.ptp(by_relevance) / by_relevance.mean() > 0.05
    # what is left is that of the last queries, however long the stream
    assert np.abs(stream.gaps(np.zeros(groups))).max() < 3


@pytest.mark.parametrize("theta", [0.8, 0.9, 0.97])
@pytest.mark.parametrize("binary", [False, True])
def test_every_ranking_keeps_its_share_of_dcg(theta: float, binary: bool) -> None:
    stream, kept = streamed(theta, groups=4, binary=binary)
    assert kept.min() >= theta - 1e-9
    free, kept_without = streamed(0.0, groups=4, binary=binary)
    assert kept_without.min() < theta
    if not binary:
        assert np.ptp(free.attention / free.relevance) <= np.ptp(stream.attention / stream.relevance) + 1e-3


def test_unfairness_is_near_the_least_of_all_rankings() -> None:
    """Two groups: what the chosen ranking leaves, beside the best ranking that keeps to the limit."""
    rng = np.random.default_rng(4)
    stream, v, f = AttentionStream(2, examination(6), 0.9), examination(6), dcg_weights(6)
    rankings = np.array(list(permutations(range(6))))
    excess = []
    for _ in range(60):
        relevance, group = rng.random(6), np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)
        before = stream.attention.copy()
        stream.rank(relevance + 0.3 * (group == 0), group)
        dcg = f[rankings] @ (relevance + 0.3 * (group == 0))
        merit = stream.relevance[0] / stream.relevance.sum()
        first = before[0] + v[rankings][:, group == 0].sum(axis=1)
        left = np.abs(first - merit * (before.sum() + v.sum()))
        least = left[dcg >= 0.9 * dcg.max() - 1e-12].min()
        found = np.abs(stream.attention[0] - merit * stream.attention.sum())
        assert found >= least - 1e-9
        excess.append(found - least)
    print(f"attention beyond the least possible: mean {np.mean(excess):.3f}, largest {np.max(excess):.3f}")
    assert np.mean(excess) < 0.1


def spread(found: Evaluation) -> float:
    """Return how far the exposure that groups get for their merit is apart."""
    ratio = [found.exposure[name] / found.merit[name] for name in found.exposure]
    return float(np.ptp(ratio) / np.mean(ratio))


def test_with_theta_1_lists_are_ranked_by_relevance() -> None:
    data = lists(groups=3)
    ranker = made(theta=1.0, relevance="true")().fit(data)
    np.testing.assert_array_equal(ranker.sample_rankings(data, 3, seed=1), np.tile(ranker.rank(data), (3, 1)))
    # what is equally relevant may change places, which costs no DCG
    tied = replace(data, relevance=(np.asarray(data.relevance) > 0.5).astype(np.float32))
    by_relevance, fair = evaluate(ranker, tied, stochastic=False), evaluate(ranker, tied)
    assert fair.dcg == pytest.approx(by_relevance.dcg, abs=1e-12)
    assert spread(fair) < spread(by_relevance) / 3


def test_positions_are_those_of_the_stream() -> None:
    data = lists(count=12)
    ranker = made(theta=0.8, relevance="true", passes=3, seed=5)().fit(data)
    rng = np.random.default_rng(5)
    stream = AttentionStream(2, examination(6), 0.8)
    expected = np.zeros((data.rows, int(data.lengths.max())))
    for which in np.concatenate([rng.permutation(len(data)) for _ in range(3)]):
        rows = np.arange(data.offsets[which], data.offsets[which + 1])
        place = stream.rank(np.asarray(data.relevance)[rows].astype(np.float64), data.group[rows])
        expected[rows, place - 1] += 1 / 3
    np.testing.assert_allclose(ranker.position_probabilities(data), expected, atol=1e-12)
    np.testing.assert_allclose(ranker.evaluate(data).dcg, evaluate(ranker, data).dcg)


def test_lists_that_say_nothing() -> None:
    stream = AttentionStream(2, examination(4), 0.5)
    group = np.array([0, 1, -1, 0], dtype=np.int32)
    assert stream.rank(np.zeros(4), group).tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(stream.attention, [1.25, 0.5])
    assert sorted(stream.rank(np.array([0.0, 1.0, 0.5, 0.0]), group)) == [1, 2, 3, 4]
    assert stream.rank(np.ones(1), np.array([1], dtype=np.int32)).tolist() == [1]
    # no group at all: by relevance
    nobody = AttentionStream(0, examination(3), 0.0)
    assert nobody.rank(np.array([0.1, 0.3, 0.2]), np.full(3, -1, dtype=np.int32)).tolist() == [3, 1, 2]


def test_positions_that_nobody_examines() -> None:
    stream = AttentionStream(2, np.array([1.0, 0.0, 0.0]), 0.0)
    group = np.array([0, 0, 1], dtype=np.int32)
    ranked = np.array([stream.rank(np.array([1.0, 0.9, 0.1]), group) for _ in range(40)])
    assert (ranked[:, 2] == 1).mean() == pytest.approx(0.05, abs=0.03)
    assert (ranked[:, 0] < ranked[:, 1]).all()


def test_settings_can_change_once_it_is_trained() -> None:
    data = lists()
    ranker = made(relevance="true")().fit(data)
    lower = evaluate(ranker.set_params(theta=0.5), data)
    higher = evaluate(ranker.set_params(theta=1.0), data)
    assert lower.dcg < higher.dcg


@pytest.mark.parametrize(
    ("settings", "column"),
    [
        ({"theta": 1.1}, "theta"),
        ({"theta": -0.1}, "theta"),
        ({"theta": "all"}, "theta"),
        ({"passes": 0}, "passes"),
        ({"relevance": "guessed"}, "relevance"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], column: str) -> None:
    with pytest.raises(InputError, match=f"column '{column}'"):
        made(**settings)().fit(lists())


def test_true_relevance_must_be_there() -> None:
    data = lists()
    ranker = made(relevance="true")().fit(data)
    without = RankingDataset(data.features, data.offsets, group=data.group, group_names=data.group_names)
    with pytest.raises(InputError, match="relevance='regression'"):
        ranker.sample_rankings(without)
