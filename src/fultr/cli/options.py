"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fultr.click_model import PositionBias
from fultr.errors import InputError
from fultr.files import read_json
from fultr.logs.rows import OPTIONAL, REQUIRED

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
UnusedSeed = Annotated[
    int, typer.Option("--seed", min=0, help="Taken by every command; nothing here is random.")
]
Eta = Annotated[float | None, typer.Option(help="Position bias v_k = (1/k)^eta.")]
BiasFile = Annotated[
    Path | None,
    typer.Option("--bias", help="Position bias from a JSON file with 'values' from position 1 on."),
]
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


def position_bias(eta: float | None, file: Path | None) -> PositionBias | None:
    """Return the position bias asked for, if any."""
    if file is None:
        return None if eta is None else PositionBias.power(eta)
    if eta is not None:
        raise InputError("give --eta or --bias, not both")
    return read_json(file, PositionBias.from_dict)


def renamed_columns(pairs: list[str] | None) -> dict[str, str]:
    """Turn NAME=COLUMN options into a mapping."""
    renamed = {}
    for pair in pairs or []:
        name, equals, column = pair.partition("=")
        if not (equals and name and column) or name not in (*REQUIRED, *OPTIONAL):
            known = ", ".join((*REQUIRED, *OPTIONAL))
            raise InputError(f"--column takes NAME=COLUMN with NAME one of: {known}", value=pair)
        renamed[name] = column
    return renamed
