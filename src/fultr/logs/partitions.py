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

FILES = 64
"""Files on disk. A log of 250 million rows has files of 4 million rows each."""


def in_parts(blocks: Iterable[Columns]) -> Iterator[Columns]:
    """Yield rows in parts by a hash of their impression; few rows are one part, and stay in memory."""
    held: list[Columns] = []
    names: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fultr-") as name:
        folder = Path(name)
        for block in blocks:
            held.append(block)
            if names or sum(rows["row"].size for rows in held) > ROWS_IN_MEMORY:
                for rows in held:
                    _write(rows, folder)
                held, names = [], sorted(block)
        if held:
            yield joined(held)
        for path in sorted(folder.iterdir()):
            blocks_of_file = []
            with path.open("rb") as file:
                while file.peek(1):
                    blocks_of_file.append({name: np.load(file) for name in names})
            path.unlink()
            yield joined(blocks_of_file)


def _write(block: Columns, folder: Path) -> None:
    # the highest bits, so that sorting by them needs few: numpy sorts 8-bit integers by counting them
    file_number = (mixed(block["impression"]) >> np.uint64(64 - FILES.bit_length() + 1)).astype(np.uint8)
    order = np.argsort(file_number, kind="stable")
    ends = np.cumsum(np.bincount(file_number, minlength=FILES))
    columns = [block[name][order] for name in sorted(block)]
    for number, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if stop > start:
            with (folder / str(number)).open("ab") as file:
                for values in columns:
                    np.save(file, values[start:stop], allow_pickle=False)
