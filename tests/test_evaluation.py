from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fultr import (
    ClickLog,
    ClickNoise,
    FixedScorer,
    InputError,
    PlackettLuce,
    PositionBias,
    RandomRanking,
    RankingDataset,
    simulate_clicks,
)
from fultr.estimators import evidence_from_clicks, list_disparities, noise_corrected_disparity, weights_at
from fultr.evaluation import (
    Evaluation,
    bootstrap,
    contributions,
    evaluate,
    percentile_interval,
    resampled_errors,
    resampled_means,
    simultaneous_intervals,
    sum_of_squares_bounds,
)
from fultr.policy import ScoredPolicy
from tests.reference import (
    by_first,
    by_second,
    enumerated_values,
    evidence_by_row,
    plain_disparity,
    plain_ratio_of_sums,
)
from tests.strategies import logs

BIAS = PositionBias.power(1.0)
BENT = PositionBias([1, 0.9, 0.05], beyond=0.3)
NOISE = ClickNoise(eps_plus=0.9, eps_minus=0.2)


class Scores(ScoredPolicy):
    """A policy of known scores, for one dataset."""

    def __init__(self, scores: Any, *, stochastic: bool = False) -> None:
        self.scores = scores
        self.stochastic = stochastic

    def predict(self, data: RankingDataset) -> NDArray[np.float64]:
        return np.asarray(self.scores, dtype=np.float64)


def made(
    lengths: Sequence[int], groups: int = 2, seed: int = 0, grades: int = 3, unknown: float = 0.2
) -> RankingDataset:
    """Lists with two features, graded relevance and some items of unknown group."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    group = rng.integers(groups, size=rows) if groups else np.full(rows, -1)
    return RankingDataset(
        rng.normal(size=(rows, 2)),
        np.cumsum([0, *lengths]),
        group=np.where(rng.random(rows) < unknown, -1, group),
        group_names=tuple(f"group {number}" for number in range(groups)),
        relevance=rng.integers(grades, size=rows) * (rng.random(rows) < 0.7),
    )


def world(lists: int, groups: int = 2, seed: int = 3) -> RankingDataset:
    """Lists of 3 to 5 items with binary relevance; later groups are scored higher and more relevant."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 6, size=lists)
    group = rng.integers(groups, size=lengths.sum())
    return RankingDataset(
        rng.normal(size=(group.size, 2)) + 0.7 * group[:, None],
        np.cumsum([0, *lengths]),
        group=group,
        group_names=tuple(f"group {number}" for number in range(groups)),
        relevance=rng.random(group.size) < 0.4 + 0.1 * group,
    )


def weighed(data: RankingDataset, at: int | None, bias: PositionBias) -> NDArray[np.float64]:
    """The weights of positions for DCG, for ranks and for exposure, written out."""
    longest = int(data.lengths.max())
    table = np.empty((3, longest))
    for place in range(longest):
        position, shown = place + 1, at is None or place < at
        table[0, place] = 1 / math.log2(1 + position) if shown else 0.0
        table[1, place] = position if at is None or shown else at + 1
        table[2, place] = bias.at([position])[0]
    return table


def check_against_plain(
    found: Evaluation, data: RankingDataset, weights: NDArray[np.float64], at: int | None, bias: PositionBias
) -> None:
    """Compare with sums in plain Python over E[f(rank)], (functions, rows)."""
    assert data.relevance is not None
    gain = weighed(data, at, bias)[0]
    dcg, ndcg, ranks, relevant = [], [], 0.0, 0.0
    exposure, merit = dict.fromkeys(data.group_names, 0.0), dict.fromkeys(data.group_names, 0.0)
    for start, stop in itertools.pairwise(data.offsets):
        relevances = [float(value) for value in data.relevance[start:stop]]
        one = sum(rel * weights[0, start + place] for place, rel in enumerate(relevances))
        ideal = sum(rel * gain[place] for place, rel in enumerate(sorted(relevances, reverse=True)))
        dcg.append(one)
        ndcg += [one / ideal] if ideal > 0 else []
        ranks += sum(rel * weights[1, start + place] for place, rel in enumerate(relevances))
        relevant += sum(relevances)
        for row in range(start, stop):
            if data.group[row] >= 0:
                exposure[data.group_names[data.group[row]]] += weights[2, row] / len(data)
                merit[data.group_names[data.group[row]]] += float(data.relevance[row]) / len(data)
    known = (data.relevance.astype(np.float64), np.ones(len(data)), weights[2])
    disparity, ratio = plain_disparity(data, *known), plain_ratio_of_sums(data, *known)
    two = len(data.group_names) == 2
    assert found.dcg == pytest.approx(sum(dcg) / len(dcg), rel=1e-8, abs=1e-9)
    assert found.ndcg == pytest.approx(sum(ndcg) / len(ndcg), rel=1e-8, abs=1e-9)
    assert found.average_rank == pytest.approx(ranks / relevant, rel=1e-8, abs=1e-9)
    assert found.exposure == pytest.approx(exposure, rel=1e-8, abs=1e-9)
    assert found.merit == pytest.approx(merit, rel=1e-8, abs=1e-9)
    np.testing.assert_allclose(found.disparities, disparity, 1e-8, 1e-9)
    np.testing.assert_allclose(found.ratio_of_sums_disparities, ratio, 1e-8, 1e-9)
    of_two = disparity[0, 1] if two else math.nan, ratio[0, 1] if two else math.nan
    np.testing.assert_allclose((found.disparity, found.ratio_of_sums_disparity), of_two, 1e-8, 1e-9)
    assert found.disparity_squared == pytest.approx(np.sum(np.triu(disparity) ** 2), rel=1e-8, abs=1e-9)


