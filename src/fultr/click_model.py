"""How people look and click: examination by position, and click noise.

A user examines the item at position k with probability v_k; having examined it, they click a
relevant item with probability eps_plus and an irrelevant one with probability eps_minus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
                    " values, or say what holds beyond them (beyond=, or --tail power of fultr propensity)",
                    column="position",
                )
            if not isinstance(self.beyond, str):
                further = np.arange(known + 1, longest + 1, dtype=np.float64)
                table[known + 1 :] = self.values[-1] * (known / further) ** self.beyond
        return table

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


@dataclass(frozen=True)
class ClickNoise:
    """Click probabilities of an examined item: eps_plus if relevant, eps_minus if not.

    P(c = 1 | rel = 1, o = 1) = eps_plus and P(c = 1 | rel = 0, o = 1) = eps_minus, with
    1 >= eps_plus > eps_minus >= 0.
    """

    eps_plus: float = 1.0
    eps_minus: float = 0.0

    def __post_init__(self) -> None:
        for name in ("eps_plus", "eps_minus"):
            rule = "must be a probability, from 0 to 1"
            value = checked_number(getattr(self, name), name, rule, lambda given: 0 <= given <= 1)
            object.__setattr__(self, name, value)
        if self.eps_plus <= self.eps_minus:
            raise InputError(
                f"must be above eps_minus = {self.eps_minus:g}, or clicks say nothing of relevance",
                column="eps_plus",
                value=self.eps_plus,
            )

    def to_dict(self) -> dict[str, float]:
        """Return the two probabilities by name."""
        return {"eps_plus": self.eps_plus, "eps_minus": self.eps_minus}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ClickNoise:
        """Make the click noise from what `to_dict` gave."""
        if not isinstance(content, dict) or set(content) != {"eps_plus", "eps_minus"}:
            raise InputError("click noise needs 'eps_plus' and 'eps_minus'", value=content)
        return cls(**content)


def _as_curve(values: Any) -> list[float]:
    """Return one number for each position; text and mappings are sequences too, but not of numbers."""
    problem = "a position bias needs one number for each position"
    try:
        curve = np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(problem, column="values", value=values) from None
    if curve.ndim == 1 and not curve.size:
        raise InputError("a position bias needs at least one position", column="values")
    if curve.ndim != 1 or curve.dtype.kind not in "iuf":
        raise InputError(problem, column="values", value=values)
    return [float(value) for value in curve]
