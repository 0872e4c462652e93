"""From what a user trains on (a log, labelled lists, arrays, a frame) to what training needs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.click_model import ClickNoise, PositionBias
from fultr.data import Cells, ClickLog, Counts, RankingDataset
from fultr.data.columns import FEATURE_PREFIX
from fultr.data.dataset_fields import column_names_of
from fultr.data.grouping import group_rows
from fultr.data.ids import codes_of, distinct
from fultr.errors import InputError
from fultr.evaluation.inputs import counted
from fultr.logs import count, log_from_frame

CountsOrLabels = Counts | RankingDataset
"""Lists, and what is known of the relevance of their items: counts of clicks, or labels."""

Source = ClickLog | CountsOrLabels
"""The same, or single impressions, for the methods that need them."""

ARGUMENTS = {"query_id": "qid", "impression_id": "impression", "group": "sensitive_features", "click": "y"}
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
    known = {name: column for name, column in columns.items() if column is not None}
    if isinstance(given, (ClickLog, Counts, RankingDataset)):
        if clicks is not None or known:
            problem = "a log brings its own clicks, queries, positions and groups; give nothing else"
            given_too = next(iter(known), "click")
            raise InputError(problem, column=ARGUMENTS.get(given_too, given_too))
        return given if impressions else counted(given)
    read = log_from_frame if impressions else count
    if clicks is None:
        return read(given)
    try:
        frame, features = _frame_of_arrays(given, clicks, known)
        return read(frame, features=features)
    except InputError as error:
        column = error.column and ARGUMENTS.get(error.column, error.column)
        raise InputError(error.problem, row=error.row, column=column, value=error.value) from None


def _frame_of_arrays(
    features: Any, clicks: ArrayLike, known: dict[str, Any]
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Return the columns of a log, and which of them are features."""
    for name in ("query_id", "position"):
        if name not in known:
            raise InputError("clicks in arrays need the query and the position of each row", column=name)
    table = np.asarray(features)
    if table.ndim != 2:
        raise InputError("features must be rows x features", column="X", value=table.shape)
    names = column_names_of(features) or tuple(f"feature_{number}" for number in range(1, table.shape[1] + 1))
    # an impression of its own for each query, unless told otherwise
    known.setdefault("impression_id", known["query_id"])
    rows = {name: np.asarray(column).reshape(-1) for name, column in known.items()}
    rows["click"] = np.asarray(clicks).reshape(-1)
    for name, column in rows.items():
        if column.size != table.shape[0]:
            problem = f"must have one value for each of {table.shape[0]} rows"
            raise InputError(problem, column=name, value=column.size)
    # documents are told apart by their features and groups: the same item of a query has the same ones
    query = codes_of(rows["query_id"])
    group = codes_of(rows["group"].astype(str)) if "group" in rows else np.zeros_like(query)
    _, document = np.unique(np.column_stack([query, group, table]), axis=0, return_inverse=True)
    place = _number_repeats(rows["impression_id"], document)
    rows["doc_id"] = document.reshape(-1) * (int(place.max(initial=0)) + 1) + place
    return {**rows, **{name: table[:, number] for number, name in enumerate(names)}}, names


