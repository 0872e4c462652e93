"""Whether a log shows any disparity at all, to be said before anyone trains for less of it."""

from __future__ import annotations

from fultr.audit.auditing import audit
from fultr.clicks.examination import AnyBias
from fultr.data import Counts
from fultr.errors import InputError
from fultr.logs.inspection import Finding

FEW_RESAMPLES = 200
"""Enough for the ends of an interval that only has to tell whether 0 is in it."""


def logged_disparity_finding(
    counts: Counts, position_bias: AnyBias | None = None, depth: int | None = None
) -> Finding | None:
    """Say whether clicks can show a disparity of the logged ranking; None if there is nothing to audit.

    Parameters are those of `audit`.
    """
    try:
        found = audit(counts, position_bias=position_bias, depth=depth, resamples=FEW_RESAMPLES).logged
    except InputError:  # which says why there is nothing to audit, for those who audit
        return None
    if not found.pairs:
        return None
    disparity = found.disparity
    ends = f"{disparity.value:.3g} (95% interval {disparity.low:.3g} to {disparity.high:.3g})"
    if disparity.low > 0:
        sentence = (
            f"The logged ranking has a disparity of {ends}: {found.exposure_to_move.value:.0%} of exposure"
            " would have to go to other groups to be in proportion to merit."
        )
        return Finding("note", "group", sentence)
    sentence = (
        f"No disparity of the logged ranking can be shown in this log: it is {ends}, so that it may be 0. To"
        " show less of it under a policy, collect more clicks on more queries first."
    )
    return Finding("warning", "group", sentence)
