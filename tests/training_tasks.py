"""Small data to train on, shared by the tests of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr import (
    ClickLog,
    ClickNoise,
    FairRanker,
    PositionBias,
    RandomRanking,
    RankingDataset,
    datasets,
    simulate_clicks,
)
from fultr.training.task import Task, Weighing

BIAS = PositionBias.power(1.0)


def random_lists(
    *, lists: int = 12, longest: int = 5, width: int = 4, groups: int = 2, unknown: float = 0.0, seed: int = 0
) -> RankingDataset:
    """Lists of 1 to `longest` items with normal features; the last two columns stem from the group."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=lists)
    lengths[:2] = 1, longest
    rows = int(lengths.sum())
    group = rng.integers(groups, size=rows)
    features = rng.normal(size=(rows, width))
    features[:, -1] += group
    return RankingDataset(
        features,
        np.cumsum([0, *lengths]),
        group=np.where(rng.random(rows) < unknown, -1, group),
        group_names=[f"group {code}" for code in range(groups)],
        relevance=rng.random(rows),
        query_id=np.arange(lists),
        doc_id=np.arange(rows),
        group_columns=[width - 2, width - 1],
    )


def random_log(
    data: RankingDataset,
    *,
    impressions: int = 60,
    noise: ClickNoise | None = None,
    top_k: int | None = None,
    seed: int = 0,
) -> ClickLog:
    """Clicks on random rankings; some lists are shown often, others may never be."""
    return simulate_clicks(
        data, RandomRanking(), BIAS, noise, impressions=impressions, top_k=top_k, seed=seed
    )


def random_task(weighing: Weighing | None = None, **lists: float) -> Task:
    """Return lists of at most 5 items with evidence from clicks."""
    data = random_lists(**lists)  # type: ignore[arg-type]
    return Task.of(random_log(data), weighing or Weighing(BIAS))


def small_log(groups: int = 2, *, queries: int = 80, clicks: int = 3000) -> ClickLog:
    """Clicks on synthetic queries with 10 features, whose most useful rankings are unfair."""
    data = datasets.synthetic(queries=queries, features=10, groups=groups, seed=0)
    return simulate_clicks(data.train, RandomRanking(), BIAS, clicks=clicks, seed=0)


def validation_of(ranker: FairRanker) -> dict[str, Any]:
    """What was measured on validation clicks, of which there were some."""
    assert ranker.validation_ is not None
    return ranker.validation_
