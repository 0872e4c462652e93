from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr import (
    ClickLog,
    ClickNoise,
    InputError,
    PlackettLuce,
    Planting,
    PositionBias,
    RankingDataset,
    log_from_frame,
    read_log,
    simulate_clicks,
    write_log,
)
from fultr.data import table_files
from tests.strategies import logs

FORMS = [
    ("log.parquet", "table"),
    ("log.parquet", "list"),
    ("log.parquet", "columns"),
    ("log.csv", "table"),
    ("log.csv", "columns"),
]


@pytest.mark.parametrize(("name", "form"), FORMS)
@settings(max_examples=25)
@given(log=logs())
def test_a_log_written_and_read_back_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, name: str, form: Any, log: ClickLog
) -> None:
    path = tmp_path_factory.mktemp("log") / name
    files = write_log(log, path, features=form)
    assert sorted(path.parent.iterdir()) == sorted(files)
    assert read_log(path).equals(log)


def simulated(**options: Any) -> ClickLog:
    rng = np.random.default_rng(0)
    data = RankingDataset(
        rng.normal(size=(60, 2)),
        np.arange(0, 61, 6),
        group=rng.integers(-1, 2, size=60),
        group_names=("left", "right"),
        relevance=rng.random(60) < 0.3,
        query_id=[f"query {n}" for n in range(10)],
        doc_id=np.arange(60) % 7,
    )
    settings_ = {
        "impressions": 500,
        "seed": 3,
        "noise": ClickNoise(0.9, 0.1),
        "planting": Planting(0.2),
        **options,
    }
    return simulate_clicks(
        data, PlackettLuce(lambda x: x[:, 0]), PositionBias([1, 0.5, 0.3], beyond=1.0), **settings_
    )


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_batches_of_any_size_give_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: Any
) -> None:
    log = simulated(top_k=5)
    write_log(log, tmp_path / name, features=form)
    monkeypatch.setattr(table_files, "ROWS_A_BATCH", 17)
    monkeypatch.setattr(table_files, "CSV_BLOCK", 4096)
    assert read_log(tmp_path / name).equals(log)


@pytest.mark.parametrize("keep_empty", [True, False])
def test_metadata_travels_with_the_log(tmp_path: Path, keep_empty: bool) -> None:
    log = simulated(keep_empty=keep_empty)
    for name in ("log.parquet", "log.csv"):
        write_log(log, tmp_path / name)
        again = read_log(tmp_path / name)
        assert again.empties_dropped is not keep_empty
        assert again.position_bias == log.position_bias
        assert again.noise == log.noise
        assert again.origin == log.origin
        assert again.data.relevance is None


def test_rows_may_come_in_any_order(tmp_path: Path) -> None:
    log = simulated()
    write_log(log, tmp_path / "log.parquet", features="list")
    table = pq.read_table(tmp_path / "log.parquet")
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    pq.write_table(shuffled, tmp_path / "shuffled.parquet")
    again = read_log(tmp_path / "shuffled.parquet")
    assert again.impression_id is not None
    assert again[np.argsort(again.impression_id)].equals(log)


def long_table(**columns: Any) -> dict[str, Any]:
    table: dict[str, Any] = {
        "impression_id": ["i", "i", "j", "j", "j"],
        "query_id": [1, 1, 1, 1, 1],
        "doc_id": ["a", "b", "b", "a", "c"],
        "position": [1, 2, 1, 2, None],
        "click": [0, 1, 1, 0, 0],
        "group": ["x", None, None, "x", "y"],
        "feature_quality": [0.5, 1.5, 1.5, 0.5, 2.5],
    }
    table.update(columns)
    return {name: column for name, column in table.items() if column is not None}


FRAMES = [pd.DataFrame, pl.DataFrame, pa.table, dict]


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_of_any_kind_make_a_log(frame: Any) -> None:
    log = log_from_frame(frame(long_table()), position_bias=PositionBias.power(1))
    assert len(log) == 2
    assert log.data.lengths.tolist() == [2, 3]
    assert log.data.feature_names == ("quality",)
    assert log.data.group_names == ("x", "y")
    assert log.data.group.tolist() == [0, -1, -1, 0, 1]
    assert log.position.tolist() == [1, 2, 1, 2, 0]
    assert log.position_bias == PositionBias.power(1)


def test_impressions_of_the_same_candidates_share_a_list_whatever_their_order() -> None:
    log = log_from_frame(
        {
            "impression_id": [1, 1, 2, 2, 3, 3],
            "query_id": [7] * 6,
            "doc_id": ["a", "b", "b", "a", "a", "c"],
            "position": [1, 2, 1, 2, 1, 2],
            "click": [1, 0, 1, 0, 0, 0],
        }
    )
    assert log.lists.tolist() == [0, 0, 1]
    assert log.position.tolist() == [1, 2, 2, 1, 1, 2]
    assert log.click.tolist() == [True, False, False, True, False, False]
    assert log.data.features.shape == (4, 0)


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    table = long_table()
    table["search"] = table.pop("query_id")
    table["rank"] = table.pop("position")
    renamed = {"query_id": "search", "position": "rank"}
    pd.DataFrame(table).to_csv(tmp_path / "log.csv", index=False)
    log = read_log(tmp_path / "log.csv", columns=renamed)
    assert log.equals(log_from_frame(table, columns=renamed))


