"""Click noise measured by intervention: items known to be irrelevant, planted into rankings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from fultr.arguments import checked_number
from fultr.click_model import PositionBias
from fultr.clicks.bias_cells import refuse_dropped
from fultr.data import ClickLog, Counts
from fultr.data.propensity import examination
from fultr.errors import InputError


@dataclass(frozen=True)
class NoiseEstimate:
    """eps_minus with its confidence interval, and what it was measured on."""

    eps_minus: float
    low: float
    high: float
    level: float
    planted: int
    clicks: int
    examined: float

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values."""
        return asdict(self)


def estimate_noise(
    log: ClickLog | Counts, bias: PositionBias | None = None, *, level: float = 0.95
) -> NoiseEstimate:
    """Estimate eps_minus from the clicks on planted items.

    A planted item at position k is clicked with probability v_k eps_minus, so that over all of them

        eps_minus = (number of clicks) / (sum of v_k).

    The interval is Wilson's: all eps for which C, the number of clicks, lies within z standard deviations of
    what eps makes one expect,

        (C - eps sum v_k)^2 <= z^2 sum eps v_k (1 - eps v_k),

    solved for eps; with all items at position 1 it is the usual Wilson interval of a proportion.

    Parameters
    ----------
    log
        A log with planted items, empty impressions kept.
    bias
        The examination probabilities; by default the log's own propensities or position bias.
    level
        The confidence level.
    """
    level = checked_number(level, "level", "must lie between 0 and 1", lambda given: 0 < given < 1)
    refuse_dropped(log)
    planted = log.compact().planted
    times, clicks = planted.impressions, int(planted.clicks.sum())
    v = examination(planted.position, planted.propensity, bias, log.position_bias)
    total, squares = float(times @ v), float(times @ v**2)
    if total == 0:
        raise InputError("the log has no planted item at a position that is examined", column="planted")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    # eps^2 (V^2 + z^2 V2) - eps (2 C V + z^2 V) + C^2 = 0
    square, linear = total**2 + z**2 * squares, 2 * clicks * total + z**2 * total
    half_width = np.sqrt(max(linear**2 - 4 * square * clicks**2, 0.0))
    return NoiseEstimate(
        eps_minus=min(clicks / total, 1.0),
        low=max(float(linear - half_width) / (2 * square), 0.0),
        high=min(float(linear + half_width) / (2 * square), 1.0),
        level=level,
        planted=int(times.sum()),
        clicks=clicks,
        examined=total,
    )
