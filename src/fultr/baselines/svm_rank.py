"""Ranking SVMs on clicks: weighted by inverse propensities, and not."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fultr.arguments import number_array
from fultr.baselines.cutting_plane import TOLERANCE, Minimum, Planes, Tangent, minimise
from fultr.click_model import PositionBias
from fultr.compiled import compiled_fused
from fultr.data import Source
from fultr.data.dataset import rows_of
from fultr.errors import InputError
from fultr.policy.plackett_luce import rank_positions
from fultr.training.models import LinearModel, Model
from fultr.training.ranker import TrainableRanker
from fultr.training.scaling import Scaling
from fultr.training.sources import position_bias_of, with_validation
from fultr.training.task import Task, Weighing

Array = NDArray[np.float64]

L2 = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Costs of large weights to choose from; the loss of a click is a sum over a list, so that they are high."""

ROWS_A_BLOCK = 1 << 14
"""Rows whose products are summed in single precision."""


class SVMRank(TrainableRanker):
    """A linear ranker that puts clicked items above the others of their list with a margin.

    A subclass holds the parameters `l2`, `position_bias`, `scale_features`, `valid_share` and `seed`, and
    says what a click weighs.
    """

    stochastic = False
    l2: float | Sequence[float] | None
    position_bias: PositionBias | None
    scale_features: bool | None
    valid_share: float
    seed: int

    @abstractmethod
    def weighing(self, position_bias: PositionBias) -> Weighing:
        """Return what a click weighs in the utility."""

    def learn(self, source: Source, valid: Source | None) -> Self:
        """Train on a log or on labelled lists; `l2` is chosen on others, by default a part of the source."""
        l2 = self._checked(source, valid)
        bias = position_bias_of(self.position_bias, source)
        if valid is not None or self.valid_share:
            source, valid = with_validation(source, valid, self.valid_share, self.seed)
        counted = source.compact()
        task = Task.of(counted, self.weighing(bias))
        model = LinearModel(task.data, Scaling.wanted(task.data, self.scale_features))
        minima = _minima(task, model, float(counted.gains().sum()), l2)
        best = 0
        if valid is not None and l2.size > 1:
            aside = Task.of(valid, self.weighing(bias))
            best = _best_ranking(aside, model.on(aside.data), minima)
        self.set_scorer(model.scorer(minima[best].parameters), task.data, bias)
        self.l2_ = float(l2[best])
        self.gap_ = minima[best].gap
        if self.gap_ > TOLERANCE:
            problem = (
                f"training ended {self.gap_:.2%} from the best at most; scale features, or choose a larger l2"
            )
            warnings.warn(problem, ConvergenceWarning, stacklevel=3)
        return self

    def _checked(self, source: Source, valid: Source | None) -> Array:
        """Refuse what cannot be trained with, and return the costs of large weights, largest first."""
        self.check()
        if not source.data.features.shape[1]:
            raise InputError("there are no features to score items by", column="features")
        if valid is None and not self.valid_share and (self.l2 is None or np.size(self.l2) != 1):
            problem = "without validation clicks, l2 must be a single number"
            raise InputError(problem, column="valid_share", value=0)
        costs = np.atleast_1d(number_array(L2 if self.l2 is None else self.l2, "l2").astype(np.float64))
        if not (costs > 0).all():
            raise InputError("must be one or more finite numbers above 0", column="l2", value=self.l2)
        return np.sort(costs)[::-1]


