"""Lists, logs and counts as frames, and rankers as users of scikit-learn know them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import clone

from fultr import (
    ClickLog,
    FairRanker,
    InputError,
    PlackettLuce,
    Planting,
    PositionBias,
    RankingDataset,
    count,
    estimate_bias,
    evaluate,
    read_log,
    simulate_clicks,
    sweep,
)
from fultr.baselines import PGRank
from tests.comparison import same_logs
from tests.training_tasks import random_lists, random_log
from tests.weekly_jobs import BIAS, week_of_jobs


@pytest.fixture(scope="module")
def jobs() -> ClickLog:
    return read_log(week_of_jobs(1, impressions=80), position_bias=BIAS)


# frames


def test_a_log_comes_back_from_its_frame(jobs: ClickLog) -> None:
    frame = jobs.to_frame()
    assert frame.columns[:6] == ["impression_id", "query_id", "doc_id", "group", "position", "click"]
    assert frame.height == jobs.entries
    assert frame["group"].null_count() > 0
    assert same_logs(read_log(frame, position_bias=BIAS), jobs)
    assert read_log(frame.sample(fraction=1.0, shuffle=True, seed=0), position_bias=BIAS).compact().data.rows


def test_planted_items_and_items_not_shown_come_back_too() -> None:
    data = random_lists(groups=2, lists=8, seed=1)
    log = simulate_clicks(
        data,
        PlackettLuce(lambda x: x[:, 0]),
        BIAS,
        impressions=60,
        top_k=2,
        planting=Planting(0.5, (1, 2)),
        seed=0,
    )
    frame = log.to_frame()
    assert frame["planted"].sum() == len(log.planted)
    assert frame.filter(pl.col("planted") == 0)["position"].null_count() == (log.position == 0).sum()
    again = read_log(frame, position_bias=BIAS).compact()
    expected = log.compact()
    assert again.planted.clicks.sum() == expected.planted.clicks.sum()
    np.testing.assert_array_equal(again.clicks(), expected.clicks())
    np.testing.assert_array_equal(again.impressions, expected.impressions)


def test_lists_are_a_row_for_each_item() -> None:
    data = replace(random_lists(groups=3, unknown=0.3, lists=5, seed=1), feature_names=())
    frame = data.to_frame()
    assert frame.height == data.rows
    np.testing.assert_array_equal(frame["list"], data.list_of_row)
    names = [None if code < 0 else data.group_names[code] for code in data.group.tolist()]
    assert frame["group"].to_list() == names
    features = frame.select(pl.col("^feature_.*$")).to_numpy()
    np.testing.assert_array_equal(features, data.features)
    bare = RankingDataset([[1.0], [2.0]], [0, 2])
    assert bare.to_frame().columns == ["list", "feature_1"]


def test_counts_are_a_row_for_each_item_and_position(jobs: ClickLog) -> None:
    counts = jobs.compact()
    frame = counts.to_frame()
    assert frame["impressions"].sum() == counts.cells.impressions.sum()
    assert frame["clicks"].sum() == counts.cells.clicks.sum()
    assert frame.filter(pl.col("position").is_null()).height == (counts.shown() == 0).sum()
    by_item = frame.group_by("list", "doc_id").agg(pl.col("clicks").sum()).sort("list", "doc_id")
    assert by_item["clicks"].to_list() == counts.clicks().tolist()
    by_list = frame.group_by("list").agg(pl.col("list_impressions").first()).sort("list")
    assert by_list["list_impressions"].to_list() == counts.impressions.tolist()
    with_context = count(week_of_jobs(1, impressions=20), context="device").to_frame()
    assert set(with_context["device"]) == {"phone", "desktop"}
    top = random_log(random_lists(lists=6, seed=3), impressions=30)
    assert top.compact().to_frame()["impressions"].sum() == (top.position > 0).sum()


# as in scikit-learn


@pytest.mark.parametrize("settings", [{}, {"scale_features": True}, {"group_blind": True}])
def test_coefficients_are_in_the_units_of_the_features(jobs: ClickLog, settings: dict[str, Any]) -> None:
    data = replace(
        jobs.data, features=jobs.data.features * np.array([1, 100, 3], dtype=np.float32), group_columns=(2,)
    )
    ranker = FairRanker(1.0, l2=0.1, **settings).fit(jobs.with_lists(data))
    scores, linear = ranker.predict(data), data.features @ ranker.coef_
    np.testing.assert_allclose(scores - scores[0], linear - linear[0], atol=1e-4)
    assert (ranker.coef_[2] == 0) == ("group_blind" in settings)
    assert PGRank(l2=0.1).fit(jobs).coef_.shape == (3,)


def test_only_trained_linear_models_have_coefficients(jobs: ClickLog) -> None:
    assert not hasattr(FairRanker(), "coef_")
    ranker = FairRanker(1.0, model="mlp", l2=0.1).fit(jobs)
    assert not hasattr(ranker, "coef_")


def test_the_score_is_the_utility(jobs: ClickLog) -> None:
    ranker = FairRanker(1.0, l2=0.1, top_k=5).fit(jobs)
    assert ranker.score(jobs) == evaluate(ranker, jobs, at=5).dcg
    assert ranker.score(jobs, at=2) == evaluate(ranker, jobs, at=2).dcg < ranker.score(jobs)
    useful, shuffled = (FairRanker(0.0, l2=l2).fit(jobs).score(jobs) for l2 in (0.01, 1e6))
    assert useful > shuffled


def test_a_device_is_answered_in_one_line(jobs: ClickLog) -> None:
    for use in (
        lambda: FairRanker(device="cuda"),  # type: ignore[call-arg]
        lambda: FairRanker(l2=0.1).fit(jobs, device="cuda"),
        lambda: sweep(jobs, device="cuda"),
        lambda: PGRank(device="cpu"),  # type: ignore[call-arg]
    ):
        with pytest.raises(InputError, match="'device'.*run on the CPU.*leave device out"):
            use()
    ranker = FairRanker(3.0, l2=0.1)
    assert clone(ranker).get_params() == ranker.get_params()
    assert pickle.loads(pickle.dumps(ranker)).fairness_weight == 3.0


@pytest.mark.parametrize("form", ["csr_matrix", "csr_array", "coo_matrix"])
def test_sparse_features_are_answered_in_one_line(jobs: ClickLog, form: str) -> None:
    sparse = getattr(scipy.sparse, form)(np.eye(3))
    ranker = FairRanker(1.0, l2=0.1).fit(jobs)
    for use in (
        lambda: ranker.predict(sparse),
        lambda: ranker.rank(sparse),
        lambda: ranker.fit(sparse, [1, 0, 0], qid=[1, 1, 1], position=[1, 2, 3]),
        lambda: RankingDataset(sparse, [0, 3]),
    ):
        with pytest.raises(InputError, match=r"give \.toarray\(\)"):
            use()


# pictures on axes


def test_pictures_are_drawn_on_axes(jobs: ClickLog, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    front = sweep(jobs, fairness_weights=[0.0, 1.0], l2=0.1)
    estimate = estimate_bias(
        simulate_clicks(
            random_lists(lists=30, seed=0), PlackettLuce(lambda x: x[:, 0]), PositionBias.power(1.0),
            impressions=2000, seed=0,
        ),
        "harvest",
        randomised=True,
        resamples=50,
    )  # fmt: skip
    for made in (front, estimate):
        axes = Figure().subplots()
        assert made.plot(ax=axes) is axes
        assert axes.lines
        assert made.plot().lines
        assert made.plot(tmp_path / "picture.png").exists()
        with pytest.raises(InputError, match="a file or axes, not both"):
            made.plot(tmp_path / "picture.png", ax=axes)
