from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fultr import (
    BiasEstimate,
    ClickLog,
    ClickNoise,
    FixedScorer,
    FultrWarning,
    InputError,
    PlackettLuce,
    PositionBias,
    RandomRanking,
    RankingDataset,
    estimate_bias,
    evaluate,
    simulate_clicks,
)
from fultr.audits import (
    LOGGED,
    Audit,
    AuditEstimate,
    RankingAudit,
    audit,
    auditing,
    draw_shares,
    read_audit,
    write_audit,
)
from fultr.audits.curves import examination_for, steeper
from fultr.data.counts import Cells
from fultr.evaluation import resampled_errors, simultaneous_intervals
from fultr.reports import report_on_audit
from fultr.training.overlap import query_digests
from tests.reference import by_first, by_second, plain_disparity

BIAS = PositionBias.power(1.0)
BENT = PositionBias([1, 0.9, 0.3], beyond=0.3)
NOISE = ClickNoise(eps_plus=0.9, eps_minus=0.2)
TRUST = ClickNoise(eps_plus=[0.9, 0.8], eps_minus=[0.3, 0.2, 0.1])


class Trained(RandomRanking):
    """A policy that knows what it was trained on, and with which position bias."""

    def __init__(self, queries: RankingDataset, bias: PositionBias | None = None) -> None:
        self.training_queries_ = query_digests(queries)
        self.training_evidence_: tuple[str, ...] = ()
        self.position_bias_ = bias


