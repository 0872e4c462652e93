"""Missing values and categories in trees: split on as they are, saved, and hidden from group-blind ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import polars as pl
import pytest

import fultr
from fultr import ClickLog, FairRanker, InputError, RankingDataset, TreeSettings
from fultr.policy import Trees, TreeScorer
from fultr.policy.lightgbm_text import lightgbm_text
from tests.commands import json_of
from tests.training_tasks import BIAS, random_log

COLOURS = tuple(f"colour {number}" for number in range(12))
SMALL = TreeSettings(rounds=40, min_rows=10, leaves=6)


def raw(*, lists: int = 240, seed: int = 0, codes: tuple[str, ...] = COLOURS) -> RankingDataset:
    """Lists of 6 items: every second colour is relevant, and items whose price is missing."""
    rng = np.random.default_rng(seed)
    rows = 6 * lists
    group, colour = rng.integers(2, size=rows), rng.integers(12, size=rows)
    price = rng.normal(size=rows).astype(np.float32)
    missing = rng.random(rows) < 0.3
    hidden = np.where(colour % 2, 2.0, -2.0) + np.where(missing, 1.5, 0.0) - 3.0 * group
    price[missing] = np.nan
    code = np.array([codes.index(COLOURS[one]) for one in colour], dtype=np.float32)
    code[rng.random(rows) < 0.05] = np.nan
    return RankingDataset(
        np.column_stack([price, code, group]).astype(np.float32),
        np.arange(0, rows + 1, 6),
        group=group,
        group_names=["a", "b"],
        relevance=1 / (1 + np.exp(-hidden)),
        query_id=np.arange(lists) + 10_000 * seed,
        doc_id=np.arange(rows) + 100_000 * seed,
        feature_names=["price", "colour", "shade"],
        category_names={"colour": codes},
        allows_missing=True,
        group_columns=[2],
    )


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return random_log(raw(), impressions=12_000)


@pytest.fixture(scope="module")
def native(log: ClickLog) -> FairRanker:
    return made(fairness_weight=0.0).fit(log)


def made(**settings: Any) -> FairRanker:
    chosen = {"model": "trees", "trees": SMALL, "missing": "native", "position_bias": BIAS, **settings}
    return FairRanker(**chosen)


def trees_of(ranker: FairRanker) -> Trees:
    return next(part.trees for part in ranker.scorer_.modules() if isinstance(part, TreeScorer))


def test_trees_split_on_sets_of_categories_and_on_what_is_missing(native: FairRanker) -> None:
    trees, test = trees_of(native), raw(seed=7)
    of_colour = trees.feature == 1
    assert (trees.is_categorical == of_colour).all()
    assert of_colour.any()
    first = trees.category_starts[np.flatnonzero(of_colour)[0]]
    last = trees.category_starts[np.flatnonzero(of_colour)[0] + 1]
    parities = {int(category) % 2 for category in trees.categories[first:last]}
    assert len(parities) == 1  # the relevant ones, or the others
    dcg = {}
    for missing in ("native", "mean"):
        ranker = made(fairness_weight=0.0, missing=missing).fit(random_log(raw(), impressions=12_000))
        dcg[missing] = ranker.evaluate(test, intervals=None).dcg
    assert dcg["native"] > dcg["mean"]  # for which what is missing is like a mean price


def test_codes_of_other_data_mean_the_same_categories(native: FairRanker) -> None:
    test, other = raw(seed=7), raw(seed=7, codes=COLOURS[::-1])
    assert not np.array_equal(test.features[:, 1], other.features[:, 1])
    np.testing.assert_array_equal(native.predict(test), native.predict(other))


def test_unknown_categories_are_scored_as_missing_ones(native: FairRanker) -> None:
    test = raw(seed=7)
    features = test.features.copy()
    features[:, 1] = np.nan
    unknown = replace(test, category_names={"colour": tuple(f"tint {number}" for number in range(12))})
    with pytest.warns(fultr.FultrWarning, match="tint"):
        found = native.predict(unknown)
    np.testing.assert_array_equal(found, native.predict(replace(test, features=features)))


@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_a_missing_category_goes_where_unknown_ones_go(missing: str) -> None:
    data = raw(lists=40)
    ranker = made(fairness_weight=0.0, missing=missing).fit(random_log(data, impressions=2_000))
    indicators = ["price is missing"] if missing == "indicator" else []
    assert ranker.get_feature_names_out().tolist() == ["price", *indicators, "colour", "shade"]
    features = data.features.copy()
    features[:, 1] = np.nan
    unknown = replace(data, category_names={"colour": tuple(f"tint {number}" for number in range(12))})
    with pytest.warns(fultr.FultrWarning, match="tint"):
        scores = ranker.predict(unknown)
    np.testing.assert_array_equal(scores, ranker.predict(replace(data, features=features)))
    assert not np.array_equal(scores, ranker.predict(data))


def test_unknown_categories_are_no_missing_values_where_these_are_refused() -> None:
    data = raw(lists=40)
    complete = replace(data, features=np.nan_to_num(data.features), allows_missing=False)
    ranker = made(fairness_weight=0.0, missing=None).fit(random_log(complete, impressions=2_000))
    unknown = replace(complete, category_names={"colour": (*COLOURS[:-1], "tint")})
    other = complete.features[:, 1] == len(COLOURS) - 1
    with pytest.warns(fultr.FultrWarning, match="tint") as warned:
        scores = ranker.predict(unknown)
    assert len(warned) == 1
    np.testing.assert_array_equal(scores[~other], ranker.predict(complete)[~other])
    uses: tuple[Any, ...] = (ranker.rank, ranker.evaluate, ranker.sample_rankings, ranker.rotation)
    for use in uses:
        with pytest.warns(fultr.FultrWarning, match="tint") as warned:
            use(unknown)
        assert len(warned) == 1
    features = np.where(other[:, None] & [False, True, False], np.nan, complete.features)
    missing = replace(complete, features=features, allows_missing=True)
    for use in (ranker.predict, *uses):
        with pytest.raises(InputError, match=r"'colour': is missing in \d+ of 240 rows"):
            use(missing)


def test_a_saved_policy_and_lightgbm_give_the_same_scores(native: FairRanker, tmp_path: Path) -> None:
    test = raw(seed=7)
    loaded = fultr.load(fultr.save(native, tmp_path / "policy"))
    np.testing.assert_array_equal(loaded.predict(test), native.predict(test))
    text = lightgbm_text(trees_of(native), [str(name) for name in native.feature_names_in_])
    scores = lightgbm.Booster(model_str=text).predict(test.features) / native.scorer_.temperature
    np.testing.assert_array_equal(scores, native.predict(test))


@pytest.mark.parametrize(
    "settings",
    [
        {"max_disparity": 0.1},
        {"min_utility": 0.95},
        {"max_disparity": 0.6, "confidence": 0.9},
        {"max_disparity": 0.1, "fairness": "offsets"},
        {"fairness_weight": 3.0, "evidence": "doubly_robust"},
        {"fairness_weight": 3.0, "l2": 0.1, "folds": 0},
    ],
)
def test_goals_are_reached(log: ClickLog, native: FairRanker, settings: dict[str, Any]) -> None:
    ranker = made(**settings).fit(log)
    if "confidence" not in settings:
        assert ranker.training_disparity_ < 0.9 * native.training_disparity_
    if "fairness" not in settings:  # offsets keep the limit on left-out clicks
        assert ranker.training_disparity_ <= settings.get("max_disparity", 1.0) * (1 + 1e-6)


def test_group_blind_trees_see_no_column_of_the_group(log: ClickLog) -> None:
    hidden = replace(log, data=replace(log.data, group_columns=(1, 2)))
    ranker = made(fairness_weight=1.0, group_blind=True).fit(hidden)
    assert set(trees_of(ranker).feature.tolist()) <= {0}
    test = raw(seed=7)
    features = test.features.copy()
    features[:, 1:] = np.nan
    np.testing.assert_array_equal(ranker.predict(test), ranker.predict(replace(test, features=features)))


def test_a_linear_part_gets_encoded_features(log: ClickLog) -> None:
    ranker = made(model="linear+trees", missing="indicator", fairness_weight=0.0).fit(log)
    assert "colour=colour 3" in ranker.encoding_.output_names
    assert not trees_of(ranker).is_categorical.any()
    with pytest.raises(InputError, match="takes no missing values"):
        made(model="linear+trees").fit(log)


def test_categories_have_no_direction(log: ClickLog) -> None:
    with pytest.raises(InputError, match="no order") as caught:
        made(fairness_weight=0.0, trees=replace(SMALL, monotone={"colour": 1})).fit(log)
    assert caught.value.column == "monotone"


def test_missing_values_that_nobody_spoke_of_are_an_error(log: ClickLog) -> None:
    with pytest.raises(InputError, match="is missing in"):
        made(missing=None).fit(log)


def test_commands_train_rank_and_report(
    log: ClickLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clicks, out = tmp_path / "clicks.parquet", tmp_path / "run"
    fultr.write_log(log, clicks)
    trees = ("--model", "trees", "--rounds", 10, "--min-rows", 10, "--folds", 2)
    json_of(capsys, "train", clicks, *trees, "--missing", "native", "--lambda", 0, "--out", out)
    ranker = fultr.load(out / "policy.safetensors")
    test = raw(seed=7, lists=20)
    assert trees_of(ranker).is_categorical.any()
    items = pl.DataFrame(
        {
            "query_id": test.query_id[test.list_of_row] if test.query_id is not None else [],
            "doc_id": test.doc_id,
            "price": [None if np.isnan(one) else float(one) for one in test.features[:, 0]],
            "colour": [None if np.isnan(one) else COLOURS[int(one)] for one in test.features[:, 1]],
            "shade": test.features[:, 2],
        }
    )
    items.write_parquet(tmp_path / "items.parquet")
    json_of(
        capsys, "rank", out, tmp_path / "items.parquet", "--deterministic", "--out", tmp_path / "ranked.csv"
    )
    ranked = pl.read_csv(tmp_path / "ranked.csv")
    assert ranked.height == test.rows
    json_of(capsys, "report", out, "--out", tmp_path / "page.html")
    assert "table-features" in (tmp_path / "page.html").read_text(encoding="utf-8")
