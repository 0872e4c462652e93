"""What training needs, made from a ranker's settings and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fultr.arguments import checked_number
from fultr.click_model import PositionBias
from fultr.clicks import check_candidates
from fultr.clicks.examination import with_examination
from fultr.data import Counts, RankingDataset, Source
from fultr.data.ids import UNKNOWN_GROUP
from fultr.errors import InputError
from fultr.estimators import disparity_squared, list_disparity_bounds
from fultr.expectation import expected_weights
from fultr.policy import MLPScorer
from fultr.training.models import LinearModel, Model, ModuleModel
from fultr.training.scaling import Scaling
from fultr.training.settings import NAMED_MODELS
from fultr.training.sources import noise_of, position_bias_of, with_validation
from fultr.training.task import Task, Weighing
from fultr.training.tree_model import TreeModel
from fultr.training.tree_settings import TreeSettings

if TYPE_CHECKING:
    from fultr.training.fair_ranker import FairRanker

L2_TOGETHER = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 10.0)
L2_ONE_BY_ONE = (1e-4, 1e-2, 1e-1)
L2_OF_PAPER = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 0.0)
"""Costs of large parameters to choose from: where they are trained together, where not, and the authors'.

Without early stopping, which the second and the third have, the cost must reach further up. The temperature
sharpens what a strong cost has flattened."""


NO_TWO_GROUPS = "there are no two groups of items, so that there is no disparity"


class Prepared:
    """All that training needs, made from a ranker's settings and its data."""

    def __init__(
        self, ranker: FairRanker, asked: PositionBias | None, source: Source, valid: Source | None
    ) -> None:
        self.weighing = Weighing(
            position_bias=position_bias_of(asked, source, ranker.depth),
            noise=noise_of(ranker.noise, source),
            utility=ranker.utility,
            top_k=ranker.top_k,
            utility_ips=ranker.utility_ips,
            disparity_ips=ranker.disparity_ips,
            clip=ranker.clip,
            estimator=ranker.evidence,
        )
        self.source = source
        # without validation clicks the training clicks stand in, where something asks for them
        self.validated = valid is not None
        self.valid = source if valid is None else valid
        self.task = Task.of(source, self.weighing)
        if ranker.max_disparity is not None:
            self.check_limit(ranker.max_disparity)
        self.valid_task = self.task if valid is None else Task.of(self.valid, self.weighing)
        self.model = _model_of(ranker, self.task.data)
        self.valid_model = self.model.on(self.valid_task.data)
        self.l2 = _l2_of(ranker, self.model)

    def check_limit(self, limit: float) -> None:
        """Refuse a limit of a disparity that is not known, or that any ranking keeps."""
        if not has_two_groups(self.task.data):
            raise InputError(NO_TWO_GROUPS, column="max_disparity", value=limit)
        if self.task.disparity.empties_dropped:
            problem = (
                "a log whose impressions without a click were dropped knows disparity only up to a factor, so"
                " it cannot be limited; keep them, or give a fairness weight or a least utility instead"
            )
            raise InputError(problem, column="max_disparity", value=limit)
        for source in (self.source, self.valid):
            content = source.compact()
            if isinstance(content, Counts):
                check_candidates(content, limit)

    def most_disparity(self, scores: NDArray[np.float64]) -> float:
        """Return the most that sqrt(sum of D_ij^2) of the policy of scores of the rows may be.

        That is its largest value, whatever the merit of items never shown.

        0 if all were shown: then nothing is unknown.
        """
        evidence = self.task.disparity
        if evidence.unseen is None:
            return 0.0
        exposure = expected_weights(
            torch.from_numpy(scores), self.task.tables[1:], offsets=self.task.data.offsets
        )[0]
        low, high = (bound.sum(0) for bound in list_disparity_bounds(exposure, evidence))
        worst = torch.maximum(low.abs(), high.abs()) / evidence.total_impressions
        return float(disparity_squared(worst).sqrt())

    def unknown_merit(self, most: float, limit: float) -> InputError:
        """Return the error of a limit that candidates of unknown merit could break."""
        unseen = self.task.disparity.unseen
        share = 0.0 if unseen is None else float((unseen.group >= 0).double().mean())
        problem = (
            f"{share:.1%} of the candidates were never shown, so that their merit is unknown: the"
            f" disparity may be up to {most:.3g}. Show them now and then, leave them out"
            " ({shown_only()}), or give a fairness weight instead of a limit"
        )
        return InputError(problem, column="max_disparity", value=limit, options=["shown_only()"])


