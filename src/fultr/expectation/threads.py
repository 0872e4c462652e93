"""Running kernels over lists on several threads; results never depend on how many there are."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fultr.expectation.lanes import LANES

SHARES = 4
"""Parts of the work for each thread: the last lists are the longest, so equal shares take unequal times."""

Number = TypeVar("Number", bound=np.generic)


def over_threads(
    kernel: Callable[..., None], lists: NDArray[np.int64], threads: int, *arguments: Any
) -> None:
    """Call `kernel(some of the lists, *arguments)` on up to `threads` threads, no more than torch uses.

    A kernel runs without Python's lock and writes only to the rows of its own lists. Lists that it handles
    side by side stay together, so that they are the same ones whatever the number of threads. What takes
    longest, the last lists, comes first.
    """
    if not lists.size:
        return
    threads = min(threads, torch.get_num_threads())
    if threads <= 1:
        kernel(lists, *arguments)
        return
    blocks, shares = -(-lists.size // LANES), SHARES * threads
    cuts = [LANES * (blocks * number // shares) for number in range(1, shares)]
    waiting = iter([chunk for chunk in reversed(np.split(lists, cuts)) if chunk.size])

    def work() -> None:
        for chunk in waiting:
            kernel(chunk, *arguments)

    others = [_pool(threads).submit(work) for _ in range(threads - 1)]
    work()
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return threads that stay: a new one must get memory of its own, which can take longer than its work."""
    return ThreadPoolExecutor(threads, thread_name_prefix="fultr")


def _without_threads() -> None:
    """Work on one thread: a forked process has none of its parent's, for which torch would wait for ever."""
    _pool.cache_clear()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_without_threads)


def for_kernel(array: NDArray[Any], kind: type[Number]) -> NDArray[Number]:
    """Return what may go into a kernel, a copy if need be: each kind of array would be compiled anew.

    Kernels do not change what they are given, but a read-only array is of another kind.
    """
    return np.require(array, kind, ["C", "A", "W"])
