"""The picture of an audit: what share of merit and of exposure each group has."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fultr.audits.ranking_result import AuditEstimate, RankingAudit
from fultr.audits.result import Audit
from fultr.errors import visible
from fultr.plots import INK, MARKERS, PALETTE, canvas_of, distances_to_ends, save_picture

MOST_GROUPS = 40
"""Groups in the picture; of more, those furthest from their share of merit in any ranking."""

LEAST_HEIGHT, MOST_HEIGHT, HEIGHT_OF_A_POINT, MARGIN = 4.2, 60.0, 0.22, 1.6
"""In inches; the more groups and rankings, the higher the picture."""


def draw_shares(audit: Audit, path: str | Path) -> Path:
    """Draw for each group its share of merit, and its share of exposure in every ranking, with intervals.

    Where a ranking gives exposure in proportion to merit, its points lie at those of the merit.
    """
    figure, (axes,) = canvas_of(path)
    rankings = list(audit.rankings.values())
    shown = _shown_groups(rankings)
    groups = [audit.logged.groups[number] for number in shown]
    points = 1 + len(rankings)
    height = MARGIN + HEIGHT_OF_A_POINT * (points + 1) * len(groups)
    figure.set_figheight(min(max(height, LEAST_HEIGHT), MOST_HEIGHT))
    step = 1 / (points + 1)
    # merit is the same for all rankings
    _draw(
        axes, [group.merit_share for group in groups], -step * len(rankings) / 2, "share of merit", "|", INK
    )
    for number, ranking in enumerate(rankings):
        _draw(
            axes,
            [ranking.groups[number].exposure_share for number in shown],
            step * (number + 1 - len(rankings) / 2),
            f"share of exposure, {_literally(ranking.name)}",
            MARKERS[number % len(MARKERS)],
            PALETTE[number % len(PALETTE)],
        )
    axes.set_yticks(range(len(groups)), [_literally(group.name) for group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("share of all groups")
    left = f", {len(shown)} of {len(audit.logged.groups):,}" if len(shown) < len(audit.logged.groups) else ""
    title = f"Merit and exposure by group{left} ({audit.level:.0%} intervals)"
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return save_picture(figure, path)


def _shown_groups(rankings: list[RankingAudit]) -> list[int]:
    """Return the numbers of the groups to draw, in their order."""
    names = [group.name for group in rankings[0].groups]
    if len(names) <= MOST_GROUPS:
        return list(range(len(names)))
    each = MOST_GROUPS // len(rankings) + 1
    furthest = [group.name for ranking in rankings for group in ranking.furthest_groups(each)]
    return sorted({names.index(name) for name in furthest})[:MOST_GROUPS]


def _draw(
    axes: Any, shares: list[AuditEstimate], beside: float, label: str, marker: str, colour: str
) -> None:
    """Draw one share of each group, beside the middle of its row; those that are not defined are left out."""
    defined = [(row, one) for row, one in enumerate(shares) if not math.isnan(one.value)]
    values = [one.value for _, one in defined]
    axes.errorbar(
        values,
        [row + beside for row, _ in defined],
        xerr=distances_to_ends(values, ([one.low for _, one in defined], [one.high for _, one in defined])),
        fmt=marker,
        color=colour,
        markersize=9 if marker == "|" else 5,
        elinewidth=1,
        capsize=2,
        label=label,
    )


def _literally(name: str) -> str:
    """Return a name as it is drawn: dollars are no marks of a formula, and control characters are escaped."""
    return visible(name).replace("$", r"\$")
