"""Training, validation and test parts that share no query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fultr.data.dataset import RankingDataset
from fultr.errors import InputError


@dataclass(frozen=True)
class DataSplits:
    """Labelled data in three parts; a query id that stands in two of them is an error."""

    train: RankingDataset
    valid: RankingDataset
    test: RankingDataset

    def __post_init__(self) -> None:
        refuse_shared_queries(dict(self))

    def __iter__(self) -> Iterator[tuple[str, RankingDataset]]:
        yield from (("train", self.train), ("valid", self.valid), ("test", self.test))


def refuse_shared_queries(parts: dict[str, RankingDataset]) -> None:
    """Raise if two parts hold a query of the same id: what is learned on one would leak into the other."""
    seen: list[tuple[str, RankingDataset]] = []
    for name, part in parts.items():
        for earlier_name, earlier in seen:
            if part.query_id is None or earlier.query_id is None:
                continue
            if part.query_id.dtype.kind != earlier.query_id.dtype.kind:
                continue
            shared = np.intersect1d(part.query_id, earlier.query_id)
            if shared.size:
                problem = f"the query stands in two splits, {earlier_name} and {name}; split by query"
                raise InputError(problem, column="query_id", value=shared[0])
        seen.append((name, part))
