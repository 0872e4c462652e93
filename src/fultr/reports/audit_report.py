"""The report of an audit: the logged ranking and candidate policies with their intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from fultr.audits import LOGGED, Audit, RankingAudit
from fultr.reports.content import DataPart, Ranking, Report, shortened
from fultr.reports.run_report import POSITIONS, formula_of, measured_by_audit
from fultr.reports.sentences import number_text, summary_of_audit

AUDITED = "audit"

SOURCES = {
    "given": "It was given to the audit.",
    "estimate": "It was estimated from clicks.",
    "log": "It came with the log.",
    "propensities": "It is the one that the propensities in the log follow.",
    "policies": "It is the one that the policies were trained with.",
}


def report_on_audit(audit: Audit, location: str | Path) -> Report:
    """Say what an audit found; `place` is where it is kept."""
    part = DataPart(AUDITED, "audited clicks", "the clicks of the audit", audit.max_disparity)
    rankings = tuple(_ranking(one, part) for one in audit.rankings.values())
    policies = [one for one in rankings if one.kind == "policy"] or list(rankings)
    useful = max(policies, key=lambda one: one.measured[part.key].utility.value)
    findings = [
        {"severity": str(one.get("severity", "note")), "sentence": str(one.get("sentence", one))}
        for one in audit.findings
    ]
    notes = [{"severity": "note", "sentence": f"{note[:1].upper()}{note[1:]}."} for note in audit.notes]
    about = f"{SOURCES.get(audit.bias_source, '')} {formula_of(audit.position_bias)}".strip()
    return Report(
        title="Audit of rankings",
        source=str(location),
        summary=tuple(summary_of_audit(audit, rankings, part)),
        parts=(part,),
        rankings=rankings,
        picked=policies[0].key,
        reference=useful.key,
        curve=tuple(audit.position_bias.curve(min(audit.longest, POSITIONS))[1:].tolist()),
        curve_about=about,
        findings=(*findings, *notes),
        missing=(),
        settings=tuple(_settings(audit)),
        level=audit.level,
        examples_about="An audit keeps no rankings; the report of a run (fultr report RUN) shows examples.",
    )


def _ranking(ranking: RankingAudit, part: DataPart) -> Ranking:
    logged = ranking.name == LOGGED
    facts = []
    if ranking.difference is not None:
        more = ranking.difference.utility
        bounds = f"{number_text(more.low)} to {number_text(more.high)}"
        facts.append(("utility beyond that of the logged ranking", f"{number_text(more.value)} ({bounds})"))
    if ranking.recurring_queries:
        facts.append(("queries of its training that recur", f"{ranking.recurring_queries:,}"))
    if ranking.new_queries is not None:
        new = ranking.new_queries
        text = (
            f"utility {number_text(new.utility.value)}, disparity {number_text(new.disparity.value)}"
            f" ({number_text(new.disparity.low)} to {number_text(new.disparity.high)})"
        )
        facts.append((f"on {new.queries:,} queries that training never saw", text))
    if ranking.verdict_depends_on_bias:
        facts.append(("uncertain", "another position bias that is possible gives another verdict"))
    return Ranking(
        key=LOGGED if logged else f"policy={quote(ranking.name, safe='')}",
        name="as logged" if logged else shortened(ranking.name),
        kind="logged" if logged else "policy",
        measured={part.key: measured_by_audit(ranking)},
        facts=tuple(facts),
    )


def _settings(audit: Audit) -> Iterator[tuple[str, str]]:
    content = audit.to_dict()
    for part in ("settings", "counts"):
        for name, value in content[part].items():
            if value is not None:
                yield name, value if isinstance(value, str) else json.dumps(value)
