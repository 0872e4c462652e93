"""From what a user trains on (a log, labelled lists, arrays, a frame) to what training needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.click_model import ClickNoise, HasPositionBias, PositionBias
from fultr.data import ClickLog, Counts, RankingDataset, Source
from fultr.data.fields import as_features, column_names_of
from fultr.data.grouping import group_rows
from fultr.data.ids import as_ids, codes_of, encode_groups
from fultr.errors import InputError
from fultr.logs import count, read_log
from fultr.logs.features import ALIASES, with_features
from fultr.logs.frames import source_of_frame

ARGUMENTS = {**ALIASES, "click": "y"}
"""What columns of a log are called where they are given as arrays."""


def source_of(
    given: Any,
    clicks: ArrayLike | None = None,
    *,
    impressions: bool = False,
    qid: ArrayLike | None = None,
    impression: ArrayLike | None = None,
    position: ArrayLike | None = None,
    sensitive_features: ArrayLike | Sequence[object] | None = None,
    propensity: ArrayLike | None = None,
) -> Source:
    """Return the counts of a log, a frame or arrays; or labelled lists as they are.

    With arrays, each row is an item as it was shown in one impression; see `FairRanker.fit`. With
    `impressions`, single impressions are kept, except where counts are given.
    """
    columns = {
        "query_id": qid,
        "impression_id": impression,
        "position": position,
        "group": sensitive_features,
        "propensity": propensity,
    }
    given_columns = {name: column for name, column in columns.items() if column is not None}
    if isinstance(given, Source):
        if clicks is not None or given_columns:
            problem = "a log brings its own clicks, queries, positions and groups; give nothing else"
            given_too = next(iter(given_columns), "click")
            raise InputError(problem, column=ARGUMENTS.get(given_too, given_too))
        return given if impressions else given.compact()
    if clicks is None:
        if given_columns:
            raise InputError("arrays need clicks: give 0 or 1 for each row", column="y")
        return source_of_frame(given, impressions=impressions)
    read = read_log if impressions else count
    try:
        frame, features = _frame_of_arrays(given, clicks, given_columns)
        return read(frame, features=features)
    except InputError as error:
        column = error.column and ARGUMENTS.get(error.column, error.column)
        raise error.about(None, error.row, column) from None


def _frame_of_arrays(
    features: Any, clicks: ArrayLike, columns: dict[str, Any]
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Return the columns of a log, and which of them are features."""
    for name in ("query_id", "position"):
        if name not in columns:
            raise InputError("clicks in arrays need the query and the position of each row", column=name)
    table = np.asarray(features)
    if table.ndim != 2:
        raise InputError("features must be rows x features", column="X", value=table.shape)
    names = column_names_of(features) or tuple(f"feature_{number}" for number in range(1, table.shape[1] + 1))
    table = as_features(features, names)
    # an impression of its own for each query, unless told otherwise
    columns.setdefault("impression_id", columns["query_id"])
    rows = {name: np.asarray(column).reshape(-1) for name, column in columns.items()}
    rows["click"] = np.asarray(clicks).reshape(-1)
    for name, column in rows.items():
        if column.size != table.shape[0]:
            problem = f"must have one value for each of {table.shape[0]} rows"
            raise InputError(problem, column=name, value=column.size)
    # documents are told apart by their features and groups: the same item of a query has the same ones
    query = codes_of(as_ids(rows["query_id"], "query_id"))
    group = encode_groups(rows["group"].tolist())[0] if "group" in rows else np.zeros_like(query)
    _, document = np.unique(np.column_stack([query, group, table]), axis=0, return_inverse=True)
    repeat = _number_repeats(rows["impression_id"], document)
    rows["doc_id"] = document.reshape(-1) * (int(repeat.max(initial=0)) + 1) + repeat
    return {**rows, **{name: table[:, number] for number, name in enumerate(names)}}, names


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
    bias = source.position_bias if asked is None else asked.to_position_bias()
    counted = source.compact()
    bias = bias or counted.bias_of_propensities()
    if bias is not None:
        return counted.on_page(bias, depth)
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
    try:
        lists = with_features(valid.data, source.data.feature_names)
    except InputError as error:
        problem = f"validation clicks must have the features of the training clicks: {error}"
        raise InputError(problem, column="valid") from None
    return source, with_groups(valid.with_lists(lists), source.data.group_names)
