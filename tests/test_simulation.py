from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fultr import (
    ClickLog,
    ClickNoise,
    DataSplits,
    FixedScorer,
    InputError,
    PlackettLuce,
    Planting,
    PositionBias,
    RandomRanking,
    RankingDataset,
    RankingSVM,
    datasets,
    read_log,
    simulate_clicks,
    write_log,
)
from tests.comparison import same_logs

BIAS = PositionBias.power(1.0)


def some_data(lists: int = 40, length: int = 8) -> RankingDataset:
    rng = np.random.default_rng(5)
    rows = lists * length
    return RankingDataset(
        rng.normal(size=(rows, 3)),
        np.arange(0, rows + 1, length),
        group=rng.integers(0, 2, size=rows),
        relevance=rng.choice([0.0, 1.0, 0.3], size=rows),
        query_id=np.arange(lists),
    )


def within(clicks: float, trials: float, probability: float, deviations: float = 4.5) -> bool:
    """Whether a count is as expected, up to some standard errors."""
    error = np.sqrt(trials * probability * (1 - probability))
    return bool(abs(clicks - trials * probability) <= deviations * error + 1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "noise", [ClickNoise(), ClickNoise(0.8, 0.15), ClickNoise([0.9, 0.8], [0.4, 0.2, 0.1])]
)
@pytest.mark.parametrize(
    "policy", [RandomRanking(), PlackettLuce(lambda x: x[:, 0]), FixedScorer(lambda x: x[:, 0])]
)
def test_click_rates_are_those_of_the_model(noise: ClickNoise, policy: Any) -> None:
    data = some_data()
    log = simulate_clicks(data, policy, BIAS, noise=noise, impressions=40_000, seed=7)
    assert data.relevance is not None
    relevance, group = data.relevance[log.row_of_entry], data.group[log.row_of_entry]
    for label in (0.0, 1.0, np.float32(0.3)):
        for code in (0, 1):
            for position in (1, 2, 3, 8):
                plus, minus = noise.at(position)
                attraction = plus * float(label) + minus * (1 - float(label))
                cell = (relevance == label) & (group == code) & (log.position == position)
                assert within(log.click[cell].sum(), cell.sum(), attraction / position)


def test_rankings_are_the_policys() -> None:
    data = some_data()
    policy = FixedScorer(lambda x: x[:, 1])
    log = simulate_clicks(data, policy, BIAS, impressions=100)
    assert (log.position == policy.rank(data)[log.row_of_entry]).all()


@pytest.mark.statistical
def test_lists_are_drawn_evenly() -> None:
    log = simulate_clicks(some_data(), RandomRanking(), BIAS, impressions=40_000)
    counts = log.impressions_of_lists()
    assert all(within(count, 40_000, 1 / 40) for count in counts)


@pytest.mark.parametrize("keep_empty", [True, False])
def test_clicks_count_impressions_with_a_click(keep_empty: bool) -> None:
    log = simulate_clicks(some_data(), RandomRanking(), BIAS, clicks=1234, keep_empty=keep_empty)
    assert log.clicked.sum() == 1234
    assert log.clicked[-1]
    assert log.empties_dropped is not keep_empty
    assert (len(log) == 1234) is not keep_empty


def test_dropping_empties_while_simulating_is_dropping_them_afterwards() -> None:
    kept = simulate_clicks(some_data(), RandomRanking(), BIAS, clicks=30_000)
    dropped = simulate_clicks(some_data(), RandomRanking(), BIAS, clicks=30_000, keep_empty=False)
    assert same_logs(dropped, kept.drop_empties())


@pytest.mark.parametrize("noise", [None, ClickNoise(0.9, 0.05)])
def test_the_same_seed_gives_the_same_log_whatever_the_number_of_threads(noise: ClickNoise | None) -> None:
    def made() -> ClickLog:
        policy = PlackettLuce(lambda x: x[:, 0])
        return simulate_clicks(
            some_data(), policy, BIAS, noise=noise, clicks=20_000, planting=Planting(0.1), seed=3
        )

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = made()
        torch.set_num_threads(3)
        assert same_logs(made(), first)
    finally:
        torch.set_num_threads(threads)
    other = simulate_clicks(some_data(), RandomRanking(), BIAS, clicks=20_000, seed=4)
    assert not same_logs(other, first)


