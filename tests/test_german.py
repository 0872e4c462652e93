"""German Credit: the table, the groups, the split and the lists."""

from __future__ import annotations

import hashlib
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fultr.data import DataSplits, RankingDataset
from fultr.datasets import german_credit
from fultr.datasets.german import _stratified_thirds
from fultr.datasets.german_groups import groups_of
from fultr.datasets.german_table import NUMERIC, feature_columns, features_of, read_applicants
from fultr.errors import InputError

APPLICANTS = read_applicants()
SOME_GROUPS = ["purpose:A43", "purpose:A40,A41", "purpose", "age", "age:30,50", "sex", "foreign_worker"]


@pytest.fixture(scope="module")
def splits() -> DataSplits:
    return german_credit(seed=3)


def documents_of(data: RankingDataset) -> list[int]:
    assert data.doc_id is not None
    return [int(document) for document in data.doc_id]


def relevance_of(data: RankingDataset) -> NDArray[np.float32]:
    assert data.relevance is not None
    return data.relevance


def test_the_file_is_the_original_and_names_its_licence() -> None:
    folder = resources.files("fultr.datasets") / "german_credit_data"
    digest = hashlib.sha256((folder / "german.data").read_bytes()).hexdigest()
    assert digest == "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"
    assert "CC BY 4.0" in (folder / "ATTRIBUTION.md").read_text(encoding="utf-8")


def test_table_has_the_known_counts() -> None:
    assert int(APPLICANTS.creditworthy.sum()) == 700
    assert int((APPLICANTS.codes["purpose"] == "A43").sum()) == 280
    assert len(APPLICANTS.numbers) == 7
    assert len(APPLICANTS.codes) == 13
    assert APPLICANTS.values_of("purpose")[-1] == "A410"


def test_every_list_has_the_asked_counts(splits: DataSplits) -> None:
    for _, data in splits:
        assert data.lengths.tolist() == [20] * 500
        assert relevance_of(data).reshape(500, 20).sum(axis=1).tolist() == [2.0] * 500


def test_row_order_does_not_give_relevance_away(splits: DataSplits) -> None:
    at_position = relevance_of(splits.train).reshape(500, 20).mean(axis=0)
    # 500 draws with probability 0.1: five standard errors are 0.067
    assert np.abs(at_position - 0.1).max() < 0.067


def test_no_individual_is_in_two_parts(splits: DataSplits) -> None:
    parts = [set(documents_of(data)) for _, data in splits]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]


def test_rows_are_those_of_the_file(splits: DataSplits) -> None:
    for _, data in splits:
        assert data.doc_id is not None
        row = data.doc_id - 1
        assert np.array_equal(relevance_of(data) == 1, APPLICANTS.creditworthy[row])
        radio = APPLICANTS.codes["purpose"][row] == "A43"
        assert np.array_equal(data.group == 0, radio)
        assert np.array_equal(data.features[:, data.feature_names.index("purpose:A43")] == 1, radio)


@pytest.mark.parametrize("group", SOME_GROUPS)
def test_parts_are_stratified_by_group_and_label(group: str) -> None:
    groups = groups_of(APPLICANTS, group)
    parts = _stratified_thirds(APPLICANTS, groups, np.random.default_rng(5))
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
    assert {part.size for part in parts} <= {333, 334}
    for code in range(len(groups.names)):
        for label in (False, True):
            member = (groups.code == code) & (APPLICANTS.creditworthy == label)
            counts = [int(member[part].sum()) for part in parts]
            assert max(counts) - min(counts) <= 1


def test_query_ids_differ_between_parts_and_sources_name_the_part(splits: DataSplits) -> None:
    starts = [0, 500, 1000]
    for start, (name, data) in zip(starts, splits, strict=True):
        assert data.query_id is not None
        assert data.query_id.tolist() == list(range(start, start + 500))
        assert data.source == f"German Credit (UCI), {name}"


def test_a_seed_reproduces_and_another_differs(splits: DataSplits) -> None:
    again, other = german_credit(seed=3), german_credit(seed=4)
    for (_, first), (_, second), (_, third) in zip(splits, again, other, strict=True):
        assert np.array_equal(first.features, second.features)
        assert documents_of(first) == documents_of(second)
        assert documents_of(first) != documents_of(third)


def test_scaling_uses_training_individuals_only() -> None:
    training = np.arange(0, 1000, 3)
    features = features_of(APPLICANTS, training)
    names = [name for columns in feature_columns(APPLICANTS).values() for name in columns]
    for attribute in NUMERIC:
        column = features[training, names.index(attribute)].astype(np.float64)
        low, middle, high = np.quantile(column, [0.25, 0.5, 0.75])
        assert middle == pytest.approx(0, abs=1e-6)
        # the interquartile range of dependents is 0, so its deviation is the unit
        assert (high - low or column.std()) == pytest.approx(1, abs=1e-5)
    changed = {name: values.copy() for name, values in APPLICANTS.numbers.items()}
    changed["age"][1] = 1e6
    others = type(APPLICANTS)(changed, APPLICANTS.codes, APPLICANTS.creditworthy)
    assert np.array_equal(features_of(others, training)[training], features[training])


