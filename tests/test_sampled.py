"""The sampled estimators: against enumeration, against plain Python, and at scores no one should have."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fultr.errors import InputError
from fultr.expectation import race, sampled, sampled_kernels, threads
from fultr.expectation.race import (
    LONGEST_COUNTED,
    WIDEST_RANGE,
    centred_scores,
    draw_rankings,
    order_of_arrival,
)
from fultr.expectation.sampled import plrank_gradient, reinforce_gradient, sampled_values
from tests.reference import (
    all_rankings,
    enumerated_gradient,
    enumerated_values,
    log_probability_gradient,
    plackett_luce_probability,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Gradient = Callable[[Floats, Integers, Floats, Floats, NDArray[np.int32]], Floats]

GRADIENTS: list[Gradient] = [reinforce_gradient, plrank_gradient]
RANGES = [0.0, 1.0, 20.0, 100.0, 1e4, 1e30]
LENGTHS = np.array([4, 1, 30, 0, 2, 13])

SMALL_LISTS = {
    "all equal": [0.0, 0.0, 0.0, 0.0],
    "ordinary": [0.3, -1.2, 0.9, 0.1],
    "far from zero": [1e9 + 1, 1e9, 1e9 + 2, 1e9],
    "ties and a gap": [0.0, 5.0, 5.0, 0.0],
    "huge with ties": [1e30, 0.0, 1e30, 0.0],
    "huge with near-ties": [1e30, 1.0, -1e30, 0.0],
    "at the limit of float64": [1.7e308, -1.7e308, 1.7e308, 0.0],
    "ordinary differences of large numbers": [1e15, 1e15 + 1, -1e15, -1e15 + 1],
}
FEW_LISTS = [
    np.array([0.3, -1.2, 0.9, 0.1, 0.1]),
    np.array([2.0, -3.0, 0.0]),
    np.array([0.0, 1e30, 1.0, 0.5]),
]


def _weights(positions: int, top: int | None = None) -> Floats:
    """DCG and the inverse position, the second cut after `top` positions (both if it is given)."""
    position = np.arange(1, positions + 1)
    tables = np.stack([1 / np.log2(1 + position), 1 / position])
    if top is not None:
        tables[:, top:] = 0.0
    return tables


def _ragged(score_range: float, seed: int = 0) -> tuple[Floats, Integers, Floats, Floats]:
    """Scores of lists of many lengths, ties among them, their offsets, and tables and upstream for them."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    scores = rng.uniform(-score_range / 2, score_range / 2, offsets[-1])
    scores[7] = scores[8] = scores[9]
    return scores, offsets, _weights(LENGTHS.max() + 3), rng.normal(size=(2, offsets[-1]))


def _plain_reinforce(scores: Floats, tables: Floats, upstream: Floats, order: NDArray[np.int32]) -> Floats:
    rewards = [float(np.sum(upstream[:, ranking] * tables[:, : scores.size])) for ranking in order]
    baseline = np.mean(rewards) if len(rewards) > 1 else 0.0
    gradient = np.zeros(scores.size)
    for ranking, reward in zip(order, rewards, strict=True):
        gradient += (reward - baseline) * log_probability_gradient(scores, tuple(ranking))
    return gradient / max(1, len(rewards) - 1)


def _plain_plrank(scores: Floats, tables: Floats, upstream: Floats, order: NDArray[np.int32]) -> Floats:
    gradient = np.zeros(scores.size)
    for ranking in order:
        earned = np.sum(upstream[:, ranking] * tables[:, : scores.size], axis=0)
        to_come = np.append(np.cumsum(earned[::-1])[::-1], 0.0)
        for place in range(scores.size):
            left = ranking[place:]
            chance = np.exp(scores[left] - scores[left].max())
            chance /= chance.sum()
            gradient[left] += chance * (upstream[:, left].T @ tables[:, place] - to_come[place])
            gradient[ranking[place]] += to_come[place + 1]
    return gradient / len(order)


Plain = Callable[[Floats, Floats, Floats, NDArray[np.int32]], Floats]
PLAIN: dict[Gradient, Plain] = {
    reinforce_gradient: _plain_reinforce,
    plrank_gradient: _plain_plrank,
}


