"""Expected position weights under Plackett-Luce and their gradient, without sampling.

Drawing a ranking is an exponential race: item j arrives at an independent time T_j ~ Exp(w_j), with
w_j = exp(h_j), and rank(d) = 1 + #{j != d : T_j < T_d}. Given T_d = t the others have arrived independently,
each with probability 1 - e_j, e_j = exp(-w_j t). With y_j = w_j t and u = log t, a sum of exponentials
f(k) = sum_m c_m s_m^(k-1) has

    E[f(rank d)] = integral y_d e_d sum_m c_m prod_{j != d} g_j du,      g_j = s_m + (1 - s_m) e_j,

and V = sum_d alpha_d E[f(rank d)], with alpha_{d,m} = alpha_d c_m, P_m = prod_j g_j, A_m = sum_d own_d and
own_d = alpha_{d,m} y_d e_d / g_d,

    dV/dh_k = integral sum_m P_m [own_k (1 - y_k) - (1 - s_m) y_k e_k / g_k (A_m - own_k)] du.

Other weights go through the counts of earlier arrivals (`counting.py`); weights that are linear in the
rank have a closed form, since E[rank d] = 1 + sum_{j != d} w_j / (w_j + w_d).

The integral over u is a trapezoid sum, whose error falls like exp(-pi^2 / step). To the right the integrand
decays doubly exponentially. To the left it is y_d (f(1) - ...): what lies before the first node is added in
closed form, to second order in t.

| accuracy | numbers | largest error of E[f], in units of the largest weight |
|---|---|---|
| "single" | float32 | 5e-4 |
| "double" | float64 | 1e-10 |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fultr.expectation.counting import counted_gradient, counted_values
from fultr.expectation.exponentials import Exponentials, fit_exponentials
from fultr.expectation.linear_weights import rank_gradient, rank_values
from fultr.expectation.long_lists import long_list_gradient, long_list_values
from fultr.expectation.race import levels_and_spreads
from fultr.expectation.short_lists import short_list_gradient, short_list_values
from fultr.expectation.threads import for_kernel, over_threads
from fultr.expectation.wide_counting import wide_counted_gradient, wide_counted_values

Accuracy = Literal["single", "double"]
Array = NDArray[np.float64]
Lists = NDArray[np.int64]

LONGEST_SHORT, FEWEST_LONG, LONGEST = 64, 24, 2048
"""Lists up to the first length are handled side by side, and if there are enough of them up to the last."""

WIDEST_SHORT, WIDEST_LONG, MOST_COUNTS = 70.0, 25.0, 32_768
"""Short or long lists of scores further apart than this, or with more counts, are handled one at a time."""

FIT_TOLERANCE = 4e-4
"""Of sums of exponentials: four terms for lists of 20, seven for 1000."""

LISTS_A_THREAD = 256
"""Fewer lists than this are not worth another thread."""

OCTAVE = math.log(2.0)
EXPONENTIAL_GRID = (OCTAVE, 3.0, 2.8)
"""The distance of the time nodes in u, and how far they reach to the left and to the right."""

COUNTING_GRIDS = {"single": (OCTAVE, 1.5, 2.5, 2.6, 1e-5), "double": (OCTAVE / 3, 0.9, 8.5, 3.6, 1e-13)}
"""The largest distance of the time nodes in u, the same times sqrt(K), how far they reach to the left and to
the right, and how unlikely fewer than K arrivals must be for later time nodes not to matter.

