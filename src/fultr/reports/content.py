"""What a report says, before it is a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fultr.audits import AuditEstimate

LONGEST_NAME = 80
"""Characters of a name from data that are shown."""

MEASURES = ("exposure", "merit", "exposure_per_merit", "exposure_share", "merit_share")


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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"name": self.name, **{name: getattr(self, name).to_dict() for name in MEASURES}}


@dataclass(frozen=True)
class Pair:
    """D_ij of two groups, above 0 where the first has too much exposure; the ratio of exposure per merit."""

    first: str
    second: str
    disparity: AuditEstimate
    exposure_ratio: AuditEstimate = NOT_KNOWN

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "first": self.first,
            "second": self.second,
            "disparity": self.disparity.to_dict(),
            "exposure_ratio": self.exposure_ratio.to_dict(),
        }


@dataclass(frozen=True)
class MeasuredRanking:
    """What a ranking achieves on some clicks; no groups and pairs where nothing is known of them."""

    utility: AuditEstimate
    disparity: AuditEstimate
    groups: tuple[Group, ...] = ()
    pairs: tuple[Pair, ...] = ()
    passes: bool | None = None
    exposure_to_move: AuditEstimate = NOT_KNOWN

    def to_dict(self, detail: Detail) -> dict[str, Any]:
        """Return everything as plain values; of many pairs, those with the largest disparity."""
        ordered = sorted(self.pairs, key=lambda pair: -abs(pair.disparity.value))
        pairs = self.pairs if len(self.pairs) <= detail.pairs else ordered[: detail.pairs]
        return {
            "utility": self.utility.to_dict(),
            "disparity": self.disparity.to_dict(),
            "exposure_to_move": self.exposure_to_move.to_dict(),
            "passes": self.passes,
            "groups": [group.to_dict() for group in self.groups[: detail.groups]],
            "groups_in_all": len(self.groups),
            "pairs": [pair.to_dict() for pair in pairs],
            "pairs_in_all": len(self.pairs),
        }


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

    def to_dict(self, detail: Detail) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "key": self.key,
            "name": self.name,
            "kind": self.kind,
            "facts": [list(fact) for fact in self.facts],
            "measured": {part: found.to_dict(detail) for part, found in self.measured.items()},
        }


@dataclass(frozen=True)
class DataPart:
    """Clicks that rankings are measured on."""

    key: str
    name: str
    about: str
    limit: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return dict(vars(self))


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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "query": self.query,
            "about": self.about,
            "items": [[item.name, item.group, item.evidence] for item in self.items],
            "rankings": {key: [list(place) for place in shown] for key, shown in self.rankings.items()},
            "length": self.length,
        }


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

    def to_dict(self, detail: Detail) -> dict[str, Any]:
        """Return what the script of the page needs, as plain values."""
        return {
            "parts": [part.to_dict() for part in self.parts],
            "rankings": [ranking.to_dict(detail) for ranking in self.rankings],
            "picked": self.picked,
            "reference": self.reference,
            "curve": list(self.curve),
            "level": self.level,
            "examples": [example.to_dict() for example in self.examples[: detail.examples]],
        }

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
