"""Click logs: what was shown at which position, and what was clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import checked_number, whole_numbers
from fultr.click_model import ClickNoise, PositionBias
from fultr.data.columns import IN_MEMORY
from fultr.data.counts import COMPLETE_LISTS, Counts
from fultr.data.dataset import RankingDataset, chosen_of, columns_at, rows_of
from fultr.data.fields import (
    as_clicks,
    as_impression_ids,
    as_lists,
    as_origin,
    as_positions,
    as_propensities,
    as_times,
)
from fultr.data.frames import frame_of_log
from fultr.data.grouping import first_repeat
from fultr.data.ids import Ids
from fultr.data.merging import count_impressions
from fultr.data.propensity import NOT_SHOWN, click_weights, examination
from fultr.errors import InputError
from fultr.results import Displayed, Tables, summary_tables

MOST_COUNTED = 1 << 20
"""Entries that are counted to show what a log holds: about a second of work."""


@dataclass(frozen=True, eq=False)
class Planted:
    """Items known to be irrelevant that were put into rankings to measure click noise.

    Such an item takes a position, but is in no group, has no merit and is no candidate.

    Parameters
    ----------
    impression
        The impression of each item, counted from 0.
    position, click, propensity
        As in `ClickLog`; a planted item is always shown.
    """

    impression: NDArray[np.int64]
    position: NDArray[np.int32]
    click: NDArray[np.bool_]
    propensity: NDArray[np.float64] | None = None

    @classmethod
    def none(cls) -> Planted:
        """Return planted items for a log that has none."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.bool_))

    def __post_init__(self) -> None:
        impression = whole_numbers(self.impression, "planted.impression")
        size = impression.size
        if impression.shape != (size,) or (impression < 0).any():
            problem = "planted items need an impression, counted from 0, each"
            raise InputError(problem, column="planted.impression", value=self.impression)
        position = as_positions(self.position, size, "planted.position")
        problem = "a planted item needs a position, 1 or more"
        IN_MEMORY.check(position == NOT_SHOWN, problem, "planted.position")
        repeat = first_repeat(impression, position)
        if repeat is not None:
            first, second = repeat
            problem = f"the position is taken by planted item {first + 1} of the same impression already"
            raise IN_MEMORY.error(problem, second, "planted.position", position[second])
        propensity = self.propensity
        if propensity is not None:
            propensity = as_propensities(propensity, np.ones(size, dtype=np.bool_), "planted.propensity")
        click = as_clicks(self.click, size, "planted.click")
        vars(self).update(impression=impression, position=position, click=click, propensity=propensity)

    def __len__(self) -> int:
        return int(self.impression.size)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class ClickLog(Displayed):
    """Impressions of candidate lists, with positions and clicks; those without a click included.

    Impression i shows list `lists[i]` of `data`. Its entries, one for each candidate in the row order of the
    list, stand at `offsets[i]:offsets[i + 1]` of `position` and `click`.

    Parameters
    ----------
    data
        The candidate lists. Their relevances, if any, are no part of a log.
    lists
        The list that each impression showed.
    position
        For each entry the position it was shown at, from 1; 0 for a candidate that was not shown, which can
        earn no merit and takes no part in the noise term.
    click
        For each entry whether it was clicked.
    propensity
        For each entry, where known, the examination probability p(o = 1) of its logged position; never the
        probability of a ranking. Without it, propensities come from a position bias.
    planted
        Items known to be irrelevant that were shown among the candidates.
    impression_id
        Optional, for each impression; no two may have the same.
    timestamp
        Optional, for each impression: integers, or dates, held in microseconds.
    position_bias, noise
        The click model that belongs to the log, if it is known.
    empties_dropped
        Whether impressions without a click are missing. Estimates are then known only up to a factor.
    origin
        How the log was made, in plain values; kept in files.
    """

    data: RankingDataset
    lists: NDArray[np.int64]
    position: NDArray[np.int32]
    click: NDArray[np.bool_]
    propensity: NDArray[np.float64] | None
    planted: Planted
    impression_id: Ids | None
    timestamp: NDArray[Any] | None
    position_bias: PositionBias | None
    noise: ClickNoise | None
    empties_dropped: bool
    origin: dict[str, Any]

    def __init__(
        self,
        data: RankingDataset,
        lists: ArrayLike,
        position: ArrayLike,
        click: ArrayLike,
        *,
        propensity: ArrayLike | None = None,
        planted: Planted | None = None,
        impression_id: ArrayLike | None = None,
        timestamp: ArrayLike | None = None,
        position_bias: PositionBias | None = None,
        noise: ClickNoise | None = None,
        empties_dropped: bool = False,
        origin: dict[str, Any] | None = None,
    ) -> None:
        shown_lists = as_lists(lists, len(data))
        entries, size = int(data.lengths[shown_lists].sum()), shown_lists.size
        positions, clicks = as_positions(position, entries), as_clicks(click, entries)
        unseen = clicks & (positions == NOT_SHOWN)
        IN_MEMORY.check(unseen, "a click on an item that was not shown", "click", clicks, int)
        vars(self).update(
            data=data,
            lists=shown_lists,
            position=positions,
            click=clicks,
            propensity=None if propensity is None else as_propensities(propensity, positions != NOT_SHOWN),
            # without items there is nothing to have a propensity either
            planted=planted if planted is not None and len(planted) else Planted.none(),
            impression_id=as_impression_ids(impression_id, size),
            timestamp=None if timestamp is None else as_times(timestamp, size),
            position_bias=position_bias,
            noise=noise,
            empties_dropped=bool(empties_dropped),
            origin=as_origin(origin or {}),
        )
        self._check_planted()
        self._check_positions()

    def _check_planted(self) -> None:
        planted = self.planted
        if not len(planted):
            return
        if planted.impression.max() >= len(self):
            problem = f"planted items need an impression of the log, which has {len(self)}"
            raise InputError(problem, column="planted.impression", value=planted.impression.max())
        if (planted.propensity is None) != (self.propensity is None):
            raise InputError("propensities must be given for all items or for none", column="propensity")

    def _check_positions(self) -> None:
        shown = np.flatnonzero(self.position != NOT_SHOWN)
        impression = np.concatenate([self.planted.impression, self.impression_of_entry[shown]])
        repeat = first_repeat(impression, np.concatenate([self.planted.position, self.position[shown]]))
        if repeat is not None:
            entry = int(shown[repeat[1] - len(self.planted)])
            problem = f"the position is taken twice in impression {impression[repeat[1]] + 1}"
            raise IN_MEMORY.error(problem, entry, "position", self.position[entry])

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where the entries of each impression start, and the number of entries at the end."""
        return np.concatenate([[0], np.cumsum(self.data.lengths[self.lists])]).astype(np.int64)

    @property
    def entries(self) -> int:
        """Number of candidates over all impressions, shown or not."""
        return int(self.position.size)

    @property
    def impression_of_entry(self) -> NDArray[np.int64]:
        """The impression that each entry belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @property
    def row_of_entry(self) -> NDArray[np.int64]:
        """The row of `data` that each entry is about."""
        return rows_of(self.data.offsets, self.lists)

    @property
    def clicked(self) -> NDArray[np.bool_]:
        """For each impression, whether a candidate was clicked."""
        clicked = np.zeros(len(self), dtype=np.bool_)
        clicked[np.searchsorted(self.offsets, np.flatnonzero(self.click), side="right") - 1] = True
        return clicked

    def __len__(self) -> int:
        return int(self.lists.size)

    def __repr__(self) -> str:
        planted = f", {len(self.planted)} planted items" if len(self.planted) else ""
        dropped = ", empty impressions dropped" if self.empties_dropped else ""
        shape = f"{len(self)} impressions of {len(self.data)} lists, {int(self.click.sum())} clicks"
        return f"<ClickLog: {shape}{planted}{dropped}>"

    def propensities(self, position_bias: PositionBias | None = None) -> NDArray[np.float64]:
        """Return p(o = 1) for each entry, 0 where it was not shown; see `examination`."""
        return examination(self.position, self.propensity, position_bias, self.position_bias)

    def ips_weights(
        self, position_bias: PositionBias | None = None, *, clip: float | None = None
    ) -> NDArray[np.float64]:
        """Return c / p for each entry: the unbiased estimate of its relevance, at most `clip` if given."""
        return click_weights(self.click.astype(np.float64), self.propensities(position_bias), clip)

    def impressions_of_lists(self) -> NDArray[np.int64]:
        """Return how often each list was shown, impressions without a click included."""
        return np.bincount(self.lists, minlength=len(self.data))

    def __getitem__(self, impressions: int | slice | Sequence[int] | NDArray[Any]) -> ClickLog:
        """Return the chosen impressions (a slice, indices in any order, or a mask), over the same lists."""
        chosen = chosen_of(impressions, len(self), "impression")
        entries = rows_of(self.offsets, chosen)
        new_index = np.full(len(self), -1)
        new_index[chosen] = np.arange(chosen.size)
        if np.unique(chosen).size != chosen.size:
            raise InputError("an impression can be chosen only once", column="impressions")
        impression = new_index[self.planted.impression]
        of_planted = columns_at(self.planted, impression >= 0, "position", "click", "propensity")
        return replace(
            self,
            planted=Planted(impression=impression[impression >= 0], **of_planted),
            **columns_at(self, chosen, "lists", "impression_id", "timestamp"),
            **columns_at(self, entries, "position", "click", "propensity"),
        )

    def split(self, share: float, seed: int | np.random.Generator = 0) -> tuple[ClickLog, ClickLog]:
        """Split by query: all impressions of a query go to one side, `share` of the queries to the second."""
        in_second = self.chosen_queries(share, seed)
        return self[~in_second], self[in_second]

    def chosen_queries(self, share: float, seed: int | np.random.Generator = 0) -> NDArray[np.bool_]:
        """Draw a share of the queries, at least one and not all; return which impressions are of them."""
        used = np.unique(self.lists)
        return np.isin(self.lists, used[self.data[used].choose_queries(share, seed)])

    def split_by_time(self, share: float) -> tuple[ClickLog, ClickLog]:
        """Split by time: the last impressions, about `share` of them, go to the second.

        Impressions of one moment stay together, so that the second begins where the first has ended.
        """
        in_second = self.chosen_by_time(share)
        return self[~in_second], self[in_second]

    def chosen_by_time(self, share: float) -> NDArray[np.bool_]:
        """Return which impressions are the last ones, about `share` of them; see `split_by_time`."""
        checked_number(share, "share", "must lie between 0 and 1", lambda given: 0 < given < 1)
        if self.timestamp is None:
            raise InputError("a split by time needs the time of each impression", column="timestamp")
        moments, first = np.unique(np.sort(self.timestamp), return_index=True)
        if moments.size < 2:
            raise InputError("cannot split by time: all impressions have the same", column="timestamp")
        put_aside = 1 - first[1:] / len(self)
        return np.asarray(self.timestamp >= moments[1:][np.abs(put_aside - share).argmin()])

    def shown_only(self) -> ClickLog:
        """Return the log without candidates that were never shown: clicks say nothing about them.

        A list of which nothing was ever shown is left out, and so are its impressions.
        """
        was_shown = np.zeros(self.data.rows, dtype=np.bool_)
        was_shown[self.row_of_entry[self.position != NOT_SHOWN]] = True
        if was_shown.all():
            return self
        data, lists = self.data.of_rows(was_shown)
        log = self[np.isin(self.lists, lists)]
        return replace(
            log,
            data=data,
            lists=np.searchsorted(lists, log.lists),
            **columns_at(log, was_shown[log.row_of_entry], "position", "click", "propensity"),
        )

    def with_complete_lists(self) -> ClickLog:
        """Return the same log, with the statement of `Counts.with_complete_lists`."""
        return replace(self, origin={**self.origin, COMPLETE_LISTS: True})

    def with_lists(self, lists: RankingDataset) -> ClickLog:
        """Return the same clicks on lists of the same rows with other features, groups or ids."""
        return replace(self, data=lists)

    def compact(self) -> Counts:
        """Merge impressions of the same query with the same candidates into counts.

        The order in which the candidates were shown, or are held, does not matter; lists that differ in a
        candidate are never merged. Exact for everything that is linear in the clicks of an impression.
        """
        return count_impressions(self)

    def drop_empties(self) -> ClickLog:
        """Return only the impressions with a click, marked as such."""
        return replace(self[self.clicked], empties_dropped=True)

    def to_frame(self) -> pl.DataFrame:
        """Return a polars frame with a row for each candidate of each impression; see `frame_of_log`."""
        return frame_of_log(self)

    def tables(self) -> Tables:
        """Return what `describe` says as tables, which a notebook shows; of many entries, only how many."""
        if self.entries > MOST_COUNTED:
            sizes = {"lists": len(self.data), "impressions": len(self), "entries": self.entries}
            return summary_tables({**sizes, "clicks": int(self.click.sum())})
        return summary_tables(self.describe())

    def describe(self) -> dict[str, Any]:
        """Return what the log holds, by position and group, as plain values."""
        return self.compact().describe()


CountsOrLabels = Counts | RankingDataset
"""Lists, and what is known of the relevance of their items: counts of clicks, or labels."""

Source = ClickLog | CountsOrLabels
"""The same, or single impressions; all have `data`, `compact`, `split` and `with_lists`."""
