"""Click noise measured by intervention: items known to be irrelevant, planted into rankings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import checked_number
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks.bias_cells import check_empties_kept
from fultr.data import Cells, ClickLog, Counts
from fultr.data.propensity import examination
from fultr.errors import InputError


@dataclass(frozen=True)
class PlantedClicks:
    """eps_minus with its confidence interval, and the planted items it was measured on.

    `examined` is the sum of their examination probabilities.
    """

    eps_minus: float
    low: float
    high: float
    planted: int
    clicks: int
    examined: float


@dataclass(frozen=True)
class NoiseEstimate(PlantedClicks):
    """eps_minus from all planted items and, if asked for, from those at each position.

    Parameters
    ----------
    level
        The confidence level of each interval.
    positions
        The estimate of each position that planted items were examined at; empty if not asked for.
    """

    level: float
    positions: dict[int, PlantedClicks]

    def to_click_noise(self, eps_plus: float = 1.0) -> ClickNoise:
        """Return the noise, by position if it was estimated so.

        eps_minus of a position without planted items lies on the line between those of its neighbours; before
        the first and after the last position with any, it is theirs.
        """
        if not self.positions:
            return ClickNoise(eps_plus, self.eps_minus)
        measured = [*self.positions]
        values = [one.eps_minus for one in self.positions.values()]
        return ClickNoise(eps_plus, np.interp(np.arange(1, measured[-1] + 1), measured, values).tolist())

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values; `positions` is left out where there are none."""
        content = asdict(self)
        of_positions = content.pop("positions")
        rows = [{"position": position, **one} for position, one in of_positions.items()]
        return {**content, **({"positions": rows} if rows else {})}


def estimate_noise(
    log: ClickLog | Counts,
    bias: PositionBias | None = None,
    *,
    level: float = 0.95,
    by_position: bool = False,
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
    by_position
        Whether to estimate eps_minus of each position as well, from the items planted there: people who trust
        the first positions click more by mistake there (trust bias).
    """
    level = checked_number(level, "level", "must lie between 0 and 1", lambda given: 0 < given < 1)
    check_empties_kept(log)
    planted = log.compact().planted
    v = examination(planted.position, planted.propensity, bias, log.position_bias)
    if not (planted.impressions @ v) > 0:
        raise InputError("the log has no planted item at a position that is examined", column="planted")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    measured = np.unique(planted.position[(v > 0) & (planted.impressions > 0)]).tolist()
    there = {position: planted.position == position for position in measured} if by_position else {}
    return NoiseEstimate(
        **asdict(_measured(planted, v, z)),
        level=level,
        positions={position: _measured(planted[at], v[at], z) for position, at in there.items()},
    )


def _measured(planted: Cells, v: NDArray[np.float64], z: float) -> PlantedClicks:
    """Return eps_minus of some planted items, with Wilson's interval for a normal quantile z."""
    times, clicks = planted.impressions, int(planted.clicks.sum())
    total, squares = float(times @ v), float(times @ v**2)
    # eps^2 (V^2 + z^2 V2) - eps (2 C V + z^2 V) + C^2 = 0
    square, linear = total**2 + z**2 * squares, 2 * clicks * total + z**2 * total
    half_width = np.sqrt(max(linear**2 - 4 * square * clicks**2, 0.0))
    return PlantedClicks(
        eps_minus=min(clicks / total, 1.0),
        low=max(float(linear - half_width) / (2 * square), 0.0),
        high=min(float(linear + half_width) / (2 * square), 1.0),
        planted=int(times.sum()),
        clicks=clicks,
        examined=total,
    )
