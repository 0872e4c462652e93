"""Features by name: which columns hold those that a policy was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN, require_columns
from fultr.data.dataset import RankingDataset
from fultr.data.fields import numbered_names
from fultr.errors import InputError

ALIASES = {"query_id": "qid", "impression_id": "impression", "group": "sensitive_features"}
"""What columns are called in `fit`, besides their names in a table."""

LOG_COLUMNS = ("impression_id", "position", "click", "propensity", "planted", "timestamp")
LIST_COLUMNS = ("query_id", "doc_id", "list", "group", "comment", "relevance", "label", LIST_COLUMN)
NO_FEATURES = (*LIST_COLUMNS, *LOG_COLUMNS, *ALIASES.values())
"""Columns that are features only if they are named as such."""


def is_numbered(names: Sequence[str]) -> bool:
    """Say whether features are only numbered 1, 2, ..., so that they are known by their order."""
    return tuple(names) == numbered_names(len(names))


def matching_columns(
    present: Sequence[str], wanted: Sequence[str], file: str | Path | None = None
) -> list[int]:
    """Return where each wanted feature stands among those present.

    Features are found by name, with or without `feature_` before it, if both sides have names; features that
    are just numbered 1, 2, ... are taken in their order, and then there must be as many as are wanted.

    Examples
    --------
    >>> matching_columns(["age", "feature_salary", "price"], ["salary", "age"])
    [1, 0]
    >>> matching_columns(["1", "2"], ["salary", "age"])
    [0, 1]
    """
    if not present or not is_numbered(present):
        columns = [_column_of(name, present, wanted, file) for name in wanted]
        if all(name in present for name in columns):
            index_of = {name: index for index, name in enumerate(present)}
            return [index_of[name] for name in columns]
        if not is_numbered(wanted):
            require_columns(present, columns, file)
    if len(present) != len(wanted):
        problem = f"the policy was trained on {len(wanted)} features"
        raise InputError(problem, file=file, column=LIST_COLUMN, value=len(present))
    return list(range(len(wanted)))


def _column_of(name: str, present: Sequence[str], wanted: Sequence[str], file: str | Path | None) -> str:
    """Return the column that holds a feature, or the name it should have."""
    bare = name.removeprefix(FEATURE_PREFIX)
    columns = [column for column in (bare, FEATURE_PREFIX + bare) if column in present]
    if len(columns) == 1 and columns[0] not in wanted:
        return columns[0]
    if len(columns) == 2 and not set(columns) <= set(wanted):
        both = "' and '".join(columns)
        problem = f"'{both}' both could be this feature of the policy; leave one of them out"
        raise InputError(problem, file=file, column=name)
    return name


def with_features(
    data: RankingDataset, wanted: Sequence[str], file: str | Path | None = None
) -> RankingDataset:
    """Return data with the wanted features in their order, as `matching_columns` finds them."""
    return _with_columns(data, matching_columns(data.feature_names, wanted, file))


def _with_columns(data: RankingDataset, columns: list[int]) -> RankingDataset:
    if columns == list(range(data.features.shape[1])):
        return data
    return replace(
        data,
        features=data.features[:, columns],
        feature_names=tuple(data.feature_names[column] for column in columns),
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
