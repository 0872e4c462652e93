"""Sums over impressions, of which means and their deviations are made."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Moments:
    """The number of impressions, and for each quantity its observations, their sum and that of their squares.

    Not every impression has an observation of every quantity: a feature may be missing.
    """

    number: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)
    squares: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, values: Array) -> None:
        """Add observations of one quantity."""
        self.numbers[name] = self.numbers.get(name, 0) + values.size
        self.total[name] = self.total.get(name, 0.0) + float(values.sum())
        self.squares[name] = self.squares.get(name, 0.0) + float(values @ values)

    def __add__(self, other: Moments) -> Moments:
        """Return both together."""
        return self._combined(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        """Return these without others that are part of them."""
        return self._combined(other, -1)

    def _combined(self, other: Moments, sign: int) -> Moments:
        names = [*self.total, *(name for name in other.total if name not in self.total)]
        return Moments(
            self.number + sign * other.number,
            {name: self.numbers.get(name, 0) + sign * other.numbers.get(name, 0) for name in names},
            {name: self.total.get(name, 0.0) + sign * other.total.get(name, 0.0) for name in names},
            {name: self.squares.get(name, 0.0) + sign * other.squares.get(name, 0.0) for name in names},
        )

    def observations(self, name: str) -> int:
        """Return how many observations of a quantity there are."""
        return self.numbers.get(name, 0)

    def mean(self, name: str) -> float:
        """Return the mean of a quantity."""
        return self.total.get(name, 0.0) / max(self.observations(name), 1)

    def deviation(self, name: str) -> float:
        """Return the standard deviation of a quantity."""
        if self.observations(name) < 2:
            return 0.0
        mean_of_squares = self.squares[name] / self.observations(name)
        return float(np.sqrt(max(mean_of_squares - self.mean(name) ** 2, 0.0)))


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
