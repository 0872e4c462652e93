"""Datasets and click logs: how they are held, checked, read and written."""

from fultr.data.dataset import PaddedBatch, RankingDataset, concatenate
from fultr.data.splits import DataSplits, refuse_shared_queries

__all__ = ["DataSplits", "PaddedBatch", "RankingDataset", "concatenate", "refuse_shared_queries"]
