"""`fultr sweep`: what fairness costs, as policies for many fairness weights."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fultr
import fultr.data
import fultr.training
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
from fultr.cli.output import print_facts, print_json, print_table, results
from fultr.cli.training_options import (
    DEFAULT_CHECKPOINT_EVERY,
    DEFAULT_FOLDS,
    L2,
    CheckpointEvery,
    Clip,
    EntropyWeight,
    EpsMinus,
    EpsPlus,
    EvidenceName,
    EvidenceOption,
    FairnessName,
    Folds,
    GroupBlind,
    Hidden,
    Inputs,
    Log,
    Missing,
    Model,
    ModelName,
    Out,
    Protocol,
    ProtocolName,
    RelevantFrom,
    Resume,
    ScaleFeatures,
    TopK,
    Valid,
    ValidShare,
    check_share,
    click_noise,
    numbers_of,
)
from fultr.cli.training_run import RunLocation, run_training
from fultr.cli.tree_options import NO_TREES, grows_trees, tree_settings

if TYPE_CHECKING:
    from rich.console import Console

POLICIES = "policies"
PICTURES = ("frontier.png", "frontier.svg")


@reads_log
@grows_trees
def sweep(
    log: Log,
    out: Out,
    lambdas: Annotated[
        list[str] | None, typer.Option(help="Fairness weights, e.g. 0,0.1,1,10. [default: the paper's ten]")
    ] = None,
    l2: L2 = None,
    fairness: Annotated[
        list[FairnessName] | None,
        typer.Option(
            help="training, offsets, or both (give it twice). Offsets need the groups of items when they are"
            " ranked. [default: training]"
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None, typer.Option(help="Seeds of the initial parameters, e.g. 0,1,2. [default: --seed]")
    ] = None,
    model: Model = ModelName.LINEAR,
    hidden: Hidden = None,
    trees: dict[str, Any] = NO_TREES,
    eta: Eta = None,
    bias: BiasFile = None,
    eps_plus: EpsPlus = None,
    eps_minus: EpsMinus = None,
    valid: Valid = None,
    folds: Folds = DEFAULT_FOLDS,
    valid_share: ValidShare = None,
    protocol: Protocol = ProtocolName.EXACT,
    group_blind: GroupBlind = False,
    scale_features: ScaleFeatures = None,
    missing: Missing = None,
    top_k: TopK = None,
    depth: Depth = None,
    shown_only: ShownOnly = False,
    complete_lists: CompleteLists = False,
    clip: Clip = None,
    evidence: EvidenceOption = EvidenceName.IPS,
    entropy_weight: EntropyWeight = None,
    relevant_from: RelevantFrom = None,
    reading: LogReading = NOTHING_SAID,
    seed: Seed = 0,
    resume: Resume = False,
    checkpoint_every: CheckpointEvery = DEFAULT_CHECKPOINT_EVERY,
    json: Json = False,
) -> None:
    """Train a policy for each of many fairness weights: what fairness costs in utility, as table and picture.

    Every policy is a candidate. Saved are those that no other one beats on validation clicks, and the best of
    each fairness weight.

    \b
    Example:
      fultr sweep clicks.parquet --out sweep
      fultr sweep clicks.parquet --lambdas 0,0.1,1,10 --l2 0.01,0.1 --out sweep --json
      fultr sweep clicks.parquet --fairness training --fairness offsets --out sweep
    """
    further = {
        "fairness_weights": numbers_of(lambdas, "--lambdas") or list(fultr.training.FAIRNESS_WEIGHTS),
        "fairness": [kind.value for kind in fairness or [FairnessName.TRAINING]],
        "seeds": numbers_of(seeds, "--seeds", int) or [seed],
    }
    ranker = fultr.FairRanker(
        model=model.value,
        hidden=numbers_of(hidden, "--hidden", int),
        trees=tree_settings(model, trees),
        l2=numbers_of(l2, "--l2"),
        position_bias=any_bias(eta, bias),
        noise=click_noise(eps_plus, eps_minus),
        top_k=top_k,
        depth=depth,
        clip=clip,
        evidence=evidence.value,
        group_blind=group_blind,
        scale_features=scale_features,
        missing=None if missing is None else missing.value,
        entropy_weight=entropy_weight,
        protocol=protocol.value,
        folds=folds,
        valid_share=valid_share,
        seed=seed,
    )

    check_share(ranker, valid)

    def train(
        folder: fultr.training.RunFolder,
        source: fultr.data.Source,
        valid: fultr.data.Source | None,
        watch: fultr.training.Watcher,
    ) -> dict[str, Any]:
        front = fultr.sweep(source, valid=valid, ranker=ranker, checkpoints=folder, watch=watch, **further)
        return write_frontier(front, folder.path)

    inputs = Inputs(log, valid, reading, relevant_from, shown_only, complete_lists)
    run_results = run_training(
        "sweep", ranker, further, inputs, RunLocation(out, resume, checkpoint_every), train
    )
    if json:
        print_json({"run": str(out), **run_results})
        return
    print_frontier(results(), run_results, out)


def write_frontier(front: fultr.Frontier, folder: Path) -> dict[str, Any]:
    """Write all that a sweep found, and return what results.json says of it."""
    files = ["frontier.csv", "frontier.json"]
    with fultr.training.writing(folder):
        front.to_csv(folder / "frontier.csv")
        front.to_json(folder / "frontier.json")
        files += [front.plot(folder / name).name for name in PICTURES]
        (folder / POLICIES).mkdir(exist_ok=True)
        policies = [_write_policy(front, point, folder) for point in front.shown]
    return {"policies": policies, "trained": len(front.points), "files": files}


def _write_policy(front: fultr.Frontier, point: fultr.training.FrontierPoint, folder: Path) -> dict[str, Any]:
    several = len({other.seed for other in front.points}) > 1
    name = f"lambda-{repr(point.fairness_weight).removesuffix('.0')}"
    name += f"-seed-{point.seed}" if several else ""
    name += "" if point.chosen else f"-l2-{point.l2:g}"
    name += "-offsets" if point.fairness == "offsets" else ""
    name = f"{POLICIES}/{name}.safetensors"
    ranker = front.ranker(point)
    fultr.save(ranker, folder / name)
    row = asdict(point)
    if ranker.validation_ is None:  # training clicks stood in
        row |= {"valid_utility": None, "valid_disparity": None}
    return {
        **row,
        "intervals": None if ranker.validation_ is None else ranker.validation_["intervals"],
        "non_dominated": point in front.non_dominated,
        "policy": name,
    }


def print_frontier(console: Console, run_results: dict[str, Any], out: Path) -> None:
    """Print the envelope and the policies that stand for their fairness weight, and where everything is."""
    several = len({row["seed"] for row in run_results["policies"]}) > 1
    numbers = ("train_utility", "train_disparity", "valid_utility", "valid_disparity")
    rows = [
        (
            f"{row['fairness_weight']:g}" + (f" (seed {row['seed']})" if several else ""),
            f"{row['l2']:g}" + (", offsets" if row["fairness"] == "offsets" else ""),
            f"{row['temperature']:.3g}",
            *("-" if row[name] is None else f"{row[name]:.4f}" for name in numbers),
            "*" if row["non_dominated"] else "",
        )
        for row in run_results["policies"]
    ]
    names = ("training utility", "training disparity", "validation utility", "validation disparity")
    print_table(console, "What fairness costs", ("lambda", "l2", "temperature", *names, ""), rows)
    console.print("* no other candidate has more utility and less disparity on validation clicks\n")
    facts = [
        ("policies", f"{out / POLICIES}, {len(run_results['policies'])} of {run_results['trained']} trained"),
        ("frontier", ", ".join(str(out / name) for name in run_results["files"])),
    ]
    print_facts(console, "Written", facts)
