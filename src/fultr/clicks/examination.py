"""A position bias in any form (a curve, an estimate, a curve for each context) applied to a log."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TypeVar, cast

from fultr.click_model import PositionBias, PositionBiasByContext
from fultr.clicks.bias_estimate import BiasEstimate, position_ranges
from fultr.data import Counts, Source
from fultr.data.merging import merge_contexts
from fultr.errors import FultrWarning, InputError

AnyBias = PositionBias | BiasEstimate | PositionBiasByContext
"""What can be given as a position bias."""

SourceT = TypeVar("SourceT", bound=Source)


def check_bias(asked: object) -> None:
    """Refuse what is no position bias; None is fine."""
    if asked is not None and not isinstance(asked, AnyBias):
        problem = "must be a PositionBias, a BiasEstimate or a PositionBiasByContext"
        raise InputError(problem, column="position_bias", value=asked)


def context_of(asked: object) -> str | None:
    """Return the column that a log is to be counted by for a position bias, if any."""
    return asked.column if isinstance(asked, PositionBiasByContext) else None


def with_examination(source: SourceT, asked: AnyBias | None) -> tuple[SourceT, PositionBias | None]:
    """Return a source and the curve that exposure is measured by, if one is asked for.

    With a curve for each context, the source gets the propensities of its contexts, and the curve is their
    mean. A warning says where an estimate is imprecise.
    """
    check_bias(asked)
    longest = source.deepest if isinstance(source, Counts) else int(source.data.lengths.max(initial=0))
    if isinstance(asked, PositionBiasByContext):
        for value, curve in asked.curves.items():
            _warn_of(curve, longest, f"of {asked.column} {value} ")
        if not isinstance(source, Counts):
            problem = (
                f"has a curve for each {asked.column}, which single impressions and labelled lists do not"
                " tell apart; give one curve, or counts of the log by that column"
            )
            raise InputError(problem, column="position_bias")
        weighed = merge_contexts(source.with_bias_by_context(asked))
        return cast("SourceT", weighed), weighed.position_bias
    _warn_of(asked, longest, "")
    return source, None if asked is None else asked.to_position_bias()


def warn_of_mean(policy: object) -> None:
    """Warn that clicks are weighed by the mean of curves that a policy was trained with, one a context."""
    column = getattr(policy, "bias_context_", None)
    if column is not None:
        line = (
            f"the policy was trained with a position bias for each {column}, and clicks are weighed by the"
            " mean of the curves; give the position bias again to weigh each by its own"
        )
        warnings.warn(line, FultrWarning, stacklevel=3)


def _warn_of(curve: object, longest: int, whose: str) -> None:
    """Warn of positions that lists reach and that rest on too few clicks."""
    imprecise = curve.imprecise_positions(longest) if isinstance(curve, BiasEstimate) else ()
    if not isinstance(curve, BiasEstimate) or not imprecise:
        return
    where, clicks = position_ranges(imprecise), _evidence(curve, imprecise)
    line = (
        f"the position bias {whose}is imprecise at {where} ({clicks}), and the log goes down to {longest}:"
        " exposure and the weights of clicks there are no more certain; estimate it from more clicks"
    )
    warnings.warn(line, FultrWarning, stacklevel=3)


def _evidence(curve: BiasEstimate, positions: Sequence[int]) -> str:
    """Return how many clicks positions rest on; of a single one also the interval."""
    clicks = [curve.clicks[position - 1] for position in positions if position <= len(curve.clicks)]
    if len(positions) > 1:
        fewest, most = min(clicks, default=0), max(clicks, default=0)
        fewest = fewest if len(clicks) == len(positions) else 0
        return f"{fewest:,} to {most:,} clicks at each" if fewest < most else f"{most:,} clicks at each"
    if not clicks:
        return "no clicks"
    low, high = curve.low[positions[0] - 1], curve.high[positions[0] - 1]
    return f"{clicks[0]:,} clicks" + ("" if math.isnan(low) else f", interval {low:.2g} to {high:.2g}")
