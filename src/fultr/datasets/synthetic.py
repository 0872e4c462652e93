"""Synthetic ranking data of any size, with a known truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import finite_number, one_of, whole_number
from fultr.data.dataset import DataSplits, RankingDataset
from fultr.datasets.arguments import PARTS, generator_of
from fultr.datasets.interval_groups import interval_codes, interval_names, quantile_cuts
from fultr.datasets.synthetic_world import HiddenItems, SyntheticWorld, draw_items, make_world
from fultr.errors import InputError

LEAST_NOISE = 1 / 3
"""Noise of the group of highest quality, as a part of that of the lowest."""

RAW_GROWTH = np.float32(2.0)
"""What normal features are multiplied by before exp makes them heavy-tailed."""

STEEPNESS, RARITY = 1.5, 2.0
"""Probability of relevance is sigmoid(steepness * score - rarity): about one item in five is relevant."""


def synthetic(
    *,
    queries: int = 1200,
    valid_queries: int | None = None,
    test_queries: int | None = None,
    list_length: int | tuple[int, int] = 20,
    features: int = 136,
    groups: int = 2,
    relevant: int | None = 3,
    feature_noise: float | Sequence[float] = 3.0,
    scale: str = "standard",
    function_seed: int = 0,
    seed: int = 0,
) -> DataSplits:
    """Make synthetic ranking data that stands in for MSLR where that is not at hand.

    The default has the shape of the paper's MSLR data (lists of 20 with 3 relevant items, 136 features, a
    quality score that divides the items at its 40th percentile) at a tenth of its size; ``queries=12_000``
    is the paper's size.

    The truth is known. An item has eight hidden properties, partly common to all items of its query. Its
    relevance score is a fixed function of them with linear terms, products, a kink and a step, so a linear
    scorer is decent and a network better. The items of a list with the highest scores are relevant. Each
    feature is a mix of the properties plus normal noise; the last feature is the quality itself, mildly
    correlated with the score. Groups are intervals of the quality.

    The features of groups of low quality are noisier, and relevance is no linear function of the quality.
    A linear or logistic regression of relevance therefore errs by group: with the defaults it predicts
    about 10 to 25% too much relevance for the group of low quality and 4 to 9% too little for the other.
    Findings that rest on this hold by construction. (The quality is a feature, so a network with enough
    data errs less.) A ranking by relevance alone is unfair: with v_k = 1/k its disparity D_01 is about
    0.8 by the true relevance, 0.9 by a linear regression.

    Parameters
    ----------
    queries, valid_queries, test_queries
        Lists to train, validate and test on, each a query of its own; by default a third of `queries` for
        validation, and as many for testing.
    list_length
        Items in a list, or the lowest and the highest number for lists of varied lengths.
    features
        Feature columns, the quality included.
    groups
        Two are divided at the 40th percentile of the training items' quality, more into equal intervals.
    relevant
        Relevant items in a list; None makes relevance a probability, sigmoid(1.5 score - 2).
    feature_noise
        Deviation of the noise, where that of the signal is 1: that of the group of lowest quality, falling
        evenly to a third of it; or one for each group.
    scale
        "standard": features of deviation 1. "raw": exp(2 x) of each feature x, as heavy-tailed as counts and
        prices are; what they say is the same, but the items of highest value drown all others.
    function_seed
        Decides the relevance function and what the features measure: the world that data is drawn from.
    seed
        Decides the items drawn from it.

    Examples
    --------
    >>> data = synthetic(queries=30, list_length=(5, 10), relevant=1, seed=7)
    >>> len(data.train), len(data.test), int(data.train.relevance.sum()), data.train.features.shape[1]
    (30, 10, 30, 136)
    """
    sizes = _sizes_of(queries, valid_queries, test_queries)
    shortest, longest = _lengths_of(list_length, relevant)
    whole_number(features, "features", least=2)
    one_of(scale, "scale", "standard", "raw")
    noise = _noise_of(feature_noise, whole_number(groups, "groups", least=2))
    world = make_world(features - 1, whole_number(function_seed, "function_seed"))
    generators = [generator_of(seed, number) for number in range(len(PARTS))]
    items = [
        draw_items(world, generator.integers(shortest, longest, size, endpoint=True), generator)
        for size, generator in zip(sizes, generators, strict=True)
    ]
    view = _view_of(items[0], groups, noise)
    made = []
    for number, part in enumerate(PARTS):
        table = view.features(world, items[number], generators[number])
        if scale == "raw":
            np.exp(RAW_GROWTH * table, out=table)
        made.append(_dataset(table, items[number], view, relevant, sum(sizes[:number]), part))
    return DataSplits(*made)


def _sizes_of(queries: int, valid_queries: int | None, test_queries: int | None) -> tuple[int, int, int]:
    third = max(1, whole_number(queries, "queries", least=1) // 3)
    return (
        queries,
        third if valid_queries is None else whole_number(valid_queries, "valid_queries", least=1),
        third if test_queries is None else whole_number(test_queries, "test_queries", least=1),
    )


def _lengths_of(list_length: int | tuple[int, int], relevant: int | None) -> tuple[int, int]:
    both = list_length if isinstance(list_length, Sequence) else (list_length, list_length)
    try:
        low, high = both
    except ValueError:
        problem = "must be a number, or the lowest and the highest"
        raise InputError(problem, column="list_length", value=list_length) from None
    low = whole_number(low, "list_length", least=2)
    if relevant is not None and whole_number(relevant, "relevant", least=1) >= low:
        problem = f"must be below the length of the shortest list, {low}"
        raise InputError(problem, column="relevant", value=relevant)
    return low, whole_number(high, "list_length", least=low)


def _noise_of(feature_noise: float | Sequence[float], groups: int) -> NDArray[np.float64]:
    if not isinstance(feature_noise, Sequence | np.ndarray):
        largest = finite_number(feature_noise, "feature_noise")
        return np.linspace(largest, largest * LEAST_NOISE, groups)
    if len(feature_noise) != groups:
        problem = f"must be one number, or one for each of {groups} groups"
        raise InputError(problem, column="feature_noise", value=feature_noise)
    return np.array([finite_number(value, "feature_noise") for value in feature_noise])


@dataclass(frozen=True)
class _View:
    """How items are seen: the limits between groups, their noise, and the units of the features."""

    cuts: NDArray[np.float64]
    noise: NDArray[np.float64]
    feature_deviation: float
    quality_mean: float
    quality_deviation: float

    def features(
        self, world: SyntheticWorld, items: HiddenItems, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Return what is measured of the items, each column in place: the table may be large."""
        rows, signals = items.score.size, world.loadings.shape[1]
        group = interval_codes(items.quality, self.cuts)
        table = np.empty((rows, signals + 1), dtype=np.float32)
        measured = table[:, :signals]
        measured[:] = generator.standard_normal((rows, signals), dtype=np.float32)
        measured *= self.noise.astype(np.float32)[group, None]
        measured += items.properties.astype(np.float32) @ world.loadings
        measured /= np.float32(self.feature_deviation)
        table[:, signals] = (items.quality - self.quality_mean) / self.quality_deviation
        return table


