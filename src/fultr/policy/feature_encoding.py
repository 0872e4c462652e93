"""From columns of features to the numbers that a scorer takes: learned in training, saved with the policy.

Data holds raw columns: numbers, codes of categories (`RankingDataset.category_names`), and NaN where a value
is missing (`allows_missing`). `FeatureEncoding.of(training data, missing)` learns what to make of them, and
`encoding.apply(data)` does it, the same for training, ranking, evaluation, audits and serving:

- A number stays a number. A missing one becomes the mean of the training rows; with "indicator" a further
  column says so ("age is missing"), for each feature that was missing in any row of the training.
- A category becomes a column of 0 and 1 for each category of the training ("colour=red"). A missing one
  becomes the shares of the training rows; with "indicator" it is a category of its own ("colour is missing").
  A category that the training did not have is scored as an average one, by these shares;
  `encoding.unknown(data)` counts the rows of each.

Without `missing`, a missing value is an error that names its column.

Scorers that take categories and missing values as they are, such as trees, ask for `one_hot=False` and may
ask for missing="native" (see `NATIVE_MODELS` in `fultr.training.settings`). `apply` then leaves categories as
codes, numbered as in `encoding.columns[i].categories` (and in `category_names` of the result), NaN where they
are missing or unknown; with "native", missing numbers stay NaN, too, and the columns of the result are those
of `encoding.names`, in their order.

Only numpy is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import one_of
from fultr.data.categories import category_texts, recoded
from fultr.data.columns import TO_FILL
from fultr.data.dataset import RankingDataset
from fultr.errors import InputError
from fultr.logs.features import with_features
from fultr.logs.reading import LogOptions
from fultr.results import PlainValues

Array = NDArray[np.float32]

MISSING = ("mean", "indicator", "native")
"""What can be made of missing values; "native" leaves them to the scorer."""

TRUTHS = {"true", "false"}
"""Categories that are the same in small and in capital letters: who writes a file decides on them."""


@dataclass(frozen=True)
class EncodedColumn(PlainValues):
    """A feature as it is given, and what stands for it where it is missing or unknown.

    Parameters
    ----------
    name
        Its name in the data.
    categories
        The categories of the training rows, if it holds any; else it holds numbers.
    means
        The mean of the numbers over the training rows that have one; or the share of each category.
    was_missing
        Whether it was missing in any training row.
    """

    name: str
    categories: tuple[str, ...] = ()
    means: tuple[float, ...] = (0.0,)
    was_missing: bool = False

    def __post_init__(self) -> None:
        if len(self.means) != max(len(self.categories), 1) or len({*self.categories}) < len(self.categories):
            raise InputError("must have different categories and a mean for each", column=self.name)
        if not all(map(math.isfinite, self.means)):
            raise InputError("means must be finite", column=self.name)

    @classmethod
    def of(cls, name: str, values: Array, categories: Sequence[str] | None) -> EncodedColumn:
        """Describe a column of the training data; `categories` are the names of its codes, if it has any."""
        is_missing = np.isnan(values)
        present = values[~is_missing].astype(np.float64)
        if values.size and not present.size:
            raise InputError("is missing in all rows; leave the column out", column=name)
        was_missing = bool(is_missing.any())
        if categories is None:
            return cls(name, (), (float(present.mean()) if present.size else 0.0,), was_missing)
        counts = np.bincount(present.astype(np.int64), minlength=len(categories))
        used = np.flatnonzero(counts).tolist()
        shares = tuple((counts[used] / present.size).tolist())
        return cls(name, tuple(categories[code] for code in used), shares, was_missing)

    def codes(self, values: Array, categories: Sequence[str]) -> Array:
        """Return codes of the training for codes of other categories; NaN where missing or unknown."""
        of_lower = {text.lower(): text for text in self.categories}
        if {*of_lower} <= TRUTHS:
            own = self.categories
            categories = [text if text in own else of_lower.get(text.lower(), text) for text in categories]
        return recoded(values, categories, self.categories)

    def one_hot(self, codes: Array) -> Array:
        """Return a column of 0 and 1 for each category; the shares of the training where it is unknown."""
        encoded: Array = (codes[:, None] == np.arange(len(self.categories))).astype(np.float32)
        encoded[np.isnan(codes)] = np.asarray(self.means, dtype=np.float32)
        return encoded


@dataclass(frozen=True)
class FeatureEncoding(PlainValues):
    """What a policy makes of raw columns of features; see the description of this module.

    Parameters
    ----------
    columns
        The features as they are given, in the order of the training data.
    missing
        What to make of missing values: one of `MISSING`; or None, and they are an error.
    one_hot
        Whether categories become columns of 0 and 1; else they stay codes.
    """

    columns: tuple[EncodedColumn, ...]
    missing: str | None = None
    one_hot: bool = True

    def __post_init__(self) -> None:
        if self.missing is not None:
            one_of(self.missing, "missing", *MISSING)

    @classmethod
    def of(cls, data: RankingDataset, missing: str | None = None, *, one_hot: bool = True) -> FeatureEncoding:
        """Learn from training data what to make of its features."""
        if missing is None:
            _check_complete(data)
        columns = []
        for index, name in enumerate(data.feature_names):
            categories = data.category_names.get(name)
            if categories is None and missing is None:
                columns.append(EncodedColumn(name))  # a mean that nothing asks for
            else:
                columns.append(EncodedColumn.of(name, data.features[:, index], categories))
        made = cls(tuple(columns), missing, one_hot)
        twice = [name for name, times in Counter(made.output_names).items() if times > 1]
        if twice:
            raise InputError("would be two columns of this name; rename the feature", column=twice[0])
        return made

    @classmethod
    def of_encoded(cls, data: RankingDataset) -> FeatureEncoding:
        """Return the encoding that leaves data as it is."""
        return cls.of(data, "native" if data.allows_missing else None, one_hot=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the features as they are given."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The names of the columns that a scorer gets."""
        return tuple(name for column in self.columns for name in self._outputs(column))

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """The index of the feature that each column a scorer gets is made of."""
        return tuple(index for index, column in enumerate(self.columns) for _ in self._outputs(column))

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the features that hold categories."""
        return tuple(column.name for column in self.columns if column.categories)

    @property
    def is_identity(self) -> bool:
        """Whether features stay as they are: numbers, none of them missing."""
        return self.missing is None and not self.categories

    def apply(self, data: RankingDataset) -> RankingDataset:
        """Return data with the columns that a scorer gets; data that has them already stays as it is.

        Features are found by their names. Categories that the training did not have, and others that it had
        and the data has not, are no error.
        """
        if self._is_applied(data):
            return data
        raw = with_features(data, self.names)
        if self.missing is None:
            _check_complete(raw)
        if self.is_identity and not raw.category_names:
            return replace(raw, allows_missing=False) if raw.allows_missing else raw
        blocks = [self._encoded(column, raw, index) for index, column in enumerate(self.columns)]
        native = {} if self.one_hot else {one.name: one.categories for one in self.columns if one.categories}
        return replace(
            raw,
            features=np.concatenate(blocks, axis=1) if blocks else raw.features,
            feature_names=self.output_names,
            group_columns=tuple(
                output for output, source in enumerate(self.sources) if source in raw.group_columns
            ),
            category_names=native,
            allows_missing=bool(native) or self.missing == "native",
        )

    def unknown(self, data: RankingDataset) -> dict[str, dict[str, int]]:
        """Return how many rows have each category that the training did not have, by feature."""
        unknown: dict[str, dict[str, int]] = {}
        if not self.categories or self._is_applied(data):
            return unknown
        raw = with_features(data, self.names)
        for index, column in enumerate(self.columns):
            if column.categories:
                values, names = raw.features[:, index], _categories_of(raw, index, column)
                is_unknown = ~np.isnan(values) & np.isnan(column.codes(values, names))
                counts = Counter(category_texts(values[is_unknown], names))
                if counts:
                    unknown[column.name] = {str(name): rows for name, rows in counts.most_common()}
        return unknown

    def _is_applied(self, data: RankingDataset) -> bool:
        return self.output_names != self.names and data.feature_names == self.output_names

    def _outputs(self, column: EncodedColumn) -> tuple[str, ...]:
        """Return the names of the columns that a feature becomes."""
        own: tuple[str, ...] = (column.name,)
        if column.categories and self.one_hot:
            own = tuple(f"{column.name}={category}" for category in column.categories)
        return (*own, f"{column.name} is missing") if self._has_indicator(column) else own

    def _has_indicator(self, column: EncodedColumn) -> bool:
        is_native = bool(column.categories) and not self.one_hot
        return self.missing == "indicator" and column.was_missing and not is_native

    def _encoded(self, column: EncodedColumn, raw: RankingDataset, index: int) -> Array:
        """Return the columns that a feature becomes."""
        values = raw.features[:, index]
        is_missing = np.isnan(values)
        if column.categories:
            codes = column.codes(values, _categories_of(raw, index, column))
            if not self.one_hot:
                return codes[:, None]
            encoded = column.one_hot(codes)
            if self._has_indicator(column):
                encoded[is_missing] = 0.0
        else:
            _check_numbers(raw, index)
            filled = values if self.missing == "native" else np.where(is_missing, column.means[0], values)
            encoded = filled.astype(np.float32)[:, None]
        if self._has_indicator(column):
            encoded = np.column_stack([encoded, is_missing.astype(np.float32)])
        return encoded


def reading_options(encodings: Sequence[FeatureEncoding]) -> LogOptions:
    """Return how raw features are read that several policies take."""
    categories = [name for encoding in encodings for name in encoding.categories]
    options: LogOptions = {"categories": list(dict.fromkeys(categories))} if categories else {}
    if any(encoding.missing is not None for encoding in encodings):
        options["keep_missing"] = True
    return options


def sentence_of_unknown(unknown: Mapping[str, Mapping[str, int]], rows: int) -> str:
    """Say which categories the training did not have, and how many rows have them."""
    listed = []
    for name, counts in unknown.items():
        shown = ", ".join(f"'{category}' ({number})" for category, number in list(counts.items())[:3])
        more = f" and {len(counts) - 3} more" if len(counts) > 3 else ""
        listed.append(f"{name} {shown}{more}, {sum(counts.values())} of {rows} rows")
    return f"categories that the training did not have are scored as average ones: {'; '.join(listed)}"


def _check_complete(data: RankingDataset) -> None:
    """Refuse missing values, and say what can be done about them."""
    if not data.allows_missing:
        return
    is_missing = np.isnan(data.features)
    if is_missing.any():
        row, column = np.argwhere(is_missing)[0]
        rows = int(is_missing[:, column].sum())
        problem = f"is missing in {rows} of {data.rows} rows"
        error = InputError(problem, row=int(row) + 1, column=data.feature_names[column])
        raise error.adding(TO_FILL, "missing", "keep_missing")


def _categories_of(raw: RankingDataset, index: int, column: EncodedColumn) -> tuple[str, ...]:
    """Return the categories of a column of the data, which must have some as it had in training."""
    names = raw.category_names.get(raw.feature_names[index])
    if names is None:
        problem = "holds categories for the policy, but numbers here; name it in {categories}"
        raise InputError(problem, column=column.name, options=["categories"])
    return names


def _check_numbers(raw: RankingDataset, index: int) -> None:
    """Refuse categories where the training had numbers."""
    name = raw.feature_names[index]
    if name in raw.category_names:
        raise InputError("holds numbers for the policy, but categories here", column=name)
