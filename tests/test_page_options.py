"""`--depth`, `--top-k` and `--shown-only` mean the same in every command that has them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fultr import (
    Counts,
    FairRanker,
    PositionBias,
    PositionBiasByContext,
    count,
    evaluate,
    load,
    read_log,
    read_position_bias,
    save,
    write_dataset,
)
from fultr.cli.main import command_line, options_of
from fultr.clicks.examination import with_examination
from fultr.experiments.comparison import compare
from tests.commands import json_of, refusal, result_of
from tests.job_board import BIAS, FEATURES, JobBoard, job_board
from tests.weekly_jobs import week_of_jobs

PAGE = 10


@pytest.fixture(scope="module")
def board() -> JobBoard:
    """Pages of 10 to 20 of 50 candidates."""
    return job_board(queries=12, impressions=600, variety=0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, board: JobBoard) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    board.table.write_parquet(folder / "jobs.parquet")
    week_of_jobs(1).write_parquet(folder / "week.parquet")
    write_dataset(board.truth, folder / "truth.parquet")
    save(FairRanker(1.0, l2=0.1).fit(board.counts().shown_only()), folder / "policy.safetensors")
    return folder


@pytest.mark.parametrize(
    ("command", "options"),
    [
        *((name, {"--depth", "--shown-only", "--top-k"}) for name in ("train", "sweep", "evaluate", "audit")),
        ("compare", {"--depth", "--shown-only", "--top-k"}),
        ("inspect", {"--depth"}),
        ("propensity", {"--depth"}),
    ],
)
def test_commands_that_use_examination_know_the_page(command: str, options: set[str]) -> None:
    assert options <= set(options_of([command]).values())


def test_the_table_of_pages_names_every_command_and_says_which_have_a_depth() -> None:
    page = (Path(__file__).parents[1] / "docs" / "pages.md").read_text(encoding="utf-8")
    has_depth = {
        name: not depth.strip().startswith("none")
        for names, depth in re.findall(r"^\| (`[^|]+) \|([^|]+)\|", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    commands = getattr(command_line(), "commands", {})
    assert has_depth == {
        name: any("--depth" in option.opts for option in command.params) for name, command in commands.items()
    }


@pytest.mark.slow
def test_a_report_is_drawn_with_the_depth_of_its_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, run, page = folder / "jobs.parquet", tmp_path / "run", tmp_path / "page.html"
    for depth, deepest in ((20, 20), (30, 30)):
        given = ("--lambda", 1, "--l2", 0.1, "--eta", 1, "--depth", depth)
        assert result_of(capsys, "train", log, *given, "--out", f"{run}{depth}")[0] == 0
        assert result_of(capsys, "report", f"{run}{depth}", "--out", page)[0] == 0
        found = re.search(r'"curve":\s*\[([^]]*)\]', page.read_text(encoding="utf-8"))
        assert found is not None
        curve = [float(value) for value in found[1].split(",")]
        assert sum(value > 0 for value in curve) == deepest


@pytest.mark.parametrize("option", ["--depth", "--top-k"])
def test_rank_shows_as_many_items_as_the_page_has(
    option: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rankings.parquet"
    arguments = ("rank", folder / "policy.safetensors", folder / "truth.parquet", "--seed", 1)
    json_of(capsys, *arguments, option, PAGE, "--out", out)
    assert pl.read_parquet(out)["position"].max() == PAGE


@pytest.mark.parametrize("option", ["--depth", "--top-k"])
def test_simulated_pages_are_as_deep(
    option: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "clicks.parquet"
    arguments = ("simulate", folder / "truth.parquet", "--impressions", 50, "--logging", "random")
    json_of(capsys, *arguments, option, PAGE, "--out", out)
    assert pl.read_parquet(out)["position"].max() == PAGE


@pytest.mark.slow
def test_a_position_bias_is_estimated_for_a_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, log = tmp_path / "bias.json", folder / "week.parquet"
    found = json_of(capsys, "propensity", log, "--depth", 20, "--out", out)["estimates"][0]
    assert found["beyond"] == "zero"
    same = json_of(capsys, "propensity", log, "--tail", "zero")["estimates"][0]
    assert found["values"] == same["values"]
    assert len(found["values"]) == 20
    bias = read_position_bias(out)
    assert bias.to_position_bias().depth == 20  # type: ignore[union-attr]
    # pages that are deeper, or not as deep, as what the log shows
    for depth in (5, 12, 30):
        found = json_of(capsys, "propensity", log, "--depth", depth)["estimates"][0]
        assert len(found["values"]) == depth
        assert np.isfinite(found["values"]).all()
        assert found["beyond"] == "zero"
    line = refusal(capsys, "propensity", log, "--depth", 20, "--tail", "power")
    assert "give --depth or --tail, not both" in line
    code, _, err = result_of(
        capsys, "train", log, "--bias", out, "--lambda", 1, "--l2", 0.1, "--out", tmp_path / "run"
    )
    assert code == 0, err
    assert load(tmp_path / "run" / "policy.safetensors").position_bias_.depth == 20


def test_top_k_of_evaluate_cuts_utility_and_not_exposure(
    folder: Path, board: JobBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("evaluate", folder / "policy.safetensors", folder / "truth.parquet", "--eta", 1)
    cut, before, whole = (
        json_of(capsys, *arguments, *further) for further in (("--top-k", 5), ("--at", 5), ())
    )
    assert cut == before
    assert cut["dcg"] < whole["dcg"]
    assert cut["exposure"] == whole["exposure"]
    expected = evaluate(load(folder / "policy.safetensors"), board.truth, position_bias=BIAS, at=5)
    assert cut["dcg"] == pytest.approx(expected.dcg)
    _, out, _ = result_of(capsys, "evaluate", "--help")
    assert "--top-k" in out
    assert "--at " not in out


def test_evaluate_says_what_was_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("evaluate", folder / "policy.safetensors", folder / "jobs.parquet", "--eta", 1)
    notes = json_of(capsys, *arguments, "--shown-only")["notes"]
    assert any("were never shown and are left out" in note for note in notes)
    assert not any("are left out" in note for note in json_of(capsys, *arguments)["notes"])


@pytest.mark.slow
def test_compare_judges_the_page(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, truth = folder / "jobs.parquet", folder / "truth.parquet"
    arguments = (
        "compare",
        log,
        "--test",
        truth,
        "--eta",
        1,
        "--methods",
        "group-blind",
        "--out",
        tmp_path / "c",
    )
    named = ("--features", ",".join(FEATURES))
    page = ("--top-k", 5, "--depth", 20, "--shown-only", "--json")
    _, out, said = result_of(capsys, *arguments, *named, *page)
    assert "were never shown and are left out" in said
    rows = json.loads(out)["policies"]
    shown = read_log(log, features=list(FEATURES)).shown_only()
    truth_lists = job_board(queries=12, impressions=600, variety=0.3).truth
    expected = compare(shown, truth_lists, ["group-blind"], position_bias=BIAS, top_k=5, depth=20)
    assert rows[0]["dcg"] == pytest.approx(expected[0]["dcg"])
    whole = json_of(capsys, *arguments, *named, "--depth", 20)["policies"]
    assert rows[0]["dcg"] < whole[0]["dcg"]


def test_a_log_without_what_was_never_shown(folder: Path) -> None:
    log = read_log(folder / "jobs.parquet", features=list(FEATURES))
    shown, counts = log.shown_only(), log.compact().shown_only()
    assert shown.data.rows < log.data.rows
    assert len(shown) == len(log)
    assert shown.click.sum() == log.click.sum()
    merged = replace(shown, position_bias=PositionBias.power(1.0)).compact()
    assert merged.data.rows == counts.data.rows
    np.testing.assert_array_equal(merged.data.offsets, counts.data.offsets)
    np.testing.assert_array_equal(merged.cells.clicks, counts.cells.clicks)
    assert shown.shown_only() is shown
    # a list of which nothing was shown is left out with its impressions
    first = log.impression_of_entry == 0
    unseen = replace(
        log[:1],
        position=np.zeros_like(log.position[first]),
        click=np.zeros_like(log.click[first]),
    )
    assert len(unseen.shown_only()) == 0
    assert count(folder / "jobs.parquet").shown_only().data.rows == counts.data.rows


def test_what_one_device_shows_is_not_left_out_on_the_other(board: JobBoard, folder: Path) -> None:
    whole = board.counts().shown_only()
    by_device = count(folder / "jobs.parquet", context="device", features=list(FEATURES)).shown_only()
    assert by_device.origin["never_shown"] == whole.origin["never_shown"]
    for device in by_device.context_values:
        lists = by_device.of_context(device).data
        assert lists.doc_id is not None
        assert whole.data.doc_id is not None
        assert lists.doc_id.tolist() == whole.data.doc_id.tolist()
    curves = PositionBiasByContext("device", dict.fromkeys(by_device.context_values, BIAS))
    weighed = with_examination(by_device, curves)[0]
    assert isinstance(weighed, Counts)
    assert len(weighed.data) == len(whole.data)
    np.testing.assert_allclose(weighed.ips_weights(), whole.ips_weights(BIAS))
