"""The report of a run: its policies next to the logged ranking, measured on the clicks it was trained on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from fultr.arguments import Progress
from fultr.audits import GROUP_MEASURES, LOGGED, AuditEstimate, RankingAudit, audit
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks.readiness import judge_readiness
from fultr.data import CountsOrLabels, RankingDataset, Source
from fultr.errors import InputError
from fultr.evaluation import evaluate
from fultr.logs import inspect_dataset
from fultr.reports.content import (
    DataPart,
    FeatureTable,
    Group,
    MeasuredRanking,
    Pair,
    Ranking,
    Report,
    best_under,
    exactly,
    shortened,
    within,
)
from fultr.reports.examples import examples_of
from fultr.reports.features import feature_table
from fultr.reports.runs import TrainedPolicy, TrainingRun
from fultr.reports.sentences import number_of, summary_of_run
from fultr.training.fair_ranker import PAPER_SHARE
from fultr.training.sources import noise_of, with_validation

TRAINING, VALIDATION = "training", "validation"
KEPT_UTILITY = 0.95
"""The policy that is shown first is the fairest that keeps this share of the highest utility."""

SAME = 1e-3
"""How far a utility may be off, for each unit of merit, that was measured in single accuracy."""

POSITIONS = 100
"""Positions of the curve of examination that are shown; those of no known list."""

FEW_POSITIONS = 20


def report_on_run(
    run: TrainingRun,
    source: Source | None = None,
    valid: Source | None = None,
    *,
    missing: Sequence[str] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Say what a run found.

    Parameters
    ----------
    run
        The run.
    source, valid
        The clicks (or lists) that it was trained on, and those it was validated on if they were given to
        it. Without them, the report lacks what only they can tell.
    missing
        Sentences on what is not at hand.
    seed
        Of the choice of examples and of the intervals of the logged ranking.
    progress
        Called with what is done and with all there is to do.
    """
    counted = None if source is None else source.compact()
    clicks = _parts_of(run, counted, valid)
    logged, lacking = _logged(run, clicks, seed, progress)
    policies, unlike = _policies(run, clicks, progress)
    first = run.policies[0].ranker
    parts = tuple(_parts(run))
    rankings = (*logged, *policies)
    main = parts[0].key
    policy = best_under(policies, main, KEPT_UTILITY)
    useful = max(policies, key=lambda one: one.measured[main].utility.value)
    shown = clicks.get(VALIDATION, clicks.get(TRAINING))
    examples = () if shown is None else _examples(run, shown, logged, seed)
    if shown is not None and not examples:
        lacking.append(
            "No list has two groups and something relevant, so that there are no example rankings."
        )
    shown_first = policies[0].key if policy is None else policy.key
    features = None if shown is None else _features(run, shown_first, shown, seed)
    gaps = [*missing, *lacking, *unlike]
    if source is None:
        gaps.append(
            "Without the log the page cannot show the logged ranking, example rankings, what is suspicious in"
            " the log, and each group's exposure and merit on training clicks."
        )
    return Report(
        title=f"Fairness and utility of {number_of(len(policies), 'ranking policy')}",
        source=run.location,
        summary=tuple(summary_of_run(run, parts, rankings, None if counted is None else counted.data)),
        parts=parts,
        rankings=rankings,
        picked=shown_first,
        reference=useful.key,
        curve=_curve(first.position_bias_, counted),
        curve_about=_about_curve(run, first.position_bias_, counted),
        findings=None if counted is None else tuple(_findings(counted, first.position_bias_)),
        missing=tuple(gaps),
        settings=tuple(_settings(run)),
        level=_level(run),
        examples=examples,
        examples_about=_about_examples(VALIDATION if VALIDATION in clicks else TRAINING, seed)
        if examples
        else "",
        features=features,
    )


def _features(run: TrainingRun, key: str, source: CountsOrLabels, seed: int) -> FeatureTable:
    """Return the features that matter to the policy that is shown first."""
    policy = next(one for one in run.policies if one.key == key)
    at = run.settings.get("top_k")
    return feature_table(policy.name, policy.ranker, source, _level(run), at, seed)


def _about_examples(part: str, seed: int) -> str:
    return (
        f"Lists drawn at random (seed {seed}) from the {part} clicks, among those with two groups and"
        " something relevant. A policy is shown by its most likely ranking; the number is the expected"
        " exposure of the item, where 1 is that of position 1."
    )


def _parts(run: TrainingRun) -> Iterator[DataPart]:
    promised = "confidence" in run.goal
    limit = run.goal.get("max_disparity")
    if run.policies[0].ranker.is_cross_fitted:
        about = "each query judged by a policy that was not trained on it"
        yield DataPart(VALIDATION, "left-out clicks", about, limit if promised else None)
    elif run.policies[0].validation is not None:
        yield DataPart(VALIDATION, "validation clicks", "queries that no policy was trained on")
    about = "queries that the policies were trained on"
    yield DataPart(TRAINING, "training clicks", about, None if promised else limit)


