"""`fultr propensity`: position bias from a click log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import fultr
import fultr.clicks
import fultr.evaluation
import fultr.logs
from fultr.cli.options import NOTHING_SAID, Json, LogReading, Seed, reads_log
from fultr.cli.output import print_facts, print_json, progress, results, say
from fultr.cli.propensity_inputs import CONTEXT, RANKER, SWAP_RANK, SWAPPED, Asked, Logged, read_asked
from fultr.cli.propensity_options import (
    By,
    Compare,
    MethodName,
    MethodOption,
    Out,
    PageDepth,
    Plot,
    Randomised,
    RankerColumn,
    RelevanceName,
    RelevanceOption,
    ShapeName,
    ShapeOption,
    SwapColumn,
    SwappedColumn,
    TailOption,
)
from fultr.cli.propensity_tables import (
    UNSUPPORTED,
    comparison_content,
    in_options,
    print_comparison,
    print_estimate,
)
from fultr.errors import InputError
from fultr.files import writable_file, written_together
from fultr.plots import FORMATS, draw_bias

WITHOUT_VARIATION = (
    "vary the positions, or ask for --method em --relevance features, whose assumptions then decide"
)


@dataclass(frozen=True)
class _Curve:
    """An estimate, and what other methods say."""

    estimate: fultr.BiasEstimate
    comparison: fultr.BiasComparison | None

    @property
    def title(self) -> str:
        context = self.estimate.context
        return "Examination by position" if context is None else f"Examination with {context[0]} {context[1]}"


@reads_log
def propensity(
    log: Annotated[Path, typer.Argument(help="The click log, a .parquet or .csv table.")],
    method: MethodOption = None,
    out: Out = None,
    compare: Compare = False,
    plot: Plot = None,
    by: By = None,
    swap_column: SwapColumn = None,
    swapped_column: SwappedColumn = None,
    ranker_column: RankerColumn = None,
    randomised: Randomised = False,
    shape: ShapeOption = ShapeName.MONOTONE,
    tail: TailOption = None,
    depth: PageDepth = None,
    relevance: RelevanceOption = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    least_clicks: Annotated[int, typer.Option(min=1, help="Clicks that a position needs.")] = 10,
    longest: Annotated[int, typer.Option(min=2, help="Leave out positions beyond this one.")] = 50,
    reading: LogReading = NOTHING_SAID,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Estimate the position bias, how likely each position is looked at, from a click log.

    Clicks tell examination only relative to the first position: v_1 = 1. Three methods: swap needs
    positions exchanged at random, harvest documents that rankers or chance put at several positions, em
    documents at several positions for whatever reason. Columns about an impression must be the same in all
    its rows.

    \b
    Example:
      fultr propensity clicks.parquet --method swap --swap-column swap_rank --out bias.json
      fultr propensity clicks.parquet --compare --out bias.json
      fultr propensity clicks.parquet --by device --out bias.json
      fultr train clicks.parquet --bias bias.json --max-disparity 0.1 --out run
    """
    fultr.evaluation.checked_level(level)
    if depth is not None and tail is not None:
        raise InputError("give --depth or --tail, not both")
    pictures = _pictures(plot, out, compare)
    asked = Asked(
        file=log,
        method=_method_of(method, relevance, compare),
        compare=compare,
        swap=swap_column,
        swapped=swapped_column,
        ranker=ranker_column,
        by=by,
        options={
            "level": level,
            "least_clicks": least_clicks,
            "longest": longest,
            "seed": seed,
            "shape": shape.value,
            "randomised": randomised,
            "relevance": None if relevance is None else relevance.value,
        },
        tail=None if tail is None else tail.value,
        depth=depth,
    ).found_in(fultr.logs.first_table(log).schema.names)
    logged = read_asked(asked, reading)
    chosen = _choose(asked, logged)
    curves, refused = _estimated(asked, logged, chosen[0])
    files = _write(asked, curves, out, pictures)
    if json:
        print_json(_content(asked, chosen, curves, refused, files))
    else:
        _print(asked, logged, chosen, curves, refused)
    if files:
        say("wrote " + ", ".join(str(file) for file in files))
    if out is not None and refused:
        problem = (
            f"has no curve for {by} {', '.join(refused)}, and logs with such impressions are refused with it"
        )
        say(f"fultr: warning: {out} {problem}")


