"""Scaling of feature columns that range from ratios to counts in the millions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HEAVY_TAILED = 9.0
"""The kurtosis of an exponential distribution; tails heavier than that are called heavy."""

COLUMNS_A_BLOCK = 8
"""Columns copied together while statistics are taken, so that a large table needs little more memory."""


@dataclass(frozen=True)
class ColumnScaling:
    """How each column becomes a feature of mean 0 and deviation 1, learned from training rows.

    A heavy-tailed column x is first compressed to sign(x) log(1 + |x| / unit). Without that, a single page
    with 200 million links would leave all others with nearly the same value.
    """

    heavy: NDArray[np.bool_]
    unit: NDArray[np.float64]
    centre: NDArray[np.float64]
    factor: NDArray[np.float64]

    def apply(self, table: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a scaled copy of some rows."""
        scaled = np.array(table, dtype=np.float32)
        for column in np.flatnonzero(self.heavy):
            scaled[:, column] = _compressed(table[:, column], self.unit[column])
        scaled -= self.centre.astype(np.float32)
        scaled *= self.factor.astype(np.float32)
        return scaled


def fit_column_scaling(table: NDArray[np.float32], rows: slice | NDArray[np.int64]) -> ColumnScaling:
    """Learn the scaling from the given rows.

    A column is heavy-tailed if its kurtosis exceeds 9, that of an exponential distribution. Its unit is 1,
    or the mean of |x| where that is smaller: log(1 + x) alone would leave small ratios as they are. A
    column that is constant in these rows becomes 0 everywhere: nothing can be learned about it.
    """
    width = table.shape[1]
    columns = []
    for start in range(0, width, COLUMNS_A_BLOCK):
        block = table[rows, start : start + COLUMNS_A_BLOCK]
        columns += [_column_scaling(values) for values in block.T.astype(np.float64, order="C")]
    heavy, unit, centre, factor = (np.array(values) for values in zip(*columns, strict=True))
    return ColumnScaling(heavy, unit, centre, factor)


def _column_scaling(values: NDArray[np.float64]) -> tuple[bool, float, float, float]:
    if values.min() == values.max():
        return False, 1.0, float(values[0]), 0.0
    heavy, unit = _kurtosis(values) > HEAVY_TAILED, min(1.0, float(np.abs(values).mean()))
    if heavy:
        values = _compressed(values, unit)
    return heavy, unit, float(values.mean()), float(1.0 / values.std())


def _compressed(values: NDArray[np.floating], unit: float) -> NDArray[np.float64]:
    magnitude = np.log1p(np.abs(values, dtype=np.float64) / unit)
    return np.asarray(np.copysign(magnitude, values), dtype=np.float64)


def _kurtosis(values: NDArray[np.float64]) -> float:
    deviation = (values - values.mean()) / values.std()
    squares = np.square(deviation, out=deviation)
    return float(np.dot(squares, squares) / squares.size)
