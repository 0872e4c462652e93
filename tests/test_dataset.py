from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fultr import DataSplits, InputError, RankingDataset, concatenate
from tests.strategies import datasets


def small(**fields: Any) -> RankingDataset:
    given_fields: dict[str, Any] = {"features": np.arange(10.0).reshape(5, 2), "offsets": [0, 2, 5], **fields}
    return RankingDataset(**given_fields)


def test_holds_ragged_lists() -> None:
    data = small(group=["a", None, "b", "a", float("nan")], query_id=["x", "y"], relevance=[0, 1, 0.5, 0, 0])
    assert (len(data), data.rows, data.lengths.tolist()) == (2, 5, [2, 3])
    assert data.group_names == ("a", "b")
    assert data.group.tolist() == [0, -1, 1, 0, -1]
    assert data.feature_names == ("1", "2")
    assert data.list_of_row.tolist() == [0, 0, 1, 1, 1]
    assert data.features.dtype == np.float32
    assert "2 lists, 5 rows, 2 features" in repr(data)


def test_takes_float32_features_as_they_are_and_changes_nothing() -> None:
    features = np.ones((3, 2), dtype=np.float32)
    data = RankingDataset(features, [0, 3])
    assert data.features is features


@given(datasets(), st.data())
def test_slices_and_masks_give_the_lists_asked_for(data: RankingDataset, drawn: st.DataObject) -> None:
    chosen = drawn.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=5))
    part = data[chosen]
    assert len(part) == len(chosen)
    for new, old in enumerate(chosen):
        rows, part_rows = slice(*data.offsets[old : old + 2]), slice(*part.offsets[new : new + 2])
        np.testing.assert_array_equal(part.features[part_rows], data.features[rows])
        np.testing.assert_array_equal(part.group[part_rows], data.group[rows])
        if data.doc_id is not None and part.doc_id is not None:
            assert part.doc_id[part_rows].tolist() == data.doc_id[rows].tolist()
    mask = np.zeros(len(data), dtype=bool)
    mask[chosen] = True
    assert len(data[mask]) == len(set(chosen))
    assert len(data[1:]) == len(data) - 1
    assert len(data[::2]) == (len(data) + 1) // 2
    assert len(data[0]) == 1


@given(datasets())
def test_concatenating_the_lists_one_by_one_gives_the_dataset_back(data: RankingDataset) -> None:
    again = concatenate([data[number] for number in range(len(data))])
    np.testing.assert_array_equal(again.features, data.features)
    np.testing.assert_array_equal(again.offsets, data.offsets)
    np.testing.assert_array_equal(again.group, data.group)
    assert again.group_names == data.group_names
    assert again.group_columns == data.group_columns
    for name in ("relevance", "query_id", "doc_id"):
        mine, theirs = getattr(again, name), getattr(data, name)
        assert (mine is None) == (theirs is None)
        assert mine is None or mine.tolist() == theirs.tolist()


def test_concatenating_matches_groups_by_name() -> None:
    one, two = small(group=["a", "b", "a", None, "b"]), small(group=["c", "b", "b", None, "c"])
    both = concatenate([one, two])
    assert both.group_names == ("a", "b", "c")
    assert both.group.tolist() == [0, 1, 0, -1, 1, 2, 1, 1, -1, 2]


def test_concatenating_different_features_is_refused() -> None:
    with pytest.raises(InputError, match="dataset 2 has other features"):
        concatenate([small(), small(feature_names=("a", "b"))])
    mixed = concatenate([small(query_id=[1, 2]), small(query_id=["1", "2"])]).query_id
    assert mixed is not None
    assert mixed.tolist() == ["1", "2", "1", "2"]
    with pytest.raises(InputError, match="nothing"):
        concatenate([])


def test_from_rows_groups_queries_that_are_not_contiguous() -> None:
    data = RankingDataset.from_rows(
        [[1], [2], [3], [4]],
        qid=["b", "a", "b", "a"],
        doc_id=[1, 2, 3, 4],
        group=["x", None, "y", "x"],
        relevance=[1, 0, 0, 1],
    )
    assert data.query_id is not None
    assert data.query_id.tolist() == ["b", "a"]
    assert data.features.ravel().tolist() == [1, 3, 2, 4]
    assert data.group.tolist() == [0, 1, -1, 0]
    assert data.relevance is not None
    assert data.relevance.tolist() == [1, 0, 0, 1]


