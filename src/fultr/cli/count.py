"""`fultr count`: impressions and clicks of logs, in one small file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import fultr
from fultr.cli.files import say_features
from fultr.cli.options import NOTHING_SAID, Json, LogReading, UnusedSeed, reads_log
from fultr.cli.output import print_json, progress, results, say
from fultr.cli.summaries import print_log
from fultr.errors import InputError
from fultr.files import writable_file


@reads_log
def count(
    logs: Annotated[
        list[str],
        typer.Argument(
            help="Click logs or counts: files, globs in quotes, folders, addresses (s3://, gs://, az://)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where to write the counts, a .parquet file.")],
    context: Annotated[
        str | None,
        typer.Option(help="A column of impressions, such as the device; its values are counted apart."),
    ] = None,
    reading: LogReading = NOTHING_SAID,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Count impressions and clicks of logs of any size; every command that takes a log takes the result.

    Different lists of candidates stay apart, and nothing is lost that training, evaluation, audits or
    estimates of position bias need. Files of counts among the logs are added, so that a day can be counted at
    a time.

    \b
    Example:
      fultr count clicks.parquet --out counts.parquet
      fultr count "logs/2024-05-*.csv.gz" --items items.parquet --out may.parquet
      fultr count searches.csv --features salary,age --group employer --on-conflict mean --out counts.parquet
      fultr count may.parquet june.parquet --out both.parquet
      fultr train both.parquet --max-disparity 0.1 --out run
    """
    if writable_file(out).suffix.lower() not in (".parquet", ".pq"):
        raise InputError("counts are written to a .parquet file; name it so", file=out)
    with progress("counting") as report:
        counts = fultr.count(
            logs, context=context, on_features=say_features(logs[0]), progress=report, **reading.arguments()
        )
    fultr.write_counts(counts, out)
    summary = counts.describe()
    files = [file._asdict() for file in counts.files]
    if json:
        print_json(
            {"file": str(out), "kind": "counts", **summary, "files": files, "cells": counts.cells.row.size}
        )
    else:
        print_log(results(), summary)
    say(f"wrote {out}: {counts.cells.row.size:,} cells of {len(files)} files")
