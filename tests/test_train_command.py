from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fultr import (
    ClickNoise,
    DataSplits,
    InputError,
    PositionBias,
    RandomRanking,
    TreeSettings,
    UnreachableLimitError,
    datasets,
    evaluate,
    load,
    read_log,
    simulate_clicks,
    write_dataset,
    write_letor,
    write_log,
)
from fultr.cli.training_run import ShareDone
from fultr.training.policy_files import read_policy_file
from fultr.training.run_folder import CHECKPOINTS, RunFolder
from tests.commands import json_of, refusal, result_of
from tests.job_board import job_board
from tests.shown_jobs import job_board as shown_jobs

BIAS = PositionBias.power(1.0)
QUICK = ("--max-disparity", 0.3, "--l2", 0.1)
FEW_CLICKS = "fultr: warning: No disparity of the logged ranking can be shown in this log: "
"""What is said before training on the small logs here."""


def further_lines(said: str) -> list[str]:
    """Return what is said besides that the log is small."""
    return [line for line in said.splitlines() if not line.startswith(FEW_CLICKS)]


@pytest.fixture(scope="module")
def data() -> DataSplits:
    return datasets.synthetic(queries=20, features=5, list_length=(3, 6), relevant=1, seed=0)


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory, data: DataSplits) -> Path:
    path = tmp_path_factory.mktemp("logs") / "clicks.parquet"
    write_log(simulate_clicks(data.train, RandomRanking(), BIAS, clicks=150, seed=0), path)
    return path


