"""What an audit refuses, and what it has to say beside its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import finite_number
from fultr.audits.pairs import MOST_PAIRS, queries_of_pairs
from fultr.audits.ranking_result import LOGGED
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks import check_candidates, judge_readiness
from fultr.data import ClickLog, Counts, RankingDataset
from fultr.errors import InputError
from fultr.evaluation.inputs import checked_source
from fultr.logs.frames import is_frame
from fultr.training.overlap import Overlap, notes_on_overlap, overlap_with_training
from fultr.training.sources import noise_of

FEW_QUERIES = 20
"""With fewer queries that say something of a pair, intervals by bootstrap are too narrow."""

MOST_NAMED = 5
"""So many pairs of groups are named in a note."""


def counted(log: object, policies: Mapping[str, object]) -> Counts:
    """Return a log, or a frame of one, as counts of lists that were shown, of two queries at least."""
    source = checked_source(log, *policies.values()) if is_frame(log) else log
    if not isinstance(source, (ClickLog, Counts)):
        problem = "must be a ClickLog, a Counts or a frame of a log"
        raise InputError(problem, column="log", value=type(log).__name__)
    counts = source.compact()
    if not counts.impressions.all():
        counts = counts[np.flatnonzero(counts.impressions)]
    queries = int(np.unique(counts.data.query_codes).size)
    if queries < 2:
        problem = "an audit needs two queries at least: how much they differ is what intervals are made of"
        raise InputError(problem, column="query_id", value=queries)
    return counts


def named_policies(policies: object) -> dict[str, object]:
    """Return policies by name."""
    if not isinstance(policies, Mapping):
        raise InputError("must be policies by name", column="policies", value=type(policies).__name__)
    if LOGGED in policies:
        problem = "is the name of the ranking that was logged; give the policy another one"
        raise InputError(problem, column="policies", value=LOGGED)
    return {str(name): policy for name, policy in policies.items()}


def overlaps_with_training(
    policies: Mapping[str, object], log: Counts, lists: RankingDataset
) -> dict[str, Overlap]:
    """Return what a log shares with the training of each policy; refuse impressions of the training.

    `lists` are those that are audited: the log's, contexts being merged.
    """
    overlaps = {}
    for name, policy in policies.items():
        overlap = overlap_with_training(policy, log, lists)
        if overlap is None:
            continue
        if overlap.same_impressions:
            files = f" ({', '.join(overlap.files[:MOST_NAMED])})" if overlap.files else ""
            share = "" if overlap.share is None else f", about {overlap.share:.0%} of all"
            problem = (
                f"the log holds impressions that {name} was trained or validated on{files}{share}, where its"
                " disparity is small by construction; audit it on other clicks, of a later week or put aside"
                " by fultr split"
            )
            raise InputError(problem)
        overlaps[name] = overlap
    return overlaps


def new_lists(overlap: Overlap, log: Counts) -> NDArray[np.int64] | None:
    """Return the lists of queries that training never saw, if some recur and enough do not."""
    if overlap.recurring is None or not overlap.recurring.any() or overlap.recurring.all():
        return None
    lists = np.flatnonzero(~overlap.recurring)
    new = log[lists]
    met = queries_of_pairs(new)
    most = met.max() if met.size else np.unique(new.data.query_codes).size
    return lists if most >= FEW_QUERIES else None


def notes_on_training(overlaps: Mapping[str, Overlap], log: Counts) -> Iterator[str]:
    """Yield what a log shares with the training of policies, and what that means."""
    for name, overlap in overlaps.items():
        yield from notes_on_overlap(name, overlap, log.data)
        if overlap.recurring is not None and overlap.recurring.any() and not overlap.recurring.all():
            new = int(np.unique(log.data.query_codes[~overlap.recurring]).size)
            yield (
                f"{new:,} queries are new to {name}, too few that say something for a result of their own"
                if new_lists(overlap, log) is None
                else f"the result of {name} on the {new:,} queries that are new to it is given apart"
            )


def noise_to_take_off(asked: ClickNoise | None, log: Counts) -> tuple[ClickNoise | None, list[str]]:
    """Return the noise asked for, or else that of the log, and what is to be said of it."""
    if asked is not None and not isinstance(asked, ClickNoise):
        raise InputError("must be a ClickNoise", column="noise", value=asked)
    if not log.empties_dropped:
        return noise_of(asked, log), []
    if asked not in (None, ClickNoise()):
        problem = (
            "noise cannot be taken off in a log whose impressions without a click were dropped;"
            " leave it out, or audit a log that kept them"
        )
        raise InputError(problem, column="noise")
    notes = [
        "impressions without a click were dropped: merit, utility and disparity are known only up to a factor"
    ]
    if log.noise not in (None, ClickNoise()):
        notes.append("the log says that its clicks are noisy, which cannot be taken off without them")
    return None, notes


def check_limit(max_disparity: float | None, log: Counts, met: NDArray[np.int64]) -> None:
    """Refuse a limit that the log cannot say anything about: a pass would mean nothing.

    `met` is in how many queries pairs of groups meet.
    """
    if max_disparity is None:
        return
    finite_number(max_disparity, "max_disparity")
    if log.empties_dropped:
        problem = (
            "a limit cannot be checked on a log whose impressions without a click were dropped, since its"
            " disparity is known only up to a factor; use a log that kept them"
        )
        raise InputError(problem, column="max_disparity", value=max_disparity)
    check_candidates(log, max_disparity)
    if not met.any():
        problem = (
            "a limit needs two groups that meet in a list of the log, and a click on one of them;"
            " without, the disparity is 0 whatever the ranking"
        )
        raise InputError(problem, column="max_disparity", value=max_disparity)


def notes_on_log(log: Counts, met: NDArray[np.int64]) -> Iterator[str]:
    """Yield what to know of a log before relying on an audit."""
    names = log.data.group_names
    if len(names) < 2:
        yield f"there are {len(names)} groups, so that there is no pair whose disparity could be measured"
    few = np.flatnonzero(met < FEW_QUERIES)
    if few.size:
        first, second = np.triu_indices(len(names), k=1)
        named = ", ".join(
            f"{names[first[pair]]} and {names[second[pair]]} in {met[pair]:,}" for pair in few[:MOST_NAMED]
        )
        more = f" and {few.size - MOST_NAMED:,} more pairs" if few.size > MOST_NAMED else ""
        yield (
            f"groups that meet with a click in fewer than {FEW_QUERIES} queries have intervals that are too"
            f" narrow: {named}{more}"
        )
    if met.size > MOST_PAIRS:
        yield (
            f"there are {met.size:,} pairs of groups: those with the {MOST_PAIRS:,} largest disparities are"
            " kept, and the disparity of a ranking is that of all"
        )
    unknown = int((log.data.group < 0).sum())
    if unknown:
        yield (
            f"{unknown:,} of {log.data.rows:,} items are of unknown group: in no group, though they take"
            " positions and count for utility"
        )
    never = int((log.shown() == 0).sum())
    if never:
        yield (
            f"{never:,} of {log.data.rows:,} candidates were never shown: their merit is unknown, they count"
            " in no group, and intervals of the disparity hold whatever it is; differences between rankings"
            " are those of the candidates that were shown"
        )
    if log.has_own_weights:
        yield "clicks are weighed by the propensities of the log, which stay as they are under other biases"


def findings_on(log: Counts, position_bias: PositionBias) -> tuple[dict[str, str], ...]:
    """Return what is suspicious of a log, as `fultr.clicks.judge_readiness` finds it."""
    bias = None if log.has_own_weights else position_bias
    judged = judge_readiness(log, bias)
    return tuple(finding.to_dict() for finding in judged.findings)
