"""Where compiled kernels are kept: beside the source, in the user's cache folder, or in memory alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator

from fultr.compiled import compiled, watched_compilation

CALL = """
import numpy as np
from fultr.expectation import expected_weights
import torch
scores, tables = torch.zeros(3, dtype=torch.float64), np.array([[1.0, 2.0, 3.0]])
found = expected_weights(scores, tables, offsets=np.array([0, 3]))
assert found.tolist() == [[2.0, 2.0, 2.0]], found
"""


def refuse(_: object) -> None:
    raise OSError("read-only")


def locators_of(monkeypatch: pytest.MonkeyPatch, *, home: bool) -> object:
    """Return where a kernel is cached if the folder of the install is read-only, and perhaps the home too."""
    monkeypatch.setattr(UserProvidedCacheLocator, "from_function", lambda *_: None)
    monkeypatch.setattr(InTreeCacheLocator, "ensure_cache_path", refuse)
    if not home:
        monkeypatch.setattr(UserWideCacheLocator, "ensure_cache_path", refuse)

    @compiled
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    return getattr(getattr(double, "_cache", None), "_impl", None)


def test_kernels_of_a_read_only_install_are_cached_for_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = locators_of(monkeypatch, home=True)
    assert isinstance(getattr(found, "locator", None), UserWideCacheLocator)
    assert list((tmp_path / "cache").rglob("*.nbi"))


@pytest.fixture
def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Return a function whose kernel is cached in a folder of its own."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "kernels.py"
    source.write_text("def double(number):\n    return 2 * number\n")
    made: dict[str, Any] = {"__name__": __name__}
    exec(compile(source.read_text(), source, "exec"), made)  # a file is what numba asks for
    found: Callable[[int], int] = made["double"]
    return found


def kernels_compiled(function: Callable[[int], int]) -> int:
    """Call a function as a new process would, and return how many kernels that compiles."""
    reported: list[int] = []
    with watched_compilation(reported.append):
        assert compiled(function)(4) == 8
    return len(reported)


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda _: b"", lambda data: b"\xff" + data[1:]])
def test_damaged_files_of_the_cache_are_compiled_again(
    tmp_path: Path, function: Callable[[int], int], ending: str, damage: Callable[[bytes], bytes]
) -> None:
    assert [kernels_compiled(function) for _ in range(2)] == [1, 0]
    (file,) = (tmp_path / "cache").rglob(f"*.{ending}")
    file.write_bytes(damage(file.read_bytes()))
    assert [kernels_compiled(function) for _ in range(2)] == [1, 0]


def test_a_cache_that_anyone_can_write_to_is_not_used(tmp_path: Path, function: Callable[[int], int]) -> None:
    assert kernels_compiled(function) == 1
    (file,) = (tmp_path / "cache").rglob("*.nbi")
    file.parent.chmod(0o777)
    assert [kernels_compiled(function) for _ in range(2)] == [1, 1]
    file.parent.chmod(0o755)
    assert kernels_compiled(function) == 0


def test_without_any_folder_kernels_are_compiled_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert locators_of(monkeypatch, home=False) is None


@pytest.mark.slow
def test_without_any_folder_the_package_works() -> None:
    no_folder = "from numba.core.caching import CacheImpl\nCacheImpl._locator_classes = []\n"
    done = subprocess.run([sys.executable, "-c", no_folder + CALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_kernels_are_reported_as_they_are_compiled_and_their_parts_are_not() -> None:
    @compiled
    def part(number: int) -> int:
        return number + 1

    @compiled
    def kernel(number: int) -> int:
        return 2 * part(number)

    reported: list[int] = []
    with watched_compilation(reported.append):
        assert kernel(1) == 4
        assert kernel(2) == 6
        assert reported == [1]
        assert kernel(0.5) == 3.0  # type: ignore[arg-type]
    assert reported == [1, 2]
    assert kernel(True) == 4
    assert reported == [1, 2]
