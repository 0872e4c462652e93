"""Offsets for the groups of any ranker: limits on the clicks, promises for new queries, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

import fultr
from fultr import InputError, PlackettLuce, PositionBias, RandomRanking, RankingDataset, fair_offsets
from fultr.estimators import evidence_from_clicks, evidence_from_relevance, list_disparities
from fultr.evaluation.bootstrap import resampled_errors
from fultr.evaluation.clustered import (
    Estimates,
    disparity_estimates,
    root_bounds,
    student_t,
    utility_estimates,
)
from fultr.evaluation.clusters import clusters_of
from fultr.expectation import examination_weights, expected_weights
from fultr.training.goals import squared
from fultr.training.offset_search import OffsetSearch
from fultr.training.task import Task, Weighing

BIAS = PositionBias.power(1.0)


def lists(count: int, seed: int, groups: int = 2, length: int = 6) -> RankingDataset:
    """Return lists whose first feature, the score of an old ranker, prefers the first group unduly."""
    rng = np.random.default_rng(seed)
    rows = count * length
    group = rng.integers(0, groups, size=rows)
    quality = rng.normal(size=rows)
    relevance = (rng.random(rows) < 1 / (1 + np.exp(1 - 1.5 * quality))).astype(np.float64)
    score = quality + 1.0 * (group == 0) - 0.5 * (group == 2) + 0.3 * rng.normal(size=rows)
    return RankingDataset(
        np.column_stack([score, quality]).astype(np.float32),
        np.arange(0, rows + 1, length),
        group=group,
        group_names=[f"g{code}" for code in range(groups)],
        relevance=relevance,
        query_id=np.arange(count),
        feature_names=("score", "quality"),
    )


def clicks_on(data: RankingDataset, each: int, seed: int) -> fultr.ClickLog:
    shown = RandomRanking()
    return fultr.simulate_clicks(data, shown, BIAS, impressions=each * len(data), seed=seed)


def exposure_of(policy: Any, data: RankingDataset) -> NDArray[np.float64]:
    weights = examination_weights(BIAS, int(data.lengths.max()))[None]
    scores = torch.from_numpy(policy.predict(data))
    return expected_weights(scores, weights, offsets=data.offsets, accuracy="double").numpy()


# limits


@pytest.mark.parametrize("groups", [2, 3])
def test_a_limit_holds_on_the_clicks_and_costs_as_little_as_can_be(groups: int) -> None:
    data = lists(200, seed=1, groups=groups)
    log = clicks_on(data, 10, seed=1)
    free = fair_offsets("score", log, max_disparity=10.0)
    plain = fultr.evaluate(_Known(free.apply(log.compact().data.features[:, 0], [None] * data.rows)), log)
    assert free.utility.value >= plain.dcg
    limit = np.sqrt(plain.disparity_squared) / 10
    assert free.disparity.value > limit
    policy = fair_offsets("score", log, max_disparity=limit)
    found = fultr.evaluate(policy, log, intervals=None)
    assert np.sqrt(found.disparity_squared) == pytest.approx(policy.disparity.value, abs=1e-6)
    assert policy.disparity.value <= limit
    assert found.dcg == pytest.approx(policy.utility.value, rel=1e-6)
    assert policy.offsets["g1"] > 0  # the first group is ranked lower than before
    if groups == 2:
        best = -np.inf
        for offset in np.linspace(0, 3 * policy.offsets["g1"], 31):
            scores = log.compact().data.features[:, 0] / policy.temperature
            scores = scores + offset * (log.compact().data.group == 1)
            tried = fultr.evaluate(_Known(scores), log, intervals=None)
            if abs(float(tried.disparity)) <= limit:
                best = max(best, tried.dcg)
        assert found.dcg >= best - 1e-3


@pytest.mark.parametrize("groups", [2, 3])
def test_offsets_that_are_searched_are_as_useful_as_those_of_a_grid(groups: int) -> None:
    """From no offsets at all, the search put one group of three above the others, and stayed there."""
    data = fultr.datasets.synthetic(queries=100, groups=groups, features=10, list_length=10, seed=1).train
    log = fultr.simulate_clicks(data, RandomRanking(), BIAS, clicks=600, seed=1).compact()
    task = Task.of(log, Weighing(position_bias=BIAS))
    search = OffsetSearch(task, 2 * np.random.default_rng(0).normal(size=task.data.rows))
    steps = np.linspace(-2.0, 6.0, 9)
    grid = np.stack(np.meshgrid(*[steps] * (groups - 1)), axis=-1).reshape(-1, groups - 1)
    utility, disparity = search.solver.measure(grid)
    for price in (0.0, 0.01, 0.1):
        found = search.solver.measure(search.priced(price)[None])
        best = (utility - price * squared(disparity)).max()
        assert found.utility[0] - price * squared(found.disparity)[0] >= best - 1e-3
    path = search.solver.measure(search.path)
    root = np.sqrt(squared(path.disparity))
    assert (np.diff(root) <= 1e-4).all()
    assert (np.diff(path.utility) <= 1e-4).all()
    assert root[-1] <= np.sqrt(squared(disparity)).min() + 1e-4
    assert np.unique(root.round(3)).size >= 8


class _Known:
    stochastic = True

    def __init__(self, scores: NDArray[np.float64]) -> None:
        self.scores = scores

    def predict(self, data: RankingDataset) -> NDArray[np.float64]:
        del data
        return self.scores


def test_any_ranker_will_do(tmp_path: Any) -> None:
    data = lists(80, seed=2)
    log = clicks_on(data, 5, seed=2)
    test = lists(30, seed=3)
    known = log.compact().data.features[:, 0].astype(np.float64)
    found = [
        fair_offsets(scores, log, max_disparity=0.1)
        for scores in ("score", lambda x: x[:, 0], PlackettLuce(lambda x: x[:, 0]), known)
    ]
    for policy in found:
        assert policy.offsets == pytest.approx(found[0].offsets)
    expected = found[0].apply(test.features[:, 0], [test.group_names[code] for code in test.group])
    for policy in found[:3]:
        np.testing.assert_allclose(policy.predict(test), expected, rtol=1e-6)
        assert policy.sample_rankings(test, n=2, seed=0).shape == (2, test.rows)
    with pytest.raises(InputError, match=r"apply\(scores, groups\)"):
        found[3].predict(test)
    # groups are known by their names, and items of no group have no offset
    named = fultr.RankingDataset(
        test.features,
        test.offsets,
        group=[("g0", "g1")[code] for code in 1 - test.group],
        group_names=("g1", "g0"),
        feature_names=("score", "quality"),
    )
    np.testing.assert_allclose(
        found[0].predict(named), found[0].apply(test.features[:, 0], np.array(["g0", "g1"])[1 - test.group])
    )
    nobody = found[0].apply(test.features[:, 0], [None] * test.rows)
    np.testing.assert_allclose(nobody, test.features[:, 0] / found[0].temperature, rtol=1e-5)
    assert "disparity at most" in repr(found[0])
    sharp = fair_offsets("score", log, max_disparity=0.1, temperature=0.2)
    assert sharp.temperature == 0.2
    frame = pl.DataFrame(
        {
            "impression_id": [1, 1, 2, 2] * 20,
            "query_id": np.repeat(np.arange(20), 4),
            "doc_id": [1, 2] * 40,
            "position": [1, 2, 2, 1] * 20,
            "click": [1, 0, 0, 1] * 20,
            "group": ["g0", "g1"] * 40,
            "score": [2.0, 1.0] * 40,
        }
    ).with_columns(impression_id=pl.int_range(80) // 2)
    assert fair_offsets("score", frame, max_disparity=5.0, position_bias=BIAS).utility.value > 0


def test_what_cannot_be_made_fair_is_said() -> None:
    data = lists(20, seed=4)
    log = clicks_on(data, 3, seed=4)
    with pytest.raises(InputError, match="column 'scores': there is no such feature"):
        fair_offsets("nothing", log, max_disparity=0.1)
    with pytest.raises(InputError, match="one score for each of"):
        fair_offsets(np.zeros(3), log, max_disparity=0.1)
    for options in (
        {"max_disparity": -1.0},
        {"max_disparity": 1, "confidence": 1.0},
        {"max_disparity": 1, "temperature": 0},
    ):
        with pytest.raises(InputError, match="must"):
            fair_offsets("score", log, **options)
    alone = fultr.RankingDataset(
        data.features, data.offsets, relevance=data.relevance, feature_names=("score", "q")
    )
    with pytest.raises(InputError, match="there are no two groups"):
        fair_offsets("score", clicks_on(alone, 3, seed=0), max_disparity=0.1)


# promises


def test_a_promise_that_cannot_be_made_says_what_can() -> None:
    log = clicks_on(lists(60, seed=5), 2, seed=5)
    with pytest.raises(
        fultr.UnsupportedLimitError, match="the lowest limit that can be promised is"
    ) as refused:
        fair_offsets("score", log, max_disparity=0.01, confidence=0.95)
    error = refused.value
    assert error.times == pytest.approx((error.lowest / 0.01) ** 2)
    policy = fair_offsets("score", log, max_disparity=error.lowest * 1.001, confidence=0.95)
    assert policy.disparity.high <= error.lowest * 1.001
    assert policy.confidence == 0.95
    with pytest.raises(fultr.UnsupportedLimitError, match="never can be"):
        fair_offsets("score", log, max_disparity=0.0, confidence=0.95)


@pytest.mark.statistical
def test_promises_are_kept_on_new_queries() -> None:
    """At most 5% of the limits that were promised are broken, and most could be promised."""
    population = lists(20_000, seed=6)[:4_000]
    limit, logs, made, broken = 0.3, 120, 0, 0
    for number in range(logs):
        log = clicks_on(lists(150, seed=1_000 + number), 4, seed=number)
        try:
            policy = fair_offsets("score", log, max_disparity=limit, confidence=0.95, temperature=0.5)
        except fultr.UnsupportedLimitError:
            continue
        made += 1
        found = fultr.evaluate(policy, population, intervals=None, accuracy="single", position_bias=BIAS)
        broken += abs(float(found.disparity)) > limit
    assert made > logs / 2
    assert broken <= 0.05 * made + 3 * np.sqrt(0.05 * 0.95 * made)


# errors


def test_errors_of_independent_queries_are_those_of_the_bootstrap() -> None:
    data = lists(50, seed=7, groups=3)
    log = clicks_on(data, 3, seed=7).compact()
    evidence = evidence_from_clicks(log, BIAS)
    exposure = exposure_of(PlackettLuce(lambda x: x[:, 0]), log.data)
    found = disparity_estimates(exposure, evidence, *clusters_of(log.data))
    first, second = np.triu_indices(3, k=1)
    contributions = list_disparities(torch.from_numpy(exposure[0]), evidence).numpy()[:, first, second]
    known = resampled_errors(contributions, log.impressions, log.data.query_codes, resamples=2)
    np.testing.assert_allclose(found.values, known.estimate, atol=1e-12)
    np.testing.assert_allclose(found.errors, known.error, rtol=1e-9)
    utility = utility_estimates(exposure, evidence, *clusters_of(log.data))
    by_list = np.add.reduceat(exposure[0] * evidence.weight.numpy(), log.data.offsets[:-1])[:, None]
    known = resampled_errors(by_list, log.impressions, log.data.query_codes, resamples=2)
    np.testing.assert_allclose([utility.values[0], utility.errors[0]], [known.estimate[0], known.error[0]])


def shared(seed: int, documents: int = 40, queries: int = 60) -> RankingDataset:
    """Return lists that draw their candidates from one catalogue."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, size=documents)
    relevance = (rng.random(documents) < 0.4).astype(np.float64)
    drawn = np.concatenate([rng.choice(documents, size=6, replace=False) for _ in range(queries)])
    features = rng.normal(size=(documents, 2)).astype(np.float32)
    return RankingDataset(
        features[drawn],
        np.arange(0, 6 * queries + 1, 6),
        group=group[drawn],
        group_names=("a", "b"),
        relevance=relevance[drawn],
        query_id=np.arange(queries),
        doc_id=drawn,
    )


