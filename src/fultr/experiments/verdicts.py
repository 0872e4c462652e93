"""Verdicts on claims: holds, does not hold, or undecided, with the effect and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fultr.experiments.statistics import Estimate

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"

ENOUGH_SPLITS = 10
"""With fewer, a verdict is what the runs suggest and no more."""


@dataclass(frozen=True)
class EffectFinding:
    """One comparison: what was measured, its interval, and what it says of the claim."""

    effect: str
    measured: Estimate
    outcome: str

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        estimated = self.measured
        bounded = math.isfinite(estimated.low) and math.isfinite(estimated.high)
        return {
            "effect": self.effect,
            "value": estimated.mean if math.isfinite(estimated.mean) else None,
            "interval": [estimated.low, estimated.high] if bounded else None,
            "splits": estimated.splits,
            "outcome": self.outcome,
        }


@dataclass(frozen=True)
class Verdict:
    """What is to be said of a claim on one data set, on training or on test queries."""

    claim: str
    statement: str
    data: str
    part: str
    findings: tuple[EffectFinding, ...]
    note: str = ""
    outcome: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", all_of([finding.outcome for finding in self.findings]))

    @property
    def splits(self) -> int:
        """How many splits it rests on."""
        return min(finding.measured.splits for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {
            "claim": self.claim,
            "statement": self.statement,
            "data": self.data,
            "queries": self.part,
            "verdict": self.outcome,
            "splits": self.splits,
            "findings": [finding.to_dict() for finding in self.findings],
            "note": self.note,
        }


def all_of(outcomes: Sequence[str]) -> str:
    """Return what several comparisons say together: all must hold, and none may fail."""
    if any(outcome == FAILS for outcome in outcomes):
        return FAILS
    return HOLDS if all(outcome == HOLDS for outcome in outcomes) else UNDECIDED


def above_zero(effect: str, measured: Estimate) -> EffectFinding:
    """Claim that the effect is above 0."""
    outcome = HOLDS if measured.above else FAILS if measured.below else UNDECIDED
    return EffectFinding(effect, measured, outcome)


def below_zero(effect: str, measured: Estimate) -> EffectFinding:
    """Claim that the effect is below 0."""
    outcome = HOLDS if measured.below else FAILS if measured.above else UNDECIDED
    return EffectFinding(effect, measured, outcome)


def not_reduced(effect: str, measured: Estimate, start: float) -> EffectFinding:
    """Claim that a change from `start` is no reduction: not below 0, and not by half in any case."""
    if measured.below:
        return EffectFinding(effect, measured, FAILS)
    return EffectFinding(effect, measured, HOLDS if measured.low > -start / 2 else UNDECIDED)


def differs(effect: str, measured: Estimate) -> EffectFinding:
    """Claim that the effect is not 0."""
    return EffectFinding(effect, measured, HOLDS if measured.above or measured.below else UNDECIDED)


def inside(effect: str, measured: Estimate, low: float, high: float = math.inf) -> EffectFinding:
    """Claim that the effect lies between two bounds."""
    if measured.low >= low and measured.high <= high:
        return EffectFinding(effect, measured, HOLDS)
    outside = measured.high < low or measured.low > high
    return EffectFinding(effect, measured, FAILS if outside else UNDECIDED)
