"""Logs whose pages show only some of the candidates, as those of a job board do."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fultr
from fultr import (
    ClickLog,
    ClickNoise,
    FairRanker,
    InputError,
    PositionBias,
    PositionBiasByContext,
    RandomRanking,
    RankingDataset,
)
from fultr.audits import audit
from fultr.data.merging import merge_contexts
from fultr.estimators import (
    disparity,
    evidence_from_clicks,
    evidence_of_bare_clicks,
    list_disparities,
    list_disparity_bounds,
    merit_evidence,
    policy_aware_evidence,
)
from fultr.evaluation.exposure import (
    exposure_ratio_bounds,
    exposure_ratios,
    exposure_to_move,
    exposure_to_move_bounds,
)
from fultr.training.task import Weighing
from tests.job_board import BIAS, LONGEST_PAGE, JobBoard, job_board
from tests.training_tasks import random_lists, random_log


def three_of_five(impressions: int, seed: int, noise: ClickNoise | None = None) -> ClickLog:
    """Pages of 3 of the 5 candidates of two lists, by rankings that vary."""
    data = RankingDataset(
        np.arange(10.0)[:, None],
        [0, 5, 10],
        group=[0, 1] * 5,
        group_names=("a", "b"),
        relevance=[1, 0, 1, 1, 0, 0, 1, 1, 0, 1],
        query_id=[1, 2],
        doc_id=np.arange(10),
    )
    ranking = fultr.PlackettLuce(lambda features: features[:, 0] / 3)
    return fultr.simulate_clicks(data, ranking, BIAS, noise, impressions=impressions, top_k=3, seed=seed)


@pytest.fixture(scope="module")
def varied() -> JobBoard:
    """A job board on which nearly every candidate was shown now and then."""
    return job_board(impressions=20_000, variety=1.0)


@pytest.fixture(scope="module")
def fixed() -> JobBoard:
    """A job board whose ranking never varies, so that most candidates were never shown."""
    return job_board(impressions=2_000, variety=0.0)


# position bias


@pytest.mark.slow
def test_a_page_may_be_said_to_be_deeper_than_what_was_shown(varied: JobBoard) -> None:
    ranker = FairRanker(1.0, depth=LONGEST_PAGE + 10, l2=0.1).fit(varied.counts())
    assert ranker.position_bias_.depth == LONGEST_PAGE + 10


def test_a_page_ends_the_position_bias() -> None:
    page = BIAS.cut(3)
    assert page.at([1, 2, 3, 4, 50]).tolist() == [1, 1 / 2, 1 / 3, 0, 0]
    assert (page.depth, BIAS.depth, PositionBias([1, 0.5]).depth) == (3, None, None)
    assert PositionBias([1, 0.5, 0], beyond="zero").depth == 2
    assert [page.last_position(top_k) for top_k in (None, 2, 9)] == [3, 2, 3]
    assert [BIAS.last_position(top_k) for top_k in (None, 2)] == [None, 2]
    with pytest.raises(InputError, match="column 'depth': must be 1 or more"):
        BIAS.cut(0)


def test_the_depth_of_the_page_is_read_from_the_log(varied: JobBoard) -> None:
    counts = varied.counts()
    assert (counts.deepest, counts.hides_candidates) == (LONGEST_PAGE, True)
    assert counts.on_page(BIAS) == BIAS.cut(LONGEST_PAGE)
    whole = random_log(random_lists()).compact()
    assert not whole.hides_candidates
    assert whole.on_page(BIAS) is BIAS


def test_positions_beyond_the_page_have_neither_exposure_nor_utility(varied: JobBoard) -> None:
    table = Weighing(BIAS.cut(3)).tables(5)
    np.testing.assert_allclose(table, [[1, 1 / np.log2(3), 0.5, 0, 0], [1, 1 / 2, 1 / 3, 0, 0]])
    ranks = Weighing(BIAS.cut(3), utility="average_rank").tables(5)[0]
    assert ranks.tolist() == [-1, -2, -3, -4, -4]
    own = Weighing(BIAS.cut(3), utility=np.arange(5.0, 0, -1), top_k=4).tables(5)[0]
    assert own.tolist() == [5, 4, 3, 0, 0]
    found = fultr.evaluate(RandomRanking(), varied.counts(), intervals=None)
    assert found.at == LONGEST_PAGE
    known = 0.95  # of the candidates have a group
    assert sum(found.exposure.values()) == pytest.approx(known * BIAS.curve(20).sum(), rel=0.05)


# merit


def test_the_estimator_follows_from_what_the_log_shows() -> None:
    page, whole = three_of_five(200, 0).compact(), random_log(random_lists()).compact()
    for counts, estimator in ((page, policy_aware_evidence), (whole, evidence_from_clicks)):
        assert torch.equal(merit_evidence(counts).weight, estimator(counts).weight)
    bare = evidence_of_bare_clicks(page)
    assert bare.weight.tolist() == page.clicks().tolist()
    assert bare.shown is not None
    assert bare.shown.tolist() == page.shown().tolist()


@pytest.mark.statistical
@pytest.mark.parametrize("noise", [None, ClickNoise(0.9, 0.2)])
def test_policy_aware_merit_is_unbiased_for_every_item_that_was_shown(noise: ClickNoise | None) -> None:
    """Weights of logged positions alone are far too small for an item that is shown now and then."""
    found: list[NDArray[np.float64]] = []
    naive: list[NDArray[np.float64]] = []
    for seed in range(400):
        counts = three_of_five(150, seed, noise).compact()
        assert (counts.shown() > 0).all()
        both = [policy_aware_evidence(counts), evidence_from_clicks(counts)]
        if noise is not None:
            both = [fultr.estimators.correct_noise(one, noise) for one in both]
        times = np.repeat(counts.impressions, 5)
        for kept, evidence in zip((found, naive), both, strict=True):
            kept.append(evidence.weight.numpy() / times)
    relevance = np.array([1, 0, 1, 1, 0, 0, 1, 1, 0, 1.0])
    error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - relevance) <= 4 * np.maximum(error, 1e-12)).all()
    assert np.mean(naive, axis=0)[[0, 6]].max() < 0.8


def test_a_clip_bounds_the_weight_of_a_mean_propensity() -> None:
    counts = three_of_five(300, 1).compact()
    mean = counts.mean_examination()
    np.testing.assert_allclose(
        policy_aware_evidence(counts, clip=4.0).weight, counts.clicks() * np.minimum(1 / mean, 4.0)
    )
    shown = policy_aware_evidence(counts, clip=4.0).shown
    assert shown is not None
    np.testing.assert_allclose(shown, np.minimum(1, 4.0 * mean) * np.repeat(counts.impressions, 5))


def test_an_item_that_nobody_could_see_has_no_merit_and_no_group() -> None:
    log = three_of_five(100, 0)
    hidden = np.where(log.row_of_entry == 4, 0, log.position)
    counts = replace(log, position=hidden, click=log.click & (hidden > 0)).compact()
    evidence = policy_aware_evidence(counts)
    assert evidence.unseen is not None
    assert evidence.unseen.group.tolist() == [-1, -1, -1, -1, 0, -1, -1, -1, -1, -1]
    assert evidence.candidates.group.tolist() == [0, 1, 0, 1, -1, 1, 0, 1, 0, 1]
    assert policy_aware_evidence(log.compact()).unseen is None
    one = evidence[[0]]
    assert one.unseen is not None
    assert one.to(torch.float32).unseen.group.tolist() == [-1, -1, -1, -1, 0]  # type: ignore[union-attr]


def test_bounds_are_those_of_all_merits_that_unseen_items_can_have() -> None:
    log = three_of_five(100, 0)
    hidden = np.where(np.isin(log.row_of_entry, [3, 4, 6]), 0, log.position)
    counts = replace(log, position=hidden, click=log.click & (hidden > 0)).compact()
    evidence = policy_aware_evidence(counts)
    exposure = torch.from_numpy(np.random.default_rng(0).random(10))
    low, high = list_disparity_bounds(exposure, evidence)
    candidates = replace(evidence.candidates, group=torch.tensor([0, 1] * 5))
    times = evidence.impressions[candidates.list_of_row]
    possible = []
    for relevance in itertools.product((0.0, 0.3, 1.0), repeat=3):
        weight = evidence.weight.clone()
        weight[[3, 4, 6]] = torch.tensor(relevance, dtype=torch.float64) * times[[3, 4, 6]]
        possible.append(list_disparities(exposure, replace(evidence, candidates=candidates, weight=weight)))
    together = torch.stack(possible)
    torch.testing.assert_close(low[:, 0, 1], together.amin(0)[:, 0, 1])
    torch.testing.assert_close(high[:, 0, 1], together.amax(0)[:, 0, 1])
    torch.testing.assert_close(low[:, 1, 0], -high[:, 0, 1])
    seen = merit_evidence(log.compact())
    assert all(
        torch.equal(bound, list_disparities(exposure, seen))
        for bound in list_disparity_bounds(exposure, seen)
    )


# the whole way


@pytest.mark.slow
def test_a_limit_that_is_reported_is_near_the_truth(varied: JobBoard) -> None:
    """With unseen candidates as merit 0, the disparity reported was below .1 and the true one above 10."""
    counts = varied.counts().shown_only()
    ranker = FairRanker(max_disparity=0.1).fit(counts)
    assert ranker.training_disparity_ <= 0.1
    assert ranker.position_bias_ == BIAS.cut(LONGEST_PAGE)
    useful = FairRanker(fairness_weight=0.0).fit(counts)
    fair_and_useful = [fultr.evaluate(one, varied.truth, intervals=None) for one in (ranker, useful)]
    fair, most = (abs(float(one.disparity)) for one in fair_and_useful)
    assert fair < 0.7 * most
    # 40 lists cannot tell much, and that is said
    assert ranker.new_queries_ is not None
    _, low, high = ranker.new_queries_["disparity"]
    assert low <= fair <= high


def test_an_evaluation_says_what_is_not_known(fixed: JobBoard) -> None:
    counts = fixed.counts()
    found = fultr.evaluate(RandomRanking(), counts)
    assert set(found.never_seen) == {"agency", "direct"}
    assert found.never_seen["direct"] > found.never_seen["agency"] > 0.2
    low, high = found.intervals["disparity"]
    truth = fultr.evaluate(RandomRanking(), fixed.truth, position_bias=BIAS.cut(20), intervals=None)
    assert float(low) < float(truth.disparity) < float(high)
    assert "of the candidates of direct were never shown: their merit is unknown" in str(found)
    assert found.to_dict()["never_seen"] == found.never_seen
    seen = fultr.evaluate(RandomRanking(), counts.shown_only())
    assert seen.never_seen == {}
    narrow = seen.intervals["disparity"]
    assert float(narrow[1]) - float(narrow[0]) < 0.5 * (float(high) - float(low))


def test_an_audit_bounds_what_is_not_known(fixed: JobBoard) -> None:
    counts = fixed.counts()
    found = audit(counts, {"shuffled": RandomRanking()}, max_disparity=1.0)
    truth = fultr.evaluate(RandomRanking(), fixed.truth, position_bias=BIAS.cut(20), intervals=None)
    (pair,) = found.rankings["shuffled"].pairs
    assert pair.disparity.low < float(truth.disparity) < pair.disparity.high
    assert pair.band[0] < float(truth.disparity) < pair.band[1]
    assert found.passes is False
    assert any("never shown: their merit is unknown" in note for note in found.notes)
    narrow = audit(counts.shown_only(), {"shuffled": RandomRanking()}).rankings["shuffled"].pairs[0]
    assert narrow.disparity.high - narrow.disparity.low < 0.5 * (pair.disparity.high - pair.disparity.low)


def test_candidates_that_were_never_shown_can_be_left_out(fixed: JobBoard) -> None:
    counts = fixed.counts()
    seen = counts.shown_only()
    assert 0 < seen.data.rows < counts.data.rows
    assert (seen.shown() > 0).all()
    assert seen.clicks().sum() == counts.clicks().sum()
    weights = [policy_aware_evidence(one).weight.numpy() for one in (seen, counts)]
    np.testing.assert_allclose(np.sort(weights[0]), np.sort(weights[1][counts.shown() > 0]))
    assert seen.shown_only() is seen
    found = disparity(torch.ones(seen.data.rows, dtype=torch.float64), policy_aware_evidence(seen))
    assert torch.isfinite(found).all()


def test_bounds_of_shares_hold_for_all_merits_that_unseen_items_can_have() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        exposure, merit, unknown = rng.random(3) + 0.1, rng.random(3) + 0.1, rng.random(3) * [1, 0, 3]
        low, high = exposure_ratio_bounds(exposure, merit, unknown)
        least, most = exposure_to_move_bounds(exposure, merit, unknown)
        for more in itertools.product((0.0, 0.4, 1.0), repeat=3):
            known = merit + np.array(more) * unknown
            ratios = exposure_ratios(exposure, known)
            beside = ~np.eye(3, dtype=np.bool_)
            assert (low[beside] <= ratios[beside] + 1e-12).all()
            assert (ratios[beside] <= high[beside] + 1e-12).all()
            assert least - 1e-12 <= exposure_to_move(exposure, known) <= most + 1e-12
    two = exposure_ratio_bounds(np.ones(2), np.ones(2), np.zeros(2))
    assert np.array_equal(two[0], two[1])


def test_ratios_and_shares_of_an_evaluation_hold_whatever_was_never_shown(fixed: JobBoard) -> None:
    counts = fixed.counts()
    logged = audit(counts).logged
    times = counts.impressions / counts.impressions.sum()
    of_row = np.repeat(times, counts.data.lengths)
    # what was logged, beside the true merit of all candidates
    exposure = counts.logged_exposure() / counts.impressions.sum()
    order = {name: row for row, name in enumerate(np.asarray(fixed.truth.doc_id).tolist())}
    assert fixed.truth.relevance is not None
    rows = [order[name] for name in np.asarray(counts.data.doc_id).tolist()]
    relevance = fixed.truth.relevance[rows] * of_row
    sums = [
        [values[counts.data.group == code].sum() for code in range(2)] for values in (exposure, relevance)
    ]
    ratio = float(exposure_ratios(np.array(sums[0]), np.array(sums[1]))[0, 1])
    move = float(exposure_to_move(np.array(sums[0]), np.array(sums[1])))
    (pair,) = logged.pairs
    assert pair.exposure_ratio.low < ratio < pair.exposure_ratio.high
    assert logged.exposure_to_move.low < move < logged.exposure_to_move.high


def test_devices_with_short_pages_hide_nothing_that_others_show() -> None:
    log = three_of_five(400, 3)
    phone = np.arange(len(log)) % 2 == 0
    hidden = (log.position > 1) | (log.row_of_entry == 0)
    position = np.where(phone[log.impression_of_entry] & hidden, 0, log.position)
    short = replace(log, position=position, click=log.click & (position > 0), position_bias=None)
    parts = []
    for value, chosen in (("desk", ~phone), ("phone", phone)):
        part = short[np.flatnonzero(chosen)].compact()
        context = np.zeros(len(part.data), dtype=np.int64)
        parts.append(replace(part, context=context, context_name="device", context_values=(value,)))
    apart = fultr.merge(*parts)
    curves = PositionBiasByContext("device", {"desk": BIAS, "phone": BIAS})
    together = merge_contexts(apart.with_bias_by_context(curves))
    assert len(together.data) == 2 < len(apart.data)
    assert (together.shown() > 0).all()
    assert (apart.shown() == 0).any()
    expected = replace(short, position_bias=BIAS).compact()
    np.testing.assert_allclose(policy_aware_evidence(together).weight, policy_aware_evidence(expected).weight)
