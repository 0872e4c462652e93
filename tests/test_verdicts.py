"""Paired intervals, and what they say of a claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

from fultr.experiments.figure_2 import utilities_at
from fultr.experiments.statistics import Estimate, estimate, ratio, slopes
from fultr.experiments.verdicts import (
    FAILS,
    HOLDS,
    UNDECIDED,
    EffectFinding,
    Verdict,
    above_zero,
    all_of,
    below_zero,
    differs,
    inside,
    not_reduced,
)


def test_the_interval_of_a_mean_is_that_of_scipy() -> None:
    values = np.random.default_rng(0).normal(1.0, 2.0, size=10)
    found = estimate(values)
    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.mean == pytest.approx(values.mean())
    assert found.splits == 10


def test_a_difference_is_paired() -> None:
    rng = np.random.default_rng(1)
    common = rng.normal(0.0, 10.0, size=12)
    ours, theirs = common + rng.normal(1.0, 0.5, size=12), common
    found = estimate(ours - theirs)
    low, high = ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.above


def test_one_split_decides_nothing() -> None:
    found = estimate([3.0])
    assert (found.mean, found.low, found.high) == (3.0, -math.inf, math.inf)
    assert above_zero("", found).outcome == UNDECIDED
    assert EffectFinding("", found, UNDECIDED).to_dict()["interval"] is None


@pytest.mark.statistical
def test_intervals_of_a_ratio_cover_it() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(2_000):
        lower = rng.normal(2.0, 0.6, size=10)
        upper = 0.7 * lower + rng.normal(0.0, 0.4, size=10)
        found = ratio(upper, lower)
        covered += found.low <= 0.7 <= found.high
    # 95% of 2,000 has a standard error of 0.5%
    assert 0.935 < covered / 2_000 < 0.965


def test_the_ratio_to_what_may_be_nothing_is_not_known() -> None:
    rng = np.random.default_rng(3)
    found = ratio(rng.normal(1.0, 0.1, size=8), rng.normal(0.0, 1.0, size=8))
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert math.isnan(ratio([1.0, 2.0], [0.0, 0.0]).mean)


def test_an_exact_ratio_has_no_width() -> None:
    found = ratio([5.0, 5.5, 6.0], [10.0, 11.0, 12.0])
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_slopes_are_those_of_least_squares() -> None:
    values = np.random.default_rng(4).normal(size=(5, 4))
    across = [0.0, 1.0, 3.0, 7.0]
    expected = [np.polyfit(across, row, 1)[0] for row in values]
    np.testing.assert_allclose(slopes(values, across), expected)


@pytest.mark.parametrize(
    ("bounds", "above", "below", "different", "within"),
    [
        ((0.1, 0.3), HOLDS, FAILS, HOLDS, HOLDS),
        ((-0.3, -0.1), FAILS, HOLDS, HOLDS, FAILS),
        ((-0.1, 0.1), UNDECIDED, UNDECIDED, UNDECIDED, UNDECIDED),
        ((0.2, 0.9), HOLDS, FAILS, HOLDS, UNDECIDED),
        ((0.6, 0.9), HOLDS, FAILS, HOLDS, FAILS),
    ],
)
def test_an_interval_decides_or_does_not(
    bounds: tuple[float, float], above: str, below: str, different: str, within: str
) -> None:
    low, high = bounds
    measured = Estimate((low + high) / 2, low, high, 10)
    assert above_zero("", measured).outcome == above
    assert below_zero("", measured).outcome == below
    assert differs("", measured).outcome == different
    assert inside("", measured, 0.0, 0.5).outcome == within


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.0, 0.0, HOLDS),  # the start itself is the lowest
        (-0.1, 0.2, HOLDS),
        (0.3, 0.5, HOLDS),
        (-0.3, -0.1, FAILS),
        (-0.9, 0.2, UNDECIDED),
    ],
)
def test_what_may_have_halved_is_not_known_to_be_unreduced(low: float, high: float, outcome: str) -> None:
    assert not_reduced("", Estimate((low + high) / 2, low, high, 10), start=1.0).outcome == outcome


def test_utilities_are_compared_at_equal_disparity() -> None:
    roots = np.array([[0.8, 0.4, 0.2], [0.8, 0.4, 0.2]])
    utilities = np.array([[1.0, 0.8, 0.4], [0.5, 0.8, 0.4]])
    # between two policies; and where a fairer policy is the more useful one, it counts
    assert utilities_at(np.array([0.6, 0.6]), roots, utilities) == pytest.approx([0.9, 0.8])
    assert utilities_at(np.array([0.2, 0.3]), roots, utilities) == pytest.approx([0.4, 0.6])


@pytest.mark.parametrize(
    ("outcomes", "together"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([HOLDS, UNDECIDED, FAILS], FAILS),
        ([UNDECIDED], UNDECIDED),
    ],
)
def test_a_claim_holds_if_all_of_it_does(outcomes: list[str], together: str) -> None:
    assert all_of(outcomes) == together
    measured = Estimate(1.0, 0.5, 1.5, 10)
    verdict = Verdict(
        "X", "says", "data", "queries", tuple(EffectFinding("", measured, one) for one in outcomes)
    )
    assert verdict.outcome == together
    assert verdict.to_dict()["verdict"] == together
