"""Fairness by offsets: the scores of any ranker, and one number for each group added to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import checked_number, number_array
from fultr.click_model import ClickNoise
from fultr.clicks import check_candidates
from fultr.clicks.examination import AnyBias, with_examination
from fultr.data import Counts, RankingDataset
from fultr.errors import FultrError, InputError
from fultr.evaluation.bootstrap import checked_level
from fultr.evaluation.clustered import Estimates, disparity_estimates, root_bounds, utility_estimates
from fultr.evaluation.clusters import clusters_of
from fultr.evaluation.inputs import checked_source, ranker_of
from fultr.expectation.exact import Accuracy, Problems, exact_values
from fultr.policy import PlackettLuce, ScoredPolicy
from fultr.training.goals import squared
from fultr.training.limits import fairest, most_useful
from fultr.training.models import Scores
from fultr.training.objective import Measured, measure
from fultr.training.preparation import NO_TWO_GROUPS, has_two_groups
from fultr.training.solving import WITHOUT_PRICE, Solver
from fultr.training.sources import noise_of, position_bias_of
from fultr.training.task import Task, Weighing

Array = NDArray[np.float64]

SHARPNESS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Temperatures to choose from, as the standard deviation of scores within lists that they lead to. Twice as
sharp as the last gained at most 0.6% of the utility on three data sets, takes twice as long, and leaves
hardly any randomness to be fair with."""

LEVEL = 0.95
"""The level of intervals, where no confidence was asked for."""

PRICES = tuple(np.logspace(-4, 2, 15).tolist())
"""Prices of disparity at which offsets are tried for a limit with confidence, beside 0 and any. Their unit is
the utility over the squared disparity of the scores as they are."""


class UnsupportedLimitError(FultrError):
    """The clicks do not support a limit with the confidence asked for.

    `lowest` is the lowest limit that could be promised now, and `times` about how many times as many
    impressions the one asked for needs.
    """

    exit_code = 3

    def __init__(self, limit: float, confidence: float, lowest: float) -> None:
        self.limit, self.confidence, self.lowest = limit, confidence, lowest
        # standard errors fall with the root of the number of impressions
        self.times = (lowest / limit) ** 2 if limit > 0 else math.inf
        needs = f"needs about {self.times:.3g} times as many impressions, on more queries"
        super().__init__(
            f"a disparity of at most {limit:g} on new queries cannot be promised with {confidence:.4g}"
            f" confidence; the lowest limit that can be promised is {lowest:.3g}, and {limit:g}"
            f" {needs if limit > 0 else 'never can be'}"
        )

    def to_dict(self) -> dict[str, float | None]:
        """Return what was asked for and what could be promised, as plain values."""
        return {
            "limit": self.limit,
            "confidence": self.confidence,
            "lowest_limit": self.lowest,
            "times_as_many_impressions": self.times if math.isfinite(self.times) else None,
        }


class OffsetScores(Scores):
    """h(x) = s(x) + b_g: scores that are there already, and one number for each group but the first.

    Parameters are the offsets b. Items of the first group, and of no known group, have none.
    """

    together = True
    entries_a_block = 1 << 19
    most_iterations = 300

    def __init__(self, data: RankingDataset, scores: Array) -> None:
        self.group, self.groups = data.group, len(data.group_names)
        self.known_scores = scores
        self.first = np.zeros(max(self.size, 0))

    @property
    def size(self) -> int:
        """Number of groups, less one."""
        return self.groups - 1

    @property
    def content(self) -> list[Any]:
        """All that scores depend on besides the parameters and the features."""
        return [type(self).__name__, self.group, self.groups, self.known_scores]

    def initial(self, seed: int) -> Array:
        """Return where the search begins: at the scores as they are, unless told otherwise."""
        del seed
        return self.first

    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (configurations, rows)."""
        none = np.zeros((parameters.shape[0], 1))
        offsets = np.concatenate([none, parameters, none], axis=1)  # the last is that of no group, -1
        return np.asarray((self.known_scores[rows] + offsets[:, self.group[rows]]).astype(np.float32))

    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return the sum of the slopes of each group but the first, (configurations, groups - 1)."""
        del parameters
        group = self.group[rows]
        return np.stack([slopes[:, group == code].sum(axis=1) for code in range(1, self.groups)], axis=1)


