"""Running kernels over lists on several threads; results never depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fultr.expectation.lanes import LANES

Number = TypeVar("Number", bound=np.generic)


def over_threads(
    kernel: Callable[..., None], lists: NDArray[np.int64], threads: int, *arguments: Any
) -> None:
    """Call `kernel(some of the lists, *arguments)` on up to `threads` threads, no more than torch uses.

    A kernel runs without Python's lock and writes only to the rows of its own lists. Lists that it handles
    side by side stay together, so that they are the same ones whatever the number of threads.
    """
    if not lists.size:
        return
    threads = min(threads, torch.get_num_threads())
    if threads <= 1:
        kernel(lists, *arguments)
        return
    blocks = -(-lists.size // LANES)
    cuts = [LANES * (blocks * number // threads) for number in range(1, threads)]
    parts = [part for part in np.split(lists, cuts) if part.size]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(kernel, part, *arguments) for part in parts]:
            done.result()


def own_copy(array: NDArray[Any], kind: type[Number]) -> NDArray[Number]:
    """Copy what goes into a kernel: for a read-only or strided array it would be compiled once more."""
    return np.array(array, dtype=kind, order="C")
