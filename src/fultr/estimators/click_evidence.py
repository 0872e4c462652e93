"""Evidence from clicks: inverse propensity scores, alone or pooled, without what false clicks add.

An item of relevance r, shown where it is examined with probability p, is clicked with probability

    alpha r + beta,   alpha = p (eps_plus - eps_minus),   beta = p eps_minus

(`ClickNoise`; without noise alpha = p and beta = 0). Each estimator here is an average of (c - beta) / alpha
and differs from the others in what it adds up before it divides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.click_model import ClickNoise, PositionBias
from fultr.data import Counts
from fultr.data.grouping import group_numbers, group_rows
from fultr.data.ids import codes_of
from fultr.data.propensity import check_examined, click_weights
from fultr.errors import InputError
from fultr.estimators.evidence import Evidence, candidates_in_arrays, correct_noise

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]


def evidence_from_clicks(
    counts: Counts,
    position_bias: PositionBias | None = None,
    *,
    noise: ClickNoise | None = None,
    clip: float | None = None,
    dtype: torch.dtype | None = None,
) -> Evidence:
    r"""Estimate the merit of each item from clicks by inverse propensity scores (section 3.2).

    Without noise, and with noise:

    $$
    \hat M_q(d) = \frac{c_{q,d}}{p(o_{q,d} = 1 \mid \sigma_q)} \qquad
    \hat M_q(d) = \frac{c_{q,d} - \beta}{\alpha}
    $$

    It is summed over the impressions of the list.

    Unbiased for an item that is shown, at a position that may be examined, whenever its list is.

    Parameters
    ----------
    counts
        The clicks; of a `ClickLog`, what its `compact()` returns. The rows of the evidence are those of
        `counts.data`, which need not be in the order of the log's own data.
    position_bias
        The examination probabilities; by default the propensities in the log, or the bias it carries.
    noise
        What to take off; nothing by default. Noise that is the same at all positions may be taken off later
        as well, by `correct_noise`.
    clip
        The most that 1 / p may be. This lowers the variance and biases the estimate towards 0. With noise
        by position, it limits 1 / alpha relative to where irrelevant items are clicked most.
    dtype
        The floating type of the evidence, by default double precision.
    """
    return _from_clicks(counts, position_bias, noise, clip).to_torch(dtype)


def policy_aware_evidence(
    counts: Counts,
    position_bias: PositionBias | None = None,
    *,
    noise: ClickNoise | None = None,
    clip: float | None = None,
    dtype: torch.dtype | None = None,
) -> Evidence:
    r"""Estimate the merit of each item where impressions show only some of the candidates.

    $$
    \hat M_q(d) = \frac{c_q(d)}{\bar p_q(d)}, \qquad
    \bar p_q(d) = \frac{1}{n} \sum_t p(o_{q,d} = 1 \mid \sigma_t)
    $$

    The propensity of an item is its mean examination over all n impressions of the list, those that did not
    show it included (Oosterhuis and de Rijke, 2020). Unbiased for an item that was shown at all. The merit of
    one that was not is unknown, not 0: such an item is in no group (`unseen_group`), and
    `list_disparity_bounds` says what it may change. Parameters are those of `evidence_from_clicks`.
    """
    return _policy_aware(counts, position_bias, noise, clip).to_torch(dtype)


def pooled_evidence(
    counts: Counts,
    position_bias: PositionBias | None = None,
    *,
    noise: ClickNoise | None = None,
    clip: float | None = None,
    dtype: torch.dtype | None = None,
) -> Evidence:
    r"""Estimate the merit of each item from all impressions of its query, at whatever positions, together.

    For each impression of a list of query q:

    $$
    \hat M_q(d) = \frac{\sum_t (c_t(d) - \beta_t)}{\sum_t \alpha_t}
    $$

    The sums are over all impressions of all lists of the query, such as those of other days or devices.
    Unbiased for an item that was examined at all, as long as its relevance to the query is the same in all
    of them. It varies less than the mean of c / p where positions vary: a click at a position that is hardly
    examined does not weigh more than others. An item whose document has no id is pooled over positions only.
    Items that were never shown are those of `policy_aware_evidence`. Parameters are those of
    `evidence_from_clicks`.
    """
    check_counts(counts)
    rates = ClickRates.of(counts, counts.propensities(position_bias), noise)
    pooled = by_pool(counts, rates, clip, _item_of_row(counts))
    return evidence_of(counts, pooled, noise, unseen_known=False).to_torch(dtype)


def merit_evidence(
    counts: Counts,
    position_bias: PositionBias | None = None,
    *,
    noise: ClickNoise | None = None,
    clip: float | None = None,
) -> Evidence:
    """Estimate the merit of each item by the estimator that is unbiased for the log.

    That is `evidence_from_clicks` where all candidates were always shown, and else `policy_aware_evidence`.
    """
    return merit_in_arrays(counts, position_bias, noise=noise, clip=clip).to_torch()


def merit_in_arrays(
    counts: Counts,
    position_bias: PositionBias | None = None,
    *,
    noise: ClickNoise | None = None,
    clip: float | None = None,
) -> Evidence[NDArray[Any]]:
    """Return what `merit_evidence` does, in arrays: what is measured of a log alone needs no torch."""
    estimate = _policy_aware if counts.hides_candidates else _from_clicks
    return estimate(counts, position_bias, noise, clip)


def _from_clicks(
    counts: Counts, position_bias: PositionBias | None, noise: ClickNoise | None, clip: float | None
) -> Evidence[NDArray[Any]]:
    check_counts(counts)
    rates = ClickRates.of(counts, counts.propensities(position_bias), noise)
    return evidence_of(counts, by_impression(counts, rates, clip), noise)


def _policy_aware(
    counts: Counts, position_bias: PositionBias | None, noise: ClickNoise | None, clip: float | None
) -> Evidence[NDArray[Any]]:
    check_counts(counts)
    rates = ClickRates.of(counts, counts.propensities(position_bias), noise)
    pooled = by_pool(counts, rates, clip, np.arange(counts.data.rows))
    return evidence_of(counts, pooled, noise, unseen_known=False)


def evidence_of_bare_clicks(
    counts: Counts, *, noise: ClickNoise | None = None, dtype: torch.dtype | None = None
) -> Evidence:
    """Count clicks as they are, wherever they were made: biased by position, and by what was shown.

    M^_q(d) = c_{q,d}, summed over the impressions of the list
    """
    check_counts(counts)
    rates = ClickRates.of(counts, np.ones(counts.cells.row.size), noise)
    return evidence_of(counts, by_impression(counts, rates, None), noise).to_torch(dtype)


class ClickRates(NamedTuple):
    """What an impression adds to the expected clicks on an item, for each cell of counts.

    Both are relative to `noise.most()`, whose two constants `correct_noise` takes off in the end: without
    noise by position, both are p.

    Parameters
    ----------
    relevant
        alpha_k / (eps_plus - eps_minus): what relevance adds.
    false
        beta_k / eps_minus: what is clicked by mistake.
    """

    relevant: Array
    false: Array

    @classmethod
    def of(cls, counts: Counts, propensity: Array, noise: ClickNoise | None) -> ClickRates:
        """Return the rates of cells that are examined with given probabilities."""
        if noise is None or not noise.by_position:
            return cls(propensity, propensity)
        plus, minus = noise.most().at(1)
        plus_at, minus_at = (curve[counts.cells.position] for curve in noise.curves(counts.deepest))
        false = minus_at / minus if minus > 0 else np.ones_like(minus_at)
        return cls(propensity * (plus_at - minus_at) / (plus - minus), propensity * false)


class WeighedClicks(NamedTuple):
    """Sums over the impressions of each row.

    Parameters
    ----------
    weight
        Of clicks, each weighed.
    counted
        How much of the relevance the weight has in expectation, summed: one for each impression, less where
        weights are clipped, 0 where nobody looks.
    false
        E[weight] of an irrelevant item if all its examinations at the noisiest position ended in a click.
    """

    weight: Array
    counted: Array
    false: Array


def by_impression(counts: Counts, rates: ClickRates, clip: float | None) -> WeighedClicks:
    """Weigh the clicks of each impression by its own rate: sum_t c_t / alpha_t."""
    cells = counts.cells
    counted = _counted_part(rates.relevant, clip) * cells.impressions
    return WeighedClicks(
        counts.sum_by_row(click_weights(cells.clicks.astype(np.float64), rates.relevant, clip)),
        counts.sum_by_row(counted),
        counts.sum_by_row(counted * _ratio(rates.false, rates.relevant)),
    )


def by_pool(counts: Counts, rates: ClickRates, clip: float | None, pool: NDArray[np.int64]) -> WeighedClicks:
    """Weigh the clicks of all rows with the same number in `pool` by their mean rate over all impressions."""

    def pooled(of_rows: Array) -> Array:
        return np.asarray(np.bincount(pool, weights=of_rows)[pool], dtype=np.float64)

    # a click where nobody looks would count in the sum, while its impression does not
    check_examined(counts.cells.clicks, rates.relevant)
    shown = counts.cells.impressions
    times = np.repeat(counts.impressions, counts.data.lengths).astype(np.float64)
    total = pooled(times)
    relevant, false = (pooled(counts.sum_by_row(shown * rate)) for rate in rates)
    rate = _ratio(relevant, total)
    counted = _counted_part(rate, clip) * times
    return WeighedClicks(
        click_weights(pooled(counts.clicks()), rate, clip) * _ratio(times, total),
        counted,
        counted * _ratio(false, relevant),
    )


def evidence_of(
    counts: Counts, weighed: WeighedClicks, noise: ClickNoise | None, *, unseen_known: bool = True
) -> Evidence[NDArray[Any]]:
    """Return the evidence of weighed clicks, without the noise.

    Unless `unseen_known`, items that could not be examined are of unknown merit and in no group.
    """
    candidates, unseen = candidates_in_arrays(counts.data), None
    hidden = (weighed.counted == 0) & (counts.data.group >= 0)
    if not unseen_known and hidden.any():
        unseen = np.where(hidden, candidates.group, -1)
        candidates = replace(candidates, group=np.where(hidden, -1, candidates.group))
    evidence = Evidence(
        candidates=candidates,
        weight=weighed.weight.astype(np.float64),
        impressions=counts.impressions.astype(np.float64),
        shown=weighed.false.astype(np.float64),
        empties_dropped=counts.empties_dropped,
        unseen_group=unseen,
    )
    return evidence if noise is None else correct_noise(evidence, noise.most())


def check_counts(given: object) -> None:
    """Refuse a `ClickLog`: taken for the rows of its own data, evidence would be about other items."""
    if not isinstance(given, Counts):
        problem = "must be Counts, such as log.compact(), whose rows the evidence is about"
        raise InputError(problem, column="counts", value=type(given).__name__)


def _item_of_row(counts: Counts) -> NDArray[np.int64]:
    """Return a number for the query and the document of each row."""
    data = counts.data
    if data.doc_id is None:
        return np.arange(data.rows)
    return group_numbers(*group_rows(data.query_codes[data.list_of_row], codes_of(data.doc_id)))


def _counted_part(propensity: Array, clip: float | None) -> Array:
    """Return p times the weight 1 / p, which is 1 unless the weight is clipped; 0 where nobody looks."""
    whole = np.ones_like(propensity) if clip is None else np.minimum(1.0, clip * propensity)
    return np.where(propensity > 0, whole, 0.0)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, and 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
