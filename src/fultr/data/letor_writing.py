"""Writing labelled data as LETOR text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.data.dataset import RankingDataset
from fultr.data.letor import document_of
from fultr.errors import InputError
from fultr.files import atomic_write

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