# against enumeration and plain Python


@pytest.mark.parametrize("at", [None, 1, 2, 9])
@pytest.mark.parametrize("groups", [2, 3, 4])
def test_a_stochastic_policy_is_the_mean_over_all_rankings(groups: int, at: int | None) -> None:
    data = made([4, 1, 3, 5, 2, 1], groups, seed=groups)
    table = weighed(data, at, BENT)
    lists = [data[number].features[:, 0].astype(np.float64) for number in range(len(data))]
    weights = np.hstack([enumerated_values(scores, table) for scores in lists])
    found = evaluate(PlackettLuce(by_first), data, position_bias=BENT, at=at, intervals=None)
    assert found.stochastic
    assert (found.lists, found.queries, found.impressions) == (6, 6, 6)
    check_against_plain(found, data, weights, at, BENT)


@pytest.mark.parametrize("at", [None, 1, 3])
@pytest.mark.parametrize("groups", [2, 3])
def test_a_deterministic_policy_ranks_by_falling_score_and_ties_by_row(groups: int, at: int | None) -> None:
    data = made([6, 1, 3, 8, 2], groups, seed=4)
    scores = np.round(data.features[:, 1].astype(np.float64))
    assert np.unique(scores).size < 8
    table, weights = weighed(data, at, BIAS), np.empty((3, data.rows))
    for start, stop in itertools.pairwise(data.offsets):
        # sorted is stable, so that ties stay in their order
        for place, row in enumerate(sorted(range(start, stop), key=lambda row: -scores[row])):
            weights[:, row] = table[:, place]
    found = evaluate(Scores(scores), data, position_bias=BIAS, at=at)
    assert not found.stochastic
    check_against_plain(found, data, weights, at, BIAS)


def test_the_mode_or_the_draws_of_a_policy_can_be_asked_for() -> None:
    data = made([4, 3, 5])
    both = [
        evaluate(policy, data, position_bias=BIAS)
        for policy in (FixedScorer(by_first), PlackettLuce(by_first))
    ]
    assert both[0].dcg != both[1].dcg
    for policy in (FixedScorer(by_first), PlackettLuce(by_first)):
        for stochastic in (False, True):
            found = evaluate(policy, data, position_bias=BIAS, stochastic=stochastic)
            assert found.to_dict() == both[stochastic].to_dict()


def test_scores_far_apart_make_a_stochastic_policy_its_mode() -> None:
    data = made([5, 2, 4, 1], groups=3)
    policy = FixedScorer(lambda features: 1e6 * features[:, 0])
    drawn, mode = (evaluate(policy, data, position_bias=BIAS, stochastic=one) for one in (True, False))
    for name in ("dcg", "ndcg", "average_rank", "disparity_squared"):
        assert getattr(drawn, name) == pytest.approx(getattr(mode, name), rel=1e-9)
    np.testing.assert_allclose(drawn.disparity, mode.disparity, atol=1e-9)


def test_single_accuracy_is_near_double() -> None:
    data = made([12] * 40, groups=2)
    double, single = (
        evaluate(PlackettLuce(by_first), data, position_bias=BIAS, accuracy=accuracy, intervals=None)
        for accuracy in ("double", "single")
    )
    assert double.dcg != single.dcg
    assert single.dcg == pytest.approx(double.dcg, rel=2e-3)
    assert single.disparity == pytest.approx(double.disparity, abs=0.02)


def test_a_stochastic_policy_is_the_average_of_its_sampled_rankings() -> None:
    data, draws = made([7, 3, 10, 1, 6], groups=2, seed=8), 1500
    policy = PlackettLuce(by_first)
    exact = evaluate(policy, data, position_bias=BIAS, at=4, intervals=None)
    names = ("dcg", "ndcg", "average_rank", "disparity")
    samples = np.array(
        [
            [getattr(one, name) for name in names]
            for positions in policy.sample_rankings(data, draws, seed=1)
            for one in [evaluate(Scores(-positions), data, position_bias=BIAS, at=4, intervals=None)]
        ]
    )
    error = samples.std(axis=0) / math.sqrt(draws)
    expected = np.array([getattr(exact, name) for name in names])
    assert (np.abs(samples.mean(axis=0) - expected) < 3 * error).all()


# against ir-measures


def by_query(data: RankingDataset, scores: NDArray[np.float64], measure: Any) -> dict[str, float]:
    """What ir-measures finds for each list that has a relevant item."""
    assert data.relevance is not None
    qrels: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for row, which in enumerate(data.list_of_row):
        qrels.setdefault(f"q{which}", {})[f"d{row}"] = int(data.relevance[row])
        run.setdefault(f"q{which}", {})[f"d{row}"] = float(scores[row])
    found = ir_measures.pytrec_eval.iter_calc([measure], qrels, run)
    return {one.query_id: one.value for one in found if any(qrels[one.query_id].values())}


@pytest.mark.parametrize("at", [None, 1, 3, 10])
def test_ndcg_of_the_mode_is_that_of_ir_measures(at: int | None) -> None:
    rng = np.random.default_rng(2)
    data = made(rng.integers(1, 20, size=60).tolist(), grades=5, seed=9)
    scores = rng.permutation(data.rows).astype(np.float64)
    measure = ir_measures.nDCG if at is None else ir_measures.nDCG @ at
    values = by_query(data, scores, measure)
    assert 30 < len(values) < 60
    found = evaluate(Scores(scores), data, position_bias=BIAS, at=at)
    assert found.ndcg == pytest.approx(np.mean(list(values.values())), rel=1e-6)


