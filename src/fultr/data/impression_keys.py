"""Which impressions stand in a log more than once, known from eight bytes of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled
from fultr.data.counted_lists import ALL_CLICKED, GAPS, NOTHING_SHOWN
from fultr.data.inspection import ImpressionCounts
from fultr.data.log_rows import Column


class ImpressionKeys:
    """The keys of impressions that show anything, and the times of those that were clicked, where known."""

    def __init__(self) -> None:
        self._clicked, self._empty = Column(np.uint64), Column(np.uint64)
        self._times = Column(np.int64)

    def add(
        self, keys: NDArray[np.uint64], clicked: NDArray[np.bool_], times: NDArray[np.int64] | None
    ) -> None:
        """Take the keys of some impressions, 0 where nothing was shown."""
        shown = keys != 0
        if times is not None:
            keys = _with_time(keys, times)
            self._times.append(times[clicked])
        self._clicked.append(keys[clicked])
        self._empty.append(keys[shown & ~clicked])

    def counts(self, totals: NDArray[np.int64]) -> ImpressionCounts:
        """Return what single impressions tell; the keys are used up by that."""
        clicked, empty, times = (held.finished() for held in (self._clicked, self._empty, self._times))
        for values in (clicked, empty, times):
            values.sort()
        different_clicked, copies_clicked = _runs(clicked)
        different_empty, copies_empty = _runs(empty)
        return ImpressionCounts(
            all_clicked=int(totals[ALL_CLICKED]),
            nothing_shown=int(totals[NOTHING_SHOWN]),
            gaps=int(totals[GAPS]),
            repeated=clicked.size - different_clicked,
            copies=int(np.gcd(copies_clicked, copies_empty)) or 1,
            different=different_clicked + different_empty,
            times_tell=0 < different_clicked <= 2 * _runs(times)[0],
        )


@compiled
def _with_time(keys: Any, times: Any) -> Any:
    """Mix times into keys, so that equal impressions of other times are told apart."""
    mixed = np.empty_like(keys)
    for index in range(keys.size):
        value = (np.uint64(times[index]) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed[index] = keys[index] + (value ^ (value >> np.uint64(29)))
    return mixed


@compiled
def _runs(values: Any) -> Any:
    """Return how many different values sorted ones hold, and what divides how often each is there."""
    different = divisor = length = 0
    for index in range(values.size):
        length += 1
        if index + 1 == values.size or values[index + 1] != values[index]:
            different += 1
            left, right = divisor, length
            while right:
                left, right = right, left % right
            divisor, length = left, 0
    return different, divisor
