"""Ranking SVMs on clicks: against scikit-learn on explicit pairs, the definition, and a simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from fultr import (
    ClickLog,
    InputError,
    PositionBias,
    RandomRanking,
    RankingDataset,
    datasets,
    simulate_clicks,
)
from fultr.baselines import cutting_plane
from fultr.baselines.cutting_plane import Planes, Tangent, minimise, spread_shares
from fultr.baselines.svm_rank import L2, ClickSVMRank, PairwiseHinge, PropensitySVMRank, SVMRank
from fultr.policy import FixedScorer
from fultr.training.models import LinearModel
from fultr.training.scaling import Scaling
from tests.ranker_contract import Candidate, Contract, clicks_on, lists
from tests.training_tasks import BIAS, random_lists, random_log

Array = NDArray[np.float64]

BOTH = (PropensitySVMRank, ClickSVMRank)


def made(ranker: type[SVMRank], **settings: Any) -> Any:
    """Return a function that makes a ranker with these settings and those of a test."""
    known = {"l2": 0.1, "position_bias": BIAS, **settings}
    return lambda **more: ranker(**{**known, **more})


CANDIDATES = {
    "propensities": Candidate(made(PropensitySVMRank)),
    "propensities, l2 chosen": Candidate(made(PropensitySVMRank, l2=None)),
    "clicks": Candidate(made(ClickSVMRank)),
    "full information": Candidate(made(PropensitySVMRank), labelled=True),
}


@pytest.fixture(params=CANDIDATES)
def candidate(request: pytest.FixtureRequest) -> Candidate:
    return CANDIDATES[request.param]


class TestSVMRank(Contract):
    """All tests of the contract."""


def pairs(data: RankingDataset, weight: Array) -> tuple[Array, Array]:
    """x_i - x_y and the weight of i, for all items i that weigh anything and all others y of their list."""
    differences, weights = [], []
    features = data.features.astype(np.float64)
    for start, stop in pairwise(data.offsets.tolist()):
        for item in range(start, stop):
            for other in range(start, stop):
                if other != item and weight[item] > 0:
                    differences.append(features[item] - features[other])
                    weights.append(weight[item])
    return np.array(differences), np.array(weights)


def objective(data: RankingDataset, weight: Array, l2: float, parameters: Array) -> float:
    """l2 |w|^2 / 2 + the sum over pairs of weight max(0, 1 - w (x_i - x_y)), in double precision."""
    differences, weights = pairs(data, weight)
    hinges = np.maximum(0.0, 1.0 - differences @ parameters)
    return float(l2 / 2 * parameters @ parameters + weights @ hinges)


def reference(data: RankingDataset, weight: Array, l2: float) -> Array:
    """Return the best parameters by scikit-learn."""
    differences, weights = pairs(data, weight)
    sign = np.where(np.arange(weights.size) % 2 == 0, 1.0, -1.0)
    # a classifier with C = 1 / l2; its weights are relative to the largest, which keeps its steps even
    classifier = LinearSVC(
        C=weights.max() / l2, loss="hinge", fit_intercept=False, tol=1e-7, max_iter=1_000_000, random_state=0
    )
    classifier.fit(differences * sign[:, None], sign, sample_weight=weights / weights.max())
    return np.asarray(classifier.coef_[0], dtype=np.float64)


def parameters_of(ranker: SVMRank) -> Array:
    return np.asarray(ranker.scorer_.scorer.weight.numpy(), dtype=np.float64)


def loss_on(data: RankingDataset, weight: Array) -> PairwiseHinge:
    return PairwiseHinge(LinearModel(data, Scaling.none(data)), weight)


def random_weights(rows: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return rng.exponential(size=rows) * (rng.random(rows) < 0.4)


class TestAgainstScikitLearn:
    """The minimum is the one that LinearSVC finds on explicit pairs."""

    @pytest.mark.parametrize("l2", [1.0, 0.03])
    @pytest.mark.parametrize("ranker", BOTH)
    def test_the_minimum_is_the_same(self, ranker: type[SVMRank], l2: float) -> None:
        log = random_log(random_lists(lists=20), impressions=200)
        counts = log.compact()
        weighted = ranker is PropensitySVMRank
        weight = counts.ips_weights(BIAS) if weighted else counts.clicks()
        weight = weight / log.click.sum()
        trained = ranker(l2=l2, position_bias=BIAS, valid_share=0).fit(log)
        wanted = reference(counts.data, weight, l2)
        lowest = objective(counts.data, weight, l2, wanted)
        reached = objective(counts.data, weight, l2, parameters_of(trained))
        assert reached == pytest.approx(lowest, rel=1e-3)
        assert reached <= lowest * (1 + trained.gap_ + 1e-6)
        near = 0.03 * float(np.linalg.norm(wanted))
        np.testing.assert_allclose(parameters_of(trained), wanted, atol=near)
        assert trained.gap_ <= 1e-4

    def test_labelled_lists_weigh_by_relevance(self) -> None:
        data, l2 = random_lists(lists=20), 0.3
        assert data.relevance is not None
        weight = data.relevance.astype(np.float64) / data.relevance.sum(dtype=np.float64)
        lowest = objective(data, weight, l2, reference(data, weight, l2))
        for ranker in BOTH:
            trained = ranker(l2=l2, position_bias=BIAS, valid_share=0).fit(data)
            assert objective(data, weight, l2, parameters_of(trained)) == pytest.approx(lowest, rel=1e-3)

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("l2", [100.0, 1.0, 1e-2, 1e-4])
    def test_the_gap_is_certified(self, seed: int, l2: float) -> None:
        data = random_lists(lists=15, longest=7, width=6, seed=seed)
        weight = random_weights(data.rows, seed)
        found = minimise(loss_on(data, weight), l2, Planes(6), np.zeros(6))
        assert found.gap <= 1e-4
        assert found.value == pytest.approx(objective(data, weight, l2, found.parameters), rel=1e-6)
        # the bound is below the value of any parameters, those of the best known among them
        rng = np.random.default_rng(seed)
        others = [found.parameters * scale for scale in (0.9, 1.1)]
        others += [found.parameters + rng.normal(size=6) * 0.01 for _ in range(20)]
        if l2 >= 1:
            others.append(reference(data, weight, l2))
        assert found.bound <= min(objective(data, weight, l2, point) for point in others) * (1 + 1e-6)


class TestDefinition:
    """The compiled loss and its slopes, against plain loops and differences."""

    @staticmethod
    def plain(scores: Array, weight: Array, offsets: NDArray[np.int64]) -> float:
        total = 0.0
        for start, stop in pairwise(offsets.tolist()):
            for item in range(start, stop):
                others = [other for other in range(start, stop) if other != item]
                total += weight[item] * sum(max(0.0, 1 - (scores[item] - scores[o])) for o in others)
        return total

    @pytest.mark.parametrize("seed", range(5))
    def test_loss_and_slopes(self, seed: int) -> None:
        data = random_lists(lists=9, longest=8, seed=seed)
        weight = random_weights(data.rows, seed)
        scores = np.random.default_rng(seed).normal(size=data.rows) * 2
        found = loss_on(data, weight).tangent(scores)
        assert found.value == pytest.approx(self.plain(scores, weight, data.offsets), rel=1e-12)
        assert found.offset + found.by_score @ scores == pytest.approx(found.value, rel=1e-12)
        step = 1e-6
        for row in range(data.rows):
            moved = [scores.copy(), scores.copy()]
            moved[0][row] -= step
            moved[1][row] += step
            low, high = (self.plain(each, weight, data.offsets) for each in moved)
            assert found.by_score[row] == pytest.approx((high - low) / (2 * step), abs=1e-6)

    def test_the_plane_is_nowhere_above_the_loss(self) -> None:
        data = random_lists(lists=9, longest=8)
        loss = loss_on(data, random_weights(data.rows, 1))
        rng = np.random.default_rng(0)
        # integers, so that many pairs stand right at the kink
        points = rng.integers(-2, 3, size=(30, data.rows)).astype(np.float64)
        for here in points:
            found = loss.tangent(here)
            for there in points:
                assert found.offset + found.by_score @ there <= loss.tangent(there).value + 1e-9

    def test_the_subgradient_by_the_parameters(self) -> None:
        data = random_lists(lists=9)
        loss = loss_on(data, random_weights(data.rows, 1))
        slopes = np.random.default_rng(0).normal(size=data.rows)
        np.testing.assert_allclose(loss.pull_back(slopes), slopes @ data.features, rtol=1e-4, atol=1e-5)
        parameters = np.arange(4.0)
        np.testing.assert_allclose(loss.scores(parameters), data.features @ parameters, atol=1e-5)

    def test_lists_of_one_item_cost_nothing(self) -> None:
        data = RankingDataset(np.ones((3, 1)), [0, 1, 2, 3])
        found = loss_on(data, np.ones(3)).tangent(np.array([1.0, -5.0, 3.0]))
        assert (found.value, found.offset, found.by_score.tolist()) == (0.0, 0.0, [0.0, 0.0, 0.0])


class Distance:
    """R(w) = |w - centre|_1; with l2 |w|^2 / 2 each w is best at its centre, but not beyond 1 / l2."""

    def __init__(self, centre: Array) -> None:
        self.centre = centre

    def scores(self, parameters: Array) -> Array:
        return parameters

    def tangent(self, scores: Array) -> Tangent:
        sign = np.sign(scores - self.centre)
        return Tangent(float(np.abs(scores - self.centre).sum()), float(-sign @ self.centre), sign)

    def pull_back(self, by_score: Array) -> Array:
        return by_score


class TestCuttingPlanes:
    """The method itself, on problems with known solutions."""

    @pytest.mark.parametrize("l2", [10.0, 1.0, 0.1])
    def test_a_closed_form(self, l2: float) -> None:
        centre = np.array([3.0, -0.5, 0.0, 0.7, -8.0])
        found = minimise(Distance(centre), l2, Planes(5), np.zeros(5))
        wanted = np.clip(centre, -1 / l2, 1 / l2)
        lowest = l2 / 2 * wanted @ wanted + np.abs(wanted - centre).sum()
        assert found.bound <= lowest * (1 + 1e-12)
        assert lowest <= found.value * (1 + 1e-12)
        assert found.gap <= 1e-4
        np.testing.assert_allclose(found.parameters, wanted, atol=0.1)

    def test_planes_of_one_problem_serve_the_next(self) -> None:
        data = random_lists(lists=15, longest=7, width=6)
        loss, planes, start = loss_on(data, random_weights(data.rows, 0)), Planes(6), np.zeros(6)
        for l2 in (100.0, 10.0, 1.0, 0.1, 0.01):
            alone = Planes(6)
            wanted = minimise(loss, l2, alone, np.zeros(6))
            before = len(planes)
            found = minimise(loss, l2, planes, start)
            start = found.parameters
            assert found.value == pytest.approx(wanted.value, rel=2e-4)
        assert len(planes) - before < len(alone)

    def test_a_gap_that_is_left_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = random_lists(lists=15, longest=7, width=6)
        weight = random_weights(data.rows, 0)
        lowest = minimise(loss_on(data, weight), 0.01, Planes(6), np.zeros(6))
        monkeypatch.setattr(cutting_plane, "MOST_ROUNDS", 5)
        found = minimise(loss_on(data, weight), 0.01, Planes(6), np.zeros(6))
        assert found.bound <= lowest.value
        assert found.value >= lowest.bound
        assert found.gap > 1e-3

    def test_coarse_steps_do_not_keep_the_bound_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cutting_plane, "HALVINGS", 1)
        data = random_lists(lists=15, longest=7, width=6)
        weight = random_weights(data.rows, 0)
        assert minimise(loss_on(data, weight), 0.01, Planes(6), np.zeros(6)).gap <= 1e-4

    @pytest.mark.parametrize("l2", [1e-4, 1.0, 1e6])
    @pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
    def test_units_of_features_do_not_matter(self, l2: float, size: float) -> None:
        data = random_lists(lists=15, longest=7, width=6)
        weight = random_weights(data.rows, 0)
        stretched = replace(data, features=(data.features * size).astype(np.float32))
        wanted = minimise(loss_on(data, weight), l2, Planes(6), np.zeros(6))
        # with w / size and l2 size^2 the problem is the same
        found = minimise(loss_on(stretched, weight), l2 * size**2, Planes(6), np.zeros(6))
        assert found.gap <= 1e-4
        assert found.value == pytest.approx(wanted.value, rel=2e-4)
        high = minimise(loss_on(stretched, weight), 1e12, Planes(6), np.zeros(6))
        assert high.gap <= 1e-4

    @pytest.mark.parametrize("count", [1, 2, 4, 6])
    @pytest.mark.parametrize("width", [1, 3, 8])
    @pytest.mark.parametrize("seed", range(3))
    def test_shares_are_the_best_of_all_supports(self, count: int, width: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        gradients = rng.normal(size=(count, width))
        products, gains = gradients @ gradients.T, rng.normal(size=count)

        def value(shares: Array) -> float:
            return float(shares @ products @ shares / 2 - gains @ shares)

        best = np.inf
        for size in range(1, count + 1):
            for support in map(list, combinations(range(count), size)):
                system = np.ones((size + 1, size + 1))
                system[:-1, :-1], system[-1, -1] = products[np.ix_(support, support)], 0.0
                free = np.linalg.lstsq(system, np.append(gains[support], 1.0), rcond=None)[0][:-1]
                if (free >= -1e-9).all() and free.sum() == pytest.approx(1.0):
                    shares = np.zeros(count)
                    shares[support] = free
                    best = min(best, value(shares))
        for start in (np.eye(count)[seed % count], np.full(count, 1 / count)):
            found = spread_shares(products, gains, start, 1e-10)
            assert (found >= 0).all()
            assert found.sum() == pytest.approx(1.0)
            assert value(found) == pytest.approx(best, abs=1e-8)

    @pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
    def test_planes_that_repeat_or_differ_in_height_alone(self, size: float) -> None:
        gradients = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]) * size
        gains = np.array([0.0, 2.0, 1.0, 2.0, 2.0]) * size**2
        found = spread_shares(gradients @ gradients.T, gains, np.eye(5)[0], 0.0)
        assert found[[0, 2]] == pytest.approx([0.0, 0.0], abs=1e-9)
        assert found[1] == pytest.approx(0.5)
        assert found[3:].sum() == pytest.approx(0.5)


class TestClicks:
    """What a click counts for."""

    def test_without_position_bias_the_two_are_one(self) -> None:
        log, test = clicks_on(lists()), lists(seed=9)
        everywhere = PositionBias.power(0.0)
        found = [ranker(position_bias=everywhere).fit(log).predict(test) for ranker in BOTH]
        np.testing.assert_array_equal(found[0], found[1])
        found = [ranker(position_bias=BIAS, l2=0.1).fit(log).predict(test) for ranker in BOTH]
        assert np.abs(found[0] - found[1]).max() > 1e-3

    def test_weights_clipped_at_one_are_clicks(self) -> None:
        log, test = clicks_on(lists()), lists(seed=9)
        clipped = PropensitySVMRank(position_bias=BIAS, clip=1.0).fit(log)
        plain = ClickSVMRank(position_bias=BIAS).fit(log)
        assert clipped.l2_ == plain.l2_
        np.testing.assert_array_equal(clipped.predict(test), plain.predict(test))

    def test_clicks_that_show_all_relevance_train_as_labels_do(self) -> None:
        data = datasets.synthetic(queries=30, features=5, seed=0).train
        starts = data.offsets[:-1]
        position = np.arange(data.rows) - starts[data.list_of_row] + 1
        assert data.relevance is not None
        log = ClickLog(data, np.arange(len(data)), position, data.relevance > 0)
        everywhere = PositionBias.power(0.0)
        once, other = (
            PropensitySVMRank(l2=1.0, position_bias=everywhere, valid_share=0).fit(source)
            for source in (log, data)
        )
        # the log merges its lists in another order, so that sums are rounded otherwise
        assert parameters_of(once) == pytest.approx(parameters_of(other), abs=0.01)

    def test_the_loss_is_a_mean_over_clicks(self) -> None:
        log, test = clicks_on(lists()), lists(seed=9)
        counts = log.compact()
        cells = counts.cells
        doubled = replace(
            counts,
            impressions=2 * counts.impressions,
            clicked_impressions=2 * counts.clicked_impressions,
            cells=replace(cells, impressions=2 * cells.impressions, clicks=2 * cells.clicks),
        )
        settings: dict[str, Any] = {"l2": 0.1, "position_bias": BIAS, "valid_share": 0}
        once, twice = (PropensitySVMRank(**settings).fit(each).predict(test) for each in (counts, doubled))
        np.testing.assert_allclose(once, twice, atol=1e-6)

    def test_scaled_features_are_trained_on(self) -> None:
        data = lists()
        stretched = data.features * np.array([1, 1000, 0.001, 1]) + 5
        odd = replace(data, features=stretched.astype(np.float32))
        settings: dict[str, Any] = {"l2": 0.1, "position_bias": BIAS, "valid_share": 0}
        scaled = PropensitySVMRank(scale_features=True, **settings)
        np.testing.assert_allclose(
            scaled.fit(data).predict(data), clone(scaled).fit(odd).predict(odd), atol=0.02
        )
        np.testing.assert_array_equal(
            scaled.fit(odd).predict(odd), PropensitySVMRank(**settings).fit(odd).predict(odd)
        )

    @pytest.mark.parametrize("seed", range(3))
    def test_a_high_cost_leaves_the_direction_of_the_mean_difference(self, seed: int) -> None:
        data = random_lists(lists=15, seed=seed)
        assert data.relevance is not None
        differences, weights = pairs(data, data.relevance.astype(np.float64))
        wanted = weights @ differences
        found = parameters_of(PropensitySVMRank(l2=1e5, position_bias=BIAS, valid_share=0).fit(data))
        cosine = wanted @ found / np.linalg.norm(wanted) / np.linalg.norm(found)
        assert cosine > 1 - 1e-6


class TestChoice:
    """How l2 is chosen on validation clicks."""

    @pytest.mark.parametrize(("features", "costs"), [(12, [1000.0, 1.0]), (80, [100.0, 0.1])])
    @pytest.mark.parametrize("ranker", BOTH)
    def test_the_best_ranking_of_validation_clicks_is_chosen(
        self, ranker: type[SVMRank], features: int, costs: list[float]
    ) -> None:
        data = datasets.synthetic(queries=40, features=features, seed=0)
        log, valid = (
            simulate_clicks(part, RandomRanking(), BIAS, clicks=120, seed=seed)
            for seed, part in enumerate((data.train, data.valid))
        )
        counts = valid.compact()
        weight = counts.ips_weights(BIAS) if ranker is PropensitySVMRank else counts.clicks()
        values = []
        for cost in costs:
            alone = ranker(l2=cost).fit(log, valid=valid)
            values.append(float((weight / np.log2(1 + alone.rank(counts.data))).sum()))
        assert abs(values[0] - values[1]) > 0.01 * max(values)  # or else accuracy could decide
        assert ranker(l2=costs).fit(log, valid=valid).l2_ == costs[int(np.argmax(values))]

    def test_of_equal_rankings_the_one_of_the_highest_cost_is_chosen(self) -> None:
        log = random_log(random_lists(lists=30, width=2))
        alone = replace(log.data, features=log.data.features[:, :1], feature_names=("x",), group_columns=())
        for costs in ([0.5, 8.0, 2.0], [8.0, 0.5]):
            assert PropensitySVMRank(l2=costs).fit(replace(log, data=alone)).l2_ == 8.0

    def test_costs_to_choose_from_by_default(self) -> None:
        trained = PropensitySVMRank().fit(clicks_on(lists()))
        assert trained.l2_ in L2
        assert trained.gap_ <= 1e-4
        assert trained.n_features_in_ == 4

    def test_settings_are_parameters(self) -> None:
        ranker = PropensitySVMRank(l2=[1.0, 2.0], clip=5.0, seed=3)
        assert clone(ranker).get_params() == ranker.get_params()
        assert "clip" not in ClickSVMRank().get_params()


@pytest.mark.statistical
def test_propensities_make_up_for_a_logging_policy_that_errs() -> None:
    """Joachims, Swaminathan and Schnabel (2017): under position bias, clicks counted as one teach worse."""
    gains = []
    for seed in range(5):
        data = datasets.synthetic(queries=200, features=12, test_queries=300, seed=seed)
        # what it puts at the top has nothing to do with relevance, and is always the same
        weights = np.random.default_rng(seed).normal(size=12).astype(np.float32)
        log = simulate_clicks(data.train, FixedScorer(weights.__rmatmul__), BIAS, clicks=8000, seed=seed)
        found = [ranker().fit(log).evaluate(data.test).dcg for ranker in BOTH]
        gains.append(found[0] - found[1])
    assert min(gains) > 0
    assert np.mean(gains) > 3 * np.std(gains, ddof=1) / np.sqrt(len(gains))


class TestBadInput:
    """What cannot be trained with is refused with one sentence."""

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"l2": 0.0}, "above 0"),
            ({"l2": [1.0, 0.0]}, "above 0"),
            ({"l2": -1.0}, "l2"),
            ({"l2": float("nan")}, "l2"),
            ({"l2": float("inf")}, "l2"),
            ({"l2": "much"}, "l2"),
            ({"l2": []}, "l2"),
            ({"valid_share": 0}, "l2 must be a single number"),
            ({"valid_share": 0, "l2": [1.0, 2.0]}, "l2 must be a single number"),
            ({"valid_share": 1.0}, "less than 1"),
            ({"position_bias": 1.0}, "PositionBias"),
            ({"scale_features": "yes"}, "True or False"),
            ({"seed": -1}, "seed"),
        ],
    )
    @pytest.mark.parametrize("ranker", BOTH)
    def test_settings(self, ranker: type[SVMRank], settings: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            ranker(**settings).fit(clicks_on(lists()))

    def test_clip(self) -> None:
        for clip in (0.0, 0.5):
            with pytest.raises(InputError, match="clip"):
                PropensitySVMRank(clip=clip).fit(clicks_on(lists()))

    @pytest.mark.parametrize("ranker", BOTH)
    def test_nothing_to_learn_from(self, ranker: type[SVMRank]) -> None:
        log = clicks_on(lists())
        silent = replace(log, click=np.zeros_like(log.click))
        with pytest.raises(InputError, match="nothing to learn an order from"):
            ranker().fit(silent)
        single = RankingDataset(np.ones((5, 2)), np.arange(6), relevance=np.ones(5), query_id=np.arange(5))
        with pytest.raises(InputError, match="nothing to learn an order from"):
            ranker(position_bias=BIAS).fit(single)
        with pytest.raises(InputError, match="no validation item was clicked"):
            ranker().fit(log, valid=silent)
        assert ranker(l2=1.0).fit(log, valid=silent).l2_ == 1.0

    def test_lists_without_features_relevance_or_position_bias(self) -> None:
        data = lists()
        with pytest.raises(InputError, match="no features"):
            PropensitySVMRank(position_bias=BIAS).fit(RankingDataset(np.empty((3, 0)), [0, 3]))
        with pytest.raises(InputError, match="relevance"):
            PropensitySVMRank(position_bias=BIAS).fit(replace(data, relevance=None))
        with pytest.raises(InputError, match="position_bias"):
            PropensitySVMRank().fit(data)

    def test_features_too_large_for_their_numbers(self) -> None:
        data = lists()
        huge = replace(data, features=data.features * np.float32(1e30))
        with pytest.raises(InputError, match="scale features"):
            PropensitySVMRank(position_bias=BIAS, scale_features=False, l2=1.0).fit(huge)
        assert PropensitySVMRank(position_bias=BIAS, l2=1.0).fit(huge).gap_ <= 1e-4

    @pytest.mark.slow
    def test_a_quarter_of_a_million_clicks_are_solved(self) -> None:
        data = datasets.german_credit(seed=0).train
        log = simulate_clicks(data, RandomRanking(), BIAS, clicks=250_000, seed=0)
        trained = PropensitySVMRank(l2=[0.1, 1.0]).fit(log)
        assert log.click.sum() >= 250_000
        assert trained.gap_ <= 1e-4

    def test_training_that_did_not_end_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cutting_plane, "MOST_ROUNDS", 2)
        with pytest.warns(ConvergenceWarning, match="larger l2"):
            ranker = PropensitySVMRank(l2=0.01).fit(clicks_on(lists()))
        assert ranker.gap_ > 1e-3
