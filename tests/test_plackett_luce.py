from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fultr import InputError
from fultr.policy import rank_positions, sample_positions
from tests.reference import all_rankings, plackett_luce_probability

SCORES = [
    [0.0, 0.0, 0.0, 0.0],
    [1.0, -0.5, 0.3, 2.0],
    [20.0, 20.5, 19.0, 0.0],
    [1e30, 1e30, -1e30, -1e30],
    [-700.0, -701.0, 700.0, 699.0],
]


def drawn(scores: list[float], rankings: int, seed: int = 0, top_k: int | None = None) -> np.ndarray:
    values = np.array(scores, dtype=np.float64)
    offsets, lists = np.array([0, values.size]), np.zeros(rankings, dtype=np.int64)
    positions = sample_positions(values, offsets, lists, np.random.default_rng(seed), top_k=top_k)
    return positions.reshape(rankings, values.size)


def shown_items(positions: np.ndarray) -> tuple[int, ...]:
    return tuple(item for item in np.argsort(positions).tolist() if positions[item] > 0)


@pytest.mark.statistical
@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("top_k", [None, 1, 2, 3, 4, 9])
def test_samples_follow_the_model(scores: list[float], top_k: int | None) -> None:
    rankings = 20_000
    counts = Counter(shown_items(positions) for positions in drawn(scores, rankings, top_k=top_k))
    expected = {ranking[:top_k]: 0.0 for ranking in all_rankings(4)}
    for ranking in all_rankings(4):
        expected[ranking[:top_k]] += plackett_luce_probability(scores, ranking) * rankings
    assert set(counts) <= set(expected)
    rare = sum(count for ranking, count in expected.items() if count < 5)
    seen_rare = sum(counts[ranking] for ranking, count in expected.items() if count < 5)
    observed = [counts[ranking] for ranking, count in expected.items() if count >= 5]
    wanted = [count for count in expected.values() if count >= 5]
    if rare >= 5:
        observed, wanted = [*observed, seen_rare], [*wanted, rare]
    else:
        assert seen_rare <= stats.poisson.ppf(1 - 1e-6, rare)
        wanted = [count * sum(observed) / sum(wanted) for count in wanted]
    assert len(observed) > 1
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


@given(st.lists(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=50), min_size=1, max_size=5))
def test_every_sample_is_a_ranking_of_each_list(lists: list[list[float]]) -> None:
    scores, offsets = np.concatenate(lists), np.cumsum([0, *map(len, lists)])
    asked = np.array([*range(len(lists)), 0, len(lists) - 1])
    positions = sample_positions(scores, offsets, asked, np.random.default_rng(0))
    start = 0
    for which in asked:
        length = len(lists[which])
        assert sorted(positions[start : start + length]) == list(range(1, length + 1))
        start += length
    assert start == positions.size


@pytest.mark.parametrize("length", [5, 100])
def test_a_score_far_above_the_others_always_comes_first(length: int) -> None:
    scores = [0.0] * length
    scores[3] = 1e30
    assert (drawn(scores, 200)[:, 3] == 1).all()


@pytest.mark.statistical
@pytest.mark.parametrize("height", [0.0, 1e30])
def test_ties_at_any_height_are_broken_evenly(height: float) -> None:
    first = (drawn([height] * 60, 6_000) == 1).sum(axis=0)
    assert stats.chisquare(first).pvalue > 1e-4


@pytest.mark.statistical
@pytest.mark.parametrize("length", [2, 60])
def test_rounding_of_large_scores_does_not_disturb_the_order(length: int) -> None:
    # at 1e16 a double is a multiple of 2, and so is an arrival: what is rounded off decides
    scores = [1e16] * length
    scores[0] += 2
    first = (drawn(scores, 20_000)[:, 0] == 1).sum()
    wanted = np.exp(2) / (np.exp(2) + length - 1)
    assert stats.binomtest(int(first), 20_000, wanted).pvalue > 1e-4


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=50), st.integers(1, 60))
def test_a_top_k_ranking_is_the_full_one_cut(scores: list[float], top_k: int) -> None:
    full, top = drawn(scores, 3), drawn(scores, 3, top_k=top_k)
    assert top.dtype == np.int32
    assert (top == np.where(full > top_k, 0, full)).all()


def test_adding_a_constant_changes_no_sample() -> None:
    scores = np.array([1.0, -3.0, 0.5, 2.0])
    assert (drawn((scores + 4096).tolist(), 500) == drawn(scores.tolist(), 500)).all()


def test_a_ranking_shows_at_least_one_item() -> None:
    with pytest.raises(InputError, match="column 'top_k'"):
        drawn([1.0, 2.0], 1, top_k=0)


def test_seeds_reproduce_and_differ() -> None:
    assert (drawn([1.0, 2.0, 3.0], 50, seed=4) == drawn([1.0, 2.0, 3.0], 50, seed=4)).all()
    assert (drawn([1.0, 2.0, 3.0], 50, seed=4) != drawn([1.0, 2.0, 3.0], 50, seed=5)).any()


@given(st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=8), min_size=1, max_size=5))
def test_the_mode_ranks_by_falling_score_and_keeps_ties_in_order(lists: list[list[int]]) -> None:
    scores, offsets = np.concatenate(lists).astype(np.float64), np.cumsum([0, *map(len, lists)])
    positions = rank_positions(scores, offsets)
    for number, one in enumerate(lists):
        order = sorted(range(len(one)), key=lambda item, one=one: (-one[item], item))  # type: ignore[misc]
        mine = positions[offsets[number] : offsets[number + 1]]
        assert np.argsort(mine).tolist() == order


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_unusable_scores_are_named(bad: float) -> None:
    scores, offsets = np.array([1.0, bad]), np.array([0, 2])
    with pytest.raises(InputError, match="row 2, column 'score'"):
        sample_positions(scores, offsets, np.array([0]), np.random.default_rng(0))
    with pytest.raises(InputError, match="row 2, column 'score'"):
        rank_positions(scores, offsets)
