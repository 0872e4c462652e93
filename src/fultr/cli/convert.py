"""`fultr convert`: from one file format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fultr.cli.files import read_any
from fultr.cli.options import Column, Items, Json, renamed_columns
from fultr.cli.output import print_json, say
from fultr.cli.simulate import Features
from fultr.data import write_dataset, write_letor, write_log
from fultr.datasets.load import LETOR_ENDINGS


def convert(
    source: Annotated[Path, typer.Argument(help="A LETOR file, a converted file, or a click log.")],
    out: Annotated[
        Path, typer.Argument(help="Data: .arrow, .parquet or a LETOR .txt. Logs: .parquet or .csv.")
    ],
    items: Items = None,
    column: Column = None,
    features: Annotated[Features, typer.Option(help="How a click log keeps its features.")] = Features.TABLE,
    json: Json = False,
) -> None:
    """Convert labelled data or a click log to another format; an .arrow file loads at the speed of the disk.

    \b
    Example:
      fultr convert Fold1/train.txt train.arrow
      fultr convert searches.csv clicks.parquet --column query_id=search_id
    """
    content = read_any(source, items=items, columns=renamed_columns(column))
    files = [out]
    if content.log is not None:
        files = write_log(content.log, out, features=features.value)
    elif out.suffix.lower() in LETOR_ENDINGS:
        write_letor(content.data, out)
    else:
        write_dataset(content.data, out)
    if json:
        print_json({"kind": content.kind, "files": [str(file) for file in files], "rows": content.data.rows})
    say("wrote " + " and ".join(str(file) for file in files))
