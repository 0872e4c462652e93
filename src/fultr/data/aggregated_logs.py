"""Logs of counts: how often each document of a query was shown and clicked at each position.

There are no single impressions in them, so they are read as a `CompactLog`. All documents of a query are one
list: an impression that did not show one of them counts as having had it as a candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fultr.arguments import Progress, names_of
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import columns as checks
from fultr.data.click_log import ClickLog
from fultr.data.coding import OnConflict, Remembered
from fultr.data.columns import Place, require_columns
from fultr.data.compact_log import Cells, CompactLog, merge_cells
from fultr.data.foreign_logs import add_documents, in_their_names, opened
from fultr.data.ids import UNKNOWN_GROUP, order_of_appearance
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.log_files import _feature_columns, _find_features
from fultr.data.log_metadata import LOG, LogMetadata
from fultr.data.log_rows import Column
from fultr.data.log_table import DOCUMENT_BITS, Batch, DatasetFields, LogBuilder, _Grouped, no_clicks
from fultr.data.merging import paired
from fultr.data.propensity import NOT_SHOWN
from fultr.data.table_files import Table, is_csv, write_table
from fultr.errors import InputError
from fultr.files import atomic_write

AGGREGATED = "aggregated-log"
COUNT_COLUMNS = ("query_id", "doc_id", "position", "impressions", "clicks")
OPTIONAL_COUNT_COLUMNS = ("query_impressions", "propensity", "group")
LARGEST_COUNT = 1 << 53
"""Sums of counts below it are exact as floats."""

UNKNOWN_COUNT = -1
"""How many impressions of a list had a click, where counts of documents do not say."""

Whole = NDArray[np.int64]


def read_aggregated_log(
    source: Any,
    *,
    items: Any = None,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    group_names: Sequence[str] | None = None,
    on_conflict: OnConflict = "error",
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    empties_dropped: bool = False,
    progress: Progress | None = None,
) -> CompactLog:
    """Read counts of impressions and clicks for each query, document and position.

    Columns are `query_id, doc_id, position, impressions, clicks` and, where known, `query_impressions`,
    `propensity`, `group` and features. Rows of the same query, document and position are added up. A row
    with 0 impressions is a candidate; it needs no position.

    How often a query was searched for is `query_impressions`; without that column, it is the sum of the
    impressions at position 1. Counts that contradict it are refused: more impressions at another position,
    or of a document, than of the query. `clicked_impressions` of the result is -1 where the
    counts leave it open.

    Parameters
    ----------
    source
        A Parquet or CSV file, or a pandas, polars or Arrow frame.
    items, columns, features, group_names, on_conflict, progress
        As in `read_log`; `columns` may rename the counts, too.
    position_bias, noise, empties_dropped
        The click model that belongs to the log, if the file does not say it, and whether impressions without
        a click are missing from the counts.

    Examples
    --------
    >>> read_aggregated_log({"query_id": ["jobs"] * 3, "doc_id": [7, 8, 7], "position": [1, 1, 2],
    ...                      "impressions": [90, 10, 10], "clicks": [30, 5, 2]})
    <CompactLog: 100 impressions of 1 lists, 3 cells>
    """
    table, renamed = opened(source, progress), dict(columns or {})
    documents = None if items is None else opened(items)
    content = dict(table.metadata)
    if content.get("kind") == AGGREGATED:
        content["kind"] = LOG
    about = LogMetadata.from_dict(content, table.file)
    builder = _CountsBuilder(
        group_names=about.group_names if group_names is None else names_of(group_names, "group_names"),
        on_conflict=on_conflict,
        text_ids=table.is_text or (documents is not None and documents.is_text),
        keep_text=about.text_ids,
        file=table.file,
        rows=table.rows,
    )
    found = add_documents(builder, documents, features)
    in_log = _find_features(table, features, all_numbers=False) if documents is None else ()
    with in_their_names({"click": "clicks", **renamed}, table.file):
        for batch, place in _batches(table, renamed, in_log):
            builder.add(batch, place, in_log)
        return builder.counts(
            lambda width: about.dataset_fields(found or in_log, width),
            position_bias=about.position_bias if position_bias is None else position_bias,
            noise=about.noise if noise is None else noise,
            empties_dropped=about.empties_dropped or empties_dropped,
        )


def _batches(
    table: Table, renamed: Mapping[str, str], features: Sequence[str]
) -> Iterator[tuple[dict[str, pa.Array], Place]]:
    """Read the columns that are needed, under our names."""
    known = (*COUNT_COLUMNS, *OPTIONAL_COUNT_COLUMNS)
    for name in renamed:
        if name not in known:
            raise InputError(f"no such column to rename; there are: {', '.join(known)}", column=name)
    names = table.schema.names
    needed = [*COUNT_COLUMNS, *(name for name in OPTIONAL_COUNT_COLUMNS if name in renamed)]
    require_columns(names, [renamed.get(name, name) for name in needed], table.file)
    wanted = {name: renamed.get(name, name) for name in known if renamed.get(name, name) in names}
    wanted.update((name, name) for name in features)
    for batch, place in table.batches(list(dict.fromkeys(wanted.values()))):
        yield {name: batch[column] for name, column in wanted.items()}, place


class _CountsBuilder(LogBuilder):
    """Collect batches of counts and make a compact log of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.query_impressions = Remembered("query_impressions", "query")

    def add(self, batch: Batch, place: Place, features: Sequence[str] = ()) -> None:
        """Take rows of counts, with features in the columns named if there was no table of documents."""
        impressions = _whole(batch["impressions"], "impressions", place)
        clicks = _whole(batch["clicks"], "clicks", place)
        position = checks.positions(batch["position"], "position", place, DEEPEST_POSITION)
        too_many = np.flatnonzero(clicks > impressions)
        if too_many.size:
            index = int(too_many[0])
            problem = f"there are more clicks than the {impressions[index]} impressions"
            raise place.error(problem, index, "clicks", clicks[index])
        unplaced = np.flatnonzero((impressions > 0) & (position == NOT_SHOWN))
        if unplaced.size:
            problem = "what was shown needs a position; only a row with 0 impressions may be without one"
            raise place.error(problem, int(unplaced[0]), "position")
        query = self.queries.encode(self._ids(batch, "query_id", place), place, in_runs=True)
        if "query_impressions" in batch:
            total = _whole(batch["query_impressions"], "query_impressions", place)
            self.query_impressions.learn(query, total, place)
        item = self._items(batch, place, query)
        self._learn_groups(item, batch, place)
        if not self.items_given:
            self._learn_features(item, batch, place, features)
        rows: dict[str, NDArray[Any]] = {
            "query": query,
            "item": item,
            "position": position,
            "impressions": impressions,
            "clicks": clicks,
        }
        if "propensity" in batch:
            shown = impressions > 0
            rows["propensity"] = checks.propensities(batch["propensity"], "propensity", place, shown)
        for name, values in rows.items():
            if name not in self.candidates:
                self.candidates[name] = Column(values.dtype.type, self.expected)
            self.candidates[name].append(values)

    def counts(self, dataset: DatasetFields, **fields: Any) -> CompactLog:
        """Make the compact log, with the given fields; those of its dataset depend on its features."""
        rows = {name: column.finished() for name, column in self.candidates.items()}
        self.candidates = {}
        if not rows or not rows["clicks"].size:
            raise InputError("the log has no rows", file=self.file)
        if not rows["clicks"].any():
            raise no_clicks(self.file)
        impressions = self._impressions(rows)
        # a query that was never searched for has no place in any mean
        kept = impressions[rows["query"]] > 0
        rows = {name: values[kept] for name, values in rows.items()}
        lists, first = order_of_appearance(rows["query"].astype(np.int64))
        query = rows["query"][first]
        candidate, item = order_of_appearance(rows["item"].astype(np.int64))
        in_list = np.argsort(lists[item], kind="stable")
        row_of_candidate = np.empty_like(in_list)
        row_of_candidate[in_list] = np.arange(in_list.size)
        everything = np.arange(query.size)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(lists[item]))])
        self.query_of_impression.learn(everything.astype(np.int32), query, self.place)
        data = self._dataset(
            {"item": rows["item"][item][in_list]}, _Grouped(everything, everything, offsets), dataset
        )
        shown = rows["impressions"] > 0
        cells = Cells(
            row=row_of_candidate[candidate][shown],
            position=rows["position"][shown],
            propensity=rows["propensity"][shown] if "propensity" in rows else None,
            impressions=rows["impressions"][shown],
            clicks=rows["clicks"][shown],
        )
        cells = merge_cells(cells, _no_cells(with_propensity="propensity" in rows))
        return CompactLog(
            data=data,
            impressions=impressions[query],
            clicked_impressions=_clicked_impressions(data.list_of_row, cells, impressions[query]),
            cells=cells,
            planted=_no_cells(with_propensity=False),
            **fields,
        )

    def _impressions(self, rows: Mapping[str, NDArray[Any]]) -> Whole:
        """Return how often each query was searched for; refuse counts that contradict it."""
        query, counts = rows["query"].astype(np.int64), rows["impressions"]
        if self.query_impressions:
            total = self.query_impressions.of(np.arange(len(self.queries)))
            said, advice = "query_impressions says that it had {}", "correct the counts"
        else:
            total = _sums(query, np.where(rows["position"] == 1, counts, 0), len(self.queries))
            said = "{} impressions had a document at position 1"
            advice = "say how often the query was searched for in a column query_impressions"
        for key, column, what in (
            (paired(query, rows["position"].astype(np.int64)), "position", "at position {}"),
            (rows["item"].astype(np.int64), "item", "of document {!r}"),
        ):
            _, first, same = np.unique(key, return_index=True, return_inverse=True)
            seen = _sums(same, counts, first.size)
            wrong = np.flatnonzero(seen > total[query[first]])
            if wrong.size:
                row = int(first[wrong[0]])
                value = rows[column][row]
                if column == "item":
                    value = self.documents.value(int(self.items.value(int(value))) & DOCUMENT_BITS)
                else:
                    value = int(value)
                problem = (
                    f"the query has {seen[wrong[0]]} impressions {what.format(value)}, but"
                    f" {said.format(total[query[row]])}; {advice}"
                )
                known = self.queries.value(int(query[row]))
                raise InputError(problem, file=self.file, column="query_id", value=known)
        return total


