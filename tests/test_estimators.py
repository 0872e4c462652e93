from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from fultr import (
    ClickLog,
    ClickNoise,
    InputError,
    PositionBias,
    RandomRanking,
    RankingDataset,
    estimators,
    simulate_clicks,
)
from fultr.data import Planted
from fultr.estimators import (
    Candidates,
    Evidence,
    correct_noise,
    disparity,
    disparity_squared,
    disparity_squared_slopes,
    effective_sample_size,
    evidence_from_clicks,
    evidence_from_relevance,
    group_exposure,
    group_merit,
    inverse_merit_from_clicks,
    inverse_merit_from_relevance,
    list_disparities,
    list_disparity,
    list_utilities,
    noise_corrected_disparity,
    per_impression_ratio_disparity,
    ratio_of_sums_disparity,
    self_normalise,
    utility,
    utility_of_rankings,
    weights_at,
)
from tests import test_claims, test_click_evidence, test_noise_swap, test_pages
from tests.reference import (
    all_rankings,
    evidence_by_row,
    plackett_luce_probability,
    plain_disparity,
    plain_per_impression_ratio,
    plain_ratio_of_sums,
    pretend_expectations,
    raw_estimates,
)
from tests.strategies import logs

BIASES = [PositionBias.power(1.0), PositionBias([1, 0.9, 0.05, 0.5], beyond=0.3)]
NOISE = ClickNoise(eps_plus=0.9, eps_minus=0.07)

Matrix = Callable[[Tensor, Evidence], Tensor]
MATRICES: list[Matrix] = [disparity, ratio_of_sums_disparity]


def usable_bias(log: ClickLog, bias: PositionBias | None) -> PositionBias | None:
    return BIASES[0] if bias is None and log.propensity is None else bias


def draw(rows: int, seed: int = 0, size: tuple[int, ...] = ()) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((*size, rows)))


