"""How random a Plackett-Luce policy is: the entropy of its first item and of its whole ranking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fultr.errors import InputError
from fultr.policy.log_prob import log_prob_of_positions
from fultr.policy.plackett_luce import sample_positions

ENTRIES_A_BLOCK = 1 << 19
"""Padded items of sampled rankings looked at together, so that many lists need little memory."""

VANISHING = -1000.0
"""exp() of this is 0 in every precision."""


class RankingEntropy(NamedTuple):
    """Estimated entropies in nats, one for each list, and the standard errors of the estimates."""

    value: NDArray[np.float64]
    standard_error: NDArray[np.float64]


def softmax_entropy(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Return the entropy, in nats, of the softmax of each list's scores; differentiable in `scores`.

    $$
    H = -\sum_j p_j \log p_j, \qquad p = \mathrm{Softmax}(h), \quad 0 \log 0 = 0
    $$

    This is what the paper adds to its objective. It is the entropy of the first item of a
    ranking, not of the ranking.

    Parameters
    ----------
    scores
        (..., n); what `mask` leaves out may hold anything, NaN included.
    mask
        (..., n): False for what is not an item of the list. A list without items has entropy 0.

    Examples
    --------
    >>> softmax_entropy(torch.tensor([[1.0, 1.0], [1e30, -1e30]]))
    tensor([0.6931, 0.0000])
    """
    if scores.shape[-1] == 0:
        return scores.sum(dim=-1)
    is_item = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.bool()
    highest = torch.where(is_item, scores, -torch.inf).detach().amax(dim=-1, keepdim=True)
    # H = log(s) - sum p z with z = h - max and s = sum exp(z). Below the clamp p is 0 to the last digit, and
    # a z that is finite keeps p z from becoming 0 times infinity.
    logits = torch.where(is_item, scores - highest, 0.0).clamp(min=VANISHING)
    weights = torch.where(is_item, logits.exp(), 0.0)
    total = torch.where(is_item.any(dim=-1), weights.sum(dim=-1), 1.0)
    return total.log() - (weights * logits).sum(dim=-1) / total


def ranking_entropy(
    scores: NDArray[np.float64],
    offsets: NDArray[np.int64],
    samples: int = 1000,
    *,
    top_k: int | None = None,
    seed: int | np.random.Generator = 0,
) -> RankingEntropy:
    r"""Estimate the entropy, in nats, of each list's distribution over rankings.

    $$
    H = -\mathrm{E}_{r \sim \pi}[\log \pi(r)]
    $$

    The estimate is the mean of -log pi(r) over S rankings drawn from pi.

    Parameters
    ----------
    scores
        A score for each row.
    offsets
        Where each list starts in `scores`, and the number of rows at the end.
    samples
        S, the number of rankings drawn for each list; at least 2, or there is no standard error.
    top_k
        Look only at the first so many items of each ranking.
    seed
        The same seed gives the same estimate.

    Examples
    --------
    >>> entropy = ranking_entropy(np.zeros(3), np.array([0, 3]))
    >>> bool(np.isclose(entropy.value[0], np.log(6)))
    True
    """
    if samples < 2:
        raise InputError("must be 2 or more", column="samples", value=samples)
    rng = np.random.default_rng(seed)
    value, error = np.zeros(offsets.size - 1), np.zeros(offsets.size - 1)
    for first, last in _blocks_of_lists(offsets, samples):
        start, stop = int(offsets[first]), int(offsets[last])
        inside, mine = offsets[first : last + 1] - start, scores[start:stop]
        asked = np.tile(np.arange(last - first), samples)
        positions = sample_positions(mine, inside, asked, rng, top_k=top_k).reshape(samples, stop - start)
        surprise = -log_prob_of_positions(torch.tensor(mine, dtype=torch.float64), positions, inside).numpy()
        value[first:last] = surprise.mean(axis=0)
        error[first:last] = surprise.std(axis=0, ddof=1) / np.sqrt(samples)
    return RankingEntropy(value, error)


def _blocks_of_lists(offsets: NDArray[np.int64], samples: int) -> Iterator[tuple[int, int]]:
    """Yield the first list of each block and the one after its last."""
    widest = int(np.diff(offsets).max(initial=1))
    step = max(1, ENTRIES_A_BLOCK // (samples * max(widest, 1)))
    for first in range(0, offsets.size - 1, step):
        yield first, min(first + step, offsets.size - 1)
