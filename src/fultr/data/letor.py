"""Labelled data as LETOR text: one line a document, `label qid:N 1:v 2:v ... # comment`."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.arguments import Progress, whole_number
from fultr.data import letor_kernel as kernel
from fultr.data.columns import NOT_FINITE, NUMBER
from fultr.data.dataset import RankingDataset
from fultr.data.ids import TEXT, Ids, as_integers, rows_in_lists
from fultr.errors import InputError
from fultr.files import atomic_write, existing_file

BLOCK_BYTES = 1 << 20
"""Text parsed at a time: small against any data whose memory matters, large against the cost of a call."""

FREE_BYTES, BYTES_OF_A_BYTE = 1 << 28, 16
"""Memory that the features of any file may take, and how much more for each byte of a large one."""

FIRST_BYTES = 1 << 12
LONGEST_LINE = 1 << 26
DOCUMENT = re.compile(r"\bdocid\s*=\s*(\S+)|^(\S+)$")
INDEX = re.compile("[0-9]+")
BLANKS = "".join(map(chr, range(33)))
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
KINDS_OF_FILE = {
    b"PAR1": "a Parquet file: use read_dataset",
    b"ARROW1": "an Arrow file: use read_dataset",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
}


def read_letor(
    path: str | Path,
    *,
    block_bytes: int = BLOCK_BYTES,
    max_features: int | None = None,
    progress: Progress | None = None,
) -> RankingDataset:
    """Read labelled data from a LETOR (svmlight with query ids) text file.

    Rows are grouped by query, in the order in which queries and rows appear. Features that a line leaves
    out are zero, and there are as many as the largest index. Labels become `relevance` as they are (see
    `RankingDataset.binarize`).

    The text after `#` becomes `comment`. If each row has one, and each names a document (`docid = NAME`,
    or a single word) that no other row of its query names, these become `doc_id`; comments that say
    nothing else are then left out. Ids are integers, or text if one of them is not.

    Parameters
    ----------
    path
        The file.
    block_bytes
        How much text is read at a time; the result does not depend on it.
    max_features
        The largest index of a feature. By default any may be there, up to a million, as long as all features
        take at most 256 MB, or 16 times the size of the file: one index can make a table of many gigabytes.
    progress
        Called with how many bytes have been read, and with the size of the file.

    Raises
    ------
    InputError
        If the file is no such text; the message names the line and what is wrong with it.
    """
    rows = parse_letor(existing_file(path), block_bytes, progress, max_features=max_features)
    numbers = pl.Series(rows.queries, dtype=pl.String).cast(pl.Int64, strict=False)
    queries: Ids = np.array(rows.queries, dtype=TEXT) if numbers.has_nulls() else numbers.to_numpy()
    # 007 and 7 are one query if all are numbers
    order, offsets, first = rows_in_lists(rows.query if numbers.has_nulls() else queries[rows.query])
    columns: dict[str, Any] = {
        "features": rows.features[order],
        "offsets": offsets,
        "relevance": rows.labels[order],
        "query_id": queries[rows.query[first]],
    }
    if not any(rows.comments):
        return RankingDataset(**columns)
    comment = np.array(rows.comments, dtype=TEXT)[order]
    names = [document_of(text) for text in comment.tolist()]
    if None not in names:
        document = np.array(names, dtype=TEXT)
        own = None if np.all(document == comment) else comment
        with suppress(InputError):  # a word that two rows of a query share is no document id
            return RankingDataset(**columns, doc_id=as_integers(document), comment=own)
    return RankingDataset(**columns, comment=comment)


def parse_letor(
    file: Path,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress | None = None,
    *,
    first_index: int = 1,
    needs_query: bool = True,
    max_features: int | None = None,
) -> LetorRows:
    """Parse the rows of LETOR text; the first column of the features has the index `first_index`."""
    size, seen, line = file.stat().st_size, 0, 1
    largest, most_bytes = kernel.LARGEST_INDEX, max(FREE_BYTES, BYTES_OF_A_BYTE * size)
    if max_features is not None:
        largest = min(whole_number(max_features, "max_features"), largest)
        most_bytes = _memory_of_machine()
    parser = _Parser(file, first_index, needs_query, largest, min(most_bytes, _memory_of_machine()))
    try:
        with file.open("rb", buffering=0) as handle:
            head = handle.read(8)
            kind = next((kind for magic, kind in KINDS_OF_FILE.items() if head.startswith(magic)), None)
            if kind is not None:
                raise InputError(f"is no LETOR text but {kind}", file=file)
            handle.seek(0)
            for text in _blocks(handle, file, block_bytes):
                seen += len(text)
                line = parser.add(text.removeprefix(BYTE_ORDER_MARK) if line == 1 else text, line)
                if progress is not None:
                    progress(min(seen, size), size)
        result = parser.result() if parser.rows else None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=file) from error
    except MemoryError:
        raise parser.too_large(0, line) from None
    if result is None:
        words = "label qid:N 1:v 2:v ..." if needs_query else "label index:value ..."
        raise InputError(f"has no line of data; a line is: {words}", file=file)
    return result


class LetorRows(NamedTuple):
    """Rows of LETOR text in the order of their lines; `query` is the index of their query in `queries`."""

    features: NDArray[np.float32]
    labels: NDArray[np.float32]
    query: NDArray[np.int64]
    queries: list[str]
    comments: list[str]
    lines: NDArray[np.int64]
    smallest_index: int


@dataclass(eq=False)
class _Parser:
    """Parses blocks of text; each has as many features as were seen up to its end."""

    file: Path
    first_index: int
    needs_query: bool
    largest_index: int
    most_bytes: int
    blocks: list[tuple[NDArray[Any], ...]] = field(default_factory=list)
    queries: dict[str, int] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    rows: int = 0
    width: int = 0
    smallest_index: int = kernel.LARGEST_INDEX

    def add(self, text: bytes, line: int) -> int:
        """Parse a block of whole lines that starts at `line`; return the line after it."""
        size = text.count(b"\n")
        self._check_memory(size, self.width, line)
        features = np.zeros((size, self.width), dtype=np.float32)
        labels, spans = np.zeros(size, dtype=np.float32), np.zeros((size, 6), dtype=np.int64)
        content = np.frombuffer(text, dtype=np.uint8)
        plain = kernel.parse_lines(content, features, labels, spans, self.first_index)
        if self.needs_query:
            plain &= spans[:, kernel.QUERY] < spans[:, kernel.QUERY_END]
        query, lines, pairs = [], [], dict[int, dict[int, float]]()
        for row, (start, *of_query, first, features_end, stop) in enumerate(spans.tolist()):
            if plain[row]:
                name, comment = _text(text, *of_query), _text(text, features_end, stop)
                self.smallest_index = min(self.smallest_index, first)
            else:
                parsed = self._parse_line(_text(text, start, stop), line + row)
                if parsed is None:
                    continue
                labels[row], name, pairs[row], comment = parsed
                self._check_memory(row + 1, max(pairs[row], default=-1) + 1, line + row)
            lines.append(row)
            query.append(self.queries.setdefault(name, len(self.queries)))
            self.comments.append(comment[1:].strip())
        if self.width > features.shape[1]:
            features = np.pad(features, ((0, 0), (0, self.width - features.shape[1])))
        for row, of_row in pairs.items():
            features[row] = 0.0
            features[row, list(of_row)] = list(of_row.values())
        rows_of_data = np.array(lines, dtype=np.int64)
        features = features if rows_of_data.size == size else features[rows_of_data]
        self.blocks.append(
            (features, labels[rows_of_data], np.array(query, dtype=np.int64), rows_of_data + line)
        )
        self.rows += rows_of_data.size
        return line + size

    def _check_memory(self, rows: int, width: int, line: int) -> None:
        """Refuse more features than may be held; note how many there are."""
        self.width = max(self.width, width)
        if (self.rows + rows) * self.width * 4 > self.most_bytes:
            raise self.too_large(rows, line)

    def too_large(self, rows: int, line: int) -> InputError:
        """Return the error of more features than may be held."""
        rows += self.rows
        size = f"{rows} rows of {self.width} features need {rows * self.width * 4 / 1e9:.1f} GB"
        problem = f"{size}, more than this machine has; check the feature indices or split the file"
        if self.most_bytes < _memory_of_machine():
            problem = f"{size}; check the feature indices, or allow them by {{max_features}} {self.width}"
        column = str(self.width - 1 + self.first_index)
        return InputError(problem, file=self.file, row=line, column=column, options=["max_features"])

    def _parse_line(self, text: str, line: int) -> tuple[float, str, dict[int, float], str] | None:
        """Return the label, query, features by column and comment of a line; None if it has no data."""
        body, mark, comment = text.partition("#")
        if not body.strip(BLANKS):
            return None
        label, *words = re.split(r"[\x00-\x20]+", body.strip(BLANKS))
        if not _is_good_number(label) or float(label) < 0:
            raise self._wrong_number(label.strip(), "label", line)
        query, features = "", dict[int, float]()
        if words and words[0].startswith("qid:") and words[0] != "qid:":
            query = words.pop(0)[4:]
        elif self.needs_query:
            problem, value = "expected qid:N after the label", words[0] if words else None
            raise InputError(problem, file=self.file, row=line, column="qid", value=value)
        for word in words:
            index, _, number = word.partition(":")
            digits, feature = INDEX.fullmatch(index), index.lstrip("0")[:8]
            column: str | None = index
            if digits is None or not number:
                problem, column = "expected index:value", index if digits else None
            elif not self.first_index <= int(feature or 0) <= self.largest_index:
                problem = f"a feature index must lie in {self.first_index}..{self.largest_index}"
                column = index[:20]
            elif not _is_good_number(number):
                raise self._wrong_number(number, index, line)
            elif int(feature or 0) - self.first_index in features:
                problem = "the feature stands twice in the line"
            else:
                features[int(feature or 0) - self.first_index] = float(number)
                continue
            raise InputError(problem, file=self.file, row=line, column=column, value=word)
        if features:
            self.smallest_index = min(self.smallest_index, min(features) + self.first_index)
        return float(label), query, features, mark + comment

    def _wrong_number(self, word: str, column: str, line: int) -> InputError:
        if NOT_FINITE.fullmatch(word):
            problem = "must be finite; leave the pair out or fill it in"
        elif not NUMBER.fullmatch(word):
            problem = "must be a number"
        elif column == "label" and float(word) < 0:
            problem = "must be 0 or more"
        else:
            problem = "is beyond what a float32 can hold"
        return InputError(problem, file=self.file, row=line, column=column, value=word)

    def result(self) -> LetorRows:
        """Return all rows; blocks are given back to the machine as soon as they are copied."""
        features, start = np.zeros((self.rows, self.width), dtype=np.float32), 0
        labels, query, lines = (
            np.concatenate(columns) for columns in zip(*(block[1:] for block in self.blocks), strict=True)
        )
        for number, (own, *_) in enumerate(self.blocks):
            self.blocks[number] = ()
            features[start : start + own.shape[0], : own.shape[1]] = own
            start += own.shape[0]
        return LetorRows(
            features, labels, query, list(self.queries), self.comments, lines, self.smallest_index
        )


def _blocks(handle: IO[bytes], file: Path, block_bytes: int) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines."""
    # the first block is small: as long as the number of features is not known, no line is plain
    begun, first = b"", [handle.read(min(block_bytes, FIRST_BYTES))]
    for chunk in itertools.chain(first, iter(lambda: handle.read(block_bytes), b"")):
        if b"\0" in chunk:
            raise InputError("is no LETOR text but binary", file=file)
        stop = chunk.rfind(b"\n") + 1
        if stop:
            yield begun + chunk[:stop]
            begun = b""
        begun += chunk[stop:]
        if len(begun) >= LONGEST_LINE:
            problem = f"has a line of more than {LONGEST_LINE} bytes; is it LETOR text?"
            raise InputError(problem, file=file)
    if begun:
        yield begun + b"\n"


