"""Utility, exposure and disparity of a policy, from its expected position weights and the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from fultr.click_model import ClickNoise
from fultr.errors import InputError
from fultr.estimators.arrays import of_one_type
from fultr.estimators.evidence import Evidence, Values, correct_noise

if TYPE_CHECKING:
    from torch import Tensor


def weights_at(positions: ArrayLike | Tensor, position_weights: ArrayLike | Tensor) -> Tensor:
    """Return the weight of each item's position in given rankings: f(sigma(d)), or p(o_d = 1 | sigma) for v.

    Parameters
    ----------
    positions
        (..., rows) from 1; 0 for an item that is not shown, which has weight 0.
    position_weights
        The weights of positions 1, 2, ...
    """
    import torch

    where = torch.as_tensor(positions).long()
    weights = torch.as_tensor(position_weights)
    if where.numel() and not 0 <= int(where.min()) <= int(where.max()) <= weights.numel():
        problem = f"a position must lie in 1..{weights.numel()}, or be 0 for an item that is not shown"
        outside = where[(where < 0) | (where > weights.numel())]
        raise InputError(problem, column="positions", value=int(outside[0]))
    return torch.nn.functional.pad(weights, (1, 0))[where]


def utility_of_rankings(
    positions: ArrayLike | Tensor, position_weights: ArrayLike | Tensor, evidence: Evidence
) -> Tensor:
    r"""Return the additive utility of given rankings of each list (section 3.1, Eq. 3).

    From relevances, and from clicks:

    $$
    \Delta(\sigma, \mathrm{rel}_q) = \sum_d f(\sigma(d)) \, \mathrm{rel}_{q,d} \qquad
    \hat\Delta(\sigma, c_q) = \sum_{d:\, c_{q,d} = 1} \frac{f(\sigma(d))}{p(o_{q,d} = 1 \mid \sigma_q)}
    $$

    With f = 1 / log2(1 + k) it is DCG, with f = -k the average rank. Returns (..., lists), each the sum over
    the impressions of the list.
    """
    return list_utilities(weights_at(positions, position_weights), evidence)


def list_utilities(expected_weights: Values, evidence: Evidence[Values]) -> Values:
    r"""Return each list's contribution to the utility, the sum over its impressions (section 3.1).

    $$
    \hat U(\pi \mid q) = \mathrm{E}_{\sigma \sim \pi}[\hat\Delta(\sigma, c_q)]
        = \sum_d \frac{c_d}{p_d} \, \mathrm{E}[f(\sigma(d))]
    $$

    From `expected_weights` E[f], (..., rows), to (..., lists).
    """
    evidence.candidates.check(expected_weights)
    value, weight = of_one_type(expected_weights, evidence.weight)
    return evidence.candidates.sum_by_list(value * weight)


def utility(expected_weights: Tensor, evidence: Evidence) -> Tensor:
    r"""Return the utility of a policy, the mean over all impressions (Eq. 4).

    $$
    \hat U(\pi \mid \mathcal{Q}) = \frac{1}{|\mathcal{Q}|} \sum_{q \in \mathcal{Q}} \hat U(\pi \mid q)
    $$

    From `expected_weights` E[f], (..., rows), to (...).
    """
    evidence.candidates.check(expected_weights)
    value, weight = of_one_type(expected_weights, evidence.weight)
    return value @ (weight / evidence.total_impressions)


def group_merit(evidence: Evidence[Values]) -> Values:
    r"""Return the merit of each group in each list, (lists, groups), summed over impressions (section 3.2).

    From relevances, and from clicks:

    $$
    M_q(G_i) = \sum_{d \in G_i} \mathrm{rel}_{q,d} \qquad
    \hat M_q(G_i) = \sum_{d \in G_i} \frac{c_{q,d}}{p(o_{q,d} = 1 \mid \sigma_q)}
    $$
    """
    return evidence.candidates.sum_by_group(evidence.weight)


def group_exposure(exposure: Values, evidence: Evidence[Values]) -> Values:
    r"""Return the exposure of each group in each list, in one impression of it (section 3.2).

    $$
    \mathrm{Exp}_q(G_i \mid \pi) = \sum_{d \in G_i} \mathrm{Exp}_q(d \mid \pi), \qquad
    \mathrm{Exp}_q(d \mid \pi) = \mathrm{E}_{\sigma \sim \pi}[p(o_d = 1 \mid \sigma)]
    $$

    From the items' `exposure` E[v], (..., rows), to (..., lists, groups).
    """
    return evidence.candidates.sum_by_group(exposure)


def list_disparities(exposure: Values, evidence: Evidence[Values]) -> Values:
    r"""Return each list's contribution to the disparity of all pairs of groups (Eq. 5, from clicks Eq. 7).

    $$
    \hat D_{ij}(\pi \mid q) = \hat M_q(G_j) \, \mathrm{Exp}_q(G_i \mid \pi)
        - \hat M_q(G_i) \, \mathrm{Exp}_q(G_j \mid \pi)
    $$

    It is summed over the impressions of the list.

    From the items' `exposure` E[v], (..., rows), to (..., lists, groups, groups); for one pair of many
    groups, `list_disparity` needs less memory.
    """
    exposed, merit = of_one_type(group_exposure(exposure, evidence), group_merit(evidence))
    return _antisymmetric(exposed[..., :, None] * merit[..., None, :])


def list_disparity(exposure: Tensor, evidence: Evidence, *, first: int, second: int) -> Tensor:
    """Return each list's contribution to D_ij, i = `first` and j = `second`, as (..., lists); Eq. 5 and 7."""
    for name, group in (("first", first), ("second", second)):
        if not 0 <= group < evidence.candidates.groups:
            problem = f"there are {evidence.candidates.groups} groups, counted from 0"
            raise InputError(problem, column=name, value=group)
    exposed, merit = of_one_type(group_exposure(exposure, evidence), group_merit(evidence))
    return merit[:, second] * exposed[..., first] - merit[:, first] * exposed[..., second]


