"""Clicks by mistake at each position, and examination beside them, from swap interventions (trust bias)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import checked_number, random_generator, whole_number
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks.bias_cells import check_empties_kept
from fultr.clicks.bias_resampling import blocks_of, drawn_sums
from fultr.clicks.bias_swap import LEFT, SWAPPED, SwapCounts, experiment_of, swap_counts
from fultr.data import ClickLog
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

Array = NDArray[np.float64]

LEAST_CONTRAST = 4.0
"""Standard errors by which the two exchanged items must differ in clicks at position 1: the slope is a ratio
to that difference, and its interval is not to be trusted where the difference may be 0."""

MOST_POSITION = 50
"""Positions beyond this one are left out."""

ALMOST_ALL = 1 - 1e-6
"""The most that eps_minus is said to be, as a share of eps_plus: clicks must tell something."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TrustAtPosition:
    """What swaps with position 1 tell of a position.

    Parameters
    ----------
    swaps
        Impressions of its experiment, exchanged or not.
    slope, intercept
        rho and gamma: P(click at k) = rho P(click of the same items at position 1) + gamma.
    examination, eps_minus
        v_k and eps_minus_k, by the further number that `TrustEstimate.anchor` names.
    """

    swaps: int
    slope: Interval
    intercept: Interval
    examination: Interval
    eps_minus: Interval


