"""Whether a log shows any disparity, and which limit it could support, to be said before anyone trains."""

from __future__ import annotations

import numpy as np

from fultr.audits.auditing import audit
from fultr.clicks import check_candidates
from fultr.clicks.examination import AnyBias, with_examination
from fultr.data import Counts
from fultr.errors import InputError
from fultr.estimators import merit_in_arrays
from fultr.evaluation.clustered import disparity_estimates
from fultr.evaluation.clusters import clusters_of
from fultr.logs.inspection import Finding
from fultr.training.sources import position_bias_of

FEW_RESAMPLES = 200
"""Enough for the ends of an interval that only has to tell whether 0 is in it."""


LEVEL = 0.95
"""The confidence of the limit that could be promised."""


def lowest_limit(
    counts: Counts, position_bias: AnyBias | None = None, depth: int | None = None, level: float = LEVEL
) -> float | None:
    """Return about the lowest limit of the disparity on new queries that a log of this size can support.

    sqrt(sum_{i<j} (t s_ij)^2), s_ij being the standard error of D_ij of the logged ranking and t how many of
    them hold all pairs at once: the upper bound of a policy whose estimated disparity is 0. None where there
    is nothing to measure, or something in the log is not known.
    """
    if len(counts.data.group_names) < 2:
        return None
    try:
        check_candidates(counts, 0.0)
        weighed, curve = with_examination(counts, position_bias)
        bias = position_bias_of(curve, weighed, depth)
        evidence = merit_in_arrays(weighed, None if weighed.cells.propensity is not None else bias)
    except InputError:  # which says what is missing, for those who train
        return None
    if evidence.unseen is not None or evidence.empties_dropped:
        return None
    exposure = weighed.mean_examination(bias)[None]
    estimates = disparity_estimates(exposure, evidence, *clusters_of(weighed.data))
    return float(estimates.reach(level) * np.sqrt((estimates.errors**2).sum()))


def lowest_limit_finding(
    counts: Counts, position_bias: AnyBias | None = None, depth: int | None = None
) -> Finding | None:
    """Say which limit of the disparity on new queries training could promise; None if that is unknown."""
    lowest = lowest_limit(counts, position_bias, depth)
    if not lowest:
        return None
    sentence = (
        f"Limits of the disparity on new queries can be promised with {LEVEL:.0%} confidence from about"
        f" {lowest:.2g} on; half of that needs about four times as many impressions, on more queries."
    )
    return Finding("note", "group", sentence)


def logged_disparity_finding(
    counts: Counts, position_bias: AnyBias | None = None, depth: int | None = None
) -> Finding | None:
    """Say whether clicks can show a disparity of the logged ranking; None if there is nothing to audit.

    Parameters are those of `audit`.
    """
    try:
        logged = audit(counts, position_bias=position_bias, depth=depth, resamples=FEW_RESAMPLES).logged
    except InputError:  # which says why there is nothing to audit, for those who audit
        return None
    if not logged.pairs:
        return None
    disparity = logged.disparity
    ends = f"{disparity.value:.3g} (95% interval {disparity.low:.3g} to {disparity.high:.3g})"
    if disparity.low > 0:
        sentence = (
            f"The logged ranking has a disparity of {ends}: {logged.exposure_to_move.value:.0%} of exposure"
            " would have to go to other groups to be in proportion to merit."
        )
        return Finding("note", "group", sentence)
    sentence = (
        f"No disparity of the logged ranking can be shown in this log: it is {ends}, so that it may be 0. To"
        " show less of it under a policy, collect more clicks on more queries first."
    )
    return Finding("warning", "group", sentence)
