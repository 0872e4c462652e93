"""Intervals by bootstrap over queries: whole queries are drawn afresh, with all their lists and impressions.

Lists and impressions of one query are alike, so that drawing them one by one would make intervals too narrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import checked_number, number_array, random_generator, whole_number, whole_numbers
from fultr.errors import InputError

Array = NDArray[np.float64]

CELLS_A_BLOCK = 1 << 20
"""How many counts (resamples x queries) are held at a time, one resample at least."""

COLUMNS_A_BLOCK = 1 << 10
"""How many quantities are worked on at a time: a thousand groups have half a million pairs."""

LEAST_RELATIVE_ERROR = 1e-12
"""What varies less than this, relative to its size, varies by rounding only."""


@dataclass(frozen=True, eq=False)
class Resampled:
    """Means of list contributions, from the data and from resamples of its queries, with standard errors.

    Parameters
    ----------
    estimate, error
        (m,) The means of the data itself, and their standard errors.
    means, errors
        (resamples, m) The means of each resample, and the standard errors as it would have told them.
    """

    estimate: Array
    error: Array
    means: Array
    errors: Array


def resampled_means(
    contributions: ArrayLike,
    weights: ArrayLike,
    query_codes: ArrayLike,
    resamples: int = 1000,
    seed: int | np.random.Generator = 0,
) -> Array:
    """Return means of list contributions over queries drawn with replacement, (resamples, m).

    sum_q n_q X_q / sum_q n_q w_q,   n ~ Multinomial(number of queries; equal chances),

    X_q and w_q being the sums over the lists of query q. Which queries are drawn does not depend on the
    columns: the same seed draws the same ones for another quantity.

    Parameters
    ----------
    contributions
        (lists, m) What each list adds to the numerators.
    weights
        (lists,) What each list adds to the denominator, 0 or more: its impressions. A query of weight 0 was
        never seen and is not drawn.
    query_codes
        (lists,) A integer for the query of each list.
    resamples, seed
        How many means to draw, and from what randomness.

    Examples
    --------
    >>> utility, query = np.arange(60.0)[:, None] % 7, np.arange(60) // 2
    >>> means = resampled_means(utility, np.ones(60), query)
    >>> means.shape, bool(abs(means.mean() - utility.mean()) < 0.05)
    ((1000, 1), True)
    """
    sums, totals = _sums_of_queries(contributions, weights, query_codes)
    means = np.empty((whole_number(resamples, "resamples", least=1), sums.shape[1]))
    for block, counts in _draws(totals.size, len(means), random_generator(seed)):
        means[block] = counts @ sums / (counts @ totals)[:, None]
    return means


def resampled_errors(
    contributions: ArrayLike,
    weights: ArrayLike,
    query_codes: ArrayLike,
    resamples: int = 1000,
    seed: int | np.random.Generator = 0,
) -> Resampled:
    """Return what `resampled_means` does, with the standard error of each mean beside it.

    error^2 = Q / (Q - 1) sum_q n_q (X_q - mean w_q)^2 / (sum_q n_q w_q)^2   for Q queries, n = 1 in the data
    """
    sums, totals = _sums_of_queries(contributions, weights, query_codes)
    queries = totals.size
    if queries < 2:
        raise InputError("a standard error needs two queries at least", column="query_codes", value=queries)
    estimate = sums.sum(axis=0) / totals.sum()
    # relative to the estimate, so that large means with small errors lose no digits
    apart = sums - estimate * totals[:, None]
    square_totals = totals**2
    means = np.empty((whole_number(resamples, "resamples", least=1), sums.shape[1]))
    errors = np.empty_like(means)
    for block, counts in _draws(queries, len(means), random_generator(seed)):
        total = (counts @ totals)[:, None]
        for some in _blocks_of_columns(apart):
            own = apart[:, some]
            moved = counts @ own / total
            variance = counts @ own**2 - 2 * moved * (counts @ (own * totals[:, None]))
            variance += moved**2 * (counts @ square_totals)[:, None]
            means[block, some] = estimate[some] + moved
            errors[block, some] = np.sqrt(np.maximum(variance, 0.0) * queries / (queries - 1)) / total
    error = np.sqrt((apart**2).sum(axis=0) * queries / (queries - 1)) / totals.sum()
    return Resampled(estimate, error, means, errors)


def percentile_interval(samples: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
    """Return the middle part of each column of samples, (low, high), which holds `level` of them.

    Samples that are NaN (a ratio whose denominator vanished) do not count; a column of nothing else has none.
    """
    drawn = np.asarray(number_array(samples, "samples"), dtype=np.float64)
    if not drawn.shape or not drawn.shape[0]:
        raise InputError("must have at least one sample", column="samples", value=drawn.shape)
    tails = np.array([0.5, 0.5]) + np.array([-0.5, 0.5]) * checked_level(level)
    empty = np.isnan(drawn).all(axis=0)
    quantile = np.nanquantile if np.isnan(drawn).any() else np.quantile
    low, high = np.where(empty, np.nan, quantile(np.where(empty, 0.0, drawn), tails, axis=0))
    return low, high


def simultaneous_intervals(
    samples: ArrayLike | Resampled, estimate: ArrayLike | None = None, level: float = 0.95
) -> tuple[Array, Array]:
    """Return a band, (low, high), in which all m quantities lie at once with probability `level`.

    estimate_j -+ t s_j, s_j being the standard error of quantity j and t the quantile of the largest
    |mean_j - estimate_j| / s_j over j. A quantity that does not vary has an interval of no width.

    Parameters
    ----------
    samples
        From `resampled_errors`: s_j of the resample in the quantile, which allows for errors that are
        known the less the fewer queries there are. Or any samples, (resamples, m), such as `resampled_means`
        returns: then s_j is the standard deviation of column j throughout, and bands of few or skewed
        contributions are somewhat narrow.
    estimate
        (m,) The same quantities from the data itself, if `samples` are but samples.
    level
        The probability of covering all of them.
    """
    tail = checked_level(level)
    if isinstance(samples, Resampled):
        drawn, centre = samples.means, samples.estimate
        error, errors = samples.error, samples.errors
    else:
        drawn, centre = _checked_samples(samples, estimate)
        error, errors = drawn.std(axis=0, ddof=1), np.zeros_like(drawn)
    furthest, width = np.zeros(len(drawn)), np.zeros(error.shape)
    for some in _blocks_of_columns(drawn):
        distance, width[some] = _distances(drawn[:, some], centre[some], error[some], errors[:, some])
        np.maximum(furthest, distance.max(axis=1, initial=0.0), out=furthest)
    reach = np.quantile(furthest, tail) * width
    return centre - reach, centre + reach


def separate_intervals(samples: Resampled, level: float = 0.95) -> tuple[Array, Array]:
    """Return the interval of each quantity by itself, (low, high): `simultaneous_intervals` of it alone."""
    tail, reach = checked_level(level), np.zeros(samples.error.shape)
    for some in _blocks_of_columns(samples.means):
        distance, width = _distances(
            samples.means[:, some], samples.estimate[some], samples.error[some], samples.errors[:, some]
        )
        reach[some] = np.quantile(distance, tail, axis=0) * width
    return samples.estimate - reach, samples.estimate + reach


def _distances(means: Array, centre: Array, error: Array, errors: Array) -> tuple[Array, Array]:
    """Return |mean - centre| / s of each resample, and the error; both are 0 where nothing varies."""
    varies = error > LEAST_RELATIVE_ERROR * np.abs(means).max(axis=0, initial=0.0)
    known = np.where(varies, error, 1.0)
    # a resample in which nothing varied does not know its error, and takes that of the data
    unit = np.where(errors > LEAST_RELATIVE_ERROR * known, errors, known)
    distance = np.where(varies, np.abs(means - centre) / unit, 0.0)
    return distance, np.where(varies, error, 0.0)


def sum_of_squares_bounds(low: ArrayLike, high: ArrayLike) -> tuple[float, float]:
    """Return the least and the largest sum of squares of values that lie between `low` and `high`.

    For simultaneous intervals these bound the true sum of squares with the same probability, also near 0,
    where percentiles of squares do not.

    Examples
    --------
    >>> sum_of_squares_bounds([-1.0, 2.0], [3.0, 4.0])
    (4.0, 25.0)
    """
    lowest = np.asarray(number_array(low, "low"), dtype=np.float64)
    highest = np.asarray(number_array(high, "high"), dtype=np.float64)
    if lowest.shape != highest.shape or not (lowest <= highest).all():
        raise InputError("must be as many as the low values, and none below its low value", column="high")
    nearest = np.maximum(np.maximum(lowest, -highest), 0.0)
    furthest = np.maximum(np.abs(lowest), np.abs(highest))
    return float(np.sum(nearest**2)), float(np.sum(furthest**2))


def checked_level(level: object, column: str = "level") -> float:
    """Return a confidence level if it is one."""
    return checked_number(level, column, "must lie between 0 and 1", lambda given: 0 < given < 1)


def _blocks_of_columns(columns: Array) -> Iterator[slice]:
    for start in range(0, columns.shape[1], COLUMNS_A_BLOCK):
        yield slice(start, start + COLUMNS_A_BLOCK)


def _draws(queries: int, resamples: int, rng: np.random.Generator) -> Iterator[tuple[slice, Array]]:
    """Yield how often each query is drawn, (some resamples, queries), and which resamples these are."""
    at_a_time = max(1, CELLS_A_BLOCK // queries)
    for start in range(0, resamples, at_a_time):
        size = min(at_a_time, resamples - start)
        drawn = rng.integers(queries, size=(size, queries))
        drawn += queries * np.arange(size)[:, None]
        times = np.bincount(drawn.reshape(-1), minlength=size * queries)
        yield slice(start, start + size), times.reshape(size, queries).astype(np.float64)


def _checked_samples(samples: ArrayLike, estimate: ArrayLike | None) -> tuple[Array, Array]:
    drawn = np.asarray(number_array(samples, "samples"), dtype=np.float64)
    if drawn.ndim != 2 or drawn.shape[0] < 2:
        problem = "must be resamples x quantities, with two resamples at least"
        raise InputError(problem, column="samples", value=drawn.shape)
    centre = np.asarray(number_array([] if estimate is None else estimate, "estimate"), dtype=np.float64)
    if centre.shape != drawn.shape[1:]:
        problem = f"must have one value for each of {drawn.shape[1]} quantities"
        raise InputError(problem, column="estimate", value=centre.shape)
    for name, values in (("samples", drawn), ("estimate", centre)):
        if not np.isfinite(values).all():
            raise InputError("must be finite", column=name)
    return drawn, centre


def _sums_of_queries(
    contributions: ArrayLike, weights: ArrayLike, query_codes: ArrayLike
) -> tuple[Array, Array]:
    """Add up the lists of each query, in the order of the codes; queries of weight 0 are left out."""
    values = np.asarray(number_array(contributions, "contributions"), dtype=np.float64)
    weight = np.asarray(number_array(weights, "weights"), dtype=np.float64)
    codes = whole_numbers(query_codes, "query_codes")
    if values.ndim != 2:
        raise InputError("must be lists x quantities", column="contributions", value=values.shape)
    for name, given in (("weights", weight), ("query_codes", codes)):
        if given.shape != values.shape[:1]:
            problem = f"must have one value for each of {values.shape[0]} lists"
            raise InputError(problem, column=name, value=given.shape)
    if not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
        raise InputError("must be 0 or more, finite, and not all 0", column="weights")
    numbers = np.unique(codes, return_inverse=True)[1]
    totals = np.bincount(numbers, weights=weight).astype(np.float64)
    sums = np.empty((totals.size, values.shape[1]))
    for column in range(values.shape[1]):
        sums[:, column] = np.bincount(numbers, weights=values[:, column])
    seen = totals > 0
    return (sums, totals) if seen.all() else (sums[seen], totals[seen])
