"""`fultr count`; and commands say the same of a log, of its rows in any order, and of its counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

import fultr
from fultr import PositionBias, RandomRanking
from tests.commands import json_of, refusal, result_of
from tests.test_counting import with_metadata_of


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A log with several candidate lists a query, its rows shuffled, and its counts from two files."""
    folder = tmp_path_factory.mktemp("logs")
    data = fultr.datasets.synthetic(queries=40, features=3, list_length=6, relevant=2, seed=0).train
    half = fultr.RankingDataset(
        data.features, data.offsets, group=data.group, group_names=data.group_names, relevance=data.relevance,
        query_id=[number // 2 for number in range(len(data))], doc_id=list(range(data.rows)),
    )  # fmt: skip
    bias = PositionBias.power(1.0)
    log = fultr.simulate_clicks(half, RandomRanking(), bias, impressions=1_500, seed=0)
    paths = {name: folder / f"{name}.parquet" for name in ("log", "shuffled", "first", "second", "counts")}
    fultr.write_log(log, paths["log"], features="columns")
    frame = pl.read_parquet(paths["log"])
    with_metadata_of(frame.sample(fraction=1.0, shuffle=True, seed=1), paths["log"], paths["shuffled"])
    early = pl.col("impression_id") < 700
    with_metadata_of(frame.filter(early), paths["log"], paths["first"])
    with_metadata_of(frame.filter(~early), paths["log"], paths["second"])
    fultr.write_counts(fultr.count([paths["first"], paths["second"]]), paths["counts"])
    return paths


def said_of(capsys: pytest.CaptureFixture[str], command: list[object], file: Path) -> dict[str, Any]:
    content = json_of(capsys, command[0], *command[1:], file)
    return {name: value for name, value in content.items() if name not in ("file", "log", "kind", "data")}


@pytest.mark.parametrize(
    "command", [["inspect"], ["audit"], ["propensity"], ["propensity", "--method", "em"]]
)
def test_commands_say_the_same_of_a_log_and_of_its_counts(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], command: list[object]
) -> None:
    said = [said_of(capsys, command, files[name]) for name in ("log", "shuffled", "counts")]
    assert said[0] == said[1] == said[2]


def test_training_and_evaluation_are_the_same_on_a_log_and_on_its_counts(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], tmp_path: Path
) -> None:
    scores, measured = [], []
    for name in ("log", "shuffled", "counts"):
        code, _, err = result_of(
            capsys, "train", files[name], "--lambda", 1, "--l2", 0.01, "--out", tmp_path / name
        )
        assert code == 0, err
        ranker = fultr.load(tmp_path / name / "policy.safetensors")
        scores.append(ranker.predict(fultr.read_counts(files["counts"]).data).tolist())
        measured.append(said_of(capsys, ["evaluate", tmp_path / "log"], files[name]))
    assert scores[0] == scores[1] == scores[2]
    assert measured[0] == measured[1] == measured[2]


def test_counting_writes_what_is_said(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "counts.parquet"
    found = json_of(capsys, "count", files["first"], files["second"], "--out", out)
    assert [file["name"] for file in found["files"]] == ["first.parquet", "second.parquet"]
    assert sum(file["rows"] for file in found["files"]) == pq.read_metadata(files["log"]).num_rows
    whole = json_of(capsys, "inspect", files["log"])
    for name in ("impressions", "clicks", "lists", "queries", "positions", "groups"):
        assert found[name] == whole[name]
    assert json_of(capsys, "inspect", out)["kind"] == "counts"
    code, printed, err = result_of(capsys, "count", out, "--out", tmp_path / "again.parquet")
    assert code == 0
    assert "By position" in printed
    assert f"wrote {tmp_path / 'again.parquet'}" in err


def test_what_cannot_be_counted_is_named(
    capsys: pytest.CaptureFixture[str], files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "counts.parquet"
    line = refusal(capsys, "count", files["counts"], files["first"], "--out", out)
    assert "first.parquet: holds the same as first.parquet: its impressions would be counted twice" in line
    assert ".parquet file; name it so" in refusal(
        capsys, "count", files["log"], "--out", tmp_path / "counts.csv"
    )
    assert "no such file" in refusal(capsys, "count", tmp_path / "nothing.parquet", "--out", out)
    assert "'device': the column is missing" in refusal(
        capsys, "count", files["log"], "--context", "device", "--out", out
    )
    assert "single impressions are needed" in refusal(
        capsys, "train", files["counts"], "--protocol", "paper", "--lambda", 1, "--out", tmp_path / "run"
    )
    assert not out.exists()
