"""What a service is told when it starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from fultr.errors import InputError
from fultr.serving.stores import Durability


class Fallback(StrEnum):
    """What is answered if scoring fails."""

    REQUEST = "request"
    ERROR = "error"


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service.

    Parameters
    ----------
    policies
        Saved policies; more than one are shown to shares of the sessions.
    events
        A folder, or a postgresql:// address, for what was shown and clicked.
    shares
        The share of each policy, adding to 1; equal ones by default.
    shadows
        Policies that are scored and recorded at each request, and never shown.
    items
        A table of items with their features and groups, so that requests need no more than ids.
    durability
        "disk": a ranking is answered when its impression is on the disk; "process": when the system has it,
        so that it survives a killed process; "none": at once.
    log_features
        Whether features of candidates are recorded, so that events can be trained on as they are.
    accept_clicks
        How long after its ranking a click is accepted, in hours.
    retention
        How many days events are kept; for ever by default.
    fallback
        If scoring fails: show candidates in the order of the request, or answer an error.
    token
        What requests must bring in `Authorization: Bearer`, if anything.
    max_body
        Bytes of the largest request.
    body_seconds
        How long a request may take to arrive.
    rate
        Requests a second of one address, on average; as many as they like by default. Behind a proxy that is
        the address of the proxy, unless the environment variable `FORWARDED_ALLOW_IPS` names it: then it is
        the one that the proxy says in `X-Forwarded-For`.
    reload_seconds
        How often to look whether a policy file was replaced; 0 never.
    max_disparity, eta
        What the monitor page and its gauges watch: the limit, and the position bias (that of the first policy
        by default).
    watch_seconds
        How often to read new events for them, at least; it is less often where reading takes long.
    """

    policies: Sequence[str | Path]
    events: str | Path
    shares: Sequence[float] = ()
    shadows: Sequence[str | Path] = ()
    items: str | Path | None = None
    durability: Durability = Durability.PROCESS
    log_features: bool = True
    accept_clicks: float = 24.0
    retention: int | None = None
    fallback: Fallback = Fallback.REQUEST
    token: str | None = field(default=None, repr=False)
    max_body: int = 4 << 20
    body_seconds: float = 10.0
    rate: float | None = None
    reload_seconds: float = 2.0
    max_disparity: float | None = None
    eta: float | None = None
    watch_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.policies:
            raise InputError("name at least one policy", column="policies")
        shares = list(self.shares) or [1 / len(self.policies)] * len(self.policies)
        if len(shares) != len(self.policies) or not all(share > 0 for share in shares):
            problem = f"must be {len(self.policies)} numbers above 0, one for each policy"
            raise InputError(problem, column="shares", value=list(self.shares))
        if not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
            raise InputError("must add to 1", column="shares", value=shares)
        object.__setattr__(self, "shares", tuple(shares))
        if self.token is not None and len(self.token) < 16:
            raise InputError("must have 16 characters or more", column="token")
