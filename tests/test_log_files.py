from __future__ import annotations

import json
from dataclasses import replace
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
    read_log,
    simulate_clicks,
    write_log,
)
from fultr.data import Planted, table_files
from tests.comparison import same_logs
from tests.strategies import logs

FORMS = [
    ("log.parquet", "table"),
    ("log.parquet", "list"),
    ("log.parquet", "columns"),
    ("log.csv", "table"),
    ("log.csv", "columns"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), FORMS)
@settings(max_examples=25)
@given(log=logs())
def test_a_log_written_and_read_back_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, name: str, form: Any, log: ClickLog
) -> None:
    path = tmp_path_factory.mktemp("log") / name
    files = write_log(log, path, features=form)
    assert sorted(path.parent.iterdir()) == sorted(files)
    assert same_logs(read_log(path), log)


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
        "noise": ClickNoise(0.9, [0.2, 0.1]),
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
    monkeypatch.setattr(table_files, "TEXT_BLOCK", 4096)
    assert same_logs(read_log(tmp_path / name), log)


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
    assert same_logs(again[np.argsort(again.impression_id)], log)


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
    log = read_log(frame(long_table()), position_bias=PositionBias.power(1))
    assert len(log) == 2
    assert log.data.lengths.tolist() == [2, 3]
    assert log.data.feature_names == ("quality",)
    assert log.data.group_names == ("x", "y")
    assert log.data.group.tolist() == [0, -1, 0, -1, 1]
    assert log.position.tolist() == [1, 2, 2, 1, 0]
    assert log.position_bias == PositionBias.power(1)


def test_impressions_of_the_same_candidates_share_a_list_whatever_their_order() -> None:
    log = read_log(
        {
            "impression_id": [1, 1, 2, 2, 3, 3],
            "query_id": [7] * 6,
            "doc_id": ["a", "b", "b", "a", "a", "c"],
            "position": [1, 2, 1, 2, 1, 2],
            "click": [1, 0, 1, 0, 0, 0],
        }
    )
    assert log.lists[0] == log.lists[1] != log.lists[2]
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
    assert same_logs(log, read_log(table, columns=renamed))


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
    same = read_log(
        long_table(click=[False, True, True, False, None], position=np.array([1, 2, 1, 2, np.nan]))
    )
    assert same_logs(same, read_log(long_table()))


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
    assert log.data.features.tolist() == [[0.5, 1], [1.5, 2], [0.5, 1], [1.5, 2], [2.5, 3]]
    assert log.data.group.tolist() == [0, -1, 0, -1, 1]
    narrow = read_log(tmp_path / f"log.{kind}", items=tmp_path / f"items.{kind}", features=["price"])
    assert narrow.data.feature_names == ("price",)


def test_conflicts_are_settled_as_told() -> None:
    table = long_table(feature_quality=[0.5, 1.5, 9.0, 0.5, 2.5])
    with pytest.raises(
        InputError,
        match="row 3, column 'feature_quality': feature_quality of the same document and query in row 2",
    ):
        read_log(table)
    assert read_log(table, on_conflict="first").data.features.ravel().tolist() == [
        0.5,
        1.5,
        0.5,
        1.5,
        2.5,
    ]
    assert read_log(table, on_conflict="last").data.features.ravel().tolist() == [0.5, 9, 0.5, 9, 2.5]
    with pytest.raises(InputError, match="on_conflict"):
        read_log(table, on_conflict="newest")  # type: ignore[arg-type]


def test_a_lost_or_exchanged_table_of_documents_is_noticed(tmp_path: Path) -> None:
    log = simulated()
    _, items = write_log(log, tmp_path / "log.parquet")
    other = items.with_name("other.parquet")
    items.rename(other)
    with pytest.raises(InputError, match="log.items.parquet should stand beside it"):
        read_log(tmp_path / "log.parquet")
    assert same_logs(read_log(tmp_path / "log.parquet", items=other), log)
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
    log = read_log(pd.DataFrame(long_table(timestamp=dates)))
    assert log.timestamp is not None
    assert log.timestamp.dtype == np.dtype("datetime64[us]")
    for name in ("log.parquet", "log.csv"):
        write_log(log, tmp_path / name)
        assert same_logs(read_log(tmp_path / name), log)


@given(st.permutations(range(5)))
def test_permuting_rows_changes_nothing_but_their_order(order: list[int]) -> None:
    base, table = read_log(long_table()), long_table()
    mixed = read_log({name: [column[k] for k in order] for name, column in table.items()})
    assert base.impression_id is not None
    assert mixed.impression_id is not None
    by_id = [mixed.impression_id.tolist().index(name) for name in base.impression_id.tolist()]
    assert same_logs(mixed[np.array(by_id)], base)


