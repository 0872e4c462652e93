"""`fultr audit`: how fair logged rankings and candidate policies are, from clicks alone."""

from __future__ import annotations

import json as json_text
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray
from rich.console import Console

from fultr.audit import Audit, Difference, Estimate, RankingAudit, write_audit
from fultr.audit import audit as audit_of
from fultr.cli.files import NO_CLICK_LOG, read_any
from fultr.cli.options import BiasFile, Column, Eta, Items, Json, Seed, position_bias, renamed_columns
from fultr.cli.output import print_facts, print_findings, print_json, print_table, progress, results, say
from fultr.cli.rank import POLICY_FILE, Deterministic, load_policy
from fultr.cli.training_options import (
    EpsMinus,
    EpsPlus,
    click_noise,
    in_names_of_options,
    refuse_unknown_examination,
)
from fultr.click_model import PositionBias
from fultr.clicks import BiasEstimate, read_bias
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.evaluation.bootstrap import checked_level
from fultr.policy.ranking_files import with_features
from fultr.training import FairRanker

FAILED = 3
"""The exit code if the limit is not kept."""

MOST_PAIRS = 10
"""Pairs of groups that are printed for a ranking, the worst first; all are in audit_pairs.csv."""

CURVE_VALUES = 5
"""Of a position bias, so many positions are printed; all are in audit.json."""

BIAS_SOURCES = {
    "given": "given",
    "estimate": "estimated, with intervals",
    "log": "of the log",
    "propensities": "that the propensities of the log follow",
    "policies": "that the policies were trained with",
}


