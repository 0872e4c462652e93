"""`fultr inspect`: what a file holds, and what is suspicious in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fultr.cli.files import Content, read_any
from fultr.cli.options import Column, Items, Json, UnusedSeed, renamed_columns
from fultr.cli.output import print_findings, print_json, results
from fultr.cli.summaries import print_dataset, print_log
from fultr.data import inspect_dataset, inspect_log


def inspect(
    file: Annotated[Path, typer.Argument(help="A click log, a LETOR file or a converted file.")],
    items: Items = None,
    column: Column = None,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Say what a file is, what it holds, and everything suspicious in it.

    \b
    Example:
      fultr inspect clicks.parquet
      fultr inspect searches.csv --column query_id=search_id --column position=rank
    """
    content: Content = read_any(file, items=items, columns=renamed_columns(column))
    if content.log is not None:
        summary, findings = content.log.describe(), inspect_log(content.log)
    else:
        summary, findings = content.data.describe(), inspect_dataset(content.data)
    suspicious = [finding.to_dict() for finding in findings]
    if json:
        print_json({"file": str(file), "kind": content.kind, **summary, "findings": suspicious})
        return
    console = results()
    (print_log if content.log is not None else print_dataset)(console, summary)
    console.print()
    print_findings(console, suspicious)
