"""From impressions in memory, and from counts of the parts of a log, to counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data.categories import differ
from fultr.data.counts import Cells, Counts, check_sum
from fultr.data.dataset import NOT_COLUMNS, RankingDataset, rows_of
from fultr.data.dataset import concatenate as join_lists
from fultr.data.grouping import first_equals, group_rows, inverse, mixed, run_numbers
from fultr.data.ids import UNKNOWN_GROUP, IdCodes, Ids, codes_of, text_series
from fultr.data.propensity import NOT_SHOWN
from fultr.data.tally import (
    Columns,
    ImpressionFacts,
    Integers,
    PlantedRows,
    Rows,
    RunningTally,
    Tally,
    candidate_starts,
    count_rows,
    merge_tallies,
    repeated_lists,
)
from fultr.errors import InputError

if TYPE_CHECKING:
    from fultr.data.click_log import ClickLog

ENTRIES_A_BLOCK = 1 << 20
"""Entries of a log that are counted together: about 50 MB of them."""

MODEL = ("position_bias", "noise", "empties_dropped")
"""What counts take over from a log, and must have in common to be merged; and the column of the context."""

ID_FIELDS = ("query_id", "doc_id")
"""What names an item: a document of a query."""


def count_impressions(log: ClickLog) -> Counts:
    """Count the impressions of a log in blocks, so that a long log takes little more memory."""
    queries, documents = IdCodes(), IdCodes()
    of_lists, of_rows = id_codes_of(log.data, queries, documents)
    tally = RunningTally()
    cuts = np.searchsorted(log.offsets, np.arange(ENTRIES_A_BLOCK, log.entries, ENTRIES_A_BLOCK))
    for start, stop in pairwise(np.unique([0, *cuts.tolist(), len(log)]).tolist()):
        tally.add(count_rows(_rows(log, start, stop, of_lists, of_rows, queries, documents)))
    counted = tally.result() or count_rows(_rows(log, 0, 0, of_lists, of_rows, queries, documents))
    items = item_table(log.data, of_lists, of_rows)
    fields = {name: getattr(log, name) for name in (*MODEL, "origin")}
    dataset = dataset_fields(log.data)
    counts, _ = counts_in_order(counted, queries, documents, items, dataset=dataset, **fields)
    return without_ids(counts, [name for name in ID_FIELDS if getattr(log.data, name) is None])


def id_codes_of(
    data: RankingDataset, queries: IdCodes, documents: IdCodes
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return codes for the query of each list and the document of each row; what has no ids is numbered."""

    def encoded(ids: Ids | None, size: int, codes: IdCodes) -> NDArray[np.int64]:
        ids = np.arange(size) if ids is None else ids
        return codes.encode(text_series(ids) if ids.dtype.kind == "T" else ids)

    return encoded(data.query_id, len(data), queries), encoded(data.doc_id, data.rows, documents)


def item_table(data: RankingDataset, of_lists: NDArray[np.int64], of_rows: NDArray[np.int64]) -> ItemTable:
    """Return each document of each query once; different features or groups of one are an error."""
    query = np.repeat(of_lists, data.lengths)
    same = first_equals(query, of_rows)
    first, repeated = np.unique(same), np.flatnonzero(same != np.arange(same.size))
    differs = differ(data.features[repeated], data.features[same[repeated]]).any(axis=1)
    differs |= data.group[repeated] != data.group[same[repeated]]
    if differs.any():
        row = int(repeated[np.argmax(differs)])
        problem = f"the document has other features or another group in row {same[row] + 1} of its query"
        value = None if data.doc_id is None else data.doc_id[row]
        raise InputError(problem, row=row + 1, column="doc_id", value=value)
    return ItemTable(query[first], of_rows[first], data.group[first].astype(np.int64), data.features[first])


def dataset_fields(data: RankingDataset) -> dict[str, Any]:
    """Return the fields of a dataset that are no columns."""
    return {name: getattr(data, name) for name in NOT_COLUMNS}


def without_ids(counts: Counts, invented: Sequence[str]) -> Counts:
    """Return counts without the ids that were made up to count them or to write them."""
    changed: dict[str, Any] = {name: None for name in ID_FIELDS if name in invented}
    return replace(counts, data=replace(counts.data, **changed)) if changed else counts


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
    planted_propensity = np.empty(0) if planted.propensity is None else planted.propensity
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
            None if log.propensity is None else planted_propensity[chosen],
        ),
        propensity=None if log.propensity is None else log.propensity[entries],
        time=None if log.timestamp is None else log.timestamp[start:stop].view(np.int64),
    )