def document_of(comment: str) -> str | None:
    """Return the document that a comment names, if any."""
    match = DOCUMENT.search(comment)
    return None if match is None else match[1] or match[2]


def _memory_of_machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on every system
        return 1 << 40


def _text(text: bytes, start: int, stop: int) -> str:
    return text[start:stop].decode("utf-8", "replace")


def _is_good_number(word: str) -> bool:
    return NUMBER.fullmatch(word) is not None and abs(float(word)) < kernel.FLOAT32_LIMIT


ROWS_A_WRITE = 4096
VALUES_A_WRITE = 1 << 20
"""Rows, and values, that are written together at most: about 30 MB of text as it is made."""


def write_letor(data: RankingDataset, path: str | Path) -> None:
    """Write labelled data as LETOR text that `read_letor` reads back as the same lists.

    All features are written, each with as few digits as make the same float32. The comment of a row, or
    else its document id, follows `#`. Groups, names and the source have no place in the format: use
    `write_dataset` to keep them. Query ids held as text that all look like integers are read back as
    numbers, and a dataset without query ids gets 1, 2, ...
    """
    if data.relevance is None:
        raise InputError("there are no labels to write", file=path, column="relevance")
    data.check_numeric("LETOR text")
    queries = pa.array([f"qid:{word}" for word in _query_words(data, path)], type=pa.string())
    heads = [pa.array(data.relevance).cast(pa.string()), queries.take(pa.array(data.list_of_row))]
    remarks = iter(_remarks(data, path))
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for line in pair_lines(heads, data.features, np.arange(data.rows), first_index=1):
            remark = next(remarks)
            file.write(f"{line} # {remark}\n" if remark else f"{line}\n")


