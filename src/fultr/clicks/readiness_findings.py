"""What the numbers of a log mean for training and auditing, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from fultr.clicks.pages import UNSEEN_PART
from fultr.logs.inspection import Finding

SMALL_PART = 0.1
"""Up to this part of the candidates, never shown or of unknown group, is nothing to worry about."""

FEW_CLICKS = 30
"""With clicks worth fewer than these, intervals of a group's merit are wide."""

FEW_QUERIES = 20
"""With fewer, intervals by bootstrap over queries are known to be too narrow."""

HARDLY_ANY, MANY_CLICKS = 10, 100
"""Many clicks that are worth hardly any say nothing."""

MOST_GROUPS = 5
"""So many groups are named in a sentence."""

MOST_OF_THEM = 0.8
"""Where pages have a smaller part of the documents of their query, the others decide the disparity."""

LARGE_PART = 0.5
"""From this part of the total on, the largest weights decide alone."""

Severity = Literal["note", "warning", "severe"]


def readiness_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    """Say what the facts of `judge_readiness` mean, for a log that has impressions."""
    yield from _overlap_findings(facts)
    yield from _examination_findings(facts)
    yield from _depth_findings(facts)
    yield from _candidate_findings(facts["candidates"], facts["groups"])
    yield from _query_findings(facts)
    yield from _group_findings(facts)


def _overlap_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    overlap, has_examination = facts["overlap"], facts["examination"]["source"] is not None
    pairs, several = overlap["pairs"], overlap["pairs_at_several_positions"]
    if not pairs:
        return
    if not several:
        sentence = (
            f"None of {pairs} query-document pairs was shown at two positions: position bias cannot be told"
            " from relevance with this log alone, so that none can be estimated or checked. Take it from"
            " another log or an experiment, or let rankings vary: swap items at random in some impressions."
        )
        yield Finding("note" if has_examination else "severe", "position", sentence)
        return
    sentence = (
        f"{several} of {pairs} query-document pairs ({several / pairs:.0%}) were shown at two positions or"
        " more: that is what position bias can be estimated from."
    )
    yield Finding("note", "position", sentence)
    if apart := overlap["positions_not_linked"]:
        sentence = (
            f"No documents link position 1 with {_ranges(apart)}, by being shown at both or through other"
            " positions: how likely these are looked at cannot be estimated from this log. Let rankings vary"
            " that far, or give a position bias that goes on (beyond)."
        )
        yield Finding("note" if has_examination else "warning", "position", sentence)


def _examination_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    examined, weights = facts["examination"], facts["weights"]
    if examined["source"] is None:
        sentence = (
            "The log has neither propensities nor a position bias, so that weights of clicks cannot be"
            " judged, nor anything be trained or audited: give one (--eta or --bias), or estimate it (fultr"
            " propensity)."
        )
        yield Finding("warning", "propensity", sentence)
    elif examined["problem"] is not None:
        sentence = (
            f"Clicks cannot be weighted: {examined['problem']}. Give a position bias that fits the log."
        )
        yield Finding("severe", "propensity", sentence)
    elif weights is not None:
        clicks, size = weights["clicks"], weights["effective_sample_size"]
        largest, share = weights["largest_clicks"], weights["share_of_largest_clicks"]
        sentence = (
            f"A click weighs up to {weights['largest']:.3g}; all {clicks} are worth {size:.0f} of equal"
            f" weight, and the {largest} largest carry {share:.0%} of the total."
        )
        severity: Severity = "note"
        # the largest of a few clicks carry much of the total whatever their weights
        if size < clicks * SMALL_PART or (share > LARGE_PART and clicks >= MANY_CLICKS):
            severity = "severe" if size < HARDLY_ANY and clicks >= MANY_CLICKS else "warning"
            sentence += (
                " Few clicks decide everything: check the position bias at deep positions, clip weights"
                " (--clip), or collect more clicks."
            )
        yield Finding(severity, "propensity", sentence)


