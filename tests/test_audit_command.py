from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fultr import (
    BiasEstimate,
    ClickNoise,
    DataSplits,
    FairRanker,
    PositionBias,
    RandomRanking,
    datasets,
    estimate_bias,
    read_log,
    save,
    simulate_clicks,
    write_bias,
    write_dataset,
    write_log,
)
from fultr.audits import audit, read_audit
from tests import commands
from tests.log_formats import aggregated

BIAS = PositionBias.power(1.0)
NOISE = ClickNoise(0.9, 0.1)


@pytest.fixture(scope="module")
def splits() -> DataSplits:
    return datasets.synthetic(queries=90, list_length=5, features=5, seed=0)


@pytest.fixture(scope="module")
def ranker(splits: DataSplits) -> FairRanker:
    log = simulate_clicks(splits.train, RandomRanking(), BIAS, clicks=500, seed=0)
    return FairRanker(fairness_weight=1.0, l2=0.01).fit(log)


@pytest.fixture(scope="module")
def run(ranker: FairRanker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save(ranker, folder / "policy.safetensors")
    return folder


@pytest.fixture
def clicks(splits: DataSplits, tmp_path: Path) -> Path:
    log = simulate_clicks(splits.test, RandomRanking(), BIAS, clicks=600, seed=1)
    write_log(log, tmp_path / "clicks.parquet")
    return tmp_path / "clicks.parquet"


def result_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    return commands.result_of(capsys, "audit", *arguments)


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    content = commands.json_of(capsys, "audit", *arguments)
    return {name: value for name, value in content.items() if name not in ("log", "written")}


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    return commands.refusal(capsys, "audit", *arguments)


def plain(content: Any) -> Any:
    """Return what JSON makes of plain values."""
    return json.loads(json.dumps(content))


def test_the_numbers_are_those_of_the_library(
    ranker: FairRanker, run: Path, clicks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = read_log(clicks)
    assert json_of(capsys, clicks) == plain(audit(log).to_dict())
    found = audit(log, {str(run): ranker}, level=0.8, seed=3)
    assert json_of(capsys, clicks, "--policy", run, "--level", 0.8, "--seed", 3) == plain(found.to_dict())
    found = audit(
        log, {str(run): ranker}, stochastic=False, noise=NOISE, position_bias=PositionBias.power(0.5)
    )
    options = ("--deterministic", "--eps-plus", 0.9, "--eps-minus", 0.1, "--eta", 0.5)
    assert json_of(capsys, clicks, "--policy", run, *options) == plain(found.to_dict())


def test_several_policies_are_measured_on_the_same_draws(
    ranker: FairRanker, run: Path, clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = save(ranker, tmp_path / "second.safetensors")
    content = json_of(capsys, clicks, "--policy", run, "--policy", second)
    assert [one["name"] for one in content["rankings"]] == ["logged", str(run), str(second)]
    assert content["rankings"][1]["pairs"] == content["rankings"][2]["pairs"]


def test_the_exit_code_is_the_verdict(
    ranker: FairRanker, run: Path, clicks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = audit(read_log(clicks), {str(run): ranker})
    logged, candidate = (one.disparity.high for one in found.rankings.values())
    for limit, options, expected in (
        (1.01 * candidate, ("--policy", run), 0),
        (0.99 * candidate, ("--policy", run), 3),
        (1.01 * logged, (), 0),
        (0.99 * logged, (), 3),
    ):
        code, out, err = result_of(capsys, clicks, *options, "--max-disparity", limit)
        assert code == expected, err
        name = str(run) if options else "logged"
        line = next(line for line in out.splitlines() if line.startswith(f"{name} "))
        assert line.split()[-1] == ("FAIL" if expected else "pass")
        code, out, _ = result_of(capsys, clicks, *options, "--max-disparity", limit, "--json")
        assert code == expected
        assert json.loads(out)["passes"] is not bool(expected)
    assert result_of(capsys, clicks)[0] == 0


def test_everything_is_written_also_if_the_limit_is_not_kept(
    ranker: FairRanker, run: Path, clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made" / "audit"
    code, _, err = result_of(capsys, clicks, "--policy", run, "--max-disparity", 0.01, "--out", out)
    assert code == 3
    names = ["audit.json", "audit.png", "audit.svg", "audit_groups.csv", "audit_pairs.csv"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert err.count("\n") == 1
    assert all(name in err for name in names)
    expected = audit(read_log(clicks), {str(run): ranker}, max_disparity=0.01)
    assert read_audit(out / "audit.json").to_dict() == expected.to_dict()
    groups = pd.read_csv(out / "audit_groups.csv")
    assert groups["exposure"].tolist() == pytest.approx(
        [group.exposure.value for one in expected.rankings.values() for group in one.groups], rel=1e-5
    )
    # once more over what is there
    assert result_of(capsys, clicks, "--out", out)[0] == 0
    assert len(read_audit(out / "audit.json").rankings) == 1


def estimate_on(clicks: Path) -> BiasEstimate:
    return estimate_bias(read_log(clicks), "harvest", randomised=True, resamples=100)


def test_an_estimated_bias_brings_its_intervals(
    ranker: FairRanker, run: Path, clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estimate = estimate_on(clicks).with_tail()
    write_bias(estimate, tmp_path / "bias.json")
    found = audit(read_log(clicks), {str(run): ranker}, position_bias=estimate)
    assert found.bias_uncertainty == "intervals"
    options = (clicks, "--policy", run, "--bias", tmp_path / "bias.json")
    assert json_of(capsys, *options) == plain(found.to_dict())
    out = result_of(capsys, *options)[1]
    assert "estimated, with intervals" in out
    assert "If the position bias is off (low ends of the intervals, high ends" in out
    assert "is an assumption" not in out
    known = tuple(np.nan if position == 4 else value for position, value in enumerate(estimate.values, 1))
    write_bias(replace(estimate, values=known, insufficient=(4,), tail="error"), tmp_path / "short.json")
    assert "ends at position 3" in refusal(capsys, clicks, "--bias", tmp_path / "short.json")
    (tmp_path / "plain.json").write_text(json.dumps({"values": [1, 0.5], "beyond": 1.0}))
    assert "is an assumption" in result_of(capsys, clicks, "--bias", tmp_path / "plain.json")[1]


def test_it_is_printed_if_the_verdict_depends_on_the_bias(
    clicks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    least, most = audit(read_log(clicks)).logged.upper_range
    out = result_of(capsys, clicks, "--max-disparity", (least + most) / 2)[1]
    assert "under: 0.9 times the power" in out or "under: 1.1 times the power" in out
    assert "pass under all" in result_of(capsys, clicks, "--max-disparity", most + 0.1)[1]
    assert "FAIL under all" in result_of(capsys, clicks, "--max-disparity", least - 0.01)[1]


def test_tables_say_what_every_group_and_pair_has(
    ranker: FairRanker, run: Path, clicks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = result_of(capsys, clicks, "--policy", run)
    assert code == 0, err
    found = audit(read_log(clicks), {str(run): ranker})
    text = " ".join(out.split())
    for ranking in found.rankings.values():
        for group in ranking.groups:
            low, high = group.exposure.low, group.exposure.high
            shown = f"{group.name} {group.items} {group.exposure.value:.4g} [{low:.4g}, {high:.4g}]"
            assert shown in text
        pair = ranking.pairs[0]
        low, high = pair.disparity.low, pair.disparity.high
        shown = f"{pair.first}, {pair.second} {pair.disparity.value:.4g} [{low:.4g}, {high:.4g}]"
        assert shown in text
    assert "of the log" in out


def test_many_pairs_are_printed_from_the_worst_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = datasets.synthetic(queries=40, groups=6, seed=0).train
    log = simulate_clicks(data, RandomRanking(), BIAS, impressions=500, seed=0)
    write_log(log, tmp_path / "log.parquet")
    out = result_of(capsys, tmp_path / "log.parquet")[1]
    assert "the worst 10 of 15" in out
    pairs = sorted(audit(log).logged.pairs, key=lambda pair: -abs(pair.disparity.value))
    lines = out.split("the worst 10 of 15")[1].splitlines()[2:12]
    assert len(lines) == 10
    assert all(
        line.startswith(f"{pair.first}, {pair.second} ") for line, pair in zip(lines, pairs, strict=False)
    )


def test_noise_that_the_log_knows_of_is_taken_off(
    splits: DataSplits, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulate_clicks(splits.test, RandomRanking(), BIAS, noise=NOISE, clicks=300, seed=1)
    write_log(log, tmp_path / "noisy.csv")
    assert "noise taken off eps_plus 0.9, eps_minus 0.1" in " ".join(
        result_of(capsys, tmp_path / "noisy.csv")[1].split()
    )


def test_a_log_without_its_empty_impressions(
    splits: DataSplits, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulate_clicks(splits.test, RandomRanking(), BIAS, clicks=200, keep_empty=False, seed=0)
    path = tmp_path / "dropped.csv"
    write_log(log, path)
    code, out, _ = result_of(capsys, path)
    assert code == 0
    assert "only up to a factor" in out
    assert "--max-disparity: a limit cannot be checked" in refusal(capsys, path, "--max-disparity", 0.1)
    assert "noise cannot be taken off" in refusal(capsys, path, "--eps-minus", 0.1)


def test_a_log_in_other_words_with_features_in_another_order(
    ranker: FairRanker, run: Path, clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = read_log(clicks)
    write_log(log, tmp_path / "own.parquet", features="columns")
    own = pd.read_parquet(tmp_path / "own.parquet")
    features = [name for name in own if name.startswith("feature_")]
    items = own[["query_id", "doc_id", *reversed(features)]].drop_duplicates(["query_id", "doc_id"])
    items.assign(feature_more=1.0).to_csv(tmp_path / "items.csv", index=False)
    renamed = own.drop(columns=features).rename(columns={"query_id": "search"})
    renamed.to_csv(tmp_path / "searches.csv", index=False)
    options = ("--items", tmp_path / "items.csv", "--column", "query_id=search", "--eta", 1)
    content = json_of(capsys, tmp_path / "searches.csv", "--policy", run, *options)
    expected = audit(log, {str(run): ranker}).to_dict()
    for found, wanted in zip(content["rankings"], expected["rankings"], strict=True):
        assert found["utility"]["value"] == pytest.approx(wanted["utility"]["value"], rel=1e-6)
        assert abs(found["pairs"][0]["disparity"]["value"]) == pytest.approx(
            abs(wanted["pairs"][0]["disparity"]["value"]), rel=1e-6
        )


def test_counts_of_a_log_have_the_numbers_of_the_log(
    clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = read_log(clicks)
    aggregated(log.compact()).write_parquet(tmp_path / "counts.parquet")
    content = json_of(capsys, tmp_path / "counts.parquet", "--eta", 1)
    expected = audit(log, position_bias=BIAS).to_dict()
    assert content["counts"]["impressions"] == expected["counts"]["impressions"]
    found, wanted = content["rankings"][0], expected["rankings"][0]
    assert found["utility"]["value"] == pytest.approx(wanted["utility"]["value"])
    assert found["disparity"]["value"] == pytest.approx(wanted["disparity"]["value"])


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = result_of(capsys, "--help")
    assert code == 0
    assert "fultr audit clicks.parquet" in out.split("Example:")[1]
    assert "--json" in out


def test_what_cannot_be_audited_is_named(
    splits: DataSplits, run: Path, clicks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(splits.test, tmp_path / "test.parquet")
    assert "is no click log, but labelled data" in refusal(capsys, tmp_path / "test.parquet")
    assert "no such file" in refusal(capsys, tmp_path / "none.parquet")
    assert "none.safetensors" in refusal(capsys, clicks, "--policy", tmp_path / "none.safetensors")
    assert "without a policy.safetensors" in refusal(capsys, clicks, "--policy", tmp_path)
    assert "not both" in refusal(capsys, clicks, "--eta", 1, "--bias", "x.json")
    (tmp_path / "bias.json").write_text(json.dumps({"values": [1.0, 0.5], "positions": 3}))
    assert "bias.json: is no estimate" in refusal(capsys, clicks, "--bias", tmp_path / "bias.json")
    assert "--level: " in refusal(capsys, clicks, "--level", 1)
    assert "--max-disparity" in refusal(capsys, clicks, "--max-disparity", -1)
    assert "is a file, not a folder" in refusal(capsys, clicks, "--out", clicks)
    assert "is a file, not a folder" in refusal(capsys, clicks, "--out", clicks / "deep" / "er")
    log = read_log(clicks)
    write_log(replace(log, position_bias=None), tmp_path / "bare.csv")
    assert "give --eta 1 or --bias FILE" in refusal(capsys, tmp_path / "bare.csv")
    assert result_of(capsys, tmp_path / "bare.csv", "--policy", run)[0] == 0
    nameless = replace(log, data=replace(log.data, group=np.full(log.data.rows, -1), group_names=()))
    write_log(nameless, tmp_path / "nameless.parquet")
    err = refusal(capsys, tmp_path / "nameless.parquet", "--max-disparity", 1)
    assert "a limit needs two groups" in err
    narrow = replace(
        log.data,
        features=log.data.features[:, 1:],
        feature_names=log.data.feature_names[1:],
        group_columns=(),
    )
    write_log(replace(log, data=narrow), tmp_path / "narrow.parquet")
    assert "narrow.parquet" in refusal(capsys, tmp_path / "narrow.parquet", "--policy", run)


def test_severe_findings_on_the_log_are_repeated(
    capsys: pytest.CaptureFixture[str], splits: DataSplits, tmp_path: Path
) -> None:
    whole = simulate_clicks(splits.test, RandomRanking(), BIAS, clicks=600, seed=1)
    write_log(whole, tmp_path / "whole.parquet")
    write_log(whole.drop_empties(), tmp_path / "dropped.parquet")
    whole_findings, findings = (
        commands.json_of(capsys, "audit", tmp_path / name)["findings"]
        for name in ("whole.parquet", "dropped.parquet")
    )
    *inspected, of_ranking, of_limits = commands.json_of(capsys, "inspect", tmp_path / "whole.parquet")[
        "findings"
    ]
    assert whole_findings == inspected
    assert "disparity of the logged ranking" in of_ranking["sentence"]
    assert "Limits of the disparity on new queries" in of_limits["sentence"]
    assert "severe" not in {finding["severity"] for finding in whole_findings}
    (finding,) = (finding for finding in findings if finding["severity"] == "severe")
    assert "were dropped" in finding["sentence"]
    printed = " ".join(commands.result_of(capsys, "audit", tmp_path / "dropped.parquet")[1].split())
    assert "Impressions without a click were dropped" in printed
