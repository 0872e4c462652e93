"""The rough version of the whole reproduction, and the strongest effects of the paper in it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from fultr import ClickLog
from fultr.cli import output
from fultr.experiments import runs as runs_module
from fultr.experiments.methods import METHODS
from fultr.experiments.protocols import side_by_side
from fultr.experiments.reproduction import FIGURES, plan_for, reproduce_plans, runs_of
from fultr.experiments.results import PARTS, Plan, Results
from fultr.experiments.runs import Archive, Row, Run, perform_all
from fultr.experiments.worlds import Conditions, make_world
from tests.commands import refusal, result_of
from tests.comparison import same_logs

pytestmark = pytest.mark.slow

SPLITS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All figures, roughly, as a user makes them."""
    out = tmp_path_factory.mktemp("reproduction")
    command = [sys.executable, "-m", "fultr", "reproduce", "all", "--quick", "--out", str(out), "--json"]
    # a core for each process
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    (out / "printed.json").write_text(done.stdout)
    return out


def table(folder: Path, figure: str, data: str) -> list[dict[str, str]]:
    with (folder / f"{figure}-{data}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def measured(rows: list[dict[str, str]], column: str, **wanted: Any) -> np.ndarray:
    """Return a column of the rows that have certain values, ordered by split."""
    chosen = [row for row in rows if all(row[name] == str(value) for name, value in wanted.items())]
    values = np.array([float(row[column]) for row in sorted(chosen, key=lambda row: int(row["split"]))])
    assert values.size == SPLITS
    return values


def clearly_above(values: np.ndarray) -> bool:
    """Whether a mean over splits is above 0, at the level of 5%."""
    return bool(ttest_1samp(values, 0.0, alternative="greater").pvalue < 0.05)


def clearly_lower(lower: np.ndarray, higher: np.ndarray) -> bool:
    """Whether squared disparities are clearly lower than higher; what differs between them is a factor."""
    return clearly_above(np.log(higher) - np.log(lower))


SQUARE, DCG = "train_disparity_squared", "train_dcg"


@pytest.mark.parametrize("data", ["german", "synthetic"])
def test_fairness_lowers_disparity_and_group_blindness_does_not(folder: Path, data: str) -> None:
    """F2a and F2b, on the training queries."""
    rows = table(folder, "fig2", data)
    fair = measured(rows, SQUARE, method="fultr", trade_off="30")
    useful = measured(rows, SQUARE, method="fultr", trade_off="0")
    blind = measured(rows, SQUARE, method="group-blind", trade_off="0")
    assert clearly_lower(fair, useful)
    assert clearly_lower(fair, blind)
    assert fair.mean() < useful.mean() / 2
    if data == "synthetic":  # on German Credit, fairness costs next to nothing
        utility = measured(rows, DCG, method="fultr", trade_off="0")
        assert clearly_above(utility - measured(rows, DCG, method="fultr", trade_off="30"))


def test_without_inverse_propensities_utility_is_lower_and_disparity_higher(folder: Path) -> None:
    """F4a, on the training queries."""
    rows = table(folder, "fig4", "synthetic")
    weighted = measured(rows, DCG, method="fultr", trade_off="0")
    assert clearly_above(weighted - measured(rows, DCG, method="no-ips", trade_off="0"))
    raw = measured(rows, SQUARE, method="no-ips", trade_off="30")
    assert measured(rows, SQUARE, method="fultr", trade_off="30").mean() < raw.mean() / 2


def test_the_noise_correction_lowers_disparity(folder: Path) -> None:
    """F5, on the training queries."""
    rows = table(folder, "fig5", "synthetic")
    pure = measured(rows, SQUARE, method="fultr", trade_off="30")
    corrected = measured(rows, SQUARE, method="fultr-corrected", trade_off="30")
    assert clearly_lower(corrected, pure)
    assert corrected.mean() < pure.mean() / 2


def test_the_example_holds_exactly(folder: Path) -> None:
    """E1."""
    with (folder / "example.csv").open(encoding="utf-8") as file:
        by_relevance, fair = (
            {name: float(value) for name, value in row.items() if name != "policy"}
            for row in csv.DictReader(file)
        )
    exposures = [f"exposure of studio {number}" for number in (1, 2, 3)]
    assert [by_relevance[name] for name in exposures] == pytest.approx([3.99, 0.68, 0.40], abs=0.01)
    assert [fair[name] for name in exposures] == pytest.approx([2.36, 2.32, 0.40], abs=0.01)
    assert (by_relevance["disparity_squared"], fair["disparity_squared"]) == pytest.approx(
        (4720, 3.8), rel=0.01
    )


def test_everything_is_written(folder: Path) -> None:
    names = [f"{figure}-synthetic" for figure in FIGURES] + ["fig1-german", "fig2-german", "example"]
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in (folder / f"{name}.svg").read_text()
        assert (folder / f"{name}.csv").stat().st_size > 0
    content = json.loads((folder / "verdicts.json").read_text())
    claims = {verdict["claim"] for verdict in content["verdicts"]}
    expected = ["F1a", "F1b", "F1c", "F2a", "F2b", "F2c", "F2d", "F2e", "F2f", "F3", "F4a", "F4b", "F5", "F6"]
    assert claims == {*expected, "E1"}
    assert json.loads((folder / "printed.json").read_text())["verdicts"] == content["verdicts"]
    assert content["command"] == "fultr reproduce all --data german --data synthetic --quick --out DIR"
    page = (folder / "verdicts.md").read_text()
    assert "**Rough: 3 splits.**" in page
    for verdict in content["verdicts"]:
        assert verdict["verdict"] in ("holds", "does not hold", "undecided")
        assert verdict["statement"] in page
        assert verdict["splits"] == (1 if verdict["claim"] == "E1" else SPLITS)
        for finding in verdict["findings"]:
            assert finding["effect"] in page
            if finding["interval"] is not None:
                low, high = finding["interval"]
                assert low - 1e-6 <= finding["value"] <= high + 1e-6


def test_all_methods_of_the_paper_are_run(folder: Path) -> None:
    run = {row["method"] for figure in FIGURES for row in table(folder, figure, "synthetic")}
    assert set(METHODS) - run == {"fultr-paper"}  # which takes minutes


def test_finished_runs_are_not_done_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> list[Row]:
        raise AssertionError("done again")

    before = {path.name: path.read_bytes() for path in folder.glob("fig*.csv")}
    monkeypatch.setattr(runs_module, "perform", never)
    plans = [plan_for(data, quick=True) for data in ("german", "synthetic")]
    reproduce_plans([*FIGURES], plans, folder)
    assert {path.name: path.read_bytes() for path in folder.glob("fig*.csv")} == before


def test_a_stopped_reproduction_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan("synthetic", splits=2, lists=30, every=9, l2=(0.1,), paper_splits=0, quick=True)
    wanted = FIGURES["fig4"].runs(plan)
    done: list[str] = []
    real = runs_module.perform

    def interrupted(run: Run, world: Any) -> list[Row]:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(run.name)
        return real(run, world)

    monkeypatch.setattr(runs_module, "perform", interrupted)
    with pytest.raises(KeyboardInterrupt):
        perform_all(wanted, Archive(tmp_path), 1, lambda _done, _total: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(done)
    reports: list[tuple[int, int]] = []
    monkeypatch.setattr(runs_module, "perform", real)
    perform_all(wanted, Archive(tmp_path), 1, lambda *report: reports.append(report))
    assert reports == [(done, len(wanted)) for done in range(2, len(wanted) + 1)]
    results = Results(plan, [row for run in wanted for row in Archive(tmp_path).read(run)])
    assert results.table(DCG, "no-ips", 10.0).shape == (2, 2)


def test_worlds_are_the_same_for_a_split_and_others_for_another() -> None:
    one, same, other = (make_world(Conditions("german", 1.0, split=split)).log for split in (3, 3, 4))
    assert isinstance(one, ClickLog)
    assert isinstance(same, ClickLog)
    assert isinstance(other, ClickLog)
    assert same_logs(one, same)
    assert not same_logs(one, other)
    assert one.clicked.sum() == len(one.data)
    assert not one.empties_dropped


def test_noise_is_estimated_from_planted_items() -> None:
    world = make_world(Conditions("synthetic", 20.0, eps_minus=0.1, lists=200))
    assert world.noise is not None
    # 3,600 planted items, a mean examination of .46: a standard error of .008
    assert world.noise.eps_minus == pytest.approx(0.1, abs=0.03)
    assert make_world(Conditions("synthetic", 1.0, lists=200)).noise is None


def test_names_of_runs_say_what_they_are_and_never_where_data_is(tmp_path: Path) -> None:
    names = {}
    for folder_name, content in (("private", "one"), ("elsewhere", "one"), ("other", "two")):
        (tmp_path / folder_name / "Fold1").mkdir(parents=True)
        (tmp_path / folder_name / "Fold1" / "train.txt").write_text(content)
        plan = Plan(f"mslr:{tmp_path / folder_name}")
        names[folder_name] = [run.name for run in runs_of([*FIGURES], [plan])]
        assert plan.title == f"MSLR, {folder_name}"
    assert len(set(names["private"])) == len(names["private"])
    assert not any("private" in name for name in names["private"])
    assert names["private"][0].startswith("mslr_fultr_0.03x_noise-0.1_split-0_")
    # what counts is what a folder holds
    assert names["private"] == names["elsewhere"]
    assert not set(names["private"]) & set(names["other"])


def test_the_lowest_disparity_is_that_of_one_trade_off() -> None:
    plan = Plan("german", splits=2, every=9)
    rows = [
        {
            "method": "fultr",
            "clicks": 1.0,
            "groups": 2,
            "eps_minus": 0.0,
            "split": split,
            "x_disparity_squared": value,
        }
        for split, values in ((0, (1.0, 0.2)), (1, (0.1, 0.4)))
        for value in values
    ]
    trade_off, values = Results(plan, rows).lowest("x", "fultr", 1.0)
    assert trade_off == 30.0
    assert values.tolist() == [0.2, 0.4]
    assert set(PARTS) == {"train", "test"}


def test_ctrl_c_keeps_what_is_finished_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fultr.experiments.reproduction.perform_all", stopped)
    code, out, err = result_of(capsys, "reproduce", "fig4", "--quick", "--out", tmp_path)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == (
        f"fultr: stopped; finished runs are kept in {tmp_path}; the same command goes on"
    )


def test_long_work_says_how_long_it_takes_where_there_is_no_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 1.0, 70.0, 80.0, 140.0])
    monkeypatch.setattr("fultr.cli.output.time.monotonic", lambda: next(now))
    with output.progress("runs", lines=True) as report:
        for done in (10, 20, 21, 80):
            report(done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "runs: 20 of 100, about 9 min left",
        "runs: 80 of 100, about 1 min left",
    ]


