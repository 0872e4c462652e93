from .drawn_rankings import DrawnRankings, exposure_shares
from .entropy import RankingEntropy, ranking_entropy, softmax_entropy
from .feature_encoding import FeatureEncoding, reading_options, sentence_of_unknown
from .log_prob import log_prob_of_positions, ranking_log_prob
from .plackett_luce import cut_positions, rank_positions, sample_positions
from .policies import (
    FixedScorer,
    PlackettLuce,
    RandomRanking,
    RankingPolicy,
    RankingSampler,
    ScoredPolicy,
    Scorer,
)
from .ranking_files import TABLE_ENDINGS, ShownItems, read_scored, write_rankings
from .ranking_formats import RankingFormat, format_of
from .ranking_svm import RankingSVM
from .rotation import expected_exposure, rotated_positions
from .scorers import GroupBlind, LinearScorer, MLPScorer, Probability, Shifted, TorchPolicy
from .tree_scorers import SummedScorer, TreeScorer
from .trees import Trees

__all__ = [
    "TABLE_ENDINGS",
    "DrawnRankings",
    "FeatureEncoding",
    "FixedScorer",
    "GroupBlind",
    "LinearScorer",
    "MLPScorer",
    "PlackettLuce",
    "Probability",
    "RandomRanking",
    "RankingEntropy",
    "RankingFormat",
    "RankingPolicy",
    "RankingSVM",
    "RankingSampler",
    "ScoredPolicy",
    "Scorer",
    "Shifted",
    "ShownItems",
    "SummedScorer",
    "TorchPolicy",
    "TreeScorer",
    "Trees",
    "cut_positions",
    "expected_exposure",
    "exposure_shares",
    "format_of",
    "log_prob_of_positions",
    "rank_positions",
    "ranking_entropy",
    "ranking_log_prob",
    "read_scored",
    "reading_options",
    "rotated_positions",
    "sample_positions",
    "sentence_of_unknown",
    "softmax_entropy",
    "write_rankings",
]