def _pictures(plot: list[Path] | None, out: Path | None, compare: bool) -> list[Path]:
    """Return the pictures to draw, after checking all names that are to be written."""
    if out is not None and writable_file(out).suffix.lower() != ".json":
        raise InputError("a position bias is a .json file; name it so", file=out)
    if plot is None and compare and out is not None:
        return [writable_file(out.with_suffix(".png"))]
    for picture in plot or []:
        if writable_file(picture).suffix.lower() not in FORMATS:
            raise InputError(f"a picture ends in one of {', '.join(FORMATS)}", file=picture)
    return plot or []


def _method_of(
    method: MethodName | None, relevance: RelevanceName | None, compare: bool
) -> fultr.clicks.Method | None:
    if relevance is not None and not compare:
        if method not in (None, MethodName.EM):
            raise InputError("--relevance is for --method em", value=method.value)
        return "em"
    return None if method is None else method.value


def _choose(asked: Asked, logged: Logged) -> tuple[fultr.clicks.Method, str]:
    """Return the method asked for, or the one that rests on least, and why it is that."""
    no_swaps = UNSUPPORTED["swap"]
    if asked.method == "swap" and asked.swap is None:
        problem = (
            "--method swap needs the position exchanged with the first for each impression; name its column"
            f" with --swap-column{_others(logged, 'swap')}"
        )
        raise InputError(problem, file=asked.file, column=SWAP_RANK)
    if asked.method is not None:
        return asked.method, "as asked for"
    if asked.swap is not None:
        return "swap", f"column '{asked.swap}' tells what was exchanged"
    try:
        supported = fultr.clicks.supported_methods(logged.log, ranker=logged.inputs.get(RANKER))
    except InputError as error:
        raise error.located(asked.file) from None
    rankers = "" if asked.ranker is None else f" by different rankers (column '{asked.ranker}')"
    if "harvest" in supported:
        return "harvest", f"{no_swaps}, but documents were shown at several positions{rankers}"
    if "em" in supported:
        return "em", f"{no_swaps}, and no document was shown at several positions{rankers}"
    problem = (
        f"the log supports no method: {no_swaps} (--swap-column), and no document was shown at position 1"
        f" and another; {WITHOUT_VARIATION}"
    )
    raise InputError(problem, file=asked.file)


def _others(logged: Logged, method: fultr.clicks.Method) -> str:
    """Say what other methods the log supports, or what else could be done."""
    experiment = {name: logged.inputs.get(name) for name in (SWAP_RANK, RANKER)}
    try:
        others = [name for name in fultr.clicks.supported_methods(logged.log, **experiment) if name != method]
    except InputError:
        return ""
    if others:
        return f"; the log supports {' and '.join(others)} (--method)"
    return f"; {WITHOUT_VARIATION}" if method == "harvest" else ""


def _estimated(
    asked: Asked, logged: Logged, method: fultr.clicks.Method
) -> tuple[list[_Curve], dict[str, str]]:
    """Return the curve of the log, or of each context, and why a context has none."""
    curves: list[_Curve] = []
    refused: dict[str, str] = {}
    total = logged.contexts
    with progress("estimating") as report:
        for number, (value, log, experiment) in enumerate(logged.parts(), start=1):
            try:
                estimate, comparison = _of_part(asked, log, experiment, method)
            except InputError as error:
                problem = in_options(error.problem)
                if value is None:
                    # with too few clicks for one method, there are too few for the others
                    problem += _others(logged, method) if error.column != "click" else ""
                    raise InputError(problem, file=asked.file, column=error.column) from None
                refused[value] = problem
            else:
                context = None if value is None else (str(asked.by), value)
                curves.append(_Curve(replace(estimate, context=context), comparison))
            report(number, total)
    if not curves:
        value, problem = next(iter(refused.items()))
        problem = f"no value of it has a curve; for the first of them, {problem}"
        raise InputError(problem, file=asked.file, column=asked.by, value=value)
    return curves, refused


