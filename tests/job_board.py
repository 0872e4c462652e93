"""An invented job board: text ids, pages of 10 to 20 of 50 candidates, days, devices, missing groups.

Queries recur, day after day; what is relevant is known, so that estimates can be compared with the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fultr import Counts, PositionBias, RankingDataset, count

BIAS = PositionBias.power(1.0)
CANDIDATES, SHORTEST_PAGE, LONGEST_PAGE = 50, 10, 20
FEATURES = ("match", "salary", "fresh", "boost")
GROUPS = ("agency", "direct")


@dataclass(frozen=True)
class JobBoard:
    """A log with a row for each candidate, shown or not, and the truth about all candidates."""

    table: pl.DataFrame
    truth: RankingDataset

    def counts(self, **options: Any) -> Counts:
        """Return the log, counted."""
        return count(self.table, **{"position_bias": BIAS, "features": list(FEATURES), **options})


def job_board(
    *, queries: int = 40, impressions: int = 4_000, variety: float = 1.0, missing: float = 0.05, seed: int = 0
) -> JobBoard:
    """Make a log of the old ranking, which prefers agencies; `variety` is how much it varies."""
    rng = np.random.default_rng(seed)
    rows = queries * CANDIDATES
    group = rng.integers(0, 2, size=rows)
    features = rng.normal(size=(rows, len(FEATURES))).astype(np.float32)
    features[:, 3] += 2 * (group == 0)  # agencies pay for it
    relevance = 1 / (1 + np.exp(-(features[:, :3] @ np.array([1.2, 0.5, 0.3]) - 1.5)))
    preferred = features[:, 0] + 0.8 * features[:, 3]
    offsets = np.arange(0, rows + 1, CANDIDATES)
    known = rng.random(rows) >= missing
    truth = RankingDataset(
        features,
        offsets,
        group=np.where(known, group, -1),
        group_names=GROUPS,
        relevance=relevance,
        query_id=[f"Q-{query:03}" for query in range(queries)],
        doc_id=[f"J-{query:03}-{job:02}" for query in range(queries) for job in range(CANDIDATES)],
        feature_names=FEATURES,
    )
    # popular queries come often
    share = 1 / np.arange(1, queries + 1)
    query = rng.choice(queries, size=impressions, p=share / share.sum())
    row = offsets[query][:, None] + np.arange(CANDIDATES)
    score = preferred[row] + variety * rng.gumbel(size=row.shape)
    position = np.argsort(np.argsort(-score, axis=1), axis=1) + 1
    page = rng.integers(SHORTEST_PAGE, LONGEST_PAGE + 1, size=impressions)
    position = np.where(position <= page[:, None], position, 0)
    clicked = rng.random(row.shape) < BIAS.at(position) * relevance[row]
    return JobBoard(_table(truth, row, position, clicked, rng), truth)


def _table(
    truth: RankingDataset,
    row: NDArray[np.int64],
    position: NDArray[np.int64],
    clicked: NDArray[np.bool_],
    rng: np.random.Generator,
) -> pl.DataFrame:
    impressions, flat = row.shape[0], row.ravel()
    assert truth.doc_id is not None
    assert truth.query_id is not None
    day = np.sort(rng.integers(0, 14, size=impressions))
    device = np.array(["desk", "phone"])[rng.integers(0, 2, size=impressions)]
    names = np.array([*GROUPS, None], dtype=object)
    of_row = {name: truth.features[flat, number] for number, name in enumerate(FEATURES)}
    return pl.DataFrame(
        {
            "impression_id": np.repeat([f"s-{number:06}" for number in range(impressions)], CANDIDATES),
            "query_id": truth.query_id[truth.list_of_row[flat]].tolist(),
            "doc_id": truth.doc_id[flat].tolist(),
            "position": position.ravel(),
            "click": clicked.ravel().astype(int),
            "group": names[truth.group[flat]].tolist(),
            "timestamp": (np.datetime64("2026-05-01") + day).astype("datetime64[us]").repeat(CANDIDATES),
            "device": np.repeat(device, CANDIDATES),
            **of_row,
        }
    ).with_columns(pl.col("position").replace(0, None))
