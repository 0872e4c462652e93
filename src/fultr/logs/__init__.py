"""Logs: how rows become counts or single impressions, and how they are written."""

from fultr.logs.aggregated import read_aggregated_log, write_aggregated_log
from fultr.logs.inspection import Finding, inspect_dataset, inspect_log
from fultr.logs.lightgbm import lightgbm_table, write_lightgbm_log
from fultr.logs.nested import nested_table
from fultr.logs.reading import count, read_log
from fultr.logs.splitting import LogPart, split_log
from fultr.logs.ubi import ubi_table
from fultr.logs.writing import write_log

__all__ = [
    "Finding",
    "LogPart",
    "count",
    "inspect_dataset",
    "inspect_log",
    "lightgbm_table",
    "nested_table",
    "read_aggregated_log",
    "read_log",
    "split_log",
    "ubi_table",
    "write_aggregated_log",
    "write_lightgbm_log",
    "write_log",
]