def _of_part(
    asked: Asked, log: fultr.ClickLog | fultr.Counts, experiment: dict[str, Any], method: fultr.clicks.Method
) -> tuple[fultr.BiasEstimate, fultr.BiasComparison | None]:
    given: Any = {**experiment, **{name: value for name, value in asked.options.items() if value is not None}}
    comparison = fultr.compare_biases(log, **given) if asked.compare else None
    estimate = None if comparison is None else comparison.estimates.get(method)
    if estimate is None:
        estimate = fultr.estimate_bias(log, method, **given)
    if asked.depth is not None:
        estimate = estimate.on_page(asked.depth)
    elif asked.tail is not None:
        estimate = estimate.with_tail(asked.tail)
    estimate.to_position_bias()  # an examination that rises has no power law as its tail
    return estimate, comparison


def _write(asked: Asked, curves: list[_Curve], out: Path | None, pictures: list[Path]) -> list[Path]:
    """Write all files, or none if one of them cannot be written; return them."""
    files = []
    with written_together():
        if out is not None:
            by_value = {
                curve.estimate.context[1]: curve.estimate for curve in curves if curve.estimate.context
            }
            fultr.write_bias(curves[0].estimate if asked.by is None else by_value, out)
            files.append(out)
        panels, disputed = _panels(curves)
        files += [draw_bias(panels, picture, disputed) for picture in pictures]
    return files


def _panels(curves: list[_Curve]) -> tuple[dict[str, dict[str, fultr.BiasEstimate]], dict[str, set[int]]]:
    """Return what to draw: methods beside one another for each context, or contexts in one picture."""
    panels: dict[str, dict[str, fultr.BiasEstimate]] = {}
    disputed: dict[str, set[int]] = {}
    for curve in curves:
        estimate, comparison = curve.estimate, curve.comparison
        if comparison is not None:
            panels[curve.title] = {estimate.method: estimate, **comparison.estimates}
            disputed[curve.title] = {position for position, _, _ in comparison.disagreements}
        else:
            name = estimate.method if estimate.context is None else " ".join(estimate.context)
            panels.setdefault("Examination by position", {})[name] = estimate
    return panels, disputed


def _content(
    asked: Asked,
    method_and_why: tuple[fultr.clicks.Method, str],
    curves: list[_Curve],
    refused: dict[str, str],
    files: list[Path],
) -> dict[str, Any]:
    method, why = method_and_why
    columns = {SWAP_RANK: asked.swap, SWAPPED: asked.swapped, RANKER: asked.ranker, CONTEXT: asked.by}
    return {
        "log": str(asked.file),
        "method": method,
        "why": why,
        "columns": {name: column for name, column in columns.items() if column is not None},
        "estimates": [
            {
                **curve.estimate.to_dict(),
                "comparison": None if curve.comparison is None else comparison_content(curve.comparison),
            }
            for curve in curves
        ],
        "refused": refused,
        "files": [str(file) for file in files],
    }


def _print(
    asked: Asked,
    logged: Logged,
    method_and_why: tuple[fultr.clicks.Method, str],
    curves: list[_Curve],
    refused: dict[str, str],
) -> None:
    console, summary = results(), logged.log.describe()
    method, why = method_and_why
    facts = [
        (
            "log",
            f"{asked.file}: {summary['impressions']:,} impressions, {summary['clicks']:,} clicks",
        ),
        ("method", f"{method}: {why}"),
        ("scale", "relative to position 1, v_1 = 1: clicks tell no more than that"),
    ]
    print_facts(console, "Position bias", facts)
    for curve in curves:
        console.print()
        print_estimate(console, curve.estimate, curve.title)
        if curve.comparison is not None:
            console.print()
            print_comparison(console, curve.comparison, curve.estimate.method)
    for value, reason in refused.items():
        console.print()
        console.print(f"{asked.by} {value} has no curve: {reason}")
    if asked.by is not None:
        console.print()
        console.print(
            f"--out writes one file with all curves. With it as --bias, each click is weighed by the curve of"
            f" its {asked.by}, and exposure is that of the average user, by the mean of the curves."
        )
