"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

import fultr
import fultr.clicks
import fultr.logs
from fultr.errors import InputError

LARGEST_INTEGER = (1 << 63) - 1
"""The largest integer of 64 bits, in which arrays hold integers."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
UnusedSeed = Annotated[
    int, typer.Option("--seed", min=0, help="Taken by every command; nothing here is random.")
]
Eta = Annotated[float | None, typer.Option(help="Position bias v_k = (1/k)^eta.")]
BiasFile = Annotated[
    Path | None,
    typer.Option(
        "--bias",
        help="Position bias from a JSON file: that of fultr propensity, or 'values' from position 1 on.",
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(min=1, help="Positions on a page: nobody looks beyond. By default the deepest ever shown."),
]
ShownOnly = Annotated[bool, typer.Option("--shown-only", help="Leave out candidates that were never shown.")]
CompleteLists = Annotated[
    bool,
    typer.Option(
        "--complete-lists",
        help="Say that each impression has rows for all the candidates it had, which limits need.",
    ),
]


class OnConflictName(StrEnum):
    """What to take of an item of which rows say different things."""

    ERROR = "error"
    FIRST = "first"
    LAST = "last"
    MEAN = "mean"


class OnRepeatName(StrEnum):
    """What to take of a document that stands in an impression twice."""

    ERROR = "error"
    FIRST = "first"


Items = Annotated[
    Path | None,
    typer.Option(help="The table of documents with their features, keyed by query_id and doc_id."),
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the log calls a column otherwise: NAME=COLUMN, e.g. query_id=search_id. Repeatable."
    ),
]
FeatureNames = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        help="Columns with features, e.g. salary,age. [default: features, feature_..., or all numbers]",
    ),
]
Exclude = Annotated[list[str] | None, typer.Option(help="Columns that are no features, e.g. hour,page.")]
Categories = Annotated[
    list[str] | None,
    typer.Option(help="Columns of features that hold categories (text, true or false), e.g. brand,colour."),
]
KeepMissing = Annotated[
    bool,
    typer.Option("--keep-missing", help="Keep missing features, for fultr train --missing to fill in."),
]
Group = Annotated[str | None, typer.Option(help="The column with the group of items, e.g. gender.")]
GroupBy = Annotated[
    str | None,
    typer.Option(
        help="Groups of labelled data by a rule: 'feature 25 > quantile 0.8', or 'feature age > 3.5'."
    ),
]
OnConflict = Annotated[
    OnConflictName, typer.Option(help="What to take where a document of a query has different features.")
]
OnRepeat = Annotated[
    OnRepeatName, typer.Option(help="What to take where a document stands in an impression twice.")
]


@dataclass(frozen=True)
class LogReading:
    """How logs are to be read: the arguments that the readers of logs share."""

    items: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    features: list[str] | None = None
    exclude: list[str] = field(default_factory=list)
    on_conflict: str = "error"
    on_repeat: str = "error"
    categories: list[str] | None = None
    keep_missing: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `fultr.count` and other readers of single impressions."""
        return dict(vars(self))


NOTHING_SAID = LogReading()
"""A log as it is: what a command's `reading` is by default."""


def log_reading(
    items: Items = None,
    column: Column = None,
    features: FeatureNames = None,
    exclude: Exclude = None,
    group: Group = None,
    on_conflict: OnConflict = OnConflictName.ERROR,
    on_repeat: OnRepeat = OnRepeatName.ERROR,
    categories: Categories = None,
    keep_missing: KeepMissing = False,
) -> LogReading:
    """Turn the options of a command about its log into arguments of readers."""
    columns = renamed_columns(column)
    if group is not None and columns.setdefault("group", group) != group:
        raise InputError("--group and --column group=... name different columns", value=group)
    named, left_out = names_in(features), names_in(exclude)
    return LogReading(
        items,
        columns,
        named,
        left_out or [],
        on_conflict.value,
        on_repeat.value,
        names_in(categories),
        keep_missing,
    )


Command = Callable[..., None]


def shared_options(name: str, make: Callable[..., Any]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of `make` in place of its parameter `name`.

    The command gets what `make` makes of them. So every command that has them has them in the same words.
    """
    shared = list(signature(make, eval_str=True).parameters.values())

    def with_options(command: Command) -> Command:
        own = signature(command, eval_str=True)
        parameters = [
            parameter
            for one in own.parameters.values()
            for parameter in (shared if one.name == name else [one])
        ]

        @wraps(command)
        def called(**given: Any) -> None:
            made = make(**{one.name: given.pop(one.name) for one in shared})
            command(**{name: made}, **given)

        called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        return called

    return with_options


reads_log = shared_options("reading", log_reading)
"""Gives a command the options of `log_reading` in place of its parameter `reading`."""


def finite_option(value: float, option: str) -> None:
    """Refuse a number that no option means: one that is not finite, or an integer of more than 63 bits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{option} must be a finite number", value=value)
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise InputError(f"{option} must be an integer of at most 63 bits", value=value)


def names_in(texts: list[str] | None) -> list[str] | None:
    """Return the names of an option that takes several, separated by commas or given again and again."""
    if texts is None:
        return None
    return [name for text in texts for part in text.split(",") if (name := part.strip())]


def any_bias(eta: float | None, file: Path | None) -> fultr.clicks.AnyBias | None:
    """Return the position bias asked for, if any: a curve, an estimate or a curve for each context."""
    if file is None:
        return None if eta is None else fultr.PositionBias.power(eta)
    if eta is not None:
        raise InputError("give --eta or --bias, not both")
    return fultr.read_position_bias(file)


def position_bias(eta: float | None, file: Path | None) -> fultr.PositionBias | None:
    """Return the position bias asked for, if any, as one curve."""
    bias = any_bias(eta, file)
    if isinstance(bias, fultr.PositionBiasByContext):
        problem = f"has a curve for each {bias.column}, and this command takes one curve only"
        raise InputError(problem, file=file)
    return None if bias is None else bias.to_position_bias()


def renamed_columns(pairs: list[str] | None) -> dict[str, str]:
    """Turn NAME=COLUMN options into a mapping."""
    renamed = {}
    for pair in pairs or []:
        name, equals, column = pair.partition("=")
        if not (equals and name and column) or name not in (*fultr.logs.REQUIRED, *fultr.logs.OPTIONAL):
            names = ", ".join((*fultr.logs.REQUIRED, *fultr.logs.OPTIONAL))
            raise InputError(f"--column takes NAME=COLUMN with NAME one of: {names}", value=pair)
        renamed[name] = column
    return renamed
