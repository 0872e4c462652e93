"""What `fultr train` and `fultr sweep` take, and what they make of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import fultr
import fultr.audits
import fultr.clicks
import fultr.data
import fultr.logs
import fultr.training
from fultr.cli.files import NO_POLICIES, Content, PolicyFeatures, read_any, read_impressions
from fultr.cli.option_names import in_option_names
from fultr.cli.options import LogReading, finite_option
from fultr.cli.output import say
from fultr.errors import InputError
from fultr.files import existing_file


class ModelName(StrEnum):
    """The scorers that are built in."""

    LINEAR = "linear"
    MLP = "mlp"
    TREES = "trees"
    LINEAR_TREES = "linear+trees"


class FairnessName(StrEnum):
    """What makes a policy fair."""

    TRAINING = "training"
    OFFSETS = "offsets"


class MissingName(StrEnum):
    """What a policy makes of missing features."""

    MEAN = "mean"
    INDICATOR = "indicator"
    NATIVE = "native"


class ProtocolName(StrEnum):
    """How scorers are trained."""

    EXACT = "exact"
    PAPER = "paper"


class EvidenceName(StrEnum):
    """How the merit of items is estimated from clicks."""

    IPS = "ips"
    POOLED = "pooled"
    DOUBLY_ROBUST = "doubly_robust"


Log = Annotated[
    Path, typer.Argument(help="A click log; or labelled data, whose relevance then counts as known.")
]
Out = Annotated[Path, typer.Option(help="The folder of the run: a new one, or with --resume a stopped one.")]
Valid = Annotated[
    Path | None, typer.Option(help="Validation clicks (or lists) of other queries; or see --valid-share.")
]
ValidShare = Annotated[
    float | None,
    typer.Option(
        min=0.0, max=1.0, help="Share of the queries that --protocol paper puts aside. [default: 0.2]"
    ),
]
Model = Annotated[
    ModelName, typer.Option(help="The scorer of items; trees need LightGBM (pip install 'fultr[trees]').")
]
Hidden = Annotated[
    str | None,
    typer.Option(help="Widths of the hidden layers of an mlp, e.g. 64,32; else half the features."),
]
L2 = Annotated[
    list[str] | None,
    typer.Option(help="What |parameters|^2 / 2 costs; several (repeat it, or 0.01,0.1) are chosen from."),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="How sure --max-disparity must hold on new queries, e.g. 0.95; exit code 3 if no policy does."
    ),
]
Fairness = Annotated[
    FairnessName,
    typer.Option(
        help="training: the scorer is trained to be fair. offsets: the most useful one, with one number for"
        " each group added to its scores; it needs the group of an item when it is ranked."
    ),
]
Folds = Annotated[
    int,
    typer.Option(
        min=0,
        help="Parts that queries are put into: policies are judged on each without having seen it, then"
        " trained on all. 0 leaves out none, with a single --l2.",
    ),
]
Protocol = Annotated[
    ProtocolName, typer.Option(help="exact gradients of the whole log, or the paper's sampled small batches.")
]
GroupBlind = Annotated[
    bool, typer.Option("--group-blind", help="Hide columns derived from the group from the scorer.")
]
ScaleFeatures = Annotated[
    bool | None,
    typer.Option(
        "--scale-features/--no-scale-features",
        help="Bring each feature to mean 0 and deviation 1 first. [default: where units are far from that]",
    ),
]
Missing = Annotated[
    MissingName | None,
    typer.Option(
        help="Missing features: the mean of the training; that and a further column that says so; or, native,"
        " as they are, with --model trees. [default: an error]"
    ),
]
TopK = Annotated[int | None, typer.Option(min=1, help="Positions beyond have no utility.")]
Clip = Annotated[float | None, typer.Option(help="The most that an inverse propensity may be.")]
EvidenceOption = Annotated[
    EvidenceName,
    typer.Option(help="How merit is estimated: clicks over propensities, pooled by query, doubly robust."),
]
EntropyWeight = Annotated[
    float | None, typer.Option(min=0.0, help="Bonus for random rankings at the start; it fades out.")
]
EpsPlus = Annotated[
    str | None,
    typer.Option(help="Click probability of an examined relevant item, if not that of the log."),
]
EpsMinus = Annotated[
    str | None,
    typer.Option(
        help="The same of an irrelevant item; several, such as 0.4,0.2,0.1, are those of positions 1, 2, ..."
    ),
]
RelevantFrom = Annotated[
    float | None,
    typer.Option(help="Graded judgments of labelled data from this one on count as relevant."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
CheckpointEvery = Annotated[
    float, typer.Option(min=0.0, help="Seconds between checkpoints; a stage that ends always has one.")
]
DEFAULT_CHECKPOINT_EVERY = 5.0


def numbers_of(texts: list[str] | str | None, option: str, kind: type = float) -> list[Any] | None:
    """Return the numbers of an option that takes several, separated by commas or given again and again."""
    if not texts:
        return None
    parts = [part for text in ([texts] if isinstance(texts, str) else texts) for part in text.split(",")]
    try:
        numbers = [kind(part) for part in parts]
    except ValueError:
        example = "1,2" if kind is int else "0.01,0.1"
        problem = f"{option} takes {'integers' if kind is int else 'numbers'} such as {example}"
        raise InputError(problem, value=",".join(parts)) from None
    for number in numbers:
        finite_option(number, option)
    return numbers


def click_noise(eps_plus: str | None, eps_minus: str | None) -> fultr.ClickNoise | None:
    """Return the click noise asked for, if any; of several numbers each is that of a position."""
    if eps_plus is None and eps_minus is None:
        return None
    plus, minus = numbers_of(eps_plus, "--eps-plus"), numbers_of(eps_minus, "--eps-minus")
    with in_names_of_options():
        return fultr.ClickNoise(plus or 1.0, minus or 0.0)


DEFAULT_FOLDS = 4


def check_share(ranker: fultr.FairRanker, valid: Path | None) -> None:
    """Refuse a share of queries to put aside where nothing is put aside."""
    if ranker.valid_share is not None and valid is not None:
        raise InputError("give --valid or --valid-share, not both")
    if ranker.valid_share is not None and ranker.protocol != "paper":
        raise InputError("--valid-share is for --protocol paper; see --folds")


def settings_of(ranker: fultr.FairRanker) -> dict[str, Any]:
    """Return the settings of a ranker as plain values."""
    settings: dict[str, Any] = dict(ranker.get_params(deep=False))
    bias, noise = ranker.position_bias, ranker.noise
    if bias is not None:
        curve = bias if isinstance(bias, fultr.PositionBiasByContext) else bias.to_position_bias()
        settings["position_bias"] = curve.to_dict()
    settings["noise"] = None if noise is None else noise.to_dict()
    settings["trees"] = None if ranker.trees is None else ranker.trees.to_dict()
    return settings


@contextmanager
def in_names_of_options(file: Path | None = None) -> Iterator[None]:
    """Say what is wrong with a setting by the name of its option, and with a file by its name."""
    try:
        yield
    except InputError as error:
        named = in_option_names(error, {})
        if named is error and error.file is None and file is not None:
            named = error.located(str(file))
        raise named from error


def check_examination_known(
    examination: object, counts: fultr.Counts | None, file: Path, *others: object
) -> None:
    """Refuse to go on if neither the options, nor the log, nor anything else says what is looked at."""
    of_log = counts is not None and (counts.position_bias or counts.cells.propensity) is not None
    if examination is None and not of_log and all(other is None for other in others):
        problem = (
            "how likely positions are looked at is not known; give --eta 1 or --bias FILE (fultr propensity"
            " estimates it)"
        )
        raise InputError(problem, file=file)


@dataclass(frozen=True)
class Inputs:
    """The files that are trained on.

    Parameters
    ----------
    log, valid
        Clicks or labelled lists.
    reading
        How logs are read.
    relevant_from
        The least grade of a relevant item in labelled data.
    shown_only
        Whether candidates that were never shown are left out.
    complete_lists
        Whether impressions are said to have rows for all their candidates.
    """

    log: Path
    valid: Path | None
    reading: LogReading
    relevant_from: float | None
    shown_only: bool = False
    complete_lists: bool = False

    def describe(self) -> dict[str, Any]:
        """Return what the files are, for a later run to tell whether they are the same."""
        files = {"log": self.log, "valid": self.valid, "items": self.reading.items}
        return {
            **self.reading.arguments(),
            **{name: None if file is None else _identity(file) for name, file in files.items()},
            "relevant_from": self.relevant_from,
            "shown_only": self.shown_only,
            "complete_lists": self.complete_lists,
        }

    def read(self, ranker: fultr.FairRanker) -> tuple[fultr.data.Source, fultr.data.Source | None]:
        """Read what is trained on and what is validated on, and say what is wrong with them."""
        content = self._read(self.log, ranker)
        source = self._source(content, self.log, ranker)
        self._check_trainable(ranker, content)
        if content.counts is None:
            say(f"fultr: {self.log} is labelled data: its relevance counts as known (full information)")
        self._say_severe(content, ranker, "")
        self._say_if_no_disparity(ranker, content.counts)
        if self.valid is None:
            return source, None
        names = list(content.data.feature_names)
        named = PolicyFeatures([names], list(content.data.category_names) or None)
        further = self._read(self.valid, ranker, named)
        lists = fultr.logs.with_features(further.data, names, self.valid)
        valid = self._source(replace(further, data=lists), self.valid, ranker)
        self._check_candidates(ranker, further, self.valid)
        self._say_severe(further, ranker, "validation: ")
        return source, valid

    def _say_if_no_disparity(self, ranker: fultr.FairRanker, counts: fultr.Counts | None) -> None:
        """Say before training that no disparity can be shown in the log, where that is so."""
        if counts is None or ranker.fairness_weight == 0:
            return
        finding = fultr.audits.logged_disparity_finding(counts, ranker.position_bias, ranker.depth)
        if finding is not None and finding.severity == "warning":
            say(f"fultr: warning: {finding.sentence}")

    def _read(
        self, file: Path, ranker: fultr.FairRanker, policy_features: PolicyFeatures = NO_POLICIES
    ) -> Content:
        if self.shown_only and ranker.protocol == "paper":
            raise InputError("--shown-only leaves no single impressions for --protocol paper", file=file)
        context = fultr.clicks.context_of(ranker.position_bias)
        reading = self._reading(ranker)
        content = read_any(
            file,
            reading,
            context=context,
            policy_features=policy_features,
            shown_only=self.shown_only,
            complete_lists=self.complete_lists,
        )
        if content.counts is not None:
            self._check_reach(content.counts, ranker, file)
        return content

    def _say_severe(self, content: Content, ranker: fultr.FairRanker, label: str) -> None:
        """Say what is severe about a file that can be trained on or validated by."""
        if content.counts is None:
            findings = fultr.inspect_dataset(content.data)
            lines = [finding.sentence for finding in findings if finding.severity == "severe"]
        else:
            readiness = fultr.clicks.judge_readiness(content.counts, ranker.position_bias)
            lines = fultr.clicks.severe_lines(readiness)
        for line in lines:
            say(f"fultr: warning: {label}{line}")

    def _reading(self, ranker: fultr.FairRanker) -> LogReading:
        """Return how files are read; missing features are kept if the policy fills them in."""
        return replace(self.reading, keep_missing=self.reading.keep_missing or ranker.missing is not None)

    def _check_reach(self, counts: fultr.Counts, ranker: fultr.FairRanker, file: Path) -> None:
        """Refuse a position bias that ends before the log does, before its clicks are judged by it."""
        if ranker.position_bias is None:
            return
        with in_names_of_options(file):
            weighed, curve = fultr.clicks.with_examination(counts, ranker.position_bias)
            if curve is not None:
                weighed.on_page(curve, ranker.depth).curve(weighed.deepest)

    def _source(self, content: Content, file: Path, ranker: fultr.FairRanker) -> fultr.data.Source:
        if content.counts is None:
            return content.data if self.relevant_from is None else content.data.binarize(self.relevant_from)
        if self.relevant_from is not None:
            raise InputError("--relevant-from is for labelled data; a log has clicks", file=file)
        if ranker.protocol == "paper":
            log = read_impressions(file, self._reading(ranker), quiet=True)
            if self.complete_lists:
                log = log.with_complete_lists()
            return replace(
                log, data=fultr.logs.with_features(log.data, list(content.data.feature_names), file)
            )
        return replace(content.counts, data=content.data)

    def _check_trainable(self, ranker: fultr.FairRanker, content: Content) -> None:
        """Refuse what cannot be trained on, by the names of options."""
        ranker.check()
        if not content.data.features.shape[1]:
            problem = "has no features to score items by; name their columns with --features, or --items"
            raise InputError(problem, file=self.log)
        if content.counts is None and ranker.noise is not None:
            raise InputError("--eps-plus and --eps-minus are for clicks", file=self.log)
        fultr.training.check_groups(ranker, content.data)
        check_examination_known(ranker.position_bias, content.counts, self.log)
        self._check_candidates(ranker, content, self.log)
        if not fultr.training.has_two_groups(content.data):
            say(f"fultr: warning: {fultr.training.NO_TWO_GROUPS}: this trains for utility alone")

    def _check_candidates(self, ranker: fultr.FairRanker, content: Content, file: Path) -> None:
        """Refuse a limit on clicks that lack rows for candidates."""
        if content.counts is not None and ranker.max_disparity is not None:
            with in_names_of_options(file):
                fultr.clicks.check_candidates(content.counts, ranker.max_disparity)


def _identity(file: Path) -> dict[str, Any]:
    with existing_file(file).open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return {"path": str(file), "size": file.stat().st_size, "sha256": digest}
