"""`fultr noise`: click noise from planted items, or from swaps of positions."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import fultr
import fultr.clicks
import fultr.logs
from fultr.cli.files import NO_CLICK_LOG, read_any
from fultr.cli.options import (
    BiasFile,
    Column,
    Eta,
    Json,
    LogReading,
    OnRepeat,
    OnRepeatName,
    Seed,
    log_reading,
    position_bias,
)
from fultr.cli.output import print_json, print_table, results
from fultr.cli.propensity_inputs import Asked, read_asked
from fultr.cli.propensity_options import SwappedColumn
from fultr.errors import InputError
from fultr.files import write_text


def noise(
    log: Annotated[
        Path, typer.Argument(help="A click log with planted items (a column 'planted'), or swaps.")
    ],
    eta: Eta = None,
    bias: BiasFile = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Estimate it for each position, too (trust bias).")
    ] = False,
    swap_column: Annotated[
        str | None,
        typer.Option(
            help="Estimate it at each position from swaps: the column with the position drawn to be exchanged"
            " with the first, 1 where nothing was to be exchanged, 0 outside the experiment."
        ),
    ] = None,
    swapped_column: SwappedColumn = None,
    out: Annotated[
        Path | None,
        typer.Option(help="With --swap-column: where to write the position bias that belongs to the noise."),
    ] = None,
    column: Column = None,
    on_repeat: OnRepeat = OnRepeatName.ERROR,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Estimate eps_minus, the probability that an examined irrelevant item is clicked.

    Items known to be irrelevant are planted into some rankings; at position k they are clicked with
    probability v_k eps_minus. The position bias comes with the log, or is given. People who trust the first
    positions click more by mistake there; --by-position measures that, from items planted at each of them,
    and --swap-column from logged swaps of the first position with others, together with the position bias.

    \b
    Example:
      fultr simulate german --impressions 50000 --eps-minus 0.1 --plant 0.05 --out clicks.parquet
      fultr noise clicks.parquet
      fultr noise clicks.parquet --by-position
      fultr noise swaps.parquet --swap-column swap_rank --out bias.json
    """
    examined = position_bias(eta, bias)
    if swap_column is not None:
        if examined is not None or by_position:
            raise InputError(
                "swaps tell the position bias, and everything by position; leave these options out"
            )
        asked = Asked.of_swaps(log, swap_column, swapped_column)
        _from_swaps(asked, log_reading(None, column, on_repeat=on_repeat), level, seed, out, json)
        return
    if swapped_column is not None or out is not None:
        raise InputError("--swapped-column and --out need --swap-column beside them")
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


def _from_swaps(
    asked: Asked, reading: LogReading, level: float, seed: int, out: Path | None, json: bool
) -> None:
    """Estimate noise and position bias from swaps, and show and write them."""
    logged = read_asked(
        asked.found_in(fultr.logs.first_table(asked.file).schema.names), replace(reading, on_conflict="first")
    )
    assert isinstance(logged.log, fultr.ClickLog)  # noqa: S101 - swaps are columns of single impressions
    estimate = fultr.clicks.estimate_noise_swap(logged.log, **logged.inputs, level=level, seed=seed)
    if out is not None:
        write_text(out, json_module.dumps(estimate.to_position_bias().to_dict(), indent=1) + "\n")
    if json:
        print_json({**estimate.to_dict(), "files": [] if out is None else [str(out)]})
        return
    results().print(
        f"at position 1, between {estimate.least:.4f} and {estimate.most:.4f} of all items are clicked by"
        f" mistake, by the swaps alone; what decides: {estimate.anchor}",
        soft_wrap=True,
    )
    print_table(results(), "Examination and clicks by mistake, by position", *_table_of(estimate))
    if estimate.insufficient:
        listed = ", ".join(map(str, estimate.insufficient))
        results().print(f"swapped too rarely, or items too much alike: {listed}", soft_wrap=True)
    curve = estimate.to_click_noise().texts()["eps_minus"]
    together = "" if out is None else f" --bias {out}"
    results().print(f"to take it off: --eps-minus {curve}{together}", soft_wrap=True)


def _table_of(estimate: fultr.clicks.TrustEstimate) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return columns and rows of a table of the estimate."""

    def cells(one: Any) -> tuple[str, str]:
        return f"{one.value:.4f}", f"{one.low:.4f} to {one.high:.4f}"

    of_level = f"{estimate.level:.0%} interval"
    columns = ("position", "eps_minus", of_level, "examination", of_level, "swaps")
    rows = [
        (str(position), *cells(one.eps_minus), *cells(one.examination), f"{one.swaps:,}")
        for position, one in estimate.positions.items()
    ]
    return columns, rows
