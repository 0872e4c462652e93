"""Training: rankers, sweeps over the fairness weight, limits, and policies on disk."""

from fultr.training.fair_ranker import FairRanker, UnreachableLimitError
from fultr.training.frontier import Frontier, sweep
from fultr.training.saving import load, save

__all__ = ["FairRanker", "Frontier", "UnreachableLimitError", "load", "save", "sweep"]