class Promise(NamedTuple):
    """What clicks say of a policy on new queries: an estimate and its interval."""

    value: float
    low: float
    high: float


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
        on new queries.
    confidence
        How sure it must be that the limit holds on new queries, such as 0.95. Of the most useful offsets at
        rising prices of disparity, the first whose upper bound keeps it are taken. The bound holds for all
        offsets that are tried at once, with queries, and documents that queries share, as the independent
        parts. If none keeps it, `UnsupportedLimitError` says what the clicks do support.
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
    parameters = search.below(limit) if confidence is None else search.promised(limit, level)
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


def is_supported(task: Task) -> bool:
    """Say whether the disparity on new queries can be bounded: whether nothing in the log is unknown."""
    return task.disparity.unseen is None and not task.disparity.empties_dropped


def check_supported(task: Task) -> None:
    """Refuse a log whose disparity on new queries cannot be bounded."""
    if not is_supported(task):
        problem = "needs a log that kept all impressions, and without candidates that were never shown"
        raise InputError(
            f"{problem} ({{shown_only()}} leaves them out)", column="log", options=["shown_only()"]
        )


def named_offsets(data: RankingDataset, parameters: Array) -> dict[str, float]:
    """Return the offset of each group by its name; that of the first is 0."""
    return dict(zip(data.group_names, [0.0, *parameters.tolist()], strict=True))


def best_temperature(task: Task, scores: Array) -> tuple[float, float]:
    """Return what scores of rows are to be divided by for the highest utility, and that utility."""
    spread = spread_within(task.data, scores) or 1.0
    temperatures = [spread / sharpness for sharpness in SHARPNESS]
    utility = [float(measure_scores(task, scores / one).utility[0]) for one in temperatures]
    best = int(np.argmax(utility))
    return temperatures[best], utility[best]


def spread_within(data: RankingDataset, scores: Array) -> float:
    """Return the standard deviation of scores within lists."""
    mean = np.add.reduceat(scores, data.offsets[:-1]) / data.lengths
    return float(np.sqrt(((scores - mean.repeat(data.lengths)) ** 2).mean()))


def measure_scores(task: Task, scores: Array, accuracy: Accuracy = "single") -> Measured:
    """Return utility and disparity of the policy of known scores of rows."""
    model = OffsetScores(task.data, scores)
    return measure(task, model, np.zeros((1, max(model.size, 0))), accuracy)


def estimates_of(task: Task, scores: Array, accuracy: Accuracy = "single") -> tuple[Estimates, Estimates]:
    """Return utility and disparities of policies with their errors, from the scores (policies, rows)."""
    clusters = clusters_of(task.data)
    expected = [exact_values(Problems.of(one, task.data.offsets), task.tables, accuracy) for one in scores]
    return (
        utility_estimates(np.stack([one[0] for one in expected]), task.utility, *clusters),
        disparity_estimates(np.stack([one[1] for one in expected]), task.disparity, *clusters),
    )


class Expected(NamedTuple):
    """What new queries are expected to show of a policy."""

    utility: Promise
    disparity: Promise


def expected_on_new_queries(task: Task, scores: Array, level: float) -> Expected:
    """Return utility and sqrt(sum of D_ij^2), with intervals, of the policy of scores (1, rows)."""
    utility, disparity = estimates_of(task, scores, "double")
    reach = utility.reach(level) * float(utility.errors[0])
    low, high = root_bounds(disparity, 1, level)
    value = float(utility.values[0])
    root = float(np.sqrt((disparity.values**2).sum()))
    return Expected(
        Promise(value, value - reach, value + reach), Promise(root, float(low[0]), float(high[0]))
    )


