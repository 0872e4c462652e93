"""`fultr compare`: any methods on a click log, judged on labelled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fultr.cli.files import read_any, read_impressions
from fultr.cli.options import BiasFile, Column, Eta, Items, Json, Seed, position_bias, renamed_columns
from fultr.cli.output import print_json, print_table, results, say
from fultr.cli.training_options import click_noise
from fultr.data import ClickLog, RankingDataset
from fultr.errors import InputError
from fultr.experiments.comparison import compare as comparison_of
from fultr.experiments.comparison import draw_comparison
from fultr.experiments.methods import METHODS
from fultr.experiments.reproduction import write_table
from fultr.files import make_folder
from fultr.policy.ranking_files import with_features

PICTURES = ("comparison.png", "comparison.svg")


def compare(
    log: Annotated[Path, typer.Argument(help="The click log to train on.")],
    test: Annotated[Path, typer.Option(help="Labelled data to judge by: LETOR, Parquet, CSV or Arrow.")],
    methods: Annotated[
        str, typer.Option(help=f"Names of methods, with commas: {', '.join(METHODS)}.")
    ] = "fultr,group-blind,fair-pg-rank-ips,equity-of-attention",
    out: Annotated[Path, typer.Option(help="The folder that table and picture go to.")] = Path("comparison"),
    valid: Annotated[
        Path | None, typer.Option(help="A log to validate on. [default: a fifth of the queries]")
    ] = None,
    eta: Eta = None,
    bias: BiasFile = None,
    eps_plus: Annotated[
        float | None, typer.Option(help="Click probability of an examined relevant item.")
    ] = None,
    eps_minus: Annotated[
        float | None, typer.Option(help="Click probability of an examined irrelevant item.")
    ] = None,
    relevant_from: Annotated[
        float | None, typer.Option(help="Graded judgments from this one on count as relevant.")
    ] = None,
    items: Items = None,
    column: Column = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train several methods on the same click log and compare utility and disparity on labelled data.

    Each method is trained for all its trade-offs between utility and fairness. Writes the table and the
    trade-off picture.

    \b
    Example:
      fultr compare clicks.parquet --methods fultr,fair-pg-rank,fairco --test test.txt --out comparison
    """
    names = [name.strip() for name in methods.split(",") if name.strip()]
    columns = renamed_columns(column)
    clicks = read_impressions(log, items=items, columns=columns)
    checked = None if valid is None else read_impressions(valid, items=items, columns=columns)
    rows = comparison_of(
        clicks,
        _labelled(test, clicks, relevant_from),
        names,
        valid=checked,
        position_bias=position_bias(eta, bias),
        noise=click_noise(eps_plus, eps_minus),
        seed=seed,
        say=say,
    )
    make_folder(out)
    written = [write_table(out / "comparison.csv", rows)]
    written += [draw_comparison(rows, out / name) for name in PICTURES]
    if json:
        print_json({"policies": rows, "written": [str(path) for path in written]})
        return
    cells = [
        (
            METHODS[row["method"]].title,
            f"{row['knob']} {row['trade_off']:g}" if len(METHODS[row["method"]].trade_offs) > 1 else "-",
            f"{row['test_dcg']:.4f}",
            f"{row['test_disparity_squared'] ** 0.5:.4f}",
        )
        for row in rows
    ]
    title = f"On the labelled data of {test}"
    print_table(results(), title, ("method", "trade-off", "DCG / relevant item", "disparity"), cells)
    results().print("Wrote " + ", ".join(str(path) for path in written))


def _labelled(file: Path, log: ClickLog, relevant_from: float | None) -> RankingDataset:
    content = read_any(file)
    if content.counts is not None:
        raise InputError("is a click log; methods are compared on lists with relevance", file=file)
    lists = with_features(content.data, list(log.data.feature_names), file)
    return lists if relevant_from is None else lists.binarize(relevant_from)
