"""Datasets and click logs: how they are held, checked, read and written."""

from fultr.data.click_log import ClickLog, Planted
from fultr.data.compact_log import Cells, CompactLog
from fultr.data.dataset import PaddedBatch, RankingDataset, concatenate
from fultr.data.log_files import log_from_frame, read_log, write_log
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
    "log_from_frame",
    "read_log",
    "refuse_shared_queries",
    "write_log",
]