@dataclass(frozen=True)
class TrustEstimate:
    """Examination and clicks by mistake at each position, which belong together.

    Parameters
    ----------
    positions
        What is known of each position, from 1 on.
    insufficient
        Positions that were exchanged too rarely, or for items too much alike.
    anchor
        What decides how many clicks at position 1 are mistakes: "planted items", or "no mistakes at
        position K" for the last position K that was estimated.
    least, most
        Between what beta_1 = v_1 eps_minus_1 lies by the swaps alone.
    eps_plus
        As it was given.
    level
        The confidence level of the intervals.
    """

    positions: dict[int, TrustAtPosition]
    insufficient: tuple[int, ...]
    anchor: str
    least: float
    most: float
    eps_plus: float
    level: float

    def to_click_noise(self) -> ClickNoise:
        """Return the noise; positions between those that were estimated lie on the line between them."""
        eps_minus = self._curve([one.eps_minus.value for one in self.positions.values()])
        return ClickNoise(self.eps_plus, eps_minus.tolist())

    def to_position_bias(self) -> PositionBias:
        """Return the examination that belongs to the noise, up to the last position that was estimated."""
        return PositionBias(self._curve([one.examination.value for one in self.positions.values()]).tolist())

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values."""
        content = asdict(self)
        rows = [{"position": position, **one} for position, one in content.pop("positions").items()]
        return {**content, "positions": rows}

    def _curve(self, values: list[float]) -> Array:
        positions = [*self.positions]
        return np.asarray(np.interp(np.arange(1, positions[-1] + 1), positions, values))


def estimate_noise_swap(
    log: ClickLog,
    swap_rank: ArrayLike,
    swapped: ArrayLike | None = None,
    *,
    eps_plus: float = 1.0,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int | np.random.Generator = 0,
) -> TrustEstimate:
    """Estimate examination and clicks by mistake by position from swaps of positions 1 and k.

    An item of relevance r is clicked at position k with probability alpha_k r + beta_k. At position 1 that is
    x = alpha_1 r + beta_1, so that at position k it is

        rho_k x + gamma_k,   rho_k = alpha_k / alpha_1,   gamma_k = beta_k - rho_k beta_1.

    Both items of an exchange are seen at both positions. With r(1) and r(k) the rates of clicks there, among
    impressions that were left as they were and among those that were swapped,

        rho_k = (r_swapped(k) - r_left(k)) / (r_left(1) - r_swapped(1)),
        2 gamma_k = r_left(k) + r_swapped(k) - rho_k (r_left(1) + r_swapped(1)).

    That is all that swaps tell: beta_1 stays unknown. It is at least the largest -gamma_k / rho_k, since no
    beta_k is below 0, and at most any of the rates at position 1. Planted items at any positions m decide it,

        beta_1 = (clicks on them - sum of gamma_m) / (sum of rho_m).

    Without planted items it is assumed that nobody clicks by mistake at the last position K, so that beta_1
    is -gamma_K / rho_K. With the same eps_plus everywhere and v_1 = 1, alpha_1 = eps_plus - beta_1, and

        beta_k = gamma_k + rho_k beta_1,   v_k = rho_k + gamma_k / eps_plus,   eps_minus_k = beta_k / v_k.

    Parameters
    ----------
    log
        The log as shown, empty impressions kept, with or without planted items.
    swap_rank, swapped
        As in `estimate_bias_swap`.
    eps_plus
        How often a relevant item that was looked at is clicked, wherever it stands.
    level, resamples, seed
        Of the intervals, by bootstrap over queries.
    """
    checked_number(eps_plus, "eps_plus", "must be above 0 and at most 1", lambda given: 0 < given <= 1)
    level = checked_number(level, "level", "must lie between 0 and 1", lambda given: 0 < given < 1)
    whole_number(resamples, "resamples", least=50)
    check_empties_kept(log)
    rng = random_generator(seed)
    drawn, exchanged = experiment_of(log, swap_rank, swapped)
    deepest = min(int(log.position[log.position != NOT_SHOWN].max(initial=0)), MOST_POSITION)
    blocks = blocks_of(log.data.query_codes[log.lists], rng)
    table = swap_counts(log, drawn, exchanged, swapped is not None, blocks.of_query, deepest).table
    planted = _planted_counts(log, blocks.of_query, deepest)
    both = np.concatenate([table.reshape(len(table), -1), planted.reshape(len(planted), -1)], axis=1)
    sums = np.concatenate([both.sum(axis=0, keepdims=True), drawn_sums(both, resamples, rng)])
    size = table[0].size
    swaps = SwapCounts(sums[:, :size].reshape(-1, *table.shape[1:]))
    estimated = _estimated_positions(swaps)
    curves = _curves(swaps, sums[:, size:].reshape(-1, *planted.shape[1:]), estimated, eps_plus)
    insufficient = np.setdiff1d(np.arange(1, deepest + 1), estimated + 1)
    each = {name: _intervals(values, level) for name, values in curves.by_position.items()}
    shown = swaps.shown[0].sum(axis=-1)
    shown[0] = shown[1:].max(initial=0.0)
    return TrustEstimate(
        positions={
            int(k) + 1: TrustAtPosition(int(shown[k]), **{name: each[name][n] for name in each})
            for n, k in enumerate(estimated)
        },
        insufficient=tuple(insufficient.tolist()),
        anchor="planted items" if planted.any() else f"no mistakes at position {estimated[-1] + 1}",
        least=float(curves.least[0]),
        most=float(curves.most[0]),
        eps_plus=float(eps_plus),
        level=level,
    )


@dataclass(frozen=True)
class _Curves:
    """Estimates by position, (1 + resamples, known), and the range of beta_1, (1 + resamples,)."""

    by_position: dict[str, Array]
    least: Array
    most: Array


def _planted_counts(log: ClickLog, block: NDArray[np.int64], deepest: int) -> Array:
    """Count planted items and clicks on them, (blocks, positions, 2)."""
    planted = log.planted
    within = planted.position <= deepest
    blocks = int(block.max(initial=-1)) + 1
    cell = block[planted.impression[within]] * deepest + planted.position[within] - 1
    size = blocks * deepest
    table = [np.bincount(cell, minlength=size), np.bincount(cell, planted.click[within], minlength=size)]
    return np.stack(table, axis=-1).reshape(blocks, deepest, 2).astype(np.float64)


def _estimated_positions(swaps: SwapCounts) -> NDArray[np.int64]:
    """Return the positions, counted from 0, at which both items were seen and differ enough; 0 is one."""
    first = swaps.rates()[0]
    apart = first[..., LEFT] - first[..., SWAPPED]
    with np.errstate(invalid="ignore"):
        clear = np.abs(apart[0]) >= LEAST_CONTRAST * apart[1:].std(axis=0, ddof=1)
    estimated = np.flatnonzero(clear[1:]) + 1
    if not estimated.size:
        problem = (
            "the two items of an exchange are clicked about alike at position 1, or were exchanged too"
            " rarely, so that swaps do not tell trust from relevance; collect more"
        )
        raise InputError(problem, column="swap_rank")
    return np.concatenate([[0], estimated])


def _curves(swaps: SwapCounts, planted: Array, estimated: NDArray[np.int64], eps_plus: float) -> _Curves:
    first, other = (rates[:, estimated[1:]] for rates in swaps.rates())
    count = len(first)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (other[..., SWAPPED] - other[..., LEFT]) / (first[..., LEFT] - first[..., SWAPPED])
        intercept = (other.sum(axis=-1) - slope * first.sum(axis=-1)) / 2
        rho = np.concatenate([np.ones((count, 1)), slope], axis=1)
        gamma = np.concatenate([np.zeros((count, 1)), intercept], axis=1)
        least = np.maximum(-gamma / rho, 0.0).max(axis=1)
        if planted.any():
            shown, clicks = planted[:, estimated, 0], planted[:, estimated, 1]
            trusted = (clicks.sum(axis=1) - (shown * gamma).sum(axis=1)) / (shown * rho).sum(axis=1)
        else:
            trusted = -gamma[:, -1] / rho[:, -1]
        examination = rho + gamma / eps_plus
        eps_minus = (gamma + rho * trusted[:, None]) / examination
    return _Curves(
        {
            "slope": rho,
            "intercept": gamma,
            "examination": np.clip(examination, 0.0, 1.0),
            "eps_minus": np.clip(eps_minus, 0.0, eps_plus * ALMOST_ALL),
        },
        least,
        first.min(axis=(1, 2)),
    )


def _intervals(values: Array, level: float) -> list[Interval]:
    """Return the first row of values, with the middle part of the others as intervals."""
    drawn = values[1:][np.isfinite(values[1:]).all(axis=1)]
    if len(drawn) < 2:
        return [Interval(float(value), math.nan, math.nan) for value in values[0]]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return [Interval(*map(float, one)) for one in zip(values[0], low, high, strict=True)]