def test_train_writes_a_policy_and_what_it_achieves(
    tmp_path: Path, clicks: Path, data: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    code, printed, err = result_of(capsys, "train", clicks, *QUICK, "--out", out)
    assert code == 0
    assert err.startswith(FEW_CLICKS)
    assert not further_lines(err)
    assert {path.name for path in out.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "policy.safetensors",
        "results.json",
    }
    found = json.loads((out / "results.json").read_text())
    assert found["training"]["disparity"] <= 0.3
    assert found["l2"] == 0.1
    for text in ("95% interval", "fairness weight", str(out / "policy.safetensors"), "0.3"):
        assert text in printed
    # the policy in the file is the one whose numbers are reported
    ranker = load(out / "policy.safetensors")
    assert evaluate(ranker, read_log(clicks)).dcg == pytest.approx(found["training"]["utility"], rel=1e-6)
    assert ranker.validation_ is not None
    assert ranker.validation_["dcg"] == found["validation"]["dcg"] < found["training"]["utility"]
    low, high = found["validation"]["intervals"]["dcg"]
    assert f"{low:.4f} to {high:.4f}" in printed
    config = json.loads((out / "config.json").read_text())
    assert config["command"] == "train"
    assert config["settings"]["seed"] == 0
    assert config["inputs"]["log"]["size"] == clicks.stat().st_size


def test_json_is_what_results_say_and_a_finished_run_is_not_trained_again(
    tmp_path: Path, clicks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("train", clicks, *QUICK, "--out", tmp_path / "run")
    found = json_of(capsys, *arguments)
    stored = json.loads((tmp_path / "run/results.json").read_text())
    assert found == {"run": str(tmp_path / "run"), **stored}
    monkeypatch.setattr("fultr.FairRanker.fit", None)
    code, out, err = result_of(capsys, *arguments, "--resume", "--json")
    assert code == 0
    assert json.loads(out) == found
    assert "has finished already" in err
    assert "holds a run already; go on with it (--resume)" in refusal(capsys, *arguments)


def test_a_run_goes_on_only_as_it_was_begun(
    tmp_path: Path, clicks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert result_of(capsys, "train", clicks, *QUICK, "--out", tmp_path / "run")[0] == 0
    other = tmp_path / "other.parquet"
    write_log(read_log(clicks)[:50], other)
    for arguments, named in (
        ((clicks, "--max-disparity", 0.3, "--l2", 0.2), "settings.l2 = [0.1], not [0.2]"),
        ((clicks, "--max-disparity", 0.2, "--l2", 0.1), "settings.max_disparity = 0.3, not 0.2"),
        ((clicks, *QUICK, "--seed", 1), "settings.seed = 0, not 1"),
        ((clicks, *QUICK, "--eta", 1), "settings.position_bias"),
        ((other, *QUICK), "inputs.log.sha256"),
    ):
        again = ("train", *arguments, "--out", tmp_path / "run", "--resume")
        assert named in refusal(capsys, *again, unchanged=tmp_path)


@pytest.mark.slow
def test_all_options_reach_the_ranker(
    tmp_path: Path, clicks: Path, data: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    valid = tmp_path / "valid.parquet"
    write_log(simulate_clicks(data.valid, RandomRanking(), BIAS, clicks=50, seed=1), valid)
    bias = tmp_path / "bias.json"
    bias.write_text(json.dumps({"values": [1, 0.5, 0.4, 0.3, 0.2, 0.1]}))
    options = (
        *("--lambda", 2, "--model", "mlp", "--hidden", "3,2", "--l2", "0.1,0.2", "--l2", 0.4, "--bias", bias),
        *("--eps-minus", "0.2,0.1", "--valid", valid, "--group-blind", "--top-k", 3, "--clip", 4),
        *("--evidence", "pooled"),
        *("--entropy-weight", 0.002, "--seed", 5),
    )
    json_of(capsys, "train", clicks, *options, "--out", tmp_path / "run")
    ranker = load(tmp_path / "run/policy.safetensors")
    assert ranker.position_bias_ == PositionBias([1, 0.5, 0.4, 0.3, 0.2, 0.1])
    assert ranker.noise_ == ClickNoise(1.0, [0.2, 0.1])
    assert ranker.evidence == "pooled"
    assert ranker.fairness_weight == 2
    assert ranker.l2 == [0.1, 0.2, 0.4]
    assert (ranker.model, ranker.hidden, ranker.top_k, ranker.clip) == ("mlp", [3, 2], 3, 4)
    assert (ranker.group_blind, ranker.entropy_weight, ranker.seed) == (True, 0.002, 5)
    assert ranker.validation_ is not None
    assert ranker.validation_["impressions"] == len(read_log(valid))


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_trees_are_grown_as_options_say(
    tmp_path: Path, clicks: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    options: tuple[object, ...] = (
        "--model",
        "trees",
        "--leaves",
        3,
        "--rounds",
        7,
        "--learning-rate",
        0.5,
        "--folds",
        2,
    )
    options += (
        "--min-rows",
        9,
        "--column-share",
        0.9,
        "--row-share",
        0.8,
        "--interactions",
        "signal 1,quality",
    )
    options += ("--interactions", "signal 2")
    goal = ("--lambda", 1) if command == "train" else ("--lambdas", "0,1")
    json_of(capsys, command, clicks, *options, *goal, "--out", tmp_path / "run")
    config = json.loads((tmp_path / "run/config.json").read_text())["settings"]
    assert config["model"] == "trees"
    assert config["trees"]["leaves"] == 3
    assert config["trees"]["monotone"] is None
    if command == "train":
        sampled: dict[str, Any] = {
            "min_rows": 9,
            "column_share": 0.9,
            "row_share": 0.8,
            "interactions": [["signal 1", "quality"], ["signal 2"]],
        }
        asked = TreeSettings(leaves=3, rounds=7, learning_rate=0.5, **sampled)
        assert load(tmp_path / "run/policy.safetensors").trees == asked


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--leaves", 3), "--leaves is for --model trees and linear+trees"),
        (("--model", "trees", "--leaves", 1), "--leaves"),
        (("--model", "trees", "--rounds", 0), "--rounds"),
        (("--model", "linear+trees", "--learning-rate", 2), "--learning-rate"),
        (("--model", "trees", "--protocol", "paper"), "cannot grow trees"),
        (("--model", "trees", "--min-rows", 0), "--min-rows"),
        (("--model", "trees", "--column-share", 1.5), "--column-share"),
        (("--model", "trees", "--row-share", 0), "--row-share"),
        (("--model", "trees", "--lambda", 0, "--monotone", "1"), "--monotone takes a feature and 1"),
        (("--model", "trees", "--lambda", 0, "--monotone", "age=-1"), "no such feature"),
        (("--model", "trees", "--monotone", "quality=-1"), "moves their leaves"),
        (("--model", "trees", "--interactions", "age"), "no such feature"),
        (("--model", "mlp", "--monotone", "quality=1"), "--monotone is for --model trees"),
    ],
)
def test_options_of_trees_that_do_not_fit_are_one_line(
    tmp_path: Path, clicks: Path, capsys: pytest.CaptureFixture[str], options: tuple[Any, ...], problem: str
) -> None:
    code, _, said = result_of(capsys, "train", clicks, *options, "--out", tmp_path / "run")
    assert code == 2
    lines = further_lines(said)
    assert len(lines) == 1
    assert problem in lines[0]
    assert not (tmp_path / "run").exists()


def test_validation_features_are_found_by_name(
    tmp_path: Path, clicks: Path, data: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulate_clicks(data.valid, RandomRanking(), BIAS, clicks=50, seed=1)
    lists = log.data
    turned = replace(lists, features=lists.features[:, ::-1].copy(), feature_names=lists.feature_names[::-1])
    found = []
    for name, given in (("as it is", log), ("turned", replace(log, data=turned))):
        valid = tmp_path / f"{name}.parquet"
        write_log(given, valid)
        found.append(json_of(capsys, "train", clicks, *QUICK, "--valid", valid, "--out", tmp_path / name))
    assert found[0]["validation"]["dcg"] == pytest.approx(found[1]["validation"]["dcg"], rel=1e-6)


def test_labelled_data_is_full_information_and_said_to_be(
    tmp_path: Path, data: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.arrow"
    write_dataset(data.train, path)
    code, _, err = result_of(capsys, "train", path, *QUICK, "--out", tmp_path / "run")
    assert code == 2
    assert "give --eta 1 or --bias FILE" in err
    assert not (tmp_path / "run").exists()
    code, _, err = result_of(capsys, "train", path, *QUICK, "--eta", 1, "--out", tmp_path / "run")
    assert code == 0
    assert "labelled data: its relevance counts as known (full information)" in err
    found = json.loads((tmp_path / "run/results.json").read_text())
    assert found["validation"]["source"] == "relevance"
    code, _, err = result_of(
        capsys, "train", path, *QUICK, "--eta", 1, "--eps-minus", 0.1, "--out", tmp_path / "x"
    )
    assert code == 2
    assert "--eps-minus are for clicks" in err


def test_data_without_groups_trains_for_utility_alone(
    tmp_path: Path, data: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    write_letor(data.train, tmp_path / "train.txt")
    common = (
        "train",
        tmp_path / "train.txt",
        "--eta",
        1,
        "--l2",
        0.1,
        "--relevant-from",
        1,
        "--out",
        tmp_path / "r",
    )
    code, _, err = result_of(capsys, *common, "--max-disparity", 0.1)
    assert code == 2
    assert "no two groups" in err
    code, out, err = result_of(capsys, *common)
    assert code == 0
    assert "warning: there are no two groups" in err
    assert "0.0000" in out


def test_severe_findings_are_repeated(
    tmp_path: Path, data: DataSplits, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulate_clicks(data.train, RandomRanking(), BIAS, clicks=50, keep_empty=False, seed=0)
    log = replace(log, noise=None)
    write_log(log, tmp_path / "clicks.parquet")
    common = ("train", tmp_path / "clicks.parquet", "--out", tmp_path / "run", "--l2", 0.1)
    code, _, err = result_of(capsys, *common, "--lambda", 1)
    assert code == 0
    assert "fultr: warning: Impressions without a click were dropped" in err
    code, _, err = result_of(capsys, *common[:3], tmp_path / "limited", *common[4:], "--max-disparity", 0.1)
    assert code == 2
    assert "fultr: --max-disparity: a log whose impressions without a click were dropped" in err
    assert not (tmp_path / "limited").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--lambda", 1, "--max-disparity", 1), "give --max-disparity or --lambda, not both"),
        (("--max-disparity", -1), "--max-disparity"),
        (("--min-utility", 2), "--min-utility"),
        (("--l2", "a"), "--l2 takes numbers such as 0.01,0.1"),
        (("--l2", -1), "--l2: must be one or more finite numbers"),
        (("--hidden", "2.5"), "--hidden takes integers"),
        (("--folds", 0), "--folds: without left-out clicks, l2 must be a single number"),
        (("--valid-share", 0.1), "--valid-share is for --protocol paper; see --folds"),
        (("--valid-share", 0.1, "--valid", "x"), "give --valid or --valid-share, not both"),
        (("--eta", 1, "--bias", "x"), "give --eta or --bias, not both"),
        (("--protocol", "paper", "--max-disparity", 1), "--max-disparity: the paper's protocol"),
        (("--relevant-from", 1), "--relevant-from is for labelled data"),
        (("--eps-minus", 2), "--eps-minus: must be a probability"),
        (("--eps-minus", "0.4,x"), "--eps-minus takes numbers such as 0.01,0.1"),
        (("--eps-minus", "0.1,0.4", "--eps-plus", 0.3), "--eps-plus: must be above that of irrelevant items"),
        (("--evidence", "magic"), "--evidence"),
        (("--protocol", "paper", "--evidence", "pooled"), "--evidence: the paper's protocol"),
        (("--model", "tree"), "--model"),
        (("--valid", "missing.parquet"), "missing.parquet: no such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_and_leaves_no_folder(
    tmp_path: Path, clicks: Path, capsys: pytest.CaptureFixture[str], options: tuple[Any, ...], said: str
) -> None:
    code, out, err = result_of(capsys, "train", clicks, *options, "--out", tmp_path / "run")
    assert code == 2
    assert said in err
    assert len(further_lines(err)) == 1
    assert not out
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_limit_that_cannot_be_reached_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = datasets.synthetic(queries=12, features=5, list_length=(3, 6), relevant=1, seed=0).train
    clicks = tmp_path / "clicks.parquet"
    write_log(simulate_clicks(few, RandomRanking(), BIAS, clicks=80, seed=0), clicks)
    arguments = ("train", clicks, "--max-disparity", 1e-3, "--l2", 0.1, "--out", tmp_path / "run")
    err = refusal(capsys, *arguments)
    assert "no policy was found whose disparity on the training clicks is at most 0.001; the lowest" in err
    assert "Raise --max-disparity" in err
    assert "another folder" not in err
    # nothing is left, so that the same folder can be used with another limit
    assert not (tmp_path / "run").exists()
    assert result_of(capsys, *arguments, "--resume")[::2] == (2, err)
    # what was there before stays: a folder, and what an earlier run has kept
    (tmp_path / "run").mkdir()
    assert result_of(capsys, *arguments)[0] == 2
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.slow
def test_a_refused_limit_leaves_no_folder_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_board(queries=10, impressions=300).table.write_parquet(tmp_path / "jobs.parquet")
    arguments = (
        "train",
        tmp_path / "jobs.parquet",
        "--eta",
        1,
        "--l2",
        0.1,
        "--out",
        tmp_path / "runs" / "one",
    )
    code, _, err = result_of(capsys, *arguments, "--max-disparity", 0.01)
    assert code == 2
    assert "never shown" in err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()
    code, _, err = result_of(capsys, *arguments, "--lambda", 1)
    assert code == 0, err
    assert "fultr: " + str(tmp_path / "runs") not in err


def test_an_earlier_run_survives_a_refusal(tmp_path: Path) -> None:
    for damage in (InputError("no"), UnreachableLimitError(0.1, 0.2)):
        folder = tmp_path / type(damage).__name__
        with RunFolder.open(folder, {}) as run:
            run.save("first", lambda: {"at": np.ones(1)}, finished=True)
        before = sorted(path.name for path in folder.rglob("*"))
        with pytest.raises(type(damage)), RunFolder.open(folder, {}, resume=True):
            raise damage
        assert sorted(path.name for path in folder.rglob("*")) == before
        with pytest.raises(KeyboardInterrupt), RunFolder.open(folder / "stopped", {}) as run:
            run.save("first", lambda: {"at": np.ones(1)}, finished=True)
            raise KeyboardInterrupt
        assert (folder / "stopped" / CHECKPOINTS / "first.safetensors").exists()


def test_what_was_trained_is_said_in_measures_that_people_can_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown_jobs(searches=100, queries=10).write_parquet(tmp_path / "jobs.parquet")
    arguments = ("train", tmp_path / "jobs.parquet", "--eta", 1, "--l2", 0.1, "--lambda", 1)
    code, out, err = result_of(capsys, *arguments, "--out", tmp_path / "run")
    assert code == 0, err
    found = json.loads((tmp_path / "run" / "results.json").read_text())["validation"]
    lines = {" ".join(line.split()[:-4]): line for line in out.splitlines()}
    ratio = lines["exposure ratio (agency, direct)"]
    low, high = found["intervals"]["exposure_ratio"]
    assert f"{found['exposure_ratio']:.4f}" in ratio
    assert f"{low:.4f} to {high:.4f}" in ratio
    low, high = found["intervals"]["exposure_to_move"]
    assert f"{low:.1%} to {high:.1%}" in lines["exposure to move"]
    _, out, _ = result_of(capsys, "train", "--help")
    told = " ".join(out.split())
    assert "with 0.1, exposure of one group x merit of the other" in told
    assert "are printed after training" in told


def test_no_folder_can_be_made_where_nothing_can_be_written(
    clicks: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = result_of(capsys, "train", clicks, *QUICK, "--out", clicks)
    assert code == 2
    assert "is a file" in err
    if Path("/sys/kernel").is_dir():
        code, _, err = result_of(capsys, "train", clicks, *QUICK, "--out", "/sys/kernel/run")
        assert code == 1
        assert "cannot be written" in err
        assert len(further_lines(err)) == 1


def test_progress_shows_utility_disparity_and_the_time_left(
    tmp_path: Path, clicks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    code, _, err = result_of(capsys, "train", clicks, *QUICK, "--out", tmp_path / "run")
    assert code == 0
    for text in ("penalised-0-0", "utility", "disparity", "left"):
        assert text in err


def test_the_share_done_rises_to_the_end() -> None:
    done = ShareDone(stages=3, usual_iterations=10)
    shares = [
        done.after(stages_done, f"stage-{stages_done}", iterations)
        for stages_done in range(5)
        for iterations in (1, 5, 20)
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.1
    assert 0.3 < shares[3] < 0.6
    assert shares[-1] < 1


def test_sweep_writes_a_frontier_and_its_policies(
    tmp_path: Path, clicks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "sweep",
        clicks,
        "--lambdas",
        "0,0.5",
        "--lambdas",
        10,
        "--l2",
        "0.1,0.3",
        "--evidence",
        "doubly_robust",
        "--out",
        tmp_path / "s",
    )
    code, out, err = result_of(capsys, *arguments)
    assert code == 0, err
    assert "What fairness costs" in out
    folder = tmp_path / "s"
    assert json.loads((folder / "config.json").read_text())["settings"]["evidence"] == "doubly_robust"
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "metrics.jsonl", "results.json", "policies"),
        *("frontier.csv", "frontier.json", "frontier.png", "frontier.svg"),
    }
    rows = json.loads((folder / "frontier.json").read_text())
    assert len(rows) == 9
    assert len((folder / "frontier.csv").read_text().splitlines()) == 10
    found = json_of(capsys, *arguments, "--resume")
    assert [row["fairness_weight"] for row in found["policies"] if row["chosen"]] == [0, 0.5, 10]
    envelope = [row["valid_utility"] for row in rows if row["non_dominated"]]
    assert sorted(row["valid_utility"] for row in found["policies"] if row["non_dominated"]) == sorted(
        envelope
    )
    for row in found["policies"]:
        ranker = load(folder / row["policy"])
        assert ranker.training_utility_ == pytest.approx(row["train_utility"], rel=1e-3)
        assert ranker.fairness_weight == row["fairness_weight"]
        assert f"{row['valid_utility']:.4f}" in out
        low, high = row["intervals"]["dcg"]
        assert low <= row["valid_utility"] <= high
    assert (folder / "frontier.png").read_bytes()[:4] == b"\x89PNG"
    assert any(row["non_dominated"] for row in found["policies"])


def test_sweep_over_seeds_and_without_validation(
    tmp_path: Path, clicks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = (
        "sweep",
        clicks,
        "--lambdas",
        "1",
        "--l2",
        0.3,
        "--model",
        "mlp",
        "--hidden",
        2,
        "--folds",
        0,
    )
    found = json_of(capsys, *common, "--seeds", "3,4", "--out", tmp_path / "s")
    assert [row["policy"] for row in found["policies"]] == [
        "policies/lambda-1-seed-3.safetensors",
        "policies/lambda-1-seed-4.safetensors",
    ]
    assert found["policies"][0]["valid_utility"] is None
    weights = [load(tmp_path / "s" / row["policy"]).scorer_.state_dict() for row in found["policies"]]
    assert any(not np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    code, out, _ = result_of(capsys, *common, "--seeds", "3,4", "--out", tmp_path / "s", "--resume")
    assert code == 0
    assert "1 (seed 3)" in out


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_commands_have_help_with_an_example_and_a_seed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = result_of(capsys, command, "--help")
    assert code == 0
    assert f"fultr {command}" in out.split("Example:")[1]
    for option in ("--json", "--seed", "--resume", "--valid-share"):
        assert option in out


DRIVER = '''
"""Imports fultr once; each order on standard input is run in a process of its own, and stopped on the way.

An order has the arguments, the seconds until a signal, the signal, and the most that a file may hold.
"""
import json, os, resource, signal, sys, time

import fultr
from fultr.cli.main import run
from fultr.training import fair_ranker
from fultr.training.paper_steps import PaperSettings

short = PaperSettings(
    validate_every=20, patience=3, most_steps=400, samples=8, window=40, learning_rate=0.05
)
fair_ranker.PAPER = short

# machine code is read here once, not in every process
data = fultr.datasets.synthetic(queries=8, features=5, list_length=(3, 6), relevant=1, seed=0).train
bias = fultr.PositionBias.power(1.0)
log = fultr.simulate_clicks(data, fultr.RandomRanking(), bias, clicks=40, seed=0)
for options in ({"max_disparity": 0.5}, {"model": "mlp", "hidden": [2]}, {"protocol": "paper"}):
    fultr.FairRanker(**options, l2=0.3).fit(log)
sys.stdout.write("ready\\n")
sys.stdout.flush()

for line in sys.stdin:
    order = json.loads(line)
    start = time.monotonic()
    child = os.fork()
    if not child:
        said = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        if order["most"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["most"], order["most"]))
        code = run(order["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    ended, status = 0, 0
    while order["seconds"] is not None and not ended and time.monotonic() - start < order["seconds"]:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.001)
    if not ended:
        if order["seconds"] is not None:
            os.kill(child, order["signal"])
        _, status = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(status)
    sys.stdout.write(json.dumps([status, time.monotonic() - start]) + "\\n")
    sys.stdout.flush()
'''


class Driver:
    """Runs commands in processes that can be killed, without importing everything each time."""

    def __init__(self, folder: Path) -> None:
        self.said = folder / "said.txt"
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # one thread: a process with several cannot be forked safely
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self._answer() == "ready\n"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def run(
        self,
        *arguments: object,
        seconds: float | None = None,
        number: int = signal.SIGKILL,
        most: int | None = None,
    ) -> tuple[int, float, str]:
        """Return the exit code (or minus the signal), the time it took, and what was printed."""
        order = {
            "arguments": [str(argument) for argument in arguments],
            "seconds": seconds,
            "signal": int(number),
            "most": most,
            "said": str(self.said),
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        code, took = json.loads(self._answer())
        return code, took, self.said.read_text()

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Driver(tmp_path_factory.mktemp("driver"))
    yield made
    made.close()


COMMANDS = {
    "exact linear": ("train", "--max-disparity", 0.15, "--l2", "0.03,0.1,0.3"),
    "exact mlp": ("train", "--lambda", 1, "--model", "mlp", "--hidden", 3, "--l2", "0.1,0.3"),
    "paper": ("train", "--lambda", 1, "--protocol", "paper", "--l2", "0,0.1"),
    "sweep": ("sweep", "--lambdas", "0,1", "--l2", "0.1,0.3"),
}
KILLS = {"exact linear": 15, "exact mlp": 15, "paper": 15, "sweep": 5}


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a run whose content must not depend on when it was stopped."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "metrics.jsonl"
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS)
def test_runs_that_are_killed_at_any_moment_end_with_the_same_bits(
    tmp_path: Path, clicks: Path, driver: Driver, kind: str
) -> None:
    command, *options = COMMANDS[kind]

    def train(out: Path, **how: Any) -> tuple[int, float, str]:
        return driver.run(command, clicks, *options, "--checkpoint-every", 0, "--out", out, "--resume", **how)

    code, took, said = train(tmp_path / "whole")
    assert code == 0, said
    expected = contents(tmp_path / "whole")
    # the first run may have to compile what the driver did not
    took = min(took, train(tmp_path / "again")[1])
    random = np.random.default_rng(sum(kind.encode()))
    kills, number = 0, 0
    while kills < KILLS[kind] or code != 0:
        assert number < 200
        out = tmp_path / f"torn-{number}"
        # while there are kills to go, anywhere from the start to beyond the end
        moment = float(random.uniform(0, 1.1 * took)) if kills < KILLS[kind] else None
        code, _, said = train(out, seconds=moment)
        if code == -signal.SIGKILL:
            kills += 1
            check_what_is_left(out)
        else:
            assert code == 0, said
            assert contents(out) == expected
            number += 1
    assert number


def check_what_is_left(out: Path) -> None:
    """After a kill, whatever has its final name is whole."""
    for file in out.glob("*.json"):
        json.loads(file.read_text())
    for file in out.rglob("*.safetensors"):
        read_policy_file(file)
        if file.parent.name != CHECKPOINTS:
            load(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "name", "expected"), [(signal.SIGINT, "SIGINT", 130), (signal.SIGTERM, "SIGTERM", 143)]
)
def test_signals_leave_the_last_state_and_say_how_to_go_on(
    tmp_path: Path, clicks: Path, driver: Driver, number: int, name: str, expected: int
) -> None:
    command, *options = COMMANDS["exact linear"]
    arguments = (command, clicks, *options, "--checkpoint-every", 0)
    code, took, _ = driver.run(*arguments, "--out", tmp_path / "whole")
    assert code == 0
    stopped = 0
    for attempt, share in enumerate(np.random.default_rng(number).uniform(0.1, 0.9, size=40)):
        if attempt >= 3 and stopped:
            break
        out = tmp_path / f"torn-{attempt}"
        code, _, said = driver.run(*arguments, "--out", out, seconds=share * took, number=number)
        if (out / "config.json").exists() and code:
            assert code == expected
            assert f"stopped by {name}; what was trained up to the last checkpoint is kept in {out}" in said
            assert "the same command with --resume goes on" in said
            stopped += 1
        # before the command has begun, a signal does what it always does
        assert code in (0, expected, -number)
        assert not code or len(further_lines(said)) == (code > 0)
        code, _, said = driver.run(*arguments, "--out", out, "--resume")
        assert code == 0, said
        assert contents(out) == contents(tmp_path / "whole")
    assert stopped


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_state_and_says_how_to_go_on(
    tmp_path: Path, clicks: Path, driver: Driver
) -> None:
    command, *options = COMMANDS["exact linear"]
    arguments = (command, clicks, *options, "--checkpoint-every", 0)
    assert driver.run(*arguments, "--out", tmp_path / "whole")[0] == 0
    whole = contents(tmp_path / "whole")
    sizes = {name: len(content) for name, content in whole.items()}
    for number, most in enumerate((400, sizes["config.json"] + 1, sizes["policy.safetensors"] - 1)):
        out = tmp_path / f"torn-{number}"
        code, _, said = driver.run(*arguments, "--out", out, most=most)
        assert code == 1
        assert len(further_lines(said)) == 1, said
        assert "cannot be written: File too large" in said
        assert ("the same command with --resume goes on" in said) == (number > 0)
        assert not list(out.rglob("*.part"))
        code, _, said = driver.run(*arguments, "--out", out, "--resume")
        assert code == 0, said
        assert contents(out) == whole
