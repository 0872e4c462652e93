"""Simulated clicks written as they are drawn, so that a log of any length needs little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fultr.arguments import Progress, random_generator, whole_number
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks.simulation import (
    IMPRESSIONS_A_STEP,
    NO_CLICK,
    STEPS_WITHOUT_CLICK,
    Planting,
    _click_relevance,
    _examined,
    _join_steps,
    _World,
)
from fultr.data import ClickLog, RankingDataset
from fultr.data.log_files import FeatureForm
from fultr.data.log_parts import write_log_parts
from fultr.data.log_summary import LogTotals
from fultr.errors import InputError
from fultr.policy import RankingPolicy, RankingSampler


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
    noise = noise or ClickNoise()
    if (clicks is None) == (impressions is None):
        raise InputError("give either clicks= or impressions=")
    goal = "clicks" if impressions is None else "impressions"
    wanted = whole_number(clicks if impressions is None else impressions, goal, least=1)
    if not len(data):
        raise InputError("there are no lists to show", column="data")
    world = _World(
        data=replace(data, relevance=None),
        relevance=_click_relevance(data),
        examined=_examined(data, bias, planting, top_k),
        noise=noise,
        planting=planting,
        top_k=top_k,
    )
    about = ClickLog(
        world.data,
        lists=np.empty(0, np.int64),
        position=np.empty(0, np.int32),
        click=np.empty(0, np.bool_),
        impression_id=np.empty(0, np.int64),
        position_bias=bias,
        noise=noise,
        empties_dropped=not keep_empty,
        origin={
            "simulated": True,
            "seed": None if isinstance(seed, np.random.Generator) else int(seed),
            "policy": repr(policy),
            goal: wanted,
        },
    )
    drawing = _Drawing(
        world,
        policy.sampler(data),
        random_generator(seed),
        wanted,
        goal,
        keep_empty,
        progress,
        LogTotals.of(about),
    )
    files = write_log_parts(about, drawing.parts(), path, features=features, planted=planting is not None)
    summary = drawing.totals.describe(
        about.data,
        position_bias=bias,
        noise=noise,
        empties_dropped=about.empties_dropped,
        propensity_column=False,
    )
    return SimulatedLog(files, summary)


@dataclass
class _Drawing:
    """Impressions being drawn until there are as many of them, or of those with a click, as wanted."""

    world: _World
    sampler: RankingSampler
    rng: np.random.Generator
    wanted: int
    goal: str
    keep_empty: bool
    progress: Progress | None
    totals: LogTotals

    def parts(self) -> Iterator[ClickLog]:
        """Yield the log in parts of many impressions, and refuse one without a click."""
        waiting: list[ClickLog] = []
        for step in self._steps():
            waiting.append(step)
            if sum(map(len, waiting)) >= IMPRESSIONS_A_STEP:
                yield self._joined(waiting)
                waiting = []
        if waiting:
            yield self._joined(waiting)
        if not self.totals.clicks.any():
            raise InputError(NO_CLICK.format(self.wanted))

    def _joined(self, steps: list[ClickLog]) -> ClickLog:
        part = steps[0] if len(steps) == 1 else _join_steps(steps)
        self.totals += LogTotals.of(part)
        return part

    def _steps(self) -> Iterator[ClickLog]:
        drawn = done = 0
        while done < self.wanted:
            step = self.world.step(self.sampler, self.rng, drawn)
            counted = step.clicked if self.goal == "clicks" else np.ones(len(step), dtype=np.bool_)
            counts = np.cumsum(counted)
            last = int(np.searchsorted(counts, self.wanted - done)) + 1
            done += int(counts[min(last, len(step)) - 1])
            drawn += len(step)
            if last < len(step):
                step = step[:last]
            yield step if self.keep_empty else step.drop_empties()
            if done == 0 and drawn >= IMPRESSIONS_A_STEP * STEPS_WITHOUT_CLICK:
                raise InputError(NO_CLICK.format(drawn))
            if self.progress is not None:
                self.progress(done, self.wanted)
