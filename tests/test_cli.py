from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from fultr import (
    ClickNoise,
    DataSplits,
    PositionBias,
    RandomRanking,
    RankingDataset,
    estimate_noise,
    load,
    read_dataset,
    read_letor,
    read_log,
    simulate_clicks,
    write_dataset,
    write_letor,
    write_log,
)
from fultr.cli.summaries import print_dataset
from tests.commands import json_of, refusal, result_of
from tests.comparison import same_logs

COMMANDS = ["demo", "simulate", "inspect", "convert", "noise", "propensity", "train", "sweep", "evaluate"]
COMMANDS += ["split", "rank", "audit", "report", "compare", "reproduce"]


@pytest.fixture
def clicks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "clicks.parquet"
    arguments = ("german", "--clicks", 500, "--eta", 1, "--eps-minus", 0.1, "--plant", 0.2, "--out", path)
    assert result_of(capsys, "simulate", *arguments)[0] == 0
    return path


def test_simulate_writes_a_log_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "clicks.parquet"
    code, out, err = result_of(
        capsys, "simulate", "german", "--clicks", 300, "--eps-minus", 0.1, "--out", path, "--seed", 4
    )
    assert code == 0
    assert "By group" in out
    assert "By position" in out
    assert f"wrote {path}" in err
    log = read_log(path)
    assert log.clicked.sum() == 300
    assert log.noise == ClickNoise(1.0, 0.1)
    assert log.position_bias == PositionBias.power(1.0)
    assert log.data.source == "German Credit (UCI), train"


@pytest.mark.parametrize(
    "options",
    [
        ("german", "--group", "sex", "--split", "test", "--logging", "random"),
        ("studios", "--logging", "random"),
        ("synthetic", "--groups", 3, "--drop-empty", "--top-k", 10),
        ("german", "--features", "list", "--eta", 0.5, "--plant", 0.1, "--plant-positions", "2,3"),
    ],
)
def test_simulate_serves_every_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[Any, ...]
) -> None:
    path = tmp_path / "log.parquet"
    content = json_of(capsys, "simulate", *options, "--clicks", 100, "--out", path)
    log = read_log(path)
    assert json.loads(json.dumps(log.describe())) == content["log"]
    assert set(content["files"]) == {str(file) for file in tmp_path.iterdir()}


def test_the_same_seed_gives_the_same_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        json_of(
            capsys, "simulate", "german", "--clicks", 50, "--seed", 9, "--out", tmp_path / name / "log.csv"
        )
    assert (tmp_path / "a/log.csv").read_bytes() == (tmp_path / "b/log.csv").read_bytes()


