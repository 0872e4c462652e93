"""What a report says, before it is a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fultr.audits import AuditEstimate
from fultr.results import to_plain

LONGEST_NAME = 80
"""Characters of a name from data that are shown."""

FOR_SCRIPT = ("parts", "rankings", "picked", "reference", "curve", "level", "examples")
"""The fields of a report that the script of the page draws; the others stand in the page as text."""

NOT_KNOWN = AuditEstimate(math.nan, math.nan, math.nan)


def shortened(name: object) -> str:
    """Return a name from data, cut if it is too long to be shown.

    Examples
    --------
    >>> shortened("agency")
    'agency'
    >>> len(shortened("x" * 1000))
    80
    """
    text = str(name)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def exactly(value: float | None) -> AuditEstimate:
    """Return a number that has no interval; None stands for one that is not known."""
    return AuditEstimate(math.nan if value is None else float(value), math.nan, math.nan)


def within(value: float | None, bounds: Sequence[float | None] | None) -> AuditEstimate:
    """Return a number with its interval, if it has one."""
    low, high = (None, None) if bounds is None else bounds
    return AuditEstimate(*(math.nan if one is None else float(one) for one in (value, low, high)))


@dataclass(frozen=True)
class Detail:
    """How much of long lists a page holds."""

    groups: int
    pairs: int
    examples: int


@dataclass(frozen=True)
class Group:
    """What a group of items has under a ranking; see `fultr.evaluation.Evaluation`."""

    name: str
    exposure: AuditEstimate
    merit: AuditEstimate
    exposure_per_merit: AuditEstimate
    exposure_share: AuditEstimate
    merit_share: AuditEstimate


@dataclass(frozen=True)
class Pair:
    """D_ij of two groups, above 0 where the first has too much exposure; the ratio of exposure per merit."""

    first: str
    second: str
    disparity: AuditEstimate
    exposure_ratio: AuditEstimate = NOT_KNOWN


@dataclass(frozen=True)
class MeasuredRanking:
    """What a ranking achieves on some clicks; no groups and pairs where nothing is known of them."""

    utility: AuditEstimate
    disparity: AuditEstimate
    groups: tuple[Group, ...] = ()
    pairs: tuple[Pair, ...] = ()
    passes: bool | None = None
    exposure_to_move: AuditEstimate = NOT_KNOWN
    groups_in_all: int = 0
    pairs_in_all: int = 0

    def cut(self, detail: Detail) -> MeasuredRanking:
        """Return the same with fewer groups and pairs; of many pairs, those with the largest disparity."""
        ordered = sorted(self.pairs, key=lambda pair: -abs(pair.disparity.value))
        pairs = self.pairs if len(self.pairs) <= detail.pairs else tuple(ordered[: detail.pairs])
        return replace(
            self,
            groups=self.groups[: detail.groups],
            pairs=pairs,
            groups_in_all=len(self.groups),
            pairs_in_all=max(len(self.pairs), self.pairs_in_all),
        )


@dataclass(frozen=True)
class Ranking:
    """One point of the picture: the logged ranking or a policy.

    Parameters
    ----------
    key
        What names it in the address of the page, such as "lambda=10".
    name
        What people call it.
    kind
        Whether it was logged or is a policy.
    measured
        What it achieves, by the key of the part of the clicks.
    facts
        What else is to be said of it, as names and texts.
    """

    key: str
    name: str
    kind: Literal["logged", "policy"]
    measured: Mapping[str, MeasuredRanking]
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class DataPart:
    """Clicks that rankings are measured on."""

    key: str
    name: str
    about: str
    limit: float | None = None


@dataclass(frozen=True)
class Item:
    """An item of an example: its name, its group, and what is known of its relevance in words."""

    name: str
    group: str | None
    evidence: str


@dataclass(frozen=True)
class Example:
    """The rankings of one list.

    Parameters
    ----------
    query, about
        The query, and what is to be said of the list.
    items
        All items that any of the rankings shows.
    rankings
        By the key of a ranking: items from the first on with their expected exposure.
    length
        How many candidates the list has.
    """

    query: str
    about: str
    items: tuple[Item, ...]
    rankings: Mapping[str, tuple[tuple[int, float], ...]]
    length: int


@dataclass(frozen=True)
class FeatureRow:
    """A feature, what permuting it changes, and its share of the gain of all splits of trees."""

    name: str
    utility: AuditEstimate
    disparity: AuditEstimate
    gain: float | None = None


@dataclass(frozen=True)
class FeatureTable:
    """The features that matter most to a policy, and what is to be said of them."""

    about: str
    rows: tuple[FeatureRow, ...]

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of the columns; that of the gain where there are trees."""
        heads = ("Feature", "Change of utility", "Change of disparity")
        return (*heads, "Share of gain") if any(row.gain is not None for row in self.rows) else heads


@dataclass(frozen=True)
class Report:
    """All that a page says.

    Parameters
    ----------
    title, source
        What it is about, and where that is.
    summary
        What to know of it, in sentences.
    parts, rankings
        The clicks that rankings were measured on, the most trustworthy first, and the rankings.
    picked, reference
        The keys of the ranking that is shown first, and of the most useful policy.
    curve, curve_about
        The examination of positions 1, 2, ..., and where it comes from.
    findings
        What is suspicious in the log: severity and sentence; None if that was not judged.
    missing
        What the page lacks, and how to get it, in sentences.
    settings
        Names and texts.
    level
        The confidence level of intervals.
    examples, examples_about
        Example rankings, and how they were chosen.
    features
        Which features drive the utility and the disparity of the policy that is shown first.
    """

    title: str
    source: str
    summary: tuple[str, ...]
    parts: tuple[DataPart, ...]
    rankings: tuple[Ranking, ...]
    picked: str
    reference: str
    curve: tuple[float, ...]
    curve_about: str
    findings: tuple[Mapping[str, str], ...] | None
    missing: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    level: float
    examples: tuple[Example, ...] = ()
    examples_about: str = ""
    features: FeatureTable | None = None
    notes: tuple[str, ...] = field(default=())

    def cut(self, detail: Detail) -> Report:
        """Return the same with as much of long lists as a page holds."""
        rankings = tuple(
            replace(one, measured={part: found.cut(detail) for part, found in one.measured.items()})
            for one in self.rankings
        )
        return replace(self, rankings=rankings, examples=self.examples[: detail.examples])

    def for_script(self) -> dict[str, Any]:
        """Return what the script of the page needs, as plain values."""
        content: dict[str, Any] = to_plain({name: getattr(self, name) for name in FOR_SCRIPT})
        return content

    def ranking(self, key: str) -> Ranking:
        """Return a ranking by its key."""
        return next(one for one in self.rankings if one.key == key)


def best_under(rankings: Iterable[Ranking], part: str, share: float) -> Ranking | None:
    """Return the fairest policy that keeps a share of the highest utility; None if there is no policy."""
    policies = [one for one in rankings if one.kind == "policy" and part in one.measured]
    if not policies:
        return None
    highest = max(one.measured[part].utility.value for one in policies)
    # of a negative utility, which noise correction can lead to, a share is more than the whole
    least = highest - (1 - share) * abs(highest)
    kept = [one for one in policies if one.measured[part].utility.value >= least]
    return min(kept, key=lambda one: one.measured[part].disparity.value)
