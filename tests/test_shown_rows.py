"""Logs with rows for shown items only: who else could have been shown is not known, so limits are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fultr
from fultr import ClickLog, Counts, FairRanker, InputError
from fultr.audits import lowest_limit
from fultr.clicks import check_candidates, judge_readiness
from fultr.clicks.pages import share_on_a_page
from tests.commands import json_of, refusal
from tests.job_board import BIAS, FEATURES, JobBoard, job_board

PROBLEM = "impressions have only what they show, on average 3.% of the documents of their query"


@pytest.fixture(scope="module")
def board() -> JobBoard:
    return job_board(impressions=2_000, seed=3)


@pytest.fixture(scope="module")
def pages(board: JobBoard) -> Counts:
    """Return the board's log without the rows of what was not on a page."""
    shown = board.table.filter(pl.col("position").is_not_null())
    return fultr.count(shown, features=list(FEATURES), position_bias=BIAS)


def log_of(*impressions: tuple[str, list[str]], query: str = "q") -> ClickLog:
    """Return a log of impressions, each of a query with what it shows; the first of each is clicked."""
    rows = [
        (number, name, job, position, int(position == 1), job[0], float(len(job)))
        for number, (name, jobs) in enumerate(impressions)
        for position, job in enumerate(jobs, start=1)
    ]
    names = ("impression_id", "query_id", "doc_id", "position", "click", "group", "feature_1")
    return fultr.read_log(
        dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), position_bias=BIAS
    )


def test_the_truth_among_all_candidates_is_far_above_a_limit_on_pages(board: JobBoard, pages: Counts) -> None:
    """Why limits are refused there: between items of a page D is below .1, among all candidates far above."""
    ranker = FairRanker(max_disparity=0.1, l2=0.01, folds=0).fit(pages.with_complete_lists())
    assert ranker.training_disparity_ <= 0.1
    truth = fultr.evaluate(ranker, board.truth, position_bias=BIAS.cut(20), intervals=None)
    assert abs(float(truth.disparity)) > 0.5


def test_a_limit_is_refused_where_the_log_shows_that_it_lacks_candidates(pages: Counts) -> None:
    ranker = FairRanker(max_disparity=0.1, l2=0.01, folds=0)
    with pytest.raises(InputError, match=f"{PROBLEM}.*or say that there were no others"):
        ranker.fit(pages)
    with pytest.raises(InputError, match=PROBLEM):
        fultr.fair_offsets("match", pages, max_disparity=5.0)
    with pytest.raises(InputError, match=PROBLEM):
        fultr.audit(pages, max_disparity=5.0)
    front = fultr.sweep(pages, fairness_weights=[0.0, 1.0], l2=0.01)
    with pytest.raises(InputError, match=PROBLEM):
        front.select(max_disparity=5.0)
    # what promises nothing goes on
    assert front.select(min_utility=0.9) is not None
    assert fultr.audit(pages).passes is None
    assert lowest_limit(pages) is None


def test_validation_clicks_need_their_candidates_as_well(board: JobBoard, pages: Counts) -> None:
    every, valid = pages.with_complete_lists(), pages.split(0.5)[1]
    ranker = FairRanker(max_disparity=5.0, l2=0.01)
    with pytest.raises(InputError, match=PROBLEM):
        ranker.fit(every, valid=valid)


def test_the_log_is_believed_if_it_says_that_lists_are_complete(pages: Counts, tmp_path: Path) -> None:
    said = pages.with_complete_lists()
    check_candidates(said, 0.1)
    assert share_on_a_page(said) is None
    assert not any("have only what they show" in one.sentence for one in judge_readiness(said).findings)
    assert lowest_limit(said) is not None
    assert fultr.audit(said, max_disparity=50.0).passes is True
    # the statement stays with the log
    fultr.write_counts(said, tmp_path / "counts.parquet")
    check_candidates(fultr.read_counts(tmp_path / "counts.parquet"), 0.1)
    log = log_of(("q", ["a1", "b1"]), ("q", ["a2", "b2"])).with_complete_lists()
    check_candidates(log.compact(), 0.1)
    fultr.write_log(log, tmp_path / "log.parquet")
    check_candidates(fultr.count(tmp_path / "log.parquet"), 0.1)


