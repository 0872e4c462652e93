"""Which columns are features: those that a log or a table has, and those that a policy was trained on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fultr.arguments import names_of
from fultr.data.columns import (
    FEATURE_PREFIX,
    LIST_COLUMN,
    Location,
    feature_table,
    is_number,
    is_text,
    plain,
    require_columns,
)
from fultr.data.dataset import RankingDataset
from fultr.data.fields import numbered_names
from fultr.data.table_files import Table
from fultr.errors import InputError
from fultr.logs.metadata import LOG
from fultr.logs.sources import partition_values

ALIASES = {"query_id": "qid", "impression_id": "impression", "group": "sensitive_features"}
"""What columns are called in `fit`, besides their names in a table."""

LOG_COLUMNS = ("impression_id", "position", "click", "propensity", "planted", "timestamp")
LIST_COLUMNS = ("query_id", "doc_id", "list", "group", "comment", "relevance", "label", LIST_COLUMN)
NO_FEATURES = (*LIST_COLUMNS, *LOG_COLUMNS, *ALIASES.values())
"""Columns that are features only if they are named as such."""

EXPERIMENT_COLUMNS = ("swap_rank", "swapped", "ranker")
"""What a log says of experiments, by the names that `fultr propensity` knows."""

COUNT_COLUMNS = ("impressions", "clicks", "query_impressions")


class FeatureColumns(NamedTuple):
    """The columns with features; `by_type` if they were chosen only since they hold numbers.

    `categories` are those of them that hold categories.
    """

    names: tuple[str, ...]
    by_type: bool = False
    categories: tuple[str, ...] = ()


def find_features(
    table: Table,
    named: Sequence[str] | None,
    exclude: Sequence[str] = (),
    used: Collection[str] = (),
    categories: Sequence[str] = (),
) -> FeatureColumns:
    """Return the columns of a table with features: those named in the order of their names.

    Those with `categories` that are not named come last; all others are found as `_columns_of_numbers` says.
    """
    fields = [field.name for field in table.own_fields]
    of_categories = [_own_name(name, fields) for name in names_of(categories, "categories")]
    require_columns(fields, of_categories, table.file)
    left_out = [exclude] if isinstance(exclude, str) else exclude
    given, numbers = [], named
    if named is not None:
        given = [_own_name(name, fields) for name in names_of(named, "features")]
        numbers = [name for name in given if name not in of_categories]
    found = _columns_of_numbers(table, numbers, [*left_out, *of_categories], used)
    if of_categories and found.names == (LIST_COLUMN,):
        problem = "features in one list are numbers; categories need columns of their own"
        raise InputError(problem, file=table.file, column=of_categories[0])
    kept = {*found.names, *of_categories}
    names = tuple(dict.fromkeys((*(name for name in given if name in kept), *found.names, *of_categories)))
    return FeatureColumns(names, found.by_type, tuple(of_categories))


def _columns_of_numbers(
    table: Table, named: Sequence[str] | None, exclude: Sequence[str], used: Collection[str]
) -> FeatureColumns:
    """Return the columns of a table with features that are numbers.

    Those are the ones named, with or without `feature_` before them. By default they are `features`, or those
    that start with `feature_`, or all columns of numbers that are no ids and not known to be something else,
    such as those `used` as something else. Columns of `exclude` are none.
    """
    fields = {field.name: field for field in table.own_fields}
    excluded = [exclude] if isinstance(exclude, str) else exclude
    left_out = [_own_name(name, fields) for name in names_of(excluded, "exclude")]
    require_columns(list(fields), left_out, table.file)
    if named is not None:
        names = [_own_name(name, fields) for name in names_of(named, "features")]
        require_columns(table.schema.names, names, table.file)
        return FeatureColumns(tuple(name for name in names if name not in left_out))
    if LIST_COLUMN in fields and LIST_COLUMN not in left_out:
        if left_out:
            problem = "features in one list have no columns of their own to leave out"
            raise InputError(problem, file=table.file, column=left_out[0])
        return FeatureColumns((LIST_COLUMN,))
    prefixed = tuple(name for name in fields if name.startswith(FEATURE_PREFIX) and name not in left_out)
    if prefixed or table.metadata.get("kind") == LOG:
        return FeatureColumns(prefixed)
    no_features = {
        *NO_FEATURES,
        *EXPERIMENT_COLUMNS,
        *COUNT_COLUMNS,
        *partition_values(table.file),
        *used,
        *left_out,
    }
    others = [field for field in fields.values() if field.name not in no_features and not is_id(field.name)]
    numbers = [field.name for field in others if is_number(field.type) and not pa.types.is_null(field.type)]
    texts = [field.name for field in others if is_text(field.type)] if table.is_text else []
    numbers += _numbers_in_text(table, texts)
    return FeatureColumns(tuple(name for name in fields if name in numbers), by_type=bool(numbers))


def expected_columns(table: Table, expected: Sequence[str]) -> list[str]:
    """Return the columns with the features that a policy knows; or the list column, if it holds them.

    They are found by name, as `matching_columns` does; those that are only numbered are the columns that
    `find_features` finds, in their order.
    """
    others = [
        field.name for field in table.own_fields if field.name not in NO_FEATURES or field.name in expected
    ]
    bare = {name.removeprefix(FEATURE_PREFIX) for name in others}
    named = all(name.removeprefix(FEATURE_PREFIX) in bare for name in expected)
    if not named and LIST_COLUMN in table.schema.names:
        return [LIST_COLUMN]
    if not named and is_numbered(expected):
        others = list(find_features(table, None).names)
    return [others[column] for column in matching_columns(others, expected, table.file)]


def _own_name(name: str, present: Collection[str]) -> str:
    return name if name in present or FEATURE_PREFIX + name not in present else FEATURE_PREFIX + name


def is_id(name: str) -> bool:
    """Say whether a column is one of ids, by its name."""
    return name.lower() == "id" or name.lower().endswith("_id")


def _numbers_in_text(table: Table, names: list[str]) -> list[str]:
    """Return the columns of a text file whose first values are all numbers, or true and false."""
    batch = next(iter(table.batches(names)), None) if names else None
    numeric = []
    for name in names if batch is not None else ():
        values = plain(batch[0][name]).drop_null() if batch is not None else pa.array([])
        try:
            feature_table({name: values}, len(values), Location(table.file))
        except InputError:
            continue
        if len(values):
            numeric.append(name)
    return numeric


def is_numbered(names: Sequence[str]) -> bool:
    """Say whether features are only numbered 1, 2, ..., so that they are known by their order."""
    return tuple(names) == numbered_names(len(names))


def matching_columns(
    present: Sequence[str], expected: Sequence[str], file: str | Path | None = None
) -> list[int]:
    """Return where each expected feature stands among those present.

    Features are found by name, with or without `feature_` before it, if both sides have names; features that
    are just numbered 1, 2, ... are taken in their order, and then there must be as many as are expected.

    Examples
    --------
    >>> matching_columns(["age", "feature_salary", "price"], ["salary", "age"])
    [1, 0]
    >>> matching_columns(["1", "2"], ["salary", "age"])
    [0, 1]
    """
    if not present or not is_numbered(present):
        columns = [_column_of(name, present, expected, file) for name in expected]
        if all(name in present for name in columns):
            index_of = {name: index for index, name in enumerate(present)}
            return [index_of[name] for name in columns]
        if not is_numbered(expected):
            require_columns(present, columns, file)
    if len(present) != len(expected):
        problem = f"the policy was trained on {len(expected)} features"
        raise InputError(problem, file=file, column=LIST_COLUMN, value=len(present))
    return list(range(len(expected)))


def _column_of(name: str, present: Sequence[str], expected: Sequence[str], file: str | Path | None) -> str:
    """Return the column that holds a feature, or the name it should have."""
    bare = name.removeprefix(FEATURE_PREFIX)
    columns = [column for column in (bare, FEATURE_PREFIX + bare) if column in present]
    if len(columns) == 1 and columns[0] not in expected:
        return columns[0]
    if len(columns) == 2 and not set(columns) <= set(expected):
        both = "' and '".join(columns)
        problem = f"'{both}' both could be this feature of the policy; leave one of them out"
        raise InputError(problem, file=file, column=name)
    has_prefix = any(column.startswith(FEATURE_PREFIX) for column in present)
    return FEATURE_PREFIX + bare if has_prefix and not columns else name


def with_features(
    data: RankingDataset, expected: Sequence[str], file: str | Path | None = None
) -> RankingDataset:
    """Return data with the expected features in their order, as `matching_columns` finds them."""
    return _with_columns(data, matching_columns(data.feature_names, expected, file))


def _with_columns(data: RankingDataset, columns: list[int]) -> RankingDataset:
    if columns == list(range(data.features.shape[1])):
        return data
    names = tuple(data.feature_names[column] for column in columns)
    return replace(
        data,
        features=data.features[:, columns],
        feature_names=names,
        category_names={name: texts for name, texts in data.category_names.items() if name in names},
        group_columns=tuple(index for index, column in enumerate(columns) if column in data.group_columns),
    )


def choose_features(
    data: RankingDataset,
    named: Sequence[str] | None,
    exclude: Sequence[str] = (),
    file: str | Path | None = None,
) -> RankingDataset:
    """Return data with the features named, or all of them, but those to be left out."""
    left_out = _columns(data, exclude, file)
    columns = list(range(data.features.shape[1])) if named is None else _columns(data, named, file)
    return _with_columns(data, [column for column in columns if column not in left_out])


def _columns(data: RankingDataset, names: Sequence[str], file: str | Path | None) -> list[int]:
    """Return where features stand; each must be there by its name."""
    present = data.feature_names
    columns = [_column_of(name, present, names, file) for name in names]
    require_columns(present, columns, file)
    return [present.index(name) for name in columns]
