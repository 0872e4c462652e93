"""`fultr rank`: rankings of items by a saved policy."""

from __future__ import annotations

import secrets
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import fultr
import fultr.data
import fultr.datasets
import fultr.logs
import fultr.policy
import fultr.training
from fultr.cli.modes import warn_of_modes_by_exposure
from fultr.cli.options import Json
from fultr.cli.output import print_json, progress, say
from fultr.cli.policy_file import POLICY_FILE, policy_file
from fultr.errors import InputError
from fultr.files import check_outputs, existing_file

if TYPE_CHECKING:
    from fultr.cli.modes import Array

Policy = Annotated[Path, typer.Argument(help=f"A saved policy, or the folder of a run with {POLICY_FILE}.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Always the most likely ranking, by descending score.")
]


def rank(
    policy: Policy,
    items: Annotated[
        Path, typer.Argument(help="Items of queries: LETOR text, or a .parquet, .csv or .arrow table.")
    ],
    samples: Annotated[
        int | None, typer.Option(min=1, help="Rankings to draw for each list; 1 by default.")
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", "--depth", min=1, help="Positions of a page: show only so many items."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write: .parquet, .csv, .trec or .run; else CSV is printed.")
    ] = None,
    form: Annotated[
        fultr.policy.RankingFormat | None,
        typer.Option("--format", help="The format, if not by the ending of --out."),
    ] = None,
    rotate: Annotated[
        int | None,
        typer.Option(min=1, help="Instead: so many rankings to show in turn, with the policy's exposure."),
    ] = None,
    deterministic: Deterministic = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw the rankings of this seed again; else they are fresh.")
    ] = None,
    json: Json = False,
) -> None:
    """Rank items with a saved policy: one row for each item that each ranking shows.

    Rankings are drawn afresh in every call. Where only a few can be kept, --rotate chooses some that give
    groups the exposure of the policy when they are shown in turn. --deterministic does not: it always shows
    the same items first.

    The column ranking_log_prob is the log-probability of the whole ranking, as far as it is shown, under the
    policy. It is NOT the propensity column of a click log, which is the probability that a position is
    looked at.

    \b
    Example:
      fultr rank policy.safetensors items.parquet --samples 5 --top-k 10 --out rankings.parquet
      fultr rank policy.safetensors items.parquet --rotate 8 --out rankings.parquet
      fultr rank policy.safetensors items.csv --seed 1 | head
    """
    chosen = _checked_format(policy, items, out, form, json=json)
    _check_one({"--samples": samples, "--rotate": rotate, "--deterministic": deterministic or None})
    ranker = load_policy(policy)
    if not ranker.stochastic or hasattr(ranker, "position_probabilities"):
        problem = (
            f"holds a {type(ranker).__name__}, whose rankings are not drawn from its scores alone; rank with"
            " it in Python, by its rank or sample_rankings"
        )
        raise InputError(problem, file=policy)
    data, scores = _scored_items(items, ranker)
    used = None if deterministic else secrets.randbelow(1 << 32) if seed is None else seed
    if deterministic:
        warn_of_modes_by_exposure(ranker, data, scores)
    rankings = fultr.policy.DrawnRankings(
        data,
        scores,
        samples or rotate or 1,
        seed=used,
        top_k=top_k,
        rotate_with=None if rotate is None else ranker.position_bias_,
    )
    with progress("ranking") as report:
        rows = fultr.policy.write_rankings(
            data, rankings.shown(report), sys.stdout.buffer if out is None else out, chosen
        )
    if json:
        summary = {"file": str(out), "format": str(chosen), "lists": len(data), "samples": rankings.samples}
        print_json({**summary, "rows": rows, "seed": used})
    if out is not None:
        say(f"wrote {out}" + ("" if used is None else f" (--seed {used} repeats it)"))


def _check_one(given: dict[str, int | None]) -> None:
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise InputError(f"give {names[0]} or {names[1]}, not both")


def load_policy(path: Path) -> fultr.training.TrainableRanker:
    """Load a saved policy, or that of a run from its folder."""
    file = policy_file(path)
    model = fultr.training.read_policy_file(file).content.get("model")
    if isinstance(model, dict) and model.get("kind") == "module":
        problem = (
            f"its scorer is a torch module of its maker's own, {model.get('name')}, which cannot be loaded"
            " from the command line; use fultr.load_ranker(path, module=...) in Python"
        )
        raise InputError(problem, file=file)
    ranker: fultr.training.TrainableRanker = fultr.load_ranker(file)
    return ranker


def _checked_format(
    policy: Path, items: Path, out: Path | None, form: fultr.policy.RankingFormat | None, *, json: bool
) -> fultr.policy.RankingFormat:
    """Return the format to write; what cannot be done is said before the work."""
    if out is None:
        if json:
            raise InputError("--json needs --out: rankings are printed otherwise")
        if form is fultr.policy.RankingFormat.PARQUET:
            raise InputError("Parquet is not for printing; give --out")
        return form or fultr.policy.RankingFormat.CSV
    chosen = form or fultr.policy.format_of(out)
    check_outputs([out], [policy, items])
    return chosen


def _scored_items(path: Path, ranker: fultr.training.TrainableRanker) -> tuple[fultr.RankingDataset, Array]:
    """Return the items, and the score of each."""
    file, wanted = existing_file(path), ranker.known_features
    ending = file.suffix.lower()
    if ending not in (*fultr.datasets.LETOR_ENDINGS, *fultr.policy.TABLE_ENDINGS):
        endings = ", ".join((*fultr.datasets.LETOR_ENDINGS, *fultr.policy.TABLE_ENDINGS))
        raise InputError(f"the name of a file of items must end in one of: {endings}", file=file)
    unknown: dict[str, Counter[str]] = defaultdict(Counter)

    def score(block: fultr.RankingDataset) -> Array:
        for name, counts in ranker.encoding_.unknown(block).items():
            unknown[name].update(counts)
        scores: Array = ranker.feature_scores(block)
        return scores

    with progress("reading") as report:
        if ending in fultr.policy.TABLE_ENDINGS:
            options = fultr.policy.reading_options([ranker.encoding_])
            data = fultr.policy.read_scored(file, wanted, score, options=options, progress=report)
            scores = data.features[:, 0].astype("float64")
        else:
            data = fultr.logs.with_features(fultr.read_letor(file, progress=report), wanted, file)
            scores = ranker.feature_scores(data)
    if unknown:
        say(f"fultr: warning: {fultr.policy.sentence_of_unknown(unknown, data.rows)}")
    try:
        return data, scores + ranker.offsets_of(data)
    except InputError as error:
        raise error.located(file) from None
