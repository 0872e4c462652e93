"""Features on a common scale: how they are brought there, and scorers that do it first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fultr.data import RankingDataset

Array = NDArray[np.float64]

FAR_FROM_ZERO = 10.0
"""Deviations from 0, as many as the mean of a feature may be without being taken off."""

LARGEST_SCALE, SMALLEST_REACH = 10.0, 0.1
"""Features are taken as they are if all their means and deviations are below the one, and each is in some row
at least the other away from its mean."""

EXTREME_SCALE = 1e10
"""Units beyond this, or below its reciprocal, leave too little of the range of float32 to products."""

ROUNDING = 1e-5
"""Relative errors of float32, with something to spare."""

ROWS_A_BLOCK = 1 << 16
"""Rows looked at together."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """How features are brought to a common scale: (x - mean) / scale.

    Computed from the training rows, and kept with the policy.
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]

    @classmethod
    def standard(cls, data: RankingDataset) -> Scaling:
        """Take the mean and the standard deviation of each column; constant columns are left as they are."""
        features = data.features
        mean = features.mean(axis=0, dtype=np.float64)
        # in blocks, so that no second copy of the features is made
        squares = np.zeros(features.shape[1])
        for start in range(0, data.rows, ROWS_A_BLOCK):
            squares += ((features[start : start + ROWS_A_BLOCK] - mean) ** 2).sum(axis=0)
        deviation = np.sqrt(squares / max(data.rows, 1))
        # what differs by less than the rounding of float32 does not differ
        constant = deviation <= np.maximum(1e-7 * np.abs(mean), np.finfo(np.float32).tiny)
        return cls(mean.astype(np.float32), np.where(constant, 1.0, deviation).astype(np.float32))

    def is_needless(self, data: RankingDataset) -> bool:
        """Whether all features are on a common scale as they are: neither large, nor small in every row."""
        sizes = np.abs(np.concatenate([self.mean, self.scale]))
        if not data.rows or sizes.max(initial=0.0) > LARGEST_SCALE:
            return not data.rows
        features, mean = data.features, self.mean.astype(np.float64)
        reach = np.maximum(features.max(axis=0) - mean, mean - features.min(axis=0))
        # not the deviation: scaled, a column that is rarely other than 0 would weigh as much as the rest
        varies = reach >= self.scale * (1 - ROUNDING)
        return bool((reach[varies] >= SMALLEST_REACH).all())

    @cached_property
    def comes_first(self) -> bool:
        """Whether features are scaled before they are multiplied by parameters, and not the parameters.

        Parameters are fewer. But in products of float32 a large mean drowns what differs, and extreme units
        leave the range of their numbers.
        """
        far = np.abs(self.mean) > FAR_FROM_ZERO * self.scale
        return bool((far | (self.scale < 1 / EXTREME_SCALE) | (self.scale > EXTREME_SCALE)).any())

    def rows(self, features: Tensor) -> Tensor:
        """Return features as parameters over `divisor` multiply them, up to the same constant in each row."""
        if not self.comes_first:
            return features
        return (features - torch.from_numpy(self.mean)) / torch.from_numpy(self.scale)

    @property
    def divisor(self) -> Array:
        """What parameters are divided by before they are multiplied by `rows`."""
        return np.ones(self.scale.size) if self.comes_first else self.scale.astype(np.float64)

    @classmethod
    def none(cls, data: RankingDataset) -> Scaling:
        """Take features as they are."""
        width = data.features.shape[1]
        return cls(np.zeros(width, np.float32), np.ones(width, np.float32))

    @classmethod
    def wanted(cls, data: RankingDataset, scale: bool | None) -> Scaling:
        """Scale features, or not; None scales all where the scale of any is far from 1."""
        if scale is False:
            return cls.none(data)
        standard = cls.standard(data)
        return cls.none(data) if scale is None and standard.is_needless(data) else standard


class ScaledScorer(nn.Module):
    """A scorer of features that are scaled first: what a trained policy consists of.

    Scores are divided by the temperature: the lower it is, the less rankings vary.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, scorer: nn.Module, scaling: Scaling, temperature: float = 1.0) -> None:
        super().__init__()
        self.scorer = scorer
        self.temperature = temperature
        self.register_buffer("mean", torch.from_numpy(scaling.mean.copy()))
        self.register_buffer("scale", torch.from_numpy(scaling.scale.copy()))
        self.scaled = bool(scaling.mean.any() or (scaling.scale != 1).any())

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (rows), of items with the given features, (rows, d)."""
        scores: Tensor = self.scorer((features - self.mean) / self.scale if self.scaled else features)
        return scores.reshape(features.shape[:-1]) / self.temperature
