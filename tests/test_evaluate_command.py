from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fultr import (
    ClickNoise,
    DataSplits,
    FairRanker,
    PositionBias,
    RandomRanking,
    RankingDataset,
    datasets,
    evaluate,
    read_log,
    save,
    simulate_clicks,
    write_dataset,
    write_letor,
    write_log,
)
from fultr.cli.evaluate import print_evaluation
from tests import commands

BIAS = PositionBias.power(1.0)
NOISE = ClickNoise(0.9, 0.1)


@pytest.fixture(scope="module")
def splits() -> DataSplits:
    return datasets.synthetic(queries=60, seed=0)


@pytest.fixture(scope="module")
def ranker(splits: DataSplits) -> FairRanker:
    log = simulate_clicks(splits.train, RandomRanking(), BIAS, clicks=500, seed=0)
    return FairRanker(fairness_weight=1.0, l2=0.01).fit(log)


@pytest.fixture(scope="module")
def policy(ranker: FairRanker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(ranker, tmp_path_factory.mktemp("run") / "policy.safetensors")


@pytest.fixture
def clicks(splits: DataSplits, tmp_path: Path) -> Path:
    log = simulate_clicks(splits.test, RandomRanking(), BIAS, noise=NOISE, clicks=300, seed=1)
    write_log(log, tmp_path / "clicks.parquet")
    return tmp_path / "clicks.parquet"


def result_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    return commands.result_of(capsys, "evaluate", *arguments)


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    content = commands.json_of(capsys, "evaluate", *arguments)
    return {name: value for name, value in content.items() if name not in ("policy", "data", "kind", "notes")}


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    return commands.refusal(capsys, "evaluate", *arguments)


def plain(content: Any) -> Any:
    """Return what JSON makes of plain values."""
    return json.loads(json.dumps(content))


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_labelled_data_gives_the_numbers_of_the_library(
    splits: DataSplits,
    ranker: FairRanker,
    policy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ending: str,
) -> None:
    path = tmp_path / f"test.{ending}"
    if ending == "csv":
        write_dataset(splits.test, path.with_suffix(".parquet"))
        pd.read_parquet(path.with_suffix(".parquet")).drop(columns="list").to_csv(path, index=False)
    else:
        write_dataset(splits.test, path)
    assert json_of(capsys, policy, path) == plain(evaluate(ranker, splits.test).to_dict())
    found = evaluate(ranker, splits.test, at=5, stochastic=False, intervals=0.8, seed=3)
    options = ("--at", 5, "--deterministic", "--level", 0.8, "--seed", 3)
    assert json_of(capsys, policy.parent, path, *options) == plain(found.to_dict())
    found = evaluate(ranker, splits.test, position_bias=PositionBias.power(0.5))
    assert json_of(capsys, policy, path, "--eta", 0.5) == plain(found.to_dict())


def test_letor_text_gives_the_numbers_of_the_library(
    splits: DataSplits, ranker: FairRanker, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert splits.test.relevance is not None
    graded = replace(
        splits.test, relevance=splits.test.relevance * 4, group=np.full(splits.test.rows, -1), group_names=()
    )
    path = tmp_path / "test.txt"
    write_letor(graded, path)
    assert json_of(capsys, policy, path) == plain(evaluate(ranker, graded).to_dict())
    found = evaluate(ranker, graded.binarize(3))
    assert found.dcg < 0.5 * evaluate(ranker, graded).dcg
    assert json_of(capsys, policy, path, "--relevant-from", 3) == plain(found.to_dict())


def test_clicks_give_the_numbers_of_the_library(
    ranker: FairRanker, policy: Path, clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = read_log(clicks)
    assert json_of(capsys, policy, clicks) == plain(evaluate(ranker, log).to_dict())
    corrected = plain(evaluate(ranker, log, noise=NOISE).to_dict())
    assert json_of(capsys, policy, clicks, "--eps-plus", 0.9, "--eps-minus", 0.1) == corrected
    found = evaluate(ranker, log, noise=ClickNoise(eps_minus=0.2))
    assert json_of(capsys, policy, clicks, "--eps-minus", 0.2) == plain(found.to_dict())
    (tmp_path / "bias.json").write_text(json.dumps({"values": [1, 0.5, 0.25], "beyond": 1.0}))
    found = evaluate(ranker, log, position_bias=PositionBias([1, 0.5, 0.25], beyond=1.0))
    assert json_of(capsys, policy, clicks, "--bias", tmp_path / "bias.json") == plain(found.to_dict())


def test_a_log_in_other_words_with_features_in_another_table(
    ranker: FairRanker, policy: Path, clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns are found by name, in whatever order and table they stand."""
    log = read_log(clicks)
    write_log(log, tmp_path / "own.parquet", features="columns")
    own = pd.read_parquet(tmp_path / "own.parquet")
    features = [name for name in own if name.startswith("feature_")]
    items = own[["query_id", "doc_id", *reversed(features)]].drop_duplicates(["query_id", "doc_id"])
    items.assign(feature_more=1.0).to_csv(tmp_path / "items.csv", index=False)
    renamed = own.drop(columns=features).rename(columns={"query_id": "search"})
    renamed.to_csv(tmp_path / "searches.csv", index=False)
    options = ("--items", tmp_path / "items.csv", "--column", "query_id=search", "--eta", 1)
    found = json_of(capsys, policy, tmp_path / "searches.csv", *options)
    expected = evaluate(ranker, log).to_dict()
    for name in ("dcg", "average_rank", "disparity", "merit", "exposure"):
        assert found[name] == pytest.approx(expected[name], rel=1e-6)


def test_noise_that_the_log_knows_of_is_pointed_out(
    policy: Path, clicks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    err = result_of(capsys, policy, clicks)[2]
    assert "--eps-plus 0.9 --eps-minus 0.1" in err
    options = ("--eps-plus", 0.9, "--eps-minus", 0.1)
    assert result_of(capsys, policy, clicks, *options)[2] == ""


def test_columns_in_another_order_make_no_difference(
    splits: DataSplits, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, width = splits.test, splits.test.features.shape[1]
    order = np.random.default_rng(0).permutation(width)
    shuffled = replace(
        data,
        features=np.column_stack([data.features[:, order], np.ones(data.rows)]),
        feature_names=(*(data.feature_names[column] for column in order), "one more"),
        group_columns=(),
    )
    write_dataset(data, tmp_path / "data.parquet")
    write_dataset(shuffled, tmp_path / "shuffled.parquet")
    expected = json_of(capsys, policy, tmp_path / "data.parquet")
    assert json_of(capsys, policy, tmp_path / "shuffled.parquet") == expected
    missing = replace(
        shuffled,
        features=shuffled.features[:, 1:],
        feature_names=shuffled.feature_names[1:],
    )
    write_dataset(missing, tmp_path / "missing.parquet")
    err = refusal(capsys, policy, tmp_path / "missing.parquet")
    assert f"column '{shuffled.feature_names[0]}': the column is missing" in err
    assert "missing.parquet" in err


def test_results_are_printed_as_tables(
    splits: DataSplits, ranker: FairRanker, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(splits.test, tmp_path / "test.parquet")
    code, out, err = result_of(capsys, policy, tmp_path / "test.parquet", "--at", 5)
    assert code == 0, err
    found = evaluate(ranker, splits.test, at=5)
    low, high = found.intervals["dcg"]
    assert f"dcg@5 {found.dcg:.4g} {low:.4g} {high:.4g}" in " ".join(out.split())
    assert "95% intervals" in out
    assert "20 impressions of 20 lists, 20 queries" in out
    for group in found.groups:
        line = next(line for line in out.splitlines() if line.startswith(group))
        assert line.split()[1] == f"{found.exposure[group]:.4g}"
        assert line.split()[-1] == f"{found.exposure_per_merit[group]:.4g}"


def test_many_groups_are_printed_pair_by_pair() -> None:
    data = RankingDataset(
        np.arange(12.0).reshape(6, 2),
        [0, 3, 6],
        group=["[b]", "x", ":smile:"] * 2,
        relevance=[1, 0, 1, 0, 0, 0],
    )
    found = evaluate(RandomRanking(), data, position_bias=BIAS)
    out = io.StringIO()
    print_evaluation(Console(file=out, width=200, markup=False, emoji=False, highlight=False), found)
    text = out.getvalue()
    for first in range(3):
        for second in range(first + 1, 3):
            value = f"{found.disparities[first, second]:.4g}"
            assert f"disparity ({found.groups[first]}, {found.groups[second]}) {value}" in " ".join(
                text.split()
            )
    assert math.isnan(found.exposure_per_merit["x"])
    line = next(line for line in text.splitlines() if line.startswith("x "))
    assert line.split()[-1] == "-"


def test_missing_empty_impressions_are_pointed_out(
    splits: DataSplits, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulate_clicks(splits.test, RandomRanking(), BIAS, clicks=50, keep_empty=False, seed=0)
    write_log(log, tmp_path / "clicks.csv")
    assert "up to a factor" in result_of(capsys, policy, tmp_path / "clicks.csv")[1]


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = result_of(capsys, "--help")
    assert code == 0
    assert "fultr evaluate" in out.split("Example:")[1]
    assert "--json" in out


def test_what_cannot_be_evaluated_is_named(
    splits: DataSplits, policy: Path, clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = bytearray(policy.read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged.safetensors").write_bytes(damaged)
    assert "is damaged or incomplete" in refusal(capsys, tmp_path / "damaged.safetensors", clicks)
    (tmp_path / "empty.parquet").touch()
    assert "is empty" in refusal(capsys, policy, tmp_path / "empty.parquet")
    (tmp_path / "narrow.txt").write_text("1 qid:1 1:2\n")
    assert "trained on 136 features (got 1)" in refusal(capsys, policy, tmp_path / "narrow.txt")
    write_dataset(replace(splits.test, relevance=None), tmp_path / "bare.parquet")
    assert "no relevance" in refusal(capsys, policy, tmp_path / "bare.parquet")
    write_dataset(splits.test, tmp_path / "test.parquet")
    assert "no click noise" in refusal(capsys, policy, tmp_path / "test.parquet", "--eps-minus", 0.1)
    assert "--relevant-from is for labelled data" in refusal(capsys, policy, clicks, "--relevant-from", 1)
    assert "not both" in refusal(capsys, policy, clicks, "--eta", 1, "--bias", "x.json")
    assert "--level: " in refusal(capsys, policy, clicks, "--level", 1)
    assert "--eps-plus: must be above that of irrelevant items, 0" in refusal(
        capsys, policy, clicks, "--eps-plus", 0
    )
    assert "--at" in refusal(capsys, policy, clicks, "--at", 0)
