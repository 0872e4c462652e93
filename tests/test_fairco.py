"""Ranking a stream of queries: what all such methods share, and the controller of FairCo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fultr import InputError, PositionBias, RankingDataset, datasets, evaluate, simulate_clicks
from fultr.baselines.fairco import FairCo
from fultr.baselines.post_processing import PostProcessing
from fultr.baselines.relevance import RelevanceRegression
from fultr.data.dataset import rows_of
from tests.ranker_contract import Candidate, Contract
from tests.training_tasks import BIAS, random_lists, random_log

Array = NDArray[np.float64]


def made(**settings: Any) -> Any:
    """Return a function that makes a ranker with these settings and those of a test."""
    known = {"l2": 0.001, "position_bias": BIAS, "passes": 3, **settings}
    return lambda **more: FairCo(**{**known, **more})


CANDIDATES = {
    "regression": Candidate(made(gain=0.1)),
    "network": Candidate(made(gain=0.1, model="mlp")),
    "true relevance": Candidate(made(gain=0.1, relevance="true")),
    "full information": Candidate(made(gain=0.1), labelled=True),
}


@pytest.fixture(params=CANDIDATES)
def candidate(request: pytest.FixtureRequest) -> Candidate:
    return CANDIDATES[request.param]


class TestFairCo(Contract):
    """All tests of the contract."""


def true_fairco(data: RankingDataset, gain: float, **settings: Any) -> FairCo:
    """Return a controller of lists with relevance."""
    known = {"l2": 0.1, "valid_share": 0, "position_bias": BIAS, "relevance": "true", **settings}
    return FairCo(gain, **known).fit(data)


def near_equals(*, groups: int) -> RankingDataset:
    """Lists of 10 items of relevance 0.4 to 0.6, each group having a little less than the last."""
    rng = np.random.default_rng(0)
    group = rng.integers(groups, size=1000)
    relevance = 0.6 - 0.1 * rng.random(1000) - 0.1 * group / (groups - 1)
    names = [f"group {code}" for code in range(groups)]
    return RankingDataset(
        np.zeros((1000, 1)), np.arange(0, 1001, 10), group=group, group_names=names, relevance=relevance
    )


def ranked_slowly(data: RankingDataset, merit: Array, lists: list[int], gain: float) -> list[int]:
    """Rank a stream as the equations say, with v_k = 1/k."""
    exposure_of: list[dict[int, float]] = []
    merit_of: list[dict[int, float]] = []
    found: list[int] = []
    for number in lists:
        rows = list(range(data.offsets[number], data.offsets[number + 1]))
        before, ratio = len(exposure_of), {}
        for code in range(len(data.group_names)):
            earned = sum(one.get(code, 0.0) for one in merit_of)
            if earned > 0:
                exposed = sum(one.get(code, 0.0) for one in exposure_of) / before
                ratio[code] = exposed / (earned / before)
        score = {}
        for row in rows:
            own = int(data.group[row])
            error = before * max(other - ratio[own] for other in ratio.values()) if own in ratio else 0.0
            score[row] = merit[row] + gain * error
        order = sorted(rows, key=lambda row: -score[row])
        exposure_of.append({})
        merit_of.append({})
        for place, row in enumerate(order, start=1):
            own = int(data.group[row])
            exposure_of[-1][own] = exposure_of[-1].get(own, 0.0) + 1 / place
            merit_of[-1][own] = merit_of[-1].get(own, 0.0) + merit[row]
        found += [order.index(row) + 1 for row in rows]
    return found


def exposure_for_merit(data: RankingDataset, lists: NDArray[np.int64], ranked: NDArray[np.int32]) -> Array:
    """Return the exposure of each group for each unit of merit after each list: (lists, groups)."""
    assert data.relevance is not None
    rows = rows_of(data.offsets, lists)
    turn = np.repeat(np.arange(lists.size), data.lengths[lists])
    sums = []
    for values in (1 / ranked, data.relevance[rows]):
        table = np.zeros((lists.size, len(data.group_names)))
        np.add.at(table, (turn, data.group[rows]), values)
        sums.append(table.cumsum(axis=0))
    return np.asarray(sums[0] / sums[1])


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("gain", [0.0, 0.003, 0.1, 5.0])
def test_the_kernel_does_what_the_equations_say(gain: float, groups: int) -> None:
    data = random_lists(lists=15, longest=6, groups=groups, unknown=0.2, seed=2)
    ranker = true_fairco(data, gain)
    rng = np.random.default_rng(0)
    lists = rng.integers(len(data), size=80)
    found = ranker.rank_stream(data, lists, rng)
    assert found.tolist() == ranked_slowly(data, ranker.predict(data), lists.tolist(), gain)


def test_estimates_are_the_merit_where_relevance_is_estimated() -> None:
    data = random_lists(lists=15, unknown=0.2, seed=2)
    ranker = made(gain=0.5)().fit(random_log(data))
    lists = np.arange(15).repeat(3)
    found = ranker.rank_stream(data, lists, np.random.default_rng(0))
    assert found.tolist() == ranked_slowly(data, ranker.predict(data), lists.tolist(), 0.5)
    np.testing.assert_array_equal(ranker.predict(data), ranker.regression_.predict(data))


def test_a_stream_in_parts_is_one_stream() -> None:
    data = random_lists(lists=15)
    ranker, rng = true_fairco(data, 0.1), np.random.default_rng(0)
    lists = rng.integers(15, size=60)
    whole = ranker.rank_stream(data, lists, rng)
    go_on = ranker.sampler(data)
    parts = [go_on(part, rng) for part in np.array_split(lists, 4)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    # and clicks can be simulated on it
    assert len(simulate_clicks(data, ranker, BIAS, impressions=50, seed=0)) == 50


def test_without_gain_lists_are_ranked_by_relevance() -> None:
    data = random_lists(lists=15, unknown=0.2)
    for ranker in (true_fairco(data, 0.0), FairCo(0.0, l2=0.1).fit(random_log(data))):
        found = ranker.sample_rankings(data, 3, seed=0)
        np.testing.assert_array_equal(found, np.tile(ranker.rank(data), (3, 1)))


def test_disparity_falls_like_one_over_the_length_of_the_stream() -> None:
    data, lists = near_equals(groups=3), np.random.default_rng(0).integers(100, size=20_000)
    reached = np.array([1_000, 2_000, 5_000, 10_000, 20_000])

    def gaps(gain: float) -> Array:
        ranked = true_fairco(data, gain).rank_stream(data, lists, np.random.default_rng(0))
        ratios = exposure_for_merit(data, lists, ranked)[reached - 1]
        return np.asarray(ratios.max(axis=1) - ratios.min(axis=1))

    assert gaps(0.0).min() > 0.4
    for gain in (0.01, 0.1):
        # t (E_i - E_j) is at most what outweighs all of relevance, 0.2 / gain, and what one list may add
        most = 0.2 / gain + exposure_of_a_list(data) / 0.5
        scaled = gaps(gain) * reached
        assert scaled.max() < most
        assert gaps(gain)[-1] < 0.003


def exposure_of_a_list(data: RankingDataset) -> float:
    return float((1 / np.arange(1, data.lengths.max() + 1)).sum())


def test_more_gain_corrects_sooner() -> None:
    data = near_equals(groups=2)
    found = [
        evaluate(true_fairco(data, gain), data, intervals=None).disparity_squared for gain in (0, 1e-3, 1e-1)
    ]
    assert found[0] > 10 * found[1] > 100 * found[2]


def test_it_acts_on_the_group_that_lacks_exposure_by_hand() -> None:
    # one list of two items, over and over: 0.6 and 0.4; the fair exposure is 0.9 and 0.6 of 1.5
    data = RankingDataset(
        np.zeros((2, 1)), [0, 2], group=[0, 1], group_names=["a", "b"], relevance=[0.6, 0.4]
    )
    found = true_fairco(data, 1.0).sample_rankings(data, 6, seed=0)
    # E = (1/.6, .5/.4), so that b lacks 5/12 after the first list; 1.5/.6 = 2.5 < 1.5/.4 = 3.75 after two
    assert found[:3, 0].tolist() == [1, 2, 1]
    many = true_fairco(data, 1.0).sample_rankings(data, 3000, seed=0)
    assert (1 / many[:, 0]).mean() == pytest.approx(0.9, abs=2e-3)


def test_lists_of_one_item_and_groups_that_are_empty() -> None:
    data = RankingDataset(
        np.zeros((4, 1)),
        [0, 1, 2, 4],
        group=[0, 2, 0, 2],
        group_names=["a", "nobody", "c"],
        relevance=[1.0, 0.0, 0.0, 0.0],
    )
    found = true_fairco(data, 0.5).sample_rankings(data, 5, seed=0)
    assert (found[:, :2] == 1).all()
    # c never has merit, so that nothing is owed to it and it is compared with nobody
    assert (found[:, 2] == 1).all()
    result = evaluate(true_fairco(data, 0.5), data, intervals=None)
    assert np.isfinite(result.dcg)


def test_items_of_unknown_group_are_not_corrected() -> None:
    data = datasets.synthetic(queries=40, features=3, relevant=None, seed=0).train
    nobody = replace(data, group=np.full(data.rows, -1, dtype=np.int32))
    ranker = true_fairco(nobody, 1.0)
    np.testing.assert_array_equal(ranker.sample_rankings(nobody, 2), np.tile(ranker.rank(nobody), (2, 1)))
    nameless = replace(nobody, group_names=())
    np.testing.assert_array_equal(ranker.sample_rankings(nameless, 1)[0], ranker.rank(nobody))


class Turning(PostProcessing):
    """Ranks each list in row order, turned by one place more each time that it comes."""

    def __init__(self, *, passes: int = 4, seed: int = 0) -> None:
        self.passes = passes
        self.seed = seed
        self.relevance, self.model, self.l2 = "true", "linear", 0.1
        self.position_bias, self.valid_share = BIAS, 0.0

    def rank_stream(
        self, data: RankingDataset, lists: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int32]:
        del rng
        came, found = np.zeros(len(data), dtype=np.int64), []
        for number in lists:
            length = int(data.lengths[number])
            found.append((np.arange(length) + came[number]) % length + 1)
            came[number] += 1
        return np.concatenate(found).astype(np.int32)


def test_a_stream_comes_back_in_the_order_of_the_rows() -> None:
    data = random_lists(lists=9, longest=5)
    place = np.arange(data.rows) - data.offsets[data.list_of_row]
    length = data.lengths[data.list_of_row]
    ranker = Turning().fit(data)
    found = ranker.sample_rankings(data, 7, seed=3)
    assert found.dtype == np.int32
    for number in range(7):
        np.testing.assert_array_equal(found[number], (place + number) % length + 1)
    cut = ranker.sample_rankings(data, 7, top_k=2, seed=3)
    np.testing.assert_array_equal(cut, np.where(found <= 2, found, 0))


def test_the_stream_is_a_random_order_of_all_lists_in_each_pass() -> None:
    streams: list[NDArray[np.int64]] = []

    class Listening(Turning):
        def rank_stream(self, data: RankingDataset, lists: Any, rng: np.random.Generator) -> Any:
            streams.append(lists)
            return super().rank_stream(data, lists, rng)

    data = random_lists(lists=30)
    ranker = Listening().fit(data)
    for seed in (0, 0, 1):
        ranker.sample_rankings(data, 3, seed=seed)
    for stream in streams:
        passes = stream.reshape(3, 30)
        np.testing.assert_array_equal(np.sort(passes), np.tile(np.arange(30), (3, 1)))
        assert (passes[0] != passes[1]).any()
    np.testing.assert_array_equal(streams[0], streams[1])
    assert (streams[0] != streams[2]).any()


@pytest.mark.parametrize("make", [Turning, lambda: FairCo(0.2, relevance="true", l2=0.1, position_bias=BIAS)])
def test_an_evaluation_is_the_mean_over_the_rankings(make: Any) -> None:
    data = random_lists(lists=12, longest=5, unknown=0.1, seed=4)
    assert data.relevance is not None
    ranker = make().fit(data)
    table = ranker.position_probabilities(data)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    rankings = ranker.sample_rankings(data, ranker.passes, seed=ranker.seed)
    dcg, disparity = [], []
    for ranks in rankings:
        dcg.append(float((data.relevance / np.log2(1 + ranks)).sum()) / len(data))
        sums = np.zeros((2, len(data), 2))
        for row, code in enumerate(data.group):
            if code >= 0:
                sums[:, data.list_of_row[row], code] += 1 / ranks[row], data.relevance[row]
        exposure, merit = sums
        each = exposure[:, 0] * merit[:, 1] - exposure[:, 1] * merit[:, 0]
        disparity.append(float(each.mean()))
    found = evaluate(ranker, data, intervals=None)
    assert found.dcg == pytest.approx(np.mean(dcg))
    assert found.disparity == pytest.approx(np.mean(disparity))
    # at its mode it ranks by relevance
    assert evaluate(ranker, data, stochastic=False, intervals=None).ndcg == pytest.approx(1.0)


def test_one_regression_serves_many_rankers() -> None:
    data = random_lists(lists=15)
    log = random_log(data)
    first = FairCo(0.1, l2=0.01).fit(log)
    second, third = FairCo(1.0), FairCo(1.0, l2=0.01).fit(log)
    second.copy_trained(first)
    np.testing.assert_array_equal(
        second.sample_rankings(data, 4, seed=0), third.sample_rankings(data, 4, seed=0)
    )
    assert isinstance(second.regression_, RelevanceRegression)
    assert second.position_bias_ == BIAS
    fourth = FairCo(1.0)
    fourth.copy_trained(first.regression_)
    np.testing.assert_array_equal(fourth.predict(data), first.predict(data))


def test_true_relevance_must_be_there() -> None:
    data = random_lists(lists=15)
    ranker = true_fairco(data, 0.1)
    np.testing.assert_array_equal(ranker.predict(data), data.relevance)
    for given in (replace(data, relevance=None), data.features):
        with pytest.raises(InputError, match="true relevance"):
            ranker.predict(given)
    with pytest.raises(InputError, match="true relevance"):
        ranker.sample_rankings(replace(data, relevance=None), 2)


@pytest.mark.parametrize(
    ("settings", "column"),
    [
        ({"gain": -0.1}, "gain"),
        ({"gain": float("nan")}, "gain"),
        ({"gain": "strong"}, "gain"),
        ({"relevance": "clicks"}, "relevance"),
        ({"passes": 0}, "passes"),
        ({"passes": 2.5}, "passes"),
        ({"model": "tree"}, "model"),
        ({"l2": -1}, "l2"),
        ({"valid_share": 2}, "valid_share"),
        ({"position_bias": 1.0}, "position_bias"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], column: str) -> None:
    with pytest.raises(InputError) as caught:
        made(**settings)().fit(random_lists())
    assert caught.value.column == column


def test_bad_requests_are_refused() -> None:
    data = random_lists()
    ranker = true_fairco(data, 0.1)
    for number in (0, -1, 1.5):
        with pytest.raises(InputError, match="n"):
            ranker.sample_rankings(data, number)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="top_k"):
        ranker.sample_rankings(data, 2, top_k=0)
    short = true_fairco(data, 0.1, position_bias=PositionBias([1.0, 0.5]))
    with pytest.raises(InputError, match="position"):
        short.sample_rankings(data, 2)
    bad = FairCo(-1.0)
    with pytest.raises(InputError, match="gain"):
        bad.copy_trained(ranker)
