"""The log of a job board: text ids, 15 of 50 postings shown, dates, devices, some missing groups."""

from __future__ import annotations

import datetime as dt
from functools import cache

import numpy as np
import polars as pl

FEATURES = ["salary", "distance", "remote"]
START = dt.datetime(2026, 3, 1, 8, 0, 0)


@cache
def job_board(*, searches: int = 200, queries: int = 20, seed: int = 0) -> pl.DataFrame:
    """Return a long table: searches for recurring queries, each showing 15 of 50 postings."""
    rng, parts = np.random.default_rng(seed), []
    for search in range(searches):
        query = int(rng.integers(queries))
        of_query = np.random.default_rng(1000 + query)
        salary, distance = of_query.normal(size=50), of_query.uniform(0, 30, size=50)
        remote = of_query.random(50) < 0.5
        group = of_query.choice(np.array(["agency", "direct", None], dtype=object), 50, p=[0.4, 0.5, 0.1])
        shown = np.argsort(distance / 30 - salary + 0.5 * rng.normal(size=50))[:15]
        position = np.arange(1, 16)
        chance = (0.1 + 0.8 * (salary[shown] > 0)) / position
        parts.append(
            pl.DataFrame(
                {
                    "impression_id": [f"S-{search:05d}"] * 15,
                    "query_id": [f"nurse in area {query}"] * 15,
                    "doc_id": [f"J-{query:03d}-{job:02d}" for job in shown],
                    "position": position,
                    "click": (rng.random(15) < chance).astype(int),
                    "group": group[shown].tolist(),
                    "salary": salary[shown],
                    "distance": distance[shown],
                    "remote": remote[shown],
                    "device": ["phone" if search % 2 else "desktop"] * 15,
                    "timestamp": [START + dt.timedelta(minutes=search)] * 15,
                    "posted": [START.date() - dt.timedelta(days=int(job)) for job in shown],
                }
            )
        )
    return pl.concat(parts)
