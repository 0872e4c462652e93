"""Where training keeps what it has reached, so that a stopped run can go on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fultr.errors import InputError

Tensors = Mapping[str, NDArray[Any]]


class Checkpoints(Protocol):
    """Keeps the state of each stage of training under the name of the stage."""

    def load(self, stage: str) -> dict[str, NDArray[Any]] | None:
        """Return what was kept of a stage last, if anything."""
        ...

    def save(self, stage: str, state: Callable[[], Tensors], *, finished: bool) -> None:
        """Keep the state of a stage, now or never: it is asked for only when it is written."""
        ...


class NothingKept:
    """Training that cannot be resumed."""

    def load(self, stage: str) -> None:
        """Know of nothing."""
        del stage

    def save(self, stage: str, state: Callable[[], Tensors], *, finished: bool) -> None:
        """Forget."""
        del stage, state, finished


nothing_kept = NothingKept()


PROBLEM = "problem"
"""The name of the tensor with the digest of what is solved."""


class BoundCheckpoints:
    """Checkpoints that belong to one problem: what was kept of another one is refused.

    Parameters
    ----------
    checkpoints
        Where states are kept.
    problem
        All that decides where a stage ends: settings, data, and the parameters it starts from.
    """

    def __init__(self, checkpoints: Checkpoints, *problem: Any) -> None:
        self._checkpoints = checkpoints
        # without checkpoints, no digest is needed
        self._digest = "" if checkpoints is nothing_kept else digest_of(*problem)

    def load(self, stage: str) -> dict[str, NDArray[Any]] | None:
        """Return what was kept of a stage of this problem, if anything."""
        tensors = self._checkpoints.load(stage)
        if tensors is None:
            return None
        state = {name: values for name, values in tensors.items() if name != PROBLEM}
        if not np.array_equal(tensors.get(PROBLEM, np.zeros(0)), self._tensor):
            raise InputError(f"{OF_ANOTHER}; remove it, or choose another folder", column=stage)
        return state

    def save(self, stage: str, state: Callable[[], Tensors], *, finished: bool) -> None:
        """Keep the state of a stage, now or never."""
        self._checkpoints.save(stage, lambda: {**state(), PROBLEM: self._tensor}, finished=finished)

    @property
    def _tensor(self) -> NDArray[np.int64]:
        return np.frombuffer(bytes.fromhex(self._digest), dtype="<i8").astype(np.int64)


OF_ANOTHER = "what was kept is of another training, with other settings or data"


def digest_of(*values: Any) -> str:
    """Return the SHA-256 of settings and data: of arrays, modules, dataclasses and plain values."""
    digest = hashlib.sha256()
    for value in values:
        _add(digest.update, value)
    return digest.hexdigest()


def _add(update: Callable[[Any], None], value: Any) -> None:
    """Add a value with its type and its length, so that no two values look alike."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    update(f"{type(value).__name__}:".encode())
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        update(f"{value.dtype.str}{value.shape}".encode())
        update(np.ascontiguousarray(value).data if value.size else b"")
    elif isinstance(value, nn.Module):
        _add(update, [repr(value), value.training, dict(value.state_dict())])
    elif isinstance(value, Mapping):
        _add(update, list(value.items()))
    elif isinstance(value, (list, tuple)):
        update(f"{len(value)}:".encode())
        for inner in value:
            _add(update, inner)
    elif is_dataclass(value):
        _add(update, [(inner.name, getattr(value, inner.name)) for inner in fields(value)])
    elif value is None or isinstance(value, (bool, int, float, str, np.generic)):
        text = repr(value)
        update(f"{len(text)}:{text}".encode())
    else:
        raise TypeError(f"no digest of a {type(value).__name__}")
