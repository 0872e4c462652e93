"""Position bias from swap interventions: the items at positions 1 and k exchanged in some impressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import whole_numbers
from fultr.clicks.bias_cells import check_empties_kept, of_impressions
from fultr.clicks.bias_estimate import BiasEstimate
from fultr.clicks.bias_resampling import (
    BiasOptions,
    ResampledEvidence,
    blocks_of,
    check_usable,
    drawn_sums,
    settings_of,
)
from fultr.data import ClickLog
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

NO_PART, NO_SWAP = 0, 1
"""What `swap_rank` says of an impression outside the experiment, and of one that was left as it was."""

LEFT, SWAPPED = 0, 1
"""The arms of an experiment."""


def estimate_bias_swap(
    log: ClickLog,
    swap_rank: ArrayLike,
    swapped: ArrayLike | None = None,
    **options: Unpack[BiasOptions],
) -> BiasEstimate:
    """Estimate examination from swap interventions (Joachims, Swaminathan and Schnabel, WSDM 2017).

    In some impressions, chosen at random, the item at position 1 and the one at position k are exchanged.
    Each of the two is then seen at both positions; with r(1) and r(k) the rates of clicks at these positions
    among impressions that were left as they were and among those that were swapped,

        v_k / v_1 = (r_left(k) + r_swapped(k)) / (r_left(1) + r_swapped(1)).

    Queries need not be seen twice. Whether an impression is swapped must not depend on its query or items,
    except on whether there is an item at position k.

    Parameters
    ----------
    log
        The log as shown, empty impressions kept.
    swap_rank
        For each impression the position k that was drawn to be exchanged with position 1; 0 for an impression
        that is no part of the experiment. Without `swapped`, those of k >= 2 were exchanged, and those of 1
        were left as they were and are compared with every k.
    swapped
        For each impression whether the exchange was made, where that was drawn as well: impressions of k that
        were left as they were are then compared with those of the same k only.
    **options
        See `BiasOptions`.
    """
    settings = settings_of(dict(options))
    check_empties_kept(log)
    position_drawn, exchanged = experiment_of(log, swap_rank, swapped)
    shown = log.position[log.position != NOT_SHOWN]
    deepest_shown = int(shown.max(initial=0))
    deepest = min(deepest_shown, settings.longest)
    impressions = np.bincount(shown, minlength=deepest + 1)[1 : deepest + 1]
    clicks = np.bincount(log.position[log.click], minlength=deepest + 1)[1 : deepest + 1]
    blocks = blocks_of(log.data.query_codes[log.lists], settings.rng)
    counts = swap_counts(log, position_drawn, exchanged, swapped is not None, blocks.of_query, deepest)
    sums = counts.sum(axis=0)
    enough = (sums.shown > 0).all(axis=1)
    enough &= sums.clicks.sum(axis=2).min(axis=0) >= settings.least_clicks
    enough[:1] = enough.any()
    estimated = np.flatnonzero(enough)
    check_usable(impressions, estimated, settings, "in swaps of both with an arm that was left as it was")
    drawn = SwapCounts(drawn_sums(counts.table[:, estimated[1:]], settings.resamples, settings.rng))
    swaps_used = SwapCounts(sums.table[estimated[1:]])
    experiments = sums.shown.sum(axis=1)
    experiments[:1] = np.count_nonzero(position_drawn > NO_PART)
    return ResampledEvidence(
        method="swap",
        impressions=impressions,
        clicks=clicks,
        pairs=experiments.astype(np.int64),
        estimated=estimated,
        logs=swaps_used.logs(),
        resampled_logs=drawn.logs(),
        residual=swaps_used.residuals(),
        resampled_residual=drawn.residuals(),
        queries=blocks.queries,
        deepest=deepest_shown,
    ).summed_up(settings)


@dataclass(frozen=True, eq=False)
class SwapCounts:
    """Impressions, clicks at position 1 and clicks at position k, (..., k, arm, 3) from k = 1 on."""

    table: Array

    def sum(self, axis: int) -> SwapCounts:
        """Add up along an axis."""
        return SwapCounts(self.table.sum(axis=axis))

    @property
    def shown(self) -> Array:
        """Impressions, (..., k, arm)."""
        return np.asarray(self.table[..., 0])

    @property
    def clicks(self) -> Array:
        """Clicks at position 1 and k, (2, ..., k, arm)."""
        return np.moveaxis(self.table[..., 1:], -1, 0)

    def rates(self) -> Array:
        """Rates of clicks at position 1 and k, (2, ..., k, arm); NaN for an arm without impressions."""
        shown = self.shown
        return np.divide(self.clicks, shown, out=np.full_like(self.clicks, np.nan), where=shown > 0)

    def logs(self) -> Array:
        """Return log v_k - log v_1, with 0 for position 1 in front."""
        first, other = self.rates().sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(other / first)
        return np.concatenate([np.zeros((*logs.shape[:-1], 1)), logs], axis=-1)

    def residuals(self) -> Array:
        """Return by how much the item from position 1, moved to k, is clicked more than v_k / v_1 tells.

        The other item misses it by as much in the other direction, v_k being estimated from both.
        """
        first, other = self.rates()
        return np.asarray(other[..., SWAPPED] - np.exp(self.logs()[..., 1:]) * first[..., LEFT])


def experiment_of(
    log: ClickLog, swap_rank: ArrayLike, swapped: ArrayLike | None
) -> tuple[Whole, NDArray[np.bool_]]:
    """Return the position drawn for each impression, and whether the exchange was made."""
    drawn = whole_numbers(of_impressions(swap_rank, len(log), "swap_rank"), "swap_rank")
    if drawn.min(initial=0) < NO_PART:
        problem = "must be the position drawn, 1 where nothing was swapped, or 0 outside the experiment"
        raise InputError(problem, row=int(np.argmin(drawn)) + 1, column="swap_rank", value=drawn.min())
    if swapped is None:
        return drawn, drawn > NO_SWAP
    made = of_impressions(swapped, len(log), "swapped")
    if made.dtype.kind not in "biu" or not np.isin(made, (0, 1)).all():
        raise InputError("must be true or false for each impression", column="swapped", value=swapped)
    return drawn, made.astype(np.bool_)


def swap_counts(
    log: ClickLog, drawn: Whole, exchanged: NDArray[np.bool_], own_arms: bool, block: Whole, deepest: int
) -> SwapCounts:
    """Count by block, position k and arm. Where a planted item stands at 1 or k, there is no pair."""
    impression = log.impression_of_entry
    first = log.position == 1
    has_first, click_at_first = np.zeros((2, len(log)), dtype=np.bool_)
    has_first[impression[first]] = True
    click_at_first[impression[first & log.click]] = True
    entry = np.flatnonzero((log.position > 1) & (log.position <= deepest))
    entry = entry[has_first[impression[entry]]]
    where, shown_in = log.position[entry], impression[entry]
    compared = drawn[shown_in] == where
    if not own_arms:
        compared |= drawn[shown_in] == NO_SWAP
    entry, where, shown_in = entry[compared], where[compared], shown_in[compared]
    blocks = int(block.max(initial=-1)) + 1
    cell = ((block[shown_in] * deepest + where - 1) * 2 + exchanged[shown_in]).astype(np.int64)
    size = blocks * deepest * 2
    table = np.stack(
        [
            np.bincount(cell, minlength=size),
            np.bincount(cell, weights=click_at_first[shown_in], minlength=size),
            np.bincount(cell, weights=log.click[entry], minlength=size),
        ],
        axis=-1,
    )
    return SwapCounts(table.reshape(blocks, deepest, 2, 3).astype(np.float64))