class PropensitySVMRank(SVMRank):
    r"""Learn a linear ranking from clicks by a Ranking SVM weighted by inverse propensities.

    Propensity SVM-Rank (Joachims, Swaminathan and Schnabel, WSDM 2017). The weights w minimise

    $$
    \frac{|w|^2}{2} + \frac{C}{n} \sum_i \frac{1}{p_i} \sum_{y \ne y_i} \max(0, 1 - w \cdot (x_{y_i} - x_y)),
    \qquad C = 1 / \mathrm{l2}
    $$

    where i goes through the n clicks, y_i is the item that was clicked, p_i the probability that it was
    examined, and y goes through all other candidates of its list. The inner sum is at least the number of
    items above the clicked one, so that the loss bounds an unbiased estimate of the ranks of relevant items.
    The clicks on an item count by their sum of 1 / p_i. On labelled lists the relevance of an item takes the
    place of that sum, and the sum of all relevances that of n. Click noise is not taken off.

    Parameters
    ----------
    l2
        1 / C, what |w|^2 / 2 costs beside the mean loss of a click: a number above 0, or several to choose
        from by the DCG of validation clicks, weighted by 1 / p, under the ranking by descending score.
    position_bias
        Examination probabilities; by default those of the log.
    clip
        The most that an inverse propensity may be.
    scale_features
        Bring each feature to mean 0 and deviation 1 first; by default where the scales of features are far
        from that.
    valid_share
        Share of the queries put aside for validation where no validation clicks are given. With 0 there is
        no validation, and `l2` must be a single number.
    seed
        All randomness comes from here.

    Attributes
    ----------
    l2_
        The cost of large weights that was chosen.
    gap_
        By how much the value of w may be above the minimum, relative to it; found from the dual problem.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=500, seed=0)
    >>> ranker = PropensitySVMRank(l2=100.0).fit(log)
    >>> ranker.rank(data.test).min()
    np.int32(1)
    >>> ranker.gap_ <= 1e-4
    True
    """

    def __init__(
        self,
        *,
        l2: float | Sequence[float] | None = None,
        position_bias: PositionBias | None = None,
        clip: float | None = None,
        scale_features: bool | None = None,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.l2 = l2
        self.position_bias = position_bias
        self.clip = clip
        self.scale_features = scale_features
        self.valid_share = valid_share
        self.seed = seed

    def weighing(self, position_bias: PositionBias) -> Weighing:
        """Weigh a click by 1 / p."""
        return Weighing(position_bias, clip=self.clip)


class ClickSVMRank(SVMRank):
    """Learn a linear ranking from clicks by a Ranking SVM that knows of no position bias.

    Each click counts as one, wherever it was: `PropensitySVMRank` with p = 1, on validation clicks too. On
    labelled lists the two are the same.

    Parameters
    ----------
    l2, scale_features, valid_share, seed
        As those of `PropensitySVMRank`.
    position_bias
        Examination probabilities, for the exposure of the trained policy; training does not use them. By
        default those of the log.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=500, seed=0)
    >>> ClickSVMRank(l2=100.0).fit(log).rank(data.test).min()
    np.int32(1)
    """

    def __init__(
        self,
        *,
        l2: float | Sequence[float] | None = None,
        position_bias: PositionBias | None = None,
        scale_features: bool | None = None,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.l2 = l2
        self.position_bias = position_bias
        self.scale_features = scale_features
        self.valid_share = valid_share
        self.seed = seed

    def weighing(self, position_bias: PositionBias) -> Weighing:
        """Count a click as one."""
        return Weighing(position_bias, utility_ips=False, disparity_ips=False)


class PairwiseHinge:
    """The sum over rows i of weight_i sum_y max(0, 1 - (score_i - score_y)), y being the others of its list.

    Parameters
    ----------
    model
        Linear scores of the rows.
    weight
        (rows,) What each row weighs where it should stand above another, 0 or more.
    """

    def __init__(self, model: LinearModel, weight: Array) -> None:
        self.model = model
        self.weight = weight.astype(np.float64)
        self.offsets = model.data.offsets.astype(np.int64)

    def scores(self, parameters: Array) -> Array:
        """Return the score of each row."""
        return _scores(self.model, parameters)

    def tangent(self, scores: Array) -> Tangent:
        """Return the loss, and a plane that touches it and is nowhere above it."""
        slopes = np.empty(scores.size)
        value, offset = pairwise_hinge(scores, self.weight, self.offsets, slopes)
        return Tangent(value, offset, slopes)

    def pull_back(self, by_score: Array) -> Array:
        """Return the subgradient by the parameters that belongs to one by the scores."""
        gradient, unused = np.zeros(self.model.size), np.empty(0)
        for rows in _blocks(by_score.size):
            gradient += self.model.pull_back(unused, rows, by_score[None, rows])[0]
        return gradient


@compiled_fused
def pairwise_hinge(scores: Any, weight: Any, offsets: Any, slopes: Any) -> tuple[float, float]:
    """Return the loss of `PairwiseHinge` and the part of it without scores, and write its slopes by them."""
    loss, constant = 0.0, 0.0
    for number in range(offsets.size - 1):
        start, stop = offsets[number], offsets[number + 1]
        slopes[start:stop] = 0.0
        for item in range(start, stop):
            if weight[item] > 0:
                lowest, total, count = scores[item] - 1, 0.0, 0.0
                for other in range(start, stop):
                    short = scores[other] - lowest
                    wrong = 1.0 if short > 0 else 0.0
                    total += wrong * short
                    count += wrong
                    slopes[other] += weight[item] * wrong
                # the item is among the others, with a loss of 1 and slopes that cancel
                slopes[item] -= weight[item] * count
                loss += weight[item] * (total - 1)
                constant += weight[item] * (count - 1)
    return loss, constant


def _minima(task: Task, model: LinearModel, clicks: float, l2: Array) -> list[Minimum]:
    """Solve the problems of descending l2, each from the solution of the one before."""
    weight = task.utility.weight.numpy()
    # only lists with a click and something to be above of teach anything
    clicked = np.bincount(task.data.list_of_row, weights=weight, minlength=len(task.data)) > 0
    lists = np.flatnonzero(clicked & (task.data.lengths > 1))
    if not lists.size:
        problem = "no click has another candidate beside it, so there is nothing to learn an order from"
        raise InputError(problem, column="click")
    rows = rows_of(task.data.offsets, lists)
    model_of_lists = LinearModel(task.data[lists], model.scaling)
    loss = PairwiseHinge(model_of_lists, weight[rows] / clicks)
    planes, minima = Planes(model.size), [Minimum(model.initial(0), 0.0, 0.0)]
    for cost in l2:
        minima.append(minimise(loss, float(cost), planes, minima[-1].parameters))
    return minima[1:]


def _best_ranking(task: Task, model: Model, minima: Sequence[Minimum]) -> int:
    """Return whose ranking by descending score has the highest DCG, by the evidence of the task."""
    weight = task.utility.weight.numpy()
    if not weight.any():
        problem = "no validation item was clicked, so that nothing says which l2 is best; give a single one"
        raise InputError(problem, column="valid")
    values = []
    for minimum in minima:
        ranks = rank_positions(_scores(model, minimum.parameters), task.data.offsets)
        values.append(float(weight @ task.tables[0, ranks - 1]))
    return int(np.argmax(values))


def _scores(model: Model, parameters: Array) -> Array:
    with np.errstate(over="ignore"):  # what is too large is refused below
        blocks = [model.scores(parameters[None], rows)[0] for rows in _blocks(model.data.rows)]
    scores = np.concatenate(blocks, dtype=np.float64)
    if not np.isfinite(scores).all():
        problem = "scores become too large for their numbers; scale features, or choose a larger l2"
        raise InputError(problem, column="scale_features")
    return scores


def _blocks(rows: int) -> list[slice]:
    return [slice(start, min(start + ROWS_A_BLOCK, rows)) for start in range(0, rows, ROWS_A_BLOCK)]
