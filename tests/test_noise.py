from __future__ import annotations

import numpy as np
import pytest

from fultr import (
    ClickLog,
    ClickNoise,
    InputError,
    Planting,
    PositionBias,
    RandomRanking,
    RankingDataset,
    estimate_noise,
    simulate_clicks,
)
from fultr.data import Planted

BIAS = PositionBias.power(1.0)


def log_with_planted(position: np.ndarray, click: np.ndarray, **fields: object) -> ClickLog:
    data = RankingDataset([[0.0]], [0, 1])
    planted = Planted(np.arange(position.size), position.astype(np.int32), click.astype(np.bool_))
    return ClickLog(
        data=data,
        lists=np.zeros(position.size, dtype=np.int64),
        position=np.full(position.size, 6),
        click=np.zeros(position.size, dtype=np.bool_),
        planted=planted,
        **fields,  # type: ignore[arg-type]
    )


def test_at_position_one_the_interval_is_wilsons() -> None:
    click = np.arange(50) < 7
    estimate = estimate_noise(log_with_planted(np.ones(50), click), BIAS)
    z, n, p = 1.959963984540054, 50, 7 / 50
    centre, half = (
        (p + z * z / (2 * n)) / (1 + z * z / n),
        z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)),
    )
    assert estimate.eps_minus == pytest.approx(p)
    assert (estimate.low, estimate.high) == pytest.approx((centre - half, centre + half))
    assert (estimate.planted, estimate.clicks) == (50, 7)


@pytest.mark.statistical
@pytest.mark.parametrize("eps", [0.02, 0.1, 0.3])
def test_interval_covers_the_true_noise(eps: float) -> None:
    """T6: eps- is recovered from planted items; its interval covers in 93 to 97% of 2,000 repetitions."""
    rng = np.random.default_rng(11)
    repetitions, planted = 2_000, 3_600
    covered, estimates = 0, []
    for _ in range(repetitions):
        position = rng.integers(1, 6, size=planted)
        estimate = estimate_noise(log_with_planted(position, rng.random(planted) < eps / position), BIAS)
        covered += estimate.low <= eps <= estimate.high
        estimates.append(estimate.eps_minus)
    print(f"T6, eps- = {eps}: coverage {covered / repetitions:.1%}, mean estimate {np.mean(estimates):.4f}")
    assert 0.93 <= covered / repetitions <= 0.97
    assert abs(np.mean(estimates) - eps) <= 3 * np.std(estimates) / np.sqrt(repetitions)


@pytest.mark.statistical
def test_simulated_intervention_recovers_the_noise() -> None:
    data = RankingDataset(np.zeros((200, 1)), np.arange(0, 201, 10), relevance=np.tile([1, 0, 0, 0, 0], 40))
    log = simulate_clicks(
        data,
        RandomRanking(),
        BIAS,
        noise=ClickNoise(1.0, 0.1),
        impressions=60_000,
        planting=Planting(0.1),
        seed=1,
    )
    raw, compact = estimate_noise(log), estimate_noise(log.compact())
    assert raw.low < 0.1 < raw.high
    assert compact.to_dict() == pytest.approx(raw.to_dict())


def test_logged_propensities_are_used() -> None:
    log = log_with_planted(np.ones(100), np.arange(100) < 10)
    halved = ClickLog(
        data=log.data,
        lists=log.lists,
        position=log.position,
        click=log.click,
        propensity=np.full(log.entries, 0.5),
        planted=Planted(log.planted.impression, log.planted.position, log.planted.click, np.full(100, 0.5)),
    )
    assert estimate_noise(halved).eps_minus == pytest.approx(0.2)


def test_no_clicks_and_all_clicks_give_sensible_intervals() -> None:
    none = estimate_noise(log_with_planted(np.ones(30), np.zeros(30)), BIAS)
    assert none.eps_minus == none.low == 0
    assert 0 < none.high < 0.2
    every = estimate_noise(log_with_planted(np.full(30, 2), np.ones(30)), BIAS)
    assert every.eps_minus == every.high == 1


@pytest.mark.statistical
def test_noise_by_position_is_recovered_and_its_intervals_cover() -> None:
    """The interval of each position covers in 95% of 1,000 repetitions, within 2% and four errors."""
    rng = np.random.default_rng(3)
    true, repetitions = {1: 0.4, 2: 0.2, 4: 0.1}, 1_000
    covered, estimates = dict.fromkeys(true, 0), []
    for _ in range(repetitions):
        position = rng.choice([1, 2, 4], size=1_500)
        chance = np.array([true[k] / k for k in position.tolist()])
        estimate = estimate_noise(
            log_with_planted(position, rng.random(1_500) < chance), BIAS, by_position=True
        )
        for k, one in estimate.positions.items():
            covered[k] += one.low <= true[k] <= one.high
        estimates.append([one.eps_minus for one in estimate.positions.values()])
    shares = np.array(list(covered.values())) / repetitions
    print(f"eps- by position: coverage {shares}, mean estimates {np.mean(estimates, axis=0)}")
    assert (np.abs(shares - 0.95) <= 0.02 + 4 * np.sqrt(0.05 * 0.95 / repetitions)).all()
    error = np.std(estimates, axis=0) / np.sqrt(repetitions)
    assert (np.abs(np.mean(estimates, axis=0) - list(true.values())) <= 4 * error).all()


def test_noise_by_position_is_that_of_the_items_planted_there() -> None:
    position = np.repeat([2, 5, 7], [40, 50, 10])
    click = np.concatenate([np.arange(40) < 8, np.arange(50) < 1, np.zeros(10)])
    log = log_with_planted(position, click)
    bias = PositionBias([1, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    both = estimate_noise(log, bias, by_position=True)
    assert [*both.positions] == [2, 5]
    for k, one in both.positions.items():
        apart = estimate_noise(log_with_planted(position[position == k], click[position == k]), bias)
        assert {**apart.to_dict(), "level": None} == {**vars(one), "level": None}
    noise = both.to_click_noise(0.9)
    assert noise.eps_minus == pytest.approx([0.4, 0.4, 0.3, 0.2, 0.1])
    assert noise.at(7) == noise.at(5)
    plain = both.to_dict()
    assert [row["position"] for row in plain["positions"]] == [2, 5]
    alone = estimate_noise(log, bias)
    assert alone.to_dict() == {name: value for name, value in plain.items() if name != "positions"}
    assert alone.to_click_noise() == ClickNoise(1.0, alone.eps_minus)


def test_what_cannot_be_estimated_is_refused() -> None:
    log = log_with_planted(np.ones(3), np.zeros(3))
    with pytest.raises(InputError, match="no planted item"):
        estimate_noise(log[np.array([], dtype=np.int64)], BIAS)
    with pytest.raises(InputError, match="neither propensities nor a position bias"):
        estimate_noise(log)
    with pytest.raises(InputError, match="were dropped"):
        estimate_noise(log_with_planted(np.ones(3), np.zeros(3), empties_dropped=True), BIAS)
    with pytest.raises(InputError, match="column 'level'"):
        estimate_noise(log, BIAS, level=1.0)
