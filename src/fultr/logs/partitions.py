"""Rows in parts that hold whole impressions, on disk if they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data.tally import Columns

ROWS_IN_MEMORY = 1 << 22
"""Rows that are kept in memory: about 200 MB of a log without features."""

PARTS = 64
"""Parts on disk. A log of 250 million rows has parts of 4 million rows each."""


class Partitions:
    """Takes blocks of rows, and gives them back in parts by a hash of their impression.

    Few rows are one part, in memory. Many are written to temporary files, which are removed at the end.
    """

    def __init__(self) -> None:
        self._held: list[tuple[Columns, NDArray[np.uint64]]] = []
        self._rows = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._writers: list[pa.ipc.RecordBatchStreamWriter | None] = [None] * PARTS

    def __enter__(self) -> Partitions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._close()
            self._folder.cleanup()

    def add(self, block: Columns, hashes: NDArray[np.uint64]) -> None:
        """Add rows, with a hash of the impression of each."""
        self._held.append((block, hashes))
        self._rows += hashes.size
        if self._rows > ROWS_IN_MEMORY:
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="fultr-")
            for held in self._held:
                self._write(*held)
            self._held = []

    def _write(self, block: Columns, hashes: NDArray[np.uint64]) -> None:
        # the highest bits, so that sorting by them needs few: numpy sorts 8-bit integers by counting them
        part = (hashes >> np.uint64(64 - PARTS.bit_length() + 1)).astype(np.uint8)
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=PARTS))
        batch = pa.record_batch({name: _as_arrow(values[order]) for name, values in block.items()})
        for number, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if stop > start:
                writer = self._writers[number]
                if writer is None:
                    options = pa.ipc.IpcWriteOptions(compression="lz4")
                    writer = pa.ipc.new_stream(str(self._path(number)), batch.schema, options=options)
                    self._writers[number] = writer
                writer.write_batch(batch.slice(start, stop - start))

    def _path(self, number: int) -> Path:
        assert self._folder is not None  # noqa: S101 - made before anything is written
        return Path(self._folder.name) / f"{number}.arrows"

    def _close(self) -> None:
        for writer in self._writers:
            if writer is not None:
                writer.close()

    def __iter__(self) -> Iterator[Columns]:
        if self._folder is None:
            if self._held:
                names = self._held[0][0]
                yield {name: np.concatenate([block[name] for block, _ in self._held]) for name in names}
            return
        self._close()
        for number, writer in enumerate(self._writers):
            if writer is not None:
                with pa.memory_map(str(self._path(number))) as file, pa.ipc.open_stream(file) as stream:
                    table = stream.read_all()
                yield {name: _as_numpy(table[name]) for name in table.column_names}
                self._path(number).unlink()


def _as_arrow(values: NDArray[Any]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _as_numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    array = column.combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        return np.asarray(array.flatten().to_numpy()).reshape(len(array), array.type.list_size)
    return np.asarray(array.to_numpy(zero_copy_only=False))
