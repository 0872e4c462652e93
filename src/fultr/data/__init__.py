"""Datasets and click logs: how they are held, checked, read and written."""

from fultr.data.aggregated_logs import read_aggregated_log, write_aggregated_log
from fultr.data.click_log import ClickLog, Planted
from fultr.data.compact_log import Cells, CompactLog
from fultr.data.dataset import PaddedBatch, RankingDataset, concatenate
from fultr.data.dataset_files import read_dataset, write_dataset
from fultr.data.inspection import Finding, inspect_dataset, inspect_log
from fultr.data.letor import read_letor
from fultr.data.letor_writing import write_letor
from fultr.data.lightgbm_files import read_lightgbm_log, write_lightgbm_log
from fultr.data.log_files import log_from_frame, read_log, write_log
from fultr.data.nested_logs import read_nested_log
from fultr.data.splits import DataSplits, refuse_shared_queries
from fultr.data.streaming import ScatteredRowsError, StreamedLog, stream_compact, stream_log
from fultr.data.ubi_events import read_ubi_log

__all__ = [
    "Cells",
    "ClickLog",
    "CompactLog",
    "DataSplits",
    "Finding",
    "PaddedBatch",
    "Planted",
    "RankingDataset",
    "ScatteredRowsError",
    "StreamedLog",
    "concatenate",
    "inspect_dataset",
    "inspect_log",
    "log_from_frame",
    "read_aggregated_log",
    "read_dataset",
    "read_letor",
    "read_lightgbm_log",
    "read_log",
    "read_nested_log",
    "read_ubi_log",
    "refuse_shared_queries",
    "stream_compact",
    "stream_log",
    "write_aggregated_log",
    "write_dataset",
    "write_letor",
    "write_lightgbm_log",
    "write_log",
]
