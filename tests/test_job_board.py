"""A job board's log in the shell: text ids, pages, and what nobody could see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import fultr
from fultr import Counts
from fultr.audits import logged_disparity_finding
from fultr.clicks import judge_readiness
from fultr.estimators import list_disparity_bounds, policy_aware_evidence
from fultr.expectation import examination_weights
from fultr.policy.rotation import expected_exposure
from tests.commands import json_of, refusal, result_of
from tests.job_board import BIAS, FEATURES, JobBoard, job_board
from tests.training_tasks import random_lists, random_log

ORDERS = """
import random, sys
import numpy as np
import fultr
from fultr.data.ids import as_ids, codes_of, distinct

for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    chosen = random.Random(seed)
    ids = [f"J-{query:03}-{job:02}" for query in range(chosen.randint(1, 60)) for job in range(50)]
    orders = ["rises and falls", "shuffled", "sorted", "reversed", "runs", "repeated"]
    order = orders[seed % len(orders)]
    if order == "rises and falls":  # numpy 2.4 crashes on this one
        ids = ids[::2] + ids[1::2][::-1]
    elif order == "shuffled":
        chosen.shuffle(ids)
    elif order == "reversed":
        ids.reverse()
    elif order == "runs":
        parts = [ids[start : start + 37] for start in range(0, len(ids), 37)]
        chosen.shuffle(parts)
        ids = [name for part in parts for name in part]
    elif order == "repeated":
        ids = chosen.choices(ids, k=len(ids))
    known = sorted(set(ids))
    held = as_ids(ids, "doc_id")
    assert distinct(held).tolist() == known
    place = {name: number for number, name in enumerate(known)}
    assert codes_of(held).tolist() == [place[name] for name in ids]
    unique = list(dict.fromkeys(ids))
    size = len(unique)
    counts = fultr.count({
        "impression_id": [1] * size, "query_id": ["q"] * size, "doc_id": unique,
        "position": list(range(1, size + 1)), "click": [1] + [0] * (size - 1),
    })
    assert counts.data.doc_id.tolist() == known
print("fine")
"""


@pytest.fixture(scope="module")
def board() -> JobBoard:
    return job_board(impressions=3_000, variety=1.0)


@pytest.fixture(scope="module")
def log(board: JobBoard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("board") / "clicks.csv"
    board.table.rename({name: f"feature_{name}" for name in FEATURES}).write_csv(path)
    return path


@pytest.mark.parametrize("first", range(0, 60, 30))
def test_text_ids_of_any_order_are_sorted_without_a_crash(first: int) -> None:
    """numpy 2.4 crashes in the sort of text for some orders, which takes the process with it."""
    command = [sys.executable, "-c", ORDERS, str(first), str(first + 30)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.slow
def test_nothing_sorts_text_with_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever sorts ids goes through `codes_of` or `distinct`."""
    refuse_sorts_of_text(monkeypatch)
    with pytest.raises(AssertionError, match="unique of text"):
        np.unique(np.array(["b", "a"], dtype=np.dtypes.StringDType()))
    board = job_board(queries=12, impressions=800)
    board.table.write_parquet(tmp_path / "clicks.parquet")
    fultr.write_dataset(board.truth, tmp_path / "jobs.parquet")
    monkeypatch.chdir(tmp_path)
    for line in (
        "split clicks.parquet --by time --share 0.5 --out-train train.csv --out-test later.csv",
        "count train.csv --context device --out counts.parquet",
        "inspect counts.parquet --eta 1",
        "propensity train.csv --by device --tail power --out bias.json",
        "train train.csv --bias bias.json --lambda 1 --l2 0.01 --out run",
        "sweep train.csv --bias bias.json --lambdas 0,1 --l2 0.01 --out swept",
        "evaluate run/policy.safetensors later.csv --bias bias.json",
        "audit later.csv --policy run --bias bias.json --out audit",
        "rank run/policy.safetensors jobs.parquet --out ranked.csv",
        "report run --out page.html",
        "compare train.csv --eta 1 --methods fultr --test jobs.parquet --out compared",
        "convert train.csv train.parquet",
    ):
        code, _, said = result_of(capsys, *line.split())
        assert code == 0, (line, said)
    shown = board.table.filter(pl.col("position").is_not_null())
    fultr.FairRanker(1.0, position_bias=BIAS, l2=0.01).fit(
        shown.select(FEATURES).to_numpy(),
        shown["click"].to_numpy(),
        qid=shown["query_id"].to_list(),
        impression=shown["impression_id"].to_list(),
        position=shown["position"].to_numpy(),
        sensitive_features=shown["group"].to_list(),
    )


