"""Labelled data as LETOR text: one line a document, `label qid:N 1:v 2:v ... # comment`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.data import letor_kernel as kernel
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.ids import TEXT, Ids, order_of_appearance
from fultr.errors import InputError
from fultr.files import atomic_write, existing_file

BLOCK_BYTES = 1 << 20
"""Text parsed at a time: small against any data whose memory matters, large against the cost of a call."""

LONGEST_LINE = 1 << 26
ROWS_A_WRITE = 4096
SPARE_ROWS = 1.1
FLOAT32_LIMIT = float.fromhex("0x1.ffffffp+127")
"""The smallest double that is beyond float32 when rounded."""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
DOCUMENT = re.compile(r"\bdocid\s*=\s*(\S+)|^(\S+)$")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
KINDS_OF_FILE = {
    b"PAR1": "a Parquet file: use read_dataset",
    b"ARROW1": "an Arrow file: use read_dataset",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
}


def read_letor(path: str | Path, *, block_bytes: int = BLOCK_BYTES) -> RankingDataset:
    """Read labelled data from a LETOR (svmlight with query ids) text file.

    Rows are grouped by query, in the order in which queries and rows appear. Features that a line leaves
    out are zero, and there are as many as the largest index. Labels become `relevance` as they are (see
    `RankingDataset.binarize`). Query ids are whole numbers, or text if one of them is not.

    The text after `#` becomes `comment`. If each row has one, and each names a document (`docid = NAME`,
    or a single word) that no other row of its query names, these become `doc_id` too.

    Parameters
    ----------
    path
        The file.
    block_bytes
        How much text is read at a time; the result does not depend on it.

    Raises
    ------
    InputError
        If the file is no such text; the message names the line and what is wrong with it.
    """
    file = existing_file(path)
    rows = _parse_file(file, block_bytes, integer_queries=True)
    if rows is None:
        # the first queries may have been 007 and 7: only a second look tells how they were written
        rows = _parse_file(file, block_bytes, integer_queries=False)
    if rows is None or rows.count == 0:
        raise InputError("has no line of data; a line is: label qid:N 1:v 2:v ...", file=file)
    return _grouped(rows)


class _Rows:
    """The rows parsed so far, in arrays that are reserved ahead for the rows still expected.

    Memory that is reserved and never written to is not taken from the machine, so that one table, filled
    in place, is all that reading needs.
    """

    def __init__(self, file: Path, integer_queries: bool) -> None:
        self.file = file
        self.integer_queries = integer_queries
        self.count = self.capacity = self.width = self.largest_index = 0
        self.values = np.empty(0, dtype=np.float32)
        self.relevance = np.empty(0, dtype=np.float32)
        self.query = np.empty(0, dtype=np.int64)
        self.query_codes: dict[bytes, int] = {}
        self.comments: list[NDArray[np.object_] | int] = []
        self.documents: list[Ids] | None = []

    @property
    def features(self) -> NDArray[np.float32]:
        """The table, with rows that are still free at its end."""
        return self.values[: self.capacity * self.width].reshape(self.capacity, self.width)

    def reserve(self, needed: int, expected: int, line: int) -> None:
        """Make room for `needed` rows, and if there is not enough, for all that are `expected`."""
        if needed <= self.capacity and needed * self.width <= self.values.size:
            return
        self._refuse_more_than_memory(needed, line)
        capacity = max(needed, expected)
        try:
            self.relevance = _enlarged(self.relevance, self.count, capacity)
            self.query = _enlarged(self.query, self.count, capacity)
            self.values = _enlarged(self.values, self.count * self.width, capacity * self.width)
        except MemoryError:
            raise self._too_large(capacity, line) from None
        self.capacity = capacity

    def widen(self, index: int, needed: int, expected: int, line: int) -> None:
        """Make room for features up to `index`, and some more if rows must move for it."""
        old = self.width
        self.width = index if self.count == 0 else min(max(index, old + old // 4), kernel.LARGEST_INDEX)
        self._refuse_more_than_memory(needed, line)
        if needed * self.width > self.values.size:
            self.capacity = max(needed, expected)
            try:
                self.values = _enlarged(self.values, self.count * old, self.capacity * self.width)
            except MemoryError:
                raise self._too_large(needed, line) from None
            self.relevance = _enlarged(self.relevance, self.count, self.capacity)
            self.query = _enlarged(self.query, self.count, self.capacity)
        self.capacity = min(self.capacity, self.values.size // self.width)
        kernel.change_width(self.values, self.count, old, self.width)

    def finish(self) -> NDArray[np.float32]:
        """Return the table of the rows that were found, with the columns that were found."""
        width = self.largest_index
        if width < self.width:
            kernel.change_width(self.values, self.count, self.width, width)
        return self.values[: self.count * width].reshape(self.count, width)

    def _refuse_more_than_memory(self, rows: int, line: int) -> None:
        if rows * self.width * 4 > _memory_of_machine():
            raise self._too_large(rows, line)

    def _too_large(self, rows: int, line: int) -> InputError:
        size = f"{rows} rows of {self.width} features need {rows * self.width * 4 / 1e9:.1f} GB"
        problem = f"{size}, more than this machine has; check the feature indices or split the file"
        return InputError(problem, file=self.file, row=line, column=str(self.width))