@given(datasets(ids=True), st.randoms(use_true_random=False))
def test_from_rows_does_not_depend_on_how_queries_are_mixed(data: RankingDataset, random: Any) -> None:
    assert data.query_id is not None
    assert data.doc_id is not None
    order = list(range(data.rows))
    random.shuffle(order)
    qid = data.query_id[data.list_of_row]
    mixed = RankingDataset.from_rows(
        data.features[order], qid=qid[order], doc_id=data.doc_id[order], group=data.group[order],
        group_names=data.group_names,
    )  # fmt: skip
    assert mixed.query_id is not None
    assert mixed.doc_id is not None
    content = {
        (query, document): (features.tobytes(), group)
        for query, document, features, group in zip(
            mixed.query_id[mixed.list_of_row].tolist(),
            mixed.doc_id.tolist(),
            mixed.features,
            mixed.group,
            strict=True,
        )
    }
    for query, document, features, group in zip(
        qid.tolist(), data.doc_id.tolist(), data.features, data.group, strict=True
    ):
        assert content[query, document] == (features.tobytes(), group)


def test_sampling_draws_whole_queries() -> None:
    data = RankingDataset(np.zeros((12, 1)), np.arange(13), query_id=np.repeat([1, 2, 3], 4))
    sample = data.sample_queries(2, seed=3)
    assert sample.query_id is not None
    assert len(sample) == 8
    assert np.unique(sample.query_id).size == 2
    assert len(data.sample_queries(0.01)) == 4
    assert len(data.sample_queries(1.0)) == 12
    same = data.sample_queries(2, seed=3).query_id
    assert same is not None
    assert same.tolist() == sample.query_id.tolist()
    for size in (0, 4, 0.0, 1.5):
        with pytest.raises(InputError, match="column 'size'"):
            data.sample_queries(size)


def test_binarize() -> None:
    data = small(relevance=[0, 1, 2, 3, 4]).binarize(3)
    assert data.relevance is not None
    assert data.relevance.tolist() == [0, 0, 0, 1, 1]
    with pytest.raises(InputError, match="no relevance"):
        small().binarize(1)


def test_describe() -> None:
    summary = small(
        group=["a", "a", "b", "b", None], relevance=[1, 0, 0, 0, 1], group_columns=(1,)
    ).describe()
    assert summary["lists"] == 2
    assert summary["list_length"] == {"min": 2, "mean": 2.5, "max": 3}
    assert summary["group_columns"] == ["2"]
    assert summary["groups"]["a"] == {"rows": 2, "share": 0.4, "relevance_mean": 0.5}
    assert summary["groups"]["(unknown)"]["rows"] == 1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"features": [[1, 2], [3]]}, "same number of them in each row"),
        ({"features": [["a", "b"]] * 5}, "features must be numbers"),
        ({"features": [1, 2, 3, 4, 5]}, "rows x features"),
        ({"features": [[0, 0], [0, float("nan")], [0, 0], [0, 0], [0, 0]]}, "row 2, column '2': .*got nan"),
        ({"features": [[0, 1e39]] * 5, "feature_names": ("a", "b")}, "row 1, column 'b': .*1e\\+39"),
        ({"offsets": [0, 2]}, "from 0 to the number of rows, 5"),
        ({"offsets": [0, 2, 2, 5]}, "list 2 has no items"),
        ({"offsets": [0, 3, 2, 5]}, "list 2 has no items"),
        ({"relevance": [0, 1, -1, 0, 0]}, "row 3, column 'relevance'"),
        ({"relevance": [0, 1, float("nan"), 0, 0]}, "row 3, column 'relevance'"),
        ({"relevance": [0, 1]}, "one value for each of 5 rows"),
        ({"group": [0, 1, 2, 0, 0], "group_names": ("a", "b")}, "row 3, column 'group': .*got 2"),
        (
            {"group": ["a", "b", "c", None, "a"], "group_names": ("a", "b")},
            "row 3, .*unknown group; .*got 'c'",
        ),
        ({"group": [0, 1]}, "one value for each of 5 rows"),
        ({"group_names": ("a", "a")}, "must differ"),
        ({"query_id": [1]}, "one value for each of 2 lists"),
        ({"query_id": [1, None]}, "row 2, column 'query_id': ids must be all integers or all text"),
        ({"query_id": [1.5, 2.5]}, "column 'query_id'"),
        ({"query_id": ["a", 1]}, "column 'query_id'"),
        ({"query_id": [[1], [2]]}, "one value for each row"),
        ({"doc_id": [1, 2, 1, 2, 1]}, "row 5, column 'doc_id': the document stands in row 3 .*got 1"),
        ({"feature_names": ("a",)}, "2 features need as many names"),
        ({"feature_names": ("a", "a")}, "column 'a': two columns have this name"),
        ({"group_columns": (2,)}, "must lie in 0..1"),
        ({"group_columns": (0.5,)}, "column 'group_columns': must be integers"),
        ({"offsets": [0, 1.5, 5]}, "column 'offsets': must be integers"),
        ({"offsets": ["a"]}, "column 'offsets': must be integers"),
        ({"relevance": ["a"] * 5}, "column 'relevance': must be numbers"),
        ({"relevance": ["1", None, 0, 0, 0]}, "column 'relevance': must be numbers"),
        ({"relevance": [0, 0, 0, 0, 1e39]}, "row 5, column 'relevance'"),
        ({"feature_names": "ab"}, "column 'feature_names': must be a list of names"),
        ({"group_names": "ab"}, "column 'group_names': must be a list of names"),
        ({"query_id": np.array([1, 2**63], dtype=np.uint64)}, "row 2, column 'query_id': .*64 bits"),
        ({"query_id": [1, 2**70]}, "row 2, column 'query_id': .*64 bits"),
        ({"query_id": [[1], [1, 2]]}, "row 1, column 'query_id': ids must be"),
    ],
)
def test_wrong_content_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        small(**fields)


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(InputError, match="no such list; there are 2"):
        small()[[5]]
    with pytest.raises(InputError, match="column 'relevance'"):
        RankingDataset.from_rows([[1], [2]], qid=[1, 2], relevance=[1])


