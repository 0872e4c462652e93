"""Sums over impressions, of which means and their deviations are made."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Moments:
    """The number of observations of some quantities, their sums and the sums of their squares."""

    number: int = 0
    total: dict[str, float] = field(default_factory=dict)
    squares: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, values: Array) -> None:
        """Add observations of one quantity; those of an impression that has none are 0."""
        self.total[name] = self.total.get(name, 0.0) + float(values.sum())
        self.squares[name] = self.squares.get(name, 0.0) + float(values @ values)

    def __add__(self, other: Moments) -> Moments:
        """Return both together; a quantity that one does not have is 0 there."""
        names = [*self.total, *(name for name in other.total if name not in self.total)]
        return Moments(
            self.number + other.number,
            {name: self.total.get(name, 0.0) + other.total.get(name, 0.0) for name in names},
            {name: self.squares.get(name, 0.0) + other.squares.get(name, 0.0) for name in names},
        )

    def mean(self, name: str) -> float:
        """Return the mean of a quantity."""
        return self.total.get(name, 0.0) / max(self.number, 1)

    def deviation(self, name: str) -> float:
        """Return the standard deviation of a quantity."""
        if self.number < 2:
            return 0.0
        mean = self.mean(name)
        return float(np.sqrt(max(self.squares.get(name, 0.0) / self.number - mean**2, 0.0)))


@dataclass
class DaySums:
    """The moments of one day: of measures of groups, and of features."""

    measures: Moments = field(default_factory=Moments)
    features: Moments = field(default_factory=Moments)

    def __add__(self, other: DaySums) -> DaySums:
        """Return the sums of both."""
        return DaySums(self.measures + other.measures, self.features + other.features)


def exposure_of(group: str) -> str:
    """Return the name of the exposure of a group among moments."""
    return f"exposure {group}"


def merit_of(group: str) -> str:
    """Return the name of the merit of a group among moments."""
    return f"merit {group}"


def disparity_of(one: str, other: str) -> str:
    """Return the name of the disparity of a pair of groups among moments."""
    return f"disparity {one} | {other}"


SHARE_UNKNOWN = "share of unknown groups"
