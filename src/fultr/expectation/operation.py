"""One torch operation: from scores to each item's expected position weights, with its gradient.

Utility, exposure and disparity are plain tensor arithmetic on top of it, so that they compose with any
scorer, and their cost does not depend on the number of group pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fultr.arguments import one_of
from fultr.errors import InputError
from fultr.expectation.exact import Accuracy, Problems, exact_value_and_gradient, exact_values
from fultr.expectation.plain_torch import plain_expected_weights
from fultr.expectation.sampled import draw_rankings, plrank_gradient, reinforce_gradient, sampled_values

Estimator = Literal["exact", "reinforce", "plrank"]
Lists = NDArray[np.int64]
Array = NDArray[np.float64]


def expected_weights(
    scores: Tensor,
    tables: ArrayLike,
    *,
    offsets: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    estimator: Estimator = "exact",
    accuracy: Accuracy = "single",
    samples: int = 32,
    seed: int | np.random.Generator = 0,
) -> Tensor:
    """Return E[f(rank d)] under the Plackett-Luce model of the scores, for each function f and item d.

    Parameters
    ----------
    scores
        Ragged lists, (..., rows) with `offsets`; or padded ones, (..., lists, items), with `lengths` unless
        all lists are full. Leading dimensions are configurations. Must be finite where there is an item.
    tables
        Position weights, (functions, positions): the weight of position k of function f at [f, k - 1].
    offsets
        Where each ragged list starts, and the number of rows at the end.
    lengths
        The number of items of each padded list; what is beyond gets the weight 0 and no gradient.
    estimator
        "exact"; or from `samples` sampled rankings "reinforce" (the paper's log-derivative estimator with the
        mean reward as control variate) or "plrank" (PL-Rank-3, Oosterhuis 2022).
    accuracy
        Of the exact estimator: "single" (error below 5e-4 of the largest weight) or "double" (1e-10).
    samples, seed
        Of the sampled estimators. The same seed draws the same rankings.

    Returns
    -------
    weights
        (functions, *scores.shape).

    Examples
    --------
    >>> scores = torch.zeros(3, dtype=torch.float64)
    >>> expected_weights(scores, [[1.0, 0.5, 0.0]], offsets=[0, 3]).round(decimals=3).tolist()
    [[0.5, 0.5, 0.5]]
    """
    weights = position_weights(tables)
    places, starts = _places(scores, offsets, lengths)
    _check_list_length(starts, weights)
    one_of(estimator, "estimator", "exact", "reinforce", "plrank")
    one_of(accuracy, "accuracy", "single", "double")
    flat = scores.reshape(-1)[places]
    if estimator != "exact":
        # rankings are drawn and walked through on the CPU, whatever the scores are on
        drawn = run_sampled(flat.to("cpu"), weights, starts, estimator, samples, seed)
        expected = drawn.to(scores.device)
    elif scores.device.type == "cpu":
        expected = run_exact(flat, weights, starts, accuracy)
    else:
        expected = plain_expected_weights(flat, weights, starts, accuracy)
    if flat.numel() == scores.numel():
        return expected.reshape(weights.shape[0], *scores.shape)
    filled = expected.new_zeros(weights.shape[0], scores.numel())
    return filled.index_copy(1, places, expected).reshape(weights.shape[0], *scores.shape)


def value_and_gradient(
    scores: ArrayLike,
    tables: ArrayLike,
    item_weights: ArrayLike,
    offsets: ArrayLike,
    accuracy: Accuracy = "single",
) -> tuple[Array, Array]:
    """Return V = sum_{f, d} item_weights[f, d] E[f(rank d)] of each list and dV/dscores, in one pass.

    For item weights that are known beforehand this costs about half of `expected_weights` and its backward
    pass. Scores are (configurations..., rows), and so is the gradient; V is (configurations..., lists), and
    item weights are (functions, rows) or (functions, configurations..., rows).
    """
    score_array = np.asarray(scores, dtype=np.float64)
    weights, rows = position_weights(tables), score_array.shape[-1]
    starts = _as_offsets(offsets, rows)
    _check_list_length(starts, weights)
    item_array = np.asarray(item_weights, dtype=np.float64)
    upstream, shape = item_array, (weights.shape[0], *score_array.shape)
    if item_array.shape != shape:
        gaps = [1] * (score_array.ndim - item_array.ndim + 1)
        upstream = np.broadcast_to(
            item_array.reshape(item_array.shape[0], *gaps, *item_array.shape[1:]), shape
        )
    tiled = tiled_offsets(starts, score_array.size // max(rows, 1))
    value, gradient = exact_value_and_gradient(
        Problems.of(score_array.reshape(-1), tiled),
        weights,
        np.ascontiguousarray(upstream.reshape(weights.shape[0], -1)),
        accuracy,
    )
    return value.reshape(*score_array.shape[:-1], starts.size - 1), gradient.reshape(score_array.shape)


def expected_position_weights(
    scores: ArrayLike, weights: ArrayLike, lengths: ArrayLike | None = None, *, accuracy: Accuracy = "double"
) -> Array:
    """Return E[f(rank d)] exactly, for arrays: each item's expected weight under Plackett-Luce.

    Parameters
    ----------
    scores
        (lists, items), or (items,) for a single list.
    weights
        Position weights: (positions,), or (functions, positions).
    lengths
        The number of items of each list; all by default. What is beyond gets 0.
    accuracy
        "double" (error below 1e-10 of the largest weight) or "single" (5e-4, and faster).

    Returns
    -------
    expected
        The shape of `scores`, after a leading dimension of functions if `weights` has one.

    Examples
    --------
    >>> expected_position_weights([[2.0, 0.0, 0.0]], [1.0, 0.0, 0.0]).round(4).tolist()  # the softmax
    [[0.787, 0.1065, 0.1065]]
    """
    score_array = np.asarray(scores, dtype=np.float64)
    tables = np.asarray(weights, dtype=np.float64)
    padded = torch.tensor(np.atleast_2d(score_array))
    size = None if lengths is None else np.atleast_1d(np.asarray(lengths))
    expected = expected_weights(padded, np.atleast_2d(tables), lengths=size, accuracy=accuracy).numpy()
    expected = expected.reshape(expected.shape[0], *score_array.shape)
    return np.asarray(expected if tables.ndim > 1 else expected[0])


class _Exact(torch.autograd.Function):
    """The exact estimator as a torch operation; the backward pass computes afresh what it needs."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, tables: Array, offsets: Lists, accuracy: Accuracy) -> Tensor:
        ctx.problems, ctx.tables, ctx.accuracy = Problems.of(_numbers(scores), offsets), tables, accuracy
        return torch.from_numpy(exact_values(ctx.problems, tables, accuracy)).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        upstream_array = np.ascontiguousarray(_numbers(upstream[0]))
        gradient = exact_value_and_gradient(ctx.problems, ctx.tables, upstream_array, ctx.accuracy)[1]
        return torch.from_numpy(gradient).to(upstream[0].dtype), None, None, None