def world(lists: int, groups: int = 2, seed: int = 3, unknown: float = 0.0) -> RankingDataset:
    """Lists of 3 to 5 items with binary relevance; later groups are scored higher and more relevant."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 6, size=lists)
    group = rng.integers(groups, size=lengths.sum())
    return RankingDataset(
        rng.normal(size=(group.size, 2)) + 0.7 * group[:, None],
        np.cumsum([0, *lengths]),
        group=np.where(rng.random(group.size) < unknown, -1, group),
        group_names=tuple(f"group {number}" for number in range(groups)),
        relevance=rng.random(group.size) < 0.4 + 0.1 * group,
        query_id=np.arange(lists),
        doc_id=np.arange(group.size),
    )


def clicks_on(
    data: RankingDataset,
    policy: Any = None,
    bias: PositionBias = BIAS,
    impressions: int = 400,
    **options: Any,
) -> ClickLog:
    policy = PlackettLuce(by_second) if policy is None else policy
    return simulate_clicks(data, policy, bias, impressions=impressions, **{"seed": 1, **options})


def estimated(
    values: list[float], low: list[float], high: list[float], eta: tuple[float, float, float] = (1, 0.8, 1.3)
) -> BiasEstimate:
    return BiasEstimate(
        method="swap",
        values=tuple(values),
        low=tuple(low),
        high=tuple(high),
        raw=tuple(values),
        standard_error=(0.0, *(value * 0.05 for value in values[1:])),
        shape="monotone",
        level=0.95,
        impressions=(100,) * len(values),
        clicks=(50,) * len(values),
        pairs=(50,) * len(values),
        insufficient=tuple(at for at, value in enumerate(values, start=1) if math.isnan(value)),
        eta=eta[0],
        eta_low=eta[1],
        eta_high=eta[2],
        fit=None,
        power_fit=None,
        queries=40,
        resamples=100,
        deepest=len(values),
    )


def values_of(ranking: RankingAudit, name: str) -> dict[str, float]:
    return {group.name: getattr(group, name).value for group in ranking.groups}


def disparities_of(ranking: RankingAudit) -> list[float]:
    return [pair.disparity.value for pair in ranking.pairs]


def pairs_of(matrix: Any, groups: int) -> NDArray[np.float64]:
    return np.asarray(matrix)[np.triu_indices(groups, k=1)]


# estimates


@pytest.mark.parametrize("noise", [None, NOISE])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_policy_has_the_numbers_of_an_evaluation(groups: int, noise: ClickNoise | None) -> None:
    log = clicks_on(world(40, groups, unknown=0.2), bias=BENT, noise=noise, top_k=4)
    for policy in (PlackettLuce(by_first), FixedScorer(by_first)):
        ranking = audit(log, {"new": policy}).rankings["new"]
        expected = evaluate(policy, log, noise=noise, intervals=None)
        assert ranking.utility.value == pytest.approx(expected.dcg)
        for name in ("exposure", "merit", "exposure_per_merit", "exposure_share", "merit_share"):
            assert values_of(ranking, name) == pytest.approx(getattr(expected, name), nan_ok=True)
        np.testing.assert_allclose(
            disparities_of(ranking), pairs_of(expected.disparities, groups), atol=1e-12
        )
        assert ranking.disparity.value == pytest.approx(math.sqrt(expected.disparity_squared))


def plain_logged(log: ClickLog, bias: PositionBias, noise: ClickNoise) -> dict[str, Any]:
    """Utility, exposure, merit and D of the logged rankings, one impression after another.

    Where impressions do not show all candidates, merit is clicks over the mean examination of the item.
    """
    data, utility = log.data, 0.0
    merit, exposure, clicks = np.zeros((3, data.rows))
    impressions = log.impressions_of_lists()
    for number, which in enumerate(log.lists):
        for place, row in enumerate(range(data.offsets[which], data.offsets[which + 1])):
            entry = log.offsets[number] + place
            position = int(log.position[entry])
            if position == 0:
                continue
            examined = float(bias.at([position])[0])
            plus, minus = noise.at(position)
            worth = (float(log.click[entry]) / examined - minus) / (plus - minus)
            merit[row] += worth
            exposure[row] += examined
            clicks[row] += log.click[entry]
            utility += worth / math.log2(1 + position)
    mean = exposure / np.maximum(impressions, 1)[data.list_of_row]
    total = len(log)
    if (log.position == 0).any():
        seen, (plus, minus) = mean > 0, noise.at(1)
        merit = clicks / np.where(seen, mean, 1) - minus * seen * impressions[data.list_of_row]
        merit /= plus - minus
    return {
        "utility": utility / total,
        "merit": [merit[data.group == code].sum() / total for code in range(len(data.group_names))],
        "exposure": [exposure[data.group == code].sum() / total for code in range(len(data.group_names))],
        "disparity": plain_disparity(data, merit, impressions.astype(np.float64), mean),
    }


@pytest.mark.parametrize(
    ("noise", "top_k"), [(None, None), (None, 4), (NOISE, None), (NOISE, 4), (TRUST, None)]
)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_logged_ranking_follows_its_definition(
    top_k: int | None, groups: int, noise: ClickNoise | None
) -> None:
    log = clicks_on(world(30, groups, unknown=0.2), bias=BENT, noise=noise, top_k=top_k, impressions=300)
    expected = plain_logged(log, BENT, noise or ClickNoise())
    logged = audit(log).logged
    assert logged.utility.value == pytest.approx(expected["utility"])
    np.testing.assert_allclose(list(values_of(logged, "merit").values()), expected["merit"])
    np.testing.assert_allclose(list(values_of(logged, "exposure").values()), expected["exposure"])
    pairs = expected["disparity"][np.triu_indices(groups, k=1)]
    np.testing.assert_allclose(disparities_of(logged), pairs, atol=1e-12)


def test_a_policy_that_ranks_as_logged_is_the_logged_ranking() -> None:
    data = world(50, 3)
    log = clicks_on(data, FixedScorer(by_first))
    found = audit(log, {"same": FixedScorer(by_first), "other": RandomRanking()})
    logged, same, other = found.rankings.values()
    assert logged.utility.value == pytest.approx(same.utility.value)
    np.testing.assert_allclose(disparities_of(logged), disparities_of(same))
    assert same.difference is not None
    assert other.difference is not None
    assert (same.difference.utility.low, same.difference.utility.high) == (0, 0)
    assert all((one.value, one.low, one.high) == (0, 0, 0) for one in same.difference.disparities)
    assert other.difference.utility.value == pytest.approx(other.utility.value - logged.utility.value)
    for pair, (old, new, more) in enumerate(
        zip(disparities_of(logged), disparities_of(other), other.difference.disparities, strict=True)
    ):
        assert more.value == pytest.approx(new - old), pair
        assert more.low < more.value < more.high


def test_differences_are_known_better_than_what_they_are_between() -> None:
    """Both rankings are measured on the same draws, so that what queries have in common goes away."""
    log = clicks_on(world(200), FixedScorer(by_first), impressions=1000)
    found = audit(log, {"drawn": PlackettLuce(lambda features: 3 * by_first(features))})
    difference = found.rankings["drawn"].difference
    assert difference is not None
    wide = found.rankings["drawn"].utility
    assert difference.utility.high - difference.utility.low < 0.5 * (wide.high - wide.low)


def test_intervals_are_those_of_the_bootstrap_over_queries() -> None:
    data = replace(world(30), query_id=np.arange(30) // 2)
    log = clicks_on(data, FixedScorer(by_first))
    found = audit(log, level=0.9, resamples=200, seed=5)
    weight, counts = log.compact().ips_weights(), log.compact()
    lists = counts.data
    columns = np.zeros((len(lists), 1))
    curve = BIAS.curve(5)
    positions = FixedScorer(by_first).rank(lists)
    for number, (start, stop) in enumerate(itertools.pairwise(lists.offsets)):
        rows = slice(start, stop)
        of = [lists.group[rows] == code for code in (0, 1)]
        exposed = [curve[positions[rows][mask]].sum() for mask in of]
        merit = [weight[rows][mask].sum() for mask in of]
        columns[number] = merit[1] * exposed[0] - merit[0] * exposed[1]
    resampled = resampled_errors(columns, counts.impressions, lists.query_codes, 200, 5)
    low, high = simultaneous_intervals(resampled, level=0.9)
    pair = found.logged.pairs[0]
    assert (pair.disparity.low, pair.disparity.high) == pytest.approx((low[0], high[0]))
    assert pair.band == (pair.disparity.low, pair.disparity.high)
    assert found.logged.disparity.high == pytest.approx(max(abs(low[0]), abs(high[0])))
    assert found.queries == 15


def test_impressions_and_counts_are_the_same() -> None:
    """Also where the same candidates come as several lists, which compaction merges."""
    data = world(25)
    twice = data[np.repeat(np.arange(25), 2)]
    log = clicks_on(twice, impressions=500)
    whole, compact = audit(log, {"a": RandomRanking()}), audit(log.compact(), {"a": RandomRanking()})
    assert whole.to_dict() == compact.to_dict()
    assert whole.lists == 25
    shuffled = log[np.random.default_rng(0).permutation(len(log))]
    assert audit(shuffled, {"a": RandomRanking()}).to_dict() == whole.to_dict()


def test_lists_that_were_never_shown_take_no_part() -> None:
    compact = clicks_on(world(25)).compact()
    kept = compact[np.arange(1, len(compact.data))]
    of_first = compact.data.list_of_row[compact.cells.row] == 0
    cells = compact.cells
    without = Cells(
        cells.row[~of_first],
        cells.position[~of_first],
        None,
        cells.impressions[~of_first],
        cells.clicks[~of_first],
    )
    impressions = np.where(np.arange(len(compact.data)) == 0, 0, compact.impressions)
    found = audit(replace(compact, impressions=impressions, cells=without), {"new": RandomRanking()})
    assert found.to_dict() == audit(kept, {"new": RandomRanking()}).to_dict()


def test_the_bands_of_several_pairs_are_wider_than_their_intervals() -> None:
    found = audit(clicks_on(world(100, 4), impressions=600))
    assert len(found.logged.pairs) == 6
    for pair in found.logged.pairs:
        low, high = pair.band
        assert low < pair.disparity.low < pair.disparity.value < pair.disparity.high < high
    furthest = [max(abs(end) for end in pair.band) for pair in found.logged.pairs]
    assert found.logged.disparity.high == pytest.approx(math.sqrt(sum(end**2 for end in furthest)))


# coverage


@pytest.fixture
def no_other_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what is not looked at, where much is audited."""
    monkeypatch.setattr(
        auditing, "examination_for", lambda *given: replace(examination_for(*given), others={})
    )