def made(
    lengths: list[int],
    groups: int = 2,
    seed: int = 0,
    unknown: float = 0.2,
    dtype: torch.dtype = torch.float64,
) -> tuple[RankingDataset, Evidence]:
    """Random lists, and evidence as of clicks in 1 to 4 impressions of each of them."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    data = RankingDataset(
        np.zeros((rows, 1)),
        np.cumsum([0, *lengths]),
        group=np.where(rng.random(rows) < unknown, -1, rng.integers(max(groups, 1), size=rows))
        if groups
        else np.full(rows, -1),
        group_names=tuple(f"group {number}" for number in range(groups)),
    )
    evidence = Evidence(
        candidates=Candidates.of(data),
        weight=torch.from_numpy(rng.exponential(size=rows)).to(dtype),
        impressions=torch.from_numpy(rng.integers(1, 5, size=len(lengths))).to(dtype),
        shown=torch.ones(rows, dtype=dtype),
    )
    return data, evidence


@st.composite
def situations(draw_from: st.DrawFn) -> tuple[RankingDataset, Evidence, Tensor]:
    """Draw evidence and exposures over lists of 1 to 6 items and 0 to 4 groups."""
    lengths = draw_from(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    seed = draw_from(st.integers(0, 10_000))
    data, evidence = made(lengths, draw_from(st.integers(0, 4)), seed, draw_from(st.sampled_from([0.0, 0.3])))
    return data, evidence, draw(data.rows, seed + 1)


# against plain Python


@given(logs(), st.sampled_from([None, *BIASES]))
def test_estimates_from_clicks_are_those_of_the_plain_formulas(
    log: ClickLog, bias: PositionBias | None
) -> None:
    bias = usable_bias(log, bias)
    names = log.data.group_names if len(log.data.group_names) > 1 else ("first", "second")
    log = replace(
        log,
        data=replace(log.data, group=np.minimum(log.data.group, 1), group_names=names),
        empties_dropped=False,
    )
    value, exposure = draw(log.data.rows, 1), draw(log.data.rows, 2)
    expected = raw_estimates(log, bias, value.numpy(), exposure.numpy(), eps=NOISE.at(1)[1])
    evidence = evidence_by_row(log, bias)
    corrected = noise_corrected_disparity(exposure, evidence, noise=NOISE, rescale=False)
    found = (utility(value, evidence), disparity(exposure, evidence)[0, 1], corrected[0, 1])
    np.testing.assert_allclose([float(one) for one in found], expected, rtol=1e-12, atol=1e-12)


@given(logs(), st.sampled_from([None, *BIASES]), st.sampled_from([None, 1.0, 3.0]))
def test_merging_impressions_changes_nothing(
    log: ClickLog, bias: PositionBias | None, clip: float | None
) -> None:
    log, bias = replace(log, empties_dropped=False), usable_bias(log, bias)
    compact = log.compact()
    raw, merged = evidence_by_row(log, bias, clip=clip), evidence_from_clicks(compact, bias, clip=clip)
    assert raw.candidates.rows == log.data.rows
    # `evidence_by_row` counts too: hold it against sums over the entries of the log, which does not
    weights = log.ips_weights(bias, clip=clip)
    sums = np.bincount(log.row_of_entry, weights=weights, minlength=log.data.rows)
    close(raw.weight, sums.astype(np.float64))
    assert raw.impressions.tolist() == log.impressions_of_lists().tolist()
    assert merged.candidates.rows == compact.data.rows
    value, exposure = (torch.from_numpy(one.copy()) for one in pretend_expectations(log.data))
    value_there, exposure_there = (torch.from_numpy(one.copy()) for one in pretend_expectations(compact.data))
    close(utility(value, raw), utility(value_there, merged))
    for matrix in MATRICES:
        close(matrix(exposure, raw), matrix(exposure_there, merged))
    close(
        noise_corrected_disparity(exposure, raw, noise=NOISE),
        noise_corrected_disparity(exposure_there, merged, noise=NOISE),
    )


def close(found: Tensor, expected: Tensor | NDArray[np.float64], tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(found.detach(), expected, rtol=tolerance, atol=tolerance)


@given(situations())
def test_all_pairs_are_those_of_the_plain_formulas(case: tuple[RankingDataset, Evidence, Tensor]) -> None:
    data, evidence, exposure = case
    known = (evidence.weight.numpy(), evidence.impressions.numpy(), exposure.numpy())
    close(disparity(exposure, evidence), plain_disparity(data, *known))
    close(ratio_of_sums_disparity(exposure, evidence), plain_ratio_of_sums(data, *known))


@given(logs(), st.sampled_from([None, *BIASES]))
def test_per_impression_ratio_is_that_of_the_plain_formula(log: ClickLog, bias: PositionBias | None) -> None:
    bias = usable_bias(log, bias)
    exposure = draw(log.data.rows, 1)
    found = per_impression_ratio_disparity(exposure, inverse_merit_from_clicks(log, bias))
    close(found, plain_per_impression_ratio(log, bias, exposure.numpy()))


def test_per_impression_ratio_from_relevances() -> None:
    data = RankingDataset(
        np.zeros((7, 1)), [0, 3, 5, 7], group=[0, 0, 1, 0, 1, 1, 1], relevance=[1, 1, 1, 1, 0, 1, 1]
    )
    exposure = torch.tensor([1.0, 0.5, 0.3, 0.9, 0.1, 0.2, 0.4], dtype=torch.float64)
    found = per_impression_ratio_disparity(exposure, inverse_merit_from_relevance(data))
    # only the first list has merit in both groups; the others count in the mean
    close(found, np.array([[0.0, 0.45], [-0.45, 0.0]]) / 3)


# additive utilities


def test_utility_of_rankings_is_dcg_and_average_rank() -> None:
    data = RankingDataset(np.zeros((5, 1)), [0, 3, 5], relevance=[1, 0, 1, 0, 1])
    evidence = evidence_from_relevance(data)
    positions = np.array([[1, 2, 3, 1, 2], [2, 3, 1, 2, 1], [0, 2, 1, 1, 0]])
    dcg = utility_of_rankings(positions, 1 / np.log2([2, 3, 4]), evidence)
    close(dcg, np.array([[1.5, 1 / np.log2(3)], [1 + 1 / np.log2(3), 1], [1, 0]]))
    close(utility_of_rankings(positions[0], [-1.0, -2, -3], evidence), np.array([-4.0, -2]))


def test_utility_of_rankings_weighs_clicks_by_propensity() -> None:
    data = RankingDataset(np.zeros((3, 1)), [0, 3])
    log = ClickLog(data, lists=[0, 0], position=[1, 2, 3, 2, 1, 3], click=[0, 1, 1, 1, 0, 0])
    evidence = evidence_from_clicks(log.compact(), PositionBias.power(1.0))
    # item 1 has weight 2 from the second impression, item 2 weighs 2 and item 3 weighs 3 from the first
    close(utility_of_rankings([3, 1, 2], [10.0, 5.0, 1.0], evidence), np.array([2 * 1 + 2 * 10 + 3 * 5.0]))
    assert evidence.impressions.tolist() == [2]
    close(evidence.weight, np.array([2.0, 2, 3]))


def test_expected_utility_is_the_mean_over_rankings() -> None:
    scores, weights = [0.3, -1.0, 2.0, 0.0], np.array([1.0, 0.6, 0.5, 0.4])
    data = RankingDataset(np.zeros((4, 1)), [0, 4], relevance=[1, 0, 0.5, 1])
    evidence = evidence_from_relevance(data)
    value, mean = torch.zeros(4, dtype=torch.float64), 0.0
    for ranking in all_rankings(4):
        positions = np.argsort(ranking) + 1
        probability = plackett_luce_probability(scores, ranking)
        value += probability * weights_at(positions, weights)
        mean += probability * float(utility_of_rankings(positions, weights, evidence))
    close(utility(value, evidence), np.array(mean), 1e-14)


# properties


@given(situations())
def test_contributions_of_lists_add_up_to_means(case: tuple[RankingDataset, Evidence, Tensor]) -> None:
    data, evidence, exposure = case
    total = evidence.total_impressions
    close(list_utilities(exposure, evidence).sum(-1) / total, utility(exposure, evidence).numpy())
    contributions = list_disparities(exposure, evidence)
    assert contributions.shape == (len(data), *2 * (evidence.candidates.groups,))
    close(contributions.sum(0) / total, disparity(exposure, evidence).numpy())
    for first, second in itertools.product(range(evidence.candidates.groups), repeat=2):
        one = list_disparity(exposure, evidence, first=first, second=second)
        close(one, contributions[:, first, second].numpy())


@given(situations())
def test_disparities_are_antisymmetric(case: tuple[RankingDataset, Evidence, Tensor]) -> None:
    _, evidence, exposure = case
    for matrix in MATRICES:
        found = matrix(exposure, evidence)
        close(found, -found.transpose(-1, -2), 1e-13)
        assert not found.diagonal().any()


@given(situations(), st.integers(0, 100))
def test_renaming_groups_renames_disparities_and_swapping_two_flips_them(
    case: tuple[RankingDataset, Evidence, Tensor], seed: int
) -> None:
    _, evidence, exposure = case
    names = torch.from_numpy(np.random.default_rng(seed).permutation(evidence.candidates.groups))
    group = evidence.candidates.group
    renamed = torch.where(group >= 0, torch.cat([names, torch.tensor([-1])])[group], group)
    other = replace(evidence, candidates=replace(evidence.candidates, group=renamed))
    for matrix in MATRICES:
        close(matrix(exposure, other)[names][:, names], matrix(exposure, evidence))
    if evidence.candidates.groups == 2:
        swapped = replace(evidence.candidates, group=torch.where(group >= 0, 1 - group, group))
        flipped = disparity(exposure, replace(evidence, candidates=swapped))
        close(flipped, -disparity(exposure, evidence))


@given(situations(), st.integers(0, 100))
def test_the_order_of_items_in_a_list_does_not_matter(
    case: tuple[RankingDataset, Evidence, Tensor], seed: int
) -> None:
    data, evidence, exposure = case
    rng = np.random.default_rng(seed)
    order = np.concatenate(
        [start + rng.permutation(stop - start) for start, stop in itertools.pairwise(data.offsets)]
    )
    other = replace(
        evidence,
        candidates=replace(evidence.candidates, group=evidence.candidates.group[order]),
        weight=evidence.weight[order],
    )
    close(list_utilities(exposure[order], other), list_utilities(exposure, evidence))
    close(list_disparities(exposure[order], other), list_disparities(exposure, evidence))
    close(ratio_of_sums_disparity(exposure[order], other), ratio_of_sums_disparity(exposure, evidence))


@given(situations(), st.integers(2, 4))
def test_duplicating_the_data_leaves_means_unchanged(
    case: tuple[RankingDataset, Evidence, Tensor], times: int
) -> None:
    data, evidence, exposure = case
    tiled = exposure.repeat(times)
    for twice in (
        evidence[np.tile(np.arange(len(data)), times)],
        evidence[torch.arange(len(data)).repeat(times)],
    ):
        close(utility(tiled, twice), utility(exposure, evidence))
        for matrix in MATRICES:
            close(matrix(tiled, twice), matrix(exposure, evidence))
    longer = replace(evidence, weight=times * evidence.weight, impressions=times * evidence.impressions)
    for matrix in MATRICES:
        close(matrix(exposure, longer), matrix(exposure, evidence))


@given(situations())
def test_items_of_unknown_group_do_not_matter_to_disparity(
    case: tuple[RankingDataset, Evidence, Tensor],
) -> None:
    data, evidence, exposure = case
    unknown = evidence.candidates.group < 0
    other = replace(evidence, weight=torch.where(unknown, 1e6, evidence.weight))
    exposed = torch.where(unknown, 7.0, exposure).requires_grad_()
    for matrix in MATRICES:
        found = matrix(exposed, other)
        close(found, matrix(exposure, evidence))
    (slope,) = torch.autograd.grad(disparity_squared(disparity(exposed, other)), exposed)
    assert not slope[unknown].any()
    assert not disparity_squared_slopes(disparity(exposed, other), other)[unknown].any()
    relevance = replace(data, relevance=evidence.weight.numpy())
    far = replace(data, relevance=other.weight.numpy())
    close(
        per_impression_ratio_disparity(exposed, inverse_merit_from_relevance(far)),
        per_impression_ratio_disparity(exposure, inverse_merit_from_relevance(relevance)),
        1e-5,
    )


@given(situations())
def test_a_list_without_one_of_two_groups_contributes_nothing_to_their_disparity(
    case: tuple[RankingDataset, Evidence, Tensor],
) -> None:
    data, evidence, exposure = case
    contributions = list_disparities(exposure, evidence)
    for number in range(len(data)):
        there = set(data[number].group.tolist())
        for first, second in itertools.product(range(evidence.candidates.groups), repeat=2):
            if first not in there or second not in there:
                assert contributions[number, first, second] == 0


def test_configurations_are_estimated_as_each_by_itself() -> None:
    data, evidence = made([3, 1, 4, 6], groups=3)
    many = draw(data.rows, 5, size=(2, 3))
    merit = inverse_merit_from_relevance(replace(data, relevance=evidence.weight.numpy()))
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda exposure: utility(exposure, evidence),
        lambda exposure: list_utilities(exposure, evidence),
        lambda exposure: group_exposure(exposure, evidence),
        lambda exposure: list_disparities(exposure, evidence),
        lambda exposure: list_disparity(exposure, evidence, first=0, second=2),
        lambda exposure: disparity(exposure, evidence),
        lambda exposure: disparity_squared(disparity(exposure, evidence)),
        lambda exposure: disparity_squared_slopes(disparity(exposure, evidence), evidence),
        lambda exposure: noise_corrected_disparity(exposure, evidence, noise=NOISE),
        lambda exposure: ratio_of_sums_disparity(exposure, evidence),
        lambda exposure: per_impression_ratio_disparity(exposure, merit),
    ]
    for function in functions:
        together = function(many)
        for first, second in itertools.product(range(2), range(3)):
            close(together[first, second], function(many[first, second]), 1e-14)


def test_gradients_are_those_of_finite_differences() -> None:
    data, evidence = made([3, 1, 4], groups=3)
    merit = inverse_merit_from_relevance(replace(data, relevance=evidence.weight.numpy()))
    exposure = draw(data.rows, 5, size=(2,)).requires_grad_()
    checked: list[Callable[[Tensor], Tensor]] = [
        lambda one: utility(one, evidence),
        lambda one: disparity_squared(disparity(one, evidence)),
        lambda one: disparity_squared(noise_corrected_disparity(one, evidence, noise=NOISE)),
        lambda one: disparity_squared(ratio_of_sums_disparity(one, evidence)),
        lambda one: disparity_squared(per_impression_ratio_disparity(one, merit)),
    ]
    for function in checked:
        assert torch.autograd.gradcheck(function, (exposure,))


@given(situations())
def test_slopes_of_the_squared_disparity_are_its_gradient(
    case: tuple[RankingDataset, Evidence, Tensor],
) -> None:
    _, evidence, exposure = case
    exposure = torch.stack([exposure, exposure.flip(0)]).requires_grad_()
    found = disparity(exposure, evidence)
    (expected,) = torch.autograd.grad(disparity_squared(found).sum(), exposure)
    close(disparity_squared_slopes(found, evidence), expected)


def test_sum_over_pairs_counts_each_pair_once() -> None:
    given_disparities = torch.tensor([[0.0, 2, -1], [-2, 0, 3], [1, -3, 0]])
    assert disparity_squared(given_disparities) == 4 + 1 + 9
    assert disparity_squared(given_disparities[:2, :2]) == 4


# corners


@pytest.mark.parametrize("groups", [0, 1])
def test_fewer_than_two_groups_have_no_disparity(groups: int) -> None:
    data, evidence = made([2, 3], groups=groups)
    exposure = draw(data.rows, size=(4,)).requires_grad_()
    assert group_merit(evidence).shape == (2, groups)
    assert group_exposure(exposure, evidence).shape == (4, 2, groups)
    assert list_disparities(exposure, evidence).shape == (4, 2, groups, groups)
    for matrix in MATRICES:
        found = matrix(exposure, evidence)
        assert found.shape == (4, groups, groups)
        assert not disparity_squared(found).any()
    (slope,) = torch.autograd.grad(disparity_squared(disparity(exposure, evidence)).sum(), exposure)
    assert not slope.any()
    merit = inverse_merit_from_relevance(replace(data, relevance=evidence.weight.numpy()))
    assert per_impression_ratio_disparity(exposure, merit).shape == (4, groups, groups)


def test_lists_of_one_have_no_disparity() -> None:
    data, evidence = made([1] * 6, groups=3)
    exposure = draw(data.rows)
    assert not disparity(exposure, evidence).any()
    close(list_utilities(exposure, evidence), exposure * evidence.weight)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e150), (torch.float32, 1e18)])
def test_huge_weights_scale_estimates(dtype: torch.dtype, size: float) -> None:
    data, evidence = made([3, 4, 2], groups=2, dtype=dtype)
    exposure = draw(data.rows).to(dtype)
    huge = replace(evidence, weight=evidence.weight * size)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    close(disparity(exposure, huge) / size, disparity(exposure, evidence), tolerance)
    close(utility(exposure, huge) / size, utility(exposure, evidence), tolerance)
    assert torch.isfinite(disparity_squared(disparity(exposure, huge)))
    close(
        ratio_of_sums_disparity(exposure, huge) * size, ratio_of_sums_disparity(exposure, evidence), tolerance
    )


def test_results_have_the_finer_type_of_what_goes_in() -> None:
    data, evidence = made([3, 4, 2], groups=2)
    exposure = draw(data.rows)
    merit = inverse_merit_from_relevance(replace(data, relevance=evidence.weight.numpy()))
    for first, second in itertools.product([torch.float32, torch.float64], repeat=2):
        expected = torch.promote_types(first, second)
        known = evidence.to(second)
        assert known.shown is not None
        assert {known.weight.dtype, known.impressions.dtype, known.shown.dtype} == {second}
        found = [
            utility(exposure.to(first), known),
            list_utilities(exposure.to(first), known),
            disparity(exposure.to(first), known),
            list_disparities(exposure.to(first), known),
            list_disparity(exposure.to(first), known, first=0, second=1),
            ratio_of_sums_disparity(exposure.to(first), known),
            per_impression_ratio_disparity(exposure.to(first), replace(merit, sums=merit.sums.to(second))),
        ]
        assert {one.dtype for one in found} == {expected}
        close(found[2], disparity(exposure, evidence), 1e-5)
        close(found[5], ratio_of_sums_disparity(exposure, evidence), 1e-5)


def test_chosen_lists_keep_their_evidence() -> None:
    data, evidence = made([3, 1, 4, 2], groups=2)
    exposure = draw(data.rows)
    contributions = list_disparities(exposure, evidence)
    chosen = evidence[[2, 0, 2]]
    rows = evidence.candidates.rows_of(torch.tensor([2, 0, 2]))
    assert rows.tolist() == [4, 5, 6, 7, 0, 1, 2, 4, 5, 6, 7]
    close(list_disparities(exposure[rows], chosen), contributions[[2, 0, 2]])
    assert torch.equal(evidence[1:3].impressions, evidence.impressions[1:3])
    close(disparity(exposure[rows], chosen), disparity(exposure[rows], replace(chosen)), 1e-14)
    mask = np.array([True, False, False, True])
    assert evidence[mask].candidates.offsets.tolist() == [0, 3, 5]


def test_lists_never_shown_take_no_part() -> None:
    data, _ = made([3, 2, 4], groups=2, unknown=0)
    log = ClickLog(data, lists=[2, 2], position=[1, 2, 3, 4, 4, 3, 2, 1], click=[1, 0, 1, 0, 0, 1, 0, 1])
    bias, exposure = BIASES[0], draw(data.rows)
    evidence = evidence_by_row(log, bias)
    assert evidence.impressions.tolist() == [0, 0, 2]
    for matrix in MATRICES:
        close(matrix(exposure, evidence), matrix(exposure[5:], evidence[[2]]))
    with pytest.raises(InputError, match="no impressions"):
        evidence[:2]


# noise


def test_noise_is_taken_off_shown_items_only() -> None:
    data = RankingDataset(np.zeros((3, 1)), [0, 3], group=[0, 1, 1])
    log = ClickLog(data, lists=[0, 0], position=[1, 0, 2, 1, 2, 0], click=[1, 0, 0, 0, 1, 0])
    evidence = evidence_from_clicks(log.compact(), BIASES[0])
    assert evidence.shown is not None
    assert evidence.shown.tolist() == [2, 1, 1]
    noise = ClickNoise(0.9, 0.1)
    close(correct_noise(evidence, noise, rescale=False).weight, np.array([0.8, 1.9, -0.1]))
    close(correct_noise(evidence, noise).weight, np.array([1.0, 2.375, -0.125]))


def test_an_item_that_could_not_be_examined_takes_no_part_in_the_noise() -> None:
    data = RankingDataset(np.zeros((3, 1)), [0, 3])
    log = ClickLog(data, lists=[0], position=[1, 2, 3], click=[1, 0, 0])
    evidence = evidence_from_clicks(log.compact(), PositionBias([1, 0.5], beyond="zero"))
    assert evidence.shown is not None
    assert evidence.shown.tolist() == [1, 1, 0]


def test_clipped_weights_count_in_part() -> None:
    data = RankingDataset(np.zeros((4, 1)), [0, 4])
    log = ClickLog(data, lists=[0], position=[1, 2, 3, 4], click=[1, 1, 1, 1])
    evidence = evidence_from_clicks(log.compact(), BIASES[0], clip=2.0)
    assert evidence.shown is not None
    assert evidence.weight.tolist() == [1, 2, 2, 2]
    close(evidence.shown, np.array([1, 1, 2 / 3, 1 / 2]))


def test_noise_correction_is_refused_where_it_would_be_wrong() -> None:
    data, _ = made([3, 2], groups=2)
    log = simulate_clicks(
        replace(data, relevance=np.ones(5, np.float32)),
        RandomRanking(),
        BIASES[0],
        impressions=50,
        noise=NOISE,
    )
    evidence = evidence_from_clicks(log.compact())
    dropped = evidence_from_clicks(log.drop_empties().compact())
    assert torch.isfinite(disparity(draw(5), dropped)).all()
    with pytest.raises(InputError, match="'empties_dropped'.*without a click"):
        noise_corrected_disparity(draw(5), dropped, noise=NOISE)
    relevant = evidence_from_relevance(replace(data, relevance=np.ones(5, np.float32)))
    for other in (relevant, correct_noise(evidence, NOISE), self_normalise(evidence)):
        with pytest.raises(InputError, match="'shown'.*clicks only, once"):
            correct_noise(other, NOISE)


# lower variance


@given(logs(), st.sampled_from(BIASES))
def test_self_normalised_weights_have_a_mean_total_of_one(log: ClickLog, bias: PositionBias) -> None:
    value = draw(log.data.rows)
    evidence = evidence_by_row(log, bias)
    normalised = self_normalise(evidence)
    assert float(normalised.weight.sum()) == pytest.approx(evidence.total_impressions)
    weights = log.ips_weights(bias)
    expected = weights @ value.numpy()[log.row_of_entry] / weights.sum()
    close(utility(value, normalised), expected)


@given(logs(), st.sampled_from(BIASES))
def test_self_normalised_estimates_ignore_the_scale_of_propensities_and_dropped_empties(
    log: ClickLog, bias: PositionBias
) -> None:
    exposure = draw(log.data.rows)
    expected = disparity(exposure, self_normalise(evidence_by_row(log, bias)))
    log = replace(
        log, propensity=np.where(log.position > 0, bias.at(log.position) / 3, np.nan), planted=Planted.none()
    )
    for other in (log, log.drop_empties()):
        close(disparity(exposure, self_normalise(evidence_by_row(other))), expected)


def test_weights_without_a_positive_sum_cannot_be_normalised() -> None:
    _, evidence = made([2, 3])
    with pytest.raises(InputError, match="'weight'.*above 0.*got 0.0"):
        self_normalise(replace(evidence, weight=torch.zeros(5, dtype=torch.float64)))


def test_effective_sample_size_of_known_weights() -> None:
    assert effective_sample_size(np.full(7, 0.3)) == pytest.approx(7)
    assert effective_sample_size(torch.tensor([1e200, 1e-3, 0.0], dtype=torch.float64)) == pytest.approx(1)
    assert effective_sample_size(np.array([1.0, 3.0])) == pytest.approx(16 / 10)
    assert effective_sample_size(np.zeros(3)) == effective_sample_size(np.empty(0)) == 0


@given(logs(), st.sampled_from(BIASES), st.sampled_from([None, 2.0]))
def test_effective_sample_size_of_compacted_logs_is_that_of_the_clicks(
    log: ClickLog, bias: PositionBias, clip: float | None
) -> None:
    compact = log.compact()
    found = effective_sample_size(
        compact.ips_weights(bias, clip=clip), compact.squared_ips_weights(bias, clip=clip)
    )
    clicks = log.ips_weights(bias, clip=clip)
    assert found == pytest.approx(effective_sample_size(clicks))
    assert 0 < found <= log.click.sum() * (1 + 1e-12)
    assert found <= effective_sample_size(clicks[log.click]) * (1 + 1e-12)


# errors


def test_errors_say_what_is_wrong() -> None:
    data, evidence = made([2, 3])
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: utility(draw(4), evidence), r"'expected weights'.*5 rows.*got \(4,\)"),
        (lambda: disparity(draw(4), evidence), r"'expected weights'.*5 rows"),
        (lambda: list_utilities(draw(6), evidence), r"'expected weights'.*5 rows"),
        (lambda: list_disparity(draw(5), evidence, first=0, second=2), "'second': there are 2 groups.*got 2"),
        (lambda: evidence_from_relevance(data), "'relevance': the lists have no relevance"),
        (lambda: inverse_merit_from_relevance(data), "'relevance': the lists have no relevance"),
        (lambda: weights_at([1, 3], [1.0, 0.5]), "'positions'.*in 1..2.*got 3"),
        (lambda: weights_at([1, -1], [1.0, 0.5]), "'positions'.*in 1..2.*got -1"),
        (lambda: replace(evidence, impressions=torch.zeros(2)), "no impressions"),
        (lambda: replace(evidence, impressions=torch.ones(3)), "'impressions'.*2 lists"),
        (lambda: replace(evidence, weight=torch.ones(3)), "5 rows"),
    ]
    for call, message in wrong:
        with pytest.raises(InputError, match=message):
            call()
    empty = ClickLog(data, lists=[], position=np.empty(0, dtype=int), click=[])
    with pytest.raises(InputError, match="no impressions"):
        evidence_from_clicks(empty.compact(), BIASES[0])
    with pytest.raises(InputError, match="no impressions"):
        inverse_merit_from_clicks(empty, BIASES[0])
    shown = ClickLog(data, lists=[0], position=[1, 2], click=[0, 1])
    with pytest.raises(InputError, match="neither propensities nor a position bias"):
        evidence_from_clicks(shown.compact())
    with pytest.raises(InputError, match=r"'counts': must be Counts, such as log.compact\(\)"):
        evidence_from_clicks(cast(Any, shown))


# documentation


def test_the_table_of_equations_names_functions_and_tests_that_exist() -> None:
    page = (Path(__file__).parent.parent / "docs" / "estimators.md").read_text(encoding="utf-8")
    page, _, _ = page.partition("## Conventions")
    lines = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    table = [line.split(" | ") for line in lines[1:]]
    assert len(table) == 24
    documented = {name for cells in table for name in re.findall(r"`(\w+)`", cells[2])} - {"exposure"}
    assert all(callable(getattr(estimators, name)) for name in documented)
    tests = {name for cells in table for name in re.findall(r"`(\w+)`", cells[3])}
    assert tests <= {
        name
        for module in (test_claims, test_click_evidence, test_noise_swap, test_pages, sys.modules[__name__])
        for name in vars(module)
    }
    helpers = {
        "Candidates",
        "Evidence",
        "InverseMerit",
        "self_normalise",
        "effective_sample_size",
        "merit_in_arrays",
    }
    helpers |= {"merit_in_arrays", "inverse_merit_from_clicks", "inverse_merit_from_relevance"}
    assert set(estimators.__all__) == documented | helpers
