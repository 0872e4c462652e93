"""Merging counts: those of the parts of a log into those of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.data.count_impressions import dataset_fields, id_codes_of, item_table
from fultr.data.counts import Counts, counts_of
from fultr.data.dataset import RankingDataset
from fultr.data.dataset import concatenate as join_lists
from fultr.data.facts import ImpressionFacts
from fultr.data.id_codes import IdCodes
from fultr.data.ids import TEXT
from fultr.data.propensity import NOT_SHOWN
from fultr.data.tally import Columns, Tally, merge_tallies
from fultr.errors import InputError

SAME_IN_ALL = ("position_bias", "noise", "empties_dropped", "context_name")
"""What counts must have in common to be merged."""


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
        _check_ids(part, number)
        for name in SAME_IN_ALL:
            if getattr(part, name) != getattr(first, name):
                problem = (
                    f"counts can be merged only if they have the same; part {number} has another than part 1"
                )
                raise InputError(problem, column=name, value=getattr(part, name))
        if (part.cells.propensity is None) != (first.cells.propensity is None):
            problem = f"propensities must be in all counts or in none; see parts 1 and {number}"
            raise InputError(problem, column="propensity")
    files = [file for part in parts for file in part.files]
    _check_files([file.name for file in files], [file.sha256 for file in files])
    queries, documents = IdCodes(), IdCodes()
    data = _one_kind([part.data for part in parts])
    contexts = sorted({value for part in parts for value in part.context_values})
    lists = join_lists(data)
    of_lists, of_rows = id_codes_of(lists, queries, documents)
    tallies, list_start, row_start = [], 0, 0
    for part in parts:
        own_lists = slice(list_start, list_start + len(part.data))
        own_rows = slice(row_start, row_start + part.data.rows)
        tallies.append(_tally(part, of_lists[own_lists], of_rows[own_rows], documents, contexts))
        list_start, row_start = own_lists.stop, own_rows.stop
    merged = counts_of(
        merge_tallies(tallies),
        queries,
        documents,
        item_table(lists, of_lists, of_rows),
        dataset=dataset_fields(lists),
        context_values=contexts,
        context_name=first.context_name,
        position_bias=first.position_bias,
        noise=first.noise,
        empties_dropped=first.empties_dropped,
        origin=first.origin if all(part.origin == first.origin for part in parts) else {},
        files=tuple(sorted(files)),
    )
    if all(part.facts is not None for part in parts):
        return merged
    return replace(merged, facts=None)


def _check_ids(part: Counts, number: int) -> None:
    for name, ids in (("query_id", part.data.query_id), ("doc_id", part.data.doc_id)):
        if ids is None:
            problem = f"part {number} has no such ids, so that it cannot be told which lists are the same"
            raise InputError(problem, column=name)


def _check_files(names: Sequence[str], digests: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name, digest in zip(names, digests, strict=True):
        if digest in seen:
            problem = f"holds the same as {seen[digest]}: its impressions would be counted twice"
            raise InputError(problem, file=name)
        seen[digest] = name


def _one_kind(parts: Sequence[RankingDataset]) -> list[RankingDataset]:
    """Return lists whose ids are text if those of any are, and whose groups have one order."""
    names = {part.group_names for part in parts}
    ordered = sorted({name for group_names in names for name in group_names})
    found = []
    for part in parts:
        changed: dict[str, Any] = {"comment": None, "relevance": None}
        for column in ("query_id", "doc_id"):
            if any(getattr(other, column).dtype.kind == "T" for other in parts):
                changed[column] = getattr(part, column).astype(TEXT)
        if len(names) > 1:
            code = np.array([*(ordered.index(name) for name in part.group_names), -1], dtype=np.int32)
            changed |= {"group": code[part.group], "group_names": tuple(ordered)}
        found.append(replace(part, **changed))
    return found


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
