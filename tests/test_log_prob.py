"""The log-probability and the entropy of rankings, against enumeration of all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fultr import InputError
from fultr.policy import (
    entropy,
    log_prob_of_positions,
    ranking_entropy,
    ranking_log_prob,
    sample_positions,
    softmax_entropy,
)
from tests.reference import all_rankings, plackett_luce_probability

SCORES = [
    [0.3],
    [0.0, 0.0],
    [1.0, -0.5, 0.3, 2.0],
    [0.0, 0.0, 0.0, 0.0, 0.0],
    [20.0, 20.5, 19.0, 0.0, 3.0],
    [-700.0, -701.0, 700.0, 699.0],
]
EXTREME = [
    [1e30, 1e30, -1e30, -1e30],
    [1e30, 0.0, 0.0, -1e30],
    [-1e30, -1e30, -1e30],
    [1e30, 1e30, 1e30, 1e30],
    [1e30],
    [0.0, 1e4, -1e4, 0.0, 1e4],
    [3e38, -3e38, 3e38],
]
PRECISIONS = [torch.float32, torch.float64]
INTEGER_LISTS = st.lists(st.integers(-40, 40), min_size=1, max_size=9)


def tensor(values: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def top_rankings(items: int, shown: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(items), shown))


def gradient(function: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
    wanted = scores.detach().clone().requires_grad_()
    function(wanted).sum().backward()  # type: ignore[no-untyped-call]
    assert wanted.grad is not None
    return wanted.grad


def reference_gradient(scores: list[float], ranking: tuple[int, ...]) -> list[float]:
    """d log pi / d h_j = [j is ranked] - sum over steps before j is taken of exp(h_j) / sum_left exp(h)."""
    result = [float(item in ranking) for item in range(len(scores))]
    left = list(range(len(scores)))
    for taken in ranking:
        highest = max(scores[item] for item in left)
        total = sum(math.exp(scores[item] - highest) for item in left)
        for item in left:
            result[item] -= math.exp(scores[item] - highest) / total
        left.remove(taken)
    return result


@pytest.mark.parametrize("scores", SCORES)
def test_full_rankings_have_the_probability_of_the_formula(scores: list[float]) -> None:
    rankings = all_rankings(len(scores))
    log_prob = ranking_log_prob(tensor(scores), torch.tensor(rankings))
    expected = [plackett_luce_probability(scores, ranking) for ranking in rankings]
    np.testing.assert_allclose(log_prob.exp(), expected, rtol=1e-12, atol=1e-300)
    assert float(log_prob.exp().sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("scores", [*SCORES, *EXTREME])
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_probabilities_of_top_k_rankings_sum_to_one(scores: list[float], dtype: torch.dtype) -> None:
    for shown in range(1, len(scores) + 1):
        rankings = torch.tensor(top_rankings(len(scores), shown))
        total = ranking_log_prob(tensor(scores, dtype), rankings).exp().sum()
        assert float(total) == pytest.approx(1, abs=64 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("scores", SCORES)
def test_a_top_k_ranking_is_as_likely_as_all_its_continuations(scores: list[float]) -> None:
    full = all_rankings(len(scores))
    probability = ranking_log_prob(tensor(scores), torch.tensor(full)).exp()
    for shown in range(1, len(scores) + 1):
        for top in top_rankings(len(scores), shown):
            continues = torch.tensor([ranking[:shown] == top for ranking in full])
            one = ranking_log_prob(tensor(scores), torch.tensor(top)).exp()
            assert float(one) == pytest.approx(float(probability[continues].sum()), rel=1e-10, abs=1e-300)


def test_a_top_k_ranking_may_be_filled_up() -> None:
    scores = tensor([0.5, 1.0, -2.0])
    padded = ranking_log_prob(scores, torch.tensor([1, -1, -1, -1, -1]))
    assert float(padded) == pytest.approx(float(torch.log_softmax(scores, -1)[1]), rel=1e-14)
    assert ranking_log_prob(scores, torch.tensor([-1, -1])) == 0
    assert ranking_log_prob(scores, torch.zeros(4, 0, dtype=torch.int64)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("scores", [*SCORES, *EXTREME])
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_gradients_follow_the_formula_at_any_height(scores: list[float], dtype: torch.dtype) -> None:
    for shown in (1, len(scores) // 2, len(scores)):
        for ranking in top_rankings(len(scores), shown):
            found = gradient(lambda h, r=ranking: ranking_log_prob(h, torch.tensor(r)), tensor(scores, dtype))  # type: ignore[misc]
            wanted = reference_gradient([float(x) for x in tensor(scores, dtype)], ranking)
            np.testing.assert_allclose(found, wanted, atol=16 * torch.finfo(dtype).eps)


def test_gradients_agree_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 7, dtype=torch.float64, generator=generator).mul(5).requires_grad_()
    mask = torch.tensor([[True] * 7, [False, True, True, True, False, True, True]])
    ranking = torch.tensor(
        [[[3, 0, 6, 5, 2, 1, 4], [2, 6, 1, 3, 5, -1, -1]], [[1, 2] + [-1] * 5, [5] + [-1] * 6]]
    )
    assert torch.autograd.gradcheck(lambda h: ranking_log_prob(h, ranking, mask), (scores,))
    assert torch.autograd.gradgradcheck(lambda h: ranking_log_prob(h, ranking, mask), (scores,))
    assert torch.autograd.gradcheck(lambda h: softmax_entropy(h, mask), (scores,))
    assert torch.autograd.gradgradcheck(lambda h: softmax_entropy(h, mask), (scores,))


@pytest.mark.parametrize("height", [0.0, 1e30, -1e30])
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_ties_at_any_height_are_equally_likely(height: float, dtype: torch.dtype) -> None:
    scores = torch.full((6,), height, dtype=dtype)
    assert float(ranking_log_prob(scores, torch.tensor([5, 0, 3, 1, 4, 2]))) == pytest.approx(
        -math.log(720), rel=1e-6
    )
    assert float(ranking_log_prob(scores, torch.tensor([4, 1]))) == pytest.approx(-math.log(30), rel=1e-6)


@pytest.mark.parametrize("items", [1, 2, 3, 8, 20, 37, 1000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 20.0, 100.0])
def test_long_lists_agree_with_the_step_by_step_formula(items: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(items)
    scores = spread * torch.randn(items, dtype=torch.float64, generator=generator)
    ranking = torch.randperm(items, generator=generator)
    ordered = scores[ranking]
    steps = torch.stack([ordered[step] - ordered[step:].logsumexp(-1) for step in range(items)])
    shown = items // 3
    assert float(ranking_log_prob(scores, ranking)) == pytest.approx(float(steps.sum()), rel=1e-12, abs=1e-12)
    top = float(ranking_log_prob(scores, ranking[:shown]))
    assert top == pytest.approx(float(steps[:shown].sum()), rel=1e-12, abs=1e-12)
    small = float(ranking_log_prob(scores.float(), ranking))
    assert small == pytest.approx(float(steps.sum()), rel=2e-5, abs=1e-5)


@pytest.mark.parametrize("filler", [0.0, 1e30, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_masked_items_change_nothing_and_have_no_gradient(filler: float, dtype: torch.dtype) -> None:
    scores = tensor([filler, 0.5, filler, -1.0, 2.0, filler], dtype)
    mask = torch.tensor([False, True, False, True, True, False])
    for ranking, bare in [([4, 1, 3], [2, 0, 1]), ([3, -1, -1], [1]), ([1, 4, -1], [0, 2])]:
        found = ranking_log_prob(scores, torch.tensor(ranking), mask)
        wanted = ranking_log_prob(scores[mask], torch.tensor(bare))
        assert float(found) == pytest.approx(float(wanted), rel=1e-6)
        slope = gradient(lambda h, r=ranking: ranking_log_prob(h, torch.tensor(r), mask), scores)  # type: ignore[misc]
        same = gradient(lambda h, r=bare: ranking_log_prob(h, torch.tensor(r)), scores[mask])  # type: ignore[misc]
        assert slope[~mask].tolist() == [0, 0, 0]
        np.testing.assert_allclose(slope[mask], same, rtol=1e-6)
    assert float(softmax_entropy(scores, mask)) == pytest.approx(
        float(softmax_entropy(scores[mask])), rel=1e-6
    )
    assert gradient(lambda h: softmax_entropy(h, mask), scores)[~mask].tolist() == [0, 0, 0]


@pytest.mark.parametrize("filler", [0.0, math.nan])
def test_a_list_without_items_is_certain(filler: float) -> None:
    scores, mask = tensor([[filler, filler]]), torch.tensor([[False, False]])
    nothing = torch.tensor([[-1, -1]])
    assert ranking_log_prob(scores, nothing, mask).tolist() == [0]
    assert softmax_entropy(scores, mask).tolist() == [0]
    assert gradient(lambda h: ranking_log_prob(h, nothing, mask), scores).tolist() == [[0, 0]]
    assert gradient(lambda h: softmax_entropy(h, mask), scores).tolist() == [[0, 0]]
    assert ranking_log_prob(torch.zeros(3, 0), torch.full((3, 2), -1)).tolist() == [0, 0, 0]
    assert softmax_entropy(torch.zeros(3, 0)).tolist() == [0, 0, 0]


def test_leading_dimensions_broadcast() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(
        3, 1, 4, 6, dtype=torch.float64, generator=generator
    )  # configurations, 1, lists, items
    mask = torch.arange(6) < torch.tensor([6, 2, 4, 1])[:, None]
    ranking = torch.full((5, 4, 6), -1)  # samples, lists, items
    for sample, one in itertools.product(range(5), range(4)):
        length = int(mask[one].sum())
        ranking[sample, one, :length] = torch.randperm(length, generator=generator)
    found = ranking_log_prob(scores, ranking, mask)
    assert found.shape == (3, 5, 4)
    for configuration, sample, one in itertools.product(range(3), range(5), range(4)):
        length = int(mask[one].sum())
        single = ranking_log_prob(scores[configuration, 0, one, :length], ranking[sample, one, :length])
        assert float(found[configuration, sample, one]) == pytest.approx(float(single), rel=1e-13, abs=1e-15)


@given(INTEGER_LISTS, st.sampled_from([1.0, -3.0, 2.0**20, 2.0**40]), st.randoms(use_true_random=False))
def test_adding_a_constant_changes_nothing(values: list[int], constant: float, random: Any) -> None:
    scores = tensor(values)
    ranking = torch.tensor(random.sample(range(len(values)), random.randint(1, len(values))))
    assert ranking_log_prob(scores + constant, ranking) == ranking_log_prob(scores, ranking)
    assert softmax_entropy(scores + constant) == softmax_entropy(scores)
    slope = gradient(lambda h: ranking_log_prob(h, ranking), scores)
    assert torch.equal(gradient(lambda h: ranking_log_prob(h, ranking), scores + constant), slope)
    assert abs(float(slope.sum())) < 1e-13


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_permuting_items_permutes_results(values: list[float], random: Any) -> None:
    scores, items = tensor(values), len(values)
    order = torch.tensor(random.sample(range(items), items))
    ranking = torch.tensor(random.sample(range(items), random.randint(1, items)))
    renamed = order.argsort()[ranking]  # where the items of the ranking have gone
    one, other = ranking_log_prob(scores, ranking), ranking_log_prob(scores[order], renamed)
    assert float(one) == pytest.approx(float(other), rel=1e-12, abs=1e-12)
    slope = gradient(lambda h: ranking_log_prob(h, ranking), scores)
    moved = gradient(lambda h: ranking_log_prob(h, renamed), scores[order])
    np.testing.assert_allclose(moved, slope[order], atol=1e-12)


@given(INTEGER_LISTS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_padding_changes_nothing(values: list[int], extra: int, random: Any) -> None:
    items = len(values)
    ranking = random.sample(range(items), random.randint(1, items))
    wide = tensor([*values, *[math.nan] * extra])
    mask = torch.arange(items + extra) < items
    padded = ranking_log_prob(wide, torch.tensor(ranking + [-1] * (items + extra - len(ranking))), mask)
    bare = ranking_log_prob(tensor(values), torch.tensor(ranking))
    assert float(padded) == pytest.approx(float(bare), rel=1e-13, abs=1e-14)


@given(
    st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=6), min_size=1, max_size=5),
    st.one_of(st.none(), st.integers(1, 7)),
)
def test_positions_and_rankings_have_the_same_probability(
    lists: list[list[float]], top_k: int | None
) -> None:
    scores, offsets = np.concatenate(lists), np.cumsum([0, *map(len, lists)])
    asked = np.tile(np.arange(len(lists)), 3)
    positions = sample_positions(scores, offsets, asked, np.random.default_rng(0), top_k=top_k)
    positions = positions.reshape(3, scores.size)
    found = log_prob_of_positions(torch.from_numpy(scores), positions, offsets)
    assert found.shape == (3, len(lists))
    for sample, one in itertools.product(range(3), range(len(lists))):
        mine = positions[sample, offsets[one] : offsets[one + 1]]
        ranking = [int(item) for item in np.argsort(mine) if mine[item]]
        single = ranking_log_prob(tensor(lists[one]), torch.tensor(ranking))
        assert float(found[sample, one]) == pytest.approx(float(single), rel=1e-12, abs=1e-13)


def test_positions_of_ragged_lists_give_gradients_in_place() -> None:
    scores, offsets = tensor([0.1, 2.0, -1.0, 5.0, 0.0, 0.0]), torch.tensor([0, 3, 4, 6])
    positions = torch.tensor([3, 1, 2, 1, 0, 1])
    slope = gradient(lambda h: log_prob_of_positions(h, positions, offsets), scores)
    first = gradient(lambda h: ranking_log_prob(h, torch.tensor([1, 2, 0])), scores[:3])
    np.testing.assert_allclose(slope, [*first.tolist(), 0.0, -0.5, 0.5], atol=1e-15)


def test_positions_may_come_from_arrays_that_cannot_be_written() -> None:
    positions, offsets = np.array([2, 1]), np.array([0, 2])
    positions.flags.writeable = offsets.flags.writeable = False
    assert float(log_prob_of_positions(torch.zeros(2), positions, offsets).exp()) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        ([0, 3], "below 3, or -1 (got 3)"),
        ([0, -2], "below 3, or -1 (got -2)"),
        ([0, 0], "an item twice (got 0)"),
        ([1, 2], "names a masked item, or an item twice (got 2)"),
    ],
)
def test_what_is_no_ranking_is_named(ranking: list[int], message: str) -> None:
    mask = torch.tensor([True, True, False])
    with pytest.raises(InputError) as caught:
        ranking_log_prob(torch.zeros(3), torch.tensor(ranking), mask)
    assert message in str(caught.value)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="column 'mask'.*each of 3 items"):
        ranking_log_prob(torch.zeros(3), torch.tensor([0]), torch.ones(2, dtype=torch.bool))
    with pytest.raises(InputError, match="do not fit together"):
        ranking_log_prob(torch.zeros(2, 3), torch.zeros(4, 1, dtype=torch.int64))
    with pytest.raises(InputError, match="below 0"):
        ranking_log_prob(torch.zeros(2, 0), torch.zeros(2, 1, dtype=torch.int64))
    with pytest.raises(InputError, match="agree on the number of rows"):
        log_prob_of_positions(torch.zeros(3), np.array([1, 2]), np.array([0, 3]))
    with pytest.raises(InputError, match="agree on the number of rows"):
        log_prob_of_positions(torch.zeros(3), np.array([1, 2, 3]), np.array([0, 2]))


@pytest.mark.parametrize("wrong", [[1, 3], [1, 1], [0, 2], [-1, 1], [5, 1]])
def test_positions_with_gaps_or_repeats_name_the_list(wrong: list[int]) -> None:
    with pytest.raises(InputError, match="row 4, column 'positions'"):
        log_prob_of_positions(torch.zeros(5), np.array([1, 2, 3, *wrong]), np.array([0, 3, 5]))


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_softmax_entropy_follows_the_formula(scores: list[float], dtype: torch.dtype) -> None:
    probability = [math.exp(score - max(scores)) for score in scores]
    probability = [one / sum(probability) for one in probability]
    wanted = -sum(one * math.log(one) for one in probability if one > 0)
    assert float(softmax_entropy(tensor(scores, dtype))) == pytest.approx(wanted, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_softmax_entropy_counts_what_is_tied_at_the_top(dtype: torch.dtype) -> None:
    for scores in EXTREME:
        top = scores.count(max(scores))
        assert float(softmax_entropy(tensor(scores, dtype))) == pytest.approx(math.log(top), rel=1e-6)
        slope = gradient(softmax_entropy, tensor(scores, dtype))
        np.testing.assert_allclose(slope, np.zeros(len(scores)), atol=1e-6)


@pytest.mark.parametrize("top_k", [None, 1, 2])
def test_ranking_entropy_is_that_of_all_rankings(top_k: int | None) -> None:
    lists = [scores for scores in SCORES if max(scores) < 100]
    offsets = np.cumsum([0, *map(len, lists)])
    found = ranking_entropy(np.concatenate(lists), offsets, 4_000, top_k=top_k)
    for one, scores in enumerate(lists):
        rankings = top_rankings(len(scores), min(top_k or len(scores), len(scores)))
        log_prob = ranking_log_prob(tensor(scores), torch.tensor(rankings))
        wanted = -float((log_prob.exp() * log_prob).sum())
        assert abs(found.value[one] - wanted) <= 4 * found.standard_error[one] + 1e-12
        assert found.standard_error[one] < 0.03


def test_ranking_entropy_does_not_depend_on_a_constant() -> None:
    scores, offsets = np.array([1.0, 3.0, 0.0, -2.0, 5.0]), np.array([0, 3, 5])
    one, other = ranking_entropy(scores, offsets, 50), ranking_entropy(scores + 1024, offsets, 50)
    np.testing.assert_allclose(one.value, other.value, rtol=1e-12)
    assert (one.value != ranking_entropy(scores, offsets, 50, seed=1).value).any()


def test_ranking_entropy_of_many_lists_comes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, offsets = np.zeros(10), np.array([0, 4, 5, 7, 10])
    monkeypatch.setattr(entropy, "ENTRIES_A_BLOCK", 100)
    found = ranking_entropy(scores, offsets, 20)
    np.testing.assert_allclose(found.value, np.log([24, 1, 2, 6]), atol=1e-12)
    np.testing.assert_allclose(found.standard_error, 0, atol=1e-12)
    with pytest.raises(InputError, match="column 'samples'"):
        ranking_entropy(scores, offsets, 1)
