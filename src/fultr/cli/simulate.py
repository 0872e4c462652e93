"""`fultr simulate`: clicks on labelled data."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fultr
import fultr.clicks
import fultr.data
import fultr.datasets
import fultr.policy
from fultr.cli.options import BiasFile, Eta, GroupBy, Json, Seed, position_bias
from fultr.cli.output import print_json, progress, results, say
from fultr.cli.summaries import print_log
from fultr.cli.training_options import click_noise
from fultr.errors import InputError
from fultr.files import writable_file


class Logging(StrEnum):
    """What ranked the lists when the clicks were logged."""

    RANKING_SVM = "ranking-svm"
    RANDOM = "random"


class Features(StrEnum):
    """How features are kept in a log."""

    TABLE = "table"
    LIST = "list"
    COLUMNS = "columns"
    NONE = "none"


def simulate(
    source: Annotated[
        str, typer.Argument(help="german, studios, synthetic, mslr:FOLDER, a LETOR file or a converted file.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the log: a .parquet or .csv file.")],
    clicked_impressions: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after this many impressions with a click; 5000 by default."),
    ] = None,
    clicks: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    impressions: Annotated[int | None, typer.Option(min=1, help="Draw this many impressions.")] = None,
    eta: Eta = None,
    bias: BiasFile = None,
    eps_plus: Annotated[str, typer.Option(help="Click probability of an examined relevant item.")] = "1.0",
    eps_minus: Annotated[
        str, typer.Option(help="The same of an irrelevant item; several, as 0.4,0.2, by position.")
    ] = "0.0",
    logging: Annotated[Logging, typer.Option(help="The policy that ranks the lists.")] = Logging.RANKING_SVM,
    logging_share: Annotated[
        float, typer.Option(help="Share of the queries the Ranking SVM learns from.")
    ] = 0.01,
    split: Annotated[str | None, typer.Option(help="train (the default), valid or test.")] = None,
    group: Annotated[
        str | None, typer.Option(help="German Credit's groups: purpose:A43, sex, age, foreign_worker, ...")
    ] = None,
    group_by: GroupBy = None,
    groups: Annotated[int | None, typer.Option(help="Number of groups, for MSLR and synthetic data.")] = None,
    relevant_from: Annotated[
        float | None, typer.Option(help="Graded judgments from this one on count as relevant.")
    ] = None,
    drop_empty: Annotated[
        bool, typer.Option("--drop-empty", help="Drop impressions without a click.")
    ] = False,
    plant: Annotated[
        float | None, typer.Option(help="Plant an item known to be irrelevant in this share of impressions.")
    ] = None,
    plant_positions: Annotated[
        str, typer.Option(help="Positions to plant at; in a list too short for one, the item comes last.")
    ] = "1,2,3,4,5",
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", "--depth", min=1, help="Positions of a page: show only this many items."),
    ] = None,
    features: Annotated[Features, typer.Option(help="How to keep features.")] = Features.TABLE,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate clicks on labelled data and write them as a click log.

    \b
    Example:
      fultr simulate german --clicked-impressions 5000 --eta 1 --eps-minus 0.1 --out clicks.parquet
    """
    # what cannot be done is said before the work, not after it, and by the names of the options
    fultr.data.is_csv(writable_file(out))
    # --clicks is what --clicked-impressions was called before
    clicked_count = clicks if clicked_impressions is None else clicked_impressions
    if clicked_count is not None and impressions is not None:
        raise InputError("give --clicked-impressions or --impressions, not both")
    if not 0 < logging_share <= 1:
        raise InputError("--logging-share is a share above 0 and at most 1", value=logging_share)
    noise = click_noise(eps_plus, eps_minus)
    examined = position_bias(eta, bias) or fultr.PositionBias.power(1.0)
    planting = _planting(plant, plant_positions, top_k)
    with progress("reading") as report:
        data = fultr.datasets.load_dataset(
            source, split=split, seed=seed, group=group, groups=groups, progress=report
        )
    if group_by is not None:
        data = fultr.datasets.group_by(data, group_by)
    if relevant_from is not None:
        data = data.binarize(relevant_from)
    with progress("simulating") as report:
        simulated = fultr.clicks.simulate_log(
            out,
            data,
            _logging_policy(logging, data, logging_share, seed),
            examined,
            noise=noise,
            clicks=5_000 if clicked_count is None and impressions is None else clicked_count,
            impressions=impressions,
            keep_empty=not drop_empty,
            planting=planting,
            top_k=top_k,
            features=features.value,
            seed=seed,
            progress=report,
        )
    if json:
        print_json({"files": [str(file) for file in simulated.files], "log": simulated.summary})
    else:
        print_log(results(), simulated.summary)
    say("wrote " + " and ".join(str(file) for file in simulated.files))


def _logging_policy(
    logging: Logging, data: fultr.RankingDataset, share: float, seed: int
) -> fultr.policy.RankingPolicy:
    if logging is Logging.RANDOM:
        return fultr.RandomRanking()
    return fultr.RankingSVM.train(data, share=share, seed=seed)


def _planting(share: float | None, positions: str, top_k: int | None) -> fultr.Planting | None:
    if share is None:
        return None
    if not 0 < share <= 1:
        raise InputError("--plant is a share above 0 and at most 1", value=share)
    try:
        planting_positions = tuple(int(text) for text in positions.split(","))
    except ValueError:
        raise InputError("--plant-positions is no list of positions such as 1,2,3", value=positions) from None
    if min(planting_positions) < 1:
        raise InputError("--plant-positions start at 1", value=positions)
    if top_k is not None and max(planting_positions) > top_k:
        raise InputError(f"--plant-positions must lie within --top-k {top_k}", value=positions)
    return fultr.Planting(share, planting_positions)
