"""Where commands run: read-only installs, no home, full disks, little memory, closed pipes, threads."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import fultr
from fultr.cli.main import run as command_here
from tests.training_tasks import random_lists, random_log

SOURCE = Path(fultr.__file__).parents[1]
LOG = "log.parquet"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments")
    fultr.write_log(
        random_log(random_lists(lists=40, longest=6, seed=3), impressions=4000, seed=1), folder / LOG
    )
    return folder / LOG


def run(log: Path, *words: object, code: str = "", **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    start = "import sys; from fultr.cli.main import main; " + code + "main()"
    command = [sys.executable, "-W", "ignore", "-c", start, *map(str, words)]
    made = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": log.parent, **options}
    return subprocess.run(command, check=False, **made)  # type: ignore[call-overload, no-any-return]


def environment(**changes: str | None) -> dict[str, str]:
    """Return the variables of this process with some changed, and some taken away."""
    both = {**os.environ, "PYTHONPATH": str(SOURCE), **changes}
    return {name: value for name, value in both.items() if value is not None}


def no_home(folder: Path) -> dict[str, str]:
    return environment(HOME=None, XDG_CACHE_HOME=None)


def no_folder_for_kernels(folder: Path) -> dict[str, str]:
    """Neither the install nor the home can be written to: what numba asks for is a file there."""
    (folder / "file").write_text("")
    return environment(
        HOME=str(folder / "file"), XDG_CACHE_HOME=str(folder / "file"), NUMBA_CACHE_DIR="/proc/none"
    )


def plain_language(folder: Path) -> dict[str, str]:
    return environment(LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")


def dumb_terminal(folder: Path) -> dict[str, str]:
    return environment(TERM="dumb", COLUMNS="0")


@pytest.mark.slow
@pytest.mark.parametrize("made", [no_home, no_folder_for_kernels, plain_language, dumb_terminal])
def test_an_audit_is_the_same_in_any_environment(
    tmp_path: Path, log: Path, made: Callable[[Path], dict[str, str]]
) -> None:
    done = run(log, "audit", LOG, "--eta", 1, "--json", env=made(tmp_path), stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    with contextlib.redirect_stdout(io.StringIO()) as here:
        assert command_here(["audit", str(log), "--eta", "1", "--json"]) == 0
    assert json.loads(done.stdout)["rankings"] == json.loads(here.getvalue())["rankings"]


@pytest.mark.slow
def test_text_that_the_terminal_cannot_show_is_no_failure(tmp_path: Path, log: Path) -> None:
    name = tmp_path / "Zürich 日本.parquet"
    name.write_bytes(log.read_bytes())
    done = run(
        log, "inspect", name, "--column", "group=Größe", env=plain_language(tmp_path), errors="replace"
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_pipe_that_nobody_reads_is_no_failure(log: Path, closed: str) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = run(log, "count", LOG, "--json", "--out", "counts.parquet", env=environment(), **{closed: theirs})  # type: ignore[arg-type]
    os.close(theirs)
    assert done.returncode in (0, 1)
    assert "internal" not in f"{done.stdout}{done.stderr}"
    assert "Traceback" not in f"{done.stdout}{done.stderr}"


def limited(kind: int, size: int) -> str:
    return f"import resource; resource.setrlimit({int(kind)}, ({size}, {size})); "


WRITING = {
    "convert": ("convert", LOG, "out.csv"),
    "count": ("count", LOG, "--out", "counts.parquet"),
    "audit": ("audit", LOG, "--eta", "1", "--out", "audit"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITING)
def test_a_disk_that_is_full_is_said_in_a_line_and_leaves_nothing(log: Path, name: str) -> None:
    code = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " + limited(
        resource.RLIMIT_FSIZE, 500
    )
    before = sorted(path.name for path in log.parent.iterdir())
    done = run(log, *WRITING[name], code=code, env=environment())
    assert done.returncode == 1, done.stderr
    assert "cannot be written: File too large" in done.stderr.splitlines()[-1]
    left = sorted(path.name for path in log.parent.rglob("*") if path.is_file())
    assert left == before


@pytest.mark.slow
def test_too_little_memory_is_said_in_a_line(log: Path) -> None:
    wide = log.parent / "wide.txt"
    wide.write_text(
        "1 qid:1 " + " ".join(f"{k}:1" for k in range(1, 200_001)) + "\n" + "0 qid:1 1:1\n" * 3000
    )
    code = "import numba, torch, polars; " + limited(resource.RLIMIT_DATA, 1_500_000_000)
    done = run(log, "inspect", wide, code=code, env=environment())
    assert done.returncode in (1, 2), done.stderr
    assert "memory" in done.stderr or "GB" in done.stderr
    assert "internal" not in done.stderr


def test_threads_may_write_at_once(tmp_path: Path, log: Path) -> None:
    """Each thread writes files that belong together; those of others are none of its concern."""
    made = fultr.read_log(log)
    names = [tmp_path / f"{number}.parquet" for number in range(4)]
    threads = [threading.Thread(target=fultr.write_log, args=(made, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        assert (fultr.read_log(name).click == made.click).all()
    assert len(list(tmp_path.iterdir())) == 8
