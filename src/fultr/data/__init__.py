"""Datasets and click logs: how they are held, checked, read and written."""

from fultr.data.click_log import ClickLog, Planted
from fultr.data.compact_log import Cells, CompactLog
from fultr.data.dataset import PaddedBatch, RankingDataset, concatenate
from fultr.data.splits import DataSplits, refuse_shared_queries

__all__ = [
    "Cells",
    "ClickLog",
    "CompactLog",
    "DataSplits",
    "PaddedBatch",
    "Planted",
    "RankingDataset",
    "concatenate",
    "refuse_shared_queries",
]
