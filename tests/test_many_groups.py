"""Audits of hundreds of groups: pairs in blocks, and a line where there are too many."""

from __future__ import annotations

import resource
import sys
from dataclasses import replace

import numpy as np
import pytest

from fultr import ClickLog, InputError, RankingDataset
from fultr.audits import audit
from fultr.evaluation import bootstrap
from fultr.evaluation.bootstrap import resampled_errors, separate_intervals, simultaneous_intervals
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


def test_more_pairs_than_anyone_could_read_are_refused() -> None:
    with pytest.raises(InputError, match=r"column 'group'.*1,000 groups.*499,500 pairs.*Merge small groups"):
        audit(log_of(1000), position_bias=BIAS)


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
