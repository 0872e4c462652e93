"""Commands that are killed at any change of a file leave the old result or the new."""

from __future__ import annotations

from pathlib import Path

import pytest

from fultr.files import existing_file, write_text, written_together
from tests.fuzz.kills import CASES, Killed, check_kill, killed_at, names_in, prepared

STRIDES = {"audit": 8, "reproduce": 20}
"""How far apart the changes are that are tried, where drawing pictures takes long."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_killed_command_leaves_the_old_or_the_new_and_the_next_run_no_strays(
    tmp_path: Path, name: str
) -> None:
    seen = prepared(CASES[name], tmp_path)
    step, stride = 0, STRIDES.get(name, 1)
    while check_kill(CASES[name], seen, tmp_path, step):
        step += stride
    assert step >= 3


def both(folder: Path, text: str) -> None:
    with written_together():
        for name in ("first", "second"):
            write_text(folder / name, text)


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_files_that_belong_together_are_read_as_such_in_any_order(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    for step in range(40):
        folder = tmp_path / str(step)
        folder.mkdir()
        both(folder, "old")
        try:
            with killed_at(step):
                both(folder, "new")
        except Killed:
            assert len({existing_file(folder / name).read_text() for name in order}) == 1
            both(folder, "newer")
            assert sorted(path.name for path in folder.iterdir()) == ["first", "second"]
        else:
            return
    pytest.fail("it never ended")


def test_a_record_of_renames_that_somebody_made_up_moves_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / ".target.12345678.part").write_text("half")
    for content in (
        '{"../other/.target.12345678.part": "target"}',
        '{"/etc/passwd": "target"}',
        '{"secret": "target"}',
        '{".target.12345678.part": "../other/target"}',
        '{".target.12345678.part": 1}',
        '{"\\u0000": ""}',
        "[" * 100_000,
        "[]",
        "",
    ):
        (tmp_path / "target").write_text("old")
        (tmp_path / "secret").write_text("secret")
        (tmp_path / ".target.renames").write_text(content)
        assert existing_file(tmp_path / "target").read_text() == "old"
        write_text(tmp_path / "target", "new")
        assert names_in(tmp_path) == ["other", "other/.target.12345678.part", "secret", "target"]


def test_a_file_that_was_written_since_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    both(tmp_path, "old")
    for step in range(40):
        with pytest.raises(Killed), killed_at(step):
            both(tmp_path, "new")
        if len(list(tmp_path.glob("*.renames"))) + len(list(tmp_path.glob(".*.renames"))) == 2:
            break
    (tmp_path / "second").write_text("by hand")
    assert existing_file(tmp_path / "second").read_text() == "by hand"