def _clicked_impressions(list_of_row: Whole, cells: Cells, impressions: Whole) -> Whole:
    """Return how many impressions of each list had a click, where only one number is possible.

    No impression has two clicks on a document, nor two at a position: there are at least as many with a click
    as the most clicked document or position has clicks, and at most as many as there are clicks.
    """
    lists, size = list_of_row[cells.row], impressions.size
    least = np.zeros(size, dtype=np.int64)
    for kind in (cells.row, cells.position.astype(np.int64)):
        _, first, same = np.unique(paired(lists, kind), return_index=True, return_inverse=True)
        np.maximum.at(least, lists[first], _sums(same, cells.clicks, first.size))
    most = np.minimum(_sums(lists, cells.clicks, size), impressions)
    return np.where(least == most, least, UNKNOWN_COUNT)


def _whole(column: Any, name: str, place: Place) -> Whole:
    values = checks.numbers(column, name, place)
    wrong = ~((values >= 0) & (values < LARGEST_COUNT) & (values == np.floor(values)))
    if wrong.any():
        index = int(np.argmax(wrong))
        value = None if np.isnan(values[index]) else values[index]
        raise place.error("a count must be a whole number, 0 or more", index, name, value)
    return values.astype(np.int64)


def _sums(codes: NDArray[Any], counts: NDArray[Any], size: int) -> Whole:
    return np.bincount(codes, weights=counts, minlength=size).astype(np.int64)


