from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fultr import InputError, PositionBias
from fultr.expectation import (
    average_rank_weights,
    dcg_weights,
    exact,
    examination_weights,
    expected_position_weights,
    expected_weights,
    plain_expected_weights,
    value_and_gradient,
)
from fultr.expectation.exact import choose_routes
from fultr.expectation.exponentials import fit_exponentials
from fultr.expectation.sampled import draw_rankings, plrank_gradient, reinforce_gradient, sampled_values
from tests.reference import enumerated_gradient, enumerated_values

Array = NDArray[np.float64]


def exact_values(scores: Array, offsets: NDArray[np.int64], tables: Array, accuracy: Any = "single") -> Array:
    return exact.exact_values(exact.Problems.of(scores, offsets), tables, accuracy)


def exact_value_and_gradient(
    scores: Array, offsets: NDArray[np.int64], tables: Array, upstream: Array, accuracy: Any = "single"
) -> tuple[Array, Array]:
    return exact.exact_value_and_gradient(exact.Problems.of(scores, offsets), tables, upstream, accuracy)


RANGES = [0.0, 1.0, 20.0, 100.0, 1e4, 1e30]
ERROR = {"single": 5e-4, "double": 1e-10}
SLOPE_ERROR = {"single": 5e-4, "double": 1e-8}
KINDS = ["smooth", "cut", "linear", "any", "constant", "one"]


def tables_of(kind: str, longest: int) -> Array:
    rng = np.random.default_rng(longest)
    return {
        "smooth": np.stack([dcg_weights(longest), examination_weights(PositionBias.power(1.0), longest)]),
        "cut": np.stack([dcg_weights(longest, top_k=3), dcg_weights(longest)]),
        "linear": np.stack(
            [average_rank_weights(longest), examination_weights(PositionBias.power(2.0), longest)]
        ),
        "any": rng.normal(size=(2, longest)),
        "constant": np.stack([np.full(longest, 3.0), np.where(np.arange(longest) < 2, 1.0, 0.25)]),
        "one": dcg_weights(longest)[None],
    }[kind]


def random_scores(size: int, spread: float, seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).uniform(-0.5, 0.5, size=size) * spread)


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", ["single", "double"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("items", [1, 2, 3, 6])
def test_values_and_gradients_are_those_of_enumeration(items: int, kind: str, accuracy: Any) -> None:
    """T7, exact: against all rankings of up to 6 items."""
    tables = tables_of(kind, items)
    for spread in (0.0, 1.0, 5.0, 20.0):
        scores = random_scores(items, spread, seed=int(spread))
        upstream = np.random.default_rng(1).normal(size=tables.shape)
        largest = np.abs(tables).max()
        values = exact_values(scores, np.array([0, items]), tables, accuracy)
        np.testing.assert_allclose(
            values, enumerated_values(scores, tables), atol=ERROR[accuracy] * largest, rtol=0
        )
        value, slope = exact_value_and_gradient(scores, np.array([0, items]), tables, upstream, accuracy)
        expected = enumerated_gradient(scores, tables, upstream)
        scale = np.abs(upstream).sum() * largest
        np.testing.assert_allclose(slope, expected, atol=SLOPE_ERROR[accuracy] * scale, rtol=0)
        assert value[0] == pytest.approx((upstream * values).sum(), abs=2 * ERROR[accuracy] * scale)
        off = np.abs(slope - expected).max() / scale
        print(f"T7, {kind}, {items} items, range {spread:g}, {accuracy}: gradient off by {off:.1e}")


@pytest.mark.parametrize("accuracy", ["single", "double"])
@pytest.mark.parametrize(("items", "top_k"), [(20, 10), (100, 50), (100, 90), (400, 10), (400, 200)])
def test_sharp_cuts_after_many_positions(items: int, top_k: int, accuracy: Any) -> None:
    """With equal scores every rank is equally likely, so E[f(rank)] is the mean of f."""
    table, offsets = dcg_weights(items, top_k=top_k)[None], np.array([0, items])
    values = exact_values(np.zeros(items), offsets, table, accuracy)
    np.testing.assert_allclose(values, np.full((1, items), table.mean()), atol=ERROR[accuracy], rtol=0)
    if accuracy == "single":
        scores, upstream = random_scores(items, 0.5), np.random.default_rng(1).normal(size=(1, items))
        single, double = (
            exact_value_and_gradient(scores, offsets, table, upstream, one)[1] for one in ("single", "double")
        )
        assert np.linalg.norm(single - double) < 1e-3 * np.linalg.norm(double)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 5.0, 100.0, 1e4])
