"""All pairs of positions at which the same documents were seen, and the curve that fits them all.

For documents seen N_k times at position k and N_l times at position l, with C_k and C_l clicks,

    W_kl = sum h C_k / N_k,   W_lk = sum h C_l / N_l,   H_kl = sum h   with   h = N_k N_l / (N_k + N_l)

are clicks weighted by the inverse of how often the document was put there, and what they would be if all were
clicked. The factor h makes a document count by how much it can tell. With r_kl the documents' mean relevance,
E[W_kl] = v_k r_kl H_kl and E[W_lk] = v_l r_kl H_kl: the documents are the same, and so is their relevance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fultr.clicks.bias_cells import SEVERAL_RANKERS, ItemCells
from fultr.clicks.bias_resampling import LEAST_LOG, Blocks

Array = NDArray[np.float64]

MOST_STEPS = 100
LONGEST_STEP = 2.0
"""How far a logarithm may move at a time."""

SMALLEST_STEP = 1e-10
RIDGE = 1e-10
"""Keeps positions without a click in a resample from making the equations singular."""

ALL_CLICKED = 1e-6
"""The part of impressions that is taken for unclicked where none was."""

TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Pairs:
    """What the pairs of positions say.

    Parameters
    ----------
    tables
        (blocks, 2, positions, positions) W_kl and H_kl, summed over the documents of each block of queries.
    documents
        (positions, positions) How many documents compare two positions.
    used
        For each cell, whether its document was compared with itself elsewhere.
    """

    tables: Array
    documents: NDArray[np.int64]
    used: NDArray[np.bool_]

    def tables_of(self, positions: NDArray[np.int64]) -> Array:
        """Return the tables of some positions only."""
        return self.tables[:, :, positions[:, None], positions]


def pairs_of(cells: ItemCells, blocks: Blocks, positions: int, *, between_rankers: bool) -> Pairs:
    """Sum up over documents; with `between_rankers`, only what two different rankers did is compared."""
    shape = (positions, positions)
    clicked, compared = np.zeros((2, blocks.count * positions**2))
    documents = np.zeros(positions**2, dtype=np.int64)
    used = np.zeros(cells.item.size, dtype=np.bool_)
    shown = cells.impressions.astype(np.float64)
    for apart in range(1, cells.item.size):
        # the cells of an item stand together, so that all its pairs come up as cells so far apart
        one = np.flatnonzero(cells.item[apart:] == cells.item[:-apart])
        if not one.size:
            break
        if between_rankers:
            known = cells.ranker[one] != SEVERAL_RANKERS
            one = one[~known | (cells.ranker[one] != cells.ranker[one + apart])]
        other = one + apart
        used[one] = used[other] = True
        tells = shown[one] * shown[other] / (shown[one] + shown[other])
        block = blocks.of_query[cells.item[one]]
        for here, there in ((one, other), (other, one)):
            pair = cells.position[here] * positions + cells.position[there]
            np.add.at(clicked, block * positions**2 + pair, tells * cells.clicks[here] / shown[here])
            np.add.at(compared, block * positions**2 + pair, tells)
            np.add.at(documents, pair, 1)
    tables = np.stack([sums.reshape(blocks.count, *shape) for sums in (clicked, compared)], axis=1)
    return Pairs(tables, documents.reshape(shape), used)


def linked_to_first(links: NDArray[np.bool_], enough: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the positions with enough clicks that pairs of such positions lead to from the first and back.

    `links[k, l]` says whether k was clicked in comparison with l.
    """
    candidates = np.flatnonzero(enough)
    if not candidates.size or candidates[0] != 0:
        return np.empty(0, dtype=np.int64)
    _, component = connected_components(
        links[np.ix_(candidates, candidates)].astype(np.int8), connection="strong"
    )
    return np.asarray(candidates[component == component[0]])