The K-th arrival is certain to within 1 / sqrt(K) of u, and the weight may jump there. So the error of the
trapezoid sum is up to exp(-2 pi^2 / (K step^2)): 2e-4 of the gradient, or 3e-11."""

NUMBERS: dict[Accuracy, type[np.floating[Any]]] = {"single": np.float32, "double": np.float64}


def exact_values(problems: Problems, tables: Array, accuracy: Accuracy = "single") -> Array:
    """Return E[f(rank d)], functions x rows, for position weights (functions x positions)."""
    expected = np.empty((tables.shape[0], problems.scores.size))
    for route in choose_routes(tables[:, : problems.longest], accuracy):
        of_route = expected if len(route.functions) == len(expected) else expected[list(route.functions)]
        route.values(problems, of_route)
        if of_route is not expected:
            expected[list(route.functions)] = of_route
    expected[:, problems.rows_alone] = tables[:, :1]
    return expected


def exact_value_and_gradient(
    problems: Problems, tables: Array, upstream: Array, accuracy: Accuracy = "single"
) -> tuple[Array, Array]:
    """Return V = sum upstream[f, d] E[f(rank d)] of each list, and dV/dh of each row, in one pass."""
    of_routes = []
    for route in choose_routes(tables[:, : problems.longest], accuracy):
        route_value, route_gradient = np.zeros(problems.lengths.size), np.zeros(problems.scores.size)
        route_upstream = (
            upstream if len(route.functions) == len(upstream) else upstream[list(route.functions)]
        )
        route.gradient(problems, for_kernel(route_upstream, np.float64), route_value, route_gradient)
        of_routes.append((route_value, route_gradient))
    value, gradient = of_routes[0]
    for route_value, route_gradient in of_routes[1:]:
        value += route_value
        gradient += route_gradient
    # an item alone in its list is always first
    alone = problems.rows_alone
    value[problems.lists_alone] = tables[:, 0] @ upstream[:, alone]
    gradient[alone] = 0.0
    return value, gradient


@dataclass(frozen=True)
class Problems:
    """Lists to work on; scores too far apart for their order to be in doubt are brought nearer."""

    scores: Array
    offsets: Lists
    lengths: Lists
    spread: Array
    longest: int
    lists_alone: Lists

    @classmethod
    def of(cls, scores: Array, offsets: Lists) -> Problems:
        """Take scores of ragged lists."""
        levels, spread = levels_and_spreads(scores, offsets)
        starts = for_kernel(offsets, np.int64)
        lengths = starts[1:] - starts[:-1]
        longest = int(lengths.max(initial=1))
        return cls(levels, starts, lengths, spread, longest, np.flatnonzero(lengths == 1))

    @property
    def threads(self) -> int:
        """How many threads are worth it."""
        return 1 + self.lengths.size // LISTS_A_THREAD

    @property
    def rows_alone(self) -> Lists:
        """Rows that are alone in their list."""
        return self.offsets[self.lists_alone]

    def fit_side_by_side(self) -> NDArray[np.bool_]:
        """Say which lists are best handled side by side: none that are wide, long ones only if many are."""
        is_long = self.lengths > LONGEST_SHORT
        fit = (self.spread <= np.where(is_long, WIDEST_LONG, WIDEST_SHORT)) & (self.lengths <= LONGEST)
        long = fit & is_long
        return fit if np.count_nonzero(long) >= FEWEST_LONG else fit & ~long

    def alike(self) -> Lists:
        """Return all lists, sorted so that neighbours have similar lengths and spreads."""
        widest = math.ceil(WIDEST_SHORT) + 2
        key = widest * self.lengths + np.minimum(self.spread, widest - 1).astype(np.int64)
        # small numbers are sorted in time linear in how many there are
        return np.argsort(key.astype(np.min_scalar_type(widest * (self.longest + 1))), kind="stable")


class Route(Protocol):
    """A way to compute some of the functions."""

    @property
    def functions(self) -> tuple[int, ...]:
        """The rows of the tables that it computes."""
        ...

    def values(self, problems: Problems, expected: Array) -> None:
        """Write E[f(rank d)] of its functions."""
        ...

    def gradient(self, problems: Problems, upstream: Array, value: Array, gradient: Array) -> None:
        """Write V of each list and dV/dh of each row, for its functions."""
        ...


def choose_routes(tables: Array, accuracy: Accuracy) -> tuple[Route, ...]:
    """Decide for each function how it is computed: a closed form, a sum of exponentials, or counting."""
    return _routes(tables.tobytes(), tables.shape, accuracy)


@lru_cache(maxsize=256)
def _routes(content: bytes, shape: tuple[int, int], accuracy: Accuracy) -> tuple[Route, ...]:
    tables = np.frombuffer(content).reshape(shape)
    routes: list[Route] = []
    others = []
    for number, table in enumerate(tables):
        slope = float(table[1] - table[0]) if table.size > 1 else 0.0
        straight = table[0] + slope * np.arange(table.size)
        if np.allclose(table, straight, rtol=0, atol=1e-13 * np.abs(table).max(initial=1e-300)):
            routes.append(_LinearRoute((number,), float(table[0]), slope))
        else:
            others.append(number)
    if others and accuracy == "single":
        fitted = [number for number in others if _fits(tables[[number]])]
        fit = fit_exponentials(tables[fitted], FIT_TOLERANCE) if fitted else None
        if fit is not None:
            routes.append(_ExponentialRoute.of(tuple(fitted), fit))
            others = [number for number in others if number not in fitted]
    if others:
        routes.append(_CountingRoute.of(tuple(others), tables[others], accuracy))
    return tuple(routes)


def _fits(table: Array) -> bool:
    return fit_exponentials(table, FIT_TOLERANCE) is not None


@dataclass(frozen=True)
class _LinearRoute:
    """f(k) = start + slope (k - 1)."""

    functions: tuple[int, ...]
    start: float
    slope: float

    def values(self, problems: Problems, expected: Array) -> None:
        if self.slope:
            over_threads(
                rank_values,
                problems.alike(),
                problems.threads,
                problems.scores,
                problems.offsets,
                expected[0],
            )
        else:
            expected[0] = 1.0
        expected[0] = self.start + self.slope * (expected[0] - 1.0)

    def gradient(self, problems: Problems, upstream: Array, value: Array, gradient: Array) -> None:
        expected = np.empty((1, problems.scores.size))
        self.values(problems, expected)
        value += np.add.reduceat(upstream[0] * expected[0], problems.offsets[:-1])
        if self.slope:
            scaled_upstream = self.slope * upstream[0]
            lists, threads = problems.alike(), problems.threads
            over_threads(
                rank_gradient, lists, threads, problems.scores, problems.offsets, scaled_upstream, gradient
            )


@dataclass(frozen=True, eq=False)
class _ExponentialRoute:
    """f(k) = sum_m c_m s_m^(k-1), up to the error of the fit."""

    functions: tuple[int, ...]
    sums: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, functions: tuple[int, ...], fit: Exponentials) -> _ExponentialRoute:
        nodes, coefficients = fit.nodes.astype(np.float32), fit.coefficients.astype(np.float32)
        # what the sums make of the first two positions, so that all of it is the same function
        ends = (fit.coefficients @ fit.nodes**exponent for exponent in (0, 1))
        return cls(functions, (nodes, (1 - fit.nodes).astype(np.float32), coefficients, *ends))

    def values(self, problems: Problems, expected: Array) -> None:
        self._run(short_list_values, long_list_values, problems, expected)

    def gradient(self, problems: Problems, upstream: Array, value: Array, gradient: Array) -> None:
        self._run(short_list_gradient, long_list_gradient, problems, upstream, value, gradient)

    def _run(
        self, on_short: Callable[..., None], on_long: Callable[..., None], problems: Problems, *arrays: Array
    ) -> None:
        order, scores, offsets = problems.alike(), problems.scores, problems.offsets
        is_short = problems.fit_side_by_side()[order]
        for kernel, chosen in ((on_short, order[is_short]), (on_long, order[~is_short])):
            over_threads(
                kernel, chosen, problems.threads, scores, offsets, EXPONENTIAL_GRID, self.sums, *arrays
            )


def counting_step(positions: int, accuracy: Accuracy) -> float:
    """Return the largest distance of time nodes in u at which so many first positions may be counted."""
    widest, of_root, _, _, _ = COUNTING_GRIDS[accuracy]
    return min(widest, of_root / math.sqrt(positions))


@dataclass(frozen=True, eq=False)
class _CountingRoute:
    """Any f that is constant after its first K positions."""

    functions: tuple[int, ...]
    tables: Array
    constants: Array
    accuracy: Accuracy

    @classmethod
    def of(cls, functions: tuple[int, ...], tables: Array, accuracy: Accuracy) -> _CountingRoute:
        constants = tables[:, -1]
        above = tables - constants[:, None]
        states = int(np.flatnonzero(np.abs(above).max(axis=0))[-1]) + 1
        return cls(functions, np.ascontiguousarray(above[:, :states]), constants, accuracy)

    @property
    def grid(self) -> tuple[float, float, float, int, float]:
        """The distance and reach of the time nodes, and how many there are while t doubles twice."""
        _, _, left, right, never = COUNTING_GRIDS[self.accuracy]
        phases = math.ceil(2 * OCTAVE / counting_step(self.tables.shape[1], self.accuracy) - 1e-9)
        return 2 * OCTAVE / phases, left, right, phases, never

    def values(self, problems: Problems, expected: Array) -> None:
        # in double at any accuracy: to compile it once more for float32 takes longer than most will ever gain
        self._run(counted_values, wide_counted_values, np.float64, problems, expected)
        expected += self.constants[:, None]

    def gradient(self, problems: Problems, upstream: Array, value: Array, gradient: Array) -> None:
        number = NUMBERS[self.accuracy]
        self._run(counted_gradient, wide_counted_gradient, number, problems, upstream, value, gradient)
        value += np.add.reduceat(self.constants @ upstream, problems.offsets[:-1])

    def _run(
        self,
        on_narrow: Callable[..., None],
        on_wide: Callable[..., None],
        number: type[np.floating[Any]],
        problems: Problems,
        *arrays: Array,
    ) -> None:
        counts = problems.lengths * self.tables.shape[1]
        order, narrow = problems.alike(), problems.fit_side_by_side() & (counts <= MOST_COUNTS)
        grid, tables = self.grid, self.tables.astype(number)
        for kernel, chosen, weights in (
            (on_narrow, order[narrow[order]], tables),
            (on_wide, order[~narrow[order]], self.tables),
        ):
            over_threads(
                kernel, chosen, problems.threads, problems.scores, problems.offsets, grid, weights, *arrays
            )
