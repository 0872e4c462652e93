"""Click logs: what was shown at which position, and what was clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import checked_number, random_generator, whole_numbers
from fultr.click_model import ClickNoise, PositionBias
from fultr.compiled import compiled
from fultr.data.compact_log import CompactLog, count_cells, count_log
from fultr.data.dataset import RankingDataset, chosen_of, named_groups, rows_of
from fultr.data.ids import UNKNOWN_GROUP, Ids, codes_of, first_repeat
from fultr.data.log_fields import (
    DEEPEST_POSITION,
    as_clicks,
    as_impression_ids,
    as_lists,
    as_origin,
    as_positions,
    as_propensities,
    as_times,
)
from fultr.data.merging import merge_lists, order_within
from fultr.data.propensity import NOT_SHOWN, click_weights, examination
from fultr.errors import InputError


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
        if not position.all():
            problem = "a planted item needs a position, 1 or more"
            raise InputError(problem, row=int(np.argmin(position)) + 1, column="planted.position")
        repeat = first_repeat(impression, position)
        if repeat is not None:
            problem = f"the position is taken by planted item {repeat[0] + 1} of the same impression already"
            value = position[repeat[1]]
            raise InputError(problem, row=repeat[1] + 1, column="planted.position", value=value)
        fields = {
            "impression": impression,
            "position": position,
            "click": as_clicks(self.click, size, "planted.click"),
            "propensity": None
            if self.propensity is None
            else as_propensities(self.propensity, np.ones(size, dtype=np.bool_), "planted.propensity"),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return int(self.impression.size)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class ClickLog:
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
        Optional, for each impression: whole numbers, or dates, held in microseconds.
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
        unseen = np.flatnonzero(clicks & (positions == NOT_SHOWN))
        if unseen.size:
            raise InputError(
                "a click on an item that was not shown", row=unseen[0] + 1, column="click", value=1
            )
        fields: dict[str, Any] = {
            "data": data,
            "lists": shown_lists,
            "position": positions,
            "click": clicks,
            "propensity": None if propensity is None else as_propensities(propensity, positions != NOT_SHOWN),
            # without items there is nothing to have a propensity either
            "planted": planted if planted is not None and len(planted) else Planted.none(),
            "impression_id": None if impression_id is None else as_impression_ids(impression_id, size),
            "timestamp": None if timestamp is None else as_times(timestamp, size),
            "position_bias": position_bias,
            "noise": noise,
            "empties_dropped": bool(empties_dropped),
            "origin": as_origin(origin or {}),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_planted()
        self._refuse_repeated_positions()

    def _check_planted(self) -> None:
        planted = self.planted
        if not len(planted):
            return
        if planted.impression.max() >= len(self):
            problem = f"planted items need an impression of the log, which has {len(self)}"
            raise InputError(problem, column="planted.impression", value=planted.impression.max())
        if (planted.propensity is None) != (self.propensity is None):
            raise InputError("propensities must be given for all items or for none", column="propensity")

    def _refuse_repeated_positions(self) -> None:
        planted = self.planted
        repeated = first_repeated(self.position, self.offsets, planted.impression, planted.position)
        if repeated >= 0:
            impression = int(np.searchsorted(self.offsets, repeated, side="right"))
            problem = f"the position is taken twice in impression {impression}"
            raise InputError(problem, row=repeated + 1, column="position", value=self.position[repeated])

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
        found = np.zeros(len(self), dtype=bool)
        found[np.searchsorted(self.offsets, np.flatnonzero(self.click), side="right") - 1] = True
        return found

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
        """Return some of the impressions (a slice, indices in any order, or a mask), over the same lists."""
        chosen = chosen_of(impressions, len(self), "impression")
        entries = rows_of(self.offsets, chosen)
        new_place = np.full(len(self), -1)
        new_place[chosen] = np.arange(chosen.size)
        if np.unique(chosen).size != chosen.size:
            raise InputError("an impression can be chosen only once", column="impressions")
        kept = new_place[self.planted.impression] >= 0
        planted = Planted(
            impression=new_place[self.planted.impression[kept]],
            position=self.planted.position[kept],
            click=self.planted.click[kept],
            propensity=None if self.planted.propensity is None else self.planted.propensity[kept],
        )
        return replace(
            self,
            lists=self.lists[chosen],
            position=self.position[entries],
            click=self.click[entries],
            propensity=None if self.propensity is None else self.propensity[entries],
            planted=planted,
            impression_id=None if self.impression_id is None else self.impression_id[chosen],
            timestamp=None if self.timestamp is None else self.timestamp[chosen],
        )

    def split(self, share: float, seed: int | np.random.Generator = 0) -> tuple[ClickLog, ClickLog]:
        """Split by query: all impressions of a query go to one side, `share` of the queries to the second."""
        checked_number(share, "share", "must lie between 0 and 1", lambda given: 0 < given < 1)
        query = self.data.query_codes[self.lists]
        queries = np.unique(query)
        if queries.size < 2:
            raise InputError(f"cannot split by query: the log has {queries.size}", column="query_id")
        size = min(max(1, round(share * queries.size)), queries.size - 1)
        second = random_generator(seed).choice(queries, size=size, replace=False)
        in_second = np.isin(query, second)
        return self[~in_second], self[in_second]

    def compact(self) -> CompactLog:
        """Merge impressions of the same query with the same candidates, features and groups into counts.

        The order in which the candidates were shown, or are held, does not matter; lists that differ in a
        candidate are never merged. Exact for everything that is linear in the clicks of an impression.
        """
        merged = merge_lists(self.data)
        used, lists = np.unique(merged.number[self.lists], return_inverse=True)
        kept = merged.representative[used]
        new_row = np.empty(self.data.rows, dtype=np.int64)
        new_row[rows_of(self.data.offsets, kept)] = np.arange(int(self.data.lengths[kept].sum()))
        planted = self.planted
        everything = kept.size == len(self.data) and bool((kept == np.arange(kept.size)).all())
        return CompactLog(
            # nothing merged, nothing moved: no second copy of the features
            data=self.data if everything else self.data[kept],
            impressions=np.bincount(lists, minlength=used.size),
            clicked_impressions=np.bincount(lists[self.clicked], minlength=used.size),
            cells=count_log(self, new_row[merged.row]),
            planted=count_cells(
                np.zeros(len(planted), dtype=np.int64), planted.position, planted.propensity, planted.click
            ),
            position_bias=self.position_bias,
            noise=self.noise,
            empties_dropped=self.empties_dropped,
        )

    def drop_empties(self) -> ClickLog:
        """Return only the impressions with a click, marked as such."""
        return replace(self[self.clicked], empties_dropped=True)

    def equals(self, other: ClickLog) -> bool:
        """Say whether both logs hold the same impressions of the same candidates, in the same order.

        Lists are compared by what they hold; the order in which the datasets keep them, lists never shown,
        and relevances do not matter.
        """
        return self._content() == other._content()

    def _content(self) -> dict[str, Any]:
        data, entry = self.data, np.arange(self.entries)
        if data.doc_id is not None:
            # the order in which a list holds its candidates says nothing
            entry = order_within(codes_of(data.doc_id)[self.row_of_entry], self.offsets)
        rows = self.row_of_entry[entry]
        planted = np.lexsort((self.planted.position, self.planted.impression))

        def listed(column: NDArray[Any] | None, order: NDArray[np.int64]) -> list[Any] | None:
            return (
                None
                if column is None
                else [None if value != value else value for value in column[order].tolist()]
            )

        return {
            "query_id": listed(data.query_id, self.lists),
            "doc_id": listed(data.doc_id, rows),
            "features": data.features[rows].tobytes(),
            "feature_names": data.feature_names,
            "group": listed(data.group, rows),
            "group_names": data.group_names,
            "group_columns": data.group_columns,
            "source": data.source,
            "lengths": data.lengths[self.lists].tolist(),
            "position": listed(self.position, entry),
            "click": listed(self.click, entry),
            "propensity": listed(self.propensity, entry),
            "planted": [
                listed(column, planted)
                for column in (
                    self.planted.impression,
                    self.planted.position,
                    self.planted.click,
                    self.planted.propensity,
                )
            ],
            "impression_id": listed(self.impression_id, np.arange(len(self))),
            "timestamp": listed(self.timestamp, np.arange(len(self))),
            "position_bias": self.position_bias,
            "noise": self.noise,
            "empties_dropped": self.empties_dropped,
            "origin": self.origin,
        }

    def describe(self) -> dict[str, Any]:
        """Return what the log holds, by position and group, as plain values."""
        shown = self.position != NOT_SHOWN
        group = self.data.group[self.row_of_entry]
        impressions_at = np.bincount(self.position)
        clicks_at = np.bincount(self.position[self.click], minlength=impressions_at.size)

        def counts(entries: NDArray[np.bool_]) -> dict[str, Any]:
            seen, clicks = int((entries & shown).sum()), int((entries & self.click).sum())
            mean = float(self.position[entries & shown].mean()) if seen else None
            return {
                "shown": seen,
                "clicks": clicks,
                "click_rate": clicks / max(seen, 1),
                "mean_position": mean,
            }

        return {
            "source": self.data.source,
            "impressions": len(self),
            "impressions_without_click": int((~self.clicked).sum()),
            "empties_dropped": self.empties_dropped,
            "queries": int(np.unique(self.data.query_codes[self.lists]).size),
            "lists": int(np.unique(self.lists).size),
            "entries": self.entries,
            "not_shown": int((~shown).sum()),
            "clicks": int(self.click.sum()),
            "features": int(self.data.features.shape[1]),
            "planted": {"items": len(self.planted), "clicks": int(self.planted.click.sum())},
            "position_bias": None if self.position_bias is None else self.position_bias.to_dict(),
            "noise": None if self.noise is None else self.noise.to_dict(),
            "propensity_column": self.propensity is not None,
            "positions": [
                {
                    "position": position,
                    "shown": int(impressions_at[position]),
                    "clicks": int(clicks_at[position]),
                    "click_rate": float(clicks_at[position] / impressions_at[position]),
                }
                for position in range(1, impressions_at.size)
                if impressions_at[position]
            ],
            "groups": {
                name: counts(group == code)
                for code, name in named_groups(self.data.group_names)
                if code != UNKNOWN_GROUP or bool((group == code).any())
            },
        }


@compiled
def first_repeated(position: Any, offsets: Any, planted_impression: Any, planted_position: Any) -> int:
    """Return the first entry whose position is taken by another one or by a planted item, or -1."""
    # taken[k] is one more than the last impression that used position k
    taken = np.zeros(DEEPEST_POSITION + 1, np.int64)
    for impression in range(offsets.size - 1):
        for entry in range(offsets[impression], offsets[impression + 1]):
            where = position[entry]
            if where != NOT_SHOWN:
                if taken[where] == impression + 1:
                    return entry
                taken[where] = impression + 1
    for number in range(planted_impression.size):
        impression = planted_impression[number]
        for entry in range(offsets[impression], offsets[impression + 1]):
            if position[entry] == planted_position[number]:
                return entry
    return -1