class _Sampled(torch.autograd.Function):
    """A sampled estimator as a torch operation; values and gradient come from the same rankings."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        tables: Array,
        offsets: Lists,
        estimator: Estimator,
        samples: int,
        seed: int | np.random.Generator,
    ) -> Tensor:
        order = draw_rankings(_numbers(scores), offsets, samples, seed)
        ctx.save_for_backward(scores)
        ctx.tables, ctx.offsets, ctx.estimator, ctx.order = tables, offsets, estimator, order
        return torch.from_numpy(sampled_values(order, offsets, tables)).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        estimate = reinforce_gradient if ctx.estimator == "reinforce" else plrank_gradient
        upstream_array = np.ascontiguousarray(_numbers(upstream[0]))
        gradient = estimate(_numbers(scores), ctx.offsets, ctx.tables, upstream_array, ctx.order)
        return torch.from_numpy(gradient).to(scores.dtype), None, None, None, None, None


run_exact: Callable[..., Tensor] = _Exact.apply
run_sampled: Callable[..., Tensor] = _Sampled.apply


def position_weights(tables: ArrayLike) -> Array:
    """Return position weights as functions x positions; they must be finite."""
    try:
        weights = np.ascontiguousarray(tables, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("position weights must be numbers", column="tables") from None
    if weights.ndim != 2 or 0 in weights.shape:
        raise InputError(
            "position weights must be functions x positions", column="tables", value=weights.shape
        )
    wrong = np.argwhere(~np.isfinite(weights))
    if wrong.size:
        problem = f"the weight of position {wrong[0][1] + 1} must be finite"
        raise InputError(problem, column="tables", value=weights[tuple(wrong[0])])
    return weights


def _numbers(values: Tensor) -> Array:
    return np.asarray(values.detach().to(torch.float64).numpy())


def _check_list_length(offsets: Lists, tables: Array) -> None:
    longest = int(np.diff(offsets).max(initial=0))
    if longest > tables.shape[1]:
        problem = f"a list has {longest} items, but there are weights for {tables.shape[1]} positions only"
        raise InputError(problem, column="tables")


def _as_offsets(values: ArrayLike, rows: int) -> Lists:
    offsets = np.asarray(values, dtype=np.int64)
    if (
        offsets.ndim != 1
        or offsets.size == 0
        or offsets[0] != 0
        or offsets[-1] != rows
        or (np.diff(offsets) < 1).any()
    ):
        raise InputError(f"offsets must rise from 0 to the number of rows, {rows}", column="offsets")
    return offsets


def tiled_offsets(offsets: Lists, configurations: int) -> Lists:
    """Return the offsets of lists that come once for each configuration."""
    starts = offsets[:-1] + int(offsets[-1]) * np.arange(configurations)[:, None]
    return np.append(starts.reshape(-1), int(offsets[-1]) * configurations)


def _places(scores: Tensor, offsets: ArrayLike | None, lengths: ArrayLike | None) -> tuple[Any, Lists]:
    """Return where the items stand among all scores, and the offsets of the lists among the items."""
    if scores.dim() == 0 or not scores.is_floating_point():
        raise InputError("scores must be a tensor of real numbers", column="scores", value=str(scores.dtype))
    if offsets is not None:
        if lengths is not None:
            raise InputError("give offsets for ragged lists or lengths for padded ones, not both")
        rows = scores.shape[-1]
        starts = _as_offsets(offsets, rows)
        return slice(None), tiled_offsets(starts, scores.numel() // max(rows, 1))
    if scores.dim() < 2:
        raise InputError("padded scores are lists x items; ragged ones need offsets", column="scores")
    lists, items = scores.shape[-2:]
    configurations = scores.numel() // max(lists * items, 1)
    size = np.full(lists, items) if lengths is None else np.asarray(lengths, dtype=np.int64)
    if size.shape != (lists,) or (size < 1).any() or (size > items).any():
        raise InputError(
            f"must be from 1 to {items} for each of {lists} lists", column="lengths", value=size.shape
        )
    starts = np.concatenate([[0], np.cumsum(np.tile(size, configurations))])
    if (size == items).all():
        return slice(None), starts
    mask = np.tile((np.arange(items) < size[:, None]).reshape(-1), configurations)
    return torch.from_numpy(np.flatnonzero(mask)).to(scores.device), starts
