"""Whether a log supports training and auditing, judged before anyone does either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.click_model import PositionBias, PositionBiasByContext
from fultr.clicks.bias_cells import sums_by
from fultr.clicks.examination import AnyBias, with_examination
from fultr.clicks.pages import share_on_a_page
from fultr.clicks.readiness_counts import (
    ClickWeights,
    Shown,
    effective_size,
    share_of_largest,
)
from fultr.clicks.readiness_findings import readiness_findings
from fultr.data import ClickLog, Counts
from fultr.data.counts import NEVER_SHOWN
from fultr.data.dataset import named_groups, rows_of
from fultr.data.ids import UNKNOWN_GROUP
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError
from fultr.logs.inspection import Finding, log_findings

WORST_FIRST = ("severe", "warning", "note")
QUANTILES = (0.5, 0.9, 0.99)
LARGEST_SHARE = 0.01
"""The part of the clicks whose weights are called the largest; at least one click."""


@dataclass(frozen=True, eq=False)
class Readiness:
    """What to know of a log before it is trained on or audited.

    Parameters
    ----------
    findings
        What was found, the worst first; each says what it means and what to do.
    facts
        The numbers behind the findings, as plain values.
    """

    findings: tuple[Finding, ...]
    facts: dict[str, Any]

    @property
    def severe(self) -> tuple[Finding, ...]:
        """The findings with which results cannot be trusted; empty, and so false, if there are none."""
        return tuple(finding for finding in self.findings if finding.severity == "severe")

    def to_dict(self) -> dict[str, Any]:
        """Return findings and facts as plain values."""
        return {"findings": [finding.to_dict() for finding in self.findings], "facts": self.facts}


def judge_readiness(
    log: ClickLog | Counts, position_bias: AnyBias | None = None, depth: int | None = None
) -> Readiness:
    """Judge whether a log supports training and auditing.

    Parameters
    ----------
    log
        The clicks. Counts that were imported from elsewhere say nothing of single impressions.
    position_bias
        How likely positions are looked at; by default the propensities in the log, or the bias it carries.
        Without any, the weights of clicks are not judged.
    depth
        How many positions a page has, if it is not as many as anything was shown at.

    Examples
    --------
    >>> from fultr import PositionBias, RandomRanking, datasets, simulate_clicks
    >>> data = datasets.synthetic(queries=100, list_length=4, features=2, relevant=2).train
    >>> log = simulate_clicks(data, RandomRanking(), PositionBias.power(1.0), impressions=2_000)
    >>> readiness = judge_readiness(log)
    >>> readiness.severe
    ()
    >>> readiness.facts["overlap"]["pairs_at_several_positions"] > 0
    True
    """
    counts, curve = with_examination(log.compact(), position_bias)
    shown = Shown.of(counts)
    weights, examined = _weighed(counts, curve, position_bias, depth)
    candidates = _Candidates.of(counts, shown)
    lengths = counts.data.lengths
    entries, impressions = int(counts.impressions @ lengths), int(counts.impressions.sum())
    clicked = int(counts.clicked_impressions.sum()) if counts.knows_clicked_impressions else None
    facts = {
        "empties_dropped": counts.empties_dropped,
        "impressions": impressions,
        "impressions_without_click": None if clicked is None else impressions - clicked,
        "clicks": int(shown.clicks_at.sum()),
        "queries": _query_facts(counts, shown),
        "candidates": {
            "pairs": int(candidates.used.sum()),
            "pairs_never_shown": int((candidates.used & (shown.first_position == NOT_SHOWN)).sum()),
            "entries": entries,
            "entries_not_shown": entries - int(shown.shown_at.sum()),
            "longest_list": int(lengths[counts.impressions > 0].max(initial=0)),
            "left_out": counts.origin.get(NEVER_SHOWN),
            "share_on_a_page": share_on_a_page(counts),
        },
        "positions": _position_facts(shown),
        "depth": {**_depth_facts(shown), "told": depth},
        "overlap": {
            "pairs": int(np.count_nonzero(shown.first_position)),
            "pairs_at_several_positions": int(shown.is_at_several.sum()),
            "positions_not_linked": shown.not_linked(),
        },
        "examination": examined,
        "weights": None if weights is None else _weight_facts(weights),
        "groups": _group_facts(counts, shown, candidates, weights),
        "impressions_of_several_groups": int(counts.impressions[candidates.groups_in_list > 1].sum()),
        "single_impressions": None if counts.facts is None else counts.facts.describe(),
    }
    findings = [*log_findings(counts), *(readiness_findings(facts) if impressions else ())]
    findings.sort(key=lambda finding: WORST_FIRST.index(finding.severity))
    return Readiness(tuple(findings), facts)


def severe_lines(readiness: Readiness) -> list[str]:
    """Return a line for each severe finding, for those who use the log all the same."""
    return [finding.sentence for finding in readiness.severe]


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Which items are candidates of a list that was shown, their groups, and the groups of lists.

    `impressions_of` is how many impressions had a candidate of each group, the unknown one the last.
    """

    used: NDArray[np.bool_]
    group: NDArray[np.int32]
    impressions_of: NDArray[np.int64]
    groups_in_list: NDArray[np.int32]

    @classmethod
    def of(cls, counts: Counts, shown: Shown) -> _Candidates:
        data = counts.data
        used = np.zeros(shown.first_position.size, dtype=np.bool_)
        used[shown.item_of_row[rows_of(data.offsets, np.flatnonzero(counts.impressions))]] = True
        groups = len(data.group_names) + 1
        group = np.zeros(used.size, dtype=np.int32)
        group[shown.item_of_row] = data.group % groups
        impressions_of = np.zeros(groups, dtype=np.int64)
        groups_in_list = np.zeros(len(data), dtype=np.int32)
        for code, _ in named_groups(data.group_names) if len(data) else ():
            holds = np.logical_or.reduceat(data.group == code, data.offsets[:-1])
            impressions_of[code] = counts.impressions[holds].sum()
            groups_in_list += holds & (code != UNKNOWN_GROUP)
        return cls(used, group, impressions_of, groups_in_list)


