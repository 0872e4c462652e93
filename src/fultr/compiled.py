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


def _compile(function: Callable[Arguments, Result], **options: Any) -> Callable[Arguments, Result]:
    # dividing as numpy does, without looking out for zeros, is what lets loops with a division use vectors
    settings = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **options}
    made = numba.njit(**settings)(function)
    return cast("Callable[Arguments, Result]", made)