@pytest.mark.statistical
@pytest.mark.usefixtures("no_other_biases")
@pytest.mark.parametrize("groups", [2, 4])
def test_intervals_cover_the_truth(groups: int) -> None:
    """1,500 logs of 150 queries out of many: 93 to 97 in 100 intervals hold what is true of all queries."""
    population, repetitions = world(2000, groups, seed=8), 1500
    policies = {LOGGED: PlackettLuce(by_second), "new": FixedScorer(by_first)}
    true = {
        name: evaluate(policy, population, position_bias=BIAS, intervals=None)
        for name, policy in policies.items()
    }
    pairs = {name: pairs_of(one.disparities, groups) for name, one in true.items()}
    chosen = np.random.default_rng(21).integers(len(population), size=150 * repetitions)
    drawn = replace(population[chosen], query_id=np.arange(chosen.size))
    # all logs at once; each is that of 150 queries
    logs = clicks_on(drawn, policies[LOGGED], impressions=600 * repetitions).compact()
    assert logs.data.query_id is not None
    log_of_list = logs.data.query_id // 150
    lists_of_logs = np.split(np.argsort(log_of_list, kind="stable"), np.cumsum(np.bincount(log_of_list))[:-1])
    assert len(lists_of_logs) == repetitions
    hits, above = Counter[tuple[str, str]](), 0
    for number, lists in enumerate(lists_of_logs):
        log = logs[lists]
        found = audit(log, {"new": policies["new"]}, resamples=300, seed=number)
        for name, ranking in found.rankings.items():
            bands = [AuditEstimate(pair.disparity.value, *pair.band) for pair in ranking.pairs]
            hits[name, "utility"] += holds(ranking.utility, true[name].dcg)
            for pair, truth in zip(ranking.pairs, pairs[name], strict=True):
                hits[name, f"{pair.first}, {pair.second}"] += holds(pair.disparity, truth)
            hits[name, "all pairs"] += all(map(holds, bands, pairs[name]))
            above += math.sqrt(true[name].disparity_squared) <= ranking.disparity.high
        more = found.rankings["new"].difference
        assert more is not None
        hits["new - logged", "utility"] += holds(more.utility, true["new"].dcg - true[LOGGED].dcg)
        hits["new - logged", "last pair"] += holds(more.disparities[-1], (pairs["new"] - pairs[LOGGED])[-1])
    covered = {what: count / repetitions for what, count in hits.items()}
    print(covered, above)
    assert len(covered) == 2 * (2 + len(pairs["new"])) + 2
    assert min(covered.values()) > 0.93
    assert max(covered.values()) < 0.97
    # the bound of the sum of squares is a bound of all pairs at once, and holds more often
    assert above / (2 * repetitions) > 0.95


