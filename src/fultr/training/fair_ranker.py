"""FairRanker: from clicks to a ranking policy that is useful and fair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fultr.click_model import ClickNoise
from fultr.clicks.examination import AnyBias, context_of
from fultr.data import Source
from fultr.errors import FultrError, InputError
from fultr.evaluation import evaluate
from fultr.training.checkpoints import Checkpoints, nothing_kept
from fultr.training.cross_fitting import Choice, CrossFit
from fultr.training.goals import squared
from fultr.training.limits import fairest, lowest_disparity, most_useful
from fultr.training.models import ScaledScorer, Scores
from fultr.training.objective import Objective
from fultr.training.offsets import LEVEL, OffsetScores
from fultr.training.overlap import query_digests
from fultr.training.paper_protocol import PAPER, PaperSettings, train_as_paper
from fultr.training.preparation import Prepared, prepare
from fultr.training.ranker import KnownScores, TrainableRanker
from fultr.training.solving import Solution, Solver, Watcher
from fultr.training.sources import noise_of, single_impressions

LOWER_AIMS, FURTHER = 5, 1.1
"""How often training aims lower than a limit that unseen candidates could break, and by how many times what
they add beyond the limit."""

HIGHEST_PRICE = 30.0
"""The largest fairness weight that validation clicks are judged by: the largest of the paper's."""


class UnreachableLimitError(FultrError):
    """No policy was found that respects the limit; `lowest` is the lowest disparity found."""

    def __init__(self, limit: float, lowest: float) -> None:
        self.limit = limit
        self.lowest = lowest
        super().__init__(
            f"no policy was found whose disparity on the training clicks is at most {limit:g}; the lowest"
            f" found is {lowest:.6g}. Raise max_disparity, or ask for the fairest policy at a price with"
            " min_utility"
        )


