"""Slow, plain implementations of what the library computes fast, written straight from the formulas."""

from __future__ import annotations

import itertools
import math
import zlib
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fultr import ClickLog, Counts, PositionBias, RankingDataset
from fultr.estimators import Evidence, evidence_from_clicks
from fultr.estimators.evidence import Candidates


def by_first(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Score items by their first feature."""
    return features[:, 0]


def by_second(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Score items by their second feature."""
    return features[:, 1]


def plackett_luce_probability(scores: list[float], ranking: tuple[int, ...]) -> float:
    """P(ranking) = prod_i exp(h_i) / sum_{j >= i} exp(h_j)."""
    left = list(ranking)
    probability = 1.0
    for item in ranking:
        probability /= sum(math.exp(min(scores[other] - scores[item], 700.0)) for other in left)
        left.remove(item)
    return probability


def all_rankings(items: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(items)))


def raw_estimates(
    log: ClickLog,
    bias: PositionBias | None,
    value: NDArray[np.float64],
    exposure: NDArray[np.float64],
    eps: float,
) -> tuple[float, float, float]:
    """Utility, disparity and noise-corrected disparity of groups 0 and 1, one impression after another.

    `value` and `exposure` stand for E[f(rank)] and E[v(rank)] of each row under some policy.
    """
    utility = disparity = corrected = 0.0
    for number in range(len(log)):
        start, stop = log.offsets[number], log.offsets[number + 1]
        first_row = log.data.offsets[log.lists[number]]
        merit, shown, exposed = [0.0, 0.0], [0, 0], [0.0, 0.0]
        for entry in range(start, stop):
            row = first_row + entry - start
            position = int(log.position[entry])
            group = int(log.data.group[row])
            weight = 0.0
            if log.click[entry]:
                if bias is not None:
                    propensity = float(bias.at([position])[0])
                elif log.propensity is not None:
                    propensity = float(log.propensity[entry])
                else:
                    assert log.position_bias is not None
                    propensity = float(log.position_bias.at([position])[0])
                weight = 1.0 / propensity
            utility += weight * value[row]
            if group >= 0:
                merit[group] += weight
                exposed[group] += exposure[row]
                shown[group] += position > 0
        one = merit[1] * exposed[0] - merit[0] * exposed[1]
        disparity += one
        corrected += one - eps * (shown[1] * exposed[0] - shown[0] * exposed[1])
    return utility / len(log), disparity / len(log), corrected / len(log)


