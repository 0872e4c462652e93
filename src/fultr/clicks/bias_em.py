"""Position bias by regression-EM: examination and relevance estimated together, without an intervention."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import one_of
from fultr.clicks.bias_cells import ItemCells, deepest_position, item_cells
from fultr.clicks.bias_em_mixture import MixtureModel
from fultr.clicks.bias_em_regression import RegressionModel
from fultr.clicks.bias_em_steps import HiddenClickModel, climb, relative_logs
from fultr.clicks.bias_estimate import BiasEstimate
from fultr.clicks.bias_pairs import Pairs, linked_to_first, pair_residuals, pairs_of
from fultr.clicks.bias_resampling import (
    BiasOptions,
    Blocks,
    ResampledEvidence,
    Settings,
    blocks_of,
    check_usable,
    drawn_sums,
    settings_of,
)
from fultr.data import ClickLog, Counts
from fultr.errors import InputError

Whole = NDArray[np.int64]
Relevance = Literal["items", "features"]

NO_INTERVENTION = (
    "Regression-EM uses no intervention, even where there was one: it is right only if positions changed for"
    " reasons other than the relevance of a document at the time."
)
NOT_IDENTIFIED = (
    "no document was shown at two positions: examination cannot be told from relevance; vary the positions,"
    " or ask for relevance='features', whose assumptions then decide"
)
NOT_AT_REST = "EM did not come to rest, and the values may be off."
NOT_TESTED = (
    "No document was shown at two positions: examination and relevance are told apart by the form of the"
    " relevance model alone, and nothing in the log tests it."
)


def estimate_bias_em(
    log: ClickLog | Counts, *, relevance: Relevance = "items", **options: Unpack[BiasOptions]
) -> BiasEstimate:
    """Estimate examination and relevance together by expectation-maximisation (Wang et al., WSDM 2018).

    A document i at position k is clicked with probability v_k g_i; whether it was examined and whether it
    was found relevant are hidden. EM climbs the likelihood of both. The intervals draw queries anew and
    follow the fit to first order, without fitting again.

    Without documents that were seen at several positions, v and g are not identified: a log in which
    the first item is clicked most is explained by examination as well as by relevance. It is refused,
    unless relevance is a regression on features, whose form then decides.

    Parameters
    ----------
    log
        The log, empty impressions kept.
    relevance
        "items": each document of a query has its own, from a distribution that is estimated too; documents
        seen at one position only take no part. "features": a logistic regression on the features, for
        documents with few impressions; a wrong regression makes the curve wrong.
    **options
        See `BiasOptions`.
    """
    one_of(relevance, "relevance", "items", "features")
    settings = settings_of(dict(options))
    counts = log.compact()
    cells = item_cells(counts, settings.longest)
    impressions, clicks = cells.totals()
    blocks = blocks_of(cells.query, settings.rng)
    pairs = pairs_of(cells, blocks, impressions.size, between_rankers=False)
    by_item = relevance == "items"
    if by_item and impressions.size and impressions[0] and not pairs.used.any():
        raise InputError(NOT_IDENTIFIED)
    estimated = _known_positions(cells, pairs, settings, by_item=by_item)
    check_usable(impressions, estimated, settings, "on documents that take part")
    cells_used, block = _cells_used(cells, estimated, pairs.used if by_item else None, blocks)
    model: HiddenClickModel = MixtureModel(cells_used, estimated.size)
    if not by_item:
        counts.data.check_numeric("a regression on features")
        model = RegressionModel(cells_used, estimated.size, counts.data.features[cells_used.row])
    state, at_rest = climb(model)
    logs = relative_logs(state, estimated.size)
    tables = pairs.tables_of(estimated)
    influence = model.influence(state, block, blocks.count)
    both = np.concatenate([influence, tables.reshape(blocks.count, -1)], axis=1)
    drawn = drawn_sums(both, settings.resamples, settings.rng)
    resampled = logs + drawn[:, : estimated.size] - influence.sum(axis=0)
    drawn_tables = drawn[:, estimated.size :].reshape(-1, *tables.shape[1:])
    return ResampledEvidence(
        method="em",
        impressions=impressions,
        clicks=clicks,
        pairs=np.bincount(cells.position[pairs.used], minlength=impressions.size),
        estimated=estimated,
        logs=logs,
        resampled_logs=resampled,
        residual=pair_residuals(tables.sum(axis=0), logs),
        resampled_residual=pair_residuals(drawn_tables, resampled),
        queries=blocks.queries,
        deepest=deepest_position(counts),
        notes=[
            NO_INTERVENTION,
            *([] if pairs.used.any() else [NOT_TESTED]),
            *([] if at_rest else [NOT_AT_REST]),
        ],
    ).summed_up(settings)


def _known_positions(cells: ItemCells, pairs: Pairs, settings: Settings, *, by_item: bool) -> Whole:
    """Return the positions with enough clicks; without a regression, only those linked to the first."""
    taking_part = pairs.used if by_item else np.ones(cells.item.size, dtype=np.bool_)
    counted = np.bincount(
        cells.position[taking_part], weights=cells.clicks[taking_part], minlength=len(pairs.documents)
    )
    enough = counted >= settings.least_clicks
    if by_item:
        return linked_to_first(pairs.tables[:, 0].sum(axis=0) > 0, enough)
    return np.flatnonzero(enough & enough[:1])


def _cells_used(
    cells: ItemCells, estimated: Whole, used: NDArray[np.bool_] | None, blocks: Blocks
) -> tuple[ItemCells, Whole]:
    """Return the cells to fit, with known positions numbered from 0 on, and the block of each item.

    With `used`, which says what cells were compared, only items with several known positions stay.
    """
    number = np.full(int(cells.position.max()) + 1, -1)
    number[estimated] = np.arange(estimated.size)
    chosen = number[cells.position] >= 0
    if used is not None:
        chosen &= used
        chosen &= np.bincount(cells.item[chosen], minlength=cells.row.size)[cells.item] > 1
    block = blocks.of_query[np.unique(cells.item[chosen])]
    cells_used = cells.chosen(chosen)
    return replace(cells_used, position=number[cells_used.position]), block
