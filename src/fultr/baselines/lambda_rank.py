"""LambdaRank (Burges 2010), which takes clicks for relevance: a baseline naive about position bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fultr.baselines.lambda_kernel import MergedImpressions
from fultr.click_model import PositionBias
from fultr.data import RankingDataset, Source
from fultr.data.dataset import rows_of
from fultr.errors import InputError
from fultr.expectation import dcg_weights
from fultr.policy import MLPScorer
from fultr.policy.plackett_luce import rank_positions
from fultr.training.impressions import ORDER_OF_EPOCH, batch_scorer
from fultr.training.models import LinearModel, Model, ModuleModel
from fultr.training.paper_steps import PaperSettings, move_by_adam
from fultr.training.ranker import TrainableRanker
from fultr.training.scaling import Scaling
from fultr.training.settings import check_not_trees
from fultr.training.sources import position_bias_of, with_validation

Array = NDArray[np.float64]

L2 = (1e-4, 3e-3, 3e-2)
"""Costs of large parameters to choose from; early stopping keeps them small as well."""

LINEAR_STEPS, NETWORK_STEPS = PaperSettings(adam_learning_rate=3e-3), PaperSettings(adam_learning_rate=1e-3)
"""How far Adam goes in a step: larger batches than the paper's allow for larger steps."""

LARGEST_BATCH = 64
"""Lists in a step, of which a pass over many lists still has many."""

LEAST_STEPS = 50
"""Between validations: few lists are gone through in small batches, and several times if need be."""

PATIENCE = 10
"""Validations without a gain, one after another, that end training."""

MOST_ROUNDS = 100
"""Validations that end training in any case."""

ROUNDS_WITHOUT_VALIDATION = 20
"""Rounds of at least `LEAST_STEPS` steps, where no validation clicks say when to stop."""


