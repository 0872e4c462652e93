"""All pairs of positions at which the same documents were seen, and the curve that fits them all.

For documents seen N_k times at position k and N_l times at position l, with C_k and C_l clicks,

    W_kl = sum (N_l / (N_k + N_l)) C_k   and   W_lk = sum (N_k / (N_k + N_l)) C_l

are clicks weighted by the inverse of how often the document was put there, times what makes a document count
by how much it can tell. Whatever the documents' relevance, E[W_kl] / E[W_lk] = v_k / v_l.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fultr.clicks.bias_cells import ItemCells
from fultr.clicks.bias_resampling import LEAST_LOG, Blocks
from fultr.compiled import compiled

Array = NDArray[np.float64]

MOST_STEPS = 100
LONGEST_STEP = 2.0
"""How far Newton's method may move a logarithm at a time."""

SMALLEST_STEP = 1e-10
RIDGE = 1e-10
"""Keeps positions without a click in a resample from making the equations singular."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """What the pairs of positions say.

    Parameters
    ----------
    weights
        (blocks, positions, positions) W_kl, summed over the documents of each block of queries.
    documents
        (positions, positions) How many documents compare two positions.
    used
        For each cell, whether its document was compared with itself elsewhere.
    """

    weights: Array
    documents: NDArray[np.int64]
    used: NDArray[np.bool_]


def pairs_of(cells: ItemCells, blocks: Blocks, positions: int, *, between_rankers: bool) -> Pairs:
    """Sum up over documents; with `between_rankers`, only what two different rankers did is compared."""
    weights = np.zeros((blocks.count, positions, positions))
    documents = np.zeros((positions, positions), dtype=np.int64)
    used = np.zeros(cells.item.size, dtype=np.bool_)
    _add_pairs(
        np.concatenate([np.flatnonzero(np.diff(cells.item, prepend=-1)), [cells.item.size]]),
        cells.position,
        cells.impressions,
        cells.clicks,
        cells.ranker,
        blocks.of_query,
        between_rankers,
        weights,
        documents,
        used,
    )
    return Pairs(weights, documents, used)


@compiled
def _add_pairs(
    starts: Any,
    position: Any,
    impressions: Any,
    clicks: Any,
    ranker: Any,
    block: Any,
    between_rankers: bool,
    weights: Any,
    documents: Any,
    used: Any,
) -> None:
    for item in range(starts.size - 1):
        for one in range(starts[item], starts[item + 1]):
            for other in range(one + 1, starts[item + 1]):
                if between_rankers and ranker[one] >= 0 and ranker[one] == ranker[other]:
                    continue
                here, there = position[one], position[other]
                both = impressions[one] + impressions[other]
                weights[block[item], here, there] += clicks[one] * impressions[other] / both
                weights[block[item], there, here] += clicks[other] * impressions[one] / both
                documents[here, there] += 1
                documents[there, here] += 1
                used[one] = used[other] = True


def linked_to_first(links: NDArray[np.bool_], enough: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the positions with enough clicks that pairs of such positions lead to from the first and back.

    `links[k, l]` says whether k was clicked in comparison with l.
    """
    candidates = np.flatnonzero(enough)
    if not candidates.size or candidates[0] != 0:
        return np.empty(0, dtype=np.int64)
    _, part = connected_components(links[np.ix_(candidates, candidates)].astype(np.int8), connection="strong")
    return np.asarray(candidates[part == part[0]])


def fitted_logs(weights: Array) -> Array:
    """Return log v_k - log v_1 that fit all pairs best, for each table W of (..., positions, positions).

    They maximise sum_{k, l} W_kl log(v_k / (v_k + v_l)): of the clicks at the two positions of a pair, whose
    documents are the same, those at k are expected to be v_k / (v_k + v_l).
    """
    tables = weights.reshape(-1, *weights.shape[-2:])
    both = tables + tables.transpose(0, 2, 1)
    logs = np.zeros(tables.shape[:2])
    free = np.arange(1, tables.shape[1])
    for _ in range(MOST_STEPS):
        slope, curvature = _derivatives(tables, both, logs)
        curvature[:, free, free] += RIDGE
        step = np.linalg.solve(curvature[:, 1:, 1:], slope[:, 1:, None])[:, :, 0]
        moved = np.clip(logs[:, 1:] + np.clip(step, -LONGEST_STEP, LONGEST_STEP), LEAST_LOG, -LEAST_LOG)
        change = float(np.abs(moved - logs[:, 1:]).max(initial=0.0))
        logs[:, 1:] = moved
        if change < SMALLEST_STEP:
            break
    return logs.reshape(weights.shape[:-1])


def _derivatives(tables: Array, both: Array, logs: Array) -> tuple[Array, Array]:
    share = _share_of_first(logs)
    slope = np.sum(tables - both * share, axis=2)
    spread = both * share * (1 - share)
    curvature = -spread
    places = np.arange(tables.shape[1])
    curvature[:, places, places] += spread.sum(axis=2)
    return slope, curvature


def _share_of_first(logs: Array) -> Array:
    """Return v_k / (v_k + v_l) for all pairs."""
    return np.asarray(1 / (1 + np.exp(logs[..., None, :] - logs[..., :, None])))


def pair_residuals(weights: Array, logs: Array) -> Array:
    """Return W_kl minus what the curve expects of it, for pairs k < l, (..., pairs)."""
    both = weights + np.swapaxes(weights, -1, -2)
    apart = weights - both * _share_of_first(logs)
    upper = np.triu_indices(weights.shape[-1], k=1)
    return np.asarray(apart[..., *upper])