def test_more_impressions_continue_the_log() -> None:
    short = simulate_clicks(some_data(), RandomRanking(), BIAS, impressions=500, seed=2)
    long = simulate_clicks(some_data(), RandomRanking(), BIAS, impressions=20_000, seed=2)
    assert (long[:500].position == short.position).all()
    assert (long[:500].click == short.click).all()


def test_only_the_top_is_shown() -> None:
    log = simulate_clicks(
        some_data(), RandomRanking(), PositionBias([1, 0.5, 0.2]), impressions=2_000, top_k=3
    )
    assert log.position.max() == 3
    assert ((log.position > 0).reshape(-1, 8).sum(axis=1) == 3).all()
    assert not log.click[log.position == 0].any()


def test_planted_items_push_the_others_down_and_are_clicked_by_noise_only() -> None:
    noise, planting = ClickNoise(1.0, 0.2), Planting(0.3, positions=(1, 4))
    log = simulate_clicks(
        some_data(), RandomRanking(), BIAS, noise=noise, impressions=20_000, planting=planting
    )
    planted = log.planted
    assert within(len(planted), 20_000, 0.3)
    assert set(planted.position.tolist()) == {1, 4}
    for position in (1, 4):
        at = planted.position == position
        assert within(planted.click[at].sum(), at.sum(), 0.2 / position)
    deepest = log.position.reshape(-1, 8).max(axis=1)
    has_planted = np.zeros(len(log), dtype=bool)
    has_planted[planted.impression] = True
    assert (deepest == np.where(has_planted, 9, 8)).all()
    relevance = some_data().relevance
    assert relevance is not None
    cell = (relevance[log.row_of_entry] == 1) & (log.position == 5)
    assert within(log.click[cell].sum(), cell.sum(), 1 / 5)


def test_planting_in_lists_too_short_comes_last() -> None:
    data = RankingDataset(np.zeros((3, 1)), [0, 1, 3], relevance=[1, 1, 0])
    log = simulate_clicks(
        data, RandomRanking(), BIAS, impressions=500, planting=Planting(1.0, positions=(5,))
    )
    assert (log.planted.position == data.lengths[log.lists[log.planted.impression]] + 1).all()


def test_the_log_carries_its_click_model_but_not_the_relevance(german: DataSplits) -> None:
    policy = RankingSVM.train(german.train)
    log = simulate_clicks(german.train, policy, BIAS, noise=ClickNoise(0.9, 0.1), clicks=100, seed=8)
    assert log.position_bias == BIAS
    assert log.noise == ClickNoise(0.9, 0.1)
    assert log.data.relevance is None
    assert log.origin == {"simulated": True, "seed": 8, "policy": repr(policy), "clicks": 100}
    assert german.train.relevance is not None


def test_ordinary_corner_cases_work() -> None:
    single = RankingDataset(np.zeros((2, 0)), [0, 1, 2], relevance=[1, 0])
    assert simulate_clicks(single, RandomRanking(), BIAS, clicks=10).click.sum() == 10
    ragged = RankingDataset(
        np.zeros((6, 1)), [0, 1, 3, 6], group=[0, 0, 1, -1, 0, 0], relevance=[0, 0, 1, 0, 0, 0]
    )
    log = simulate_clicks(ragged, FixedScorer(lambda x: x[:, 0]), BIAS, clicks=10)
    assert log.clicked.sum() == 10
    assert simulate_clicks(datasets.studios(), RandomRanking(), BIAS, clicks=10).clicked.sum() == 10


