"""What is suspicious in data, in sentences that say what it means and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from fultr.data.click_log import ClickLog
from fultr.data.dataset import RankingDataset
from fultr.data.ids import UNKNOWN_GROUP
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

HUGE_FEATURE = 1e4
MANY_IMPRESSIONS = 20
"""From this many impressions on, not one without a click is no accident."""


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
        *_feature_findings(data),
        *_list_findings(data),
    ]


def inspect_log(log: ClickLog) -> list[Finding]:
    """Return what is suspicious in a click log; an empty list if nothing is."""
    if not log.click.any():
        return [Finding("severe", "clicks", "There are no clicks: nothing can be learned or measured.")]
    findings = [*_impression_findings(log), *_position_findings(log), *_weight_findings(log)]
    data = log.data[np.unique(log.lists)]
    return [*findings, *_clicked_group_findings(log), *_group_findings(data), *_feature_findings(data)]


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
    if unknown := int((data.group == UNKNOWN_GROUP).sum()):
        sentence = f"{unknown} of {data.rows} items ({unknown / data.rows:.0%}) are in no known group."
        yield Finding("warning" if unknown > data.rows / 10 else "note", "group", sentence)
    for code, name in enumerate(data.group_names):
        if not (data.group == code).any():
            yield Finding("warning", "group", f"Group '{name}' has no item.")
    if len(data.group_names) == 1:
        yield Finding("note", "group", "There is one group only: disparity needs two.")


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


def _impression_findings(log: ClickLog) -> Iterator[Finding]:
    empty = int((~log.clicked).sum())
    if log.empties_dropped:
        sentence = (
            "Impressions without a click were dropped: utility and disparity are known only up to a factor,"
            " and limits and noise correction are refused. Keep all impressions if you can."
        )
        yield Finding("severe", "impressions", sentence)
    elif not empty and len(log) >= MANY_IMPRESSIONS:
        sentence = (
            "Every impression has a click. If those without one were dropped, the log must say so"
            " (empties_dropped), since every mean divides by the number of impressions."
        )
        yield Finding("severe", "impressions", sentence)
    shown = np.add.reduceat(log.position != NOT_SHOWN, log.offsets[:-1], dtype=np.int64)
    clicks = np.add.reduceat(log.click, log.offsets[:-1], dtype=np.int64)
    if full := int(((clicks == shown) & (shown > 1)).sum()):
        sentence = f"{full} of {len(log)} impressions had every item clicked: a robot, or a logging error?"
        yield Finding("warning" if full > len(log) / 100 else "note", "clicks", sentence)
    if nothing := int((shown == 0).sum()):
        yield Finding(
            "warning", "position", f"{nothing} impressions show nothing: all their positions are empty."
        )
    queries = log.data.query_codes[log.lists]
    never = np.setdiff1d(queries, queries[log.clicked]).size
    if never:
        total = np.unique(queries).size
        yield Finding(
            "note", "clicks", f"{never} of {total} queries were never clicked: nothing is learned there."
        )


def _position_findings(log: ClickLog) -> Iterator[Finding]:
    if (hidden := int((log.position == NOT_SHOWN).sum())) and log.entries:
        sentence = f"{hidden / log.entries:.0%} of the candidates were not shown; those can earn no merit."
        yield Finding("note", "position", sentence)
    planted = np.bincount(log.planted.impression, minlength=len(log))
    shown = np.add.reduceat(log.position != NOT_SHOWN, log.offsets[:-1], dtype=np.int64) + planted
    deepest = np.maximum.reduceat(log.position, log.offsets[:-1])
    np.maximum.at(deepest, log.planted.impression, log.planted.position)
    if gaps := int((deepest > shown).sum()):
        sentence = f"{gaps} of {len(log)} impressions skip positions, such as 1, 2, 4: are items missing?"
        yield Finding("warning", "position", sentence)
    lowest, clicked = int(deepest.max(initial=0)), int(log.position[log.click].max(initial=0))
    if clicked < lowest:
        sentence = f"Nothing below position {clicked} was clicked, though items are shown down to {lowest}."
        yield Finding("note", "position", sentence)
    if not _positions_vary(log):
        sentence = (
            "Each document of a query was always shown at the same position: position bias cannot be told"
            " from relevance with this log alone."
        )
        yield Finding("note", "position", sentence)


def _positions_vary(log: ClickLog) -> bool:
    seen = log.position != NOT_SHOWN
    row, position = log.row_of_entry[seen], log.position[seen]
    first = np.full(log.data.rows, 0, dtype=np.int32)
    first[row] = position
    return bool(np.any(first[row] != position))


def _weight_findings(log: ClickLog) -> Iterator[Finding]:
    if log.propensity is None and log.position_bias is None:
        sentence = "The log has neither propensities nor a position bias: give one, or estimate it."
        yield Finding("warning", "propensity", sentence)
        return
    try:
        weights = log.ips_weights()
    except InputError as error:
        yield Finding("severe", "propensity", f"Clicks cannot be weighted: {error}.")
        return
    weights = weights[weights > 0]
    size = weights.sum() ** 2 / (weights**2).sum()
    sentence = (
        f"A click weighs up to {weights.max():.3g}; all {weights.size} are worth {size:.0f} of equal weight."
    )
    yield Finding("warning" if size < weights.size / 10 else "note", "propensity", sentence)


def _clicked_group_findings(log: ClickLog) -> Iterator[Finding]:
    group = log.data.group[log.row_of_entry]
    for code, name in enumerate(log.data.group_names):
        of_group = group == code
        if of_group.any() and not log.click[of_group].any():
            sentence = f"Group '{name}' was never clicked: its merit is estimated as zero."
            yield Finding("severe", "group", sentence)


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
