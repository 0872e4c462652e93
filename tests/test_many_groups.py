"""Audits of hundreds of groups: pairs in blocks, and the worst of too many."""

from __future__ import annotations

import resource
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_array

from fultr import ClickLog, InputError, RandomRanking, RankingDataset, evaluate, write_log
from fultr.audits import AUDIT, audit, pairs, read_audit, write_audit
from fultr.audits.pairs import MOST_PAIRS
from fultr.evaluation import bootstrap
from fultr.evaluation.bootstrap import (
    resampled_errors,
    resampled_sums,
    separate_intervals,
    simultaneous_intervals,
    sum_of_squares_bounds,
)
from tests.commands import result_of
from tests.training_tasks import BIAS, random_lists, random_log


def log_of(groups: int) -> ClickLog:
    """Return a log whose items are of as many groups, each of which has some."""
    data = random_lists(lists=300, longest=6, seed=1)
    group = np.arange(data.rows) % groups
    names = [f"group {code}" for code in range(groups)]
    return random_log(replace_groups(data, group, names), impressions=900)


def replace_groups(data: RankingDataset, group: np.ndarray, names: list[str]) -> RankingDataset:
    return replace(data, group=group, group_names=tuple(names))


@pytest.mark.slow
def test_a_hundred_groups_are_audited_in_bounded_memory() -> None:
    log = log_of(100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = audit(log, position_bias=BIAS, resamples=200)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (
        1 if sys.platform == "darwin" else 1024
    )
    assert len(found.logged.pairs) == 4950
    assert grown < 300 << 20


def test_separate_intervals_are_those_of_each_quantity_alone() -> None:
    rng = np.random.default_rng(1)
    contributions = rng.normal(size=(30, 6))
    contributions[:, 2] = 4.0
    drawn = resampled_errors(contributions, np.ones(30), np.arange(30), 80, 1)
    low, high = separate_intervals(drawn, 0.9)
    for column in range(6):
        alone = resampled_errors(contributions[:, [column]], np.ones(30), np.arange(30), 80, 1)
        ends = simultaneous_intervals(alone, level=0.9)
        np.testing.assert_allclose([low[column], high[column]], np.ravel(ends), rtol=1e-9)


def test_a_thousand_groups_are_audited_by_their_worst_pairs(tmp_path: Path) -> None:
    log = log_of(1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = audit(log, {"shuffled": RandomRanking()}, position_bias=BIAS, resamples=200, max_disparity=5.0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (
        1 if sys.platform == "darwin" else 1024
    )
    assert grown < 400 << 20
    exact = pairs_by_hand(log)
    kept = {(pair.first, pair.second): pair for pair in found.logged.pairs}
    assert len(kept) == MOST_PAIRS == len(found.rankings["shuffled"].pairs)
    assert found.logged.pairs_in_all == 499_500
    worst = np.argsort(-np.abs(exact), axis=None)[:100]
    for first, second in zip(*np.unravel_index(worst, exact.shape), strict=True):
        if first < second:
            value = kept[f"group {first}", f"group {second}"].disparity.value
            assert value == pytest.approx(exact[first, second], rel=1e-9)
    # the disparity is that of all pairs, kept or not
    assert found.logged.disparity.value == pytest.approx(np.sqrt((exact**2).sum() / 2), rel=1e-9)
    assert found.logged.disparity.high < 1.0
    assert any("there are 499,500 pairs of groups" in note for note in found.notes)
    write_audit(found, tmp_path)
    assert (tmp_path / AUDIT).stat().st_size < 20 << 20
    assert read_audit(tmp_path / AUDIT).to_dict() == found.to_dict()


def pairs_by_hand(log: ClickLog) -> np.ndarray:
    """Return D_ij of the logged ranking, list by list."""
    counts = log.compact()
    merit, exposure = counts.ips_weights(BIAS), counts.logged_exposure(BIAS)
    data, groups = counts.data, len(counts.data.group_names)
    total = np.zeros((groups, groups))
    for number, (start, stop) in enumerate(pairwise(data.offsets.tolist())):
        codes = data.group[start:stop]
        product = np.outer(exposure[start:stop] / counts.impressions[number], merit[start:stop])
        np.add.at(total, (codes[:, None], codes[None, :]), product - product.T)
    return np.asarray(total / counts.impressions.sum())


def test_the_terminal_shows_what_people_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(log_of(1000), tmp_path / "log.parquet")
    code, out, _ = result_of(capsys, "audit", tmp_path / "log.parquet", "--eta", 1)
    assert code == 0
    assert "By group: logged, the 20 of 1,000 furthest from their share of merit" in out
    assert "By pair of groups: logged, the worst 10 of 499,500" in out
    assert out.count("\n") < 60


def test_an_evaluation_of_a_thousand_groups_is_refused_in_a_line() -> None:
    log = log_of(1000)
    with pytest.raises(
        InputError, match="1,000 groups, whose 499,500 pairs are too many .* audit the policy"
    ):
        evaluate(RandomRanking(), log)
    assert len(evaluate(RandomRanking(), log_of(100), resamples=50).groups) == 100


def test_a_pair_that_meets_in_one_query_does_not_decide_the_interval_of_all() -> None:
    """A resample without that query has an error of rounding: the interval went up to 100 million."""
    contributions = np.zeros((300, 3))
    contributions[:, 0] = np.random.default_rng(0).normal(size=300)
    contributions[7, 1], contributions[11:13, 2] = 5.0, (3.0, 0.01)
    drawn = resampled_errors(contributions, np.ones(300), np.arange(300), 1000, 0)
    absent = np.abs(drawn.means[:, 1]) < 1e-15
    assert absent.any()
    assert (drawn.errors[absent, 1] == 0).all()
    for ends in (simultaneous_intervals(drawn), separate_intervals(drawn)):
        reach = (ends[1] - ends[0]) / 2
        assert (reach < 6 * drawn.error).all()
    for groups in (20, 200):
        assert audit(log_of(groups), position_bias=BIAS, resamples=200).logged.disparity.high < 1.0


@pytest.mark.statistical
def test_bands_of_pairs_that_seldom_meet_hold_and_are_not_wide() -> None:
    """20 groups, of which most pairs meet in 3 of 300 queries, and the true D_ij of a ranking by group."""
    truth = contributions_of(np.random.default_rng(0), queries=200_000).mean(axis=0)
    held, upper = [], []
    for seed in range(1, 31):
        contributions = contributions_of(np.random.default_rng(seed), queries=300)
        drawn = resampled_errors(contributions, np.ones(300), np.arange(300), 300, seed)
        low, high = simultaneous_intervals(drawn)
        met = contributions.any(axis=0)
        held.append(bool(((low <= truth) & (truth <= high))[met].all()))
        upper.append(sum_of_squares_bounds(low, high)[1] ** 0.5)
    assert np.mean(held) >= 0.9
    assert np.median(upper) < 2.5


def contributions_of(rng: np.random.Generator, queries: int, groups: int = 20, length: int = 6) -> np.ndarray:
    """Return D_ij of lists whose groups are of unequal size; earlier groups are preferred."""
    sizes = 1 / np.arange(1, groups + 1)
    group = rng.choice(groups, size=(queries, length), p=sizes / sizes.sum())
    order = np.argsort(group / groups - rng.gumbel(size=group.shape), axis=1)
    examined = 1 / (np.argsort(order, axis=1) + 1)
    weight = (rng.random(group.shape) < 0.4 * examined) / examined
    exposure, merit = np.zeros((2, queries, groups))
    for item in range(length):
        exposure[np.arange(queries), group[:, item]] += examined[:, item]
        merit[np.arange(queries), group[:, item]] += weight[:, item]
    first, second = np.triu_indices(groups, k=1)
    return merit[:, second] * exposure[:, first] - merit[:, first] * exposure[:, second]


def test_sparse_sums_of_queries_are_resampled_as_whole_ones() -> None:
    rng = np.random.default_rng(2)
    sums = rng.normal(size=(50, 40)) * (rng.random((50, 40)) < 0.1)
    totals = rng.integers(1, 9, size=50).astype(np.float64)
    dense, sparse = (resampled_sums(one, totals, 80, 3) for one in (sums, csc_array(sums)))
    for name in ("estimate", "error", "means", "errors"):
        np.testing.assert_allclose(getattr(sparse, name), getattr(dense, name), rtol=1e-7, atol=1e-12)


def test_pairs_are_the_same_kept_whole_or_sparse_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(8)
    whole = audit(log, {"shuffled": RandomRanking()}, position_bias=BIAS, resamples=60)
    monkeypatch.setattr(pairs, "DENSE_PAIRS", 0)
    monkeypatch.setattr(pairs, "MEETINGS_A_BLOCK", 50)
    monkeypatch.setattr(pairs, "PAIRS_A_BLOCK", 5)
    sparse = audit(log, {"shuffled": RandomRanking()}, position_bias=BIAS, resamples=60)
    for name, one in whole.rankings.items():
        other = sparse.rankings[name]
        assert other.disparity.high == pytest.approx(one.disparity.high, rel=1e-7)
        for mine, theirs in zip(one.pairs, other.pairs, strict=True):
            assert vars(theirs.disparity) == pytest.approx(vars(mine.disparity), rel=1e-7, abs=1e-12)
            assert theirs.band == pytest.approx(mine.band, rel=1e-7, abs=1e-12)


def test_blocks_of_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    contributions, weights = rng.normal(size=(40, 25)), rng.integers(1, 9, size=40)
    contributions[:, 3] = 0.0
    found = []
    for columns in (1000, 7, 1):
        monkeypatch.setattr(bootstrap, "COLUMNS_A_BLOCK", columns)
        drawn = resampled_errors(contributions, weights, np.arange(40), 60, 1)
        found.append((drawn.means, drawn.errors, drawn.error, *simultaneous_intervals(drawn)))
    for other in found[1:]:
        for mine, theirs in zip(other, found[0], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
