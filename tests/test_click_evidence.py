"""Estimators of merit from clicks: what they expect, exactly and by simulation, and how much they vary."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import fultr
from fultr import ClickLog, ClickNoise, Counts, InputError, PositionBias, RankingDataset
from fultr.estimators import (
    Evidence,
    correct_noise,
    disparity,
    doubly_robust_evidence,
    evidence_from_clicks,
    evidence_from_relevance,
    evidence_of_bare_clicks,
    merit_evidence,
    policy_aware_evidence,
    pooled_evidence,
    utility,
)
from fultr.estimators.click_evidence import ClickRates
from fultr.estimators.doubly_robust import FOLDS, predicted_relevance
from tests.strategies import logs

BIAS = PositionBias([1, 0.6, 0.3])
EXAMINED = PositionBias.power(1.0)
LOGGING = fultr.PlackettLuce(lambda features: features[:, 2])
TRUST = ClickNoise([0.95, 0.8], [0.4, 0.2, 0.1])
NO_CLIP = float("inf")
NO_CLICKS = (0,) * 8
RELEVANCE = {"a": 0.9, "b": 0.2, "c": 0.5}
WRONG = np.array([0.1, 0.8, 0.3, 0.6, 0.9])

Estimate = Callable[..., Evidence]


def wrongly_predicted(counts: Counts, *further: Any, **options: Any) -> Evidence:
    """Doubly robust with a prediction that has nothing to do with the truth, and no clip."""
    return doubly_robust_evidence(counts, *further, relevance=WRONG, clip=NO_CLIP, **options)


UNBIASED: list[Estimate] = [merit_evidence, pooled_evidence, wrongly_predicted]
IF_ALL_ARE_SHOWN: list[Estimate] = [evidence_from_clicks, policy_aware_evidence]


@cache
def two_lists(*click: int, hide: bool = False) -> Counts:
    """Three impressions of two lists of one query, in which documents b and c recur."""
    data = RankingDataset(
        np.zeros((5, 1)),
        [0, 2, 5],
        query_id=["q", "q"],
        doc_id=["b", "c", "a", "b", "c"],
        group=[1, 1, 0, 1, 1],
    )
    second = [2, 1, 0] if hide else [3, 1, 2]
    return ClickLog(data, lists=[1, 1, 0], position=[1, 2, 3, *second, 2, 1], click=[*click]).compact()


def expected_merit(estimate: Estimate, noise: ClickNoise | None, hide: bool = False) -> NDArray[np.float64]:
    """The exact expectation of the merit of each row, for each impression, over all outcomes."""
    shown = two_lists(*NO_CLICKS, hide=hide)
    position = [1, 2, 3, *([2, 1, 0] if hide else [3, 1, 2]), 2, 1]
    relevance = [RELEVANCE[document] for document in "abcabcbc"]
    chance = []
    for where, relevant in zip(position, relevance, strict=True):
        plus, minus = (noise or ClickNoise()).at(where)
        chance.append(float(BIAS.at(where)) * ((plus - minus) * relevant + minus))
    total = np.zeros(5)
    for outcome in itertools.product([0, 1], repeat=8):
        probability = np.prod([p if click else 1 - p for p, click in zip(chance, outcome, strict=True)])
        if probability > 0:
            evidence = estimate(two_lists(*outcome, hide=hide), BIAS, noise=noise)
            total += probability * evidence.weight.numpy()
    return total / np.repeat(shown.impressions, shown.data.lengths)


# trust bias


@pytest.mark.parametrize("noise", [None, ClickNoise(0.9, 0.2), TRUST])
@pytest.mark.parametrize("estimate", [*UNBIASED, *IF_ALL_ARE_SHOWN])
def test_merit_without_noise_by_position_is_unbiased_over_all_outcomes(
    estimate: Estimate, noise: ClickNoise | None
) -> None:
    np.testing.assert_allclose(expected_merit(estimate, noise), [RELEVANCE[d] for d in "bcabc"], atol=1e-12)


@pytest.mark.parametrize("noise", [None, TRUST])
@pytest.mark.parametrize("estimate", UNBIASED)
def test_merit_is_unbiased_over_all_outcomes_where_a_candidate_is_not_always_shown(
    estimate: Estimate, noise: ClickNoise | None
) -> None:
    found = expected_merit(estimate, noise, hide=True)
    np.testing.assert_allclose(found, [RELEVANCE[d] for d in "bcabc"], atol=1e-12)


def test_bare_clicks_lose_what_is_clicked_by_mistake_where_everything_is_examined() -> None:
    log = two_lists(1, 1, 1, 0, 1, 0, 0, 1)
    found = evidence_of_bare_clicks(log, noise=TRUST).weight
    everywhere = evidence_from_clicks(log, PositionBias([1, 1, 1]), noise=TRUST).weight
    torch.testing.assert_close(found, everywhere)


@given(logs(), st.sampled_from([None, 2.0]))
def test_noise_of_one_number_may_be_taken_off_at_once_or_afterwards(
    log: ClickLog, clip: float | None
) -> None:
    counts = replace(log, empties_dropped=False).compact()
    bias, noise = PositionBias.power(0.7), ClickNoise(0.9, 0.2)
    for estimate in (evidence_from_clicks, policy_aware_evidence, pooled_evidence):
        at_once = estimate(counts, bias, noise=noise, clip=clip)
        afterwards = correct_noise(estimate(counts, bias, clip=clip), noise)
        assert torch.equal(at_once.weight, afterwards.weight)


def test_noise_by_position_cannot_be_taken_off_sums_over_positions() -> None:
    evidence = evidence_from_clicks(two_lists(*[1] * 8), BIAS)
    with pytest.raises(InputError, match="'noise': noise by position.*evidence_from_clicks"):
        correct_noise(evidence, TRUST)


def test_a_clip_limits_the_weight_of_what_relevance_adds() -> None:
    counts = two_lists(1, 1, 1, 0, 0, 0, 0, 0)
    most = TRUST.most()
    assert most == ClickNoise(0.95, 0.4)
    clipped = evidence_from_clicks(counts, BIAS, noise=TRUST, clip=1.2).weight.numpy()[2:]
    gap = np.array([0.55, 0.6, 0.7])
    factor = np.minimum(1 / (BIAS.at([1, 2, 3]) * gap / 0.55), 1.2) / 0.55
    # the second impression has no clicks, but could have had
    again = np.minimum(1 / (BIAS.at([3, 1, 2]) * np.array([0.7, 0.55, 0.6]) / 0.55), 1.2) / 0.55
    false = BIAS.at([1, 2, 3]) * [0.4, 0.2, 0.1] * factor + BIAS.at([3, 1, 2]) * [0.1, 0.4, 0.2] * again
    np.testing.assert_allclose(clipped, factor - false)


def world() -> RankingDataset:
    """Queries with several lists of candidates out of eight documents each, in the order of counts."""
    rng = np.random.default_rng(5)
    query = np.repeat(np.arange(8), 3)
    document = np.concatenate([rng.choice(8, size=5, replace=False) for _ in query])
    features = rng.normal(size=(8, 8, 3))[np.repeat(query, 5), document]
    lists = RankingDataset(
        features,
        np.arange(0, 121, 5),
        group=(features[:, 2] > 0.3).astype(int),
        group_names=("low", "high"),
        query_id=query,
        doc_id=document,
    )
    once = ClickLog(lists, lists=np.arange(24), position=np.tile(np.arange(1, 6), 24), click=np.zeros(120))
    data = once.compact().data
    relevance = 0.35 + 0.2 * data.features[:, 0] + 0.15 * data.group
    return replace(data, relevance=np.clip(relevance, 0.02, 0.98))


def estimates_over_logs(
    estimates: list[Callable[[Counts], Evidence]], logs: int, impressions: int, noise: ClickNoise | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Utility and disparity of some ranking from many logs, (estimates, logs, 2), and the true ones."""
    data = world()
    value, exposure = torch.from_numpy(np.random.default_rng(1).random((2, data.rows)))

    def measured(evidence: Evidence) -> list[float]:
        return [float(utility(value, evidence)), float(disparity(exposure, evidence)[0, 1])]

    true = evidence_from_relevance(data)
    found = np.empty((len(estimates), logs, 2))
    for number in range(logs):
        log = fultr.simulate_clicks(data, LOGGING, EXAMINED, noise, impressions=impressions, seed=number)
        counts = log.compact()
        assert len(counts.data) == len(data)
        times = torch.from_numpy(np.repeat(counts.impressions, counts.data.lengths))
        for which, estimate in enumerate(estimates):
            # each list counts once, as in the truth, however often it was shown
            found[which, number] = measured(replace(true, weight=estimate(counts).weight / times))
    return found, np.array(measured(true))