def _view_of(training: HiddenItems, groups: int, noise: NDArray[np.float64]) -> _View:
    cuts = quantile_cuts(training.quality, groups, "quality")
    variance = 1 + np.mean(noise[interval_codes(training.quality, cuts)] ** 2)
    return _View(
        cuts=cuts,
        noise=noise,
        feature_deviation=float(np.sqrt(variance)),
        quality_mean=float(training.quality.mean()),
        quality_deviation=float(training.quality.std()),
    )


def _dataset(
    table: NDArray[np.float32],
    items: HiddenItems,
    view: _View,
    relevant: int | None,
    first_query: int,
    part: str,
) -> RankingDataset:
    lengths, signals = np.diff(items.offsets), table.shape[1] - 1
    return RankingDataset(
        table,
        items.offsets,
        group=interval_codes(items.quality, view.cuts),
        group_names=interval_names("quality", view.cuts),
        relevance=_relevance(items, relevant),
        query_id=np.arange(first_query, first_query + lengths.size),
        doc_id=np.arange(1, items.score.size + 1) - np.repeat(items.offsets[:-1], lengths),
        feature_names=[*(f"signal {number + 1}" for number in range(signals)), "quality"],
        group_columns=[signals],
        source=f"synthetic, {part}",
    )


def _relevance(items: HiddenItems, relevant: int | None) -> NDArray[np.float64] | NDArray[np.bool_]:
    if relevant is None:
        return np.asarray(1 / (1 + np.exp(RARITY - STEEPNESS * items.score)))
    lengths = np.diff(items.offsets)
    order = np.lexsort((-items.score, np.repeat(np.arange(lengths.size), lengths)))
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size) - np.repeat(items.offsets[:-1], lengths)
    return rank < relevant
