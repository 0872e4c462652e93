"""Rankers among the estimators of scikit-learn: its own checks, and what else its users rely on."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fultr
from fultr import FairRanker
from fultr.baselines import PGRank, RelevanceRegression
from tests.training_tasks import BIAS

LIST = 4
"""Rows that `fit(X, y)` of scikit-learn's checks has in each list."""

NOT_APPLICABLE = {
    "check_complex_data": "complex numbers are refused, in our words",
    "check_dtype_object": "what is no number in a matrix is refused, in our words",
    "check_estimators_nan_inf": "what is not finite is refused by row and column, as nan and not as NaN",
    "check_estimators_empty_data_messages": "data without features is refused, in our words",
    "check_fit2d_predict1d": "a single row is refused, in our words: rows x features are needed",
    "check_n_features_in_after_fitting": "another number of features is refused, in our words",
}
"""The checks of scikit-learn that do not apply, and why: all of them look for the words of its own errors.

A ranker needs the query and the position of each row besides, which `fit(X, y)` does not say. So the checks
run on rankers for which every four rows are a list, shown from top to bottom.
"""


class EveryFourRowsAreAList:
    """`fit(X, y)` as scikit-learn's checks call it: rows with a high y were clicked."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        rows = np.arange(np.shape(X)[0])
        labels = np.zeros(rows.size) if y is None else np.asarray(y, dtype=np.float64).reshape(-1)
        click = labels >= np.median(labels)
        super().fit(X, click, qid=rows // LIST, position=rows % LIST + 1)  # type: ignore[misc]
        return self


class FairRankerOnArrays(EveryFourRowsAreAList, FairRanker):  # type: ignore[misc]
    pass


class PGRankOnArrays(EveryFourRowsAreAList, PGRank):  # type: ignore[misc]
    pass


class RegressionOnArrays(EveryFourRowsAreAList, RelevanceRegression):  # type: ignore[misc]
    pass


RANKERS = [
    FairRankerOnArrays(1.0, l2=0.1, folds=0, position_bias=BIAS),
    PGRankOnArrays(l2=0.1, position_bias=BIAS, valid_share=0.0),
    RegressionOnArrays(l2=0.1, position_bias=BIAS, valid_share=0.0),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ranker", RANKERS, ids=lambda ranker: type(ranker).__name__)
def test_the_checks_of_scikit_learn_hold(ranker: FairRanker) -> None:
    results = check_estimator(ranker, on_fail=None)
    failed = {one["check_name"]: one["exception"] for one in results if one["status"] == "failed"}
    assert failed.keys() <= NOT_APPLICABLE.keys(), failed  # which of them fail depends on its version
    assert sum(one["status"] == "passed" for one in results) >= 30


# what else users of scikit-learn rely on


def rows_of_log(lists: int = 40, *, width: int = 3) -> pd.DataFrame:
    """Rows as `fit` takes them: features, and clicks that follow the first of them."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(lists * LIST, width))
    frame = pd.DataFrame(features, columns=[f"x{number}" for number in range(width)])
    frame["query_id"] = np.repeat(np.arange(lists), LIST)
    frame["position"] = np.tile(np.arange(1, LIST + 1), lists)
    frame["click"] = (features[:, 0] + rng.normal(size=len(features)) > 0.3).astype(int)
    frame["impression_id"], frame["doc_id"] = frame["query_id"], np.arange(len(frame))
    return frame


NAMES = ["x0", "x1", "x2"]
SETTINGS: dict[str, Any] = {"l2": 0.1, "folds": 0, "position_bias": BIAS}


def trained(**settings: Any) -> FairRanker:
    return FairRanker(0.0, **{**SETTINGS, **settings}).fit(rows_of_log())


def test_settings_are_parameters_that_can_be_read_set_and_copied() -> None:
    ranker = FairRanker(2.0, missing="mean", categories=["colour"], **SETTINGS)
    assert clone(ranker).get_params() == ranker.get_params()
    assert clone(ranker.set_params(fairness_weight=3.0)).fairness_weight == 3.0
    with pytest.raises(ValueError, match="Invalid parameter 'lambda_'"):
        ranker.set_params(lambda_=1.0)
    tags = ranker.__sklearn_tags__().input_tags
    assert (tags.allow_nan, tags.categorical) == (True, True)
    tags = FairRanker().__sklearn_tags__().input_tags
    assert (tags.allow_nan, tags.categorical) == (False, False)