def test_both_accuracies_agree_on_a_thousand_items(spread: float) -> None:
    tables, offsets = np.stack([dcg_weights(1000, top_k=10), 1 / np.arange(1, 1001)]), np.array([0, 1000])
    scores, upstream = random_scores(1000, spread), np.random.default_rng(3).normal(size=(2, 1000))
    (value, slope), (expected, by_double) = (
        exact_value_and_gradient(scores, offsets, tables, upstream, one) for one in ("single", "double")
    )
    assert value[0] == pytest.approx(expected[0], abs=2e-3 * np.abs(upstream).sum() / 100)
    assert np.linalg.norm(slope - by_double) < 1e-2 * np.linalg.norm(by_double)
    print(f"range {spread:g}: {np.linalg.norm(slope - by_double) / np.linalg.norm(by_double):.1e}")


@pytest.mark.parametrize("kind", ["smooth", "cut", "any"])
def test_gradients_are_those_of_finite_differences(kind: str) -> None:
    tables, offsets = tables_of(kind, 9), np.array([0, 9])
    scores, upstream = random_scores(9, 4.0), np.random.default_rng(2).normal(size=(2, 9))
    slope = exact_value_and_gradient(scores, offsets, tables, upstream, "double")[1]
    for item in range(9):
        moved = [scores + sign * 1e-4 * (np.arange(9) == item) for sign in (1, -1)]
        ahead, behind = ((upstream * exact_values(one, offsets, tables, "double")).sum() for one in moved)
        assert slope[item] == pytest.approx((ahead - behind) / 2e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("spread", RANGES)
@pytest.mark.parametrize("items", [2, 20, 64, 65, 300])
def test_single_and_double_agree_at_any_length_and_range(items: int, spread: float) -> None:
    tables, offsets = tables_of("smooth", items), np.array([0, items, 2 * items])
    scores = random_scores(2 * items, spread)
    upstream = np.random.default_rng(3).normal(size=(2, 2 * items))
    single, double = (exact_values(scores, offsets, tables, accuracy) for accuracy in ("single", "double"))
    np.testing.assert_allclose(single, double, atol=5e-4, rtol=0)
    slopes = [
        exact_value_and_gradient(scores, offsets, tables, upstream, accuracy)[1]
        for accuracy in ("single", "double")
    ]
    assert np.isfinite(slopes).all()
    np.testing.assert_allclose(slopes[0], slopes[1], atol=2e-3 * np.abs(upstream).max(), rtol=0)


@pytest.mark.parametrize("spread", RANGES)
def test_weights_of_long_lists_add_up(spread: float) -> None:
    tables, offsets = tables_of("smooth", 1000), np.array([0, 1000])
    values = exact_values(random_scores(1000, spread), offsets, tables)
    np.testing.assert_allclose(values.sum(axis=1), tables.sum(axis=1), rtol=1e-3)


def test_far_apart_scores_give_the_certain_ranking() -> None:
    scores = np.array([-1e30, 1e30, 0.0, 5e29])
    values = exact_values(scores, np.array([0, 4]), tables_of("smooth", 4), "double")
    np.testing.assert_allclose(values, tables_of("smooth", 4)[:, [3, 0, 2, 1]], atol=1e-10)


def test_functions_take_the_cheapest_way() -> None:
    def ways(tables: Array, accuracy: Any = "single") -> list[str]:
        return sorted(type(route).__name__.strip("_") for route in choose_routes(tables, accuracy))

    assert ways(tables_of("smooth", 20)) == ["ExponentialRoute"]
    assert ways(tables_of("cut", 20)) == ["CountingRoute", "ExponentialRoute"]
    assert ways(tables_of("linear", 20)) == ["ExponentialRoute", "LinearRoute"]
    assert ways(tables_of("smooth", 20), "double") == ["CountingRoute"]
    assert ways(tables_of("constant", 20)) == ["CountingRoute", "LinearRoute"]
    counting = choose_routes(dcg_weights(50, top_k=10)[None], "single")[0]
    assert counting.tables.shape == (1, 10)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("longest", "nodes"), [(5, 4), (20, 6), (100, 8), (1000, 11)])
