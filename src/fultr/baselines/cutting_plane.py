"""Minimise a convex loss of linear scores to a certified gap, by planes that lie below it.

The problem is min_w l2 |w|^2 / 2 + R(w), where R(w) >= 0 is a convex function of the scores of all rows, such
as a sum of hinges. A subgradient a of R at any point gives a plane R(w) >= b + a w. With the highest of the
planes found so far in place of R, the minimum is that of a small quadratic program, and a lower bound of the
one looked for. Each round finds it, goes towards it from the best point known, and adds a plane near the best
point (Franc and Sonnenburg 2009), until the bound is close to the value reached.

Planes do not depend on l2: those of one problem serve the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TOLERANCE = 1e-4
"""The gap between value and bound, relative to the value, at which a problem is solved."""

MOST_ROUNDS = 2000
"""Rounds after which a problem is given up, with the gap that is left."""

HALVINGS = 10
"""How often the interval that the best step lies in is halved."""

AHEAD = 0.1
"""How far from the best point towards the minimum of the planes the next plane is taken."""

SHARE_OF_GAP = 0.1
"""The part of the gap that may be due to the small quadratic program."""

MOST_CHANGES = 1000
"""Steps of the small quadratic program after which its bound is taken as it is."""

RIDGE = 1e-13
"""What is added to the products of planes, relative to the largest."""

SMALLEST = 1e-300
"""What products of planes are divided by at least."""


class Tangent(NamedTuple):
    """The value of a loss at some scores, and the plane offset + by_score scores that touches it there.

    The value is the one of the plane, but where scores are large the offset cannot be found from it.
    """

    value: float
    offset: float
    by_score: Array


class ScoreLoss(Protocol):
    """A convex function of scores that are linear in the parameters; it is never below 0."""

    def scores(self, parameters: Array) -> Array:
        """Return the score of each row."""
        ...

    def tangent(self, scores: Array) -> Tangent:
        """Return the loss, and a plane that touches it and is nowhere above it."""
        ...

    def pull_back(self, by_score: Array) -> Array:
        """Return the subgradient by the parameters that belongs to one by the scores."""
        ...


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best parameters found, the value there, and what no parameters can be below."""

    parameters: Array
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """By how much of its value the minimum may be missed at most."""
        return (self.value - self.bound) / self.value if self.value > self.bound else 0.0


@dataclass(frozen=True, eq=False)
class Point:
    """Parameters and the scores that follow from them."""

    parameters: Array
    scores: Array

    @classmethod
    def of(cls, loss: ScoreLoss, parameters: Array) -> Point:
        """Score all rows."""
        return cls(parameters, loss.scores(parameters))

    def towards(self, other: Point, share: float) -> Point:
        """Return a point between this one and another; its scores need no pass over the features."""
        return Point(
            self.parameters + share * (other.parameters - self.parameters),
            self.scores + share * (other.scores - self.scores),
        )

    def value(self, loss: ScoreLoss, l2: float) -> float:
        """Return l2 |w|^2 / 2 + R(w)."""
        return loss.tangent(self.scores).value + l2 / 2 * float(self.parameters @ self.parameters)


class Planes:
    """Planes below a loss, R(w) >= offset_k + gradient_k w; the first is 0, since no loss is below it."""

    def __init__(self, width: int) -> None:
        self.gradients = np.zeros((1, width))
        self.offsets = np.zeros(1)
        self._products = np.zeros((1, 1))
        self._shares = np.ones(1)

    def __len__(self) -> int:
        return self.offsets.size

    def touch(self, loss: ScoreLoss, point: Point) -> None:
        """Add the plane that touches the loss at a point."""
        tangent = loss.tangent(point.scores)
        self.gradients = np.vstack([self.gradients, loss.pull_back(tangent.by_score)])
        self.offsets = np.append(self.offsets, tangent.offset)
        self._shares = np.append(self._shares, 0.0)
        products = np.empty((len(self), len(self)))
        products[:-1, :-1] = self._products
        products[-1] = products[:, -1] = self.gradients @ self.gradients[-1]
        self._products = products

    def lowest(self, l2: float, accuracy: float) -> tuple[Array, float]:
        """Return where l2 |w|^2 / 2 + the highest plane is lowest, and a lower bound of that.

        By duality it is at w = -sum_k s_k gradient_k / l2, with the shares s >= 0, sum_k s_k = 1, that make
        sum_k s_k offset_k - l2 |w|^2 / 2 largest; any other shares give a lower bound as well.
        """
        self._shares = spread_shares(self._products, l2 * self.offsets, self._shares, l2 * accuracy)
        parameters = -(self._shares @ self.gradients) / l2
        bound = float(self._shares @ self.offsets) - l2 / 2 * float(parameters @ parameters)
        return parameters, bound


