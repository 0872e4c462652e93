"""Groups by a rule about a feature: a small language, read strictly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fultr
from fultr import InputError, RankingDataset
from fultr.datasets import group_by
from fultr.datasets.group_rules import GroupRule
from tests.commands import json_of, refusal


def lists(seed: int = 0) -> RankingDataset:
    rng = np.random.default_rng(seed)
    features = np.round(rng.uniform(0, 10, size=(200, 3)), 1)
    return RankingDataset(
        features,
        np.arange(0, 201, 20),
        relevance=features[:, 1] > 5,
        query_id=[f"nurse-{query}" for query in range(10)],
        feature_names=("salary", "age in days", "7"),
    )


def test_rules_are_read() -> None:
    assert GroupRule.parse("feature 25 > quantile 0.8") == GroupRule("25", ">", 0.8, True)
    assert GroupRule.parse("  feature   age in days<=-3.5e1 ") == GroupRule("age in days", "<=", -35.0, False)
    assert GroupRule.parse("feature 2>=.5") == GroupRule("2", ">=", 0.5, False)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "25 > 3",
        "feature > 3",
        "feature 25 > ",
        "feature 25 = 3",
        "feature 25 == 3",
        "feature 25 > nan",
        "feature 25 > inf",
        "feature 25 > 1e999",
        "feature 25 > 3; feature 2 > 3",
        "feature 25 > quantile 1.5",
        "feature 25 > quantile 0",
        "feature 25 > quantile",
        "feature 25 > __import__('os').getcwd()",
        "feature 25 > \u0663",
        None,
    ],
)
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(InputError, match="rule for groups"):
        group_by(lists(), rule)


@pytest.mark.parametrize("comparison", [">", ">=", "<", "<="])
def test_items_are_in_the_group_that_the_rule_says(comparison: str) -> None:
    data = lists()
    found = group_by(data, f"feature age in days {comparison} 4.7")
    opposite = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}[comparison]
    assert found.group_names == (f"age in days {comparison} 4.7", f"age in days {opposite} 4.7")
    assert found.group_columns == (1,)
    # 4.7 as a feature is rounded to 32 bits, and the rule means that number
    exact = np.round(data.features[:, 1].astype(float), 1)
    holds = {">": exact > 4.7, ">=": exact >= 4.7, "<": exact < 4.7, "<=": exact <= 4.7}[comparison]
    np.testing.assert_array_equal(found.group == 0, holds)
    assert (exact == 4.7).any()


def test_a_quantile_is_that_of_all_items() -> None:
    data = lists()
    found = group_by(data, "feature 7 > quantile 0.8")
    assert found.group_names == ("7 > quantile 0.8", "7 <= quantile 0.8")
    cut = np.sort(data.features[:, 2])[159]
    np.testing.assert_array_equal(found.group == 0, data.features[:, 2] > cut)
    assert data.group_names == ()  # the lists given stay as they are


def test_rules_that_make_no_two_groups_are_refused() -> None:
    for rule, which in (("feature 7 > 99", "none"), ("feature 7 >= 0", "all")):
        with pytest.raises(InputError, match=f"holds for {which} of the 200 items, so that there is"):
            group_by(lists(), rule)
    with pytest.raises(InputError, match="no such feature for groups; similar names: age in days"):
        group_by(lists(), "feature age in day > 3")


def test_commands_take_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letor, log, run = tmp_path / "data.txt", tmp_path / "log.parquet", tmp_path / "run"
    fultr.write_letor(lists(), letor)
    rule = ("--group-by", "feature 2 > quantile 0.8")
    made = json_of(capsys, "simulate", letor, *rule, "--clicks", 300, "--logging", "random", "--out", log)
    assert set(made["log"]["groups"]) == {"2 > quantile 0.8", "2 <= quantile 0.8"}
    json_of(capsys, "train", log, "--lambda", 1, "--l2", 0.1, "--out", run)
    found = json_of(capsys, "evaluate", run, letor, *rule)
    expected = fultr.evaluate(
        fultr.load(run / "policy.safetensors"), group_by(fultr.read_letor(letor), rule[1])
    )
    assert found["disparity"] == pytest.approx(expected.disparity)
    json_of(capsys, "convert", letor, tmp_path / "data.arrow", *rule)
    assert fultr.read_dataset(tmp_path / "data.arrow").group_names == (
        "2 > quantile 0.8",
        "2 <= quantile 0.8",
    )
    methods = ("--methods", "propensity-svm", "--out", tmp_path / "compared")
    compared = ("compare", log, "--test", letor, *methods)
    (row,) = json_of(capsys, *compared, *rule)["policies"]
    assert row["disparity_low"] < row["disparity"] < row["disparity_high"]
    # LETOR text has no groups: no disparity would be measured, as if all was fair
    assert "--test: has no groups, though the log has" in (line := refusal(capsys, *compared))
    assert "(--group-by makes them)" in line
    for command in (("evaluate", run, log), ("convert", log, tmp_path / "other.parquet")):
        assert "--group-by is for labelled data" in refusal(capsys, *command, *rule)
    line = refusal(capsys, "evaluate", run, letor, "--group-by", "feature 9 > 3")
    assert "data.txt, column '9': there is no such feature for groups" in line
