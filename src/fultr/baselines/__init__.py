"""Other methods, with the interface of FairRanker: the paper's baselines, and two that users know."""

from fultr.baselines.equity_of_attention import EquityOfAttention
from fultr.baselines.exposure_lp import ExposureLP
from fultr.baselines.fair_pg_rank import FairPGRank, fair_pg_rank_sweep
from fultr.baselines.fairco import FairCo
from fultr.baselines.lambda_rank import LambdaRank
from fultr.baselines.pg_rank import PGRank
from fultr.baselines.relevance import RelevanceRegression
from fultr.baselines.svm_rank import ClickSVMRank, PropensitySVMRank

__all__ = [
    "ClickSVMRank",
    "EquityOfAttention",
    "ExposureLP",
    "FairCo",
    "FairPGRank",
    "LambdaRank",
    "PGRank",
    "PropensitySVMRank",
    "RelevanceRegression",
    "fair_pg_rank_sweep",
]
