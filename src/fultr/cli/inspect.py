"""`fultr inspect`: what a file holds, and what is suspicious in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import fultr
import fultr.audits
import fultr.clicks
import fultr.data
import fultr.logs
from fultr.cli.files import Content, read_any
from fultr.cli.option_names import OPTIONS
from fultr.cli.options import (
    NOTHING_SAID,
    BiasFile,
    CompleteLists,
    Depth,
    Eta,
    Json,
    LogReading,
    UnusedSeed,
    any_bias,
    reads_log,
)
from fultr.cli.output import print_findings, print_json, results
from fultr.cli.summaries import print_dataset, print_log
from fultr.errors import InputError


@reads_log
def inspect(
    file: Annotated[Path, typer.Argument(help="A click log, a LETOR file or a converted file.")],
    eta: Eta = None,
    bias: BiasFile = None,
    depth: Depth = None,
    complete_lists: CompleteLists = False,
    reading: LogReading = NOTHING_SAID,
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
    examined = any_bias(eta, bias)
    content, unusable = _read(file, reading, fultr.clicks.context_of(examined), complete_lists)
    if content.counts is None and examined is not None:
        raise InputError("--eta and --bias are for click logs", file=file)
    inspected = content.data if content.counts is None else content.counts
    summary = fultr.inspect(
        inspected, position_bias=examined, depth=None if content.counts is None else depth
    ).to_dict()
    if content.kind == "click log":
        renamed = reading.columns.values()
        unread = fultr.logs.inspect_columns(
            file, [*renamed], reading.items is not None, reading.features, reading.exclude
        )
        own = [[finding.to_dict() for finding in findings] for findings in (unusable, unread)]
        summary["findings"] = own[0] + summary["findings"] + own[1]
    if json:
        print_json({"file": str(file), "kind": content.kind, **summary})
        return
    console = results()
    if content.counts is None:
        print_dataset(console, summary)
    else:
        print_log(console, summary, summary["facts"])
    console.print()
    print_findings(console, summary["findings"])


def _read(
    file: Path, reading: LogReading, context: str | None, complete_lists: bool
) -> tuple[Content, list[fultr.logs.Finding]]:
    """Read a file; without features, if columns of numbers that nobody named turn out to be none.

    Also return what is wrong with them: an inspection reports it and goes on.
    """
    try:
        return read_any(file, reading, context=context, complete_lists=complete_lists), []
    except InputError as error:
        named = reading.features is not None or reading.items is not None
        of_log = (
            *fultr.logs.REQUIRED,
            *fultr.logs.OPTIONAL,
            *reading.columns.values(),
            fultr.data.LIST_COLUMN,
            context,
        )
        column = error.column or fultr.data.LIST_COLUMN
        if named or column in of_log or column.startswith(fultr.data.FEATURE_PREFIX):
            raise
        problem = f"Cannot be trained on as it is: {error.in_shell(OPTIONS)}."
    without = replace(reading, features=[])
    content = read_any(file, without, context=context, complete_lists=complete_lists)
    return content, [fultr.logs.Finding("severe", "features", problem)]
