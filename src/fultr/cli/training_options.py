"""What `fultr train` and `fultr sweep` take, and what they make of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fultr.cli.files import Content, read_any, read_impressions
from fultr.cli.output import say
from fultr.click_model import ClickNoise
from fultr.clicks import judge_readiness, severe_lines
from fultr.data import Counts
from fultr.errors import InputError
from fultr.files import existing_file
from fultr.logs import inspect_dataset
from fultr.policy.ranking_files import with_features
from fultr.training import FairRanker
from fultr.training.run_folder import CHECKPOINT_EVERY
from fultr.training.sources import Source


class ModelName(StrEnum):
    """The scorers that are built in."""

    LINEAR = "linear"
    MLP = "mlp"


class ProtocolName(StrEnum):
    """How scorers are trained."""

    EXACT = "exact"
    PAPER = "paper"


Log = Annotated[
    Path, typer.Argument(help="A click log; or labelled data, whose relevance then counts as known.")
]
Out = Annotated[Path, typer.Option(help="The folder of the run: a new one, or with --resume a stopped one.")]
Valid = Annotated[
    Path | None, typer.Option(help="Validation clicks (or lists) of other queries; or see --valid-share.")
]
ValidShare = Annotated[
    float | None,
    typer.Option(min=0.0, max=1.0, help="Share of the queries put aside for validation. [default: 0.2]"),
]
Model = Annotated[ModelName, typer.Option(help="The scorer of items.")]
Hidden = Annotated[
    str | None,
    typer.Option(help="Widths of the hidden layers of an mlp, e.g. 64,32; else half the features."),
]
L2 = Annotated[
    list[str] | None,
    typer.Option(help="What |parameters|^2 / 2 costs; several (repeat it, or 0.01,0.1) are chosen from."),
]
Protocol = Annotated[
    ProtocolName, typer.Option(help="exact gradients of the whole log, or the paper's sampled small batches.")
]
GroupBlind = Annotated[
    bool, typer.Option("--group-blind", help="Hide columns derived from the group from the scorer.")
]
TopK = Annotated[int | None, typer.Option(min=1, help="Positions beyond have no utility.")]
Clip = Annotated[float | None, typer.Option(help="The most that an inverse propensity may be.")]
EntropyWeight = Annotated[
    float | None, typer.Option(min=0.0, help="Bonus for random rankings at the start; it fades out.")
]
EpsPlus = Annotated[
    float | None,
    typer.Option(help="Click probability of an examined relevant item, if not that of the log."),
]
EpsMinus = Annotated[
    float | None,
    typer.Option(help="Click probability of an examined irrelevant item, if not that of the log."),
]
RelevantFrom = Annotated[
    float | None,
    typer.Option(help="Graded judgments of labelled data from this one on count as relevant."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
CheckpointEvery = Annotated[
    float, typer.Option(min=0.0, help="Seconds between checkpoints; a stage that ends always has one.")
]
DEFAULT_CHECKPOINT_EVERY = CHECKPOINT_EVERY

OPTIONS = {
    "fairness_weight": "--lambda",
    "fairness_weights": "--lambdas",
    "max_disparity": "--max-disparity",
    "min_utility": "--min-utility",
    "l2": "--l2",
    "hidden": "--hidden",
    "top_k": "--top-k",
    "clip": "--clip",
    "valid": "--valid",
    "valid_share": "--valid-share",
    "entropy_weight": "--entropy-weight",
    "protocol": "--protocol",
    "seeds": "--seeds",
    "eps_plus": "--eps-plus",
    "eps_minus": "--eps-minus",
}
"""What settings are called on the command line."""


def numbers_of(texts: list[str] | str | None, option: str, kind: type = float) -> list[Any] | None:
    """Return the numbers of an option that takes several, separated by commas or given again and again."""
    if not texts:
        return None
    parts = [part for text in ([texts] if isinstance(texts, str) else texts) for part in text.split(",")]
    try:
        return [kind(part) for part in parts]
    except ValueError:
        example = "1,2" if kind is int else "0.01,0.1"
        problem = f"{option} takes {'whole ' if kind is int else ''}numbers such as {example}"
        raise InputError(problem, value=",".join(parts)) from None


def click_noise(eps_plus: float | None, eps_minus: float | None) -> ClickNoise | None:
    """Return the click noise asked for, if any."""
    if eps_plus is None and eps_minus is None:
        return None
    with in_names_of_options():
        return ClickNoise(1.0 if eps_plus is None else eps_plus, 0.0 if eps_minus is None else eps_minus)


def share_of(valid: Path | None, share: float | None) -> float:
    """Return the share of queries to put aside, where no validation clicks are given."""
    if valid is not None and share is not None:
        raise InputError("give --valid or --valid-share, not both")
    return 0.2 if share is None else share


def settings_of(ranker: FairRanker) -> dict[str, Any]:
    """Return the settings of a ranker as plain values."""
    found: dict[str, Any] = dict(ranker.get_params(deep=False))
    for name in ("position_bias", "noise"):
        found[name] = None if found[name] is None else found[name].to_dict()
    return found


@contextmanager
def in_names_of_options(file: Path | None = None) -> Iterator[None]:
    """Say what is wrong with a setting by the name of its option, and with a file by its name."""
    try:
        yield
    except InputError as error:
        option = OPTIONS.get(error.column or "")
        if error.file is not None or (option is None and file is None):
            raise
        if option is None:
            raise error.located(str(file)) from error
        raise InputError(f"{option}: {error.problem}", value=error.value) from error


def refuse_unknown_examination(asked: object, counts: Counts | None, file: Path, *others: object) -> None:
    """Refuse to go on if neither the options, nor the log, nor anything else says what is looked at."""
    of_log = counts is not None and (counts.position_bias or counts.cells.propensity) is not None
    if asked is None and not of_log and all(one is None for one in others):
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
    items, columns
        The table of documents, and the names of columns, of both.
    relevant_from
        The least grade of a relevant item in labelled data.
    """

    log: Path
    valid: Path | None
    items: Path | None
    columns: Mapping[str, str]
    relevant_from: float | None

    def describe(self) -> dict[str, Any]:
        """Return what the files are, for a later run to tell whether they are the same."""
        files = {"log": self.log, "valid": self.valid, "items": self.items}
        return {
            **{name: None if file is None else _identity(file) for name, file in files.items()},
            "columns": dict(self.columns),
            "relevant_from": self.relevant_from,
        }

    def read(self, ranker: FairRanker) -> tuple[Source, Source | None]:
        """Read what is trained on and what is validated on, and say what is wrong with them."""
        content = self._read(self.log, ranker, "")
        source = self._source(content, self.log, ranker)
        if content.counts is None:
            say(f"fultr: {self.log} is labelled data: its relevance counts as known (full information)")
            if ranker.noise is not None:
                raise InputError("--eps-plus and --eps-minus are for clicks", file=self.log)
        self._check_trainable(ranker, content)
        if self.valid is None:
            return source, None
        further = self._read(self.valid, ranker, "validation: ")
        names = list(content.data.feature_names)
        lists = with_features(further.data, names, self.valid)
        return source, self._source(replace(further, data=lists), self.valid, ranker)

    def _read(self, file: Path, ranker: FairRanker, part: str) -> Content:
        content = read_any(file, items=self.items, columns=self.columns)
        if content.counts is None:
            found = inspect_dataset(content.data)
            lines = [finding.sentence for finding in found if finding.severity == "severe"]
        else:
            lines = severe_lines(judge_readiness(content.counts, ranker.position_bias))
        for line in lines:
            say(f"fultr: warning: {part}{line}")
        return content

    def _source(self, content: Content, file: Path, ranker: FairRanker) -> Source:
        if content.counts is None:
            return content.data if self.relevant_from is None else content.data.binarize(self.relevant_from)
        if self.relevant_from is not None:
            raise InputError("--relevant-from is for labelled data; a log has clicks", file=file)
        if ranker.protocol == "paper":
            log = read_impressions(file, items=self.items, columns=self.columns)
            return replace(log, data=with_features(log.data, list(content.data.feature_names), file))
        return replace(content.counts, data=content.data)

    def _check_trainable(self, ranker: FairRanker, content: Content) -> None:
        """Refuse what cannot be trained on, by the names of options."""
        fair = next((name for name in ("max_disparity", "min_utility") if getattr(ranker, name)), None)
        if len(content.data.group_names) < 2:
            problem = "there are no two groups of items, so that there is no disparity"
            if fair is not None:
                raise InputError(f"{problem}; leave {OPTIONS[fair]} out", file=self.log, column="group")
            say(f"fultr: warning: {problem}: this trains for utility alone")
        refuse_unknown_examination(ranker.position_bias, content.counts, self.log)


def _identity(file: Path) -> dict[str, Any]:
    with existing_file(file).open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return {"path": str(file), "size": file.stat().st_size, "sha256": digest}
