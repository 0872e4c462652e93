from .auditing import audit
from .files import AUDIT, read_audit, write_audit
from .inspecting import Inspection, inspect
from .logged_disparity import logged_disparity_finding, lowest_limit, lowest_limit_finding
from .pictures import draw_shares
from .ranking_result import (
    GROUP_MEASURES,
    LOGGED,
    AuditEstimate,
    Difference,
    GroupAudit,
    NewQueries,
    OtherBias,
    PairAudit,
    RankingAudit,
)
from .result import Audit

__all__ = [
    "AUDIT",
    "GROUP_MEASURES",
    "LOGGED",
    "Audit",
    "AuditEstimate",
    "Difference",
    "GroupAudit",
    "Inspection",
    "NewQueries",
    "OtherBias",
    "PairAudit",
    "RankingAudit",
    "audit",
    "draw_shares",
    "inspect",
    "logged_disparity_finding",
    "lowest_limit",
    "lowest_limit_finding",
    "read_audit",
    "write_audit",
]