def test_a_constant_number_is_scaled_to_zero() -> None:
    constant = {name: np.full(1000, 4.0) for name in APPLICANTS.numbers}
    table = features_of(
        type(APPLICANTS)(constant, APPLICANTS.codes, APPLICANTS.creditworthy), np.arange(1000)
    )
    assert table[:, 4].tolist() == [0.0] * 1000


def test_categorical_features_are_one_hot(splits: DataSplits) -> None:
    data = splits.train
    assert data.features.shape[1] == 61
    for attribute, names in feature_columns(APPLICANTS).items():
        if attribute not in NUMERIC:
            columns = [data.feature_names.index(name) for name in names]
            assert set(data.features[:, columns].sum(axis=1).tolist()) == {1.0}


@pytest.mark.parametrize(
    ("group", "names", "sizes", "masked"),
    [
        ("purpose:A43", ("purpose:A43", "other"), [280, 720], "purpose"),
        ("purpose:A40,A41", ("purpose:A40,A41", "other"), [337, 663], "purpose"),
        ("purpose: A40, A41", ("purpose:A40,A41", "other"), [337, 663], "purpose"),
        ("housing", ("housing:A151", "housing:A152", "housing:A153"), [179, 713, 108], "housing"),
        ("age", ("age<=25", "age>25"), [190, 810], "age"),
        ("age:30,50", ("age<=30", "30<age<=50", "age>50"), [411, 476, 113], "age"),
        ("credit_amount:12500", ("credit_amount<=12500", "credit_amount>12500"), [982, 18], "credit_amount"),
        ("sex", ("male", "female"), [690, 310], "personal_status_sex"),
        ("foreign_worker", ("foreign worker", "not a foreign worker"), [963, 37], "foreign_worker"),
        ("foreign_worker:A201", ("foreign_worker:A201", "other"), [963, 37], "foreign_worker"),
    ],
)
def test_group_texts(group: str, names: tuple[str, ...], sizes: list[int], masked: str) -> None:
    assert np.bincount(groups_of(APPLICANTS, group).code).tolist() == sizes
    data = german_credit(group=group, queries=3).train
    assert data.group_names == names
    columns = [data.feature_names[column] for column in data.group_columns]
    assert columns == feature_columns(APPLICANTS)[masked]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("porpose:A43", "did you mean purpose"),
        ("height", "checking_status"),
        ("sex:male", "no such attribute"),
        ("purpose:A47", "A410"),
        ("purpose:", "no applicant has purpose ''"),
        ("telephone:A191,A192", "no applicant is left"),
        ("duration", "say where to cut"),
        ("age:young", "must be cut at numbers"),
        ("age:50,30", "must increase"),
        ("age:nan", "must increase"),
        ("age:10", "no applicant has age<=10: it runs from 19 to 75"),
        ("age:30,30.5", "no applicant has 30<age<=30.5"),
    ],
)
def test_unusable_groups_say_what_there_is(group: str, message: str) -> None:
    with pytest.raises(InputError, match="column 'group'") as caught:
        german_credit(group=group)
    assert message in str(caught.value)
    assert caught.value.value == group


def test_a_group_must_be_text() -> None:
    with pytest.raises(InputError, match="must be a text"):
        german_credit(group=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "column"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"queries": 0}, "queries"),
        ({"list_length": 0}, "list_length"),
        ({"relevant": 0}, "relevant"),
        ({"relevant": 21}, "relevant"),
        ({"relevant": True}, "relevant"),
        ({"list_length": 400, "relevant": 300}, "relevant"),
        ({"list_length": 150}, "list_length"),
    ],
)
def test_unusable_arguments_are_named(arguments: dict[str, int], column: str) -> None:
    with pytest.raises(InputError) as caught:
        german_credit(**arguments)  # type: ignore[arg-type]
    assert caught.value.column == column
    assert caught.value.value == arguments[column]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    queries=st.integers(1, 5),
    list_length=st.integers(1, 90),
    group=st.sampled_from(SOME_GROUPS),
    data=st.data(),
)
def test_any_shape_of_lists(
    seed: int, queries: int, list_length: int, group: str, data: st.DataObject
) -> None:
    relevant = data.draw(st.integers(1, list_length))
    for _, part in german_credit(seed, group, queries=queries, list_length=list_length, relevant=relevant):
        assert part.lengths.tolist() == [list_length] * queries
        assert relevance_of(part).reshape(queries, -1).sum(axis=1).tolist() == [relevant] * queries
        assert part.group.min() >= 0
