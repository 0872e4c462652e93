"""Labelled data as LETOR text: one line a document, `label qid:N 1:v 2:v ... # comment`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.data import letor_kernel as kernel
from fultr.data.columns import NOT_FINITE, NUMBER
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.grouping import run_starts
from fultr.data.id_codes import as_integers
from fultr.data.ids import TEXT, Ids, order_of_appearance
from fultr.errors import InputError
from fultr.files import atomic_write, existing_file

BLOCK_BYTES = 1 << 20
"""Text parsed at a time: small against any data whose memory matters, large against the cost of a call."""

LONGEST_LINE = 1 << 26
SPARE_ROWS = 1.1
"""For how many times the rows that are expected room is reserved."""

FLOAT32_LIMIT = float.fromhex("0x1.ffffffp+127")
"""The smallest double that is beyond float32 when rounded."""

DOCUMENT = re.compile(r"\bdocid\s*=\s*(\S+)|^(\S+)$")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
KINDS_OF_FILE = {
    b"PAR1": "a Parquet file: use read_dataset",
    b"ARROW1": "an Arrow file: use read_dataset",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
}


def read_letor(
    path: str | Path, *, block_bytes: int = BLOCK_BYTES, progress: Progress | None = None
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
    progress
        Called with how many bytes have been read, and with the size of the file.

    Raises
    ------
    InputError
        If the file is no such text; the message names the line and what is wrong with it.
    """
    file = existing_file(path)
    try:
        rows = _parse_file(file, block_bytes, progress, integer_queries=True)
    except _TextQueryError:
        # earlier queries may have been written 007 and 7: only a second look tells
        rows = _parse_file(file, block_bytes, progress, integer_queries=False)
    if rows.count == 0:
        raise InputError("has no line of data; a line is: label qid:N 1:v 2:v ...", file=file)
    return _grouped(rows)


class _TextQueryError(Exception):
    """A query id is no int64, though all were expected to be."""


