"""Training under a limit: the most useful policy below a disparity, or the fairest above a utility.

A limit of disparity is held by an augmented Lagrangian (see `goals.py`): each turn is trained from where the
last one ended, and moves the multipliers by how far the limit was missed.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.errors import FultrError
from fultr.training.goals import Limited, Penalised, squared
from fultr.training.objective import Measured
from fultr.training.solving import WITHOUT_PRICE, Solution, Solver

Array = NDArray[np.float64]

TURNS = 25
"""The most turns that are taken."""

MARGIN = 1e-3
"""Limits are aimed at with this share to spare, and a limit of 0 holds up to this share of the disparity
of training without any."""

FINE = 0.02
"""Limits below this share of the disparity without any are trained for in double precision."""

LOWEST_POWER, HIGHEST_POWER, BISECTIONS = -3.0, 6.0, 16
"""Prices of disparity between which the fairest policy is sought, as powers of 10 of the price at which all
disparity costs as much as all utility, and how often the interval is halved."""

CONVERGED = 0.02
"""Multipliers that change by less than this share from one turn to the next have converged."""

STIFFER, PROGRESS = 4.0, 0.25
"""Missing a limit costs `STIFFER` times more after a turn that leaves more than the share `PROGRESS` of what
was missed."""

HOPELESS, GIVEN_UP, FAR = 0.9, 5, 1.1
"""A limit is out of reach if each of `GIVEN_UP` turns in a row leaves more than the share `HOPELESS` of what
was missed, and the disparity is still `FAR` times the limit. Closer to it, the price must first rise."""


class UnreachableLimitError(FultrError):
    """No policy was found that respects the limit; `lowest` is the lowest disparity found."""

    def __init__(self, limit: float, lowest: float) -> None:
        self.limit = limit
        self.lowest = lowest
        super().__init__(
            f"no policy was found whose disparity on the training clicks is at most {limit:g}; the lowest"
            f" found is {lowest:.6g}. Raise max_disparity, or ask for the fairest policy at a price with"
            " min_utility"
        )


def most_useful(solver: Solver, max_disparity: float) -> Solution:
    """Maximise U - l2 |w|^2 / 2 subject to sqrt(sum of D_ij^2) <= max_disparity."""
    free = _free(solver)
    if (free.root_disparity <= max_disparity).all():
        return free
    if 0 < max_disparity < FINE * free.root_disparity.min():
        solver = copy(solver)
        solver.accuracy = "double"
    solution = _limited(solver, free, free.parameters, max_disparity, "limit")
    if not solution.held.any():
        # the policy without a limit may be so sure of itself that no gradient is left
        solution = _limited(solver, free, solver.initial, max_disparity, "limit-anew")
    return solution


def fairest(solver: Solver, min_utility: float) -> Solution:
    """Minimise the sum of D_ij^2 subject to a utility of at least this share of the best there is.

    The policies on the way from the most useful to the fairest maximise U - lambda |D|^2 - l2 |w|^2 / 2. The
    one sought has the largest lambda at which utility is enough, found by bisection of its logarithm. A
    share of a negative utility, such as an average rank, is as much below it as one of a positive utility.
    """
    free = _free(solver)
    if not free.root_disparity.any():
        return free
    budget = (1 - min_utility) * np.abs(free.measured.utility)
    least = free.measured.utility - budget
    unit = np.maximum(np.abs(free.measured.utility), 1e-12) / np.maximum(free.root_disparity, 1e-6) ** 2
    best, points = free, solver.initial
    low, high = np.full(least.size, LOWEST_POWER), np.full(least.size, HIGHEST_POWER)
    power = high
    for turn in range(BISECTIONS):
        solution = solver.penalised(unit * 10**power, points, f"fairest-{turn}")
        solution = replace(solution, measured=solver.measure(solution.parameters, "double"))
        enough = solution.measured.utility >= least
        best = _either(enough & (solution.root_disparity < best.root_disparity), solution, best)
        low, high = np.where(enough, power, low), np.where(enough, high, power)
        spent = enough & (solution.measured.utility - least <= CONVERGED * budget)
        if (spent | (low == high)).all():
            break
        power, points = (low + high) / 2, solution.parameters
    return best


def _free(solver: Solver) -> Solution:
    """Train without a limit; measured as accurately as what is compared with it."""
    free = solver.penalised(np.zeros_like(solver.l2))
    return replace(free, measured=solver.measure(free.parameters, "double"))


def _either(chosen: NDArray[np.bool_], first: Solution, second: Solution) -> Solution:
    """Return the first solution for the chosen configurations, the second for the others."""

    def picked(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
        return np.where(chosen.reshape(-1, *[1] * (one.ndim - 1)), one, other)

    return Solution(
        picked(first.parameters, second.parameters),
        Measured(*map(picked, first.measured, second.measured)),
        multiplier=picked(first.multiplier, second.multiplier),
        held=picked(first.held, second.held),
        iterations=picked(first.iterations, second.iterations),
    )


def lowest_disparity(solver: Solver) -> float:
    """Return the lowest sqrt(sum of D_ij^2) that is found when nothing else counts."""
    weight = np.full(solver.l2.size, WITHOUT_PRICE)
    parameters, _ = solver.maximise("lowest", Penalised(weight), solver.initial)
    return float(np.sqrt(squared(solver.measure(parameters).disparity)).min())


def _limited(solver: Solver, free: Solution, points: Array, max_disparity: float, stage: str) -> Solution:
    start = np.maximum(free.root_disparity, 1e-12)
    aim = np.full(start.size, max_disparity * (1 - MARGIN))
    enough = np.full(start.size, max_disparity) if max_disparity > 0 else MARGIN * start
    stiffness = STIFFER * np.maximum(np.abs(free.measured.utility), 1e-12) / start**2
    goal = Limited(aim, np.zeros_like(free.measured.disparity), stiffness)
    best, missed = replace(free, parameters=points), np.full(start.size, np.inf)
    held_best = replace(best, held=np.zeros_like(free.held))
    in_vain = np.zeros(start.size, dtype=np.int64)
    for turn in range(TURNS):
        parameters, iterations = solver.maximise(f"{stage}-{turn}", goal, best.parameters)
        measured, seen = (
            solver.measure(parameters, "double"),
            solver.measure(parameters, solver.accuracy).disparity,
        )
        length = np.sqrt(squared(measured.disparity))
        force = goal.force(seen)
        price = np.sqrt(squared(force)) / (2 * np.maximum(length, 1e-300))
        best = Solution(
            parameters,
            measured,
            multiplier=np.minimum(price, WITHOUT_PRICE),
            held=length <= enough,
            iterations=best.iterations + iterations,
        )
        held_best = _either(best.held, best, held_best)
        change = np.sqrt(squared(force - goal.multiplier))
        converged = change <= CONVERGED * np.sqrt(squared(force))
        if (best.held & converged).all():
            break
        hopeless = (length > FAR * enough) & (length - aim > HOPELESS * missed)
        in_vain = np.where(hopeless, in_vain + 1, 0)
        if (in_vain >= GIVEN_UP).all():
            break
        slow = ~best.held & (length - aim > PROGRESS * missed)
        missed = np.maximum(length - aim, 0)
        # training sees a disparity that is a little off, so that it is to aim as much lower
        off = np.maximum(length - np.sqrt(squared(seen)), 0)
        stiffness = np.where(slow, STIFFER * goal.stiffness, goal.stiffness)
        goal = Limited(np.maximum(aim - off, 0), force, stiffness)
    return _either(held_best.held, held_best, best)