class OffsetSearch:
    """Finds offsets to known scores of the rows of a task.

    All searches begin at the fairest offsets. From the scores as they are, a step can put one group above all
    others, where nothing tells the way back.
    """

    def __init__(self, task: Task, scores: Array) -> None:
        self.task = task
        self.model = OffsetScores(task.data, scores)
        self.solver = Solver(task, self.model, np.zeros(1))
        self.model.first = self._priced(WITHOUT_PRICE, self.model.first)

    def scores(self, parameters: Array) -> Array:
        """Return the scores with offsets (policies, groups - 1) added to them, (policies, rows)."""
        return self.model.scores(parameters, slice(None)).astype(np.float64)

    def priced(self, fairness_weight: float) -> Array:
        """Return the offsets of the highest U - lambda sum of D_ij^2 on these clicks."""
        path = self.path()
        utility, disparity = self.solver.measure(path)
        best = int(np.argmax(utility - fairness_weight * squared(disparity)))
        return self._priced(fairness_weight, path[best])

    def _priced(self, fairness_weight: float, start: Array) -> Array:
        return np.asarray(self.solver.penalised(np.full(1, fairness_weight), start[None]).parameters[0])

    def path(self) -> Array:
        """Return the most useful offsets for several prices of disparity, rising, (prices, groups - 1).

        Each is searched from those of the next higher price.
        """
        plain = self.solver.measure(np.zeros((1, self.model.size)))
        unit = abs(float(plain.utility[0])) / max(float(squared(plain.disparity)[0]), 1e-12)
        found = [self.model.first]
        for price in (*(unit * np.array(PRICES[::-1])), 0.0):
            found.append(self._priced(float(price), found[-1]))
        return np.stack(found[::-1])

    def fairest(self, min_utility: float) -> Array:
        """Return the fairest offsets that keep a share of the best utility on these clicks."""
        return np.asarray(fairest(self.solver, min_utility).parameters[0])

    def below(self, limit: float) -> Array:
        """Return the offsets of the highest utility below a limit on these clicks."""
        solution = most_useful(self.solver, limit)
        if not solution.held.any():
            lowest = float(np.sqrt(squared(solution.measured.disparity)).min())
            problem = f"no offsets leave so little disparity; the least found is {lowest:.3g}"
            raise InputError(problem, column="max_disparity", value=limit)
        return np.asarray(solution.parameters[0])

    def promised(self, limit: float, confidence: float) -> Array:
        """Return offsets whose disparity on new queries is below a limit, with confidence.

        Of the most useful offsets at rising prices of disparity, the first that keep it are taken.
        """
        candidates = self.path()
        _, disparity = estimates_of(self.task, self.scores(candidates))
        high = root_bounds(disparity, len(candidates), confidence)[1]
        kept = np.flatnonzero(high <= limit)
        if not kept.size:
            raise UnsupportedLimitError(limit, confidence, float(high.min()))
        return np.asarray(candidates[kept[0]])


def _scorer_of(scores: Any) -> Callable[[RankingDataset], ArrayLike]:
    """Return what scores lists: a policy's `predict`, a function of features, or scores that are known."""
    if isinstance(scores, str):
        return lambda lists: _feature(lists, scores)
    if callable(getattr(scores, "predict", None)):
        found: Callable[[RankingDataset], ArrayLike] = scores.predict
        return found
    if callable(scores):
        return PlackettLuce(scores).predict
    known = np.asarray(number_array(scores, "scores"), dtype=np.float64)
    return lambda _lists: known


def _feature(lists: RankingDataset, name: str) -> Array:
    if name not in lists.feature_names:
        raise InputError("there is no such feature", column="scores", value=name)
    return lists.features[:, lists.feature_names.index(name)].astype(np.float64)


def _positive(temperature: float) -> float:
    return checked_number(temperature, "temperature", "must be above 0", lambda got: 0 < got < math.inf)
