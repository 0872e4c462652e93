"""`fultr inspect`: what a file holds, and what is suspicious in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fultr.cli.files import read_any
from fultr.cli.options import BiasFile, Column, Eta, Items, Json, UnusedSeed, position_bias, renamed_columns
from fultr.cli.output import print_findings, print_json, results
from fultr.cli.summaries import print_dataset, print_log
from fultr.clicks.readiness import judge_readiness
from fultr.errors import InputError
from fultr.logs import inspect_dataset
from fultr.logs.inspection import inspect_columns


def inspect(
    file: Annotated[Path, typer.Argument(help="A click log, a LETOR file or a converted file.")],
    eta: Eta = None,
    bias: BiasFile = None,
    items: Items = None,
    column: Column = None,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Say what a file is, what it holds, and everything suspicious in it.

    Of a click log it says whether it supports training and auditing: what clicks weigh under the position
    bias given or that of the log, what each group's merit rests on, and whether position bias can be
    estimated from it.

    \b
    Example:
      fultr inspect clicks.parquet
      fultr inspect clicks.parquet --bias bias.json
      fultr inspect searches.csv --column query_id=search_id --column position=rank
    """
    examined, renamed = position_bias(eta, bias), renamed_columns(column)
    content = read_any(file, items=items, columns=renamed)
    summary = content.describe()
    judged: dict[str, Any]
    console = results()
    if content.counts is None:
        if examined is not None:
            raise InputError("--eta and --bias are for click logs", file=file)
        judged = {"findings": [finding.to_dict() for finding in inspect_dataset(content.data)]}
        if not json:
            print_dataset(console, summary)
    else:
        judged = judge_readiness(content.counts, examined).to_dict()
        if content.kind == "click log":
            unread = inspect_columns(file, [*renamed.values()], items is not None)
            judged["findings"] += [finding.to_dict() for finding in unread]
        if not json:
            print_log(console, summary, judged["facts"])
    if json:
        print_json({"file": str(file), "kind": content.kind, **summary, **judged})
        return
    console.print()
    print_findings(console, judged["findings"])
