"""Options of `fultr propensity`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class MethodName(StrEnum):
    """How examination is separated from relevance."""

    SWAP = "swap"
    HARVEST = "harvest"
    EM = "em"


class Tail(StrEnum):
    """What holds where there are no data."""

    ERROR = "error"
    POWER = "power"
    ZERO = "zero"


class ShapeName(StrEnum):
    """What curve is made of the estimates of single positions."""

    MONOTONE = "monotone"
    FREE = "free"


class RelevanceName(StrEnum):
    """What regression-EM takes for the relevance of a document."""

    ITEMS = "items"
    FEATURES = "features"


MethodOption = Annotated[
    MethodName | None, typer.Option("--method", help="How to estimate. [default: what the log supports best]")
]
Out = Annotated[Path | None, typer.Option(help="Where to write the position bias, a .json file for --bias.")]
Compare = Annotated[
    bool, typer.Option("--compare", help="Run all methods that the log supports, and show where they differ.")
]
Plot = Annotated[
    list[Path] | None,
    typer.Option(
        help="Draw the curves: .png, .svg or .pdf. Repeatable. [default with --compare: beside --out]"
    ),
]
By = Annotated[
    str | None,
    typer.Option(help="A column such as device: each value gets a curve of its own, all in one file."),
]
SwapColumn = Annotated[
    str | None,
    typer.Option(
        help="The column with the position drawn to be exchanged with the first: 1 where nothing was to be"
        " exchanged, 0 outside the experiment. [default: swap_rank, if there is one]"
    ),
]
SwappedColumn = Annotated[
    str | None,
    typer.Option(
        help="The column that says whether the exchange was made, where that was drawn as well."
        " [default: swapped, if there is one]"
    ),
]
RankerColumn = Annotated[
    str | None,
    typer.Option(
        help="The column with the ranker of an impression; only positions that two different rankers gave"
        " are compared. [default: ranker, if there is one, unless --randomised]"
    ),
]
Randomised = Annotated[bool, typer.Option("--randomised", help="Say that positions vary by chance alone.")]
ShapeOption = Annotated[
    ShapeName,
    typer.Option(
        "--shape",
        help="monotone: the falling curve nearest to the estimates of single positions. free: those.",
    ),
]
TailOption = Annotated[
    Tail | None,
    typer.Option(
        "--tail",
        help="Where there are not enough data: power, a power law fitted to all positions goes on; zero,"
        " nothing is looked at beyond the last position ever shown; error, longer lists are refused."
        " [default: power, if the log shows such positions]",
    ),
]
PageDepth = Annotated[
    int | None,
    typer.Option(min=1, help="Positions on a page: the file says that nobody looks beyond. Excludes --tail."),
]
RelevanceOption = Annotated[
    RelevanceName | None,
    typer.Option(
        "--relevance",
        help="For em: each document has a relevance of its own (items, the default), or relevance is a"
        " regression on the features, which then decides where positions do not vary.",
    ),
]
