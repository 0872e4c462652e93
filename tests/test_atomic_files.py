"""Files are replaced as a whole or not at all, at whatever moment a process dies or a disk fills."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fultr import ClickLog, InputError, PositionBias, WriteError, read_log, write_log
from fultr.audits import audit, read_audit, write_audit
from fultr.files import (
    atomic_write,
    existing_file,
    make_folder,
    nearest_folder,
    writable_file,
    write_text,
    written_together,
)
from fultr.reports.runs import _digest
from tests.training_tasks import random_lists, random_log


class Killed(BaseException):
    """The process ends here: nothing that comes after is done."""


@pytest.fixture
def dies_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Let the k-th change of a name fail as if the process had been killed, and none after it be made."""
    steps = {"left": -1}
    real = {name: getattr(Path, name) for name in ("replace", "unlink")}

    def changed(name: str) -> Callable[..., object]:
        def change(path: Path, *arguments: object, **options: object) -> object:
            if steps["left"] == 0:
                raise Killed
            steps["left"] -= 1
            return real[name](path, *arguments, **options)

        return change

    def arm(step: int) -> None:
        steps["left"] = step

    for name in real:
        monkeypatch.setattr(Path, name, changed(name))
    yield arm
    monkeypatch.undo()


def two_logs() -> tuple[ClickLog, ClickLog]:
    """Return logs of the same queries whose features and clicks differ."""
    data = random_lists(seed=3)
    other = replace(data, features=data.features + np.float32(1))
    return random_log(data, seed=1), random_log(other, seed=2)


def is_same(found: ClickLog, log: ClickLog) -> bool:
    return bool(
        np.array_equal(found.click, log.click)
        and np.isclose(found.data.features.sum(), log.data.features.sum(), atol=1e-3)
        and len(found) == len(log)
    )


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_log_and_its_items_are_replaced_together_wherever_the_process_dies(
    tmp_path: Path, dies_at: Callable[[int], None], ending: str
) -> None:
    old, new = two_logs()
    ends = []
    for step in range(8):
        path = tmp_path / f"{step}" / f"log.{ending}"
        path.parent.mkdir()
        dies_at(-1)
        write_log(old, path)
        dies_at(step)
        try:
            write_log(new, path)
        except Killed:
            ends.append("killed")
        else:
            ends.append("done")
        dies_at(-1)
        found = read_log(path)
        assert is_same(found, old) or is_same(found, new)
        assert is_same(found, new) or ends[-1] == "killed"
        # the next run cleans up and replaces both again
        write_log(old, path)
        assert is_same(read_log(path), old)
        assert {one.name for one in path.parent.iterdir()} == {f"log.{ending}", f"log.items.{ending}"}
    assert ends[:3] == ["killed"] * 3
    assert ends[-1] == "done"


@pytest.mark.parametrize("failing", [1, 2])
def test_a_disk_that_fills_at_any_sync_leaves_the_old_log_and_its_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    old, new = two_logs()
    path = tmp_path / "log.parquet"
    write_log(old, path)
    fill_disk(monkeypatch, failing)
    with pytest.raises(WriteError, match="No space left"):
        write_log(new, path)
    monkeypatch.undo()
    assert is_same(read_log(path), old)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log.items.parquet", "log.parquet"]


def fill_disk(monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """Let the disk be full at the sync of this number."""
    calls = iter(range(1, 100))

    def sync(_handle: int) -> None:
        if next(calls) >= failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.slow
@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5])
def test_an_audit_on_a_full_disk_leaves_no_new_file_beside_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    old, new = (audit(log, position_bias=PositionBias.power(1.0), resamples=50) for log in two_logs())
    write_audit(old, tmp_path)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    assert len(before) == 5
    fill_disk(monkeypatch, failing)
    with pytest.raises(WriteError, match="No space left"):
        write_audit(new, tmp_path)
    monkeypatch.undo()
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before
    write_audit(new, tmp_path)
    assert read_audit(tmp_path / "audit.json").to_dict() == new.to_dict()


