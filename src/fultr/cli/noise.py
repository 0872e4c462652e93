"""`fultr noise`: click noise from planted items."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fultr.cli.files import NO_CLICK_LOG, read_any
from fultr.cli.options import BiasFile, Column, Eta, Json, UnusedSeed, position_bias, renamed_columns
from fultr.cli.output import print_json, results
from fultr.clicks import estimate_noise
from fultr.errors import InputError


def noise(
    log: Annotated[Path, typer.Argument(help="A click log with planted items (a column 'planted').")],
    eta: Eta = None,
    bias: BiasFile = None,
    level: Annotated[float, typer.Option(help="Confidence level of the interval.")] = 0.95,
    column: Column = None,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Estimate eps_minus, the probability that an examined irrelevant item is clicked.

    Items known to be irrelevant are planted into some rankings; at position k they are clicked with
    probability v_k eps_minus. The position bias comes with the log, or is given.

    \b
    Example:
      fultr simulate german --impressions 50000 --eps-minus 0.1 --plant 0.05 --out clicks.parquet
      fultr noise clicks.parquet
    """
    examined, renamed = position_bias(eta, bias), renamed_columns(column)
    content = read_any(log, columns=renamed)
    if content.counts is None:
        raise InputError(NO_CLICK_LOG, file=log)
    estimate = estimate_noise(content.counts, examined, level=level)
    if json:
        print_json(estimate.to_dict())
        return
    results().print(
        f"eps_minus = {estimate.eps_minus:.4f}"
        f"  ({estimate.level:.0%} interval {estimate.low:.4f} to {estimate.high:.4f};"
        f" {estimate.clicks:,} clicks on {estimate.planted:,} planted items)"
    )
