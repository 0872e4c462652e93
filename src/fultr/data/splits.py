"""Training, validation and test parts that share no query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

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
    query_ids = {
        name: set() if data.query_id is None else set(data.query_id.tolist()) for name, data in parts.items()
    }
    for earlier, name in combinations(query_ids, 2):
        if shared := query_ids[earlier] & query_ids[name]:
            problem = f"the query stands in two splits, {earlier} and {name}; split by query"
            raise InputError(problem, column="query_id", value=min(shared))
