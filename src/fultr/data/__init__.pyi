from .click_log import ClickLog, CountsOrLabels, Planted, Source
from .columns import FEATURE_PREFIX, LIST_COLUMN, flags, integers_between, require_columns, text_labels
from .counts import COMPLETE_LISTS, NEVER_SHOWN, Cells, CountedFile, Counts
from .counts_files import holds_counts, read_counts, write_counts
from .dataset import DataSplits, RankingDataset, concatenate, refuse_shared_queries, rows_of
from .dataset_files import read_dataset, write_dataset
from .fields import DEEPEST_POSITION
from .ids import distinct
from .letor import read_letor, write_letor
from .merging import merge
from .table_files import COMPRESSED, KINDS, Table, is_csv, open_table

__all__ = [
    "COMPLETE_LISTS",
    "COMPRESSED",
    "DEEPEST_POSITION",
    "FEATURE_PREFIX",
    "KINDS",
    "LIST_COLUMN",
    "NEVER_SHOWN",
    "Cells",
    "ClickLog",
    "CountedFile",
    "Counts",
    "CountsOrLabels",
    "DataSplits",
    "Planted",
    "RankingDataset",
    "Source",
    "Table",
    "concatenate",
    "distinct",
    "flags",
    "holds_counts",
    "integers_between",
    "is_csv",
    "merge",
    "open_table",
    "read_counts",
    "read_dataset",
    "read_letor",
    "refuse_shared_queries",
    "require_columns",
    "rows_of",
    "text_labels",
    "write_counts",
    "write_dataset",
    "write_letor",
]
