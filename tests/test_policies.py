from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fultr import DataSplits, FixedScorer, InputError, PlackettLuce, RandomRanking, RankingDataset, RankingSVM


def data_of(relevance: list[float], features: Any = None, offsets: Any = (0, 3, 6)) -> RankingDataset:
    table = np.arange(len(relevance), dtype=float)[:, None] if features is None else features
    return RankingDataset(table, offsets, relevance=relevance)


def test_a_fixed_scorer_ranks_by_its_score() -> None:
    data = data_of([0] * 6)
    policy = FixedScorer(lambda x: x[:, 0])
    assert policy.rank(data).tolist() == [3, 2, 1, 3, 2, 1]
    assert policy.sample_rankings(data, n=2).tolist() == [[3, 2, 1, 3, 2, 1]] * 2


def test_stochastic_policies_vary_and_reproduce() -> None:
    data = data_of([0] * 6)
    for policy in (PlackettLuce(lambda x: 0.1 * x[:, 0]), RandomRanking()):
        drawn = policy.sample_rankings(data, n=50, seed=1)
        assert drawn.shape == (50, 6)
        assert len({tuple(row) for row in drawn.tolist()}) > 10
        assert (drawn == policy.sample_rankings(data, n=50, seed=1)).all()
        assert (drawn.reshape(50, 2, 3).sum(axis=2) == 6).all()


def test_requests_without_a_seed_are_answered_afresh() -> None:
    data = RankingDataset(np.zeros((5, 1)), [0, 5])
    for policy in (PlackettLuce(lambda x: x[:, 0]), RandomRanking()):
        first = [int(policy.sample_rankings(data)[0].argmin()) for _ in range(200)]
        assert min(np.bincount(first, minlength=5)) > 10


def test_rankings_can_be_cut() -> None:
    data = data_of([0] * 6)
    assert FixedScorer(lambda x: x[:, 0]).sample_rankings(data, top_k=2).tolist() == [[0, 2, 1, 0, 2, 1]]
    full, top = (RandomRanking().sample_rankings(data, n=9, seed=3, top_k=top_k) for top_k in (None, 1))
    assert (top == (full == 1)).all()
    with pytest.raises(InputError, match="column 'top_k'"):
        RandomRanking().sample_rankings(data, top_k=0)


def test_wrong_scorers_are_named() -> None:
    data = data_of([0] * 6)
    with pytest.raises(InputError, match="one score for each of 6 rows"):
        FixedScorer(lambda x: x).rank(data)
    with pytest.raises(InputError, match="row 3, column 'score'"):
        FixedScorer(lambda x: np.where(x[:, 0] == 2, np.nan, x[:, 0])).rank(data)
    with pytest.raises(InputError, match="column 'n'"):
        RandomRanking().sample_rankings(data, n=0)


def test_ranking_svm_orders_separable_lists() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 4))
    relevance = (features @ np.array([1.0, -2.0, 0.0, 0.5]) > 1).astype(float)
    data = RankingDataset(features, np.arange(0, 201, 20), relevance=relevance)
    policy = RankingSVM.train(data, share=1.0, regularization=100.0)
    scores = policy.predict(data)
    for start in range(0, 200, 20):
        one, labels = scores[start : start + 20], relevance[start : start + 20]
        if 0 < labels.sum() < 20:
            assert one[labels == 1].min() > one[labels == 0].max()


def test_ranking_svm_minimises_the_pairwise_hinge_loss() -> None:
    rng = np.random.default_rng(1)
    features, relevance = rng.normal(size=(30, 3)), (rng.random(30) < 0.4).astype(float)
    data = RankingDataset(features, np.arange(0, 31, 10), relevance=relevance)
    weights = RankingSVM.train(data, share=1.0, regularization=0.3).weights
    stored = data.features.astype(np.float64)
    pairs = [
        stored[i] - stored[j]
        for start in range(0, 30, 10)
        for i in range(start, start + 10)
        for j in range(start, start + 10)
        if relevance[i] > relevance[j]
    ]

    def loss(w: np.ndarray) -> float:
        return float(0.5 * w @ w + 0.3 * sum(max(0.0, 1 - w @ pair) for pair in pairs))

    best = loss(weights)
    assert all(best <= loss(weights + 0.05 * rng.normal(size=3)) + 1e-3 for _ in range(200))
    assert best < loss(np.zeros(3))


def test_ranking_svm_draws_a_share_of_the_queries(german: DataSplits) -> None:
    assert RankingSVM.train(german.train).trained_on == 5
    assert RankingSVM.train(german.train, share=1e-6).trained_on == 1
    one, same = RankingSVM.train(german.train, seed=1), RankingSVM.train(german.train, seed=1)
    assert (one.weights == same.weights).all()
    assert (one.weights != RankingSVM.train(german.train, seed=2).weights).any()
    assert repr(one) == "RankingSVM(61 features, trained on 5 lists)"


def test_ranking_svm_learns_from_a_single_pair() -> None:
    policy = RankingSVM.train(data_of([0, 1], offsets=(0, 2)))
    assert policy.rank(data_of([0, 1], offsets=(0, 2))).tolist() == [2, 1]


def test_ranking_svm_says_what_it_lacks() -> None:
    with pytest.raises(InputError, match="needs lists with relevance"):
        RankingSVM.train(RankingDataset([[1.0]], [0, 1]))
    with pytest.raises(InputError, match="nothing to learn an order from"):
        RankingSVM.train(data_of([1, 1, 1, 0, 0, 0]))
    with pytest.raises(InputError, match="column 'share'"):
        RankingSVM.train(data_of([1, 0, 1, 0, 0, 0]), share=0.0)
    with pytest.raises(InputError, match="trained on 1 features"):
        RankingSVM.train(data_of([0, 1, 0, 0, 0, 1])).predict(RankingDataset([[1.0, 2.0]], [0, 1]))
