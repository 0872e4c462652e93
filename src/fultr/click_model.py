"""How people look and click: examination by position, and click noise.

A user examines the item at position k with probability v_k; having examined it, they click a
relevant item with probability eps_plus and an irrelevant one with probability eps_minus, both of which
may depend on the position.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import checked_number, whole_numbers
from fultr.errors import InputError


@dataclass(frozen=True)
class PositionBias:
    """Examination probabilities v_k by position, relative to the first: v_1 = 1.

    Parameters
    ----------
    values
        Examination of positions 1, 2, ...; divided by the first, since clicks identify examination
        only up to a factor.
    beyond
        What holds past the last value: `"error"` (a longer list is refused), `"zero"` (nothing there
        is examined), or a number eta, for a power-law tail v_k = v_K (K / k)^eta.

    Examples
    --------
    >>> PositionBias([0.8, 0.4, 0.2]).at([1, 2, 3]).tolist()
    [1.0, 0.5, 0.25]
    >>> PositionBias.power(eta=1.0).at([1, 2, 4]).tolist()
    [1.0, 0.5, 0.25]
    """

    values: Sequence[float]
    beyond: Literal["error", "zero"] | float = "error"

    def __post_init__(self) -> None:
        curve = _as_curve(self.values)
        for position, value in enumerate(curve, start=1):
            if not math.isfinite(value) or value < 0 or (position == 1 and value == 0):
                rule = "above 0" if position == 1 else "0 or more"
                raise InputError(
                    f"examination must be finite and {rule}", column=f"v_{position}", value=value
                )
            if not math.isfinite(value / curve[0]):
                problem = f"is too large to be divided by that of position 1, {curve[0]:g}"
                raise InputError(problem, column=f"v_{position}", value=value)
        object.__setattr__(self, "values", tuple(value / curve[0] for value in curve))
        if isinstance(self.beyond, str) or self.beyond is None:
            if self.beyond not in ("error", "zero"):
                problem = "must be 'error', 'zero' or the power of a tail"
                raise InputError(problem, column="beyond", value=repr(self.beyond))
        else:
            rule = "the power of the tail must be finite and 0 or more"
            power = checked_number(self.beyond, "beyond", rule, lambda given: 0 <= given < math.inf)
            object.__setattr__(self, "beyond", power)

    @classmethod
    def power(cls, eta: float = 1.0) -> PositionBias:
        """Return the power law v_k = (1 / k)^eta, the paper's, for lists of any length."""
        rule = "the power must be finite and 0 or more"
        return cls([1.0], beyond=checked_number(eta, "eta", rule, lambda given: 0 <= given < math.inf))

    @property
    def depth(self) -> int | None:
        """The last position that anybody looks at; None if there is no end."""
        if self.beyond != "zero":
            return None
        return max(position for position, value in enumerate(self.values, start=1) if value > 0)

    def last_position(self, top_k: int | None) -> int | None:
        """Return the last position that has any utility: the last of the first `top_k` that is looked at."""
        ends = [end for end in (top_k, self.depth) if end is not None]
        return min(ends, default=None)

    def cut(self, depth: int) -> PositionBias:
        """Return the same for pages of `depth` positions: nothing beyond them is examined.

        Examples
        --------
        >>> PositionBias.power(1.0).cut(2).at([1, 2, 3]).tolist()
        [1.0, 0.5, 0.0]
        """
        checked_number(depth, "depth", "must be 1 or more", lambda given: given >= 1)
        return PositionBias(self.curve(int(depth))[1:].tolist(), beyond="zero")

    def at(self, positions: ArrayLike) -> NDArray[np.float64]:
        """Return v_k for each position k >= 1, and 0 for position 0, which means not shown."""
        where = whole_numbers(positions, "position")
        if where.min(initial=0) < 0:
            problem = "a position is 1 or more, or 0 for an item that was not shown"
            raise InputError(problem, column="position", value=where.min())
        return np.asarray(self.curve(int(where.max(initial=0)))[where])

    def curve(self, longest: int) -> NDArray[np.float64]:
        """Return v_0 = 0 (not shown), v_1, ..., v_longest: a table to look positions up in."""
        known = min(longest, len(self.values))
        table = np.zeros(longest + 1)
        table[1 : known + 1] = self.values[:known]
        if longest > known:
            if self.beyond == "error":
                raise InputError(
                    f"position {longest} lies beyond the position bias, which has {known} values; give more"
                    " values, or say what holds beyond them ({beyond})",
                    column="position",
                    options=["beyond"],
                )
            if not isinstance(self.beyond, str):
                further = np.arange(known + 1, longest + 1, dtype=np.float64)
                table[known + 1 :] = self.values[-1] * (known / further) ** self.beyond
        return table

    def to_position_bias(self) -> PositionBias:
        """Return the position bias itself, as an estimate returns its curve."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs to make the same position bias."""
        return {"values": list(self.values), "beyond": self.beyond}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> PositionBias:
        """Make a position bias from what `to_dict` gave."""
        if not isinstance(content, dict) or "values" not in content:
            raise InputError(
                "a position bias needs 'values', one for each position from the first", value=content
            )
        return cls(content["values"], beyond=content.get("beyond", "error"))

    def __repr__(self) -> str:
        if len(self.values) == 1 and not isinstance(self.beyond, str):
            return f"PositionBias.power(eta={self.beyond:g})"
        shown = ", ".join(f"{value:.4g}" for value in self.values)
        return f"PositionBias([{shown}], beyond={self.beyond!r})"


