"""Reports from what is in memory or on disk: one function for runs, audits and frontiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fultr.arguments import Progress
from fultr.audits import Audit, read_audit
from fultr.audits.files import AUDIT
from fultr.data import Source
from fultr.errors import InputError
from fultr.files import writable_file
from fultr.reports.audit_report import report_on_audit
from fultr.reports.content import Report
from fultr.reports.page import write_report
from fultr.reports.run_report import report_on_run
from fultr.reports.runs import TrainingRun, read_run
from fultr.training.run_folder import CONFIG

SUFFIXES = (".html", ".htm")


def report(
    found: str | Path | TrainingRun | Audit,
    out: str | Path | None = None,
    *,
    log: Source | None = None,
    valid: Source | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Return what a run or an audit found as a report and, with `out`, write it as one HTML page.

    Parameters
    ----------
    found
        An `Audit`, a `Run`, or the folder of either, as the commands leave it.
    out
        The .html file to write, if any.
    log, valid
        Of a run: what it was trained on and validated by. Without, the report says what it lacks.
    seed
        The seed of examples and intervals.
    progress
        Called with what is done and with all there is to do.
    """
    if out is not None:
        check_page(out)
    content = found if isinstance(found, (TrainingRun, Audit)) else read_result(found)
    if isinstance(content, Audit) and not (log is None and valid is None):
        problem = "is for the report of a run; an audit holds all that its report says"
        raise InputError(problem, column="log")
    source = "audit" if isinstance(found, (TrainingRun, Audit)) else found
    made = make_report(content, source, log=log, valid=valid, seed=seed, progress=progress)
    if out is not None:
        write_report(made, out)
    return made


def make_report(
    content: TrainingRun | Audit,
    source: str | Path,
    *,
    log: Source | None = None,
    valid: Source | None = None,
    missing: Sequence[str] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Return the report on a run or an audit; `source` is where an audit is kept."""
    if isinstance(content, Audit):
        return report_on_audit(content, source)
    return report_on_run(content, log, valid, missing=missing, seed=seed, progress=progress)


def check_page(out: str | Path) -> None:
    """Refuse a name that is none of an HTML file, or that cannot be written."""
    if writable_file(out).suffix.lower() not in SUFFIXES:
        raise InputError("a report is an .html file; name it so", file=out)


def read_result(source: str | Path) -> TrainingRun | Audit:
    """Read the folder of a run or of an audit, or the file of an audit."""
    path = Path(source)
    try:
        there, folder = path.exists(), path.is_dir()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=source) from error
    if not there:
        raise InputError("no such file or folder", file=source)
    if folder and (path / CONFIG).exists():
        return read_run(path)
    audited = path / AUDIT if folder else path
    if not audited.exists():
        raise InputError(f"holds neither a run ({CONFIG}) nor an audit ({AUDIT})", file=source)
    return read_audit(audited)
