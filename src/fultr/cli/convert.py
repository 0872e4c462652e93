"""`fultr convert`: from one file format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fultr.cli.files import read_any
from fultr.cli.options import Column, Items, Json, UnusedSeed, renamed_columns
from fultr.cli.output import print_json, say
from fultr.cli.simulate import Features
from fultr.data import write_dataset, write_letor, write_log
from fultr.data.log_files import items_file
from fultr.datasets.load import LETOR_ENDINGS
from fultr.errors import InputError
from fultr.files import writable_file


def convert(
    source: Annotated[Path, typer.Argument(help="A LETOR file, a converted file, or a click log.")],
    out: Annotated[
        Path, typer.Argument(help="Data: .arrow, .parquet or a LETOR .txt. Logs: .parquet or .csv.")
    ],
    items: Items = None,
    column: Column = None,
    features: Annotated[Features, typer.Option(help="How a click log keeps its features.")] = Features.TABLE,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Convert labelled data or a click log to another format; an .arrow file loads at the speed of the disk.

    \b
    Example:
      fultr convert Fold1/train.txt train.arrow
      fultr convert searches.csv clicks.parquet --column query_id=search_id
    """
    writable_file(out)
    _keep(items, out, features)
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


def _keep(items: Path | None, out: Path, features: Features) -> None:
    """Refuse to write over the table of documents that is being read."""
    written = [out, *([items_file(out)] if features is Features.TABLE else [])]
    if items is not None and items.resolve() in [file.resolve() for file in written]:
        problem = (
            "would be written over, though --items names it; give the log another name, or keep its features"
            " in it (--features list or columns)"
        )
        raise InputError(problem, file=items)