class LambdaRank(TrainableRanker):
    """Learn to rank by descending score from pairs of a clicked and an unclicked item of one impression.

    Clicks are taken for relevance, wherever an item stood: what was shown high is clicked more often and is
    learned to be better. Each pair weighs as much as DCG would change if the two swapped places in the
    ranking of the moment. Labelled lists are taken as one impression each, with their relevance as gains.

    Parameters
    ----------
    model
        "mlp", "linear", or a torch module from features (rows x d) to scores.
    hidden
        Widths of the hidden layers of "mlp"; half the number of features by default.
    l2
        What |parameters|^2 / 2 costs: a number, or several to choose from on validation clicks.
    scale_features
        Bring each feature to mean 0 and deviation 1 first; by default where the scales of features are far
        from that.
    position_bias
        Examination probabilities; by default those of the log, if it has any. They take no part in training,
        and are kept for the exposure that an evaluation measures.
    valid_share
        Share of the queries put aside for validation where no validation clicks are given. Training stops
        when the DCG of their clicks, each counting as one, rises no more. With 0 there is no validation,
        training is of a fixed length, and `l2` must be a single number.
    seed
        All randomness comes from here.

    Attributes
    ----------
    l2_
        The cost of large parameters that was chosen.
    epochs_
        Passes over the training impressions that led to the scorer.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, features=10, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=500, seed=0)
    >>> ranker = LambdaRank(model="linear", l2=0.001).fit(log)
    >>> at_random = fultr.evaluate(fultr.RandomRanking(), data.test, position_bias=bias)
    >>> ranker.evaluate(data.test).dcg > at_random.dcg
    True
    """

    stochastic = False

    def __init__(
        self,
        *,
        model: str | nn.Module = "mlp",
        hidden: Sequence[int] | None = None,
        l2: float | Sequence[float] | None = None,
        scale_features: bool | None = None,
        position_bias: PositionBias | None = None,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.l2 = l2
        self.scale_features = scale_features
        self.position_bias = position_bias
        self.valid_share = valid_share
        self.seed = seed

    @property
    def needs_impressions(self) -> bool:
        """Whether it learns from single impressions: pairs are of items shown together."""
        return True

    def learn(self, source: Source, valid: Source | None) -> LambdaRank:
        """Train on single impressions or on labelled lists."""
        self._check(source)
        validated = valid is not None or bool(self.valid_share)
        costs = np.atleast_1d(np.asarray(L2 if self.l2 is None else self.l2, dtype=np.float64))
        if not validated and (self.l2 is None or costs.size != 1):
            problem = "without validation clicks, l2 must be a single number"
            raise InputError(problem, column="valid_share", value=0)
        bias = _known_bias(self.position_bias, source)
        if validated:
            source, valid = with_validation(source, valid, self.valid_share, self.seed)
        model = self._model_on(source.data)
        judge = None if valid is None else Judge(model, valid)
        training = Training(MergedImpressions.of(source), model, judge, self.seed)
        trained = [training.run(float(cost)) for cost in costs]
        best = int(np.argmax([one.value for one in trained]))
        self.set_scorer(model.scorer(trained[best].parameters), source.data, bias)
        self.l2_ = float(costs[best])
        self.epochs_ = trained[best].epochs
        return self

    def _check(self, source: Source) -> None:
        check_not_trees(self.model, "LambdaRank")
        self.check()
        if not source.data.features.shape[1]:
            raise InputError("there are no features to score items by", column="features")

    def _model_on(self, data: RankingDataset) -> Model:
        scaling, width = Scaling.wanted(data, self.scale_features), data.features.shape[1]
        if self.model == "linear":
            return LinearModel(data, scaling)
        if isinstance(self.model, nn.Module):
            return ModuleModel(data, scaling, self.model)
        widths = (max(1, width // 2),) if self.hidden is None else tuple(self.hidden)
        return ModuleModel(data, scaling, MLPScorer(width, widths, seed=self.seed))


class Trained(NamedTuple):
    """Parameters, the passes over the data that led to them, and their DCG on validation clicks."""

    parameters: Array
    epochs: int
    value: float


class Judge:
    """The DCG of validation clicks, each counting as one, under the ranking by descending score."""

    def __init__(self, model: Model, valid: Source) -> None:
        counted = valid.compact()
        data = counted.data
        self.model = model.on(data)
        self.offsets = data.offsets
        self.gains = counted.gains()
        if not self.gains.any():
            problem = "no validation item was clicked, so that nothing says when to stop; give other ones, or"
            raise InputError(f"{problem} none ({{valid_share}} 0)", column="valid", options=["valid_share"])
        self.weights = dcg_weights(int(data.lengths.max(initial=1)))

    def value(self, parameters: Array) -> float:
        """Return the sum over all validation impressions."""
        size = self.model.entries_a_block
        blocks = [slice(start, start + size) for start in range(0, self.gains.size, size)]
        scores = [self.model.scores(parameters[None], block)[0] for block in blocks]
        ranks = rank_positions(np.concatenate(scores, dtype=np.float64), self.offsets)
        return float(self.gains @ self.weights[ranks - 1])


@dataclass(frozen=True, eq=False)
class Training:
    """Adam on batches of lists, each with all its impressions, since they share the scores of the list."""

    impressions: MergedImpressions
    model: Model
    judge: Judge | None
    seed: int

    @property
    def batch_size(self) -> int:
        """Lists in a step."""
        return int(np.clip(self.impressions.lists.size // LEAST_STEPS, 1, LARGEST_BATCH))

    @property
    def epochs_a_round(self) -> int:
        """Passes over all lists between validations."""
        return -(-LEAST_STEPS * self.batch_size // self.impressions.lists.size)

    def run(self, l2: float) -> Trained:
        """Train until validation gains no more, and return the best; or for a fixed time."""
        ascent = LambdaAscent(self.impressions, self.model, l2, self.seed)
        if self.judge is None:
            ascent.advance(ROUNDS_WITHOUT_VALIDATION * self.epochs_a_round, self.batch_size)
            return Trained(ascent.parameters, ascent.epochs, 0.0)
        best, without_gain = Trained(ascent.parameters, 0, -np.inf), 0
        for _ in range(MOST_ROUNDS):
            ascent.advance(self.epochs_a_round, self.batch_size)
            value = self.judge.value(ascent.parameters)
            without_gain += 1
            if value > best.value:
                best, without_gain = Trained(ascent.parameters.copy(), ascent.epochs, value), 0
            if without_gain >= PATIENCE:
                break
        return best


class LambdaAscent:
    """Parameters on their way up the mean over impressions of - sum_ij delta_ij log(1 + exp(s_j - s_i)).

    delta_ij, what a swap of the two would change, is taken as it is at each step, as if it were constant.
    """

    def __init__(self, impressions: MergedImpressions, model: Model, l2: float, seed: int) -> None:
        self.impressions = impressions
        self.scorer = batch_scorer(model, impressions.data)
        self.settings = LINEAR_STEPS if isinstance(model, LinearModel) else NETWORK_STEPS
        self.l2 = l2
        self.seed = seed
        self.parameters = model.initial(seed)
        self.memory = np.zeros((2, self.parameters.size))
        self.epochs = self.steps = 0

    def advance(self, epochs: int, batch_size: int) -> None:
        """Go through all lists some times more, each time in another order."""
        lists = self.impressions.lists.size
        for epoch in range(self.epochs, self.epochs + epochs):
            order = np.random.default_rng([self.seed, ORDER_OF_EPOCH, epoch]).permutation(lists)
            for first in range(0, lists, batch_size):
                self._step(order[first : first + batch_size])
        self.epochs += epochs

    def _step(self, chosen: NDArray[np.int64]) -> None:
        gradient = self.gradient(chosen)
        self.steps += 1
        move_by_adam(self.parameters, self.memory, gradient, self.steps, self.settings)

    def gradient(self, chosen: NDArray[np.int64]) -> Array:
        """Estimate the direction from some of the lists; all of them give the exact one."""
        impressions = self.impressions
        lists = impressions.lists[chosen]
        offsets = np.concatenate([[0], np.cumsum(impressions.data.lengths[lists])])
        with np.errstate(over="ignore", invalid="ignore"):  # what follows from it is refused
            scores = self.scorer.scores(self.parameters, rows_of(impressions.data.offsets, lists))
        if not np.isfinite(scores).all():
            raise InputError("training went beyond all bounds; scale the features", column="score")
        # the mean over lists times the number of lists, by the number of impressions
        share = impressions.lists.size / (chosen.size * impressions.count.sum())
        slopes = share * impressions.lambdas(chosen, scores, offsets)
        return self.scorer.pull_back(slopes) - self.l2 * self.parameters


def _known_bias(asked: PositionBias | None, source: Source) -> PositionBias | None:
    """Return the position bias asked for or of the log; training needs none, so there may be none."""
    try:
        return position_bias_of(asked, source)
    except InputError:
        return None
