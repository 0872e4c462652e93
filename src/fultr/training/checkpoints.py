"""Where training keeps what it has reached, so that a stopped run can go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

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
