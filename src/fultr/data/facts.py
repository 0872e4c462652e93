"""What single impressions tell of how a log was made: kept beside its counts, and merged like them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.data.grouping import mixed, run_starts
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

if TYPE_CHECKING:
    from fultr.data.tally import Rows

SAMPLE_SIZE = 4096
"""Different impressions that are kept to find repeated ones. A share of 1% is then known to 0.2%."""

HASHES = 2.0**64
"""How many hashes there are."""


@dataclass(frozen=True, eq=False)
class ImpressionSample:
    """The different impressions with the smallest hashes, and how often each stands in the log.

    The sample of a log is that of the samples of its parts, however it was cut into parts.

    Parameters
    ----------
    key
        Ascending hashes of what was shown, where, what was clicked and when.
    count
        How often each stands in the log.
    clicked
        Whether it has a click.
    time
        When it happened; 0 where times are unknown.
    """

    key: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    count: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    clicked: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    time: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def scale(self) -> float:
        """How many different impressions each of the sample stands for; 1 while all of them are in it."""
        if self.key.size < SAMPLE_SIZE:
            return 1.0
        return float((SAMPLE_SIZE - 1) / (float(self.key[-1]) / HASHES) / SAMPLE_SIZE)

    @classmethod
    def merge(cls, parts: Iterable[ImpressionSample]) -> ImpressionSample:
        """Return the sample of everything that the parts were drawn from."""
        columns = zip(*(vars(sample).values() for sample in parts), strict=True)
        key, count, clicked, time = (np.concatenate(arrays) for arrays in columns)
        order = np.argsort(key, kind="stable")
        first = run_starts(key[order])
        chosen = order[first[:SAMPLE_SIZE]]
        sums = np.add.reduceat(count[order], first)[:SAMPLE_SIZE] if first.size else count
        return cls(key[chosen], sums, clicked[chosen], time[chosen])


@dataclass(frozen=True, eq=False)
class ImpressionFacts:
    """What the single impressions of a log tell of how it was made.

    Parameters
    ----------
    all_clicked
        Impressions that show two items or more, every one of which was clicked.
    nothing_shown
        Impressions without any position.
    gaps
        Impressions that skip positions, such as 1, 2, 4; planted items fill theirs.
    timed
        Whether impressions have times.
    sample
        Some of the different impressions that show anything.
    """

    all_clicked: int = 0
    nothing_shown: int = 0
    gaps: int = 0
    timed: bool = False
    sample: ImpressionSample = field(default_factory=ImpressionSample)

    @property
    def repeated(self) -> int:
        """Impressions with a click that equal an earlier one; an estimate in a log of many."""
        again = self.sample.count[self.sample.clicked] - 1
        return round(float(again.sum()) * self.sample.scale)

    @property
    def copies(self) -> int:
        """The largest number that divides how often each different impression stands in the log."""
        return int(np.gcd.reduce(self.sample.count)) if self.sample.count.size else 1

    @property
    def different(self) -> int:
        """How many different impressions show anything; an estimate in a log of many."""
        return round(self.sample.key.size * self.sample.scale)

    @property
    def times_tell(self) -> bool:
        """Whether times are so fine that equal impressions at the same time must be one."""
        clicked = self.sample.clicked
        times = np.unique(self.sample.time[clicked]).size if self.timed else 0
        # of all that happened at one time, hardly more than one thing is different
        return 0 < int(clicked.sum()) <= 2 * times

    def describe(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        names = ("all_clicked", "nothing_shown", "gaps", "repeated", "copies", "different", "times_tell")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def merge(cls, parts: Iterable[ImpressionFacts]) -> ImpressionFacts:
        """Return the facts of all impressions of several parts of a log."""
        all_clicked, nothing_shown, gaps, timed, samples = zip(
            *(vars(facts).values() for facts in parts), strict=True
        )
        sample = ImpressionSample.merge(samples)
        return cls(sum(all_clicked), sum(nothing_shown), sum(gaps), any(timed), sample)

    @classmethod
    def of(cls, rows: Rows) -> ImpressionFacts:
        """Return the facts of the impressions of rows."""
        impressions, first = rows.starts.size, rows.starts
        if not impressions:
            return cls(timed=rows.time is not None)
        hidden = np.flatnonzero(rows.position == NOT_SHOWN)
        seen = rows.lengths - np.bincount(rows.impression[hidden], minlength=impressions)
        clicks = rows.clicks()
        deepest = np.maximum.reduceat(rows.position, first)
        filled = seen
        if rows.planted.impression.size:
            np.maximum.at(deepest, rows.planted.impression, rows.planted.position)
            filled = seen + np.bincount(rows.planted.impression, minlength=impressions)
        return cls(
            all_clicked=int(((clicks == seen) & (seen > 1)).sum()),
            nothing_shown=int((seen == 0).sum()),
            gaps=int((deepest > filled).sum()),
            timed=rows.time is not None,
            sample=_sample(rows, seen > 0, clicks > 0),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values from which `from_dict` makes the same facts."""
        sample = {name: values.tolist() for name, values in vars(self.sample).items()}
        return {**vars(self), "sample": sample}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ImpressionFacts:
        """Make facts of what `to_dict` gave, which may have been damaged since."""
        kinds = {"key": np.uint64, "count": np.int64, "clicked": np.bool_, "time": np.int64}
        sample: dict[str, NDArray[Any]]
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            sample = {name: np.array(content["sample"][name], dtype=kind) for name, kind in kinds.items()}
            numbers = {name: int(content[name]) for name in ("all_clicked", "nothing_shown", "gaps")}
            timed, key = bool(content["timed"]), sample["key"]
            one_shape = len({values.shape for values in sample.values()}) == 1 and key.ndim == 1
            if one_shape and (key[1:] > key[:-1]).all() and (sample["count"] >= 1).all():
                return cls(**numbers, timed=timed, sample=ImpressionSample(**sample))
        raise InputError("facts about impressions are damaged", column="facts")


def _sample(rows: Rows, any_shown: NDArray[np.bool_], clicked: NDArray[np.bool_]) -> ImpressionSample:
    where = (rows.position.astype(np.uint64) << np.uint64(1)) | rows.click
    entry = mixed(rows.document_hash + where * np.uint64(0xD6E8FEB86659FD93))
    entry[rows.position == NOT_SHOWN] = 0
    key = mixed(np.add.reduceat(entry, rows.starts) + rows.query_hash)
    time = np.zeros(key.size, dtype=np.int64)
    if rows.time is not None:
        time = rows.time
        key += mixed(time.view(np.uint64) + np.uint64(1))
    chosen = np.flatnonzero(any_shown)
    ones = np.ones(chosen.size, dtype=np.int64)
    return ImpressionSample.merge([ImpressionSample(key[chosen], ones, clicked[chosen], time[chosen])])