def _depth_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    depth, longest = facts["depth"], facts["candidates"]["longest_list"]
    shown, clicked, below = depth["shown"], depth["clicked"], depth["shown_below_clicked"]
    if 0 < shown < longest and depth["told"] is None:
        sentence = (
            f"Nothing is shown below position {shown}, though lists have up to {longest} candidates: that is"
            " taken for the end of the page: nobody looks beyond. If pages are deeper, say so (--depth)."
        )
        yield Finding("note", "position", sentence)
    if 0 < clicked < shown:
        total = sum(entry["shown"] for entry in facts["positions"])
        sentence = (
            f"Nothing below position {clicked} was clicked, though items are shown down to {shown}"
            f" ({below / total:.0%} of all that is shown): items that stay there have no merit. Look whether"
            " clicks are logged that deep."
        )
        yield Finding("warning" if below > total * LARGE_PART else "note", "position", sentence)


def _candidate_findings(candidates: dict[str, Any], groups: dict[str, Any]) -> Iterator[Finding]:
    pairs, never = candidates["pairs"], candidates["pairs_never_shown"]
    if never:
        parts = [
            f"{group['pairs_never_shown'] / group['pairs']:.0%} of group '{name}'"
            for name, group in groups.items()
            if group["known"] and group["pairs_never_shown"]
        ]
        by_group = f", {', '.join(parts[:MOST_GROUPS])}" if parts else ""
        sentence = (
            f"{never} of {pairs} query-document pairs ({never / pairs:.0%}{by_group}) were never shown: their"
            " merit is unknown, and so is every disparity they have a part in. Show them now and then, or"
            " leave them out (--shown-only); limits are refused where they could break them."
        )
        severity: Severity = "warning" if never > pairs * SMALL_PART else "note"
        if parts and never > pairs * UNSEEN_PART:
            severity = "severe"
        yield Finding(severity, "position", sentence)
    if left_out := candidates["left_out"]:
        is_much = left_out["candidates"] > left_out["of"] * UNSEEN_PART
        yield Finding("severe" if is_much else "note", "position", sentence_of_left_out(left_out))
    share = candidates["share_on_a_page"]
    if share is not None and share < 1 - UNSEEN_PART:
        sentence = (
            f"Impressions have only what they show, on average {share:.0%} of the documents of their query:"
            " candidates that were not on a page are not in the log, and every disparity is one between items"
            " on the same page. That between all candidates may be quite another, so that limits are refused."
            " Log all candidates, with an empty position for those that were not shown; or say that there"
            " were no others (--complete-lists)."
        )
        yield Finding("severe" if share < MOST_OF_THEM else "warning", "position", sentence)
    entries, hidden = candidates["entries"], candidates["entries_not_shown"]
    if hidden:
        sentence = (
            f"{hidden / entries:.0%} of the candidates of impressions were not shown: a click is weighed by"
            " how likely its document is looked at on average over all impressions of its list: right for"
            " every document that was shown at all."
        )
        yield Finding("note", "position", sentence)


def _query_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    queries = facts["queries"]
    total, again, same = queries["shown"], queries["shown_again"], queries["shown_again_in_one_ranking"]
    if never := queries["never_clicked"]:
        sentence = f"{never} of {total} queries were never clicked: nothing is learned there."
        yield Finding("warning" if never > total * LARGE_PART else "note", "clicks", sentence)
    if same and facts["overlap"]["pairs_at_several_positions"]:
        sentence = (
            f"{same} of {again} queries that came more than once always showed the same ranking: they say"
            " nothing of position bias."
        )
        yield Finding("note", "position", sentence)
    if total < FEW_QUERIES:
        few = "is one query only" if total == 1 else f"are {total} queries only"
        sentence = (
            f"There {few}: intervals, which draw queries anew, are too narrow or"
            " missing, and validation on other queries says little. Log more of them."
        )
        yield Finding("warning" if total == 1 else "note", "queries", sentence)


