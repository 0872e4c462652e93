from .equity_of_attention import EquityOfAttention
from .exposure_lp import ExposureLP
from .fair_pg_rank import FairPGRank, fair_pg_rank_sweep
from .fairco import FairCo
from .lambda_rank import LambdaRank
from .pg_rank import PGRank
from .relevance import RelevanceRegression
from .svm_rank import ClickSVMRank, PropensitySVMRank

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