def minimise(loss: ScoreLoss, l2: float, planes: Planes, start: Array) -> Minimum:
    """Minimise l2 |w|^2 / 2 + R(w), from a start, with the planes known; new ones are added to them."""
    best = Point.of(loss, start)
    value, bound = best.value(loss, l2), 0.0
    planes.touch(loss, best)
    for _ in range(MOST_ROUNDS):
        parameters, lower_bound = planes.lowest(l2, SHARE_OF_GAP * TOLERANCE * value)
        bound = max(bound, lower_bound)
        target = Point.of(loss, parameters)
        nearer = best.towards(target, _best_step(loss, best, target, l2))
        reached = nearer.value(loss, l2)
        better = reached < value
        if better:
            best, value = nearer, reached
        # only after a step: where l2 is high, 0 is near the lowest value, but no order follows from it
        if value - bound <= TOLERANCE * value:
            break
        # where nothing was gained, the plane at the target is the one that raises the bound for sure
        planes.touch(loss, best.towards(target, AHEAD) if better else target)
    return Minimum(best.parameters, value, bound)


def _best_step(loss: ScoreLoss, here: Point, there: Point, l2: float) -> float:
    """Return how far to go, from 0 to 1, for the lowest value on the way."""
    change, by_score = there.parameters - here.parameters, there.scores - here.scores

    def rises(share: float) -> bool:
        point = here.towards(there, share)
        slope = loss.tangent(point.scores).by_score @ by_score + l2 * float(point.parameters @ change)
        return bool(slope > 0)

    if not rises(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return (low + high) / 2


def spread_shares(products: Array, gains: Array, shares: Array, accuracy: float) -> Array:
    """Return the shares, 0 or more with sum 1, that make shares products shares / 2 - gains shares lowest.

    Starts from the given shares, and ends when less than `accuracy` is left to gain, or rounding allows no
    more. The shares above 0 are free: they move to where they are best among themselves, and those that
    reach 0 on the way stay there. Then, of the others, the one whose growth gains most becomes free as well.
    """
    size = max(float(products.diagonal().max()), SMALLEST)
    products, gains, free = products / size, gains / size, shares > 0
    shares = _moved(products, gains, shares, free)
    for _ in range(MOST_CHANGES):
        slope = products @ shares - gains
        steepest = int(slope.argmin())
        if shares @ slope - slope[steepest] <= accuracy / size or free[steepest]:
            break
        free[steepest] = True
        shares = _moved(products, gains, shares, free)
    return shares


def _moved(products: Array, gains: Array, shares: Array, free: NDArray[np.bool_]) -> Array:
    """Move the free shares to where they are best among themselves; `free` loses those that reach 0."""
    while True:
        change = np.where(free, _best_among(products, gains, free), 0.0) - shares
        decreasing = np.flatnonzero(free & (shares + change <= 0))
        if not decreasing.size:
            return shares + change
        decrease = -change[decreasing]
        steps = np.divide(shares[decreasing], decrease, out=np.zeros(decreasing.size), where=decrease > 0)
        shares = np.maximum(shares + steps.min() * change, 0.0)
        free[decreasing[steps <= steps.min()]] = False
        shares[~free] = 0.0
        shares /= shares.sum()


def _best_among(products: Array, gains: Array, free: NDArray[np.bool_]) -> Array:
    """Return the best shares with sum 1, of either sign, if all but the free ones are 0."""
    index = np.flatnonzero(free)
    system = np.ones((index.size + 1, index.size + 1))
    system[:-1, :-1] = products[np.ix_(index, index)]
    # planes that depend on one another would make it singular
    system[range(index.size), range(index.size)] += RIDGE
    system[-1, -1] = 0.0
    # gains that are all higher by the same change nothing, but would drown the rest
    higher = gains[index] - gains[index].max()
    shares = np.zeros(gains.size)
    shares[index] = np.linalg.solve(system, np.append(higher, 1.0))[:-1]
    return shares
