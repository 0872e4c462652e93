"""From what a user trains on (a log, labelled lists, arrays, a frame) to what training needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import names_of
from fultr.click_model import ClickNoise, HasPositionBias, PositionBias
from fultr.data import ClickLog, Counts, RankingDataset, Source
from fultr.data.categories import RawFeatures
from fultr.data.columns import FEATURE_PREFIX, IN_MEMORY, plain, require_columns
from fultr.data.fields import as_features, column_names_of
from fultr.data.grouping import group_rows
from fultr.data.ids import as_ids, codes_of, encode_groups
from fultr.data.table_files import table_of
from fultr.errors import InputError
from fultr.logs import count, read_log
from fultr.logs.features import ALIASES
from fultr.logs.frames import is_frame, source_of_frame
from fultr.logs.reading import LogOptions
from fultr.policy.feature_encoding import FeatureEncoding

ARGUMENTS = {**ALIASES, "click": "y"}
"""What columns of a log are called where they are given as arrays."""


class SourceReading(NamedTuple):
    """How a source is read: its single impressions, which features hold categories, missing ones kept."""

    impressions: bool = False
    categories: Sequence[str] | None = None
    keep_missing: bool = False

    def options(self) -> LogOptions:
        """Return the arguments of readers of logs."""
        categories: LogOptions = {} if self.categories is None else {"categories": self.categories}
        return {**categories, "keep_missing": self.keep_missing}


COUNTED = SourceReading()


def source_of(
    given: Any,
    clicks: ArrayLike | None = None,
    *,
    reading: SourceReading = COUNTED,
    qid: ArrayLike | None = None,
    impression: ArrayLike | None = None,
    position: ArrayLike | None = None,
    sensitive_features: ArrayLike | Sequence[object] | None = None,
    propensity: ArrayLike | None = None,
) -> Source:
    """Return the counts of a log, a frame or arrays; or labelled lists as they are.

    With arrays, each row is an item as it was shown in one impression; see `FairRanker.fit`. Single
    impressions are kept if they are asked for, except where counts are given.
    """
    columns = {
        "query_id": qid,
        "impression_id": impression,
        "position": position,
        "group": sensitive_features,
        "propensity": propensity,
    }
    known = {name: column for name, column in columns.items() if column is not None}
    if isinstance(given, Source):
        if clicks is not None or known:
            problem = "a log brings its own clicks, queries, positions and groups; give nothing else"
            given_too = next(iter(known), "click")
            raise InputError(problem, column=ARGUMENTS.get(given_too, given_too))
        return given if reading.impressions else given.compact()
    if clicks is None:
        if known:
            raise InputError("arrays need clicks: give 0 or 1 for each row", column="y")
        return source_of_frame(given, impressions=reading.impressions, options=reading.options())
    read = read_log if reading.impressions else count
    try:
        frame, features = _frame_of_arrays(given, clicks, known, reading)
        options: LogOptions = {**reading.options(), "features": features}
        return read(frame, **options)
    except InputError as error:
        column = error.column and ARGUMENTS.get(error.column, error.column)
        raise error.about(None, error.row, column) from None


def _frame_of_arrays(
    features: Any, clicks: ArrayLike, known: dict[str, Any], reading: SourceReading
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Return the columns of a log, and which of them are features."""
    for name in ("query_id", "position"):
        if name not in known:
            raise InputError("clicks in arrays need the query and the position of each row", column=name)
    names, columns, table = _features_of_arrays(features, reading)
    # an impression of its own for each query, unless told otherwise
    known.setdefault("impression_id", known["query_id"])
    rows = {name: np.asarray(column).reshape(-1) for name, column in known.items()}
    rows["click"] = np.asarray(clicks).reshape(-1)
    for name, column in rows.items():
        if column.size != table.shape[0]:
            problem = f"must have one value for each of {table.shape[0]} rows"
            raise InputError(problem, column=name, value=column.size)
    # features and groups identify documents: the same item of a query has the same ones
    query = codes_of(as_ids(rows["query_id"], "query_id"))
    group = encode_groups(rows["group"].tolist())[0] if "group" in rows else np.zeros_like(query)
    # a missing value is the same as another one, which is not so for NaN
    told_apart = np.column_stack([query, group, np.isnan(table), np.nan_to_num(table)])
    _, document = np.unique(told_apart, axis=0, return_inverse=True)
    place = _number_repeats(rows["impression_id"], document)
    rows["doc_id"] = document.reshape(-1) * (int(place.max(initial=0)) + 1) + place
    return {**rows, **columns}, names