def test_files_written_together_wait_for_all_of_them(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), written_together():
        write_text(tmp_path / "first", "new")
        with written_together():
            write_text(tmp_path / "second", "new")
        assert not (tmp_path / "first").exists()
        assert not (tmp_path / "second").exists()
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with written_together():
        write_text(tmp_path / "first", "new")
        write_text(tmp_path / "second", "new")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["first", "second"]


def test_a_symbolic_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("there", "not-yet"):
        link, real = tmp_path / f"link-{name}", tmp_path / "inner" / name
        if name == "there":
            real.write_text("old")
        link.symlink_to(real)
        write_text(link, "new")
        assert link.is_symlink()
        assert real.read_text() == "new"
        assert not real.is_symlink()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="cannot be written"):
        write_text(loop, "new")
    astray = tmp_path / "astray"
    astray.symlink_to(tmp_path / "nowhere" / "file")
    with pytest.raises(InputError, match="its folder does not exist"):
        write_text(astray, "new")


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through the pipe")
    reader.join(timeout=10)
    assert read == ["through the pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]


def test_devices_are_written_to_and_a_full_one_is_a_write_error() -> None:
    before = Path("/dev/null").stat()
    write_text("/dev/null", "nothing")
    assert Path("/dev/null").stat().st_rdev == before.st_rdev
    with pytest.raises(WriteError, match="No space left"):
        write_text("/dev/full", "too much")


def test_standard_output_can_be_written_to_by_name(tmp_path: Path) -> None:
    code = "import fultr.files as f; print('before'); f.write_text('/dev/stdout', 'file'); print('after')"
    out = tmp_path / "out"
    with out.open("w") as opened:
        subprocess.run([sys.executable, "-c", code], stdout=opened, check=True)
    assert out.read_text().replace("\n", " ") == "before fileafter "
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert piped.stdout.split() == [b"before", b"fileafter"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_mode_of_an_existing_file_is_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "private"
    path.write_text("old")
    path.chmod(mode)
    with atomic_write(path) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == mode
        temporary.write_text("new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_new_files_follow_the_umask_which_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.delattr(os, "umask")  # other threads would make files with what it is for a moment
            write_text(tmp_path / "new", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    name = "result [1].txt"
    code = (
        "import os, sys; from fultr.files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as part: part.write_text('half'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=False)
    (stray,) = tmp_path.iterdir()
    assert stray.name.endswith(".part")
    (tmp_path / ".other.txt.12345678.part").write_text("of another file")
    write_text(tmp_path / name, "whole")
    assert sorted(one.name for one in tmp_path.iterdir()) == [".other.txt.12345678.part", name]


def test_what_another_run_is_writing_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    with atomic_write(path) as first:
        first.write_text("first")
        write_text(path, "second")
        assert first.exists()
    assert path.read_text() == "first"


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127])
def test_names_may_be_as_long_as_the_system_allows(tmp_path: Path, name: str) -> None:
    write_text(tmp_path / name, "long")
    assert (tmp_path / name).read_text() == "long"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("check", [writable_file, make_folder, existing_file, nearest_folder])
@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "\udcff.json"])
def test_impossible_names_are_refused_in_a_line(
    tmp_path: Path, check: Callable[[Path], Path], name: str
) -> None:
    with pytest.raises(InputError, match="File name too long|UTF-8") as refused:
        check(tmp_path / name)
    str(refused.value).encode()


def test_pipes_and_devices_are_not_read_as_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="a device or a pipe"):
            existing_file(name)
        assert _digest(name) is None  # of the inputs of a run, whose page once waited for the pipe


def test_files_that_were_never_begun_to_be_renamed_stay_the_old_ones(tmp_path: Path) -> None:
    """A process killed before all records of a set were written has changed nothing, whoever comes next."""
    names = ("a.json", "b.json", "c.json")
    renames = {f".{name}.{'0' * 8}.part": name for name in names}
    for temporary, name in renames.items():
        (tmp_path / name).write_text("old")
        (tmp_path / temporary).write_text("new")
    for name in names[:2]:
        (tmp_path / f".{name}.renames").write_text(json.dumps(renames))
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "a.json"):
        raise ZeroDivisionError
    assert [existing_file(tmp_path / name).read_text() for name in names] == ["old"] * 3