def test_csv_ids_are_whole_numbers_only_if_all_are(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("impression_id,query_id,doc_id,position,click\n1,1,01,1,1\n1,1,2,2,0\n")
    log = read_log(path)
    assert log.data.doc_id is not None
    assert log.data.query_id is not None
    assert log.data.doc_id.tolist() == ["01", "2"]
    assert log.data.query_id.tolist() == [1]


def test_clicks_and_positions_of_many_types_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("impression_id,query_id,doc_id,position,click\n1,1,1,1.0,true\n1,1,2,2,False\n1,1,3,,\n")
    log = read_log(path)
    assert log.position.tolist() == [1, 2, 0]
    assert log.click.tolist() == [True, False, False]
    same = log_from_frame(
        long_table(click=[False, True, True, False, None], position=np.array([1, 2, 1, 2, np.nan]))
    )
    assert same.equals(log_from_frame(long_table()))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_features_may_stand_in_a_second_table(tmp_path: Path, kind: str) -> None:
    log_table = pd.DataFrame(long_table(feature_quality=None, group=None))
    items = pd.DataFrame(
        {"query_id": [1, 1, 1, 9], "doc_id": ["c", "b", "a", "a"], "group": ["y", None, "x", "x"],
         "quality": [2.5, 1.5, 0.5, 9], "price": [3, 2, 1, 9]}
    )  # fmt: skip
    for name, frame in (("log", log_table), ("items", items)):
        if kind == "csv":
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
        else:
            frame.to_parquet(tmp_path / f"{name}.parquet")
    log = read_log(tmp_path / f"log.{kind}", items=tmp_path / f"items.{kind}")
    assert log.data.feature_names == ("quality", "price")
    assert log.data.features.tolist() == [[0.5, 1], [1.5, 2], [1.5, 2], [0.5, 1], [2.5, 3]]
    assert log.data.group.tolist() == [0, -1, -1, 0, 1]
    narrow = read_log(tmp_path / f"log.{kind}", items=tmp_path / f"items.{kind}", features=["price"])
    assert narrow.data.feature_names == ("price",)


def test_conflicts_are_settled_as_told() -> None:
    table = long_table(feature_quality=[0.5, 1.5, 9.0, 0.5, 2.5])
    with pytest.raises(
        InputError, match="row 3, column 'features': features of the same document and query in row 2"
    ):
        log_from_frame(table)
    assert log_from_frame(table, on_conflict="first").data.features.ravel().tolist() == [
        0.5,
        1.5,
        1.5,
        0.5,
        2.5,
    ]
    assert log_from_frame(table, on_conflict="last").data.features.ravel().tolist() == [0.5, 9, 9, 0.5, 2.5]
    with pytest.raises(InputError, match="on_conflict"):
        log_from_frame(table, on_conflict="newest")  # type: ignore[arg-type]


def test_a_lost_or_exchanged_table_of_documents_is_noticed(tmp_path: Path) -> None:
    log = simulated()
    _, items = write_log(log, tmp_path / "log.parquet")
    other = items.with_name("other.parquet")
    items.rename(other)
    with pytest.raises(InputError, match="log.items.parquet should stand beside it"):
        read_log(tmp_path / "log.parquet")
    assert read_log(tmp_path / "log.parquet", items=other).equals(log)
    write_log(simulated(seed=4), tmp_path / "else.parquet")
    table = pq.read_table(other)
    pq.write_table(table.slice(1), items)
    with pytest.raises(InputError, match="is not the table of documents it was written with"):
        read_log(tmp_path / "log.parquet")
    assert read_log(tmp_path / "log.parquet", features=[]).data.features.shape[1] == 0


def test_failing_to_write_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = simulated()
    files = write_log(log, tmp_path / "log.parquet")
    before = {file: file.read_bytes() for file in files}

    def broken(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", broken)
    with pytest.raises(Exception, match="No space left"):
        write_log(simulated(seed=9), tmp_path / "log.parquet")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_unwritable_requests_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    log = simulated()
    for name, form, problem in (
        ("log.xlsx", "table", ".parquet or .csv"),
        ("log.csv", "list", "cannot hold lists"),
        ("log.parquet", "other", "must be 'table'"),
        ("nowhere/log.parquet", "table", "folder does not exist"),
    ):
        with pytest.raises(InputError, match=problem):
            write_log(log, tmp_path / name, features=form)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    write_log(simulated(), tmp_path / "log.csv", features="none")
    mark, rest = (tmp_path / "log.csv").read_text().split("\n", 1)
    content = json.loads(mark.removeprefix(table_files.CSV_MARK))
    for changed, problem in (
        ({**content, "version": 99}, "newer fultr"),
        ({**content, "kind": "dataset"}, "no click log"),
    ):
        (tmp_path / "log.csv").write_text(f"{table_files.CSV_MARK}{json.dumps(changed)}\n{rest}")
        with pytest.raises(InputError, match=problem):
            read_log(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text(f"{table_files.CSV_MARK}[1\n{rest}")
    with pytest.raises(InputError, match="metadata is damaged"):
        read_log(tmp_path / "log.csv")


def test_dates_survive(tmp_path: Path) -> None:
    dates = pd.to_datetime(["2021-07-11 10:00:00.5", "2021-07-11 10:00:00.5", *["2021-07-12 08:00:00.0"] * 3])
    log = log_from_frame(pd.DataFrame(long_table(timestamp=dates)))
    assert log.timestamp is not None
    assert log.timestamp.dtype == np.dtype("datetime64[us]")
    for name in ("log.parquet", "log.csv"):
        write_log(log, tmp_path / name)
        assert read_log(tmp_path / name).equals(log)


@given(st.permutations(range(5)))
def test_permuting_rows_changes_nothing_but_their_order(order: list[int]) -> None:
    base, table = log_from_frame(long_table()), long_table()
    mixed = log_from_frame({name: [column[k] for k in order] for name, column in table.items()})
    assert base.impression_id is not None
    assert mixed.impression_id is not None
    by_id = [mixed.impression_id.tolist().index(name) for name in base.impression_id.tolist()]
    assert mixed[np.array(by_id)].equals(base)