def list_disparity_bounds(exposure: Values, evidence: Evidence[Values]) -> tuple[Values, Values]:
    r"""Return between what each list's contribution lies, whatever the merit of items that nobody could see.

    $$
    D_{ij}(\pi \mid q) = M_q(G_j) \, \mathrm{Exp}_q(G_i \mid \pi)
        - M_q(G_i) \, \mathrm{Exp}_q(G_j \mid \pi)
    $$

    Here groups have all their items. One of unknown merit has a relevance from 0 to 1, so that the u_j of
    them in G_j add 0 to u_j to M_q(G_j).

    From the items' `exposure` E[v], (..., rows), to two of (..., lists, groups, groups), low and high; both
    are `list_disparities` where all items were seen.
    """
    if evidence.unseen is None:
        disparities = list_disparities(exposure, evidence)
        return disparities, disparities
    unseen = evidence.unseen
    exposed = group_exposure(exposure, evidence) + unseen.sum_by_group(exposure)
    exposed, merit = of_one_type(exposed, group_merit(evidence))
    unknown = unseen.sum_by_group(evidence.weight * 0 + 1) * evidence.impressions[:, None]
    disparities = _antisymmetric(exposed[..., :, None] * merit[..., None, :])
    more = exposed[..., :, None] * of_one_type(unknown, exposed)[0][..., None, :]
    return disparities - more.swapaxes(-1, -2), disparities + more


def disparity(exposure: Tensor, evidence: Evidence) -> Tensor:
    r"""Return the amortized disparity of all pairs of groups, the mean over all impressions (Eq. 6).

    $$
    \hat D_{ij}(\pi \mid \mathcal{Q}) = \frac{1}{|\mathcal{Q}|} \sum_{q \in \mathcal{Q}} \left(
        \hat M_q(G_j) \, \mathrm{Exp}_q(G_i \mid \pi) - \hat M_q(G_i) \, \mathrm{Exp}_q(G_j \mid \pi) \right)
    $$

    From the items' `exposure` E[v], (..., rows), to (..., groups, groups), with D_ij = -D_ji. It is above 0
    where group i has more exposure than its merit asks for beside group j. A list without one of the two
    groups contributes 0. All pairs come from one product of matrices.
    """
    total, groups = evidence.total_impressions, evidence.candidates.groups
    if evidence.disparity_slopes is not None:
        evidence.candidates.check(exposure)
        of_rows, slopes = of_one_type(exposure, evidence.disparity_slopes)
        return (of_rows @ slopes).reshape(*exposure.shape[:-1], groups, groups) / total
    exposed, merit = of_one_type(group_exposure(exposure, evidence), group_merit(evidence))
    return _antisymmetric(exposed.transpose(-1, -2) @ (merit / total))


def disparity_squared(disparities: Tensor) -> Tensor:
    r"""Return the sum over pairs of groups of the squared disparity (section 5.7).

    $$
    \sum_{i < j} D_{ij}^2
    $$

    From D, (..., groups, groups), to (...). Pairs are unordered; for two groups it is the square of D.
    """
    return disparities.square().sum(dim=(-1, -2)) / 2


def disparity_squared_slopes(disparities: Tensor, evidence: Evidence) -> Tensor:
    r"""Return the derivative of the sum of squared disparities by each item's exposure (Eq. 14).

    For an item d of group g in list q:

    $$
    \frac{\partial}{\partial\, \mathrm{Exp}(d)} \sum_{i < j} D_{ij}^2
        = \frac{2}{|\mathcal{Q}|} \sum_j D_{gj} \, \hat M_q(G_j)
    $$

    The disparities, (..., groups, groups), may be known beforehand: a running average, or a pass over all
    data. Returns (..., rows), 0 for an item of unknown group.
    """
    slopes, merit = of_one_type(disparities, group_merit(evidence))
    of_groups = (2 / evidence.total_impressions * merit) @ slopes.transpose(-1, -2)
    return evidence.candidates.spread(of_groups)


def noise_corrected_disparity(
    exposure: Tensor, evidence: Evidence, *, noise: ClickNoise, rescale: bool = True
) -> Tensor:
    r"""Return the amortized disparity from noisy clicks, without what false clicks add to it (Eq. 10).

    $$
    \hat D_{ij}(\pi \mid q, \epsilon_-) = \hat M_q(G_j) \, \mathrm{Exp}_q(G_i \mid \pi)
        - \hat M_q(G_i) \, \mathrm{Exp}_q(G_j \mid \pi)
        - \epsilon_- \left( |G_j| \, \mathrm{Exp}_q(G_i \mid \pi)
        - |G_i| \, \mathrm{Exp}_q(G_j \mid \pi) \right)
    $$

    with |G| the number of shown items, divided by eps_plus - eps_minus, which makes it an estimate of the
    true D_ij; as the paper writes it, with expectation (eps_plus - eps_minus) D_ij, for `rescale=False`. The
    same as `disparity` of the evidence that `correct_noise` returns.
    """
    return disparity(exposure, correct_noise(evidence, noise, rescale=rescale))


def _antisymmetric(products: Values) -> Values:
    difference: Values = products - products.swapaxes(-1, -2)
    return difference
