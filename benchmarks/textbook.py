"""The policy gradient as a textbook has it: the yardstick for our own.

Each position is drawn from the softmax of what is left, the log-probabilities are summed, torch derives the
gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def textbook_gradient(
    scores: Tensor, tables: Tensor, item_weights: Tensor, samples: int, generator: torch.Generator
) -> Tensor:
    """Return the REINFORCE estimate of d/dscores sum_{f, d} item_weights[f, d] E[f(rank d)].

    Scores are (lists, items), tables (functions, positions), item weights (functions, lists, items). The mean
    reward of the samples of a list is its baseline.
    """
    leaf = scores.detach().requires_grad_()
    lists, items = leaf.shape
    left = leaf.expand(samples, lists, items)
    log_prob, reward = torch.zeros(samples, lists), torch.zeros(samples, lists)
    taken = torch.zeros(samples, lists, items, dtype=torch.bool)
    for position in range(items):
        logs = left.masked_fill(taken, -torch.inf).log_softmax(dim=2)
        drawn = torch.multinomial(logs.detach().exp().reshape(-1, items), 1, generator=generator)
        drawn = drawn.reshape(samples, lists, 1)
        log_prob = log_prob + logs.gather(2, drawn).squeeze(2)
        for table, weights in zip(tables, item_weights, strict=True):
            reward += table[position] * weights.expand(samples, lists, items).gather(2, drawn).squeeze(2)
        taken = taken.scatter(2, drawn, True)
    advantage = reward - reward.mean(dim=0)
    ((log_prob * advantage).sum() / samples).backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return leaf.grad
