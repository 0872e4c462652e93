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
    """Training that cannot be taken up again."""

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
        # where nothing is kept, nothing need be told apart
        self._digest = "" if checkpoints is nothing_kept else digest_of(*problem)

    def load(self, stage: str) -> dict[str, NDArray[Any]] | None:
        """Return what was kept of a stage of this problem, if anything."""
        kept = self._checkpoints.load(stage)
        if kept is None:
            return None
        state = {name: values for name, values in kept.items() if name != PROBLEM}
        if not np.array_equal(kept.get(PROBLEM, np.zeros(0)), self._tensor):
            raise InputError(f"{OF_ANOTHER}; remove it, or choose another folder", column=stage)
        return state

    def save(self, stage: str, state: Callable[[], Tensors], *, finished: bool) -> None:
        """Keep the state of a stage, now or never."""
        self._checkpoints.save(stage, lambda: {**state(), PROBLEM: self._tensor}, finished=finished)

    @property
    def _tensor(self) -> NDArray[np.int64]:
        return np.frombuffer(bytes.fromhex(self._digest), dtype="<i8").astype(np.int64)


OF_ANOTHER = "what was kept is of another training, with other settings or data"


def digest_of(*parts: Any) -> str:
    """Return the SHA-256 of settings and data: of arrays, modules, dataclasses and plain values."""
    digest = hashlib.sha256()
    for part in parts:
        _add(digest.update, part)
    return digest.hexdigest()


def _add(update: Callable[[Any], None], part: Any) -> None:
    """Add a value with its type and its length, so that no two values look alike."""
    if isinstance(part, Tensor):
        part = part.detach().cpu().numpy()
    update(f"{type(part).__name__}:".encode())
    if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
        update(f"{part.dtype.str}{part.shape}".encode())
        update(np.ascontiguousarray(part).data if part.size else b"")
    elif isinstance(part, nn.Module):
        _add(update, [repr(part), part.training, dict(part.state_dict())])
    elif isinstance(part, Mapping):
        _add(update, list(part.items()))
    elif isinstance(part, (list, tuple)):
        update(f"{len(part)}:".encode())
        for one in part:
            _add(update, one)
    elif is_dataclass(part):
        _add(update, [(one.name, getattr(part, one.name)) for one in fields(part)])
    elif part is None or isinstance(part, (bool, int, float, str, np.generic)):
        text = repr(part)
        update(f"{len(text)}:{text}".encode())
    else:
        raise TypeError(f"no digest of a {type(part).__name__}")
