"""Lists of candidates as one ragged table: the form in which all data is held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import checked_number, names_of, random_generator, whole_number, whole_numbers
from fultr.click_model import PositionBias
from fultr.data.categories import as_category_names, joined_categories, with_categories
from fultr.data.columns import check_column_names
from fultr.data.fields import (
    as_features,
    as_groups,
    as_ids_of,
    as_offsets,
    as_relevance,
    column_names_of,
    numbered_names,
)
from fultr.data.frames import frame_of_lists
from fultr.data.grouping import first_repeat
from fultr.data.ids import (
    TEXT,
    UNKNOWN_GROUP,
    Ids,
    as_column,
    as_ids,
    codes_of,
    document_twice,
    rows_in_lists,
    unknown_group_name,
)
from fultr.errors import InputError
from fultr.results import Displayed, Tables, summary_tables

NOT_COLUMNS = ("feature_names", "group_names", "group_columns", "source", "category_names", "allows_missing")
"""The fields of a dataset that are no columns."""


@dataclass(frozen=True, eq=False, init=False, repr=False)
class RankingDataset(Displayed):
    """Lists of candidate items, of any lengths, with their features, groups and relevances.

    Rows of one list stand together; list i is `offsets[i]:offsets[i + 1]`. Arrays are taken as they are
    where their type allows it, and are never changed.

    Parameters
    ----------
    features
        Rows x features, finite; held as float32.
    offsets
        Where each list starts, and the number of rows at the end.
    group
        The group of each row: an index into `group_names`, -1 where it is unknown; or labels.
    group_names
        Names of the groups. With labels given and no names, the names are the labels, sorted.
    relevance
        0/1, a probability, or a graded judgment (see `binarize`) for each row.
    query_id
        The query of each list. Several lists may belong to one query.
    doc_id
        The document of each row, at most once in a list.
    feature_names
        By default the columns of `features` if it is a frame, or else "1", "2", ...
    group_columns
        The columns of `features` derived from the group attribute: what a group-blind scorer masks.
    comment
        Free text for each row, kept when the data is written.
    source
        What the data is and where it comes from, in a few words.
    category_names
        For each feature that holds categories and no numbers: what its codes 0, 1, ... stand for.
    allows_missing
        Whether features may be missing, NaN. Only a policy that fills them in can be trained on such data.

    Examples
    --------
    >>> data = RankingDataset.from_rows([[1.0], [2.0], [3.0]], qid=[7, 8, 7], relevance=[1, 0, 0])
    >>> len(data), data.lengths.tolist(), data[0].features.ravel().tolist()
    (2, [2, 1], [1.0, 3.0])
    """

    features: NDArray[np.float32]
    offsets: NDArray[np.int64]
    group: NDArray[np.int32]
    group_names: tuple[str, ...]
    relevance: NDArray[np.float32] | None
    query_id: Ids | None
    doc_id: Ids | None
    feature_names: tuple[str, ...]
    group_columns: tuple[int, ...]
    comment: Ids | None
    source: str
    category_names: dict[str, tuple[str, ...]]
    allows_missing: bool

    def __init__(
        self,
        features: ArrayLike,
        offsets: ArrayLike,
        *,
        group: ArrayLike | Sequence[object] | None = None,
        group_names: Sequence[str] = (),
        relevance: ArrayLike | None = None,
        query_id: ArrayLike | None = None,
        doc_id: ArrayLike | None = None,
        feature_names: Sequence[str] = (),
        group_columns: Sequence[int] = (),
        comment: ArrayLike | None = None,
        source: str = "",
        category_names: Mapping[str, Sequence[str]] | None = None,
        allows_missing: bool = False,
    ) -> None:
        names = names_of(feature_names or column_names_of(features), "feature_names")
        check_column_names(names)
        table = as_features(features, names, allows_missing=allows_missing)
        rows, width = table.shape
        names = names or numbered_names(width)
        if len(names) != width:
            problem = f"{width} features need as many names"
            raise InputError(problem, column="feature_names", value=names)
        starts = as_offsets(offsets, rows)
        codes, code_names = as_groups(group, names_of(group_names, "group_names"), rows)
        columns = tuple(np.unique(whole_numbers(group_columns, "group_columns")).tolist())
        if columns and not 0 <= columns[0] <= columns[-1] < width:
            raise InputError(f"must lie in 0..{width - 1}", column="group_columns", value=columns)
        vars(self).update(
            features=table,
            offsets=starts,
            group=codes,
            group_names=code_names,
            relevance=None if relevance is None else as_relevance(relevance, rows),
            query_id=as_ids_of(query_id, "query_id", starts.size - 1, "lists"),
            doc_id=as_ids_of(doc_id, "doc_id", rows, "rows"),
            feature_names=names,
            group_columns=columns,
            comment=as_ids_of(comment, "comment", rows, "rows"),
            source=source,
            category_names=as_category_names(category_names or {}, table, names),
            allows_missing=allows_missing,
        )
        repeat = None if self.doc_id is None else first_repeat(self.list_of_row, codes_of(self.doc_id))
        if repeat is not None and self.doc_id is not None:
            first, second = repeat
            raise document_twice(first + 1, second + 1, "list", self.doc_id[second])

    @classmethod
    def from_rows(cls, features: ArrayLike, qid: ArrayLike, **columns: Any) -> RankingDataset:
        """Make a dataset from rows in any order and the query of each.

        `columns` are the other fields of the dataset, each in the order of the rows. Lists come in the
        order in which their queries first appear, and rows keep their order within a list.
        """
        query = as_ids(qid, "qid")
        names = names_of(columns.pop("feature_names", ()), "feature_names") or column_names_of(features)
        table = as_features(features, names, allows_missing=columns.get("allows_missing", False))
        order, offsets, first = rows_in_lists(codes_of(query))
        for name, column in {"qid": query, "features": table, **columns}.items():
            if name in ("qid", "features", "group", "relevance", "doc_id", "comment") and column is not None:
                values = as_column(column)
                if values.shape[:1] != (table.shape[0],):
                    problem = f"must have one value for each of {table.shape[0]} rows"
                    raise InputError(problem, column=name, value=values.shape)
                columns[name] = values[order]
        columns.pop("qid")
        return cls(offsets=offsets, query_id=query[first], feature_names=names, **columns)

    @property
    def data(self) -> RankingDataset:
        """The lists themselves, as `data` of a log are its lists."""
        return self

    def compact(self) -> RankingDataset:
        """Return the lists themselves, as `ClickLog.compact` returns the counts of a log."""
        return self

    def with_lists(self, lists: RankingDataset) -> RankingDataset:
        """Return other lists, as `with_lists` of a log returns the same clicks on other lists."""
        return lists

    @property
    def position_bias(self) -> PositionBias | None:
        """The position bias that a log carries; labels have none."""
        return None

    @property
    def has_own_weights(self) -> bool:
        """Whether relevance is known without a position bias, as it is from labels."""
        return True

    def gains(self) -> NDArray[np.float64]:
        """Return the relevance of each row, as `Counts.gains` returns its clicks."""
        if self.relevance is None:
            raise InputError("lists to learn from must have relevance, or clicks on them", column="relevance")
        return self.relevance.astype(np.float64)

    def on_page(self, position_bias: PositionBias, depth: int | None = None) -> PositionBias:
        """Return a position bias that ends after `depth` positions, if that is given."""
        return position_bias if depth is None else position_bias.cut(depth)

    def bias_of_propensities(self) -> PositionBias | None:
        """Return the position bias that logged propensities follow; labels have none."""
        return None

    def split(
        self, share: float, seed: int | np.random.Generator = 0
    ) -> tuple[RankingDataset, RankingDataset]:
        """Split by query: all lists of a query go to one side, `share` of the queries to the second."""
        in_second = self.choose_queries(share, seed)
        return self[~in_second], self[in_second]

    @property
    def rows(self) -> int:
        """Number of items over all lists."""
        return int(self.features.shape[0])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of items of each list."""
        return np.diff(self.offsets)

    @property
    def list_of_row(self) -> NDArray[np.int64]:
        """The list that each row belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def query_codes(self) -> NDArray[np.int64]:
        """A number for the query of each list; lists without query ids are queries of their own."""
        return np.arange(len(self)) if self.query_id is None else codes_of(self.query_id)

    def __len__(self) -> int:
        return int(self.offsets.size - 1)

    def __repr__(self) -> str:
        shape = f"{len(self)} lists, {self.rows} rows, {self.features.shape[1]} features"
        source = f" {self.source}" if self.source else ""
        return f"<RankingDataset{source}: {shape}, {len(self.group_names)} groups>"

    def __getitem__(self, lists: int | slice | Sequence[int] | NDArray[Any]) -> RankingDataset:
        """Return the chosen lists, in the given order; a mask or repeated lists are fine."""
        chosen = chosen_of(lists, len(self), "list")
        if isinstance(lists, slice) and lists.step in (None, 1):
            start, stop = (int(chosen[0]), int(chosen[-1]) + 1) if chosen.size else (0, 0)
            return self._pick(chosen, slice(int(self.offsets[start]), int(self.offsets[stop])))
        return self._pick(chosen, rows_of(self.offsets, chosen))

    def of_rows(self, selected: NDArray[np.bool_]) -> tuple[RankingDataset, NDArray[np.int64]]:
        """Return the lists without all other rows, and which lists are left."""
        lengths = np.bincount(self.list_of_row[selected], minlength=len(self))
        lists = np.flatnonzero(lengths)
        return self._pick(lists, np.flatnonzero(selected), lengths), lists

    def _pick(
        self,
        lists: NDArray[np.int64],
        rows: slice | NDArray[np.int64],
        lengths: NDArray[np.int64] | None = None,
    ) -> RankingDataset:
        lengths = self.lengths if lengths is None else lengths
        return replace(
            self,
            offsets=np.concatenate([[0], np.cumsum(lengths[lists])]),
            **columns_at(self, lists, "query_id"),
            **columns_at(self, rows, "features", "group", "relevance", "doc_id", "comment"),
        )

    def choose_queries(self, share: float, seed: int | np.random.Generator = 0) -> NDArray[np.bool_]:
        """Draw a share of the queries, at least one and not all; return which lists belong to them."""
        checked_number(share, "share", "must lie between 0 and 1", lambda given: 0 < given < 1)
        queries = np.unique(self.query_codes).size
        if queries < 2:
            raise InputError(f"cannot split by query: there are {queries}", column="query_id")
        return self._draw_queries(min(max(1, round(share * queries)), queries - 1), seed)

    def _draw_queries(self, size: int, seed: int | np.random.Generator) -> NDArray[np.bool_]:
        codes = self.query_codes
        return np.isin(codes, random_generator(seed).choice(np.unique(codes), size=size, replace=False))

    def sample_queries(self, size: int | float, seed: int | np.random.Generator = 0) -> RankingDataset:
        """Draw queries without replacement and return all their lists, in their old order.

        `size` is a number of queries, or a share of them if it is a float; at least one is drawn.
        """
        queries = np.unique(self.query_codes).size
        if isinstance(size, float):
            rule = "a share must lie above 0 and be at most 1"
            size = max(1, round(checked_number(size, "size", rule, lambda given: 0 < given <= 1) * queries))
        if whole_number(size, "size", least=1) > queries:
            raise InputError(f"there are {queries} queries to draw from", column="size", value=size)
        return self[self._draw_queries(int(size), seed)]

    def binarize(self, threshold: float) -> RankingDataset:
        """Turn graded judgments into relevance: 1 from `threshold` on, 0 below it."""
        if self.relevance is None:
            raise InputError("there is no relevance to binarize", column="relevance")
        checked_number(threshold, "threshold", "must be a number", lambda given: given == given)
        return replace(self, relevance=(self.relevance >= threshold).astype(np.float32))

    def check_numeric(self, use: str) -> None:
        """Refuse categories and missing values where features are to be complete numbers."""
        missing = np.isnan(self.features).any(axis=0) if self.allows_missing else np.zeros(0)
        unusable = [*self.category_names, *(self.feature_names[column] for column in np.flatnonzero(missing))]
        if unusable:
            problem = f"{use} has no categories and no missing features; leave the column out, or encode it"
            raise InputError(problem, column=unusable[0])

    def to_frame(self) -> pl.DataFrame:
        """Return a polars frame with a row for each item; see `frame_of_lists`."""
        return frame_of_lists(self)

    def tables(self) -> Tables:
        """Return what `describe` says as tables, which a notebook shows."""
        return summary_tables(self.describe())

    def describe(self) -> dict[str, Any]:
        """Return what the data holds, as plain values that can be printed or written as JSON."""
        lengths = self.lengths
        summary: dict[str, Any] = {
            "source": self.source,
            "lists": len(self),
            "queries": int(np.unique(self.query_codes).size),
            "rows": self.rows,
            "features": int(self.features.shape[1]),
            "list_length": {
                "min": int(lengths.min()) if lengths.size else 0,
                "mean": _mean(lengths),
                "max": int(lengths.max(initial=0)),
            },
            "group_columns": [self.feature_names[column] for column in self.group_columns],
            "groups": {},
        }
        if self.category_names:
            summary["categories"] = {name: len(texts) for name, texts in self.category_names.items()}
        if self.allows_missing:
            missing = np.isnan(self.features).sum(axis=0).tolist()
            named = zip(self.feature_names, missing, strict=True)
            summary["missing"] = {name: number for name, number in named if number}
        if self.relevance is not None:
            summary["relevance_mean"] = _mean(self.relevance)
            summary["relevance_max"] = float(self.relevance.max(initial=0.0))
        for code, name in named_groups(self.group_names):
            of_group = self.group == code
            rows = int(of_group.sum())
            if code == UNKNOWN_GROUP and not rows:
                continue
            entry: dict[str, Any] = {"rows": rows, "share": rows / self.rows if self.rows else 0.0}
            if self.relevance is not None:
                entry["relevance_mean"] = _mean(self.relevance[of_group])
            summary["groups"][name] = entry
        return summary


def concatenate(parts: Iterable[RankingDataset]) -> RankingDataset:
    """Put the lists of several datasets after one another; groups are matched by name.

    A column that only some of the datasets have (relevance, ids, comments) is left out. Ids that are text in
    one of them are text in the result. Groups are in ascending order if the datasets have different ones.
    """
    datasets = list(parts)
    if not datasets:
        raise InputError("there is nothing to concatenate")
    first = datasets[0]
    for number, dataset in enumerate(datasets[1:], start=2):
        if dataset.feature_names != first.feature_names:
            raise InputError(f"dataset {number} has other features than dataset 1", column="feature_names")
    names: Sequence[str] = first.group_names
    if any(dataset.group_names != names for dataset in datasets):
        names = sorted({name for dataset in datasets for name in dataset.group_names})
    # one code more than names, so that the unknown group, -1, maps to itself
    codes = [np.array([*map(names.index, dataset.group_names), UNKNOWN_GROUP]) for dataset in datasets]

    categories = joined_categories([dataset.category_names for dataset in datasets])

    def joined(column: str) -> NDArray[Any] | None:
        columns = [getattr(dataset, column) for dataset in datasets]
        if any(values is None for values in columns):
            return None
        is_text = any(values.dtype.kind == "T" for values in columns)
        return np.concatenate([values.astype(TEXT) if is_text else values for values in columns])

    return RankingDataset(
        features=np.concatenate(
            [
                with_categories(dataset.features, dataset.feature_names, dataset.category_names, categories)
                for dataset in datasets
            ]
        ),
        offsets=np.concatenate([[0], np.cumsum(np.concatenate([dataset.lengths for dataset in datasets]))]),
        group=np.concatenate([code[dataset.group] for code, dataset in zip(codes, datasets, strict=True)]),
        group_names=names,
        feature_names=first.feature_names,
        group_columns=tuple(sorted({column for dataset in datasets for column in dataset.group_columns})),
        source=" + ".join(dict.fromkeys(dataset.source for dataset in datasets if dataset.source)),
        category_names=categories,
        allows_missing=any(dataset.allows_missing for dataset in datasets),
        **{name: joined(name) for name in ("relevance", "query_id", "doc_id", "comment")},
    )


def rows_of(offsets: NDArray[np.int64], lists: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of the given lists, one list after another."""
    lengths = np.diff(offsets)[lists]
    starts = np.cumsum(lengths) - lengths
    return np.repeat(offsets[lists] - starts, lengths) + np.arange(int(lengths.sum()))


