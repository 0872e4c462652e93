"""A log on its way in: the tables it is read from, and what is known of it beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress, names_of
from fultr.click_model import ClickNoise, PositionBias
from fultr.data.counts import Counts, counts_in_order
from fultr.data.table_files import Table, file_digest, is_address, name_of, open_table
from fultr.data.tally import Columns, RunningTally, Tally
from fultr.errors import InputError
from fultr.logs.features import find_features
from fultr.logs.items import ItemCollector, OnConflict
from fultr.logs.metadata import LogMetadata
from fultr.logs.rows import Check, OnRepeat, RowReader
from fultr.logs.sources import tables_of


class LogOptions(TypedDict, total=False):
    """How a log is to be read; see `fultr.count` for what the fields mean."""

    items: Any
    columns: Mapping[str, str] | None
    features: Sequence[str] | None
    exclude: Sequence[str]
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
                problem = "its impressions have no ids, so that those of several tables cannot be told apart"
                raise InputError(f"{problem}; count each by itself, and merge the counts", file=table.file)
        documents = self._documents(about)
        renamed = dict(options.get("columns") or {})
        told = [column for column, _ in (of_impressions or {}).values()]
        context = options.get("context")
        used = [*renamed.values(), *told, *([context] if context else ())]
        where = (documents or self.tables)[0]
        found = find_features(where, options.get("features"), options.get("exclude", ()), used)
        self.features = found.names
        on_features = options.get("on_features")
        if found.by_type and not documents and on_features is not None:
            on_features(found.names)
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
        )
        self.collector = ItemCollector(
            self.reader, options.get("on_conflict", "error"), documents, self.features, group
        )

    @property
    def file(self) -> str | Path | None:
        """The file to name in errors that concern the whole log."""
        return self.tables[0].file

    def _documents(self, about: Sequence[tuple[LogMetadata, str | Path | None]]) -> list[Table]:
        """Return the tables of documents: those asked for, or the ones that were written with the log."""
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
        """Count the whole log; `keep` gets all rows but their features, if they are wanted, too."""
        running = RunningTally()

        def clear() -> None:
            nonlocal running
            running = RunningTally()
            self.collector.clear()
            if keep is not None:
                keep.clear()

        def use(given: Columns) -> tuple[Tally, Columns | None, Columns]:
            block = self.reader.without_repeats(given)
            kept = {name: values for name, values in block.items() if name != "features"}
            return self.reader.tally(block), self.collector.part(block), kept

        with self.named_errors():
            for counted, part, kept in self.reader.read(use, clear):
                running.add(counted)
                self.collector.add(part)
                if keep is not None:
                    keep.append(kept)
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
            return counts_in_order(
                tally,
                self.reader.queries,
                self.reader.documents,
                items,
                dataset={
                    "group_names": group_names,
                    **about.dataset_fields(self.features, items.features.shape[1]),
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
    path = str(log).replace(name_of(log), name) if is_address(log) else Path(log).with_name(name)
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
