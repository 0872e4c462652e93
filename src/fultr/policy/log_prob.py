"""The log-probability of rankings under a Plackett-Luce model, differentiable in the scores.

At each step the score of the item taken is compared with log(sum exp(h_j)) over the items that are left. That
sum is kept as a pair: the highest score left, m, and s = sum exp(h_j - m), which lies between 1 and the
number of items. h - m - log(s) is then right where h - logsumexp is not: for two items tied at 1e30 logsumexp
is 1e30, and the log(2) between them is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError

NO_ITEM = -1
"""Fills up the rankings of shorter lists."""


def ranking_log_prob(scores: Tensor, ranking: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Return the log-probability of full or top-k rankings; differentiable in `scores`.

    $$
    \log \pi(r) = \sum_{i=1}^{k} \left( h_{r_i} - \log \sum_j e^{h_j} \right)
    $$

    with j over all items but $r_1, \dots, r_{i-1}$: the paper's product of softmax distributions (section 4),
    with k = n for a full ranking. What a top-k ranking does not show is left at every step, and so takes part
    in every sum. Time and memory are linear in n.

    Parameters
    ----------
    scores
        (..., n); what `mask` leaves out may hold anything, NaN included. A score that is not finite elsewhere
        gives NaN or -inf.
    ranking
        (..., k): the index of the item at each position, first to last; -1 fills up rankings of fewer than k
        items.
    mask
        (..., n): False for what is not an item of the list: it is part of no ranking and of no sum, and its
        gradient is 0.

    Returns
    -------
    log_prob
        The leading dimensions of the three, broadcast against each other.

    Raises
    ------
    InputError
        If a ranking names an item twice, one that is masked, or one that does not exist.

    Examples
    --------
    >>> scores = torch.tensor([0.0, 0.0, 0.0])
    >>> ranking_log_prob(scores, torch.tensor([[2, 0, 1], [2, -1, -1]])).exp()
    tensor([0.1667, 0.3333])
    """
    scores, ranking, mask = _broadcast(scores, ranking, mask)
    if scores.shape[-1] == 0:  # nothing can be ranked, and there is no highest score
        _check_items(ranking, 0)
        return scores.sum(dim=-1)
    left = _left_unranked(ranking, mask)
    scores = torch.where(mask, scores, 0.0)  # from here on, nothing that is masked can spoil a gradient
    ranked = ranking != NO_ITEM
    taken = torch.where(ranked, scores.gather(-1, ranking.clamp(min=0)), 0.0)
    highest, total = _what_is_left(taken, ranked, scores, left)
    steps = taken - highest - torch.where(ranked, total, 1.0).log()
    return torch.where(ranked, steps, 0.0).sum(dim=-1)


def log_prob_of_positions(
    scores: Tensor, positions: Tensor | NDArray[np.integer[Any]], offsets: Tensor | NDArray[np.integer[Any]]
) -> Tensor:
    """Return the log-probability of rankings given as the position of each row; differentiable in `scores`.

    The same as `ranking_log_prob`, for lists of any lengths one after another and rankings as
    `sample_positions` and `sample_rankings` draw them. Memory is that of all lists padded to the longest.

    Parameters
    ----------
    scores
        (..., rows).
    positions
        (..., rows): 1, 2, ... within each list, and 0 for items that are not shown.
    offsets
        (lists + 1): where each list starts, and the number of rows at the end.

    Returns
    -------
    log_prob
        (..., lists), the leading dimensions of the first two broadcast against each other.

    Examples
    --------
    >>> log_prob_of_positions(torch.zeros(5), np.array([2, 1, 3, 1, 0]), np.array([0, 3, 5])).exp()
    tensor([0.1667, 0.5000])
    """
    # a copy, since torch warns of arrays that cannot be written, such as those of memory-mapped files
    shown = positions if isinstance(positions, Tensor) else torch.tensor(positions)
    starts = offsets if isinstance(offsets, Tensor) else torch.tensor(offsets)
    shown, starts = shown.to(scores.device, torch.int64), starts.to(scores.device, torch.int64)
    if scores.shape[-1] != shown.shape[-1] or int(starts[-1]) != scores.shape[-1]:
        problem = f"scores, positions and offsets must agree on the number of rows, {scores.shape[-1]}"
        raise InputError(problem, column="positions", value=(*shown.shape[:-1], shown.shape[-1]))
    rows, mask = _padded_rows(starts)
    shown = torch.where(mask, shown[..., rows], NOT_SHOWN)
    ranking = _ranking_of_positions(shown, mask, starts)
    return ranking_log_prob(scores[..., rows], ranking, mask)


