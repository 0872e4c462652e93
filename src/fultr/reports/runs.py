"""What a run of `fultr train` or `fultr sweep` left in its folder, and where the files are that it read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fultr.errors import InputError
from fultr.files import existing_file, parse_json
from fultr.reports.content import MeasuredRanking, exactly
from fultr.training import FairRanker, Frontier, FrontierPoint, load
from fultr.training.run_folder import CONFIG, RESULTS

COMMANDS = ("train", "sweep")
FILES = {"log": "click log", "valid": "validation log", "items": "table of items"}
"""The files that a run reads, and what they are."""


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """A policy of a run, with the utility and disparity that the run found for it.

    Parameters
    ----------
    key, name
        As in `Ranking`.
    ranker
        The policy.
    training, validation
        Its utility and disparity on training clicks and, if there were any, on validation clicks.
    facts
        What else is to be said of it, as names and texts.
    """

    key: str
    name: str
    ranker: FairRanker
    training: MeasuredRanking
    validation: MeasuredRanking | None
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A finished run.

    Parameters
    ----------
    command, place
        What made it, and where it is.
    policies
        At least one.
    settings, inputs
        As config.json has them.
    goal
        What was asked for by name, of `fultr train`.
    trained
        How many policies the ones here were chosen from.
    """

    command: str
    location: str
    policies: tuple[TrainedPolicy, ...]
    settings: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    goal: Mapping[str, float] = field(default_factory=dict)
    trained: int = 1

    @property
    def split_seed(self) -> int:
        """The seed of the split into training and validation clicks."""
        return int(self.settings["seeds"][0] if self.command == "sweep" else self.settings["seed"])


@dataclass(frozen=True)
class Located:
    """The files that a run read, where they are now; or a sentence that says what is not at hand."""

    log: Path | None = None
    valid: Path | None = None
    items: Path | None = None
    missing: str | None = None


def run_of_frontier(
    front: Frontier, settings: Mapping[str, Any], location: str, further: Mapping[str, FairRanker]
) -> TrainingRun:
    """Return the run that a sweep in memory would have left.

    Parameters
    ----------
    front
        What the sweep found.
    settings
        As config.json would have them.
    place
        What to call the run.
    further
        Other policies by their names, trained and validated on the same clicks.
    """
    several = len({point.seed for point in front.points}) > 1
    envelope = set(front.non_dominated)
    swept = [
        _policy_of_sweep(point, front.ranker(point), several=several, beaten=point not in envelope)
        for point in front.shown
    ]
    others = [
        TrainedPolicy(
            key=f"policy-{number}",
            name=name,
            ranker=ranker,
            training=MeasuredRanking(exactly(ranker.training_utility_), exactly(ranker.training_disparity_)),
            validation=_root_of(ranker.validation_),
            facts=(("fairness weight λ", f"{ranker.multiplier_:.6g}"), ("l2", f"{ranker.l2_:g}")),
        )
        for number, (name, ranker) in enumerate(further.items(), start=1)
    ]
    return TrainingRun(
        "sweep", location, (*swept, *others), settings, trained=len(front.points) + len(others)
    )


def read_run(folder: str | Path) -> TrainingRun:
    """Read a finished run of `fultr train` or `fultr sweep` with its policies."""
    location = Path(folder)
    if not (location / CONFIG).is_file():
        raise InputError(f"holds no run: there is no {CONFIG}", file=location)
    config = read_json(location / CONFIG)
    command = config.get("command")
    if command not in COMMANDS:
        problem = "is not of a run of fultr train or fultr sweep, which reports are about"
        raise InputError(problem, file=location / CONFIG, column="command", value=command)
    if not (location / RESULTS).is_file():
        problem = f"the run has not finished; go on with it (fultr {command}, {{resume}})"
        raise InputError(problem, file=location, options=["resume"])
    settings, inputs = config.get("settings"), config.get("inputs")
    if not isinstance(settings, dict) or not isinstance(inputs, dict):
        raise InputError("is damaged: it lacks 'settings' or 'inputs'", file=location / CONFIG)
    results = _Results(location / RESULTS, read_json(location / RESULTS))
    try:
        if command == "train":
            policies, goal, trained = [_trained(results, location)], results.goal(), 1
        else:
            policies, goal, trained = _swept(results, location), {}, results.whole("trained")
        run = TrainingRun(command, str(location), tuple(policies), settings, inputs, goal, trained)
        _ = run.split_seed
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"is damaged ({type(error).__name__}: {error})", file=location / RESULTS) from None
    return run


