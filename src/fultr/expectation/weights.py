"""Position weights: what it is worth to stand at position k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.click_model import PositionBias
from fultr.errors import InputError


def dcg_weights(longest: int, top_k: int | None = None) -> NDArray[np.float64]:
    """Return 1 / log2(1 + k) for k = 1, ..., longest, and 0 beyond `top_k`."""
    return _cut(1 / np.log2(1 + _positions(longest)), top_k)


def average_rank_weights(longest: int) -> NDArray[np.float64]:
    """Return -k for k = 1, ..., longest."""
    return -_positions(longest)


def examination_weights(bias: PositionBias, longest: int, top_k: int | None = None) -> NDArray[np.float64]:
    """Return the examination probabilities v_k for k = 1, ..., longest, and 0 beyond `top_k`."""
    return _cut(bias.curve(longest)[1:], top_k)


def _positions(longest: int) -> NDArray[np.float64]:
    if longest < 1:
        raise InputError("must be 1 or more", column="longest", value=longest)
    return np.arange(1, longest + 1, dtype=np.float64)


def _cut(weights: NDArray[np.float64], top_k: int | None) -> NDArray[np.float64]:
    if top_k is not None and top_k < 1:
        raise InputError("must be 1 or more", column="top_k", value=top_k)
    return weights if top_k is None else np.where(np.arange(weights.size) < top_k, weights, 0.0)
