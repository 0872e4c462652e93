"""The one place that says how loops are compiled.

Kernels are compiled on first use and cached on disk: beside the source or, where that is read-only, in the
user's cache folder, so that a second process compiles nothing. Where neither can be written, each process
compiles what it uses in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

import numba
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


def _compile(function: Callable[Arguments, Result], **options: Any) -> Callable[Arguments, Result]:
    # dividing as numpy does, without looking out for zeros, is what lets loops with a division use vectors
    settings = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **options}
    try:
        made = numba.njit(**settings)(function)
    except RuntimeError:  # no folder that could keep what is compiled
        made = numba.njit(**{**settings, "cache": False})(function)
    return cast("Callable[Arguments, Result]", made)
