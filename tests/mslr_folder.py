"""Small folders in the shape of an MSLR fold, made up: no row comes from the real data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FILES = ("train.txt", "vali.txt", "test.txt")


def made_up_query(
    generator: np.random.Generator, *, pages: int = 30, relevant: int = 4
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the judgments and the 136 features of a query, of which `relevant` pages are judged 3 or 4."""
    judgments = generator.integers(0, 3, pages)
    judgments[generator.choice(pages, relevant, replace=False)] = generator.integers(3, 5, relevant)
    features = np.round(generator.normal(size=(pages, 136)), 4)
    features[:, 0] = 5.0
    features[:, 1] = np.round(np.exp(generator.normal(scale=3, size=pages)), 4)
    features[:, 132] = generator.integers(1, 255, pages)
    return judgments.astype(np.float64), features


def write_queries(path: Path, queries: Mapping[int, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> None:
    """Write queries by id as LETOR text."""
    lines = [
        f"{judgment:g} qid:{query} " + " ".join(f"{n}:{value:.10g}" for n, value in enumerate(row, start=1))
        for query, (judgments, features) in queries.items()
        for judgment, row in zip(judgments, features, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def write_fold(folder: Path, *, queries: tuple[int, int, int] = (8, 3, 3), seed: int = 0) -> Path:
    """Write a fold with so many queries in each file; query ids count from 1 over all files."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    first = 1
    for file, count in zip(FILES, queries, strict=True):
        write_queries(
            folder / file, {query: made_up_query(generator) for query in range(first, first + count)}
        )
        first += count
    return folder