def _features_of_arrays(
    features: Any, reading: SourceReading
) -> tuple[tuple[str, ...], dict[str, Any], NDArray[np.float32]]:
    """Return the names of features, their columns as they are read, and as numbers."""
    if reading.categories and is_frame(features):
        given = table_of(features)
        names = tuple(given.schema.names)
        require_columns(names, reading.categories, None)
        batches = [batch for batch, _ in given.batches(list(names))]
        columns = {name: pa.concat_arrays([plain(batch[name]) for batch in batches]) for name in names}
        raw = RawFeatures(reading.categories, allows_missing=reading.keep_missing)
        return names, columns, raw.table(columns, len(columns[names[0]]), IN_MEMORY)
    table = np.asarray(features)
    if table.ndim != 2:
        raise InputError("features must be rows x features", column="X", value=table.shape)
    names = column_names_of(features) or tuple(f"feature_{number}" for number in range(1, table.shape[1] + 1))
    table = as_features(features, names, allows_missing=reading.keep_missing)
    return names, {name: table[:, number] for number, name in enumerate(names)}, table


def check_categories(asked: Sequence[str] | None, data: RankingDataset) -> None:
    """Refuse categories of a ranker that are not categories of the data it is trained on."""
    for name in names_of(asked or (), "categories"):
        if name.removeprefix(FEATURE_PREFIX) not in data.category_names and name not in data.category_names:
            problem = (
                f"'{name}' holds numbers in the data; name it when the data is read, too ({{categories}})"
            )
            raise InputError(problem, column="categories", value=name, options=["categories"])


def encoded_validation(valid: Source, encoding: FeatureEncoding) -> Source:
    """Return validation clicks, or lists, with the features that a policy makes of them."""
    try:
        return valid.with_lists(encoding.apply(valid.data))
    except InputError as error:
        problem = f"validation clicks must have the features of the training clicks: {error}"
        raise InputError(problem, column="valid") from None


def _number_repeats(impression: NDArray[Any], document: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tell apart items of one impression that have the same features, by the order in which they come."""
    order, first = group_rows(codes_of(as_ids(impression, "impression_id")), document.reshape(-1))
    numbers = np.empty(order.size, dtype=np.int64)
    numbers[order] = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    return numbers


def single_impressions(source: Source, needed_by: str, column: str = "X") -> ClickLog | RankingDataset:
    """Return a source of single impressions; counts have none, and are refused."""
    if isinstance(source, Counts):
        problem = f"{needed_by} needs single impressions, not a compacted log; give the log itself"
        raise InputError(problem, column=column)
    return source


def position_bias_of(asked: HasPositionBias | None, source: Source, depth: int | None = None) -> PositionBias:
    """Return the position bias asked for, or that of the log, or the one its propensities follow.

    It ends where the page does: after `depth` positions, or by default where that of the log does.
    """
    if asked is not None and not hasattr(asked, "to_position_bias"):
        raise InputError("must be a PositionBias or a BiasEstimate", column="position_bias", value=asked)
    found = source.position_bias if asked is None else asked.to_position_bias()
    counted = source.compact()
    found = found or counted.bias_of_propensities()
    if found is not None:
        return counted.on_page(found, depth)
    raise InputError(
        "exposure needs the examination probabilities of positions; give them ({position_bias}), or estimate"
        " them from the log",
        column="position_bias",
        options=["position_bias"],
    )


def noise_of(asked: ClickNoise | None, source: Source) -> ClickNoise | None:
    """Return the noise to take off: the one asked for, or that of the log; none where there is none."""
    if isinstance(source, RankingDataset):
        return None
    noise = source.noise if asked is None else asked
    return None if noise == ClickNoise() else noise


def with_groups(source: Source, names: tuple[str, ...]) -> Source:
    """Return a source whose groups are numbered as in `names`."""
    if source.data.group_names == names:
        return source
    return source.with_lists(lists_with_groups(source.data, names))


def lists_with_groups(data: RankingDataset, names: tuple[str, ...]) -> RankingDataset:
    """Return lists whose groups are numbered as in `names`."""
    unknown = [name for name in data.group_names if name not in names]
    if unknown:
        problem = f"the training clicks have no such group; theirs are {list(names)}"
        raise InputError(problem, column="group", value=unknown[0])
    code = np.array([*(names.index(name) for name in data.group_names), -1], dtype=np.int32)
    return replace(data, group=code[data.group], group_names=names)


def with_validation(source: Source, valid: Source | None, share: float, seed: int) -> tuple[Source, Source]:
    """Return what to train on, and what to validate on: as given, or else a share of the queries."""
    if valid is None:
        return source.split(share, seed)
    # encoded already, but where `prepare` is called by itself
    encoded = encoded_validation(valid, FeatureEncoding.of_encoded(source.data))
    return source, with_groups(encoded, source.data.group_names)
