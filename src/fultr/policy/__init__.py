"""Plackett-Luce rankings, the policies that draw them, and the scorers these follow from."""

from fultr.policy.entropy import RankingEntropy, ranking_entropy, softmax_entropy
from fultr.policy.log_prob import log_prob_of_positions, ranking_log_prob
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
from fultr.policy.scorers import GroupBlind, LinearScorer, MLPScorer, TorchPolicy
from fultr.policy.trees import SummedScorer, Trees, TreeScorer

__all__ = [
    "FixedScorer",
    "GroupBlind",
    "LinearScorer",
    "MLPScorer",
    "PlackettLuce",
    "RandomRanking",
    "RankingEntropy",
    "RankingPolicy",
    "RankingSVM",
    "RankingSampler",
    "ScoredPolicy",
    "Scorer",
    "SummedScorer",
    "TorchPolicy",
    "TreeScorer",
    "Trees",
    "log_prob_of_positions",
    "rank_positions",
    "ranking_entropy",
    "ranking_log_prob",
    "sample_positions",
    "softmax_entropy",
]
