"""`fultr audit`: how fair logged rankings and candidate policies are, from clicks alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import fultr
import fultr.audits
import fultr.clicks
import fultr.evaluation
from fultr.cli.files import NO_CLICK_LOG, PolicyFeatures, read_any
from fultr.cli.modes import warn_of_modes
from fultr.cli.options import (
    NOTHING_SAID,
    BiasFile,
    CompleteLists,
    Depth,
    Eta,
    Json,
    LogReading,
    Seed,
    ShownOnly,
    any_bias,
    reads_log,
)
from fultr.cli.output import print_facts, print_findings, print_json, print_table, progress, results, say
from fultr.cli.policy_file import POLICY_FILE
from fultr.cli.rank import Deterministic, load_policy
from fultr.cli.training_options import (
    EpsMinus,
    EpsPlus,
    TopK,
    check_examination_known,
    click_noise,
    in_names_of_options,
)
from fultr.errors import InputError
from fultr.files import check_writable_folder

if TYPE_CHECKING:
    from rich.console import Console

FAILED = 3
"""The exit code if the limit is not kept."""

MOST_PAIRS = 10
"""Pairs of groups that are printed for a ranking, the worst first; more are in audit_pairs.csv."""

MOST_GROUPS = 20
"""Groups that are printed for a ranking, those furthest from their share first; all are in the table."""

CURVE_VALUES = 5
"""Of a position bias, so many positions are printed; all are in audit.json."""

BIAS_SOURCES = {
    "given": "given",
    "estimate": "estimated, with intervals",
    "log": "of the log",
    "propensities": "that the propensities of the log follow",
    "policies": "that the policies were trained with",
}


@reads_log
def audit(
    log: Annotated[
        Path, typer.Argument(help="A click log, or counts of one, that no policy was trained on.")
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
    depth: Depth = None,
    shown_only: ShownOnly = False,
    complete_lists: CompleteLists = False,
    top_k: TopK = None,
    eta: Eta = None,
    bias: BiasFile = None,
    eps_plus: EpsPlus = None,
    eps_minus: EpsMinus = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    deterministic: Deterministic = False,
    reading: LogReading = NOTHING_SAID,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Measure from clicks how fair and how useful the logged ranking is, and candidate policies would be.

    For every group: exposure, merit and exposure for each unit of merit; for every pair of groups the
    disparity; with intervals, and under other position biases that are possible. With a limit the exit code
    is 0 if all candidates (without any: the logged ranking) pass, and 3 if not.

    Impressions that a policy was trained on are refused. New clicks on queries of the training are not: a
    note says how many queries recur, and the result on new ones is given apart where there are enough.

    \b
    Example:
      fultr audit clicks.parquet --eta 1
      fultr audit clicks.parquet --policy run --bias bias.json --max-disparity 0.1 --out audit
    """
    examined = any_bias(eta, bias)
    noise = click_noise(eps_plus, eps_minus)
    fultr.evaluation.checked_level(level)
    if out is not None:
        check_writable_folder(out)
    rankers = {path: load_policy(path) for path in policy or []}
    features = PolicyFeatures.of(rankers.values())
    context = fultr.clicks.context_of(examined)
    content = read_any(
        log,
        reading,
        context=context,
        policy_features=features,
        shown_only=shown_only,
        complete_lists=complete_lists,
    )
    if content.counts is None:
        raise InputError(NO_CLICK_LOG, file=log)
    of_policies = [ranker.position_bias_ for ranker in rankers.values()]
    check_examination_known(examined, content.counts, log, *of_policies)
    with progress("auditing") as report, in_names_of_options(log):
        result = fultr.audits.audit(
            content.counts,
            {str(path): ranker for path, ranker in rankers.items()},
            position_bias=examined,
            noise=noise,
            max_disparity=max_disparity,
            level=level,
            seed=seed,
            stochastic=False if deterministic else None,
            top_k=top_k,
            depth=depth,
            progress=report,
        )
    if deterministic:
        for path, ranker in rankers.items():
            warn_of_modes(ranker, content.counts, result.position_bias, result.noise, str(path))
    written = [] if out is None else fultr.audits.write_audit(result, out)
    if json:
        print_json({"log": str(log), **result.to_dict(), "written": [str(path) for path in written]})
    else:
        print_audit(results(), result, str(log))
    if written:
        say("wrote " + ", ".join(str(path) for path in written))
    if result.passes is False:
        raise typer.Exit(FAILED)


def print_audit(console: Console, result: fultr.audits.Audit, source: str) -> None:
    """Print an audit as tables: all rankings, then each of them by group and by pair of groups."""
    print_facts(console, f"Audit of {source}", _facts(result))
    console.print()
    level = f"{result.level:.0%}"
    columns = (
        "ranking",
        "utility",
        level,
        "more than logged",
        "disparity",
        level,
        "exposure to move",
        level,
        "verdict",
    )
    rows = [_overview(one) for one in result.rankings.values()]
    print_table(console, "Rankings", columns, rows)
    new = [(one.name, one.new_queries) for one in result.rankings.values() if one.new_queries is not None]
    if new:
        console.print()
        rows = [_new_overview(name, one) for name, one in new]
        print_table(console, "On queries that training never saw", (*columns, "queries"), rows)
    for ranking in result.rankings.values():
        if ranking.groups:
            console.print()
            _print_groups(console, ranking, level)
        if ranking.pairs:
            console.print()
            _print_pairs(console, ranking, level)
    if result.other_biases:
        console.print()
        _print_other_biases(console, result)
    severe = [dict(one) for one in result.findings if one["severity"] == "severe"]
    notes = [{"severity": "note", "sentence": _sentence(note)} for note in result.notes]
    warnings = sum(one["severity"] == "warning" for one in result.findings)
    if warnings:
        notes.append({"severity": "note", "sentence": f"Warnings on the log: {warnings}; see fultr inspect."})
    if severe or notes:
        console.print()
        print_findings(console, [*severe, *notes])


