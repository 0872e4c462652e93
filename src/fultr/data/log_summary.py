"""What a click log holds, from counts by group and position instead of its entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.click_model import ClickNoise, PositionBias
from fultr.data.click_log import ClickLog
from fultr.data.compact_log import CompactLog
from fultr.data.dataset import RankingDataset, named_groups
from fultr.data.ids import UNKNOWN_GROUP
from fultr.data.propensity import NOT_SHOWN


@dataclass(frozen=True, eq=False)
class LogTotals:
    """Counts of a log.

    `shown` and `clicks` are groups x positions, the unknown group the last; position 0 is for entries that
    were not shown. `lists_shown` says of each list of the data whether it was shown.
    """

    impressions: int
    clicked: int
    lists_shown: NDArray[np.bool_]
    shown: NDArray[np.int64]
    clicks: NDArray[np.int64]
    planted: int
    planted_clicks: int

    @classmethod
    def of(cls, log: ClickLog) -> LogTotals:
        """Count the entries of a log, or of a part of one."""
        group = log.data.group[log.row_of_entry]
        lists_shown = np.zeros(len(log.data), dtype=np.bool_)
        lists_shown[log.lists] = True
        positions = int(log.position.max(initial=NOT_SHOWN)) + 1
        return cls(
            impressions=len(log),
            clicked=int(log.clicked.sum()),
            lists_shown=lists_shown,
            shown=_by_group(log.data, group, log.position, positions),
            clicks=_by_group(log.data, group[log.click], log.position[log.click], positions),
            planted=len(log.planted),
            planted_clicks=int(log.planted.click.sum()),
        )

    @classmethod
    def of_compact(cls, log: CompactLog) -> LogTotals:
        """Count the cells of a compacted log."""
        group, position = log.data.group[log.cells.row], log.cells.position
        positions = int(position.max(initial=NOT_SHOWN)) + 1
        entries = np.bincount(
            log.data.group % (len(log.data.group_names) + 1),
            weights=np.repeat(log.impressions, log.data.lengths),
            minlength=len(log.data.group_names) + 1,
        ).astype(np.int64)
        shown = _by_group(log.data, group, position, positions, log.cells.impressions)
        shown[:, NOT_SHOWN] = entries - shown.sum(axis=1)
        return cls(
            impressions=int(log.impressions.sum()),
            clicked=int(log.least_clicked_impressions().sum()),
            lists_shown=log.impressions > 0,
            shown=shown,
            clicks=_by_group(log.data, group, position, positions, log.cells.clicks),
            planted=int(log.planted.impressions.sum()),
            planted_clicks=int(log.planted.clicks.sum()),
        )

    def __add__(self, more: LogTotals) -> LogTotals:
        """Return the totals of two parts of a log over the same lists."""
        return LogTotals(
            impressions=self.impressions + more.impressions,
            clicked=self.clicked + more.clicked,
            lists_shown=self.lists_shown | more.lists_shown,
            shown=_added(self.shown, more.shown),
            clicks=_added(self.clicks, more.clicks),
            planted=self.planted + more.planted,
            planted_clicks=self.planted_clicks + more.planted_clicks,
        )

    def describe(
        self,
        data: RankingDataset,
        *,
        position_bias: PositionBias | None,
        noise: ClickNoise | None,
        empties_dropped: bool,
        propensity_column: bool,
    ) -> dict[str, Any]:
        """Return what `ClickLog.describe` returns for the whole log."""
        shown, clicks = self.shown.copy(), self.clicks.sum(axis=0)
        shown[:, NOT_SHOWN] = 0
        shown_at = shown.sum(axis=0)
        return {
            "source": data.source,
            "impressions": self.impressions,
            "impressions_without_click": self.impressions - self.clicked,
            "empties_dropped": empties_dropped,
            "queries": int(np.unique(data.query_codes[self.lists_shown]).size),
            "lists": int(self.lists_shown.sum()),
            "entries": int(self.shown.sum()),
            "not_shown": int(self.shown[:, NOT_SHOWN].sum()),
            "clicks": int(clicks.sum()),
            "features": int(data.features.shape[1]),
            "planted": {"items": self.planted, "clicks": self.planted_clicks},
            "position_bias": None if position_bias is None else position_bias.to_dict(),
            "noise": None if noise is None else noise.to_dict(),
            "propensity_column": propensity_column,
            "positions": [
                {
                    "position": position,
                    "shown": int(shown_at[position]),
                    "clicks": int(clicks[position]),
                    "click_rate": float(clicks[position] / shown_at[position]),
                }
                for position in np.flatnonzero(shown_at).tolist()
            ],
            "groups": {
                name: _of_group(shown[code], int(self.clicks[code].sum()))
                for code, name in named_groups(data.group_names)
                if code != UNKNOWN_GROUP or self.shown[code].any()
            },
        }


def describe_counts(log: CompactLog) -> dict[str, Any]:
    """Return what a compacted log holds, by position and group, as `ClickLog.describe` does."""
    found = LogTotals.of_compact(log).describe(
        log.data,
        position_bias=log.position_bias,
        noise=log.noise,
        empties_dropped=log.empties_dropped,
        propensity_column=log.cells.propensity is not None,
    )
    if not log.knows_clicked_impressions:
        found["impressions_without_click"] = None  # counts of clicks do not tell
    return found


def _by_group(
    data: RankingDataset,
    group: NDArray[np.int32],
    position: NDArray[np.int32],
    positions: int,
    counts: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Sum up counts, or ones, by group and position; the unknown group, -1, comes last."""
    groups = len(data.group_names) + 1
    cell = (group % groups).astype(np.int64) * positions + position
    # sums of whole numbers below 2^53 are exact as floats
    sums = np.bincount(cell, weights=counts, minlength=groups * positions)
    return sums.astype(np.int64).reshape(groups, positions)


def _added(some: NDArray[np.int64], more: NDArray[np.int64]) -> NDArray[np.int64]:
    longer, shorter = (some, more) if some.shape[1] >= more.shape[1] else (more, some)
    result = longer.copy()
    result[:, : shorter.shape[1]] += shorter
    return result


def _of_group(shown: NDArray[np.int64], clicks: int) -> dict[str, Any]:
    seen = int(shown.sum())
    positions = float(shown @ np.arange(shown.size))
    return {
        "shown": seen,
        "clicks": clicks,
        "click_rate": clicks / max(seen, 1),
        "mean_position": positions / seen if seen else None,
    }
