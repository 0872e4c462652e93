"""The examination of positions that an audit rests on, and others that are possible as well."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fultr.click_model import PositionBias
from fultr.clicks import BiasEstimate
from fultr.data import Counts
from fultr.errors import InputError
from fultr.training.sources import position_bias_of

ASSUMED_ERROR = 0.1
"""How far the power of a position bias may be off, relative to itself, if nothing is known of its error."""


@dataclass(frozen=True)
class Examination:
    """The position bias of an audit.

    Parameters
    ----------
    bias, source
        The one that counts, and where it comes from.
    others, uncertainty
        Those that are possible as well, by what they are, and where they come from: "intervals" of an
        estimate or an "assumption".
    notes
        What to know of them.
    """

    bias: PositionBias
    source: str
    others: Mapping[str, PositionBias]
    uncertainty: Literal["intervals", "assumption"]
    notes: tuple[str, ...] = ()


def examination_for(
    asked: object,
    log: Counts,
    policies: Mapping[str, object],
    longest: int,
) -> Examination:
    """Return the position bias asked for, or that of the log, or that of the policies if they agree.

    An estimate that ends before the last position is refused, unless it was given a tail.
    """
    if isinstance(asked, BiasEstimate):
        return _estimated(asked, longest)
    if asked is not None and not isinstance(asked, PositionBias):
        problem = "must be a PositionBias or a BiasEstimate, or left out for that of the log"
        raise InputError(problem, column="position_bias", value=asked)
    bias, source = (asked, "given") if asked is not None else _known(log, policies)
    return _assumed(bias, source)


def steeper(bias: PositionBias, factor: float) -> PositionBias:
    """Return v_k^factor, which multiplies the power eta of v_k = (1/k)^eta by the factor.

    Examples
    --------
    >>> steeper(PositionBias.power(1.0), 1.1)
    PositionBias.power(eta=1.1)
    """
    beyond = bias.beyond if isinstance(bias.beyond, str) else bias.beyond * factor
    return PositionBias([value**factor for value in bias.values], beyond=beyond)


def _known(log: Counts, policies: Mapping[str, object]) -> tuple[PositionBias, str]:
    """Return what the log says of itself, or else what all policies were trained with."""
    try:
        return position_bias_of(None, log), "propensities" if log.position_bias is None else "log"
    except InputError:
        found = {
            bias
            for policy in policies.values()
            for bias in (getattr(policy, "position_bias_", None) or getattr(policy, "position_bias", None),)
            if isinstance(bias, PositionBias)
        }
        if len(found) == 1:
            return found.pop(), "policies"
        if not found:
            raise
    problem = "the log has no position bias and the policies have different ones; give the one that holds"
    raise InputError(problem, column="position_bias")


def _assumed(bias: PositionBias, source: str, notes: tuple[str, ...] = ()) -> Examination:
    others = {
        f"{1 - ASSUMED_ERROR:g} times the power": steeper(bias, 1 - ASSUMED_ERROR),
        f"{1 + ASSUMED_ERROR:g} times the power": steeper(bias, 1 + ASSUMED_ERROR),
    }
    note = (
        f"nothing is known of the error of the position bias; that its power may be off by"
        f" {ASSUMED_ERROR:.0%} is an assumption, and estimating it from the log gives intervals instead"
    )
    return Examination(bias, source, others, "assumption", (*notes, note))


def _estimated(estimate: BiasEstimate, longest: int) -> Examination:
    bias = estimate.to_position_bias()
    if longest > len(bias.values) and bias.beyond == "error":
        problem = (
            f"the estimate ends at position {len(bias.values)}, and there are positions up to {longest}; use"
            " more clicks, or have it continued by its power law (--tail power when it is estimated,"
            " with_tail() in Python)"
        )
        raise InputError(problem, column="position_bias")
    notes = tuple(_notes_on_tail(estimate, longest))
    if not any(math.isfinite(low) for low in estimate.low[1:]):
        return _assumed(bias, "estimate", notes)
    # the low end falls fastest, the high end slowest
    others = {
        "low ends of the intervals": _end(estimate, estimate.low, estimate.eta_high),
        "high ends of the intervals": _end(estimate, estimate.high, estimate.eta_low),
    }
    for name, eta in (("lowest power", estimate.eta_low), ("highest power", estimate.eta_high)):
        if estimate.eta > 0 and eta >= 0:
            others[f"{name}, eta {eta:.3g}"] = steeper(bias, eta / estimate.eta)
    return Examination(bias, "estimate", others, "intervals", notes)


def _notes_on_tail(estimate: BiasEstimate, longest: int) -> Iterator[str]:
    """Say which positions nobody measured."""
    measured = len(estimate.values)
    gaps = [str(position) for position in estimate.insufficient if position <= longest]
    places = [*([f"at {', '.join(gaps)}"] if gaps else []), *([f"after {measured}"] * (longest > measured))]
    if estimate.tail is not None and places:
        yield f"positions {' and '.join(places)} follow the power law that fits the others"


def _end(estimate: BiasEstimate, ends: tuple[float, ...], eta: float) -> PositionBias:
    """Return the curve whose every position but the first is at an end of its interval."""
    values = tuple(
        end if math.isfinite(end) and place else value
        for place, (value, end) in enumerate(zip(estimate.values, ends, strict=True))
    )
    power = max(eta, 0.0) if math.isfinite(eta) else estimate.eta
    return replace(estimate, values=values, eta=power).to_position_bias()