def test_nothing_is_wrong_where_all_impressions_of_a_query_have_the_same_documents() -> None:
    same = log_of(("q", ["a1", "b1", "a2"]), ("q", ["a2", "a1", "b1"]), ("r", ["b9"]), ("s", ["a1", "b7"]))
    assert share_on_a_page(same.compact()) == 1.0
    check_candidates(same.compact(), 0.1)
    some = log_of(("q", ["a1", "b1", "a2"]), ("q", ["a3", "a1", "b1"]), ("r", ["b9"]), ("s", ["a1", "b7"]))
    assert share_on_a_page(some.compact()) == pytest.approx((3 / 4 + 3 / 4 + 1 + 1) / 4)
    with pytest.raises(InputError, match="on average 88% of the documents of their query"):
        check_candidates(some.compact(), 0.1)


def test_one_impression_in_hundreds_with_another_candidate_is_no_reason_to_refuse() -> None:
    jobs = [f"{'ab'[number % 2]}{number}" for number in range(20)]
    log = log_of(*[("q", jobs)] * 300, ("r", jobs), *[(f"s{number}", jobs) for number in range(3_000)])
    few = log_of(
        *[("q", jobs)] * 300, ("q", [*jobs[:-1], "a99"]), *[(f"s{number}", jobs) for number in range(3_000)]
    )
    check_candidates(log.compact(), 0.1)
    share = share_on_a_page(few.compact())
    assert share is not None
    assert 0.99 < share < 1
    check_candidates(few.compact(), 0.1)


def test_a_log_that_knows_who_was_not_shown_is_not_refused_for_it(board: JobBoard) -> None:
    counts = board.counts()
    assert share_on_a_page(counts) is None
    assert share_on_a_page(counts.shown_only()) is None
    # without ids, documents cannot be told apart
    nameless = log_of(("q", ["a1", "b1"]), ("q", ["a2", "b2"])).compact()
    assert share_on_a_page(nameless) == 0.5
    bare = nameless.with_lists(
        fultr.RankingDataset(
            nameless.data.features,
            nameless.data.offsets,
            group=np.asarray(nameless.data.group),
            group_names=nameless.data.group_names,
            query_id=nameless.data.query_id,
        )
    )
    assert share_on_a_page(bare) is None


def test_commands_refuse_a_limit_on_pages_in_one_line(
    board: JobBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shown.parquet"
    board.table.filter(pl.col("position").is_not_null()).write_parquet(path)
    for line in (
        ("train", path, "--features", ",".join(FEATURES), "--out", tmp_path / "run"),
        ("audit", path, "--features", ",".join(FEATURES)),
    ):
        said = refusal(capsys, *line, "--eta", 1, "--max-disparity", 5)
        assert said.count("\n") == 1
        assert "--max-disparity: impressions have only what they show" in said
        assert "Add a row with an empty position for each candidate that was not shown" in said
        assert "(--complete-lists)" in said
    assert not (tmp_path / "run" / "policy.safetensors").exists()
    audited = json_of(
        capsys, "audit", path, "--features", "match", "--eta", 1, "--max-disparity", 50, "--complete-lists"
    )
    assert audited["passes"] is True
    for option in ((), ("--complete-lists",)):
        findings = json_of(capsys, "inspect", path, "--features", "match", "--eta", 1, *option)["findings"]
        severe = [one for one in findings if "have only what they show" in one["sentence"]]
        assert [one["severity"] for one in severe] == ([] if option else ["severe"])
    run = ("train", path, "--features", ",".join(FEATURES), "--eta", 1, "--l2", 0.01, "--max-disparity", 5)
    json_of(capsys, *run, "--complete-lists", "--out", tmp_path / "run")
    json_of(capsys, "report", tmp_path / "run", "--out", tmp_path / "page.html")


def test_labelled_data_have_all_their_candidates(
    board: JobBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fultr.write_dataset(board.truth, tmp_path / "jobs.parquet")
    said = refusal(capsys, "inspect", tmp_path / "jobs.parquet", "--complete-lists")
    assert "--complete-lists is for click logs" in said
