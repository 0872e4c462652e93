"""The one door of the command line to all datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fultr.data import RankingDataset
from fultr.data.dataset_files import write_dataset
from fultr.datasets import german_credit, load_dataset, mslr, studios, synthetic
from fultr.errors import InputError
from tests.mslr_folder import made_up_query, write_fold, write_queries


def same(first: RankingDataset, second: RankingDataset) -> bool:
    return (
        first.source == second.source
        and first.group_names == second.group_names
        and np.array_equal(first.features, second.features)
        and np.array_equal(first.group, second.group)
    )


def test_german_takes_a_split_a_seed_and_a_group() -> None:
    assert same(load_dataset("german"), german_credit(0).train)
    assert same(load_dataset("german", split="test", seed=4, group="sex"), german_credit(4, "sex").test)


def test_studios() -> None:
    assert same(load_dataset("studios"), studios())
    assert same(load_dataset("studios", seed=3), studios())


def test_synthetic_takes_a_split_a_seed_and_a_number_of_groups() -> None:
    assert same(load_dataset("synthetic", split="valid"), synthetic().valid)
    assert same(load_dataset("synthetic", split="test", seed=2, groups=3), synthetic(seed=2, groups=3).test)


def test_mslr_takes_a_folder_and_a_number_of_groups(tmp_path: Path) -> None:
    fold = write_fold(tmp_path / "Fold1")
    assert same(load_dataset(f"mslr:{fold}"), mslr(fold).train)
    assert same(load_dataset(f"mslr:{tmp_path}", split="valid", groups=3), mslr(fold, groups=3).valid)
    with pytest.raises(InputError, match="no such folder"):
        load_dataset(f"mslr:{tmp_path / 'nowhere'}")


@pytest.mark.parametrize("ending", [".txt", ".svm", ".letor", ".dat", ".TXT"])
def test_letor_files_keep_their_judgments(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"judged{ending}"
    judgments, features = made_up_query(np.random.default_rng(0))
    write_queries(path, {5: (judgments, features)})
    for source in (path, str(path)):
        data = load_dataset(source)
        assert data.relevance is not None
        assert data.relevance.tolist() == judgments.tolist()


def test_tables_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("query_id,relevance,group,price\n1,0,new,2.5\n1,1,old,3.5\n", encoding="ascii")
    data = load_dataset(path)
    assert data.features.ravel().tolist() == [2.5, 3.5]
    assert data.group_names == ("new", "old")


@pytest.mark.parametrize("ending", [".arrow", ".parquet"])
def test_converted_files(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"films{ending}"
    write_dataset(studios(films=2), path)
    data = load_dataset(path)
    assert np.array_equal(data.features, studios(films=2).features)
    assert data.group_names == ("studio 1", "studio 2", "studio 3")


@pytest.mark.parametrize(
    ("source", "arguments", "column"),
    [
        ("german", {"groups": 2}, "groups"),
        ("synthetic", {"group": "age"}, "group"),
        ("mslr:somewhere", {"group": "age"}, "group"),
        ("studios", {"group": "age"}, "group"),
        ("studios", {"groups": 3}, "groups"),
        ("studios", {"split": "train"}, "split"),
        ("some.txt", {"split": "test"}, "split"),
        ("some.parquet", {"groups": 2}, "groups"),
        ("german", {"split": "dev"}, "split"),
    ],
)
def test_arguments_that_a_source_cannot_follow_are_refused(
    source: str, arguments: dict[str, Any], column: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_dataset(source, **arguments)
    assert caught.value.column == column
    assert caught.value.value == arguments[column]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("germam", "did you mean german"),
        ("GERMAN", "There are: german, studios, synthetic, mslr:FOLDER, or the path of a file"),
        ("mslr", "mslr:FOLDER"),
        ("mslr:", "mslr:FOLDER"),
        ("", "no such dataset"),
    ],
)
def test_unknown_names_list_the_known_ones(source: str, message: str) -> None:
    with pytest.raises(InputError, match="no such dataset") as caught:
        load_dataset(source)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["missing.txt", "missing.parquet", "missing.xlsx", "folder/missing"])
def test_missing_files_are_said_to_be_missing(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_dataset(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        load_dataset(name)


def test_files_of_another_kind_and_folders(tmp_path: Path) -> None:
    (tmp_path / "table.xlsx").write_text("?")
    with pytest.raises(InputError, match=r"must end in one of: \.txt"):
        load_dataset(tmp_path / "table.xlsx")
    with pytest.raises(InputError, match=r"is a folder; for a fold of MSLR write mslr:"):
        load_dataset(tmp_path)
