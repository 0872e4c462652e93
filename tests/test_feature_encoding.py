"""Missing values and categories become numbers in the policy itself, in training and ever after."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fultr
from fultr import FairRanker, FultrWarning, InputError, RankingDataset
from fultr.baselines import FairCo, PGRank, RelevanceRegression
from fultr.policy.feature_encoding import FeatureEncoding
from tests.commands import result_of
from tests.training_tasks import BIAS

PRICES = [10.0, 20.0, None, 40.0, 50.0, 60.0]
COLOURS = ["red", "blue", "green", "red", None, "blue"]


def items(**changed: Any) -> pl.DataFrame:
    """Six items, with a missing price and a missing colour."""
    columns = {"doc_id": range(6), "price": PRICES, "colour": COLOURS, "remote": [True, False] * 3}
    return pl.DataFrame({**columns, **changed})


def shown(impressions: int = 240, **changed: Any) -> pl.DataFrame:
    """A log of these items; those with an even number are clicked more."""
    rng = np.random.default_rng(0)
    rows = []
    for impression in range(impressions):
        for position, document in enumerate(rng.permutation(6)[:4].tolist(), start=1):
            click = bool(rng.random() < (0.7 if document % 2 else 0.2) / position)
            rows.append((impression, impression % 12, document, position, click, "ab"[document % 2]))
    names = ["impression_id", "query_id", "doc_id", "position", "click", "group"]
    return pl.DataFrame(rows, schema=names, orient="row").join(items(**changed), on="doc_id")


SETTINGS: dict[str, Any] = {"l2": 0.01, "position_bias": BIAS, "folds": 0}


def trained(missing: str = "mean", **settings: Any) -> FairRanker:
    """A ranker that was trained on a frame with missing values and categories."""
    chosen = {**SETTINGS, "categories": ["colour", "remote"], **settings}
    return FairRanker(0.0, missing=missing, **chosen).fit(shown())


def lists(frame: pl.DataFrame, **names: tuple[str, ...]) -> RankingDataset:
    """One list of raw features: categories as codes of the names given."""
    table = frame.with_columns(
        pl.col(column).replace_strict({text: code for code, text in enumerate(texts)}, default=None)
        for column, texts in names.items()
    )
    columns = [table[name].cast(pl.Float32).fill_null(np.nan).to_numpy() for name in table.columns]
    return RankingDataset(
        np.column_stack(columns),
        [0, table.height],
        feature_names=table.columns,
        category_names=names,
        allows_missing=True,
    )


RAW = lists(items().select("price", "colour"), colour=("blue", "green", "red"))


def test_means_and_shares_stand_for_what_is_missing() -> None:
    encoding = FeatureEncoding.of(RAW, "mean")
    encoded = encoding.apply(RAW)
    assert encoded.feature_names == ("price", "colour=blue", "colour=green", "colour=red")
    np.testing.assert_allclose(encoded.features[:, 0], [10, 20, 36, 40, 50, 60])
    np.testing.assert_allclose(encoded.features[:, 1], [0, 1, 0, 0, 0.4, 1])
    np.testing.assert_allclose(encoded.features[:, 2:].sum(axis=1), [1, 0, 1, 1, 0.6, 0])
    assert not encoded.allows_missing
    assert not encoded.category_names


def test_indicators_say_what_was_missing() -> None:
    encoding = FeatureEncoding.of(RAW, "indicator")
    encoded = encoding.apply(RAW)
    assert encoded.feature_names == (
        "price",
        "price is missing",
        "colour=blue",
        "colour=green",
        "colour=red",
        "colour is missing",
    )
    np.testing.assert_allclose(encoded.features[:, 1], [0, 0, 1, 0, 0, 0])
    np.testing.assert_allclose(encoded.features[4, 2:], [0, 0, 0, 1])
    complete = FeatureEncoding.of(RAW[0].of_rows(np.array([True, True] + [False] * 4))[0], "indicator")
    assert complete.output_names == ("price", "colour=blue", "colour=red")  # nothing was missing


def test_unknown_categories_are_counted_and_scored_as_average_ones() -> None:
    encoding = FeatureEncoding.of(RAW, "indicator")
    new = lists(
        items(colour=["mauve", "red", "teal", "mauve", None, "mauve"]).select("price", "colour"),
        colour=("mauve", "red", "teal"),
    )
    assert encoding.unknown(new) == {"colour": {"mauve": 3, "teal": 1}}
    encoded = encoding.apply(new).features
    np.testing.assert_allclose(encoded[0, 2:], [0.4, 0.2, 0.4, 0.0], rtol=1e-6)
    np.testing.assert_allclose(encoded[4, 2:], [0, 0, 0, 1])
    assert encoding.unknown(RAW) == {}


def test_codes_follow_the_training_whatever_the_data_calls_zero() -> None:
    encoding = FeatureEncoding.of(RAW, "mean")
    other = lists(items().select("colour", "price"), colour=("red", "green", "blue"))
    np.testing.assert_array_equal(encoding.apply(other).features, encoding.apply(RAW).features)


def test_native_columns_stay_what_they_are() -> None:
    encoding = FeatureEncoding.of(RAW, "native", one_hot=False)
    new = lists(
        items(colour=["teal", *COLOURS[1:]]).select("price", "colour"),
        colour=("blue", "green", "red", "teal"),
    )
    encoded = encoding.apply(new)
    assert encoded.feature_names == ("price", "colour")
    assert encoded.category_names == {"colour": ("blue", "green", "red")}
    np.testing.assert_array_equal(encoded.features[:, 0], RAW.features[:, 0])
    np.testing.assert_array_equal(encoded.features[:, 1], [np.nan, 0, 1, 2, np.nan, 0])
    assert [column.was_missing for column in encoding.columns] == [True, True]


@pytest.mark.parametrize(("missing", "one_hot"), [("mean", True), ("indicator", True), ("native", False)])
def test_encoding_twice_changes_nothing_and_files_keep_it(missing: str, one_hot: bool) -> None:
    encoding = FeatureEncoding.of(RAW, missing, one_hot=one_hot)
    once = encoding.apply(RAW)
    np.testing.assert_array_equal(encoding.apply(once).features, once.features)
    assert FeatureEncoding.from_dict(encoding.to_dict()) == encoding
    np.testing.assert_array_equal(FeatureEncoding.of_encoded(once).apply(once).features, once.features)


def test_complete_numbers_are_not_even_copied() -> None:
    data = RankingDataset(np.eye(3), [0, 3])
    encoding = FeatureEncoding.of(data)
    assert encoding.is_identity
    assert encoding.apply(data) is data


def test_columns_derived_from_the_group_stay_hidden() -> None:
    data = RankingDataset(
        RAW.features,
        [0, 6],
        feature_names=("price", "colour"),
        category_names={"colour": ("blue", "green", "red")},
        allows_missing=True,
        group_columns=[1],
    )
    assert FeatureEncoding.of(data, "indicator").apply(data).group_columns == (2, 3, 4, 5)


def test_what_is_missing_is_refused_with_its_name_unless_the_policy_fills_it_in() -> None:
    with pytest.raises(
        InputError, match=r"'price': is missing in 1 of 6 rows; .* missing='mean' or 'indicator'"
    ):
        FeatureEncoding.of(RAW)
    with pytest.raises(InputError, match=r"column 'price': .*missing='mean' or 'indicator'.*\(got nan\)"):
        FairRanker(0.0, **SETTINGS, categories=["colour", "remote"]).fit(shown())
    with pytest.raises(InputError, match="'price': is missing in all rows"):
        FairRanker(0.0, **SETTINGS, missing="mean").fit(
            shown(price=[float("nan")] * 6, colour=list("123456"))
        )
    with pytest.raises(InputError, match="'missing': must be 'mean'"):
        FairRanker(0.0, **SETTINGS, missing="median").check()
    with pytest.raises(InputError, match="takes no missing values"):
        FairRanker(0.0, **SETTINGS, missing="native").check()


@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_a_saved_policy_scores_raw_items_as_the_trained_one_did(missing: str, tmp_path: Path) -> None:
    ranker = trained(missing)
    loaded = fultr.load(fultr.save(ranker, tmp_path / "policy.safetensors"))
    assert loaded.feature_names_in_.tolist() == ["price", "colour", "remote"]
    assert loaded.get_feature_names_out().tolist() == ranker.get_feature_names_out().tolist()
    assert loaded.coef_.size == len(loaded.get_feature_names_out())
    frame = items()
    expected = ranker.predict(frame)
    for given in (frame, frame.to_pandas(), frame.to_arrow(), frame.select("remote", "colour", "price")):
        np.testing.assert_array_equal(
            np.asarray(loaded.predict(given)).reshape(-1), np.asarray(expected).reshape(-1)
        )


def test_arrays_of_text_and_frames_beside_clicks_train_the_same_policy() -> None:
    frame = shown()
    columns: dict[str, Any] = {
        "qid": frame["query_id"],
        "impression": frame["impression_id"],
        "position": frame["position"],
        "sensitive_features": frame["group"].to_list(),
    }
    chosen = {**SETTINGS, "missing": "mean", "categories": ["colour", "remote"]}
    features = frame.select("price", "colour", "remote")
    one = FairRanker(0.0, **chosen).fit(features.to_pandas(), frame["click"], **columns)
    np.testing.assert_allclose(one.coef_, trained().coef_, atol=1e-5)
    table = np.array(items().select("price", "colour", "remote").rows(), dtype=object)
    np.testing.assert_allclose(
        one.predict(table), np.asarray(trained().predict(items())).reshape(-1), atol=1e-4
    )


def test_bare_columns_are_those_of_the_training_in_its_order() -> None:
    rng = np.random.default_rng(3)
    rows = np.stack(
        [rng.integers(3, size=400), rng.integers(20, size=400), rng.integers(9, size=400)], axis=1
    )
    table = rows.astype(np.float32)
    columns = {"qid": np.repeat(np.arange(100), 4), "position": np.tile(np.arange(1, 5), 100)}
    ranker = FairRanker(0.0, **SETTINGS, categories=["feature_1"]).fit(table, table[:, 0] == 1, **columns)
    assert ranker.feature_names_in_.tolist() == ["1", "2", "3"]
    named = {f"feature_{number}": table[:, number - 1] for number in (3, 1, 2)}
    np.testing.assert_array_equal(ranker.predict(table), ranker.predict(named))
    best = ranker.predict(table)[table[:, 0] == 1]
    assert best.min() > ranker.predict(table)[table[:, 0] != 1].max()


def test_production_is_warned_of_unknown_categories_and_can_count_them() -> None:
    ranker = trained()
    new = items(colour=["mauve"] * 6)
    with pytest.warns(FultrWarning, match=r"colour 'mauve' \(6\), 6 of 6 rows"):
        scores = ranker.predict(new)
    assert np.isfinite(np.asarray(scores)).all()
    assert ranker.unknown_categories(new) == {"colour": {"mauve": 6}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranker.predict(items())  # a missing one is not unknown
    with pytest.raises(InputError, match=r"'colour': holds categories for the policy, but numbers here"):
        ranker.predict(RankingDataset(np.zeros((2, 3)), [0, 2], feature_names=["price", "colour", "remote"]))


@pytest.mark.parametrize("truths", [("true", "false"), ("True", "False"), ("TRUE", "FALSE")])
def test_truth_is_known_by_any_writing_of_it(truths: tuple[str, str]) -> None:
    settings = {**SETTINGS, "missing": "mean", "categories": ["colour", "remote"]}
    ranker = FairRanker(0.0, **settings).fit(shown(remote=truths * 3))
    assert ranker.encoding_.columns[-1].categories == truths[::-1]
    expected = ranker.predict(items(remote=truths * 3))
    for written in (items(), *(items(remote=pair * 3) for pair in (("true", "false"), ("TRUE", "False")))):
        np.testing.assert_array_equal(ranker.predict(written), expected)


def test_truths_of_two_writings_in_training_stay_apart() -> None:
    encoding = FeatureEncoding.of(
        lists(items(colour=["True", "true"] * 3).select("colour"), colour=("True", "true"))
    )
    data = lists(items(colour=["true", "True"] * 3).select("colour"), colour=("true", "True"))
    np.testing.assert_array_equal(encoding.apply(data).features[:2], [[0, 1], [1, 0]])


def test_counts_logs_and_datasets_keep_categories_and_what_is_missing(tmp_path: Path) -> None:
    options: dict[str, Any] = {"categories": ["colour"], "keep_missing": True}
    log = fultr.read_log(shown(), **options)
    counts = fultr.count(shown(), **options)
    fultr.write_counts(counts, tmp_path / "counts.parquet")
    fultr.write_log(log, tmp_path / "log.parquet")
    fultr.write_log(log, tmp_path / "columns.parquet", features="columns")
    fultr.write_dataset(log.data, tmp_path / "data.parquet")
    fultr.write_dataset(log.data, tmp_path / "data.arrow")
    fultr.write_log(log, tmp_path / "log.csv")
    again = [
        fultr.read_counts(tmp_path / "counts.parquet").data,
        fultr.read_log(tmp_path / "log.parquet").data,
        fultr.read_log(tmp_path / "columns.parquet").data,
        fultr.read_dataset(tmp_path / "data.parquet"),
        fultr.read_dataset(tmp_path / "data.arrow"),
        fultr.read_log(tmp_path / "log.csv", **options).data,
    ]
    for data in again:
        assert data.category_names == {"colour": ("blue", "green", "red")}
        assert data.allows_missing
        np.testing.assert_array_equal(data.features, log.data.features)
    first, second = (
        fultr.count(shown().filter(pl.col("impression_id") % 2 == half, pl.col("doc_id") != drop), **options)
        for half, drop in ((0, 2), (1, 4))
    )
    merged = fultr.merge(first, second)
    assert merged.data.category_names == {"colour": ("blue", "green", "red")}
    assert first.data.category_names == {"colour": ("blue", "red")}


def test_a_train_command_fills_in_and_the_others_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown().write_parquet(tmp_path / "log.parquet")
    ours = {"query_id": [1] * 6, "relevance": [1, 0, 0, 1, 0, 1]}
    items().with_columns(pl.Series(name, values) for name, values in ours.items()).write_csv(
        tmp_path / "items.csv"
    )
    reading = ["--categories", "colour,remote"]
    options = ["--missing", "indicator", "--lambda", "0", "--eta", "1", "--l2", "0.01", "--folds", "0"]
    run = str(tmp_path / "run")
    code, _, err = result_of(capsys, "train", tmp_path / "log.parquet", *reading, *options, "--out", run)
    assert code == 0, err
    policy = fultr.load(tmp_path / "run" / "policy.safetensors")
    assert "price is missing" in policy.get_feature_names_out()
    for command in (
        ["evaluate", run, tmp_path / "log.parquet", "--eta", "1"],
        ["evaluate", run, tmp_path / "items.csv", "--eta", "1"],
        ["rank", run, tmp_path / "items.csv", "--deterministic"],
    ):
        code, _, err = result_of(capsys, *command)
        assert code == 0, err
    changed = (tmp_path / "items.csv").read_text().replace("red", "mauve")
    (tmp_path / "items.csv").write_text(changed)
    code, _, err = result_of(capsys, "rank", run, tmp_path / "items.csv", "--deterministic")
    assert code == 0
    assert "colour 'mauve' (2), 2 of 6 rows" in err
    new = tmp_path / "new"
    code, _, err = result_of(capsys, "train", tmp_path / "log.parquet", *reading, *options[2:], "--out", new)
    assert code == 2
    assert "--missing 'mean' or 'indicator'" in err


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"missing": "median"}, "must be"),
        ({"one_hot": 1}, "1 is no bool"),
        ({"columns": []}, "features of the policy"),
    ],
)
def test_a_damaged_encoding_is_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    from fultr.training.policy_files import read_policy_file, write_policy_file

    path = fultr.save(trained(), tmp_path / "policy.safetensors")
    file = read_policy_file(path)
    content = {**file.content, "encoding": {**file.content["encoding"], **change}}
    write_policy_file(path, file.tensors, content)
    with pytest.raises(InputError, match=problem):
        fultr.load(path)


def test_columns_that_hold_no_categories_are_refused() -> None:
    with pytest.raises(InputError, match="categories have no mean"):
        fultr.count(shown(), categories=["colour"], keep_missing=True, on_conflict="mean")
    with pytest.raises(InputError, match="a category must be text, true or false, or an integer"):
        fultr.count(shown(price=[0.5] * 6), categories=["price"])
    with pytest.raises(InputError, match="has 1200 different values"):
        frame = pl.DataFrame({"query_id": [1] * 1200, "relevance": [1] * 1200, "id": map(str, range(1200))})
        FairRanker(0.0, **SETTINGS, categories=["id"]).fit(frame)
    with pytest.raises(InputError, match="holds numbers in the data"):
        FairRanker(0.0, **SETTINGS, categories=["price"]).fit(
            fultr.count(shown().select(pl.exclude("colour")), keep_missing=True)
        )


@pytest.mark.parametrize("value", [np.inf, -np.inf, 2.0**63, 1e300])
def test_numbers_that_are_no_integers_of_64_bits_are_no_categories(value: float) -> None:
    rows = {"query_id": [1] * 3, "relevance": [1] * 3, "size": [1.0, None, value]}
    with pytest.raises(
        InputError, match=r"row 3, column 'size': a category must be .* an integer of 64 bits"
    ):
        FairRanker(0.0, **SETTINGS, missing="mean", categories=["size"]).fit(pl.DataFrame(rows))


def test_empty_text_is_a_missing_category_in_frames_and_files(tmp_path: Path) -> None:
    frame = shown(colour=["red", "", "", "blue", None, "blue"])
    frame.write_csv(tmp_path / "log.csv")
    frame.write_parquet(tmp_path / "log.parquet")
    frame.with_columns(pl.col("colour").cast(pl.Categorical)).write_parquet(tmp_path / "codes.parquet")
    sources = [
        frame,
        frame.to_pandas(),
        *(tmp_path / name for name in ("log.csv", "log.parquet", "codes.parquet")),
    ]
    for source in sources:
        data = fultr.count(source, features=["colour"], categories=["colour"], keep_missing=True).data
        assert data.category_names == {"colour": ("blue", "red")}
        documents = np.asarray(data.doc_id)
        assert {*documents[np.isnan(data.features[:, 0])].tolist()} == {1, 2, 4}
        with pytest.raises(InputError, match="column 'colour': .*missing="):
            fultr.count(source, features=["colour"], categories=["colour"])


def test_a_report_and_a_sweep_read_what_the_run_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    shown().write_csv(log)
    options = [
        "--categories",
        "colour,remote",
        "--missing",
        "mean",
        "--eta",
        "1",
        "--l2",
        "0.1",
        "--folds",
        "0",
    ]
    code, _, err = result_of(capsys, "sweep", log, *options, "--lambdas", "0,1", "--out", tmp_path / "run")
    assert code == 0, err
    assert "the columns of numbers, price;" in err  # and not the categories
    code, _, err = result_of(capsys, "report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert code == 0, err
    code, out, _ = result_of(capsys, "inspect", log)
    assert "categories (categories=, --categories)" in " ".join(out.split())


@pytest.mark.parametrize("method", [PGRank, RelevanceRegression, FairCo])
def test_other_methods_take_categories_of_the_data(method: Any, tmp_path: Path) -> None:
    counts = fultr.count(shown().drop("price", "colour"), categories=["remote"])
    ranker = method(l2=0.1, position_bias=BIAS, valid_share=0.0).fit(counts)
    assert ranker.get_feature_names_out().tolist() == ["remote=false", "remote=true"]
    loaded = fultr.load_ranker(fultr.save(ranker, tmp_path / "policy"))
    frame = items().drop("price", "colour")
    np.testing.assert_array_equal(loaded.predict(frame), ranker.predict(frame))
    np.testing.assert_array_equal(loaded.rank(frame), ranker.rank(frame))


def test_files_of_numbers_alone_hold_neither_categories_nor_missing_values(tmp_path: Path) -> None:
    log = fultr.read_log(shown(), categories=["colour"], keep_missing=True)
    labelled = replace(log.data, relevance=np.ones(log.data.rows, np.float32))
    with pytest.raises(InputError, match="'colour': .* no categories and no missing features"):
        fultr.write_letor(labelled, tmp_path / "data.txt")
    with pytest.raises(InputError, match="a regression on features"):
        fultr.estimate_bias(log, method="em", relevance="features")
