"""What an evaluation works on: scores of lists, evidence of relevance, and the examination of positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import number_array
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks.examination import warn_of_mean
from fultr.data import CountsOrLabels, RankingDataset, Source
from fultr.errors import InputError
from fultr.estimators import Evidence, evidence_from_relevance, merit_evidence
from fultr.evaluation.contributions import Ranker
from fultr.logs.frames import is_frame, source_of_frame
from fultr.policy.feature_encoding import reading_options

if TYPE_CHECKING:
    from fultr.expectation.exact import Accuracy

PROBABILITY_ERROR = 1e-6
"""How far probabilities may be from adding up to 1."""


class ScoringPolicy(Protocol):
    """Anything that gives each row a score; whether rankings are drawn from it is its `stochastic`.

    A policy that ranks otherwise than by its scores has a method `position_probabilities(data)` besides:
    rows x positions, how likely each row is at each position.
    """

    def predict(self, data: RankingDataset, /) -> ArrayLike:
        """Return a score for each row."""
        ...


def checked_source(data: object, *policies: object) -> Source:
    """Return data to evaluate on, or refuse what is none; a frame needs the features of the policies."""
    if isinstance(data, Source):
        return data
    if is_frame(data):
        trained = [policy for policy in policies if hasattr(policy, "feature_names_in_")]
        names = [list(map(str, policy.feature_names_in_)) for policy in trained]
        encodings = [policy.encoding_ for policy in trained if hasattr(policy, "encoding_")]
        return source_of_frame(data, names, options=reading_options(encodings))
    problem = "must be a RankingDataset with relevance, a ClickLog, a Counts, or a frame of one"
    raise InputError(problem, column="data", value=type(data).__name__)


def ranker_of(policy: object, lists: RankingDataset, stochastic: bool | None, accuracy: Accuracy) -> Ranker:
    """Return the policy's score for each row, of all lists at once, and whether rankings are drawn from it.

    They are as asked for, or else as the policy says of itself.
    """
    from fultr.expectation.race import check_scores

    predict = getattr(policy, "predict", None)
    if not callable(predict):
        problem = "a policy must have a method predict(data) that returns a score for each row"
        raise InputError(problem, column="policy", value=policy)
    drawn = getattr(policy, "stochastic", None) if stochastic is None else stochastic
    probabilities = getattr(policy, "position_probabilities", None)
    if probabilities is not None and stochastic is None:
        return Ranker(
            np.zeros(lists.rows), True, accuracy, _checked_probabilities(probabilities(lists), lists)
        )
    if not isinstance(drawn, (bool, np.bool_)):
        problem = "must be True or False, or left out for a policy that says by its own `stochastic`"
        raise InputError(problem, column="stochastic", value=drawn)
    given: Any = predict(lists)
    if hasattr(given, "detach"):  # a tensor
        given = given.detach().double().cpu().numpy()
    scores = np.ascontiguousarray(number_array(given, "policy"), dtype=np.float64)
    if scores.shape != (lists.rows,):
        problem = f"predict must return one score for each of {lists.rows} rows"
        raise InputError(problem, column="policy", value=scores.shape)
    check_scores(scores)
    return Ranker(scores, bool(drawn), accuracy)


def _checked_probabilities(given: ArrayLike, lists: RankingDataset) -> NDArray[np.float64]:
    """Return how likely each row is at each position; each row is at one of those of its list."""
    table = np.asarray(number_array(given, "policy"), dtype=np.float64)
    longest = int(lists.lengths.max(initial=0))
    if table.shape != (lists.rows, longest):
        problem = f"position_probabilities must be {lists.rows} rows x {longest} positions"
        raise InputError(problem, column="policy", value=table.shape)
    beyond = np.arange(longest) >= lists.lengths[lists.list_of_row][:, None]
    whole = np.abs(table.sum(axis=1, initial=0.0) - 1.0) <= PROBABILITY_ERROR
    if not (whole.all() and (table >= -PROBABILITY_ERROR).all() and not table[beyond].any()):
        problem = "position_probabilities must be probabilities of the positions of a row's list"
        raise InputError(problem, column="policy")
    return table


def examination_of(
    asked: PositionBias | None, source: CountsOrLabels, policy: object, depth: int | None = None
) -> PositionBias | None:
    """Return the position bias asked for, or else that of the log, or else that of the policy.

    It ends after `depth` positions or, without, where the page of a log does.
    None if there is none and none is needed: no groups that could be exposed, no clicks to be weighed by it.
    """
    carried = source.position_bias
    fitted, given = getattr(policy, "position_bias_", None), getattr(policy, "position_bias", None)
    chosen_bias = next((bias for bias in (asked, carried, fitted, given) if bias is not None), None)
    if asked is None and carried is None and not source.has_own_weights:
        warn_of_mean(policy)
    if isinstance(chosen_bias, PositionBias):
        return source.on_page(chosen_bias, depth)
    if chosen_bias is None and not source.data.group_names and source.has_own_weights:
        return None
    problem = "exposure needs the examination of positions; give one, such as PositionBias.power(1.0)"
    raise InputError(problem, column="position_bias", value=chosen_bias)


def evidence_of(
    source: CountsOrLabels, position_bias: PositionBias | None, noise: ClickNoise | None
) -> Evidence:
    """Return what is known of relevance; clicks are weighed by the propensities of the log if it has them."""
    if noise is not None and not isinstance(noise, ClickNoise):
        raise InputError("must be a ClickNoise", column="noise", value=noise)
    if isinstance(source, RankingDataset):
        if noise is not None:
            problem = "relevances have no click noise; leave it out, or evaluate on a log"
            raise InputError(problem, column="noise", value=noise)
        return evidence_from_relevance(source)
    return merit_evidence(source, None if source.has_own_weights else position_bias, noise=noise)
