"""Rows in parts that hold whole impressions, on disk if they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fultr.data.grouping import mixed
from fultr.data.tally import Columns, joined

ROWS_IN_MEMORY = 1 << 22
"""Rows that are kept in memory: about 200 MB of a log without features."""

PARTS = 64
"""Parts on disk. A log of 250 million rows has parts of 4 million rows each."""


def in_parts(blocks: Iterable[Columns]) -> Iterator[Columns]:
    """Yield rows in parts by a hash of their impression; few rows are one part, and stay in memory."""
    held: list[Columns] = []
    names: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fultr-") as name:
        folder = Path(name)
        for block in blocks:
            held.append(block)
            if names or sum(one["row"].size for one in held) > ROWS_IN_MEMORY:
                for one in held:
                    _write(one, folder)
                held, names = [], sorted(block)
        if held:
            yield joined(held)
        for path in sorted(folder.iterdir()):
            parts = []
            with path.open("rb") as file:
                while file.peek(1):
                    parts.append({name: np.load(file) for name in names})
            path.unlink()
            yield joined(parts)


def _write(block: Columns, folder: Path) -> None:
    # the highest bits, so that sorting by them needs few: numpy sorts 8-bit integers by counting them
    part = (mixed(block["impression"]) >> np.uint64(64 - PARTS.bit_length() + 1)).astype(np.uint8)
    order = np.argsort(part, kind="stable")
    ends = np.cumsum(np.bincount(part, minlength=PARTS))
    columns = [block[name][order] for name in sorted(block)]
    for number, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if stop > start:
            with (folder / str(number)).open("ab") as file:
                for values in columns:
                    np.save(file, values[start:stop], allow_pickle=False)