def pretend_expectations(data: RankingDataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Any value and exposure for each row, the same for the same item of a query, wherever it is held."""
    made = []
    for row, which in enumerate(data.list_of_row):
        query = None if data.query_id is None else data.query_id[which]
        content = (data.features[row].tolist(), int(data.group[row]))
        document = content if data.doc_id is None else data.doc_id[row]
        made.append(np.random.default_rng(zlib.crc32(repr((query, document)).encode())).random(2))
    value, exposure = np.array(made).T
    return value, exposure


def evidence_by_row(
    log: ClickLog, position_bias: PositionBias | None = None, *, clip: float | None = None
) -> Evidence:
    """Evidence from clicks about each row of `log.data`, be its list like another one or never shown."""
    data = log.data
    numbered = replace(data, query_id=np.arange(len(data)), doc_id=np.arange(data.rows))
    counts = replace(log, data=numbered).compact()
    evidence = evidence_from_clicks(counts, position_bias, clip=clip)
    lists, rows = torch.as_tensor(counts.data.query_id), torch.as_tensor(counts.data.doc_id)

    def spread(values: Tensor | None, index: Tensor, size: int) -> Tensor:
        assert values is not None
        return values.new_zeros(size).index_copy(0, index, values)

    return Evidence(
        candidates=Candidates.of(data),
        weight=spread(evidence.weight, rows, data.rows),
        impressions=spread(evidence.impressions, lists, len(data)),
        shown=spread(evidence.shown, rows, data.rows),
        empties_dropped=evidence.empties_dropped,
    )


def compact_estimates(
    log: Counts,
    bias: PositionBias | None,
    value: NDArray[np.float64],
    exposure: NDArray[np.float64],
    eps: float,
) -> tuple[float, float, float]:
    """The same from a compacted log."""
    weight, shown = log.ips_weights(bias), log.shown()
    impressions = float(log.impressions.sum())
    utility = float(weight @ value)
    disparity = corrected = 0.0
    for start, stop in itertools.pairwise(log.data.offsets):
        rows = slice(int(start), int(stop))
        of = [log.data.group[rows] == code for code in (0, 1)]
        exposed = [float(exposure[rows][mask].sum()) for mask in of]
        merit = [float(weight[rows][mask].sum()) for mask in of]
        times = [float(shown[rows][mask].sum()) for mask in of]
        one = merit[1] * exposed[0] - merit[0] * exposed[1]
        disparity += one
        corrected += one - eps * (times[1] * exposed[0] - times[0] * exposed[1])
    return utility / impressions, disparity / impressions, corrected / impressions


def log_probability_gradient(scores: NDArray[np.float64], ranking: tuple[int, ...]) -> NDArray[np.float64]:
    """d log P(ranking) / dh = sum_i ( 1[d at i] - softmax of the items left at i ), of one list."""
    gradient = np.zeros(len(ranking))
    for place, item in enumerate(ranking):
        left = list(ranking[place:])
        chance = np.exp(scores[left] - scores[left].max())
        gradient[left] -= chance / chance.sum()
        gradient[item] += 1.0
    return gradient


def enumerated_values(scores: NDArray[np.float64], tables: NDArray[np.float64]) -> NDArray[np.float64]:
    """E[f(rank d)] of one list, (functions, items), by enumeration of all rankings.

    `tables` is (functions, positions): the weight of position k of function f at [f, k - 1].
    """
    values = np.zeros((tables.shape[0], scores.size))
    for ranking in all_rankings(scores.size):
        probability = plackett_luce_probability(scores.tolist(), ranking)
        values[:, list(ranking)] += probability * tables[:, : scores.size]
    return values


def enumerated_gradient(
    scores: NDArray[np.float64], tables: NDArray[np.float64], upstream: NDArray[np.float64]
) -> NDArray[np.float64]:
    """d/dh of sum_{f, d} upstream[f, d] E[f(rank d)] of one list, as sum_rankings P * reward * dlog P."""
    gradient = np.zeros(scores.size)
    for ranking in all_rankings(scores.size):
        probability = plackett_luce_probability(scores.tolist(), ranking)
        reward = float(np.sum(upstream[:, list(ranking)] * tables[:, : scores.size]))
        gradient += probability * reward * log_probability_gradient(scores, ranking)
    return gradient


def plain_disparity(
    data: RankingDataset,
    weight: NDArray[np.float64],
    impressions: NDArray[np.float64],
    exposure: NDArray[np.float64],
) -> NDArray[np.float64]:
    """D_ij = (1/N) sum_q (M_j Exp_i - M_i Exp_j), one list and one pair of groups after another."""
    groups = len(data.group_names)
    total = np.zeros((groups, groups))
    for start, stop in itertools.pairwise(data.offsets):
        for i, j in itertools.product(range(groups), repeat=2):
            merit, exposed = {i: 0.0, j: 0.0}, {i: 0.0, j: 0.0}
            for row in range(start, stop):
                group = int(data.group[row])
                if group in merit:
                    merit[group] += float(weight[row])
                    exposed[group] += float(exposure[row])
            total[i, j] += merit[j] * exposed[i] - merit[i] * exposed[j]
    return total / float(impressions.sum())


def plain_ratio_of_sums(
    data: RankingDataset,
    weight: NDArray[np.float64],
    impressions: NDArray[np.float64],
    exposure: NDArray[np.float64],
) -> NDArray[np.float64]:
    """D'_ij = sum_q Exp_i / sum_q M_i - sum_q Exp_j / sum_q M_j over impressions, 0 without both merits."""
    groups = len(data.group_names)
    merit, exposed = [0.0] * groups, [0.0] * groups
    for row, which in enumerate(data.list_of_row):
        if data.group[row] >= 0:
            merit[data.group[row]] += float(weight[row])
            exposed[data.group[row]] += float(exposure[row]) * float(impressions[which])
    result = np.zeros((groups, groups))
    for i, j in itertools.product(range(groups), repeat=2):
        if merit[i] > 0 and merit[j] > 0:
            result[i, j] = exposed[i] / merit[i] - exposed[j] / merit[j]
    return result


def plain_per_impression_ratio(
    log: ClickLog, bias: PositionBias | None, exposure: NDArray[np.float64]
) -> NDArray[np.float64]:
    """D''_ij = (1/N) sum over impressions of Exp_i / M_i - Exp_j / M_j where both merits are positive."""
    groups = len(log.data.group_names)
    weights, result = log.ips_weights(bias), np.zeros((groups, groups))
    for number in range(len(log)):
        merit, exposed = [0.0] * groups, [0.0] * groups
        for place, entry in enumerate(range(log.offsets[number], log.offsets[number + 1])):
            row = int(log.data.offsets[log.lists[number]]) + place
            if log.data.group[row] >= 0:
                merit[log.data.group[row]] += float(weights[entry])
                exposed[log.data.group[row]] += float(exposure[row])
        for i, j in itertools.product(range(groups), repeat=2):
            if merit[i] > 0 and merit[j] > 0:
                result[i, j] += exposed[i] / merit[i] - exposed[j] / merit[j]
    return result / len(log)
