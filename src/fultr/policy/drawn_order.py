"""One ranking of one list, drawn from Plackett-Luce with numpy alone, by the Gumbel top-k trick.

Adding independent Gumbel noise to scores and sorting is the same as drawing items one after another without
replacement from the softmax of their scores:

    ranking = argsort of -(h_j - log(E_j)),    E_j ~ Exp(1) independently.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Seed = int | str | bytes

_FRESH = np.random.default_rng()


def drawn_order(scores: Array, seed: Seed | None = None) -> NDArray[np.intp]:
    """Return the items, from 0 and best first, of a ranking drawn from Plackett-Luce.

    Parameters
    ----------
    scores
        A finite score for each item.
    seed
        The same seed and scores give the same ranking; None draws afresh.
    """
    return order_of_arrival(scores, waiting_times(scores.size, seed))


def order_of_arrival(scores: Array, times: Array) -> NDArray[np.intp]:
    """Return items in the order of log(E_j) - h_j, where `times` are the E_j."""
    keys = np.log(times)
    keys -= scores
    return keys.argsort()


def waiting_times(items: int, seed: Seed | None = None) -> Array:
    """Return independent draws from Exp(1).

    With a seed they are made of the digits of SHAKE-128 of it, which are as good as random for any two seeds,
    of any length, and are the same on every machine.
    """
    if seed is None:
        return _FRESH.standard_exponential(items)
    given = seed if isinstance(seed, bytes) else str(seed).encode()
    digits = np.frombuffer(hashlib.shake_128(given).digest(8 * items), "<u8")
    # uniform in (0, 1): 53 bits, and half a unit so that neither end is met
    waiting: Array = -np.log((digits >> np.uint64(11)) * 2.0**-53 + 2.0**-54)
    return waiting
