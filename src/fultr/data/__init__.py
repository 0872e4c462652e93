"""What is held: lists of candidates, counts, single impressions; and their files."""

from fultr.data.click_log import ClickLog, CountsOrLabels, Planted, Source
from fultr.data.counts import Cells, CountedFile, Counts
from fultr.data.counts_files import read_counts, write_counts
from fultr.data.dataset import DataSplits, RankingDataset, concatenate, refuse_shared_queries
from fultr.data.dataset_files import read_dataset, write_dataset
from fultr.data.letor import read_letor, write_letor
from fultr.data.merging import merge

__all__ = [
    "Cells",
    "ClickLog",
    "CountedFile",
    "Counts",
    "CountsOrLabels",
    "DataSplits",
    "Planted",
    "RankingDataset",
    "Source",
    "concatenate",
    "merge",
    "read_counts",
    "read_dataset",
    "read_letor",
    "refuse_shared_queries",
    "write_counts",
    "write_dataset",
    "write_letor",
]