def biases(found: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bias of each estimate in standard errors."""
    error = found.std(axis=1, ddof=1) / np.sqrt(found.shape[1])
    return np.asarray((found.mean(axis=1) - truth) / error)


def test_trust_bias_is_corrected_by_noise_by_position_only() -> None:
    """Clicks by mistake fall with the position: eps_minus = .4 / k."""
    noise = ClickNoise(1.0, [0.4 / k for k in range(1, 6)])
    # what items planted at all positions alike would measure
    v = EXAMINED.curve(5)[1:]
    constant = ClickNoise(1.0, float(v @ noise.curves(5)[1][1:] / v.sum()))
    found, truth = estimates_over_logs(
        [
            lambda counts: merit_evidence(counts, noise=noise),
            lambda counts: pooled_evidence(counts, noise=noise),
            lambda counts: doubly_robust_evidence(counts, noise=noise, clip=NO_CLIP),
            lambda counts: merit_evidence(counts),
            lambda counts: merit_evidence(counts, noise=constant),
        ],
        logs=100,
        impressions=600,
        noise=noise,
    )
    bias = biases(found, truth)
    print(f"trust bias: true U, D {truth}, means {found.mean(axis=1).tolist()}, bias in s.e. {bias.tolist()}")
    assert np.abs(bias[:3]).max() <= 4
    assert np.abs(bias[3:]).max(axis=1).min() > 10


# pooling


def test_pooled_merit_is_clicks_over_examinations_of_all_impressions() -> None:
    counts = two_lists(1, 0, 1, 0, 1, 0, 1, 1)
    v = dict(zip((1, 2, 3), BIAS.at([1, 2, 3]), strict=True))
    a = 1 / (v[1] + v[3])
    b = 2 / (v[2] + v[1] + v[2])
    c = 2 / (v[3] + v[2] + v[1])
    pooled = pooled_evidence(counts, BIAS)
    np.testing.assert_allclose(pooled.weight, [b, c, 2 * a, 2 * b, 2 * c])
    assert pooled.shown is not None
    np.testing.assert_allclose(pooled.shown, [1, 1, 2, 2, 2])


def test_pooled_merit_of_lists_that_share_no_item_is_policy_aware() -> None:
    counts = two_lists(1, 0, 1, 0, 1, 0, 1, 1)
    apart = replace(counts, data=replace(counts.data, query_id=np.array([1, 2])))
    unnamed = replace(counts, data=replace(counts.data, doc_id=None))
    for log in (apart, unnamed):
        assert torch.equal(pooled_evidence(log, BIAS).weight, policy_aware_evidence(log, BIAS).weight)


def test_a_candidate_that_only_another_list_showed_has_a_known_pooled_merit() -> None:
    data = RankingDataset(
        np.zeros((4, 1)), [0, 2, 4], query_id=["q", "q"], doc_id=["a", "b", "b", "c"], group=[0, 1, 1, 0]
    )
    counts = ClickLog(data, lists=[0, 1, 1], position=[1, 0, 1, 0, 1, 0], click=[1, 0, 1, 0, 0, 0]).compact()
    pooled = pooled_evidence(counts, BIAS)
    np.testing.assert_allclose(pooled.weight, [1, 0.5, 1, 0])
    assert pooled.unseen_group is not None
    assert pooled.unseen_group.tolist() == [-1, -1, -1, 0]


def test_pooled_estimates_are_unbiased_and_vary_less() -> None:
    found, truth = estimates_over_logs(
        [lambda counts: merit_evidence(counts), lambda counts: pooled_evidence(counts)],
        logs=100,
        impressions=400,
        noise=None,
    )
    bias, deviation = biases(found, truth), found.std(axis=1, ddof=1)
    print(f"pooling: bias in s.e. {bias.tolist()}, deviation {deviation.tolist()}")
    assert np.abs(bias).max() <= 4
    assert (deviation[1] < 0.93 * deviation[0]).all()


# doubly robust


def test_without_a_clip_doubly_robust_merit_is_that_of_the_clicks_whatever_is_predicted() -> None:
    for hide in (False, True):
        counts = two_lists(1, 0, 1, 0, 1, 0, 1, 1, hide=hide)
        for prediction in (WRONG, -WRONG, None):
            found = doubly_robust_evidence(counts, BIAS, clip=NO_CLIP, relevance=prediction)
            torch.testing.assert_close(found.weight, merit_evidence(counts, BIAS).weight)


@pytest.mark.parametrize("noise", [None, TRUST])
def test_the_bias_of_a_clip_is_that_of_the_prediction_where_the_clip_holds(noise: ClickNoise | None) -> None:
    clip = 1.5

    def clipped(counts: Counts, *further: Any, **options: Any) -> Evidence:
        return doubly_robust_evidence(counts, *further, relevance=WRONG, clip=clip, **options)

    true = np.array([RELEVANCE[document] for document in "bcabc"])
    rate = ClickRates.of(two_lists(*NO_CLICKS), two_lists(*NO_CLICKS).propensities(BIAS), noise).relevant
    kept = two_lists(*NO_CLICKS).sum_by_row(np.minimum(1, clip * rate)) / np.array([1, 1, 2, 2, 2])
    np.testing.assert_allclose(expected_merit(clipped, noise), true + (1 - kept) * (WRONG - true), atol=1e-12)

    def right(counts: Counts, *further: Any, **options: Any) -> Evidence:
        return doubly_robust_evidence(counts, *further, relevance=true, clip=clip, **options)

    np.testing.assert_allclose(expected_merit(right, noise), true, atol=1e-12)


def test_the_clip_is_half_the_root_of_the_number_of_clicks_and_fades() -> None:
    data = world()
    few = fultr.simulate_clicks(data, LOGGING, EXAMINED, clicks=20, seed=0).compact()
    clip = float(few.cells.clicks.sum()) ** 0.5 / 2
    found = doubly_robust_evidence(few)
    torch.testing.assert_close(found.weight, doubly_robust_evidence(few, clip=clip).weight)
    assert not torch.allclose(found.weight, merit_evidence(few).weight)
    many = fultr.simulate_clicks(data, LOGGING, EXAMINED, clicks=120, seed=0).compact()
    assert torch.equal(doubly_robust_evidence(many).weight, merit_evidence(many).weight)


def test_clipped_doubly_robust_estimates_vary_less_and_miss_by_less_than_clipped_ones() -> None:
    found, truth = estimates_over_logs(
        [
            lambda counts: merit_evidence(counts),
            lambda counts: merit_evidence(counts, clip=2.0),
            lambda counts: doubly_robust_evidence(counts, clip=2.0),
        ],
        logs=100,
        impressions=400,
        noise=None,
    )
    missed, deviation = np.abs(found.mean(axis=1) - truth), found.std(axis=1, ddof=1)
    print(f"doubly robust, clip 2: missed by {missed.tolist()}, deviation {deviation.tolist()}")
    assert (missed[2] < missed[1]).all()
    assert (deviation[2] < deviation[0]).all()


def test_relevance_is_predicted_from_the_clicks_of_other_queries() -> None:
    data = world()
    log = fultr.simulate_clicks(data, LOGGING, EXAMINED, impressions=3_000, seed=2)
    counts = log.compact()

    def predict(given: Counts) -> NDArray[np.float64]:
        return predicted_relevance(given, ClickRates.of(given, given.propensities(), None), None)

    predicted = predict(counts)
    assert predicted.min() >= 0
    assert predicted.max() <= 1
    true = data.relevance
    assert true is not None
    assert np.corrcoef(predicted, true)[0, 1] > 0.9
    assert predicted.mean() == pytest.approx(np.mean(true), abs=0.05)
    own = counts.data.query_codes[counts.data.list_of_row[counts.cells.row]] % FOLDS == 0
    changed = replace(counts.cells, clicks=np.where(own, 0, counts.cells.clicks))
    of_queries = counts.data.query_codes[counts.data.list_of_row] % FOLDS == 0
    again = predict(replace(counts, cells=changed))
    np.testing.assert_allclose(again[of_queries], predicted[of_queries], rtol=1e-12)
    assert not np.allclose(again[~of_queries], predicted[~of_queries])
    alone = counts[np.flatnonzero(counts.data.query_codes == 0)]
    assert not predict(alone).any()


@pytest.mark.parametrize("relevance", [[0.5], np.full(5, np.nan), ["a"] * 5])
def test_a_prediction_must_have_a_number_for_each_row(relevance: Any) -> None:
    with pytest.raises(InputError, match="'relevance': must "):
        doubly_robust_evidence(two_lists(*[1] * 8), BIAS, clip=1.0, relevance=relevance)
