"""Position bias from documents that several rankers, or chance, put at several positions."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from fultr.clicks.bias_cells import counts_of_rankers, deepest_position, item_cells
from fultr.clicks.bias_estimate import BiasEstimate
from fultr.clicks.bias_pairs import fitted_logs, linked_to_first, pair_residuals, pairs_of
from fultr.clicks.bias_resampling import (
    BiasOptions,
    ResampledEvidence,
    blocks_of,
    check_usable,
    drawn_sums,
    settings_of,
)
from fultr.data import ClickLog, Counts
from fultr.errors import InputError

MAY_BE_CONFOUNDED = (
    "Why documents changed their positions is not known: if the system moved them because of their clicks,"
    " the estimate is biased. Name the ranker of each impression, or say that positions were randomised."
)


def estimate_bias_harvest(
    log: ClickLog | Counts,
    *,
    ranker: ArrayLike | None = None,
    randomised: bool = False,
    **options: Unpack[BiasOptions],
) -> BiasEstimate:
    """Harvest interventions: compare clicks on the same document at different positions, over all pairs.

    A document of a query that was seen at positions k and l belongs to the interventional set S_kl. Its
    clicks at k, weighted by the inverse of how often it was there, stand against those at l, and the set's
    relevance is the same on both sides. The curve maximises the likelihood of all sets together, with a
    relevance for each (the all-pairs estimator of Agarwal et al., WSDM 2019; see `bias_pairs`).

    Positions must not depend on what a document's clicks say beyond its query and identity. That is so for
    rankers that impressions were assigned to at random at the same time, and for randomised rankings.

    Parameters
    ----------
    log
        The log, empty impressions kept.
    ranker
        The ranker of each impression, by name or number; or, of counts made with `context="ranker"`, the name
        of that column. Only positions that two different rankers gave to a document are then compared.
    randomised
        Say that positions vary by chance alone.
    **options
        See `BiasOptions`.

    Examples
    --------
    >>> from fultr import PositionBias, RandomRanking, datasets, simulate_clicks
    >>> data = datasets.synthetic(queries=100, list_length=5, features=2, relevant=2).train
    >>> log = simulate_clicks(data, RandomRanking(), PositionBias.power(1.0), impressions=50_000)
    >>> found = estimate_bias_harvest(log, randomised=True)
    >>> [round(value, 1) for value in found.values]
    [1.0, 0.5, 0.3, 0.2, 0.2]
    """
    settings = settings_of(dict(options))
    counts, by_ranker = counts_of_rankers(log, ranker), ranker is not None
    cells = item_cells(counts, settings.longest, by_ranker=by_ranker)
    impressions, clicks = cells.totals()
    blocks = blocks_of(cells.query, settings.rng)
    pairs = pairs_of(cells, blocks, impressions.size, between_rankers=by_ranker)
    if impressions.size and impressions[0] and not pairs.used.any():
        whom = " by two different rankers" if by_ranker else ""
        raise InputError(f"no document was shown at two positions{whom}: nothing can be harvested")
    compared = np.bincount(
        cells.position[pairs.used], weights=cells.clicks[pairs.used], minlength=impressions.size
    )
    linked = linked_to_first(pairs.tables[:, 0].sum(axis=0) > 0, compared >= settings.least_clicks)
    check_usable(impressions, linked, settings, "on documents that were also shown elsewhere")
    tables = pairs.tables_of(linked)
    whole, drawn = tables.sum(axis=0), drawn_sums(tables, settings.resamples, settings.rng)
    logs, resampled = fitted_logs(whole), fitted_logs(drawn)
    return ResampledEvidence(
        method="harvest",
        impressions=impressions,
        clicks=clicks,
        pairs=np.bincount(cells.position[pairs.used], minlength=impressions.size),
        estimated=linked,
        logs=logs,
        resampled_logs=resampled,
        residual=pair_residuals(whole, logs),
        resampled_residual=pair_residuals(drawn, resampled),
        queries=blocks.queries,
        deepest=deepest_position(counts),
        notes=[] if randomised or by_ranker else [MAY_BE_CONFOUNDED],
    ).summed_up(settings)
