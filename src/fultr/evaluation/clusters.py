"""What depends on what in a log: lists of a query, and lists that share documents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data import RankingDataset
from fultr.data.ids import codes_of

LARGEST_CLUSTER = 0.25
"""Share of the rows that lists connected by shared documents may have: with more, too few are independent."""

MORE_ALIKE = 0.1
"""Rows of one document id in two queries are rows of one document if their features are equal more often than
those of any two rows, by this share of what chance leaves. Otherwise ids tell apart the candidates of one
query only, as 1, 2, 3 do."""

PAIRS_COMPARED = 10_000
"""Pairs of rows whose features are compared to find that out."""


class Clusters(NamedTuple):
    """Lists and rows that are not independent of each other.

    Parameters
    ----------
    of_list
        A code for each list: lists of one query, or queries connected by documents that they share, have one.
    of_row
        The document of each row, where documents are shared by so many queries that nearly all are
        connected; otherwise None.
    """

    of_list: NDArray[np.int64]
    of_row: NDArray[np.int64] | None = None


def clusters_of(data: RankingDataset) -> Clusters:
    """Find what is dependent: lists of a query, and lists that share documents with them."""
    queries = data.query_codes
    if data.doc_id is None or not data.rows:
        return Clusters(queries)
    documents = codes_of(data.doc_id)
    if not _are_shared(data, documents):
        return Clusters(queries)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first_document = int(queries.max()) + 1
    nodes = first_document + int(documents.max()) + 1
    edges = (queries[data.list_of_row], first_document + documents)
    graph = coo_array((np.ones(data.rows, dtype=np.int8), edges), shape=(nodes, nodes))
    component = connected_components(graph, directed=False)[1].astype(np.int64)[queries]
    largest = np.bincount(component, weights=data.lengths).max()
    return Clusters(component) if largest <= LARGEST_CLUSTER * data.rows else Clusters(queries, documents)


def _are_shared(data: RankingDataset, documents: NDArray[np.int64]) -> bool:
    """Say whether queries share documents: rows of equal ids, of different queries, with features alike."""
    order = np.argsort(documents, kind="stable")
    query = data.query_codes[data.list_of_row][order]
    again = (documents[order][1:] == documents[order][:-1]) & (query[1:] != query[:-1])
    second = np.flatnonzero(again) + 1
    if not second.size or not data.features.shape[1]:
        return bool(second.size)  # without features, ids are taken for what they seem to be
    rng = np.random.default_rng(0)
    second = rng.choice(second, min(second.size, PAIRS_COMPARED), replace=False)
    ours, theirs = data.features[order[second - 1]], order[second]
    alike = float((ours == data.features[theirs]).mean())
    by_chance = float((ours == data.features[rng.permutation(theirs)]).mean())
    return alike - by_chance > MORE_ALIKE * (1 - by_chance)
