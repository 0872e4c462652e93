"""FairRanker: from clicks to a ranking policy that is useful and fair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fultr.click_model import ClickNoise
from fultr.clicks.examination import AnyBias, context_of
from fultr.data import Source
from fultr.errors import InputError
from fultr.evaluation import evaluate
from fultr.training.candidates import Choice, Start, TrainedPolicies
from fultr.training.checkpoints import Checkpoints, nothing_kept
from fultr.training.cross_fitting import CrossFit
from fultr.training.folds import Folds
from fultr.training.goals import squared
from fultr.training.offset_search import measure_scores
from fultr.training.overlap import query_digests
from fultr.training.paper_protocol import train_as_paper
from fultr.training.paper_steps import PAPER, PaperSettings
from fultr.training.preparation import Prepared, has_two_groups, prepare
from fultr.training.promises import LEVEL, expected_on_new_queries, is_supported
from fultr.training.ranker import KnownScores, TrainableRanker
from fultr.training.settings import NATIVE_MODELS, check_together
from fultr.training.solving import Watcher
from fultr.training.sources import noise_of, single_impressions
from fultr.training.tree_settings import TreeSettings

PAPER_SHARE = 0.2
"""The share of the queries that the paper's protocol puts aside where no validation clicks are given."""


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
        `confidence`, on new queries. 0 is kept by at most a thousandth of what it is without a limit. Where
        left-out clicks cannot show any disparity of the most useful policy, that one is returned, with a
        warning, for any goal without `confidence`: training would chase noise.
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
        "linear", "mlp", "trees" (boosted decision trees), "linear+trees" (trees grown on the scores of a
        linear policy), or a torch module from features (rows x d) to scores.
    hidden
        Widths of the hidden layers of "mlp"; half the number of features by default.
    trees
        How trees are grown: `TreeSettings`.
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
    missing
        What to make of missing features: "mean", that of the training; "indicator", the mean and a further
        column that says so; "native", which "trees" split on as they are. By default they are an error. The
        policy does it, in training and ever after.
    categories
        Columns of a frame to be trained on whose features are categories; data that was read before brings
        its own. The scorer gets a column of 0 and 1 for each category of the training; "trees" split on
        sets of categories instead.
    l2
        What |parameters|^2 / 2 costs: several numbers to choose from, as by default, or one. With several,
        the most useful policy is found first, with the temperature that suits it, and trained for fairness
        from there. With one, U - lambda sum of D_ij^2 - l2 |parameters|^2 / 2 is maximised as it stands.
    entropy_weight
        A bonus for the entropy of Softmax(h), which fades out; 0 by default, 1 in the paper.
    scale_features
        Bring each feature to mean 0 and deviation 1 first; by default where the scales of features are far
        from that: training does not depend on the units of features.
    protocol
        "exact": exact gradients over the whole log. "paper": the paper's REINFORCE on small batches.
    folds
        Into how many parts queries are put. Policies are trained without each of them in turn and judged on
        the clicks left out, then trained on everything. Queries that share documents are in one part. Not
        used with validation clicks; with 0 nothing is left out, and `l2` must be a single number.
    valid_share
        Of the paper's protocol: the share of the queries put aside where no validation clicks are given, by
        default 0.2.
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
        trees: TreeSettings | None = None,
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
        missing: str | None = None,
        categories: Sequence[str] | None = None,
        l2: float | Sequence[float] | None = None,
        entropy_weight: float | None = None,
        scale_features: bool | None = None,
        protocol: str = "exact",
        folds: int = 4,
        valid_share: float | None = None,
        seed: int = 0,
    ) -> None:
        self.fairness_weight = fairness_weight
        self.max_disparity = max_disparity
        self.min_utility = min_utility
        self.confidence = confidence
        self.fairness = fairness
        self.model = model
        self.hidden = hidden
        self.trees = trees
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
        self.missing = missing
        self.categories = categories
        self.l2 = l2
        self.entropy_weight = entropy_weight
        self.scale_features = scale_features
        self.protocol = protocol
        self.folds = folds
        self.valid_share = valid_share
        self.seed = seed

    def check(self) -> None:
        """Refuse settings that can be right for no data, or that do not go together."""
        super().check()
        check_together(self.get_params(deep=False))

    @property
    def needs_impressions(self) -> bool:
        """Whether it learns as the paper does, from batches of impressions."""
        return self.protocol == "paper"

    @property
    def needs_one_hot(self) -> bool:
        """Whether categories must become columns of 0 and 1."""
        return not (isinstance(self.model, str) and self.model in NATIVE_MODELS)

    @property
    def is_cross_fitted(self) -> bool:
        """Whether parts of the log are left out in turn; in policies of earlier versions, a share was."""
        return self.protocol == "exact" and self.folds > 0 and self.valid_share is None

    @property
    def is_promised(self) -> bool:
        """Whether the policy is chosen by what it does on new queries, not on the training clicks."""
        return self.confidence is not None or self.fairness == "offsets"

    @property
    def weight(self) -> float:
        """Lambda."""
        return 1.0 if self.fairness_weight is None else float(self.fairness_weight)

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
            What to train on, and what policies are chosen on; by default the parts of the source that they
            were not trained on.
        checkpoints
            Where the state of training is kept.
        watch
            Called as training goes on.
        """
        ready = self.prepare(source, valid)
        if self.protocol == "paper":
            choice = _fit_as_paper(self, ready, checkpoints, watch)
        else:
            choice = CrossFit(self, ready, checkpoints, watch).choice()
        return self.set_choice(ready, choice)

    def prepare(self, source: Source, valid: Source | None) -> Prepared:
        """Make ready what training needs; refuse to choose policies where there is nothing to choose by."""
        if self.protocol != "paper":
            if self.valid_share is not None:
                problem = "is for the paper's protocol; others leave out one part after the other ({folds})"
                raise InputError(problem, column="valid_share", value=self.valid_share, options=["folds"])
            ready = prepare(self, source, valid)
            if not ready.validated and not self.folds and (ready.l2.size > 1 or self.is_promised):
                problem = "without left-out clicks, l2 must be a single number, without confidence or offsets"
                raise InputError(problem, column="folds", value=0)
            return ready
        share = PAPER_SHARE if self.valid_share is None else self.valid_share
        if valid is None and not share:
            raise InputError("the paper's protocol needs validation clicks", column="valid_share", value=0)
        return prepare(self, source, valid, share)

    def set_choice(self, ready: Prepared, choice: Choice) -> FairRanker:
        """Become a policy that was chosen, and measure it on training clicks and on those it did not see."""
        self._set_policy(ready, choice)
        measured = measure_scores(ready.task, self.predict(ready.task.data), "double")
        self.training_utility_ = float(measured.utility[0])
        self.training_disparity_ = float(np.sqrt(squared(measured.disparity)[0]))
        self.new_queries_: dict[str, Any] | None = None
        self.validation_: dict[str, Any] | None = None
        if choice.left_out_scores is not None:
            self.validation_ = self._validate(ready, choice.left_out_scores)
            if is_supported(ready.valid_task) and has_two_groups(ready.valid_task.data):
                level = self.confidence or LEVEL
                expected = expected_on_new_queries(ready.valid_task, choice.left_out_scores[None], level)
                self.new_queries_ = {
                    "confidence": level,
                    **{name: list(promise) for name, promise in expected._asdict().items()},
                }
        return self

    def _set_policy(self, ready: Prepared, choice: Choice) -> None:
        """Take over a trained scorer and what it was trained with."""
        self.set_scorer(choice.scorer, ready.task.data, ready.weighing.position_bias)
        self.offsets_ = choice.offsets
        self.noise_ = ready.weighing.noise
        # the column whose values had a curve each; position_bias_ is their mean
        self.bias_context_ = context_of(self.position_bias)
        self.l2_ = choice.l2
        self.multiplier_ = choice.fairness_weight
        # what was chosen by validation clicks looks better there than elsewhere
        by_them = query_digests(ready.valid.data)
        self.training_queries_ = np.union1d(self.training_queries_, by_them)

    def _validate(self, ready: Prepared, scores: NDArray[np.float64]) -> dict[str, Any]:
        """Return the measures of the policy on clicks it did not see."""
        noise = noise_of(self.noise_ or ClickNoise(), ready.valid)
        policy = KnownScores(scores)
        evaluation = evaluate(
            policy, ready.valid, position_bias=self.position_bias_, noise=noise, at=self.top_k
        )
        return evaluation.to_dict()


def _fit_as_paper(
    ranker: FairRanker, ready: Prepared, checkpoints: Checkpoints, watch: Watcher | None
) -> Choice:
    policies, values = train_all_as_paper(
        ranker, ready, [(ranker.weight, float(cost), ranker.seed) for cost in ready.l2], checkpoints, watch
    )
    return policies.choice(int(np.argmax(values)))


def train_all_as_paper(
    ranker: FairRanker,
    ready: Prepared,
    grid: Sequence[tuple[float, float, int]],
    checkpoints: Checkpoints,
    watch: Watcher | None,
) -> tuple[TrainedPolicies, list[float]]:
    """Train by the paper's protocol for fairness weights, costs and seeds; with their validation values."""
    source = single_impressions(ready.source, "the paper's protocol")
    trained = [
        train_as_paper(
            source,
            ready.weighing,
            ready.model,
            fairness_weight=weight,
            l2=cost,
            valid=ready.valid_task,
            seed=seed,
            checkpoints=checkpoints,
            settings=paper_settings(ranker),
            stage=f"paper-{number}",
            watch=watch,
        )
        for number, (weight, cost, seed) in enumerate(grid)
    ]
    weights, costs, _ = (np.array(column) for column in zip(*grid, strict=True))
    parameters = [np.stack([outcome.parameters for outcome in trained])]
    start = Start([ready.model], costs)
    policies = TrainedPolicies(Folds(ready, 0, ranker.seed), start, parameters, weights, costs)
    return policies, [outcome.best_value for outcome in trained]


def paper_settings(ranker: FairRanker) -> PaperSettings:
    """Return the settings of the paper's protocol, with the entropy bonus asked for."""
    return PAPER if ranker.entropy_weight is None else replace(PAPER, entropy_weight=ranker.entropy_weight)
