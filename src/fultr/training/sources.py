"""From what a user trains on (a log, labelled lists, arrays, a frame) to what training needs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.click_model import ClickNoise, PositionBias
from fultr.data import ClickLog, CompactLog, RankingDataset, log_from_frame
from fultr.data.columns import FEATURE_PREFIX
from fultr.data.dataset_fields import column_names_of
from fultr.data.ids import codes_of
from fultr.errors import InputError

Source = ClickLog | CompactLog | RankingDataset

ARGUMENTS = {"query_id": "qid", "impression_id": "impression", "group": "sensitive_features", "click": "y"}
"""What columns of a log are called where they are given as arrays."""


def source_of(
    given: Any,
    clicks: ArrayLike | None = None,
    *,
    qid: ArrayLike | None = None,
    impression: ArrayLike | None = None,
    position: ArrayLike | None = None,
    sensitive_features: ArrayLike | Sequence[object] | None = None,
    propensity: ArrayLike | None = None,
) -> Source:
    """Return a log or labelled lists as they are, and make a log of arrays or of a frame.

    With arrays, each row is an item as it was shown in one impression; see `FairRanker.fit`.
    """
    columns = {
        "query_id": qid,
        "impression_id": impression,
        "position": position,
        "group": sensitive_features,
        "propensity": propensity,
    }
    known = {name: column for name, column in columns.items() if column is not None}
    if isinstance(given, (ClickLog, CompactLog, RankingDataset)):
        if clicks is not None or known:
            problem = "a log brings its own clicks, queries, positions and groups; give nothing else"
            given_too = next(iter(known), "click")
            raise InputError(problem, column=ARGUMENTS.get(given_too, given_too))
        return given
    if clicks is None:
        return log_from_frame(given)
    try:
        return _log_of_arrays(given, clicks, known)
    except InputError as error:
        column = error.column and ARGUMENTS.get(error.column, error.column)
        raise InputError(error.problem, row=error.row, column=column, value=error.value) from None


def _log_of_arrays(features: Any, clicks: ArrayLike, known: dict[str, Any]) -> ClickLog:
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
    query = np.unique(rows["query_id"], return_inverse=True)[1]
    group = codes_of(rows["group"].astype(str)) if "group" in rows else np.zeros_like(query)
    _, document = np.unique(np.column_stack([query, group, table]), axis=0, return_inverse=True)
    place = _number_repeats(rows["impression_id"], document)
    rows["doc_id"] = document.reshape(-1) * (int(place.max(initial=0)) + 1) + place
    frame = {**rows, **{name: table[:, number] for number, name in enumerate(names)}}
    return log_from_frame(frame, features=names)


def _number_repeats(impression: Any, document: Any) -> Any:
    """Tell apart items of one impression that have the same features, by the order in which they come."""
    _, code = np.unique(impression, return_inverse=True)
    key = code.reshape(-1).astype(np.int64) * (int(document.max(initial=0)) + 1) + document.reshape(-1)
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=key[order[:1]] - 1))
    numbers = np.arange(key.size) - np.repeat(first, np.diff(np.append(first, key.size)))
    found = np.empty(key.size, dtype=np.int64)
    found[order] = numbers
    return found


def single_impressions(source: Source) -> ClickLog | RankingDataset:
    """Refuse a compacted log, where single impressions are needed."""
    if isinstance(source, CompactLog):
        raise InputError("the paper's protocol needs single impressions, not a compacted log", column="X")
    return source


def data_of(source: Source) -> RankingDataset:
    """Return the lists of a source."""
    return source if isinstance(source, RankingDataset) else source.data


def position_bias_of(asked: PositionBias | None, source: Source) -> PositionBias:
    """Return the position bias asked for, or that of the log, or the one its propensities follow."""
    if asked is not None:
        return asked
    if not isinstance(source, RankingDataset):
        if source.position_bias is not None:
            return source.position_bias
        followed = _bias_of_propensities(source)
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


def _bias_of_propensities(log: ClickLog | CompactLog) -> PositionBias | None:
    """Return v_k if all logged propensities of a position are the same, and every position has some."""
    entries = log if isinstance(log, ClickLog) else log.cells
    if entries.propensity is None:
        return None
    shown = entries.position > 0
    position, propensity = entries.position[shown], entries.propensity[shown]
    longest = int(position.max(initial=0))
    low, high = np.full(longest + 1, np.inf), np.zeros(longest + 1)
    np.minimum.at(low, position, propensity)
    np.maximum.at(high, position, propensity)
    if not longest or not np.allclose(low[1:], high[1:], rtol=1e-6, atol=0) or not high[1] > 0:
        return None
    return PositionBias(high[1:].tolist())


def with_groups(source: Source, names: tuple[str, ...]) -> Source:
    """Return a source whose groups are numbered as in `names`."""
    data = data_of(source)
    if data.group_names == names:
        return source
    unknown = [name for name in data.group_names if name not in names]
    if unknown:
        problem = f"the training clicks have no such group; theirs are {list(names)}"
        raise InputError(problem, column="group", value=unknown[0])
    code = np.array([*(names.index(name) for name in data.group_names), -1], dtype=np.int32)
    renamed = replace(data, group=code[data.group], group_names=names)
    return renamed if isinstance(source, RankingDataset) else replace(source, data=renamed)


def refuse_other_order(names: tuple[str, ...], trained: tuple[str, ...]) -> None:
    """Refuse the features of the training in another order; features of other names may be the same ones."""
    # a log knows its features without the prefix that their columns have
    names, trained = (tuple(name.removeprefix(FEATURE_PREFIX) for name in some) for some in (names, trained))
    if names != trained and set(names) == set(trained):
        moved = next(name for name, wanted in zip(names, trained, strict=True) if name != wanted)
        problem = f"features must come in the order of the training: {', '.join(trained)}"
        raise InputError(problem, column="features", value=moved)


def with_validation(source: Source, valid: Any, share: float, seed: int) -> tuple[Source, Source]:
    """Return what to train on, and what to validate on: as given, or else a share of the queries."""
    if valid is None:
        return split_by_query(source, share, seed)
    valid = source_of(valid)
    width, wanted = data_of(valid).features.shape[1], data_of(source).features.shape[1]
    if width != wanted:
        problem = f"validation clicks must have the {wanted} features of the training clicks"
        raise InputError(problem, column="valid", value=width)
    refuse_other_order(data_of(valid).feature_names, data_of(source).feature_names)
    return source, with_groups(valid, data_of(source).group_names)


def split_by_query(source: Source, share: float, seed: int) -> tuple[Source, Source]:
    """Put aside a share of the queries, with all that is known of them."""
    if isinstance(source, ClickLog):
        return source.split(share, seed)
    data = data_of(source)
    queries = np.unique(data.query_codes)
    if queries.size < 2:
        raise InputError(f"cannot split by query: there are {queries.size}", column="query_id")
    size = min(max(1, round(share * queries.size)), queries.size - 1)
    aside = np.isin(data.query_codes, np.random.default_rng(seed).choice(queries, size=size, replace=False))
    return source[np.flatnonzero(~aside)], source[np.flatnonzero(aside)]


def query_digests(data: RankingDataset) -> NDArray[np.int64]:
    """Return a number for the id of each query, sorted; none where queries have no ids.

    A saved policy keeps them, so that an audit can tell whether it looks at queries of the training.
    """
    if data.query_id is None:
        return np.empty(0, dtype=np.int64)
    names = np.unique(data.query_id).tolist()
    digests = [hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in names]
    return np.sort(np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64))
