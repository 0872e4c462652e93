"""From estimates and their resamples over queries to intervals, a power law and tests of fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import checked_number, one_of, random_generator, whole_number
from fultr.clicks.bias_curve import falling_with_resamples, widened
from fultr.clicks.bias_estimate import BiasEstimate, GoodnessOfFit, Method, Shape, position_ranges
from fultr.errors import InputError

Array = NDArray[np.float64]

MOST_BLOCKS = 2_000
"""More queries than this are dealt into so many groups, each of which is drawn whole."""

FEW_QUERIES = 20
"""With fewer, intervals by bootstrap are known to be too narrow."""

LEAST_LOG = -30.0
"""The logarithm of an examination that stands for none, in a resample without a click at a position."""

LEAST_DEVIATION = 1e-9
"""A residual that deviates by less than this part of the largest is 0 but for rounding."""


class BiasOptions(TypedDict, total=False):
    """What all methods take.

    Parameters
    ----------
    longest
        Positions beyond this one are left out (50).
    least_clicks
        How many clicks a position needs, in what it is compared by, to be estimated (10).
    resamples
        How often queries are drawn anew for the intervals (1000).
    level
        The confidence level of the intervals (0.95).
    seed
        The same seed gives the same intervals (0).
    shape
        "monotone": examination falls with the position (the default). "free": each position by itself.
    """

    longest: int
    least_clicks: int
    resamples: int
    level: float
    seed: int | np.random.Generator
    shape: Shape


@dataclass(frozen=True)
class Settings:
    """Checked options."""

    longest: int = 50
    least_clicks: int = 10
    resamples: int = 1000
    level: float = 0.95
    seed: int | np.random.Generator = 0
    shape: Shape = "monotone"

    def __post_init__(self) -> None:
        whole_number(self.longest, "longest", least=2)
        whole_number(self.least_clicks, "least_clicks", least=1)
        whole_number(self.resamples, "resamples", least=50)
        level = checked_number(self.level, "level", "must lie between 0 and 1", lambda given: 0 < given < 1)
        object.__setattr__(self, "level", level)
        one_of(self.shape, "shape", *get_args(Shape))
        object.__setattr__(self, "seed", random_generator(self.seed))

    @property
    def rng(self) -> np.random.Generator:
        """The randomness of one estimation."""
        return random_generator(self.seed)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Queries, or groups of them dealt at random, that are drawn whole.

    `of_query` is the block of each of the query codes given, and `count` how many blocks there are.
    """

    of_query: NDArray[np.int64]
    queries: int
    count: int


def blocks_of(queries: NDArray[np.int64], rng: np.random.Generator) -> Blocks:
    """Deal queries into blocks, one each unless there are very many."""
    distinct, code = np.unique(queries, return_inverse=True)
    count = min(distinct.size, MOST_BLOCKS)
    block = np.arange(count) if count == distinct.size else rng.permutation(distinct.size) % count
    return Blocks(block[code].astype(np.int64), int(distinct.size), int(count))


def drawn_sums(sums: Array, resamples: int, rng: np.random.Generator) -> Array:
    """Return the sum over blocks, drawn with replacement, of (blocks, ...): one for each resample.

    With a single block there is nothing to draw from, and no resample.
    """
    blocks = len(sums)
    if blocks < 2:
        return np.empty((0, *sums.shape[1:]))
    times = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples).astype(np.float64)
    drawn = times @ sums.reshape(blocks, -1)
    return np.asarray(drawn.reshape(resamples, *sums.shape[1:]))


def residual_test(residual: Array, resampled: Array) -> GoodnessOfFit | None:
    """Test whether residuals are 0 but for chance, whatever the covariance of them.

    S = sum_j e_j^2 / s_j^2 with s_j the standard deviation of the resampled residuals. What S would be by
    chance is that of the residuals' deviations in the resamples; a multiple of a chi-square of its mean and
    variance stands for it (Satterthwaite), and the statistic is in units of that multiple.
    """
    if len(resampled) < 2 or not residual.size:
        return None
    apart = resampled - resampled.mean(axis=0)
    deviation = apart.std(axis=0, ddof=1)
    varies = deviation > LEAST_DEVIATION * deviation.max()
    if not varies.any():
        return None
    by_chance = np.sum((apart[:, varies] / deviation[varies]) ** 2, axis=1)
    mean, variance = float(by_chance.mean()), float(by_chance.var(ddof=1))
    if not variance > 0:
        return None
    freedom, multiple = 2 * mean**2 / variance, variance / (2 * mean)
    statistic = float(np.sum((residual[varies] / deviation[varies]) ** 2)) / multiple
    from scipy.special import chdtrc

    return GoodnessOfFit(statistic, freedom, float(chdtrc(freedom, statistic)))


