"""What a click log's file says of the log beside its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fultr.click_model import ClickNoise, PositionBias
from fultr.data.click_log import ClickLog
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN
from fultr.data.counts import Counts
from fultr.data.metadata import damaged_metadata, plain_fields, read_fields
from fultr.data.table_files import Table
from fultr.errors import InputError

LOG = "click-log"

SAME_IN_ALL = (
    "position_bias",
    "noise",
    "empties_dropped",
    "feature_names",
    "group_columns",
    "category_names",
    "allows_missing",
)
"""What the files of one log must say alike."""

ITEMS = "items"
FILE_NAME = re.compile(r"(?!\.\.?$)[^/\\\0]{1,255}")
"""A name of a file in the same folder."""


@dataclass(frozen=True)
class LogMetadata:
    """The fields of a log, and of its data, that are no columns, and how the file was written.

    `invented` names the ids that the log did not have, `text_ids` those that are text even if all look like
    numbers, and `items` is the file with the features and its checksum.
    """

    position_bias: PositionBias | None = None
    noise: ClickNoise | None = None
    empties_dropped: bool = False
    origin: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    group_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] = ()
    group_columns: tuple[int, ...] = ()
    invented: tuple[str, ...] = ()
    text_ids: tuple[str, ...] = ()
    items: dict[str, str] | None = None
    category_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    allows_missing: bool = False

    @classmethod
    def of(cls, log: ClickLog | Counts, invented: Sequence[str], *, with_features: bool) -> LogMetadata:
        """Return what is to be written of a log."""
        data = log.data
        named = {
            "impression_id": getattr(log, "impression_id", None),
            "query_id": data.query_id,
            "doc_id": data.doc_id,
        }
        return cls(
            **{name: getattr(log, name) for name in ("position_bias", "noise", "empties_dropped", "origin")},
            source=data.source,
            group_names=data.group_names,
            feature_names=data.feature_names if with_features else (),
            group_columns=data.group_columns if with_features else (),
            category_names=data.category_names if with_features else {},
            allows_missing=data.allows_missing and with_features,
            invented=tuple(invented),
            text_ids=tuple(name for name, ids in named.items() if ids is not None and ids.dtype.kind == "T"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the file."""
        content = {"kind": LOG, **plain_fields(self, vars(self))}
        return {name: value for name, value in content.items() if name != "items" or value is not None}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], file: str | Path | None) -> LogMetadata:
        """Read what a file says, which may come from anywhere; a table without metadata says nothing."""
        if content.get("kind", LOG) != LOG:
            raise InputError(f"holds no click log but a {content['kind']}", file=file)
        fields = read_fields(content, cls.__annotations__, file, optional=True)
        items, width = fields.get("items"), len(fields.get("feature_names", ()))
        if items is not None and not (
            set(items) == {"file", "sha256"}
            and all(isinstance(value, str) for value in items.values())
            and FILE_NAME.fullmatch(items["file"])
        ):
            raise damaged_metadata("items", file)
        if not all(0 <= column < width for column in fields.get("group_columns", ())):
            raise damaged_metadata("group_columns", file)
        return cls(**fields)

    @classmethod
    def merge(cls, given: Sequence[tuple[LogMetadata, str | Path | None]]) -> LogMetadata:
        """Return what several files say together; they must have one click model and the same features."""
        first, first_file = given[0]
        for other, file in given[1:]:
            for name in SAME_IN_ALL:
                if getattr(other, name) != getattr(first, name):
                    problem = f"its {name} is not that of {first_file}; count the files one by one"
                    raise InputError(problem, file=file)
            if {"query_id", "doc_id"}.intersection((*first.invented, *other.invented)):
                problem = "it was written without ids, without which equal lists cannot be found"
                raise InputError(problem, file=file)
        if len(given) == 1:
            return first
        names = {other.group_names for other, _ in given}
        return replace(
            first,
            group_names=next(iter(names))
            if len(names) == 1
            else tuple(sorted({name for group_names in names for name in group_names or ()})) or None,
            origin=first.origin if all(other.origin == first.origin for other, _ in given) else {},
            source=" + ".join(dict.fromkeys(other.source for other, _ in given if other.source)),
            text_ids=tuple(sorted({name for other, _ in given for name in other.text_ids})),
        )

    def category_columns(self, table: Table) -> list[str]:
        """Return the columns of a table that fultr wrote categories into, by their names."""
        names = table.schema.names
        return [FEATURE_PREFIX + name for name in self.category_names if FEATURE_PREFIX + name in names]

    def listed_categories(self, columns: Sequence[str], width: int) -> dict[str, Any]:
        """Return the names of categories whose codes stand in lists of features that fultr wrote."""
        listed = tuple(columns) == (LIST_COLUMN,) and len(self.feature_names) == width
        return {"category_names": self.category_names} if listed and self.category_names else {}

    def dataset_fields(self, columns: Sequence[str], width: int) -> dict[str, Any]:
        """Return the fields of the dataset, given the columns that hold the features.

        The names that were written hold only if the features are the ones that were written: the caller may
        have chosen others, or they may be in another table.
        """
        names: tuple[str, ...] = tuple(name.removeprefix(FEATURE_PREFIX) for name in columns)
        if names == (LIST_COLUMN,):
            names = self.feature_names if len(self.feature_names) == width else ()
        derived = {self.feature_names[column] for column in self.group_columns}
        return {
            "feature_names": names,
            "group_columns": [column for column, name in enumerate(names) if name in derived],
            "source": self.source,
        }