def _standardised(draws: Floats, truth: Floats) -> Floats:
    """How many standard errors the mean of the draws lies from the truth; 0 where both are the same."""
    error = draws.mean(axis=0) - truth
    spread = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return np.asarray(np.where(np.abs(error) < 1e-12, 0.0, error / np.maximum(spread, 1e-300)))


@pytest.mark.statistical
@pytest.mark.parametrize("name", SMALL_LISTS)
def test_rankings_have_plackett_luce_probabilities(name: str) -> None:
    scores = np.array(SMALL_LISTS[name])
    order = draw_rankings(scores, np.array([0, 4]), samples=24_000, seed=3)
    chance = np.array([plackett_luce_probability(scores.tolist(), ranking) for ranking in all_rankings(4)])
    drawn = np.array([np.sum(np.all(order == ranking, axis=1)) for ranking in all_rankings(4)])
    assert chance.sum() == pytest.approx(1)
    assert drawn.sum() == len(order)
    assert drawn[chance < 1e-12].sum() == 0
    likely = chance >= 1e-12
    if likely.sum() > 1:
        assert stats.chisquare(drawn[likely], len(order) * chance[likely]).pvalue > 1e-4


@pytest.mark.parametrize("length", [LONGEST_COUNTED, LONGEST_COUNTED + 1, 1000])
@pytest.mark.parametrize("score_range", [1.0, 1e30])
def test_long_lists_are_ranked_whole(length: int, score_range: float) -> None:
    scores = np.random.default_rng(0).uniform(0, score_range, length)
    order = draw_rankings(scores, np.array([0, length]), samples=5, seed=0)
    assert np.array_equal(np.sort(order, axis=1), np.tile(np.arange(length), (5, 1)))
    assert len({tuple(ranking) for ranking in order}) == (5 if score_range == 1.0 else 1)


@pytest.mark.statistical
def test_first_places_of_a_long_list() -> None:
    scores = np.zeros(LONGEST_COUNTED + 44)
    scores[7] = np.log(scores.size)
    first = draw_rankings(scores, np.array([0, scores.size]), samples=2000, seed=0)[:, 0]
    assert stats.binomtest(int(np.sum(first == 7)), 2000, scores.size / (2 * scores.size - 1)).pvalue > 1e-4


def test_rankings_come_from_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, offsets, _, _ = _ragged(3.0)
    order = draw_rankings(scores, offsets, samples=6, seed=5)
    assert np.array_equal(order, draw_rankings(scores, offsets, samples=6, seed=np.random.default_rng(5)))
    assert not np.array_equal(order, draw_rankings(scores, offsets, samples=6, seed=6))
    few = draw_rankings(scores[: offsets[3]], offsets[:4], samples=6, seed=5)
    assert np.array_equal(order[:, : offsets[3]], few)
    monkeypatch.setattr(race, "NUMBERS_AT_ONCE", 40)
    assert np.array_equal(order, draw_rankings(scores, offsets, samples=6, seed=5))


