"""Curves of position bias that fall, their intervals and their tails, where the truth is known."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from fultr import PositionBias, count
from fultr.clicks import BiasEstimate, estimate_bias
from fultr.clicks.bias_curve import LEAST_SPREAD, PowerLaw, falling, fitted_power_law, widened
from fultr.clicks.bias_resampling import ResampledEvidence, settings_of
from tests.device_log import device_log

POWER = PositionBias.power(1.0)
LOGS = 25
"""Simulated logs that errors are means of."""

DEPTH = 30
"""A position that no log shows, where tails are compared."""

Array = NDArray[np.float64]


@cache
def estimates(impressions: int, shape: str) -> tuple[BiasEstimate, ...]:
    """Return estimates from logs of a job board with few clicks on deep positions."""
    logs = [count(device_log({"any": POWER}, impressions, seed=seed)) for seed in range(LOGS)]
    return tuple(
        estimate_bias(log, "harvest", randomised=True, resamples=200, shape=shape)  # type: ignore[call-overload]
        for log in logs
    )


def known_positions(estimate: BiasEstimate) -> NDArray[np.int64]:
    return np.flatnonzero(~np.isnan(estimate.values)) + 1


def squared_error(estimate: BiasEstimate) -> float:
    at = known_positions(estimate)
    return float(np.sum((np.array(estimate.values)[at - 1] - 1 / at) ** 2))


def found(clicks: Array, times: Array, shape: str, rng: np.random.Generator) -> BiasEstimate:
    """Return an estimate from numbers of clicks alone, as a method would sum them up."""
    drawn = np.maximum(rng.poisson(clicks, size=(200, clicks.size)), 1e-9) / times
    nothing = np.empty(0)
    return ResampledEvidence(
        method="swap",
        impressions=times.astype(np.int64),
        clicks=clicks.astype(np.int64),
        pairs=clicks.astype(np.int64),
        estimated=np.arange(clicks.size),
        logs=np.log(clicks / times) - np.log(clicks[0] / times[0]),
        resampled_logs=np.log(drawn) - np.log(drawn[:, :1]),
        residual=nothing,
        resampled_residual=np.empty((200, 0)),
        queries=100,
        deepest=clicks.size,
    ).summed_up(settings_of({"shape": shape}))


def test_the_falling_curve_is_that_of_isotonic_regression() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 30):
        values, weights = rng.random(size) * 1.5, rng.random(size) + 0.1
        model = IsotonicRegression(increasing=False, y_max=1.0)
        expected = model.fit(np.arange(size), values, sample_weight=weights).predict(np.arange(size))
        np.testing.assert_allclose(falling(values, weights), expected)
    np.testing.assert_allclose(falling(np.array([0.9, 0.5, 0.1]), np.ones(3)), [0.9, 0.5, 0.1])


def test_positions_are_pooled_by_their_clicks_over_their_examinations() -> None:
    clicks, times = np.array([1000.0, 400, 30, 20]), np.array([1000.0, 800, 100, 40])
    estimate = found(clicks, times, "monotone", np.random.default_rng(0))
    assert estimate.raw == pytest.approx([1, 0.5, 0.3, 0.5])
    # of the last two, all clicks over all examinations
    assert estimate.values == pytest.approx([1, 0.5, 50 / 140, 50 / 140], rel=0.05)
    free = found(clicks, times, "free", np.random.default_rng(0))
    assert free.values == free.raw == estimate.raw
    assert free.shape == "free"


@pytest.mark.statistical
@pytest.mark.parametrize("impressions", [800, 3_000])
def test_a_falling_curve_is_nearer_to_the_truth_than_free_estimates(impressions: int) -> None:
    monotone, free = (
        np.array([squared_error(one) for one in estimates(impressions, shape)])
        for shape in ("monotone", "free")
    )
    gain = free - monotone
    assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(LOGS)
    for one in estimates(impressions, "monotone"):
        values = np.array(one.values)[known_positions(one) - 1]
        assert (np.diff(values) <= 0).all()
        assert values[0] == 1


@pytest.mark.statistical
@pytest.mark.parametrize("impressions", [800, 3_000])
def test_intervals_of_the_falling_curve_hold_the_truth_as_often_as_they_say(impressions: int) -> None:
    shares = []
    for one in estimates(impressions, "monotone"):
        at = known_positions(one)[1:]
        low, high, values = (np.array(column)[at - 1] for column in (one.low, one.high, one.values))
        assert ((low <= values) & (values <= high)).all()
        shares.append(np.mean((low <= 1 / at) & (1 / at <= high)))
    error = np.std(shares, ddof=1) / np.sqrt(LOGS)
    assert 0.93 - 2 * error <= np.mean(shares) <= 0.99


@pytest.mark.statistical
@pytest.mark.parametrize(
    "true",
    [
        np.array([1.0, *[0.5] * 6, *[0.15] * 8]),
        np.array([1.0, *(0.3 + 0.7 * np.exp(-np.arange(1, 15) / 4))]),
        np.ones(15),
    ],
    ids=["steps", "flat end", "no bias"],
)
def test_intervals_also_hold_curves_that_are_flat(true: Array) -> None:
    """Where the truth is flat, percentiles alone hold it too rarely."""
    rng, times = np.random.default_rng(0), np.full(true.size, 400.0)
    held = []
    for _ in range(150):
        one = found(np.maximum(rng.poisson(times * true), 1.0), times, "monotone", rng)
        held.append((np.array(one.low) <= true) & (true <= np.array(one.high)))
    shares = np.mean(held, axis=1)
    assert shares.mean() >= 0.95 - 2.5 * shares.std(ddof=1) / np.sqrt(len(held))
    assert np.mean(held, axis=0).min() >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / len(held))


def test_intervals_are_wider_where_there_are_fewer_clicks() -> None:
    true, rng = 1 / np.arange(1, 11), np.random.default_rng(0)
    widths = []
    for times in (100.0, 1_000.0):
        one = found(times * true, np.full(10, times), "monotone", rng)
        widths.append((np.array(one.high) - np.array(one.low)) / np.array(one.values))
    assert (widths[0][1:] > 2 * widths[1][1:]).all()


def test_widened_intervals_hold_percentiles_and_their_mirror_image() -> None:
    low, high = widened(np.array([[0.4, 0.1, 0.9], [0.6, 0.5, 1.0]]), np.array([0.55, 0.2, 0.98]))
    assert low == pytest.approx([0.4, 0.2**2 / 0.5, 0.9])
    assert high == pytest.approx([0.7, 0.5, 1.0])


@pytest.mark.statistical
@pytest.mark.parametrize(("impressions", "most"), [(800, 0.4), (3_000, 0.15)])
def test_the_tail_does_not_hang_on_the_last_position(impressions: int, most: float) -> None:
    """The error of log v at position 30 is at most about half of what going on from the last value gives."""
    fitted, from_last = [], []
    for one in estimates(impressions, "monotone"):
        fitted.append(np.log(one.to_position_bias("power").at([DEPTH])[0] * DEPTH))
        last = int(known_positions(one)[-1])
        from_last.append(np.log(one.raw[last - 1] * (last / DEPTH) ** one.eta * DEPTH))
    fitted_error, last_error = (float(np.sqrt(np.mean(np.square(logs)))) for logs in (fitted, from_last))
    assert fitted_error < most
    assert fitted_error < 0.6 * last_error


def test_a_power_law_is_found_exactly_and_the_spread_is_what_errors_do_not_explain() -> None:
    positions = np.array([1, 2, 3, 5, 8])
    law = fitted_power_law(positions, 0.9 * positions**-0.7, np.full(5, 0.05))
    assert law == pytest.approx((0.9, 0.7, LEAST_SPREAD))
    two = fitted_power_law(np.array([1, 2]), np.array([1.0, 0.25]), np.array([0.0, 0.3]))
    assert (two.level, two.eta) == pytest.approx((1.0, 2.0))
    rng = np.random.default_rng(0)
    many = np.arange(1, 2_001)
    values: Array = 1 / many * np.exp(rng.normal(scale=0.5, size=many.size))
    assert fitted_power_law(many, values, np.full(many.size, 0.3)).spread == pytest.approx(0.4, rel=0.1)


def test_values_move_to_the_law_by_how_imprecise_they_are() -> None:
    law, positions = PowerLaw(1.0, 1.0, 0.1), np.array([1, 2, 4])
    moved = law.smoothed(positions, np.array([1.0, 0.6, 0.5]), np.array([0.0, 0.1, 10.0]))
    assert moved == pytest.approx([1.0, np.sqrt(0.6 * 0.5), 0.25], rel=1e-3)


@pytest.mark.statistical
def test_an_estimate_that_rises_by_more_than_chance_is_said() -> None:
    times = np.full(6, 1_000.0)
    bowed = found(np.array([1000.0, 300, 300, 600, 300, 100]), times, "monotone", np.random.default_rng(0))
    assert any("at positions 2, 3, 4" in note and "shape='free'" in note for note in bowed.notes)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        flat = found(rng.poisson(np.full(6, 200.0)).astype(float), times, "monotone", rng)
        assert not any("does not fall" in note for note in flat.notes)
