"""Audits: how fair and how useful logged rankings and candidate policies are, from clicks alone."""

from fultr.audit.auditing import audit
from fultr.audit.files import read_audit, write_audit
from fultr.audit.logged_disparity import logged_disparity_finding, lowest_limit, lowest_limit_finding
from fultr.audit.pictures import draw_shares
from fultr.audit.result import (
    LOGGED,
    Audit,
    Difference,
    Estimate,
    GroupAudit,
    NewQueries,
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
    "NewQueries",
    "OtherBias",
    "PairAudit",
    "RankingAudit",
    "audit",
    "draw_shares",
    "logged_disparity_finding",
    "lowest_limit",
    "lowest_limit_finding",
    "read_audit",
    "write_audit",
]