def holds(estimate: AuditEstimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high


# verdicts


def test_a_limit_is_kept_only_by_the_upper_bound() -> None:
    log = clicks_on(world(80, 3), impressions=800)
    upper = audit(log).logged.disparity.high
    value = audit(log).logged.disparity.value
    assert value < upper
    assert audit(log).passes is None
    for limit, passes in ((upper, True), (0.999 * upper, False), (0.5 * (value + upper), False), (0, False)):
        found = audit(log, max_disparity=limit)
        assert found.passes is passes
        assert found.logged.passes is passes


def test_the_verdict_is_that_of_the_candidates_if_there_are_any() -> None:
    data = world(300, seed=1)
    tilted = replace(data, features=np.column_stack([data.group, data.features[:, 0]]))
    log = clicks_on(tilted, FixedScorer(by_first), impressions=3000)
    policies = {"fair": RandomRanking()}
    bound = audit(log, policies).rankings["fair"].disparity.high
    found = audit(log, policies, max_disparity=bound)
    assert [one.passes for one in found.rankings.values()] == [False, True]
    assert found.passes
    found = audit(log, {**policies, "unfair": FixedScorer(by_first)}, max_disparity=bound)
    assert [one.passes for one in found.candidates] == [True, False]
    assert not found.passes


def test_a_limit_that_the_log_says_nothing_of_is_refused() -> None:
    data = world(20)
    none = replace(data, group=np.full(data.rows, -1), group_names=())
    one = replace(data, group=np.zeros(data.rows, dtype=int), group_names=("all",))
    empty = replace(one, group_names=("all", "nobody"))
    apart = replace(data, group=(data.list_of_row % 2).astype(np.int32))
    for lists in (none, one, empty, apart):
        log = clicks_on(lists)
        assert audit(log).logged.disparity == AuditEstimate(0, 0, 0)
        with pytest.raises(InputError, match="two groups that meet in a list"):
            audit(log, max_disparity=1.0)
    unclicked = replace(clicks_on(data), click=np.zeros(clicks_on(data).entries, dtype=bool))
    with pytest.raises(InputError, match="a click on one of them"):
        audit(unclicked, max_disparity=1.0)


def test_a_log_without_clicks_has_exposure_and_no_merit() -> None:
    log = clicks_on(world(20))
    found = audit(replace(log, click=np.zeros(log.entries, dtype=bool)))
    for group in found.logged.groups:
        assert group.exposure.value > 0
        assert group.merit == AuditEstimate(0, 0, 0)
        assert math.isnan(group.exposure_per_merit.value)
        assert math.isnan(group.merit_share.value)
    assert found.clicks == 0
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_empty_group_has_nothing() -> None:
    data = world(30)
    found = audit(clicks_on(replace(data, group_names=(*data.group_names, "nobody"))))
    nobody = found.logged.groups[2]
    assert (nobody.items, nobody.exposure.value, nobody.merit.value) == (0, 0, 0)
    assert nobody.exposure_share == AuditEstimate(0, 0, 0)
    assert math.isnan(nobody.exposure_per_merit.value)
    assert [pair.queries for pair in found.logged.pairs][1:] == [0, 0]
    assert "group 0 and nobody in 0" in " ".join(found.notes)


def test_a_group_that_may_have_no_merit_may_have_any_exposure_for_it() -> None:
    data = world(60, seed=2)
    log = clicks_on(data, FixedScorer(by_first))
    of_group = log.data.group[log.row_of_entry] == 0
    only = np.flatnonzero(of_group & log.click)[0]
    found = audit(replace(log, click=(log.click & ~of_group) | (np.arange(log.entries) == only)))
    ratio = found.logged.groups[0].exposure_per_merit
    assert 0 < ratio.low < ratio.value < ratio.high == math.inf
    assert found.logged.groups[0].to_dict()["exposure_per_merit"]["high"] is None


def test_items_of_unknown_group_are_in_no_group_and_count_for_utility() -> None:
    data = world(60, unknown=0.3)
    log = clicks_on(data)
    found = audit(log)
    assert sum(group.items for group in found.logged.groups) == int((data.group >= 0).sum())
    named = replace(log, data=replace(data, group=np.maximum(data.group, 0)))
    assert audit(named).logged.utility == found.logged.utility
    assert "of unknown group" in " ".join(found.notes)


# other position biases


def two_items(first_clicks: int, second_clicks: int, shown: int = 40) -> ClickLog:
    """Two queries of two items, the one of group a always before the one of group b."""
    data = RankingDataset(np.zeros((4, 1)), [0, 2, 4], group=["a", "b"] * 2, query_id=["x", "y"])
    click = np.zeros((shown, 2), dtype=bool)
    click[:first_clicks, 0], click[:second_clicks, 1] = True, True
    # in turns, so that both queries have clicks
    return ClickLog(data, np.arange(shown) % 2, [1, 2] * shown, click.reshape(-1), position_bias=BIAS)


def closed_form(first_clicks: int, second_clicks: int, examined: float, shown: int = 40) -> float:
    """D_ab = M_b Exp_a - M_a Exp_b with v_1 = 1 and v_2 = `examined`."""
    return second_clicks / shown / examined - first_clicks / shown * examined


def test_an_assumed_error_moves_the_disparity_as_it_must() -> None:
    found = audit(two_items(20, 8))
    assert found.logged.pairs[0].disparity.value == pytest.approx(closed_form(20, 8, 0.5))
    assert found.bias_uncertainty == "assumption"
    assert "is an assumption" in " ".join(found.notes)
    expected = [closed_form(20, 8, 2**-0.9), closed_form(20, 8, 2**-1.1)]
    assert [one.disparities[0] for one in found.logged.other_biases] == pytest.approx(expected)
    nominal = closed_form(20, 8, 0.5)
    assert found.logged.pair_ranges[0] == pytest.approx((expected[0], expected[1]))
    assert expected[0] < nominal < expected[1]
    assert found.logged.disparity_range == pytest.approx((abs(expected[0]), abs(expected[1])))


def test_an_estimate_is_taken_at_the_ends_of_its_intervals() -> None:
    bias = estimated([1, 0.5], [1, 0.4], [1, 0.7])
    found = audit(two_items(20, 8), position_bias=bias)
    assert found.bias_uncertainty == "intervals"
    assert found.bias_source == "estimate"
    assert not any("assumption" in note for note in found.notes)
    curves = {name: curve.at([2])[0] for name, curve in found.other_biases.items()}
    assert list(curves.values()) == pytest.approx([0.4, 0.7, 0.5**0.8, 0.5**1.3])
    assert list(curves)[2:] == ["lowest power, eta 0.8", "highest power, eta 1.3"]
    assert [one.disparities[0] for one in found.logged.other_biases] == pytest.approx(
        [closed_form(20, 8, examined) for examined in curves.values()]
    )
    assert found.logged.pair_ranges[0] == pytest.approx((closed_form(20, 8, 0.7), closed_form(20, 8, 0.4)))


def test_a_policy_moves_with_the_bias_as_well() -> None:
    turned = FixedScorer(lambda features: np.arange(len(features)))
    found = audit(two_items(20, 8), {"turned": turned}, position_bias=estimated([1, 0.5], [1, 0.4], [1, 0.7]))
    # the item of b comes first
    for one, examined in zip(found.rankings["turned"].other_biases, (0.4, 0.7, 0.5**0.8), strict=False):
        assert one.disparities[0] == pytest.approx(8 / 40 / examined * examined - 20 / 40)


def test_it_is_said_whether_the_verdict_moves() -> None:
    log = clicks_on(world(200), FixedScorer(by_first), impressions=2000)
    plain = audit(log).logged
    least, most = plain.upper_range
    assert least < most
    assert plain.verdict_depends_on_bias is None
    for limit, moves in ((0.99 * least, False), (0.5 * (least + most), True), (1.01 * most, False)):
        found = audit(log, max_disparity=limit)
        logged = found.logged
        assert logged.verdict_depends_on_bias is moves
        said = " ".join(report_on_audit(found, "audit").summary)
        assert ("This verdict rests on the position bias" in said) is moves
        assert logged.passes is (logged.disparity.high <= limit)
        assert [one.passes for one in logged.other_biases] == [
            one.upper <= limit for one in logged.other_biases
        ]


def test_another_bias_gives_what_an_audit_with_it_would() -> None:
    log = clicks_on(world(60, 3), impressions=500)
    found = audit(log, {"new": RandomRanking()})
    for name, bias in found.other_biases.items():
        again = audit(log, {"new": RandomRanking()}, position_bias=bias)
        for ranking in found.rankings.values():
            one = next(one for one in ranking.other_biases if one.bias == name)
            expected = again.rankings[ranking.name]
            assert list(one.disparities) == pytest.approx(disparities_of(expected))
            assert (one.disparity, one.upper) == (expected.disparity.value, expected.disparity.high)


def test_a_steeper_curve_is_a_power_of_it() -> None:
    assert steeper(BIAS, 0.5) == PositionBias.power(0.5)
    np.testing.assert_allclose(steeper(BENT, 1.1).at([1, 2, 3, 9]), BENT.at([1, 2, 3, 9]) ** 1.1)
    cut = PositionBias([1, 0.5], beyond="zero")
    assert steeper(cut, 2.0).at([1, 2, 3]).tolist() == [1, 0.25, 0]


def test_lists_longer_than_an_estimate_are_refused_unless_it_has_a_tail() -> None:
    log = clicks_on(world(30), FixedScorer(by_first))
    short = estimated([1, 0.5, 0.4], [1, 0.45, 0.3], [1, 0.6, 0.5])
    with pytest.raises(InputError, match="ends at position 3, and there are positions up to"):
        audit(log, position_bias=short)
    with pytest.warns(FultrWarning, match=r"is imprecise at positions 4 to 5 \(0 clicks at each\)"):
        found = audit(log, position_bias=short.with_tail())
    assert found.position_bias == short.to_position_bias("power")
    assert "positions after 3 follow the power law" in " ".join(found.notes)
    beyond = found.position_bias.beyond
    assert isinstance(beyond, float)
    np.testing.assert_allclose(
        found.other_biases["low ends of the intervals"].at([3, 4]), [0.3, 0.3 * (3 / 4) ** (beyond + 0.3)]
    )
    gap = estimated([1, math.nan, 0.4], [1, math.nan, 0.3], [1, math.nan, 0.5]).with_tail()
    with pytest.warns(FultrWarning, match="is imprecise at positions 2, 4 to 5 "):
        found = audit(log, position_bias=gap)
    ends = found.other_biases["high ends of the intervals"].at([1, 2, 3])
    np.testing.assert_allclose(ends, [1, found.position_bias.at([2])[0], 0.5])
    assert "positions at 2 and after 3 follow the power law" in " ".join(found.notes)


def test_an_estimate_without_intervals_is_taken_to_be_off_by_an_assumption() -> None:
    nothing = [1, math.nan]
    found = audit(two_items(20, 8), position_bias=estimated([1, 0.5], nothing, nothing))
    assert (found.bias_source, found.bias_uncertainty) == ("estimate", "assumption")
    assert len(found.other_biases) == 2


def test_an_estimate_from_the_log_itself() -> None:
    log = clicks_on(world(300), RandomRanking(), impressions=20_000)
    estimate = estimate_bias(log, "harvest", randomised=True, resamples=100)
    found = audit(log, {"new": FixedScorer(by_first)}, position_bias=estimate)
    assert found.bias_uncertainty == "intervals"
    for ranking in found.rankings.values():
        assert ranking.disparity_range[0] < ranking.disparity_range[1]
        assert ranking.upper_range[1] >= ranking.disparity.high


# which position bias and noise


def test_clicks_are_weighed_by_logged_propensities_and_exposure_by_the_curve() -> None:
    log = clicks_on(world(40), impressions=600, noise=NOISE)
    logged = replace(log, propensity=BENT.at(log.position), position_bias=None, noise=None)
    found = audit(logged, {"new": FixedScorer(by_first)}, position_bias=BIAS)
    assert values_of(found.logged, "merit") == pytest.approx(
        values_of(audit(log, position_bias=BENT, noise=ClickNoise()).logged, "merit")
    )
    assert values_of(found.logged, "exposure") == pytest.approx(values_of(audit(log).logged, "exposure"))
    expected = evaluate(FixedScorer(by_first), logged, position_bias=BIAS, intervals=None)
    assert found.rankings["new"].disparity.value == pytest.approx(math.sqrt(expected.disparity_squared))
    assert "which stay as they are" in " ".join(found.notes)
    follows = audit(logged)
    assert follows.bias_source == "propensities"
    np.testing.assert_allclose(follows.position_bias.at([1, 2, 3]), BENT.at([1, 2, 3]))


def test_the_bias_of_the_log_comes_before_that_of_the_policies() -> None:
    data = world(30)
    log = clicks_on(data)
    bare = replace(log, position_bias=None)
    other = world(3)[:0]
    steep, flat = Trained(other, PositionBias.power(2.0)), Trained(other, PositionBias.power(0.5))
    assert audit(log, {"steep": steep}).bias_source == "log"
    assert audit(log, {"steep": steep}, position_bias=BENT).position_bias == BENT
    found = audit(bare, {"steep": steep, "unknown": RandomRanking()})
    assert (found.bias_source, found.position_bias) == ("policies", PositionBias.power(2.0))
    with pytest.raises(InputError, match="the policies have different ones"):
        audit(bare, {"steep": steep, "flat": flat})
    with pytest.raises(InputError, match="exposure needs the examination"):
        audit(bare, {"unknown": RandomRanking()})


def test_the_noise_of_the_log_is_taken_off_unless_told_otherwise() -> None:
    log = clicks_on(world(40), noise=NOISE, impressions=600)
    known, given = audit(log), audit(replace(log, noise=None), noise=NOISE)
    assert known.noise == NOISE
    assert known.to_dict()["rankings"] == given.to_dict()["rankings"]
    left = audit(log, noise=ClickNoise())
    assert left.noise is None
    assert left.logged.groups[0].merit.value > known.logged.groups[0].merit.value


def test_dropped_empty_impressions_refuse_limits_and_noise() -> None:
    log = clicks_on(world(40), noise=NOISE).drop_empties()
    found = audit(log)
    assert found.empties_dropped
    assert found.noise is None
    assert "only up to a factor" in " ".join(found.notes)
    assert "noisy, which cannot be taken off" in " ".join(found.notes)
    with pytest.raises(InputError, match="'max_disparity'.*known only up to a factor"):
        audit(log, max_disparity=1.0)
    with pytest.raises(InputError, match="'noise'.*cannot be taken off"):
        audit(log, noise=NOISE)


# queries of the training


def test_queries_that_were_not_shown_do_not_count() -> None:
    data = world(30)
    log = clicks_on(data[10:])
    found = audit(replace(log, data=data, lists=log.lists + 10), {"mine": Trained(data[:10])})
    assert found.rankings["mine"].recurring_queries == 0


def test_without_ids_it_cannot_be_told() -> None:
    data = world(30)
    without = replace(data, query_id=None)
    for log, trained in ((clicks_on(without), data), (clicks_on(data), without)):
        assert "cannot be told which of them mine" in audit(log, {"mine": Trained(trained)}).notes[0]


# results


def test_an_audit_survives_its_file(tmp_path: Path) -> None:
    log = clicks_on(world(60, 3, unknown=0.1), noise=NOISE)
    bias = estimated([1, 0.6, 0.4, 0.3, 0.2], [1, 0.5, 0.3, 0.2, 0.1], [1, 0.7, 0.5, 0.4, 0.3])
    found = audit(log, {"new": RandomRanking()}, position_bias=bias, max_disparity=0.5)
    written = write_audit(found, tmp_path / "made" / "here")
    assert [path.name for path in written] == [
        "audit.json",
        "audit_groups.csv",
        "audit_pairs.csv",
        "audit.png",
        "audit.svg",
    ]
    assert read_audit(written[0]) == found
    content = json.loads(written[0].read_text())
    assert content.pop("fultr")
    assert content == found.to_dict()
    assert content["position_bias"]["curve"] == pytest.approx([1, 0.6, 0.4, 0.3, 0.2])
    filled = replace(found, findings=({"severity": "note", "about": "x", "sentence": "y"},))
    assert Audit.from_dict(filled.to_dict()).findings == filled.findings


def test_tables_have_every_group_and_every_pair(tmp_path: Path) -> None:
    data = world(60, 3)
    found = audit(clicks_on(replace(data, group_names=("a, b", "$x{$", "c"))), {"new": RandomRanking()})
    write_audit(found, tmp_path)
    groups = (tmp_path / "audit_groups.csv").read_text().splitlines()
    pairs = (tmp_path / "audit_pairs.csv").read_text().splitlines()
    assert len(groups) == len(pairs) == 1 + 2 * 3
    assert groups[1].startswith(f'logged,"a, b",{found.logged.groups[0].items},')
    values = dict(zip(pairs[0].split(","), pairs[6].split(","), strict=True))
    last, difference = found.rankings["new"].pairs[2], found.rankings["new"].difference
    assert difference is not None
    assert (values["ranking"], values["first"], values["second"]) == ("new", "$x{$", "c")
    assert float(values["disparity"]) == pytest.approx(last.disparity.value, rel=1e-5)
    assert float(values["band_high"]) == pytest.approx(last.band[1], rel=1e-5)
    assert float(values["more_than_logged"]) == pytest.approx(difference.disparities[2].value, rel=1e-5)
    assert pairs[1].endswith(",,,")


@pytest.mark.parametrize("groups", [1, 2, 12])
def test_the_picture_names_every_group(groups: int, tmp_path: Path) -> None:
    data = world(40, groups)
    names = tuple(f"$group{{ {number}" for number in range(groups))
    found = audit(clicks_on(replace(data, group_names=names)), {"$new$": RandomRanking()})
    path = draw_shares(found, tmp_path / "picture.svg")
    text = path.read_text()
    assert all(f"<!-- {name} -->" in text for name in names)
    assert "<!-- share of exposure, $new$ -->" in text
    assert text == draw_shares(found, tmp_path / "again.svg").read_text()


def test_without_groups_there_is_utility_and_no_picture(tmp_path: Path) -> None:
    data = world(30)
    found = audit(clicks_on(replace(data, group=np.full(data.rows, -1), group_names=())))
    assert found.logged.utility.low < found.logged.utility.value < found.logged.utility.high
    assert found.other_biases == {}
    assert len(write_audit(found, tmp_path)) == 3
    assert read_audit(tmp_path / "audit.json") == found


def test_an_audit_says_what_it_found() -> None:
    found = audit(two_items(20, 8), max_disparity=9)
    assert repr(found).startswith("<Audit: logged: utility 0.7524, disparity 0.1500 (at most 0.")
    assert repr(found).endswith("passes)>")


def test_the_same_seed_gives_the_same_audit() -> None:
    log = clicks_on(world(40))
    assert audit(log, seed=3).to_dict() == audit(log, seed=3).to_dict()
    assert audit(log, seed=3).logged.utility != audit(log, seed=4).logged.utility


def test_policies_can_be_measured_by_their_modes() -> None:
    log = clicks_on(world(40))
    modes, fixed = (
        audit(log, {"one": policy}, stochastic=stochastic).rankings["one"]
        for policy, stochastic in ((PlackettLuce(by_first), False), (FixedScorer(by_first), None))
    )
    assert modes == fixed


def test_progress_comes_to_its_end() -> None:
    seen: list[tuple[int, int]] = []
    audit(
        clicks_on(world(20)),
        {"a": RandomRanking(), "b": RandomRanking()},
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(step, 9) for step in range(1, 10)]


# errors


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    log = clicks_on(world(20))
    single = clicks_on(world(1), impressions=20)
    damaged = {**audit(log).to_dict(), "rankings": []}
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: audit(world(3)), "'log': must be a ClickLog, a Counts or a frame of a log.*RankingDataset"),
        (lambda: audit(log, [RandomRanking()]), "'policies': must be policies by name"),  # type: ignore[arg-type]
        (lambda: audit(log, {"logged": RandomRanking()}), "give the policy another one"),
        (lambda: audit(log, {"x": 3}), "a policy must have a method predict"),  # type: ignore[dict-item]
        (lambda: audit(log, position_bias=1.0), "'position_bias': must be a PositionBias"),  # type: ignore[arg-type]
        (lambda: audit(log, position_bias=PositionBias([1, 0.5])), "lies beyond the position bias"),
        (lambda: audit(log, noise=0.1), "'noise': must be a ClickNoise"),  # type: ignore[arg-type]
        (lambda: audit(log, max_disparity=-1), "'max_disparity': must be a number, 0 or more"),
        (lambda: audit(log, max_disparity=math.nan), "'max_disparity'"),
        (lambda: audit(log, level=95), "'level': must lie between 0 and 1"),
        (lambda: audit(log, resamples=10), "'resamples': must be an integer, 50 or more"),
        (lambda: audit(log, seed=-1), "'seed'"),
        (lambda: audit(single), "'query_id': an audit needs two queries at least.*got 1"),
        (lambda: audit(single[:0]), "two queries at least.*got 0"),
        (lambda: Audit.from_dict({"kind": "audit", "format": 99}), "'format'.*cannot read.*99"),
        (lambda: Audit.from_dict({}), "is no audit"),
        (lambda: Audit.from_dict({"kind": "audit", "format": 2}), "is no audit.*KeyError"),
        (lambda: Audit.from_dict(damaged), "the logged ranking is missing"),
        (lambda: read_audit(tmp_path / "none.json"), "none.json: no such file"),
        (lambda: write_audit(audit(log), tmp_path / "file" / "in"), "file.*cannot be made"),
        (lambda: draw_shares(audit(log), tmp_path / "picture.txt"), "a picture ends in one of"),
    ]
    (tmp_path / "file").write_text("{")
    (tmp_path / "other.json").write_text("[1]")
    wrong += [
        (lambda: read_audit(tmp_path / "file"), "is no JSON file"),
        (lambda: read_audit(tmp_path / "other.json"), "other.json: is no audit"),
    ]
    for call, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            call()
