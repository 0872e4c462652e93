"""Reading single impressions, for what needs them; everything linear in clicks needs counts only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.click_model import ClickNoise, PositionBias
from fultr.data.click_log import ClickLog, Planted
from fultr.data.grouping import group_numbers, group_rows
from fultr.data.ids import codes_of
from fultr.data.tally import Columns, Rows
from fultr.logs.items import OnConflict
from fultr.logs.opening import LogOptions, OpenedLog
from fultr.logs.rows import Check


def read_log(
    source: Any,
    *,
    items: Any = None,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    group_names: Sequence[str] | None = None,
    on_conflict: OnConflict = "error",
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    empties_dropped: bool = False,
    progress: Progress | None = None,
) -> ClickLog:
    """Read the single impressions of a click log from a long table; its rows may come in any order.

    Lists come in the order of their query ids, and their candidates in that of their document ids.
    `fultr.count` reads the same tables as counts, which is all that training, evaluation and audits need.
    Parameters are those of `fultr.count`.
    """
    options = LogOptions(
        items,
        columns,
        features,
        group_names,
        on_conflict,
        None,
        position_bias,
        noise,
        empties_dropped,
        progress,
    )
    return read_impressions(source, options)[0]


def log_from_frame(
    frame: Any,
    *,
    items: Any = None,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    group_names: Sequence[str] | None = None,
    on_conflict: OnConflict = "error",
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    empties_dropped: bool = False,
) -> ClickLog:
    """Make a click log of a pandas, polars or Arrow frame, or a mapping of columns, as `read_log` does.

    Examples
    --------
    >>> log = log_from_frame({"impression_id": [1, 1], "query_id": ["jobs", "jobs"], "doc_id": [7, 8],
    ...                       "position": [1, 2], "click": [0, 1], "group": ["a", "b"]})
    >>> log
    <ClickLog: 1 impressions of 1 lists, 1 clicks>
    """
    options = LogOptions(
        items, columns, features, group_names, on_conflict, None, position_bias, noise, empties_dropped
    )
    return read_impressions(frame, options)[0]


def read_impressions(
    source: Any, options: LogOptions, of_impressions: Mapping[str, tuple[str, Check]] | None = None
) -> tuple[ClickLog, dict[str, NDArray[Any]]]:
    """Read single impressions, and further columns that have one value for each of them.

    Parameters
    ----------
    source, options
        As for `OpenedLog`.
    of_impressions
        By what name to return a column, which one it is, and how to check it.
    """
    log = OpenedLog(source, options, of_impressions=of_impressions, keep_impressions=True)
    kept: list[tuple[Columns, Rows]] = []
    tally = log.tally(kept)
    counts, order_of_lists = log.counts(tally)
    rows = [one for _, one in kept]
    number_of_list = np.empty_like(order_of_lists)
    number_of_list[order_of_lists] = np.arange(order_of_lists.size)

    lengths = np.concatenate([one.lengths for one in rows])
    key = np.concatenate([np.add.reduceat(one.document_hash, one.starts) for one in rows])
    query = np.concatenate([one.query for one in rows])
    # groups come in the order of the lists of the tally, which were grouped by the same columns
    lists = number_of_list[group_numbers(*group_rows(query, lengths, key))]
    of_blocks = [_firsts(block) for block, _ in kept]
    firsts = {name: np.concatenate([first[name] for first in of_blocks]) for name in of_blocks[0]}
    by_row = np.argsort(firsts["row"])
    place = np.empty_like(by_row)
    place[by_row] = np.arange(by_row.size)

    document = np.concatenate([one.document for one in rows])
    different, index = np.unique(document, return_inverse=True)
    rank = codes_of(log.reader.documents.ids(different))[index.reshape(-1)]
    order, _ = group_rows(np.repeat(place, lengths), rank)
    ends = np.cumsum([0, *(one.starts.size for one in rows)])
    planted = [one.planted for one in rows]
    has_propensity = rows[0].propensity is not None
    data, invented = counts.data, log.about.invented
    data = replace(
        data,
        query_id=None if "query_id" in invented else data.query_id,
        doc_id=None if "doc_id" in invented else data.doc_id,
    )
    impression_id = log.reader.impressions.ids(firsts["impression"][by_row])
    time_type = log.reader.time_type
    time = None if time_type is None else firsts["time"][by_row].view(time_type)
    found = ClickLog(
        data,
        lists[by_row],
        np.concatenate([one.position for one in rows])[order],
        np.concatenate([one.click for one in rows])[order],
        propensity=np.concatenate([_known(one.propensity) for one in rows])[order]
        if has_propensity
        else None,
        planted=Planted(
            place[np.concatenate([one.impression + ends[number] for number, one in enumerate(planted)])],
            np.concatenate([one.position for one in planted]),
            np.concatenate([one.click for one in planted]),
            np.concatenate([_known(one.propensity) for one in planted]) if has_propensity else None,
        ),
        impression_id=None if "impression_id" in invented else impression_id,
        timestamp=time,
        position_bias=counts.position_bias,
        noise=counts.noise,
        empties_dropped=counts.empties_dropped,
        origin=counts.origin,
    )
    return found, {name: firsts[name][by_row] for name in of_impressions or {}}


def _firsts(block: Columns) -> Columns:
    """Return the first row of each impression of a block; features take memory, and are not asked for."""
    starts = np.flatnonzero(np.diff(block["impression"], prepend=~block["impression"][:1]) != 0)
    return {name: values[starts] for name, values in block.items() if name != "features"}


def _known(values: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert values is not None  # noqa: S101 - all blocks of a log have propensities, or none
    return values
