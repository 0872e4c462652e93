"""`fultr evaluate`: utility and fairness of a saved policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import fultr
import fultr.clicks
import fultr.data
import fultr.evaluation
import fultr.training
from fultr.cli.files import Content, PolicyFeatures, read_any, with_groups_by
from fultr.cli.modes import warn_of_modes
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
    any_bias,
    reads_log,
)
from fultr.cli.output import print_facts, print_json, print_table, results, say
from fultr.cli.rank import Deterministic, Policy, load_policy
from fultr.cli.training_options import click_noise, in_names_of_options
from fultr.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


@reads_log
def evaluate(
    policy: Policy,
    data: Annotated[Path, typer.Argument(help="Labelled data or a click log.")],
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Positions beyond have no utility: cut DCG, nDCG and ranks after this one."),
    ] = None,
    at: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    depth: Depth = None,
    shown_only: ShownOnly = False,
    eta: Eta = None,
    bias: BiasFile = None,
    eps_plus: Annotated[
        str | None, typer.Option(help="Click probability of an examined relevant item, for clicks.")
    ] = None,
    eps_minus: Annotated[
        str | None,
        typer.Option(help="The same of an irrelevant item; several, as 0.4,0.2, by position."),
    ] = None,
    relevant_from: Annotated[
        float | None, typer.Option(help="Graded judgments from this one on count as relevant.")
    ] = None,
    deterministic: Deterministic = False,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    reading: LogReading = NOTHING_SAID,
    group_by: GroupBy = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Measure how useful and how fair the rankings of a saved policy are, on labelled data or on clicks.

    Numbers are exact for the policy and the data; only the intervals are by resampling. The position bias is
    the one given, or else that of the log, or else the one the policy was trained with. Click noise is taken
    off only if it is given.

    \b
    Example:
      fultr evaluate policy.safetensors clicks.parquet
      fultr evaluate policy.safetensors test.txt --eta 1 --top-k 10 --json
      fultr evaluate policy.safetensors test.txt --eta 1 --group-by "feature 25 > quantile 0.8"
    """
    examined = any_bias(eta, bias)
    noise = click_noise(eps_plus, eps_minus)
    fultr.evaluation.checked_level(level)
    ranker = load_policy(policy)
    content = read_any(
        data,
        reading,
        context=fultr.clicks.context_of(examined),
        policy_features=PolicyFeatures.of([ranker]),
        shown_only=shown_only,
    )
    content = with_groups_by(content, group_by, data)
    source = _source(content, data, relevant_from)
    logged = None if content.counts is None else content.counts.noise
    if logged is not None and logged != fultr.ClickNoise() and noise is None:
        options = "--eps-plus {eps_plus} --eps-minus {eps_minus}".format(**logged.texts())
        say(f"fultr: the log says that its clicks are noisy; {options} takes that off the merit")
    with in_names_of_options(data):
        evaluation = fultr.evaluate(
            ranker,
            source,
            position_bias=examined,
            noise=noise,
            at=at if top_k is None else top_k,  # --at is what --top-k was called before
            depth=depth,
            stochastic=False if deterministic else None,
            intervals=level,
            seed=seed,
        )
    if deterministic:
        warn_of_modes(ranker, source, examined, noise, str(policy))
    overlap = fultr.training.overlap_with_training(ranker, source)
    notes = (
        [] if overlap is None else list(fultr.training.notes_on_overlap(str(policy), overlap, source.data))
    )
    if content.counts is not None and fultr.data.NEVER_SHOWN in content.counts.origin:
        notes.append(fultr.clicks.sentence_of_left_out(content.counts.origin[fultr.data.NEVER_SHOWN]))
    if json:
        about = {"policy": str(policy), "data": str(data), "kind": content.kind, "notes": notes}
        print_json({**about, **evaluation.to_dict()})
        return
    print_evaluation(results(), evaluation)
    for note in notes:
        say(f"fultr: note: {note}")


def _source(content: Content, file: Path, relevant_from: float | None) -> fultr.RankingDataset | fultr.Counts:
    """Return what was read, with relevance of graded judgments."""
    if content.counts is not None:
        if relevant_from is not None:
            raise InputError("--relevant-from is for labelled data; a log has clicks", file=file)
        return content.counts
    return content.data if relevant_from is None else content.data.binarize(relevant_from)


def print_evaluation(console: Console, evaluation: fultr.Evaluation) -> None:
    """Print an evaluation as tables: measures with their intervals, and what each group has."""
    kind = "drawn from the policy" if evaluation.stochastic else "the most likely of each list"
    lists, queries = f"{evaluation.lists:,} lists", f"{evaluation.queries:,} queries"
    size = f"{evaluation.impressions:,} impressions of {lists}, {queries}"
    facts = [("rankings", kind), ("relevance", f"from {evaluation.source}"), ("size", size)]
    if evaluation.empties_dropped:
        facts.append(("missing", "impressions without a click; merit is known only up to a factor"))
    facts += [
        (f"never shown, {group}", f"{share:.0%} of the candidates; their merit is unknown")
        for group, share in evaluation.never_seen.items()
    ]
    print_facts(console, "Evaluation", facts)
    console.print()
    level = f" ({evaluation.level:.0%} intervals, each by itself)" if evaluation.level is not None else ""
    tables = evaluation.tables()
    measures = [
        (
            row["measure"],
            *("" if row[name] is None else _number(row[name]) for name in ("value", "low", "high")),
        )
        for row in tables["measures"]
    ]
    print_table(console, f"Measures{level}", ("measure", "value", "low", "high"), measures)
    if evaluation.groups:
        columns = [name.replace("_", " ") for name in tables["groups"][0]]
        rows = [(row.pop("group"), *map(_number, row.values())) for row in tables["groups"]]
        console.print()
        print_table(console, "By group", columns, rows)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.4g}"
