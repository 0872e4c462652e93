"""Counts of a click log: impressions of the same candidates merged, whatever order they were shown in.

Utility, disparity and noise-corrected disparity are linear in the clicks of an impression. So impressions and
clicks of each item at each position hold all that they need, under any position bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fultr.click_model import ClickNoise, PositionBias, PositionBiasByContext
from fultr.data.dataset import RankingDataset, columns_at, named_groups, rows_of
from fultr.data.frames import frame_of_counts
from fultr.data.grouping import first_equals, mixed
from fultr.data.ids import UNKNOWN_GROUP, codes_of
from fultr.data.propensity import click_weights, examination
from fultr.data.tally import ImpressionFacts
from fultr.errors import InputError
from fultr.results import Displayed, Tables, summary_tables

NEVER_SHOWN = "never_shown"
"""Where `origin` of counts says how many candidates were left out since they were never shown."""

LARGEST_COUNT = 1 << 53
"""Sums of counts below it are exact as floats."""

COMPLETE_LISTS = "complete_lists"
"""Where `origin` says that the rows of each impression are all the candidates there were."""

OF_LISTS = ("impressions", "clicked_impressions", "context")
"""The fields of counts that have a value for each list."""


@dataclass(frozen=True, eq=False, repr=False)
class Cells:
    """Impressions and clicks of items, counted by item, position and, where logged, propensity."""

    row: NDArray[np.int64]
    position: NDArray[np.int32]
    propensity: NDArray[np.float64] | None
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]

    def __getitem__(self, chosen: NDArray[Any]) -> Cells:
        """Return the chosen cells."""
        return Cells(**columns_at(self, chosen, *vars(self)))


class CountedFile(NamedTuple):
    """A file that was counted: its name, how many rows it has, and the SHA-256 of its bytes."""

    name: str
    rows: int
    sha256: str


@dataclass(frozen=True, eq=False, repr=False)
class Counts(Displayed):
    """A click log as counts of lists and of their items; made by `fultr.count` or `ClickLog.compact`.

    Lists come in the order of their query ids and rows in the order of their document ids, so that a log has
    the same counts whatever the order of its rows, and however it was cut into files.

    Parameters
    ----------
    data
        The lists of candidates that were shown.
    impressions, clicked_impressions
        How often each list was shown, those without a click included, and how often with a click; -1 where
        counts from elsewhere do not say.
    cells
        How often each row of `data` was shown and clicked at each position.
    planted
        The same for planted items, all under row 0, since they belong to no list.
    position_bias, noise, empties_dropped, origin
        As in `ClickLog`.
    context
        For each list the index of its value among `context_values`, if impressions were separated by a
        column such as the device, which is `context_name`.
    facts
        What the single impressions show of how the log was made, if they were read.
    files
        What was counted, if it was files.
    """

    data: RankingDataset
    impressions: NDArray[np.int64]
    clicked_impressions: NDArray[np.int64]
    cells: Cells
    planted: Cells
    position_bias: PositionBias | None = None
    noise: ClickNoise | None = None
    empties_dropped: bool = False
    origin: dict[str, Any] = field(default_factory=dict)
    context: NDArray[np.int64] | None = None
    context_name: str = ""
    context_values: tuple[str, ...] = ()
    facts: ImpressionFacts | None = None
    files: tuple[CountedFile, ...] = ()

    def __post_init__(self) -> None:
        check_sum(self)

    def __repr__(self) -> str:
        shape = f"{int(self.impressions.sum())} impressions of {len(self.data)} lists"
        return f"<Counts: {shape}, {self.cells.row.size} cells>"

    def __getitem__(self, lists: Sequence[int] | NDArray[Any]) -> Counts:
        """Return the chosen lists, each at most once, with their counts; planted items belong to none.

        Facts about single impressions concern all lists; a selection of the lists has none.
        """
        chosen = np.arange(len(self.data))[np.asarray(lists)]
        rows = rows_of(self.data.offsets, chosen)
        new_row = np.full(self.data.rows, -1)
        new_row[rows] = np.arange(rows.size)
        cells = self.cells[new_row[self.cells.row] >= 0]
        return replace(
            self,
            data=self.data[chosen],
            **columns_at(self, chosen, *OF_LISTS),
            cells=replace(cells, row=new_row[cells.row]),
            facts=None if chosen.size < len(self.data) else self.facts,
        )

    def with_lists(self, lists: RankingDataset) -> Counts:
        """Return the same clicks on lists of the same rows with other features, groups or ids."""
        return replace(self, data=lists)

    def shown_only(self) -> Counts:
        """Return the counts without candidates that were never shown: clicks say nothing about them.

        A list of which nothing was ever shown is left out. What was shown in one context stays in the others.
        `origin` of the result says how many candidates of each group are missing.
        """
        candidate = self._candidate_of_row()
        was_shown = np.bincount(candidate, weights=self.shown())[candidate] > 0
        if was_shown.all():
            return self
        groups, once = len(self.data.group_names), candidate == np.arange(self.data.rows)
        missing, total = (
            np.bincount(group[group >= 0], minlength=groups)
            for group in (self.data.group[once & ~was_shown], self.data.group[once])
        )
        left_out = {
            "candidates": int((once & ~was_shown).sum()),
            "of": int(once.sum()),
            "groups": {
                name: float(missing[code] / total[code])
                for code, name in enumerate(self.data.group_names)
                if total[code]
            },
        }
        data, lists = self.data.of_rows(was_shown)
        return replace(
            self,
            data=data,
            **columns_at(self, lists, *OF_LISTS),
            cells=replace(self.cells, row=np.cumsum(was_shown)[self.cells.row] - 1),
            origin={**self.origin, NEVER_SHOWN: left_out},
        )

    def with_complete_lists(self) -> Counts:
        """Return the same counts, with the statement that each impression has rows for all its candidates.

        To be made where impressions of a query differ since there were other candidates at the time, not
        since others were left off the page. `origin` of the result says so.
        """
        return replace(self, origin={**self.origin, COMPLETE_LISTS: True})

    def _candidate_of_row(self) -> NDArray[np.int64]:
        """Return the first row with the same document in a list of the same candidates, in any context."""
        data = self.data
        if self.context is None or data.query_id is None or data.doc_id is None:
            return np.arange(data.rows)
        document = codes_of(data.doc_id)
        candidates = np.add.reduceat(mixed(document), data.offsets[:-1])
        same = first_equals(data.query_codes, candidates, data.lengths)
        return first_equals(same[data.list_of_row], document)

    def compact(self) -> Counts:
        """Return the counts themselves, as `ClickLog.compact` returns those of a log."""
        return self

    def of_context(self, value: str) -> Counts:
        """Return the lists of one value of the context column."""
        if self.context is None or value not in self.context_values:
            raise InputError(f"there is no such value among {list(self.context_values)}", value=value)
        return self[np.flatnonzero(self.context == self.context_values.index(value))]

    def with_bias_by_context(self, bias: PositionBiasByContext) -> Counts:
        """Return the same counts with the propensities of each list's context.

        Their position bias, which exposure is measured by, is the mean of the curves weighted by impressions.
        Propensities that were logged stay.
        """
        if self.context is None or self.context_name != bias.column:
            problem = (
                f"the position bias has a curve for each {bias.column}, and the log was not counted by it;"
                f" count it with {{context}} '{bias.column}'"
            )
            raise InputError(problem, column=bias.column, options=["context"])
        context_of_cell = self.context[self.data.list_of_row[self.cells.row]]
        propensity = np.empty(self.cells.row.size)
        impressions = {}
        for code in np.unique(self.context).tolist():
            value, at = self.context_values[code], np.flatnonzero(context_of_cell == code)
            curve = bias.of(value)
            try:
                propensity[at] = curve.at(self.cells.position[at])
            except InputError as error:
                raise InputError(error.problem, file=bias.file, column=bias.column, value=value) from None
            impressions[value] = float(self.impressions[self.context == code].sum())
        logged = self.cells.propensity
        cells = replace(self.cells, propensity=propensity if logged is None else logged)
        mean = bias.mean(impressions, int(self.data.lengths.max(initial=1)))
        return replace(self, cells=cells, position_bias=mean)

    @property
    def deepest(self) -> int:
        """The deepest position at which anything was shown."""
        return int(max(self.cells.position.max(initial=0), self.planted.position.max(initial=0)))

    @property
    def hides_candidates(self) -> bool:
        """Whether some impression did not show all candidates of its list."""
        return int(self.cells.impressions.sum()) < int(self.impressions @ self.data.lengths)

    def on_page(self, position_bias: PositionBias, depth: int | None = None) -> PositionBias:
        """Return a position bias that ends where the page does: after `depth` positions.

        By default the page is as deep as anything was ever shown, if lists are longer than that.
        """
        if depth is not None:
            return position_bias.cut(depth)
        longest = int(self.data.lengths.max(initial=0))
        return position_bias.cut(self.deepest) if 0 < self.deepest < longest else position_bias

    @property
    def has_own_weights(self) -> bool:
        """Whether relevance is known without a position bias, as it is from logged propensities."""
        return self.cells.propensity is not None

    def gains(self) -> NDArray[np.float64]:
        """Return how often each row was clicked."""
        return self.clicks()

    def bias_of_propensities(self) -> PositionBias | None:
        """Return v_k if all logged propensities of a position are the same, and every position has some."""
        position, propensity = self.cells.position, self.cells.propensity
        if propensity is None:
            return None
        longest = int(position.max(initial=0))
        low, high = np.full(longest + 1, np.inf), np.zeros(longest + 1)
        np.minimum.at(low, position, propensity)
        np.maximum.at(high, position, propensity)
        if not longest or not np.allclose(low[1:], high[1:], rtol=1e-6, atol=0) or not high[1] > 0:
            return None
        return PositionBias(high[1:].tolist())

    def propensities(self, position_bias: PositionBias | None = None) -> NDArray[np.float64]:
        """Return p(o = 1) for each cell; see `examination`."""
        return examination(self.cells.position, self.cells.propensity, position_bias, self.position_bias)

    def ips_weights(
        self, position_bias: PositionBias | None = None, *, clip: float | None = None
    ) -> NDArray[np.float64]:
        """Return the sum over impressions of c / p for each row; weights are clipped before summing."""
        clicks = self.cells.clicks.astype(np.float64)
        return self.sum_by_row(click_weights(clicks, self.propensities(position_bias), clip))

    def mean_examination(self, position_bias: PositionBias | None = None) -> NDArray[np.float64]:
        """Return the mean of p(o = 1) over all impressions of the list for each row; not shown is 0.

        p_bar_q(d) = (1/n) sum_t p(o_{q,d} = 1 | sigma_t),   t = 1, ..., n the impressions of the list
        """
        times = np.repeat(self.impressions, self.data.lengths)
        return np.divide(
            self.logged_exposure(position_bias), times, out=np.zeros(self.data.rows), where=times > 0
        )

    def squared_ips_weights(
        self, position_bias: PositionBias | None = None, *, clip: float | None = None
    ) -> NDArray[np.float64]:
        """Return the sum over impressions of (c / p)^2 for each row."""
        clicks = self.cells.clicks.astype(np.float64)
        ones = (clicks > 0).astype(np.float64)
        weights = click_weights(ones, self.propensities(position_bias), clip)
        return self.sum_by_row(clicks * weights**2)

    def logged_exposure(self, position_bias: PositionBias | None = None) -> NDArray[np.float64]:
        """Return the sum over impressions of the examination each row had in the logged rankings."""
        return self.sum_by_row(self.cells.impressions * self.propensities(position_bias))

    def shown(self) -> NDArray[np.float64]:
        """Return how often each row was shown."""
        return self.sum_by_row(self.cells.impressions.astype(np.float64))

    def clicks(self) -> NDArray[np.float64]:
        """Return how often each row was clicked."""
        return self.sum_by_row(self.cells.clicks.astype(np.float64))

    @property
    def knows_clicked_impressions(self) -> bool:
        """Whether it is known of every list how often it was shown with a click."""
        return int(self.clicked_impressions.min(initial=0)) >= 0

    def least_clicked_impressions(self) -> NDArray[np.int64]:
        """Return how often each list was shown with a click; where that is not known, the least it can be."""
        if self.knows_clicked_impressions:
            return self.clicked_impressions
        # clicks on one item at different times are in different impressions
        most = np.maximum.reduceat(self.clicks(), self.data.offsets[:-1]).astype(np.int64)
        return np.where(self.clicked_impressions < 0, most, self.clicked_impressions)

    def split(self, share: float, seed: int | np.random.Generator = 0) -> tuple[Counts, Counts]:
        """Split by query: all lists of a query go to one side, `share` of the queries to the second."""
        in_second = self.data.choose_queries(share, seed)
        return self[np.flatnonzero(~in_second)], self[np.flatnonzero(in_second)]

    def sum_by_row(self, of_cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up the values of the cells of each row."""
        sums = np.bincount(self.cells.row, weights=of_cells, minlength=self.data.rows)
        return np.asarray(sums, dtype=np.float64)

    def to_frame(self) -> pl.DataFrame:
        """Return a polars frame with a row for each item and position; see `frame_of_counts`."""
        return frame_of_counts(self)

    def tables(self) -> Tables:
        """Return what `describe` says as tables, which a notebook shows."""
        return summary_tables(self.describe())

    def describe(self) -> dict[str, Any]:
        """Return what the log holds, by position and group, as plain values."""
        data, cells, used = self.data, self.cells, self.impressions > 0
        groups = len(data.group_names) + 1
        group = data.group % groups  # the remainder makes the last group of -1
        at = max(int(cells.position.max(initial=0)) + 1, 1)
        shown_at, clicks_at = (
            np.bincount(cells.position, weights=values, minlength=at)
            for values in (cells.impressions, cells.clicks)
        )
        shown_of, clicks_of, depth_of = (
            np.bincount(group[cells.row], weights=values, minlength=groups)
            for values in (cells.impressions, cells.clicks, cells.impressions * cells.position)
        )
        entries = int(self.impressions @ data.lengths)
        knows_empty = self.knows_clicked_impressions
        return {
            "source": data.source,
            "impressions": int(self.impressions.sum()),
            "impressions_without_click": int((self.impressions - self.clicked_impressions).sum())
            if knows_empty
            else None,
            "empties_dropped": self.empties_dropped,
            "queries": int(np.unique(data.query_codes[used]).size),
            "lists": int(used.sum()),
            "entries": entries,
            "not_shown": entries - int(shown_at.sum()),
            "clicks": int(clicks_at.sum()),
            "features": int(data.features.shape[1]),
            "planted": {
                "items": int(self.planted.impressions.sum()),
                "clicks": int(self.planted.clicks.sum()),
            },
            "position_bias": None if self.position_bias is None else self.position_bias.to_dict(),
            "noise": None if self.noise is None else self.noise.to_dict(),
            "propensity_column": cells.propensity is not None,
            "positions": [
                {
                    "position": position,
                    "shown": int(shown_at[position]),
                    "clicks": int(clicks_at[position]),
                    "click_rate": float(clicks_at[position] / shown_at[position]),
                }
                for position in np.flatnonzero(shown_at).tolist()
            ],
            "groups": {
                name: {
                    "shown": int(shown_of[code]),
                    "clicks": int(clicks_of[code]),
                    "click_rate": float(clicks_of[code] / max(shown_of[code], 1)),
                    "mean_position": float(depth_of[code] / shown_of[code]) if shown_of[code] else None,
                }
                for code, name in named_groups(data.group_names)
                if code != UNKNOWN_GROUP or bool((group == code % groups).any())
            },
        }


def check_sum(*counts: Counts) -> None:
    """Refuse counts whose sums would not be exact, before an integer overflows."""
    sums = (
        of_log.impressions.astype(np.float64) @ of_log.data.lengths
        + of_log.planted.impressions.sum(dtype=np.float64)
        for of_log in counts
    )
    if sum(sums) >= LARGEST_COUNT:
        problem = f"counts add up to {LARGEST_COUNT} items shown or more, which is too many to be exact"
        raise InputError(problem, column="impressions")