class _Rows:
    """The rows parsed so far, in arrays reserved ahead for the rows that are still expected.

    Memory that is reserved and not yet written to is not taken from the machine. So one table, filled in
    place, is all that reading needs, unless later rows are much shorter or have larger indices.
    """

    def __init__(self, file: Path, integer_queries: bool) -> None:
        self.file = file
        self.integer_queries = integer_queries
        self.count = self.largest_index = 0
        self.features = np.empty((0, 0), dtype=np.float32)
        self.relevance = np.empty(0, dtype=np.float32)
        self.query = np.empty(0, dtype=np.int64)
        self.query_codes: dict[str, int] = {}
        self.comments: list[Ids] = []
        self.documents: list[Ids] | None = []

    def parse(self, content: bytes, line: int, share: float) -> int:
        """Parse a block of text that starts at `line`; return the line after it.

        `share` is the part of the file that has been read with this block.
        """
        text = np.frombuffer(content, dtype=np.uint8)
        lines = content.count(b"\n")
        spans = np.empty((lines, 4), dtype=np.int64)
        unsure = np.empty((64, 5), dtype=np.int64)
        position = len(BYTE_ORDER_MARK) if line == 1 and content.startswith(BYTE_ORDER_MARK) else 0
        reason, needed, index = kernel.TOO_NARROW, self.count + lines, 0
        while reason != kernel.DONE:
            self._reserve(needed, int(needed / share * SPARE_ROWS), index, line)
            arrays = (self.features, self.relevance, self.query, spans, unsure)
            reason, position, count, parsed, unsure_count, index = kernel.parse_lines(
                text, position, self.count, *arrays, self.integer_queries
            )
            self._parse_unsure(text, unsure[:unsure_count], line)
            self._add_words(content, spans[: count - self.count])
            self.count, self.largest_index = count, max(self.largest_index, index)
            line += parsed
            if reason == kernel.BAD_LINE:
                raise _explained(content[position:].partition(b"\n")[0], self.file, line)
            if reason == kernel.TEXT_QUERY:
                raise _TextQueryError
            if reason == kernel.TOO_MANY_UNSURE:
                unsure = np.empty((2 * unsure.shape[0], 5), dtype=np.int64)
        return line

    def _reserve(self, needed: int, expected: int, width: int, line: int) -> None:
        """Make room for `needed` rows of `width` features, if possible for all `expected` ones."""
        rows, old_width = self.features.shape
        if needed <= rows and width <= old_width:
            return
        if width > old_width and self.count:
            # moving the rows is dear: add a quarter at once, in case this happens again and again
            width = min(max(width, old_width + old_width // 4), kernel.LARGEST_INDEX)
        width = max(width, old_width)
        most = _memory_of_machine() // (4 * max(1, width))
        rows, features = max(rows, needed, min(expected, most)), None
        with suppress(MemoryError):
            if needed <= most:
                self.relevance = _enlarged(self.relevance, rows)
                self.query = _enlarged(self.query, rows)
                features = np.empty((rows, width), dtype=np.float32)
        if features is None:
            size = f"{needed} rows of {width} features need {needed * width * 4 / 1e9:.1f} GB"
            problem = f"{size}, more than this machine has; check the feature indices or split the file"
            raise InputError(problem, file=self.file, row=line, column=str(width))
        features[: self.count, :old_width] = self.features[: self.count]
        features[: self.count, old_width:] = 0.0
        self.features = features

    def _parse_unsure(self, text: NDArray[np.uint8], unsure: NDArray[np.int64], line: int) -> None:
        """Parse the numbers of which the compiled loop was not sure."""
        for row, column, start, stop, lines in unsure.tolist():
            word = bytes(text[start:stop]).decode("ascii")
            value = float(word)
            is_label = column == kernel.RELEVANCE_COLUMN
            if abs(value) >= FLOAT32_LIMIT or (is_label and value < 0):
                name = "label" if is_label else str(column + 1)
                raise _wrong_number(word, name, self.file, line + lines)
            if is_label:
                self.relevance[row] = value
            else:
                self.features[row, column] = value

    def _add_words(self, text: bytes, spans: NDArray[np.int64]) -> None:
        """Keep the query ids, where they are text, and the comments of the rows just parsed."""
        comments = [""] * len(spans)
        # in most files there is neither, and then the rows need not be looked at one by one
        if not self.integer_queries:
            queries = _words(text, spans[:, :2])
            codes = [self.query_codes.setdefault(query, len(self.query_codes)) for query in queries]
            self.query[self.count : self.count + len(codes)] = codes
        if np.any(spans[:, 2] < spans[:, 3]):
            comments = [comment[1:].strip() for comment in _words(text, spans[:, 2:])]
        if self.documents is not None:
            documents = [document_of(comment) for comment in comments]
            self.documents.append(np.array([name or "" for name in documents], dtype=TEXT))
            if None in documents:
                self.documents = None
        if any(comments) and not self.comments:
            self.comments.append(np.zeros(self.count, dtype=TEXT))
        if self.comments:
            self.comments.append(np.array(comments, dtype=TEXT))


def _parse_file(file: Path, block_bytes: int, progress: Progress | None, *, integer_queries: bool) -> _Rows:
    size, seen, line = file.stat().st_size, 0, 1
    try:
        with file.open("rb", buffering=0) as handle:
            head = handle.read(8)
            kind = next((kind for magic, kind in KINDS_OF_FILE.items() if head.startswith(magic)), None)
            if kind is not None:
                raise InputError(f"is no LETOR text but {kind}", file=file)
            rows = _Rows(file, integer_queries)
            handle.seek(0)
            for text in _blocks(handle, file, block_bytes):
                seen += len(text)
                line = rows.parse(text, line, min(1.0, seen / size))
                if progress is not None:
                    progress(min(seen, size), size)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=file) from error
    return rows


def _blocks(handle: IO[bytes], file: Path, block_bytes: int) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines."""
    begun = b""
    for chunk in iter(lambda: handle.read(block_bytes), b""):
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


def _grouped(rows: _Rows) -> RankingDataset:
    """Bring the rows of each query together and make the dataset."""
    features = rows.features[: rows.count, : rows.largest_index]
    features, relevance = np.ascontiguousarray(features), rows.relevance[: rows.count]
    comment = np.concatenate(rows.comments) if rows.comments else None
    document = np.concatenate(rows.documents) if rows.documents else None
    query = rows.query[: rows.count]
    starts = run_starts(query)
    offsets = np.append(starts, rows.count)
    codes, first = order_of_appearance(query[starts])
    if first.size < starts.size:
        order = rows_of(offsets, np.argsort(codes, kind="stable"))
        lengths = np.bincount(codes, weights=np.diff(offsets)).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        features, relevance = features[order], relevance[order]
        comment = None if comment is None else comment[order]
        document = None if document is None else document[order]
    query_id: Ids = query[starts[first]]
    if not rows.integer_queries:
        query_id = np.array(list(rows.query_codes), dtype=TEXT)[query_id]
    labels: dict[str, Any] = {"relevance": relevance, "query_id": query_id}
    if document is not None:
        others = None if np.all(document == comment) else comment
        try:
            return RankingDataset(features, offsets, doc_id=as_integers(document), comment=others, **labels)
        except InputError as error:
            # a word that two rows of a query share is no document id, only a comment
            if error.column != "doc_id":
                raise
    return RankingDataset(features, offsets, comment=comment, **labels)


def document_of(comment: str) -> str | None:
    """Return the document that a comment names, if any."""
    match = DOCUMENT.search(comment)
    return None if match is None else match[1] or match[2]


def _enlarged(values: NDArray[Any], size: int) -> NDArray[Any]:
    enlarged = np.empty(size, dtype=values.dtype)
    enlarged[: values.size] = values
    return enlarged


def _memory_of_machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system tells
        return 1 << 40


def _words(text: bytes, spans: NDArray[np.int64]) -> list[str]:
    return [text[start:stop].decode("utf-8", "replace") for start, stop in spans.tolist()]


def _wrong_number(word: str, column: str, file: Path, line: int) -> InputError:
    if NOT_FINITE.fullmatch(word):
        problem = "must be finite; leave the pair out or fill it in"
    elif not NUMBER.fullmatch(word):
        problem = "must be a number"
    elif column == "label" and float(word) < 0:
        problem = "must be 0 or more"
    else:
        problem = "is beyond what a float32 can hold"
    return InputError(problem, file=file, row=line, column=column, value=word)


def _explained(content: bytes, file: Path, line: int) -> InputError:
    """Say what is wrong with a line that could not be parsed."""
    text = content.decode("utf-8", "replace")
    label, *words = re.split(r"[\x00-\x20]+", text.split("#")[0].strip())
    if not _is_good_number(label) or float(label) < 0:
        return _wrong_number(label, "label", file, line)
    if not words or not words[0].startswith("qid:") or words[0] == "qid:":
        problem, value = "expected qid:N after the label", words[0] if words else None
        return InputError(problem, file=file, row=line, column="qid", value=value)
    seen = set()
    for word in words[1:]:
        index, _, number = word.partition(":")
        is_index = re.fullmatch(r"[0-9]+", index) is not None
        # no more digits than tell that it is too large: it could be of any length
        feature = int(index.lstrip("0")[: len(str(kernel.LARGEST_INDEX)) + 1] or 0) if is_index else 0
        column: str | None = index
        if not is_index or not number:
            problem, column = "expected index:value", index if is_index else None
        elif not 1 <= feature <= kernel.LARGEST_INDEX:
            problem, column = f"a feature index must lie in 1..{kernel.LARGEST_INDEX}", index[:20]
        elif not _is_good_number(number):
            return _wrong_number(number, index, file, line)
        elif feature in seen:
            problem = "the feature stands twice in the line"
        else:
            seen.add(feature)
            continue
        return InputError(problem, file=file, row=line, column=column, value=word)
    return InputError("cannot be parsed as: label qid:N 1:v 2:v ...", file=file, row=line, value=text)


def _is_good_number(word: str) -> bool:
    return NUMBER.fullmatch(word) is not None and abs(float(word)) < FLOAT32_LIMIT


ROWS_A_WRITE = 4096
VALUES_A_WRITE = 1 << 20


def write_letor(data: RankingDataset, path: str | Path) -> None:
    """Write labelled data as LETOR text that `read_letor` reads back as the same lists.

    All features are written, each with as few digits as make the same float32. The comment of a row, or
    else its document id, follows `#`. Groups, names and the source have no place in the format: use
    `write_dataset` to keep them. Query ids held as text that all look like integers are read back as
    numbers, and a dataset without query ids gets 1, 2, ...
    """
    if data.relevance is None:
        raise InputError("there are no labels to write", file=path, column="relevance")
    queries = pa.array([f"qid:{word}" for word in _query_words(data, path)], type=pa.string())
    remarks = _remarks(data, path)
    width = data.features.shape[1]
    step = max(1, min(ROWS_A_WRITE, VALUES_A_WRITE // max(1, width)))
    prefixes = pa.array([f"{column + 1}:" for column in range(width)] * step, type=pa.string())
    list_of_row = data.list_of_row
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for start in range(0, data.rows, step):
            stop = min(start + step, data.rows)
            words = [
                pa.array(data.relevance[start:stop]).cast(pa.string()),
                queries.take(pa.array(list_of_row[start:stop])),
                *([_pairs(data.features[start:stop], prefixes)] if width else []),
            ]
            lines = pc.binary_join_element_wise(*words, " ").to_pylist()
            file.writelines(
                f"{line} # {remark}\n" if remark else f"{line}\n"
                for line, remark in zip(lines, remarks[start:stop], strict=True)
            )


def _query_words(data: RankingDataset, path: str | Path) -> list[str]:
    if data.query_id is None:
        return [str(number + 1) for number in range(len(data))]
    words = [str(query) for query in data.query_id.tolist()]
    seen = set()
    for word in words:
        if not word or re.search(r"[\s\x00-\x20#]", word):
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


def _pairs(features: NDArray[np.float32], prefixes: pa.StringArray) -> pa.StringArray:
    """Return the index:value pairs of each row, as text."""
    rows, width = features.shape
    values = pa.array(features.ravel()).cast(pa.string())
    pairs = pc.binary_join_element_wise(prefixes[: rows * width], values, "")
    offsets = pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), " ")
