from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fultr
from fultr import (
    ClickLog,
    ClickNoise,
    InputError,
    Planting,
    PositionBias,
    RandomRanking,
    RankingDataset,
)
from fultr.data import table_files
from fultr.data.tally import ImpressionFacts
from fultr.logs import partitions, rows
from tests.comparison import same_logs
from tests.counts import content
from tests.object_storage import object_storage
from tests.strategies import logs


@contextmanager
def small_pieces(batch: int, block: int, in_memory: int) -> Iterator[None]:
    """Have tables read in batches of so many rows, counted in blocks, and few rows kept in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "ROWS_A_BATCH", batch)
        patch.setattr(rows, "ROWS_A_BLOCK", block)
        patch.setattr(partitions, "ROWS_IN_MEMORY", in_memory)
        yield


def frame_of(log: ClickLog, folder: Path) -> pl.DataFrame:
    """The long table of a log, with its features as columns."""
    path = folder / "whole.parquet"
    fultr.write_log(log, path, features="columns")
    return pl.read_parquet(path)


def with_metadata_of(frame: pl.DataFrame, whole: Path, path: Path) -> Path:
    """Write some rows of a log as a file that says of itself what the whole log does."""
    table = frame.to_arrow().cast(pq.read_schema(whole).remove_metadata())
    pq.write_table(table.replace_schema_metadata(pq.read_schema(whole).metadata), path)
    return path


def parts_of(frame: pl.DataFrame, cuts: list[int]) -> list[pl.DataFrame]:
    """Cut a table into parts that hold whole impressions."""
    impressions = frame["impression_id"].unique().sort()
    sides = np.searchsorted(sorted(cuts), np.arange(len(impressions)), side="right")
    sides = np.array([side % (len(cuts) + 1) for side in sides])
    part = frame.join(
        pl.DataFrame({"impression_id": impressions, "part": sides}), on="impression_id", how="left"
    )
    return [part.filter(pl.col("part") == number).drop("part") for number in np.unique(sides).tolist()]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    log=logs(ids=True),
    seed=st.integers(0, 99),
    cuts=st.lists(st.integers(0, 7), max_size=3),
    batch=st.sampled_from([1, 4, 1000]),
    block=st.sampled_from([1, 7, 1000]),
    in_memory=st.sampled_from([0, 5, 1000]),
)
def test_counts_do_not_depend_on_the_order_of_rows_or_on_files(
    tmp_path_factory: pytest.TempPathFactory,
    log: ClickLog,
    seed: int,
    cuts: list[int],
    batch: int,
    block: int,
    in_memory: int,
) -> None:
    folder = tmp_path_factory.mktemp("log")
    frame = frame_of(log, folder)
    whole = folder / "whole.parquet"
    expected = log.compact()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    files = [
        with_metadata_of(part, whole, folder / f"part {number}.parquet")
        for number, part in enumerate(parts_of(shuffled, cuts))
    ]
    with small_pieces(batch, block, in_memory):
        assert content(fultr.count(whole)) == content(expected)
        assert content(fultr.count(files)) == content(expected)
        clicked = [file for file in files if pl.read_parquet(file)["click"].sum()]
        if clicked == files:
            merged = fultr.merge(*(fultr.count(file) for file in files))
            assert content(merged) == content(expected)
    read = fultr.read_log(with_metadata_of(shuffled, whole, folder / "shuffled.parquet"))
    assert content(read.compact()) == content(expected)


@given(log=logs())
def test_a_file_of_counts_holds_all_of_them(tmp_path_factory: pytest.TempPathFactory, log: ClickLog) -> None:
    path = tmp_path_factory.mktemp("counts") / "counts.parquet"
    counts = log.compact()
    fultr.write_counts(counts, path)
    assert content(fultr.read_counts(path)) == content(counts)
    assert content(fultr.count(path)) == content(counts)


@pytest.mark.slow
@given(log=logs())
def test_a_log_in_a_file_has_the_counts_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, log: ClickLog
) -> None:
    folder = tmp_path_factory.mktemp("log")
    for name, form in (
        ("log.parquet", "table"),
        ("log.parquet", "list"),
        ("log.csv", "table"),
        ("log.csv", "columns"),
    ):
        fultr.write_log(log, folder / name, features=form)  # type: ignore[arg-type]
        assert content(fultr.count(folder / name)) == content(log.compact())
        assert same_logs(fultr.read_log(folder / name), log)


def some_data(lists: int = 12, length: int = 5, **fields: Any) -> RankingDataset:
    rng = np.random.default_rng(0)
    size, documents = lists * length, length + 2
    document = np.arange(size) % documents
    return RankingDataset(
        rng.normal(size=(documents, 2))[document],
        np.arange(0, size + 1, length),
        group=rng.integers(-1, 2, size=documents)[document],
        group_names=("left", "right"),
        relevance=rng.random(size) < 0.4,
        **{"query_id": np.arange(lists) % 7, "doc_id": document, **fields},
    )


def simulated(impressions: int, data: RankingDataset | None = None, **options: Any) -> ClickLog:
    settings_ = {"planting": Planting(0.3), "noise": ClickNoise(0.9, [0.4, 0.2]), "top_k": 5, **options}
    return fultr.simulate_clicks(
        data or some_data(), RandomRanking(), PositionBias.power(0.5), impressions=impressions, **settings_
    )


def test_different_lists_of_a_query_stay_apart(tmp_path: Path) -> None:
    table = {
        "impression_id": [1, 1, 2, 2, 3, 3],
        "query_id": ["q"] * 6,
        "doc_id": ["a", "b", "a", "c", "b", "a"],
        "position": [1, 2, 1, 2, 1, 2],
        "click": [1, 0, 0, 1, 1, 0],
        "group": ["x", "y", "x", "y", "y", "x"],
    }
    counts = fultr.count(table)
    assert counts.data.doc_id is not None
    assert counts.data.lengths.tolist() == [2, 2]
    assert sorted(counts.impressions.tolist()) == [1, 2]
    fultr.write_counts(counts, tmp_path / "counts.parquet")
    assert fultr.read_counts(tmp_path / "counts.parquet").data.lengths.tolist() == [2, 2]


@pytest.mark.parametrize("ids", ["whole", "text", "no documents", "none"])
def test_many_impressions_of_many_lists(tmp_path: Path, ids: str) -> None:
    fields: dict[str, Any] = {"query_id": np.arange(3_000) // 2, "doc_id": np.arange(9_000)}
    if ids == "text":
        fields = {name: [f"é {value}" for value in values] for name, values in fields.items()}
    elif ids == "no documents":
        fields["doc_id"] = None
    elif ids == "none":
        fields = {"query_id": None, "doc_id": None}
    log = simulated(12_000, some_data(3_000, 3, **fields))
    fultr.write_log(log, tmp_path / "log.parquet")
    with small_pieces(1_000, 1_700, 10**9):
        assert content(fultr.count(tmp_path / "log.parquet")) == content(log.compact())


def test_rows_scattered_over_a_large_file_are_brought_together_on_disk(tmp_path: Path) -> None:
    log = simulated(2_000)
    frame = frame_of(log, tmp_path).sample(fraction=1.0, shuffle=True, seed=0)
    path = with_metadata_of(frame, tmp_path / "whole.parquet", tmp_path / "scattered.parquet")
    with small_pieces(999, 1_000, 2_000):
        assert content(fultr.count(path)) == content(log.compact())


def test_text_ids_of_impressions_may_come_back_much_later(tmp_path: Path) -> None:
    log = simulated(300)
    frame = frame_of(log, tmp_path).with_columns(pl.format("s {}", "impression_id").alias("impression_id"))
    first, last = frame.head(3), frame.tail(frame.height - 3)
    late = pl.concat([last, first])  # only the first impression is torn apart
    late.write_parquet(tmp_path / "late.parquet")
    with small_pieces(50, 60, 10**9):
        counts = fultr.count(tmp_path / "late.parquet", features=["feature_1", "feature_2"])
    assert counts.impressions.sum() == 300
    assert sorted(counts.cells.impressions.tolist()) == sorted(log.compact().cells.impressions.tolist())


def test_an_impression_may_lie_in_two_files(tmp_path: Path) -> None:
    log = simulated(20)
    frame = frame_of(log, tmp_path)
    whole = tmp_path / "whole.parquet"
    for cut in (1, 7, 8):
        files = [
            with_metadata_of(part, whole, tmp_path / f"{cut} {number}.parquet")
            for number, part in enumerate((frame.head(cut), frame.tail(-cut)))
        ]
        assert content(fultr.count(files)) == content(log.compact())


def test_a_file_is_not_counted_twice(tmp_path: Path) -> None:
    fultr.write_log(simulated(20), tmp_path / "log.parquet", features="columns")
    (tmp_path / "again.parquet").write_bytes((tmp_path / "log.parquet").read_bytes())
    with pytest.raises(InputError, match="again.parquet: holds the same as log.parquet"):
        fultr.count([tmp_path / "log.parquet", tmp_path / "again.parquet"])
    counts = fultr.count(tmp_path / "log.parquet")
    assert [(file.name, file.rows) for file in counts.files] == [
        ("log.parquet", pq.read_metadata(tmp_path / "log.parquet").num_rows)
    ]
    with pytest.raises(InputError, match="again.parquet: holds the same as log.parquet"):
        fultr.merge(counts, fultr.count(tmp_path / "again.parquet"))
    fultr.write_counts(counts, tmp_path / "counts.parquet")
    with pytest.raises(InputError, match="would be counted twice"):
        fultr.count([tmp_path / "counts.parquet", tmp_path / "again.parquet"])


def test_impressions_of_two_files_need_different_ids(tmp_path: Path) -> None:
    for number, name in enumerate(("a.parquet", "b.parquet")):
        fultr.write_log(simulated(5, seed=number), tmp_path / name, features="columns")
    with pytest.raises(
        InputError, match="b.parquet, row 1, .*; impressions of different files need different ids"
    ):
        fultr.count([tmp_path / "a.parquet", tmp_path / "b.parquet"])


def test_what_cannot_be_merged_is_said() -> None:
    log = simulated(50)
    one = log.compact()
    with pytest.raises(InputError, match="there are no counts"):
        fultr.merge()
    other = simulated(50, noise=ClickNoise(0.9, 0.1)).compact()
    with pytest.raises(InputError, match="'noise': must be the same in counts that are merged"):
        fultr.merge(one, other)
    without = simulated(50, some_data(doc_id=None)).compact()
    with pytest.raises(InputError, match="'doc_id': counts 2 have no such ids"):
        fultr.merge(one, without)
    conflicting = simulated(50, some_data(source="x"))
    conflicting = replace(conflicting, data=replace(conflicting.data, features=conflicting.data.features + 1))
    with pytest.raises(InputError, match="other features or another group"):
        fultr.merge(one, conflicting.compact())


def test_ids_of_text_and_of_integers_merge_as_text() -> None:
    table = {"impression_id": [1, 1], "doc_id": [1, 2], "position": [1, 2], "click": [0, 1]}
    numbers = fultr.count({**table, "query_id": [7, 7]})
    words = fultr.count({**table, "query_id": ["7", "7"]})
    merged = fultr.merge(numbers, words)
    assert merged.impressions.tolist() == [2]
    assert merged.data.query_id is not None
    assert merged.data.query_id.tolist() == ["7"]


CONTEXT: dict[str, list[Any]] = {
    "impression_id": [1, 1, 2, 2, 3, 3],
    "query_id": ["q"] * 6,
    "doc_id": ["a", "b"] * 3,
    "position": [1, 2, 2, 1, 1, 2],
    "click": [1, 0, 0, 1, 0, 1],
    "device": ["phone", "phone", "desk", "desk", "phone", "phone"],
}


def test_a_context_is_counted_apart_and_kept(tmp_path: Path) -> None:
    counts = fultr.count(CONTEXT, context="device")
    assert counts.context_values == ("desk", "phone")
    assert counts.impressions.tolist() == [1, 2]
    assert counts.of_context("phone").cells.impressions.tolist() == [2, 2]
    fultr.write_counts(counts, tmp_path / "counts.parquet")
    assert content(fultr.read_counts(tmp_path / "counts.parquet")) == content(counts)
    halves = [
        fultr.count({name: values[part] for name, values in CONTEXT.items()}, context="device")
        for part in (slice(0, 4), slice(4, 6))
    ]
    assert content(fultr.merge(*halves)) == content(counts)
    bad = {**CONTEXT, "device": ["phone", "desk", "desk", "desk", "phone", "phone"]}
    with pytest.raises(
        InputError, match="row 2, column 'device': must be the same in all rows of an impression"
    ):
        fultr.count(bad, context="device")


FORMATS = ["csv", "csv.gz", "csv.zst", "parquet", "arrow", "ndjson", "jsonl.gz"]


def write_as(table: pa.Table, path: Path) -> Path:
    ending = path.name.split(".", 1)[1]
    frame = pl.DataFrame(pl.from_arrow(table))
    if ending.startswith("csv"):
        text = frame.write_csv().encode()
    elif ending.startswith(("ndjson", "jsonl")):
        text = frame.write_ndjson().encode()
    elif ending == "arrow":
        frame.write_ipc(path)
        return path
    else:
        frame.write_parquet(path)
        return path
    codec = {"gz": "gzip", "zst": "zstd"}.get(ending.rpartition(".")[2])
    with pa.output_stream(str(path), compression=codec) as out:
        out.write(text)
    return path


LONG = {
    "impression_id": [1, 1, 1, 2, 2, 2, 3, 3],
    "query_id": ["p", "p", "p", "p", "p", "p", "q", "q"],
    "doc_id": [1, 2, 3, 3, 2, 1, 1, 2],
    "position": [1, 2, None, 1, 2, 3, 1, 2],
    "click": [0, 1, 0, 1, 0, 0, 0, 1],
    "group": ["x", None, "y", "y", None, "x", "y", "y"],
    "feature_a": [0.5, 1.5, 2.5, 2.5, 1.5, 0.5, 7.0, 8.0],
}


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_counts(tmp_path: Path, ending: str) -> None:
    path = write_as(pa.table(LONG), tmp_path / f"log.{ending}")
    assert content(fultr.count(path)) == content(fultr.count(LONG))
    assert same_logs(fultr.read_log(path), fultr.read_log(LONG))


def test_globs_and_folders_and_partition_columns(tmp_path: Path) -> None:
    frame = pl.DataFrame(LONG)
    for device, part in (("phone", frame.head(3)), ("desk", frame.tail(5))):
        folder = tmp_path / "logs" / f"device={device}"
        folder.mkdir(parents=True)
        part.write_parquet(folder / "part-0.parquet")
    (tmp_path / "logs" / "_SUCCESS").touch()
    expected = content(fultr.count(LONG))
    assert content(fultr.count(tmp_path / "logs")) == expected
    assert content(fultr.count(str(tmp_path / "logs" / "*" / "*.parquet"))) == expected
    counts = fultr.count(tmp_path / "logs", context="device")
    assert counts.context_values == ("desk", "phone")
    assert [file.name for file in counts.files] == ["part-0.parquet", "part-0.parquet"]
    with pytest.raises(InputError, match="nothing.*: no such file, and no table"):
        fultr.count(str(tmp_path / "nothing*"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no such file, and no table"):
        fultr.count(tmp_path / "empty")


def test_ids_that_look_like_numbers_stay_text_unless_all_do(tmp_path: Path) -> None:
    table = {**LONG, "query_id": ["007"] * 6 + ["8", "8"]}
    counts = fultr.count(write_as(pa.table(table), tmp_path / "log.csv"))
    assert counts.data.query_id is not None
    assert counts.data.query_id.tolist() == ["007", "8"]
    counts = fultr.count(
        write_as(pa.table({**LONG, "query_id": ["10"] * 6 + ["9"] * 2}), tmp_path / "log.csv")
    )
    assert counts.data.query_id is not None
    assert counts.data.query_id.tolist() == [9, 10]


def test_facts_of_parts_merge_into_those_of_the_whole() -> None:
    log = simulated(400, some_data(2, 3), planting=None)
    whole = log.compact().facts
    halves = [log[:150].compact().facts, log[150:].compact().facts]
    assert whole is not None
    merged = ImpressionFacts.merge([half for half in halves if half is not None])
    assert merged.describe() == whole.describe()
    assert whole.describe()["repeated"] > 0


def test_repeated_impressions_are_found_in_a_sample() -> None:
    log = simulated(20_000, some_data(50, 5, query_id=np.arange(50)), planting=None)
    both: dict[str, Any] = {
        name: np.concatenate([getattr(log, name)] * 2) for name in ("lists", "position", "click")
    }
    twice = ClickLog(
        log.data, **both, timestamp=np.tile(np.arange(20_000), 2), position_bias=log.position_bias
    )
    facts = twice.compact().facts
    assert facts is not None
    assert facts.copies == 2
    assert facts.times_tell
    assert facts.repeated == pytest.approx(log.clicked.sum(), rel=0.1)
    assert facts.different == pytest.approx(20_000, rel=0.1)


def test_damaged_files_of_counts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts.parquet"
    fultr.write_counts(simulated(50).compact(), path)
    table = pq.read_table(path)
    good = pl.DataFrame(pl.from_arrow(table))
    changes = [
        pl.col("clicks") + 1000,
        pl.col("item") + 1000,
        pl.col("impressions") - 1000,
        pl.col("position") * 0,
        pl.lit("cell").alias("kind"),
        pl.col("doc_id") * 0,
        pl.lit(None, pl.Int64).alias("impressions"),
        pl.lit("z").alias("group"),
    ]
    for change in changes:
        changed = good.with_columns(change).to_arrow().cast(table.schema.remove_metadata())
        pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
        with pytest.raises(InputError, match="counts.parquet"):
            fultr.read_counts(path)
    fultr.write_log(simulated(10), tmp_path / "log.parquet")
    with pytest.raises(InputError, match="holds no counts but a click-log"):
        fultr.read_counts(tmp_path / "log.parquet")
    with pytest.raises(InputError, match="counts are written to a .parquet file"):
        fultr.write_counts(simulated(10).compact(), tmp_path / "counts.csv")


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
    ({"feature_a": [0.5, 1.5, 2.5, 2.5, 1.5, 0.6, 7.0, 8.0]}, "row 6, column 'feature_a': feature_a of the"),
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
def test_what_is_wrong_is_said_wherever_batches_end(
    tmp_path: Path, wrong: dict[str, Any], problem: str
) -> None:
    table = {name: values for name, values in {**LONG, **wrong}.items() if values is not None}
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(table), path)
    for batch, block in ((1, 1), (3, 1), (4, 6), (100, 100)):
        with small_pieces(batch, block, 4), pytest.raises(InputError) as found:
            fultr.count(path)
        assert str(found.value).startswith(f"{path}, ")
        assert problem in str(found.value)


def test_lines_of_csv_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = "1,q,a,1,1\n\n1,q,b,2,0\n2,q,a,1,0\n2,q,b,1,0\n"
    path.write_text(f"impression_id,query_id,doc_id,position,click\n{rows}")
    with pytest.raises(InputError, match="row 6, column 'position': the position is taken in row 5"):
        fultr.count(path)
    path.write_text("impression_id,query_id,doc_id,position,click\n")
    with pytest.raises(InputError, match="log.csv: the log has no rows"):
        fultr.count(path)


def test_an_impression_of_planted_items_only_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({**LONG, "planted": [0, 0, 0, 0, 0, 0, 1, 1]}), tmp_path / "log.parquet")
    for batch in (1, 2, 100):
        with small_pieces(batch, 3, 4), pytest.raises(InputError, match="row 7, .*planted items only"):
            fultr.count(tmp_path / "log.parquet")


def test_progress_is_told(tmp_path: Path) -> None:
    fultr.write_log(simulated(20), tmp_path / "log.parquet")
    size = pq.read_metadata(tmp_path / "log.parquet").num_rows
    told: list[tuple[int, int]] = []
    with small_pieces(30, 30, 1000):
        fultr.count(tmp_path / "log.parquet", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (size, size)
    assert len(told) > 3


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    folder = tmp_path / "storage" / "bucket" / "logs"
    folder.mkdir(parents=True)
    with object_storage(tmp_path / "storage") as options:
        yield folder, options


def test_logs_in_an_object_storage_are_counted(storage: tuple[Path, str]) -> None:
    folder, options = storage
    frame = pl.DataFrame(LONG)
    (folder / "device=phone").mkdir()
    (folder / "device=desk").mkdir()
    frame.head(3).write_parquet(folder / "device=phone" / "a.parquet")
    write_as(frame.tail(5).to_arrow(), folder / "device=desk" / "b.csv.gz")
    expected = content(fultr.count(LONG))
    for address in ("s3://bucket/logs/", "s3://bucket/logs/*/*"):
        counts = fultr.count(address + options)
        assert content(counts) == expected
        assert sorted(file.name for file in counts.files) == ["a.parquet", "b.csv.gz"]
    one = fultr.count(f"s3://bucket/logs/device=phone/a.parquet{options}", context="device")
    assert one.context_values == ("phone",)


def test_what_an_object_storage_does_not_have_is_named(storage: tuple[Path, str]) -> None:
    folder, options = storage
    (folder / "notes.txt").write_text("no table")
    with pytest.raises(InputError, match="s3://bucket/nothing.parquet.*: cannot be read"):
        fultr.count(f"s3://bucket/nothing.parquet{options}")
    with pytest.raises(InputError, match="no such file, and no table"):
        fultr.count(f"s3://bucket/logs/*.parquet{options}")


def test_a_log_in_an_object_storage_finds_the_table_of_its_documents(storage: tuple[Path, str]) -> None:
    folder, options = storage
    log = simulated(30)
    fultr.write_log(log, folder / "log.parquet")
    assert content(fultr.count(f"s3://bucket/logs/log.parquet{options}")) == content(log.compact())


def test_files_must_have_the_same_columns(tmp_path: Path) -> None:
    frame = pl.DataFrame(LONG)
    frame.head(3).write_parquet(tmp_path / "a.parquet")
    frame.tail(5).drop("group").write_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="b.parquet, column 'group': must be in all files or in none"):
        fultr.count([tmp_path / "a.parquet", tmp_path / "b.parquet"])
