"""Logs of a job board whose examination differs by device: text ids, few of many candidates shown, dates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr import PositionBias

CANDIDATES = 50
"""Jobs that each search can show."""


class Jobs(NamedTuple):
    """The jobs of all searches: what they are, and how likely an examined one is clicked."""

    doc_id: NDArray[np.str_]
    group: NDArray[np.object_]
    salary: NDArray[np.float64]
    attraction: NDArray[np.float64]


def jobs_of(searches: int, seed: int = 0) -> Jobs:
    """Return (searches, CANDIDATES) jobs; one in twenty has no group."""
    rng = np.random.default_rng(seed)
    shape = (searches, CANDIDATES)
    doc_id = np.array(
        [[f"J-{search:03}-{job:02}" for job in range(CANDIDATES)] for search in range(searches)]
    )
    group = np.where(rng.random(shape) < 0.4, "agency", "direct").astype(object)
    group[rng.random(shape) < 0.05] = None
    salary = rng.normal(size=shape)
    return Jobs(doc_id, group, salary, 0.6 / (1 + np.exp(1.5 - salary - rng.normal(size=shape))))


def device_log(
    curves: Mapping[str, PositionBias],
    impressions: int,
    *,
    habit: float = 0.5,
    shown: tuple[int, int] = (10, 20),
    searches: int = 30,
    seed: int = 0,
) -> pa.Table:
    """Return a log, a row for each candidate of each impression, with a curve for each device.

    The ranking follows the salary and chance; each impression shows from 10 to 20 jobs. Searches with an odd
    number are made on the last device with probability `habit`, others with 1 - `habit`.
    """
    rng, jobs = np.random.default_rng(seed), jobs_of(searches)
    search = rng.integers(searches, size=impressions)
    on_last = rng.random(impressions) < np.where(search % 2, habit, 1 - habit)
    names = list(curves)
    device = np.where(on_last, names[-1], names[0])
    order = np.argsort(-(0.5 * jobs.salary[search] + rng.gumbel(size=(impressions, CANDIDATES))), axis=1)
    position = np.empty_like(order)
    np.put_along_axis(position, order, np.arange(1, CANDIDATES + 1)[None, :], axis=1)
    position[position > rng.integers(shown[0], shown[1] + 1, size=impressions)[:, None]] = 0
    table = np.stack([curves[name].curve(CANDIDATES) for name in curves])
    examined = table[[names.index(name) for name in device.tolist()]]
    chance = np.take_along_axis(examined, position, axis=1) * jobs.attraction[search]
    click = rng.random(position.shape) < chance
    day = rng.integers(1, 29, size=impressions)
    return pa.table(
        {
            "impression_id": np.repeat([f"i{number}" for number in range(impressions)], CANDIDATES),
            "query_id": np.repeat([f"search {number:03}" for number in search], CANDIDATES),
            "doc_id": jobs.doc_id[search].ravel(),
            "position": pa.array(position.ravel(), mask=position.ravel() == 0),
            "click": click.ravel().astype(np.int8),
            "group": pa.array(jobs.group[search].ravel(), pa.string()),
            "feature_salary": jobs.salary[search].ravel(),
            "device": np.repeat(device, CANDIDATES),
            "date": np.repeat([f"2024-05-{number:02}" for number in day], CANDIDATES),
        }
    )
