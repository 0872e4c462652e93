"""MSLR: reading folds, drawing candidates, groups, and scaling that looks at training rows only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fultr.data import DataSplits, RankingDataset
from fultr.data.letor import read_letor
from fultr.datasets import mslr
from fultr.datasets.candidates import draw_candidates
from fultr.datasets.column_scaling import fit_column_scaling
from fultr.datasets.mslr_features import FEATURE_NAMES
from fultr.errors import InputError
from tests.mslr_folder import FILES, made_up_query, write_fold, write_queries

REAL = os.environ.get("FULTR_MSLR", "")
needs_real_data = pytest.mark.skipif(
    not REAL, reason="set FULTR_MSLR to a folder that holds Fold1/train.txt, vali.txt and test.txt of MSLR"
)


@pytest.fixture(scope="module")
def fold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fold(tmp_path_factory.mktemp("mslr") / "Fold1")


@pytest.fixture(scope="module")
def splits(fold: Path) -> DataSplits:
    return mslr(fold)


def relevance_of(data: RankingDataset) -> NDArray[np.float32]:
    assert data.relevance is not None
    return data.relevance.reshape(len(data), -1)


def documents_of(data: RankingDataset) -> list[int]:
    assert data.doc_id is not None
    return [int(document) for document in data.doc_id]


def queries_of(data: RankingDataset) -> list[int]:
    assert data.query_id is not None
    return [int(query) for query in data.query_id]


def raw_rows(fold: Path, file: str, data: RankingDataset) -> NDArray[np.int64]:
    """Return the rows of the file that the rows of the data were made of."""
    raw = read_letor(fold / file)
    assert raw.query_id is not None
    place = {int(query): number for number, query in enumerate(raw.query_id)}
    starts = np.array([raw.offsets[place[query]] for query in queries_of(data)])
    return np.asarray(np.repeat(starts, data.lengths) + documents_of(data) - 1)


def test_names_of_features_are_those_of_microsofts_list() -> None:
    assert len(set(FEATURE_NAMES)) == 136
    known = {
        1: "covered query term number:body",
        20: "IDF:whole document",
        41: "variance of term frequency:body",
        46: "sum of length-normalized term frequency:body",
        91: "variance of tf*idf:body",
        96: "boolean model:body",
        108: "BM25:title",
        125: "LMIR.JM:whole document",
        126: "slashes in URL",
        130: "PageRank",
        133: "QualityScore2",
        136: "url dwell time",
    }
    assert {number: FEATURE_NAMES[number - 1] for number in known} == known


def test_lists_have_twenty_candidates_of_which_three_are_relevant(splits: DataSplits) -> None:
    assert [len(data) for _, data in splits] == [8, 3, 3]
    for name, data in splits:
        assert data.lengths.tolist() == [20] * len(data)
        assert relevance_of(data).sum(axis=1).tolist() == [3.0] * len(data)
        assert data.group_columns == (132,)
        assert data.feature_names == FEATURE_NAMES
        assert data.source == f"MSLR Fold1, {name}: {len(data)} of {len(data)} queries kept"


def test_order_of_candidates_does_not_give_relevance_away(fold: Path) -> None:
    at_position = relevance_of(mslr(fold, lists_per_query=200).train).mean(axis=0)
    # 1600 draws with probability 0.15: five standard errors are 0.045
    assert np.abs(at_position - 0.15).max() < 0.045


def test_rows_are_those_of_the_files(fold: Path, splits: DataSplits) -> None:
    for file, (_, data) in zip(FILES, splits, strict=True):
        raw, rows = read_letor(fold / file), raw_rows(fold, file, data)
        assert raw.relevance is not None
        assert np.array_equal(relevance_of(data).ravel() == 1, raw.relevance[rows] >= 3)
        # scaling keeps the order of the values of a column
        for column in (1, 7, 132):
            order = np.argsort(raw.features[rows, column], kind="stable")
            assert np.all(np.diff(data.features[order, column]) >= 0)


def test_groups_are_cut_at_a_quantile_of_all_training_rows(fold: Path) -> None:
    quality = np.sort(read_letor(fold / "train.txt").features[:, 132])
    cut = quality[int(np.ceil(0.4 * quality.size)) - 1]
    for file, (_, data) in zip(FILES, mslr(fold), strict=True):
        assert data.group_names == (f"QualityScore2<={cut:g}", f"QualityScore2>{cut:g}")
        raw = read_letor(fold / file).features[raw_rows(fold, file, data), 132]
        assert np.array_equal(data.group == 0, raw <= cut)
    five = mslr(fold, groups=5, lists_per_query=50).train
    assert len(five.group_names) == 5
    assert np.abs(np.bincount(five.group) / five.rows - 0.2).max() < 0.06


def test_features_are_standardised_by_all_training_rows(fold: Path) -> None:
    raw = read_letor(fold / "train.txt").features
    scaled = fit_column_scaling(raw, slice(None)).apply(raw)
    assert np.array_equal(scaled[:, 0], np.zeros(raw.shape[0]))
    assert np.allclose(scaled[:, 1:].mean(axis=0), 0, atol=1e-4)
    assert np.allclose(scaled[:, 1:].std(axis=0), 1, atol=1e-4)
    data = mslr(fold).train
    assert np.array_equal(data.features, scaled[raw_rows(fold, "train.txt", data)])


def test_heavy_tails_are_compressed_whatever_their_unit() -> None:
    generator = np.random.default_rng(0)
    long_tail = np.exp(generator.normal(scale=3, size=5000))
    table = np.column_stack([long_tail, -1e-4 * long_tail, generator.normal(size=5000)]).astype(np.float32)
    scaling = fit_column_scaling(table, slice(None))
    assert scaling.heavy.tolist() == [True, True, False]
    scaled = scaling.apply(table)
    assert np.abs(scaled).max() < 12
    assert np.abs((table - table.mean(axis=0)) / table.std(axis=0)).max() > 30
    assert np.array_equal(np.argsort(scaled[:, 0]), np.argsort(table[:, 0]))


def test_two_values_stay_two_values_of_mean_zero_and_deviation_one() -> None:
    table = np.zeros((1000, 1), dtype=np.float32)
    table[:20] = 1
    scaled = fit_column_scaling(table, slice(None)).apply(table)
    assert np.unique(scaled).size == 2
    assert scaled.mean() == pytest.approx(0, abs=1e-5)
    assert scaled.std() == pytest.approx(1, abs=1e-5)


def test_a_column_constant_in_training_is_zero_everywhere() -> None:
    table = np.array([[0.1], [0.1], [0.1], [7.0]], dtype=np.float32)
    scaled = fit_column_scaling(table, np.array([0, 1, 2])).apply(table)
    assert scaled.ravel().tolist() == [0.0] * 4


def test_other_files_change_nothing_in_the_training_part(fold: Path, tmp_path: Path) -> None:
    other = write_fold(tmp_path / "Fold1", seed=1)
    (other / "train.txt").write_bytes((fold / "train.txt").read_bytes())
    first, second = mslr(fold), mslr(other)
    assert np.array_equal(first.train.features, second.train.features)
    assert np.array_equal(first.train.group, second.train.group)
    assert not np.array_equal(first.test.features, second.test.features)


def test_a_seed_reproduces_and_another_differs(fold: Path, splits: DataSplits) -> None:
    again, other = mslr(fold, seed=0), mslr(fold, seed=1)
    assert documents_of(splits.train) == documents_of(again.train)
    assert documents_of(splits.train) != documents_of(other.train)
    assert queries_of(splits.train) == queries_of(other.train)


def test_several_lists_of_a_query_keep_its_id(fold: Path) -> None:
    data = mslr(fold, lists_per_query=3).train
    assert queries_of(data) == [query for query in range(1, 9) for _ in range(3)]
    documents = documents_of(data)
    assert set(documents[:20]) != set(documents[20:40])
    assert data.source == "MSLR Fold1, train: 8 of 8 queries kept"


def test_queries_that_cannot_fill_a_list_are_left_out_and_counted(fold: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    some = write_fold(tmp_path / "Fold1")
    queries = {
        101: made_up_query(generator),
        102: made_up_query(generator, relevant=0),
        103: made_up_query(generator, pages=19, relevant=5),
        104: made_up_query(generator, pages=25, relevant=10),
        105: made_up_query(generator, pages=20, relevant=1),
        106: made_up_query(generator, pages=21, relevant=4),
    }
    write_queries(some / "train.txt", queries)
    data = mslr(some).train
    assert queries_of(data) == [101, 105, 106]
    assert relevance_of(data).sum(axis=1).tolist() == [3.0, 1.0, 3.0]
    assert data.source.endswith("train: 3 of 6 queries kept")


def test_a_lower_bar_for_relevance(fold: Path) -> None:
    data = mslr(fold, relevant_from=1, relevant=6, candidates=12).train
    assert data.lengths.tolist() == [12] * len(data)
    assert relevance_of(data).sum(axis=1).tolist() == [6.0] * len(data)


def test_resplit_shuffles_queries_between_parts_of_the_same_sizes(fold: Path, splits: DataSplits) -> None:
    one, again, other = mslr(fold, resplit=1), mslr(fold, resplit=1), mslr(fold, resplit=2)
    assert sorted(query for _, data in one for query in queries_of(data)) == list(range(1, 15))
    assert [len(data) for _, data in one] == [8, 3, 3]
    assert queries_of(one.train) == queries_of(again.train)
    assert np.array_equal(one.train.features, again.train.features)
    assert queries_of(one.train) != queries_of(other.train)
    assert one.train.source == "MSLR Fold1 split anew with seed 1, train: 8 of 8 queries kept"
    assert one.train.group_names != splits.train.group_names


def test_resplit_scales_by_the_new_training_part(fold: Path) -> None:
    data = mslr(fold, resplit=1, lists_per_query=100, candidates=30, relevant=4).train
    # every page of a query of 30 is in each of its lists, so the lists have the statistics of all rows
    assert np.allclose(data.features[:, 1:].mean(axis=0), 0, atol=1e-3)
    assert np.allclose(data.features[:, 1:].std(axis=0), 1, atol=1e-3)


def test_single_queries_are_enough(tmp_path: Path) -> None:
    single = write_fold(tmp_path / "single", queries=(1, 1, 1))
    assert [len(data) for _, data in mslr(single)] == [1, 1, 1]
    assert [len(data) for _, data in mslr(single, resplit=0)] == [1, 1, 1]


def test_a_folder_that_holds_fold1_will_do(fold: Path, splits: DataSplits) -> None:
    assert np.array_equal(mslr(str(fold.parent)).train.features, splits.train.features)


def test_ties_in_quality_say_how_many_groups_are_possible(tmp_path: Path) -> None:
    tied = write_fold(tmp_path / "tied")
    judgments, features = made_up_query(np.random.default_rng(0))
    features[:, 132] = np.repeat([1, 2, 3], 10)
    write_queries(tied / "train.txt", {100: (judgments, features)})
    assert mslr(tied, groups=3).train.group_names[1] == "1<QualityScore2<=2"
    with pytest.raises(InputError, match="QualityScore2; at most 3 groups are possible") as caught:
        mslr(tied, groups=4)
    assert caught.value.column == "groups"


def test_a_query_in_two_files_is_refused(tmp_path: Path) -> None:
    shared = write_fold(tmp_path / "shared")
    write_queries(shared / "vali.txt", {3: made_up_query(np.random.default_rng(0))})
    for resplit in (None, 0):
        with pytest.raises(InputError, match=r"train\.txt and vali\.txt") as caught:
            mslr(shared, resplit=resplit)
        assert caught.value.value == 3


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such folder; a fold folder holds train\.txt"):
        mslr(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"has none of the files; a fold folder holds train\.txt"):
        mslr(tmp_path)
    part = write_fold(tmp_path / "part")
    (part / "vali.txt").unlink()
    with pytest.raises(InputError, match="no such file") as caught:
        mslr(part)
    assert caught.value.file == str(part / "vali.txt")


def test_a_file_of_another_width_is_refused(tmp_path: Path) -> None:
    narrow = write_fold(tmp_path / "narrow")
    judgments, features = made_up_query(np.random.default_rng(0))
    write_queries(narrow / "test.txt", {100: (judgments, features[:, :46])})
    with pytest.raises(InputError, match="136 features, the file has 46") as caught:
        mslr(narrow)
    assert caught.value.file == str(narrow / "test.txt")


def test_a_part_without_any_usable_query_is_refused(tmp_path: Path) -> None:
    hopeless = write_fold(tmp_path / "hopeless")
    write_queries(hopeless / "test.txt", {100: made_up_query(np.random.default_rng(0), relevant=0)})
    with pytest.raises(InputError, match="no query of the test part has a page judged 3 or better"):
        mslr(hopeless)


@pytest.mark.parametrize(
    ("arguments", "column"),
    [
        ({"groups": 1}, "groups"),
        ({"candidates": 0}, "candidates"),
        ({"relevant": 0}, "relevant"),
        ({"relevant": 21}, "relevant"),
        ({"relevant_from": float("nan")}, "relevant_from"),
        ({"relevant_from": "3"}, "relevant_from"),
        ({"lists_per_query": 0}, "lists_per_query"),
        ({"resplit": -1}, "resplit"),
        ({"seed": -1}, "seed"),
    ],
)
def test_unusable_arguments_are_named(fold: Path, arguments: dict[str, Any], column: str) -> None:
    with pytest.raises(InputError) as caught:
        mslr(fold, **arguments)
    assert caught.value.column == column


def test_drawn_rows_differ_and_missing_relevance_gives_no_list() -> None:
    generator = np.random.default_rng(0)
    relevant, others = np.arange(5), np.arange(5, 40)
    rows = draw_candidates(relevant, others, length=20, relevant=3, generator=generator)
    assert rows is not None
    assert np.unique(rows).size == 20
    assert np.sum(rows < 5) == 3
    nothing = np.arange(0)
    assert draw_candidates(nothing, others, length=20, relevant=3, generator=generator) is None
    assert draw_candidates(relevant, others[:16], length=20, relevant=3, generator=generator) is None


@needs_real_data
def test_the_real_sample_has_the_known_counts() -> None:
    splits = mslr(REAL)
    if len(splits.train) > 1000:
        pytest.skip("FULTR_MSLR names the full data; the counts are those of the sample")
    assert [len(data) for _, data in splits] == [62, 23, 26]
    assert splits.train.source == "MSLR Fold1, train: 62 of 103 queries kept"
    assert splits.valid.source.endswith("23 of 35 queries kept")
    assert splits.test.source.endswith("26 of 35 queries kept")


@needs_real_data
def test_the_real_features_have_no_extreme_values_left() -> None:
    splits = mslr(REAL, groups=7)
    assert len(splits.train.group_names) == 7
    for _, data in splits:
        assert np.abs(data.features).max() < 30
        assert set(relevance_of(data).sum(axis=1).tolist()) <= {1.0, 2.0, 3.0}
