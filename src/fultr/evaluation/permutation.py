"""Which features drive the utility of a policy, and which its disparity: what permuting each changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress, random_generator, whole_number
from fultr.click_model import ClickNoise
from fultr.clicks.examination import AnyBias, with_examination
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.evaluation.bootstrap import checked_level, percentile_interval, resampled_means
from fultr.evaluation.contributions import DCG, Contributions, contributions_of
from fultr.evaluation.inputs import ScoringPolicy, checked_source, evidence_of, examination_of, ranker_of

if TYPE_CHECKING:
    from fultr.expectation.exact import Accuracy

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureEffect:
    """What changes where the values of a feature are permuted among all rows.

    Attributes
    ----------
    feature
        Its name.
    utility
        The change of DCG: the further below 0, the more the utility rests on the feature.
    disparity
        The change of |D| = sqrt(sum_{i<j} D_ij^2): below 0 where the feature drives the disparity, above 0
        where the policy uses it against the disparity.
    utility_interval, disparity_interval
        Low and high of the change on new queries; NaN where there is one query only.
    """

    feature: str
    utility: float
    disparity: float
    utility_interval: tuple[float, float]
    disparity_interval: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; what is not a number becomes None."""
        numbers = {"utility": (self.utility, *self.utility_interval)}
        numbers["disparity"] = (self.disparity, *self.disparity_interval)
        plain = {name: [None if math.isnan(one) else one for one in three] for name, three in numbers.items()}
        return {"feature": self.feature, **plain}


def feature_effects(
    policy: ScoringPolicy,
    data: Any,
    *,
    features: Sequence[str] | None = None,
    repeats: int = 3,
    position_bias: AnyBias | None = None,
    noise: ClickNoise | None = None,
    at: int | None = None,
    depth: int | None = None,
    stochastic: bool | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int | np.random.Generator = 0,
    most_rows: int = 50_000,
    accuracy: Accuracy = "single",
    progress: Progress | None = None,
) -> list[FeatureEffect]:
    """Return how DCG and disparity change when each feature is permuted, the largest change of DCG first.

    U and D are exact for the scores of each permutation, and averaged over a few permutations, the same ones
    for all features. Intervals are over queries, of paired differences. Of two features that say the same,
    each stands in for the other, and neither seems to matter.

    Parameters
    ----------
    policy, data, position_bias, noise, at, depth, stochastic, accuracy
        As for `evaluate`.
    features
        The names of those to permute; by default all.
    repeats
        Permutations of each feature.
    level, resamples
        Of the intervals.
    seed
        Of permutations, and of what is drawn.
    most_rows
        Of data with more rows, lists are drawn at random.
    progress
        Called with the features that are done, and with how many there are.
    """
    whole_number(repeats, "repeats", least=1)
    whole_number(most_rows, "most_rows", least=1)
    checked_level(level, "level")
    rng = random_generator(seed)
    source, curve = with_examination(checked_source(data, policy).compact(), position_bias)
    source = source[_drawn_lists(source.data, most_rows, rng)]
    lists = source.data
    columns = _columns_of(lists, features)
    bias = examination_of(curve, source, policy, depth)
    evidence = evidence_of(source, bias, noise)
    at = at if bias is None else bias.last_position(at)
    permutations = [rng.permutation(lists.rows) for _ in range(repeats)]

    def measured(rows: RankingDataset) -> Contributions:
        ranker = ranker_of(policy, rows, stochastic, accuracy)
        return contributions_of(evidence, ranker, bias if lists.group_names else None, at, ideal=False)

    as_it_is = measured(lists)
    tables = [_utility_and_disparity(as_it_is)]
    for done, column in enumerate(columns, start=1):
        permuted = [measured(_permuted(lists, column, order)) for order in permutations]
        tables.append(np.mean([_utility_and_disparity(one) for one in permuted], axis=0))
        if progress is not None:
            progress(done, len(columns))
    names = [str(lists.feature_names[column]) for column in columns]
    return _effects(names, as_it_is, np.stack(tables), lists, resamples, level, rng)


def _drawn_lists(data: RankingDataset, most_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return all lists, or some that have about `most_rows` rows together."""
    wanted = max(1, int(len(data) * min(1.0, most_rows / max(data.rows, 1))))
    return np.sort(rng.choice(len(data), wanted, replace=False))


def _columns_of(data: RankingDataset, features: Sequence[str] | None) -> list[int]:
    names = list(map(str, data.feature_names))
    for name in features or ():
        if name not in names:
            raise InputError("there is no such feature", column="features", value=name)
    return list(range(len(names))) if features is None else [names.index(name) for name in features]


def _permuted(data: RankingDataset, column: int, order: NDArray[np.int64]) -> RankingDataset:
    """Return the rows with one column in another order."""
    features = data.features.copy()
    features[:, column] = features[order, column]
    return replace(data, features=features)


def _utility_and_disparity(contributions: Contributions) -> Array:
    """Return what each list adds to DCG and to D_ij, (lists, 1 + pairs)."""
    columns = contributions.columns
    return np.column_stack([columns[:, DCG], columns[:, contributions.layout.disparity]])


def _effects(
    names: Sequence[str],
    measured: Contributions,
    tables: Array,
    lists: RankingDataset,
    resamples: int,
    level: float,
    rng: np.random.Generator,
) -> list[FeatureEffect]:
    """Return the effects of features from tables (1 + features, lists, 1 + pairs), the first unpermuted."""
    count, _, width = tables.shape
    stacked = tables.transpose(1, 0, 2).reshape(len(measured.lists), -1)
    queries = lists.query_codes[measured.lists]
    drawn = resampled_means(stacked, measured.impressions, queries, resamples, rng)
    if np.unique(queries).size < 2:  # one query drawn again and again says nothing of others
        drawn = np.full_like(drawn, np.nan)
    means = _changes((stacked.sum(axis=0) / measured.total).reshape(1, count, width))[0]
    low, high = percentile_interval(_changes(drawn.reshape(-1, count, width)), level)
    effects = [
        FeatureEffect(
            name,
            float(means[number, 0]),
            float(means[number, 1]),
            (float(low[number, 0]), float(high[number, 0])),
            (float(low[number, 1]), float(high[number, 1])),
        )
        for number, name in enumerate(names)
    ]
    return sorted(effects, key=lambda effect: effect.utility)


def _changes(means: Array) -> Array:
    """Return changes of U and |D|, (samples, features, 2), from means (samples, 1 + features, 1 + pairs)."""
    both = np.stack([means[..., 0], np.sqrt((means[..., 1:] ** 2).sum(axis=-1))], axis=-1)
    return np.asarray(both[:, 1:] - both[:, :1])