def _weighed(
    counts: Counts, position_bias: PositionBias | None, asked: AnyBias | None, depth: int | None
) -> tuple[ClickWeights | None, dict[str, Any]]:
    """Return the weights of clicks, if they are known, and where they come from."""
    bias, context = position_bias, asked.column if isinstance(asked, PositionBiasByContext) else None
    if position_bias is not None:
        source = "given"
    elif counts.cells.propensity is not None:
        source = "propensities"
    elif counts.position_bias is not None:
        source, bias = "log", counts.position_bias
    else:
        return None, {"source": None, "position_bias": None, "context": None, "problem": None}
    if bias is not None and depth is not None:
        bias = bias.cut(depth)
        position_bias = bias if position_bias is not None or source == "log" else None
    curve = None if bias is None else bias.to_dict()
    examined = {"source": source, "position_bias": curve, "context": context, "problem": None}
    try:
        # the propensities of contexts are in the counts
        return ClickWeights.of(counts, position_bias if context is None else None), examined
    except InputError as error:
        return None, {**examined, "problem": str(error)}


def _query_facts(counts: Counts, shown: Shown) -> dict[str, int]:
    query = counts.data.query_codes
    size = int(query.max(initial=-1)) + 1
    impressions = sums_by(query, counts.impressions, size)
    clicked = sums_by(query, counts.least_clicked_impressions(), size)
    varied = np.zeros(size, dtype=np.bool_)
    rows = np.flatnonzero(shown.is_at_several[shown.item_of_row])
    varied[query[counts.data.list_of_row[rows]]] = True
    return {
        "shown": int((impressions > 0).sum()),
        "never_clicked": int(((impressions > 0) & (clicked == 0)).sum()),
        "shown_again": int((impressions > 1).sum()),
        "shown_again_in_one_ranking": int(((impressions > 1) & ~varied).sum()),
    }


def _position_facts(shown: Shown) -> list[dict[str, Any]]:
    return [
        {
            "position": position,
            "shown": int(shown.shown_at[position]),
            "clicks": int(shown.clicks_at[position]),
            "click_rate": float(shown.clicks_at[position] / shown.shown_at[position]),
        }
        for position in np.flatnonzero(shown.shown_at).tolist()
    ]


def _depth_facts(shown: Shown) -> dict[str, int]:
    clicked = int(np.flatnonzero(shown.clicks_at).max(initial=0))
    return {
        "shown": int(np.flatnonzero(shown.shown_at).max(initial=0)),
        "clicked": clicked,
        "shown_below_clicked": int(shown.shown_at[clicked + 1 :].sum()),
    }


def _weight_facts(weights: ClickWeights) -> dict[str, Any] | None:
    if not weights.weight.size:
        return None
    weight, up_to = weights.in_order()
    clicks = int(up_to[-1])
    largest = max(1, round(clicks * LARGEST_SHARE))
    total = weight[-1] * float((weight / weight[-1]) @ np.diff(up_to, prepend=0))
    return {
        "clicks": clicks,
        "effective_sample_size": effective_size(weights.weight, weights.clicks),
        "mean": float(total / clicks),
        "quantiles": {
            f"{share:.0%}": float(weight[np.searchsorted(up_to, share * clicks)]) for share in QUANTILES
        },
        "largest": float(weight[-1]),
        "largest_clicks": largest,
        "share_of_largest_clicks": share_of_largest(weight, up_to, largest),
    }


def _group_facts(
    counts: Counts, shown: Shown, candidates: _Candidates, weights: ClickWeights | None
) -> dict[str, Any]:
    data, impressions = counts.data, int(counts.impressions.sum())
    groups = len(data.group_names) + 1
    pairs = np.bincount(candidates.group[candidates.used], minlength=groups)
    never = candidates.used & (shown.first_position == NOT_SHOWN)
    hidden = np.bincount(candidates.group[never], minlength=groups)
    largest, merit, sizes = (None, None, None) if weights is None else weights.by_group(groups)
    facts = {}
    for code, name in named_groups(data.group_names):
        if code == UNKNOWN_GROUP and not pairs[code]:
            continue
        seen, clicks = int(shown.shown_of[code]), int(shown.clicks_of[code])
        facts[name] = {
            "known": code != UNKNOWN_GROUP,
            "pairs": int(pairs[code]),
            "pairs_never_shown": int(hidden[code]),
            "impressions": int(candidates.impressions_of[code]),
            "shown": seen,
            "mean_position": float(shown.depth_of[code] / seen) if seen else None,
            "clicks": clicks,
            "click_rate": clicks / max(seen, 1),
            "merit": None if merit is None else float(merit[code] / max(impressions, 1)),
            "effective_sample_size": None if sizes is None else float(sizes[code]),
            "largest_weight": None if largest is None else float(largest[code]),
        }
    return facts
