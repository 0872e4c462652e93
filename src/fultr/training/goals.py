"""What is maximised over policies, as a function of utility and disparity, for many configurations at once.

Utilities are (configurations,) and disparities D, (configurations, groups, groups), antisymmetric. A goal
gives its value and its derivatives by them; |D|^2 = sum_{i<j} D_ij^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Slopes(NamedTuple):
    """The value of a goal and its derivatives by the utility and, for i < j, by each D_ij."""

    value: Array
    by_utility: Array
    by_disparity: Array


class Goal(Protocol):
    """A function of utility and disparity that is to be as large as possible."""

    def __call__(self, utility: Array, disparity: Array) -> Slopes:
        """Return its value and derivatives."""
        ...

    def pick(self, which: NDArray[np.int64]) -> Goal:
        """Return the same for some of the configurations."""
        ...


def squared(disparity: Array) -> Array:
    """Return sum_{i<j} D_ij^2 for each configuration."""
    return np.asarray((disparity**2).sum(axis=(1, 2)) / 2)


@dataclass(frozen=True, eq=False)
class Penalised:
    """(U - lambda |D|^2) / (1 + lambda): the paper's objective, scaled as its authors scale it."""

    fairness_weight: Array

    def __call__(self, utility: Array, disparity: Array) -> Slopes:
        """Return its value and derivatives."""
        weight, share = self.fairness_weight, 1 / (1 + self.fairness_weight)
        value = (utility - weight * squared(disparity)) * share
        return Slopes(value, share, -2 * (weight * share)[:, None, None] * disparity)

    def pick(self, which: NDArray[np.int64]) -> Penalised:
        """Return the same for some of the configurations."""
        return Penalised(self.fairness_weight[which])


@dataclass(frozen=True, eq=False)
class Limited:
    """The augmented Lagrangian of: maximise U subject to |D| <= limit.

    U - rho / 2 dist(D + m / rho, ball of radius limit)^2, with a multiplier m for each pair of groups. For a
    limit of 0 this is the usual one for the equalities D_ij = 0.
    """

    limit: Array
    multiplier: Array
    stiffness: Array

    def __call__(self, utility: Array, disparity: Array) -> Slopes:
        """Return its value and derivatives."""
        outside = self.force(disparity)
        stiffness = self.stiffness
        return Slopes(utility - squared(outside) / (2 * stiffness), np.ones_like(utility), -outside)

    def force(self, disparity: Array) -> Array:
        """Return rho (z - projection of z on the ball), z = D + m / rho: the next multiplier."""
        stiffness = self.stiffness[:, None, None]
        shifted = disparity + self.multiplier / stiffness
        length = np.sqrt(squared(shifted))
        beyond = np.maximum(length - self.limit, 0) / np.maximum(length, 1e-300)
        return np.asarray(stiffness * beyond[:, None, None] * shifted)

    def pick(self, which: NDArray[np.int64]) -> Limited:
        """Return the same for some of the configurations."""
        return Limited(self.limit[which], self.multiplier[which], self.stiffness[which])
