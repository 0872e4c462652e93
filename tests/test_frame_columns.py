"""Frames where a policy is used: features by name, rows in the frame's own order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fultr
from fultr import FairRanker, InputError, PositionBias
from fultr.audits import audit
from fultr.logs.frames import GivenItems, is_frame, items_of, source_of_frame
from tests.ranker_contract import by_row
from tests.shown_jobs import FEATURES, job_board

BIAS = PositionBias.power(1.0)
FRAMES: list[Callable[[pl.DataFrame], Any]] = [
    lambda frame: frame,
    lambda frame: frame.to_pandas(),
    lambda frame: frame.to_arrow(),
    lambda frame: frame.to_dict(as_series=False),
]


@pytest.fixture(scope="module")
def ranker() -> FairRanker:
    log = fultr.count(job_board(), features=FEATURES, position_bias=BIAS)
    return FairRanker(1.0, l2=0.01).fit(log)


@pytest.fixture(scope="module")
def items() -> pl.DataFrame:
    """Each posting once for its query, in no order."""
    once = job_board().unique(["query_id", "doc_id"], keep="first")
    return once.select("query_id", "doc_id", "group", *FEATURES, "device", "posted").sample(
        fraction=1.0, shuffle=True, seed=1
    )


@pytest.fixture(scope="module")
def scores(ranker: FairRanker, items: pl.DataFrame) -> Any:
    return ranker.predict(items.select(FEATURES).cast(pl.Float64).to_numpy())


@pytest.mark.parametrize("make", FRAMES)
def test_scores_come_in_the_order_of_the_rows(
    ranker: FairRanker, items: pl.DataFrame, scores: Any, make: Callable[[pl.DataFrame], Any]
) -> None:
    for frame in (items, items.select(reversed(items.columns)), items.select("distance", "remote", "salary")):
        np.testing.assert_allclose(ranker.predict(make(frame)), scores, rtol=1e-6)
    prefixed = items.rename({name: f"feature_{name}" for name in FEATURES})
    np.testing.assert_allclose(ranker.predict(make(prefixed)), scores, rtol=1e-6)


def test_a_feature_that_is_missing_or_renamed_is_named(ranker: FairRanker, items: pl.DataFrame) -> None:
    for use in (ranker.predict, ranker.rank, ranker.sample_rankings):
        with pytest.raises(InputError, match="column 'salary': the column is missing"):
            use(items.drop("salary"))
        with pytest.raises(InputError, match="'salary': the column is missing; is 'salaries' meant"):
            use(items.rename({"salary": "salaries"}))
        with pytest.raises(InputError, match="'salary' and 'feature_salary' both could be"):
            use(items.with_columns(feature_salary="salary"))
        with pytest.raises(InputError, match="row 3, column 'distance': a feature must be a finite"):
            use(items.with_columns(distance=np.where(np.arange(items.height) == 2, np.nan, 1.0)))


def test_a_missing_feature_is_called_as_its_column_is(items: pl.DataFrame) -> None:
    """It was called '1' where the table has feature_0, feature_1, ..."""
    names = {name: f"feature_{number}" for number, name in enumerate(FEATURES)}
    log = fultr.count(job_board().rename(names), position_bias=BIAS)
    numbered = FairRanker(1.0, l2=0.01, folds=0).fit(log)
    with pytest.raises(InputError, match="column 'feature_1': the column is missing"):
        numbered.predict(items.rename(names).drop("feature_1"))


@pytest.mark.parametrize("make", FRAMES)
def test_rows_of_a_query_are_one_list(
    ranker: FairRanker, items: pl.DataFrame, scores: Any, make: Callable[[pl.DataFrame], Any]
) -> None:
    ranks = np.asarray(ranker.rank(make(items)))
    drawn = np.asarray(by_row(ranker.sample_rankings(make(items), 3, top_k=5, seed=2))).T
    assert drawn.shape == (3, items.height)
    for query in items["query_id"].unique():
        rows = (items["query_id"] == query).to_numpy()
        expected = np.argsort(np.argsort(-scores[rows], kind="stable")) + 1
        np.testing.assert_array_equal(ranks[rows], expected)
        for one in drawn:
            assert sorted(one[rows]) == [0] * (rows.sum() - 5) + [1, 2, 3, 4, 5]
    renamed = make(items.rename({"query_id": "qid", "group": "sensitive_features"}))
    np.testing.assert_array_equal(ranker.rank(renamed), ranks)


def test_without_queries_all_rows_are_one_list(ranker: FairRanker, items: pl.DataFrame, scores: Any) -> None:
    ranks = ranker.rank(items.drop("query_id", "doc_id"))
    np.testing.assert_array_equal(ranks, np.argsort(np.argsort(-scores, kind="stable")) + 1)


def test_rows_of_a_log_can_be_scored_but_not_ranked(ranker: FairRanker) -> None:
    log = job_board()
    assert ranker.predict(log).shape == (log.height,)
    for use in (ranker.rank, ranker.sample_rankings):
        with pytest.raises(InputError, match="is a click log, in which an item stands once for each"):
            use(log)
    with pytest.raises(InputError, match="is a log; give its lists"):
        ranker.predict(fultr.count(log, features=FEATURES))


def test_a_document_twice_in_a_query_is_refused(ranker: FairRanker, items: pl.DataFrame) -> None:
    twice = pl.concat([items, items[:1]])
    assert ranker.predict(twice)[0] == ranker.predict(twice)[-1]
    with pytest.raises(InputError, match=f"row {twice.height}, column 'doc_id'"):
        ranker.rank(twice)


def test_labels_that_are_not_needed_are_not_looked_at(
    ranker: FairRanker, items: pl.DataFrame, scores: Any
) -> None:
    unlabelled = items.with_columns(label=pl.lit(None, pl.Float64))
    np.testing.assert_allclose(ranker.predict(unlabelled), scores, rtol=1e-6)
    assert ranker.rank(unlabelled).min() == 1


@pytest.mark.parametrize("make", FRAMES)
def test_a_frame_of_a_log_is_evaluated_as_the_log_is(
    ranker: FairRanker, make: Callable[[pl.DataFrame], Any]
) -> None:
    other = job_board(seed=5, queries=30)
    expected = ranker.evaluate(fultr.count(other, features=FEATURES))
    turned = other.select(reversed(other.columns))
    for found in (ranker.evaluate(make(turned)), fultr.evaluate(ranker, make(turned))):
        assert found.to_dict() == expected.to_dict()
    with pytest.raises(InputError, match="column 'salary': the column is missing"):
        ranker.evaluate(make(other.drop("salary")))


def test_a_labelled_frame_is_evaluated_as_the_lists_are(ranker: FairRanker, items: pl.DataFrame) -> None:
    labelled = items.with_columns(relevance=(pl.col("salary") > 0).cast(pl.Int64))
    data = fultr.RankingDataset.from_rows(
        labelled.select(FEATURES).cast(pl.Float64).to_pandas(),
        labelled["query_id"].to_list(),
        group=labelled["group"].to_list(),
        relevance=labelled["relevance"].to_numpy(),
    )
    for frame in (labelled, labelled.rename({"relevance": "label", "query_id": "qid"})):
        assert ranker.evaluate(frame).to_dict() == ranker.evaluate(data).to_dict()


@pytest.mark.parametrize("make", FRAMES)
def test_a_frame_is_audited_as_the_log_is(ranker: FairRanker, make: Callable[[pl.DataFrame], Any]) -> None:
    other = job_board(seed=5).with_columns(pl.col("query_id") + " next month")
    log = fultr.count(other, features=FEATURES)
    two = FairRanker(0.0, l2=0.01).fit(
        fultr.count(job_board(), features=["distance", "salary"], position_bias=BIAS)
    )
    policies = {"fair": ranker, "useful": two}
    found = audit(make(other.drop("remote").with_columns(remote=other["remote"])), policies, resamples=50)
    assert found.to_dict() == audit(log, policies, resamples=50).to_dict()
    with pytest.raises(InputError, match="must be a ClickLog, a Counts or a frame of a log"):
        audit(np.zeros((3, 3)), policies)


def test_what_to_do_about_a_frame_is_said_in_arguments_of_count() -> None:
    log = job_board().with_columns(hour=pl.col("position"))
    with pytest.raises(InputError, match="exclude='hour' leaves it out .as an argument of fultr.count"):
        FairRanker(1.0, l2=0.01, position_bias=BIAS).fit(log)
    counts = fultr.count(log, exclude="hour")
    assert FairRanker(1.0, l2=0.01, position_bias=BIAS).fit(counts).n_features_in_ == 3


def test_fit_takes_labelled_frames_and_its_own_names(items: pl.DataFrame) -> None:
    log = job_board().drop("device", "posted", "timestamp").rename({n: f"feature_{n}" for n in FEATURES})
    fitted = FairRanker(1.0, l2=0.01, position_bias=BIAS).fit(log)
    renamed = log.rename({"query_id": "qid", "impression_id": "impression", "group": "sensitive_features"})
    again = FairRanker(1.0, l2=0.01, position_bias=BIAS).fit(renamed)
    np.testing.assert_array_equal(fitted.predict(items), again.predict(items))
    with pytest.raises(InputError, match="column 'qid': an id is missing"):
        again.fit(renamed.with_columns(qid=None))
    labelled = items.drop("device", "posted").with_columns(label=(pl.col("salary") > 0).cast(pl.Int64))
    full = FairRanker(0.0, l2=0.01, position_bias=BIAS).fit(labelled)
    assert full.evaluate(labelled).source == "relevance"
    assert (full.evaluate(labelled).ndcg or 0.0) > 0.9
    with pytest.raises(InputError, match="column 'y': arrays need clicks"):
        fitted.fit(items.select(FEATURES), qid=items["query_id"])


def test_a_limit_needs_groups() -> None:
    log = job_board().drop("group")
    goals: list[dict[str, Any]] = [{"max_disparity": 0.1}, {"max_disparity": 0.0}, {"min_utility": 0.9}]
    for goal in goals:
        with pytest.raises(InputError, match="there are no two groups of items"):
            FairRanker(**goal, l2=0.01).fit(fultr.count(log, features=FEATURES, position_bias=BIAS))


def test_a_saved_policy_knows_its_features(
    ranker: FairRanker, items: pl.DataFrame, scores: Any, tmp_path: Path
) -> None:
    fultr.save(ranker, tmp_path / "policy.safetensors")
    loaded = fultr.load(tmp_path / "policy.safetensors")
    np.testing.assert_allclose(loaded.predict(items), scores, rtol=1e-6)


def test_lists_of_features_have_no_names() -> None:
    frame = pl.DataFrame({"query_id": [1, 1], "features": [[1.0, 2.0], [3.0, 4.0]]})
    found = items_of(frame, ["a", "b"], in_lists=True)
    assert found.data.features.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(InputError, match="the policy was trained on 3 features"):
        items_of(frame, ["a", "b", "c"], in_lists=True)
    assert isinstance(items_of(np.eye(2), ["a", "b"], in_lists=True), GivenItems)


def test_numbers_mean_positions(items: pl.DataFrame) -> None:
    frame = items.select("query_id", "distance", "salary")
    found = items_of(frame, ["1", "2"], in_lists=True)
    assert found.data.feature_names == ("distance", "salary")
    with pytest.raises(InputError, match="the policy was trained on 3 features"):
        items_of(frame, ["1", "2", "3"], in_lists=True)


def test_what_is_a_frame() -> None:
    frame = pl.DataFrame({"a": [1.0]})
    assert all(is_frame(make(frame)) for make in FRAMES)
    assert not any(map(is_frame, (np.eye(2), [[1.0]], "a", None, frame.to_pandas().set_axis([0], axis=1))))
    with pytest.raises(InputError, match="column 'impression_id': the column is missing"):
        source_of_frame(frame)
