"""`fultr report`: a run or an audit as one HTML page."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Annotated

import typer

import fultr
import fultr.audits
import fultr.clicks
import fultr.data
import fultr.reports
import fultr.training
from fultr.cli.options import Json, LogReading, Seed
from fultr.cli.output import print_json, progress, say
from fultr.cli.training_options import Inputs
from fultr.errors import InputError
from fultr.files import writable_file

SUFFIXES = (".html", ".htm")


def report(
    source: Annotated[
        Path, typer.Argument(help="The folder of a run (fultr train, fultr sweep) or of an audit.")
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    log: Annotated[
        Path | None, typer.Option(help="The log of the run, if it is no longer where it was.")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write what a run or an audit found as one HTML page that opens anywhere, without a network.

    It shows utility against disparity to explore, what each group of items gets, example rankings before and
    after, the position bias, what is suspicious in the log, and the settings. The log of a run is read again
    for what the run does not hold; without it the page says what it lacks.

    \b
    Example:
      fultr report sweep --out report.html
      fultr report audit --out audit.html
    """
    if writable_file(out).suffix.lower() not in SUFFIXES:
        raise InputError("a report is an .html file; name it so", file=out)
    found = _report(source, log, seed)
    fultr.reports.write_report(found, out)
    if json:
        summary = {
            "file": str(out),
            "bytes": out.stat().st_size,
            "rankings": [one.key for one in found.rankings],
            "examples": len(found.examples),
            "missing": list(found.missing),
        }
        print_json(summary)
    for sentence in found.missing:
        say(f"fultr: {sentence}")
    say(f"wrote {out}")


def _report(source: Path, log: Path | None, seed: int) -> fultr.reports.Report:
    try:
        there, folder = source.exists(), source.is_dir()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=source) from error
    if not there:
        raise InputError("no such file or folder", file=source)
    if folder and (source / fultr.training.CONFIG).exists():
        return _report_on_run(fultr.reports.read_run(source), log, seed)
    audited = source / fultr.audits.AUDIT if folder else source
    if not audited.exists():
        problem = f"holds neither a run ({fultr.training.CONFIG}) nor an audit ({fultr.audits.AUDIT})"
        raise InputError(problem, file=source)
    if log is not None:
        raise InputError("--log is for the report of a run; an audit holds all that its report says")
    return fultr.reports.report_on_audit(fultr.audits.read_audit(audited), source)


def _report_on_run(run: fultr.reports.Run, log: Path | None, seed: int) -> fultr.reports.Report:
    located = fultr.reports.find_inputs(run, log)
    missing = [] if located.missing is None else [located.missing]
    source: fultr.data.Source | None = None
    valid: fultr.data.Source | None = None
    if located.log is not None and located.missing is None:
        try:
            source, valid = _read(run, located, located.log)
        except InputError as error:
            if log is not None:
                raise
            missing.append(f"The log of the run cannot be read: {error}")
    with progress("measuring") as shown:
        return fultr.reports.report_on_run(run, source, valid, missing=missing, seed=seed, progress=shown)


def _read(
    run: fultr.reports.Run, located: fultr.reports.Located, log: Path
) -> tuple[fultr.data.Source, fultr.data.Source | None]:
    how = {name: run.inputs[name] for name in LogReading().arguments() if name in run.inputs}
    reading = LogReading(**{**how, "items": located.items})
    shown_only = bool(run.inputs.get("shown_only"))
    inputs = Inputs(log, located.valid, reading, run.inputs.get("relevant_from"), shown_only)
    ranker, asked = run.policies[0].ranker, run.settings.get("position_bias") or {}
    if "curves" not in asked:
        return inputs.read(ranker)
    # a policy keeps the mean of the curves, and its clicks were weighed by each of them
    bias = fultr.PositionBiasByContext.from_dict(asked)
    source, valid = inputs.read(copy(ranker).set_params(position_bias=bias))
    return fultr.clicks.with_examination(source, bias)[
        0
    ], None if valid is None else fultr.clicks.with_examination(valid, bias)[0]