def test_a_handful_of_exponentials_fits(longest: int, nodes: int) -> None:
    tables = tables_of("smooth", longest)
    fit = fit_exponentials(tables, 2e-5)
    assert fit is not None
    assert fit.nodes.size <= nodes
    rebuilt = fit.coefficients @ fit.nodes[:, None] ** np.arange(longest)
    assert np.abs(rebuilt - tables).max() <= 2e-5
    assert fit_exponentials(dcg_weights(longest, top_k=2)[None], 2e-5) is None or longest == 5


ragged = st.lists(st.lists(st.floats(-30, 30), min_size=1, max_size=7), min_size=1, max_size=5)


@given(ragged, st.floats(-1e3, 1e3), st.sampled_from(KINDS))
def test_adding_a_constant_changes_nothing(lists: list[list[float]], shift: float, kind: str) -> None:
    scores, offsets = np.concatenate(lists), np.cumsum([0, *map(len, lists)])
    tables = tables_of(kind, 7)
    values = [exact_values(moved, offsets, tables) for moved in (scores, scores + shift)]
    np.testing.assert_allclose(values[0], values[1], atol=2e-5 * np.abs(tables).max())


@given(ragged, st.integers(0, 2**32 - 1), st.sampled_from(KINDS))
def test_permuting_items_permutes_results(lists: list[list[float]], seed: int, kind: str) -> None:
    scores, offsets = np.concatenate(lists), np.cumsum([0, *map(len, lists)])
    rng, tables = np.random.default_rng(seed), tables_of(kind, 7)
    upstream = rng.normal(size=(tables.shape[0], scores.size))
    order = np.concatenate(
        [start + rng.permutation(len(one)) for start, one in zip(offsets, lists, strict=False)]
    )
    largest = np.abs(tables).max()
    values = exact_values(scores, offsets, tables)[:, order]
    np.testing.assert_allclose(values, exact_values(scores[order], offsets, tables), atol=3e-5 * largest)
    slope = exact_value_and_gradient(scores, offsets, tables, upstream)[1][order]
    again = exact_value_and_gradient(scores[order], offsets, tables, upstream[:, order])[1]
    np.testing.assert_allclose(slope, again, atol=1e-4 * np.abs(upstream).sum() * largest)


@given(ragged, st.integers(0, 4), st.sampled_from(["smooth", "cut"]))
def test_padding_changes_nothing(lists: list[list[float]], more: int, kind: str) -> None:
    lengths = [len(one) for one in lists]
    width = max(lengths) + more
    padded = torch.full((len(lists), width), 1e20, dtype=torch.float64)
    for row, one in zip(padded, lists, strict=True):
        row[: len(one)] = torch.tensor(one, dtype=torch.float64)
    padded.requires_grad_()
    tables = tables_of(kind, 12)
    values = expected_weights(padded, tables, lengths=lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    flat = torch.tensor(np.concatenate(lists), requires_grad=True)
    same = expected_weights(flat, tables, offsets=np.cumsum([0, *lengths]))
    torch.testing.assert_close(values[:, mask], same)
    assert not values[:, ~mask].any()
    upstream = torch.from_numpy(np.random.default_rng(0).normal(size=tuple(values.shape)))
    (values * upstream).sum().backward()  # type: ignore[no-untyped-call]
    (same * upstream[:, mask]).sum().backward()  # type: ignore[no-untyped-call]
    assert padded.grad is not None
    assert flat.grad is not None
    torch.testing.assert_close(padded.grad[mask], flat.grad)
    assert not padded.grad[~mask].any()


@pytest.mark.parametrize("estimator", ["exact", "reinforce", "plrank"])
def test_configurations_are_a_leading_dimension(estimator: Any) -> None:
    offsets, tables = np.array([0, 3, 8]), tables_of("smooth", 5)
    scores = torch.from_numpy(random_scores(24, 2.0).reshape(3, 8)).requires_grad_()
    options: dict[str, Any] = {"estimator": estimator, "samples": 2000}
    together = expected_weights(scores, tables, offsets=offsets, **options)
    assert together.shape == (2, 3, 8)
    weights = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 8)))
    (slope,) = torch.autograd.grad((together * weights).sum(), scores)
    for number in range(3):
        alone = expected_weights(scores[number], tables, offsets=offsets, **options)
        (own,) = torch.autograd.grad((alone * weights[:, number]).sum(), scores)
        close = 1e-6 if estimator == "exact" else 0.3
        torch.testing.assert_close(alone, together[:, number], atol=close, rtol=0)
        torch.testing.assert_close(own[number], slope[number], atol=close, rtol=0)


