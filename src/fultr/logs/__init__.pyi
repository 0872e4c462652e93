from .aggregated import AGGREGATED, ASSUMPTION, COUNT_COLUMNS, OPTIONAL_COUNT_COLUMNS, read_aggregated_log
from .events import first_table, is_events
from .features import choose_features, is_numbered, with_features
from .frames import categories_among, features_of_policies
from .inspection import Finding, inspect_columns, inspect_dataset, inspect_log
from .lightgbm import lightgbm_table
from .metadata import LOG
from .nested import nested_table
from .reading import LogOptions, OpenedLog, count, read_impressions, read_log
from .rows import OPTIONAL, REQUIRED, Check
from .splitting import LogPart, split_log
from .ubi import ubi_table
from .writing import items_file, write_log

__all__ = [
    "AGGREGATED",
    "ASSUMPTION",
    "COUNT_COLUMNS",
    "LOG",
    "OPTIONAL",
    "OPTIONAL_COUNT_COLUMNS",
    "REQUIRED",
    "Check",
    "Finding",
    "LogOptions",
    "LogPart",
    "OpenedLog",
    "categories_among",
    "choose_features",
    "count",
    "features_of_policies",
    "first_table",
    "inspect_columns",
    "inspect_dataset",
    "inspect_log",
    "is_events",
    "is_numbered",
    "items_file",
    "lightgbm_table",
    "nested_table",
    "read_aggregated_log",
    "read_impressions",
    "read_log",
    "split_log",
    "ubi_table",
    "with_features",
    "write_log",
]