def damaged_metadata(path: Path, **changed: Any) -> None:
    mark, rest = path.read_text().split("\n", 1)
    content = {**json.loads(mark.removeprefix(table_files.CSV_MARK)), **changed}
    path.write_text(f"{table_files.CSV_MARK}{json.dumps(content)}\n{rest}")


@pytest.mark.parametrize(
    "changed",
    [
        {"noise": 3},
        {"noise": {"eps_plus": "a", "eps_minus": 0}},
        {"noise": {"eps": 1}},
        {"position_bias": [1]},
        {"position_bias": {"values": [1], "beyond": None}},
        {"items": "x"},
        {"items": {"file": "../x", "sha256": ""}},
        {"items": {"file": 3, "sha256": ""}},
        {"origin": [1]},
        {"group_names": "ab"},
        {"feature_names": [1]},
        {"empties_dropped": 1},
        {"version": None},
        {"version": True},
    ],
)
def test_damaged_metadata_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = tmp_path / "log.csv"
    write_log(simulated(), path)
    damaged_metadata(path, **changed)
    with pytest.raises(InputError, match=r"log.csv: its fultr metadata is damaged"):
        read_log(path)


def test_a_table_of_documents_of_somebody_else_is_never_replaced(tmp_path: Path) -> None:
    items = tmp_path / "log.items.parquet"
    pq.write_table(pa.table({"query_id": ["q"], "doc_id": [1], "title": ["x"]}), items)
    before = items.read_bytes()
    with pytest.raises(InputError, match="log.items.parquet: is there already and was not written by fultr"):
        write_log(simulated(), tmp_path / "log.parquet")
    assert items.read_bytes() == before
    assert list(tmp_path.iterdir()) == [items]
    assert write_log(simulated(), tmp_path / "log.parquet", features="list") == [tmp_path / "log.parquet"]
    (tmp_path / "other.items.csv").write_text("")
    with pytest.raises(InputError, match="other.items.csv: is there already"):
        write_log(simulated(), tmp_path / "other.csv")
    for _ in range(2):  # our own is replaced
        write_log(simulated(), tmp_path / "again.csv")


def test_a_log_without_clicks_is_refused_before_it_is_written(tmp_path: Path) -> None:
    log = simulated()
    log = replace(log, click=np.zeros(log.entries, dtype=bool))
    with pytest.raises(InputError, match="log.csv, column 'click': the log has no clicks"):
        write_log(log, tmp_path / "log.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_long_ids_times_and_no_planted_items_survive(tmp_path: Path, name: str) -> None:
    data = RankingDataset(
        [[1.0], [2.0]], [0, 2], query_id=[2**63 - 1], doc_id=[-(2**63), 10**18], feature_names=["a\nb"]
    )
    nothing = replace(Planted.none(), propensity=np.empty(0))
    log = ClickLog(
        data,
        [0, 0],
        [1, 2, 2, 1],
        [1, 0, 0, 1],
        propensity=[1, 0.5, 0.5, 1],
        planted=nothing,
        timestamp=np.array(["2024-05-01T10:00:00.123456789", "1800-01-01"], dtype="datetime64[ns]"),
    )
    write_log(log, tmp_path / name, features="columns")
    again = read_log(tmp_path / name)
    assert same_logs(again, log)
    assert again.data.feature_names == ("a\nb",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00"),
        ("2024-05-01 12:00:00+02:00", "2024-05-01T10:00:00"),
        ("2024-05-01 10:00:00.123456789", "2024-05-01T10:00:00.123456"),
        ("2024-05-01", "2024-05-01"),
    ],
)
def test_times_as_text_are_understood(tmp_path: Path, text: str, expected: str) -> None:
    pd.DataFrame(long_table(timestamp=[text] * 5)).to_csv(tmp_path / "log.csv", index=False)
    times = read_log(tmp_path / "log.csv").timestamp
    assert times is not None
    assert times.tolist() == [np.datetime64(expected, "us").item()] * 2


def test_times_with_a_zone_become_utc(tmp_path: Path) -> None:
    dates = pd.to_datetime(["2024-05-01 12:00"] * 5).tz_localize("Europe/Berlin")
    times = read_log(pd.DataFrame(long_table(timestamp=dates))).timestamp
    assert times is not None
    assert times[0] == np.datetime64("2024-05-01T10:00:00", "us")
    for wrong, row in ((["1", "2", "3", "monday", "5"], 4), (["2024-05-01"] * 4 + ["2024-05-01T10:00Z"], 5)):
        with pytest.raises(InputError, match=f"row {row}, column 'timestamp': .*all of one form"):
            read_log(long_table(timestamp=wrong))
    with pytest.raises(InputError, match="integers or dates, not double"):
        read_log(long_table(timestamp=[0.5] * 5))
    with pytest.raises(InputError, match="row 5, column 'timestamp': .*64 bits"):
        read_log(long_table(timestamp=pa.array([1, 1, 1, 1, 2**63], type=pa.uint64())))


