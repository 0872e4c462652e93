from .auditing import audit
from .files import AUDIT, read_audit, write_audit
from .logged_disparity import logged_disparity_finding, lowest_limit, lowest_limit_finding
from .pictures import draw_shares
from .result import (
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
    "AUDIT",
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
