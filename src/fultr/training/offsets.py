"""Fairness by offsets: the scores of any ranker, and one number for each group added to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import checked_number, number_array
from fultr.click_model import ClickNoise
from fultr.clicks import check_candidates
from fultr.clicks.examination import AnyBias, with_examination
from fultr.data import Counts, RankingDataset
from fultr.errors import InputError
from fultr.evaluation.bootstrap import checked_level
from fultr.evaluation.inputs import checked_source, ranker_of
from fultr.policy import PlackettLuce, ScoredPolicy
from fultr.training.offset_search import OffsetSearch, best_temperature, named_offsets
from fultr.training.preparation import NO_TWO_GROUPS, has_two_groups
from fultr.training.promises import (
    LEVEL,
    Promise,
    check_supported,
    expected_on_new_queries,
    is_within_noise,
)
from fultr.training.sources import noise_of, position_bias_of
from fultr.training.task import Task, Weighing

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class OffsetPolicy(ScoredPolicy):
    """A stochastic policy: the scores of a ranker over a temperature, and an offset for the group of an item.

    Parameters
    ----------
    scorer
        From lists to the score of each row; None if only scores were given, for which there is `apply`.
    offsets
        What is added to the scores of each group, by its name; 0 for items of no known group.
    temperature
        What the scores of the ranker are divided by.
    utility, disparity
        DCG and sqrt(sum of D_ij^2), with intervals for new queries.
    confidence
        The level of the intervals.
    """

    scorer: Callable[[RankingDataset], ArrayLike] | None
    offsets: dict[str, float]
    temperature: float
    utility: Promise
    disparity: Promise
    confidence: float
    position_bias_: Any = None

    stochastic = True

    def predict(self, data: RankingDataset) -> Array:
        """Return the score of each row, with the offset of its group."""
        if self.scorer is None:
            raise InputError("only scores were given; call apply(scores, groups)", column="scorer")
        names = [data.group_names[code] if code >= 0 else None for code in data.group.tolist()]
        return self.apply(self.scorer(data), names)

    def apply(self, scores: ArrayLike, groups: Any) -> Array:
        """Return scores of the ranker, over the temperature, with the offset of the group of each item.

        Draw rankings from them with `PlackettLuce`, or by adding Gumbel noise and sorting.
        """
        given = np.asarray(number_array(scores, "scores"), dtype=np.float64)
        offsets = np.array([self.offsets.get(name, 0.0) for name in groups])
        if given.shape != offsets.shape:
            raise InputError("must have one value for each group", column="scores", value=given.shape)
        return np.asarray(given / self.temperature + offsets)

    def __repr__(self) -> str:
        offsets = ", ".join(f"{name} {value:+.3g}" for name, value in self.offsets.items())
        return f"<OffsetPolicy: {offsets}; disparity at most {self.disparity.high:.3g} on new queries>"


def fair_offsets(
    scores: Any,
    log: Any,
    *,
    max_disparity: float,
    confidence: float | None = None,
    position_bias: AnyBias | None = None,
    noise: ClickNoise | None = None,
    top_k: int | None = None,
    depth: int | None = None,
    temperature: float | None = None,
) -> OffsetPolicy:
    """Make the scores of any ranker fair, by one number for each group that is added to them.

    The ranker is left as it is: a model of another library, or a column of scores. As few numbers are
    learned, what they do on the log they nearly do on new queries. The group of an item must be known when
    it is ranked. The log should not be what the ranker was trained on, where its scores look better than
    elsewhere.

    Parameters
    ----------
    scores
        The ranker: a policy with `predict(data)`, a function from features (rows x d) to scores, the name of
        the feature that holds them, or the score of each row of `log.compact().data`.
    log
        Clicks: a `ClickLog`, `Counts`, or a frame of one; or labelled lists.
    max_disparity
        The most that sqrt(sum of D_ij^2), |D| for two groups, may be: on these clicks or, with `confidence`,
        on new queries. Where the disparity of the scores is within its noise, there are no offsets, with a
        warning: they would be fitted to the noise.
    confidence
        How sure it must be that the limit holds on new queries, such as 0.95. Of the most useful offsets at
        ascending prices of disparity, the first are chosen whose upper bound keeps it. The bound holds for
        all of them at once, with queries, and documents that queries share, as the independent parts. If none
        keeps it, `UnsupportedLimitError` says what the clicks do support.
    position_bias, noise, top_k, depth
        As in `FairRanker`.
    temperature
        What scores are divided by before rankings are drawn: the lower, the less they vary. By default the
        one of the highest utility among several that keep some randomness.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=200, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=3_000, seed=0)
    >>> policy = fultr.fair_offsets(lambda features: features.sum(axis=1), log, max_disparity=0.1)
    >>> policy.disparity.value <= 0.1
    True
    """
    limit = checked_number(
        max_disparity, "max_disparity", "must be 0 or more", lambda got: 0 <= got < math.inf
    )
    level = LEVEL if confidence is None else checked_level(confidence, "confidence")
    source, curve = with_examination(checked_source(log, scores).compact(), position_bias)
    if not has_two_groups(source.data):
        raise InputError(NO_TWO_GROUPS, column="max_disparity", value=limit)
    bias = position_bias_of(curve, source, depth)
    task = Task.of(source, Weighing(position_bias=bias, noise=noise_of(noise, source), top_k=top_k))
    check_supported(task)
    if isinstance(source, Counts):
        check_candidates(source, limit)
    scorer = _scorer_of(scores)
    given = ranker_of(SimpleNamespace(predict=scorer), task.data, True, "double").scores
    chosen = best_temperature(task, given)[0] if temperature is None else _positive(temperature)
    search = OffsetSearch(task, given / chosen)
    if confidence is not None:
        parameters = search.promised(limit, level)
    elif is_within_noise(task, given / chosen):
        parameters = np.zeros(search.model.size)
    else:
        parameters = search.below(limit)
    expected = expected_on_new_queries(task, search.scores(parameters[None]), level)
    return OffsetPolicy(
        scorer=None if isinstance(scores, np.ndarray) else scorer,
        offsets=named_offsets(source.data, parameters),
        temperature=chosen,
        utility=expected.utility,
        disparity=expected.disparity,
        confidence=level,
        position_bias_=bias,
    )


def _scorer_of(scores: Any) -> Callable[[RankingDataset], ArrayLike]:
    """Return what scores lists: a policy's `predict`, a function of features, or scores that are known."""
    if isinstance(scores, str):
        return lambda lists: _feature(lists, scores)
    if callable(getattr(scores, "predict", None)):
        predict: Callable[[RankingDataset], ArrayLike] = scores.predict
        return predict
    if callable(scores):
        return PlackettLuce(scores).predict
    given = np.asarray(number_array(scores, "scores"), dtype=np.float64)
    return lambda _lists: given


def _feature(lists: RankingDataset, name: str) -> Array:
    if name not in lists.feature_names:
        raise InputError("there is no such feature", column="scores", value=name)
    return lists.features[:, lists.feature_names.index(name)].astype(np.float64)


def _positive(temperature: float) -> float:
    return checked_number(temperature, "temperature", "must be above 0", lambda got: 0 < got < math.inf)
