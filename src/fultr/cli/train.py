"""`fultr train`: from clicks to a saved policy, under a limit of the disparity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fultr
import fultr.data
import fultr.training
from fultr.cli.option_names import OPTIONS
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
from fultr.cli.policy_file import POLICY_FILE
from fultr.cli.training_options import (
    DEFAULT_CHECKPOINT_EVERY,
    DEFAULT_FOLDS,
    L2,
    CheckpointEvery,
    Clip,
    Confidence,
    EntropyWeight,
    EpsMinus,
    EpsPlus,
    EvidenceName,
    EvidenceOption,
    Fairness,
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
from fultr.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

MOST_PAIRS = 6
"""Pairs of groups whose disparity is printed; all are in results.json."""


@reads_log
@grows_trees
def train(
    log: Log,
    out: Out,
    max_disparity: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="The most that |D| may be on the training clicks, or with --confidence on new queries: with"
            " 0.1, exposure of one group x merit of"
            " the other differs by at most 0.1 from the reverse, in the mean over impressions; the exposure"
            " ratio and the exposure to move that come with it are printed after training. 0 is kept by at"
            " most a thousandth of what |D| is without a limit.",
        ),
    ] = None,
    fairness_weight: Annotated[
        float | None,
        typer.Option("--lambda", min=0.0, help="Instead: what disparity^2 costs; 1 if no goal is given."),
    ] = None,
    min_utility: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Instead: share of the best utility to keep; be fairest there."),
    ] = None,
    confidence: Confidence = None,
    fairness: Fairness = FairnessName.TRAINING,
    folds: Folds = DEFAULT_FOLDS,
    model: Model = ModelName.LINEAR,
    hidden: Hidden = None,
    trees: dict[str, Any] = NO_TREES,
    l2: L2 = None,
    eta: Eta = None,
    bias: BiasFile = None,
    eps_plus: EpsPlus = None,
    eps_minus: EpsMinus = None,
    valid: Valid = None,
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
    """Train a ranking policy from clicks: as useful as can be, with a disparity below a limit.

    The position bias and the click noise are those of the log unless they are given. Everything is kept in
    the folder --out. A run that was stopped or killed goes on with the same command and --resume, and ends
    with the same policy.

    \b
    Example:
      fultr train clicks.parquet --max-disparity 0.1 --out run
      fultr train clicks.parquet --max-disparity 0.1 --out run --resume
      fultr train clicks.parquet --max-disparity 0.3 --confidence 0.95 --fairness offsets --out run
      fultr train searches.csv --exclude hour,page --group gender --eta 1 --max-disparity 0.1 --out run
    """
    goal: dict[str, Any] = {
        "max_disparity": max_disparity,
        "fairness_weight": fairness_weight,
        "min_utility": min_utility,
    }
    _check_one_goal(goal)
    ranker = fultr.FairRanker(
        **goal,
        confidence=confidence,
        fairness=fairness.value,
        folds=folds,
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
        valid_share=valid_share,
        seed=seed,
    )

    check_share(ranker, valid)

    def fit(
        folder: fultr.training.RunFolder,
        source: fultr.data.Source,
        valid: fultr.data.Source | None,
        watch: fultr.training.Watcher,
    ) -> dict[str, Any]:
        ranker.fit(source, valid=valid, checkpoints=folder, watch=watch)
        with fultr.training.writing(folder.path / POLICY_FILE):
            fultr.save(ranker, folder.path / POLICY_FILE)
        return _results(ranker)

    inputs = Inputs(log, valid, reading, relevant_from, shown_only, complete_lists)
    try:
        run_results = run_training(
            "train", ranker, {}, inputs, RunLocation(out, resume, checkpoint_every), fit
        )
    except fultr.UnsupportedLimitError as error:
        if json:
            print_json({"run": None, "refused": error.to_dict()})
        raise
    if json:
        print_json({"run": str(out), **run_results})
        return
    print_trained(results(), run_results, out)


def _check_one_goal(goal: dict[str, Any]) -> None:
    options = [OPTIONS[name] for name, value in goal.items() if value is not None]
    if len(options) > 1:
        raise InputError(f"give {options[0]} or {options[1]}, not both")


def _results(ranker: fultr.FairRanker) -> dict[str, Any]:
    """Return the numbers of a trained ranker: nothing that depends on when and how often it was stopped."""
    return {
        "goal": {
            name: getattr(ranker, name)
            for name in ("max_disparity", "confidence", "fairness_weight", "min_utility")
            if getattr(ranker, name) is not None
        },
        "multiplier": ranker.multiplier_,
        "l2": ranker.l2_,
        "training": {"utility": ranker.training_utility_, "disparity": ranker.training_disparity_},
        "new_queries": ranker.new_queries_,
        "offsets": ranker.offsets_,
        "validation": ranker.validation_,
        "policy": POLICY_FILE,
    }


def print_trained(console: Console, run_results: dict[str, Any], out: Path) -> None:
    """Print what was trained: its utility and disparity, and where it is."""
    training, validation = run_results["training"], run_results["validation"]
    rows = [
        ("utility", _number(training["utility"]), *_measure(validation, "dcg")),
        ("disparity", _number(training["disparity"]), _number(_root_disparity(validation)), ""),
    ]
    if validation is not None and len(validation["groups"]) > 1:
        rows += _pairs(validation, "disparities", "  D")
        rows += _pairs(validation, "exposure_ratios", "exposure ratio")
        rows.append(("exposure to move", "", *_measure(validation, "exposure_to_move", ".1%")))
    expected = run_results.get("new_queries")
    other = "validation" if expected is None else "left out"
    columns = ("", "training", other, "95% interval")
    print_table(console, "Utility and disparity", columns, rows)
    console.print()
    facts = [] if expected is None else [("new queries", _expectation(run_results["goal"], expected))]
    offsets = run_results.get("offsets", {})
    if not offsets or "fairness_weight" in run_results["goal"]:
        facts.append(("fairness weight", f"{run_results['multiplier']:.6g}{_reason(run_results['goal'])}"))
    facts += [
        ("l2", f"{run_results['l2']:g}"),
        *[(f"offset of {name}", f"{value:+.4g}") for name, value in offsets.items()],
        ("policy", str(out / run_results["policy"])),
        ("run", f"{out} (config.json, metrics.jsonl, results.json)"),
    ]
    print_facts(console, "Policy", facts)


def _reason(goal: dict[str, float]) -> str:
    if "max_disparity" in goal:
        return f", chosen for a disparity of at most {goal['max_disparity']:g}"
    if "min_utility" in goal:
        return f", chosen for {goal['min_utility']:.4g} of the best utility"
    return ""


def _expectation(goal: dict[str, float], expected: dict[str, Any]) -> str:
    """Say what new queries will show of a policy."""
    value, low, high = expected["disparity"]
    level = f"{expected['confidence']:.4g}"
    text = f"disparity {value:.3g}, {low:.3g} to {high:.3g} with {level} confidence"
    promised = "confidence" in goal
    return f"{text}: the limit of {goal['max_disparity']:g} is kept" if promised else text


def _root_disparity(validation: dict[str, Any] | None) -> float | None:
    return None if validation is None else float(validation["disparity_squared"] ** 0.5)


def _measure(validation: dict[str, Any] | None, name: str, form: str = ".4f") -> tuple[str, str]:
    """Return a number on validation clicks, if there are any, and its interval."""
    if validation is None:
        return "-", ""
    return _number(validation[name], form), _bounds(validation["intervals"].get(name), form)


def _pairs(validation: dict[str, Any], measure: str, shown: str) -> list[tuple[str, str, str, str]]:
    """Return a measure of each pair of groups with its interval, if there are not too many pairs."""
    names, values = validation["groups"], validation[measure]
    interval = validation["pair_intervals"].get(measure)
    pairs = [(first, second) for second in range(len(names)) for first in range(second)]
    if len(pairs) > MOST_PAIRS:
        return []

    return [
        (
            f"{shown} ({names[first]}, {names[second]})",
            "",
            _number(values[first][second]),
            _bounds(None if interval is None else [bound[first][second] for bound in interval]),
        )
        for first, second in pairs
    ]


def _number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def _bounds(interval: list[float | None] | None, form: str = ".4f") -> str:
    return "" if interval is None else " to ".join(_number(bound, form) for bound in interval)