def _number_repeats(impression: NDArray[Any], document: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tell apart items of one impression that have the same features, by the order in which they come."""
    order, first = group_rows(codes_of(impression), document.reshape(-1))
    numbers = np.empty(order.size, dtype=np.int64)
    numbers[order] = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    return numbers


def single_impressions(source: Source, needed_by: str, column: str = "X") -> ClickLog | RankingDataset:
    """Return a source of single impressions; counts have none, and are refused."""
    if isinstance(source, Counts):
        problem = f"{needed_by} needs single impressions, not a compacted log; give the log itself"
        raise InputError(problem, column=column)
    return source


def data_of(source: Source) -> RankingDataset:
    """Return the lists of a source."""
    return source if isinstance(source, RankingDataset) else source.data


def gains_of(source: CountsOrLabels) -> NDArray[np.float64]:
    """Return the relevance of each row, or how often it was clicked."""
    if not isinstance(source, RankingDataset):
        return source.clicks()
    if source.relevance is None:
        raise InputError("lists to learn from must have relevance, or clicks on them", column="relevance")
    return source.relevance.astype(np.float64)


def position_bias_of(asked: PositionBias | None, source: Source) -> PositionBias:
    """Return the position bias asked for, or that of the log, or the one its propensities follow."""
    if asked is not None:
        return asked
    if not isinstance(source, RankingDataset):
        if source.position_bias is not None:
            return source.position_bias
        followed = _bias_of_propensities(source.compact().cells)
        if followed is not None:
            return followed
    raise InputError(
        "exposure needs the examination probabilities of positions; give position_bias=, such as"
        " PositionBias.power(1.0), or estimate them from the log",
        column="position_bias",
    )


def noise_of(asked: ClickNoise | None, source: Source) -> ClickNoise | None:
    """Return the noise to take off: the one asked for, or that of the log; none where there is none."""
    if isinstance(source, RankingDataset):
        return None
    noise = source.noise if asked is None else asked
    return None if noise == ClickNoise() else noise


def _bias_of_propensities(cells: Cells) -> PositionBias | None:
    """Return v_k if all logged propensities of a position are the same, and every position has some."""
    if cells.propensity is None:
        return None
    longest = int(cells.position.max(initial=0))
    low, high = np.full(longest + 1, np.inf), np.zeros(longest + 1)
    np.minimum.at(low, cells.position, cells.propensity)
    np.maximum.at(high, cells.position, cells.propensity)
    if not longest or not np.allclose(low[1:], high[1:], rtol=1e-6, atol=0) or not high[1] > 0:
        return None
    return PositionBias(high[1:].tolist())


def with_groups(source: Source, names: tuple[str, ...]) -> Source:
    """Return a source whose groups are numbered as in `names`."""
    if data_of(source).group_names == names:
        return source
    renamed = lists_with_groups(data_of(source), names)
    return renamed if isinstance(source, RankingDataset) else replace(source, data=renamed)


def lists_with_groups(data: RankingDataset, names: tuple[str, ...]) -> RankingDataset:
    """Return lists whose groups are numbered as in `names`."""
    unknown = [name for name in data.group_names if name not in names]
    if unknown:
        problem = f"the training clicks have no such group; theirs are {list(names)}"
        raise InputError(problem, column="group", value=unknown[0])
    code = np.array([*(names.index(name) for name in data.group_names), -1], dtype=np.int32)
    return replace(data, group=code[data.group], group_names=names)


def refuse_other_order(names: tuple[str, ...], trained: tuple[str, ...]) -> None:
    """Refuse the features of the training in another order; features of other names may be the same ones."""
    # a log knows its features without the prefix that their columns have
    names, trained = (tuple(name.removeprefix(FEATURE_PREFIX) for name in some) for some in (names, trained))
    if names != trained and set(names) == set(trained):
        moved = next(name for name, wanted in zip(names, trained, strict=True) if name != wanted)
        problem = f"features must come in the order of the training: {', '.join(trained)}"
        raise InputError(problem, column="features", value=moved)


def with_validation(source: Source, valid: Source | None, share: float, seed: int) -> tuple[Source, Source]:
    """Return what to train on, and what to validate on: as given, or else a share of the queries."""
    if valid is None:
        return split_by_query(source, share, seed)
    width, wanted = data_of(valid).features.shape[1], data_of(source).features.shape[1]
    if width != wanted:
        problem = f"validation clicks must have the {wanted} features of the training clicks"
        raise InputError(problem, column="valid", value=width)
    refuse_other_order(data_of(valid).feature_names, data_of(source).feature_names)
    return source, with_groups(valid, data_of(source).group_names)


def split_by_query(source: Source, share: float, seed: int) -> tuple[Source, Source]:
    """Put aside a share of the queries, with all that is known of them."""
    if not isinstance(source, RankingDataset):
        return source.split(share, seed)
    aside = source.choose_queries(share, seed)
    return source[~aside], source[aside]


def query_digests(data: RankingDataset) -> NDArray[np.int64]:
    """Return a number for the id of each query, sorted; none where queries have no ids.

    A saved policy keeps them, so that an audit can tell whether it looks at queries of the training.
    """
    if data.query_id is None:
        return np.empty(0, dtype=np.int64)
    names = distinct(data.query_id).tolist()
    digests = [hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in names]
    return np.sort(np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64))
