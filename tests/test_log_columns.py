"""Which columns of a log are features, and what is taken where rows differ: the log of a job board."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fultr
from fultr import Counts, InputError, PositionBias
from fultr.logs import read_aggregated_log
from tests.commands import json_of, refusal, result_of
from tests.shown_jobs import FEATURES, job_board

BIAS = PositionBias.power(1.0)


def in_file(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


def content(counts: Counts) -> tuple[Any, ...]:
    """Everything that counts hold, as plain values."""
    data, cells = counts.data, counts.cells
    return (
        data.features.tobytes(),
        data.feature_names,
        data.offsets.tolist(),
        data.group.tolist(),
        data.group_names,
        np.asarray(data.doc_id).tolist(),
        *(
            np.asarray(column).tolist()
            for column in (cells.row, cells.position, cells.impressions, cells.clicks)
        ),
    )


# --- which columns are features ---


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_without_names_all_numbers_are_features(tmp_path: Path, kind: str) -> None:
    log = job_board().with_columns(user_id=7, swapped=0, nothing=pl.lit(None, pl.String))
    path = in_file(log, tmp_path / f"log.{kind}")
    told: list[tuple[str, ...]] = []
    counts = fultr.count(path, on_features=told.append)
    assert counts.data.feature_names == ("salary", "distance", "remote")
    assert told == [("salary", "distance", "remote")]
    assert sorted(np.unique(counts.data.features[:, 2])) == [0.0, 1.0]
    assert fultr.read_log(path).data.feature_names == counts.data.feature_names
    assert content(fultr.count(log)) == content(counts)


def test_features_that_are_called_so_come_first() -> None:
    log = job_board().rename({"salary": "feature_salary"})
    told: list[tuple[str, ...]] = []
    assert fultr.count(log, on_features=told.append).data.feature_names == ("salary",)
    listed = job_board().with_columns(features=pl.concat_list("salary", "distance"))
    assert fultr.count(listed, on_features=told.append).data.features.shape[1] == 2
    assert not told
    with pytest.raises(InputError, match="column 'salary': features in one list have no columns"):
        fultr.count(listed, exclude=["salary"])


def test_features_are_named_or_left_out() -> None:
    log = job_board()
    assert fultr.count(log, exclude=["distance"]).data.feature_names == ("salary", "remote")
    assert fultr.count(log, exclude="distance").data.feature_names == ("salary", "remote")
    assert fultr.count(log, features=["remote", "salary"]).data.feature_names == ("remote", "salary")
    assert fultr.count(log, features=FEATURES, exclude=["remote"]).data.feature_names == (
        "salary",
        "distance",
    )
    assert fultr.count(log, features=[]).data.features.shape[1] == 0
    prefixed = log.rename({name: f"feature_{name}" for name in FEATURES})
    assert fultr.count(prefixed, features=["salary"]).data.feature_names == ("salary",)
    assert fultr.count(prefixed, exclude=["salary"]).data.feature_names == ("distance", "remote")
    for arguments in ({"features": ["salery"]}, {"exclude": ["salery"]}):
        with pytest.raises(InputError, match="column 'salery': the column is missing; is 'salary' meant"):
            fultr.count(log, **arguments)  # type: ignore[arg-type]


def test_columns_that_are_read_as_something_else_are_no_features() -> None:
    log = job_board().with_columns(area=pl.col("query_id").rank("dense"), hour=pl.col("timestamp").dt.hour())
    counts = fultr.count(
        log.drop("group").with_columns(gender=log["salary"] > 0), columns={"group": "gender"}, context="hour"
    )
    assert counts.data.feature_names == ("salary", "distance", "remote", "area")
    assert counts.data.group_names == ("false", "true")
    table = log.group_by("query_id", "doc_id", "position", maintain_order=True).agg(
        pl.len().alias("views"), pl.col("click").sum().alias("clicks"), pl.col("group", *FEATURES).first()
    )
    total = log.group_by("query_id").agg(query_impressions=pl.col("impression_id").n_unique())
    added = read_aggregated_log(table.join(total, on="query_id"), columns={"impressions": "views"})
    assert added.data.feature_names == ("salary", "distance", "remote")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_folders_are_no_features(tmp_path: Path, kind: str) -> None:
    for day in (1, 2):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        log = job_board(searches=30, seed=day).with_columns(pl.col("impression_id") + f"-{day}")
        in_file(log, folder / f"log.{kind}")
    assert fultr.count(tmp_path).data.feature_names == ("salary", "distance", "remote")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_dates_are_no_features(tmp_path: Path, kind: str) -> None:
    path = in_file(job_board(), tmp_path / f"log.{kind}")
    for column in ("posted", "timestamp"):
        with pytest.raises(InputError, match=f"column '{column}': a date or a time is no feature; make"):
            fultr.count(path, features=["salary", column])
    aged = job_board().with_columns(age=(dt.date(2026, 4, 1) - pl.col("posted")).dt.total_days())
    assert fultr.count(aged).data.feature_names == ("salary", "distance", "remote", "age")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_feature_that_is_missing_somewhere_is_named(tmp_path: Path, kind: str) -> None:
    log = job_board().with_columns(distance=pl.when(pl.col("doc_id") == "J-003-17").then(None).otherwise(1.0))
    path = in_file(log, tmp_path / f"log.{kind}")
    with pytest.raises(InputError, match="'distance': a feature must be .* exclude='distance' leaves"):
        fultr.count(path)
    assert fultr.count(path, exclude=["distance"]).data.feature_names == ("salary", "remote")


def test_groups_may_stand_in_the_table_of_documents_under_another_name() -> None:
    log = job_board()
    items = log.unique(["query_id", "doc_id"]).select(
        "query_id", "doc_id", *FEATURES, employer="group", title="doc_id"
    )
    found = fultr.count(log.drop("group", *FEATURES), items=items, columns={"group": "employer"})
    assert content(found) == content(fultr.count(log))


# --- different features of one document ---


def aged(log: pl.DataFrame) -> pl.DataFrame:
    """A posting grows older from search to search."""
    minutes = (pl.col("timestamp") - pl.col("timestamp").min()).dt.total_minutes()
    return log.with_columns(feature_age=minutes / 1440 + pl.col("salary") * 1e-7, feature_salary="salary")


def test_a_conflict_names_the_column_and_the_way_out() -> None:
    with pytest.raises(InputError, match="column 'feature_age': feature_age of the same document") as caught:
        fultr.count(aged(job_board()))
    assert "on_conflict='first', 'last' or 'mean' says what to take" in str(caught.value)
    assert "--on-conflict 'first', 'last' or 'mean'" in caught.value.in_shell()
    with pytest.raises(InputError, match="'on_conflict': must be 'error', 'first', 'last' or 'mean'"):
        fultr.count(job_board(), on_conflict="median")  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", ["first", "last"])
def test_the_first_and_the_last_row_are_those_of_the_table(choice: Any) -> None:
    for log in (aged(job_board()), aged(job_board()).sample(fraction=1.0, shuffle=True, seed=2)):
        chosen = log.unique(["query_id", "doc_id"], keep=choice).with_columns(
            pl.col("feature_age", "feature_salary").cast(pl.Float32)
        )
        same = log.drop("feature_age", "feature_salary").join(
            chosen.select("query_id", "doc_id", "feature_age", "feature_salary"), on=["query_id", "doc_id"]
        )
        assert content(fultr.count(log, on_conflict=choice)) == content(fultr.count(same))


@pytest.mark.parametrize("cut", [1, 3, 7])
def test_means_are_the_same_in_any_order(tmp_path: Path, cut: int) -> None:
    log = aged(job_board())
    counts = fultr.count(log, on_conflict="mean")
    expected = log.group_by("query_id", "doc_id").agg(pl.col("feature_age", "feature_salary").mean())
    found = {
        (query, document): counts.data.features[row].tolist()
        for row, (query, document) in enumerate(
            zip(
                np.asarray(counts.data.query_id)[counts.data.list_of_row].tolist(),
                np.asarray(counts.data.doc_id).tolist(),
                strict=True,
            )
        )
    }
    for query, document, *means in expected.iter_rows():
        np.testing.assert_allclose(found[query, document], means, rtol=1e-6)
    mixed = log.sample(fraction=1.0, shuffle=True, seed=cut)
    edges = np.linspace(0, log.height, cut + 1).astype(int)
    files = [
        in_file(mixed[start:end], tmp_path / f"{number}.parquet")
        for number, (start, end) in enumerate(itertools.pairwise(edges))
    ]
    assert content(fultr.count(files, on_conflict="mean")) == content(counts)
    assert content(fultr.read_log(files, on_conflict="mean").compact()) == content(counts)


def test_means_of_features_leave_groups_to_be_the_same() -> None:
    log = aged(job_board())
    wrong = log.with_columns(
        group=pl.when(pl.int_range(pl.len()) == 500).then(pl.lit("other")).otherwise("group")
    )
    with pytest.raises(InputError, match="column 'group': group of .* on_conflict='first' or 'last' says"):
        fultr.count(wrong, on_conflict="mean")
    items = pl.DataFrame(
        {"query_id": [1, 1, 1], "doc_id": [1, 1, 2], "group": ["a", "a", "b"], "age": [1.0, 2.0, 5.0]}
    )
    table = {
        "impression_id": [1, 1],
        "query_id": [1, 1],
        "doc_id": [1, 2],
        "position": [1, 2],
        "click": [0, 1],
    }
    found = fultr.count(table, items=items, on_conflict="mean")
    assert found.data.features.ravel().tolist() == [1.5, 5.0]
    with pytest.raises(InputError, match="row 2, column 'group'"):
        fultr.count(table, items=items.with_columns(group=pl.Series(["a", "b", "b"])), on_conflict="mean")


def test_the_first_or_the_last_group_is_taken() -> None:
    table: dict[str, list[Any]] = {
        "impression_id": [1, 1, 2, 2],
        "query_id": ["nurse"] * 4,
        "doc_id": ["J-1", "J-2", "J-1", "J-2"],
        "position": [1, 2, 2, 1],
        "click": [1, 0, 0, 1],
        "group": ["agency", "direct", None, "direct"],
        "salary": [1.0, 2.0, 1.5, 2.0],
    }
    for source in (table, {name: values for name, values in table.items() if name != "salary"}):
        first, last = (fultr.count(source, on_conflict=how).data for how in ("first", "last"))
        assert (first.group.tolist(), last.group.tolist()) == ([0, 1], [-1, 1])
        assert first.group_names == ("agency", "direct")
        with pytest.raises(InputError, match="row 3, column 'group'"):
            fultr.count(source, on_conflict="mean")


def test_means_of_the_same_features_are_these_features() -> None:
    log = job_board()
    assert content(fultr.count(log, on_conflict="mean")) == content(fultr.count(log))


def test_means_of_numbers_far_apart_do_not_depend_on_the_order() -> None:
    values = [1e30, 1e10, 1e-30, -1e30, -1e10, 3.0, 1e-3]
    found = set()
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(values))
        table = {
            "impression_id": order,
            "query_id": [1] * 7,
            "doc_id": [1] * 7,
            "position": [1] * 7,
            "click": [1] * 7,
            "feature_a": [values[index] for index in order],
        }
        found.add(fultr.count(table, on_conflict="mean").data.features.item())
    assert len(found) == 1


# --- a document twice in an impression ---


def repeated(log: pl.DataFrame) -> pl.DataFrame:
    """In some searches the posting at position 2 is shown again at position 16, where it is clicked."""
    again = log.filter((pl.col("position") == 2) & pl.col("impression_id").str.ends_with("7"))
    return pl.concat([again.with_columns(position=pl.lit(16, pl.Int64), click=pl.lit(1, pl.Int64)), log])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_first_of_repeated_documents_is_kept(tmp_path: Path, kind: str) -> None:
    log = repeated(job_board())
    path = in_file(log, tmp_path / f"log.{kind}")
    with pytest.raises(InputError, match="column 'doc_id': the document stands in row .* on_repeat='first'"):
        fultr.count(path)
    for source in (path, log.sample(fraction=1.0, shuffle=True, seed=1), log[::-1]):
        assert content(fultr.count(source, on_repeat="first")) == content(fultr.count(job_board()))
        single = fultr.read_log(source, on_repeat="first")
        assert content(single.compact()) == content(fultr.count(job_board()))
    with pytest.raises(InputError, match="'on_repeat': must be 'error' or 'first'"):
        fultr.count(log, on_repeat="last")  # type: ignore[arg-type]


def test_of_rows_at_one_position_the_clicked_one_is_kept() -> None:
    table: dict[str, list[Any]] = {
        "impression_id": [1, 1, 1, 1],
        "query_id": ["q"] * 4,
        "doc_id": ["a", "a", "b", "b"],
        "position": [1, 1, None, 2],
        "click": [0, 1, 0, 0],
    }
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        rows = {name: [values[index] for index in order] for name, values in table.items()}
        counts = fultr.count(rows, on_repeat="first")
        assert counts.cells.position.tolist() == [1, 2]
        assert counts.cells.clicks.tolist() == [1, 0]


def test_planted_items_may_be_of_one_name() -> None:
    table = {
        "impression_id": [1, 1, 1, 1],
        "query_id": ["q"] * 4,
        "doc_id": ["a", "(planted)", "(planted)", "b"],
        "position": [1, 2, 3, 4],
        "click": [0, 0, 1, 1],
        "planted": [0, 1, 1, 0],
    }
    counts = fultr.count(table, on_repeat="first")
    assert counts.planted.impressions.sum() == 2
    assert counts.data.lengths.tolist() == [2]


# --- in the shell ---


@pytest.fixture(params=["csv", "parquet"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log in which the group has another name, and columns differ from search to search."""
    log = repeated(job_board()).rename({"group": "employer"})
    hours = (pl.col("timestamp") - pl.col("timestamp").min()).dt.total_minutes() // 60
    return in_file(log.with_columns(hour=hours, user_id=3), tmp_path / f"odd.{request.param}")