def test_whole_numbers_and_dates_in_different_batches_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "ROWS_A_BATCH", 2)
    with pytest.raises(InputError, match="row 3, column 'timestamp': must be all integers"):
        read_log(long_table(timestamp=["1", "1", *["2024-05-01"] * 3]))


def test_categories_of_any_library_are_text() -> None:
    expected = read_log(long_table())
    frame = pl.DataFrame(long_table()).with_columns(
        pl.col("group").cast(pl.Categorical), pl.col("doc_id").cast(pl.Enum(["a", "b", "c"]))
    )
    assert same_logs(read_log(frame), expected)
    categories = pd.DataFrame(long_table()).astype({"group": "category", "doc_id": "category"})
    assert same_logs(read_log(categories), expected)
    views = pa.table(pl.DataFrame(long_table(click=["0", "true", "1", "0", None])))
    assert views.schema.field("click").type == pa.string_view()
    assert same_logs(read_log(views), expected)


@pytest.mark.parametrize("index", [None, "page"])
def test_the_index_of_a_frame_is_no_feature(tmp_path: Path, index: str | None) -> None:
    items = pd.DataFrame({"query_id": [1, 1, 1], "doc_id": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]})
    items.index = pd.Index([10, 20, 30], name=index)
    items.to_parquet(tmp_path / "items.parquet")
    frame = long_table(feature_quality=None)
    pd.DataFrame(frame).to_parquet(tmp_path / "log.parquet")
    for log in (
        read_log(tmp_path / "log.parquet", items=tmp_path / "items.parquet"),
        read_log(frame, items=items),
    ):
        assert log.data.feature_names == ("price",)


def test_an_index_may_hold_a_column_of_the_log() -> None:
    frame = pd.DataFrame(long_table()).set_index("impression_id")
    assert same_logs(read_log(frame), read_log(long_table()))


def test_groups_of_the_log_and_of_the_documents_must_agree(tmp_path: Path) -> None:
    items = {"query_id": [1, 1, 1], "doc_id": ["c", "b", "a"], "group": ["y", None, "z"], "price": [1, 2, 3]}
    table = long_table(feature_quality=None)
    problem = "row 1, column 'group': group of the same document and query in row 3 of the table of documents"
    with pytest.raises(InputError, match=problem):
        read_log(table, items=items)
    pd.DataFrame(items).to_csv(tmp_path / "items.csv", index=False)
    pd.DataFrame(table).to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(InputError, match="row 2, column 'group': .*in row 4 of the table of documents"):
        read_log(tmp_path / "log.csv", items=tmp_path / "items.csv")
    for choice, name in (("first", "z"), ("last", "x")):
        log = read_log(table, items=items, on_conflict=choice)  # type: ignore[arg-type]
        assert log.data.group_names[log.data.group[0]] == name
    same = read_log(table, items={**items, "group": ["y", None, "x"]})
    assert same.data.group_names == ("x", "y")


@pytest.mark.parametrize("text", ["nan", "inf", "1_0", "\u0662", "0x1", "1e999", ""])
def test_positions_as_text_are_plain_numbers(text: str) -> None:
    with pytest.raises(InputError, match="row 2, column 'position'"):
        read_log(long_table(position=["1", text, "1", "2", None]))
    assert read_log(long_table(position=["1", " +2.0 ", "1", "2e0", None])).position.max() == 2


def test_ids_beyond_64_bits_are_named() -> None:
    for name in ("impression_id", "query_id", "doc_id"):
        ids = pa.array([2**63, 2**63, 5, 5, 2**63 + 1], type=pa.uint64())
        with pytest.raises(InputError, match=f"row 1, column '{name}': .*64 bits .*got 9223372036854775808"):
            read_log(long_table(**{name: ids}))


def test_a_column_name_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table(long_table())
    table = table.append_column("click", table["click"])
    with pytest.raises(InputError, match="column 'click': two columns have this name"):
        read_log(table)
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(InputError, match="log.parquet, column 'click': two columns have this name"):
        read_log(tmp_path / "log.parquet")


def test_names_that_were_written_are_used_only_if_they_fit(tmp_path: Path) -> None:
    log = simulated()
    data = replace(log.data, feature_names=("p", "q"), group_columns=(1,))
    for form in ("columns", "list", "table"):
        write_log(replace(log, data=data), tmp_path / "log.parquet", features=form)
        again = read_log(tmp_path / "log.parquet")
        assert (again.data.feature_names, again.data.group_columns) == (("p", "q"), (1,))
        if form == "columns":
            for chosen, derived in (("p", ()), ("q", (0,))):
                narrow = read_log(tmp_path / "log.parquet", features=[f"feature_{chosen}"])
                assert (narrow.data.feature_names, narrow.data.group_columns) == ((chosen,), derived)
    table = pq.read_table(tmp_path / "log.items.parquet")
    other = table.drop_columns(["features"]).append_column("price", pa.array(np.ones(table.num_rows)))
    pq.write_table(other, tmp_path / "other.parquet")
    again = read_log(tmp_path / "log.parquet", items=tmp_path / "other.parquet")
    assert (again.data.feature_names, again.data.group_columns) == (("price",), ())


