"""Which features drive the utility of a policy, and which its disparity, as a table of a report."""

from __future__ import annotations

import numpy as np

from fultr.audits import AuditEstimate
from fultr.click_model import ClickNoise
from fultr.data import CountsOrLabels
from fultr.evaluation import FeatureEffect, feature_effects
from fultr.policy import TreeScorer
from fultr.reports.content import FeatureRow, FeatureTable, shortened
from fultr.training.fair_ranker import FairRanker
from fultr.training.sources import noise_of

SHOWN = 10
"""Features of the largest changes of utility, and of disparity, that are shown."""

MOST_ROWS, REPEATS = 10_000, 2
"""Rows that effects are measured on, and permutations of each feature: 136 features take a few seconds."""


def feature_table(
    name: str, ranker: FairRanker, source: CountsOrLabels, level: float, at: int | None, seed: int
) -> FeatureTable:
    """Return the features whose permutation changes the utility or the disparity of a policy most."""
    effects = feature_effects(
        ranker,
        source,
        repeats=REPEATS,
        position_bias=ranker.position_bias_,
        noise=noise_of(ranker.noise_ or ClickNoise(), source),
        at=at,
        level=level,
        seed=seed,
        most_rows=MOST_ROWS,
    )
    by_utility = sorted(effects, key=lambda effect: -abs(effect.utility))
    by_disparity = sorted(effects, key=lambda effect: -abs(effect.disparity))
    kept = {effect.feature for effect in (*by_utility[:SHOWN], *by_disparity[:SHOWN])}
    shown = [effect for effect in effects if effect.feature in kept]
    about = (
        f"What changes under {name} when the values of one feature are exchanged among all items at random,"
        " with intervals over queries. Where the utility falls, it rests on the feature. Where the disparity"
        " falls, the feature drives it; where it rises, the policy uses the feature against it. Of features"
        " that say the same, none seems to matter."
    )
    if len(shown) < len(effects):
        about += f" Shown are {len(shown)} of {len(effects)} features: those of the largest changes."
    gains = _gain_shares(ranker)
    return FeatureTable(about, tuple(_row(effect, gains) for effect in shown))


def _row(effect: FeatureEffect, gains: dict[str, float]) -> FeatureRow:
    return FeatureRow(
        shortened(effect.feature),
        AuditEstimate(effect.utility, *effect.utility_interval),
        AuditEstimate(effect.disparity, *effect.disparity_interval),
        gains.get(effect.feature, 0.0) if gains else None,
    )


def _gain_shares(ranker: FairRanker) -> dict[str, float]:
    """Return the share of each feature in the gain of all splits, if the policy has trees."""
    of_trees = [part for part in ranker.scorer_.modules() if isinstance(part, TreeScorer)]
    if not of_trees:
        return {}
    names, sources = ranker.encoding_.names, ranker.encoding_.sources
    gains = np.bincount(sources, of_trees[0].trees.gain_by_feature(len(sources)), minlength=len(names))
    shares = gains / (gains.sum() or 1.0)
    return dict(zip(names, shares.tolist(), strict=True))