@pytest.mark.parametrize("at", [None, 5])
def test_dcg_of_the_mode_is_that_of_ir_measures(at: int | None) -> None:
    rng = np.random.default_rng(5)
    data = made(rng.integers(1, 20, size=60).tolist())
    # with one relevant item of grade 1 the ideal DCG is 1, and DCG is nDCG
    relevant = data.offsets[:-1] + rng.integers(data.lengths)
    data = replace(data, relevance=np.isin(np.arange(data.rows), relevant).astype(np.float32))
    scores = rng.permutation(data.rows).astype(np.float64)
    measure = ir_measures.nDCG if at is None else ir_measures.nDCG @ at
    found = evaluate(Scores(scores), data, position_bias=BIAS, at=at)
    assert found.dcg == pytest.approx(np.mean(list(by_query(data, scores, measure).values())), rel=1e-6)
    # and its examination 1 / k is its reciprocal rank
    of_relevant = replace(
        data, group=np.where(np.isin(np.arange(data.rows), relevant), 0, -1), group_names=("relevant",)
    )
    exposed = evaluate(Scores(scores), of_relevant, position_bias=BIAS).exposure["relevant"]
    reciprocal = by_query(data, scores, ir_measures.RR)
    assert exposed == pytest.approx(np.mean(list(reciprocal.values())), rel=1e-6)


# from clicks


def numbers_of(found: Evaluation) -> NDArray[np.float64]:
    """What is a mean over impressions, so that clicks estimate it without bias."""
    return np.array([found.dcg, found.disparity, *found.merit.values(), *found.exposure.values()])


@pytest.mark.slow
def test_clicks_say_the_same_as_relevances_on_average() -> None:
    data, logs_drawn = world(12), 150
    policy = PlackettLuce(by_second)
    truth = evaluate(policy, data, position_bias=BIAS, intervals=None)
    for noise in (None, NOISE):
        rng = np.random.default_rng(7)
        found = [
            evaluate(policy, log, noise=noise, intervals=None)
            for log in (
                simulate_clicks(data, PlackettLuce(by_first), BIAS, noise, impressions=200, seed=rng)
                for _ in range(logs_drawn)
            )
        ]
        values = np.array([numbers_of(one) for one in found])
        error = values.std(axis=0) / math.sqrt(logs_drawn)
        assert (np.abs(values.mean(axis=0) - numbers_of(truth)) < 3 * error).all()


def test_noise_that_is_not_corrected_shows() -> None:
    data = world(12)
    log = simulate_clicks(data, RandomRanking(), BIAS, NOISE, impressions=20_000, seed=0)
    truth, raw, corrected = (
        evaluate(PlackettLuce(by_second), one, position_bias=BIAS, noise=noise, intervals=None)
        for one, noise in ((data, None), (log, None), (log, log.noise))
    )
    assert abs(corrected.dcg - truth.dcg) < 0.05 < abs(raw.dcg - truth.dcg)


def test_a_log_counts_impressions_and_weighs_clicks_by_hand() -> None:
    data = RankingDataset(
        np.zeros((5, 1)), [0, 2, 5], group=[0, 1, 0, 1, 1], group_names=("a", "b"), query_id=[5, 4]
    )
    log = ClickLog(data, lists=[0, 0, 1], position=[2, 1, 1, 2, 3, 1, 2], click=[1, 0, 0, 1, 0, 0, 1])
    # counts are in the order of the query ids: the scores of the second list come first
    found = evaluate(Scores([3, 2, 1, 2, 1]), log, position_bias=BIAS)
    # merit of the five items of the log: 2, 2, 0, 0, 2; they are shown at 1, 2 and 1, 2, 3
    assert found.dcg == pytest.approx((2 + 2 / math.log2(3) + 2 / math.log2(4)) / 3)
    assert found.average_rank == pytest.approx((2 * 1 + 2 * 2 + 2 * 3) / 6)
    assert found.merit == pytest.approx({"a": 2 / 3, "b": 4 / 3})
    assert found.exposure == pytest.approx({"a": (2 * 1 + 1) / 3, "b": (2 * 0.5 + 0.5 + 1 / 3) / 3})
    assert found.disparity == pytest.approx(((2 * 1 - 2 * 0.5) + (2 * 1 - 0)) / 3)
    assert found.ratio_of_sums_disparity == pytest.approx(3 / 2 - (1.5 + 1 / 3) / 4)
    assert found.ndcg is None
    assert "ndcg" not in found.intervals
    assert (found.source, found.lists, found.queries, found.impressions) == ("clicks", 2, 2, 3)


