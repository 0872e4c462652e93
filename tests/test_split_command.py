"""`fultr split`: no impression is lost or doubled, and each part is a log of its own."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from fultr import (
    Counts,
    InputError,
    PositionBias,
    RandomRanking,
    count,
    datasets,
    merge,
    read_counts,
    read_letor,
    read_log,
    simulate_clicks,
    split_log,
    write_counts,
    write_letor,
    write_log,
)
from fultr.training.overlap import content_digest
from tests import commands
from tests.device_log import device_log
from tests.weekly_jobs import week_of_jobs


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("jobs") / "jobs.parquet"
    week_of_jobs(1).write_parquet(path)
    return path


def outputs(folder: Path, ending: str = ".parquet") -> tuple[Path, Path]:
    return folder / f"train{ending}", folder / f"test{ending}"


def options(parts: tuple[Path, Path]) -> tuple[object, ...]:
    return "--out-train", parts[0], "--out-test", parts[1]


def split(capsys: pytest.CaptureFixture[str], log: Path, *arguments: object) -> dict[str, Any]:
    return commands.json_of(capsys, "split", log, *arguments)


def refusal(capsys: pytest.CaptureFixture[str], log: Path, *arguments: object) -> str:
    return commands.refusal(capsys, "split", log, *arguments)


def together(*parts: Counts) -> str:
    """Return the digest of counts, whatever files they were read from."""
    return content_digest(merge(*parts))


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize("by", ["query", "time"])
def test_both_parts_together_are_the_log(
    by: str, ending: str, jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = outputs(tmp_path, ending)
    arguments = ("--by", by, "--share", 0.3, *options(parts))
    content = split(capsys, jobs, *arguments)
    whole = read_log(jobs)
    train, test = (read_log(part) for part in parts)
    assert whole.impression_id is not None
    assert train.impression_id is not None
    assert test.impression_id is not None
    ids = [*train.impression_id.tolist(), *test.impression_id.tolist()]
    assert sorted(ids) == sorted(whole.impression_id.tolist())
    assert together(train.compact(), test.compact()) == content_digest(whole.compact())
    shared = set(train.data.query_id.tolist()) & set(test.data.query_id.tolist())  # type: ignore[union-attr]
    assert content["queries_in_both"] == len(shared)
    if by == "query":
        assert not shared
        assert content["test"]["queries"] == 12
    else:
        assert train.timestamp is not None
        assert test.timestamp is not None
        assert train.timestamp.max() < test.timestamp.min()
        assert content["test"]["impressions"] == len(test) == 90
        assert shared
    # features and groups are those of the log
    merged = merge(train.compact(), test.compact()).data
    np.testing.assert_array_equal(merged.features, whole.compact().data.features)
    np.testing.assert_array_equal(merged.group, whole.compact().data.group)
    assert content["train"]["files"] == [str(parts[0])]


@pytest.mark.parametrize("by", ["query", "time"])
def test_rows_keep_all_their_columns(
    by: str, jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = outputs(tmp_path)
    split(capsys, jobs, "--by", by, *options(parts))
    whole, halves = pl.read_parquet(jobs), [pl.read_parquet(part) for part in parts]
    assert halves[0].schema == halves[1].schema == whole.schema
    key = ("impression_id", "position")
    assert pl.concat(halves).sort(key).equals(whole.sort(key))
    # what is not ours gets no mark of ours
    assert all(b"fultr" not in (pq.read_schema(part).metadata or {}) for part in parts)


def test_parts_have_a_position_bias_for_each_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = {"desktop": PositionBias.power(0.5), "phone": PositionBias.power(1.5)}
    pq.write_table(device_log(curves, 6_000), tmp_path / "jobs.parquet")
    parts = outputs(tmp_path)
    split(capsys, tmp_path / "jobs.parquet", "--share", 0.5, *options(parts))
    for part in parts:
        arguments = (part, "--by", "device", "--tail", "power", "--out", tmp_path / "bias.json")
        found = commands.json_of(capsys, "propensity", *arguments)
        assert {one["context"]["value"] for one in found["estimates"]} == set(curves)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_csv_log_stays_as_it_is(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = week_of_jobs(1, impressions=60).with_columns(note=pl.lit('a "quoted", note'))
    text = frame.write_csv().encode()
    whole = tmp_path / f"jobs{ending}"
    whole.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    parts = outputs(tmp_path, ending=".csv")
    split(capsys, whole, *options(parts))
    assert parts[0].read_text(encoding="utf-8").startswith('"impression_id"')
    halves = pl.concat([pl.read_csv(part, infer_schema=False) for part in parts])
    before = pl.read_csv(text, infer_schema=False)
    key = ("impression_id", "position")
    assert halves.sort(key).equals(before.sort(key))
    line = refusal(capsys, whole, *options(outputs(tmp_path)))
    assert "train.parquet: the columns of a CSV file have no types" in line


def test_a_log_with_ids_of_numbers_and_other_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = week_of_jobs(1, impressions=60).with_columns(
        impression_id=pl.col("impression_id").str.slice(4).cast(pl.Int64)
    )
    # rows of an impression need not stand together
    frame.rename({"impression_id": "search"}).sort("doc_id").write_parquet(tmp_path / "jobs.parquet")
    parts = outputs(tmp_path)
    split(capsys, tmp_path / "jobs.parquet", "--column", "impression_id=search", *options(parts))
    searches = [set(pl.read_parquet(part)["search"]) for part in parts]
    assert not searches[0] & searches[1]
    assert searches[0] | searches[1] == set(range(60))


def test_a_log_with_documents_twice_is_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = week_of_jobs(1, impressions=60)
    again = frame.filter(pl.col("position") == 1).with_columns(position=pl.lit(21, pl.Int64), feature_0=7.0)
    pl.concat([frame, again]).write_parquet(tmp_path / "jobs.parquet")
    parts = outputs(tmp_path)
    split(capsys, tmp_path / "jobs.parquet", *options(parts))
    assert sum(pl.read_parquet(part).height for part in parts) == frame.height + again.height


def test_a_log_of_ours_with_its_items_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = datasets.synthetic(queries=60, list_length=5, features=4, seed=0).train
    bias = PositionBias.power(0.7)
    log = simulate_clicks(data, RandomRanking(), bias, impressions=200, seed=0)
    write_log(log, tmp_path / "clicks.parquet")
    parts = outputs(tmp_path)
    content = split(capsys, tmp_path / "clicks.parquet", *options(parts))
    assert content["train"]["impressions"] + content["test"]["impressions"] == 200
    for part in parts:
        assert read_log(part).position_bias == bias
        assert read_log(part).data.features.shape[1] == 4
        items = part.with_name(f"{part.stem}.items.parquet")
        assert items.read_bytes() == (tmp_path / "clicks.items.parquet").read_bytes()
    assert content["test"]["files"] == [str(parts[1]), str(tmp_path / "test.items.parquet")]
    # parts can be split again, and a table of documents of somebody else is not replaced
    further = outputs(tmp_path / "further")
    further[0].parent.mkdir()
    again = split(capsys, parts[0], *options(further))
    sizes = [again[name]["impressions"] for name in ("train", "test")]
    assert sum(sizes) == content["train"]["impressions"]
    pl.DataFrame({"own": [1]}).write_parquet(tmp_path / "further" / "test.items.parquet")
    assert "was not written by fultr" in refusal(capsys, parts[0], *options(further))


def test_the_seed_decides(jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def queries(*arguments: object) -> set[str]:
        parts = outputs(tmp_path)
        split(capsys, jobs, *arguments, *options(parts))
        return set(pl.read_parquet(parts[1])["query_id"])

    assert queries() == queries("--seed", 0) != queries("--seed", 1)


def test_counts_are_split_by_query_only(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = count(jobs, context="device")
    write_counts(counts, tmp_path / "counts.parquet")
    parts = outputs(tmp_path)
    split(capsys, tmp_path / "counts.parquet", *options(parts))
    train, test = (read_counts(part) for part in parts)
    assert train.context_name == "device"
    assert train.impressions.sum() + test.impressions.sum() == counts.impressions.sum()
    assert train.cells.clicks.sum() + test.cells.clicks.sum() == counts.cells.clicks.sum()
    line = refusal(capsys, tmp_path / "counts.parquet", "--by", "time", *options(parts))
    assert "--by time: counts and labelled data have no times" in line


def test_labelled_data_is_split_by_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = datasets.synthetic(queries=30, list_length=4, features=3, seed=0).train
    write_letor(data, tmp_path / "data.txt")
    parts = outputs(tmp_path, ".txt")
    content = split(capsys, tmp_path / "data.txt", *options(parts))
    assert sum(len(read_letor(part)) for part in parts) == len(data)
    assert content["train"]["lists"] == len(read_letor(parts[0]))


def test_days_stay_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = week_of_jobs(1).with_columns(pl.col("timestamp").dt.truncate("1d"))
    frame.write_parquet(tmp_path / "days.parquet")
    parts = outputs(tmp_path)
    split(capsys, tmp_path / "days.parquet", "--by", "time", *options(parts))
    days = [set(pl.read_parquet(part)["timestamp"]) for part in parts]
    assert not days[0] & days[1]
    assert min(days[1]) > max(days[0])


def test_the_table_says_what_parts_have(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = outputs(tmp_path)
    code, out, err = commands.result_of(capsys, "split", jobs, *options(parts))
    assert code == 0
    assert "Queries in both parts: 0" in out
    assert err == f"wrote {parts[0]}, {parts[1]}\n"


def test_what_cannot_be_split_is_named(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = outputs(tmp_path)
    assert "--share lies between 0 and 1" in refusal(capsys, jobs, "--share", 1, *options(parts))
    same = (parts[0], parts[0])
    assert "must be different files" in refusal(capsys, jobs, *options(same))
    assert "would be written over" in refusal(capsys, jobs, *options((jobs, parts[1])))
    frame = pl.read_parquet(jobs)
    frame.drop("timestamp", "device").write_parquet(tmp_path / "timeless.parquet")
    line = refusal(capsys, tmp_path / "timeless.parquet", "--by", "time", *options(parts))
    assert "needs the time of each impression" in line
    assert "timeless.parquet" in line
    assert not parts[0].exists()
    doubled = frame.with_columns(impression_id=pl.lit("S-1")).unique(("doc_id", "query_id"))
    doubled.write_parquet(tmp_path / "doubled.parquet")
    line = refusal(capsys, tmp_path / "doubled.parquet", *options(parts))
    assert "doubled.parquet, row" in line
    assert "query_id of the same impression in row 1 differs" in line
    rare = frame.with_columns(click=(pl.col("query_id") == "Q-001").cast(pl.Int8))
    rare.write_parquet(tmp_path / "rare.parquet")
    line = refusal(capsys, tmp_path / "rare.parquet", *options(parts))
    assert "would have no click; change --share" in line
    lists = frame.with_columns(features=pl.concat_list("feature_0", "feature_1"))
    lists.write_parquet(tmp_path / "lists.parquet")
    line = refusal(capsys, tmp_path / "lists.parquet", *options(outputs(tmp_path, ".csv")))
    assert "column 'features': a CSV file cannot hold lists" in line
    with pytest.raises(InputError, match="change share="):
        split_log(tmp_path / "rare.parquet", *parts)
    assert not parts[0].exists()
    with pytest.raises(InputError, match="all impressions have the same"):
        read_log(frame.with_columns(timestamp=pl.lit(7))).split_by_time(0.5)
    with pytest.raises(InputError, match="'share'"):
        read_log(frame).split_by_time(1.5)


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = commands.result_of(capsys, "split", "--help")
    assert code == 0
    assert "fultr split clicks.parquet --by time" in out
