"""The click log of a job board: a week at a time, with searches that come again."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl

from fultr import PositionBias

BIAS = PositionBias.power(1.0)
CANDIDATES = 50


def week_of_jobs(
    week: int, *, queries: range = range(40), impressions: int = 300, candidates: int = CANDIDATES
) -> pl.DataFrame:
    """Return the impressions of a week: 10 to 20 of the candidates of a search are shown.

    The jobs of a search are the same every week. Some have no group; agencies are clicked less.
    """
    rng = np.random.default_rng([7, week])
    parts = []
    for number in range(impressions):
        query = int(rng.choice(queries))
        of_query = np.random.default_rng([1, query])
        features = of_query.normal(size=(candidates, 3))
        is_agency = of_query.random(candidates) < 0.4
        nameless = of_query.random(candidates) < 0.05
        shown = int(rng.integers(10, min(20, candidates) + 1))
        order = np.argsort(-(features[:, 0] + rng.gumbel(size=candidates)))[:shown]
        position = np.arange(1, shown + 1)
        relevance = 1 / (1 + np.exp(-features[order, 1] + 0.5 * is_agency[order]))
        click = rng.random(shown) < relevance / position
        second = 604_800 * week + int(rng.integers(604_800))
        parts.append(
            pl.DataFrame(
                {
                    "impression_id": [f"I-{week}-{number:05}"] * shown,
                    "query_id": [f"Q-{query:03}"] * shown,
                    "doc_id": [f"J-{query:03}-{item:02}" for item in order.tolist()],
                    "position": position,
                    "click": click.astype(np.int8),
                    "group": [
                        None if nameless[item] else "agency" if is_agency[item] else "direct"
                        for item in order.tolist()
                    ],
                    "timestamp": [datetime(2024, 5, 6) + timedelta(seconds=second)] * shown,
                    "device": ["phone" if number % 3 else "desktop"] * shown,
                    **{f"feature_{at}": features[order, at] for at in range(3)},
                }
            )
        )
    return pl.concat(parts)
