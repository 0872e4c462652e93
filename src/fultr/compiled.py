"""How loops are compiled.

Kernels are compiled on first use and cached on disk: beside the source or, where that is read-only, in the
user's cache folder, so that a second process compiles nothing. Where neither can be written, or others could
write there too, each process compiles what it uses in memory: numba's cache is pickle, which runs what is in
it. A damaged file of the cache is compiled again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.core.event import Listener, install_listener

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

FUSED = {"contract", "nsz", "arcp"}
"""Lets a product and a sum be one instruction. Sums keep their order: where it is left to the compiler, a
process that compiles a kernel and one that loads it from the cache differ in the last digits."""


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop over arrays to machine code that runs without Python's lock."""
    return _compile(function)


def compiled_fused(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop over numbers, in which products and sums may be fused."""
    return _compile(function, fastmath=FUSED)


def part_of_kernel(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop that only kernels call, without what Python needs to call it."""
    return _compile(function, fastmath=FUSED, no_cpython_wrapper=True, cache=False)


def part_of_one_kernel(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop that is called in one place only, as if it stood there.

    Compiled by itself and again within its kernel, it would take twice as long.
    """
    return _compile(function, fastmath=FUSED, no_cpython_wrapper=True, cache=False, inline="always")


@contextmanager
def watched_compilation(report: Callable[[int], None]) -> Iterator[None]:
    """Call `report` with 1, 2, ... when a kernel begins to be compiled; one from the cache does not count."""
    listener = _Listener(report)
    with install_listener("numba:compile", listener):
        yield


class _Listener(Listener):
    """Counts the kernels that are compiled, without the functions that are compiled as parts of them."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self.report = report
        self.begun = self.depth = 0

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - the signature is numba's
        """Report the kernel."""
        if not self.depth:
            self.begun += 1
            self.report(self.begun)
        self.depth += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002 - the signature is numba's
        """Note that it is compiled."""
        self.depth -= 1


Cache: Any = FunctionCache
"""Numba's cache of a function, which has no types."""


class _TrustedCache(Cache):  # type: ignore[misc]
    """A cache that holds what this user has compiled; a file of it that is damaged counts as missing."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.is_private: bool | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a kernel of the cache, if it is there and whole."""
        if self._may_be_read():
            with suppress(Exception):  # unpickling what is damaged raises anything
                return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel, unless the disk is full, say; it is in memory anyway."""
        if not self._may_be_read():
            return
        try:
            super().save_overload(sig, data)
        except Exception:  # a damaged index, which is begun anew
            with suppress(Exception):
                self.flush()
                super().save_overload(sig, data)

    def _may_be_read(self) -> bool:
        if self.is_private is None:
            source = Path(self._py_func.__code__.co_filename)
            self.is_private = _is_private(Path(self.cache_path), source)
        return self.is_private


def _is_private(folder: Path, source: Path) -> bool:
    """Say whether nobody can write to a folder but this user, the system, and who can change the source."""
    try:
        about, owners = folder.stat(), {0, source.stat().st_uid}
    except OSError:
        return False
    if not hasattr(os, "getuid"):  # pragma: no cover  Windows, whose folders of users are theirs
        return True
    return about.st_uid in {*owners, os.getuid()} and not about.st_mode & stat.S_IWOTH


def _compile(function: Callable[Arguments, Result], **options: Any) -> Callable[Arguments, Result]:
    # dividing as numpy does, without looking out for zeros, is what lets loops with a division use vectors
    cached = options.pop("cache", True)
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **options}
    kernel: Any = numba.njit(**settings)(function)
    if cached:
        with suppress(RuntimeError):  # no folder that could keep what is compiled
            kernel._cache = _TrustedCache(function)
    return cast("Callable[Arguments, Result]", kernel)
