"""Sums over rows, of tensors (through which gradients flow) and of arrays (which need no torch)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Values = TypeVar("Values", "Tensor", "NDArray[Any]")


def repeated_numbers(times: Values, total: int) -> Values:
    """Return 0, 1, 2, ..., each as often as `times` says, `total` numbers in all."""
    if isinstance(times, np.ndarray):
        return np.repeat(np.arange(times.size), times)
    import torch

    return torch.arange(times.numel(), device=times.device).repeat_interleave(times, output_size=total)


def sums_by(values: Values, code: Values, codes: int) -> Values:
    """Add up the values of each code: (..., rows) and (rows,) to (..., codes)."""
    if isinstance(values, np.ndarray):
        flat = values.reshape(-1, values.shape[-1])
        sums = [np.bincount(code, weights=row, minlength=codes) for row in flat]
        return np.array(sums, dtype=values.dtype).reshape((*values.shape[:-1], codes))
    return values.new_zeros(*values.shape[:-1], codes).index_add(-1, code, values)


def total_of(values: Values) -> float:
    """Add up all values in double precision."""
    if isinstance(values, np.ndarray):
        return float(values.sum(dtype=np.float64))
    return float(values.double().sum())


def of_one_type(first: Values, second: Values) -> tuple[Values, Values]:
    """Bring two blocks of numbers to the finer of their floating types."""
    if isinstance(first, np.ndarray):
        finer = np.promote_types(first.dtype, second.dtype)
        return first.astype(finer, copy=False), second.astype(finer, copy=False)
    import torch

    dtype = torch.promote_types(first.dtype, second.dtype)
    return first.to(dtype), second.to(dtype)
