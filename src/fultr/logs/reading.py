"""From rows, wherever they are, to counts, or to single impressions for what needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress, names_of
from fultr.click_model import ClickNoise, PositionBias
from fultr.data.categories import RawFeatures
from fultr.data.click_log import ClickLog, Planted
from fultr.data.counts import CountedFile, Counts
from fultr.data.counts_files import holds_counts, read_counts
from fultr.data.grouping import group_numbers, group_rows, inverse
from fultr.data.ids import codes_of
from fultr.data.merging import check_new_file, counts_in_order, merge, without_ids
from fultr.data.table_files import Table, file_digest, is_address, name_of, open_table
from fultr.data.tally import Columns, RunningTally, Tally, joined
from fultr.errors import InputError
from fultr.files import companion_file
from fultr.logs.events import is_events
from fultr.logs.features import find_features
from fultr.logs.items import ItemCollector, OnConflict
from fultr.logs.metadata import LogMetadata
from fultr.logs.rows import Check, OnRepeat, RowReader, impression_starts
from fultr.logs.sources import files_of, tables_of


class LogOptions(TypedDict, total=False):
    """How a log is to be read; see `fultr.count` for what the fields mean."""

    items: Any
    columns: Mapping[str, str] | None
    features: Sequence[str] | None
    exclude: Sequence[str]
    categories: Sequence[str]
    keep_missing: bool
    group_names: Sequence[str] | None
    on_conflict: OnConflict
    on_repeat: OnRepeat
    context: str | None
    position_bias: PositionBias | None
    noise: ClickNoise | None
    empties_dropped: bool
    on_features: Callable[[tuple[str, ...]], None] | None
    progress: Progress | None


def check_names(options: LogOptions, *unknown: str) -> None:
    """Refuse options that a reader does not have, as Python refuses unknown arguments."""
    for name in options:
        if name in unknown or name not in LogOptions.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}")


def count(source: Any, **options: Unpack[LogOptions]) -> Counts:
    """Count the impressions and clicks of a log while it is read; the log may be larger than memory.

    Rows may come in any order. They are fastest to count if those of an impression stand together; others are
    brought together first, on disk if they are many.

    Parameters
    ----------
    source
        A long table with a row for each candidate of each impression: a Parquet, CSV, Arrow or NDJSON file, a
        glob, a folder (parts of its path such as `device=phone` are columns), an address (s3://, gs://,
        az://), a pandas, polars or Arrow frame, a mapping of columns; or a list of them. Files of counts are
        taken as they are.
    items
        The table of documents with their groups and features, keyed by query_id and doc_id. By default the
        one that was written with the log, if any.
    columns
        Where the table calls a column otherwise, e.g. `{"query_id": "search_id", "group": "gender"}`.
    features
        The columns that hold features, with or without `feature_` before their names; by default `features`
        or those that start with `feature_`, or else all columns of numbers that are no ids and nothing else
        that is known here. An empty list reads no features at all.
    exclude
        Columns that are no features, though they would be by default.
    categories
        Columns of features that hold categories: text, true and false, or integers that are no amounts.
    keep_missing
        Keep missing features as they are, for a policy to fill in (`FairRanker(missing=)`); else an error.
    group_names
        The groups there are; another one in the table is then an error.
    on_conflict
        What to do when a document of a query comes with different features or groups: "error", or take the
        "first" or the "last", or the "mean" of its features over all rows, where groups must be the same.
        The mean is the same whatever the order of rows; all different features are held until the end.
    on_repeat
        What to do when a document stands in an impression twice: "error", or keep the "first", which is that
        of the first position, with its click; the clicks of the other rows are dropped with them.
    context
        A column with one value for each impression, such as the device. Impressions with different values are
        counted apart.
    position_bias, noise, empties_dropped
        The click model that belongs to the log, if the file does not say it, and whether impressions without
        a click are missing.
    on_features
        Called with the columns of the log that are features only because they hold numbers.
    progress
        Called with how much of a file has been read, and with its size, 0 if that is not known.

    Examples
    --------
    >>> count({"impression_id": [1, 1, 2, 2], "query_id": ["jobs"] * 4, "doc_id": [7, 8, 8, 7],
    ...        "position": [1, 2, 1, 2], "click": [0, 1, 1, 0]})
    <Counts: 2 impressions of 1 lists, 4 cells>
    """
    check_names(options)
    counted, logs = _counted_already(source)
    if logs is not None:
        counted.append(_count(logs, options))
    return merge(*counted)


def _counted_already(source: Any) -> tuple[list[Counts], Any]:
    """Read the files of counts among sources; return them, and what is left to be counted."""
    if is_events(source):
        return [], source
    if isinstance(source, (str, Path)):
        source = files_of([source]) if is_address(source) or not Path(source).is_file() else [source]
    if not isinstance(source, Sequence) or isinstance(source, Table):
        return [], source
    if not all(isinstance(name, (str, Path)) for name in source):
        return [], source
    events = [one for one in source if is_events(one)]
    files = files_of(one for one in source if not is_events(one))
    is_counts = [holds_counts(file) for file in files]
    counted = [read_counts(file) for file, holds in zip(files, is_counts, strict=True) if holds]
    logs = [file for file, holds in zip(files, is_counts, strict=True) if not holds]
    return counted, [*events, *logs] or None


def _count(source: Any, options: LogOptions) -> Counts:
    log = OpenedLog(source, options)
    files, seen = {}, dict[str, str]()
    for index, table in enumerate(log.tables):
        if table.file is not None:
            name, digest = name_of(table.file), file_digest(table.file)
            check_new_file(seen, table.file, name, digest)
            files[index] = name, digest
    counts, _ = log.counts(log.tally())
    rows = log.reader.rows_read
    named = (CountedFile(name, rows[index], digest) for index, (name, digest) in files.items())
    return without_ids(replace(counts, files=tuple(sorted(named))), log.about.invented)


def read_log(source: Any, **options: Unpack[LogOptions]) -> ClickLog:
    """Read the single impressions of a click log from a long table; its rows may come in any order.

    Lists come in the order of their query ids, and their candidates in that of their document ids.
    `fultr.count` reads the same tables as counts, which is all that training, evaluation and audits need.
    `options` are those of `fultr.count` but `context`.
    """
    check_names(options, "context")
    return read_impressions(source, options)[0]


def read_impressions(
    source: Any, options: LogOptions, of_impressions: Mapping[str, tuple[str, Check]] | None = None
) -> tuple[ClickLog, dict[str, NDArray[Any]]]:
    """Read single impressions, and further columns that have one value for each of them.

    `of_impressions` says by what name to return a column, which one it is, and how to check it.
    """
    log = OpenedLog(source, options, of_impressions=of_impressions, keep_impressions=True)
    blocks: list[Columns] = []
    counts, order_of_lists = log.counts(log.tally(blocks))
    counts, invented = without_ids(counts, log.about.invented), log.about.invented
    block = joined(blocks)
    starts = impression_starts(block)
    by_row = np.argsort(block["row"][starts])
    firsts = {name: values[starts][by_row] for name, values in block.items()}
    rows = log.reader.rows(block)
    key = np.add.reduceat(rows.document_hash, rows.starts)
    # groups come in the order of the lists of the tally, which were grouped by the same columns
    lists = inverse(order_of_lists)[group_numbers(*group_rows(rows.query, rows.lengths, key))]
    new_impression = inverse(by_row)
    different, index = np.unique(rows.document, return_inverse=True)
    rank = codes_of(log.reader.documents.ids(different))[index.reshape(-1)]
    order, _ = group_rows(new_impression[rows.impression], rank)
    time_type = log.reader.time_type
    impressions = ClickLog(
        counts.data,
        lists[by_row],
        rows.position[order],
        rows.click[order],
        propensity=None if rows.propensity is None else rows.propensity[order],
        planted=Planted(new_impression[rows.planted.impression], *rows.planted[1:]),
        impression_id=None
        if "impression_id" in invented
        else log.reader.impressions.ids(firsts["impression"]),
        timestamp=None if time_type is None else firsts["time"].view(time_type),
        position_bias=counts.position_bias,
        noise=counts.noise,
        empties_dropped=counts.empties_dropped,
        origin=counts.origin,
    )
    return impressions, {name: firsts[name] for name in of_impressions or {}}


class OpenedLog:
    """A log that can be read; `of_impressions` and `keep_impressions` are as in `RowReader`."""

    def __init__(
        self,
        source: Any,
        options: LogOptions,
        *,
        of_impressions: Mapping[str, tuple[str, Check]] | None = None,
        keep_impressions: bool = False,
    ) -> None:
        self.tables = tables_of(source, options.get("progress"))
        if not self.tables:
            raise InputError("there is no table to read")
        about = [(LogMetadata.from_dict(table.metadata, table.file), table.file) for table in self.tables]
        self.about, self.options = LogMetadata.merge(about), options
        for table in self.tables if len(self.tables) > 1 else ():
            # the numbers of rows; parts of a log that fultr wrote have numbers of the whole log
            if table.names and "impression_id" in table.metadata.get("invented", ()):
                problem = "its impressions have no ids, so those of several tables cannot be separated"
                raise InputError(f"{problem}; count each by itself, and merge the counts", file=table.file)
        documents = self._documents(about)
        renamed = dict(options.get("columns") or {})
        of_columns = [column for column, _ in (of_impressions or {}).values()]
        context = options.get("context")
        used = [*renamed.values(), *of_columns, *([context] if context else ())]
        where = (documents or self.tables)[0]
        categories = options.get("categories")
        if categories is None:
            categories = self.about.category_columns(where)
        chosen = find_features(where, options.get("features"), options.get("exclude", ()), used, categories)
        self.features = chosen.names
        if options.get("on_conflict") == "mean" and (chosen.categories or self.about.category_names):
            problem = "categories have no mean; {on_conflict} 'first' or 'last' says which to take"
            raise InputError(problem, column="on_conflict", value="mean", options=["on_conflict"])
        on_features = options.get("on_features")
        if chosen.by_type and not documents and on_features is not None:
            on_features(tuple(name for name in chosen.names if name not in chosen.categories))
        group = renamed.get("group", "group")
        in_log = any(group in table.schema.names for table in self.tables)
        if not in_log and any(group in table.schema.names for table in documents):
            renamed.pop("group", None)
        names = options.get("group_names")
        self.reader = RowReader(
            self.tables,
            renamed,
            () if documents else self.features,
            self.about.group_names if names is None else names_of(names, "group_names"),
            text_ids=any(table.is_text for table in (*self.tables, *documents)),
            keep_text=self.about.text_ids,
            context=context,
            of_impressions=of_impressions or {},
            keep_impressions=keep_impressions,
            on_repeat=options.get("on_repeat", "error"),
            raw=RawFeatures(
                chosen.categories,
                allows_missing=options.get("keep_missing", False) or self.about.allows_missing,
            ),
        )
        self.collector = ItemCollector(
            self.reader, options.get("on_conflict", "error"), documents, self.features, group
        )

    @property
    def file(self) -> str | Path | None:
        """The file to name in errors that concern the whole log."""
        return self.tables[0].file

    def _documents(self, about: Sequence[tuple[LogMetadata, str | Path | None]]) -> list[Table]:
        """Return the tables of documents: the given ones, or those that were written with the log."""
        given, features = self.options.get("items"), self.options.get("features")
        if given is not None:
            return tables_of(given)
        if features is not None and not len(features):
            return []
        return [
            open_table(items_beside(metadata.items, file))
            for metadata, file in about
            if metadata.items is not None and file is not None
        ]

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Let errors name the file, if they name none, and its own names of columns."""
        try:
            yield
        except InputError as error:
            file = self.file if error.file is None else error.file
            names = next((table.names for table in self.tables if str(table.file) == str(file)), {})
            column, bracket, index = (error.column or "").partition("[")
            shown = (names.get(column, column) + bracket + index) or None
            raise error.about(file, error.row, shown) from None

    def tally(self, keep: list[Columns] | None = None) -> Tally:
        """Count the whole log; all rows, without their features, are added to `keep` if it is given."""
        running = RunningTally()

        def clear() -> None:
            nonlocal running
            running = RunningTally()
            self.collector.clear()
            if keep is not None:
                keep.clear()

        def use(given: Columns) -> tuple[Tally, Columns | None, Columns]:
            block = self.reader.without_repeats(given)
            without_features = {name: values for name, values in block.items() if name != "features"}
            return self.reader.tally(block), self.collector.statements_of(block), without_features

        with self.named_errors():
            for counted, items, without_features in self.reader.read(use, clear):
                running.add(counted)
                self.collector.add(items)
                if keep is not None:
                    keep.append(without_features)
            tally = running.result()
            if tally is None:
                raise InputError("the log has no rows")
            if not tally.cells["clicks"].any():
                raise no_clicks(self.file)
        return tally

    def counts(self, tally: Tally) -> tuple[Counts, NDArray[np.int64]]:
        """Return what was counted, with ids, groups and features, and the index of each list in the tally."""
        options, about = self.options, self.about
        with self.named_errors():
            items, group_names = self.collector.items(tally)
            width = items.features.shape[1]
            features, kinds = self.reader.raw.in_order(items.features, self.features if width else ())
            items = items._replace(features=features)
            return counts_in_order(
                tally,
                self.reader.queries,
                self.reader.documents,
                items,
                dataset={
                    "group_names": group_names,
                    **about.dataset_fields(self.features, width),
                    **kinds,
                    **about.listed_categories(self.features, width),
                },
                context_values=self.reader.contexts.texts.to_list() if options.get("context") else (),
                context_name=options.get("context") or "",
                position_bias=options.get("position_bias") or about.position_bias,
                noise=options.get("noise") or about.noise,
                empties_dropped=options.get("empties_dropped", False) or about.empties_dropped,
                origin=about.origin,
            )


def items_beside(items: Mapping[str, str], log: str | Path) -> str | Path:
    """Find the table of documents that was written with a log, and make sure that it is that one."""
    name = items["file"]
    path: str | Path = str(log).replace(name_of(log), name)
    if not is_address(log):
        path = companion_file(Path(log).with_name(name), items["sha256"])
    try:
        digest = file_digest(path)
    except InputError:
        problem = f"the features of its documents are missing: {name} should stand beside it"
        raise InputError(problem, file=log) from None
    if digest != items["sha256"]:
        problem = f"{name} is not the table of documents it was written with; name one to use it all the same"
        raise InputError(problem, file=log)
    return path


def no_clicks(file: str | Path | None) -> InputError:
    """Return the error of a log without a single click."""
    problem = "the log has no clicks, so nothing can be learned or measured from it"
    return InputError(problem, file=file, column="click")
