"""Fairness of exposure by linear programmes: by hand, by their constraints, and what is drawn from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from fultr import InputError, PositionBias, RankingDataset, evaluate
from fultr.baselines.decomposition import decompose
from fultr.baselines.exposure_lp import ExposureLP
from fultr.expectation import dcg_weights
from tests.ranker_contract import WIDTH, Candidate, Contract, lists
from tests.training_tasks import BIAS

Array = NDArray[np.float64]


def made(**settings: Any) -> Any:
    return lambda **more: ExposureLP(**{"l2": 0.01, "position_bias": BIAS, **settings, **more})


CANDIDATES = {
    "regression": Candidate(made(l2=[0.001, 0.1])),
    "full information": Candidate(made(slack=0.1), labelled=True),
}


@pytest.fixture(params=CANDIDATES)
def candidate(request: pytest.FixtureRequest) -> Candidate:
    return CANDIDATES[request.param]


class TestExposureLP(Contract):
    """All tests of the contract."""


def one_list(relevance: Any, group: Any) -> RankingDataset:
    names = [f"group {code}" for code in range(max(group) + 1)]
    features = np.zeros((len(relevance), WIDTH))
    return RankingDataset(features, [0, len(relevance)], group=group, group_names=names, relevance=relevance)


def trained(**settings: Any) -> ExposureLP:
    ranker: ExposureLP = made(relevance="true", **settings)().fit(lists())
    return ranker


def solved(data: RankingDataset, **settings: Any) -> Array:
    return trained(**settings).position_probabilities(data)


def exposures(probabilities: Array, data: RankingDataset, bias: PositionBias = BIAS) -> Array:
    """Return the exposure of each group of one list."""
    of_items = probabilities @ bias.curve(data.rows)[1:]
    return np.array([of_items[data.group == code].sum() for code in range(len(data.group_names))])


def merits(data: RankingDataset) -> Array:
    relevance = np.asarray(data.relevance, dtype=np.float64)
    return np.array([relevance[data.group == code].sum() for code in range(len(data.group_names))])


def test_two_items_by_hand() -> None:
    # exposure p + (1 - p) / 2 of the first, 3/2 of both: it is due 3/2 * 5/8 = 15/16, so p = 7/8
    data = one_list([0.625, 0.375], [0, 1])
    np.testing.assert_allclose(solved(data), [[0.875, 0.125], [0.125, 0.875]], atol=1e-9)
    # with slack s, |E_0 - 15/16| <= s: p = 7/8 + 2 s
    np.testing.assert_allclose(solved(data, slack=0.05), [[0.975, 0.025], [0.025, 0.975]], atol=1e-9)
    # due 3/2 * 7/8 > 1, but no item can have more than 1: the least violation is p = 1
    np.testing.assert_allclose(solved(one_list([0.875, 0.125], [0, 1])), np.eye(2), atol=1e-8)
    # the order of rows says nothing
    found = solved(one_list([0.375, 0.625], [1, 0]))
    np.testing.assert_allclose(found, [[0.125, 0.875], [0.875, 0.125]], atol=1e-9)


@pytest.mark.parametrize("group", [[0, 0], [0, -1], [-1, -1]])
def test_without_two_groups_it_is_ranking_by_relevance(group: list[int]) -> None:
    np.testing.assert_allclose(solved(one_list([0.4, 0.6], group)), np.eye(2)[::-1], atol=1e-9)


def test_a_group_without_relevance_is_under_no_constraint() -> None:
    found = solved(one_list([0.0, 1.0, 0.0], [0, 1, 0]))
    # and what is equally relevant shares the places that are left
    np.testing.assert_allclose(found, [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], atol=1e-9)
    found = solved(one_list([0.0, 0.0], [0, 1]))
    np.testing.assert_allclose(found, np.full((2, 2), 0.5), atol=1e-9)


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_constraint_holds_where_it_can(groups: int, eta: float) -> None:
    rng = np.random.default_rng(0)
    bias = PositionBias.power(eta)
    ranker = made(relevance="true", position_bias=bias)().fit(lists())
    free = made(relevance="true", position_bias=bias, constraint="none")().fit(lists())
    held = 0
    for _ in range(12):
        size = int(rng.integers(4, 9))
        data = one_list(rng.random(size) + 0.3, [*range(groups), *rng.integers(groups, size=size - groups)])
        found, merit = ranker.position_probabilities(data), merits(data)
        np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-9)
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-9)
        assert found.min() >= 0
        # mean exposure by mean relevance: the sizes of groups cancel out
        ratio = exposures(found, data, bias) / merit
        if np.ptp(ratio) < 1e-8:
            held += 1
        else:
            # then it cannot hold: some groups together are due more than the first places give
            due = merit / merit.sum() * bias.curve(size)[1:].sum()
            assert not reachable(due, data, bias)
        gain = np.asarray(data.relevance, dtype=np.float64) @ found @ dcg_weights(size)
        best = np.sort(np.asarray(data.relevance, dtype=np.float64))[::-1] @ dcg_weights(size)
        assert gain <= best + 1e-9
        unlimited = free.position_probabilities(data)
        assert np.asarray(data.relevance, dtype=np.float64) @ unlimited @ dcg_weights(size) == pytest.approx(
            best
        )
    assert held >= 3


def reachable(due: Array, data: RankingDataset, bias: PositionBias) -> bool:
    """Return whether groups can have these exposures: no set is due more than the first places give."""
    groups, examination = len(due), bias.curve(data.rows)[1:]
    for some in range(1, 2**groups):
        chosen = [code for code in range(groups) if some >> code & 1]
        items = int(np.isin(data.group, chosen).sum())
        if due[chosen].sum() > examination[:items].sum() + 1e-9:
            return False
    return True


def test_least_violation_where_it_cannot_hold() -> None:
    # one of three items is due 4/5 of all exposure, 22/15, and can have 1: it is always first
    data = one_list([0.8, 0.15, 0.05], [0, 1, 1])
    np.testing.assert_allclose(solved(data), np.eye(3), atol=1e-8)
    # the group of little relevance comes last, but is still exposed
    data = one_list([0.9, 0.8, 0.1, 0.001], [0, 0, 1, 1])
    np.testing.assert_allclose(solved(data), np.eye(4), atol=1e-8)


def test_more_slack_is_more_useful() -> None:
    data = one_list([0.9, 0.7, 0.5, 0.5, 0.4, 0.3], [0, 0, 0, 1, 1, 1])
    relevance = np.asarray(data.relevance, dtype=np.float64)
    merit, found = merits(data), []
    for slack in (0.0, 0.05, 0.1, 10.0):
        probabilities = solved(data, slack=slack)
        exposed = exposures(probabilities, data)
        violation = abs(merit[1] * exposed[0] - merit[0] * exposed[1]) / merit.sum()
        assert violation <= slack + 1e-8
        found.append(relevance @ probabilities @ dcg_weights(6))
    assert np.all(np.diff(found) > 1e-6)
    assert found[-1] == pytest.approx(relevance @ dcg_weights(6))


def test_disparity_of_each_list_is_gone() -> None:
    # relevance of 0.5 to 0.7 everywhere, and examination that falls slowly: the constraint can hold
    data, bias = lists(count=60), PositionBias.power(0.5)
    close = replace(data, relevance=(0.5 + 0.2 * np.asarray(data.relevance)).astype(np.float32))
    ranker = made(relevance="true", position_bias=bias)().fit(close)
    group_sizes = np.array(
        [
            [(data.group[a:b] == code).sum() for code in (0, 1)]
            for a, b in zip(data.offsets, data.offsets[1:], strict=False)
        ]
    )
    even = close[np.flatnonzero(group_sizes.min(axis=1) > 1)]
    assert len(even) > 10
    fair, useful = evaluate(ranker, even), evaluate(ranker, even, stochastic=False)
    assert fair.disparity_squared < 1e-14 < useful.disparity_squared
    assert fair.dcg < useful.dcg


@pytest.mark.parametrize("size", range(1, 13))
def test_decomposition_gives_the_matrix_again(size: int) -> None:
    rng = np.random.default_rng(size)
    weights = rng.dirichlet(np.ones(2 * size))
    mixture = sum(weight * np.eye(size)[rng.permutation(size)] for weight in weights)
    dense = rng.random((size, size)) + 1e-3
    for _ in range(2000):
        dense /= dense.sum(axis=0)
        dense /= dense.sum(axis=1, keepdims=True)
    halves = np.kron(np.eye((size + 1) // 2), np.full((2, 2), 0.5))[:size, :size]
    halves[-1, -1] = 1.0 if size % 2 else halves[-1, -1]
    for given in (mixture, dense, halves, np.full((size, size), 1 / size), np.eye(size)[::-1]):
        shares, rankings = decompose(given)
        assert shares.min() > 0
        assert shares.sum() == pytest.approx(1, abs=1e-12)
        assert len(shares) <= (size - 1) ** 2 + 1
        assert (np.sort(rankings, axis=1) == np.arange(1, size + 1)).all()
        again = np.zeros((size, size))
        for share, ranking in zip(shares, rankings, strict=True):
            again[np.arange(size), ranking - 1] += share
        np.testing.assert_allclose(again, given, atol=1e-9)


@pytest.mark.parametrize(
    "given", [np.ones((2, 2)), np.ones((1, 2)), np.ones(1), np.zeros((0, 0)), [[1.5, -0.5], [-0.5, 1.5]]]
)
def test_other_matrices_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match="column 'probabilities'"):
        decompose(given)


def test_rankings_are_drawn_as_likely_as_they_are() -> None:
    data, draws = lists(count=4, seed=3), 4000
    ranker = made(relevance="true")().fit(lists())
    probabilities = ranker.position_probabilities(data)
    assert ((probabilities > 0.01) & (probabilities < 0.99)).any()
    drawn = ranker.sample_rankings(data, draws, seed=1)
    for which in range(len(data)):
        rows = slice(data.offsets[which], data.offsets[which + 1])
        size = int(data.lengths[which])
        assert (np.sort(drawn[:, rows], axis=1) == np.arange(1, size + 1)).all()
    for position in range(probabilities.shape[1]):
        expected = probabilities[:, position]
        error = np.sqrt(expected * (1 - expected) / draws)
        assert (np.abs((drawn == position + 1).mean(axis=0) - expected) <= 4.5 * error + 1e-9).all()
    # a prepared sampler draws the same
    stream = np.tile(np.arange(len(data)), 3)
    np.testing.assert_array_equal(
        ranker.sampler(data)(stream, np.random.default_rng(2)),
        ranker.rank_stream(data, stream, np.random.default_rng(2)),
    )
    assert ranker.rank_stream(data, stream[:0], np.random.default_rng(2)).size == 0


def test_equal_lists_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(1)
        return linprog(*given, **named)

    ranker = trained()
    monkeypatch.setattr("fultr.baselines.exposure_lp.linprog", counted)
    relevance, group = [1, 0, 0, 1, 1, 0, 0, 1, 0], [0, 1, 0, 1, 1, 1, 0, 0, -1]
    data = RankingDataset(
        np.zeros((9, WIDTH)), [0, 4, 8, 9], group=group, group_names=["a", "b"], relevance=relevance
    )
    found = ranker.position_probabilities(data)
    # a violation and a utility for the first two lists together, a utility for the last
    assert len(calls) == 3
    for first, second in ((0, 7), (3, 4), (1, 5), (2, 6)):
        np.testing.assert_array_equal(found[first], found[second])
    np.testing.assert_array_equal(found[8], [1, 0, 0, 0])


def test_scale_of_relevance_says_nothing() -> None:
    rng = np.random.default_rng(5)
    relevance = rng.random(7).astype(np.float32)
    group = [0, 1, 0, 1, 0, 1, -1]
    one, tiny = (solved(one_list(relevance * scale, group)) for scale in (1.0, 2.0**-40))
    np.testing.assert_allclose(one, tiny, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "column"),
    [
        ({"constraint": "impact"}, "constraint"),
        ({"slack": -0.1}, "slack"),
        ({"slack": np.inf}, "slack"),
        ({"relevance": "guessed"}, "relevance"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], column: str) -> None:
    with pytest.raises(InputError, match=f"column '{column}'"):
        made(**settings)().fit(lists())
