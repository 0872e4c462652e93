"""From logged positions to examination probabilities, and from clicks to IPS weights."""

from __future__ import annotations

from typing import Any

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
            "the log has neither propensities nor a position bias; give one ({position_bias}), or estimate it"
            " from the log",
            options=["position_bias"],
        )
    return bias.at(position)


def check_examined(clicks: NDArray[Any], propensity: NDArray[np.float64]) -> None:
    """Refuse clicks where nobody looks: either the bias or the depth of the page is wrong."""
    if ((clicks > 0) & (propensity <= 0)).any():
        problem = (
            "a click at a position that is never examined under this position bias; if pages are deeper than"
            " it says, give a larger {depth}, or another bias"
        )
        raise InputError(problem, column="position", options=["depth"])


def click_weights(
    clicks: NDArray[np.float64], propensity: NDArray[np.float64], clip: float | None
) -> NDArray[np.float64]:
    """Return clicks / propensity, the factor 1 / propensity being at most `clip` if that is given."""
    check_examined(clicks, propensity)
    if clip is not None:
        checked_number(clip, "clip", "must be 1 or more", lambda given: given >= 1)
    weights = np.divide(1.0, propensity, out=np.zeros_like(propensity), where=propensity > 0)
    return clicks * (weights if clip is None else np.minimum(weights, clip))