def _parts_of(
    run: TrainingRun, source: CountsOrLabels | None, valid: Source | None
) -> dict[str, CountsOrLabels]:
    """Return what the run trained on and validated on, split as it was."""
    if source is None:
        return {}
    if run.policies[0].validation is None:
        return {TRAINING: source}
    if run.policies[0].ranker.is_cross_fitted and valid is None:
        return {VALIDATION: source, TRAINING: source}
    share = run.settings.get("valid_share")
    share = PAPER_SHARE if share is None else float(share)
    training, validation = with_validation(source, valid, share, run.split_seed)
    return {VALIDATION: validation.compact(), TRAINING: training.compact()}


def _logged(
    run: TrainingRun, clicks: Mapping[str, CountsOrLabels], seed: int, progress: Progress | None
) -> tuple[list[Ranking], list[str]]:
    """Return the logged ranking, if it can be measured as the policies were, and else why not."""
    logs = {key: log for key, log in clicks.items() if not isinstance(log, RankingDataset)}
    if not logs:
        return [], ["There is no logged ranking: the run was trained on labelled lists."] if clicks else []
    cut = next((name for name in ("top_k", "clip") if run.settings.get(name) is not None), None)
    if cut is not None:
        return [], [f"The logged ranking is not shown, since the utility of the run is cut by '{cut}'."]
    ranker = run.policies[0].ranker
    measured = {}
    for number, (key, log) in enumerate(logs.items()):
        found = audit(
            log,
            position_bias=ranker.position_bias_,
            noise=ranker.noise_ or ClickNoise(),
            level=_level(run),
            seed=seed,
        )
        measured[key] = measured_by_audit(found.logged)
        if progress is not None:
            progress(number + 1, len(logs))
    return [Ranking(LOGGED, "as logged", "logged", measured)], []


def measured_by_audit(ranking: RankingAudit) -> MeasuredRanking:
    """Return what an audit found of a ranking."""
    return MeasuredRanking(
        utility=ranking.utility,
        disparity=ranking.disparity,
        groups=tuple(
            Group(shortened(group.name), **{name: getattr(group, name) for name in GROUP_MEASURES})
            for group in ranking.groups
        ),
        pairs=tuple(
            Pair(shortened(pair.first), shortened(pair.second), pair.disparity, pair.exposure_ratio)
            for pair in ranking.pairs
        ),
        passes=ranking.passes,
        exposure_to_move=ranking.exposure_to_move,
        pairs_in_all=ranking.pairs_in_all,
    )


def _policies(
    run: TrainingRun, clicks: Mapping[str, CountsOrLabels], progress: Progress | None
) -> tuple[list[Ranking], list[str]]:
    found: list[Ranking] = []
    unlike: list[str] = []
    for number, policy in enumerate(run.policies):
        measured = {}
        if policy.validation is not None:
            measured[VALIDATION] = _validated(run, policy)
        measured[TRAINING], same = _on_training(run, policy, clicks.get(TRAINING))
        if not same and not unlike:
            unlike.append(
                "Groups are not shown for training clicks, since the utility of the run is cut or clipped"
                " there, or the log is no longer split as it was."
            )
        found.append(Ranking(policy.key, policy.name, "policy", measured, policy.facts))
        if progress is not None:
            progress(number + 1, len(run.policies))
    return found, unlike


def _validated(run: TrainingRun, policy: TrainedPolicy) -> MeasuredRanking:
    """Return the numbers of the run, with what the policy's file knows of groups and intervals."""
    if policy.validation is None or policy.ranker.validation_ is None:
        return policy.validation or MeasuredRanking(exactly(None), exactly(None))
    try:
        measured = detailed(
            policy.validation, policy.ranker.validation_, intervals=run.settings["clip"] is None
        )
        expected = policy.ranker.new_queries_
        if expected is None:
            return measured
        # clustered by documents that queries share, where the intervals of an evaluation are not
        high, limit = expected["disparity"][2], run.goal.get("max_disparity")
        passes = high <= limit if limit is not None and "confidence" in run.goal else None
        disparity = within(measured.disparity.value, expected["disparity"][1:])
        return replace(measured, disparity=disparity, passes=passes)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        problem = f"what it says of its validation is damaged ({type(error).__name__}: {error})"
        raise InputError(problem, file=f"{run.location}, {policy.name}") from None


