"""Learn rankings from clicks that are useful to searchers and fair to the items ranked."""

from fultr import datasets, estimators
from fultr.clicks import (
    BiasComparison,
    BiasEstimate,
    ClickNoise,
    NoiseEstimate,
    Planting,
    PositionBias,
    compare_biases,
    estimate_bias,
    estimate_noise,
    read_bias,
    simulate_clicks,
    write_bias,
)
from fultr.data import (
    ClickLog,
    Counts,
    DataSplits,
    RankingDataset,
    concatenate,
    merge,
    read_counts,
    read_dataset,
    read_letor,
    write_counts,
    write_dataset,
    write_letor,
)
from fultr.errors import FultrError, InputError, WriteError
from fultr.evaluation import Evaluation, evaluate
from fultr.expectation import expected_position_weights
from fultr.logs import count, inspect_dataset, inspect_log, log_from_frame, read_log, write_log
from fultr.policy import FixedScorer, PlackettLuce, RandomRanking, RankingSVM
from fultr.training import FairRanker, Frontier, UnreachableLimitError, load, save, sweep

__version__ = "0.1.0.dev0"

__all__ = [
    "BiasComparison",
    "BiasEstimate",
    "ClickLog",
    "ClickNoise",
    "Counts",
    "DataSplits",
    "Evaluation",
    "FairRanker",
    "FixedScorer",
    "Frontier",
    "FultrError",
    "InputError",
    "NoiseEstimate",
    "PlackettLuce",
    "Planting",
    "PositionBias",
    "RandomRanking",
    "RankingDataset",
    "RankingSVM",
    "UnreachableLimitError",
    "WriteError",
    "compare_biases",
    "concatenate",
    "count",
    "datasets",
    "estimate_bias",
    "estimate_noise",
    "estimators",
    "evaluate",
    "expected_position_weights",
    "inspect_dataset",
    "inspect_log",
    "load",
    "log_from_frame",
    "merge",
    "read_bias",
    "read_counts",
    "read_dataset",
    "read_letor",
    "read_log",
    "save",
    "simulate_clicks",
    "sweep",
    "write_bias",
    "write_counts",
    "write_dataset",
    "write_letor",
    "write_log",
]
