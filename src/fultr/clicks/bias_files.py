"""Estimated position biases as files: one JSON object, which is read wherever a position bias is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fultr.click_model import PositionBias, PositionBiasByContext
from fultr.clicks.bias_estimate import BiasEstimate
from fultr.errors import InputError
from fultr.files import read_json, write_text


def write_bias(estimate: BiasEstimate | Mapping[str, BiasEstimate], path: str | Path) -> None:
    """Write an estimate, or those of all contexts that `estimate_bias` returned, to one file for `--bias`.

    `values` and `beyond` of an estimate in it are those of `to_position_bias()`.
    """
    content = estimate.to_dict() if isinstance(estimate, BiasEstimate) else _by_context(estimate)
    write_text(path, json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def _by_context(estimates: Mapping[str, BiasEstimate]) -> dict[str, Any]:
    columns = {None if one.context is None else one.context[0] for one in estimates.values()}
    column = next(iter(columns), None)
    if column is None or len(columns) > 1:
        raise InputError("estimates for several contexts must name one column", column="context")
    return {"column": column, "curves": {value: one.to_dict() for value, one in estimates.items()}}


def read_bias(path: str | Path) -> BiasEstimate:
    """Read an estimate that `write_bias` wrote, with its intervals, counts and notes."""
    return read_json(path, _estimate)


def read_position_bias(path: str | Path) -> PositionBias | BiasEstimate | PositionBiasByContext:
    """Read a position bias of any kind: values by position, an estimate, or a curve for each context.

    The curves of a file that was estimated are estimates, too.
    """
    bias = read_json(path, _any_kind)
    return replace(bias, file=str(path)) if isinstance(bias, PositionBiasByContext) else bias


def _any_kind(content: Any) -> PositionBias | BiasEstimate | PositionBiasByContext:
    if not isinstance(content, dict) or "curves" not in content:
        return _one_curve(content)
    plain = PositionBiasByContext.from_dict(content)
    curves = {value: _one_curve(content["curves"][value]) for value in plain.curves}
    return PositionBiasByContext(plain.column, curves)


def _one_curve(content: Any) -> PositionBias | BiasEstimate:
    """Return an estimate, unless someone has changed its values: these count then."""
    plain = PositionBias.from_dict(content)
    if "positions" not in content:
        return plain
    estimate = BiasEstimate.from_dict(content)
    return estimate if _same(estimate.to_position_bias(), plain) else plain


def _same(one: PositionBias, other: PositionBias) -> bool:
    """Say whether two curves are the same but for rounding."""
    size, powers = len(one.values), (one.beyond, other.beyond)
    if any(isinstance(power, str) for power in powers) and one.beyond != other.beyond:
        return False
    longest = size if isinstance(one.beyond, str) else 2 * size
    return size == len(other.values) and np.allclose(
        one.curve(longest), other.curve(longest), rtol=1e-6, atol=0
    )


def _estimate(content: Any) -> BiasEstimate:
    if isinstance(content, dict) and "curves" in content:
        raise InputError("holds a curve for each context; read_position_bias reads it")
    return BiasEstimate.from_dict(content)
