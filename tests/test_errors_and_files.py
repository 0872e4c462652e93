from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from fultr import FultrError, InputError, WriteError
from fultr.files import atomic_write, existing_file


def test_input_error_says_where_and_what() -> None:
    error = InputError("is wrong", file="log.csv", row=7, column="click", value=np.int64(3))
    assert str(error) == "log.csv, row 7, column 'click': is wrong (got 3)"
    assert isinstance(error, ValueError)
    assert isinstance(error, FultrError)


def test_input_error_is_one_short_line() -> None:
    error = InputError("has\na newline", value="x" * 500)
    assert "\n" not in str(error)
    assert len(str(error)) < 100


def test_located_error_keeps_what_it_knew() -> None:
    error = InputError("is wrong", row=3, column="v_2", value=-1.0).located("bias.json")
    assert str(error) == "bias.json, row 3, column 'v_2': is wrong (got -1.0)"


def test_atomic_write_replaces_only_when_all_went_well(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_write(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    with atomic_write(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["result.txt"]


def test_atomic_write_makes_files_as_readable_as_others(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with atomic_write(tmp_path / "atomic") as temporary:
        temporary.write_text("")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "atomic")}
    assert len(modes) == 1


def test_a_failing_disk_is_a_write_error(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No space left"), atomic_write(tmp_path / "x") as temporary:
        assert temporary.exists()
        raise OSError(28, os.strerror(28))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["missing/x", "."])
def test_impossible_targets_are_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match="cannot be written"), atomic_write(tmp_path / path):
        pass


def test_existing_file_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, problem in (("nothing", "no such file"), ("empty", "is empty"), (".", "is a folder")):
        with pytest.raises(InputError, match=problem):
            existing_file(tmp_path / name)