@dataclass(frozen=True, eq=False)
class ResampledEvidence:
    """What a method found, before it is summed up.

    Parameters
    ----------
    method
        Its name.
    impressions, clicks, pairs
        Counts by position, from position 1.
    known
        The positions with enough data, counted from 0, rising; the first is 0.
    logs, resampled_logs
        (estimated,) log v_k - log v_1 of these, and (resamples, estimated) the same in resamples.
    residual, resampled_residual
        (m,) By how much clicks miss what the model says, and (resamples, m).
    queries, deepest
        How many there were, and the deepest position of the log.
    notes
        What to know.
    """

    method: Method
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]
    pairs: NDArray[np.int64]
    estimated: NDArray[np.int64]
    logs: Array
    resampled_logs: Array
    residual: Array
    resampled_residual: Array
    queries: int
    deepest: int
    notes: list[str] = field(default_factory=list)

    def summed_up(self, settings: Settings) -> BiasEstimate:
        """Return the estimate with its intervals."""
        usable = ~np.isnan(self.resampled_logs).any(axis=1)
        logs = np.maximum(self.resampled_logs[usable], LEAST_LOG)
        raw, resampled = np.exp(self.logs), np.exp(logs)
        values, low, high = raw, *_interval(resampled, settings.level)
        notes = self.notes
        if settings.shape == "monotone":
            values, falling = falling_with_resamples(
                raw, resampled, self.clicks[self.estimated].astype(float)
            )
            notes = [*notes, *self._notes_on_shape(values, resampled, settings.level)]
            low, high = widened(_interval(falling, settings.level), values)
        error = resampled.std(axis=0, ddof=1) if len(resampled) >= 2 else np.full(raw.size, np.nan)
        columns = np.full((5, self.impressions.size), np.nan)
        columns[:, self.estimated] = values, low, high, raw, error
        eta, drawn_eta, power_fit = _power_law(self.estimated + 1, self.logs, logs)
        eta_low, eta_high = _interval(drawn_eta[:, None], settings.level)[:, 0].tolist()
        insufficient = tuple((np.flatnonzero(np.isnan(columns[0])) + 1).tolist())
        made = BiasEstimate(
            method=self.method,
            values=tuple(columns[0].tolist()),
            low=tuple(columns[1].tolist()),
            high=tuple(columns[2].tolist()),
            raw=tuple(columns[3].tolist()),
            standard_error=tuple(columns[4].tolist()),
            shape=settings.shape,
            level=settings.level,
            impressions=tuple(self.impressions.tolist()),
            clicks=tuple(self.clicks.tolist()),
            pairs=tuple(self.pairs.tolist()),
            insufficient=insufficient,
            eta=eta,
            eta_low=eta_low,
            eta_high=eta_high,
            fit=residual_test(self.residual, self.resampled_residual[usable]),
            power_fit=power_fit,
            queries=self.queries,
            resamples=len(logs),
            deepest=self.deepest,
            notes=(*notes, *self._notes_on_data(insufficient, settings)),
        )
        return made.with_tail(made.usable_tail)

    def _notes_on_shape(self, values: Array, resampled: Array, level: float) -> list[str]:
        """Say where estimates rise by more than chance, if one error is allowed over all positions."""
        low, high = _interval(resampled, 1 - (1 - level) / max(self.estimated.size - 1, 1))
        rising = [str(position) for position in self.estimated[(values < low) | (values > high)] + 1]
        if not rising:
            return []
        return [
            f"Examination does not fall everywhere: at positions {', '.join(rising)} estimates are further"
            " from a falling curve than chance explains. If people look at the page so, take shape='free'."
        ]

    def _notes_on_data(self, insufficient: tuple[int, ...], settings: Settings) -> list[str]:
        notes = []
        if self.deepest > settings.longest:
            notes.append(
                f"Positions beyond {settings.longest} were left out; a larger longest takes them in."
            )
        if insufficient:
            notes.append(
                f"Not enough data at {position_ranges(insufficient)}: fewer than"
                f" {settings.least_clicks} clicks to compare by, or nothing that compares them with position"
                " 1."
            )
        if self.queries == 1:
            notes.append("There is one query only, and so no interval and no test.")
        elif self.queries < FEW_QUERIES:
            notes.append(f"With {self.queries} queries only, the intervals are too narrow.")
        return notes


def settings_of(options: dict[str, Any]) -> Settings:
    """Return checked options; an unknown one is an error that names those there are."""
    unknown = sorted(set(options) - set(BiasOptions.__annotations__))
    if unknown:
        problem = f"unknown option; there are: {', '.join(BiasOptions.__annotations__)}"
        raise InputError(problem, value=unknown[0])
    return Settings(**options)


def check_usable(
    impressions: NDArray[np.int64], estimated: NDArray[np.int64], settings: Settings, how: str
) -> None:
    """Refuse data in which no position can be compared with the first.

    `how` completes the sentence: what a position is compared with the first by.
    """
    if not impressions.size or not impressions[0]:
        problem = "position 1 was never shown, and examination is known only relative to it"
        raise InputError(problem, column="position")
    if estimated.size < 2:
        problem = f"no position has at least {settings.least_clicks} clicks, as has position 1, {how}"
        raise InputError(f"{problem}; give a larger log, or a smaller least_clicks", column="click")


def _interval(drawn: Array, level: float) -> Array:
    """Return low and high of each column: the middle part of it."""
    if len(drawn) < 2:
        return np.full((2, drawn.shape[1]), np.nan)
    return np.asarray(np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0))


def _power_law(
    positions: NDArray[np.int64], logs: Array, resampled: Array
) -> tuple[float, Array, GoodnessOfFit | None]:
    """Fit log v_k = -eta log k by least squares, weighted by precision; also to each resample."""
    depth, height = np.log(positions[1:]), logs[1:]
    weight = np.ones(depth.size)
    if len(resampled) >= 2:
        variance = resampled[:, 1:].var(axis=0, ddof=1)
        weight = 1 / np.maximum(variance, LEAST_DEVIATION * max(float(variance.max()), LEAST_DEVIATION))
    slope = weight * depth / np.sum(weight * depth**2)
    eta, drawn = -float(slope @ height), -(resampled[:, 1:] @ slope)
    if depth.size < 2:
        return eta, drawn, None
    return eta, drawn, residual_test(height + eta * depth, resampled[:, 1:] + drawn[:, None] * depth)
