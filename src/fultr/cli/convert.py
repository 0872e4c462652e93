"""`fultr convert`: from one file format to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import fultr
import fultr.data
import fultr.datasets
import fultr.logs
from fultr.cli.files import Content, holds_impressions, read_any, read_impressions, with_groups_by, write_any
from fultr.cli.options import (
    Column,
    Exclude,
    Group,
    GroupBy,
    Items,
    Json,
    LogReading,
    OnConflict,
    OnConflictName,
    OnRepeat,
    OnRepeatName,
    UnusedSeed,
    log_reading,
)
from fultr.cli.output import print_json, progress, say
from fultr.cli.simulate import Features
from fultr.errors import InputError
from fultr.files import check_outputs

NESTED_COLUMNS = (
    "query", "documents", "clicks", "positions", "impression", "features", "groups", "timestamp"
)  # fmt: skip


class Format(StrEnum):
    """How others lay out a click log."""

    NESTED = "nested"
    AGGREGATED = "aggregated"
    LIGHTGBM = "lightgbm"
    UBI = "ubi"


class Positions(StrEnum):
    """What says where a document was shown."""

    RESPONSE = "response"
    EVENTS = "events"


class Weights(StrEnum):
    """What the weights of rows are."""

    INVERSE_PROPENSITY = "inverse-propensity"
    IGNORE = "ignore"


def convert(
    source: Annotated[Path, typer.Argument(help="A LETOR file, a converted file, or a click log.")],
    out: Annotated[
        Path, typer.Argument(help="Data: .arrow, .parquet or a LETOR .txt. Logs: .parquet or .csv.")
    ],
    origin: Annotated[
        Format | None,
        typer.Option("--from", help="The layout of a log that is none of ours: see 'your log' in the docs."),
    ] = None,
    events: Annotated[
        Path | None, typer.Option(help="UBI: the events, where the first file holds only the queries.")
    ] = None,
    positions: Annotated[
        Positions | None, typer.Option(help="UBI: positions from the order of the response, or from events.")
    ] = None,
    skip_strays: Annotated[
        bool, typer.Option("--skip-strays", help="UBI: leave out events that belong to no search or result.")
    ] = False,
    first_position: Annotated[
        int | None, typer.Option(min=0, max=1, help="UBI, LightGBM: what the first position is called.")
    ] = None,
    weights: Annotated[Weights | None, typer.Option(help="LightGBM: what the weights of rows are.")] = None,
    items: Items = None,
    column: Column = None,
    exclude: Exclude = None,
    group: Group = None,
    group_by: GroupBy = None,
    on_conflict: OnConflict = OnConflictName.ERROR,
    on_repeat: OnRepeat = OnRepeatName.ERROR,
    max_features: Annotated[
        int | None,
        typer.Option(min=1, help="LETOR: the largest feature index, where a file needs much memory."),
    ] = None,
    features: Annotated[Features, typer.Option(help="How a click log keeps its features.")] = Features.TABLE,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Convert labelled data or a click log to another format; an .arrow file loads at the speed of the disk.

    \b
    Example:
      fultr convert Fold1/train.txt train.arrow --group-by "feature 25 > quantile 0.8"
      fultr convert searches.csv clicks.parquet --column query_id=search_id
      fultr convert --from nested sessions.parquet clicks.parquet --column documents=urls
      fultr convert --from ubi queries.ndjson --events events.ndjson clicks.parquet
    """
    check_outputs([out, *([fultr.logs.items_file(out)] if features is Features.TABLE else [])], [items])
    chosen = {
        "events": events,
        "positions": None if positions is None else positions.value,
        "on_stray": "skip" if skip_strays else None,
        "first_position": first_position,
        "weights": None if weights is None else weights.value,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    _refuse_options(given, origin)
    content: fultr.ClickLog | Content
    if origin is not None:
        reading = log_reading(items, None, None, exclude, group, on_conflict, on_repeat)
        content = _read(origin, source, reading, column, given)
    elif max_features is not None:
        with progress("reading") as report:
            data = fultr.read_letor(source, max_features=max_features, progress=report)
        content = Content("labelled data", fultr.logs.choose_features(data, None, exclude or (), source))
    else:
        reading = log_reading(items, column, None, exclude, group, on_conflict, on_repeat)
        is_log = holds_impressions(source, reading.columns)
        content = (read_impressions if is_log else read_any)(source, reading)
    if not isinstance(content, fultr.ClickLog):
        content = with_groups_by(content, group_by, source)
    elif group_by is not None:
        raise InputError("--group-by is for labelled data; --group names the column of a log", file=source)
    if isinstance(content, fultr.ClickLog):
        files, kind = fultr.write_log(content, out, features=features.value), "click log"
    else:
        files, kind = [write_any(content.counts or content.data, out)], content.kind
    if json:
        print_json({"kind": kind, "files": [str(file) for file in files], "rows": content.data.rows})
    say("wrote " + " and ".join(str(file) for file in files))


OPTIONS_OF = {
    Format.UBI: ("events", "positions", "on_stray", "first_position"),
    Format.LIGHTGBM: ("first_position", "weights"),
}
"""The options of each format, by the names of arguments."""

OPTION_NAMES = {"on_stray": "--skip-strays"}


def _refuse_options(given: Mapping[str, Any], origin: Format | None) -> None:
    """Refuse an option that the format has no use for."""
    for name in given:
        if origin is None or name not in OPTIONS_OF.get(origin, ()):
            option = OPTION_NAMES.get(name, "--" + name.replace("_", "-"))
            takes = [format_.value for format_, options in OPTIONS_OF.items() if name in options]
            raise InputError(f"{option} is for --from {' or '.join(takes)}")


def _read(
    origin: Format, source: Path, reading: LogReading, column: list[str] | None, given: Mapping[str, Any]
) -> fultr.ClickLog | Content:
    """Read a log of a layout that is not ours."""
    if origin is Format.AGGREGATED:
        renamed = _named(column, (*fultr.logs.COUNT_COLUMNS, *fultr.logs.OPTIONAL_COUNT_COLUMNS))
        arguments = {**reading.arguments(), "columns": {**reading.columns, **renamed}}
        del arguments["on_repeat"]
        with progress("reading") as report:
            counts = fultr.logs.read_aggregated_log(source, **arguments, progress=report)
        say(f"fultr: {source}: assumes that {fultr.logs.ASSUMPTION}")
        return Content("aggregated log", counts.data, counts)
    if reading.items is not None and origin is Format.LIGHTGBM:
        raise InputError("--items is for logs without features; a file for LightGBM has its own")
    arguments = {**given, **_named(column, NESTED_COLUMNS if origin is Format.NESTED else ())}
    layouts: dict[Format, Callable[..., fultr.data.Table]] = {
        Format.NESTED: fultr.logs.nested_table,
        Format.LIGHTGBM: fultr.logs.lightgbm_table,
        Format.UBI: fultr.logs.ubi_table,
    }
    with progress("reading") as report:
        log = fultr.read_log(layouts[origin](source, progress=report, **arguments), **reading.arguments())
    if log.origin.get("skipped"):
        say(f"fultr: {log.origin['skipped']:,} events or searches could not be placed and were left out")
    return log


def _named(pairs: list[str] | None, names: Sequence[str]) -> dict[str, str]:
    """Turn NAME=COLUMN options into a mapping, for the names that a layout has."""
    named = {}
    for pair in pairs or []:
        name, equals, column = pair.partition("=")
        if not names:
            raise InputError("this format has no columns of other names; leave --column out", value=pair)
        if not (equals and column) or name not in names:
            raise InputError(f"--column takes NAME=COLUMN with NAME one of: {', '.join(names)}", value=pair)
        named[name] = column
    return named