def _on_training(
    run: TrainingRun, policy: TrainedPolicy, source: CountsOrLabels | None
) -> tuple[MeasuredRanking, bool]:
    """Return the numbers of the run with those of groups, and whether these belong to them."""
    limit = run.goal.get("max_disparity")
    measured = policy.training
    if limit is not None and "confidence" not in run.goal:
        measured = replace(measured, passes=measured.disparity.value <= limit)
    if source is None:
        return measured, True
    ranker = policy.ranker
    evaluation = evaluate(
        ranker,
        source,
        position_bias=ranker.position_bias_,
        noise=noise_of(ranker.noise_ or ClickNoise(), source),
        at=run.settings.get("top_k"),
        intervals=None,
    )
    # sweeps measure in single accuracy; anything further off was not measured on the same clicks
    allowed = SAME * max(1.0, sum(abs(merit) for merit in evaluation.merit.values()))
    if abs(evaluation.dcg - measured.utility.value) > allowed:
        return measured, False
    return detailed(measured, evaluation.to_dict()), True


def detailed(
    measured: MeasuredRanking, evaluation: Mapping[str, Any], *, intervals: bool = True
) -> MeasuredRanking:
    """Add what an evaluation says of groups and intervals (as plain values) to a utility and a disparity."""
    names = list(evaluation["groups"])
    bounds, of_pairs = (evaluation[kind] if intervals else {} for kind in ("intervals", "pair_intervals"))
    pairs, roots = [], None
    for first, second in combinations(range(len(names)), 2):
        value, ratio = (
            within(
                evaluation[name][first][second],
                [end[first][second] for end in of_pairs[name]] if name in of_pairs else None,
            )
            for name in ("disparities", "exposure_ratios")
        )
        pairs.append(Pair(shortened(names[first]), shortened(names[second]), value, ratio))
        if len(names) == 2:
            roots = _bounds_of_size(value)
    groups = [
        Group(shortened(name), **{measure: exactly(evaluation[measure][name]) for measure in GROUP_MEASURES})
        for name in names
    ]
    return MeasuredRanking(
        within(measured.utility.value, bounds.get("dcg")),
        within(measured.disparity.value, roots),
        tuple(groups),
        tuple(pairs),
        measured.passes,
        within(evaluation.get("exposure_to_move"), bounds.get("exposure_to_move")),
    )


def _bounds_of_size(disparity: AuditEstimate) -> tuple[float, float]:
    """Return the bounds of |D| from those of D."""
    low, high = disparity.low, disparity.high
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return least, max(abs(low), abs(high))


def _examples(
    run: TrainingRun, source: CountsOrLabels, logged: Sequence[Ranking], seed: int
) -> tuple[Any, ...]:
    policies = {policy.key: policy.ranker for policy in run.policies}
    bias = run.policies[0].ranker.position_bias_
    return examples_of(source, policies, bias, logged=logged[0].key if logged else None, seed=seed)


def _findings(source: CountsOrLabels, bias: PositionBias) -> Iterator[dict[str, str]]:
    if isinstance(source, RankingDataset):
        yield from (finding.to_dict() for finding in inspect_dataset(source))
        return
    judged = judge_readiness(source, bias if source.cells.propensity is None else None)
    yield from (finding.to_dict() for finding in judged.findings)


def _curve(bias: PositionBias, source: CountsOrLabels | None) -> tuple[float, ...]:
    if source is not None:
        longest = int(source.data.lengths.max(initial=1))
    else:
        longest = len(bias.values) if bias.beyond == "error" else max(len(bias.values), FEW_POSITIONS)
    return tuple(bias.curve(min(longest, POSITIONS))[1:].tolist())


def _about_curve(run: TrainingRun, bias: PositionBias, source: CountsOrLabels | None) -> str:
    given = run.settings.get("position_bias")
    if given is not None and "curves" in given:
        origin = (
            f"Clicks were weighed by a curve for each {given['column']}; this is their mean by impressions."
        )
    elif given is not None:
        origin = "It was given to the run."
    elif isinstance(source, RankingDataset):
        origin = "It is the one the run assumed."
    else:
        origin = "It came with the log."
    return f"{origin} {formula_of(bias)}".strip()


def formula_of(bias: PositionBias) -> str:
    """Return the power law of a position bias in words, if it is one."""
    if len(bias.values) == 1 and not isinstance(bias.beyond, str):
        return f"Position k is looked at (1/k)^{bias.beyond:g} times as often as position 1."
    return ""


def _level(run: TrainingRun) -> float:
    found = run.policies[0].ranker.validation_ or {}
    level = found.get("level")
    return float(level) if isinstance(level, (int, float)) and math.isfinite(level) else 0.95


def _settings(run: TrainingRun) -> Iterator[tuple[str, str]]:
    yield "command", f"fultr {run.command}"
    for name, value in run.settings.items():
        if value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value)
    for name, about in run.inputs.items():
        if isinstance(about, dict) and "path" in about:
            yield name, f"{about['path']} (SHA-256 {about.get('sha256')})"
        elif about:
            yield name, about if isinstance(about, str) else json.dumps(about)
