"""Datasets and click logs: how they are held, checked, read and written."""

from fultr.data.click_log import ClickLog, Planted
from fultr.data.compact_log import Cells, CompactLog
from fultr.data.dataset import PaddedBatch, RankingDataset, concatenate
from fultr.data.dataset_files import read_dataset, write_dataset
from fultr.data.inspection import Finding, inspect_dataset, inspect_log
from fultr.data.letor import read_letor
from fultr.data.letor_writing import write_letor
from fultr.data.log_files import log_from_frame, read_log, write_log
from fultr.data.splits import DataSplits, refuse_shared_queries

__all__ = [
    "Cells",
    "ClickLog",
    "CompactLog",
    "DataSplits",
    "Finding",
    "PaddedBatch",
    "Planted",
    "RankingDataset",
    "concatenate",
    "inspect_dataset",
    "inspect_log",
    "log_from_frame",
    "read_dataset",
    "read_letor",
    "read_log",
    "refuse_shared_queries",
    "write_dataset",
    "write_letor",
    "write_log",
]
