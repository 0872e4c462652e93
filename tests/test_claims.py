"""What the paper says of its estimators, T1 to T5 of the claims, shown by exact sums and simulated clicks.

`pytest -s` prints the numbers compared. Logs have a fixed number of impressions, empty ones included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fultr import (
    ClickLog,
    ClickNoise,
    FixedScorer,
    PlackettLuce,
    PositionBias,
    RankingDataset,
    simulate_clicks,
)
from fultr.estimators import (
    Evidence,
    InverseMerit,
    correct_noise,
    disparity,
    evidence_from_relevance,
    group_exposure,
    group_merit,
    inverse_merit_from_clicks,
    inverse_merit_from_relevance,
    noise_corrected_disparity,
    per_impression_ratio_disparity,
    ratio_of_sums_disparity,
    utility,
    weights_at,
)
from tests.reference import all_rankings, evidence_by_row, plackett_luce_probability

pytestmark = pytest.mark.statistical

BIAS = PositionBias.power(1.0)
LONGEST = 5
GAIN = 1 / np.log2(1 + np.arange(1, LONGEST + 1))
EXAMINATION = BIAS.curve(LONGEST)[1:]
# rankings are logged by another policy than those whose utility and disparity are estimated
LOGGING = PlackettLuce(lambda features: features[:, 0])


def world(lists: int = 12, seed: int = 3) -> RankingDataset:
    """Lists of 3 to 5 items; group 0 is smaller, less relevant, and ranked lower by both policies."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, LONGEST + 1, size=lists)
    group = (rng.random(lengths.sum()) < 0.6).astype(np.int64)
    group[rng.random(group.size) < 0.1] = -1
    return RankingDataset(
        rng.normal(size=(group.size, 2)) + np.array([0.5, 1.5]) * group[:, None],
        np.cumsum([0, *lengths]),
        group=group,
        group_names=("first", "second"),
        relevance=rng.random(group.size) < np.where(group == 0, 0.5, 0.7),
    )


def expected_weights(data: RankingDataset, weights: NDArray[np.float64]) -> Tensor:
    """E[f(rank)] of each row under the Plackett-Luce model of the second feature, over all rankings."""
    found = np.zeros(data.rows)
    for number, start in enumerate(data.offsets[:-1]):
        scores = [float(score) for score in data[number].features[:, 1]]
        for ranking in all_rankings(len(scores)):
            probability = plackett_luce_probability(scores, ranking)
            found[start + np.array(ranking)] += probability * weights[: len(scores)]
    return torch.from_numpy(found)


