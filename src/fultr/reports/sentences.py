"""Numbers and summaries as text, for people who will not read a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fultr.audits import Audit, AuditEstimate
from fultr.data import RankingDataset
from fultr.reports.content import DataPart, Group, MeasuredRanking, Ranking, best_under
from fultr.reports.runs import TrainingRun

NOT_KNOWN = "\u2013"
LARGE = 100
"""From here on, numbers have one decimal."""

KEPT = 0.95


def number_text(value: float | None, decimals: int = 4) -> str:
    """Return a number as text; the script of the page does the same.

    Examples
    --------
    >>> number_text(0.38984), number_text(-0.00001), number_text(1234.5)
    ('0.3898', '0.0000', '1234.5')
    """
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    text = f"{value:.{1 if abs(value) >= LARGE else decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def share_text(value: float | None) -> str:
    """Return a share in percent."""
    return NOT_KNOWN if value is None or not math.isfinite(value) else f"{number_text(100 * value, 1)}%"


def quoted(name: str) -> str:
    """Return a name from data in quotes; whatever direction it is written in stays inside them."""
    return f"“\u2068{name}\u2069”"


def number_of(number: int, what: str) -> str:
    """Return a number of things, such as "3 policies".

    Examples
    --------
    >>> number_of(1, "query"), number_of(2000, "query"), number_of(2, "click")
    ('1 query', '2,000 queries', '2 clicks')
    """
    many = what[:-1] + "ies" if what.endswith("y") else f"{what}s"
    return f"{number:,} {what if number == 1 else many}"


def summary_of_run(
    run: TrainingRun, parts: Sequence[DataPart], rankings: Sequence[Ranking], data: RankingDataset | None
) -> Iterator[str]:
    """Yield what a run found, in sentences."""
    part = parts[0]
    policies = [one for one in rankings if one.kind == "policy"]
    of = f" from {number_of(len(data), 'candidate list')}" if data is not None else ""
    known = [(one.ranker.new_queries_, one.name) for one in run.policies if one.ranker.new_queries_]
    if known:
        expected, name = min(known, key=lambda one: float(one[0]["disparity"][2]))
        yield _expectation(run, expected, f" of “{name}”" if len(run.policies) > 1 else "")
    if run.command == "train":
        yield f"The run trained one ranking policy{of}. {_goal(run, policies[0])}"
    else:
        chosen = f", chosen from {run.trained:,} that were trained" if run.trained > len(policies) else ""
        yield (
            f"The run made {number_of(len(policies), 'ranking policy')}{of}{chosen}, from the most useful to"
            " the fairest: λ is what disparity costs in training."
        )
    logged = next((one for one in rankings if one.kind == "logged"), None)
    if logged is not None:
        yield f"As logged, the ranking has {_both(logged.measured[part.key])} on {part.name}."
    yield from _policies(policies, logged, part)
    shown = best_under(policies, part.key, KEPT)
    if shown is not None:
        yield from _of_groups(shown, part)


def _expectation(run: TrainingRun, expected: Mapping[str, Any], name: str) -> str:
    """Say what new queries will show of a policy: first the bound, which is what can be relied on.

    Of several policies it is the one with the lowest bound, and is named.
    """
    value, _low, high = expected["disparity"]
    alone = " for this policy by itself, not for the best of several" if name else ""
    bound = f"at most {number_text(high)}, with {expected['confidence'] * 100:.4g}% confidence{alone}"
    kept = ""
    if "confidence" in run.goal:
        kept = f", which keeps the limit of {run.goal['max_disparity']:g} that was asked for"
    return (
        f"On new queries the disparity{name} is {bound}{kept}. On left-out clicks it is {number_text(value)}."
    )


def _goal(run: TrainingRun, policy: Ranking) -> str:
    found = policy.measured["training"]
    if "confidence" in run.goal:
        return "It is the most useful of those tried that keep the limit on new queries."
    if "max_disparity" in run.goal:
        limit = run.goal["max_disparity"]
        kept = "keeps" if found.passes else "does not keep"
        return (
            f"It was asked for a disparity of at most {limit:g} on the training clicks, where it has"
            f" {number_text(found.disparity.value)}: it {kept} that limit."
        )
    if "min_utility" in run.goal:
        share = share_text(run.goal["min_utility"])
        return f"It was asked to keep {share} of the best utility on the training clicks and be the fairest."
    return f"Disparity had the price {policy.name} in training."


def _policies(policies: Sequence[Ranking], logged: Ranking | None, part: DataPart) -> Iterator[str]:
    def measured_of(one: Ranking) -> MeasuredRanking:
        return one.measured[part.key]

    useful = max(policies, key=lambda one: measured_of(one).utility.value)
    fairest = min(policies, key=lambda one: measured_of(one).disparity.value)
    against = "" if logged is None else _against(measured_of(useful), measured_of(logged))
    if len(policies) == 1:
        yield f"On {part.name} ({part.about}) the policy has {_both(measured_of(useful))}{against}."
        return
    yield (
        f"On {part.name} ({part.about}) the most useful policy, {useful.name}, has"
        f" {_both(measured_of(useful))}{against}."
    )
    if fairest is not useful:
        yield (
            f"The fairest, {fairest.name}, has {_both(measured_of(fairest))}:"
            f" {_change(measured_of(fairest), measured_of(useful))}."
        )
    between = best_under(policies, part.key, KEPT)
    if between is not None and between not in (useful, fairest):
        yield (
            f"The fairest that keeps {KEPT:.0%} of the highest utility is {between.name}, with"
            f" {_both(measured_of(between))}: {_change(measured_of(between), measured_of(useful))}."
        )


def _both(measured: MeasuredRanking) -> str:
    utility, disparity = number_text(measured.utility.value), number_text(measured.disparity.value)
    return f"a utility (DCG) of {utility} and a disparity of {disparity}"


def _against(measured: MeasuredRanking, logged: MeasuredRanking) -> str:
    return f", {_change(measured, logged)} (compared with the logged ranking)"


def _change(measured: MeasuredRanking, other: MeasuredRanking) -> str:
    """Return how much less or more utility and disparity are than those of another."""
    words = []
    for name, one, before in (
        ("disparity", measured.disparity.value, other.disparity.value),
        ("utility", measured.utility.value, other.utility.value),
    ):
        if before > 0 and one >= 0:
            change = one / before - 1
            words.append(f"{share_text(abs(change))} {'less' if change < 0 else 'more'} {name}")
        else:
            words.append(f"{name} {number_text(one)} instead of {number_text(before)}")
    return " and ".join(words)


def _of_groups(ranking: Ranking, part: DataPart) -> Iterator[str]:
    """Yield what the ranking means for the groups with the most and the least exposure for their merit."""
    measured = ranking.measured[part.key]
    with_merit = [group for group in measured.groups if math.isfinite(group.exposure_per_merit.value)]
    if len(with_merit) < 2:
        return
    by_ratio = sorted(with_merit, key=lambda group: group.exposure_per_merit.value)
    least, most = by_ratio[0], by_ratio[-1]
    low, high = least.exposure_per_merit.value, most.exposure_per_merit.value
    times = f", {number_text(high / low, 2)} times as much" if low > 0 else ""
    yield (
        f"{_under(ranking)}, {quoted(least.name)} gets {number_text(low, 2)} of exposure for each unit of"
        f" merit (one relevant item), and {quoted(most.name)} {number_text(high, 2)}{times}."
    )
    yield from _certainty(measured.disparity)
    yield _shares(ranking, measured, least)


def _under(ranking: Ranking) -> str:
    return "As logged" if ranking.kind == "logged" else f"Under {quoted(ranking.name)}"


def _certainty(disparity: AuditEstimate) -> Iterator[str]:
    if not math.isfinite(disparity.high):
        return
    more = ": no disparity at all is possible too" if disparity.low <= 0 else ""
    yield (
        f"The clicks allow for a disparity from {number_text(disparity.low)} to"
        f" {number_text(disparity.high)} there{more}."
    )


def _shares(ranking: Ranking, measured: MeasuredRanking, group: Group) -> str:
    return (
        f"{_under(ranking)}, {quoted(group.name)} has {share_text(group.exposure_share.value)} of the"
        f" exposure and {share_text(group.merit_share.value)} of the merit, and the disparity is"
        f" {number_text(measured.disparity.value)}. Equal shares and D = 0 are not the same thing: the"
        " section on what the numbers mean says why."
    )


def summary_of_audit(audit: Audit, rankings: Sequence[Ranking], part: DataPart) -> Iterator[str]:
    """Yield what an audit found, in sentences."""
    yield (
        f"The audit looked at {number_of(audit.clicks, 'click')} in"
        f" {number_of(audit.impressions, 'impression')} of {number_of(audit.queries, 'query')}."
    )
    for ranking, audited in zip(rankings, audit.rankings.values(), strict=True):
        found = ranking.measured[part.key]
        subject = "The logged ranking" if ranking.kind == "logged" else f"The policy {quoted(ranking.name)}"
        yield f"{subject} has {_both(found)}{_verdict(found, audit.max_disparity)}."
        if audited.verdict_depends_on_bias:
            yield (
                "This verdict rests on the position bias: another one that is possible gives another verdict."
                " Measure the position bias better before you rely on it."
            )
    if audit.max_disparity is not None:
        yield (
            "A ranking passes if the upper confidence bound of its disparity keeps the limit, and not just"
            " the disparity itself."
        )
    shown = rankings[-1] if len(rankings) == 2 else rankings[0]
    yield from _of_groups(shown, part)


def _verdict(measured: MeasuredRanking, limit: float | None) -> str:
    bounds = f", which may be as high as {number_text(measured.disparity.high)}"
    if limit is None or measured.passes is None:
        return bounds if math.isfinite(measured.disparity.high) else ""
    verdict = "it passes" if measured.passes else "it does not pass"
    return f"{bounds}: {verdict} the limit of {limit:g}"