def prepare(
    ranker: FairRanker, source: Source, valid: Source | None = None, valid_share: float = 0.0
) -> Prepared:
    """Check the settings of a ranker and make ready what training needs.

    Without validation clicks, a share of the queries is put aside for them.
    """
    _check_settings(ranker, source)
    source, curve = with_examination(source, ranker.position_bias)
    if valid is not None:
        valid, _ = with_examination(valid, ranker.position_bias)
    elif not valid_share:
        return Prepared(ranker, curve, source, None)
    return Prepared(ranker, curve, *with_validation(source, valid, valid_share, ranker.seed))


def _model_of(ranker: FairRanker, data: RankingDataset) -> Model:
    hidden = data.group_columns if ranker.group_blind else ()
    if ranker.model == "trees":
        return TreeModel(data, ranker.trees or TreeSettings(), None, hidden)
    scaling = Scaling.wanted(data, ranker.scale_features)
    width = data.features.shape[1]
    if isinstance(ranker.model, nn.Module):
        return ModuleModel(data, scaling, ranker.model, hidden)
    if ranker.model == "linear+trees":
        linear = LinearModel(data, scaling, hidden)
        return TreeModel(data, ranker.trees or TreeSettings(), linear, hidden)
    if ranker.model == "linear":
        return LinearModel(data, scaling, hidden)
    if ranker.model == "mlp":
        widths = tuple(ranker.hidden) if ranker.hidden is not None else (max(1, width // 2),)
        return ModuleModel(data, scaling, MLPScorer(width, widths, seed=ranker.seed), hidden)
    raise InputError(f"must be {NAMED_MODELS} or a torch module", column="model", value=ranker.model)


def _l2_of(ranker: FairRanker, model: Model) -> NDArray[np.float64]:
    if ranker.l2 is None:
        if ranker.protocol == "paper":
            return np.array(L2_OF_PAPER)
        return np.array(L2_TOGETHER if model.together else L2_ONE_BY_ONE)
    return np.atleast_1d(np.asarray(ranker.l2, dtype=np.float64))


def _check_settings(ranker: FairRanker, source: Source) -> None:
    ranker.check()
    if not source.data.features.shape[1]:
        problem = "there are no features to score items by; name the columns that hold them"
        raise InputError(problem, column="features")
    check_groups(ranker, source.data)


def check_validated(ranker: FairRanker, valid: Source | None, share: float) -> None:
    """Refuse to choose among costs without validation clicks, given or put aside."""
    rule = "must be 0 or more and less than 1"
    checked_number(share, "valid_share", rule, lambda got: 0 <= got < 1)
    if valid is None and not share and (ranker.l2 is None or np.size(ranker.l2) != 1):
        problem = "without validation clicks, l2 must be a single number"
        raise InputError(problem, column="valid_share", value=0)


def check_groups(ranker: FairRanker, data: RankingDataset) -> None:
    """Refuse a limit or a price of the disparity where there is none: it would be kept by any ranking."""
    if has_two_groups(data):
        return
    unusable = [name for name in ("max_disparity", "min_utility") if getattr(ranker, name) is not None]
    if ranker.fairness == "offsets":
        unusable.append("fairness")
    if unusable:
        problem = f"{NO_TWO_GROUPS}; leave it out, or say which column holds the groups"
        raise InputError(problem, column=unusable[0], value=getattr(ranker, unusable[0]))


def has_two_groups(data: RankingDataset) -> bool:
    """Say whether items are of two groups at least."""
    groups = data.group[data.group != UNKNOWN_GROUP]
    return bool((groups[1:] != groups[:-1]).any())
