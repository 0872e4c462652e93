"""The examination of positions that an audit rests on, and others that are possible as well."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fultr.click_model import PositionBias
from fultr.clicks import BiasEstimate
from fultr.clicks.examination import warn_of_mean
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
    depth: int | None = None,
) -> Examination:
    """Return the position bias asked for, or that of the log, or that of the policies if they agree.

    An estimate that ends before the last position is refused, unless it was given a tail. All end where the
    page does.
    """
    examination = _examination(asked, log, policies, longest)

    def cut(bias: PositionBias) -> PositionBias:
        return log.on_page(bias, depth)

    others = {name: cut(other) for name, other in examination.others.items()}
    return replace(examination, bias=cut(examination.bias), others=others)


def _examination(asked: object, log: Counts, policies: Mapping[str, object], longest: int) -> Examination:
    if isinstance(asked, BiasEstimate):
        return _estimated(asked, longest)
    if asked is not None and not isinstance(asked, PositionBias):
        problem = "must be a PositionBias or a BiasEstimate, or left out for that of the log"
        raise InputError(problem, column="position_bias", value=asked)
    bias, source = (asked, "given") if asked is not None else _own_bias(log, policies)
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


def _own_bias(log: Counts, policies: Mapping[str, object]) -> tuple[PositionBias, str]:
    """Return what the log says of itself, or else what all policies were trained with."""
    try:
        return position_bias_of(None, log), "propensities" if log.position_bias is None else "log"
    except InputError:
        biases = {
            bias
            for policy in policies.values()
            for bias in (getattr(policy, "position_bias_", None) or getattr(policy, "position_bias", None),)
            if isinstance(bias, PositionBias)
        }
        if len(biases) == 1:
            for policy in policies.values():
                warn_of_mean(policy)
            return biases.pop(), "policies"
        if not biases:
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
            " more clicks, or say what holds beyond ({with_tail()})"
        )
        raise InputError(problem, column="position_bias", options=["with_tail()"])
    notes = tuple(_notes_on_tail(estimate, longest))
    if not any(math.isfinite(low) for low in estimate.low[1:]):
        return _assumed(bias, "estimate", notes)
    # the low end falls fastest, the high end slowest
    others = {
        "low ends of the intervals": _end(bias, estimate.low, estimate.eta_high - estimate.eta),
        "high ends of the intervals": _end(bias, estimate.high, estimate.eta_low - estimate.eta),
    }
    for name, eta in (("lowest power", estimate.eta_low), ("highest power", estimate.eta_high)):
        if estimate.eta > 0 and eta >= 0:
            others[f"{name}, eta {eta:.3g}"] = steeper(bias, eta / estimate.eta)
    return Examination(bias, "estimate", others, "intervals", notes)


def _notes_on_tail(estimate: BiasEstimate, longest: int) -> Iterator[str]:
    """Say which positions nobody measured."""
    measured = len(estimate.values)
    gaps = [str(position) for position in estimate.insufficient if position <= longest]
    beyond = longest > measured and estimate.tail == "power"
    places = [*([f"at {', '.join(gaps)}"] if gaps else []), *([f"after {measured}"] * beyond)]
    if estimate.tail != "error" and places:
        yield f"positions {' and '.join(places)} follow the power law that fits the others"


def _end(bias: PositionBias, ends: tuple[float, ...], change: float) -> PositionBias:
    """Return the curve whose every position but the first is at an end of its interval.

    A position without an interval is off by the same factor as the last one before that has one, and the
    power of the tail changes by `change`.
    """
    values, factor = [], 1.0
    for index, value in enumerate(bias.values):
        if index and index < len(ends) and math.isfinite(ends[index]):
            factor = ends[index] / value
        values.append(value * factor)
    beyond = bias.beyond
    if not isinstance(beyond, str) and math.isfinite(change):
        beyond = max(beyond + change, 0.0)
    return PositionBias(values, beyond=beyond)
