"""Which columns of a table are features, where that is not said."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa

from fultr.arguments import names_of
from fultr.data.columns import (
    FEATURE_PREFIX,
    LIST_COLUMN,
    Place,
    feature_table,
    is_number,
    is_text,
    plain,
    require_columns,
)
from fultr.data.feature_names import NO_FEATURES, is_numbered, matching_columns
from fultr.data.table_files import Table
from fultr.errors import InputError
from fultr.logs.metadata import LOG
from fultr.logs.sources import partition_values

EXPERIMENT_COLUMNS = ("swap_rank", "swapped", "ranker")
"""What a log says of experiments, by the names that `fultr propensity` knows."""

COUNT_COLUMNS = ("impressions", "clicks", "query_impressions")


class FeatureColumns(NamedTuple):
    """The columns with features; `by_type` if they were taken only since they hold numbers."""

    names: tuple[str, ...]
    by_type: bool = False


def find_features(
    table: Table, named: Sequence[str] | None, exclude: Sequence[str] = (), used: Collection[str] = ()
) -> FeatureColumns:
    """Return the columns of a table with features.

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
    known = {
        *NO_FEATURES,
        *EXPERIMENT_COLUMNS,
        *COUNT_COLUMNS,
        *partition_values(table.file),
        *used,
        *left_out,
    }
    others = [field for field in fields.values() if field.name not in known and not is_id(field.name)]
    numbers = [field.name for field in others if is_number(field.type) and not pa.types.is_null(field.type)]
    texts = [field.name for field in others if is_text(field.type)] if table.is_text else []
    numbers += _numbers_in_text(table, texts)
    return FeatureColumns(tuple(name for name in fields if name in numbers), by_type=bool(numbers))


def wanted_columns(table: Table, wanted: Sequence[str]) -> list[str]:
    """Return the columns with the features that a policy knows; or the list column, if it holds them.

    They are found by name, as `matching_columns` does; those that are only numbered are the columns that
    `find_features` finds, in their order.
    """
    others = [
        field.name for field in table.own_fields if field.name not in NO_FEATURES or field.name in wanted
    ]
    bare = {name.removeprefix(FEATURE_PREFIX) for name in others}
    named = all(name.removeprefix(FEATURE_PREFIX) in bare for name in wanted)
    if not named and LIST_COLUMN in table.schema.names:
        return [LIST_COLUMN]
    if not named and is_numbered(wanted):
        others = list(find_features(table, None).names)
    return [others[column] for column in matching_columns(others, wanted, table.file)]


def _own_name(name: str, present: Collection[str]) -> str:
    return name if name in present or FEATURE_PREFIX + name not in present else FEATURE_PREFIX + name


def is_id(name: str) -> bool:
    """Say whether a column is one of ids, by its name."""
    return name.lower() == "id" or name.lower().endswith("_id")


def _numbers_in_text(table: Table, names: list[str]) -> list[str]:
    """Return the columns of a text file whose first values are all numbers, or true and false."""
    batch = next(iter(table.batches(names)), None) if names else None
    found = []
    for name in names if batch is not None else ():
        values = plain(batch[0][name]).drop_null() if batch is not None else pa.array([])
        try:
            feature_table({name: values}, len(values), Place(table.file))
        except InputError:
            continue
        if len(values):
            found.append(name)
    return found
