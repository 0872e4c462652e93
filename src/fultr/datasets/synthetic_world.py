"""The hidden truth behind the synthetic data: what items are, and how relevant that makes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FACTORS = 8
"""Hidden properties of an item; every feature measures a mix of them."""

SHARE_OF_QUERY = 0.2
"""How much of the variance of the properties all items of a query have in common."""

QUALITY_CORRELATION = 0.25
"""Correlation between relevance score and quality: enough that merits differ between groups."""

QUALITY_SKEW, QUALITY_CAP = 2.0, 2.0
"""Quality is exp(skew * min(normal, cap)): most items have little, and there is a best score, as in MSLR.

Relevance therefore is no linear function of quality, and a linear regression errs by group.
"""

LINEAR, PRODUCTS, KINK, STEP = 1.0, 0.6, 0.5, 0.4
"""Weights of the terms of the score: a linear scorer finds most of it, a network more."""

REFERENCE_ITEMS = 20_000
"""Items by which the score is standardised."""


@dataclass(frozen=True)
class SyntheticWorld:
    """A relevance function and the way features measure the properties behind it."""

    loadings: NDArray[np.float32]
    linear: NDArray[np.float64]
    directions: NDArray[np.float64]
    mean: float = 0.0
    deviation: float = 1.0

    def score(self, properties: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the relevance score of items, of mean 0 and deviation 1 over all queries."""
        turned = properties @ self.directions
        raw = (
            LINEAR * (properties @ self.linear)
            + PRODUCTS * (turned[:, 0] * turned[:, 1] + turned[:, 2] * turned[:, 3]) / np.sqrt(2)
            + KINK * np.abs(turned[:, 4])
            + STEP * np.tanh(2 * turned[:, 5])
        )
        return np.asarray((raw - self.mean) / self.deviation)


def make_world(features: int, seed: int) -> SyntheticWorld:
    """Draw a world whose items have so many features besides quality."""
    generator = np.random.default_rng(seed)
    linear = generator.standard_normal(FACTORS)
    directions, _ = np.linalg.qr(generator.standard_normal((FACTORS, FACTORS)))
    reference = generator.standard_normal((REFERENCE_ITEMS, FACTORS))
    # last, so that the relevance function is the same for any number of features
    loadings = generator.standard_normal((features, FACTORS)).T
    loadings /= np.linalg.norm(loadings, axis=0)
    linear /= np.linalg.norm(linear)
    raw = SyntheticWorld(loadings.astype(np.float32), linear, directions)
    scores = raw.score(reference)
    return SyntheticWorld(raw.loadings, linear, directions, float(scores.mean()), float(scores.std()))


@dataclass(frozen=True)
class HiddenItems:
    """Items of some lists, as they are: nothing of this is seen by a learner but the quality."""

    offsets: NDArray[np.int64]
    properties: NDArray[np.float64]
    score: NDArray[np.float64]
    quality: NDArray[np.float64]


def draw_items(
    world: SyntheticWorld, lengths: NDArray[np.int64], generator: np.random.Generator
) -> HiddenItems:
    """Draw items for lists of the given lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    of_query = generator.standard_normal((lengths.size, FACTORS))
    of_item = generator.standard_normal((int(offsets[-1]), FACTORS))
    properties = np.sqrt(1 - SHARE_OF_QUERY) * of_item
    properties += np.sqrt(SHARE_OF_QUERY) * np.repeat(of_query, lengths, axis=0)
    score = world.score(properties)
    own = generator.standard_normal(score.size)
    normal = QUALITY_CORRELATION * score + np.sqrt(1 - QUALITY_CORRELATION**2) * own
    # two decimals, as a published score would have, keep the groups' names short
    quality = np.round(np.exp(QUALITY_SKEW * np.minimum(normal, QUALITY_CAP)), 2)
    return HiddenItems(offsets, properties, score, quality)