class FairRanker(TrainableRanker):
    """Learn a stochastic ranking policy from clicks, useful to searchers and fair to groups of items.

    It maximises U - lambda sum_{i<j} D_ij^2, both estimated from logged clicks with inverse propensity
    weights: the utility U and, for each pair of groups, the amortized disparity D_ij between the exposure
    and the merit of the two. In place of lambda, a limit of the disparity or a price can be given.

    Parameters
    ----------
    fairness_weight
        lambda, 1 if nothing else is given. 0 trains for utility alone.
    max_disparity
        Instead: the most that sqrt(sum of D_ij^2), |D| for two groups, may be on the training clicks; with
        `confidence`, on new queries.
    min_utility
        Instead: the share of the best possible utility to keep, such as 0.99; the fairest policy is found.
    confidence
        How sure it must be that `max_disparity` holds on new queries, such as 0.95. Policies are judged on
        clicks they were not trained on. If none can be promised to keep the limit, `UnsupportedLimitError`
        says which limit can.
    fairness
        "training": the scorer is trained to be fair. "offsets": the most useful scorer is kept, and one
        number for each group is added to its scores. They need the group of an item when it is ranked.
    model
        "linear", "mlp", or a torch module from features (rows x d) to scores.
    hidden
        Widths of the hidden layers of "mlp"; half the number of features by default.
    position_bias
        Examination probabilities, an estimate of them (`estimate_bias`), or a `PositionBiasByContext`; by
        default those of the log.
    noise
        Click noise to take off the estimates; by default that of the log, if it has any.
    utility
        "dcg", "average_rank", or the weights of positions 1, 2, ...
    top_k
        Positions beyond have no utility.
    depth
        How many positions a page has: nobody looks beyond, so that there is neither exposure nor utility. By
        default as many as anything in the log was shown at, if lists are longer.
    utility_ips, disparity_ips
        Whether clicks are weighted by inverse propensities in the utility and in the disparity.
    clip
        The most that an inverse propensity may be.
    evidence
        How merit is estimated from weighted clicks: "ips"; "pooled" over the impressions of a query; or
        "doubly_robust", clipped weights with a regression in place of what the clip takes away.
    group_blind
        Hide all columns derived from the group attribute from the scorer.
    l2
        What |parameters|^2 / 2 costs: a number, or several to choose from on validation clicks.
    entropy_weight
        A bonus for the entropy of Softmax(h), which fades out; 0 by default, 1 in the paper.
    scale_features
        Bring each feature to mean 0 and deviation 1 first; by default where the scales of features are far
        from that, but not in the paper's protocol.
    protocol
        "exact": exact gradients over the whole log. "paper": the paper's REINFORCE on small batches.
    valid_share
        Share of the queries put aside for validation where no validation clicks are given. With 0 there is
        no validation, and `l2` must be a single number. Not used with `confidence` or `fairness="offsets"`.
    folds
        With `confidence` or `fairness="offsets"`: into how many parts queries are put, each to be left out
        once, where no validation clicks are given. Queries that share documents are in one part.
    seed
        All randomness comes from here.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=500, seed=0)
    >>> ranker = fultr.FairRanker(fairness_weight=10.0, l2=0.01).fit(log)
    >>> ranker.rank(data.test).min()
    np.int32(1)
    """

    stochastic = True

    def __init__(
        self,
        fairness_weight: float | None = None,
        *,
        max_disparity: float | None = None,
        min_utility: float | None = None,
        confidence: float | None = None,
        fairness: str = "training",
        model: str | nn.Module = "linear",
        hidden: Sequence[int] | None = None,
        position_bias: AnyBias | None = None,
        noise: ClickNoise | None = None,
        utility: str | NDArray[np.float64] = "dcg",
        top_k: int | None = None,
        depth: int | None = None,
        utility_ips: bool = True,
        disparity_ips: bool = True,
        clip: float | None = None,
        evidence: str = "ips",
        group_blind: bool = False,
        l2: float | Sequence[float] | None = None,
        entropy_weight: float | None = None,
        scale_features: bool | None = None,
        protocol: str = "exact",
        valid_share: float = 0.2,
        folds: int = 4,
        seed: int = 0,
    ) -> None:
        self.fairness_weight = fairness_weight
        self.max_disparity = max_disparity
        self.min_utility = min_utility
        self.confidence = confidence
        self.fairness = fairness
        self.model = model
        self.hidden = hidden
        self.position_bias = position_bias
        self.noise = noise
        self.utility = utility
        self.top_k = top_k
        self.depth = depth
        self.utility_ips = utility_ips
        self.disparity_ips = disparity_ips
        self.clip = clip
        self.evidence = evidence
        self.group_blind = group_blind
        self.l2 = l2
        self.entropy_weight = entropy_weight
        self.scale_features = scale_features
        self.protocol = protocol
        self.valid_share = valid_share
        self.folds = folds
        self.seed = seed

    @property
    def needs_impressions(self) -> bool:
        """Whether it learns as the paper does, from batches of impressions."""
        return self.protocol == "paper"

    @property
    def is_cross_fitted(self) -> bool:
        """Whether policies are chosen by how they do on parts of the log that they were not trained on."""
        return self.confidence is not None or self.fairness == "offsets"

    def learn(
        self,
        source: Source,
        valid: Source | None,
        *,
        checkpoints: Checkpoints = nothing_kept,
        watch: Watcher | None = None,
    ) -> FairRanker:
        """Train on a log or on labelled lists.

        Parameters
        ----------
        source, valid
            What to train on, and what `l2` is chosen on; by default a part of the source, split by query.
        checkpoints
            Where the state of training is kept.
        watch
            Called as training goes on.
        """
        ready = prepare(self, source, valid)
        if self.is_cross_fitted:
            fit = CrossFit(self, ready, checkpoints, watch)
            base = fit.most_useful()
            offsets = self.fairness == "offsets"
            return self._set_choice(ready, fit.with_offsets(base) if offsets else fit.with_confidence(base))
        if self.protocol == "paper":
            parameters, l2, solution = _fit_as_paper(self, ready, checkpoints, watch)
        else:
            parameters, l2, solution = _fit_within(self, ready, checkpoints, watch)
        return self.take(ready, parameters, l2, solution)

    def take(
        self, ready: Prepared, parameters: NDArray[np.float64], l2: float, multiplier: float
    ) -> FairRanker:
        """Become the policy of trained parameters, and measure it on training and validation clicks."""
        self._set_policy(ready, ready.model.scorer(parameters), {}, l2, multiplier)
        self._measure_training(ready, ready.model, parameters)
        self.new_queries_: dict[str, Any] | None = None
        self.validation_ = self._validate(ready, self) if ready.validated else None
        return self

    def _set_choice(self, ready: Prepared, choice: Choice) -> FairRanker:
        """Become the policy that cross-fitting chose."""
        self._set_policy(ready, choice.scorer, choice.offsets, choice.l2, choice.fairness_weight)
        data = ready.task.data
        scores = OffsetScores(data, self.predict(data))
        self._measure_training(ready, scores, np.zeros(scores.size))
        self.new_queries_ = {
            "confidence": self.confidence or LEVEL,
            **{name: list(promise) for name, promise in choice.expected._asdict().items()},
        }
        self.validation_ = self._validate(ready, KnownScores(choice.left_out_scores))
        return self

    def _set_policy(
        self,
        ready: Prepared,
        scorer: ScaledScorer,
        offsets: dict[str, float],
        l2: float,
        multiplier: float,
    ) -> None:
        """Take over a trained scorer and what it was trained with."""
        self.adopt(scorer, ready.task.data, ready.weighing.position_bias)
        self.offsets_ = offsets
        self.noise_ = ready.weighing.noise
        # the column whose values had a curve each; position_bias_ is their mean
        self.bias_context_ = context_of(self.position_bias)
        self.l2_ = float(l2)
        self.multiplier_ = float(multiplier)
        # what was chosen by validation clicks looks better there than elsewhere
        by_them = query_digests(ready.valid.data)
        self.training_queries_ = np.union1d(self.training_queries_, by_them)

    def _measure_training(self, ready: Prepared, model: Scores, parameters: NDArray[np.float64]) -> None:
        final = Objective(ready.task, model, np.zeros(1), accuracy="double")
        measured = final.measure(parameters[None])
        self.training_utility_ = float(measured.utility[0])
        self.training_disparity_ = float(np.sqrt(squared(measured.disparity)[0]))

    def _validate(self, ready: Prepared, policy: FairRanker | KnownScores) -> dict[str, Any]:
        """Return the measures of a policy on validation clicks, or of left-out scores on left-out clicks."""
        noise = noise_of(self.noise_ or ClickNoise(), ready.valid)
        found = evaluate(policy, ready.valid, position_bias=self.position_bias_, noise=noise, at=self.top_k)
        return found.to_dict()


