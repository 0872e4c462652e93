"""Scorers made of trees, as torch modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fultr.errors import InputError
from fultr.policy.trees import Trees


class TreeScorer(nn.Module):
    """Score an item by the sum of the values of the leaves it falls into, in double precision.

    Parameters
    ----------
    features
        Number of features.
    trees
        The trees; every row must end in a leaf (`Trees.check`).
    """

    def __init__(self, features: int, trees: Trees) -> None:
        super().__init__()
        self.features = features
        for name, values in trees.check(features).to_tensors().items():
            self.register_buffer(name, torch.from_numpy(values.copy()))
        self.trees = trees

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (...), of items with the given features, (..., d)."""
        width = features.shape[-1] if features.ndim else 0
        if width != self.features:
            raise InputError(f"the scorer takes {self.features} features", column="features", value=width)
        rows = features.detach().reshape(-1, width).to("cpu", torch.float32).numpy()
        return torch.from_numpy(self.trees.scores(rows)).reshape(features.shape[:-1])

    def extra_repr(self) -> str:
        """Return what `repr` shows between the brackets."""
        return f"{self.features}, trees={len(self.trees)}"


class SummedScorer(nn.Module):
    """Score an item by the sum of the scores that a linear scorer and trees give it."""

    def __init__(self, linear: nn.Module, trees: TreeScorer) -> None:
        super().__init__()
        self.linear, self.trees = linear, trees

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (...), of items with the given features, (..., d)."""
        scores: Tensor = self.trees(features) + self.linear(features)
        return scores