def test_a_query_in_two_splits_is_refused() -> None:
    one, two = small(query_id=[1, 2]), small(query_id=[3, 4])
    splits = DataSplits(one, two, small(query_id=[5, 6]))
    assert [name for name, _ in splits] == ["train", "valid", "test"]
    with pytest.raises(InputError, match="two splits, valid and test; .*got 4"):
        DataSplits(one, two, small(query_id=[4, 9]))
    DataSplits(small(), small(), small())


def test_ordinary_corner_cases_work() -> None:
    single = RankingDataset(np.zeros((1, 0)), [0, 1], relevance=[0])
    assert single.describe()["rows"] == 1
    nothing = RankingDataset(np.zeros((0, 2)), [0])
    assert len(nothing) == 0
    assert nothing.describe()["lists"] == 0


def test_large_ids_of_any_type_are_kept() -> None:
    for ids in ([2**63 - 1, -(2**63)], np.array([2**63 - 1, 5], dtype=np.uint64)):
        held = small(query_id=ids).query_id
        assert held is not None
        assert held.tolist() == list(map(int, ids))


def test_missing_groups_may_be_those_of_pandas() -> None:
    assert small(group=["a", pd.NA, None, float("nan"), pd.NaT]).group.tolist() == [0, -1, -1, -1, -1]


def test_frames_name_their_features() -> None:
    table = {"price": [1.0, 2], "age": [3.0, 4]}
    for frame in (pd.DataFrame(table), pl.DataFrame(table)):
        assert RankingDataset(frame, [0, 2]).feature_names == ("price", "age")
        assert RankingDataset.from_rows(frame, [1, 2]).feature_names == ("price", "age")
        assert RankingDataset(frame, [0, 2], feature_names=["a", "b"]).feature_names == ("a", "b")
    assert RankingDataset(pd.DataFrame([[1.0, 2]]), [0, 1]).feature_names == ("1", "2")


def test_the_mean_of_large_relevances_is_finite() -> None:
    summary = small(relevance=[3e38] * 5, group=["a"] * 5).describe()
    assert summary["relevance_mean"] == pytest.approx(3e38)
    assert summary["groups"]["a"]["relevance_mean"] == pytest.approx(3e38)


def test_arguments_of_the_wrong_type_are_named() -> None:
    data = small()
    assert len(concatenate(part for part in (data, data))) == 4
    wrong: list[Callable[[], object]] = [
        lambda: data.sample_queries("a"),  # type: ignore[arg-type]
        lambda: data.sample_queries(1, seed=-1),
        lambda: data["a"],  # type: ignore[index]
        lambda: small(relevance=[0] * 5).binarize("a"),  # type: ignore[arg-type]
    ]
    for request in wrong:
        with pytest.raises(InputError):
            request()
