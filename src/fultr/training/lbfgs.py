"""Limited-memory BFGS for many problems at once: each has its own step, its own history and its own end.

One evaluation serves all problems that are still running, which is what makes a sweep cheap. The state is a
set of arrays: saved and read back, the search goes on exactly as it would have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fultr.errors import InputError

Array = NDArray[np.float64]

HISTORY = 10
"""Pairs of steps and changes of the gradient that are remembered."""

SUFFICIENT = 1e-4
"""A step must gain this share of what the slope promises."""

SHORTEST = 1e-10
"""A step is given up when it would be this small a part of the one proposed."""

PATIENCE = 3
"""Steps in a row that gain next to nothing before a problem counts as solved."""


class Function(Protocol):
    """What is minimised: values first, gradients only where a step is taken."""

    def value(self, points: Array, which: NDArray[np.int64]) -> tuple[Array, Any]:
        """Return the values of problems `which` at their points, and what `gradient` needs to know."""
        ...

    def gradient(self, points: Array, which: NDArray[np.int64], trace: Any) -> Array:
        """Return the gradients there."""
        ...


@dataclass
class Search:
    """The state of all searches: problems come first in every array.

    `marks` holds the points after certain numbers of iterations, or the last if there were fewer.
    """

    point: Array
    value: Array
    gradient: Array
    moves: Array
    changes: Array
    curvature: Array
    iterations: NDArray[np.int64]
    stalled: NDArray[np.int64]
    running: NDArray[np.bool_]
    marks: Array

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, as a file of tensors can hold them."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.running.any():  # what is solved needs no history
            tensors |= {name: tensors[name][:, :0] for name in ("moves", "changes", "curvature")}
        return {**tensors, "running": self.running.astype(np.int64)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], points: Array, marks: int = 0) -> Search:
        """Take up a search from the given points where it was left; refuse what is no such search."""
        count, size = points.shape
        arrays = {field.name: tensors[field.name].copy() for field in fields(cls) if field.name in tensors}
        history = HISTORY if np.any(arrays.get("running", 0)) else 0
        shapes = {
            "point": (count, size),
            "gradient": (count, size),
            "value": (count,),
            **dict.fromkeys(("moves", "changes"), (count, history, size)),
            **dict.fromkeys(("iterations", "stalled", "running"), (count,)),
            "curvature": (count, history),
            "marks": (count, marks, size),
        }
        for name, shape in shapes.items():
            kind = np.int64 if name in ("iterations", "stalled", "running") else np.float64
            values = arrays.get(name)
            if (
                values is None
                or values.shape != shape
                or values.dtype != kind
                or not np.isfinite(values).all()
            ):
                raise InputError("what was kept is no state of this training; remove it", column=name)
        return cls(**{**arrays, "running": arrays["running"].astype(bool)})


def start(function: Function, points: Array, marks: int = 0) -> Search:
    """Begin at the given points, one for each problem, with space for `marks` points on the way."""
    count, size = points.shape
    everyone = np.arange(count)
    value, trace = function.value(points, everyone)
    return Search(
        point=points.copy(),
        value=value,
        gradient=function.gradient(points, everyone, trace),
        moves=np.zeros((count, HISTORY, size)),
        changes=np.zeros((count, HISTORY, size)),
        curvature=np.zeros((count, HISTORY)),
        iterations=np.zeros(count, dtype=np.int64),
        stalled=np.zeros(count, dtype=np.int64),
        running=np.ones(count, dtype=bool),
        marks=np.repeat(points[:, None], marks, axis=1),
    )


def minimise(
    function: Function,
    search: Search,
    *,
    tolerance: float,
    most_iterations: int,
    marked: Sequence[int] = (),
    after_step: Callable[[Search], None] | None = None,
) -> Search:
    """Go on until every problem is solved: its last steps gained less than `tolerance` of its value.

    The points after the numbers of iterations in `marked` are kept in the marks of the search.
    """
    search.running &= search.iterations < most_iterations
    while search.running.any():
        _step(function, search, tolerance, most_iterations)
        for mark, last in enumerate(marked):
            before = search.iterations <= last
            search.marks[before, mark] = search.point[before]
        if after_step is not None:
            after_step(search)
    return search


def _step(function: Function, search: Search, tolerance: float, most_iterations: int) -> None:
    """Move every running problem once along its direction."""
    which = np.flatnonzero(search.running)
    direction = _directions(search, which)
    slope = (direction * search.gradient[which]).sum(axis=1)
    moved, value, trial = _line_search(function, search, which, direction, slope)
    # a problem that cannot move has arrived, as far as the numbers can tell
    stuck = ~moved
    search.running[which[stuck]] = False
    if not moved.any():
        return
    moving, reached = which[moved], value[moved]
    point = trial.points[moved]
    gradient = function.gradient(point, moving, trial.pick(moved))
    _remember(search, moving, point - search.point[moving], gradient - search.gradient[moving])
    gain = search.value[moving] - reached
    small = gain <= tolerance * np.maximum(np.abs(reached), 1e-12)
    search.stalled[moving] = np.where(small, search.stalled[moving] + 1, 0)
    search.point[moving], search.value[moving], search.gradient[moving] = point, reached, gradient
    search.iterations[moving] += 1
    done = (search.stalled[moving] >= PATIENCE) | (search.iterations[moving] >= most_iterations)
    search.running[moving[done]] = False


def _directions(search: Search, which: NDArray[np.int64]) -> Array:
    """Return -H g by the two loops over the history; downhill in any case."""
    gradient = search.gradient[which]
    moves, changes = search.moves[which], search.changes[which]
    curvature = search.curvature[which]
    inverse = np.where(curvature > 0, 1 / np.where(curvature > 0, curvature, 1.0), 0.0)
    direction, shares = gradient.copy(), np.zeros_like(curvature)
    for back in range(HISTORY):  # the newest pair comes first
        shares[:, back] = inverse[:, back] * (moves[:, back] * direction).sum(axis=1)
        direction -= shares[:, back, None] * changes[:, back]
    length = (changes[:, 0] ** 2).sum(axis=1)
    first = curvature[:, 0] <= 0
    size = np.sqrt((gradient**2).sum(axis=1))
    scale = np.where(first, 1 / np.maximum(size, 1.0), curvature[:, 0] / np.where(first, 1.0, length))
    direction *= scale[:, None]
    for back in range(HISTORY - 1, -1, -1):
        correction = shares[:, back] - inverse[:, back] * (changes[:, back] * direction).sum(axis=1)
        direction += correction[:, None] * moves[:, back]
    uphill = (direction * gradient).sum(axis=1) <= 0
    direction[uphill] = gradient[uphill] / np.maximum(size[uphill, None], 1.0)
    return -direction


@dataclass
class _Trial:
    """Where each problem was last evaluated, and what its gradient there needs to know."""

    points: Array
    parts: list[tuple[NDArray[np.int64], Any]]

    def pick(self, chosen: NDArray[np.bool_]) -> Any:
        """Return what is known of the chosen problems, in their order."""
        index = np.flatnonzero(chosen)
        return _joined(self.parts, index)


def _joined(parts: list[tuple[NDArray[np.int64], Any]], index: NDArray[np.int64]) -> Any:
    """Put together, field by field, what was last known of each place."""
    names = type(parts[0][1])
    columns = []
    for field in range(len(parts[0][1])):
        example = parts[0][1][field]
        column = np.zeros((int(max(pair[0].max() for pair in parts)) + 1, *example.shape[1:]))
        for where, trace in parts:
            column[where] = trace[field]
        columns.append(column[index])
    return names(*columns)


def _line_search(
    function: Function, search: Search, which: NDArray[np.int64], direction: Array, slope: Array
) -> tuple[NDArray[np.bool_], Array, _Trial]:
    """Shorten steps until each gains enough; say which did, their values, and what was evaluated last."""
    length = np.ones(which.size)
    moved, value = np.zeros(which.size, dtype=bool), search.value[which].copy()
    trial = _Trial(search.point[which].copy(), [])
    waiting = np.arange(which.size)
    while waiting.size:
        points = search.point[which[waiting]] + length[waiting, None] * direction[waiting]
        reached, trace = function.value(points, which[waiting])
        trial.parts.append((waiting, trace))
        trial.points[waiting] = points
        promised = length[waiting] * slope[waiting]
        before = search.value[which[waiting]]
        good = np.isfinite(reached) & (reached <= before + SUFFICIENT * promised)
        value[waiting[good]] = reached[good]
        moved[waiting[good]] = True
        # the minimum of the parabola through what is known, kept within a tenth and a half
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            shorter = -promised / (2 * (reached - before - promised))
        shorter = np.clip(np.nan_to_num(shorter, nan=0.1), 0.1, 0.5)
        length[waiting] *= np.where(good, 1.0, shorter)
        waiting = waiting[~good & (length[waiting] > SHORTEST)]
    return moved, value, trial


def _remember(search: Search, which: NDArray[np.int64], move: Array, change: Array) -> None:
    """Put the newest pair first in the history, unless the function curves the wrong way along it."""
    curvature = (move * change).sum(axis=1)
    sizes = np.sqrt((move**2).sum(axis=1) * (change**2).sum(axis=1))
    good = curvature > 1e-8 * sizes
    bent = which[good]
    for history, newest in ((search.moves, move), (search.changes, change)):
        history[bent, 1:] = history[bent, :-1]
        history[bent, 0] = newest[good]
    search.curvature[bent, 1:] = search.curvature[bent, :-1]
    search.curvature[bent, 0] = curvature[good]