def audit(
    log: Annotated[
        Path, typer.Argument(help="A click log, or counts of one, of queries that no policy saw.")
    ],
    policy: Annotated[
        list[Path] | None,
        typer.Option(help=f"A candidate: a saved policy, or a run's folder with {POLICY_FILE}. Repeatable."),
    ] = None,
    max_disparity: Annotated[
        float | None,
        typer.Option(min=0.0, help="The limit: exit code 3 unless the upper confidence bound keeps it."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for audit.json, tables and a picture.")] = None,
    eta: Eta = None,
    bias: BiasFile = None,
    eps_plus: EpsPlus = None,
    eps_minus: EpsMinus = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    deterministic: Deterministic = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also on queries that a policy was trained on: not to rely on.")
    ] = False,
    items: Items = None,
    column: Column = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Measure from clicks how fair and how useful the logged ranking is, and candidate policies would be.

    For every group: exposure, merit and exposure for each unit of merit; for every pair of groups the
    disparity; with intervals, and under other position biases that are possible. With a limit the exit code
    is 0 if all candidates (without any: the logged ranking) pass, and 3 if not.

    \b
    Example:
      fultr audit clicks.parquet --eta 1
      fultr audit clicks.parquet --policy run --bias bias.json --max-disparity 0.1 --out audit
    """
    examined, renamed = _bias(eta, bias), renamed_columns(column)
    noise = click_noise(eps_plus, eps_minus)
    checked_level(level)
    _check_folder(out)
    rankers = {path: load_policy(path) for path in policy or []}
    content = read_any(log, items=items, columns=renamed)
    if content.counts is None:
        raise InputError(NO_CLICK_LOG, file=log)
    _refuse_missing_features(rankers, content.data, log)
    of_policies = [ranker.position_bias_ for ranker in rankers.values()]
    refuse_unknown_examination(examined, content.counts, log, *of_policies)
    with progress("auditing") as report, in_names_of_options(log):
        found = audit_of(
            content.counts,
            {str(path): _OnItsFeatures(ranker, log) for path, ranker in rankers.items()},
            position_bias=examined,
            noise=noise,
            max_disparity=max_disparity,
            level=level,
            seed=seed,
            force=force,
            stochastic=False if deterministic else None,
            progress=report,
        )
    written = [] if out is None else write_audit(found, out)
    if json:
        print_json({"log": str(log), **found.to_dict(), "written": [str(path) for path in written]})
    else:
        print_audit(results(), found, str(log))
    if written:
        say("wrote " + ", ".join(str(path) for path in written))
    if found.passes is False:
        raise typer.Exit(FAILED)


class _OnItsFeatures:
    """A policy that takes the features it knows from whatever features there are."""

    def __init__(self, ranker: FairRanker, file: Path) -> None:
        self.ranker = ranker
        self.file = file
        self.stochastic = ranker.stochastic
        self.training_queries_ = ranker.training_queries_
        self.position_bias_ = ranker.position_bias_

    def predict(self, data: RankingDataset) -> NDArray[Any]:
        """Return the score of each row."""
        return self.ranker.predict(with_features(data, _names(self.ranker), self.file))


def _names(ranker: FairRanker) -> list[str]:
    return [str(name) for name in ranker.feature_names_in_]


def _refuse_missing_features(rankers: dict[Path, FairRanker], data: RankingDataset, file: Path) -> None:
    """Say which feature is missing before the work."""
    one = data[:1]
    for ranker in rankers.values():
        with_features(one, _names(ranker), file)


def _bias(eta: float | None, file: Path | None) -> PositionBias | BiasEstimate | None:
    """Return the position bias asked for: with its intervals, if the file has them."""
    curve = position_bias(eta, file)
    if file is None or "positions" not in json_text.loads(file.read_text(encoding="utf-8")):
        return curve
    return read_bias(file)


def _check_folder(out: Path | None) -> None:
    """Say before the work if a folder cannot be written to."""
    if out is None:
        return
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError("is a file, not a folder", file=there)
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError("cannot be written to: permission denied", file=there)


def print_audit(console: Console, found: Audit, source: str) -> None:
    """Print an audit as tables: all rankings, then each of them by group and by pair of groups."""
    print_facts(console, f"Audit of {source}", _facts(found))
    console.print()
    level = f"{found.level:.0%}"
    columns = ("ranking", "utility", level, "more than logged", "disparity", level, "verdict")
    rows = [_overview(one) for one in found.rankings.values()]
    print_table(console, "Rankings", columns, rows)
    for ranking in found.rankings.values():
        if ranking.groups:
            console.print()
            _print_groups(console, ranking, level)
        if ranking.pairs:
            console.print()
            _print_pairs(console, ranking, level)
    if found.other_biases:
        console.print()
        _print_other_biases(console, found)
    severe = [dict(one) for one in found.findings if one["severity"] == "severe"]
    notes = [{"severity": "note", "sentence": _sentence(note)} for note in found.notes]
    warnings = sum(one["severity"] == "warning" for one in found.findings)
    if warnings:
        notes.append({"severity": "note", "sentence": f"Warnings on the log: {warnings}; see fultr inspect."})
    if severe or notes:
        console.print()
        print_findings(console, [*severe, *notes])


def _facts(found: Audit) -> list[tuple[str, str]]:
    size = f"{found.impressions:,} impressions of {found.lists:,} lists, {found.queries:,} queries"
    facts = [
        ("size", f"{size}, {found.clicks:,} clicks"),
        ("position bias", f"{_curve(found.position_bias)}, {BIAS_SOURCES[found.bias_source]}"),
    ]
    if found.noise is not None:
        known = f"eps_plus {found.noise.eps_plus:g}, eps_minus {found.noise.eps_minus:g}"
        facts.append(("noise taken off", known))
    if found.max_disparity is not None:
        limit = f"{found.max_disparity:g} for the upper end of the disparity's interval"
        facts.append(("limit", limit))
    return facts


def _curve(bias: PositionBias) -> str:
    """Describe a position bias by the power it is of, or by its first values."""
    if len(bias.values) == 1:
        return repr(bias)
    first = ", ".join(f"{value:.3g}" for value in bias.values[:CURVE_VALUES])
    return f"{first}{', ...' if len(bias.values) > CURVE_VALUES else ''}"


def _overview(ranking: RankingAudit) -> tuple[str, ...]:
    more = "-" if ranking.difference is None else _with_interval(ranking.difference.utility)
    return (
        ranking.name,
        _number(ranking.utility.value),
        _interval(ranking.utility),
        more,
        _number(ranking.disparity.value),
        _interval(ranking.disparity),
        _verdict(ranking.passes),
    )


def _print_groups(console: Console, ranking: RankingAudit, level: str) -> None:
    columns = ("group", "items", "exposure", level, "merit", level, "exposure/merit", level)
    rows = []
    for group in ranking.groups:
        measures = (group.exposure, group.merit, group.exposure_per_merit)
        cells = [cell for one in measures for cell in (_number(one.value), _interval(one))]
        rows.append((group.name, f"{group.items:,}", *cells))
    print_table(console, f"By group: {ranking.name}", columns, rows)


def _print_pairs(console: Console, ranking: RankingAudit, level: str) -> None:
    order = sorted(range(len(ranking.pairs)), key=lambda at: -abs(ranking.pairs[at].disparity.value))
    rows = [_pair(ranking, at, ranking.difference) for at in order[:MOST_PAIRS]]
    left = f", the worst {MOST_PAIRS} of {len(order)}" if len(order) > MOST_PAIRS else ""
    band = f"{level} of all at once"
    columns = ("groups", "D", level, band, "under other biases", "more than logged", "queries")
    print_table(console, f"By pair of groups: {ranking.name}{left}", columns, rows)


def _pair(ranking: RankingAudit, at: int, difference: Difference | None) -> tuple[str, ...]:
    pair = ranking.pairs[at]
    return (
        f"{pair.first}, {pair.second}",
        _number(pair.disparity.value),
        _interval(pair.disparity),
        _ends(*pair.band),
        _ends(*ranking.pair_ranges[at]),
        "-" if difference is None else _with_interval(difference.disparities[at]),
        f"{pair.queries:,}",
    )


def _print_other_biases(console: Console, found: Audit) -> None:
    limited = found.max_disparity is not None
    rows = [
        (one.name, _ends(*one.disparity_range), _ends(*one.upper_range), *([_moves(one)] * limited))
        for one in found.rankings.values()
    ]
    columns = ("ranking", "disparity", "upper bound", *(["verdict"] * limited))
    print_table(console, f"If the position bias is off ({', '.join(found.other_biases)})", columns, rows)


def _moves(ranking: RankingAudit) -> str:
    if not ranking.verdict_depends_on_bias:
        return f"{_verdict(ranking.passes)} under all"
    failing = [one.bias for one in ranking.other_biases if one.passes is not ranking.passes]
    return f"{_verdict(not ranking.passes)} under: {'; '.join(failing)}"


def _verdict(passes: bool | None) -> str:
    return "-" if passes is None else "pass" if passes else "FAIL"


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def _with_interval(one: Estimate) -> str:
    return f"{_number(one.value)} {_interval(one)}"


def _interval(one: Estimate) -> str:
    return _ends(one.low, one.high)


def _ends(*ends: float) -> str:
    return f"[{', '.join(map(_number, ends))}]"


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.4g}"
