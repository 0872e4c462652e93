"""What is suspicious in data, in sentences that say what it means and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fultr.data.click_log import ClickLog
from fultr.data.compact_log import CompactLog, impression_blocks
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.ids import UNKNOWN_GROUP
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.propensity import NOT_SHOWN

HUGE_FEATURE = 1e4
MANY_IMPRESSIONS = 20
"""From this many impressions on, not one without a click is no accident."""

MANY = 0.01
"""Beyond this share of the impressions, odd ones are worth a warning."""

POSITION_BITS = DEEPEST_POSITION.bit_length()


@dataclass(frozen=True)
class Finding:
    """One thing to know about data before it is used."""

    severity: Literal["note", "warning", "severe"]
    about: str
    sentence: str

    def to_dict(self) -> dict[str, str]:
        """Return the finding as plain values."""
        return asdict(self)


def inspect_dataset(data: RankingDataset) -> list[Finding]:
    """Return what is suspicious in labelled data; an empty list if nothing is."""
    if not len(data):
        return [Finding("severe", "lists", "There are no lists.")]
    return [
        *_relevance_findings(data),
        *_group_findings(data),
        *_unknown_group_findings(data),
        *_feature_findings(data),
        *_list_findings(data),
    ]


def inspect_log(log: ClickLog | CompactLog) -> list[Finding]:
    """Return what is suspicious in how a click log was made; an empty list if nothing is.

    Whether it supports training and auditing is for `fultr.clicks.judge_readiness` to say. A compacted log
    does not know its single impressions, so that nothing is said of them.
    """
    return log_findings(log, count_impressions(log) if isinstance(log, ClickLog) else None)


def _relevance_findings(data: RankingDataset) -> Iterator[Finding]:
    if data.relevance is None:
        yield Finding("note", "relevance", "There is no relevance: clicks cannot be simulated on this data.")
        return
    highest = np.maximum.reduceat(data.relevance, data.offsets[:-1])
    lowest = np.minimum.reduceat(data.relevance, data.offsets[:-1])
    if highest.max() > 1:
        sentence = (
            f"Judgments are graded, up to {highest.max():g}: say from which grade on an item is relevant"
            " (binarize, or --relevant-from) before simulating clicks."
        )
        yield Finding("note", "relevance", sentence)
    if none := int((highest == 0).sum()):
        sentence = (
            f"{none} of {len(data)} lists have no relevant item: no order of them is better than another."
        )
        yield Finding("note", "relevance", sentence)
    if same := int(((highest == lowest) & (highest > 0)).sum()):
        sentence = (
            f"{same} of {len(data)} lists have items of one relevance only: no order of them is better."
        )
        yield Finding("note", "relevance", sentence)
    for code, name in enumerate(data.group_names):
        of_group = data.group == code
        if of_group.any() and not data.relevance[of_group].any():
            sentence = f"Group '{name}' has no relevant item, so it deserves no exposure at all."
            yield Finding("warning", "group", sentence)


def _group_findings(data: RankingDataset) -> Iterator[Finding]:
    if not data.group_names:
        yield Finding("note", "group", "There are no groups: disparity cannot be measured on this data.")
        return
    for code, name in enumerate(data.group_names):
        if not (data.group == code).any():
            yield Finding("warning", "group", f"Group '{name}' has no item.")
    if len(data.group_names) == 1:
        yield Finding("note", "group", "There is one group only: disparity needs two.")


def _unknown_group_findings(data: RankingDataset) -> Iterator[Finding]:
    if data.group_names and (unknown := int((data.group == UNKNOWN_GROUP).sum())):
        sentence = f"{unknown} of {data.rows} items ({unknown / data.rows:.0%}) are in no known group."
        yield Finding("warning" if unknown > data.rows / 10 else "note", "group", sentence)


def _feature_findings(data: RankingDataset) -> Iterator[Finding]:
    width = data.features.shape[1]
    if not width:
        yield Finding("note", "features", "There are no features: this can be measured, but not trained on.")
        return
    lowest, highest = data.features.min(axis=0), data.features.max(axis=0)
    constant = np.flatnonzero(lowest == highest)
    if constant.size:
        names = _some([data.feature_names[column] for column in constant])
        yield Finding("note", "features", f"{constant.size} of {width} features never vary: {names}.")
    huge = np.flatnonzero(np.maximum(np.abs(lowest), np.abs(highest)) > HUGE_FEATURE)
    if huge.size:
        names = _some([data.feature_names[column] for column in huge])
        sentence = (
            f"{huge.size} of {width} features go beyond {HUGE_FEATURE:g}: scale them. They are: {names}."
        )
        yield Finding("warning", "features", sentence)


def _list_findings(data: RankingDataset) -> Iterator[Finding]:
    if single := int((data.lengths == 1).sum()):
        yield Finding("note", "lists", f"{single} of {len(data)} lists have one item: nothing to rank there.")


@dataclass(frozen=True)
class ImpressionCounts:
    """What the single impressions of a log tell of how it was made.

    Parameters
    ----------
    all_clicked
        Impressions that show two items or more, every one of which was clicked.
    nothing_shown
        Impressions without any position.
    gaps
        Impressions that skip positions, such as 1, 2, 4; planted items fill theirs.
    repeated
        Impressions with a click that equal an earlier one: the same list, the same positions, the same
        clicks and, where it is known, the same time.
    copies
        The largest number that divides how often each different impression stands in the log.
    different
        The number of different impressions that show anything.
    times_tell
        Whether times are so fine that equal impressions at the same time must be one.
    """

    all_clicked: int = 0
    nothing_shown: int = 0
    gaps: int = 0
    repeated: int = 0
    copies: int = 1
    different: int = 0
    times_tell: bool = False


def count_impressions(log: ClickLog) -> ImpressionCounts:
    """Count what is odd in single impressions, and those that stand in the log more than once."""
    planted, planted_depth = np.zeros(len(log), dtype=np.int32), np.zeros(len(log), dtype=np.int32)
    np.add.at(planted, log.planted.impression, 1)
    np.maximum.at(planted_depth, log.planted.impression, log.planted.position)
    key = np.zeros(len(log), dtype=np.uint64)
    shown_any, clicked = np.zeros(len(log), dtype=np.bool_), np.zeros(len(log), dtype=np.bool_)
    all_clicked = gaps = 0
    for start, stop in impression_blocks(log):
        entries = slice(int(log.offsets[start]), int(log.offsets[stop]))
        position, click = log.position[entries], log.click[entries]
        first = log.offsets[start:stop] - log.offsets[start]
        shown = np.add.reduceat(position != NOT_SHOWN, first, dtype=np.int64)
        clicks = np.add.reduceat(click, first, dtype=np.int64)
        deepest = np.maximum(np.maximum.reduceat(position, first), planted_depth[start:stop])
        all_clicked += int(((clicks == shown) & (shown > 1)).sum())
        gaps += int((deepest > shown + planted[start:stop]).sum())
        row = rows_of(log.data.offsets, log.lists[start:stop])
        key[start:stop] = np.add.reduceat(_entry_keys(row, position, click), first)
        shown_any[start:stop], clicked[start:stop] = shown > 0, clicks > 0
    if log.timestamp is not None:
        key += _mixed(log.timestamp.view(np.int64).astype(np.uint64) + np.uint64(1))
    often = np.unique(key[shown_any], return_counts=True)[1]
    different_clicked = np.unique(key[clicked]).size
    times = 0 if log.timestamp is None else np.unique(log.timestamp[clicked]).size
    return ImpressionCounts(
        all_clicked=all_clicked,
        nothing_shown=int((~shown_any).sum()),
        gaps=gaps,
        repeated=int(clicked.sum()) - different_clicked,
        copies=int(np.gcd.reduce(often)) if often.size else 1,
        different=int(often.size),
        # of all that happened at one time, hardly more than one thing is different
        times_tell=0 < different_clicked <= 2 * times,
    )


def _entry_keys(
    row: NDArray[np.int64], position: NDArray[np.int32], click: NDArray[np.bool_]
) -> NDArray[np.uint64]:
    """Return a number for each entry whose sum tells impressions apart; 0 for what was not shown."""
    keys = row.astype(np.uint64) << np.uint64(POSITION_BITS + 1)
    keys |= position.astype(np.uint64) << np.uint64(1)
    keys |= click.astype(np.uint64)
    keys = _mixed(keys)
    keys[position == NOT_SHOWN] = 0
    return keys


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread numbers over 64 bits, different ones to different ones, so that their sums hardly ever meet."""
    mixed = values * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((31, 0xBF58476D1CE4E5B9), (29, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(32))


def log_findings(log: ClickLog | CompactLog, counts: ImpressionCounts | None) -> list[Finding]:
    """Return what is suspicious in how a log was made, given the counts of its impressions if known."""
    if isinstance(log, CompactLog):
        used = np.flatnonzero(log.impressions)
        impressions, clicked = int(log.impressions.sum()), int(log.least_clicked_impressions().sum())
    else:
        used = np.unique(log.lists)
        impressions, clicked = len(log), int(log.clicked.sum())
    if not impressions:
        return [Finding("severe", "impressions", "There are no impressions.")]
    findings = list(_emptiness_findings(impressions, clicked, dropped=log.empties_dropped))
    if counts is not None:
        findings += _single_impression_findings(counts, impressions, clicked)
    data = log.data if used.size == len(log.data) else log.data[used]
    return [*findings, *_group_findings(data), *_feature_findings(data)]


def _emptiness_findings(impressions: int, clicked: int, *, dropped: bool) -> Iterator[Finding]:
    if not clicked:
        sentence = (
            "There are no clicks: nothing can be learned or measured. If there were any, look where they are"
            " lost on their way into the log."
        )
        yield Finding("severe", "clicks", sentence)
    if dropped:
        sentence = (
            "Impressions without a click were dropped: utility and disparity are known only up to a factor,"
            " and limits and noise correction are refused. Keep all impressions if you can."
        )
        yield Finding("severe", "impressions", sentence)
    elif clicked == impressions >= MANY_IMPRESSIONS:
        sentence = (
            "Every impression has a click. If those without one were dropped, the log must say so"
            " (empties_dropped), since every mean divides by the number of impressions."
        )
        yield Finding("severe", "impressions", sentence)


def _single_impression_findings(
    counts: ImpressionCounts, impressions: int, clicked: int
) -> Iterator[Finding]:
    if full := counts.all_clicked:
        sentence = (
            f"{full} of {impressions} impressions had every item clicked: a robot, or a logging error? Leave"
            " them out if no person did that."
        )
        yield Finding("warning" if full > impressions * MANY else "note", "clicks", sentence)
    if counts.nothing_shown:
        sentence = (
            f"{counts.nothing_shown} of {impressions} impressions show nothing, since all their positions are"
            " empty: they count in every mean. Leave them out if nobody saw them, or log their positions."
        )
        yield Finding("warning", "position", sentence)
    if counts.gaps:
        sentence = (
            f"{counts.gaps} of {impressions} impressions skip positions, such as 1, 2, 4. If items are"
            " missing, add them, since their clicks are missing too."
        )
        yield Finding("warning", "position", sentence)
    if counts.times_tell and counts.repeated:
        sentence = (
            f"{counts.repeated} of {clicked} impressions with a click equal another one of the same time in"
            " all that was shown and clicked: logged twice? Intervals are then too narrow; keep one of each."
        )
        yield Finding("warning" if counts.repeated > clicked * MANY else "note", "impressions", sentence)
    elif counts.copies > 1 and counts.different >= MANY_IMPRESSIONS:
        sentence = (
            f"Each impression stands in the log {counts.copies} times, or a multiple of that: was a part put"
            " together with itself? Intervals are then too narrow; keep one of each."
        )
        yield Finding("warning", "impressions", sentence)


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