def _group_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    groups = facts["groups"]
    named_groups = {name: group for name, group in groups.items() if group["known"] and group["pairs"]}
    by_kind: dict[str, list[Finding]] = {}
    for name, group in named_groups.items():
        for kind, finding in _evidence_finding(name, group):
            by_kind.setdefault(kind, []).append(finding)
    for kind, findings in by_kind.items():
        yield from findings if len(findings) <= MOST_GROUPS else _of_many(kind, findings)
    if len(named_groups) > 1 and not facts["impressions_of_several_groups"]:
        sentence = (
            "No impression has candidates of two groups: disparity compares groups within a query, and is 0"
            " here whatever the ranking. Look whether groups were assigned by query."
        )
        yield Finding("severe", "group", sentence)
    unknown = next((group for group in groups.values() if not group["known"]), None)
    if unknown is None or not any(group["known"] for group in groups.values()):
        return
    items = unknown["pairs"] / facts["candidates"]["pairs"]
    clicks = unknown["clicks"] / max(facts["clicks"], 1)
    sentence = (
        f"{unknown['pairs']} of {facts['candidates']['pairs']} query-document pairs ({items:.0%}) are in no"
        f" known group; they have {clicks:.0%} of the clicks. They count for utility, but in no disparity:"
        " find out their groups if they are many."
    )
    yield Finding("warning" if max(items, clicks) > SMALL_PART else "note", "group", sentence)


def _evidence_finding(name: str, group: dict[str, Any]) -> Iterator[tuple[str, Finding]]:
    """Yield what is wrong with the evidence of a group, if anything: the kind of it and the finding."""
    clicks, size = group["clicks"], group["effective_sample_size"]
    if not group["shown"]:
        sentence = (
            f"Group '{name}' was never shown: its merit, and the exposure it deserves, are unknown. Show its"
            " items before you judge it."
        )
        yield "were never shown", Finding("severe", "group", sentence)
    elif not clicks:
        sentence = (
            f"Group '{name}' was never clicked: its merit is estimated as zero, and so is the exposure it"
            " deserves. Collect more impressions, or leave the group out."
        )
        yield "were never clicked", Finding("severe", "group", sentence)
    elif (clicks if size is None else size) < FEW_CLICKS:
        worth = "" if size is None else f", worth {size:.0f} of equal weight"
        sentence = (
            f"Group '{name}' has {clicks} clicks{worth}: intervals of its merit, and of every disparity with"
            " it, will be wide. Collect more impressions before you rely on them."
        )
        yield "have few clicks", Finding("warning", "group", sentence)


def _of_many(kind: str, findings: list[Finding]) -> Iterator[Finding]:
    """Yield the findings of the first groups, and one for all the others of the same kind."""
    yield from findings[:MOST_GROUPS]
    sentence = f"{len(findings) - MOST_GROUPS:,} more groups {kind}. Merge small groups, or leave them out."
    yield Finding(findings[0].severity, "group", sentence)


def _ranges(positions: list[int], most: int = 5) -> str:
    """Return positions in order as text, neighbours as one range."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], position]
        else:
            runs.append([position, position])
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:most]]
    return ", ".join(texts) + (" and deeper ones" if len(runs) > most else "")


def sentence_of_left_out(left_out: Mapping[str, Any]) -> str:
    """Say which candidates were left out, as `Counts.shown_only` notes it under `NEVER_SHOWN`."""
    missing, total = left_out["candidates"], left_out["of"]
    parts = [f"{share:.0%} of group '{name}'" for name, share in left_out["groups"].items() if share]
    by_group = f", {', '.join(parts[:MOST_GROUPS])}" if parts else ""
    return (
        f"{missing} of {total} candidates ({missing / total:.0%}{by_group}) were never shown and are left"
        " out: every number is one of the candidates that were shown, and that of all may be another."
    )
