"""Fair-PG-Rank: policy gradients for utility and for fair treatment within each query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fultr.arguments import number_array
from fultr.baselines.treatment import Treated, TreatmentObjective, TreatmentSolver, compare_groups
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import Source
from fultr.errors import InputError
from fultr.training.fair_ranker import FairRanker
from fultr.training.objective import Measured
from fultr.training.preparation import Prepared, check_validated, prepare
from fultr.training.ranker import TrainableRanker
from fultr.training.settings import check_not_trees
from fultr.training.sources import single_impressions, source_of

Array = NDArray[np.float64]


class FairPGRank(TrainableRanker):
    r"""Learn a stochastic ranking policy that treats the groups of each query by their merit.

    Fair-PG-Rank of Singh and Joachims (2019) maximises U - lambda D, where D is the mean over impressions of

    $$
    D(\pi \mid q) = \sum_{ij} \max\left( 0, \frac{\mathrm{Exp}_q(G_i \mid \pi)}{M_q(G_i)}
        - \frac{\mathrm{Exp}_q(G_j \mid \pi)}{M_q(G_j)} \right)
    $$

    over the pairs of groups with average merits M_q(G_i) >= M_q(G_j) > 0, Exp_q being average exposure. It
    was made for known relevances, as labelled lists have them. From clicks, the merit of each impression is
    what its own clicks say, taken as they are or weighted by 1 / p (Fair-PG-Rank-IPS): a biased estimate in
    either case, since D is not linear in the merit. Click noise is not known of.

    Parameters
    ----------
    fairness_weight
        lambda. 0 trains for utility alone.
    ips
        Whether clicks are weighted by inverse propensities, in the utility and in the merit.
    model, hidden, l2, scale_features, valid_share, seed
        As those of `FairRanker`.
    position_bias
        Examination probabilities, for the exposure and, with `ips`, for the propensities of a log that has
        none; by default those of the log.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> ranker = FairPGRank(10.0, l2=0.01, position_bias=bias).fit(data.train)
    >>> ranker.rank(data.test).min()
    np.int32(1)
    """

    stochastic = True

    def __init__(
        self,
        fairness_weight: float = 1.0,
        *,
        ips: bool = False,
        model: str | nn.Module = "linear",
        hidden: Sequence[int] | None = None,
        position_bias: PositionBias | None = None,
        l2: float | Sequence[float] | None = None,
        scale_features: bool | None = None,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.fairness_weight = fairness_weight
        self.ips = ips
        self.model = model
        self.hidden = hidden
        self.position_bias = position_bias
        self.l2 = l2
        self.scale_features = scale_features
        self.valid_share = valid_share
        self.seed = seed

    @property
    def needs_impressions(self) -> bool:
        """Whether it learns from single impressions: each has a merit of its own."""
        return True

    def learn(self, source: Source, valid: Source | None) -> FairPGRank:
        """Train on single impressions or on labelled lists."""
        _train([self], source, valid)
        return self

    def set_policy(self, ready: Prepared, parameters: Array, l2: float, measured: Measured) -> None:
        """Become the policy of trained parameters, measured on training impressions."""
        self.set_scorer(ready.model.scorer(parameters), ready.task.data, ready.weighing.position_bias)
        self.l2_ = l2
        self.training_utility_ = float(measured.utility[0])
        self.training_disparity_ = float(measured.disparity.sum())


def fair_pg_rank_sweep(
    source: Any, fairness_weights: Sequence[float], valid: Any = None, **settings: Any
) -> list[FairPGRank]:
    """Train a `FairPGRank` for each fairness weight, all together where the scorer is linear.

    Parameters
    ----------
    source, valid
        As in `FairPGRank.fit`.
    fairness_weights
        The lambdas, one for each ranker that is returned.
    settings
        All other settings of the rankers. Of several costs of large parameters, `l2`, each ranker has the
        one that does best for its own lambda on validation impressions.
    """
    weights = number_array(fairness_weights, "fairness_weights").astype(np.float64).reshape(-1)
    if not weights.size or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("must be one or more finite numbers, 0 or more", column="fairness_weights")
    rankers = [FairPGRank(float(weight), **settings) for weight in weights]
    reading = rankers[0].reading()
    aside = None if valid is None else source_of(valid, reading=reading)
    encoding, encoded, aside = rankers[0].encoded(source_of(source, reading=reading), aside)
    _train(rankers, encoded, aside)
    for ranker in rankers:
        ranker.set_encoding(encoding)
    return rankers


def _train(rankers: list[FairPGRank], source: Source, valid: Source | None) -> None:
    """Train rankers that differ in nothing but the fairness weight."""
    for given, column in ((source, "X"), (valid, "valid")):
        if given is not None:
            single_impressions(given, "the merit of groups", column)
    twins = [_twin(ranker) for ranker in rankers]
    share = rankers[0].valid_share
    check_validated(twins[0], valid, share)
    ready = prepare(twins[0], source, valid, share)
    cost = np.tile(ready.l2, len(rankers))
    weight = np.repeat([twin.weight for twin in twins], ready.l2.size)
    comparisons = compare_groups(ready.source, ready.weighing, ready.task.data)
    solver = TreatmentSolver(comparisons, ready.task, ready.model, cost, rankers[0].seed)
    parameters = solver.treated(weight)
    value = np.zeros(weight.size) if ready.l2.size == 1 else _validate(ready, weight, parameters)
    best = value.reshape(len(rankers), -1).argmax(axis=1) + np.arange(len(rankers)) * ready.l2.size
    final = TreatmentObjective(comparisons, ready.task, ready.model, np.zeros(1), accuracy="double")
    for ranker, chosen in zip(rankers, best, strict=True):
        one = parameters[chosen : chosen + 1]
        ranker.set_policy(ready, one[0], float(cost[chosen]), final.measure(one))


def _twin(ranker: FairPGRank) -> FairRanker:
    """Return a FairRanker of the same settings, which are then checked and prepared for in the same way."""
    check_not_trees(ranker.model, "Fair-PG-Rank")
    settings = ranker.get_params(deep=False)
    ips = settings.pop("ips")
    del settings["valid_share"]
    if not isinstance(ips, (bool, np.bool_)):
        raise InputError("must be True or False", column="ips", value=ips)
    return FairRanker(**settings, utility_ips=bool(ips), disparity_ips=bool(ips), noise=ClickNoise())


def _validate(ready: Prepared, weight: Array, parameters: Array) -> Array:
    """Return what each configuration achieves on validation impressions."""
    comparisons = compare_groups(ready.valid, ready.weighing, ready.valid_task.data)
    objective = TreatmentObjective(comparisons, ready.valid_task, ready.valid_model, np.zeros(1))
    blocks = [parameters] if ready.model.together else list(parameters[:, None])
    measures = [objective.measure(block) for block in blocks]
    measured = Measured(*(np.concatenate(field) for field in zip(*measures, strict=True)))
    return Treated(weight)(*measured).value
