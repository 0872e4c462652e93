"""Counting the impressions of a click log in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.data.counts import Counts, ItemTable, counts_of
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.grouping import group_rows
from fultr.data.id_codes import IdCodes
from fultr.data.ids import Ids, text_series
from fultr.data.tally import PlantedRows, Rows, RunningTally, count_rows
from fultr.errors import InputError

if TYPE_CHECKING:
    from fultr.data.click_log import ClickLog

ENTRIES_A_BLOCK = 1 << 20
"""Entries of a log that are counted together: about 50 MB of them."""


def count_impressions(log: ClickLog) -> Counts:
    """Count the impressions of a log, some of them at a time, so that a long log takes little more memory."""
    queries, documents = IdCodes(), IdCodes()
    of_lists, of_rows = id_codes_of(log.data, queries, documents)
    tally = RunningTally()
    cuts = np.searchsorted(log.offsets, np.arange(ENTRIES_A_BLOCK, log.entries, ENTRIES_A_BLOCK))
    for start, stop in pairwise(np.unique([0, *cuts.tolist(), len(log)]).tolist()):
        tally.add(count_rows(_rows(log, start, stop, of_lists, of_rows, queries, documents)))
    counted = tally.result()
    fields: dict[str, Any] = {
        "position_bias": log.position_bias,
        "noise": log.noise,
        "empties_dropped": log.empties_dropped,
        "origin": log.origin,
    }
    if counted is None:
        nothing = _rows(log, 0, 0, of_lists, of_rows, queries, documents)
        counted = count_rows(nothing)
    items = item_table(log.data, of_lists, of_rows)
    counts = counts_of(counted, queries, documents, items, dataset=dataset_fields(log.data), **fields)
    return without_ids(counts, log.data.query_id is None, log.data.doc_id is None)


def id_codes_of(
    data: RankingDataset, queries: IdCodes, documents: IdCodes
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return codes for the query of each list and the document of each row; what has no ids is numbered."""
    query = np.arange(len(data)) if data.query_id is None else data.query_id
    document = np.arange(data.rows) if data.doc_id is None else data.doc_id
    return queries.encode(_encodable(query)), documents.encode(_encodable(document))


def _encodable(ids: Ids) -> Any:
    return text_series(ids) if ids.dtype.kind == "T" else ids


def item_table(data: RankingDataset, of_lists: NDArray[np.int64], of_rows: NDArray[np.int64]) -> ItemTable:
    """Return each document of each query once; different features or groups of one are an error."""
    query = np.repeat(of_lists, data.lengths)
    order, starts = group_rows(query, of_rows)
    first = order[starts]
    is_again = np.ones(order.size, dtype=np.bool_)
    is_again[starts] = False
    again = order[is_again]
    same = np.repeat(first, np.diff(np.append(starts, order.size)))[is_again]
    differs = (data.features[again] != data.features[same]).any(axis=1)
    differs |= data.group[again] != data.group[same]
    if differs.any():
        row, other = min(zip(again[differs].tolist(), same[differs].tolist(), strict=True))
        problem = f"the document has other features or another group in row {other + 1} of its query"
        value = None if data.doc_id is None else data.doc_id[row]
        raise InputError(problem, row=row + 1, column="doc_id", value=value)
    return ItemTable(query[first], of_rows[first], data.group[first].astype(np.int64), data.features[first])


def dataset_fields(data: RankingDataset) -> dict[str, Any]:
    """Return the fields of a dataset that are no columns."""
    return {
        "group_names": data.group_names,
        "feature_names": data.feature_names,
        "group_columns": data.group_columns,
        "source": data.source,
    }


def without_ids(counts: Counts, no_queries: bool, no_documents: bool) -> Counts:
    """Return counts without the ids that were made up to count them."""
    data = replace(
        counts.data,
        query_id=None if no_queries else counts.data.query_id,
        doc_id=None if no_documents else counts.data.doc_id,
    )
    return replace(counts, data=data)


def _rows(
    log: ClickLog,
    start: int,
    stop: int,
    of_lists: NDArray[np.int64],
    of_rows: NDArray[np.int64],
    queries: IdCodes,
    documents: IdCodes,
) -> Rows:
    entries = slice(int(log.offsets[start]), int(log.offsets[stop]))
    lists, planted = log.lists[start:stop], log.planted
    chosen = np.flatnonzero((planted.impression >= start) & (planted.impression < stop))
    known = np.empty(0) if planted.propensity is None else planted.propensity
    document = of_rows[rows_of(log.data.offsets, lists)]
    query = of_lists[lists]
    return Rows(
        starts=log.offsets[start:stop] - log.offsets[start],
        impression=np.repeat(np.arange(stop - start), log.data.lengths[lists]),
        query=query,
        query_hash=queries.hashes(query),
        document=document,
        document_hash=documents.hashes(document),
        position=log.position[entries],
        click=log.click[entries],
        planted=PlantedRows(
            planted.impression[chosen] - start,
            planted.position[chosen],
            planted.click[chosen],
            None if log.propensity is None else known[chosen],
        ),
        propensity=None if log.propensity is None else log.propensity[entries],
        time=None if log.timestamp is None else log.timestamp[start:stop].view(np.int64),
    )
