"""`fultr simulate`: clicks on labelled data."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fultr.cli.options import BiasFile, Eta, Json, Seed, position_bias
from fultr.cli.output import print_json, progress, results, say
from fultr.cli.summaries import print_log
from fultr.clicks import ClickNoise, Planting, PositionBias, simulate_clicks
from fultr.data import RankingDataset, write_log
from fultr.data.table_files import is_csv
from fultr.datasets import load
from fultr.policy import RandomRanking, RankingPolicy, RankingSVM


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
    clicks: Annotated[int | None, typer.Option(help="Stop after this many impressions with a click.")] = None,
    impressions: Annotated[int | None, typer.Option(help="Draw this many impressions.")] = None,
    eta: Eta = None,
    bias: BiasFile = None,
    eps_plus: Annotated[float, typer.Option(help="Click probability of an examined relevant item.")] = 1.0,
    eps_minus: Annotated[float, typer.Option(help="Click probability of an examined irrelevant item.")] = 0.0,
    logging: Annotated[Logging, typer.Option(help="The policy that ranks the lists.")] = Logging.RANKING_SVM,
    logging_share: Annotated[
        float, typer.Option(help="Share of the queries the Ranking SVM learns from.")
    ] = 0.01,
    split: Annotated[str | None, typer.Option(help="train (the default), valid or test.")] = None,
    group: Annotated[
        str | None, typer.Option(help="German Credit's groups: purpose:A43, sex, age, foreign_worker, ...")
    ] = None,
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
    plant_positions: Annotated[str, typer.Option(help="Positions to plant at.")] = "1,2,3,4,5",
    top_k: Annotated[int | None, typer.Option(help="Show only this many items.")] = None,
    features: Annotated[Features, typer.Option(help="How to keep features.")] = Features.TABLE,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate clicks on labelled data and write them as a click log.

    \b
    Example:
      fultr simulate german --clicks 5000 --eta 1 --eps-minus 0.1 --out clicks.parquet
    """
    is_csv(out)  # a name that cannot be written is said before the work, not after it
    noise = ClickNoise(eps_plus=eps_plus, eps_minus=eps_minus)
    examined = position_bias(eta, bias) or PositionBias.power(1.0)
    planting = None if plant is None else Planting(plant, _positions(plant_positions))
    data = load(source, split=split, seed=seed, group=group, groups=groups)
    if relevant_from is not None:
        data = data.binarize(relevant_from)
    with progress("simulating") as report:
        log = simulate_clicks(
            data,
            _logging_policy(logging, data, logging_share, seed),
            examined,
            noise=noise,
            clicks=5_000 if clicks is None and impressions is None else clicks,
            impressions=impressions,
            keep_empty=not drop_empty,
            planting=planting,
            top_k=top_k,
            seed=seed,
            progress=report,
        )
    files = write_log(log, out, features=features.value)
    summary = log.describe()
    if json:
        print_json({"files": [str(file) for file in files], "log": summary})
    else:
        print_log(results(), summary)
    say("wrote " + " and ".join(str(file) for file in files))


def _logging_policy(logging: Logging, data: RankingDataset, share: float, seed: int) -> RankingPolicy:
    if logging is Logging.RANDOM:
        return RandomRanking()
    return RankingSVM.train(data, share=share, seed=seed)


def _positions(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is no list of positions such as 1,2,3") from None
