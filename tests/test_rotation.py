"""A few rankings to show in turn, whose mean exposure is that of the policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fultr import FairRanker, FixedScorer, InputError, PlackettLuce, PositionBias, RandomRanking, count
from fultr.baselines import ExposureLP
from fultr.data import RankingDataset
from fultr.expectation import examination_weights
from fultr.policy.rotation import expected_exposure, rotated_positions
from tests.weekly_jobs import BIAS, week_of_jobs


def lists_of(lengths: list[int], seed: int = 0, spread: float = 1.0) -> RankingDataset:
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    return RankingDataset(
        spread * rng.normal(size=(rows, 1)),
        np.cumsum([0, *lengths]),
        group=rng.integers(2, size=rows),
        group_names=("agency", "direct"),
    )


def by_feature(features: NDArray[np.float32]) -> NDArray[np.float32]:
    return features[:, 0]


def off(positions: NDArray[np.int32], target: NDArray[np.float64], data: RankingDataset) -> float:
    """Return how far the exposure of groups is from a target, list by list."""
    mean = BIAS.curve(int(data.lengths.max()))[positions].mean(axis=0)
    cell = data.list_of_row * 2 + data.group
    return float(np.abs(np.bincount(cell, weights=mean - target)).mean())


@pytest.mark.statistical
@pytest.mark.parametrize("n", [4, 8, 16])
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_groups_are_nearer_to_their_exposure_than_by_draws(n: int, spread: float) -> None:
    data = lists_of([2, 5, 10, 20, 50] * 8, spread=spread)
    policy = PlackettLuce(by_feature)
    target = expected_exposure(policy.predict(data), data.offsets, examination_weights(BIAS, 50))
    chosen = off(policy.rotation(data, n, position_bias=BIAS), target, data)
    drawn = np.mean([off(policy.sample_rankings(data, n, seed=seed), target, data) for seed in range(20)])
    assert chosen < (0.9 if n < 8 else 0.6) * drawn


def test_the_mean_is_off_by_one_over_n() -> None:
    data = lists_of([20] * 50)
    policy = PlackettLuce(by_feature)
    target = expected_exposure(policy.predict(data), data.offsets, examination_weights(BIAS, 20))
    errors = [n * off(policy.rotation(data, n, position_bias=BIAS), target, data) for n in (4, 16, 64)]
    assert max(errors) < 2 * min(errors)


def test_each_is_a_ranking_and_the_seed_decides_between_equals() -> None:
    data = lists_of([3, 1, 6], spread=0.0)
    found = RandomRanking().rotation(data, 6, position_bias=BIAS)
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        assert (np.sort(found[:, start:stop], axis=1) == np.arange(1, stop - start + 1)).all()
    np.testing.assert_array_equal(found, RandomRanking().rotation(data, 6, position_bias=BIAS, seed=0))
    assert (found != RandomRanking().rotation(data, 6, position_bias=BIAS, seed=1)).any()
    # each of six equal items is first once
    assert sorted(found[:, 4:].argmin(axis=1).tolist()) == [0, 1, 2, 3, 4, 5]


def test_only_what_is_shown_counts() -> None:
    data = lists_of([30] * 20)
    policy = PlackettLuce(by_feature)
    found = policy.rotation(data, 16, position_bias=PositionBias([1.0, 0.5, 0.3], beyond="zero"), top_k=3)
    assert found.max() == 3
    weights = examination_weights(BIAS, 30, top_k=3)
    target = expected_exposure(policy.predict(data), data.offsets, weights)
    found = policy.rotation(data, 16, position_bias=BIAS, top_k=3)
    drawn = policy.sample_rankings(data, 16, top_k=3, seed=0)
    errors = [np.abs(BIAS.curve(3)[one].mean(axis=0) - target).mean() for one in (found, drawn)]
    assert errors[0] < 0.5 * errors[1]


def test_a_fixed_ranking_stays_as_it_is() -> None:
    data = lists_of([4, 7])
    policy = FixedScorer(by_feature)
    np.testing.assert_array_equal(
        policy.rotation(data, 5, position_bias=BIAS), np.tile(policy.rank(data), (5, 1))
    )


def test_a_trained_policy_knows_its_bias_and_keeps_its_disparity() -> None:
    log = count(week_of_jobs(1), position_bias=BIAS)
    ranker = FairRanker(10.0, l2=1.0).fit(log)
    target = expected_exposure(ranker.predict(log.data), log.data.offsets, examination_weights(BIAS, 20))

    def disparity(exposure: NDArray[np.float64]) -> float:
        data, merit = log.data, log.ips_weights() / np.repeat(log.impressions, log.data.lengths)
        of_group: list[Any] = [
            [np.bincount(data.list_of_row, values * (data.group == group)) for group in (0, 1)]
            for values in (merit, exposure)
        ]
        merits, exposures = of_group
        return float(
            (log.impressions * (merits[1] * exposures[0] - merits[0] * exposures[1])).sum()
            / log.impressions.sum()
        )

    curve = BIAS.curve(20)
    of_policy, of_modes = disparity(target), disparity(curve[ranker.rank(log.data)])
    of_rotation = disparity(curve[ranker.rotation(log.data, 8)].mean(axis=0))
    assert abs(of_rotation - of_policy) < 0.2 * abs(of_modes - of_policy)


def test_policies_known_by_their_probabilities_can_be_rotated() -> None:
    log = count(week_of_jobs(1, queries=range(10), impressions=40), position_bias=BIAS)
    ranker = ExposureLP(l2=0.1).fit(log)
    data = log.data[:5]
    found = ranker.rotation(data, 8)
    target = ranker.position_probabilities(data) @ examination_weights(BIAS, int(data.lengths.max()))
    assert np.abs(BIAS.curve(20)[found].mean(axis=0) - target).mean() < 0.05


def test_errors_say_what_is_wrong() -> None:
    data = lists_of([3])
    with pytest.raises(InputError, match="'position_bias'.*give one"):
        PlackettLuce(by_feature).rotation(data)
    with pytest.raises(InputError, match="'n'"):
        PlackettLuce(by_feature).rotation(data, 0, position_bias=BIAS)
    with pytest.raises(InputError, match="beyond the position bias"):
        PlackettLuce(by_feature).rotation(data, position_bias=PositionBias([1.0, 0.5]))


def test_debts_never_grow() -> None:
    data = lists_of([10] * 5)
    weights = examination_weights(BIAS, 10)
    target = expected_exposure(data.features[:, 0].astype(float), data.offsets, weights)
    found = rotated_positions(target, data.offsets, 500, weights, np.zeros(data.rows))
    owed = np.cumsum(target - weights[found - 1], axis=0)
    assert np.ptp(owed, axis=0).max() < 2.0