def pair_lines(
    heads: Sequence[pa.Array], table: NDArray[np.float32], rows: NDArray[np.int64], *, first_index: int
) -> Iterator[str]:
    """Yield a line of text for some rows of a table: a word of each of the heads, then index:value pairs."""
    width = table.shape[1]
    step = max(1, min(ROWS_A_WRITE, VALUES_A_WRITE // max(1, width)))
    prefixes = pa.array([f"{column + first_index}:" for column in range(width)] * step, type=pa.string())
    for start in range(0, rows.size, step):
        words = [head.slice(start, step) for head in heads]
        if width:
            features = table[rows[start : start + step]]
            values = pa.array(features.ravel()).cast(pa.string())
            pairs = pc.binary_join_element_wise(prefixes[: features.size], values, "")
            offsets = pa.array(np.arange(0, features.size + 1, width, dtype=np.int32))
            words.append(pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), " "))
        yield from pc.binary_join_element_wise(*words, " ").to_pylist()


def _query_words(data: RankingDataset, path: str | Path) -> list[str]:
    if data.query_id is None:
        return [str(number + 1) for number in range(len(data))]
    words = [str(query) for query in data.query_id.tolist()]
    seen = set()
    for word in words:
        if re.search(r"[\s\x00-\x20#]", word):
            problem = "a query id in LETOR text must be one word without #; use write_dataset instead"
            raise InputError(problem, file=path, column="query_id", value=word)
        if word in seen:
            problem = (
                "LETOR text has one list for a query, and this one has several; use write_dataset instead"
            )
            raise InputError(problem, file=path, column="query_id", value=word)
        seen.add(word)
    return words


def _remarks(data: RankingDataset, path: str | Path) -> list[str]:
    """Return what follows the # of each row."""
    column = "doc_id" if data.comment is None else "comment"
    ids = data.doc_id if data.comment is None else data.comment
    if ids is None:
        return [""] * data.rows
    remarks = [str(value) for value in ids.tolist()]
    for row, remark in enumerate(remarks, start=1):
        if re.search(r"[\n\r\x00]", remark):
            raise InputError("must be one line of text", file=path, row=row, column=column, value=remark)
        if data.doc_id is not None and document_of(remark.strip()) != str(data.doc_id[row - 1]):
            problem = "the comment must name the document, or the document id be one word; use write_dataset"
            raise InputError(problem, file=path, row=row, column=column, value=remark)
    return remarks
