"""Relevance itself, estimated from clicks by a regression that corrects for position bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor

from fultr.click_model import PositionBias
from fultr.data import Counts, RankingDataset, Source
from fultr.errors import InputError
from fultr.estimators import evidence_from_clicks, evidence_from_relevance
from fultr.policy import LinearScorer, MLPScorer, Probability, Shifted
from fultr.training import lbfgs
from fultr.training.models import Model, ModuleModel
from fultr.training.ranker import TrainableRanker
from fultr.training.scaling import ScaledScorer, Scaling
from fultr.training.sources import position_bias_of, with_validation

Array = NDArray[np.float64]

L2_TOGETHER = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
L2_ONE_BY_ONE = (1e-4, 1e-3, 3e-3, 1e-2)
"""Costs of large parameters to choose from: where they are trained together, and where not."""

TOLERANCE = 1e-7
"""The gain of a step, relative to the loss, below which training has converged."""

LEAST_START = 0.01
"""How near to 0 and 1 the mean relevance may be that training starts from."""


class RelevanceRegression(TrainableRanker):
    """Estimate the relevance of items by least squares, with clicks corrected for position bias.

    With r(x) the sigmoid of a linear function or of a network, the loss is the mean over impressions and the
    items shown in them of

        r(x)^2 + (c / p) (c - 2 r(x)),    whose expectation is that of (rel - r(x))^2,

    c being the click and p the examination probability (Morik, Singh, Hong and Joachims, SIGIR 2020). An
    item that was not shown, or where nobody looks, says nothing and is left out. From labelled lists it
    learns by ordinary least squares. `predict` returns r(x), and rankings are by it. Click noise is not
    taken off; from a log whose impressions without a click were dropped, relevance comes out too high.

    Parameters
    ----------
    model
        What r is the sigmoid of: "linear" or "mlp".
    hidden
        Widths of the hidden layers of "mlp"; half the number of features by default.
    l2
        What |parameters|^2 / 2 costs, the constant term excepted: a number, or several to choose from by the
        same loss on validation clicks.
    position_bias
        Examination probabilities; by default those of the log.
    scale_features
        Bring each feature to mean 0 and deviation 1 first; by default where the scales of features are far
        from that.
    valid_share
        Share of the queries put aside for validation where no validation clicks are given. With 0 there is
        no validation, and `l2` must be a single number.
    seed
        All randomness comes from here.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=500, seed=0)
    >>> regression = RelevanceRegression(l2=0.001).fit(log)
    >>> sorted(regression.relative_error(data.test)) == sorted(data.test.group_names)
    True
    """

    stochastic = False

    def __init__(
        self,
        *,
        model: str = "linear",
        hidden: Sequence[int] | None = None,
        l2: float | Sequence[float] | None = None,
        position_bias: PositionBias | None = None,
        scale_features: bool | None = None,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.l2 = l2
        self.position_bias = position_bias
        self.scale_features = scale_features
        self.valid_share = valid_share
        self.seed = seed

    def learn(self, source: Source, valid: Source | None) -> RelevanceRegression:
        """Train on a log or on labelled lists; `l2` is chosen on others, by default a part of the source."""
        self._check(source, valid)
        bias = position_bias_of(self.position_bias, source)
        if valid is not None or self.valid_share:
            source, valid = with_validation(source, valid, self.valid_share, self.seed)
        task = RegressionTask(source, bias)
        model = self._model(task)
        l2 = self._l2(model)
        parameters = _trained(task, model, l2, self.seed)
        best = 0
        if valid is not None and l2.size > 1:
            aside = RegressionTask(valid, bias)
            best = int(np.argmin(_losses(aside, model.on(aside.data), parameters)))
        self.set_scorer(Probability(model.scorer(parameters[best])), task.data, bias)
        self.l2_ = float(l2[best])
        return self

    def relative_error(self, data: RankingDataset) -> dict[str, float]:
        """Return by how much the relevance of each group is overestimated, as a share of the true one.

        (sum of r(x) - sum of rel) / sum of rel over the items of the group; NaN for a group without
        relevance.
        """
        estimated = self.predict(data)
        if data.relevance is None:
            raise InputError("the lists have no relevance to compare estimates with", column="relevance")
        errors = {}
        for code, name in enumerate(data.group_names):
            own = data.group == code
            true = float(data.relevance[own].sum(dtype=np.float64))
            errors[name] = float(estimated[own].sum() - true) / true if true > 0 else float("nan")
        return errors

    def check(self) -> None:
        """Refuse settings that can be right for no data."""
        super().check()
        if not isinstance(self.model, str):
            raise InputError("must be 'linear' or 'mlp'", column="model", value=self.model)

    def _check(self, source: Source, valid: Source | None) -> None:
        self.check()
        if not source.data.features.shape[1]:
            raise InputError("there are no features to estimate relevance from", column="features")
        single = self.l2 is not None and np.size(self.l2) == 1
        if valid is None and not self.valid_share and not single:
            problem = "without validation clicks, l2 must be a single number"
            raise InputError(problem, column="valid_share", value=0)

    def _model(self, task: RegressionTask) -> Model:
        scaling = Scaling.wanted(task.data, self.scale_features)
        if self.model == "linear":
            return LinearWithConstant(task.data, scaling, task.starting_constant)
        width = task.data.features.shape[1]
        widths = tuple(self.hidden) if self.hidden is not None else (max(1, width // 2),)
        network = Shifted(MLPScorer(width, widths, seed=self.seed), task.starting_constant)
        return ModuleModel(task.data, scaling, network)

    def _l2(self, model: Model) -> Array:
        asked = self.l2
        if asked is None:
            asked = L2_TOGETHER if model.together else L2_ONE_BY_ONE
        return np.atleast_1d(np.asarray(asked, dtype=np.float64))


class LinearWithConstant(Model):
    """h(x) = b + w (x - mean) / scale, with b as the first parameter."""

    together = True
    entries_a_block = 1 << 19
    most_iterations = 300

    def __init__(self, data: RankingDataset, scaling: Scaling, start: float = 0.0) -> None:
        super().__init__(data, scaling)
        self.start = start

    @property
    def size(self) -> int:
        """Number of features, and one."""
        return int(self.features.shape[1]) + 1

    def initial(self, seed: int) -> Array:
        """Return a constant score, the one given."""
        del seed
        return np.array([self.start, *np.zeros(self.size - 1)])

    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (configurations, rows)."""
        weights = parameters[:, 1:] / self.scaling.divisor
        constants = parameters[:, 0] - weights @ self._left_on
        given = torch.from_numpy(weights.astype(np.float32))
        scores = (self._rows(rows) @ given.T).numpy().T + constants.astype(np.float32)[:, None]
        return np.ascontiguousarray(scores)

    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return sum_rows slopes (1, (x - mean) / scale), (configurations, parameters)."""
        del parameters  # a linear score has the same slope everywhere
        total = slopes.sum(axis=1)
        products = (torch.from_numpy(slopes.astype(np.float32)) @ self._rows(rows)).numpy()
        by_weight = (products - total[:, None] * self._left_on) / self.scaling.divisor
        return np.column_stack([total, by_weight])

    def scorer(self, parameters: Array) -> ScaledScorer:
        """Return the scorer of one configuration."""
        linear = LinearScorer(self.size - 1)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(parameters[1:]))
        return ScaledScorer(Shifted(linear, parameters[0]), self.scaling).requires_grad_(False)

    @property
    def _left_on(self) -> Array:
        """What is still to be taken off the rows."""
        mean = self.scaling.mean.astype(np.float64)
        return np.zeros_like(mean) if self.scaling.comes_first else mean

    def _rows(self, rows: slice) -> Tensor:
        return self.scaling.rows(self.features[rows])


class RegressionTask:
    """Lists, and what clicks or labels say of their items: how often each was seen, and sum of c / p."""

    def __init__(self, source: Source, position_bias: PositionBias) -> None:
        counted = source.compact()
        self.data = counted.data
        # the loss is a mean over what was shown, so that it needs no correction for what was not
        if isinstance(counted, Counts):
            bias = position_bias if counted.cells.propensity is None else None
            evidence = evidence_from_clicks(counted, bias)
        else:
            evidence = evidence_from_relevance(counted)
        self.weight = evidence.weight.numpy()
        self.seen = np.ones(self.data.rows) if evidence.shown is None else evidence.shown.numpy()
        self.total = float(self.seen.sum())
        if not self.total > 0:
            raise InputError("no item was shown where it could be examined", column="position")

    @property
    def starting_constant(self) -> float:
        """The log-odds of the mean relevance."""
        mean = float(self.weight.sum()) / self.total
        return float(logit(np.clip(mean, LEAST_START, 1 - LEAST_START)))


class RegressionSlopes(NamedTuple):
    """The derivative of the loss by the score of each row: (configurations, rows)."""

    by_score: Array


class RegressionLoss:
    """The mean of r^2 + (c / p)(c - 2 r), up to what r does not change, with a cost of large parameters."""

    def __init__(self, task: RegressionTask, model: Model, l2: Array) -> None:
        self.task = task
        self.model = model
        self.l2 = l2

    def value(self, points: Array, which: NDArray[np.int64]) -> tuple[Array, RegressionSlopes]:
        """Return the losses of problems `which`, and their slopes by the scores."""
        task, rows = self.task, self.task.data.rows
        value, by_score = np.zeros(which.size), np.empty((which.size, rows))
        for block in self._blocks(which.size):
            relevance = expit(self.model.scores(points, block).astype(np.float64))
            seen, weight = task.seen[block], task.weight[block]
            value += ((seen * relevance - 2 * weight) * relevance).sum(axis=1)
            change = relevance * (1 - relevance)
            by_score[:, block] = 2 * (seen * relevance - weight) * change / task.total
        cost = self.l2[which] / 2 * (points[:, 1:] ** 2).sum(axis=1)
        return value / task.total + cost, RegressionSlopes(by_score)

    def gradient(self, points: Array, which: NDArray[np.int64], of_scores: RegressionSlopes) -> Array:
        """Return the gradients there."""
        gradient = self.l2[which, None] * points
        gradient[:, 0] = 0.0  # the constant is free
        for block in self._blocks(which.size):
            gradient += self.model.pull_back(points, block, of_scores.by_score[:, block])
        return gradient

    def _blocks(self, configurations: int) -> list[slice]:
        length = max(1, self.model.entries_a_block // configurations)
        rows = self.task.data.rows
        return [slice(start, min(start + length, rows)) for start in range(0, rows, length)]


def _trained(task: RegressionTask, model: Model, l2: Array, seed: int) -> Array:
    """Return the best parameters for each l2, trained together where the model allows it."""
    blocks = [np.arange(l2.size)] if model.together else list(np.arange(l2.size)[:, None])
    parameters = np.tile(model.initial(seed), (l2.size, 1))
    for together in blocks:
        loss = RegressionLoss(task, model, l2[together])
        search = lbfgs.start(loss, parameters[together])
        lbfgs.minimise(loss, search, tolerance=TOLERANCE, most_iterations=model.most_iterations)
        parameters[together] = search.point
    return parameters


def _losses(task: RegressionTask, model: Model, parameters: Array) -> Array:
    """Return the loss of each configuration, without the cost of its parameters."""
    loss = RegressionLoss(task, model, np.zeros(1))
    here = np.zeros(1, dtype=np.int64)
    return np.array([loss.value(point[None], here)[0][0] for point in parameters])
