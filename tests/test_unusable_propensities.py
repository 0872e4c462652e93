"""Clicks that would count as more than any log holds are refused, and nothing else is blamed."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from fultr import FairRanker, InputError, PositionBias, read_log
from fultr.audits import audit
from tests.commands import refusal


@pytest.fixture
def rows() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "impression_id": [number // 2 for number in range(40)],
            "query_id": ["a", "a", "b", "b"] * 10,
            "doc_id": ["x", "y", "z", "w"] * 10,
            "position": [1, 2] * 20,
            "click": [0, 1, 1, 0] * 10,
            "group": ["f", "m"] * 20,
            "price": [1.0, 2.0, 3.0, 4.0] * 10,
        }
    )


def with_propensity(rows: pl.DataFrame, propensity: float, position: int = 2) -> pl.DataFrame:
    at = pl.col("position") == position
    return rows.with_columns(propensity=pl.when(at).then(propensity).otherwise(1.0))


@pytest.mark.parametrize("propensity", [1e-300, 5e-324, 9e-13])
def test_a_click_with_a_tiny_propensity_is_refused(rows: pl.DataFrame, propensity: float) -> None:
    log = read_log(with_propensity(rows, propensity))
    for use in (audit, FairRanker(1.0, l2=0.1, folds=0).fit):
        with pytest.raises(
            InputError, match=rf"column 'propensity'.*probability {propensity:.3g} would count"
        ):
            use(log)
    # what is clipped has a weight of any size
    FairRanker(1.0, l2=0.1, folds=0, clip=10.0).fit(log)


def test_small_propensities_are_usable(rows: pl.DataFrame) -> None:
    found = audit(read_log(with_propensity(rows, 1e-9)), resamples=50)
    assert found.logged.utility.value > 1e7


def test_a_steep_position_bias_is_blamed_and_no_row(
    rows: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    rows.write_csv(path)
    line = refusal(capsys, "audit", path, "--eta", 400, "--features", "price")
    # of the bias that was given, or of the flatter and the steeper one that the audit compares it with
    problem = r"probability \S+e-1\d\d would count as more than 1e\+12 clicks; look at the position bias"
    assert re.search(problem, line)
    assert "row" not in line
    with pytest.raises(InputError, match="would count as more than"):
        audit(read_log(rows), position_bias=PositionBias.power(400))
