"""What `fultr propensity` prints of estimates of position bias and of their comparison."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import fultr
import fultr.clicks
from fultr.cli.output import print_facts, print_table

if TYPE_CHECKING:
    from rich.console import Console

SMALL_P = 0.01
"""A test of fit with a smaller p-value gets a word of warning."""

OPTION_OF = {
    "relevance='features'": "--relevance features",
    "shape='free'": "--shape free",
    "least_clicks": "--least-clicks",
    "larger longest": "larger --longest",
}
"""What the library asks for by the names of its arguments."""

SHAPES = {
    "monotone": "falling: the values are the falling curve nearest to the raw estimates of single positions",
    "free": "free: the values are the raw estimates of single positions",
}

UNSUPPORTED = {
    "swap": "no column tells of exchanges",
    "harvest": "no document was shown at position 1 and another (by different rankers, if these are named)",
    "em": "no document was shown at position 1 and another",
}


def in_options(sentence: str) -> str:
    """Return a sentence of the library in terms of options of the command."""
    for argument, option in OPTION_OF.items():
        sentence = sentence.replace(argument, option)
    return sentence


def print_estimate(console: Console, estimate: fultr.BiasEstimate, title: str) -> None:
    """Print a curve as a table by position, its summary, and what to know of it."""
    columns = ("position", "value", "low", "high", "raw", "impressions", "clicks", "comparisons")
    numbers = zip(
        *(
            estimate.values,
            estimate.low,
            estimate.high,
            estimate.raw,
            estimate.impressions,
            estimate.clicks,
            estimate.pairs,
        ),
        strict=True,
    )
    rows = [
        (f"{position}", *map(_number, row[:4]), *(f"{count:,}" for count in row[4:]))
        for position, row in enumerate(numbers, start=1)
    ]
    print_table(console, f"{title} ({estimate.level:.0%} intervals, each by itself)", columns, rows)
    interval = "" if math.isnan(estimate.eta_low) else f" ({estimate.eta_low:.3f} to {estimate.eta_high:.3f})"
    facts = [
        ("eta", f"{estimate.eta:.3f}{interval}, of the power law v_k = (1/k)^eta that fits best"),
        ("model", _test(estimate.fit, "the clicks do not follow the position-based model")),
        ("power law", _test(estimate.power_fit, "the curve is no power law")),
        ("shape", SHAPES[estimate.shape]),
        ("beyond", _beyond(estimate)),
    ]
    console.print()
    print_facts(console, "Summary", facts)
    for note in estimate.notes:
        console.print(f"  {in_options(note)}")


def print_comparison(console: Console, comparison: fultr.BiasComparison, chosen: str) -> None:
    """Print what all methods say, position by position, and where they cannot all be right.

    What there is to know of the method that was chosen has been said before.
    """
    methods = list(comparison.estimates)
    rows = [
        (
            f"{row['position']}",
            *(_with_interval(row[method]) for method in methods),
            "yes" if row["disagree"] else "",
        )
        for row in comparison.table()
    ]
    print_table(console, "Methods compared", ("position", *methods, "disagree"), rows)
    for position, one, other in comparison.disagreements:
        console.print(f"  At position {position} the intervals of {one} and {other} do not meet.")
    if len(methods) < 2:
        console.print("  There is nothing to compare it with.")
    elif not comparison.disagreements:
        console.print("  Wherever two methods have an interval, these meet.")
    for method, estimate in comparison.estimates.items():
        for note in estimate.notes if method != chosen else ():
            console.print(f"  {method}: {in_options(note)}")
    for method, reason in without_estimate(comparison).items():
        console.print(f"  {method} is left out: {reason}")


def without_estimate(comparison: fultr.BiasComparison) -> dict[str, str]:
    """Return why methods are not part of a comparison."""
    return {
        method: in_options(comparison.refused.get(method, UNSUPPORTED[method]))
        for method in fultr.clicks.METHODS
        if method not in comparison.estimates
    }


def comparison_content(comparison: fultr.BiasComparison) -> dict[str, Any]:
    """Return a comparison as plain values for JSON."""
    table = [
        {name: _known(cell) if isinstance(cell, dict) else cell for name, cell in row.items()}
        for row in comparison.table()
    ]
    return {
        "table": table,
        "disagreements": [
            {"position": position, "methods": [one, other]}
            for position, one, other in comparison.disagreements
        ],
        "notes": {method: list(estimate.notes) for method, estimate in comparison.estimates.items()},
        "left_out": without_estimate(comparison),
    }


def _known(cell: dict[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in cell.items()}


def _with_interval(cell: dict[str, float] | None) -> str:
    if cell is None:
        return "-"
    interval = "" if math.isnan(cell["low"]) else f" ({cell['low']:.3f} to {cell['high']:.3f})"
    return f"{cell['value']:.3f}{interval}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _test(fit: fultr.clicks.GoodnessOfFit | None, warning: str) -> str:
    if fit is None:
        return "not tested: nothing is left to test it by"
    tested = f"p = {fit.p_value:.3g} (chi-square {fit.statistic:.3g}, {fit.degrees_of_freedom:.3g} degrees)"
    return tested + (f": {warning}" if fit.p_value < SMALL_P else "")


def _beyond(estimate: fultr.BiasEstimate) -> str:
    bias = estimate.to_position_bias()
    last = len(bias.values)
    if bias.beyond == "error":
        return (
            f"unknown after position {last}, and longer lists are refused; --tail power continues the curve,"
            " --tail zero says that nothing is looked at there"
        )
    filled = [position for position in estimate.insufficient if position < last]
    gaps = f", and at {fultr.clicks.position_ranges(filled)}" if filled else ""
    if bias.beyond == "zero":
        law = f"; positions without data follow the fitted power law{gaps.removeprefix(', and')}"
        return f"nothing is looked at after position {last}, as asked for{law if gaps else ''}"
    law = f"the power law {estimate.power_law().level:.3g} k^-{bias.beyond:.3g}"
    return (
        f"{law} after position {last}{gaps}: it is fitted to all positions by their precision,"
        " imprecise ones are moved to it, and no data stand behind it there"
    )
