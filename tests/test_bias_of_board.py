"""Training with a position bias that was estimated from the same log, with few clicks deep on the page."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fultr import BiasEstimate, Counts, FairRanker, PositionBias
from fultr.clicks import estimate_bias
from fultr.expectation import examination_weights
from fultr.policy.rotation import expected_exposure
from tests.job_board import BIAS, CANDIDATES, LONGEST_PAGE, JobBoard, job_board

pytestmark = pytest.mark.statistical

FAIRNESS_WEIGHTS = (0.0, 1.0, 10.0, 30.0)
LOGS = 6


@pytest.mark.filterwarnings("ignore::fultr.FultrWarning")  # of few clicks, which is what this is about
def test_true_disparity_does_not_rise_with_the_fairness_weight() -> None:
    fitted, noisy = np.empty((LOGS, len(FAIRNESS_WEIGHTS))), np.empty(LOGS)
    for seed in range(LOGS):
        board = job_board(impressions=1_500, seed=seed)
        counts = board.counts(position_bias=None)
        estimate = estimate_bias(counts)
        assert estimate.clicks[17] < 20  # at position 18
        fitted[seed] = [true_disparity(board, counts, estimate, weight) for weight in FAIRNESS_WEIGHTS]
        noisy[seed] = true_disparity(
            board, counts, from_the_last_point(counts), FAIRNESS_WEIGHTS[-1], depth=CANDIDATES
        )
    for rise in (*(fitted[:, 1:] - fitted[:, :1]).T, *np.diff(fitted, axis=1).T):
        assert rise.mean() < 2 * standard_error(rise)
    assert fitted[:, -1].mean() < fitted[:, 0].mean()
    # the measure notices a bad curve: single estimates, and a tail that goes on from the last one
    worse = noisy - fitted[:, -1]
    assert worse.mean() > 2 * standard_error(worse)


def true_disparity(
    board: JobBoard,
    counts: Counts,
    bias: PositionBias | BiasEstimate,
    weight: float,
    depth: int | None = None,
) -> float:
    """Return the true |D| of a policy that is trained with a bias; queries are as frequent as in the log."""
    # the policy is the same as with folds, on which it would only be judged
    ranker = FairRanker(weight, position_bias=bias, depth=depth, l2=0.01, folds=0).fit(counts)
    truth = board.truth
    weights = examination_weights(BIAS.cut(LONGEST_PAGE), CANDIDATES)
    exposure = expected_exposure(ranker.predict(truth), truth.offsets, weights)

    def of_groups(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        of_group = (np.where(truth.group == group, values, 0.0) for group in range(2))
        return [np.add.reduceat(part, truth.offsets[:-1]) for part in of_group]

    assert truth.relevance is not None
    assert truth.query_id is not None
    assert counts.data.query_id is not None
    merit, exposed = of_groups(truth.relevance.astype(np.float64)), of_groups(exposure)
    disparity = dict(zip(truth.query_id.tolist(), merit[1] * exposed[0] - merit[0] * exposed[1], strict=True))
    of_lists = np.array([disparity[query] for query in counts.data.query_id.tolist()])
    return abs(float(np.average(of_lists, weights=counts.impressions)))


def from_the_last_point(counts: Counts) -> PositionBias:
    """Return the estimates of single positions, going on as a power law from the last of them."""
    free = estimate_bias(counts, shape="free")
    values = np.asarray(free.values)
    known = np.flatnonzero(np.isfinite(values))
    last = int(known[-1])
    positions = np.arange(1, CANDIDATES + 1)
    curve = np.interp(positions, known + 1, values[known])
    curve[last:] = values[last] * ((last + 1) / positions[last:]) ** float(free.eta)
    return PositionBias(curve)


def standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))