def read_json(path: Path) -> dict[str, Any]:
    """Read a file with one JSON object of finite numbers."""
    try:
        content = parse_json(existing_file(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"is damaged: {error}", file=path) from None
    if not isinstance(content, dict):
        raise InputError("is damaged: it is no JSON object", file=path)
    return content


class _Results:
    """Reads numbers of results.json and names what is wrong with them."""

    def __init__(self, file: Path, content: Any, location: str = "") -> None:
        self.file = file
        self.content = content
        self.location = location

    def at(self, name: str) -> _Results:
        """Return what has a name, which must be there."""
        location = f"{self.location}.{name}".lstrip(".")
        if not isinstance(self.content, dict) or name not in self.content:
            raise InputError(f"is damaged: it lacks '{location}'", file=self.file)
        return _Results(self.file, self.content[name], location)

    def number(self, name: str) -> float:
        """Return a finite number."""
        value = self.at(name).content
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise InputError("is damaged: must be a number", file=self.file, column=name, value=value)
        return float(value)

    def whole(self, name: str) -> int:
        """Return an integer."""
        return int(self.number(name))

    def name(self, column: str) -> str:
        """Return a text."""
        value = self.at(column).content
        if not isinstance(value, str):
            raise InputError("is damaged: must be a text", file=self.file, column=column, value=value)
        return value

    def goal(self) -> dict[str, float]:
        """Return what was asked for, of `fultr train`."""
        goal = self.at("goal")
        return {str(name): goal.number(name) for name in goal.content}

    def policy(self, folder: Path) -> FairRanker:
        """Load the policy, which must be inside the folder."""
        name = self.at("policy").content
        if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
            problem = "is damaged: must be the name of a file in the folder"
            raise InputError(problem, file=self.file, column="policy", value=name)
        policy = load(folder / name)
        if not isinstance(policy, FairRanker):
            problem = f"is no policy of fultr train or fultr sweep, but a {type(policy).__name__}"
            raise InputError(problem, file=folder / name)
        return policy


def _trained(results: _Results, folder: Path) -> TrainedPolicy:
    training, found = results.at("training"), results.at("validation")
    if found.content is not None:
        _ = found.number("dcg"), found.number("disparity_squared")
    multiplier = results.number("multiplier")
    return TrainedPolicy(
        key="policy",
        name=_name_of_goal(results.goal(), multiplier),
        ranker=results.policy(folder),
        training=MeasuredRanking(exactly(training.number("utility")), exactly(training.number("disparity"))),
        validation=_root_of(found.content),
        facts=(("fairness weight λ", f"{multiplier:.6g}"), ("l2", f"{results.number('l2'):g}")),
    )


def _root_of(validation: Mapping[str, Any] | None) -> MeasuredRanking | None:
    """Return utility and disparity of an evaluation as plain values, if there is one."""
    if validation is None:
        return None
    return MeasuredRanking(
        exactly(validation["dcg"]), exactly(math.sqrt(max(validation["disparity_squared"], 0.0)))
    )


def _name_of_goal(goal: Mapping[str, float], multiplier: float) -> str:
    if "max_disparity" in goal:
        return f"disparity at most {goal['max_disparity']:g}"
    if "min_utility" in goal:
        return f"fairest with {goal['min_utility']:.4g} of the best utility"
    return f"λ = {multiplier:g}"


def _swept(results: _Results, folder: Path) -> list[TrainedPolicy]:
    rows = results.at("policies").content
    if not isinstance(rows, list) or not rows:
        raise InputError("is damaged: it lists no policies", file=results.file)
    swept = [_Results(results.file, row, f"policies.{number}") for number, row in enumerate(rows)]
    several = len({row.whole("seed") for row in swept}) > 1
    return [_swept_one(row, folder, several=several) for row in swept]


def _swept_one(row: _Results, folder: Path, *, several: bool) -> TrainedPolicy:
    is_validated = row.at("valid_utility").content is not None
    point = FrontierPoint(
        fairness_weight=row.number("fairness_weight"),
        l2=row.number("l2"),
        temperature=row.number("temperature"),
        fairness=row.name("fairness"),
        seed=row.whole("seed"),
        train_utility=row.number("train_utility"),
        train_disparity=row.number("train_disparity"),
        valid_utility=row.number("valid_utility") if is_validated else math.nan,
        valid_disparity=row.number("valid_disparity") if is_validated else math.nan,
        chosen=row.at("chosen").content is True,
    )
    beaten = not row.at("non_dominated").content
    return _policy_of_sweep(point, row.policy(folder), several=several, beaten=beaten)


def _policy_of_sweep(
    point: FrontierPoint, ranker: FairRanker, *, several: bool, beaten: bool
) -> TrainedPolicy:
    """Return a policy with what tells it from the others: its fairness weight, and what else is needed."""
    weight, l2 = f"{point.fairness_weight:.12g}", f"{point.l2:g}"
    facts = [
        ("fairness weight λ", weight),
        ("l2", l2),
        ("temperature", f"{point.temperature:.3g}"),
        ("seed", f"{point.seed}"),
    ]
    if beaten:
        facts.append(("beaten", "another policy is as useful and has less disparity on validation clicks"))
    further = {"seed": f"{point.seed}"} if several else {}
    further |= {} if point.chosen else {"l2": l2}
    further |= {"fairness": "offsets"} if point.fairness == "offsets" else {}
    validation = MeasuredRanking(exactly(point.valid_utility), exactly(point.valid_disparity))
    return TrainedPolicy(
        key="&".join([f"lambda={weight}", *(f"{name}={value}" for name, value in further.items())]),
        name=", ".join([f"λ = {weight}", *(f"{name} {value}" for name, value in further.items())]),
        ranker=ranker,
        training=MeasuredRanking(exactly(point.train_utility), exactly(point.train_disparity)),
        validation=None if math.isnan(point.valid_utility) else validation,
        facts=tuple(facts),
    )


def find_inputs(run: TrainingRun, log: str | Path | None = None) -> Located:
    """Find the files that a run read, as they were: their content must be the same.

    Parameters
    ----------
    run
        The run.
    log
        Where its log is now. By default it is looked for where it was, seen from the current folder or from
        the one that the run is in.
    """
    beside = [Path(), Path(run.location).parent]
    if log is not None:
        beside.append(existing_file(log).parent)
        _check_same_log(run, Path(log))
    found: dict[str, Path] = {}
    for name, what in FILES.items():
        about = run.inputs.get(name)
        if not isinstance(about, dict):
            if name == "log":
                return Located(missing="The run does not say which click log it was trained on.")
            continue
        path = Path(str(about.get("path")))
        places = [folder / path for folder in beside] + [folder / path.name for folder in beside]
        candidates = [Path(log)] if name == "log" and log is not None else places
        match = next((one for one in candidates if _digest(one) == about.get("sha256")), None)
        if match is None:
            return Located(missing=_not_at_hand(what, path, candidates))
        found[name] = match
    return Located(found.get("log"), found.get("valid"), found.get("items"))


def _not_at_hand(what: str, path: Path, candidates: list[Path]) -> str:
    changed = any(_digest(one) is not None for one in candidates)
    problem = "is not what it was when the run was made" if changed else "is not at hand"
    return (
        f"The {what} of this run, {path}, {problem}: make the page again where it is, or name the log with"
        " --log LOG."
    )


def _check_same_log(run: TrainingRun, log: Path) -> None:
    about = run.inputs.get("log")
    if isinstance(about, dict) and _digest(log) != about.get("sha256"):
        problem = (
            "is not the log that the run was trained on (its SHA-256 differs); leave it out ({log}), or audit"
            " the policy on it with fultr audit"
        )
        raise InputError(problem, file=log, options=["log"])


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read, or is a device or a pipe without an end."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return None
