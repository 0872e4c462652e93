"""What is suspicious in data, in sentences that say what it means and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from fultr.data.click_log import ClickLog
from fultr.data.columns import plain
from fultr.data.counts import Counts
from fultr.data.dataset import RankingDataset
from fultr.data.ids import UNKNOWN_GROUP
from fultr.data.tally import ImpressionFacts
from fultr.logs.features import EXPERIMENT_COLUMNS, NO_FEATURES, find_features, is_id
from fultr.logs.metadata import LOG
from fultr.logs.sources import tables_of

HUGE_FEATURE = 1e4
"""A feature beyond it is warned of: scores of features near 1 would be lost beside it."""

MANY_IMPRESSIONS = 20
"""From this many impressions on, not one without a click is no accident."""

MANY = 0.01
"""Beyond this share of the impressions, odd ones are worth a warning."""


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
    checks = (
        _relevance_findings,
        _group_findings,
        _unknown_group_findings,
        _feature_findings,
        _list_findings,
    )
    return [finding for check in checks for finding in check(data)]


def inspect_log(log: ClickLog | Counts) -> list[Finding]:
    """Return what is suspicious in how a click log was made; an empty list if nothing is.

    Whether it supports training and auditing is for `fultr.clicks.judge_readiness` to say.
    """
    return log_findings(log.compact())


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
        sentence = "lists have no relevant item: no order of them is better than another."
        yield Finding("note", "relevance", f"{none} of {len(data)} {sentence}")
    if same := int(((highest == lowest) & (highest > 0)).sum()):
        sentence = "lists have items of one relevance only: no order of them is better."
        yield Finding("note", "relevance", f"{same} of {len(data)} {sentence}")
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
    if constant := list(compress(data.feature_names, lowest == highest)):
        sentence = f"{len(constant)} of {width} features never vary: {_listed(constant)}."
        yield Finding("note", "features", sentence)
    if huge := list(compress(data.feature_names, np.maximum(np.abs(lowest), np.abs(highest)) > HUGE_FEATURE)):
        which = f"{len(huge)} of {width} features go beyond {HUGE_FEATURE:g}"
        yield Finding("warning", "features", f"{which}: scale them. They are: {_listed(huge)}.")


def _list_findings(data: RankingDataset) -> Iterator[Finding]:
    if single := int((data.lengths == 1).sum()):
        yield Finding("note", "lists", f"{single} of {len(data)} lists have one item: nothing to rank there.")


def log_findings(counts: Counts) -> list[Finding]:
    """Return what is suspicious in how a log was made."""
    impressions, clicked = int(counts.impressions.sum()), int(counts.least_clicked_impressions().sum())
    if not impressions:
        return [Finding("severe", "impressions", "There are no impressions.")]
    findings = list(_emptiness_findings(impressions, clicked, dropped=counts.empties_dropped))
    if counts.facts is not None:
        findings += _single_impression_findings(counts.facts, impressions, clicked)
    return [*findings, *_group_findings(counts.data), *_feature_findings(counts.data)]


def inspect_columns(
    source: Any,
    renamed: Sequence[str],
    items: bool,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
) -> list[Finding]:
    """Return findings about the columns of a log that are not read: which of them could be features.

    `renamed` are columns that are read under other names; `items` says whether features come from a table of
    documents, and `features` and `exclude` which columns were named as features, or as none.
    """
    table = tables_of(source)[0]
    if items or table.metadata.get("kind") == LOG:
        return []
    read = {*NO_FEATURES, *EXPERIMENT_COLUMNS, *renamed, *exclude}
    read.update(find_features(table, features, exclude, renamed).names)
    others = [field.name for field in table.own_fields if field.name not in read and not is_id(field.name)]
    if not others:
        return []
    unusable = {name: np.zeros(3, dtype=np.int64) for name in others}
    for batch, _ in table.batches(others):
        for name in others:
            unusable[name] += _unusable(batch[name])
    numbers = [name for name in others if not unusable[name].any()]
    findings = []
    if numbers:
        sentence = (
            f"{len(numbers)} columns of numbers are not read: {_listed(numbers)}. If they are features, call"
            " them feature_..., or name all features (features=, --features)."
        )
        findings.append(Finding("warning", "features", sentence))
    for name in others:
        text, missing, infinite = (int(number) for number in unusable[name])
        if text + missing + infinite:
            word = "dates" if pa.types.is_temporal(table.schema.field(name).type) else "text"
            kinds = ((text, word), (missing, "missing or NaN"), (infinite, "infinite"))
            counted = ", ".join(f"{number:,} {kind}" for number, kind in kinds if number)
            sentence = f"Column '{name}' cannot be a feature as it is: of its values, {counted}."
            if not infinite and word == "text":
                encoded = "categories (categories=, --categories)" if text else MISSING_ADVICE
                sentence += f" A policy can take {encoded}."
            findings.append(Finding("note", "features", sentence))
    return findings


MISSING_ADVICE = "missing values (missing=, --missing)"


def _unusable(column: Any) -> NDArray[np.int64]:
    """Count the values of a column that are text, missing, and infinite."""
    values = pl.Series(pl.from_arrow(plain(column)))
    if values.dtype == pl.String:
        numbers = values.str.strip_chars().cast(pl.Float64, strict=False)
        text = int((numbers.is_null() & values.is_not_null()).sum())
    elif values.dtype.is_numeric() or values.dtype == pl.Boolean:
        numbers, text = values.cast(pl.Float64), 0
    else:
        return np.array([len(values), 0, 0])
    missing = values.null_count() + int(numbers.is_nan().sum())
    return np.array([text, missing, int(numbers.is_infinite().sum())])


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


def _single_impression_findings(facts: ImpressionFacts, impressions: int, clicked: int) -> Iterator[Finding]:
    if full := facts.all_clicked:
        sentence = (
            f"{full} of {impressions} impressions had every item clicked: a robot, or a logging error? Leave"
            " them out if no person did that."
        )
        yield Finding("warning" if full > impressions * MANY else "note", "clicks", sentence)
    if facts.nothing_shown:
        sentence = (
            f"{facts.nothing_shown} of {impressions} impressions show nothing, since all their positions are"
            " empty: they count in every mean. Leave them out if nobody saw them, or log their positions."
        )
        yield Finding("warning", "position", sentence)
    if facts.gaps:
        sentence = (
            f"{facts.gaps} of {impressions} impressions skip positions, such as 1, 2, 4. If items are"
            " missing, add them, since their clicks are missing too."
        )
        yield Finding("warning", "position", sentence)
    if facts.times_tell and facts.repeated:
        sentence = (
            f"{facts.repeated} of {clicked} impressions with a click equal another one of the same time in"
            " all that was shown and clicked: logged twice? Intervals are then too narrow; keep one of each."
        )
        yield Finding("warning" if facts.repeated > clicked * MANY else "note", "impressions", sentence)
    elif facts.copies > 1 and facts.different >= MANY_IMPRESSIONS:
        sentence = (
            f"Each impression stands in the log {facts.copies} times, or a multiple of that: was a part put"
            " together with itself? Intervals are then too narrow; keep one of each."
        )
        yield Finding("warning", "impressions", sentence)


def _listed(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