def test_metadata_is_routed_by_the_names_of_fit() -> None:
    frame = rows_of_log()
    given = {"qid": frame["query_id"].to_numpy(), "position": frame["position"].to_numpy()}
    with sklearn.config_context(enable_metadata_routing=True):
        ranker = FairRanker(0.0, **SETTINGS).set_fit_request(qid=True, position=True)
        ranker.set_score_request(qid=True)
        assert ranker.get_metadata_routing().fit.requests["qid"] is True
        pipeline = make_pipeline(StandardScaler(), ranker)
        pipeline.fit(frame[NAMES], frame["click"], **given)
        utility = pipeline.score(frame[NAMES], frame["click"], qid=given["qid"])
    by_name = make_pipeline(StandardScaler(), FairRanker(0.0, **SETTINGS))
    by_name.fit(frame[NAMES], frame["click"], **{f"fairranker__{name}": one for name, one in given.items()})
    np.testing.assert_array_equal(by_name.predict(frame[NAMES]), pipeline.predict(frame[NAMES]))
    scaled = StandardScaler().fit_transform(frame[NAMES])
    alone = FairRanker(0.0, **SETTINGS).fit(scaled, frame["click"], **given)
    np.testing.assert_allclose(pipeline.predict(frame[NAMES]), alone.predict(scaled))
    assert utility == alone.score(scaled, frame["click"], qid=given["qid"])
    lists = fultr.RankingDataset.from_rows(scaled, given["qid"], relevance=frame["click"])
    assert utility == fultr.evaluate(alone, lists, intervals=None).dcg


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_frame_comes_back_as_its_kind_in_its_order_and_with_its_index(kind: str) -> None:
    ranker, frame = trained(), rows_of_log().drop(columns="click").sample(frac=1.0, random_state=3)
    frame.index = pd.Index([f"row {number}" for number in range(len(frame))])
    lists = fultr.RankingDataset.from_rows(frame[NAMES], frame["query_id"])
    # lists come as their queries first appear
    queries = pd.factorize(frame["query_id"])[0]
    back = np.argsort(np.argsort(queries, kind="stable"))
    polars = pl.from_pandas(frame)
    given: Any = {"pandas": frame, "polars": polars, "arrow": polars.to_arrow()}[kind]
    kinds: dict[str, tuple[type, type]] = {
        "pandas": (pd.Series, pd.DataFrame),
        "polars": (pl.Series, pl.DataFrame),
        "arrow": (pa.Array, pa.Table),
    }
    one, several = kinds[kind]
    scores, ranks = ranker.predict(given), ranker.rank(given)
    drawn: Any = ranker.sample_rankings(given, 3, seed=1)
    turns: Any = ranker.rotation(given, 2)
    for series in (scores, ranks):
        assert isinstance(series, one)
    np.testing.assert_allclose(np.asarray(scores), ranker.predict(frame[NAMES].to_numpy()), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(ranks), ranker.rank(lists)[back])
    for table, expected in (
        (drawn, ranker.sample_rankings(lists, 3, seed=1)),
        (turns, ranker.rotation(lists, 2)),
    ):
        assert isinstance(table, several)
        made: Any = table
        names = made.column_names if kind == "arrow" else list(made.columns)
        assert names == [f"position_{number}" for number in range(1, len(expected) + 1)]
        for number, name in enumerate(names):
            np.testing.assert_array_equal(np.asarray(made[name]), expected[number][back])
    if kind == "pandas":
        for one_made in (scores, ranks, drawn, turns):
            assert one_made.index.equals(frame.index)
        assert (scores.name, ranks.name) == ("score", "position")


def test_rankers_travel_between_processes_as_pickles(tmp_path: Path) -> None:
    features = rows_of_log()[NAMES].to_numpy()
    for ranker in (trained(), trained(model="mlp"), PGRank(l2=0.1, position_bias=BIAS).fit(rows_of_log())):
        expected = ranker.predict(features)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(features), expected)
        joblib.dump(ranker, tmp_path / "ranker.joblib")
        np.testing.assert_array_equal(joblib.load(tmp_path / "ranker.joblib").predict(features), expected)
        with ThreadPoolExecutor(2) as pool:
            for scores in pool.map(ranker.predict, [features] * 4):
                np.testing.assert_array_equal(scores, expected)


@pytest.mark.slow
def test_rankers_work_in_other_processes() -> None:
    ranker, features = trained(), rows_of_log()[NAMES].to_numpy()
    jobs = (joblib.delayed(ranker.predict)(features) for _ in range(2))
    for scores in joblib.Parallel(n_jobs=2)(jobs):
        np.testing.assert_array_equal(scores, ranker.predict(features))
