"""Options of `fultr propensity`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class MethodName(StrEnum):
    """How examination is told from relevance."""

    SWAP = "swap"
    HARVEST = "harvest"
    EM = "em"


class Tail(StrEnum):
    """What continues a curve where there are no data."""

    POWER = "power"


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
    str | None, typer.Option(help="A column such as device: each value gets a curve, and a file, of its own.")
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
TailOption = Annotated[
    Tail | None,
    typer.Option("--tail", help="power: the fitted power law continues the curve where there are no data."),
]
RelevanceOption = Annotated[
    RelevanceName | None,
    typer.Option(
        "--relevance",
        help="For em: each document has a relevance of its own (items, the default), or relevance is a"
        " regression on the features, which then decides where positions do not vary.",
    ),
]