def fitted_logs(tables: Array) -> Array:
    """Return log v_k - log v_1 that fit all pairs best, for each W and H of (..., 2, positions, positions).

    The all-pairs objective of Agarwal et al. (WSDM 2019): v and the relevances r_kl = r_lk maximise

        sum_{k != l}  W_kl log(v_k r_kl) + (H_kl - W_kl) log(1 - v_k r_kl).

    It is concave in the logarithms. Those of v are found by scoring, Newton's method with the curvature that
    is expected, and the best r_kl for them put in.
    """
    logs = np.zeros((math.prod(tables.shape[:-3]), tables.shape[-1]))
    clicks, shown = _clicks_and_shown(tables.reshape(-1, *tables.shape[-3:]))
    free = np.arange(1, logs.shape[1])
    for _ in range(MOST_STEPS):
        slope, curvature = _derivatives(clicks, shown, logs)
        curvature[:, free, free] += RIDGE
        step = np.linalg.solve(curvature[:, 1:, 1:], slope[:, 1:, None])[:, :, 0]
        moved = np.clip(logs[:, 1:] + np.clip(step, -LONGEST_STEP, LONGEST_STEP), LEAST_LOG, -LEAST_LOG)
        change = float(np.abs(moved - logs[:, 1:]).max(initial=0.0))
        logs[:, 1:] = moved
        if change < SMALLEST_STEP:
            break
    return logs.reshape(*tables.shape[:-3], tables.shape[-1])


def _clicks_and_shown(tables: Array) -> tuple[Array, Array]:
    """Return W and H; where all was clicked, H is a little larger, so that no probability is quite 1."""
    clicks, shown = tables[..., 0, :, :], tables[..., 1, :, :]
    return clicks, np.maximum(shown, np.maximum(clicks, np.swapaxes(clicks, -1, -2)) * (1 + ALL_CLICKED))


def _derivatives(clicks: Array, shown: Array, logs: Array) -> tuple[Array, Array]:
    """Return the slope of the objective in log v, and minus its expected curvature, the best r_kl put in.

    As r_kl follows v, a pair tells only of the ratio of v_k and v_l, and i_k i_l / (i_k + i_l) of that, with
    i_k = H q / (1 - q) and q = v_k r_kl. Expected since the curvature itself, (H - W_kl) q / (1 - q)^2, all
    but vanishes where nearly all is clicked, and steps by it miss the top.
    """
    rate = _click_rates(clicks, shown, logs)
    slope = np.sum((clicks - shown * rate) / (1 - rate), axis=2)
    own = shown * rate / (1 - rate)
    other = np.swapaxes(own, -1, -2)
    spread = own * other / np.maximum(own + other, TINY)
    curvature = -spread
    places = np.arange(logs.shape[1])
    curvature[:, places, places] += spread.sum(axis=2)
    return slope, curvature


def _click_rates(clicks: Array, shown: Array, logs: Array) -> Array:
    """Return v_k r_kl of all pairs, with the r_kl that is best for the given v.

    Where the derivative by r is 0 is the smaller root of
    2 H v_k v_l r^2 - (W_kl v_l + W_lk v_k + H (v_k + v_l)) r + W_kl + W_lk.
    """
    v = np.exp(logs)
    own, other = v[..., :, None], v[..., None, :]
    clicks_there = np.swapaxes(clicks, -1, -2)
    total = clicks + clicks_there
    half = (clicks * other + clicks_there * own + shown * (own + other)) / 2
    under_root = np.maximum(half**2 - 2 * shown * own * other * total, 0.0)
    return np.asarray(own * total / np.maximum(half + np.sqrt(under_root), TINY))


def pair_residuals(tables: Array, logs: Array) -> Array:
    """Return W_kl minus what the curve expects of it, for pairs k < l, (..., pairs)."""
    clicks, shown = _clicks_and_shown(tables)
    apart = clicks - shown * _click_rates(clicks, shown, logs)
    upper = np.triu_indices(tables.shape[-1], k=1)
    return np.asarray(apart[..., *upper])
