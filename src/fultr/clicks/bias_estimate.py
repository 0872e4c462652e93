"""What an estimation of position bias found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import whole_number
from fultr.click_model import PositionBias
from fultr.clicks.bias_curve import PowerLaw, fitted_power_law
from fultr.errors import InputError
from fultr.plots import bias_on, draw_bias, new_axes

Method = Literal["swap", "harvest", "em"]
METHODS: tuple[Method, ...] = ("swap", "harvest", "em")
"""By falling strength of what they rest on."""

WIDE = 1.0
"""An interval of more than this part of its value is called imprecise: about that of 15 clicks."""

NORMAL_WIDTH = 1.96
"""Half the width of a 95% interval, in standard errors."""

Shape = Literal["monotone", "free"]
"""Whether examination falls with the position, or each position is estimated by itself."""

Tail = Literal["error", "power", "zero"]
"""What holds where there is not enough data; see `BiasEstimate.to_position_bias`."""


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
        The curve by position, and its intervals, each by itself, at `level`.
    raw, standard_error
        The estimates of single positions that the curve was made of, and their standard errors.
    shape
        "monotone": the curve falls, and is the nearest one to the raw estimates that does. "free": it is the
        raw estimates.
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
    deepest
        The last position that the log shows anything at, or the depth of its pages where that was given.
    context
        The name and the value of the context that the curve belongs to, such as ("device", "phone").
    notes
        What to know before relying on the estimate, in sentences.
    tail
        What `to_position_bias` does where there is not enough data, unless it gets a `tail`. `estimate_bias`
        chooses `usable_tail`.
    """

    method: Method
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    raw: tuple[float, ...]
    standard_error: tuple[float, ...]
    shape: Shape
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
    deepest: int
    context: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()
    tail: Tail = "error"

    def __repr__(self) -> str:
        estimated = sum(not math.isnan(value) for value in self.values)
        context = "" if self.context is None else f", {self.context[0]} {self.context[1]}"
        return f"<BiasEstimate: {self.method}, {estimated} positions, eta {self.eta:.3f}{context}>"

    def to_position_bias(self, tail: Tail | None = None) -> PositionBias:
        """Return the curve for use.

        Parameters
        ----------
        tail
            By default the estimate's own, `tail`. "error": the curve ends before the first position without
            enough data, and a longer list is refused. "power": a power law, fitted to all positions by their
            precision, continues it, and imprecise positions are moved to it. "zero": nothing is examined
            beyond the deepest position of the log; positions without enough data before follow the power law.
        """
        tail = self.tail if tail is None else tail
        if tail not in get_args(Tail):
            raise InputError(f"must be one of: {', '.join(get_args(Tail))}", column="tail", value=tail)
        if tail == "error":
            last_known = min(self.insufficient, default=len(self.values) + 1) - 1
            return PositionBias(self.values[:last_known])
        if tail == "zero":
            return PositionBias(self._filled(self.deepest, smooth=False), beyond="zero")
        last = int(self._known_positions()[-1])
        return PositionBias(self._filled(last, smooth=True), beyond=self.power_law().eta)

    def power_law(self) -> PowerLaw:
        """Return the power law that fits all positions best, each weighted by its precision."""
        estimated = self._known_positions()
        if estimated.size < 2:
            problem = "only one position has enough data, so that no power law can be fitted"
            raise InputError(problem, column="eta")
        law = fitted_power_law(
            estimated, np.array(self.raw)[estimated - 1], self._log_errors()[estimated - 1]
        )
        if not law.eta >= 0:
            problem = "examination does not fall with the position, so that no power law can be its tail"
            raise InputError(problem, column="eta", value=law.eta)
        return law

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Any:
        """Draw the values with their intervals; positions without enough data are gaps.

        To a file, PNG, SVG or PDF by the ending of `path`, which is returned; or on axes of matplotlib, new
        ones if `ax` is None, which are returned.
        """
        if path is not None:
            if ax is not None:
                raise InputError("give a file or axes, not both", column="ax")
            return draw_bias({"Position bias": {self.method: self}}, path)
        axes = new_axes() if ax is None else ax
        bias_on(axes, self, self.method)
        return axes

    def _filled(self, last: int, *, smooth: bool) -> list[float]:
        """Return the curve up to a position, those without enough data by the power law."""
        estimated, positions = self._known_positions(), np.arange(1, last + 1)
        if not smooth and np.isin(positions, estimated).all():
            return list(self.values[:last])
        law, curve = self.power_law(), np.ones(max(last, len(self.values)))
        curve[:last] = law.at(positions)
        curve[estimated - 1] = np.array(self.values)[estimated - 1]
        if smooth:
            curve[estimated - 1] = law.smoothed(
                estimated, curve[estimated - 1], self._log_errors()[estimated - 1]
            )
        curve = np.minimum.accumulate(curve) if self.shape == "monotone" else curve
        return [float(value) for value in curve[:last]]

    def _known_positions(self) -> NDArray[np.int64]:
        return np.flatnonzero(~np.isnan(self.values)) + 1

    def _log_errors(self) -> NDArray[np.float64]:
        """Return the standard errors of log v_k; without intervals, those that the clicks allow at best."""
        errors = np.array(self.standard_error) / np.array(self.raw)
        at_best = 1 / np.sqrt(np.maximum(self.clicks, 1))
        return np.where(np.isnan(self.standard_error), np.where(np.arange(errors.size), at_best, 0.0), errors)

    def imprecise_positions(self, longest: int) -> tuple[int, ...]:
        """Return the positions up to `longest` that rest on few clicks, or on none.

        Those whose interval is wider than their value, and those without enough data that follow a tail: of a
        power law also those after the last, of one that ends those up to its end.
        """
        width = np.array(self.high) - np.array(self.low)
        width = np.where(np.isnan(width), 2 * NORMAL_WIDTH * self._log_errors() * self.values, width)
        wide = width > WIDE * np.array(self.values)
        last = {"error": len(self.values), "power": longest, "zero": min(longest, self.deepest)}[self.tail]
        if self.tail != "error":
            wide |= np.isnan(self.values)
            wide = np.append(wide, np.ones(max(0, last - wide.size), dtype=bool))
        return tuple((np.flatnonzero(wide[: min(last, longest)]) + 1).tolist())

    @property
    def usable_tail(self) -> Tail:
        """The tail with which the curve serves the log it was estimated from.

        "error" where all positions of the log have a value, or no power law describes them; else "power".
        """
        if len(self.to_position_bias("error").values) >= self.deepest:
            return "error"
        try:
            self.power_law()
        except InputError:
            return "error"
        return "power"

    def with_tail(self, tail: Tail = "power") -> BiasEstimate:
        """Return the same estimate with another tail."""
        return replace(self, tail=tail)

    def on_page(self, depth: int) -> BiasEstimate:
        """Return the same estimate for pages of `depth` positions: nothing beyond them is examined."""
        return replace(self, tail="zero", deepest=whole_number(depth, "depth", least=1))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; what is not known becomes None.

        "values" and "beyond" are those of `to_position_bias()`, so that what reads a position bias can
        read this; "positions" is the whole table.
        """
        columns = (
            *(self.values, self.low, self.high, self.raw, self.standard_error),
            *(self.impressions, self.clicks, self.pairs),
        )
        return {
            **self.to_position_bias().to_dict(),
            "method": self.method,
            "context": None if self.context is None else dict(zip(CONTEXT, self.context, strict=True)),
            "shape": self.shape,
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
            "deepest": self.deepest,
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
                raw=_numbers(table["raw"]),
                standard_error=_numbers(table["standard_error"]),
                shape=content["shape"],
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
                deepest=int(content["deepest"]),
                context=None if context is None else (str(context["name"]), str(context["value"])),
                notes=tuple(map(str, content["notes"])),
                tail=_tail(content.get("beyond", "error")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"is no estimate of position bias as fultr writes it ({type(error).__name__}: {error})"
            raise InputError(problem) from None
        unknown = {position for position, value in enumerate(made.values, start=1) if math.isnan(value)}
        named = made.method in METHODS and made.shape in get_args(Shape) and made.tail in get_args(Tail)
        if not named or not made.values or unknown != set(made.insufficient) or 1 in unknown:
            raise InputError("is no estimate of position bias as fultr writes it (its fields disagree)")
        return made


def position_ranges(positions: Sequence[int]) -> str:
    """Return positions as text, those in a row as their first and last.

    Examples
    --------
    >>> position_ranges([3, 5, 6, 7])
    'positions 3, 5 to 7'
    """
    starts = [positions[0], *(after for before, after in pairwise(positions) if after > before + 1)]
    ends = [*(before for before, after in pairwise(positions) if after > before + 1), positions[-1]]
    parts = [
        str(start) if start == end else f"{start} to {end}" for start, end in zip(starts, ends, strict=True)
    ]
    return f"position{'s' if len(positions) > 1 else ''} {', '.join(parts)}"


COLUMNS = ("value", "low", "high", "raw", "standard_error", "impressions", "clicks", "pairs")
CONTEXT = ("name", "value")


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _numbers(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(map(_number, values))


def _tail(beyond: Any) -> Any:
    return beyond if isinstance(beyond, str) else "power"


def _fit(content: dict[str, float] | None) -> GoodnessOfFit | None:
    if content is None:
        return None
    return GoodnessOfFit(
        float(content["statistic"]), float(content["degrees_of_freedom"]), float(content["p_value"])
    )