def test_a_single_name_is_not_taken_for_letters() -> None:
    with pytest.raises(InputError, match="column 'features': must be a list of names"):
        read_log(long_table(), features="feature_quality")
    with pytest.raises(InputError, match="column 'group_names': must be a list of names"):
        read_log(long_table(), group_names="xy")


def text_log(*lines: str) -> str:
    return "impression_id,query_id,doc_id,position,click,note\n" + "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("header", ["", '# fultr {"version": 1}\n', "\n\n"])
def test_rows_of_text_are_counted_as_lines(tmp_path: Path, header: str) -> None:
    path = tmp_path / "log.csv"
    lines = ["1,q,a,1,1,", "", '1,q,b,2,0,"two', 'lines, ""quoted"""', "", "1,q,c,3,2,"]
    path.write_text(header + text_log(*lines))
    with pytest.raises(InputError, match=f"row {header.count(chr(10)) + 7}, column 'click'"):
        read_log(path)
    lines[-1] = "1,q,b,3,0,"
    path.write_text(header + text_log(*lines))
    first = header.count("\n") + 4
    with pytest.raises(InputError, match=f"row {first + 3}, column 'doc_id': .*stands in row {first} "):
        read_log(path)
    lines[-1] = "1,q"
    path.write_text(header + text_log(*lines))
    with pytest.raises(InputError, match=f"row {first + 3}: the row has 2 values, but there are 6"):
        read_log(path)


def test_lines_may_break_inside_quotes_wherever_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "TEXT_BLOCK", 512)
    rows = [f'{k // 2},q,"d\n{k % 2}",{k % 2 + 1},{k % 2},"{"x" * (k % 37)}\n\n"' for k in range(400)]
    (tmp_path / "log.csv").write_text(text_log(*rows))
    log = read_log(tmp_path / "log.csv")
    assert len(log) == 200
    assert log.data.doc_id is not None
    assert log.data.doc_id.tolist() == ["d\n0", "d\n1"]


@pytest.mark.parametrize("where", ["header", "row", "far"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_in_another_encoding_is_named(tmp_path: Path, where: str, encoding: str) -> None:
    text = text_log(*["1,q,a,1,1,"] * (5000 if where == "far" else 1), "1,q,\u00e9,2,0,")
    text = text.replace("note", "\u00e9") if where == "header" else text
    (tmp_path / "log.csv").write_bytes(text.encode(encoding))
    with pytest.raises(InputError, match="log.csv: .*not UTF-8"):
        read_log(tmp_path / "log.csv")


def test_the_deepest_position_is_told() -> None:
    with pytest.raises(InputError, match="from 1 to 1000000; .*got 1000001"):
        read_log(long_table(position=[1, 1_000_001, 1, 2, None]))


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_reading_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(table_files, "ROWS_A_BATCH", 100)
    monkeypatch.setattr(table_files, "TEXT_BLOCK", 4096)
    write_log(simulated(), tmp_path / name)
    seen: list[tuple[int, int]] = []
    read_log(tmp_path / name, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_planted_rows_count_when_rows_are_named() -> None:
    table: dict[str, list[Any]] = {
        "impression_id": [1, 2, 1, 2, 1, 2, 1],
        "query_id": ["q"] * 7,
        "doc_id": ["z", "a", "a", "z", "b", "b", "c"],
        "position": [1, 1, 2, 2, 3, 3, 4],
        "click": [0, 1, 0, 0, 0, 0, 0],
        "planted": [1, 0, 0, 1, 0, 0, 0],
    }
    assert read_log(table).position.tolist() == [2, 3, 4, 1, 3]
    for changed, row, first in (
        ({"position": [1, 1, 2, 2, 3, 3, 3]}, 7, 5),
        ({"position": [1, 1, 2, 2, 1, 3, 4]}, 5, 1),
        ({"planted": [1, 0, 0, 1, 0, 0, 1], "position": [1, 1, 2, 2, 3, 3, 1]}, 7, 1),
    ):
        with pytest.raises(InputError, match=f"row {row}, column 'position': .*in row {first} of the same"):
            read_log({**table, **changed})
    with pytest.raises(InputError, match="row 7, column 'doc_id': .*in row 5 of the same impression"):
        read_log({**table, "doc_id": ["z", "a", "a", "z", "b", "b", "b"]})
