"""A report as one HTML file, which loads nothing from anywhere.

Whatever comes from data is escaped where it is put in, and the page's policy lets no script run but ours.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from fultr.audits import AuditEstimate
from fultr.errors import InputError
from fultr.files import atomic_write
from fultr.reports.content import DataPart, Detail, FeatureTable, MeasuredRanking, Ranking, Report
from fultr.reports.sentences import NOT_KNOWN, number_text

LARGEST = 2_000_000
"""Bytes that a page may have."""

DETAILS = (Detail(groups=40, pairs=20, examples=6), Detail(20, 10, 3), Detail(8, 3, 0))
"""How much a page holds: the first of them that makes it small enough."""

SEVERITIES = ("severe", "warning", "note")
NO_EXAMPLES = "There are no example rankings here; what the page lacks is said at its start."


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
    from fultr import __version__

    style, script = _resource("page.css"), _resource("page.js")
    parts = {
        "policy": escaped(_policy(style, script)),
        "version": escaped(__version__),
        "title": escaped(report.title),
        "source": escaped(report.source),
        "style": style,
        "script": script,
        "summary": _list(report.summary),
        "missing": _missing(report.missing),
        "tables": "\n".join(_table_of_part(report, part) for part in report.parts),
        "examples": _examples(report, detail),
        "features": _features(report.features),
        "curve_about": escaped(report.curve_about),
        "curve_table": _curve_table(report.curve),
        "findings": _findings(report.findings),
        "settings": _settings(report.settings),
        "content": embedded(report.to_dict(detail)),
    }
    return filled(_resource("page.html"), parts).encode("utf-8", errors="replace")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Put parts where a template names them; what is put in is not looked at again.

    Examples
    --------
    >>> filled("<p>{{first}} {{second}}</p>", {"first": "{{second}}", "second": "b"})
    '<p>{{second}} b</p>'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def escaped(text: str) -> str:
    """Return text that means itself in HTML, in quotes and outside of them."""
    return html.escape(text, quote=True)


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


def _list(sentences: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escaped(one)}</li>" for one in sentences) + "</ul>"


def _missing(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return f'<div class="note"><strong>What this page lacks</strong>{_list(sentences)}</div>'


def _number(value: float, decimals: int = 4) -> str:
    text = number_text(value, decimals)
    return f'<data value="{value!r}">{text}</data>' if value == value else text


def _table(name: str, caption: str, heads: Sequence[str], rows: Iterable[str], kind: str = "") -> str:
    columns = "".join(f'<th scope="col">{escaped(head)}</th>' for head in heads)
    return (
        f'<div class="scrolls" role="group" aria-label="{escaped(caption)}" tabindex="0">'
        f'<table id="{name}"{kind}><caption>{escaped(caption)}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _table_of_part(report: Report, part: DataPart) -> str:
    shown = [one for one in report.rankings if part.key in one.measured]
    judged = any(one.measured[part.key].passes is not None for one in shown)
    heads = ["Ranking", "Utility", "Disparity", *(["Limit"] if judged else [])]
    rows = [_row(one, part, first=part is report.parts[0], judged=judged) for one in shown]
    return _table(f"table-{part.key}", f"On {part.name}: {part.about}", heads, rows)


def _row(ranking: Ranking, part: DataPart, *, first: bool, judged: bool) -> str:
    found = ranking.measured[part.key]
    address = escaped(f"#{ranking.key}" + ("" if first else f"&on={part.key}"))
    cells = [
        _number(found.utility.value),
        _number(found.disparity.value),
        *([_verdict(found)] if judged else []),
    ]
    return (
        f'<tr data-key="{escaped(ranking.key)}"><th scope="row"><a href="{address}">'
        f"<bdi>{escaped(ranking.name)}</bdi></a></th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    )


def _verdict(found: MeasuredRanking) -> str:
    return NOT_KNOWN if found.passes is None else "kept" if found.passes else "not kept"


def _examples(report: Report, detail: Detail) -> str:
    if not report.examples[: detail.examples]:
        return f"<p>{escaped(report.examples_about or NO_EXAMPLES)}</p>"
    return (
        f"<p>{escaped(report.examples_about)}</p>"
        '<p><label for="example">Query</label> <select id="example"></select>'
        ' <span id="example-about" class="quiet"></span></p><div id="rankings" class="rankings"></div>'
    )


def _features(table: FeatureTable | None) -> str:
    """Return the section on features, where something is known of them."""
    if table is None:
        return ""
    with_gain = any(row.gain is not None for row in table.rows)
    heads = ["Feature", "Change of utility", "Change of disparity", *(["Share of gain"] if with_gain else [])]
    rows = (
        f'<tr><th scope="row"><bdi>{escaped(row.name)}</bdi></th>'
        f"<td>{_estimate(row.utility)}</td><td>{_estimate(row.disparity)}</td>"
        + (f"<td>{_number(row.gain or 0.0)}</td></tr>" if with_gain else "</tr>")
        for row in table.rows
    )
    made = _table("table-features", "With the values of a feature exchanged at random", heads, rows)
    return (
        '<section aria-labelledby="features-title"><h2 id="features-title">Which features matter</h2>'
        f"<p>{escaped(table.about)}</p>{made}</section>"
    )


def _estimate(found: AuditEstimate) -> str:
    """Return a number and its interval, if it has one."""
    if found.low != found.low:
        return _number(found.value)
    return f"{_number(found.value)} ({number_text(found.low)} to {number_text(found.high)})"


def _curve_table(curve: Sequence[float]) -> str:
    rows = (
        f'<tr><th scope="row">{position}</th><td>{_number(value)}</td></tr>'
        for position, value in enumerate(curve, start=1)
    )
    made = _table("table-curve", "Relative to position 1", ("Position", "Looked at"), rows)
    return f"<details><summary>The numbers as a table</summary>{made}</details>"


def _findings(findings: Sequence[Mapping[str, str]] | None) -> str:
    if findings is None:
        return "<p>The log was not looked at, since it is not at hand.</p>"
    if not findings:
        return "<p>Nothing suspicious was found.</p>"
    return f'<ul class="findings">{"".join(_finding_items(findings))}</ul>'


def _finding_items(findings: Sequence[Mapping[str, str]]) -> Iterator[str]:
    known = {name: number for number, name in enumerate(SEVERITIES)}
    for finding in sorted(findings, key=lambda one: known.get(one["severity"], len(known))):
        severity = finding["severity"] if finding["severity"] in known else SEVERITIES[-1]
        yield f'<li class="is-{severity}"><strong>{severity}</strong>: {escaped(finding["sentence"])}</li>'


def _settings(settings: Sequence[tuple[str, str]]) -> str:
    rows = (
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(text)}</td></tr>' for name, text in settings
    )
    return _table(
        "table-settings", "As the command was given them", ("Name", "Value"), rows, ' class="texts"'
    )
