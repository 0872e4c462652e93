"""Audits: how fair and how useful logged rankings and candidate policies are, from clicks alone."""

from fultr.audit.auditing import audit
from fultr.audit.files import read_audit, write_audit
from fultr.audit.pictures import draw_shares
from fultr.audit.result import (
    LOGGED,
    Audit,
    Difference,
    Estimate,
    GroupAudit,
    OtherBias,
    PairAudit,
    RankingAudit,
)

__all__ = [
    "LOGGED",
    "Audit",
    "Difference",
    "Estimate",
    "GroupAudit",
    "OtherBias",
    "PairAudit",
    "RankingAudit",
    "audit",
    "draw_shares",
    "read_audit",
    "write_audit",
]
