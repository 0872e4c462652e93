"""What one day of events says of exposure, merit, disparity and features: sums over its impressions.

Each impression with shown ranking sigma and clicks c gives, for group i,

    exposure_i = sum over its shown items of v_rank,        merit_i = sum of c / v_rank (IPS),

and for a pair of groups exposure_i merit_j - exposure_j merit_i. Given the ranking, the expected value of
merit_j is the relevance of the items of the group that were shown, and exposure_i is known. So the mean over
impressions estimates the disparity of what was shown. Items below the page have no part in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fultr.click_model import PositionBias
from fultr.data.columns import LIST_COLUMN
from fultr.logs.events import event_tables
from fultr.serving.moments import SHARE_UNKNOWN, DaySums, Moments, disparity_of, exposure_of, merit_of

Array = NDArray[np.float64]


def sums_of_days(
    source: str | Path, bias: PositionBias, groups: Sequence[str], since: int = 0
) -> dict[date, DaySums]:
    """Read events from a moment on, in microseconds since 1970, and return the sums of each day (UTC)."""
    days: dict[date, DaySums] = {}
    for table in event_tables(source, since, alike=False):
        names = [name for name in table.schema.names if name not in ("doc_id", "query_id", "policy")]
        for batch, _ in table.batches(names):
            for day, sums in _of_batch(batch, bias, tuple(groups), table.metadata):
                days[day] = days[day] + sums if day in days else sums
    return days


def _of_batch(
    batch: dict[str, Any], bias: PositionBias, groups: tuple[str, ...], metadata: Any
) -> Iterator[tuple[date, DaySums]]:
    """Yield the sums of each day of complete impressions."""
    features = batch.pop(LIST_COLUMN, None)
    rows = pl.DataFrame({name: pl.Series(name, values) for name, values in batch.items()})
    if "group" not in rows.columns:
        rows = rows.with_columns(group=pl.lit(None, pl.String))
    # rows of an impression stand together
    rows = rows.with_columns(number=pl.col("impression_id").rle_id(), day=pl.col("timestamp").dt.date())
    position = rows["position"].fill_null(0).to_numpy()
    looked = bias.at(position)
    weighed = np.where(looked > 0, rows["click"].to_numpy() / np.where(looked > 0, looked, 1.0), 0.0)
    codes = {name: code for code, name in enumerate(groups)}
    group = rows["group"].replace_strict(codes, default=len(groups), return_dtype=pl.Int64).to_numpy()
    number = rows["number"].to_numpy().astype(np.int64)
    impressions = int(number[-1]) + 1 if number.size else 0
    cells, width = number * (len(groups) + 1) + group, len(groups) + 1

    def by_group(weights: Array) -> Array:
        sums = np.bincount(cells, weights, impressions * width).astype(np.float64)
        return sums.reshape(impressions, width)

    exposure, merit, shown = by_group(looked), by_group(weighed), by_group((position > 0).astype(float))
    first = np.flatnonzero(np.diff(number, prepend=-1))
    days = rows["day"].gather(first).to_list()
    rows_of = None if features is None else _features(features, metadata)
    for day in sorted(set(days)):
        # most batches are of one day: views of all rows spare a copy of the features
        chosen: Any = slice(None) if day == days[0] == days[-1] else np.array([one == day for one in days])
        of_rows = chosen if isinstance(chosen, slice) else chosen[number]
        sums = DaySums(_measures(exposure[chosen], merit[chosen], shown[chosen], groups))
        if rows_of is not None:
            sums.features = _feature_moments(rows_of[of_rows], number[of_rows], metadata)
        yield day, sums


def _measures(exposure: Array, merit: Array, shown: Array, groups: tuple[str, ...]) -> Moments:
    """Return the moments of what groups got, over impressions."""
    moments = Moments(exposure.shape[0])
    for code, name in enumerate(groups):
        moments.add(exposure_of(name), exposure[:, code])
        moments.add(merit_of(name), merit[:, code])
        for after in range(code + 1, len(groups)):
            difference = exposure[:, code] * merit[:, after] - exposure[:, after] * merit[:, code]
            moments.add(disparity_of(name, groups[after]), difference)
    share = shown[:, -1] / np.maximum(shown.sum(axis=1), 1.0)
    moments.add(SHARE_UNKNOWN, share)
    return moments


def _features(column: Any, metadata: Any) -> Array:
    """Return features as rows; codes of categories say nothing as numbers, and are left out."""
    values = np.asarray(column.flatten(), dtype=np.float64).reshape(len(column), -1)
    categories = metadata.get("category_names", {})
    values[:, [name in categories for name in metadata["feature_names"]]] = np.nan
    return values


def _feature_moments(rows: Array, number: NDArray[np.int64], metadata: Any) -> Moments:
    """Return the moments of the mean of each feature over the candidates of an impression.

    An impression with a candidate whose feature is missing is no observation of that feature.
    """
    codes = np.unique(number, return_inverse=True)[1]
    moments = Moments(int(codes[-1]) + 1 if codes.size else 0)
    for name, values in zip(metadata["feature_names"], rows.T, strict=True):
        means = np.bincount(codes, values) / np.bincount(codes)
        means = means[~np.isnan(means)]
        if means.size:
            moments.add(name, means)
    return moments
