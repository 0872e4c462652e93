"""What a log shares with the training of a policy, and what an audit makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fultr import ClickLog, Counts, FairRanker, InputError, count, load, read_log, save, sweep
from fultr.audits import audit, read_audit, write_audit
from fultr.baselines import PGRank
from fultr.reports import report_on_audit
from fultr.training.overlap import content_digest, overlap_with_training, training_evidence
from fultr.training.policy_files import read_policy_file, write_policy_file
from tests import commands
from tests.weekly_jobs import BIAS, week_of_jobs


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two weeks of a job board: the second has 40 searches of the first, and 40 new ones."""
    folder = tmp_path_factory.mktemp("weeks")
    first, second = folder / "first.parquet", folder / "second.parquet"
    week_of_jobs(1).write_parquet(first)
    week_of_jobs(2, queries=range(80), impressions=600).write_parquet(second)
    return first, second


def counted(*files: Path) -> Counts:
    return count([str(file) for file in files], position_bias=BIAS)


@pytest.fixture(scope="module")
def ranker(weeks: tuple[Path, Path]) -> FairRanker:
    return FairRanker(1.0, l2=0.1).fit(counted(weeks[0]))


@pytest.fixture(scope="module")
def run(ranker: FairRanker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save(ranker, folder / "policy.safetensors")
    return folder


# digests


def test_a_log_has_one_digest_wherever_it_comes_from(weeks: tuple[Path, Path], tmp_path: Path) -> None:
    frame = pl.read_parquet(weeks[0])
    frame.write_csv(tmp_path / "first.csv")
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    others = [
        count(frame),
        count(shuffled),
        counted(tmp_path / "first.csv"),
        read_log(frame, position_bias=BIAS).compact(),
        count(frame, features=[]),
    ]
    assert {content_digest(one) for one in others} == {content_digest(counted(weeks[0]))}
    assert content_digest(count(pl.read_parquet(weeks[1]))) != content_digest(others[0])


def test_one_click_makes_another_digest(weeks: tuple[Path, Path]) -> None:
    frame = pl.read_parquet(weeks[0]).with_row_index()
    clicked = frame.with_columns(
        click=pl.when(pl.col("index") == 3).then(1 - pl.col("click")).otherwise("click")
    )
    assert content_digest(count(clicked)) != content_digest(count(frame))


# training


def test_validation_by_the_training_clicks_is_refused(weeks: tuple[Path, Path]) -> None:
    frame = pl.read_parquet(weeks[0])
    log = read_log(frame, position_bias=BIAS)
    for valid in (log, log.compact(), read_log(frame, position_bias=BIAS), frame):
        with pytest.raises(InputError, match="'valid'.*same as what is trained on"):
            FairRanker(1.0, l2=0.1).fit(log, valid=valid)
    with pytest.raises(InputError, match="'valid'.*same as what is trained on"):
        sweep(log, fairness_weights=[1.0], l2=0.1, valid=log)


def test_every_way_of_training_keeps_what_it_was_trained_on(weeks: tuple[Path, Path]) -> None:
    first, second = counted(weeks[0]), counted(weeks[1])
    expected = training_evidence(first, second)
    assert sum(len(digest) == 64 for digest in expected) == 4  # two files, and what they hold
    fitted = FairRanker(1.0, l2=0.1).fit(first, valid=second)
    of_sweep = sweep(first, valid=second, fairness_weights=[1.0], l2=0.1).select(min_utility=0.5)
    other = PGRank(l2=0.1, position_bias=BIAS).fit(first, valid=second)
    for one in (fitted, of_sweep, other):
        assert one.training_evidence_ == expected


def test_a_saved_policy_keeps_it_and_an_old_one_loads_without(
    ranker: FairRanker, run: Path, tmp_path: Path
) -> None:
    assert load(run / "policy.safetensors").training_evidence_ == ranker.training_evidence_
    file = read_policy_file(run / "policy.safetensors")
    content = {name: value for name, value in file.content.items() if name != "evidence"}
    old = load(write_policy_file(tmp_path / "old.safetensors", file.tensors, content))
    assert old.training_evidence_ is None


# audits


@pytest.mark.parametrize("form", ["counts", "frame", "log", "with another file"])
def test_the_same_impressions_are_refused(form: str, ranker: FairRanker, weeks: tuple[Path, Path]) -> None:
    first, frame = counted(weeks[0]), pl.read_parquet(weeks[0])
    logs: dict[str, ClickLog | Counts] = {
        "counts": first,
        "frame": count(frame, position_bias=BIAS),
        "log": read_log(frame, position_bias=BIAS),
        "with another file": counted(*weeks),
    }
    named = r" \(first.parquet\), about 33% of all" if form == "with another file" else ""
    with pytest.raises(InputError, match=f"impressions that mine was trained or validated on{named}, where"):
        audit(logs[form], {"mine": ranker})


def test_validation_files_are_known_again_too(weeks: tuple[Path, Path]) -> None:
    ranker = FairRanker(1.0, l2=0.1).fit(counted(weeks[0]), valid=counted(weeks[1]))
    with pytest.raises(InputError, match="trained or validated on"):
        audit(counted(weeks[1]), {"mine": ranker})


def test_other_queries_of_the_same_file_are_other_impressions(weeks: tuple[Path, Path]) -> None:
    trained, aside = counted(weeks[1]).split(0.5)
    ranker = FairRanker(1.0, l2=0.1).fit(trained)
    found = audit(aside, {"mine": ranker}).rankings["mine"]
    assert found.recurring_queries == 0
    assert found.new_queries is None


def test_new_clicks_on_known_queries_are_audited_and_new_queries_apart(
    ranker: FairRanker, weeks: tuple[Path, Path], tmp_path: Path
) -> None:
    log = counted(weeks[1]).with_complete_lists()
    found = audit(log, {"mine": ranker}, max_disparity=100.0)
    mine = found.rankings["mine"]
    assert mine.recurring_queries == 40
    assert "40 of 80 queries were in the training of mine" in found.notes[0]
    assert "not what happens on queries that it never saw" in found.notes[0]
    assert "on the 40 queries that are new to it is given apart" in found.notes[1]
    overlap = overlap_with_training(ranker, log)
    assert overlap is not None
    assert overlap.recurring is not None
    # they are those of an audit of the new queries only
    alone = audit(log[np.flatnonzero(~overlap.recurring)], {"mine": ranker}, max_disparity=100.0)
    new, expected = mine.new_queries, alone.rankings["mine"]
    assert new is not None
    assert new.queries == 40
    assert new.impressions == alone.impressions
    assert (new.utility, new.pairs, new.disparity) == (expected.utility, expected.pairs, expected.disparity)
    assert (new.passes, new.difference) == (expected.passes, expected.difference)
    assert expected.new_queries is None
    write_audit(found, tmp_path)
    assert read_audit(tmp_path / "audit.json") == found
    page = report_on_audit(found, tmp_path)
    facts = dict(next(one for one in page.rankings if one.kind == "policy").facts)
    assert facts["queries of its training that recur"] == "40"
    assert "on 40 queries that training never saw" in facts
    assert any("40 of 80 queries" in one["sentence"] for one in page.findings or ())


def test_few_new_queries_have_no_result_of_their_own(ranker: FairRanker) -> None:
    log = count(week_of_jobs(3, queries=range(50)), position_bias=BIAS)
    found = audit(log, {"mine": ranker})
    assert found.rankings["mine"].new_queries is None
    assert "10 queries are new to mine, too few" in found.notes[1]
    found = audit(count(week_of_jobs(3), position_bias=BIAS), {"mine": ranker})
    assert "40 of 40 queries were in the training" in found.notes[0]
    assert not any("new to mine" in note for note in found.notes)


def test_an_old_policy_is_audited_with_a_note(run: Path, weeks: tuple[Path, Path], tmp_path: Path) -> None:
    file = read_policy_file(run / "policy.safetensors")
    content = {name: value for name, value in file.content.items() if name != "evidence"}
    old = load(write_policy_file(tmp_path / "old.safetensors", file.tensors, content))
    notes = audit(counted(weeks[0]), {"mine": old}).notes
    assert "cannot be checked whether these are the same impressions" in notes[0]


# commands


def test_the_audit_command_takes_next_week_and_refuses_this_one(
    run: Path, weeks: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--policy", run, "--eta", 1)
    refused = commands.refusal(capsys, "audit", weeks[0], *options)
    assert "impressions that" in refused
    assert "was trained or validated on" in refused
    content = commands.json_of(capsys, "audit", weeks[1], *options)
    assert content["rankings"][1]["recurring_queries"] == 40
    assert content["rankings"][1]["new_queries"]["queries"] == 40
    assert "40 of 80 queries" in content["notes"][0]
    code, out, _ = commands.result_of(capsys, "audit", weeks[1], *options)
    assert code == 0
    assert "On queries that training never saw" in out
    assert "40 of 80 queries were in the training of" in out


def test_the_evaluate_command_says_the_same(
    run: Path, weeks: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    content = commands.json_of(capsys, "evaluate", run, weeks[0])
    assert len(content["notes"]) == 1
    assert "trained or validated on this very data" in content["notes"][0]
    code, _, err = commands.result_of(capsys, "evaluate", run, weeks[1])
    assert code == 0
    assert f"note: 40 of 80 queries were in the training of {run}" in err


def test_most_of_the_training_log_is_known_again(weeks: tuple[Path, Path], ranker: FairRanker) -> None:
    """Without one impression, or with some queries only, it holds clicks of the training all the same."""
    frame = pl.read_parquet(weeks[0])
    less = frame.filter(pl.col("impression_id") != frame["impression_id"][0])
    queries = frame["query_id"].unique(maintain_order=True)
    some = frame.filter(pl.col("query_id").is_in(queries[: queries.len() * 2 // 3].implode()))
    for part in (less, some):
        with pytest.raises(InputError, match="holds impressions that policy was trained or validated on"):
            audit(count(part, position_bias=BIAS), {"policy": ranker})
    assert overlap_with_training(ranker, counted(weeks[1])).same_impressions is False  # type: ignore[union-attr]


def test_some_impressions_of_the_training_among_others_are_known_again(
    weeks: tuple[Path, Path], ranker: FairRanker
) -> None:
    """Half of the training log, and the training week together with the next one: times tell."""
    first, second = (pl.read_parquet(week) for week in weeks)
    names = first["impression_id"].unique(maintain_order=True)
    half = first.filter(pl.col("impression_id").is_in(names[::2].implode()))
    with pytest.raises(InputError, match="was trained or validated on, about 100% of all"):
        audit(count(half, position_bias=BIAS), {"policy": ranker})
    with pytest.raises(InputError, match="was trained or validated on.*, about 3[0-9]% of all"):
        audit(count(pl.concat([first, second]), position_bias=BIAS), {"policy": ranker})
    without = pl.concat([first, second]).drop("timestamp")
    assert overlap_with_training(ranker, count(without, position_bias=BIAS)).share is None  # type: ignore[union-attr]
