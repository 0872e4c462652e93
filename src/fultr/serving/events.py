"""What happens at a service: rankings that are shown, and clicks on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

MICROSECONDS = 1_000_000
DAY = 86_400 * MICROSECONDS

FALLBACK = "fallback"
"""What is answered as the policy of rankings in the order of the request, which no policy has drawn."""


def fallback_of(version: str) -> str:
    """Return what is recorded as the policy of such a ranking: its features are those of `version`."""
    return f"{FALLBACK}-{version}"


@dataclass(frozen=True, slots=True)
class Impression:
    """A ranking as it is shown; see `fultr.serving.schema` for the fields."""

    ranking_id: str
    time: int
    query_id: str
    policy: str
    doc_ids: str
    groups: str | None
    shown: int
    features: bytes | None
    shadows: tuple[tuple[str, str], ...] = ()

    @property
    def row(self) -> tuple[object, ...]:
        """The row of the table of impressions."""
        return (
            self.ranking_id,
            self.time,
            self.query_id,
            self.policy,
            self.doc_ids,
            self.groups,
            self.shown,
            self.features,
        )


@dataclass(frozen=True, slots=True)
class ClickEvent:
    """Clicks on items of one ranking, by their ids, or by their positions from 1."""

    ranking_id: str
    time: int
    doc_ids: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    click_id: str = ""


@dataclass(frozen=True, slots=True)
class PolicyLoaded:
    """A policy that rankings may come from, with the names of its features and groups."""

    version: str
    time: int
    features: tuple[str, ...]
    groups: tuple[str, ...]
    category_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def row(self) -> tuple[object, ...]:
        """The row of the table of policies."""
        features: list[object] = [
            {"name": name, "categories": self.category_names[name]} if name in self.category_names else name
            for name in self.features
        ]
        return self.version, self.time, json.dumps(features), json.dumps(self.groups)


Event = Impression | ClickEvent | PolicyLoaded


class Outcome(StrEnum):
    """What became of an event."""

    RECORDED = "recorded"
    REPEATED = "repeated"
    UNKNOWN = "unknown"
    LATE = "late"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an event: of clicks, how many were new, and the first item that was not shown."""

    outcome: Outcome = Outcome.RECORDED
    new: int = 0
    wrong: str = ""


def day_of(time: int) -> str:
    """Return the day, in UTC, as ranking ids start with it: 20261119."""
    return datetime.fromtimestamp(time / MICROSECONDS, UTC).strftime("%Y%m%d")


def judge_clicks(
    clicks: ClickEvent, found: tuple[str, int, int] | None, accepted_for: int
) -> tuple[Answer | None, list[str]]:
    """Return the items that were clicked, or what is wrong with the clicks.

    `found` is what is known of the ranking: its items as JSON, how many were shown, and when.
    """
    if found is None:
        return Answer(Outcome.UNKNOWN), []
    shown = [str(one) for one in json.loads(found[0])[: found[1]]]
    if clicks.time - found[2] > accepted_for:
        return Answer(Outcome.LATE), []
    named = list(clicks.doc_ids)
    for position in clicks.positions:
        if not 1 <= position <= len(shown):
            return Answer(Outcome.NOT_SHOWN, wrong=f"position {position}"), []
        named.append(shown[position - 1])
    ids = set(shown)
    missing = next((one for one in clicks.doc_ids if one not in ids), None)
    if missing is not None:
        return Answer(Outcome.NOT_SHOWN, wrong=missing), []
    return None, list(dict.fromkeys(named))