def _no_cells(*, with_propensity: bool) -> Cells:
    nothing = np.empty(0, dtype=np.int64)
    propensity = np.empty(0) if with_propensity else None
    return Cells(nothing, nothing.astype(np.int32), propensity, nothing, nothing)


def write_aggregated_log(log: ClickLog | CompactLog, path: str | Path) -> None:
    """Write counts for each query, document and position as a Parquet or CSV table, by the ending of `path`.

    `read_aggregated_log` reads them back. Lists of one query become one, single impressions are gone, and
    planted items are left out, since they are documents of no query. Queries and documents need ids.
    """
    counts = log.compact() if isinstance(log, ClickLog) else log
    target, as_csv, data = Path(path), is_csv(path), counts.data
    if data.query_id is None or data.doc_id is None:
        missing = "query_id" if data.query_id is None else "doc_id"
        raise InputError("counts are by query and document, which need ids", file=target, column=missing)
    if not counts.cells.clicks.any():
        raise no_clicks(target)
    unseen = np.flatnonzero(np.bincount(counts.cells.row, minlength=data.rows) == 0)
    row = np.concatenate([counts.cells.row, unseen])
    lists = data.list_of_row[row]
    searched = _sums(data.query_codes, counts.impressions, len(data))[data.query_codes]

    def with_none(values: NDArray[Any], fill: float) -> NDArray[Any]:
        return np.concatenate([values, np.full(unseen.size, fill, dtype=values.dtype)])

    position = with_none(counts.cells.position, NOT_SHOWN)
    table = {
        "query_id": pa.array(data.query_id[lists]),
        "doc_id": pa.array(data.doc_id[row]),
        "position": pa.array(position, mask=position == NOT_SHOWN),
        "impressions": pa.array(with_none(counts.cells.impressions, 0)),
        "clicks": pa.array(with_none(counts.cells.clicks, 0)),
        "query_impressions": pa.array(searched[lists]),
    }
    if counts.cells.propensity is not None:
        propensity = with_none(counts.cells.propensity, np.nan)
        table["propensity"] = pa.array(propensity, mask=np.isnan(propensity))
    if data.group_names:
        code = data.group[row]
        codes = pa.array(code, mask=code == UNKNOWN_GROUP)
        group = pa.DictionaryArray.from_arrays(codes, pa.array(data.group_names))
        table["group"] = group.cast(pa.string())
    if data.features.shape[1]:
        table |= _feature_columns(data, row, "columns" if as_csv else "list")
    about = LogMetadata(
        position_bias=counts.position_bias,
        noise=counts.noise,
        empties_dropped=counts.empties_dropped,
        source=data.source,
        group_names=data.group_names,
        feature_names=data.feature_names,
        group_columns=data.group_columns,
        text_ids=tuple(name for name in ("query_id", "doc_id") if getattr(data, name).dtype.kind == "T"),
    )
    whole = pa.table(table)
    with atomic_write(target) as temporary:
        write_table(temporary, whole.schema, {**about.to_dict(), "kind": AGGREGATED}, [whole], as_csv=as_csv)
