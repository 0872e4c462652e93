"""Logs of counts: how often each document of a query was shown and clicked at each position.

There are no single impressions in them. So they are read as `Counts`, under an assumption about candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import polars as pl
import pyarrow as pa

from fultr.data.columns import integers_between, require_columns
from fultr.data.counts import LARGEST_COUNT, Counts
from fultr.data.propensity import NOT_SHOWN
from fultr.data.table_files import Table
from fultr.data.tally import ImpressionFacts, Tally
from fultr.errors import InputError
from fultr.logs.metadata import LOG
from fultr.logs.reading import LogOptions, OpenedLog, check_names, no_clicks
from fultr.logs.sources import open_source

AGGREGATED = "aggregated-log"
COUNT_COLUMNS = ("query_id", "doc_id", "position", "impressions", "clicks")
OPTIONAL_COUNT_COLUMNS = ("query_impressions", "propensity", "group")

ASSUMPTION = "all documents of a query were candidates in each of its impressions"
"""What has to be assumed, since counts do not say which documents were candidates together."""

UNKNOWN_COUNT = -1
"""How many impressions of a list had a click, where counts of documents do not say."""


def read_aggregated_log(source: Any, **options: Unpack[LogOptions]) -> Counts:
    """Read counts of impressions and clicks for each query, document and position.

    This assumes that all documents of a query were candidates in each of its impressions; counts cannot say
    otherwise. If they were not, count the single impressions with `fultr.count`. `origin` of the result says
    so, too.

    Columns are `query_id, doc_id, position, impressions, clicks` and, where known, `query_impressions`,
    `propensity`, `group` and features. Rows of the same query, document and position are added up. A row
    with 0 impressions is a candidate; it needs no position. How often a query was searched for is
    `query_impressions`, or else the sum of the impressions at position 1; a position or a document with more
    impressions than that is refused. `clicked_impressions` of the result is -1 where counts leave it open.

    `options` are those of `fultr.count` but `context` and `on_repeat`; `columns` may rename the counts, too.

    Examples
    --------
    >>> read_aggregated_log({"query_id": ["jobs"] * 3, "doc_id": [7, 8, 7], "position": [1, 1, 2],
    ...                      "impressions": [90, 10, 10], "clicks": [30, 5, 2]})
    <Counts: 100 impressions of 1 lists, 3 cells>
    """
    check_names(options, "context", "on_repeat")
    source = open_source(source, options.pop("progress", None))
    table = _as_impressions(source, options.pop("columns", None) or {})
    whole = integers_between(0, LARGEST_COUNT - 1, "a count must be an integer, 0 or more")
    counted = ("impressions", "clicks", "query_impressions")
    of_rows = {name: (name, whole) for name in counted if name in table.schema.names}
    log = OpenedLog(table, options, of_impressions=of_rows)
    with log.named_errors():
        tally = _tally(log)
    origin = {**log.about.origin, "format": "aggregated", "assumes": ASSUMPTION}
    return replace(log.counts(tally)[0], facts=None, origin=origin)


def _as_impressions(table: Table, renamed: Mapping[str, str]) -> Table:
    """Return the table as impressions of one row each: `RowReader` then checks rows and codes ids."""
    count_names, present = (
        (*COUNT_COLUMNS, *OPTIONAL_COUNT_COLUMNS),
        [field.name for field in table.own_fields],
    )
    for name in renamed:
        if name not in count_names:
            raise InputError(f"no such column to rename; there are: {', '.join(count_names)}", column=name)
    names = {name: renamed.get(name, name) for name in count_names}
    require_columns(present, [names[name] for name in (*COUNT_COLUMNS, *renamed)], table.file)
    other_columns = {name: name for name in present if name not in renamed.values()}
    names = other_columns | {name: column for name, column in names.items() if column in present}
    one_row = {"impression_id": pa.array, "click": lambda rows: pa.array(np.zeros(rows.size, np.int8))}
    kind = {"kind": LOG} if table.metadata.get("kind") == AGGREGATED else {}
    return replace(
        table.derived(names, one_row),
        metadata={**table.metadata, **kind},
        names={**names, "click": names["clicks"]},
    )


def _rows(log: OpenedLog) -> pl.DataFrame:
    """Read the rows, check what they say one by one, and leave their features with the collector."""
    blocks: list[pl.DataFrame] = []
    unused = ("impression", "impression_check", "click", "features")
    for block, items in log.reader.read(
        lambda block: (block, log.collector.statements_of(block)), blocks.clear
    ):
        log.collector.add(items)
        rows = pl.DataFrame({name: values for name, values in block.items() if name not in unused})
        shown = pl.col("impressions") > 0
        if row := _first(rows, pl.col("clicks") > pl.col("impressions")):
            problem = f"there are more clicks than the {row['impressions']} impressions"
            raise log.reader.numbered.error(problem, row["row"], "clicks", row["clicks"])
        if row := _first(rows, shown & (pl.col("position") == NOT_SHOWN)):
            problem = "what was shown needs a position; only a row with 0 impressions may be without one"
            raise log.reader.numbered.error(problem, row["row"], "position")
        # a row of 0 impressions is a candidate, and says nothing of its position
        of_shown = [name for name in ("position", "propensity") if name in block]
        blocks.append(rows.with_columns(pl.when(shown).then(pl.col(of_shown)).otherwise(NOT_SHOWN)))
    if not blocks:
        raise InputError("the log has no rows")
    rows = pl.concat(blocks)
    if not (rows["clicks"] > 0).any():
        raise no_clicks(log.file)
    _check_sum(log, rows, "impressions")
    return rows


def _first(rows: pl.DataFrame, wrong: pl.Expr) -> dict[str, Any] | None:
    """Return the first of the rows for which something holds."""
    return next(rows.filter(wrong).head(1).iter_rows(named=True), None)


def _check_sum(log: OpenedLog, rows: pl.DataFrame, column: str) -> None:
    """Refuse counts whose sum is not exact as a float, naming the query whose counts make it so large."""
    row = _first(rows, pl.col(column).cast(pl.Float64).cum_sum() >= LARGEST_COUNT)
    if row is not None:
        problem = f"counts up to this query add up to {LARGEST_COUNT} impressions or more, which is too many"
        raise _query_error(log, problem, row["query"])


def _with_sums(log: OpenedLog, rows: pl.DataFrame) -> pl.DataFrame:
    """Add what the documents and positions of a query sum up to; refuse sums that contradict each other.

    `total` is how often the query was searched for.
    """
    is_given = "query_impressions" in rows.columns
    at_first = pl.col("impressions").filter(pl.col("position") == 1).sum()
    sums = {
        f"{count}_{by}": pl.sum(count).over("query", by)
        for count in ("impressions", "clicks")
        for by in ("position", "document")
    }
    total = pl.first("query_impressions") if is_given else at_first
    rows = rows.with_columns(total=total.over("query"), **sums)
    if is_given:
        if row := _first(rows, pl.col("query_impressions") != pl.col("total")):
            first = rows.filter(pl.col("query") == row["query"])["row"][0]
            shown = log.reader.numbered.shown(first)
            problem = f"query_impressions of the same query in row {shown} differs"
            raise log.reader.numbered.error(problem, row["row"], "query_impressions")
        _check_sum(log, rows.unique("query", keep="first", maintain_order=True), "total")
    for by in ("position", "document"):
        if row := _first(rows, pl.col(f"impressions_{by}") > pl.col("total")):
            document = log.reader.documents.ids(np.array([row["document"]]))[0]
            of = f"at position {row['position']}" if by == "position" else f"of document {document!r}"
            said = f"query_impressions says that it had {row['total']}; correct the counts"
            if not is_given:
                said = (
                    f"{row['total']} impressions had a document at position 1; say how often the query was"
                    " searched for in a column query_impressions"
                )
            problem = f"the query has {row[f'impressions_{by}']} impressions {of}, but {said}"
            raise _query_error(log, problem, row["query"])
    return rows


def _query_error(log: OpenedLog, problem: str, query: int) -> InputError:
    return InputError(problem, column="query_id", value=log.reader.queries.ids(np.array([query]))[0])


def _tally(log: OpenedLog) -> Tally:
    """Return the counts, all documents of a query being one list.

    No impression has two clicks on a document, nor two at a position. So at least as many impressions have a
    click as the most clicked document or position has clicks, and at most as many as there are clicks.
    """
    rows = _with_sums(log, _rows(log))
    # a query that was never searched for has no place in any mean
    rows = (
        rows.filter(pl.col("total") > 0)
        .sort("query")
        .with_columns(list=pl.col("query").rle_id().cast(pl.Int64))
    )
    least = pl.max_horizontal(pl.max("clicks_position"), pl.max("clicks_document"))
    most = pl.min_horizontal(pl.sum("clicks"), pl.first("total"))
    lists = rows.group_by("query", maintain_order=True).agg(
        context=pl.lit(0),
        length=pl.col("document").n_unique().cast(pl.Int64),
        key=pl.lit(0),
        impressions=pl.first("total"),
        clicked=pl.when(least == most).then(least).otherwise(UNKNOWN_COUNT),
    )
    keys = [name for name in ("list", "document", "position", "propensity") if name in rows.columns]
    cells = rows.group_by(keys).agg(pl.sum("impressions", "clicks")).sort(keys)
    items = ["query", "document", "group"]
    groups = rows.select(items).unique().sort(items) if "group" in rows.columns else pl.DataFrame()
    planted = cells.select("position", "impressions", "clicks").clear()
    tables = [
        {name: table[name].to_numpy() for name in table.columns} for table in (lists, cells, planted, groups)
    ]
    return Tally(tables[0], tables[1], tables[2], tables[3], ImpressionFacts())
