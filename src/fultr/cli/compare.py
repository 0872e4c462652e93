"""`fultr compare`: any methods on a click log, judged on labelled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import fultr
import fultr.clicks
import fultr.data
import fultr.experiments
import fultr.logs
from fultr.cli.files import read_any, read_impressions, with_groups_by
from fultr.cli.options import (
    NOTHING_SAID,
    BiasFile,
    Depth,
    Eta,
    GroupBy,
    Json,
    LogReading,
    Seed,
    ShownOnly,
    position_bias,
    reads_log,
)
from fultr.cli.output import print_json, print_table, results, say
from fultr.cli.training_options import TopK, click_noise
from fultr.errors import InputError
from fultr.files import make_folder

NAMES = (
    "fultr, fultr-mlp, fultr-corrected, fultr-paper, group-blind, no-ips, utility-ips, pg-rank, lambda-rank,"
    " click-svm, propensity-svm, fair-pg-rank, fair-pg-rank-ips, equity-of-attention,"
    " equity-of-attention-true, fairco, exposure-lp"
)
"""The methods that learn from clicks, known to the help without loading any of them."""

PICTURES = ("comparison.png", "comparison.svg")


@reads_log
def compare(
    log: Annotated[Path, typer.Argument(help="The click log to train on.")],
    test: Annotated[Path, typer.Option(help="Labelled data to judge by: LETOR, Parquet, CSV or Arrow.")],
    methods: Annotated[
        str,
        typer.Option(help=f"Names of methods, with commas: {NAMES}."),
    ] = "fultr,group-blind,fair-pg-rank-ips,equity-of-attention",
    out: Annotated[Path, typer.Option(help="The folder that table and picture go to.")] = Path("comparison"),
    valid: Annotated[
        Path | None, typer.Option(help="A log to validate on. [default: a fifth of the queries]")
    ] = None,
    eta: Eta = None,
    bias: BiasFile = None,
    top_k: TopK = None,
    depth: Depth = None,
    shown_only: ShownOnly = False,
    eps_plus: Annotated[
        str | None, typer.Option(help="Click probability of an examined relevant item.")
    ] = None,
    eps_minus: Annotated[
        str | None,
        typer.Option(help="The same of an irrelevant item; several, as 0.4,0.2, by position."),
    ] = None,
    relevant_from: Annotated[
        float | None, typer.Option(help="Graded judgments from this one on count as relevant.")
    ] = None,
    group_by: GroupBy = None,
    reading: LogReading = NOTHING_SAID,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train several methods on the same click log and compare utility and disparity on labelled data.

    Each method is trained for all its trade-offs between utility and fairness. Writes the table and the
    trade-off picture. With --top-k, DCG is cut for all methods, and those of fultr are trained for it.

    \b
    Example:
      fultr compare clicks.parquet --methods fultr,fair-pg-rank,fairco --test test.parquet --out comparison
    """
    names = [name.strip() for name in methods.split(",") if name.strip()]
    clicks = read_impressions(log, reading)
    checked = None if valid is None else read_impressions(valid, reading, quiet=True)
    if shown_only:
        if left_out := clicks.compact().shown_only().origin.get(fultr.data.NEVER_SHOWN):
            say(f"fultr: warning: {fultr.clicks.sentence_of_left_out(left_out)}")
        clicks, checked = clicks.shown_only(), None if checked is None else checked.shown_only()
    rows = fultr.experiments.compare(
        clicks,
        _labelled(test, clicks, relevant_from, group_by),
        names,
        valid=checked,
        position_bias=position_bias(eta, bias),
        top_k=top_k,
        depth=depth,
        noise=click_noise(eps_plus, eps_minus),
        seed=seed,
        say=say,
    )
    make_folder(out)
    written = [fultr.experiments.write_table(out / "comparison.csv", rows)]
    written += [fultr.experiments.draw_comparison(rows, out / name) for name in PICTURES]
    if json:
        print_json({"policies": rows, "written": [str(path) for path in written]})
        return
    # with more groups there is a ratio for each pair of them
    two_groups = "exposure_ratio" in rows[0]
    cells = [
        (
            fultr.experiments.METHODS[row["method"]].title,
            f"{row['knob']} {row['trade_off']:g}"
            if len(fultr.experiments.METHODS[row["method"]].trade_offs) > 1
            else "-",
            *_with_ends(row, "dcg", ".4f"),
            *_with_ends(row, "disparity", "+.4f" if row["disparity_low"] is not None else ".4f"),
            *(_with_ends(row, "exposure_ratio", ".3f") if two_groups else ()),
            *_with_ends(row, "exposure_to_move", ".1%"),
        )
        for row in rows
    ]
    title = f"On the labelled data of {test}, with 95% intervals"
    ratio = ("exposure ratio", "") if two_groups else ()
    columns = ("method", "trade-off", "DCG", "", "disparity", "", *ratio, "exposure to move", "")
    print_table(results(), title, columns, cells)
    results().print("Wrote " + ", ".join(str(path) for path in written))


def _with_ends(row: dict[str, Any], name: str, form: str) -> tuple[str, str]:
    """Return a measure and its interval, if it has one."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    ends = "" if low is None else f"[{format(low, form)}, {format(high, form)}]"
    return format(row[name], form), ends


def _labelled(
    file: Path, log: fultr.ClickLog, relevant_from: float | None, group_by: str | None
) -> fultr.RankingDataset:
    content = read_any(file)
    if content.counts is not None:
        raise InputError("is a click log; methods are compared on lists with relevance", file=file)
    content = with_groups_by(content, group_by, file)
    lists = fultr.logs.with_features(content.data, list(log.data.feature_names), file)
    return lists if relevant_from is None else lists.binarize(relevant_from)