def test_documents_that_queries_share_widen_errors() -> None:
    """Over 150 catalogues, the errors are what D really varies by; those of queries alone are too small."""
    values, errors, too_small = [], [], []
    for seed in range(150):
        data = shared(seed)
        evidence = evidence_from_relevance(data)
        exposure = exposure_of(RandomRanking(), data)
        clusters = clusters_of(data)
        assert clusters.of_row is not None
        found = disparity_estimates(exposure, evidence, *clusters)
        values.append(found.values[0])
        errors.append(found.errors[0])
        too_small.append(disparity_estimates(exposure, evidence, clusters.of_list, None).errors[0])
    spread = np.std(values)
    assert 0.85 * spread < np.sqrt(np.mean(np.square(errors))) < 1.3 * spread
    assert np.sqrt(np.mean(np.square(too_small))) < 0.75 * spread


def test_ids_that_only_number_the_candidates_of_a_query_connect_nothing() -> None:
    data = lists(30, seed=8)
    numbered = RankingDataset(
        data.features,
        data.offsets,
        group=data.group,
        query_id=data.query_id,
        doc_id=np.tile(np.arange(6), 30),
    )
    found = clusters_of(numbered)
    assert found.of_row is None
    assert np.unique(found.of_list).size == 30
    # queries in pairs that share their documents are clusters of two
    pairs = RankingDataset(
        np.repeat(data.features.reshape(30, 6, 2), 2, axis=0).reshape(-1, 2),
        np.arange(0, 361, 6),
        query_id=np.arange(60),
        doc_id=np.repeat(np.arange(180).reshape(30, 6), 2, axis=0).reshape(-1),
    )
    assert np.unique(clusters_of(pairs).of_list).size == 30