def merge(*parts: Counts) -> Counts:
    """Merge counts of different impressions: the result is that of counting all of them at once.

    Ids that are text in one part and integers in another are text in the result. Counts of the same file, and
    counts with different click models, are refused.

    Examples
    --------
    >>> from fultr import count
    >>> monday = count({"impression_id": [1, 1], "query_id": ["jobs"] * 2, "doc_id": [7, 8],
    ...                 "position": [1, 2], "click": [0, 1]})
    >>> tuesday = count({"impression_id": [1, 1], "query_id": ["jobs"] * 2, "doc_id": [7, 8],
    ...                  "position": [2, 1], "click": [0, 1]})
    >>> merge(monday, tuesday)
    <Counts: 2 impressions of 1 lists, 4 cells>
    """
    if not parts:
        raise InputError("there are no counts to merge")
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for number, part in enumerate(parts, start=1):
        for name in ID_FIELDS:
            if getattr(part.data, name) is None:
                problem = f"counts {number} have no such ids, without which equal lists cannot be found"
                raise InputError(problem, column=name)
        for name in (*MODEL, "context_name"):
            if getattr(part, name) != getattr(first, name):
                problem = f"must be the same in counts that are merged; counts {number} differ from counts 1"
                raise InputError(problem, column=name, value=getattr(part, name))
        if (part.cells.propensity is None) != (first.cells.propensity is None):
            problem = f"propensities must be in all counts or in none; see counts 1 and {number}"
            raise InputError(problem, column="propensity")
    check_sum(*parts)
    files = [file for part in parts for file in part.files]
    seen: dict[str, str] = {}
    for file in files:
        check_new_file(seen, file.name, file.name, file.sha256)
    queries, documents = IdCodes(), IdCodes()
    contexts = sorted({value for part in parts for value in part.context_values})
    lists = join_lists(part.data for part in parts)
    of_lists, of_rows = id_codes_of(lists, queries, documents)
    tallies, list_start, row_start = [], 0, 0
    for part in parts:
        own_lists = slice(list_start, list_start + len(part.data))
        own_rows = slice(row_start, row_start + part.data.rows)
        tallies.append(_tally(part, of_lists[own_lists], of_rows[own_rows], documents, contexts))
        list_start, row_start = own_lists.stop, own_rows.stop
    merged, _ = counts_in_order(
        merge_tallies(tallies),
        queries,
        documents,
        item_table(lists, of_lists, of_rows),
        dataset=dataset_fields(lists),
        context_values=contexts,
        **{name: getattr(first, name) for name in (*MODEL, "context_name")},
        origin=first.origin if all(part.origin == first.origin for part in parts) else {},
        files=tuple(sorted(files)),
    )
    return merged if all(part.facts is not None for part in parts) else replace(merged, facts=None)


def check_new_file(seen: dict[str, str], file: str | Path, name: str, sha256: str) -> None:
    """Refuse a file whose content was seen already, by its digest; add it to those seen."""
    if sha256 in seen:
        problem = f"holds the same as {seen[sha256]}: its impressions would be counted twice"
        raise InputError(problem, file=file)
    seen[sha256] = name


def merge_contexts(counts: Counts) -> Counts:
    """Return counts in which impressions of the same candidates are one list, whatever their context.

    Propensities say what the context did. So an item that a phone has no room for was still shown elsewhere.
    """
    if counts.context is None or counts.data.query_id is None or counts.data.doc_id is None:
        return counts
    nothing: dict[str, Any] = {"context": None, "context_name": "", "context_values": (), "files": ()}
    by_context = [replace(counts.of_context(value), **nothing) for value in counts.context_values]
    no_planted = counts.planted[np.zeros(counts.planted.row.size, dtype=np.bool_)]
    first, *others = (counts_of_value for counts_of_value in by_context if len(counts_of_value.data))
    merged = merge(first, *(replace(counts_of_value, planted=no_planted) for counts_of_value in others))
    return replace(merged, files=counts.files, facts=counts.facts)


def _tally(
    counts: Counts,
    of_lists: NDArray[np.int64],
    of_rows: NDArray[np.int64],
    documents: IdCodes,
    contexts: Sequence[str],
) -> Tally:
    """Return counts with ids as codes."""
    data, cells = counts.data, counts.cells
    context = np.zeros(len(data), dtype=np.int64)
    if counts.context is not None:
        context = np.array([contexts.index(value) for value in counts.context_values])[counts.context]
    hidden = np.repeat(counts.impressions, data.lengths) - counts.shown().astype(np.int64)
    rows = np.flatnonzero(hidden)
    row = np.concatenate([cells.row, rows])
    nothing = np.zeros(rows.size, dtype=np.int64)
    table: Columns = {
        "list": data.list_of_row[row],
        "document": of_rows[row],
        "position": np.concatenate([cells.position, np.full(rows.size, NOT_SHOWN, dtype=np.int32)]),
    }
    planted: Columns = {"position": counts.planted.position}
    if cells.propensity is not None:
        table["propensity"] = np.concatenate([cells.propensity, np.full(rows.size, float(NOT_SHOWN))])
    if counts.planted.propensity is not None:
        planted["propensity"] = counts.planted.propensity
    table["impressions"] = np.concatenate([cells.impressions, hidden[rows]])
    table["clicks"] = np.concatenate([cells.clicks, nothing])
    lists = {
        "query": of_lists,
        "context": context,
        "length": data.lengths,
        "key": np.add.reduceat(documents.hashes(of_rows), data.offsets[:-1]),
        "impressions": counts.impressions,
        "clicked": counts.clicked_impressions,
    }
    planted |= {"impressions": counts.planted.impressions, "clicks": counts.planted.clicks}
    return Tally(lists, table, planted, {}, counts.facts or ImpressionFacts())


