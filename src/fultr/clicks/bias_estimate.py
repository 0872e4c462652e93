"""What an estimation of position bias found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fultr.click_model import PositionBias
from fultr.errors import InputError

Method = Literal["swap", "harvest", "em"]
METHODS: tuple[Method, ...] = ("swap", "harvest", "em")
"""By falling strength of what they rest on."""


@dataclass(frozen=True)
class GoodnessOfFit:
    """Whether what a model says of the clicks is further from them than chance explains."""

    statistic: float
    degrees_of_freedom: float
    p_value: float


@dataclass(frozen=True, repr=False)
class BiasEstimate:
    """Examination by position relative to the first, v_1 = 1, estimated from clicks.

    Columns by position start at position 1. NaN is what is not known: the value of a position without enough
    data, and all intervals if there is only one query.

    Attributes
    ----------
    method
        "swap", "harvest" or "em".
    values, low, high
        The estimates by position, and their intervals, each by itself, at `level`.
    impressions, clicks
        What the log shows of each position.
    pairs
        The comparisons each position was part of: impressions of its swap experiment, or documents that were
        seen at it and at another position.
    insufficient
        The positions without enough data, whose values are NaN.
    eta, eta_low, eta_high
        The power of v_k = (1 / k)^eta that fits best, as a summary.
    fit, power_fit
        Whether the clicks follow the position-based model, and whether the values follow the power law; None
        where nothing is left to test it.
    queries, resamples
        Over how many queries the intervals were drawn, and how often.
    context
        The name and the value of the context that the curve belongs to, such as ("device", "phone").
    notes
        What to know before relying on the estimate, in sentences.
    tail
        "power" if the curve is to be continued by its power law where there is not enough data.
    """

    method: Method
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: float
    impressions: tuple[int, ...]
    clicks: tuple[int, ...]
    pairs: tuple[int, ...]
    insufficient: tuple[int, ...]
    eta: float
    eta_low: float
    eta_high: float
    fit: GoodnessOfFit | None
    power_fit: GoodnessOfFit | None
    queries: int
    resamples: int
    context: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()
    tail: Literal["power"] | None = None

    def __repr__(self) -> str:
        known = sum(not math.isnan(value) for value in self.values)
        context = "" if self.context is None else f", {self.context[0]} {self.context[1]}"
        return f"<BiasEstimate: {self.method}, {known} positions, eta {self.eta:.3f}{context}>"

    def to_position_bias(self, tail: Literal["power"] | None = None) -> PositionBias:
        """Return the curve for use.

        Parameters
        ----------
        tail
            None, unless the estimate itself has a tail: the curve ends before the first position without
            enough data, and a longer list is refused. "power": the power law continues it there,
            v_j (j / k)^eta from the last known position j, and beyond the last position.
        """
        tail = tail or self.tail
        if tail not in (None, "power"):
            raise InputError("must be None or 'power'", column="tail", value=tail)
        gaps = set(self.insufficient)
        if tail is None:
            known = min(gaps, default=len(self.values) + 1) - 1
            return PositionBias(self.values[:known])
        if not self.eta >= 0:
            problem = "examination does not fall with the position, so that no power law can be its tail"
            raise InputError(problem, column="eta", value=self.eta)
        last = max(set(range(1, len(self.values) + 1)) - gaps)
        curve, before = [], 1
        for position in range(1, last + 1):
            before = before if position in gaps else position
            curve.append(self.values[before - 1] * (before / position) ** self.eta)
        return PositionBias(curve, beyond=self.eta)

    def with_tail(self) -> BiasEstimate:
        """Return the same estimate, continued by its power law wherever there is not enough data."""
        return replace(self, tail="power")

    def to_dict(self, tail: Literal["power"] | None = None) -> dict[str, Any]:
        """Return everything as plain values for JSON; what is not known becomes None.

        "values" and "beyond" are those of `to_position_bias(tail)`, so that what reads a position bias can
        read this; "positions" is the whole table.
        """
        columns = (self.values, self.low, self.high, self.impressions, self.clicks, self.pairs)
        return {
            **self.to_position_bias(tail).to_dict(),
            "method": self.method,
            "context": None if self.context is None else dict(zip(CONTEXT, self.context, strict=True)),
            "level": self.level,
            "positions": [
                {"position": position, **dict(zip(COLUMNS, map(_plain, row), strict=True))}
                for position, row in enumerate(zip(*columns, strict=True), start=1)
            ],
            "insufficient": list(self.insufficient),
            "eta": {"value": _plain(self.eta), "low": _plain(self.eta_low), "high": _plain(self.eta_high)},
            "fit": None if self.fit is None else vars(self.fit).copy(),
            "power_fit": None if self.power_fit is None else vars(self.power_fit).copy(),
            "queries": self.queries,
            "resamples": self.resamples,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> BiasEstimate:
        """Make the estimate from what `to_dict` gave."""
        try:
            table = {name: tuple(row[name] for row in content["positions"]) for name in COLUMNS}
            context, eta = content["context"], content["eta"]
            made = cls(
                method=content["method"],
                values=_numbers(table["value"]),
                low=_numbers(table["low"]),
                high=_numbers(table["high"]),
                level=float(content["level"]),
                impressions=tuple(map(int, table["impressions"])),
                clicks=tuple(map(int, table["clicks"])),
                pairs=tuple(map(int, table["pairs"])),
                insufficient=tuple(map(int, content["insufficient"])),
                eta=_number(eta["value"]),
                eta_low=_number(eta["low"]),
                eta_high=_number(eta["high"]),
                fit=_fit(content["fit"]),
                power_fit=_fit(content["power_fit"]),
                queries=int(content["queries"]),
                resamples=int(content["resamples"]),
                context=None if context is None else (str(context["name"]), str(context["value"])),
                notes=tuple(map(str, content["notes"])),
                tail=None if content.get("beyond", "error") == "error" else "power",
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"is no estimate of position bias as fultr writes it ({type(error).__name__}: {error})"
            raise InputError(problem) from None
        unknown = {place for place, value in enumerate(made.values, start=1) if math.isnan(value)}
        if made.method not in METHODS or not made.values or unknown != set(made.insufficient) or 1 in unknown:
            raise InputError("is no estimate of position bias as fultr writes it (its fields disagree)")
        return made


COLUMNS = ("value", "low", "high", "impressions", "clicks", "pairs")
CONTEXT = ("name", "value")


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _numbers(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(map(_number, values))


def _fit(content: dict[str, float] | None) -> GoodnessOfFit | None:
    if content is None:
        return None
    return GoodnessOfFit(
        float(content["statistic"]), float(content["degrees_of_freedom"]), float(content["p_value"])
    )
