"""Both ends of ranking with a finished policy: tables of items to rank, and files of rankings.

Neither is ever held as a whole. Items are scored as they are read, so that a table of any width comes down
to a number a row, and rankings are written in parts, as they are made.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.data.categories import RawFeatures
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, Location, arrow_ids, require_columns
from fultr.data.dataset import RankingDataset
from fultr.data.dataset_files import KIND, lists_of
from fultr.data.fields import numbered_names
from fultr.data.ids import UNKNOWN_GROUP, Ids
from fultr.data.metadata import read_fields
from fultr.data.table_files import Batch, Table, open_table, write_table
from fultr.errors import InputError
from fultr.files import atomic_write, existing_file
from fultr.logs.features import expected_columns
from fultr.logs.frames import categories_among, require_items
from fultr.logs.reading import LogOptions
from fultr.policy.ranking_formats import RankingFormat

RANKINGS = "table of rankings"
"""What the metadata of a Parquet file of rankings calls its content."""

TABLE_ENDINGS = (".parquet", ".pq", ".csv", ".arrow")
KEY_COLUMNS = ("query_id", "doc_id", "list", "group")
ROWS_AT_ONCE = 1 << 13
"""Rows whose features are looked at together."""

ROWS_A_GROUP = 1 << 17
"""Rows of rankings that make a row group of a Parquet file, or a few more."""

RUN = "fultr"
"""What the run tags of a TREC file start with; the number of the sample follows."""

Scores = Callable[[RankingDataset], NDArray[np.float64]]
"""From lists to a score for each row."""


def read_scored(
    path: str | Path,
    wanted: Sequence[str],
    score: Scores,
    *,
    options: LogOptions | None = None,
    progress: Progress | None = None,
) -> RankingDataset:
    """Read the items of a table, of any order, with their score as the only feature.

    Parameters
    ----------
    path
        A .parquet, .csv or .arrow file with `query_id`, features as columns or as one list column `features`,
        and if known `doc_id`, `group`, and `list` where a query has several. Relevance is not needed, and
        other columns are no trouble.
    wanted
        The features that `score` takes, by name; see `matching_columns`.
    score
        Called with some rows at a time, as one list that has the features and nothing else.
    options
        How features are read: `categories` and `keep_missing` of `fultr.count`.
    progress
        Called with how much of the table has been read, and with its size.
    """
    file = existing_file(path)
    table = open_table(file, progress)
    require_items(table)
    keys = {name: name for name in KEY_COLUMNS if name in table.schema.names}
    if table.metadata.get("kind") == KIND and "list" in keys:
        keys.setdefault("query_id", "list")  # of data without query ids, where each list is a query
    require_columns(list(keys), ["query_id"], file)
    return lists_of(_scored(table, keys, wanted, score, options or {}), [LIST_COLUMN], None)[0]


def _scored(
    table: Table, keys: dict[str, str], wanted: Sequence[str], score: Scores, options: LogOptions
) -> Table:
    """Return a table with one feature, the score."""
    columns, listed = expected_columns(table, wanted), table.metadata.get("feature_names")
    raw = RawFeatures(
        categories_among(columns, options.get("categories", ())),
        allows_missing=options.get("keep_missing", False),
    )

    def scores_of(batch: Batch, rows: int, location: Location) -> NDArray[np.float32]:
        scores = np.empty(rows, dtype=np.float32)
        for start in range(0, rows, ROWS_AT_ONCE):
            block = {name: batch[name].slice(start, ROWS_AT_ONCE) for name in columns}
            size = min(ROWS_AT_ONCE, rows - start)
            features = raw.table(block, size, replace(location, first_row=location.first_row + start))
            features, kinds = raw.in_order(features, columns)
            names = columns
            if columns == [LIST_COLUMN]:
                names = listed if isinstance(listed, list) else list(numbered_names(features.shape[1]))
                kinds |= read_fields(table.metadata, ["category_names"], table.file)
            bare = [name.removeprefix(FEATURE_PREFIX) for name in names]
            scores[start : start + size] = score(
                RankingDataset(features, [0, size], feature_names=bare, **kinds)
            )
        return scores

    def batches(_names: list[str]) -> Iterator[tuple[Batch, Location]]:
        for batch, location in table.batches(list(dict.fromkeys([*keys.values(), *columns]))):
            rows = len(batch[keys["query_id"]])
            scored = {name: batch[column] for name, column in keys.items()}
            scores = pa.array(scores_of(batch, rows, location))
            scored[LIST_COLUMN] = pa.FixedSizeListArray.from_arrays(scores, 1)
            yield scored, location

    fields = [table.schema.field(column).with_name(name) for name, column in keys.items()]
    fields.append(pa.field(LIST_COLUMN, pa.list_(pa.float32(), 1)))
    return replace(table, schema=pa.schema(fields), metadata={}, batches=batches)


@dataclass(frozen=True, eq=False)
class ShownItems:
    """What some rankings show, one ranking after another and each from its first position to its last.

    Parameters
    ----------
    row
        The row of each item in the data.
    sample
        The number of the ranking, from 1, among those of its list.
    position
        From 1.
    score
        Of the item.
    ranking_log_prob
        The log-probability of the whole ranking that the item is part of.
    """

    row: NDArray[np.int64]
    sample: NDArray[np.int32]
    position: NDArray[np.int32]
    score: NDArray[np.float64]
    ranking_log_prob: NDArray[np.float64]


def write_rankings(
    data: RankingDataset, parts: Iterable[ShownItems], out: str | Path | IO[bytes], form: RankingFormat
) -> int:
    """Write rankings of the lists of `data` in parts, and return the number of rows.

    A table has a row for each item that a ranking shows: `query_id`, `list` (from 0, if a query has several),
    `sample`, `position`, `doc_id` (items without an id are numbered within their list, from 1), `score`,
    `group` (if any is known) and `ranking_log_prob`.

    A TREC run has lines of the form `query Q0 document position score tag`. Its score is minus the position,
    since tools sort by it, and a ranking that is drawn does not follow the scores of its items. The tag is
    fultr-1, fultr-2, ..., by the number of the sample.

    Parameters
    ----------
    data
        The lists.
    parts
        What the rankings show.
    out
        A file, which is written whole or not at all; or an open one, not for Parquet.
    form
        The format.
    """
    rows = _Rows(data, trec=form is RankingFormat.TREC)
    if not isinstance(out, (str, Path)):
        return _write_text(rows, parts, out, form)
    with atomic_write(out) as temporary:
        if form is RankingFormat.PARQUET:
            return _write_parquet(rows, parts, temporary)
        with temporary.open("wb") as file:
            return _write_text(rows, parts, file, form)


class _Rows:
    """Makes tables of what rankings show."""

    def __init__(self, data: RankingDataset, *, trec: bool) -> None:
        self.list_of_row = data.list_of_row
        self.several = bool(np.unique(data.query_codes).size < len(data))
        self.group = data.group if (data.group != UNKNOWN_GROUP).any() else None
        self.group_names = pa.array(data.group_names, type=pa.string())
        numbers = np.arange(data.rows) - data.offsets[self.list_of_row] + 1
        self.query: Ids = np.arange(1, len(data) + 1) if data.query_id is None else data.query_id
        self.document: Ids = numbers if data.doc_id is None else data.doc_id
        if trec:
            self._check_trec()

    def _check_trec(self) -> None:
        if self.several:
            problem = "a TREC run has one list for a query, and here are several; write .parquet or .csv"
            raise InputError(problem, column="query_id")
        for name, ids in (("query_id", self.query), ("doc_id", self.document)):
            for value in ids.tolist() if ids.dtype.kind == "T" else ():
                if value.split() != [value]:
                    problem = "an id in a TREC run must be one word; write .parquet or .csv"
                    raise InputError(problem, column=name, value=value)

    def table(self, shown: ShownItems) -> pa.Table:
        """Return a table with a row for each item."""
        lists = self.list_of_row[shown.row]
        columns: dict[str, Any] = {"query_id": arrow_ids(self.query[lists])}
        if self.several:
            columns["list"] = pa.array(lists)
        columns |= {
            "sample": pa.array(shown.sample),
            "position": pa.array(shown.position),
            "doc_id": arrow_ids(self.document[shown.row]),
            "score": pa.array(shown.score),
        }
        if self.group is not None:
            codes = self.group[shown.row]
            columns["group"] = self.group_names.take(pa.array(codes, mask=codes == UNKNOWN_GROUP))
        columns["ranking_log_prob"] = pa.array(shown.ranking_log_prob)
        return pa.table(columns)

    def trec_lines(self, shown: ShownItems) -> bytes:
        """Return the lines of a TREC run."""
        words = [
            arrow_ids(self.query[self.list_of_row[shown.row]]).cast(pa.string()),
            "Q0",
            arrow_ids(self.document[shown.row]).cast(pa.string()),
            pa.array(shown.position).cast(pa.string()),
            pa.array(-shown.position).cast(pa.string()),
            pc.binary_join_element_wise(RUN, pa.array(shown.sample).cast(pa.string()), "-"),
        ]
        return "".join(f"{line}\n" for line in pc.binary_join_element_wise(*words, " ").to_pylist()).encode()

    def csv_lines(self, shown: ShownItems, *, header: bool) -> bytes:
        """Return the lines of a CSV file."""
        lines = io.BytesIO()
        arrow_csv.write_csv(self.table(shown), lines, arrow_csv.WriteOptions(include_header=header))
        return lines.getvalue()


def _write_text(rows: _Rows, parts: Iterable[ShownItems], out: IO[bytes], form: RankingFormat) -> int:
    written, trec = 0, form is RankingFormat.TREC
    for shown in parts:
        out.write(rows.trec_lines(shown) if trec else rows.csv_lines(shown, header=not written))
        written += shown.row.size
    return written


def _write_parquet(rows: _Rows, parts: Iterable[ShownItems], path: Path) -> int:
    integers, floats = np.empty(0, np.int32), np.empty(0)
    schema = rows.table(ShownItems(integers.astype(np.int64), integers, integers, floats, floats)).schema
    written = 0

    def groups() -> Iterator[pa.Table]:
        nonlocal written
        held = schema.empty_table()
        for shown in parts:
            held = pa.concat_tables([held, rows.table(shown)])
            written += shown.row.size
            if held.num_rows >= ROWS_A_GROUP:
                yield held
                held = schema.empty_table()
        if held.num_rows:
            yield held

    write_table(path, schema, {"kind": RANKINGS}, groups())
    return written