class ItemTable(NamedTuple):
    """What is known of items, a document of a query each, at most once; ids are codes.

    `group` is -1 where it is unknown.
    """

    query: Integers
    document: Integers
    group: Integers
    features: NDArray[np.float32]

    @classmethod
    def of(cls, columns: Columns) -> ItemTable:
        """Return a table of columns, of which groups or features may be missing."""
        size = columns["query"].size
        return cls(
            columns["query"],
            columns["document"],
            columns.get("group", np.full(size, UNKNOWN_GROUP, dtype=np.int64)),
            columns.get("features", np.empty((size, 0), dtype=np.float32)),
        )

    def find(self, query: Integers, document: Integers) -> Integers:
        """Return where each of some items stands in the table; -1 if it does not."""
        # by sorting, not by a join of polars: a process that has used polars' threads cannot be forked
        size = self.query.size
        first = first_equals(np.concatenate([self.query, query]), np.concatenate([self.document, document]))[
            size:
        ]
        return np.where(first < size, first, -1)


def counts_in_order(
    tally: Tally,
    queries: IdCodes,
    documents: IdCodes,
    items: ItemTable,
    *,
    dataset: dict[str, Any],
    context_values: Sequence[str] = (),
    **fields: Any,
) -> tuple[Counts, Integers]:
    """Return counts in an order that depends on nothing but what was counted, and the old index of each list.

    `items` has the groups and features of all documents that were candidates, `dataset` the fields of the
    `RankingDataset` that are no columns, and `fields` the other fields of the result.
    """
    lists, cells = tally.lists, tally.cells
    if repeated_lists(lists, cells).size:
        raise RuntimeError("two lists of different documents have the same hash")
    starts = candidate_starts(cells)
    candidate_of_cell = run_numbers(starts, cells["list"].size)
    of_list, document = cells["list"][starts], cells["document"][starts]
    document_ids, document_index = _distinct_ids(document, documents)
    query_ids, query_index = _distinct_ids(lists["query"], queries)
    document_rank = codes_of(document_ids)[document_index]
    lengths = lists["length"]
    first = np.cumsum(lengths) - lengths
    key = np.add.reduceat(mixed(document_rank), first) if first.size else first
    context_rank, context_names = _sorted_context(lists["context"], context_values)
    by_id = np.lexsort((key, lengths, context_rank, codes_of(query_ids)[query_index]))
    row_order, _ = group_rows(inverse(by_id)[of_list], document_rank)
    item = items.find(lists["query"][of_list][row_order], document[row_order])
    data = RankingDataset(
        features=items.features[item],
        offsets=np.concatenate([[0], np.cumsum(lengths[by_id])]),
        group=items.group[item],
        query_id=query_ids[query_index[by_id]],
        doc_id=document_ids[document_index[row_order]],
        **dataset,
    )
    shown = cells["position"] != NOT_SHOWN
    counts = Counts(
        data=data,
        impressions=lists["impressions"][by_id],
        clicked_impressions=lists["clicked"][by_id],
        cells=_cells({**cells, "row": inverse(row_order)[candidate_of_cell]}, shown),
        planted=_cells({**tally.planted, "row": np.zeros(tally.planted["position"].size, np.int64)}),
        context=context_rank[by_id] if context_names else None,
        context_values=context_names,
        facts=tally.facts,
        **fields,
    )
    return counts, by_id


def _distinct_ids(codes: Integers, ids: IdCodes) -> tuple[Ids, Integers]:
    """Return the different ids that codes stand for, and which of them each code is."""
    different, index = np.unique(codes, return_inverse=True)
    return ids.ids(different), index.reshape(-1)


def _sorted_context(codes: Integers, values: Sequence[str]) -> tuple[Integers, tuple[str, ...]]:
    """Return codes of contexts that follow the order of their names, and these names."""
    names = sorted({values[code] for code in np.unique(codes).tolist()}) if values else []
    rank = np.array([names.index(value) if value in names else -1 for value in values], dtype=np.int64)
    return (rank[codes] if values else codes), tuple(names)


def _cells(table: Columns, selected: NDArray[np.bool_] | slice = slice(None)) -> Cells:
    table = {name: values[selected] for name, values in table.items()}
    order, _ = group_rows(*(table[name] for name in ("row", "position", "propensity") if name in table))
    columns: dict[str, Any] = {name: values[order] for name, values in table.items()}
    return Cells(
        columns["row"],
        columns["position"].astype(np.int32),
        columns.get("propensity"),
        columns["impressions"],
        columns["clicks"],
    )
