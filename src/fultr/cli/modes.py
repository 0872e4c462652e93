"""What always showing the most likely ranking does to groups, beside what the policy does."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import fultr
import fultr.clicks
import fultr.data
import fultr.evaluation
import fultr.expectation
import fultr.policy
from fultr.cli.output import say
from fultr.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

LISTS_COMPARED = 5_000
"""Lists whose exposure is measured for the warning: enough for two decimals."""

MOST_NAMED = 5

INSTEAD = "fultr rank --rotate 8 keeps the exposure of the policy with a few fixed rankings"


def warn_of_modes(
    policy: fultr.evaluation.ScoringPolicy,
    source: fultr.data.CountsOrLabels,
    position_bias: fultr.clicks.AnyBias | None,
    noise: fultr.ClickNoise | None,
    name: str,
) -> None:
    """Say what the disparity of a policy is if it draws rankings, and if it does not."""
    if len(source.data.group_names) < 2:
        return
    disparity = []
    for stochastic in (True, False):
        evaluation = fultr.evaluate(
            policy, source, position_bias=position_bias, noise=noise, stochastic=stochastic, intervals=None
        )
        disparity.append(
            f"{evaluation.disparity:+.4f}"
            if len(evaluation.groups) == 2
            else f"{evaluation.disparity_squared**0.5:.4f}"
        )
    say(
        f"fultr: warning: the disparity of {name} is {disparity[0]} if it draws rankings, as it was trained"
        f" to, and {disparity[1]} if it always shows the most likely one; {INSTEAD}"
    )


def warn_of_modes_by_exposure(
    ranker: fultr.training.TrainableRanker, data: fultr.RankingDataset, scores: Array
) -> None:
    """Say what share of exposure groups have if a policy draws rankings, and if it does not."""
    names = data.group_names
    if len(names) < 2:
        return
    compared = min(LISTS_COMPARED, len(data))
    compared_lists = [number * len(data) // compared for number in range(compared)]
    # the scores take the place of the features, so that lists are chosen with them
    lists = fultr.RankingDataset(scores[:, None], data.offsets, group=data.group, group_names=names)[
        compared_lists
    ]
    chosen = lists.features[:, 0].astype("float64")
    try:
        weights = fultr.expectation.examination_weights(ranker.position_bias_, int(lists.lengths.max()))
    except InputError:  # lists longer than the position bias the policy was trained with
        return
    of_policy, of_modes = (
        fultr.policy.exposure_shares(chosen, lists, weights, drawn=drawn).tolist() for drawn in (True, False)
    )
    order = sorted(range(len(names)), key=lambda group: -abs(of_policy[group] - of_modes[group]))[:MOST_NAMED]
    shares = ", ".join(f"{names[group]} {of_policy[group]:.1%} and {of_modes[group]:.1%}" for group in order)
    say(
        "fultr: warning: shares of exposure if the policy draws rankings, as it was trained to, and if it"
        f" always shows the most likely one: {shares}; {INSTEAD}"
    )
