"""Frames that a policy is used on: items to score and to rank, labelled lists, and logs.

Features are found by the names that the policy knows. Columns of ids, groups and relevance may have the names
of a table or those of the arguments of `fit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data.categories import RawFeatures
from fultr.data.click_log import ClickLog, Source
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN
from fultr.data.counts import Counts
from fultr.data.dataset import RankingDataset
from fultr.data.dataset_files import KIND, label_of, labelled_dataset, lists_of
from fultr.data.table_files import Table, table_of
from fultr.errors import InputError
from fultr.logs.features import ALIASES, expected_columns, with_features
from fultr.logs.metadata import ITEMS, LOG
from fultr.logs.reading import LogOptions, count, read_log

CLICK_COLUMNS = {"impression_id", "click"}
"""The columns by which a table is known as a click log."""


class GivenItems(NamedTuple):
    """Items to score or to rank, with the features that a policy knows.

    `order` is the index, in what was given, of each row of the data; None if they are the same. `frame` is
    what was given, if it was a frame.
    """

    data: RankingDataset
    order: NDArray[np.int64] | None = None
    frame: Any = None

    def as_given(self, values: NDArray[Any], name: str) -> Any:
        """Return values of the rows of the data (on the last axis) in the order of what was given.

        For a frame they are a series of its kind, and a frame of `name_1`, `name_2`, ... if they are many.
        """
        if self.order is None:
            return values
        ordered = np.empty_like(values)
        ordered[..., self.order] = values
        return like_frame(self.frame, ordered, name)


def like_frame(frame: Any, values: NDArray[Any], name: str) -> Any:
    """Return one value for each row of a frame, or several (values x rows), as that kind of frame has them.

    That is a series or frame of pandas, with the index of the frame, or of polars, or an array or table of
    Arrow. For a mapping of columns the values are returned as they are.
    """
    several = {f"{name}_{number}": column for number, column in enumerate(np.atleast_2d(values), start=1)}
    if isinstance(frame, pl.DataFrame):
        return pl.Series(name, values) if values.ndim == 1 else pl.DataFrame(several)
    if isinstance(frame, pa.Table):
        return pa.array(values) if values.ndim == 1 else pa.table(several)
    if type(frame).__module__.partition(".")[0] == "pandas":
        import pandas as pd  # there already, since it made the frame

        if values.ndim == 1:
            return pd.Series(values, index=frame.index, name=name)
        return pd.DataFrame(several, index=frame.index)
    return values


def is_frame(given: object) -> bool:
    """Say whether something is a table whose columns have names."""
    if isinstance(given, (Mapping, pa.Table)):
        return True
    names = tuple(getattr(given, "columns", ()))
    return bool(names) and all(isinstance(name, str) for name in names)


def items_of(
    given: Any,
    expected: Sequence[str],
    *,
    in_lists: bool,
    with_relevance: bool = False,
    with_groups: bool = False,
    categories: Sequence[str] = (),
    keep_missing: bool = False,
    encoded: Sequence[str] = (),
) -> GivenItems:
    """Return items with the features that a policy knows by the names `expected`.

    Bare features, rows x d, are in the order of `expected`, and one list. With `in_lists`, the rows of a
    query of a frame are one list, or all rows if there is no query; a log has no such lists. Otherwise each
    row is an item by itself, with its group if `with_groups` says so. `categories` are the features that hold
    some, and missing features are an error without `keep_missing`. A dataset may also have its features
    `encoded` for the policy already.
    """
    if isinstance(given, RankingDataset):
        is_encoded = given.feature_names == tuple(encoded)
        return GivenItems(given if is_encoded else with_features(given, expected))
    if isinstance(given, (ClickLog, Counts)):
        raise InputError("is a log; give its lists, log.data", column="X", value=type(given).__name__)
    if not is_frame(given):
        table = np.asarray(given)
        if table.ndim != 2:
            raise InputError("features must be rows x features", column="X", value=table.shape)
        if not categories or table.shape[1] != len(expected):
            lists = RankingDataset(given, [0, table.shape[0]], allows_missing=keep_missing)
            return GivenItems(with_features(lists, expected))
        given = {name: table[:, column].tolist() for column, name in enumerate(expected)}
    frame = _with_our_names(table_of(given))
    features, label = expected_columns(frame, expected), label_of(frame) if with_relevance else None
    if in_lists:
        require_items(frame)
    else:
        used = (*features, label, "group" if with_groups else None)
        frame = replace(frame, schema=pa.schema([field for field in frame.schema if field.name in used]))
    raw = RawFeatures(categories_among(features, categories), allows_missing=keep_missing)
    data, order = lists_of(frame, features, label, raw=raw)
    return GivenItems(with_features(data, expected), order, given)


def categories_among(columns: Sequence[str], categories: Sequence[str]) -> list[str]:
    """Return the columns of features that hold categories, known by name with or without `feature_`."""
    bare = {name.removeprefix(FEATURE_PREFIX) for name in categories}
    return [column for column in columns if column.removeprefix(FEATURE_PREFIX) in bare]


def source_of_frame(
    frame: Any,
    expected: Sequence[Sequence[str]] = (),
    *,
    impressions: bool = False,
    options: LogOptions | None = None,
) -> Source:
    """Return the labelled lists or the log that a frame holds.

    With `relevance` (or `label`) and no clicks it holds labelled lists; else it must be a log, of which
    `impressions` keeps the single ones. `expected` are the features that policies know, by name; by default
    those of `fultr.count` and `read_dataset`. `options` are those of `fultr.count`.
    """
    options = options or {}
    table = _with_our_names(table_of(frame))
    features = features_of_policies(table, expected)
    if not set(table.schema.names) >= CLICK_COLUMNS and label_of(table) is not None:
        categories, keep_missing = options.get("categories", ()), options.get("keep_missing", False)
        if features is None:
            return labelled_dataset(table, categories, keep_missing=keep_missing)
        raw = RawFeatures(categories_among(features, categories), allows_missing=keep_missing)
        return lists_of(table, features, label_of(table), raw=raw)[0]
    try:
        read = read_log if impressions else count
        chosen: LogOptions = {**options, "features": features}
        if features is not None and "categories" in options:
            chosen["categories"] = categories_among(features, options["categories"])
        return read(table, **chosen)
    except InputError as error:
        raise error.adding(" (as an argument of fultr.count)") if error.options else error from None


def features_of_policies(table: Table, expected: Sequence[Sequence[str]]) -> list[str] | None:
    """Return the columns with the features that policies know by name; None if there are no policies."""
    if not expected:
        return None
    features = list(dict.fromkeys(name for names in expected for name in expected_columns(table, names)))
    return [LIST_COLUMN] if LIST_COLUMN in features else features


def require_items(table: Table) -> None:
    """Refuse a table that has no items to rank, each once for a query."""
    kind = table.metadata.get("kind")
    if kind == LOG or (kind is None and set(table.schema.names) >= CLICK_COLUMNS):
        problem = (
            "is a click log, in which an item stands once for each impression; give a table with each item of"
            " a query once, such as the .items file beside a log"
        )
        raise InputError(problem, file=table.file)
    if kind not in (None, KIND, ITEMS):
        raise InputError(f"holds no items to rank but a {kind}", file=table.file)


def _with_our_names(table: Table) -> Table:
    """Return the table with the names that columns have in a table, where it uses those of arguments."""
    present = table.schema.names
    renamed = {name: ours for ours, name in ALIASES.items() if name in present and ours not in present}
    names = {renamed.get(name, name): name for name in present}
    return replace(table.derived(names, {}), names=names) if renamed else table
