"""What `fultr propensity` is asked for, and the log with what its columns tell of impressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import fultr
import fultr.clicks
import fultr.data
import fultr.logs
from fultr.cli.files import NO_CLICK_LOG, NO_IMPRESSIONS, holds_impressions, read_any
from fultr.cli.options import LogReading
from fultr.cli.output import progress
from fultr.cli.propensity_options import RelevanceName
from fultr.errors import InputError

SWAP_RANK, SWAPPED, RANKER, CONTEXT = "swap_rank", "swapped", "ranker", "context"
"""Columns about each impression; the first three are also their usual names in a table."""

BY = "by"
"""The context of each impression, as long as impressions are held."""

MOST_CONTEXTS = 50
"""More values than these are no context that a curve could be estimated for, but something like an id."""


@dataclass(frozen=True)
class Asked:
    """What the command is to do with what columns."""

    file: Path
    method: fultr.clicks.Method | None
    compare: bool
    swap: str | None
    swapped: str | None
    ranker: str | None
    by: str | None
    options: dict[str, Any]
    tail: fultr.clicks.Tail | None = None
    depth: int | None = None

    @classmethod
    def of_swaps(cls, file: Path, swap: str, swapped: str | None) -> Asked:
        """Ask for a log with its swaps and nothing else."""
        return cls(file, "swap", False, swap, swapped, None, None, {"relevance": None})

    def found_in(self, names: list[str]) -> Asked:
        """Return the same with columns that are there and called as we call them; what is not needed goes."""
        swap, swapped, ranker = self.swap, self.swapped, self.ranker
        fultr.data.require_columns(
            names, [name for name in (swap, swapped, ranker, self.by) if name], self.file
        )
        if self.compare or self.method in (None, "swap"):
            swap = swap or (SWAP_RANK if SWAP_RANK in names else None)
            if swapped is not None and swap is None:
                raise InputError("--swapped-column needs --swap-column beside it", file=self.file)
            swapped = swapped or (SWAPPED if swap and SWAPPED in names else None)
        else:
            swap = swapped = None
        if self.compare or self.method == "harvest" or (self.method is None and swap is None):
            by_name = RANKER in names and not self.options["randomised"]
            ranker = ranker or (RANKER if by_name else None)
        else:
            ranker = None
        return replace(self, swap=swap, swapped=swapped, ranker=ranker)


@dataclass(frozen=True, eq=False)
class Logged:
    """A log, as single impressions only where they are needed, and what its table says of each of them."""

    log: fultr.ClickLog | fultr.Counts
    inputs: dict[str, Any]

    def parts(self) -> Iterator[tuple[str | None, fultr.ClickLog | fultr.Counts, dict[str, Any]]]:
        """Yield the value of each context, its impressions and the columns about them; or all of the log."""
        context = self.inputs.get(BY)
        if context is not None:
            assert isinstance(self.log, fultr.ClickLog)  # noqa: S101 - columns of impressions come with impressions
            for value in fultr.data.distinct(context):
                chosen = (context == value).nonzero()[0]
                own = {name: values[chosen] for name, values in self.inputs.items() if name != BY}
                yield str(value), self.log[chosen], own
        elif isinstance(self.log, fultr.Counts) and self.log.context is not None:
            for value in self.log.context_values:
                yield value, self.log.of_context(value), {}
        else:
            yield None, self.log, self.inputs

    @property
    def contexts(self) -> int:
        """How many curves there are to be."""
        return len(list(self.parts()))


def read_asked(asked: Asked, reading: LogReading) -> Logged:
    """Read the log: as counts, or as single impressions with the columns about them that are needed."""
    regression = asked.options["relevance"] == RelevanceName.FEATURES
    if not regression:
        reading = replace(reading, features=[], exclude=[])
    if asked.swap is None and asked.ranker is None:
        content = read_any(asked.file, reading, context=asked.by)
        if content.counts is None:
            raise InputError(NO_CLICK_LOG, file=asked.file)
        _check_contexts(asked, len(content.counts.context_values))
        logged = Logged(content.counts, {})
    else:
        logged = _read_impressions(asked, reading)
    if regression and not logged.log.data.features.shape[1]:
        problem = "has no features for --relevance features; name the table of documents with --items"
        raise InputError(problem, file=asked.file)
    return logged


def _read_impressions(asked: Asked, reading: LogReading) -> Logged:
    if not holds_impressions(asked.file, reading.columns):
        raise InputError(NO_IMPRESSIONS, file=asked.file)
    rule = (
        "must be a position that the log shows, 1 to {deepest}: the one drawn to be exchanged with the"
        " first, 1 where nothing was to be exchanged; or 0 outside the experiment"
    )
    wanted: dict[str, tuple[str, fultr.logs.Check]] = {
        name: (column, check)
        for name, column, check in (
            (
                SWAP_RANK,
                asked.swap,
                fultr.data.integers_between(
                    0, fultr.data.DEEPEST_POSITION, rule.format(deepest=fultr.data.DEEPEST_POSITION)
                ),
            ),
            (SWAPPED, asked.swapped, fultr.data.flags),
            (RANKER, asked.ranker, fultr.data.text_labels),
            (BY, asked.by, fultr.data.text_labels),
        )
        if column is not None
    }
    with progress("reading") as report:
        options = cast("fultr.logs.LogOptions", {**reading.arguments(), "progress": report})
        log, experiment = fultr.logs.read_impressions(asked.file, options, wanted)
    deepest = max(int(log.position.max(initial=0)), int(log.planted.position.max(initial=0)))
    if SWAP_RANK in experiment and experiment[SWAP_RANK].max(initial=0) > deepest:
        reader = fultr.logs.OpenedLog(asked.file, options, of_impressions=wanted).reader
        row, columns = next(reader.find_rows(lambda block: block[SWAP_RANK] > deepest))
        value = str(columns[SWAP_RANK][0]) if reader.text_ids else columns[SWAP_RANK][0]
        raise reader.numbered.error(rule.format(deepest=deepest), row, str(asked.swap), value)
    if BY in experiment:
        _check_contexts(asked, fultr.data.distinct(experiment[BY]).size)
    if SWAPPED in experiment and experiment[SWAPPED][experiment[SWAP_RANK] > 1].all():
        # all exchanges that were drawn were made, and what was drawn to stay is the control
        del experiment[SWAPPED]
    return Logged(log, experiment)


def _check_contexts(asked: Asked, values: int) -> None:
    if values > MOST_CONTEXTS:
        problem = f"has {values:,} values, and a curve for each is too many; at most {MOST_CONTEXTS} will do"
        raise InputError(problem, file=asked.file, column=asked.by)
