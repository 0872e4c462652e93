"""What `fultr propensity` is asked for, and the log with what its columns tell of impressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.cli.files import refuse_counts
from fultr.cli.output import progress
from fultr.cli.propensity_options import RelevanceName
from fultr.clicks.bias_estimate import Method
from fultr.data import ClickLog, read_log
from fultr.data.columns import flags, require_columns
from fultr.data.impression_columns import (
    ImpressionColumn,
    labels,
    read_impression_columns,
    whole_numbers,
)
from fultr.data.log_metadata import LogMetadata
from fultr.data.table_files import open_table
from fultr.errors import InputError

SWAP_RANK, SWAPPED, RANKER, CONTEXT = "swap_rank", "swapped", "ranker", "context"
"""What is told of each impression; the first three are also the names that its columns are known by."""

MOST_CONTEXTS = 50
"""More values than these are no context that a curve could be estimated for, but something like an id."""


@dataclass(frozen=True)
class Asked:
    """What the command is to do with what columns."""

    file: Path
    method: Method | None
    compare: bool
    swap: str | None
    swapped: str | None
    ranker: str | None
    by: str | None
    options: dict[str, Any]

    def found_in(self, names: list[str]) -> Asked:
        """Return the same with columns that are there and called as we call them; what is not needed goes."""
        swap, swapped, ranker = self.swap, self.swapped, self.ranker
        require_columns(names, [name for name in (swap, swapped, ranker, self.by) if name], self.file)
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
    """A log, and what its table says of each impression."""

    log: ClickLog
    inputs: dict[str, Any]
    context: NDArray[Any] | None

    def parts(self) -> Iterator[tuple[str | None, ClickLog, dict[str, Any]]]:
        """Yield the value of each context, its impressions and what is told of them; or all of the log."""
        if self.context is None:
            yield None, self.log, self.inputs
            return
        for value in np.unique(self.context):
            chosen = np.flatnonzero(self.context == value)
            own = {name: values[chosen] for name, values in self.inputs.items()}
            yield str(value), self.log[chosen], own


def read_asked(asked: Asked, items: Path | None, renamed: dict[str, str]) -> Logged:
    """Read the log without features, unless they are needed, and the columns about impressions."""
    refuse_counts(asked.file, renamed)
    invented = LogMetadata.from_dict(open_table(asked.file).metadata, asked.file).invented
    regression = asked.options["relevance"] == RelevanceName.FEATURES
    # where documents have no ids of their own, their features tell them apart
    features: list[str] | None = None if regression or "doc_id" in invented else []
    with progress("reading") as report:
        log = read_log(asked.file, items=items, columns=renamed, features=features, progress=report)
    if regression and not log.data.features.shape[1]:
        problem = "has no features for --relevance features; name the table of documents with --items"
        raise InputError(problem, file=asked.file)
    deepest = max(int(log.position.max(initial=0)), int(log.planted.position.max(initial=0)))
    rule = (
        f"must be a position that the log shows, 1 to {deepest}: the one drawn to be exchanged with the"
        " first, 1 where nothing was to be exchanged; or 0 outside the experiment"
    )
    wanted = {
        name: ImpressionColumn(of, check)
        for name, of, check in (
            (SWAP_RANK, asked.swap, whole_numbers(0, deepest, rule)),
            (SWAPPED, asked.swapped, flags),
            (RANKER, asked.ranker, labels),
            (CONTEXT, asked.by, labels),
        )
        if of is not None
    }
    if not wanted:
        return Logged(log, {}, None)
    impression_id = renamed.get("impression_id", "impression_id")
    with progress("reading columns") as report:
        told = read_impression_columns(asked.file, wanted, impression_id=impression_id, progress=report)
    context = told.pop(CONTEXT, None)
    if context is not None and (values := np.unique(context).size) > MOST_CONTEXTS:
        problem = f"has {values:,} values, and a curve for each is too many; at most {MOST_CONTEXTS} will do"
        raise InputError(problem, file=asked.file, column=asked.by)
    if SWAPPED in told and told[SWAPPED][told[SWAP_RANK] > 1].all():
        # all exchanges that were drawn were made, and what was drawn to stay is the control
        del told[SWAPPED]
    return Logged(log, told, context)