def test_it_composes_with_any_scorer() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    scorer = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    tables, offsets = tables_of("smooth", 7), np.array([0, 5, 12])
    parameters = [parameter.detach().requires_grad_() for parameter in scorer.parameters()]

    def objective(*values: torch.Tensor) -> torch.Tensor:
        named = dict(zip(dict(scorer.named_parameters()), values, strict=True))
        scores = torch.func.functional_call(scorer, named, (features,)).squeeze(1)
        expected = expected_weights(scores, tables, offsets=offsets, accuracy="double")
        return (expected[0] * features[:, 0]).sum() - (expected[1] * features[:, 1]).sum() ** 2

    assert torch.autograd.gradcheck(objective, parameters, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_type_of_the_scores(dtype: torch.dtype) -> None:
    scores = torch.zeros(3, dtype=dtype, requires_grad=True)
    values = expected_weights(scores, tables_of("smooth", 3), offsets=[0, 3])
    assert values.dtype == dtype
    values.sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.dtype == dtype


def test_the_fused_pass_gives_value_and_gradient_at_once() -> None:
    offsets, tables = np.array([0, 4, 5, 9]), tables_of("smooth", 5)
    scores = random_scores(18, 3.0).reshape(2, 9)
    weights = np.random.default_rng(0).normal(size=(2, 9))
    value, slope = value_and_gradient(scores, tables, weights, offsets)
    assert value.shape == (2, 3)
    assert slope.shape == (2, 9)
    leaf = torch.from_numpy(scores).requires_grad_()
    total = (expected_weights(leaf, tables, offsets=offsets) * torch.from_numpy(weights)[:, None]).sum()
    total.backward()  # type: ignore[no-untyped-call]
    assert value.sum() == pytest.approx(float(total.detach()), abs=1e-4)
    assert leaf.grad is not None
    np.testing.assert_allclose(slope, leaf.grad.numpy(), atol=1e-6)


@pytest.mark.parametrize("estimator", ["reinforce", "plrank"])
def test_sampled_estimators_run_behind_the_same_signature(estimator: Any) -> None:
    offsets, tables, scores = np.array([0, 4, 9]), tables_of("cut", 5), random_scores(9, 2.0)
    leaf = torch.from_numpy(scores.copy()).requires_grad_()
    values = expected_weights(leaf, tables, offsets=offsets, estimator=estimator, samples=50, seed=5)
    order = draw_rankings(scores, offsets, 50, 5)
    np.testing.assert_allclose(values.detach().numpy(), sampled_values(order, offsets, tables))
    upstream = np.random.default_rng(0).normal(size=(2, 9))
    (values * torch.from_numpy(upstream)).sum().backward()  # type: ignore[no-untyped-call]
    estimate = reinforce_gradient if estimator == "reinforce" else plrank_gradient
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), estimate(scores, offsets, tables, upstream, order))


