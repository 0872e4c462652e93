"""Training: rankers, sweeps over the fairness weight, limits, and policies on disk."""

from fultr.training.fair_ranker import FairRanker
from fultr.training.frontier import Frontier, sweep
from fultr.training.limits import UnreachableLimitError
from fultr.training.offsets import OffsetPolicy, UnsupportedLimitError, fair_offsets
from fultr.training.saving import load, save
from fultr.training.tree_settings import TreeSettings

__all__ = [
    "FairRanker",
    "Frontier",
    "OffsetPolicy",
    "TreeSettings",
    "UnreachableLimitError",
    "UnsupportedLimitError",
    "fair_offsets",
    "load",
    "save",
    "sweep",
]
