"""The section of a report that says which features matter."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fultr
from fultr import ClickLog, FairRanker, PositionBias, RandomRanking, TreeSettings
from fultr.reports import page_of, report_on_run, run_of_frontier
from fultr.reports.features import SHOWN
from fultr.training import sweep

BIAS = PositionBias.power(1.0)
NAMES = ("<b>price</b>", *(f"feature {number}" for number in range(24)))


@pytest.fixture(scope="module")
def log() -> ClickLog:
    data = fultr.datasets.synthetic(queries=60, features=25, list_length=6, relevant=2, seed=0).train
    return fultr.simulate_clicks(
        replace(data, feature_names=NAMES), RandomRanking(), BIAS, clicks=1500, seed=0
    )


@pytest.mark.parametrize("model", ["linear", "trees"])
def test_features_that_matter_are_shown(log: ClickLog, model: str) -> None:
    trees = TreeSettings(rounds=10, leaves=4, min_rows=10) if model == "trees" else None
    ranker = FairRanker(model=model, trees=trees, l2=0.1, folds=0, position_bias=BIAS)
    front = sweep(log, ranker=ranker, fairness_weights=[0.0, 1.0])
    run = run_of_frontier(front, {"seeds": [0], "clip": None, "top_k": None}, "memory", {})
    report = report_on_run(run, log)
    assert report.features is not None
    rows = report.features.rows
    assert SHOWN <= len(rows) <= 2 * SHOWN
    assert [row.utility.value for row in rows] == sorted(row.utility.value for row in rows)
    assert rows[0].utility.value < 0
    assert f"{len(rows)} of 25 features" in report.features.about
    page = page_of(report).decode()
    assert 'id="table-features"' in page
    assert "<b>price" not in page
    if model == "trees":
        assert sum(row.gain or 0.0 for row in rows) == pytest.approx(1.0, abs=0.3)
        assert "Share of gain" in page
    else:
        assert all(row.gain is None for row in rows)
        assert "Share of gain" not in page
    without = report_on_run(run)
    assert without.features is None
    assert "table-features" not in page_of(without).decode()
