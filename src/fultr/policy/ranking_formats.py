"""The formats of files of rankings, and the endings of names that stand for them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from fultr.errors import InputError


class RankingFormat(StrEnum):
    """How rankings are written."""

    PARQUET = "parquet"
    CSV = "csv"
    TREC = "trec"


FORMATS = {
    ".parquet": RankingFormat.PARQUET,
    ".pq": RankingFormat.PARQUET,
    ".csv": RankingFormat.CSV,
    ".trec": RankingFormat.TREC,
    ".run": RankingFormat.TREC,
}
"""The format that the ending of a name stands for."""


def format_of(path: str | Path) -> RankingFormat:
    """Return the format of rankings that the ending of a name stands for."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        problem = f"rankings are files that end in one of: {', '.join(FORMATS)}; name it so, or give a format"
        raise InputError(problem, file=path, value=ending)
    return FORMATS[ending]
