"""`fultr noise`: click noise from planted items."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import fultr
from fultr.cli.files import NO_CLICK_LOG, read_any
from fultr.cli.options import (
    BiasFile,
    Column,
    Eta,
    Json,
    OnRepeat,
    OnRepeatName,
    UnusedSeed,
    log_reading,
    position_bias,
)
from fultr.cli.output import print_json, print_table, results
from fultr.errors import InputError


def noise(
    log: Annotated[Path, typer.Argument(help="A click log with planted items (a column 'planted').")],
    eta: Eta = None,
    bias: BiasFile = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Estimate it for each position, too (trust bias).")
    ] = False,
    column: Column = None,
    on_repeat: OnRepeat = OnRepeatName.ERROR,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Estimate eps_minus, the probability that an examined irrelevant item is clicked.

    Items known to be irrelevant are planted into some rankings; at position k they are clicked with
    probability v_k eps_minus. The position bias comes with the log, or is given. People who trust the first
    positions click more by mistake there; --by-position measures that, from items planted at each of them.

    \b
    Example:
      fultr simulate german --impressions 50000 --eps-minus 0.1 --plant 0.05 --out clicks.parquet
      fultr noise clicks.parquet
      fultr noise clicks.parquet --by-position
    """
    examined = position_bias(eta, bias)
    reading = replace(log_reading(None, column, on_repeat=on_repeat), features=[], on_conflict="first")
    content = read_any(log, reading)
    if content.counts is None:
        raise InputError(NO_CLICK_LOG, file=log)
    estimate = fultr.estimate_noise(content.counts, examined, level=level, by_position=by_position)
    if json:
        print_json(estimate.to_dict())
        return
    results().print(
        f"eps_minus = {estimate.eps_minus:.4f}"
        f"  ({estimate.level:.0%} interval {estimate.low:.4f} to {estimate.high:.4f};"
        f" {estimate.clicks:,} clicks on {estimate.planted:,} planted items)"
    )
    if not estimate.positions:
        return
    rows = [
        (
            str(position),
            f"{one.eps_minus:.4f}",
            f"{one.low:.4f} to {one.high:.4f}",
            f"{one.planted:,}",
            f"{one.clicks:,}",
        )
        for position, one in estimate.positions.items()
    ]
    columns = ("position", "eps_minus", f"{estimate.level:.0%} interval", "planted items", "clicks")
    print_table(results(), "Clicks by mistake, by position", columns, rows)
    curve = estimate.to_click_noise().texts()["eps_minus"]
    results().print(f"to take it off: --eps-minus {curve}", soft_wrap=True)
