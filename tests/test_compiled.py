"""Where compiled kernels are kept: beside the source, in the user's cache folder, or in memory alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