@pytest.mark.slow
def test_commands_read_columns_as_they_are_told(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ("--group", "employer", "--exclude", "hour", "--on-repeat", "first")
    out = tmp_path / "counts.parquet"
    code, _, err = result_of(capsys, "count", odd, *told, "--out", out)
    assert code == 0, err
    assert "features are the columns of numbers, salary, distance, remote; --exclude leaves" in err
    assert content(fultr.read_counts(out)) == content(fultr.count(job_board()))
    found = json_of(capsys, "inspect", odd, *told, "--eta", 1)
    assert found["features"] == 3
    sentences = [finding["sentence"] for finding in found["findings"] if finding["about"] == "features"]
    kind = "dates" if odd.suffix == ".parquet" else "text"
    assert any(f"'posted' cannot be a feature as it is: of its values, 3,020 {kind}" in s for s in sentences)
    assert not any("hour" in sentence or "user_id" in sentence for sentence in sentences)
    assert set(found["groups"]) == {"agency", "direct", "(unknown)"}
    run = tmp_path / "run"
    common = ("--eta", 1, "--l2", 0.1)
    limit = ("--max-disparity", 2, "--complete-lists")
    trained = json_of(capsys, "train", odd, *told, *common, *limit, "--out", run)
    again = json_of(capsys, "train", out, *common, *limit, "--out", tmp_path / "again")
    assert trained["training"] == again["training"]
    # a policy takes its own features, whatever others there are
    own = ("--group", "employer", "--on-repeat", "first")
    evaluated = json_of(capsys, "evaluate", run, odd, *own)
    assert evaluated["dcg"] == pytest.approx(json_of(capsys, "evaluate", run, out)["dcg"])
    audited, expected = (
        json_of(capsys, "audit", source, "--eta", 1, *more)["rankings"]
        for source, more in ((odd, told), (out, ()))
    )
    assert audited == expected
    narrow = ("--features", "salary,remote", "--lambda", 1, *common)
    json_of(capsys, "train", odd, *own, *narrow, "--out", tmp_path / "two")
    json_of(capsys, "train", out, *narrow, "--out", tmp_path / "counted")
    two, counted = (fultr.load(tmp_path / name / "policy.safetensors") for name in ("two", "counted"))
    assert list(two.feature_names_in_) == list(counted.feature_names_in_) == ["salary", "remote"]
    json_of(
        capsys,
        "sweep",
        odd,
        *own,
        "--features",
        "salary",
        "--lambdas",
        "0,1",
        *common,
        "--out",
        tmp_path / "s",
    )


def test_commands_name_options_in_what_they_refuse(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = result_of(capsys, "inspect", odd)
    assert code == 2
    assert "; --on-repeat 'first' keeps the first" in err
    code, _, err = result_of(capsys, "count", odd, "--on-repeat", "first", "--out", tmp_path / "c.parquet")
    assert code == 2
    assert "column 'hour': hour of the same document" in err
    assert "--on-conflict 'first', 'last' or 'mean' says what to take, --exclude 'hour' leaves it out" in err
    for choice in ("first", "last", "mean"):
        path = tmp_path / f"{choice}.parquet"
        told = ("--on-repeat", "first", "--on-conflict", choice)
        assert result_of(capsys, "count", odd, *told, "--out", path)[0] == 0
        found = fultr.count(odd, on_repeat="first", on_conflict=choice)
        assert content(fultr.read_counts(path)) == content(found)
    common = ("train", odd, "--eta", 1, "--l2", 0.1, "--out", tmp_path / "run")
    assert "column 'posted': a date or a time is no feature" in refusal(
        capsys, *common, "--features", "posted"
    )
    err = refusal(capsys, *common, "--features", "", "--on-repeat", "first")
    assert "has no features to score items by; name their columns with --features, or --items" in err
    code, _, err = result_of(
        capsys, *common, "--features", "salary", "--on-repeat", "first", "--max-disparity", 0
    )
    assert code == 2
    assert "--max-disparity: there are no two groups of items" in err
    assert "name different columns" in refusal(
        capsys, "inspect", odd, "--group", "employer", "--column", "group=device"
    )
    letor = tmp_path / "data.txt"
    letor.write_text("1 qid:1 1:0.5 2:1\n0 qid:1 1:0.1 2:0\n")
    assert "which has its groups already; leave --group out" in refusal(
        capsys, "inspect", letor, "--group", "employer"
    )
    assert json_of(capsys, "inspect", letor, "--exclude", "2")["features"] == 1


def test_validation_clicks_need_only_the_features_of_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = in_file(job_board(), tmp_path / "log.parquet")
    later = job_board(seed=3).with_columns(hour=pl.col("position"), query_id=pl.col("query_id") + ", later")
    valid = in_file(later.select(reversed(later.columns)), tmp_path / "valid.csv")
    common = ("--eta", 1, "--l2", "0.1,1", "--lambda", 1, "--out", tmp_path / "run")
    found = json_of(capsys, "train", log, "--valid", valid, *common)
    ranker = fultr.FairRanker(1.0, l2=[0.1, 1.0], position_bias=BIAS)
    ranker.fit(fultr.count(log), valid=fultr.count(valid, exclude="hour"))
    assert found["validation"]["dcg"] == pytest.approx(ranker.evaluate(later).dcg)


def test_other_commands_take_the_options_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = in_file(repeated(job_board()), tmp_path / "log.csv")
    told = ("--on-repeat", "first")
    out = tmp_path / "clicks.parquet"
    json_of(capsys, "convert", log, out, *told, "--exclude", "distance")
    assert fultr.read_log(out).data.feature_names == ("salary", "remote")
    assert "--on-repeat 'first' keeps the first" in refusal(capsys, "propensity", log, "--method", "harvest")
    assert json_of(capsys, "propensity", log, "--method", "harvest", *told)["method"] == "harvest"
    test = job_board().unique(["query_id", "doc_id"]).with_columns(relevance=pl.col("salary") > 0)
    labels = in_file(
        test.select("query_id", "doc_id", "group", *FEATURES, pl.col("relevance").cast(pl.Int64)),
        tmp_path / "test.parquet",
    )
    common = ("--test", labels, "--methods", "click-svm", "--eta", 1, "--out", tmp_path / "compared")
    found = json_of(capsys, "compare", log, *common, *told)
    assert found["policies"]