def _fit_within(
    ranker: FairRanker, ready: Prepared, checkpoints: Checkpoints, watch: Watcher | None
) -> tuple[NDArray[np.float64], float, float]:
    """Train, and under a limit aim lower until it holds whatever the merit of items that were never shown."""
    if ranker.max_disparity is None:
        return _fit_exactly(ranker, ready, checkpoints, watch)
    limit = aim = float(ranker.max_disparity)
    most = math.inf
    for turn in range(LOWER_AIMS):
        prefix = f"lower-{turn}-" if turn else ""
        try:
            found = _fit_exactly(ranker, ready, checkpoints, watch, aim, prefix)
        except UnreachableLimitError:
            if not turn:
                raise
            break
        reached = ready.most_disparity(found[0])
        if reached <= limit:
            return found
        # what is unknown adds about as much again
        most, aim = min(most, reached), aim - FURTHER * (reached - limit)
        if aim <= 0:
            break
    raise ready.unknown_merit(most, limit)


def _fit_exactly(
    ranker: FairRanker,
    ready: Prepared,
    checkpoints: Checkpoints,
    watch: Watcher | None,
    limit: float | None = None,
    prefix: str = "",
) -> tuple[NDArray[np.float64], float, float]:
    solver = Solver(
        ready.task,
        ready.model,
        ready.l2,
        entropy_weight=ranker.entropy_weight or 0.0,
        seed=ranker.seed,
        checkpoints=checkpoints,
        watch=watch,
        prefix=prefix,
    )
    solution = _solve(ranker, ready, solver, limit)
    best = _best_on_validation(ranker, ready, solution)
    return solution.parameters[best], float(ready.l2[best]), float(solution.multiplier[best])


def _solve(ranker: FairRanker, ready: Prepared, solver: Solver, limit: float | None) -> Solution:
    if limit is not None:
        solution = most_useful(solver, limit)
        if not solution.held.any():
            lowest = min(float(solution.root_disparity.min()), lowest_disparity(solver))
            raise UnreachableLimitError(limit, lowest)
        return solution
    if ranker.min_utility is not None:
        return fairest(solver, float(ranker.min_utility))
    return solver.penalised(np.full(solver.l2.size, weight_of(ranker)), ready.early_stopping)


def _best_on_validation(ranker: FairRanker, ready: Prepared, solution: Solution) -> int:
    """Return the configuration that does best on validation clicks, among those that hold the limit."""
    if solution.held.size == 1:
        return 0
    measured = ready.measure_validation(solution.parameters)
    value, disparity = measured.utility, squared(measured.disparity)
    if ranker.max_disparity is not None:
        # what is above the limit counts at the highest price that any of them pays for disparity
        price = float(np.where(solution.held, solution.multiplier, 0.0).max())
        value = value - min(price, HIGHEST_PRICE) * np.maximum(disparity - ranker.max_disparity**2, 0.0)
    elif ranker.min_utility is not None:
        # at the lowest price at which any of them gives up utility for disparity
        value = value - min(float(solution.multiplier[solution.held].min()), HIGHEST_PRICE) * disparity
    else:
        value = value - weight_of(ranker) * disparity
    return int(np.where(solution.held, value, -np.inf).argmax())


def _fit_as_paper(
    ranker: FairRanker, ready: Prepared, checkpoints: Checkpoints, watch: Watcher | None
) -> tuple[NDArray[np.float64], float, float]:
    weight, best = weight_of(ranker), None
    source = single_impressions(ready.source, "the paper's protocol")
    for number, l2 in enumerate(ready.l2):
        found = train_as_paper(
            source,
            ready.weighing,
            ready.model,
            fairness_weight=weight,
            l2=float(l2),
            valid=ready.valid_task,
            seed=ranker.seed,
            checkpoints=checkpoints,
            settings=paper_settings(ranker),
            stage=f"paper-{number}",
            watch=watch,
        )
        if best is None or found.best_value > best[0]:
            best = (found.best_value, found.parameters, float(l2))
    if best is None:
        raise InputError("give at least one", column="l2")
    return best[1], best[2], weight


def paper_settings(ranker: FairRanker) -> PaperSettings:
    """Return the settings of the paper's protocol, with the entropy bonus asked for."""
    return PAPER if ranker.entropy_weight is None else replace(PAPER, entropy_weight=ranker.entropy_weight)


def weight_of(ranker: FairRanker) -> float:
    """Return lambda."""
    return 1.0 if ranker.fairness_weight is None else float(ranker.fairness_weight)
