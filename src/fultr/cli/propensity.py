"""`fultr propensity`: position bias from a click log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import numpy as np
import typer
from numpy.typing import NDArray

from fultr.cli.files import refuse_counts
from fultr.cli.options import Column, Items, Json, Seed, renamed_columns
from fultr.cli.output import print_facts, print_json, progress, results, say
from fultr.cli.propensity_options import (
    By,
    Compare,
    MethodName,
    MethodOption,
    Out,
    Plot,
    Randomised,
    RankerColumn,
    RelevanceName,
    RelevanceOption,
    SwapColumn,
    SwappedColumn,
    Tail,
    TailOption,
)
from fultr.cli.propensity_tables import (
    UNSUPPORTED,
    comparison_content,
    in_options,
    print_comparison,
    print_estimate,
)
from fultr.clicks import (
    BiasComparison,
    BiasEstimate,
    compare_biases,
    estimate_bias,
    supported_methods,
    write_bias,
)
from fultr.clicks.bias_estimate import Method
from fultr.data import ClickLog, read_log
from fultr.data.columns import flags, require_columns
from fultr.data.impression_columns import (
    ImpressionColumn,
    labels,
    read_impression_columns,
    whole_numbers,
)
from fultr.data.log_metadata import LogMetadata
from fultr.data.table_files import open_table
from fultr.errors import InputError
from fultr.evaluation.bootstrap import checked_level
from fultr.files import atomic_write, writable_file
from fultr.plots import FORMATS, draw_bias

SWAP_RANK, SWAPPED, RANKER, CONTEXT = "swap_rank", "swapped", "ranker", "context"
"""What is told of each impression; the first three are also the names that its columns are known by."""

MOST_CONTEXTS = 50
"""More values than these are no context that a curve could be estimated for, but something like an id."""

WITHOUT_VARIATION = (
    "vary the positions, or ask for --method em --relevance features, whose assumptions then decide"
)


@dataclass(frozen=True)
class _Asked:
    """What the command is to do with what columns."""

    file: Path
    method: Method | None
    compare: bool
    swap: str | None
    swapped: str | None
    ranker: str | None
    by: str | None
    options: dict[str, Any]

    def found_in(self, names: list[str]) -> _Asked:
        """Return the same with columns that are there and called as we call them; what is not needed goes."""
        swap, swapped, ranker = self.swap, self.swapped, self.ranker
        require_columns(names, [name for name in (swap, swapped, ranker, self.by) if name], self.file)
        if self.compare or self.method in (None, "swap"):
            swap = swap or (SWAP_RANK if SWAP_RANK in names else None)
            if swapped is not None and swap is None:
                raise InputError("--swapped-column needs --swap-column beside it", file=self.file)
            swapped = swapped or (SWAPPED if swap and SWAPPED in names else None)
        else:
            swap = swapped = None
        if self.compare or self.method == "harvest" or (self.method is None and swap is None):
            by_name = RANKER in names and not self.options["randomised"]
            ranker = ranker or (RANKER if by_name else None)
        else:
            ranker = None
        return replace(self, swap=swap, swapped=swapped, ranker=ranker)


@dataclass(frozen=True, eq=False)
class _Logged:
    """A log, and what its table says of each impression."""

    log: ClickLog
    inputs: dict[str, Any]
    context: NDArray[Any] | None

    def parts(self) -> Iterator[tuple[str | None, ClickLog, dict[str, Any]]]:
        """Yield the value of each context, its impressions and what is told of them; or all of the log."""
        if self.context is None:
            yield None, self.log, self.inputs
            return
        for value in np.unique(self.context):
            chosen = np.flatnonzero(self.context == value)
            own = {name: values[chosen] for name, values in self.inputs.items()}
            yield str(value), self.log[chosen], own


@dataclass(frozen=True)
class _Curve:
    """An estimate, what other methods say, and the file that it goes to."""

    estimate: BiasEstimate
    comparison: BiasComparison | None
    file: Path | None

    @property
    def title(self) -> str:
        context = self.estimate.context
        return "Examination by position" if context is None else f"Examination with {context[0]} {context[1]}"


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
    tail: TailOption = None,
    relevance: RelevanceOption = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    least_clicks: Annotated[int, typer.Option(min=1, help="Clicks that a position needs.")] = 10,
    longest: Annotated[int, typer.Option(min=2, help="Leave out positions beyond this one.")] = 50,
    items: Items = None,
    column: Column = None,
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
    checked_level(level)
    pictures = _pictures(plot, out, compare)
    asked = _Asked(
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
            "randomised": randomised,
            "relevance": None if relevance is None else relevance.value,
        },
    ).found_in(open_table(log).schema.names)
    logged = _read(asked, items, renamed_columns(column))
    chosen = _choose(asked, logged)
    curves, refused = _estimated(asked, logged, chosen[0], tail, out)
    files = _write(curves, pictures, tail)
    if json:
        print_json(_content(asked, chosen, curves, refused, tail, files))
    else:
        _print(asked, logged, chosen, curves, refused, tail)
    if files:
        say("wrote " + ", ".join(str(file) for file in files))


def _pictures(plot: list[Path] | None, out: Path | None, compare: bool) -> list[Path]:
    """Return the pictures to draw, after checking all names that are to be written."""
    if out is not None and writable_file(out).suffix.lower() != ".json":
        raise InputError("a position bias is a .json file; name it so", file=out)
    if plot is None and compare and out is not None:
        if find_spec("matplotlib") is None:
            say("fultr: no picture is drawn: that needs matplotlib (pip install 'fultr[plots]')")
            return []
        return [writable_file(out.with_suffix(".png"))]
    for picture in plot or []:
        if writable_file(picture).suffix.lower() not in FORMATS:
            raise InputError(f"a picture ends in one of {', '.join(FORMATS)}", file=picture)
    return plot or []


def _method_of(method: MethodName | None, relevance: RelevanceName | None, compare: bool) -> Method | None:
    if relevance is not None and not compare:
        if method not in (None, MethodName.EM):
            raise InputError("--relevance is for --method em", value=method.value)
        return "em"
    return None if method is None else method.value


def _read(asked: _Asked, items: Path | None, renamed: dict[str, str]) -> _Logged:
    """Read the log without features, unless they are needed, and the columns about impressions."""
    refuse_counts(asked.file, renamed)
    invented = LogMetadata.from_dict(open_table(asked.file).metadata, asked.file).invented
    regression = asked.options["relevance"] == RelevanceName.FEATURES
    # where documents have no ids of their own, their features tell them apart
    features: list[str] | None = None if regression or "doc_id" in invented else []
    with progress("reading") as report:
        log = read_log(asked.file, items=items, columns=renamed, features=features, progress=report)
    if regression and not log.data.features.shape[1]:
        problem = "has no features for --relevance features; name the table of documents with --items"
        raise InputError(problem, file=asked.file)
    deepest = max(int(log.position.max(initial=0)), int(log.planted.position.max(initial=0)))
    rule = (
        f"must be a position that the log shows, 1 to {deepest}: the one drawn to be exchanged with the"
        " first, 1 where nothing was to be exchanged; or 0 outside the experiment"
    )
    wanted = {
        name: ImpressionColumn(of, check)
        for name, of, check in (
            (SWAP_RANK, asked.swap, whole_numbers(0, deepest, rule)),
            (SWAPPED, asked.swapped, flags),
            (RANKER, asked.ranker, labels),
            (CONTEXT, asked.by, labels),
        )
        if of is not None
    }
    if not wanted:
        return _Logged(log, {}, None)
    impression_id = renamed.get("impression_id", "impression_id")
    with progress("reading columns") as report:
        told = read_impression_columns(asked.file, wanted, impression_id=impression_id, progress=report)
    context = told.pop(CONTEXT, None)
    if context is not None and (values := np.unique(context).size) > MOST_CONTEXTS:
        problem = f"has {values:,} values, and a curve for each is too many; at most {MOST_CONTEXTS} will do"
        raise InputError(problem, file=asked.file, column=asked.by)
    if SWAPPED in told and told[SWAPPED][told[SWAP_RANK] > 1].all():
        # all exchanges that were drawn were made, and what was drawn to stay is the control
        del told[SWAPPED]
    return _Logged(log, told, context)


def _choose(asked: _Asked, logged: _Logged) -> tuple[Method, str]:
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
        supported = supported_methods(logged.log, ranker=logged.inputs.get(RANKER))
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


def _others(logged: _Logged, method: Method) -> str:
    """Say what other methods the log supports, or what else could be done."""
    told = {name: logged.inputs.get(name) for name in (SWAP_RANK, RANKER)}
    try:
        others = [name for name in supported_methods(logged.log, **told) if name != method]
    except InputError:
        return ""
    if others:
        return f"; the log supports {' and '.join(others)} (--method)"
    return f"; {WITHOUT_VARIATION}" if method == "harvest" else ""


def _estimated(
    asked: _Asked, logged: _Logged, method: Method, tail: Tail | None, out: Path | None
) -> tuple[list[_Curve], dict[str, str]]:
    """Return the curve of the log, or of each context, and why a context has none."""
    curves: list[_Curve] = []
    refused: dict[str, str] = {}
    total = 1 if logged.context is None else np.unique(logged.context).size
    with progress("estimating") as report:
        for number, (value, log, told) in enumerate(logged.parts(), start=1):
            try:
                found, comparison = _of_part(asked, log, told, method, tail)
            except InputError as error:
                problem = in_options(error.problem)
                if value is None:
                    # with too few clicks for one method, there are too few for the others
                    problem += _others(logged, method) if error.column != "click" else ""
                    raise InputError(problem, file=asked.file, column=error.column) from None
                refused[value] = problem
            else:
                context = None if value is None else (str(asked.by), value)
                file = out if value is None or out is None else _file_of(out, value)
                curves.append(_Curve(replace(found, context=context), comparison, file))
            report(number, total)
    if not curves:
        value, problem = next(iter(refused.items()))
        problem = f"no value of it has a curve; for the first of them, {problem}"
        raise InputError(problem, file=asked.file, column=asked.by, value=value)
    return curves, refused


def _of_part(
    asked: _Asked, log: ClickLog, told: dict[str, Any], method: Method, tail: Tail | None
) -> tuple[BiasEstimate, BiasComparison | None]:
    given: Any = {**told, **{name: value for name, value in asked.options.items() if value is not None}}
    comparison = compare_biases(log, **given) if asked.compare else None
    found = None if comparison is None else comparison.estimates.get(method)
    if found is None:
        found = estimate_bias(log, method, **given)
    found.to_position_bias(_tail(tail))  # an examination that rises has no such tail
    return found, comparison


def _tail(tail: Tail | None) -> Any:
    return None if tail is None else tail.value


def _file_of(out: Path, value: str) -> Path:
    """Return the file of a context: its value in the name, with what no file should be named by encoded."""
    name = re.sub(r"[^\w.-]", lambda found: quote(found[0], safe=""), value)
    return out.with_name(f"{out.stem}.{name}{out.suffix}")


def _write(curves: list[_Curve], pictures: list[Path], tail: Tail | None) -> list[Path]:
    """Write all files, or none if one of them cannot be written; return them."""
    files = []
    with ExitStack() as all_or_none:
        for curve in curves:
            if curve.file is not None:
                temporary = all_or_none.enter_context(atomic_write(curve.file))
                write_bias(curve.estimate, temporary, tail=_tail(tail))
                files.append(curve.file)
        panels, disputed = _panels(curves)
        files += [draw_bias(panels, picture, disputed) for picture in pictures]
    return files


def _panels(curves: list[_Curve]) -> tuple[dict[str, dict[str, BiasEstimate]], dict[str, set[int]]]:
    """Return what to draw: methods beside one another for each context, or contexts in one picture."""
    panels: dict[str, dict[str, BiasEstimate]] = {}
    disputed: dict[str, set[int]] = {}
    for curve in curves:
        found, comparison = curve.estimate, curve.comparison
        if comparison is not None:
            panels[curve.title] = {found.method: found, **comparison.estimates}
            disputed[curve.title] = {position for position, _, _ in comparison.disagreements}
        else:
            name = found.method if found.context is None else " ".join(found.context)
            panels.setdefault("Examination by position", {})[name] = found
    return panels, disputed


def _content(
    asked: _Asked,
    method_and_why: tuple[Method, str],
    curves: list[_Curve],
    refused: dict[str, str],
    tail: Tail | None,
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
                **curve.estimate.to_dict(_tail(tail)),
                "file": None if curve.file is None else str(curve.file),
                "comparison": None if curve.comparison is None else comparison_content(curve.comparison),
            }
            for curve in curves
        ],
        "refused": refused,
        "files": [str(file) for file in files],
    }


def _print(
    asked: _Asked,
    logged: _Logged,
    method_and_why: tuple[Method, str],
    curves: list[_Curve],
    refused: dict[str, str],
    tail: Tail | None,
) -> None:
    console = results()
    method, why = method_and_why
    facts = [
        (
            "log",
            f"{asked.file}: {len(logged.log):,} impressions, {np.count_nonzero(logged.log.click):,} clicks",
        ),
        ("method", f"{method}: {why}"),
        ("scale", "relative to position 1, v_1 = 1: clicks tell no more than that"),
    ]
    print_facts(console, "Position bias", facts)
    for curve in curves:
        console.print()
        print_estimate(console, curve.estimate, curve.title, _tail(tail))
        if curve.comparison is not None:
            console.print()
            print_comparison(console, curve.comparison, curve.estimate.method)
    for value, reason in refused.items():
        console.print()
        console.print(f"{asked.by} {value} has no curve: {reason}")
