"""Rows in parts that hold whole impressions, on disk if they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from fultr.data.grouping import mixed
from fultr.data.tally import Columns, joined

ROWS_IN_MEMORY = 1 << 22
"""Rows that are kept in memory: about 200 MB of a log without features."""

PARTS = 64
"""Parts on disk. A log of 250 million rows has parts of 4 million rows each."""


class Partitions:
    """Takes blocks of rows, and gives them back in parts by a hash of their impression.

    Few rows are one part, in memory. Many are written to temporary files, which are removed at the end.
    """

    def __init__(self) -> None:
        self._held: list[Columns] = []
        self._names: list[str] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Partitions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, block: Columns) -> None:
        """Add rows."""
        self._held.append(block)
        if self._folder is None and sum(held["row"].size for held in self._held) > ROWS_IN_MEMORY:
            self._folder = tempfile.TemporaryDirectory(prefix="fultr-")
        if self._folder is not None:
            for held in self._held:
                self._write(Path(self._folder.name), held)
            self._held = []

    def _write(self, folder: Path, block: Columns) -> None:
        # the highest bits, so that sorting by them needs few: numpy sorts 8-bit integers by counting them
        part = (mixed(block["impression"]) >> np.uint64(64 - PARTS.bit_length() + 1)).astype(np.uint8)
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=PARTS))
        self._names, columns = list(block), {name: values[order] for name, values in block.items()}
        for number, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if stop > start:
                with (folder / str(number)).open("ab") as file:
                    for values in columns.values():
                        np.save(file, values[start:stop], allow_pickle=False)

    def __iter__(self) -> Iterator[Columns]:
        if self._held:
            yield joined(self._held)
        if self._folder is not None:
            for path in sorted(Path(self._folder.name).iterdir()):
                blocks = []
                with path.open("rb") as file:
                    while file.peek(1):
                        blocks.append({name: np.load(file) for name in self._names})
                path.unlink()
                yield joined(blocks)