def _facts(result: fultr.audits.Audit) -> list[tuple[str, str]]:
    size = f"{result.impressions:,} impressions of {result.lists:,} lists, {result.queries:,} queries"
    facts = [
        ("size", f"{size}, {result.clicks:,} clicks"),
        ("position bias", f"{_curve(result.position_bias)}, {BIAS_SOURCES[result.bias_source]}"),
    ]
    if result.noise is not None:
        facts.append(("noise taken off", result.noise.describe()))
    if result.max_disparity is not None:
        limit = f"{result.max_disparity:g} for the upper end of the disparity's interval"
        facts.append(("limit", limit))
    return facts


def _curve(bias: fultr.PositionBias) -> str:
    """Describe a position bias by the power it is of, or by its first values."""
    if len(bias.values) == 1:
        return repr(bias)
    first = ", ".join(f"{value:.3g}" for value in bias.values[:CURVE_VALUES])
    return f"{first}{', ...' if len(bias.values) > CURVE_VALUES else ''}"


def _overview(ranking: fultr.audits.RankingAudit) -> tuple[str, ...]:
    more = "-" if ranking.difference is None else _with_interval(ranking.difference.utility)
    return (
        ranking.name,
        _number(ranking.utility.value),
        _interval(ranking.utility),
        more,
        _number(ranking.disparity.value),
        _interval(ranking.disparity),
        *_shares(ranking.exposure_to_move),
        _verdict(ranking.passes),
    )


def _new_overview(name: str, one: fultr.audits.NewQueries) -> tuple[str, ...]:
    return (
        name,
        _number(one.utility.value),
        _interval(one.utility),
        _with_interval(one.difference.utility),
        _number(one.disparity.value),
        _interval(one.disparity),
        *_shares(one.exposure_to_move),
        _verdict(one.passes),
        f"{one.queries:,}",
    )


def _print_groups(console: Console, ranking: fultr.audits.RankingAudit, level: str) -> None:
    columns = ("group", "items", "exposure", level, "merit", level, "exposure/merit", level)
    rows = []
    groups = ranking.groups
    left = ""
    if len(groups) > MOST_GROUPS:
        groups = ranking.furthest_groups(MOST_GROUPS)
        left = f", the {MOST_GROUPS} of {len(ranking.groups):,} furthest from their share of merit"
    for group in groups:
        measures = (group.exposure, group.merit, group.exposure_per_merit)
        cells = [cell for one in measures for cell in (_number(one.value), _interval(one))]
        rows.append((group.name, f"{group.items:,}", *cells))
    print_table(console, f"By group: {ranking.name}{left}", columns, rows)


def _print_pairs(console: Console, ranking: fultr.audits.RankingAudit, level: str) -> None:
    order = sorted(range(len(ranking.pairs)), key=lambda at: -abs(ranking.pairs[at].disparity.value))
    rows = [_pair(ranking, at, ranking.difference) for at in order[:MOST_PAIRS]]
    left = f", the worst {MOST_PAIRS} of {ranking.pairs_in_all:,}" if len(order) > MOST_PAIRS else ""
    band = f"{level} of all at once"
    columns = (
        "groups",
        "D",
        level,
        band,
        "exposure ratio",
        level,
        "under other biases",
        "more than logged",
        "queries",
    )
    print_table(console, f"By pair of groups: {ranking.name}{left}", columns, rows)


def _pair(
    ranking: fultr.audits.RankingAudit, at: int, difference: fultr.audits.Difference | None
) -> tuple[str, ...]:
    pair = ranking.pairs[at]
    return (
        f"{pair.first}, {pair.second}",
        _number(pair.disparity.value),
        _interval(pair.disparity),
        _ends(*pair.band),
        _number(pair.exposure_ratio.value),
        _interval(pair.exposure_ratio),
        _ends(*ranking.pair_ranges[at]),
        "-" if difference is None else _with_interval(difference.disparities[at]),
        f"{pair.queries:,}",
    )


def _print_other_biases(console: Console, result: fultr.audits.Audit) -> None:
    limited = result.max_disparity is not None
    rows = [
        (one.name, _ends(*one.disparity_range), _ends(*one.upper_range), *([_moves(one)] * limited))
        for one in result.rankings.values()
    ]
    columns = ("ranking", "disparity", "upper bound", *(["verdict"] * limited))
    print_table(console, f"If the position bias is off ({', '.join(result.other_biases)})", columns, rows)


def _moves(ranking: fultr.audits.RankingAudit) -> str:
    if not ranking.verdict_depends_on_bias:
        return f"{_verdict(ranking.passes)} under all"
    failing = [one.bias for one in ranking.other_biases if one.passes is not ranking.passes]
    return f"{_verdict(not ranking.passes)} under: {'; '.join(failing)}"


def _verdict(passes: bool | None) -> str:
    return "-" if passes is None else "pass" if passes else "FAIL"


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def _with_interval(one: fultr.audits.AuditEstimate) -> str:
    return f"{_number(one.value)} {_interval(one)}"


def _interval(one: fultr.audits.AuditEstimate) -> str:
    return _ends(one.low, one.high)


def _ends(*ends: float) -> str:
    return f"[{', '.join(map(_number, ends))}]"


def _shares(one: fultr.audits.AuditEstimate) -> tuple[str, str]:
    """Return a share and its interval."""
    value, low, high = ("-" if share != share else f"{share:.1%}" for share in (one.value, one.low, one.high))
    return value, f"[{low}, {high}]"


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.4g}"
