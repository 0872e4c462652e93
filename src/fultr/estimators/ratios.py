"""Disparities as differences of ratios, which clicks estimate with a bias; for comparison (section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fultr.click_model import PositionBias
from fultr.data import ClickLog, RankingDataset
from fultr.errors import InputError
from fultr.estimators.evidence import Candidates, Evidence, evidence_from_relevance
from fultr.estimators.measures import group_exposure, group_merit


def ratio_of_sums_disparity(exposure: Tensor, evidence: Evidence) -> Tensor:
    r"""Return the difference of amortized exposure over amortized merit (Eq. 9, D').

    $$
    D'_{ij}(\pi \mid \mathcal{Q}) = \frac{\sum_q \mathrm{Exp}_q(G_i \mid \pi)}{\sum_q \hat M_q(G_i)}
        - \frac{\sum_q \mathrm{Exp}_q(G_j \mid \pi)}{\sum_q \hat M_q(G_j)}
    $$

    From the items' `exposure` E[v], (..., rows), to (..., groups, groups). Sums are over impressions. Biased
    on finite data, consistent. A pair of groups of which one has no merit anywhere gets 0.
    """
    exposed = group_exposure(exposure, evidence)
    finer = torch.promote_types(exposed.dtype, evidence.weight.dtype)
    sums = evidence.impressions.to(finer) @ exposed.to(finer)
    merit = group_merit(evidence).to(finer).sum(0)
    has_merit = merit > 0
    ratio = sums / torch.where(has_merit, merit, 1.0)
    difference = ratio.unsqueeze(-1) - ratio.unsqueeze(-2)
    return torch.where(has_merit.unsqueeze(-1) & has_merit, difference, 0.0)


@dataclass(frozen=True, eq=False)
class InverseMerit:
    """What the per-impression ratio needs of the data: 1 / merit of groups, summed over impressions.

    `sums[q, i, j]` is the sum of 1 / M^(G_i) over the impressions of list q in which groups i and j both have
    merit. It does not depend on the policy, so that one pass over the impressions serves every step.
    """

    candidates: Candidates
    sums: Tensor
    total_impressions: float

    def __post_init__(self) -> None:
        if not self.total_impressions > 0:
            raise InputError("there are no impressions to estimate anything from", column="impressions")


def inverse_merit_from_relevance(data: RankingDataset, *, dtype: torch.dtype = torch.float64) -> InverseMerit:
    """Take merit from relevances, each list counting as one impression."""
    evidence = evidence_from_relevance(data)
    sums = _inverse_by_list(group_merit(evidence).numpy(), np.arange(len(data)), len(data))
    return InverseMerit(evidence.candidates, torch.from_numpy(sums).to(dtype), evidence.total_impressions)


def inverse_merit_from_clicks(
    log: ClickLog,
    position_bias: PositionBias | None = None,
    *,
    clip: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> InverseMerit:
    """Plug in the merit of each impression by itself, estimated from its clicks: M^(G_i) = sum c / p.

    Not linear in the clicks, so counts do not do. For the parameters see `evidence_from_clicks`.
    """
    candidates = Candidates.of(log.data)
    group = log.data.group[log.row_of_entry]
    has_merit = group >= 0
    cell = log.impression_of_entry[has_merit] * candidates.groups + group[has_merit]
    weights = log.ips_weights(position_bias, clip=clip)[has_merit]
    size = (len(log), candidates.groups)
    merit = np.bincount(cell, weights=weights, minlength=size[0] * size[1]).astype(np.float64).reshape(size)
    sums = _inverse_by_list(merit, log.lists, len(log.data))
    return InverseMerit(candidates, torch.from_numpy(sums).to(dtype), float(len(log)))


def per_impression_ratio_disparity(exposure: Tensor, merit: InverseMerit) -> Tensor:
    r"""Return the mean over impressions of the difference of exposure over merit (Eq. 8, D'').

    $$
    D''_{ij}(\pi \mid q) = \frac{\mathrm{Exp}_q(G_i \mid \pi)}{\hat M_q(G_i)}
        - \frac{\mathrm{Exp}_q(G_j \mid \pi)}{\hat M_q(G_j)}
    $$

    It is 0 unless both merits are above 0.

    From the items' `exposure` E[v], (..., rows), to (..., groups, groups). With merit from clicks it is
    biased, and more data does not help, since E[1 / M^] is not 1 / E[M^].
    """
    exposed = merit.candidates.sum_by_group(exposure)
    finer = torch.promote_types(exposed.dtype, merit.sums.dtype)
    sums = merit.sums.to(finer) / merit.total_impressions
    ratios = torch.einsum("...qi,qij->...ij", exposed.to(finer), sums)
    return ratios - ratios.transpose(-1, -2)


def _inverse_by_list(
    merit: NDArray[np.float64], lists: NDArray[np.int64], number_of_lists: int
) -> NDArray[np.float64]:
    """Sum 1 / merit of impressions x groups over the impressions of each list, for each pair of groups."""
    groups = merit.shape[1]
    positive = merit > 0
    inverse = np.divide(1.0, merit, out=np.zeros_like(merit), where=positive)
    sums = np.zeros((number_of_lists, groups, groups))
    for first in range(groups):
        for second in range(groups):
            both = np.where(positive[:, second], inverse[:, first], 0.0)
            sums[:, first, second] = np.bincount(lists, weights=both, minlength=number_of_lists)
    return sums