class HasPositionBias(Protocol):
    """A position bias, or an estimate of one."""

    def to_position_bias(self) -> PositionBias:
        """Return the curve for use."""
        ...


@dataclass(frozen=True)
class PositionBiasByContext:
    """A position bias for each value of a column of impressions, such as the device.

    Clicks are weighed by the curve of their own impression. Exposure is that of the average user: the mean of
    the curves, weighted by impressions, each relative to its own first position.

    Parameters
    ----------
    column
        The column that tells impressions apart.
    curves
        The position bias, or an estimate of one, for each value of it.
    file
        Where they were read from, for messages.

    Examples
    --------
    >>> curves = {"phone": PositionBias.power(2), "desk": PositionBias.power(1)}
    >>> bias = PositionBiasByContext("device", curves)
    >>> bias.mean({"phone": 100, "desk": 300}, longest=2).at([1, 2]).tolist()
    [1.0, 0.4375]
    """

    column: str
    curves: Mapping[str, HasPositionBias]
    file: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise InputError("must be the name of a column", column="column", value=self.column)
        if not isinstance(self.curves, Mapping) or not self.curves:
            problem = "a position bias by context needs a curve for each value of its column"
            raise InputError(problem, column="curves", value=self.curves)

    def of(self, value: str) -> PositionBias:
        """Return the position bias of a value of the column; a value without one is an error."""
        if value not in self.curves:
            problem = (
                f"the position bias has no curve for this value, only for {', '.join(self.curves)}; estimate"
                " it from a log with more clicks there, or give those impressions another value"
            )
            raise InputError(problem, file=self.file, column=self.column, value=value)
        return self.curves[value].to_position_bias()

    def mean(self, impressions: Mapping[str, float], longest: int) -> PositionBias:
        """Return the mean of the curves of some values, weighted by impressions, exact up to `longest`.

        Beyond `longest` it goes on by the power that it has there. A curve that must not be continued counts
        as 0 where others go on: pages of its context end there.
        """
        impressions = impressions if any(impressions.values()) else dict.fromkeys(self.curves, 1.0)
        total = sum(impressions.values())
        shares = {value: times / total for value, times in impressions.items() if times}
        curves = {value: self.of(value) for value in shares}
        all_end = all(curve.beyond == "error" for curve in curves.values())
        last = max(0 if all_end else longest, *(len(curve.values) for curve in curves.values()))
        ended = {
            value: curve.cut(len(curve.values)) if curve.beyond == "error" else curve
            for value, curve in curves.items()
        }
        weighted = {value: shares[value] * curve.curve(last)[1:] for value, curve in ended.items()}
        values = sum(weighted.values(), np.zeros(last))
        if all_end:
            return PositionBias(values.tolist())
        powers = {
            value: float(curve.beyond) for value, curve in curves.items() if not isinstance(curve.beyond, str)
        }
        at_end = sum(weighted[value][-1] for value in powers)
        if not at_end:
            return PositionBias(values.tolist(), beyond="zero")
        power = sum(weighted[value][-1] * power for value, power in powers.items()) / at_end
        return PositionBias(values.tolist(), beyond=float(power))

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs to make the same curves."""
        curves = {value: curve.to_position_bias().to_dict() for value, curve in self.curves.items()}
        return {"column": self.column, "curves": curves}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> PositionBiasByContext:
        """Make the position bias from what `to_dict` gave."""
        if not isinstance(content, dict) or not isinstance(content.get("curves"), dict):
            raise InputError("a position bias by context needs 'column' and 'curves'", value=content)
        curves = {value: PositionBias.from_dict(curve) for value, curve in content["curves"].items()}
        return cls(content.get("column", ""), curves)


@dataclass(frozen=True)
class ClickNoise:
    r"""Click probabilities of an examined item: eps_plus if relevant, eps_minus if not.

    P(c = 1 | rel = 1, o = 1) = eps_plus and P(c = 1 | rel = 0, o = 1) = eps_minus, with
    1 >= eps_plus > eps_minus >= 0.

    Each may depend on the position: people trust the first positions, and click what stands there more
    readily (trust bias). With r the relevance of an item shown at position k,

    $$
    P(c = 1 \mid r, k) = \alpha_k r + \beta_k, \qquad
    \alpha_k = v_k (\epsilon_{+,k} - \epsilon_{-,k}), \quad \beta_k = v_k \epsilon_{-,k}
    $$

    Parameters
    ----------
    eps_plus, eps_minus
        A number, or one for each of positions 1, 2, ..., of which the last holds for all further ones.

    Examples
    --------
    >>> ClickNoise(1.0, [0.4, 0.2, 0.1])
    ClickNoise(eps_plus=1.0, eps_minus=(0.4, 0.2, 0.1))
    >>> ClickNoise(1.0, [0.4, 0.2, 0.1]).curves(4)[1].tolist()
    [0.4, 0.4, 0.2, 0.1, 0.1]
    """

    eps_plus: float | Sequence[float] = 1.0
    eps_minus: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        for name in ("eps_plus", "eps_minus"):
            object.__setattr__(self, name, _as_probabilities(getattr(self, name), name))
        for position, (plus, minus) in enumerate(zip(*self._listed(), strict=True), start=1):
            if plus <= minus:
                where = f" at position {position}" if self.by_position else ""
                raise InputError(
                    f"must be above that of irrelevant items{where}, {minus:g}, or clicks tell nothing",
                    column="eps_plus",
                    value=plus,
                )

    @property
    def by_position(self) -> bool:
        """Whether the noise is not the same at all positions."""
        return not (isinstance(self.eps_plus, float) and isinstance(self.eps_minus, float))

    def curves(self, longest: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return eps_plus and eps_minus of positions 0, 1, ..., longest: tables to look positions up in.

        Position 0, not shown, has the values of position 1; nothing there is examined.
        """
        plus, minus = self._listed()
        index = np.clip(np.arange(longest + 1) - 1, 0, len(plus) - 1)
        return np.array(plus)[index], np.array(minus)[index]

    def at(self, position: int) -> tuple[float, float]:
        """Return eps_plus and eps_minus of a position."""
        plus, minus = self.curves(position)
        return float(plus[-1]), float(minus[-1])

    def most(self) -> ClickNoise:
        """Return the noise of the position at which irrelevant items are clicked most, for all positions."""
        plus, minus = self._listed()
        where = int(np.argmax(minus))
        return ClickNoise(plus[where], minus[where])

    def texts(self) -> dict[str, str]:
        """Return the probabilities as text, such as "1" and "0.4,0.2,0.1", by name."""
        listed = {
            name: value if isinstance(value, list) else [value] for name, value in self.to_dict().items()
        }
        return {name: ",".join(f"{one:g}" for one in values) for name, values in listed.items()}

    def describe(self) -> str:
        """Return one line of text, such as "eps_plus 1, eps_minus 0.4,0.2,0.1"."""
        return "eps_plus {eps_plus}, eps_minus {eps_minus}".format(**self.texts())

    def to_dict(self) -> dict[str, Any]:
        """Return the two probabilities by name, each a number or a list of one for each position."""
        both = {"eps_plus": self.eps_plus, "eps_minus": self.eps_minus}
        return {name: value if isinstance(value, float) else [*value] for name, value in both.items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ClickNoise:
        """Make the click noise from what `to_dict` gave."""
        if not isinstance(content, dict) or set(content) != {"eps_plus", "eps_minus"}:
            raise InputError("click noise needs 'eps_plus' and 'eps_minus'", value=content)
        return cls(**content)

    def _listed(self) -> tuple[list[float], list[float]]:
        """Return both for each position, as far as either of them changes."""
        plus, minus = (
            [value] if isinstance(value, float) else [*value] for value in (self.eps_plus, self.eps_minus)
        )
        longest = max(len(plus), len(minus))
        return plus + plus[-1:] * (longest - len(plus)), minus + minus[-1:] * (longest - len(minus))


def _as_probabilities(given: Any, column: str) -> float | tuple[float, ...]:
    """Return a probability, or one for each position as far as they change."""
    rule = "must be a probability, from 0 to 1, or one for each position"
    if isinstance(given, np.ndarray):
        given = given.tolist()
    several = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
    if several and not len(given):
        raise InputError(rule, column=column, value=given)
    values = [
        checked_number(value, column, rule, lambda one: 0 <= one <= 1)
        for value in (given if several else [given])
    ]
    while len(values) > 1 and values[-1] == values[-2]:
        values.pop()
    return values[0] if len(values) == 1 else tuple(values)


def _as_curve(values: Any) -> list[float]:
    """Return one number for each position; text and mappings are sequences too, but not of numbers."""
    problem = "a position bias needs one number for each position"
    try:
        curve = np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(problem, column="values", value=values) from None
    if curve.ndim == 1 and not curve.size:
        raise InputError("a position bias needs at least one position", column="values")
    is_numeric = curve.ndim == 1 and curve.dtype.kind in "iuf"
    # numpy takes truth values among numbers for numbers
    if not is_numeric or any(isinstance(value, bool) for value in values):
        raise InputError(problem, column="values", value=values)
    return [float(value) for value in curve]
