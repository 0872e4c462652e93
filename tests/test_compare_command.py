"""`fultr compare`: methods on one log, judged on labelled lists."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import fultr
from fultr.baselines import FairCo, PGRank
from fultr.experiments.comparison import compare
from fultr.experiments.methods import GAINS, LEARN_FROM_CLICKS
from fultr.training.frontier import FAIRNESS_WEIGHTS
from tests.commands import json_of, refusal, result_of

BIAS = fultr.PositionBias.power(1.0)


@pytest.fixture(scope="module")
def data() -> fultr.DataSplits:
    return fultr.datasets.synthetic(queries=40, list_length=6, features=5, relevant=2, seed=0)


@pytest.fixture(scope="module")
def log(data: fultr.DataSplits) -> fultr.ClickLog:
    return fultr.simulate_clicks(data.train, fultr.RandomRanking(), BIAS, impressions=400, seed=0)


@pytest.fixture(scope="module")
def files(
    tmp_path_factory: pytest.TempPathFactory, data: fultr.DataSplits, log: fultr.ClickLog
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("files")
    fultr.write_log(log, folder / "clicks.parquet")
    fultr.write_dataset(data.test, folder / "test.parquet")
    return folder / "clicks.parquet", folder / "test.parquet"


def test_methods_are_trained_and_measured_as_by_hand(log: fultr.ClickLog, data: fultr.DataSplits) -> None:
    rows = compare(log, data.test, ["pg-rank", "fairco"], seed=3)
    assert [row["method"] for row in rows] == ["pg-rank", *["fairco"] * len(GAINS)]
    train, valid = log.split(0.2, 3)
    assert data.test.relevance is not None
    relevant = data.test.relevance.sum() / len(data.test)
    for row, ranker in ((rows[0], PGRank(seed=3)), (rows[3], FairCo(GAINS[2], seed=3))):
        found = ranker.fit(train, valid=valid).evaluate(data.test, position_bias=BIAS, intervals=None)
        assert row["test_dcg"] == pytest.approx(found.dcg / relevant)
        assert row["test_disparity_squared"] == pytest.approx(found.disparity_squared)
        assert (row["dcg"], row["disparity"]) == pytest.approx((found.dcg, found.disparity))
        assert row["disparity_low"] < row["disparity"] < row["disparity_high"]
        assert (row["exposure_ratio"], row["exposure_to_move"]) == pytest.approx(
            (found.exposure_ratio, found.exposure_to_move)
        )


def test_counts_do_where_all_methods_learn_from_counts(log: fultr.ClickLog, data: fultr.DataSplits) -> None:
    methods = ["fultr", "propensity-svm"]
    assert compare(log.compact(), data.test, methods) == compare(log, data.test, methods)
    with pytest.raises(fultr.InputError, match="LambdaRank needs single impressions"):
        compare(log.compact(), data.test, ["lambda-rank"])


def test_fultr_is_the_policy_that_training_gives(log: fultr.ClickLog, data: fultr.DataSplits) -> None:
    noise = fultr.ClickNoise(1.0, 0.1)
    rows = compare(log, data.test, ["fultr"], noise=noise)
    assert rows[-1]["trade_off"] == FAIRNESS_WEIGHTS[-1]
    front = fultr.sweep(log, noise=noise, fairness_weights=FAIRNESS_WEIGHTS)
    useful = fultr.FairRanker(0.0, noise=noise).fit(log)
    for row, trained in ((rows[0], useful), (rows[-1], front.ranker(front.chosen[-1]))):
        found = trained.evaluate(data.test, position_bias=BIAS, intervals=None)
        assert row["dcg"] == pytest.approx(found.dcg, abs=2e-3)
        assert row["disparity"] == pytest.approx(found.disparity, abs=2e-3)
    noisy = compare(log, data.test, ["fultr"], noise=fultr.ClickNoise())
    assert noisy[-1]["dcg"] != rows[-1]["dcg"]


@pytest.mark.slow
def test_the_command_writes_table_and_picture(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, test = files
    arguments = ("compare", log, "--test", test, "--methods", "fultr,exposure-lp", "--out", tmp_path / "out")
    content = json_of(capsys, *arguments)
    with (tmp_path / "out" / "comparison.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == [row["method"] for row in content["policies"]]
    written = [float(row["test_dcg"]) for row in rows]
    assert written == pytest.approx([row["test_dcg"] for row in content["policies"]], rel=1e-5)
    assert (tmp_path / "out" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "out" / "comparison.svg").read_text()
    code, out, _ = result_of(capsys, *arguments)
    assert code == 0
    assert "FULTR-Linear" in out
    assert "lambda 30" in out
    first = content["policies"][0]
    assert "exposure ratio" in out
    ends = f"[{first['exposure_ratio_low']:.3f}, {first['exposure_ratio_high']:.3f}]"
    assert f"{first['exposure_ratio']:.3f}" in out
    assert ends in out
    weights = [row["trade_off"] for row in content["policies"] if row["method"] == "fultr"]
    assert weights == sorted(weights)
    squares = [row["test_disparity_squared"] for row in content["policies"] if row["method"] == "fultr"]
    assert np.isfinite(squares).all()


def test_bad_questions_get_one_line(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, test = files
    out = ("--out", tmp_path / "out")
    line = refusal(capsys, "compare", log, "--test", test, "--methods", "magic", *out)
    assert f"no such method; there are {', '.join(LEARN_FROM_CLICKS)} (got 'magic')" in line
    assert "true relevance" in refusal(capsys, "compare", log, "--test", test, "--methods", "full", *out)
    assert "at least one" in refusal(capsys, "compare", log, "--test", test, "--methods", ",", *out)
    assert "is a click log" in refusal(capsys, "compare", log, "--test", log, *out)
    assert "is no click log" in refusal(capsys, "compare", test, "--test", test, *out)
    assert not (tmp_path / "out").exists()
