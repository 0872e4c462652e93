"""`fultr report`: a run or an audit as one HTML page."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Annotated, Any

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
    fultr.reports.check_page(out)
    content = fultr.reports.read_result(source)
    inputs: dict[str, Any] = {"log": None, "valid": None, "missing": ()}
    if isinstance(content, fultr.reports.TrainingRun):
        inputs = _inputs_of(content, log)
    elif log is not None:
        raise InputError("--log is for the report of a run; an audit holds all that its report says")
    with progress("measuring") as shown:
        report_content = fultr.reports.make_report(content, source, **inputs, seed=seed, progress=shown)
    fultr.reports.write_report(report_content, out)
    if json:
        summary = {
            "file": str(out),
            "bytes": out.stat().st_size,
            "rankings": [ranking.key for ranking in report_content.rankings],
            "examples": len(report_content.examples),
            "missing": list(report_content.missing),
        }
        print_json(summary)
    for sentence in report_content.missing:
        say(f"fultr: {sentence}")
    say(f"wrote {out}")


def _inputs_of(run: fultr.reports.TrainingRun, log: Path | None) -> dict[str, Any]:
    """Return what a run was trained on and validated by, as far as it is still there, and what is missing."""
    located = fultr.reports.find_inputs(run, log)
    inputs: dict[str, Any] = {
        "log": None,
        "valid": None,
        "missing": [] if located.missing is None else [located.missing],
    }
    if located.log is not None and located.missing is None:
        try:
            inputs["log"], inputs["valid"] = _read(run, located, located.log)
        except InputError as error:
            if log is not None:
                raise
            inputs["missing"].append(f"The log of the run cannot be read: {error}")
    return inputs


def _read(
    run: fultr.reports.TrainingRun, located: fultr.reports.Located, log: Path
) -> tuple[fultr.data.Source, fultr.data.Source | None]:
    log_settings = {name: run.inputs[name] for name in LogReading().arguments() if name in run.inputs}
    reading = LogReading(**{**log_settings, "items": located.items})
    statements = [bool(run.inputs.get(name)) for name in ("shown_only", "complete_lists")]
    inputs = Inputs(log, located.valid, reading, run.inputs.get("relevant_from"), *statements)
    ranker, bias_settings = run.policies[0].ranker, run.settings.get("position_bias") or {}
    if "curves" not in bias_settings:
        return inputs.read(ranker)
    # a policy keeps the mean of the curves, and its clicks were weighed by each of them
    bias = fultr.PositionBiasByContext.from_dict(bias_settings)
    source, valid = inputs.read(copy(ranker).set_params(position_bias=bias))
    return fultr.clicks.with_examination(source, bias)[
        0
    ], None if valid is None else fultr.clicks.with_examination(valid, bias)[0]
