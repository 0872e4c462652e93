"""L-BFGS for many problems at once, on functions whose minima are known."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from fultr import InputError
from fultr.training import lbfgs
from fultr.training.lbfgs import Search, minimise, start

Array = NDArray[np.float64]


class Known(NamedTuple):
    """What a gradient needs to know: here the points themselves, to see that they are the right ones."""

    points: Array


class Each:
    """One function for each problem; counts evaluations and checks what the search asks for."""

    def __init__(self, *functions: Callable[[Array], tuple[float, Array]]) -> None:
        self.functions = functions
        self.values = 0
        self.asked: list[set[int]] = []

    def value(self, points: Array, which: NDArray[np.int64]) -> tuple[Array, Any]:
        self.values += 1
        self.asked.append(set(which.tolist()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = [self.functions[problem](point)[0] for problem, point in zip(which, points, strict=True)]
        return np.array(values), Known(points.copy())

    def gradient(self, points: Array, which: NDArray[np.int64], known: Any) -> Array:
        np.testing.assert_array_equal(points, known.points)
        return np.stack(
            [self.functions[problem](point)[1] for problem, point in zip(which, points, strict=True)]
        )


def quadratic(seed: int, size: int = 6, condition: float = 100.0) -> tuple[Callable[..., Any], Array]:
    """(x - x0) A (x - x0) / 2 + 1 with eigenvalues from 1 to the condition, and x0."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix = basis @ np.diag(np.geomspace(1, condition, size)) @ basis.T
    best = rng.normal(size=size)

    def function(point: Array) -> tuple[float, Array]:
        away = point - best
        return float(away @ matrix @ away) / 2 + 1, matrix @ away

    return function, best


def rosenbrock(point: Array) -> tuple[float, Array]:
    x, y = point[:2]
    gradient = np.zeros_like(point)
    gradient[:2] = -2 * (1 - x) - 400 * x * (y - x**2), 200 * (y - x**2)
    return float((1 - x) ** 2 + 100 * (y - x**2) ** 2), gradient


def found(function: Any, points: Array, **options: Any) -> Search:
    settings = {"tolerance": 1e-14, "most_iterations": 500, **options}
    return minimise(function, start(function, points), **settings)


@pytest.mark.parametrize("condition", [1.0, 100.0, 1e4])
def test_quadratic_functions_are_solved(condition: float) -> None:
    function, best = quadratic(0, condition=condition)
    search = found(Each(function), np.zeros((1, 6)))
    np.testing.assert_allclose(search.point[0], best, atol=1e-5)
    assert search.value[0] == pytest.approx(1, abs=1e-10)
    assert not search.running.any()


def test_a_sphere_takes_few_steps() -> None:
    function, best = quadratic(1, condition=1.0)
    search = found(Each(function), best[None] + 10)
    assert search.iterations[0] <= 8


def test_rosenbrock_is_solved_as_fast_as_by_scipy() -> None:
    function = Each(rosenbrock)
    search = found(function, np.array([[-1.2, 1.0]]))
    np.testing.assert_allclose(search.point, [[1, 1]], atol=1e-5)
    other = minimize(rosenbrock, [-1.2, 1.0], jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 0})
    assert function.values <= 2 * other.nfev


def test_problems_together_are_solved_as_alone() -> None:
    functions = [quadratic(seed, condition=10.0**seed)[0] for seed in range(4)] + [rosenbrock]
    points = np.random.default_rng(0).normal(size=(5, 6))
    together_function = Each(*functions)
    together = found(together_function, points)
    for number, function in enumerate(functions):
        alone = found(Each(function), points[number : number + 1])
        for name in ("point", "value", "gradient", "iterations", "stalled"):
            np.testing.assert_array_equal(
                getattr(together, name)[number], getattr(alone, name)[0], err_msg=name
            )
    # a problem that is solved is not evaluated any more
    assert len(together_function.asked[-1]) < 5


def test_values_never_rise() -> None:
    seen: list[Array] = []
    function = Each(rosenbrock, quadratic(3)[0])
    search = start(function, np.full((2, 6), 3.0))
    first = search.value.copy()
    minimise(
        function,
        search,
        tolerance=1e-12,
        most_iterations=200,
        after_step=lambda reached: seen.append(reached.value.copy()),
    )
    assert (np.diff(np.stack([first, *seen]), axis=0) <= 0).all()


def test_a_search_goes_on_from_any_step_as_if_never_stopped() -> None:
    functions = (rosenbrock, quadratic(2)[0], quadratic(4, condition=1e4)[0])
    points = np.random.default_rng(1).normal(size=(3, 6))
    kept: list[dict[str, Any]] = []

    def keep(reached: Search) -> None:
        kept.append({name: values.copy() for name, values in reached.to_tensors().items()})

    whole = found(Each(*functions), points, after_step=keep)
    assert len(kept) > 20
    for state in kept:
        assert {values.dtype for values in state.values()} <= {np.dtype(np.float64), np.dtype(np.int64)}
        again = minimise(
            Each(*functions), Search.from_tensors(state, points), tolerance=1e-14, most_iterations=500
        ).to_tensors()
        for name, values in whole.to_tensors().items():
            np.testing.assert_array_equal(again[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("point", np.zeros((1, 3))),
        ("point", np.full((1, 2), np.nan)),
        ("gradient", np.zeros((2, 2))),
        ("value", np.zeros(1, dtype=np.int64)),
        ("moves", np.zeros((1, 3, 2))),
        ("curvature", None),
        ("iterations", np.zeros(1)),
        ("running", np.ones(2, dtype=np.int64)),
        ("marks", np.zeros((1, 1, 2))),
    ],
)
def test_the_state_of_another_search_is_refused(name: str, values: Any) -> None:
    points = np.zeros((1, 2))
    state = start(Each(rosenbrock), points).to_tensors()
    Search.from_tensors(state, points)
    changed = {key: kept for key, kept in {**state, name: values}.items() if kept is not None}
    with pytest.raises(InputError, match=rf"column '{name}'.*no state of this training"):
        Search.from_tensors(changed, points)


