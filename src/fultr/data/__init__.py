"""What is held: lists of candidates, counts, single impressions; and their files."""

from fultr.data.click_log import ClickLog, Planted
from fultr.data.counts import Cells, CountedFile, Counts
from fultr.data.counts_files import read_counts, write_counts
from fultr.data.dataset import PaddedBatch, RankingDataset, concatenate
from fultr.data.dataset_files import read_dataset, write_dataset
from fultr.data.letor import read_letor
from fultr.data.letor_writing import write_letor
from fultr.data.merging import merge
from fultr.data.splits import DataSplits, refuse_shared_queries

__all__ = [
    "Cells",
    "ClickLog",
    "CountedFile",
    "Counts",
    "DataSplits",
    "PaddedBatch",
    "Planted",
    "RankingDataset",
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
