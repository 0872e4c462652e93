"""Click logs as LightGBM keeps them: a file of data, and beside it files with a line for each list or row.

Of `train.txt`, `train.txt.query` holds the lengths of lists, and `train.txt.position` the positions of rows.
LightGBM has no place for ids and groups. They may stand in files of the same kind, which it does not look at:
`train.txt.query_id` with a line for each list, `train.txt.doc_id` and `train.txt.item_group` for each row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fultr.arguments import Progress, one_of
from fultr.data.columns import (
    FEATURE_PREFIX,
    LIST_COLUMN,
    NOT_FINITE,
    NUMBER,
)
from fultr.data.letor import parse_letor
from fultr.data.table_files import Table, open_csv
from fultr.errors import InputError
from fultr.files import existing_file
from fultr.logs.sources import check_first_position, long_table

Weights = Literal["inverse-propensity", "ignore"]

Data = tuple[dict[str, pl.Series], dict[str, str], Sequence[str], Callable[[int], int] | None]
"""Clicks, features, queries if there are any, and rows; what the data calls them; names of features; and the
line of each row, if it is another number."""

PAIRS = re.compile(rb"[^\s:]:")
POSITION = r"^[A-Za-z_ -]*?([0-9]{1,9})$"
"""A position, or a name that ends in one, such as pos_3."""

LENGTH = r"^([0-9]{1,15})$"
ANY = r"^(.+)$"


def lightgbm_table(
    path: str | Path,
    *,
    first_position: int | None = None,
    weights: Weights | None = None,
    progress: Progress | None = None,
) -> Table:
    """Return the long table of data for LightGBM, for `fultr.count` and other readers; labels are clicks.

    Each list is an impression. Its query is that of `.query_id`, or else of `qid:` in the data; without
    either, each list is a query of its own. Without `.doc_id`, each row is a document of its own.

    Parameters
    ----------
    path
        Data as `label index:value ...`, with or without `qid:N`, with indices from 0 (if there is a 0) or
        from 1; or as CSV or TSV with the label first, or in a column called label. Beside it must stand
        `.query`, unless the data has `qid:N`, and `.position`.
    first_position
        What the first position is called, 0 or 1; by default 0 if there is a 0 in the file, and else 1.
    weights
        What the weights of `.weight` are, if there is such a file: one over the propensity of each row, or
        nothing that matters here.
    progress
        Called with how much of the data has been read, and with its size.
    """
    if weights is not None:
        one_of(weights, "weights", *get_args(Weights))
    check_first_position(first_position)
    file = existing_file(path)
    columns, names, features, line_of = (_read_columns if _has_columns(file) else _read_pairs)(file, progress)
    size, missing = len(columns["row"]), "an id is missing"
    lengths = _list_lengths(file, size, columns.get("query_id"))
    number = pl.Series(np.repeat(np.arange(1, lengths.size + 1), lengths))
    queries = _values(file, "query_id", lengths.size, ANY, missing)
    columns |= {} if queries is None else {"query_id": queries.gather(number - 1)}
    documents = _values(file, "doc_id", size, ANY, missing)
    columns |= {} if documents is None else {"doc_id": documents}
    groups = _lines(_beside(file, "item_group"), size)
    columns |= {} if groups is None else {"group": groups.replace("", None)}
    columns |= _propensities(file, size, weights)
    invented = {"impression_id": number, "query_id": number, "doc_id": columns["row"]}
    invented = {name: ids for name, ids in invented.items() if name not in columns}
    frame = pl.DataFrame({**columns, **invented, "position": _positions(file, size, first_position)})
    for name in ("position", "doc_id"):  # the reader would name a line of the data, not of this file
        repeated = frame.select(~pl.struct("impression_id", name).is_first_distinct()).to_series().arg_true()
        for row in repeated.head(1):
            problem, value = "stands in a line of the same list already", frame[name][row]
            raise InputError(problem, file=_beside(file, name), row=row + 1, column=name, value=value)
    about = {"invented": list(invented), "feature_names": list(features)}
    return long_table(frame, file, line_of, metadata=about, is_text=True, names=names)


def _beside(file: Path, ending: str) -> Path:
    return file.with_name(f"{file.name}.{ending}")


def _has_columns(file: Path) -> bool:
    """Say whether the first line of data is one of a CSV or TSV file; others have index:value pairs."""
    first = _first_line(file)
    return not PAIRS.search(first) and (b"," in first or b"\t" in first)


def _first_line(file: Path) -> bytes:
    """Return the first line that is not blank."""
    with file.open("rb") as opened:
        return next((line for line in opened if line.strip()), b"")


def _read_pairs(file: Path, progress: Progress | None) -> Data:
    """Read `label index:value ...` as LETOR text; indices start at 0 if there is a 0."""
    rows = parse_letor(file, progress=progress, first_index=0, needs_query=False)
    first = min(1, rows.smallest_index)
    features, names = rows.features[:, first:], [str(index) for index in range(first, rows.features.shape[1])]
    columns = {"row": pl.Series(rows.lines), "click": pl.Series(rows.labels)}
    if names:
        columns[LIST_COLUMN] = pl.Series(features, dtype=pl.Array(pl.Float32, len(names)))
    if rows.queries != [""]:
        if "" in rows.queries:
            raise InputError("some rows have qid:N, and others have not", file=file, column="qid")
        columns["query_id"] = pl.Series(rows.queries).gather(rows.query)
    return columns, {"click": "label", "query_id": "qid"}, names, None


def _read_columns(file: Path, progress: Progress | None) -> Data:
    """Read CSV or TSV; there is a header if a word of the first line is no number."""

    def is_header(words: list[str]) -> bool:
        return not all(not word or NUMBER.fullmatch(word) or NOT_FINITE.fullmatch(word) for word in words)

    separator = "\t" if b"\t" in _first_line(file) else ","
    table = open_csv(file, progress or (lambda _done, _total: None), separator, is_header)
    names = table.schema.names
    batches = list(table.batches(names))
    if not batches:
        raise InputError("has no rows", file=file)
    label = "label" if "label" in names else names[0]
    ours = {name: FEATURE_PREFIX + name.removeprefix(FEATURE_PREFIX) for name in names} | {label: "click"}
    columns = {
        ours[name]: pl.concat([pl.Series(pl.from_arrow(batch[name])) for batch, _ in batches])
        for name in names
    }
    rows = pl.int_range(1, 1 + len(columns["click"]), eager=True)
    return (
        {**columns, "row": rows},
        {name: column for column, name in ours.items()},
        (),
        batches[0][1].line_of,
    )


def _list_lengths(file: Path, size: int, queries: pl.Series | None) -> NDArray[np.int64]:
    """Return how many rows each list has, by `.query` or else by where `qid:` changes."""
    rule = "the length of a list is an integer, 1 or more"
    lengths = _values(file, "query", None, LENGTH, rule, pl.Int64, least=1)
    if lengths is None:
        if queries is None:
            problem = f"the lengths of its lists are missing: {file.name}.query should stand beside it"
            raise InputError(problem, file=file)
        lengths = queries.rle().struct.field("len").cast(pl.Int64)
    elif lengths.sum() != size:
        problem = f"its lists have {lengths.sum()} rows together, but {file.name} has {size}"
        raise InputError(problem, file=_beside(file, "query"))
    return lengths.to_numpy()


def _positions(file: Path, size: int, first: int | None) -> pl.Series:
    """Return the position of each row from 1 on."""
    rule = f"a position is an integer, {first or 0} or more"
    values = _values(file, "position", size, POSITION, rule, pl.Int64, least=first or 0)
    if values is None:
        problem = f"the positions of its rows are missing: {file.name}.position should stand beside it"
        raise InputError(problem, file=file)
    return values if first == 1 or (first is None and values.min() != 0) else values + 1


def _propensities(file: Path, size: int, weights: Weights | None) -> dict[str, pl.Series]:
    rule = "one over a propensity is 1 or more"
    values = None if weights == "ignore" else _values(file, "weight", size, ANY, rule, pl.Float64, least=1)
    if values is not None and weights is None:
        problem = (
            "there are weights; say what they are: 'inverse-propensity' if each is one over the propensity"
            " of its row, or 'ignore' if they do not matter here"
        )
        raise InputError(problem, file=_beside(file, "weight"), column="weights")
    return {} if values is None else {"propensity": values.pow(-1)}


def _values(
    file: Path, ending: str, size: int | None, pattern: str, rule: str, kind: Any = pl.String, least: int = 0
) -> pl.Series | None:
    """Return what the lines of a file hold; `rule` is the error of a line that does not hold it."""
    lines = _lines(_beside(file, ending), size)
    if lines is None:
        return None
    values = lines.str.extract(pattern).cast(kind, strict=False)
    wrong = values.is_null() if kind == pl.String else (values >= least).ne_missing(True)
    for row in wrong.arg_true().head(1):
        value = lines[row] or None
        raise InputError(rule, file=_beside(file, ending), row=row + 1, column=ending, value=value)
    return values


def _lines(file: Path, size: int | None) -> pl.Series | None:
    """Return the lines of a file, one for each list or row, if there is such a file."""
    if not file.exists():
        return None
    try:
        lines = existing_file(file).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text; save it as UTF-8", file=file) from None
    if size is not None and len(lines) != size:
        raise InputError(f"has {len(lines)} lines, but there must be {size}", file=file)
    return pl.Series(lines, dtype=pl.String).str.strip_chars()