def test_what_a_search_was_taken_up_from_is_not_changed() -> None:
    state = start(Each(rosenbrock), np.zeros((1, 2))).to_tensors()
    before = {name: values.copy() for name, values in state.items()}
    minimise(
        Each(rosenbrock), Search.from_tensors(state, np.zeros((1, 2))), tolerance=1e-9, most_iterations=5
    )
    for name, values in before.items():
        np.testing.assert_array_equal(state[name], values)


def test_initial_points_are_not_changed() -> None:
    points = np.zeros((1, 6))
    found(Each(quadratic(0)[0]), points)
    assert not points.any()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_stepped_back_from(wrong: float) -> None:
    seen: list[float] = []

    def walled(point: Array) -> tuple[float, Array]:
        seen.append(float(point[0]))
        value = 10 * float((point[0] - 0.4) ** 2) if point[0] < 0.5 else wrong
        return value, np.array([20 * (point[0] - 0.4)])

    def free(point: Array) -> tuple[float, Array]:
        return float((point[0] - 1) ** 2), np.array([2 * (point[0] - 1)])

    # a first step has the length 1, and leads beyond the wall
    search = found(Each(walled, free), np.zeros((2, 1)))
    assert max(seen) == 1
    np.testing.assert_allclose(search.point, [[0.4], [1.0]], atol=1e-6)
    assert np.isfinite(search.value).all()


def test_a_wall_all_around_ends_the_search() -> None:
    def wall(point: Array) -> tuple[float, Array]:
        return (0.0 if not point.any() else np.nan), np.ones_like(point)

    search = found(Each(wall), np.zeros((1, 3)))
    assert not search.point.any()
    assert search.iterations[0] == 0
    assert not search.running.any()


def test_a_start_at_the_minimum_stays_there() -> None:
    function, best = quadratic(5)
    search = found(Each(function, rosenbrock), np.stack([best, np.full(6, 1.0)]))
    np.testing.assert_array_equal(search.point, np.stack([best, np.full(6, 1.0)]))
    assert search.iterations.max() <= lbfgs.PATIENCE
    assert not search.running.any()


def test_a_function_without_a_minimum_ends_after_the_steps_allowed() -> None:
    def falling(point: Array) -> tuple[float, Array]:
        return -float(point.sum()), -np.ones_like(point)

    search = found(Each(falling), np.zeros((1, 2)), most_iterations=17)
    assert search.iterations[0] == 17
    again = minimise(Each(falling), search, tolerance=0.0, most_iterations=17)
    assert again.iterations[0] == 17


def test_a_saddle_is_left_downhill() -> None:
    def saddle(point: Array) -> tuple[float, Array]:
        x, y = point
        return float(x**2 - y**2 + y**4), np.array([2 * x, -2 * y + 4 * y**3])

    search = found(Each(saddle), np.array([[1.0, 1e-3]]))
    assert search.value[0] == pytest.approx(-0.25)
    np.testing.assert_allclose(np.abs(search.point[0]), [0, np.sqrt(0.5)], atol=1e-5)


def test_points_on_the_way_are_kept() -> None:
    functions = [quadratic(seed)[0] for seed in (1, 2)]
    points = np.random.default_rng(0).normal(size=(2, 6))
    settings: dict[str, Any] = {"tolerance": 1e-12, "most_iterations": 500}
    stops = [0, 3, 7, 400]
    begun = start(Each(*functions), points, len(stops))
    whole = minimise(Each(*functions), begun, marked=stops, **settings)
    np.testing.assert_array_equal(whole.marks[:, 0], points)
    for place, last in ((1, 3), (2, 7)):
        stopped = found(Each(*functions), points, tolerance=1e-12, most_iterations=last)
        np.testing.assert_array_equal(whole.marks[:, place], stopped.point)
    # it ended before
    assert whole.iterations.max() < 400
    np.testing.assert_array_equal(whole.marks[:, 3], whole.point)


def test_a_search_that_goes_on_keeps_its_points_on_the_way() -> None:
    function = quadratic(1)[0]
    points = np.random.default_rng(0).normal(size=(1, 6))
    settings: dict[str, Any] = {"tolerance": 1e-12, "most_iterations": 500, "marked": [3, 9]}
    whole = minimise(Each(function), start(Each(function), points, 2), **settings)
    left = minimise(Each(function), start(Each(function), points, 2), **{**settings, "most_iterations": 5})
    left.running[:] = True
    resumed = minimise(Each(function), Search.from_tensors(left.to_tensors(), points, 2), **settings)
    np.testing.assert_array_equal(resumed.marks, whole.marks)
