"""Simulated clicks written as they are drawn, so that a log of any length needs little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fultr.arguments import Progress
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks.drawing import IMPRESSIONS_A_STEP, Drawing, Planting, join_steps
from fultr.data import ClickLog, RankingDataset
from fultr.logs.reading import count
from fultr.logs.writing import FeatureForm, write_log_parts
from fultr.policy import RankingPolicy


@dataclass(frozen=True)
class SimulatedLog:
    """A simulated log on disk: its files, and what it holds, as `ClickLog.describe` says it."""

    files: list[Path]
    summary: dict[str, Any]


def simulate_log(
    path: str | Path,
    data: RankingDataset,
    policy: RankingPolicy,
    bias: PositionBias,
    noise: ClickNoise | None = None,
    *,
    clicks: int | None = None,
    impressions: int | None = None,
    keep_empty: bool = True,
    planting: Planting | None = None,
    top_k: int | None = None,
    features: FeatureForm = "table",
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
) -> SimulatedLog:
    """Simulate clicks and write them; the file holds the log that `simulate_clicks` would have made.

    Parameters
    ----------
    path, features
        As for `write_log`. What was at `path` is replaced only once all is written.
    data, policy, bias, noise, clicks, impressions, keep_empty, planting, top_k, seed, progress
        As for `simulate_clicks`.

    Examples
    --------
    >>> import tempfile
    >>> from fultr.datasets import studios
    >>> from fultr.policy import RandomRanking
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "clicks.parquet")
    ...     made = simulate_log(path, studios(), RandomRanking(), PositionBias.power(1.0), impressions=100)
    >>> made.summary["impressions"]
    100
    """
    drawing = Drawing.of(
        data,
        policy,
        bias,
        noise,
        clicks=clicks,
        impressions=impressions,
        keep_empty=keep_empty,
        planting=planting,
        top_k=top_k,
        seed=seed,
        progress=progress,
    )
    about, planted = drawing.about, planting is not None
    files = write_log_parts(about, _parts(drawing), path, features=features, planted=planted)
    summary = count(files[0], features=[]).describe()
    return SimulatedLog(files, {**summary, "features": data.features.shape[1]})


def _parts(drawing: Drawing) -> Iterator[ClickLog]:
    """Yield the log in parts of many impressions, however few of a step are kept."""
    waiting: list[ClickLog] = []
    for step in drawing.steps():
        waiting.append(step)
        if sum(map(len, waiting)) >= IMPRESSIONS_A_STEP:
            yield join_steps(waiting)
            waiting = []
    if waiting:
        yield join_steps(waiting)
