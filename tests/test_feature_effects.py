"""What permuting a feature changes: against evaluation, random rankings, and features that do nothing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fultr
from fultr import FixedScorer, InputError, PlackettLuce, RandomRanking, RankingDataset, evaluate
from fultr.evaluation import feature_effects
from tests.training_tasks import BIAS, random_log


def lists(*, count: int = 150, groups: int = 2, seed: int = 0) -> RankingDataset:
    """Return lists whose relevance follows feature "a"; "shade" tells the group, "c" nothing."""
    rng = np.random.default_rng(seed)
    rows = 5 * count
    group = rng.integers(groups, size=rows)
    features = rng.normal(size=(rows, 3)).astype(np.float32)
    features[:, 1] = group
    return RankingDataset(
        features,
        np.arange(0, rows + 1, 5),
        group=group,
        group_names=[f"group {code}" for code in range(groups)],
        relevance=1 / (1 + np.exp(-3 * features[:, 0])),
        query_id=np.arange(count),
        feature_names=["a", "shade", "c"],
    )


def by_both(features: Any) -> Any:
    return 2.0 * features[:, 0] + 1.5 * features[:, 1]


def effects_of(policy: Any, data: Any, **options: Any) -> dict[str, Any]:
    found = feature_effects(policy, data, position_bias=BIAS, **options)
    return {effect.feature: effect for effect in found}


def test_the_change_is_that_of_the_evaluation_of_permuted_rows() -> None:
    data, policy = lists(groups=3), PlackettLuce(by_both)
    found = effects_of(policy, data, repeats=2, seed=5, accuracy="double")
    before = evaluate(policy, data, position_bias=BIAS, intervals=None)
    rng = np.random.default_rng(5)
    rng.choice(150, 150, replace=False)  # which lists are drawn: all of them
    orders = [rng.permutation(data.rows) for _ in range(2)]
    for column, name in enumerate(data.feature_names):
        dcg, disparity = [], []
        for order in orders:
            features = data.features.copy()
            features[:, column] = features[order, column]
            after = evaluate(policy, replace(data, features=features), position_bias=BIAS, intervals=None)
            dcg.append(after.dcg)
            disparity.append(after.disparities)
        change = np.sqrt((np.mean(disparity, axis=0) ** 2).sum() / 2) - np.sqrt(before.disparity_squared)
        assert found[str(name)].utility == pytest.approx(np.mean(dcg) - before.dcg, abs=1e-9)
        assert found[str(name)].disparity == pytest.approx(change, abs=1e-9)


def test_each_feature_is_known_by_what_it_drives() -> None:
    found = effects_of(PlackettLuce(by_both), lists(), repeats=5)
    assert next(iter(found)) == "a"
    assert found["a"].utility_interval[1] < -0.2
    assert found["shade"].disparity_interval[1] < -0.1
    assert found["shade"].utility_interval[0] > -0.1
    assert found["c"].utility == found["c"].disparity == 0.0
    assert found["c"].utility_interval == found["c"].disparity_interval == (0.0, 0.0)


@pytest.mark.parametrize("make", [PlackettLuce, FixedScorer])
def test_without_its_only_feature_a_policy_ranks_at_random(make: Any) -> None:
    data = lists(count=400)
    policy = make(lambda features: features[:, 0])
    found = effects_of(policy, data, repeats=20)["a"]
    random = evaluate(RandomRanking(), data, position_bias=BIAS, intervals=None)
    expected = random.dcg - evaluate(policy, data, position_bias=BIAS, intervals=None).dcg
    low, high = found.utility_interval
    assert low < expected < high
    assert found.utility == pytest.approx(expected, abs=0.02)
    assert low < found.utility < high


def test_logs_and_their_counts_agree() -> None:
    log = random_log(lists(), impressions=2000)
    policy = PlackettLuce(by_both)
    one, other = (effects_of(policy, source, seed=3) for source in (log, log.compact()))
    assert one == other
    assert one["a"].utility < -0.1


def test_only_some_features_and_plain_values() -> None:
    found = feature_effects(PlackettLuce(by_both), lists(), position_bias=BIAS, features=["shade"])
    assert [effect.feature for effect in found] == ["shade"]
    plain = json.loads(json.dumps(found[0].to_dict()))
    assert plain["disparity"] == [found[0].disparity, *found[0].disparity_interval]


def test_a_trained_policy_and_progress() -> None:
    data = lists()
    ranker = fultr.FairRanker(0.0, position_bias=BIAS).fit(random_log(data, impressions=3000))
    done = []
    found = feature_effects(ranker, data, progress=lambda some, every: done.append((some, every)))
    assert found[0].feature == "a"
    assert done == [(1, 3), (2, 3), (3, 3)]


def test_one_query_has_no_interval() -> None:
    found = effects_of(PlackettLuce(by_both), lists(count=1))
    assert all(math.isnan(end) for effect in found.values() for end in effect.utility_interval)
    assert found["a"].to_dict()["utility"][1:] == [None, None]


def test_of_many_rows_lists_are_drawn() -> None:
    scored = []

    def seen(features: Any) -> Any:
        scored.append(len(features))
        return by_both(features)

    found = effects_of(PlackettLuce(seen), lists(count=400), most_rows=300)
    assert set(scored) == {300}
    assert found["a"].utility < -0.2


def test_without_groups_there_is_no_disparity() -> None:
    data = lists()
    bare = RankingDataset(data.features, data.offsets, relevance=data.relevance, query_id=data.query_id)
    found = feature_effects(PlackettLuce(by_both), bare)
    assert all(effect.disparity == 0 for effect in found)
    assert found[0].feature == "1"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"features": ["weight"]}, "no such feature"),
        ({"repeats": 0}, "repeats"),
        ({"level": 2}, "level"),
    ],
)
def test_what_is_wrong_is_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        effects_of(PlackettLuce(by_both), lists(), **options)