def _broadcast(scores: Tensor, ranking: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Give the three the same leading dimensions, and the mask the width of the scores."""
    items = scores.shape[-1]
    is_item = torch.ones(items, dtype=torch.bool, device=scores.device) if mask is None else mask.bool()
    if is_item.shape[-1] != items:
        raise InputError(f"must have one entry for each of {items} items", column="mask", value=is_item.shape)
    shapes = scores.shape[:-1], ranking.shape[:-1], is_item.shape[:-1]
    try:
        leading = np.broadcast_shapes(*shapes)
    except ValueError:
        problem = "the leading dimensions of scores, ranking and mask do not fit together"
        raise InputError(problem, value=tuple(map(tuple, shapes))) from None
    return (
        scores.expand(*leading, items),
        ranking.to(torch.int64).expand(*leading, ranking.shape[-1]),
        is_item.expand(*leading, items),
    )


def _left_unranked(ranking: Tensor, mask: Tensor) -> Tensor:
    """Return which items of each list its ranking leaves out; refuse what is no ranking of them."""
    items = mask.shape[-1]
    _check_items(ranking, items)
    # entries that name no item are counted in a column of their own
    column = torch.where(ranking == NO_ITEM, items, ranking)
    times = torch.zeros(*mask.shape[:-1], items + 1, dtype=torch.int32, device=mask.device)
    times = times.scatter_add(-1, column, torch.ones_like(column, dtype=torch.int32))[..., :items]
    wrong = times > mask.to(torch.int32)
    if bool(wrong.any()):
        item = int(wrong.nonzero()[0, -1])
        raise InputError("a ranking names a masked item, or an item twice", column="ranking", value=item)
    return mask & (times == 0)


def _check_items(ranking: Tensor, items: int) -> None:
    unknown = (ranking < NO_ITEM) | (ranking >= items)
    if bool(unknown.any()):
        value = int(ranking[unknown][0])
        raise InputError(
            f"a ranking must hold item indices below {items}, or -1", column="ranking", value=value
        )


def _what_is_left(taken: Tensor, ranked: Tensor, scores: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Return m and s of each step: the highest score left before it, and the sum of exp(h - m) over the left.

    The sum does not depend on the choice of m, so m takes no part in the gradient.
    """
    nothing = -torch.inf
    highest_unranked = torch.where(left, scores, nothing).detach().amax(dim=-1, keepdim=True)
    unranked = torch.where(left, scores - highest_unranked, nothing).exp().sum(dim=-1, keepdim=True)
    # the items that are never ranked stand together as one last step
    heights = torch.cat([torch.where(ranked, taken, nothing).detach(), highest_unranked], dim=-1)
    highest = heights.flip(-1).cummax(dim=-1).values.flip(-1)
    following = highest[..., 1:]
    decay = torch.where(following > nothing, following - highest[..., :-1], nothing).exp()
    entering = torch.where(ranked, taken - highest[..., :-1], nothing).exp()
    total = _backward_recurrence(
        torch.nn.functional.pad(decay, (0, 1)), torch.cat([entering, unranked], dim=-1)
    )
    return highest[..., :-1], total[..., :-1]


def _backward_recurrence(decay: Tensor, entering: Tensor) -> Tensor:
    """Solve s_i = entering_i + decay_i s_{i+1}, with 0 after the end, in linear work and few steps.

    Neighbours are joined to a recurrence of half the length, s_i = (e_i + d_i e_{i+1}) + d_i d_{i+1} s_{i+2}.
    """
    length = entering.shape[-1]
    if length <= 1:
        return entering
    if length % 2:
        decay, entering = (torch.nn.functional.pad(values, (0, 1)) for values in (decay, entering))
    first, second = entering[..., 0::2], entering[..., 1::2]
    first_decay, second_decay = decay[..., 0::2], decay[..., 1::2]
    at_first = _backward_recurrence(first_decay * second_decay, first + first_decay * second)
    at_second = second + second_decay * torch.nn.functional.pad(at_first[..., 1:], (0, 1))
    return torch.stack([at_first, at_second], dim=-1).flatten(-2)[..., :length]


def _padded_rows(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of each list as a rectangle, and where it is not padding."""
    lengths = offsets.diff()
    width = int(lengths.max()) if lengths.numel() else 0
    index = torch.arange(width, device=offsets.device)
    mask = index < lengths[:, None]
    return torch.where(mask, offsets[:-1, None] + index, 0), mask


def _ranking_of_positions(positions: Tensor, mask: Tensor, offsets: Tensor) -> Tensor:
    """Turn padded positions into the item at each position; refuse gaps and repeats."""
    lengths = mask.sum(dim=-1, keepdim=True)
    wrong = (positions < NOT_SHOWN) | (positions > lengths)
    ranking = positions.new_full((*positions.shape[:-1], positions.shape[-1] + 1), NO_ITEM)
    items = torch.arange(positions.shape[-1], device=positions.device).expand_as(positions)
    # items that are not shown all go to column 0, which is dropped
    ranking = ranking.scatter(-1, torch.where(wrong, NOT_SHOWN, positions), items)[..., 1:]
    shown, filled = (positions != NOT_SHOWN).sum(dim=-1), ranking != NO_ITEM
    gap = filled[..., 1:] & ~filled[..., :-1]
    bad = wrong.any(dim=-1) | gap.any(dim=-1) | (shown != filled.sum(dim=-1))
    if bool(bad.any()):
        first = int(bad.nonzero()[0, -1])
        problem = "the positions of the list that starts here must be 1, 2, ... in some order, 0 if not shown"
        raise InputError(problem, row=int(offsets[first]) + 1, column="positions")
    return ranking
