"""What a click log's file says of the log beside its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fultr.click_model import ClickNoise, PositionBias
from fultr.data.click_log import ClickLog
from fultr.data.columns import FEATURE_PREFIX, LIST_COLUMN
from fultr.errors import InputError

LOG = "click-log"
ITEMS = "items"


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

    @classmethod
    def of(cls, log: ClickLog, invented: Sequence[str], *, with_features: bool) -> LogMetadata:
        """Return what is to be written of a log."""
        named = {"impression_id": log.impression_id, "query_id": log.data.query_id, "doc_id": log.data.doc_id}
        return cls(
            position_bias=log.position_bias,
            noise=log.noise,
            empties_dropped=log.empties_dropped,
            origin=log.origin,
            source=log.data.source,
            group_names=log.data.group_names,
            feature_names=log.data.feature_names if with_features else (),
            group_columns=log.data.group_columns if with_features else (),
            invented=tuple(invented),
            text_ids=tuple(name for name, ids in named.items() if ids is not None and ids.dtype.kind == "T"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the file."""
        content = {
            **vars(self),
            "kind": LOG,
            "position_bias": None if self.position_bias is None else self.position_bias.to_dict(),
            "noise": None if self.noise is None else self.noise.to_dict(),
        }
        return {name: value for name, value in content.items() if name != "items" or value is not None}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], file: Path | None) -> LogMetadata:
        """Read what a file says, which may come from anywhere; a table without metadata says nothing."""
        if content.get("kind", LOG) != LOG:
            raise InputError(f"holds no click log but a {content['kind']}", file=file)
        read = _Reader(content, file)
        items = read.of("items", dict, None)
        if items is not None and not (
            set(items) == {"file", "sha256"}
            and all(isinstance(value, str) for value in items.values())
            and Path(items["file"]).name == items["file"]
        ):
            raise read.damaged("items")
        return cls(
            position_bias=read.model("position_bias", PositionBias.from_dict),
            noise=read.model("noise", ClickNoise.from_dict),
            empties_dropped=read.of("empties_dropped", bool, False),
            origin=read.of("origin", dict, None) or {},
            source=read.of("source", str, ""),
            group_names=read.several("group_names", str, None),
            feature_names=read.several("feature_names", str, ()) or (),
            group_columns=read.several("group_columns", int, ()) or (),
            invented=read.several("invented", str, ()) or (),
            text_ids=read.several("text_ids", str, ()) or (),
            items=items,
        )

    def dataset_fields(self, found: Sequence[str], width: int) -> dict[str, Any]:
        """Return the fields of the dataset, given the columns that features were found in.

        The names that were written are those of the features only if the features are still the same ones:
        others may have been asked for, or stand in another table.
        """
        names: tuple[str, ...] = tuple(name.removeprefix(FEATURE_PREFIX) for name in found)
        if names == (LIST_COLUMN,):
            names = self.feature_names if len(self.feature_names) == width else ()
        derived = {self.feature_names[column] for column in self.group_columns}
        return {
            "feature_names": names,
            "group_columns": [column for column, name in enumerate(names) if name in derived],
            "source": self.source,
        }


@dataclass(frozen=True)
class _Reader:
    """Values of metadata, each of the type that we would have written."""

    content: Mapping[str, Any]
    file: Path | None

    def of(self, name: str, kind: type, default: Any) -> Any:
        value = self.content.get(name)
        if value is None:
            return default
        if type(value) is not kind:
            raise self.damaged(name)
        return value

    def several(self, name: str, kind: type, default: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        values = self.of(name, list, None)
        if values is None:
            return default
        if any(type(value) is not kind for value in values):
            raise self.damaged(name)
        return tuple(values)

    def model(self, name: str, make: Any) -> Any:
        content = self.of(name, dict, None)
        try:
            return None if content is None else make(content)
        except InputError as error:
            raise self.damaged(f"{name}: {error}") from None

    def damaged(self, what: str) -> InputError:
        return InputError(f"its fultr metadata is damaged ({what})", file=self.file)