def test_one_ranking_by_given_waiting_times() -> None:
    scores, offsets, _, _ = _ragged(1e4)
    waiting = np.random.default_rng(5).standard_exponential(scores.size)
    order = order_of_arrival(centred_scores(scores, offsets), offsets, waiting)
    assert np.array_equal(order, draw_rankings(scores, offsets, samples=1, seed=5)[0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("score_range", RANGES)
def test_centred_scores_keep_order_ties_and_small_gaps(score_range: float, seed: int) -> None:
    scores, offsets, _, _ = _ragged(score_range, seed)
    levels = centred_scores(scores, offsets)
    for start, stop in pairwise(offsets):
        own, level = scores[start:stop], levels[start:stop]
        by_score = np.argsort(-own, kind="stable")
        gaps, kept = -np.diff(own[by_score]), -np.diff(level[by_score])
        assert np.all(kept >= 0)
        assert np.array_equal(kept == 0, gaps == 0)
        if stop > start:
            assert level.max() == 0
            assert kept == pytest.approx(gaps if np.ptp(own) <= WIDEST_RANGE else np.minimum(gaps, 50))


@pytest.mark.statistical
@pytest.mark.parametrize("scores", FEW_LISTS, ids=len)
def test_values_are_unbiased(scores: Floats) -> None:
    lists, tables = 4000, _weights(7)
    offsets = np.arange(lists + 1) * scores.size
    order = draw_rankings(np.tile(scores, lists), offsets, samples=4, seed=1)
    values = sampled_values(order, offsets, tables).reshape(2, lists, scores.size)
    distance = _standardised(values.transpose(1, 0, 2), enumerated_values(scores, tables))
    assert np.abs(distance).max() < 3


def test_values_are_mean_weights() -> None:
    scores, offsets, tables, _ = _ragged(2.0)
    order = draw_rankings(scores, offsets, samples=7, seed=0)
    expected = np.zeros((2, scores.size))
    for start, stop in pairwise(offsets):
        for ranking in order[:, start:stop]:
            expected[:, start + ranking] += tables[:, : stop - start] / 7
    assert sampled_values(order, offsets, tables) == pytest.approx(expected, abs=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("scores", FEW_LISTS, ids=len)
@pytest.mark.parametrize(("samples", "top"), [(1, None), (2, None), (8, None), (3, 2)])
def test_gradients_are_unbiased(gradient: Gradient, scores: Floats, samples: int, top: int | None) -> None:
    lists, tables = 20_000, _weights(7, top)
    upstream = np.random.default_rng(2).normal(size=(2, scores.size))
    offsets = np.arange(lists + 1) * scores.size
    many = np.tile(scores, lists)
    order = draw_rankings(many, offsets, samples, seed=samples)
    draws = gradient(many, offsets, tables, np.tile(upstream, lists), order).reshape(lists, -1)
    exact = enumerated_gradient(scores, tables, upstream)
    along = _standardised((draws @ exact)[:, None], exact @ exact)
    assert np.abs(along).max() < 3
    assert np.abs(_standardised(draws, exact)).max() < 4  # 3 for one number; these are hundreds


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("score_range", RANGES)
@pytest.mark.parametrize(("samples", "top"), [(1, None), (5, None), (5, 3), (5, 0)])
def test_gradients_agree_with_plain_python(
    gradient: Gradient, score_range: float, samples: int, top: int | None
) -> None:
    scores, offsets, _, upstream = _ragged(score_range)
    tables = _weights(LENGTHS.max(), top)
    order = draw_rankings(scores, offsets, samples, seed=0)
    result = gradient(scores, offsets, tables, upstream, order)
    for start, stop in pairwise(offsets):
        own = slice(start, stop)
        expected = PLAIN[gradient](scores[own], tables, upstream[:, own], order[:, own])
        assert result[own] == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradients_of_rankings_that_scores_all_but_rule_out(gradient: Gradient) -> None:
    scores = np.arange(40.0) * 45
    order = np.arange(40, dtype=np.int32)[None, :]  # the lowest score first
    upstream = np.random.default_rng(0).normal(size=(2, 40))
    result = gradient(scores, np.array([0, 40]), _weights(40), upstream, order)
    assert result == pytest.approx(PLAIN[gradient](scores, _weights(40), upstream, order), abs=1e-10)


@pytest.mark.parametrize("gradient", GRADIENTS)
@settings(max_examples=60, deadline=None)
@given(scores=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_gradients_are_finite_for_any_finite_scores(gradient: Gradient, scores: list[float]) -> None:
    offsets = np.array([0, len(scores)])
    order = draw_rankings(np.array(scores), offsets, samples=3, seed=0)
    upstream = np.ones((2, len(scores)))
    upstream[0, 0] = -5.0
    result = gradient(np.array(scores), offsets, _weights(20), upstream, order)
    assert np.all(np.isfinite(result))
    assert np.abs(result).max() < 1000


@pytest.mark.parametrize("score_range", RANGES)
@pytest.mark.parametrize("samples", [1, 6])
def test_reinforce_sums_to_zero_over_each_list(score_range: float, samples: int) -> None:
    scores, offsets, tables, upstream = _ragged(score_range)
    order = draw_rankings(scores, offsets, samples, seed=0)
    result = reinforce_gradient(scores, offsets, tables, upstream, order)
    sums = [result[start:stop].sum() for start, stop in pairwise(offsets)]
    assert sums == pytest.approx(np.zeros(LENGTHS.size), abs=1e-10)


def test_plrank_sums_to_zero_in_expectation() -> None:
    scores, lists = np.array([0.4, -1.0, 0.0, 1.2]), 5000
    offsets = np.arange(lists + 1) * 4
    many, upstream = np.tile(scores, lists), np.tile([[3.0, -1.0, 0.5, 2.0]], lists)
    order = draw_rankings(many, offsets, samples=1, seed=0)
    sums = plrank_gradient(many, offsets, _weights(4)[:1], upstream, order).reshape(-1, 4).sum(axis=1)
    assert np.abs(sums).max() > 0.1
    assert np.abs(_standardised(sums[:, None], np.zeros(1))).max() < 3


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_list_of_one_has_no_gradient(gradient: Gradient) -> None:
    offsets = np.array([0, 1, 2])
    order = draw_rankings(np.array([3.0, -1e30]), offsets, samples=4, seed=0)
    result = gradient(np.array([3.0, -1e30]), offsets, _weights(1), np.ones((2, 2)), order)
    assert np.array_equal(result, np.zeros(2))


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("score_range", [1.0, 1e4])
def test_gradients_do_not_depend_on_the_order_of_rows(gradient: Gradient, score_range: float) -> None:
    rng = np.random.default_rng(0)
    scores, upstream, offsets = rng.uniform(0, score_range, 30), rng.normal(size=(2, 30)), np.array([0, 30])
    order = draw_rankings(scores, offsets, samples=5, seed=0)
    shuffled = rng.permutation(30)
    moved = np.argsort(shuffled).astype(np.int32)[order]
    expected = gradient(scores, offsets, _weights(30), upstream, order)[shuffled]
    result = gradient(scores[shuffled], offsets, _weights(30), upstream[:, shuffled], moved)
    assert result == pytest.approx(expected, abs=1e-12)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(sampled, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(threads, "LANES", 2)
    scores, offsets, tables, upstream = _ragged(20.0)
    before = torch.get_num_threads()
    results = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            order = draw_rankings(scores, offsets, samples=9, seed=0)
            gradients = [gradient(scores, offsets, tables, upstream, order) for gradient in GRADIENTS]
            results.append([order, sampled_values(order, offsets, tables), *gradients])
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one, other)


def test_read_only_arrays_are_not_compiled_anew() -> None:
    scores, offsets, tables, upstream = _ragged(1.0)
    order = draw_rankings(scores, offsets, samples=2, seed=0)
    expected = reinforce_gradient(scores, offsets, tables, upstream, order)
    kernels: list[Any] = [race._race, race._centre, sampled_kernels.reinforce_of_lists]
    before = [len(kernel.signatures) for kernel in kernels]
    for array in (scores, offsets, tables, upstream):
        array.flags.writeable = False
    assert np.array_equal(order, draw_rankings(scores, offsets, samples=2, seed=0))
    assert np.array_equal(expected, reinforce_gradient(scores, offsets, tables, upstream, order))
    assert before == [len(kernel.signatures) for kernel in kernels]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scores_must_be_finite(wrong: float) -> None:
    with pytest.raises(InputError, match="row 2, column 'score': a score must be finite"):
        draw_rankings(np.array([0.0, wrong]), np.array([0, 2]), samples=1, seed=0)


def test_at_least_one_sample() -> None:
    with pytest.raises(InputError, match="column 'samples': at least one ranking must be drawn"):
        draw_rankings(np.zeros(2), np.array([0, 2]), samples=0, seed=0)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_shapes_must_fit(gradient: Gradient) -> None:
    scores, offsets, tables, upstream = _ragged(1.0)
    order = draw_rankings(scores, offsets, samples=2, seed=0)
    with pytest.raises(InputError, match="column 'tables': must have a weight for each of the 30 positions"):
        gradient(scores, offsets, tables[:, :29], upstream, order)
    with pytest.raises(InputError, match="column 'tables'"):
        sampled_values(order, offsets, tables[:, :29])
    with pytest.raises(InputError, match="column 'upstream'"):
        gradient(scores, offsets, tables, upstream[:, 1:], order)
