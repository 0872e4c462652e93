"""The one place that says how loops are compiled.

Kernels are compiled on first use and cached on disk beside the source (or in the user's cache
directory where that is read-only), so a second process compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compile a loop over arrays to machine code that runs without Python's lock."""
    return cast("Callable[Arguments, Result]", numba.njit(cache=True, nogil=True)(function))
