"""The expected rank, in closed form: E[rank d] = 1 + sum_{j != d} w_j / (w_j + w_d)."""

from __future__ import annotations

import math
from typing import Any

from fultr.compiled import compiled


@compiled
def rank_values(problems: Any, scores: Any, offsets: Any, values: Any) -> None:
    """Write E[rank d] of each row of the given lists."""
    for which in problems:
        start, stop = offsets[which], offsets[which + 1]
        for d in range(start, stop):
            values[d] = 1.0
        for d in range(start, stop):
            for j in range(start, d):
                ahead = 1.0 / (1.0 + math.exp(min(scores[d] - scores[j], 700.0)))  # j comes before d
                values[d] += ahead
                values[j] += 1.0 - ahead


@compiled
def rank_gradient(problems: Any, scores: Any, offsets: Any, upstream: Any, gradient: Any) -> None:
    """Write the derivative of sum_d upstream[d] E[rank d] with respect to each score."""
    for which in problems:
        start, stop = offsets[which], offsets[which + 1]
        for d in range(start, stop):
            gradient[d] = 0.0
        for d in range(start, stop):
            for j in range(start, d):
                ahead = 1.0 / (1.0 + math.exp(min(scores[d] - scores[j], 700.0)))
                pull = ahead * (1.0 - ahead) * (upstream[d] - upstream[j])
                gradient[j] += pull
                gradient[d] -= pull
