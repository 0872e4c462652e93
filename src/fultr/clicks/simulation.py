"""Clicks drawn from the position-based examination model, over labelled data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fultr.arguments import Progress
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks.drawing import Drawing, Planting, join_steps
from fultr.data import ClickLog, RankingDataset
from fultr.policy import RankingPolicy


def simulate_clicks(
    data: RankingDataset,
    policy: RankingPolicy,
    bias: PositionBias,
    noise: ClickNoise | None = None,
    *,
    clicks: int | None = None,
    impressions: int | None = None,
    keep_empty: bool = True,
    planting: Planting | None = None,
    top_k: int | None = None,
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
) -> ClickLog:
    """Show lists drawn at random, ranked by a policy, to simulated users, and log what they click.

    An item at position k is clicked with probability v_k eps_plus if it is relevant and v_k eps_minus if not,
    independently of the others. A relevance between 0 and 1 is the probability that the item is relevant
    to the user of an impression.

    Parameters
    ----------
    data
        Lists with relevance in [0, 1].
    policy
        What ranks them: a logging policy such as `RankingSVM.train(data)`.
    bias
        The examination probabilities v_k.
    noise
        eps_plus and eps_minus; none by default.
    clicks
        Stop after this many impressions with at least one click (the paper's N). There are more clicks than
        that, since an impression may have several.
    impressions
        Draw this many impressions. Give this or `clicks`.
    keep_empty
        Whether impressions without a click stay in the log. A log without them says so.
    planting
        Put items known to be irrelevant into a share of the impressions.
    top_k
        Show only this many items; the others have no position.
    seed
        The same seed gives the same log. A larger number of clicks or impressions continues it. The log
        remembers a number, but not a generator.
    progress
        Called with what is done and what was asked for.

    Examples
    --------
    >>> from fultr.datasets import studios
    >>> from fultr.policy import RandomRanking
    >>> log = simulate_clicks(studios(), RandomRanking(), PositionBias.power(1.0), clicks=100)
    >>> int(log.clicked.sum())
    100
    """
    drawing = Drawing.of(
        data,
        policy,
        bias,
        noise,
        clicks=clicks,
        impressions=impressions,
        keep_empty=keep_empty,
        planting=planting,
        top_k=top_k,
        seed=seed,
        progress=progress,
    )
    about = drawing.about
    return replace(
        join_steps(list(drawing.steps())),
        position_bias=about.position_bias,
        noise=about.noise,
        empties_dropped=about.empties_dropped,
        origin=about.origin,
    )
