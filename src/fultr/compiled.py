"""The one place that says how loops are compiled.

Kernels are compiled on first use and cached on disk beside the source (or in the user's cache
directory where that is read-only), so a second process compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

REORDERED = {"reassoc", "contract", "nsz", "arcp"}
"""Lets sums and products be formed in whatever order suits the machine."""


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop over arrays to machine code that runs without Python's lock."""
    return _compile(function)


def compiled_reordered(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop over numbers whose order does not matter, such as a sum or a product."""
    return _compile(function, fastmath=REORDERED)


def part_of_kernel(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop, in any order, that only kernels call; without what Python needs to call it."""
    return _compile(function, fastmath=REORDERED, no_cpython_wrapper=True, cache=False)


def part_of_one_kernel(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop that is called in one place only, as if it stood there.

    Compiled by itself and again within its kernel, it would take twice as long.
    """
    return _compile(function, fastmath=REORDERED, no_cpython_wrapper=True, cache=False, inline="always")


def _compile(function: Callable[Arguments, Result], **options: Any) -> Callable[Arguments, Result]:
    # dividing as numpy does, without looking out for zeros, is what lets loops with a division use vectors
    settings = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **options}
    made = numba.njit(**settings)(function)
    return cast("Callable[Arguments, Result]", made)