@pytest.mark.parametrize("accuracy", ["single", "double"])
@pytest.mark.parametrize("kind", ["smooth", "cut", "one"])
def test_plain_torch_gives_the_same(kind: str, accuracy: Any) -> None:
    lengths = [1, 2, 7, 20, 20]
    offsets = np.cumsum([0, *lengths])
    tables, scores = tables_of(kind, 20), random_scores(50, 6.0)
    scores[10:12] = [1e4, -1e30]
    upstream = np.random.default_rng(0).normal(size=(tables.shape[0], 50))
    leaf = torch.from_numpy(scores.copy()).requires_grad_()
    values = plain_expected_weights(leaf, tables, offsets, accuracy)
    (values * torch.from_numpy(upstream)).sum().backward()  # type: ignore[no-untyped-call]
    tolerance = {"single": 5e-4, "double": 1e-10}[accuracy]
    np.testing.assert_allclose(
        values.detach().numpy(), exact_values(scores, offsets, tables, accuracy), atol=tolerance
    )
    slope = exact_value_and_gradient(scores, offsets, tables, upstream, accuracy)[1]
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), slope, atol=20 * tolerance)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    lengths = np.random.default_rng(0).integers(1, 90, size=1500)
    offsets = np.cumsum([0, *lengths])
    scores, tables = random_scores(int(offsets[-1]), 12.0), tables_of("cut", 90)
    upstream = np.random.default_rng(1).normal(size=(2, scores.size))
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            results.append(
                [
                    exact_values(scores, offsets, tables),
                    *exact_value_and_gradient(scores, offsets, tables, upstream),
                ]
            )
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_arrays_in_arrays_out() -> None:
    scores = [[2.0, 0.0, 0.0], [1.0, 1.0, 99.0]]
    values = expected_position_weights(scores, [1.0, 0.0, 0.0], lengths=[3, 2])
    softmax = np.exp([2.0, 0, 0]) / np.exp([2.0, 0, 0]).sum()
    np.testing.assert_allclose(values, [softmax, [0.5, 0.5, 0.0]], atol=1e-10)
    assert expected_position_weights([0.0, 1.0], [[1.0, 0.5], [1.0, 0.0]]).shape == (2, 2)
    assert expected_position_weights([3.0], [0.7]).tolist() == [0.7]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"estimator": "best"}, "column 'estimator'"),
        ({"accuracy": "triple"}, "column 'accuracy'"),
        ({"tables": [[1.0, 0.5]]}, "a list has 3 items, but there are weights for 2 positions"),
        ({"tables": [1.0, 0.5, 0.2]}, "functions x positions"),
        ({"tables": [[1.0, float("nan"), 0.2]]}, "position 2 must be finite"),
        ({"tables": [["a", "b", "c"]]}, "must be numbers"),
        ({"offsets": [0, 2]}, "offsets must rise from 0 to the number of rows, 4"),
        ({"offsets": [0, 3, 3, 4]}, "offsets must rise"),
        ({"lengths": [3]}, "not both"),
        ({"scores": torch.tensor([0.0, float("nan"), 0.0, 0.0])}, "row 2, column 'score'"),
        ({"scores": torch.tensor([1, 2, 3, 4])}, "real numbers"),
        ({"offsets": None}, "lists x items"),
        (
            {"offsets": None, "scores": torch.zeros(2, 3), "lengths": [3, 4]},
            "from 1 to 3 for each of 2 lists",
        ),
    ],
)
def test_wrong_requests_are_refused(change: dict[str, Any], problem: str) -> None:
    given_: dict[str, Any] = {
        "scores": torch.zeros(4),
        "tables": [[1.0, 0.5, 0.2]],
        "offsets": [0, 3, 4],
        **change,
    }
    scores, tables = given_.pop("scores"), given_.pop("tables")
    with pytest.raises(InputError, match=problem):
        expected_weights(scores, tables, **given_)


BITS = """
import hashlib
import numpy as np
from fultr.expectation import dcg_weights, value_and_gradient
rng = np.random.default_rng(0)
lengths = np.array([7, 20, 13, 90, 5, 64] * 12)
scores, offsets = 3 * rng.normal(size=lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])
digest = hashlib.sha256()
for tables in (np.stack([dcg_weights(90), 1 / np.arange(1, 91)]), dcg_weights(90, top_k=5)[None]):
    known = rng.normal(size=(len(tables), scores.size))
    for spread in (1.0, 40.0):
        for found in value_and_gradient(spread * scores, tables, known, offsets):
            digest.update(found.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_a_process_that_compiles_and_one_that_loads_give_the_same_bits(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        subprocess.run(
            [sys.executable, "-c", BITS], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert len(found[0].strip()) == 64
