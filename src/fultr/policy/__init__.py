"""Plackett-Luce rankings and the policies that draw them."""

from fultr.policy.plackett_luce import rank_positions, sample_positions
from fultr.policy.policies import (
    FixedScorer,
    PlackettLuce,
    RandomRanking,
    RankingPolicy,
    RankingSampler,
    ScoredPolicy,
    Scorer,
)
from fultr.policy.ranking_svm import RankingSVM

__all__ = [
    "FixedScorer",
    "PlackettLuce",
    "RandomRanking",
    "RankingPolicy",
    "RankingSVM",
    "RankingSampler",
    "ScoredPolicy",
    "Scorer",
    "rank_positions",
    "sample_positions",
]
