"""The exact expectations in plain torch, for devices without our kernels; torch derives the gradient.

The formulas are those of `exact.py` and `counting.py`. All items are followed over all time nodes, so
memory grows with lists x items x nodes, and with the range of the scores.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from fultr.expectation.exact import COUNTING_GRIDS, FIT_TOLERANCE, Accuracy, counting_step
from fultr.expectation.exponentials import fit_exponentials
from fultr.expectation.race import centred_scores

LARGEST_EXPONENT = 20.0
"""exp(-exp(20)) is zero by far."""


def plain_expected_weights(
    scores: Tensor, tables: NDArray[np.float64], offsets: NDArray[np.int64], accuracy: Accuracy = "single"
) -> Tensor:
    """Return E[f(rank d)], functions x rows, of ragged lists; differentiable."""
    lengths = np.diff(offsets)
    lists, longest = lengths.size, int(lengths.max(initial=1))
    mask = torch.from_numpy(np.arange(longest) < lengths[:, None]).to(scores.device)
    numbers = scores.detach().to("cpu", torch.float64).numpy()
    # bringing scores nearer, where their order is certain, leaves the gradient as it is
    shifted = torch.from_numpy(centred_scores(numbers, offsets)).to(scores) + (scores - scores.detach())
    padded = torch.full((lists, longest), -torch.inf, dtype=scores.dtype, device=scores.device)
    padded = padded.masked_scatter(mask, shifted)
    weights = torch.from_numpy(tables[:, :longest].copy()).to(scores)
    fit = fit_exponentials(tables[:, :longest], FIT_TOLERANCE) if accuracy == "single" else None
    race = _Race(padded, longest, accuracy)
    if fit is not None:
        nodes, mixed = torch.from_numpy(fit.nodes).to(scores), torch.from_numpy(fit.coefficients).to(scores)
        expected = race.exponential(nodes, mixed)
    else:
        expected = race.counting(weights)
    expected = expected + race.before_first_node(weights)
    alone = (torch.from_numpy(lengths).to(scores.device) == 1)[:, None]
    expected = torch.where(alone, weights[:, :1, None] + 0 * padded.nan_to_num(neginf=0.0), expected)
    return expected[:, mask]


class _Race:
    """Items of padded lists and the time nodes at which they are looked at."""

    def __init__(self, scores: Tensor, positions: int, accuracy: Accuracy) -> None:
        self.step = counting_step(positions, accuracy)
        _, _, left, right, _ = COUNTING_GRIDS[accuracy]
        self.weight = scores.exp()
        self.total = self.weight.sum(dim=1, keepdim=True)
        detached = scores.detach()
        first = -detached.exp().sum(dim=1).log() - left
        lowest = detached.masked_fill(detached.isinf(), 0.0).min(dim=1).values
        times = math.ceil(float(((right - lowest - first) / self.step).max())) + 1
        self.start = first.exp()[:, None]
        nodes = first[:, None] + self.step * torch.arange(times, device=scores.device, dtype=scores.dtype)
        exponent = scores[:, None, :] + nodes[:, :, None]
        self.rate = exponent.clamp(max=LARGEST_EXPONENT).exp()  # lists x nodes x items
        self.waiting = (-self.rate).exp()
        self.own = self.rate * self.waiting

    def exponential(self, nodes: Tensor, coefficients: Tensor) -> Tensor:
        """Return the sum over the time nodes for sums of exponentials."""
        factor = nodes + (1 - nodes) * self.waiting[..., None]  # lists x nodes x items x terms
        shares = self.own[..., None] / factor
        products = factor.prod(dim=2, keepdim=True)
        return self.step * torch.einsum("ltim,fm->fli", products * shares, coefficients)

    def counting(self, weights: Tensor) -> Tensor:
        """Return the sum over the time nodes for any weights."""
        lists, times, items = self.own.shape
        before = [pad(torch.ones(lists, times, 1).to(self.own), (0, items - 1))]
        for j in range(items - 1):
            stays = self.waiting[:, :, j, None]
            before.append(stays * before[-1] + (1 - stays) * pad(before[-1], (1, -1)))
        after = weights[:, None, None, :].expand(-1, lists, times, -1)
        by_item = []
        for j in reversed(range(items)):
            expected = torch.einsum("ltk,fltk->flt", before[j], after)
            by_item.append(self.step * (self.own[:, :, j] * expected).sum(dim=2))
            stays = self.waiting[:, :, j, None]
            after = stays * after + (1 - stays) * pad(after, (-1, 1))
        return torch.stack(by_item[::-1], dim=2)

    def before_first_node(self, weights: Tensor) -> Tensor:
        """Return what lies before the first time node, to second order in t."""
        ratio = math.exp(self.step)
        s1 = self.step * self.start / (ratio - 1)
        s2 = self.step * self.start**2 / (ratio**2 - 1)
        first = weights[:, :1, None]
        second = weights[:, 1:2, None] if weights.shape[1] > 1 else torch.zeros_like(first)
        w, others = self.weight, self.total - self.weight
        return w * first * s1 - w * s2 * (w * first + others * (first - second))
