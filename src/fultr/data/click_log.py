"""Click logs: what was shown at which position, and what was clicked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.click_model import ClickNoise, PositionBias
from fultr.compiled import compiled
from fultr.data.compact_log import CompactLog, count_cells
from fultr.data.dataset import RankingDataset, rows_of
from fultr.data.ids import UNKNOWN_GROUP, Ids, as_ids, codes_of
from fultr.data.merging import merge_lists, order_within
from fultr.data.propensity import NOT_SHOWN, click_weights, examination
from fultr.errors import InputError

DEEPEST_POSITION = 1_000_000


@dataclass(frozen=True, eq=False)
class Planted:
    """Items known to be irrelevant that were put into rankings to measure click noise.

    Such an item takes a position, but is in no group, has no merit and is no candidate.
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
        for name in ("position", "click", "propensity"):
            column = getattr(self, name)
            if column is not None and column.shape != self.impression.shape:
                raise InputError("planted items need columns of one length", column=name, value=column.shape)

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
    impression_id, timestamp
        Optional, for each impression.
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
        shown_lists = _as_lists(lists, len(data))
        entries, size = int(data.lengths[shown_lists].sum()), shown_lists.size
        positions, clicks = _as_positions(position, entries), _as_clicks(click, entries)
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
            "propensity": None
            if propensity is None
            else _as_propensities(propensity, positions != NOT_SHOWN),
            "planted": Planted.none() if planted is None else planted,
            "impression_id": _of_impressions(impression_id, size, "impression_id"),
            "timestamp": _of_impressions(timestamp, size, "timestamp"),
            "position_bias": position_bias,
            "noise": noise,
            "empties_dropped": bool(empties_dropped),
            "origin": dict(origin or {}),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_planted()
        self._refuse_repeated_positions()

    def _check_planted(self) -> None:
        planted = self.planted
        if not len(planted):
            return
        if (
            planted.impression.min() < 0
            or planted.impression.max() >= len(self)
            or planted.position.min() < 1
        ):
            raise InputError("planted items need an impression of the log and a position", column="planted")
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
        clicks = np.concatenate([[0], np.cumsum(self.click)])
        return np.diff(clicks[self.offsets]) > 0

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

    def __getitem__(self, impressions: slice | NDArray[Any]) -> ClickLog:
        """Return some of the impressions (a slice, indices in any order, or a mask), over the same lists."""
        chosen = np.arange(len(self))[impressions]
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
        if not 0 < share < 1:
            raise InputError("must lie between 0 and 1", column="share", value=share)
        query = self.data.query_codes[self.lists]
        queries = np.unique(query)
        if queries.size < 2:
            raise InputError(f"cannot split by query: the log has {queries.size}", column="query_id")
        size = min(max(1, round(share * queries.size)), queries.size - 1)
        second = np.random.default_rng(seed).choice(queries, size=size, replace=False)
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
        shown = self.position != NOT_SHOWN
        planted = self.planted
        return CompactLog(
            data=self.data[kept],
            impressions=np.bincount(lists, minlength=used.size),
            clicked_impressions=np.bincount(lists[self.clicked], minlength=used.size),
            cells=count_cells(
                new_row[merged.row[self.row_of_entry[shown]]],
                self.position[shown],
                None if self.propensity is None else self.propensity[shown],
                self.click[shown],
            ),
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

        names = [*enumerate(self.data.group_names), (UNKNOWN_GROUP, "(unknown)")]
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
                for code, name in names
                if code != UNKNOWN_GROUP or bool((group == code).any())
            },
        }


def _as_lists(values: ArrayLike, lists: int) -> NDArray[np.int64]:
    given = np.asarray(values, dtype=np.int64)
    outside = np.flatnonzero((given < 0) | (given >= lists))
    if given.ndim != 1 or outside.size:
        value = given[outside[0]] if outside.size else given.shape
        raise InputError(
            f"a list must be one of 0..{lists - 1} for each impression", column="lists", value=value
        )
    return given


def _of_impressions(values: ArrayLike | None, size: int, column: str) -> NDArray[Any] | None:
    if values is None:
        return None
    given = as_ids(values, column) if column == "impression_id" else np.asarray(values)
    if given.shape != (size,):
        raise InputError(
            f"must have one value for each of {size} impressions", column=column, value=given.shape
        )
    return given


def _as_positions(values: ArrayLike, entries: int) -> NDArray[np.int32]:
    given = np.asarray(values)
    if given.shape != (entries,) or given.dtype.kind not in "iu":
        problem = f"must be a whole number for each of {entries} entries, 0 where it was not shown"
        raise InputError(problem, column="position", value=(given.dtype, given.shape))
    wrong = np.flatnonzero((given < 0) | (given > DEEPEST_POSITION))
    if wrong.size:
        problem = f"a position is 1 to {DEEPEST_POSITION}, or 0 for an item that was not shown"
        raise InputError(problem, row=wrong[0] + 1, column="position", value=given[wrong[0]])
    return given.astype(np.int32, copy=False)


def _as_clicks(values: ArrayLike, entries: int) -> NDArray[np.bool_]:
    given = np.asarray(values)
    if given.shape != (entries,) or given.dtype.kind not in "biuf":
        problem = f"must be 0 or 1 for each of {entries} entries"
        raise InputError(problem, column="click", value=(given.dtype, given.shape))
    wrong = np.flatnonzero((given != 0) & (given != 1))
    if wrong.size:
        raise InputError("a click is 0 or 1", row=wrong[0] + 1, column="click", value=given[wrong[0]])
    return given.astype(np.bool_, copy=False)


def _as_propensities(values: ArrayLike, shown: NDArray[np.bool_]) -> NDArray[np.float64]:
    given = np.asarray(values, dtype=np.float64)
    if given.shape != shown.shape:
        problem = f"must be a number for each of {shown.size} entries"
        raise InputError(problem, column="propensity", value=given.shape)
    wrong = np.flatnonzero(shown & ~((given > 0) & (given <= 1)))
    if wrong.size:
        problem = "a propensity must lie above 0 and be at most 1"
        raise InputError(problem, row=wrong[0] + 1, column="propensity", value=given[wrong[0]])
    return np.where(shown, given, np.nan)


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
