"""From logged positions to examination probabilities, and from clicks to IPS weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import checked_number
from fultr.click_model import PositionBias
from fultr.errors import InputError

NOT_SHOWN = 0
"""The position of a candidate that was not shown; a null in files."""


def examination(
    position: NDArray[np.int32],
    propensity: NDArray[np.float64] | None,
    asked: PositionBias | None,
    carried: PositionBias | None,
) -> NDArray[np.float64]:
    """Return the examination probability of logged positions, 0 where nothing was shown.

    A position bias that is asked for comes first, then the propensities in the log, then the position bias
    that the log carries. With none of them there is nothing to weigh clicks by: an error.
    """
    if asked is None and propensity is not None:
        return np.where(position == NOT_SHOWN, 0.0, propensity)
    bias = asked if asked is not None else carried
    if bias is None:
        raise InputError(
            "the log has neither propensities nor a position bias; give one, such as"
            " position_bias=PositionBias.power(1.0), or estimate it from the log"
        )
    return bias.at(position)


def click_weights(
    clicks: NDArray[np.float64], propensity: NDArray[np.float64], clip: float | None
) -> NDArray[np.float64]:
    """Return clicks / propensity, the factor 1 / propensity being at most `clip` if that is given."""
    impossible = np.flatnonzero((clicks > 0) & (propensity <= 0))
    if impossible.size:
        problem = "a click at a position that is never examined under this position bias"
        raise InputError(problem, row=impossible[0] + 1, column="position")
    if clip is not None:
        checked_number(clip, "clip", "must be 1 or more", lambda given: given >= 1)
    weights = np.divide(1.0, propensity, out=np.zeros_like(propensity), where=propensity > 0)
    return clicks * (weights if clip is None else np.minimum(weights, clip))