def test_bad_questions_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such figure" in refusal(capsys, "reproduce", "fig7", "--out", tmp_path)
    assert "the paper has it on MSLR alone" in refusal(
        capsys, "reproduce", "fig3", "--data", "german", "--out", tmp_path / "c"
    )
    assert "must be german" in refusal(
        capsys, "reproduce", "fig4", "--data", "gremlin", "--out", tmp_path / "a"
    )
    file = tmp_path / "file"
    file.write_text("")
    assert "cannot be made" in refusal(capsys, "reproduce", "fig4", "--out", file / "below")
    assert refusal(capsys, "reproduce", "fig4", "--data", f"mslr:{tmp_path}/no", "--out", tmp_path / "b")


def test_protocols_stand_side_by_side() -> None:
    plan = Plan("german", splits=3, paper_splits=2, l2=(0.1, 0.2))
    rows: list[Row] = []
    for method, seconds, worse in (("fultr", 40.0, 0.0), ("fultr-paper", 300.0, 0.5)):
        for split in range(2 if worse else 3):
            for weight in plan.trade_offs(method):
                rows.append(
                    {
                        "method": method,
                        **plan.run(method, 10.0, split=split).conditions.to_dict(),
                        "trade_off": weight,
                        "run_seconds": seconds + split,
                        "train_dcg": 1.0 - worse + split,
                        "train_disparity_squared": weight,
                        "test_dcg": 2.0 - worse,
                        "test_disparity_squared": 3.0,
                    }
                )
    compared = side_by_side(Results(plan, rows))
    assert [(row["lambda"], row["protocol"]) for row in compared] == [
        *((0.1, "default"), (0.1, "paper"), (0.1, "paper - default")),
        *((10.0, "default"), (10.0, "paper"), (10.0, "paper - default")),
    ]
    ours, papers, apart = compared[3:]
    title = "DCG, training queries"
    assert [apart[title + end] for end in ("", ", low", ", high")] == [-0.5, -0.5, -0.5]
    assert papers[title + ", low"] < 1.0 < papers[title + ", high"]
    # of the two splits that both have
    assert (ours["DCG, training queries"], papers["DCG, training queries"]) == (1.5, 1.0)
    assert ours["squared disparity, training queries"] == 10.0
    assert (ours["policies"], papers["policies"]) == (37, 2)
    assert (ours["seconds"], ours["seconds_in_all"]) == (40.5 / 37, 40.5)
    assert papers["seconds"] == 300.5 / 2
    assert side_by_side(Results(plan_for("german", quick=True), [])) == []
