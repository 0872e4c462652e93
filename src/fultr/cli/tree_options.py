"""How trees are grown: the options of commands that train."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import fultr
import fultr.training
from fultr.cli.option_names import OPTIONS
from fultr.cli.options import names_in, shared_options
from fultr.cli.training_options import ModelName, in_names_of_options
from fultr.errors import InputError

Leaves = Annotated[int | None, typer.Option(help="The most leaves of a tree. [default: 15]")]
Rounds = Annotated[
    int | None,
    typer.Option(help="The most trees grown for utility; left-out clicks choose. [default: 300]"),
]
LearningRate = Annotated[
    float | None, typer.Option(help="What the leaf values of each tree are multiplied by. [default: 0.1]")
]
MinRows = Annotated[int | None, typer.Option(help="The fewest training rows in a leaf. [default: 50]")]
ColumnShare = Annotated[
    float | None, typer.Option(help="The share of features drawn for each tree. [default: 1]")
]
RowShare = Annotated[
    float | None, typer.Option(help="The share of training rows drawn for each tree. [default: 1]")
]
Monotone = Annotated[
    list[str] | None,
    typer.Option(help="Features that scores must not fall with (1) or not rise with (-1), e.g. price=-1."),
]
Interactions = Annotated[
    list[str] | None,
    typer.Option(help="Features, e.g. price,age, that that one branch may split on together. Repeat it."),
]


def tree_options(
    leaves: Leaves = None,
    rounds: Rounds = None,
    learning_rate: LearningRate = None,
    min_rows: MinRows = None,
    column_share: ColumnShare = None,
    row_share: RowShare = None,
    monotone: Monotone = None,
    interactions: Interactions = None,
) -> dict[str, Any]:
    """Return the settings of trees that were given."""
    settings = {
        "leaves": leaves,
        "rounds": rounds,
        "learning_rate": learning_rate,
        "min_rows": min_rows,
        "column_share": column_share,
        "row_share": row_share,
        "monotone": None if not monotone else dict(map(_direction, names_in(monotone) or [])),
        "interactions": None if not interactions else [names_in([group]) for group in interactions],
    }
    return {name: value for name, value in settings.items() if value is not None}


NO_TREES: dict[str, Any] = {}
"""What a command's `trees` is by default."""

grows_trees = shared_options("trees", tree_options)
"""Gives a command the options of `tree_options` in place of its parameter `trees`."""


def _direction(text: str) -> tuple[str, int]:
    name, _, sign = text.rpartition("=")
    if not name or sign not in ("1", "+1", "-1"):
        problem = "--monotone takes a feature and 1 (rising) or -1 (falling), e.g. price=-1"
        raise InputError(problem, value=text)
    return name, int(sign)


def tree_settings(model: ModelName, given: dict[str, Any]) -> fultr.TreeSettings | None:
    """Return the settings of trees that were given; None if there were none."""
    if not given:
        return None
    if model.value not in fultr.training.TREES:
        option = OPTIONS[next(iter(given))]
        raise InputError(f"{option} is for --model {' and '.join(fultr.training.TREES)}")
    with in_names_of_options():
        return fultr.TreeSettings(**given)