@dataclass(frozen=True)
class ManyLogs:
    """A long log cut into independent ones of `size` impressions, each over a copy of the lists of its own.

    They are held as one log, since estimating from one log of many lists is faster than from many logs.
    """

    log: ClickLog
    lists: int
    size: int

    @classmethod
    def cut(cls, log: ClickLog, size: int) -> ManyLogs:
        lists, data = len(log.data), log.data
        copies = len(log) // size
        tiled = data[np.tile(np.arange(lists), copies)]
        return cls(
            ClickLog(
                tiled,
                lists=log.lists + lists * (np.arange(len(log)) // size),
                position=log.position,
                click=log.click,
                position_bias=log.position_bias,
            ),
            lists,
            size,
        )

    @property
    def slices(self) -> list[slice]:
        """The lists of each log."""
        return [slice(start, start + self.lists) for start in range(0, len(self.log.data), self.lists)]

    def evidence(self, **options: Any) -> list[Evidence]:
        together = evidence_by_row(self.log, **options)
        return [together[lists] for lists in self.slices]

    def inverse_merit(self) -> list[InverseMerit]:
        together = inverse_merit_from_clicks(self.log)
        numbers = torch.arange(len(self.log.data))
        return [
            InverseMerit(together.candidates[numbers[lists]], together.sums[lists], float(self.size))
            for lists in self.slices
        ]


def simulated(
    data: RankingDataset, impressions: int, noise: ClickNoise | None = None, seed: int = 0
) -> ClickLog:
    return simulate_clicks(data, LOGGING, BIAS, noise=noise, impressions=impressions, seed=seed)


def bias_of(
    estimates: list[list[float]], truth: list[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean over logs of estimates less the truth, and its standard error."""
    errors = np.array(estimates) - truth
    return errors.mean(0), errors.std(0, ddof=1) / np.sqrt(len(errors))


def show(
    claim: str,
    names: list[str],
    truth: list[float],
    bias: NDArray[np.float64],
    error: NDArray[np.float64],
) -> None:
    for name, true, off, deviation in zip(names, truth, bias, error, strict=True):
        mean = f"mean estimate {true + off:+.5f}, bias {off / deviation:+.2f} standard errors"
        print(f"{claim} {name}: true {true:+.5f}, {mean}")


def mean_merit(evidence: Evidence) -> list[float]:
    means: list[float] = (group_merit(evidence).sum(0) / evidence.total_impressions).tolist()
    return means


def test_t1_utility_merit_and_disparity_from_clicks_are_unbiased() -> None:
    data = world()
    value, exposure = expected_weights(data, GAIN), expected_weights(data, EXAMINATION)

    def estimates(evidence: Evidence) -> list[float]:
        return [
            float(utility(value, evidence)),
            *mean_merit(evidence),
            float(disparity(exposure, evidence)[0, 1]),
        ]

    truth = estimates(evidence_from_relevance(data))
    log = simulated(data, 2 * 65_536)
    many = ManyLogs.cut(log, 64)
    bias, error = bias_of([estimates(one) for one in many.evidence()], truth)
    show("T1", ["U", "M_first", "M_second", "D"], truth, bias, error)
    assert (np.abs(bias) < 3 * error).all()
    # and the simulation is sharp enough to see what counting clicks without their propensity would do
    without = many.evidence(position_bias=PositionBias.power(0.0))
    naive, error = bias_of([estimates(one) for one in without], truth)
    show("T1 without propensities", ["U", "M_first", "M_second", "D"], truth, naive, error)
    assert (np.abs(naive[:3]) > 20 * error[:3]).all()
    assert np.abs(naive[3]) > 5 * error[3]


def test_t2_ratios_are_biased_and_that_of_sums_less_so_with_more_data() -> None:
    data = world()
    exposure = expected_weights(data, EXAMINATION)
    relevant = evidence_from_relevance(data)
    names = ["D", "D'", "D''"]
    truth = [
        float(disparity(exposure, relevant)[0, 1]),
        float(ratio_of_sums_disparity(exposure, relevant)[0, 1]),
        float(per_impression_ratio_disparity(exposure, inverse_merit_from_relevance(data))[0, 1]),
    ]

    def estimates(evidence: Evidence, inverse: InverseMerit) -> list[float]:
        return [
            float(disparity(exposure, evidence)[0, 1]),
            float(ratio_of_sums_disparity(exposure, evidence)[0, 1]),
            float(per_impression_ratio_disparity(exposure, inverse)[0, 1]),
        ]

    log = simulated(data, 2 * 65_536)
    found = {}
    for size in (32, 128, 512):
        many = ManyLogs.cut(log, size)
        pairs = zip(many.evidence(), many.inverse_merit(), strict=True)
        found[size] = bias_of([estimates(*pair) for pair in pairs], truth)
    for size, (bias, error) in found.items():
        show(f"T2 N = {size}", names, truth, bias, error)
        assert abs(bias[0]) < 3 * error[0]
        assert abs(bias[2]) > 10 * error[2]
    of_sums, per_impression = ({size: abs(found[size][0][which]) for size in found} for which in (1, 2))
    assert of_sums[32] > 5 * found[32][1][1]
    assert of_sums[128] < of_sums[32] / 2
    assert of_sums[512] < of_sums[32] / 4
    # linear in the impressions: the bias of the mean of ratios is the same for any number of them
    assert per_impression[512] == pytest.approx(per_impression[32], rel=1e-6)


def test_t3_the_ratio_of_sums_is_the_disparity_and_two_covariances() -> None:
    largest = 0.0
    for seed in range(50):
        data = world(lists=20, seed=seed)
        evidence = evidence_from_relevance(data)
        exposure = expected_weights(data, EXAMINATION)
        exposed, merit = group_exposure(exposure, evidence).numpy(), group_merit(evidence).numpy()

        def covariance(
            i: int, j: int, exposed: NDArray[np.float64] = exposed, merit: NDArray[np.float64] = merit
        ) -> float:
            return float(np.mean((exposed[:, i] - exposed[:, i].mean()) * (merit[:, j] - merit[:, j].mean())))

        expected = (
            float(disparity(exposure, evidence)[0, 1]) + covariance(1, 0) - covariance(0, 1)
        ) / merit.mean(0).prod()
        found = float(ratio_of_sums_disparity(exposure, evidence)[0, 1])
        largest = max(largest, abs(found - expected))
    print(f"T3 largest difference over 50 random data sets: {largest:.1e}")
    assert largest < 1e-9


def test_t4_false_clicks_add_a_group_size_term_that_the_correction_removes() -> None:
    data, noise = world(), ClickNoise(eps_plus=0.9, eps_minus=0.15)
    exposure, relevant = expected_weights(data, EXAMINATION), evidence_from_relevance(data)
    true = float(disparity(exposure, relevant)[0, 1])
    exposed = group_exposure(exposure, relevant)
    sizes = relevant.candidates.sum_by_group(torch.ones(data.rows, dtype=torch.float64))
    size_term = float((sizes[:, 1] * exposed[:, 0] - sizes[:, 0] * exposed[:, 1]).mean())
    plus, minus = noise.at(1)
    scaled = (plus - minus) * true
    truth = [scaled + minus * size_term, scaled, true]

    def estimates(evidence: Evidence) -> list[float]:
        raw = noise_corrected_disparity(exposure, evidence, noise=noise, rescale=False)
        return [
            float(disparity(exposure, evidence)[0, 1]),
            float(raw[0, 1]),
            float(noise_corrected_disparity(exposure, evidence, noise=noise)[0, 1]),
        ]

    log = simulated(data, 2 * 65_536, noise)
    many = ManyLogs.cut(log, 256)
    bias, error = bias_of([estimates(one) for one in many.evidence()], truth)
    print(f"T4 true D {true:+.5f}, (eps+ - eps-) D {scaled:+.5f}, group-size term {size_term:+.5f}")
    show("T4", ["uncorrected", "corrected, the paper's", "corrected, in units of D"], truth, bias, error)
    assert (np.abs(bias) < 3 * error).all()
    assert abs(minus * size_term) > 10 * error[0]


def test_t4_holds_for_clipped_weights_and_items_left_out() -> None:
    """Only items that can be clicked have noise, and a clipped click carries less of it."""
    data, noise = world(), ClickNoise(eps_plus=0.9, eps_minus=0.15)
    irrelevant = RankingDataset(
        data.features,
        data.offsets,
        group=data.group,
        group_names=data.group_names,
        relevance=np.zeros(data.rows),
    )
    log = simulate_clicks(irrelevant, LOGGING, BIAS, noise=noise, impressions=65_536, top_k=3)
    for clip in (None, 2.0):
        many = ManyLogs.cut(log, 256).evidence(clip=clip)
        merits = [mean_merit(correct_noise(one, noise)) for one in many]
        mean, error = np.mean(merits, axis=0), np.std(merits, axis=0, ddof=1) / np.sqrt(len(merits))
        print(f"T4 merit of irrelevant items, clip {clip}: {mean} +- {error}")
        assert (np.abs(mean) < 3 * error).all()


def test_t5_noise_keeps_the_order_by_utility_but_not_by_disparity() -> None:
    """One list: an item of the first group and three of the second; one of each is relevant.

    Policy "fair" puts the first group's item on top, policy "unfair" does so in two rankings of five and
    otherwise puts it second.
    """
    data = RankingDataset(np.zeros((4, 1)), [0, 4], group=[0, 1, 1, 1], relevance=[1, 1, 0, 0])
    on_top, second = np.array([1, 2, 3, 4]), np.array([2, 3, 1, 4])
    share = {"fair": 1.0, "unfair": 0.4}

    def of_policies(weights: NDArray[np.float64]) -> Tensor:
        top, below = weights_at(on_top, weights), weights_at(second, weights)
        return torch.stack([part * top + (1 - part) * below for part in share.values()])

    value, exposure = of_policies(GAIN), of_policies(EXAMINATION)
    noise = ClickNoise(eps_plus=1.0, eps_minus=0.3)
    relevant = evidence_from_relevance(data)
    as_they_are = FixedScorer(lambda features: -np.arange(len(features)))
    log = simulate_clicks(data, as_they_are, BIAS, noise=noise, impressions=65_536, seed=0)
    parts = ManyLogs.cut(log, 256).evidence()

    def over_logs(estimate: Callable[[Evidence], Tensor]) -> tuple[Tensor, Tensor]:
        many = torch.stack([estimate(part) for part in parts])
        gap = many[:, 0] - many[:, 1]
        return many.mean(0), gap.mean() / (gap.std() / len(parts) ** 0.5)

    def size_of(evidence: Evidence) -> Tensor:
        return disparity(exposure, evidence)[:, 0, 1]

    true_utility, true_disparity = utility(value, relevant), size_of(relevant)
    noisy_utility, utility_gap = over_logs(lambda part: utility(value, part))
    noisy_disparity, _ = over_logs(size_of)
    corrected, _ = over_logs(lambda part: size_of(correct_noise(part, noise)))
    print(f"T5 utility of fair and unfair: true {true_utility.tolist()}, with noise {noisy_utility.tolist()}")
    print(f"T5 disparity of fair and unfair: true {true_disparity.tolist()}, with noise")
    print(f"   {noisy_disparity.tolist()}, corrected {corrected.tolist()}")
    assert true_utility[0] > true_utility[1]
    assert utility_gap > 10
    assert true_disparity[0].abs() < true_disparity[1].abs()
    assert noisy_disparity[0].abs() > noisy_disparity[1].abs() + 0.1
    assert corrected[0].abs() < corrected[1].abs() - 0.1
    # the expectations under noise, from the formulas
    sizes = 3 * exposure[:, 0] - exposure[:, 1:].sum(-1)
    expected = 0.7 * true_disparity + 0.3 * sizes
    assert expected[0].abs() > expected[1].abs()
    np.testing.assert_allclose(noisy_disparity, expected, atol=0.03)
    np.testing.assert_allclose(noisy_utility, 0.7 * true_utility + 0.3 * value.sum(-1), atol=0.03)
