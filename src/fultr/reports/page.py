"""A report as one HTML file, which loads nothing from anywhere.

Whatever comes from data is escaped where it is put in, and the page's policy lets no script run but ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from fultr.errors import InputError
from fultr.files import atomic_write
from fultr.reports.content import DataPart, Detail, MeasuredRanking, Ranking, Report
from fultr.reports.sentences import NOT_KNOWN, number_text

LARGEST = 2_000_000
"""Bytes that a page may have."""

DETAILS = (Detail(groups=40, pairs=20, examples=6), Detail(20, 10, 3), Detail(8, 3, 0))
"""How much a page holds: the first of them that makes it small enough."""

SEVERITIES = ("severe", "warning", "note")


def write_report(report: Report, path: str | Path) -> Path:
    """Write a report as an HTML file, which appears whole or not at all."""
    page = page_of(report)
    with atomic_write(path) as temporary:
        temporary.write_bytes(page)
    return Path(path)


def page_of(report: Report) -> bytes:
    """Return a report as an HTML page."""
    for detail in DETAILS:
        page = _page(report, detail)
        if len(page) <= LARGEST:
            return page
    problem = (
        f"its page would have more than {LARGEST:,} bytes: there are {len(report.rankings)} rankings;"
        " report on fewer"
    )
    raise InputError(problem, file=report.source)


def _page(report: Report, detail: Detail) -> bytes:
    from jinja2 import Environment, StrictUndefined

    from fultr import __version__

    style, script = _resource("page.css"), _resource("page.js")
    cut = report.cut(detail)
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_resource("page.html"))
    page = template.render(
        policy=_policy(style, script),
        version=__version__,
        style=style,
        script=script,
        report=cut,
        tables=[_table_of_part(report, part) for part in report.parts],
        findings=_findings(report.findings),
        content=embedded(cut.for_script()),
        shown=number_text,
        exact=repr,
    )
    return page.encode("utf-8", errors="replace")


def embedded(content: object) -> str:
    """Return JSON that cannot end the element it stands in, whatever it holds."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _resource(name: str) -> str:
    return files("fultr.reports").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: our style, our script, and no request."""

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest(style)}';"
        f" script-src 'sha256-{digest(script)}'; base-uri 'none'; form-action 'none'"
    )


def _table_of_part(report: Report, part: DataPart) -> dict[str, Any]:
    """Return what the table of all rankings on some clicks holds."""
    shown = [one for one in report.rankings if part.key in one.measured]
    judged = any(one.measured[part.key].passes is not None for one in shown)
    return {
        "key": part.key,
        "caption": f"On {part.name}: {part.about}",
        "heads": ["Ranking", "Utility", "Disparity", *(["Limit"] if judged else [])],
        "rows": [_row(one, part, first=part is report.parts[0], judged=judged) for one in shown],
    }


def _row(ranking: Ranking, part: DataPart, *, first: bool, judged: bool) -> dict[str, Any]:
    measured = ranking.measured[part.key]
    return {
        "key": ranking.key,
        "name": ranking.name,
        "address": f"#{ranking.key}" + ("" if first else f"&on={part.key}"),
        "numbers": [measured.utility.value, measured.disparity.value],
        "verdict": _verdict(measured) if judged else "",
    }


def _verdict(measured: MeasuredRanking) -> str:
    return NOT_KNOWN if measured.passes is None else "kept" if measured.passes else "not kept"


def _findings(findings: Sequence[Mapping[str, str]] | None) -> list[dict[str, str]] | None:
    """Return findings, the worst first; a severity that the page does not know counts as the least one."""
    if findings is None:
        return None
    order = {name: number for number, name in enumerate(SEVERITIES)}
    ordered = sorted(findings, key=lambda one: order.get(one["severity"], len(order)))
    return [
        {
            "severity": one["severity"] if one["severity"] in order else SEVERITIES[-1],
            "sentence": one["sentence"],
        }
        for one in ordered
    ]
