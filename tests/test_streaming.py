from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr import (
    ClickLog,
    ClickNoise,
    CompactLog,
    InputError,
    PlackettLuce,
    Planting,
    PositionBias,
    RandomRanking,
    RankingDataset,
    read_log,
    simulate_clicks,
    write_log,
)
from fultr.clicks import drawing, streamed_simulation
from fultr.clicks.streamed_simulation import simulate_log
from fultr.data import impression_runs, streamed_rows, table_files, write_aggregated_log
from fultr.data.compact_log import Cells
from fultr.data.inspection import count_impressions
from fultr.data.streaming import ScatteredRowsError, stream_compact, stream_log
from tests import commands
from tests.strategies import logs

FORMS = [("log.parquet", "table"), ("log.parquet", "list"), ("log.csv", "table"), ("log.csv", "columns")]


@contextmanager
def pieces(batch: int, chunk: int) -> Iterator[None]:
    """Have tables read in batches of so many rows, and rows counted once there are so many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "ROWS_A_BATCH", batch)
        patch.setattr(streamed_rows, "ROWS_A_CHUNK", chunk)
        yield


def counted(cells: Cells) -> dict[tuple[Any, ...], tuple[int, int]]:
    propensity = [None] * cells.row.size if cells.propensity is None else cells.propensity.tolist()
    keys = list(zip(cells.row.tolist(), cells.position.tolist(), propensity, strict=True))
    assert len(set(keys)) == len(keys)
    counts = zip(cells.impressions.tolist(), cells.clicks.tolist(), strict=True)
    return dict(zip(keys, counts, strict=True))


def content(log: CompactLog) -> dict[str, Any]:
    data = log.data
    return {
        "features": (data.features.shape, data.features.tobytes()),
        "offsets": data.offsets.tolist(),
        "group": (data.group.tolist(), data.group_names),
        "query_id": None if data.query_id is None else (data.query_id.dtype.kind, data.query_id.tolist()),
        "doc_id": None if data.doc_id is None else (data.doc_id.dtype.kind, data.doc_id.tolist()),
        "names": (data.feature_names, data.group_columns, data.source),
        "impressions": (log.impressions.tolist(), log.clicked_impressions.tolist()),
        "cells": counted(log.cells),
        "planted": counted(log.planted),
        "has_propensity": (log.cells.propensity is None, log.planted.propensity is None),
        "about": (log.position_bias, log.noise, log.empties_dropped),
    }


def types(log: CompactLog) -> list[np.dtype[Any]]:
    cells = log.cells
    return [
        *(cells.row.dtype, cells.position.dtype, cells.impressions.dtype, cells.clicks.dtype),
        *(log.impressions.dtype, log.clicked_impressions.dtype),
    ]


@pytest.mark.parametrize(("name", "form"), FORMS)
@settings(max_examples=30)
@given(log=logs(), batch=st.integers(1, 9), chunk=st.sampled_from([1, 5, 100]))
def test_streaming_gives_what_reading_and_compacting_gives(
    tmp_path_factory: pytest.TempPathFactory, name: str, form: Any, log: ClickLog, batch: int, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("log") / name
    write_log(log, path, features=form)
    expected = read_log(path)
    with pieces(batch, chunk):
        streamed = stream_log(path)
        compact = stream_compact(path)
    assert content(compact) == content(expected.compact())
    assert content(streamed.compact) == content(compact)
    assert types(compact) == types(expected.compact())
    assert streamed.describe() == expected.describe()
    assert streamed.facts.single_impressions == count_impressions(expected)
    assert streamed.facts.entries == expected.entries
    assert streamed.facts.not_shown == (expected.position == 0).sum()


def some_data(lists: int = 12, length: int = 5, **fields: Any) -> RankingDataset:
    rng = np.random.default_rng(0)
    rows, documents = lists * length, length + 2
    document = np.arange(rows) % documents
    return RankingDataset(
        rng.normal(size=(documents, 2))[document],
        np.arange(0, rows + 1, length),
        group=rng.integers(-1, 2, size=documents)[document],
        group_names=("left", "right"),
        relevance=rng.random(rows) < 0.4,
        **{"query_id": np.arange(lists) % 7, "doc_id": document, **fields},
    )


def simulated(impressions: int, data: RankingDataset | None = None, **options: Any) -> ClickLog:
    settings_ = {"planting": Planting(0.3), "noise": ClickNoise(0.9, 0.2), "top_k": 5, **options}
    return simulate_clicks(
        data or some_data(), RandomRanking(), PositionBias.power(0.5), impressions=impressions, **settings_
    )


@pytest.mark.parametrize("chunk", [1, 20, 1_000])
def test_batches_may_end_at_any_row(tmp_path: Path, chunk: int) -> None:
    path = tmp_path / "log.parquet"
    write_log(simulated(9), path)
    expected = content(read_log(path).compact())
    for batch in range(1, pq.read_metadata(path).num_rows + 2):
        with pieces(batch, chunk):
            assert content(stream_compact(path)) == expected


@pytest.mark.parametrize("ids", ["whole", "text", "no documents", "none"])
def test_many_impressions_of_many_lists(tmp_path: Path, ids: str) -> None:
    # many times the tables of lists and cells are made larger; without ids, equal lists become one
    fields: dict[str, Any] = {"query_id": np.arange(3_000) // 2, "doc_id": np.arange(9_000)}
    if ids == "text":
        fields = {name: [f"é {value}" for value in values] for name, values in fields.items()}
    elif ids == "no documents":
        fields["doc_id"] = None
    elif ids == "none":
        fields = {"query_id": None, "doc_id": None}
    data = some_data(3_000, 3, **fields)
    if ids == "no documents":
        data = RankingDataset(
            np.zeros((data.rows, 1)), data.offsets, relevance=data.relevance, query_id=data.query_id
        )
    path = tmp_path / "log.parquet"
    write_log(simulated(12_000, data), path)
    with pieces(1_000, 700):
        streamed = stream_log(path)
    log = read_log(path)
    assert content(streamed.compact) == content(log.compact())
    assert streamed.describe() == log.describe()


def test_cells_come_in_the_order_of_rows_and_positions(tmp_path: Path) -> None:
    write_log(simulated(300), tmp_path / "log.parquet")
    cells = stream_compact(tmp_path / "log.parquet").cells
    order = cells.row * 1_000 + cells.position
    assert (np.diff(order) > 0).all()


def long_table(**columns: Any) -> dict[str, Any]:
    table: dict[str, Any] = {
        "impression_id": [1, 1, 1, 2, 2, 2, 3, 3],
        "query_id": ["p", "p", "p", "p", "p", "p", "q", "q"],
        "doc_id": [1, 2, 3, 3, 2, 1, 1, 2],
        "position": [1, 2, None, 1, 2, 3, 1, 2],
        "click": [0, 1, 0, 1, 0, 0, 0, 1],
        "group": ["x", None, "y", "y", None, "x", "y", "y"],
        "feature_a": [0.5, 1.5, 2.5, 2.5, 1.5, 0.5, 7.0, 8.0],
    }
    table.update(columns)
    return {name: column for name, column in table.items() if column is not None}


def written(folder: Path, table: dict[str, Any], kind: str = "parquet", name: str = "log") -> Path:
    path = folder / f"{name}.{kind}"
    if kind == "csv":
        arrow_csv.write_csv(pa.table(table), path)
    else:
        pq.write_table(pa.table(table), path)
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables_of_others_are_read_as_by_read_log(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, long_table(), kind)
    assert content(stream_compact(path)) == content(read_log(path).compact())
    plain = long_table(feature_a=None, group=None)
    plain["search"] = plain.pop("query_id")
    path = written(tmp_path, plain, kind)
    items = written(
        tmp_path,
        {
            "query_id": list("qqppp"),
            "doc_id": [1, 2, 3, 2, 1],
            "group": list("aabba"),
            "price": [1, 2, 3, 4, 5],
        },
        kind,
        "items",
    )
    options: dict[str, Any] = {"items": items, "columns": {"query_id": "search"}}
    for batch in (1, 3, 100):
        with pieces(batch, 2):
            found = stream_compact(path, **options)
        assert content(found) == content(read_log(path, **options).compact())
    assert found.position_bias is None
    bias = PositionBias.power(2.0)
    assert stream_compact(path, position_bias=bias, **options).position_bias == bias


def test_columns_in_dictionaries_and_times_are_understood(tmp_path: Path) -> None:
    table = pa.table(long_table(timestamp=[5, 5, 5, 6, 6, 6, 6, 6]))
    for name in ("query_id", "group"):
        index = table.column_names.index(name)
        table = table.set_column(index, name, table[name].dictionary_encode())
    pq.write_table(table, tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet")
    with pieces(2, 2):
        streamed = stream_log(tmp_path / "log.parquet")
    assert content(streamed.compact) == content(log.compact())
    assert streamed.facts.single_impressions == count_impressions(log)


def test_equal_impressions_are_counted_over_the_whole_log(tmp_path: Path) -> None:
    log = simulated(40, some_data(2, 3), planting=None)
    both: dict[str, Any] = {
        name: np.concatenate([getattr(log, name)] * 2) for name in ("lists", "position", "click")
    }
    twice = ClickLog(log.data, **both, timestamp=np.tile(np.arange(40), 2), position_bias=log.position_bias)
    path = tmp_path / "log.parquet"
    write_log(twice, path)
    with pieces(11, 9):
        counts = stream_log(path).facts.single_impressions
    assert counts == count_impressions(read_log(path))
    assert counts.repeated == log.clicked.sum()
    assert counts.copies == 2
    assert counts.times_tell


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"position": [1, 2, None, 1, 2, 2, 1, 2]}, "row 6, column 'position': the position is taken in row 5"),
    (
        {"doc_id": [1, 2, 3, 3, 2, 3, 1, 2], "group": None, "feature_a": None},
        "row 6, column 'doc_id': the document stands in row 4",
    ),
    ({"click": [0, 1, 1, 1, 0, 0, 0, 1]}, "row 3, column 'click': a click on an item that was not shown"),
    ({"query_id": list("ppppqpqq")}, "row 5, column 'query_id': query_id of the same impression in row 4"),
    ({"query_id": [*"ppppppq", None]}, "row 8, column 'query_id': an id is missing"),
    ({"position": [1, 2, None, 1, 2, 0, 1, 2]}, "row 6, column 'position': a position is"),
    ({"click": [0, 0, 0, 0, 0, 2, 0, 0]}, "row 6, column 'click': must be 0 or 1"),
    ({"click": [0] * 8}, "column 'click': the log has no clicks"),
    ({"group": ["x", None, "y", "y", None, "y", "y", "y"]}, "row 6, column 'group': group of the same"),
    ({"feature_a": [0.5, 1.5, 2.5, 2.5, 1.5, 0.6, 7.0, 8.0]}, "row 6, column 'features': features of the"),
    (
        {"planted": [0, 0, 0, 0, 0, 1, 0, 0], "position": [1, 2, None, 1, 2, 2, 1, 2]},
        "row 6, column 'position': the position is taken in row 5",
    ),
    (
        {"planted": [0, 0, 0, 0, 1, 1, 0, 0], "position": [1, 2, None, 1, 2, 2, 1, 2]},
        "row 6, column 'position': the position is taken in row 5",
    ),
    (
        {"planted": [1, 0, 0, 0, 0, 1, 0, 0], "doc_id": [1, 2, 3, 3, 2, 3, 1, 1], "feature_a": None},
        "row 8, column 'doc_id': the document stands in row 7",
    ),
    ({"planted": [0, 0, 1, 0, 0, 0, 0, 0]}, "row 3, column 'position': a planted item needs a position"),
]


@pytest.mark.parametrize(("wrong", "problem"), WRONG)
@pytest.mark.parametrize(("batch", "chunk"), [(1, 1), (3, 1), (4, 6), (100, 100)])
def test_what_is_wrong_is_said_as_by_read_log(
    tmp_path: Path, wrong: dict[str, Any], problem: str, batch: int, chunk: int
) -> None:
    path = written(tmp_path, long_table(**wrong))
    with pytest.raises(InputError) as expected:
        read_log(path)
    assert problem in str(expected.value)
    with pieces(batch, chunk), pytest.raises(InputError) as found:
        stream_compact(path)
    assert str(found.value) == str(expected.value)


def test_lines_of_csv_files_are_counted_as_by_read_log(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = "1,q,a,1,1\n\n1,q,b,2,0\n2,q,a,1,0\n2,q,b,1,0\n"
    path.write_text(f"impression_id,query_id,doc_id,position,click\n{rows}")
    for read in (read_log, stream_compact):
        with pytest.raises(InputError, match="row 6, column 'position': the position is taken in row 5"):
            read(path)
    path.write_text("impression_id,query_id,doc_id,position,click\n")
    with pytest.raises(InputError, match="log.csv: the log has no rows"):
        stream_compact(path)


def test_an_impression_of_planted_items_only_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, long_table(planted=[0, 0, 0, 0, 0, 0, 1, 1]))
    for batch in (1, 2, 100):
        with pieces(batch, 3), pytest.raises(ScatteredRowsError, match="row 7, .*planted"):
            stream_compact(path)


RETURNS = [[1, 2, 1, 3], [4, 3, 2, 4], [-1, 7, 3, 7]]


@pytest.mark.parametrize("ids", RETURNS)
@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize(("batch", "chunk"), [(1, 1), (2, 1), (2, 8), (3, 2), (100, 100)])
@pytest.mark.parametrize("alike", [False, True])
def test_an_impression_that_comes_back_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ids: list[int],
    kind: Any,
    batch: int,
    chunk: int,
    alike: bool,
) -> None:
    if alike:  # fingerprints tell where to look, and no more
        monkeypatch.setattr(impression_runs, "_fingerprints", lambda ids: np.zeros(len(ids), dtype=np.int64))
    table = long_table(
        impression_id=[kind(value) for value in ids for _ in range(2)],
        query_id=["q"] * 8,
        doc_id=[1, 2] * 4,
        position=[1, 2] * 4,
        group=None,
        feature_a=None,
    )
    again = max(index for index, value in enumerate(ids) if value in ids[:index])
    first = ids.index(ids[again])
    problem = f"row {2 * again + 1}, column 'impression_id': .* started in row {2 * first + 1} and comes back"
    with pieces(batch, chunk), pytest.raises(ScatteredRowsError, match=problem):
        stream_compact(written(tmp_path, table))


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize("alike", [False, True])
def test_impressions_may_come_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, alike: bool
) -> None:
    if alike:
        monkeypatch.setattr(impression_runs, "_fingerprints", lambda ids: np.zeros(len(ids), dtype=np.int64))
    ids = [kind(value) for value in np.repeat(np.random.default_rng(0).permutation(50), 2).tolist()]
    documents, positions = [1, 2] * 50, [2, 1] * 50
    columns = {"doc_id": documents, "position": positions, "click": positions, "query_id": ids}
    columns["click"] = [position - 1 for position in positions]
    path = written(tmp_path, {"impression_id": ids, **columns})
    for batch in (1, 7, 1_000):
        with pieces(batch, 5):
            assert content(stream_compact(path)) == content(read_log(path).compact())


def test_progress_is_told(tmp_path: Path) -> None:
    write_log(simulated(20), tmp_path / "log.parquet")
    rows = pq.read_metadata(tmp_path / "log.parquet").num_rows
    told: list[tuple[int, int]] = []
    with pieces(30, 30):
        stream_compact(tmp_path / "log.parquet", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (rows, rows)
    assert len(told) > 3


def test_rows_are_let_go_once_they_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(simulated(400), tmp_path / "log.parquet")
    held: list[int] = []
    whole = streamed_rows.StreamedRows.count

    def watched(rows: streamed_rows.StreamedRows) -> None:
        held.append(sum(column.size for column in rows.candidates.values()))
        whole(rows)
        assert not rows.candidates
        assert not rows.planted

    monkeypatch.setattr(streamed_rows.StreamedRows, "count", watched)
    with pieces(50, 100):
        stream_compact(tmp_path / "log.parquet")
    assert len(held) > 10
    assert max(held) < 4 * 160  # impression, position, click and item of at most two batches and a bit


OPTIONS: list[dict[str, Any]] = [
    {"impressions": 700},
    {"impressions": 4},
    {"clicks": 300},
    {"clicks": 150, "keep_empty": False},
    {"impressions": 500, "planting": Planting(0.4), "noise": ClickNoise(0.9, 0.2)},
    {"impressions": 3, "planting": Planting(0.001), "noise": ClickNoise(1.0, 0.9)},
    {"impressions": 400, "top_k": 2},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("name", "form"), [*FORMS, ("log.parquet", "none")])
def test_a_streamed_simulation_is_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], name: str, form: Any
) -> None:
    for module in (drawing, streamed_simulation):
        monkeypatch.setattr(module, "IMPRESSIONS_A_STEP", 64)
    data, policy = some_data(), PlackettLuce(lambda features: features[:, 0])
    arguments: dict[str, Any] = {"seed": 5, **options}
    log = simulate_clicks(data, policy, PositionBias.power(1.0), **arguments)
    told: list[tuple[int, int]] = []
    made = simulate_log(
        tmp_path / name,
        data,
        policy,
        PositionBias.power(1.0),
        features=form,
        progress=lambda done, total: told.append((done, total)),
        **arguments,
    )
    assert sorted(tmp_path.iterdir()) == sorted(made.files)
    again = read_log(tmp_path / name)
    write_log(log, tmp_path / f"other.{name}", features=form)
    assert again.equals(read_log(tmp_path / f"other.{name}"))
    assert made.summary == log.describe()
    assert told[-1][0] == told[-1][1]


def test_a_simulation_without_clicks_leaves_nothing(tmp_path: Path) -> None:
    data = RankingDataset([[0.0], [1.0]], [0, 2], relevance=[0, 0])
    bias = PositionBias.power(1.0)
    with pytest.raises(InputError, match="not one click in 50 impressions"):
        simulate_log(tmp_path / "log.parquet", data, RandomRanking(), bias, impressions=50)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "either"),
        ({"clicks": 1, "impressions": 1}, "either"),
        ({"clicks": 0}, "1 or more"),
        ({"clicks": 1, "features": "list"}, "CSV file cannot hold lists"),
        ({"clicks": 1, "features": "some"}, "must be 'table'"),
    ]
    for options, problem in wrong:
        with pytest.raises(InputError, match=problem):
            simulate_log(tmp_path / "log.csv", data, RandomRanking(), bias, **options)
    with pytest.raises(InputError, match="no lists"):
        simulate_log(tmp_path / "log.csv", data[:0], RandomRanking(), bias, clicks=1)
    assert not list(tmp_path.iterdir())


def scattered(path: Path) -> Path:
    """Write the same log with the first row of its first impression at the end."""
    table = pq.read_table(path)
    pq.write_table(table.take([*range(1, table.num_rows), 0]), path.with_name("scattered.parquet"))
    return path.with_name("scattered.parquet")


def rounded(content: Any) -> Any:
    """Return plain values without what depends on the order of a sum."""
    if isinstance(content, dict):
        return {name: rounded(value) for name, value in content.items()}
    if isinstance(content, list):
        return [rounded(value) for value in content]
    return float(f"{content:.9g}") if isinstance(content, float) else content


@pytest.mark.parametrize("command", ["inspect", "audit"])
def test_commands_say_the_same_of_rows_in_any_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    log = tmp_path / "log.parquet"
    write_log(simulated(400), log)
    with pytest.raises(ScatteredRowsError):
        stream_log(scattered(log))
    said = [rounded(commands.json_of(capsys, command, file)) for file in (log, scattered(log))]
    names = [one.pop("file", None) or one.pop("log") for one in said]
    assert names == [str(log), str(scattered(log))]
    assert said[0] == said[1]


def test_commands_that_count_never_hold_a_log_in_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(simulated(50), tmp_path / "log.parquet")
    monkeypatch.setattr("fultr.cli.files.read_log", lambda *_, **__: pytest.fail("the log was read whole"))
    for command in (["inspect"], ["audit"], ["convert", "--to", "aggregated"]):
        out = [tmp_path / "counts.csv"] if "convert" in command else []
        code, _, err = commands.result_of(capsys, *command, tmp_path / "log.parquet", *out)
        assert code == 0, err


def test_counts_are_inspected_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = simulated(400)
    write_log(log, tmp_path / "log.parquet")
    write_aggregated_log(log, tmp_path / "counts.parquet")
    single = commands.json_of(capsys, "inspect", tmp_path / "log.parquet")
    counts = commands.json_of(capsys, "inspect", tmp_path / "counts.parquet")
    assert (single["kind"], counts["kind"]) == ("click log", "aggregated log")
    assert counts["facts"]["single_impressions"] is None
    for name in ("impressions", "clicks", "positions", "groups"):
        assert counts[name] == single[name]
    assert "By position" in commands.result_of(capsys, "inspect", tmp_path / "counts.parquet")[1]
