"""What runs have found, as numbers for each split and trade-off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.experiments.methods import LAMBDAS, method_called
from fultr.experiments.runs import Row, Run
from fultr.experiments.worlds import Conditions

Array = NDArray[np.float64]

PARTS = {"train": "training queries, by their true relevance", "test": "test queries"}
"""The two levels at which everything is reported: what estimation achieves, and what generalises too."""


@dataclass(frozen=True)
class Plan:
    """How much is run on a data set.

    Parameters
    ----------
    data
        "german", "synthetic" or "mslr:FOLDER".
    splits
        Independent splits and click simulations.
    lists
        Training lists of synthetic data.
    every
        Of the trade-offs of each method, every k-th is run, and the first and the last in any case.
    l2
        Costs of large parameters that methods without their own choose from on validation clicks.
    paper_splits
        Splits on which the paper's own protocol is run too.
    first_split
        Number of the first of the splits.
    quick
        Whether this is the rough version.
    """

    data: str
    splits: int = 10
    lists: int = 1_200
    every: int = 1
    l2: tuple[float, ...] = (1e-3, 1e-2, 3e-2, 1e-1)
    paper_splits: int = 3
    first_split: int = 0
    quick: bool = False

    @property
    def split_numbers(self) -> range:
        """The splits."""
        return range(self.first_split, self.first_split + self.splits)

    @property
    def is_german(self) -> bool:
        """Whether the data is German Credit, for which the paper has other numbers of clicks."""
        return self.data == "german"

    @property
    def title(self) -> str:
        """What the data is called in pictures."""
        named = {"german": "German Credit", "synthetic": f"synthetic, {self.lists:,} training lists"}
        return named.get(self.data) or f"MSLR, {Path(self.data.partition(':')[2]).name}"

    def trade_offs(self, method: str) -> tuple[float, ...]:
        """Return the trade-offs that a method is trained for."""
        trade_offs = method_called(method).trade_offs
        if method == "fultr-paper" or self.every == 1:
            return trade_offs
        return tuple(dict.fromkeys([*trade_offs[:: self.every], trade_offs[-1]]))

    def run(self, method: str, clicks: float, *, split: int, **conditions: Any) -> Run:
        """Return a run of a method."""
        conditions_of_run = Conditions(self.data, clicks, split=split, lists=self.lists, **conditions)
        own = method_called(method).l2
        # the rough version has no time for many costs, each with its folds
        costs = self.l2 if own is None or self.quick else own
        return Run(method, conditions_of_run, self.trade_offs(method), costs)

    def runs(self, methods: Sequence[str], clicks: Sequence[float], **conditions: Any) -> list[Run]:
        """Return runs of several methods for several numbers of clicks, over all splits."""
        return [
            self.run(method, multiple, split=split, **conditions)
            for split in self.split_numbers
            for multiple in clicks
            for method in methods
        ]


class Results:
    """The rows of many runs."""

    def __init__(self, plan: Plan, rows: Sequence[Row]) -> None:
        self.plan = plan
        self.rows = tuple(rows)

    def table(self, column: str, method: str, clicks: float, **conditions: Any) -> Array:
        """Return a measure of a method: splits x trade-offs, in the order in which they were run."""
        selection = {"method": method, "clicks": clicks, "groups": 2, "eps_minus": 0.0, **conditions}
        by_split: dict[int, list[float]] = {}
        for row in self.rows:
            if all(row[name] == value for name, value in selection.items()):
                by_split.setdefault(row["split"], []).append(row[column])
        return np.array([by_split[split] for split in sorted(by_split)], dtype=np.float64)

    def at(self, column: str, method: str, clicks: float, trade_off: float, **conditions: Any) -> Array:
        """Return a measure of a method at one trade-off: one number for each split."""
        index = self.plan.trade_offs(method).index(trade_off)
        return np.asarray(self.table(column, method, clicks, **conditions)[:, index])

    def lowest(self, part: str, method: str, clicks: float, **conditions: Any) -> tuple[float, Array]:
        """Return the trade-off whose mean squared disparity is lowest, and that of each split there."""
        table = self.table(f"{part}_disparity_squared", method, clicks, **conditions)
        index = int(table.mean(axis=0).argmin())
        return self.plan.trade_offs(method)[index], np.asarray(table[:, index])


LARGEST_LAMBDA = LAMBDAS[-1]
