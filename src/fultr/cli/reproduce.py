"""`fultr reproduce`: the paper's figures and a verdict on each of its claims."""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fultr.experiments
from fultr.cli.options import Json, Seed
from fultr.cli.output import print_json, print_statements, progress, results, say
from fultr.cli.training_run import StoppedError

BY_DEFAULT = ("german", "synthetic")
FIGURES = "fig1, fig2, fig3, fig4, fig5, fig6, example"


class Size(StrEnum):
    """Of synthetic data."""

    DEFAULT = "default"
    PAPER = "paper"


def reproduce(
    figures: Annotated[
        list[str],
        typer.Argument(
            help=f"Any of {FIGURES}, or all.",
            metavar="FIGURE...",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder that everything goes to; run again to go on.")],
    data: Annotated[
        list[str] | None,
        typer.Option(help="german, synthetic or mslr:FOLDER. Repeatable. [default: german and synthetic]"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rough version of everything.")] = False,
    size: Annotated[
        Size, typer.Option(help="Training lists of synthetic data: 1,200, or the paper's 12,000.")
    ] = Size.DEFAULT,
    splits: Annotated[
        int | None, typer.Option(min=1, help="Independent splits. [default: 10, or 3 with --quick]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes. [default: one for each core]")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Rerun the paper: its figures as pictures and tables, and a verdict on each of its claims.

    Everything is measured twice: on the training queries with their true relevance, which no method saw, and
    on test queries. A run that was interrupted goes on where it was when the same command is given again.

    \b
    Example:
      fultr reproduce all --quick --out quick
      fultr reproduce fig2 fig5 --data synthetic --out figures
      fultr reproduce all --data mslr:MSLR-WEB30K --out mslr
    """
    chosen = list(data or BY_DEFAULT)
    options = [f"--data {_without_path(name)}" for name in chosen]
    options += ["--quick"] * quick + [f"--size {size.value}"] * (size is Size.PAPER)
    options += [] if splits is None else [f"--splits {splits}"]
    options += [f"--seed {seed}"] * (seed != 0)
    command = " ".join(["fultr reproduce", *figures, *options, "--out DIR"])
    with progress("runs", lines=True) as report:
        try:
            reproduction = fultr.reproduce(
                *(figures, out),
                data=chosen,
                quick=quick,
                size=size.value,
                splits=splits,
                seed=seed,
                command=command,
                workers=workers or os.cpu_count() or 1,
                report=report,
                say=say,
            )
        except KeyboardInterrupt:
            advice = f"finished runs are kept in {out}; the same command goes on"
            raise StoppedError(signal.SIGINT, f"stopped; {advice}") from None
    if json:
        verdicts = [verdict.to_dict() for verdict in reproduction.verdicts]
        print_json({"verdicts": verdicts, "written": [str(path) for path in reproduction.files]})
        return
    cells = [
        (verdict.claim, verdict.outcome, verdict.data, verdict.part, verdict.statement)
        for verdict in reproduction.verdicts
    ]
    print_statements(
        results(), "What of the paper holds", ("claim", "verdict", "data", "queries", "statement"), cells
    )
    results().print(f"Effects and intervals: {out / 'verdicts.md'}")


def _without_path(data: str) -> str:
    """Return the name of a data set with the folder's name, but not where it is."""
    name, _, folder = data.partition(":")
    return f"{name}:{Path(folder).resolve().name}" if folder else name
