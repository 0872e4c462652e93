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

    A given position bias comes first, then the propensities in the log, then the position bias that the log
    carries. Without any of them, clicks cannot be weighted: an error.
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


LEAST_PROPENSITY = 1e-12
"""The rarest examination that a click is weighed by; no log has as many impressions as such a weight."""


def check_examined(clicks: NDArray[Any], propensity: NDArray[np.float64], clip: float | None = None) -> None:
    """Refuse clicks where nobody looks, or next to nobody: the bias or the depth is wrong."""
    if ((clicks > 0) & (propensity <= 0)).any():
        problem = (
            "a click at a position that is never examined under this position bias; if pages are deeper than"
            " it says, give a larger {depth}, or another bias"
        )
        raise InputError(problem, column="position", options=["depth"])
    rare = (clicks > 0) & (propensity < LEAST_PROPENSITY)
    if clip is None and rare.any():
        problem = (
            f"a click at a position examined with probability {propensity[rare].min():.3g} would count"
            f" as more than {1 / LEAST_PROPENSITY:g} clicks; look at the position bias or the propensities"
        )
        raise InputError(problem, column="propensity")


def click_weights(
    clicks: NDArray[np.float64], propensity: NDArray[np.float64], clip: float | None
) -> NDArray[np.float64]:
    """Return clicks / propensity, the factor 1 / propensity being at most `clip` if that is given."""
    check_examined(clicks, propensity, clip)
    if clip is not None:
        checked_number(clip, "clip", "must be 1 or more", lambda given: given >= 1)
    seen = np.maximum(propensity, LEAST_PROPENSITY)  # rarer ones have no click, or are clipped
    weights = np.divide(1.0, seen, out=np.zeros_like(seen), where=propensity > 0)
    return clicks * (weights if clip is None else np.minimum(weights, clip))
