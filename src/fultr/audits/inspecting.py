"""Inspection: what data holds, and everything suspicious in it, before it is used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fultr.audits.logged_disparity import logged_disparity_finding, lowest_limit_finding
from fultr.clicks.examination import AnyBias, check_bias
from fultr.clicks.readiness import judge_readiness
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.evaluation.inputs import checked_source
from fultr.logs.inspection import Finding, inspect_dataset
from fultr.results import Displayed, Tables, summary_tables


@dataclass(frozen=True, repr=False)
class Inspection(Displayed):
    """What data holds, and what is suspicious in it.

    Parameters
    ----------
    summary
        How much of everything there is, as `describe` of the data says it.
    findings
        What to know before the data is used; each says how severe it is.
    facts
        The numbers behind the findings on a click log; empty for labelled lists.
    """

    summary: dict[str, Any]
    findings: tuple[Finding, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def severe(self) -> tuple[Finding, ...]:
        """The findings with which results cannot be trusted; empty, and so false, if there are none."""
        return tuple(finding for finding in self.findings if finding.severity == "severe")

    def tables(self) -> Tables:
        """Return what is suspicious, and what the data holds."""
        findings = [{"severity": one.severity, "finding": one.sentence} for one in self.findings]
        return {"findings": findings, **summary_tables(self.summary)}

    def __repr__(self) -> str:
        kinds = Counter(one.severity for one in self.findings)
        counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        return f"<Inspection: {counts or 'nothing suspicious'}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the inspection as plain values."""
        facts = {"facts": self.facts} if self.facts else {}
        return {**self.summary, "findings": [finding.to_dict() for finding in self.findings], **facts}


def inspect(data: Any, *, position_bias: AnyBias | None = None, depth: int | None = None) -> Inspection:
    """Say what data holds, and everything suspicious in it.

    Of a click log it says whether it supports training and auditing: what clicks weigh, what each group's
    merit rests on, whether the logged ranking shows a disparity, and which limit could be promised.

    Parameters
    ----------
    data
        A `ClickLog` or `Counts`, a `RankingDataset`, or a frame of one of them.
    position_bias
        How likely positions of a log are looked at; by default its propensities, or the bias it carries.
    depth
        How many positions a page has, if it is not as many as anything was shown at.

    Examples
    --------
    >>> import fultr
    >>> found = fultr.inspect(fultr.datasets.studios())
    >>> found.summary["lists"], found.severe
    (1, ())
    """
    source = checked_source(data)
    if isinstance(source, RankingDataset):
        for name, value in (("position_bias", position_bias), ("depth", depth)):
            if value is not None:
                raise InputError("is for click logs, and this is labelled data", column=name, value=value)
        return Inspection(source.describe(), tuple(inspect_dataset(source)))
    check_bias(position_bias)
    counts = source.compact()
    readiness = judge_readiness(counts, position_bias, depth)
    of_groups = (logged_disparity_finding, lowest_limit_finding)
    of_pairs = [finding(counts, position_bias, depth) for finding in of_groups]
    findings = (*readiness.findings, *(finding for finding in of_pairs if finding is not None))
    return Inspection(counts.describe(), findings, readiness.facts)
