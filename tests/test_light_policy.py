"""Saved policies that rank one request with numpy alone: as fultr.load scores, and without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fultr
from fultr import FairRanker, InputError, TreeSettings
from fultr.policy import ranking_log_prob
from fultr.policy.drawn_order import drawn_order, waiting_times
from fultr.serving import load_policy
from fultr.training.policy_files import read_policy_file, write_policy_file
from tests.ranker_contract import lists as learnable
from tests.training_tasks import random_log

TREES = TreeSettings(rounds=10, min_rows=5, leaves=4, learning_rate=0.2)
FORMS: dict[str, Any] = {
    "linear": FairRanker(2.0, l2=0.01),
    "full scale": FairRanker(2.0, l2=0.01, scale_features=False),
    "scaled": FairRanker(2.0, l2=0.01, scale_features=True),
    "group-blind": FairRanker(2.0, l2=0.01, group_blind=True),
    "mlp": FairRanker(2.0, model="mlp", hidden=(5, 3), l2=0.01, scale_features=True),
    "group-blind mlp": FairRanker(2.0, model="mlp", l2=0.01, group_blind=True),
    "trees": FairRanker(3.0, model="trees", trees=TREES),
    "group-blind linear+trees": FairRanker(
        1.0, model="linear+trees", trees=TREES, group_blind=True, scale_features=True
    ),
    "offsets": FairRanker(max_disparity=0.05, fairness="offsets", l2=0.01),
    "relevance": fultr.baselines.RelevanceRegression(l2=0.1),
    "svm": fultr.baselines.ClickSVMRank(),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    log, folder = random_log(learnable(), impressions=400), tmp_path_factory.mktemp("policies")
    return {name: fultr.save(ranker.fit(log), folder / name) for name, ranker in FORMS.items()}


def groups_of(data: fultr.RankingDataset) -> list[str | None]:
    return [data.group_names[code] if code >= 0 else None for code in data.group]


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_those_of_the_policy_as_it_was_trained(saved: dict[str, Path], form: str) -> None:
    policy, full, data = load_policy(saved[form]), fultr.load(saved[form]), learnable(seed=9)
    scores = policy.scores(data.features, groups_of(data))
    np.testing.assert_allclose(scores, full.predict(data), rtol=1e-5, atol=1e-6)
    assert policy.feature_names == tuple(full.feature_names_in_)
    assert policy.stochastic == full.stochastic


def test_trees_score_to_the_last_bit(saved: dict[str, Path]) -> None:
    data = learnable(seed=9)
    for form in ("trees",):
        scores = load_policy(saved[form]).scores(data.features)
        np.testing.assert_array_equal(scores, fultr.load(saved[form]).predict(data))


def test_neither_torch_nor_numba_is_imported(saved: dict[str, Path]) -> None:
    code = (
        "import sys, numpy\nfrom fultr.serving import load_policy\n"
        "policy = load_policy(sys.argv[1])\n"
        "policy.rank_one(numpy.zeros((3, len(policy.feature_names))), top_k=2, seed='s')\n"
        "heavy = ('torch', 'numba', 'scipy', 'sklearn', 'polars', 'pyarrow')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    for form in ("linear", "mlp", "trees", "group-blind linear+trees"):
        done = subprocess.run(
            [sys.executable, "-c", code, saved[form]], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"


def test_a_ranking_follows_its_seed(saved: dict[str, Path]) -> None:
    policy, features = load_policy(saved["linear"]), learnable(seed=9).features[:6]
    first = policy.rank_one(features, seed="session 1|query|2026-11-19")
    assert sorted(first) == list(range(6))
    np.testing.assert_array_equal(first, policy.rank_one(features, seed="session 1|query|2026-11-19"))
    np.testing.assert_array_equal(
        first[:2], policy.rank_one(features, top_k=2, seed="session 1|query|2026-11-19")
    )
    assert len({tuple(policy.rank_one(features, seed=seed)) for seed in range(50)}) > 10
    assert len({tuple(policy.rank_one(features)) for _ in range(50)}) > 10


def test_a_seed_means_the_same_everywhere() -> None:
    """Pages that were shown must not change with a version of a library."""
    np.testing.assert_allclose(waiting_times(3, "a session"), [0.51940706, 0.81671514, 1.25372127], rtol=1e-7)


@pytest.mark.statistical
@pytest.mark.parametrize("seeded", [True, False])
def test_rankings_are_drawn_from_plackett_luce(seeded: bool) -> None:
    scores, draws = np.array([0.5, -0.3, 1.0]), 20_000
    found: dict[tuple[int, ...], int] = {}
    for seed in range(draws):
        order = tuple(int(one) for one in drawn_order(scores, seed if seeded else None))
        found[order] = found.get(order, 0) + 1
    import torch

    expected = [
        draws * float(ranking_log_prob(torch.from_numpy(scores)[None], torch.tensor([order])).exp())
        for order in found
    ]
    assert len(found) == 6
    assert stats.chisquare(list(found.values()), expected).pvalue > 1e-4


def test_what_cannot_be_ranked_is_named(saved: dict[str, Path]) -> None:
    policy, features = load_policy(saved["linear"]), learnable(seed=9).features[:4].copy()
    with pytest.raises(InputError, match="row of 4 features"):
        policy.rank_one(features[:, :3])
    features[2, 1] = np.nan
    name = policy.feature_names[1]
    with pytest.raises(InputError, match=f"row 3, column '{name}': must be a finite number"):
        policy.rank_one(features)
    with pytest.raises(InputError, match="give the groups of items"):
        load_policy(saved["offsets"]).rank_one(learnable(seed=9).features[:4])


def test_policies_that_need_more_than_numpy_are_refused(saved: dict[str, Path], tmp_path: Path) -> None:
    file = read_policy_file(saved["linear"])
    for change, problem in (
        ({"ranker": "ExposureLP"}, "ranks in two steps"),
        ({"model": {"kind": "module", "name": "Own"}}, "only linear policies, networks and trees"),
        ({"model": {"kind": "linear", "features": 3}}, "number of features"),
        ({"temperature": 0.0}, "above 0"),
        ({"hidden_columns": [9]}, "columns of the features"),
        ({"features": None}, "list of names"),
    ):
        other = write_policy_file(tmp_path / "other", file.tensors, {**file.content, **change})
        with pytest.raises(InputError, match=problem):
            load_policy(other)


def test_damaged_trees_are_refused_before_they_are_walked(saved: dict[str, Path], tmp_path: Path) -> None:
    file = read_policy_file(saved["trees"])
    circle = np.zeros_like(file.tensors["scorer.left"])
    for name, values in (
        ("left", circle),
        ("right", circle + 1000),
        ("feature", circle + 4),
        ("value", file.tensors["scorer.value"][:-1]),
    ):
        other = write_policy_file(
            tmp_path / "other", {**file.tensors, f"scorer.{name}": values}, file.content
        )
        with pytest.raises(InputError, match="column 'trees'"):
            load_policy(other)