def assert_same(one: Any, other: Any) -> None:
    """Plain values are equal up to rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same(first, second)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9)
    else:
        assert one == other


@pytest.mark.slow
@given(logs(), st.sampled_from([None, 2]), st.booleans())
def test_compacted_logs_give_the_same_intervals_included(log: ClickLog, at: int | None, noisy: bool) -> None:
    # what ranks must not depend on the order of the rows, so ties are broken at random
    log = replace(log, empties_dropped=False)
    noise = ClickNoise(0.9, 0.05) if noisy else None
    raw, compact = (
        evaluate(RandomRanking(), one, position_bias=BIAS, at=at, noise=noise, resamples=50).to_dict()
        for one in (log, log.compact())
    )
    np.testing.assert_equal(raw, compact)


def test_a_compacted_log_of_many_impressions_gives_the_same() -> None:
    data = world(20, groups=3)
    order = np.random.default_rng(0).permutation(20)
    twice = replace(data, query_id=np.arange(20), doc_id=np.arange(data.rows))[np.r_[0:20, order]]
    log = simulate_clicks(twice, PlackettLuce(by_first), BENT, NOISE, impressions=500, seed=1)
    for policy in (PlackettLuce(by_second), FixedScorer(by_second)):
        raw, compact = evaluate(policy, log, noise=NOISE), evaluate(policy, log.compact(), noise=NOISE)
        assert (compact.lists, compact.queries) == (20, 20)
        assert raw.to_dict() == compact.to_dict()


def test_lists_that_were_never_shown_take_no_part() -> None:
    data = world(6, groups=3)
    log = simulate_clicks(data[:4], RandomRanking(), BIAS, impressions=50, seed=0)
    longer = replace(log, data=replace(data, relevance=None))
    assert_same(*(evaluate(PlackettLuce(by_first), one).to_dict() for one in (log, longer)))
    # not even in what positions must be examined
    long = replace(data, offsets=np.array([0, *data.offsets[1:5], data.rows]))
    narrow = PositionBias([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert long.lengths.max() > 5
    assert evaluate(PlackettLuce(by_first), replace(log, data=long), position_bias=narrow).lists == 4


def test_noise_corrected_merit_may_be_negative() -> None:
    data = RankingDataset(np.zeros((4, 1)), [0, 2, 4], group=[0, 1, 0, 1], group_names=("a", "b"))
    log = ClickLog(data, lists=[0, 1], position=[1, 2, 1, 2], click=[1, 0, 0, 0], position_bias=BIAS)
    noise = ClickNoise(0.9, 0.4)
    found = evaluate(RandomRanking(), log, noise=noise)
    assert found.merit == pytest.approx({"a": (1 - 0.8) / 2 / 0.5, "b": -0.4 / 0.5})
    assert math.isnan(found.merit_share["a"])
    assert math.isnan(found.exposure_per_merit["b"])
    assert math.isnan(found.average_rank)
    assert found.ratio_of_sums_disparity == 0
    exposure = torch.full((4,), 0.75, dtype=torch.float64)
    expected = noise_corrected_disparity(exposure, evidence_from_clicks(log.compact()), noise=noise)
    assert found.disparity == pytest.approx(float(expected[0, 1]))
    assert str(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_dropped_empty_impressions_are_said() -> None:
    log = simulate_clicks(world(5), RandomRanking(), BIAS, clicks=30, keep_empty=False, seed=0)
    for one in (log, log.compact()):
        found = evaluate(RandomRanking(), one)
        assert found.empties_dropped
        assert found.to_dict()["empties_dropped"]
        assert "up to a factor" in str(found)
        with pytest.raises(InputError, match="'empties_dropped'"):
            evaluate(RandomRanking(), one, noise=NOISE)


# where the position bias comes from


def test_the_position_bias_asked_for_comes_before_that_of_the_log_and_of_the_policy() -> None:
    data = world(5)
    log = simulate_clicks(data, RandomRanking(), BIAS, impressions=40, seed=0)
    bare = replace(log, position_bias=None)
    policy = PlackettLuce(by_first)
    expected = {
        (one, bias): evaluate(policy, given, position_bias=bias).to_dict()
        for one, given in (("data", data), ("log", log))
        for bias in (BIAS, BENT)
    }
    assert evaluate(policy, log).to_dict() == expected["log", BIAS]
    policy.position_bias = BENT  # type: ignore[attr-defined]
    assert evaluate(policy, data).to_dict() == expected["data", BENT]
    assert evaluate(policy, log).to_dict() == expected["log", BIAS]
    assert evaluate(policy, bare).to_dict() == expected["log", BENT]
    policy.position_bias_ = BIAS  # type: ignore[attr-defined]
    assert evaluate(policy, data).to_dict() == expected["data", BIAS]
    assert evaluate(policy, bare).to_dict() == expected["log", BIAS]
    assert evaluate(policy, bare, position_bias=BENT).to_dict() == expected["log", BENT]
    policy.position_bias_ = BENT  # type: ignore[attr-defined]
    assert evaluate(policy, log).to_dict() == expected["log", BIAS]


def test_logged_propensities_weigh_clicks_and_the_position_bias_gives_exposure() -> None:
    log = simulate_clicks(world(5), RandomRanking(), BIAS, impressions=40, seed=0)
    propensity = BENT.at(log.position)
    logged = replace(log, propensity=np.where(log.position > 0, propensity, np.nan))
    exposed = evaluate(RandomRanking(), log, position_bias=BIAS)
    weighed_so = evaluate(RandomRanking(), log, position_bias=BENT)
    for one in (logged, logged.compact()):
        found = evaluate(RandomRanking(), one, position_bias=BIAS)
        assert found.exposure == pytest.approx(exposed.exposure)
        assert found.merit == pytest.approx(weighed_so.merit)
        assert found.dcg == pytest.approx(weighed_so.dcg)
        assert found.merit["group 0"] != pytest.approx(exposed.merit["group 0"])


def test_without_a_position_bias_there_is_an_error_unless_none_is_needed() -> None:
    data = world(4)
    log = replace(simulate_clicks(data, RandomRanking(), BIAS, impressions=9), position_bias=None)
    for one in (data, log, log.compact()):
        with pytest.raises(InputError, match="'position_bias'.*give one, such as"):
            evaluate(RandomRanking(), one)
    ungrouped = replace(data, group=np.full(data.rows, -1), group_names=())
    found = evaluate(PlackettLuce(by_first), ungrouped)
    assert found.dcg == evaluate(PlackettLuce(by_first), data, position_bias=BIAS).dcg
    assert found.exposure == found.merit == {}
    with pytest.raises(InputError, match="'position_bias'"):
        evaluate(RandomRanking(), replace(log, data=ungrouped))


# corners


@pytest.mark.parametrize("groups", [0, 1])
def test_fewer_than_two_groups_have_no_disparity(groups: int) -> None:
    data = made([3, 1, 4], groups, unknown=0.0)
    for policy in (PlackettLuce(by_first), FixedScorer(by_first)):
        found = evaluate(policy, data, position_bias=BIAS)
        intervals = found.pair_intervals["disparities"]
        for matrix in (found.disparities, found.ratio_of_sums_disparities, *intervals):
            assert matrix.shape == (groups, groups)
            assert not matrix.any()
        assert found.disparity_squared == 0
        assert len(found.exposure) == groups
        assert str(found)
        json.dumps(found.to_dict(), allow_nan=False)


def test_items_of_unknown_group_count_for_utility_only() -> None:
    data = made([4, 5, 3], unknown=0.0)
    nobody = replace(data, group=np.full(data.rows, -1), group_names=data.group_names)
    known, unknown = (evaluate(PlackettLuce(by_first), one, position_bias=BIAS) for one in (data, nobody))
    assert known.dcg == unknown.dcg > 0
    assert unknown.exposure == unknown.merit == {"group 0": 0, "group 1": 0}
    assert unknown.disparity == 0 != known.disparity
    assert math.isnan(unknown.exposure_share["group 0"])


def test_lists_of_one_have_no_choice() -> None:
    data = replace(made([1] * 5, unknown=0.0), relevance=np.array([1, 0, 2, 0, 1], np.float32))
    found = evaluate(PlackettLuce(by_first), data, position_bias=BIAS)
    assert found.dcg == pytest.approx(4 / 5)
    assert found.ndcg == found.average_rank == 1
    assert found.disparity == 0
    assert sum(found.exposure.values()) == pytest.approx(1)


def test_without_a_relevant_item_ndcg_and_average_rank_are_not_defined() -> None:
    data = made([3, 2, 4])
    nothing = replace(data, relevance=np.zeros(data.rows, np.float32))
    found = evaluate(PlackettLuce(by_first), nothing, position_bias=BIAS)
    assert np.isnan(np.array([found.ndcg, found.average_rank], dtype=np.float64)).all()
    assert np.isnan(np.array(found.intervals["ndcg"])).all()
    assert np.array(found.intervals["dcg"]).tolist() == [0, 0]
    plain = found.to_dict()
    assert plain["ndcg"] is None
    assert plain["intervals"]["average_rank"] == [None, None]


def test_one_query_has_no_intervals() -> None:
    data = replace(made([3, 2, 4]), query_id=np.array([1, 1, 1]))
    found = evaluate(PlackettLuce(by_first), data, position_bias=BIAS)
    assert found.queries == 1
    assert all(np.isnan(np.array(interval)).all() for interval in found.intervals.values())
    assert math.isfinite(found.dcg)


def test_blocks_do_not_change_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made([4, 1, 3, 9, 2, 7, 1, 1], groups=3)
    data = replace(data, query_id=np.array([0, 1, 2, 0, 1, 3, 4, 5]))
    for policy in (PlackettLuce(by_first), FixedScorer(by_first)):
        whole = evaluate(policy, data, position_bias=BIAS, resamples=40).to_dict()
        for cells in (1, 60, 150):
            with monkeypatch.context() as patch:
                patch.setattr(contributions, "CELLS_A_BLOCK", cells)
                patch.setattr(bootstrap, "CELLS_A_BLOCK", cells)
                assert_same(evaluate(policy, data, position_bias=BIAS, resamples=40).to_dict(), whole)


def test_inputs_stay_and_seeds_decide() -> None:
    data = made([3, 5, 4, 2], groups=3)
    before = [data.features.copy(), data.group.copy(), data.offsets.copy()]
    first, again, other = (
        evaluate(PlackettLuce(by_first), data, position_bias=BIAS, seed=seed).to_dict() for seed in (4, 4, 5)
    )
    assert first == again
    assert first["intervals"] != other["intervals"]
    none = {"intervals": 0, "pair_intervals": 0}
    assert {**first, **none} == {**other, **none}
    generator = np.random.default_rng(4)
    assert first == evaluate(PlackettLuce(by_first), data, position_bias=BIAS, seed=generator).to_dict()
    for one, then in zip(before, (data.features, data.group, data.offsets), strict=True):
        np.testing.assert_array_equal(one, then)


def test_scores_may_be_a_tensor_that_wants_a_gradient() -> None:
    data = made([3, 2])

    class Module:
        stochastic = True

        def predict(self, data: RankingDataset) -> torch.Tensor:
            return torch.tensor(data.features[:, 0], requires_grad=True)

    found = evaluate(Module(), data, position_bias=BIAS)
    assert found.to_dict() == evaluate(PlackettLuce(by_first), data, position_bias=BIAS).to_dict()


# the result


def test_results_are_plain_and_readable() -> None:
    for groups in (2, 3):
        data = made([3, 5, 4, 2], groups)
        found = evaluate(PlackettLuce(by_first), data, position_bias=BIAS, at=2)
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert plain["groups"] == list(found.groups) == list(data.group_names)
        assert plain["dcg"] == found.dcg
        assert plain["disparities"] == found.disparities.tolist()
        assert plain["disparity"] == (found.disparity if groups == 2 else None)
        assert plain["level"] == 0.95
        measures = {"dcg", "ndcg", "average_rank", "exposure_to_move"}
        of_two = {"disparity", "exposure_ratio"} if groups == 2 else set()
        assert set(plain["intervals"]) == measures | of_two
        assert set(plain["pair_intervals"]) == {"disparities", "exposure_ratios"}
        assert repr(found).startswith(f"<Evaluation: dcg {found.dcg:.4f}, ndcg {found.ndcg:.4f}")
        text = str(found)
        assert "ndcg@2" in text
        assert text.count("\n  disparity  ") == groups * (groups - 1) / 2
        assert all(name in text for name in found.groups)
    with pytest.raises(FrozenInstanceError):
        found.dcg = 1.0  # type: ignore[misc]
    without = evaluate(PlackettLuce(by_first), data, position_bias=BIAS, intervals=None)
    assert without.intervals == {}
    assert without.level is None
    assert without.to_dict().keys() == found.to_dict().keys()
    assert "[" not in str(without)


def test_shares_and_exposure_per_merit() -> None:
    found = evaluate(PlackettLuce(by_first), made([3, 5, 4, 2], 3), position_bias=BIAS)
    assert sum(found.exposure_share.values()) == pytest.approx(1)
    assert sum(found.merit_share.values()) == pytest.approx(1)
    per_merit = found.exposure_per_merit
    for first, second in itertools.product(range(3), repeat=2):
        names = found.groups[first], found.groups[second]
        assert found.exposure_share[names[0]] * found.exposure[names[1]] == pytest.approx(
            found.exposure_share[names[1]] * found.exposure[names[0]]
        )
        assert found.ratio_of_sums_disparities[first, second] == pytest.approx(
            per_merit[names[0]] - per_merit[names[1]]
        )


def test_intervals_of_many_groups_are_antisymmetric_matrices() -> None:
    found = evaluate(PlackettLuce(by_first), made([5] * 30, 3), position_bias=BIAS)
    low, high = found.pair_intervals["disparities"]
    np.testing.assert_allclose(low, -high.T)
    matrix = found.disparities
    np.testing.assert_array_equal(matrix, -matrix.T)
    assert (low <= matrix).all()
    assert (matrix <= high).all()
    wide = evaluate(PlackettLuce(by_first), made([5] * 30, 3), position_bias=BIAS, intervals=0.99)
    off_diagonal = ~np.eye(3, dtype=bool)
    assert (wide.pair_intervals["disparities"][0] < low)[off_diagonal].all()


# the bootstrap


def test_resampled_means_are_those_of_queries_drawn_one_after_another() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(7, 2)), rng.integers(0, 3, size=7).astype(np.float64)
    codes = np.array([3, 9, 3, 5, 9, 2, 7])
    weights[codes == 5] = 0
    weights[0], weights[-2:] = 1, 2
    found = resampled_means(values, weights, codes, resamples=30, seed=6)
    drawing = np.random.default_rng(6)
    seen = [2, 3, 7, 9]
    for resample in found:
        upper, lower = np.zeros(2), 0.0
        for number in drawing.integers(4, size=4):
            for row in np.flatnonzero(codes == seen[number]):
                upper += values[row]
                lower += weights[row]
        np.testing.assert_allclose(resample, upper / lower, rtol=1e-12)
    np.testing.assert_allclose(
        resampled_means(values[:, :1], weights, codes, 30, 6), found[:, :1], rtol=1e-12
    )


@pytest.mark.statistical
def test_resampled_means_vary_as_means_of_clusters_do() -> None:
    rng = np.random.default_rng(1)
    of_queries = rng.normal(size=400)
    codes = np.repeat(np.arange(400), 5)
    found = resampled_means(of_queries[codes][:, None], np.ones(2000), codes, 4000)
    # a mean over 400 queries, not over 2000 lists
    assert found.std() == pytest.approx(of_queries.std() / 20, rel=0.05)
    assert found.mean() == pytest.approx(of_queries.mean(), abs=3 * found.std() / math.sqrt(4000))


def test_errors_of_resamples_are_those_of_the_plain_formula() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(8, 2)) + 1e4, rng.integers(1, 4, size=8).astype(np.float64)
    codes = np.array([0, 1, 1, 2, 3, 3, 4, 5])
    found = resampled_errors(values, weights, codes, resamples=20, seed=6)
    np.testing.assert_allclose(found.means, resampled_means(values, weights, codes, 20, 6), rtol=1e-12)
    drawing = np.random.default_rng(6)

    def plain(drawn: Sequence[int]) -> NDArray[np.float64]:
        upper = np.array([values[codes == query].sum(axis=0) for query in drawn])
        lower = np.array([weights[codes == query].sum() for query in drawn])
        apart = upper - upper.sum(axis=0) / lower.sum() * lower[:, None]
        return np.asarray(np.sqrt(6 / 5 * (apart**2).sum(axis=0)) / lower.sum())

    np.testing.assert_allclose(found.estimate, values.sum(axis=0) / weights.sum())
    np.testing.assert_allclose(found.error, plain(range(6)), rtol=1e-9)
    for errors in found.errors:
        np.testing.assert_allclose(errors, plain(drawing.integers(6, size=6).tolist()), rtol=1e-7)


def test_a_band_knows_resamples_that_say_nothing_of_a_pair() -> None:
    values = np.zeros((40, 2))
    values[:2, 0], values[:, 1] = 1.0, np.arange(40)
    found = resampled_errors(values, np.ones(40), np.arange(40))
    assert (found.errors[:, 0] == 0).any()
    low, high = simultaneous_intervals(found)
    assert np.isfinite([low, high]).all()
    assert (low < found.estimate).all()
    assert (found.estimate < high).all()


def test_percentile_intervals_hold_their_share_of_samples() -> None:
    samples = np.stack([np.arange(101.0), -np.arange(101.0), np.full(101, np.nan)], axis=1)
    low, high = percentile_interval(samples, 0.9)
    np.testing.assert_allclose(low, [5, -95, np.nan])
    np.testing.assert_allclose(high, [95, -5, np.nan])
    samples[3, 0] = np.nan
    assert percentile_interval(samples, 0.9)[1][0] == pytest.approx(
        np.quantile(np.delete(samples[:, 0], 3), 0.95)
    )
    assert [float(one) for one in percentile_interval(np.arange(101.0), 0.5)] == [25, 75]


def test_a_band_of_one_quantity_reaches_to_its_quantile() -> None:
    samples = np.linspace(-1, 1, 1001)[:, None]
    low, high = simultaneous_intervals(samples, [0.0], 0.9)
    assert high == pytest.approx(0.9, abs=0.002)
    assert low == pytest.approx(-high)


def test_a_band_scales_with_each_quantity_and_ignores_what_does_not_vary() -> None:
    rng = np.random.default_rng(3)
    samples = rng.normal(size=(5000, 3))
    low, high = simultaneous_intervals(samples, np.zeros(3), 0.95)
    # of three independent normals, each must be covered with probability 0.95^(1/3)
    np.testing.assert_allclose(high, 2.388, rtol=0.04)
    scale, constant = np.array([1e-6, 1.0, 1e8]), np.full((5000, 1), 0.1)
    constant[0] += 1e-17
    wide = simultaneous_intervals(np.hstack([samples * scale, constant]), [0, 0, 0, 0.1 + 1e-15], 0.95)
    np.testing.assert_allclose(wide[0][:3], low * scale)
    np.testing.assert_allclose(wide[1][:3], high * scale)
    assert wide[0][3] == wide[1][3] == 0.1 + 1e-15
    low, high = simultaneous_intervals(constant, [0.1])
    assert low == high == 0.1


def test_bounds_of_a_sum_of_squares_are_those_of_a_fine_grid() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        ends = np.sort(rng.normal(size=(2, 3)), axis=0)
        axes = [np.append(np.linspace(low, high, 21), 0 if low < 0 < high else low) for low, high in ends.T]
        squares = sum(np.meshgrid(*(axis**2 for axis in axes)))
        np.testing.assert_allclose(sum_of_squares_bounds(*ends), [np.min(squares), np.max(squares)])
    assert sum_of_squares_bounds([], []) == (0, 0)


# coverage


@pytest.mark.statistical
def test_intervals_of_the_signed_disparity_and_of_utility_cover() -> None:
    population, rng = world(3000), np.random.default_rng(11)
    policy = PlackettLuce(by_first)
    truth = evaluate(policy, population, position_bias=BIAS, intervals=None)
    names = ("dcg", "ndcg", "average_rank", "disparity")
    covered = dict.fromkeys(names, 0)
    for number in range(1000):
        sample = population[rng.integers(len(population), size=150)]
        found = evaluate(policy, sample, position_bias=BIAS, resamples=500, seed=number)
        for name in names:
            low, high = found.intervals[name]
            covered[name] += bool(low <= getattr(truth, name) <= high)
    print(covered)
    assert all(930 <= covered[name] <= 970 for name in ("dcg", "disparity")), covered
    # ratios of two means are known a little less well than means
    assert all(925 <= covered[name] <= 970 for name in ("ndcg", "average_rank")), covered


def many_small_logs(groups: int, sets: int, queries: int) -> tuple[Any, NDArray[np.float64]]:
    """Contributions of `queries` lists to D from about 4 impressions of each, many times over; and true D."""
    population = world(2000, groups)
    rng = np.random.default_rng(5)
    drawn = population[rng.integers(len(population), size=sets * queries)]
    log = simulate_clicks(drawn, PlackettLuce(by_second), BIAS, impressions=4 * sets * queries, seed=2)
    exposure = weights_at(FixedScorer(by_first).rank(drawn), BIAS.curve(5)[1:])
    evidence = evidence_by_row(log)
    pairs = np.triu_indices(groups, k=1)
    columns = list_disparities(exposure, evidence).numpy()[:, *pairs].reshape(sets, queries, -1)
    truth = evaluate(FixedScorer(by_first), population, position_bias=BIAS, intervals=None).disparities
    of_pairs = truth[pairs]
    return zip(columns, evidence.impressions.numpy().reshape(sets, queries), strict=True), of_pairs


@pytest.mark.statistical
@pytest.mark.parametrize(("groups", "least"), [(2, 930), (4, 910)])
def test_intervals_from_clicks_cover_each_pair_and_bands_all_of_them(groups: int, least: int) -> None:
    # of four groups, a pair is together in few of the 150 lists, and percentiles are a little narrow
    sets, queries = 1000, 150
    contributed, truth = many_small_logs(groups, sets, queries)
    alone, together, simple, squares = np.zeros(truth.size), 0, 0, 0
    for number, (columns, impressions) in enumerate(contributed):
        resampled = resampled_errors(columns, impressions, np.arange(queries), 500, number)
        low, high = percentile_interval(resampled.means)
        alone += (low <= truth) & (truth <= high)
        low, high = simultaneous_intervals(resampled.means, resampled.estimate)
        simple += bool(((low <= truth) & (truth <= high)).all())
        low, high = simultaneous_intervals(resampled)
        together += bool(((low <= truth) & (truth <= high)).all())
        bounds = sum_of_squares_bounds(low, high)
        squares += bounds[0] <= float(truth @ truth) <= bounds[1]
    print(alone, simple, together, squares)
    assert ((least <= alone) & (alone <= 970)).all()
    assert least <= simple <= 970
    assert 930 <= together <= 970
    assert squares >= together


# errors


def test_errors_say_what_is_wrong() -> None:
    data = made([2, 3])
    bare = replace(data, relevance=None)
    log = simulate_clicks(world(3), RandomRanking(), BIAS, impressions=5, seed=0)
    empty = ClickLog(data, lists=[], position=np.empty(0, dtype=int), click=[])

    def run(policy: Any = None, given: Any = data, **options: Any) -> Callable[[], object]:
        return lambda: evaluate(policy or RandomRanking(), given, **{"position_bias": BIAS, **options})

    short = PositionBias([1.0, 0.5])
    wrong: list[tuple[Callable[[], object], str]] = [
        (run(given=bare), "'relevance': the lists have no relevance"),
        (run(given=[1, 2]), "'data': must be a RankingDataset.*got 'list'"),
        (run(given=empty), "no impressions"),
        (run(given=data[[]]), "no impressions"),
        (run(policy=3), "'policy': a policy must have a method predict"),
        (
            run(policy=Scores([1.0, 2.0])),
            r"'policy': predict must return one score for each of 5 rows.*\(2,\)",
        ),
        (run(policy=type("Words", (RandomRanking,), {"predict": lambda self, data: ["a"]})()), "'policy'"),
        (run(policy=Scores([1, 2, np.nan, 0, 0])), "row 3, column 'score': a score must be finite"),
        (run(stochastic="yes"), "'stochastic': must be True or False.*got 'yes'"),
        (run(policy=type("Scorer", (), {"predict": lambda self, data: [0]})()), "'stochastic': must be"),
        (run(position_bias=1.0), "'position_bias': must be a PositionBias.*got 1.0"),
        (run(position_bias=short), "position 3 lies beyond the position bias"),
        (run(noise=NOISE), "'noise': relevances have no click noise"),
        (run(given=log, noise=0.1), "'noise': must be a ClickNoise.*got 0.1"),
        (run(at=0), "'at': must be an integer, 1 or more.*got 0"),
        (run(at=2.5), "'at': must be an integer"),
        (run(intervals=95), "'intervals': must lie between 0 and 1.*got 95"),
        (run(resamples=0), "'resamples': must be an integer, 1 or more"),
        (run(seed=-1), "'seed'"),
        (run(accuracy="half"), "'accuracy': must be 'single' or 'double'.*got 'half'"),
        (lambda: resampled_means([1.0], [1], [0]), r"'contributions': must be lists x quantities"),
        (
            lambda: resampled_means([[1.0]], [1, 2], [0]),
            r"'weights': must have one value for each of 1 lists",
        ),
        (lambda: resampled_means([[1.0]], [1], [0, 1]), "'query_codes': must have one value"),
        (lambda: resampled_means([[1.0]], [0], [0]), "'weights': must be 0 or more, finite, and not all 0"),
        (lambda: resampled_means([[1.0]], [-1], [0]), "'weights'"),
        (lambda: resampled_errors([[1.0]], [1], [0]), "'query_codes': a standard error needs two queries"),
        (lambda: percentile_interval(np.empty((0, 2))), "'samples': must have at least one sample"),
        (lambda: percentile_interval([1.0, 2.0], 1.0), "'level'"),
        (lambda: simultaneous_intervals([[1.0]], [1.0]), "'samples': must be resamples x quantities"),
        (lambda: simultaneous_intervals(np.eye(3), [1.0]), "'estimate': must have one value for each of 3"),
        (lambda: simultaneous_intervals(np.eye(3)), "'estimate': must have one value for each of 3"),
        (lambda: simultaneous_intervals(np.full((3, 1), np.nan), [1.0]), "'samples': must be finite"),
        (lambda: sum_of_squares_bounds([1.0], [0.0]), "'high': must be as many as the low values"),
        (lambda: sum_of_squares_bounds([1.0], [2.0, 3.0]), "'high'"),
    ]
    for call, message in wrong:
        with pytest.raises(InputError, match=message):
            call()


# documentation


def test_the_table_of_measures_names_what_an_evaluation_has() -> None:
    page = (Path(__file__).parent.parent / "docs" / "evaluation.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    found = evaluate(RandomRanking(), made([2, 3]), position_bias=BIAS)
    assert len(names) >= 11
    assert all(hasattr(found, name) for name in names)
    assert set(names) <= found.to_dict().keys()