def columns_at(table: Any, index: Any, *names: str) -> dict[str, Any]:
    """Return what several columns of an object hold at an index; a column that is not there stays None."""
    columns = {name: getattr(table, name) for name in names}
    return {name: None if column is None else column[index] for name, column in columns.items()}


def chosen_of(which: Any, size: int, unit: str) -> NDArray[np.int64]:
    """Return the numbers, of 0..size - 1, that an index, a slice, a mask or several indices stand for."""
    try:
        return np.atleast_1d(np.arange(size)[which])
    except (IndexError, TypeError, ValueError):
        raise InputError(f"no such {unit}; there are {size}", column=f"{unit}s", value=which) from None


def named_groups(names: Sequence[str]) -> list[tuple[int, str]]:
    """Return the number and name of each group, the unknown one the last."""
    return [*enumerate(names), (UNKNOWN_GROUP, unknown_group_name(names))]


def _mean(values: NDArray[Any]) -> float:
    """Return the mean, 0 of nothing; in double, since a sum of floats may be beyond what a float holds."""
    return float(values.mean(dtype=np.float64)) if values.size else 0.0


@dataclass(frozen=True)
class DataSplits:
    """Labelled data in three parts; a query id that stands in two of them is an error."""

    train: RankingDataset
    valid: RankingDataset
    test: RankingDataset

    def __post_init__(self) -> None:
        refuse_shared_queries(dict(self))

    def __iter__(self) -> Iterator[tuple[str, RankingDataset]]:
        yield from (("train", self.train), ("valid", self.valid), ("test", self.test))


def refuse_shared_queries(datasets: dict[str, RankingDataset]) -> None:
    """Raise if two datasets hold the same query: what is learned on one would leak into the other."""
    query_ids = {
        name: set() if data.query_id is None else set(data.query_id.tolist())
        for name, data in datasets.items()
    }
    for earlier, name in combinations(query_ids, 2):
        if shared := query_ids[earlier] & query_ids[name]:
            problem = f"the query stands in two splits, {earlier} and {name}; split by query"
            raise InputError(problem, column="query_id", value=min(shared))