@pytest.mark.parametrize("freedom", [1, 2, 3, 9, 200, 10_000])
@pytest.mark.parametrize("level", [0.001, 0.5, 0.9, 0.95, 0.999])
def test_quantiles_of_students_t(freedom: int, level: float) -> None:
    assert student_t(freedom, level) == pytest.approx(stats.t.ppf(0.5 + level / 2, freedom), rel=1e-7)


@pytest.mark.statistical
def test_bounds_hold_for_all_policies_at_once() -> None:
    rng = np.random.default_rng(9)
    root = rng.normal(size=(5, 5))
    covariance = root @ root.T
    reach = Estimates(np.zeros(5), covariance, 1_000).reach(0.95)
    drawn = rng.multivariate_normal(np.zeros(5), covariance, size=20_000)
    inside = (np.abs(drawn) <= reach * np.sqrt(np.diag(covariance))).all(axis=1).mean()
    assert inside == pytest.approx(0.95, abs=0.012)
    one = Estimates(np.array([0.5]), np.array([[0.04]]), 10**6)
    low, high = root_bounds(one, 1, 0.95)
    assert [low[0], high[0]] == pytest.approx([0.5 - 1.96 * 0.2, 0.5 + 1.96 * 0.2], abs=1e-3)
    few = Estimates(np.array([0.5]), np.array([[0.04]]), 5)
    assert root_bounds(few, 1, 0.95)[1][0] > high[0] + 0.1
