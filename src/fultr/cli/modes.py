"""What always showing the most likely ranking does to groups, beside what the policy does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.cli.output import say
from fultr.click_model import ClickNoise
from fultr.clicks.examination import AnyBias
from fultr.data import CountsOrLabels, RankingDataset
from fultr.errors import InputError
from fultr.evaluation import evaluate
from fultr.evaluation.inputs import ScoringPolicy
from fultr.expectation import examination_weights
from fultr.policy import rank_positions
from fultr.policy.rotation import expected_exposure
from fultr.training import FairRanker

LISTS_COMPARED = 5_000
"""Lists whose exposure is measured for the warning: enough for two decimals."""

MOST_NAMED = 5

INSTEAD = "fultr rank --rotate 8 keeps the exposure of the policy with a few fixed rankings"


def warn_of_modes(
    policy: ScoringPolicy,
    source: CountsOrLabels,
    position_bias: AnyBias | None,
    noise: ClickNoise | None,
    name: str,
) -> None:
    """Say what the disparity of a policy is if it draws rankings, and if it does not."""
    if len(source.data.group_names) < 2:
        return
    disparity = []
    for stochastic in (True, False):
        found = evaluate(
            policy, source, position_bias=position_bias, noise=noise, stochastic=stochastic, intervals=None
        )
        disparity.append(
            f"{found.disparity:+.4f}"
            if isinstance(found.disparity, float)
            else f"{found.disparity_squared**0.5:.4f}"
        )
    say(
        f"fultr: warning: the disparity of {name} is {disparity[0]} if it draws rankings, as it was trained"
        f" to, and {disparity[1]} if it always shows the most likely one; {INSTEAD}"
    )


def warn_of_modes_by_exposure(ranker: FairRanker, data: RankingDataset, scores: NDArray[np.float64]) -> None:
    """Say what share of exposure groups have if a policy draws rankings, and if it does not."""
    names = data.group_names
    if len(names) < 2:
        return
    some = np.linspace(0, len(data) - 1, min(LISTS_COMPARED, len(data))).astype(np.int64)
    # the scores take the place of the features, so that lists are chosen with them
    lists = RankingDataset(scores[:, None], data.offsets, group=data.group, group_names=names)[some]
    chosen = lists.features[:, 0].astype(np.float64)
    try:
        weights = examination_weights(ranker.position_bias_, int(lists.lengths.max()))
    except InputError:  # lists longer than the position bias the policy was trained with
        return
    modes = weights[rank_positions(chosen, lists.offsets) - 1]
    of_policy, of_modes = (
        _shares(exposure, lists) for exposure in (expected_exposure(chosen, lists.offsets, weights), modes)
    )
    order = np.argsort(-np.abs(of_policy - of_modes), kind="stable")[:MOST_NAMED]
    shares = ", ".join(f"{names[at]} {of_policy[at]:.1%} and {of_modes[at]:.1%}" for at in order.tolist())
    say(
        "fultr: warning: shares of exposure if the policy draws rankings, as it was trained to, and if it"
        f" always shows the most likely one: {shares}; {INSTEAD}"
    )


def _shares(exposure: NDArray[np.float64], lists: RankingDataset) -> NDArray[np.float64]:
    known = lists.group >= 0
    sums = np.bincount(lists.group[known], weights=exposure[known], minlength=len(lists.group_names))
    return np.asarray(sums / sums.sum())
