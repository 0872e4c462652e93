"""What the files of the figures have in common: their parts, and curves of utility against disparity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.experiments.methods import METHODS
from fultr.experiments.results import PARTS, Plan, Results
from fultr.experiments.runs import Run
from fultr.experiments.statistics import Estimate, estimate
from fultr.experiments.verdicts import Verdict
from fultr.plots import Curve, Panel, draw_panels

Array = NDArray[np.float64]

NOTE = (
    "means over splits with 95% bands; left: what the click estimators achieve; right: what also generalises"
    " (with few queries, much less)"
)
DCG, ROOT = "DCG for each relevant item", "disparity, √ of the mean ΣD²  (0: exposure follows merit)"


@dataclass(frozen=True)
class Figure:
    """One of the paper's figures.

    Parameters
    ----------
    name, title
        What it is called, and what it shows.
    runs
        What must be run for it.
    judge
        The verdicts on its claims, on training and on test queries.
    draw
        Writes the picture to a path.
    on_german
        Whether the paper has it on German Credit too.
    """

    name: str
    title: str
    runs: Callable[[Plan], list[Run]]
    judge: Callable[[Results], list[Verdict]]
    draw: Callable[[Results, Path], Path]
    on_german: bool = False


@dataclass(frozen=True)
class Line:
    """A curve to draw: a method under some conditions, and what it is called."""

    method: str
    clicks: float
    label: str = ""
    conditions: tuple[tuple[str, Any], ...] = ()
    style: int | None = None

    @property
    def title(self) -> str:
        """What the legend says."""
        return self.label or METHODS[self.method].title


def draw_trade_offs(figure: str, settings: str, results: Results, lines: Sequence[Line], path: Path) -> Path:
    """Draw DCG against disparity, on training and on test queries."""
    panels = [
        Panel(title, ROOT, DCG, [trade_off_curve(results, line, part, line is lines[0]) for line in lines])
        for part, title in PARTS.items()
    ]
    title = f"{figure} · {results.plan.title}\n{settings}, {splits_text(results.plan.splits)}"
    return draw_panels(title, panels, path, NOTE, same_axes=True)


def clicks_text(clicks: float) -> str:
    """Return a number of clicks, as a multiple of the training lists, in words."""
    return f"{clicks:.2g} click{'' if clicks == 1 else 's'} for each training list"


def splits_text(splits: int) -> str:
    """Return a number of splits in words."""
    return f"{splits} split{'' if splits == 1 else 's'}"


def trade_off_curve(results: Results, line: Line, part: str, name_ends: bool) -> Curve:
    """Return a curve over the trade-offs of a method, here lambda if its ends are to be named."""
    conditions, weights = dict(line.conditions), results.plan.trade_offs(line.method)
    squares = estimates(results.table(f"{part}_disparity_squared", line.method, line.clicks, **conditions))
    utilities = estimates(results.table(f"{part}_dcg", line.method, line.clicks, **conditions))
    return Curve(
        line.title,
        [estimated.mean**0.5 for estimated in squares],
        [estimated.mean for estimated in utilities],
        (
            [max(estimated.low, 0.0) ** 0.5 for estimated in squares],
            [max(estimated.high, 0.0) ** 0.5 for estimated in squares],
        ),
        ([estimated.low for estimated in utilities], [estimated.high for estimated in utilities]),
        style=line.style,
        ends=(f"λ = {weights[0]:g}", f"λ = {weights[-1]:g}") if name_ends else None,
    )


def estimates(table: Array) -> list[Estimate]:
    """Return the mean over splits of each column, without bounds where there is one split only."""
    columns = [estimate(column) for column in table.T]
    return [
        estimated if estimated.splits > 1 else Estimate(estimated.mean, estimated.mean, estimated.mean, 1)
        for estimated in columns
    ]
