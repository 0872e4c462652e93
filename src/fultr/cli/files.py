"""Files of any of our kinds, told apart by what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fultr
import fultr.data
import fultr.datasets
import fultr.logs
import fultr.policy
from fultr.cli.options import LogReading
from fultr.cli.output import progress, say
from fultr.errors import InputError
from fultr.files import existing_file

if TYPE_CHECKING:
    import fultr.training

LOG_COLUMNS = ("impression_id", "position", "click")
COUNT_COLUMNS = {"impressions", "clicks"}
NO_CLICK_LOG = "is no click log, but labelled data; simulate clicks on it first"
NO_IMPRESSIONS = "holds counts of clicks, but single impressions are needed"


class PolicyFeatures(NamedTuple):
    """The features that policies take, each by their names, and how they are read."""

    names: list[list[str]]
    categories: list[str] | None = None
    keep_missing: bool = False

    @classmethod
    def of(cls, rankers: Iterable[fultr.training.TrainableRanker]) -> PolicyFeatures:
        """Return the features of several policies."""
        trained = list(rankers)
        options = fultr.policy.reading_options([ranker.encoding_ for ranker in trained])
        return cls(
            [ranker.known_features for ranker in trained],
            list(options.get("categories", [])) or None,
            options.get("keep_missing", False),
        )


NO_POLICIES = PolicyFeatures([])


@dataclass(frozen=True)
class Content:
    """What a file holds: labelled data, or a click log as counts and its data."""

    kind: str
    data: fultr.RankingDataset
    counts: fultr.Counts | None = None

    def describe(self) -> dict[str, Any]:
        """Return how much of everything there is, as plain values."""
        return self.data.describe() if self.counts is None else self.counts.describe()


def read_any(
    path: Path,
    reading: LogReading | None = None,
    *,
    context: str | None = None,
    policy_features: PolicyFeatures = NO_POLICIES,
    shown_only: bool = False,
    complete_lists: bool = False,
) -> Content:
    """Read a click log as counts, a file of counts, a LETOR file or a converted file, showing progress.

    A click log is counted while it is read, so that it may be larger than memory.

    Parameters
    ----------
    path
        The file.
    reading
        How a log is read.
    context
        The column that tells impressions of a log apart, if any.
    policy_features
        The features that policies use, which are read if no others are named.
    shown_only
        Whether candidates that were never shown are left out.
    complete_lists
        Whether each impression is said to have rows for all its candidates.
    """
    content = _read(path, reading or LogReading(), context, policy_features)
    counts = content.counts
    if counts is None:
        for option, given in (("--shown-only", shown_only), ("--complete-lists", complete_lists)):
            if given:
                raise InputError(f"{option} is for click logs", file=path)
        return content
    counts = counts.shown_only() if shown_only else counts
    counts = counts.with_complete_lists() if complete_lists else counts
    return Content(content.kind, counts.data, counts)


def _read(path: Path, reading: LogReading, context: str | None, policy_features: PolicyFeatures) -> Content:
    renamed = reading.columns
    reading = replace(reading, keep_missing=reading.keep_missing or policy_features.keep_missing)
    with progress("reading") as report:
        table = _table(path)
        if table is None:
            return _labelled(path, reading, policy_features, report)
        if fultr.data.holds_counts(table):
            counts = fultr.read_counts(path, progress=report)
            return _with_chosen(Content("counts", counts.data, counts), reading, path)
        by_name = policy_features.names and all(
            not fultr.logs.is_numbered(names) for names in policy_features.names
        )
        if by_name and reading.features is None and reading.items is None and "kind" not in table.metadata:
            features = fultr.logs.features_of_policies(table, policy_features.names) or []
            categories = fultr.logs.categories_among(features, policy_features.categories or [])
            reading = replace(reading, features=features, categories=reading.categories or categories)
        arguments = {**reading.arguments(), "on_features": say_features(path), "progress": report}
        if holds_aggregated(table, renamed):
            del arguments["on_repeat"]
            counts = fultr.logs.read_aggregated_log(path, **arguments)
            say(f"fultr: {path}: assumes that {fultr.logs.ASSUMPTION}")
            return Content("aggregated log", counts.data, counts)
        if holds_log(table, renamed):
            counts = fultr.count(path, context=context, **arguments)
            return Content("click log", counts.data, counts)
        return _labelled(path, reading, policy_features, report)


def _labelled(
    path: Path, reading: LogReading, policy_features: PolicyFeatures, report: Callable[[int, int], None]
) -> Content:
    data = fultr.datasets.load_dataset(
        path,
        categories=reading.categories or policy_features.categories or (),
        keep_missing=reading.keep_missing,
        progress=report,
    )
    return _with_chosen(Content("labelled data", data), reading, path)


def _with_chosen(content: Content, reading: LogReading, path: Path) -> Content:
    """Return what has its groups and features already, with those of its features that are asked for."""
    if "group" in reading.columns:
        raise InputError(f"holds {content.kind}, which has its groups already; leave --group out", file=path)
    data = fultr.logs.choose_features(content.data, reading.features, reading.exclude, path)
    return content if data is content.data else replace(content, data=data, counts=_on(content.counts, data))


def with_groups_by(content: Content, rule: str | None, path: Path) -> Content:
    """Return labelled data with groups by a rule, if there is one; a log has groups of its own."""
    if rule is None:
        return content
    if content.counts is not None:
        raise InputError("--group-by is for labelled data; --group names the column of a log", file=path)
    try:
        return replace(content, data=fultr.datasets.group_by(content.data, rule))
    except InputError as error:
        raise error.located(path) from None


def _on(counts: fultr.Counts | None, data: fultr.RankingDataset) -> fultr.Counts | None:
    return None if counts is None else counts.with_lists(data)


def say_features(path: object) -> Callable[[tuple[str, ...]], None]:
    """Return what says which columns are features, where they were not named."""

    def say_names(names: tuple[str, ...]) -> None:
        listed = ", ".join(names)
        say(f"fultr: {path}: features are the columns of numbers, {listed}; --exclude leaves columns out")

    return say_names


def read_impressions(path: Path, reading: LogReading | None = None, *, quiet: bool = False) -> fultr.ClickLog:
    """Read the single impressions of a click log; counts of clicks and labelled data are refused."""
    reading, table = reading or LogReading(), _table(path)
    if not holds_impressions(path, reading.columns):
        labelled = table is None or not (
            fultr.data.holds_counts(table) or holds_aggregated(table, reading.columns)
        )
        raise InputError(NO_CLICK_LOG if labelled else NO_IMPRESSIONS, file=path)
    on_features = None if quiet else say_features(path)
    with progress("reading") as report:
        return fultr.read_log(path, on_features=on_features, progress=report, **reading.arguments())


def holds_impressions(path: Path, columns: Mapping[str, str]) -> bool:
    """Say whether a file is a click log with single impressions."""
    table = _table(path)
    if table is None or fultr.data.holds_counts(table) or holds_aggregated(table, columns):
        return False
    return holds_log(table, columns)


def _table(path: Path) -> fultr.data.Table | None:
    """Open a file that may hold clicks."""
    if fultr.logs.is_events(path):
        return fultr.logs.first_table(path)
    # an .arrow file of ours holds labelled data
    kinds = [ending for ending in fultr.data.KINDS if ending != ".arrow"]
    endings = tuple(ending + packed for ending in kinds for packed in ("", *fultr.data.COMPRESSED))
    if not existing_file(path).name.lower().endswith(endings):
        return None
    return fultr.data.open_table(path)


def holds_aggregated(table: fultr.data.Table, columns: Mapping[str, str]) -> bool:
    """Say whether a table counts impressions and clicks by query, document and position."""
    if "kind" in table.metadata:
        return bool(table.metadata["kind"] == fultr.logs.AGGREGATED)
    names = set(table.schema.names)
    return names >= COUNT_COLUMNS and not names & {
        columns.get(name, name) for name in ("impression_id", "click")
    }


def holds_log(table: fultr.data.Table, columns: Mapping[str, str]) -> bool:
    """Say whether a table is a click log, or at least is more like one than like labelled data."""
    if "kind" in table.metadata:
        return bool(table.metadata["kind"] == fultr.logs.LOG)
    names = {name.lower() for name in table.schema.names}
    return any(columns.get(name, name) in names for name in LOG_COLUMNS) or not names & {"relevance", "label"}


def write_any(content: fultr.data.Source, out: Path) -> Path:
    """Write counts, or labelled data as LETOR text or as a dataset, by the ending of the file."""
    if not isinstance(content, fultr.RankingDataset):
        fultr.write_counts(content.compact(), out)
    elif out.suffix.lower() in fultr.datasets.LETOR_ENDINGS:
        fultr.write_letor(content, out)
    else:
        fultr.write_dataset(content, out)
    return out