def test_progress_is_reported() -> None:
    seen: list[tuple[int, int]] = []
    simulate_clicks(
        some_data(),
        RandomRanking(),
        BIAS,
        impressions=40_000,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (40_000, 40_000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "either clicks= or impressions="),
        ({"clicks": 5, "impressions": 5}, "either clicks= or impressions="),
        ({"clicks": 0}, "column 'clicks'"),
        ({"impressions": -1}, "column 'impressions'"),
        (
            {"clicks": 5, "bias": PositionBias([1, 0.5])},
            "position 8 lies beyond the position bias, which has 2 values",
        ),
        (
            {"clicks": 5, "bias": PositionBias([0.5, 1.0], beyond="zero")},
            "column 'v_2': .*cannot be simulated",
        ),
        ({"clicks": 5, "top_k": 0}, "column 'top_k'"),
        ({"clicks": 5, "top_k": 2.5}, "column 'top_k'"),
        ({"clicks": "5"}, "column 'clicks'"),
        ({"clicks": 5, "seed": -1}, "column 'seed'"),
        ({"clicks": 5, "seed": "a"}, "column 'seed'"),
        ({"clicks": 5, "top_k": 3, "planting": Planting(0.1)}, "must lie within the top 3"),
    ],
)
def test_wrong_requests_are_refused(options: dict[str, Any], problem: str) -> None:
    bias = options.pop("bias", BIAS)
    with pytest.raises(InputError, match=problem):
        simulate_clicks(some_data(), RandomRanking(), bias, **options)


def test_wrong_data_and_planting_are_refused() -> None:
    no_relevance = RankingDataset(np.zeros((2, 1)), [0, 2])
    with pytest.raises(InputError, match="only on lists with relevance"):
        simulate_clicks(no_relevance, RandomRanking(), BIAS, clicks=1)
    graded = RankingDataset(np.zeros((2, 1)), [0, 2], relevance=[0, 4])
    with pytest.raises(InputError, match="row 2, column 'relevance': .*binarize"):
        simulate_clicks(graded, RandomRanking(), BIAS, clicks=1)
    nothing = RankingDataset(np.zeros((0, 1)), [0], relevance=[])
    with pytest.raises(InputError, match="no lists to show"):
        simulate_clicks(nothing, RandomRanking(), BIAS, clicks=1)
    never = RankingDataset(np.zeros((2, 1)), [0, 2], relevance=[0, 0])
    with pytest.raises(InputError, match="not one click in"):
        simulate_clicks(never, RandomRanking(), BIAS, clicks=1)
    with pytest.raises(InputError, match="not one click in 10 impressions"):
        simulate_clicks(never, RandomRanking(), BIAS, impressions=10)
    for share, positions, column in (
        (0.0, (1,), "share"),
        (1.5, (1,), "share"),
        (0.5, (), "positions"),
        (0.5, (0,), "positions"),
        ("a", (1,), "share"),
        (0.5, (1.5,), "positions"),
        (0.5, (10**7,), "positions"),
    ):
        with pytest.raises(InputError, match=f"column '{column}'"):
            Planting(share, positions)  # type: ignore[arg-type]


def test_numbers_of_numpy_and_generators_can_be_given_and_written(tmp_path: Path) -> None:
    plain = simulate_clicks(some_data(), RandomRanking(), BIAS, clicks=50, seed=3)
    same = simulate_clicks(some_data(), RandomRanking(), BIAS, clicks=np.int64(50), seed=np.int64(3))  # type: ignore[arg-type]
    assert same_logs(same, plain)
    drawn = simulate_clicks(some_data(), RandomRanking(), BIAS, clicks=50, seed=np.random.default_rng(3))
    assert (drawn.click == plain.click).all()
    assert drawn.origin["seed"] is None
    for log in (same, drawn):
        write_log(log, tmp_path / "log.parquet")
        assert same_logs(read_log(tmp_path / "log.parquet"), log)


def test_a_ranking_svm_takes_any_seed_and_needs_features() -> None:
    data = some_data()
    assert np.isfinite(RankingSVM.train(data, seed=5_000_000_000).weights).all()
    with pytest.raises(InputError, match="column 'seed'"):
        RankingSVM.train(data, seed=-1)
    with pytest.raises(InputError, match="column 'share'"):
        RankingSVM.train(data, share="a")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="column 'features': a Ranking SVM needs features"):
        RankingSVM.train(RankingDataset(np.zeros((2, 0)), [0, 2], relevance=[0, 1]))


def test_a_scorer_may_return_a_tensor_with_a_gradient() -> None:
    weights = torch.ones(3, requires_grad=True)
    policy = FixedScorer(lambda x: torch.from_numpy(x) @ weights)
    np.testing.assert_allclose(policy.predict(some_data()), some_data().features.sum(axis=1), rtol=1e-5)