def test_inspect_tells_logs_and_data_apart(
    clicks: Path, tmp_path: Path, german: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json_of(capsys, "inspect", clicks)["kind"] == "click log"
    write_letor(german.valid[:5], tmp_path / "valid.txt")
    content = json_of(capsys, "inspect", tmp_path / "valid.txt")
    assert content["kind"] == "labelled data"
    assert content["lists"] == 5
    assert "group" in {finding["about"] for finding in content["findings"]}
    code, out, _ = result_of(capsys, "inspect", clicks)
    assert code == 0
    assert "What to know" in out
    assert "planted items" in out


def test_convert_changes_formats(
    clicks: Path, tmp_path: Path, german: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    assert result_of(capsys, "convert", clicks, tmp_path / "clicks.csv")[0] == 0
    assert same_logs(read_log(tmp_path / "clicks.csv"), read_log(clicks))
    data = german.valid[:5]
    write_letor(data, tmp_path / "valid.txt")
    for name in ("valid.arrow", "valid.parquet", "again.txt"):
        assert json_of(capsys, "convert", tmp_path / "valid.txt", tmp_path / name)["rows"] == 100
    for again in (
        read_dataset(tmp_path / "valid.arrow"),
        read_dataset(tmp_path / "valid.parquet"),
        read_letor(tmp_path / "again.txt"),
    ):
        np.testing.assert_array_equal(again.features, data.features)


def test_noise_is_estimated_from_planted_items(clicks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json_of(capsys, "noise", clicks)
    assert content["low"] < 0.1 < content["high"]
    code, out, _ = result_of(capsys, "noise", clicks, "--eta", 1)
    assert code == 0
    assert out.startswith("eps_minus = 0.")
    bias = clicks.with_name("bias.json")
    bias.write_text(json.dumps({"values": [1 / k for k in range(1, 22)]}))
    assert json_of(capsys, "noise", clicks, "--bias", bias)["eps_minus"] == pytest.approx(
        content["eps_minus"]
    )


def test_noise_is_estimated_by_position(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "clicks.parquet"
    noisy = ("--eps-minus", "0.5,0.25", "--plant", 0.9, "--plant-positions", "1,2,4")
    json_of(capsys, "simulate", "german", "--impressions", 3000, *noisy, "--out", path)
    assert read_log(path).noise == ClickNoise(1.0, [0.5, 0.25])
    content = json_of(capsys, "noise", path, "--by-position", "--level", 0.999)
    assert [row["position"] for row in content["positions"]] == [1, 2, 4]
    for row, true in zip(content["positions"], (0.5, 0.25, 0.25), strict=True):
        assert row["low"] < true < row["high"]
    assert "positions" not in json_of(capsys, "noise", path)
    code, out, _ = result_of(capsys, "noise", path, "--by-position")
    assert code == 0
    assert f"{content['positions'][2]['eps_minus']:.4f}" in out
    curve = estimate_noise(read_log(path), by_position=True).to_click_noise().texts()["eps_minus"]
    assert f"--eps-minus {curve}" in out
    assert len(curve.split(",")) == 4


@pytest.mark.slow
def test_demo_learns_a_fair_policy_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    code, shown, _ = result_of(capsys, "demo", "--out", out)
    assert code == 0
    assert "with 95% confidence; it keeps" in " ".join(shown.split())
    with (out / "policies.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for part in ("train", "test"):
        logged, naive, fair = {row["policy"]: row for row in rows if row["lists"] == part}.values()
        assert abs(float(fair["disparity"])) < 0.3 * abs(float(naive["disparity"]))
        assert abs(float(naive["disparity"])) < abs(float(logged["disparity"]))
        assert float(fair["dcg"]) > 0.9 * float(naive["dcg"]) > float(logged["dcg"])
    promised = load(out / "policy.safetensors").new_queries_
    assert promised is not None
    assert abs(float(fair["disparity"])) <= promised["disparity"][2] <= 0.5
    for name in ("frontier.png", "frontier.svg", "frontier.csv"):
        assert (out / name).stat().st_size > 1000


def test_columns_can_be_renamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "searches.csv"
    path.write_text("impression_id,search,doc_id,position,click\n1,nurse,a,1,0\n1,nurse,b,2,1\n")
    assert json_of(capsys, "inspect", path, "--column", "query_id=search")["clicks"] == 1


def test_graded_judgments_can_be_binarized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graded.txt"
    path.write_text("".join(f"{k % 5} qid:{k // 5} 1:{k}\n" for k in range(50)))
    common = ("simulate", path, "--clicks", 20, "--out", tmp_path / "log.parquet", "--logging", "random")
    assert "binarize" in refusal(capsys, *common)
    assert result_of(capsys, *common, "--relevant-from", 3)[0] == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = result_of(capsys, command, "--help")
    assert code == 0
    assert f"fultr {command}" in out.split("Example:")[1]
    assert "--json" in out


def test_overview_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = result_of(capsys)
    assert code == 0
    assert "Start with: fultr demo" in out
    assert result_of(capsys, "--version")[1].startswith("fultr 0.")


def test_failures_of_our_own_are_a_line_and_exit_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr("fultr.clicks.simulate_log", broken)
    arguments = ("simulate", "german", "--clicks", 5, "--out", tmp_path / "x.parquet")
    code, _, err = result_of(capsys, *arguments)
    assert code == 1
    assert err.splitlines()[-1].startswith("fultr: internal error: RuntimeError: surprise")
    assert "Traceback" not in err
    monkeypatch.setenv("FULTR_TRACEBACK", "1")
    assert "Traceback" in result_of(capsys, *arguments)[2]

    def full(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fultr.clicks.simulate_log", full)
    code, _, err = result_of(capsys, *arguments)
    assert code == 130
    assert "interrupted" in err
    # also while the command line itself is being read
    monkeypatch.setattr("fultr.cli.main.command_line", full)
    assert result_of(capsys, *arguments) == (130, "", err)


def test_output_can_be_piped_into_something_that_stops_reading() -> None:
    command = f"{sys.executable} -c 'from fultr.cli.main import main; main()' simulate --help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "Usage" in done.stdout


def test_the_command_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fultr", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("fultr 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_a_seed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--seed" in result_of(capsys, command, "--help")[1]
    err = refusal(capsys, command, "x", "y", "--seed", -1)
    assert "--seed" in err or "argument" in err


def test_a_seed_changes_nothing_where_nothing_is_random(
    clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("inspect", "noise"):
        assert json_of(capsys, command, clicks, "--seed", 7) == json_of(capsys, command, clicks)
    for seed in (1, 2):
        assert result_of(capsys, "convert", clicks, tmp_path / f"{seed}.csv", "--seed", seed)[0] == 0
    assert same_logs(read_log(tmp_path / "1.csv"), read_log(tmp_path / "2.csv"))


def test_reading_shows_progress_on_a_terminal(
    clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    for arguments in (("inspect", clicks), ("noise", clicks), ("convert", clicks, tmp_path / "x.csv")):
        code, _, err = result_of(capsys, *arguments)
        assert code == 0
        assert "reading" in err
    monkeypatch.delenv("TTY_COMPATIBLE")
    monkeypatch.delenv("FORCE_COLOR")
    assert result_of(capsys, "inspect", clicks)[2] == ""


def odd_data() -> RankingDataset:
    """Data whose names look like markup, or are long."""
    names = ["[/b]", "y [draft]", ":smile:", "a-very-" + "very-" * 40 + "long-name"]
    return RankingDataset(
        np.arange(16.0).reshape(8, 2),
        [0, 4, 8],
        group=names * 2,
        relevance=[1, 0, 1, 0] * 2,
        feature_names=["[red]x", "b"],
        group_columns=[0],
        source="a [bold]source[/bold]",
    )


def test_names_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = odd_data()
    write_dataset(data, tmp_path / "data.parquet")
    log = simulate_clicks(data, RandomRanking(), PositionBias.power(1), impressions=50)
    write_log(log, tmp_path / "log.parquet")
    for name in ("data", "log"):
        code, out, err = result_of(capsys, "inspect", tmp_path / f"{name}.parquet")
        assert code == 0, err
        for text in (*data.group_names, data.source, *(["[red]x"] if name == "data" else [])):
            assert text in out


def test_no_name_is_cut_on_a_narrow_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, width=60, markup=False, emoji=False, soft_wrap=True)
    print_dataset(console, odd_data().describe())
    assert "\u2026" not in out.getvalue()
    first_column = "".join(line.split()[0] for line in out.getvalue().splitlines() if line.strip())
    assert max(odd_data().group_names, key=len) in first_column


def test_convert_never_writes_over_the_documents_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, items = tmp_path / "jobs.csv", tmp_path / "jobs.items.parquet"
    log.write_text("impression_id,query_id,doc_id,position,click\n1,1,a,1,0\n1,1,b,2,1\n")
    table = {"query_id": ["1"] * 3, "doc_id": ["a", "b", "c"], "title": ["x", "y", "z"], "price": [1, 2, 3]}
    pq.write_table(pa.table(table), items)
    before = items.read_bytes()
    for out in ("jobs.parquet", "jobs.items.parquet"):
        err = refusal(capsys, "convert", log, tmp_path / out, "--items", items)
        assert "jobs.items.parquet: would be written over" in err
        assert "give another name" in err
    assert result_of(capsys, "convert", log, tmp_path / "jobs.parquet")[0] == 0  # it has no features
    code, _, err = result_of(
        capsys, "convert", log, tmp_path / "jobs.parquet", "--items", items, "--features", "list"
    )
    assert code == 0, err
    assert items.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "jobs.csv",
        "jobs.items.parquet",
        "jobs.parquet",
    ]


def test_a_log_in_an_arrow_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"impression_id": [1], "query_id": [1], "doc_id": [1], "position": [1], "click": [1]})
    with pa.OSFile(str(tmp_path / "log.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    err = refusal(capsys, "inspect", tmp_path / "log.arrow")
    assert "looks like a click log" in err
    assert "logs are .parquet or .csv" in err