def refuse_sorts_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all functions of numpy that sort raise where they are given text."""

    def checked(name: str, function: Any) -> Any:
        def refusing(values: Any, *rest: Any, **options: Any) -> Any:
            parts = values if isinstance(values, tuple) else (values,)
            for part in (*parts, *rest):
                assert not isinstance(part, np.ndarray) or part.dtype.kind not in "OTUS", f"{name} of text"
            return function(values, *rest, **options)

        return refusing

    for name in (
        "unique",
        "sort",
        "argsort",
        "isin",
        "searchsorted",
        "lexsort",
        "union1d",
        "intersect1d",
        "setdiff1d",
    ):
        monkeypatch.setattr(np, name, checked(name, getattr(np, name)))


@pytest.mark.slow
def test_training_on_text_ids_ends_in_a_policy(
    log: Path, board: JobBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    limited = ("--max-disparity", 0.3, "--shown-only")
    found = json_of(capsys, "train", log, "--eta", 1, *limited, "--out", run)
    policy = fultr.load(run / "policy.safetensors")
    assert policy.position_bias_ == BIAS.cut(20)
    assert found["training"]["disparity"] <= 0.3
    truth = fultr.evaluate(policy, board.truth, intervals=None)
    useful = fultr.FairRanker(0.0).fit(board.counts().shown_only())
    most = fultr.evaluate(useful, board.truth, intervals=None)
    assert abs(float(truth.disparity)) < abs(float(most.disparity))


@pytest.mark.slow
def test_a_limit_that_unseen_candidates_could_break_is_refused(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = ("--max-disparity", 0.1, "--out", tmp_path / "run")
    code, _, said = result_of(capsys, "train", log, "--eta", 1, *limited)
    assert code == 2
    assert "--max-disparity: " in said
    assert "of the candidates were never shown, so that their merit is unknown" in said
    assert "leave them out (--shown-only" in said
    assert not (tmp_path / "run" / "policy.safetensors").exists()


def test_every_command_says_what_was_never_shown(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspected = json_of(capsys, "inspect", log, "--eta", 1)
    sentences = {one["sentence"]: one["severity"] for one in inspected["findings"]}
    never = next(sentence for sentence in sentences if "were never shown: their merit is unknown" in sentence)
    assert "of group 'direct'" in never
    assert any("is taken for the end of the page" in sentence for sentence in sentences)
    audited = json_of(capsys, "audit", log, "--eta", 1)
    assert any("never shown: their merit is unknown" in note for note in audited["notes"])
    assert audited["position_bias"]["beyond"] == "zero"
    seen = json_of(capsys, "audit", log, "--eta", 1, "--shown-only")
    left_out = next(one for one in seen["findings"] if "were never shown and are left out" in one["sentence"])
    assert left_out["severity"] == "severe"
    assert "of group 'direct'" in left_out["sentence"]


def test_a_page_may_be_told_to_be_deeper(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audited = json_of(capsys, "audit", log, "--eta", 1, "--depth", 30)
    assert len(audited["position_bias"]["values"]) == 30
    for depth in (5, 15, 19):
        shallow = refusal(capsys, "audit", log, "--eta", 1, "--depth", depth)
        assert "a click at a position that is never examined" in shallow
        assert "--depth" in shallow
    told = json_of(capsys, "inspect", log, "--eta", 1, "--depth", 15)
    severe = [one["sentence"] for one in told["findings"] if one["severity"] == "severe"]
    assert any("clicks stand at positions that are never examined" in sentence for sentence in severe)
    assert not any("taken for the end of the page" in one["sentence"] for one in told["findings"])


def test_no_disparity_is_said_where_none_can_be_shown(board: JobBoard) -> None:
    counts = board.counts().shown_only()
    found = logged_disparity_finding(counts)
    assert found is not None
    assert found.severity == "note"
    assert found.sentence.startswith("The logged ranking has a disparity of ")
    few = random_log(random_lists(lists=30), impressions=60).compact()
    told = logged_disparity_finding(few)
    assert told is not None
    assert told.sentence.startswith("No disparity of the logged ranking can be shown in this log: ")
    alone = counts.with_lists(fultr.RankingDataset(np.zeros((counts.data.rows, 1)), counts.data.offsets))
    assert logged_disparity_finding(alone) is None


def test_rows_may_hold_only_what_was_shown(board: JobBoard, tmp_path: Path) -> None:
    shown = board.table.filter(pl.col("position").is_not_null())
    counts = fultr.count(shown, features=list(FEATURES), position_bias=BIAS)
    # without the others, each page is a list of candidates of its own
    assert not counts.hides_candidates
    assert counts.on_page(BIAS) == BIAS
    assert len(counts.data) > 40
    found = next(one for one in judge_readiness(counts).severe if "have only what they show" in one.sentence)
    assert "with an empty position for those that were not shown" in found.sentence
    whole = judge_readiness(board.counts())
    assert not any("have only what they show" in one.sentence for one in whole.findings)


def few_unseen() -> Counts:
    """Return the counts of a log so varied that next to nothing was never shown."""
    counts = job_board(queries=6, impressions=1_500, variety=1.0).counts()
    share = float((counts.shown() == 0).mean())
    assert 0 < share < 0.05
    return counts


@pytest.mark.slow
def test_a_limit_holds_whatever_the_merit_of_a_few_unseen_candidates() -> None:
    counts = few_unseen()
    limit = 2.0
    ranker = fultr.FairRanker(max_disparity=limit, l2=0.01, folds=0).fit(counts)
    assert ranker.training_disparity_ < limit
    low, high = worst_disparity(ranker, counts)
    assert max(-low, high) <= limit
    with pytest.raises(fultr.InputError, match="never shown, so that their merit is unknown"):
        fultr.FairRanker(max_disparity=0.01, l2=0.01, folds=0).fit(counts)


def worst_disparity(ranker: fultr.FairRanker, counts: Counts) -> tuple[float, float]:
    """Return the least and the most that D may be, items never shown having any relevance from 0 to 1."""
    evidence = policy_aware_evidence(counts, counts.on_page(BIAS))
    weights = examination_weights(counts.on_page(BIAS), int(counts.data.lengths.max()))
    exposure = expected_exposure(ranker.predict(counts.data), counts.data.offsets, weights)
    bounds = list_disparity_bounds(torch.from_numpy(exposure), evidence)
    low, high = (float(bound.sum(0)[0, 1]) / evidence.total_impressions for bound in bounds)
    return low, high


def test_a_sweep_refuses_a_limit_that_unseen_candidates_could_break(board: JobBoard) -> None:
    front = fultr.sweep(board.counts(), fairness_weights=[0.0, 10.0], l2=0.01)
    with pytest.raises(fultr.InputError, match="never shown, so that their merit is unknown"):
        front.select(max_disparity=3.0)


def test_training_says_that_no_disparity_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = random_log(random_lists(lists=30), impressions=60)
    fultr.write_log(few, tmp_path / "few.parquet")
    code, _, said = result_of(
        capsys, "train", tmp_path / "few.parquet", "--lambda", 1, "--out", tmp_path / "run"
    )
    assert code == 0
    assert "warning: No disparity of the logged ranking can be shown in this log: " in said


def test_an_inspection_says_what_is_wrong_with_columns_that_nobody_named(
    board: JobBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    age = np.random.default_rng(0).integers(0, 30, size=board.table.height)
    board.table.with_columns(age=age).write_parquet(tmp_path / "clicks.parquet")
    found = json_of(capsys, "inspect", tmp_path / "clicks.parquet", "--eta", 1)["findings"]
    assert found[0]["severity"] == "severe"
    assert "column 'age'" in found[0]["sentence"]
    assert "--exclude 'age' leaves it out" in found[0]["sentence"]
    told = json_of(capsys, "inspect", tmp_path / "clicks.parquet", "--eta", 1, "--exclude", "age")
    assert told["features"] == len(FEATURES)
