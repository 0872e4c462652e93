"""`fultr split`: a log in two parts, one to train on and one put aside."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import fultr
import fultr.data
import fultr.datasets
from fultr.cli.files import holds_impressions, read_any, write_any
from fultr.cli.options import Column, Json, LogReading, Seed, renamed_columns
from fultr.cli.output import print_json, print_table, progress, results, say
from fultr.errors import InputError
from fultr.files import check_outputs


class By(StrEnum):
    """What decides which side an impression goes to."""

    QUERY = "query"
    TIME = "time"


def split(
    log: Annotated[Path, typer.Argument(help="A click log, counts of one, or labelled data.")],
    out_train: Annotated[Path, typer.Option(help="Where to write the part to train on.")],
    out_test: Annotated[Path, typer.Option(help="Where to write the part that is put aside.")],
    by: Annotated[
        By, typer.Option(help="query: all of a query on one side. time: the last impressions put aside.")
    ] = By.QUERY,
    share: Annotated[
        float, typer.Option(help="Share put aside: of the queries, or of the impressions by time.")
    ] = 0.2,
    column: Column = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Split a log in two: whole queries drawn at random, or the last impressions by their timestamp.

    A split by query shows what happens on queries that training never saw, one by time what happens next
    week. No impression is lost or doubled. Impressions of one moment stay on one side. The rows of a click
    log are passed on as they are, with all their columns.

    \b
    Example:
      fultr split clicks.parquet --by time --share 0.2 --out-train before.parquet --out-test after.parquet
      fultr train before.parquet --max-disparity 0.1 --out run
      fultr audit after.parquet --policy run
    """
    columns = renamed_columns(column)
    if not 0 < share < 1:
        raise InputError("--share lies between 0 and 1", value=share)
    check_outputs([out_train, out_test], [log])
    parts: dict[str, fultr.data.Source] = {}
    files: dict[str, list[Path]] = {}
    if holds_impressions(log, columns):
        with progress("splitting") as report:
            written = fultr.split_log(
                log,
                out_train,
                out_test,
                by=by.value,
                share=share,
                columns=columns,
                seed=seed,
                progress=report,
            )
        for name, part in zip(("train", "test"), written, strict=True):
            parts[name], files[name] = part.log, part.files
    else:
        content = read_any(log, LogReading(columns=columns))
        whole = content.data if content.counts is None else content.counts
        parts["train"], parts["test"] = _by_query(whole, by, share, seed, log)
        for name, out in (("train", out_train), ("test", out_test)):
            files[name] = [write_any(parts[name], out)]
    _show(parts, files, {"by": by.value, "share": share, "seed": seed}, json=json)
    say("wrote " + ", ".join(str(file) for part in files.values() for file in part))


def _by_query(
    whole: fultr.data.CountsOrLabels, by: By, share: float, seed: int, file: Path
) -> tuple[fultr.data.CountsOrLabels, fultr.data.CountsOrLabels]:
    if by is By.TIME:
        problem = (
            "counts and labelled data have no times; split them by query, or the log before it is counted"
        )
        raise InputError(f"--by time: {problem}", file=file)
    try:
        return whole.split(share, seed)
    except InputError as error:
        raise error.located(file) from None


def _show(
    parts: dict[str, fultr.data.Source], files: dict[str, list[Path]], options: dict[str, Any], *, json: bool
) -> None:
    summary = {name: _summary(part) for name, part in parts.items()}
    both = _queries(parts["train"]) & _queries(parts["test"])
    if json:
        described = {name: {"files": [str(file) for file in files[name]], **summary[name]} for name in files}
        print_json({**options, **described, "queries_in_both": len(both)})
        return
    names = list(summary["train"])
    rows = [(name, *(f"{summary[name][figure]:,}" for figure in names)) for name in summary]
    print_table(results(), f"Split by {options['by']}", ("part", *names), rows)
    results().print(f"Queries in both parts: {len(both):,}")


def _summary(part: fultr.data.Source) -> dict[str, Any]:
    if isinstance(part, fultr.RankingDataset):
        return {"queries": len(_queries(part)), "lists": len(part)}
    counts = part.compact()
    impressions, clicks = int(counts.impressions.sum()), int(counts.cells.clicks.sum())
    return {"queries": len(_queries(part)), "impressions": impressions, "clicks": clicks}


def _queries(part: fultr.data.Source) -> set[Any]:
    """Return the ids of the queries; where there are none, parts share none."""
    ids = part.data.query_id
    if ids is None:
        return set()
    shown = ids[fultr.data.distinct(part.lists)] if isinstance(part, fultr.ClickLog) else ids
    return set(fultr.data.distinct(shown).tolist())
