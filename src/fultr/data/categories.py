"""Features as they are held before a policy encodes them: columns of categories, and missing values.

A column of categories holds codes, `0 .. n - 1`, whose names stand in `RankingDataset.category_names`. A
missing value is NaN, which a dataset holds only if it is asked to (`allows_missing`). What becomes of both is
for the policy to say: see `fultr.policy.feature_encoding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import names_of
from fultr.data.columns import FEATURE_PREFIX, IN_MEMORY, Location, feature_table
from fultr.data.ids import IdCodes
from fultr.errors import InputError

MOST_CATEGORIES = 1000
"""Different values of one column of categories; a column with more is one of ids or of free text."""

CategoryNames = Mapping[str, tuple[str, ...]]
"""The names of the categories of each column that holds any, by the name of the feature."""


class RawFeatures:
    """How columns become features: which of them hold categories, and whether values may be missing.

    It collects the categories of all batches of all tables that it reads; threads may share it.
    """

    def __init__(self, categories: Sequence[str] = (), *, allows_missing: bool = False) -> None:
        self.codes = {name: IdCodes() for name in categories}
        self.allows_missing = allows_missing

    def table(self, columns: Mapping[str, Any], rows: int, location: Location) -> NDArray[np.float32]:
        """Return features as rows x features; categories as codes in the order in which they came."""
        return feature_table(columns, rows, location, self.codes, allows_missing=self.allows_missing)

    def in_order(
        self, features: NDArray[np.float32], columns: Sequence[str]
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Return features with codes in the order of the sorted names, and the fields of their dataset."""
        names: dict[str, tuple[str, ...]] = {}
        for column, codes in self.codes.items():
            texts = [] if codes.is_text is None else codes.texts.to_list()
            if len(texts) > MOST_CATEGORIES:
                problem = (
                    f"has {len(texts)} different values, and a column of categories may have"
                    f" {MOST_CATEGORIES}; is it one of ids or of free text?"
                )
                raise InputError(problem, column=column)
            ordered = tuple(sorted(texts))
            index = columns.index(column)
            features[:, index] = recoded(features[:, index], texts, ordered)
            names[column.removeprefix(FEATURE_PREFIX)] = ordered
        return features, {"category_names": names, "allows_missing": self.allows_missing}


def recoded(codes: NDArray[np.float32], names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.float32]:
    """Return the codes that categories have among the names `wanted`, NaN if they are not among them."""
    index = {name: code for code, name in enumerate(wanted)}
    table = np.array([*(index.get(name, np.nan) for name in names), np.nan], dtype=np.float32)
    return np.asarray(table[np.where(np.isnan(codes), len(names), codes).astype(np.int64)])


def category_texts(codes: NDArray[np.float32], names: Sequence[str]) -> list[str | None]:
    """Return the names of categories, None where they are missing."""
    texts = [*names, None]
    return [texts[code] for code in np.where(np.isnan(codes), len(names), codes).astype(np.int64).tolist()]


def as_category_names(
    given: Mapping[str, Sequence[str]], features: NDArray[np.float32], feature_names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the names of categories by feature; refuse a code that has no name."""
    checked: dict[str, tuple[str, ...]] = {}
    for column, names in dict(given).items():
        if column not in feature_names:
            raise InputError("there is no such feature", column="category_names", value=column)
        checked[column] = names_of(names, "category_names")
        if len(set(checked[column])) < len(checked[column]):
            raise InputError("categories of a feature must differ", column="category_names", value=column)
        codes = features[:, list(feature_names).index(column)]
        is_code = (codes >= 0) & (codes < len(checked[column])) & (codes == np.floor(codes))
        problem = f"a category must be one of 0..{len(checked[column]) - 1}, or missing if that is allowed"
        IN_MEMORY.check(~(is_code | np.isnan(codes)), problem, column, codes)
    return checked


def joined_categories(parts: Sequence[CategoryNames]) -> dict[str, tuple[str, ...]]:
    """Return the names of all categories of several tables; a feature has categories in all or in none."""
    columns = dict.fromkeys(column for part in parts for column in part)
    for column in columns:
        if any(column not in part for part in parts):
            raise InputError("holds categories in one part and numbers in another", column=column)
    return {column: tuple(sorted({name for part in parts for name in part[column]})) for column in columns}


def with_categories(
    features: NDArray[np.float32], feature_names: Sequence[str], names: CategoryNames, wanted: CategoryNames
) -> NDArray[np.float32]:
    """Return features whose categories are numbered as in `wanted`; a copy only if any are not."""
    for column, texts in names.items():
        if texts != wanted[column]:
            index = list(feature_names).index(column)
            features = features.copy()
            features[:, index] = recoded(features[:, index], texts, wanted[column])
    return features


def differ(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values differ; two that are missing are the same."""
    differs = np.asarray(one != other)
    if one.dtype.kind == "f" and differs.any():  # which is rare: then there is something to complain about
        differs &= (one == one) | (other == other)
    return differs
