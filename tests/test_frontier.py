"""Sweeps over the fairness weight, and what is chosen from them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fultr import ClickLog, FairRanker, Frontier, InputError, TreeSettings, datasets, sweep
from fultr.plots import draw_frontier
from fultr.training import fair_ranker
from fultr.training.checkpoints import nothing_kept
from fultr.training.cross_fitting import MOVING_COSTS, CrossFit
from fultr.training.frontier import FrontierPoint
from fultr.training.goals import squared
from fultr.training.objective import stacked
from fultr.training.offset_search import SHARPNESS, measure_scores, spread_within
from fultr.training.paper_steps import PaperSettings
from tests.training_tasks import BIAS, small_log, validation_of

WEIGHTS = [0.0, 0.1, 1.0, 10.0]


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return small_log()


@pytest.fixture(scope="module")
def front(log: ClickLog) -> Frontier:
    return sweep(log, fairness_weights=WEIGHTS, l2=[0.003, 0.1])


def made(*values: tuple[float, float, float]) -> Frontier:
    """A frontier of weights, utilities and disparities on validation clicks, without policies."""
    points = [
        FrontierPoint(weight, 0.1, 1.0, "training", 0, utility, disparity, utility, disparity, True)
        for weight, utility, disparity in values
    ]
    return Frontier(points, [], FairRanker(), None)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_a_sweep_is_all_its_single_fits(log: ClickLog, model: str) -> None:
    settings: dict[str, Any] = {"model": model, "hidden": [3]}
    found = sweep(log, fairness_weights=[0.0, 3.0], l2=0.01, seeds=[0, 4], **settings)
    assert len(found.points) == 4
    for number, point in enumerate(found.points):
        if point.seed:
            continue  # the split is that of the first seed
        single = FairRanker(point.fairness_weight, l2=point.l2, seed=point.seed, **settings).fit(log)
        ranker = found.ranker(point)
        tolerance = 0.01 if model == "linear" else 1e-6
        np.testing.assert_allclose(ranker.predict(log.data), single.predict(log.data), atol=tolerance)
        assert point.train_utility == pytest.approx(single.training_utility_, abs=2e-3)
        assert point.train_disparity == pytest.approx(single.training_disparity_, abs=2e-3)
        assert point.valid_utility == pytest.approx(validation_of(single)["dcg"], abs=2e-3)
        assert point.valid_disparity == pytest.approx(abs(validation_of(single)["disparity"]), abs=2e-3)
        assert ranker.get_params() == single.get_params()
        assert found.points.index(point) == number


def test_seeds_of_a_linear_sweep_agree(log: ClickLog) -> None:
    found = sweep(log, fairness_weights=[1.0], l2=0.01, seeds=[0, 4])
    one, other = (found.ranker(point).coef_ for point in found.points)
    np.testing.assert_allclose(one, other, atol=1e-3)


def test_the_cost_is_chosen_for_each_weight(front: Frontier) -> None:
    assert [point.fairness_weight for point in front.chosen] == WEIGHTS
    for chosen in front.chosen:
        rivals = [point for point in front.points if point.fairness_weight == chosen.fairness_weight]
        assert len(rivals) == len(MOVING_COSTS)

        def value(point: FrontierPoint) -> float:
            return point.valid_utility - point.fairness_weight * point.valid_disparity**2

        assert value(chosen) == pytest.approx(max(map(value, rivals)), abs=1e-6)


def test_a_larger_weight_is_fairer_on_the_training_clicks(front: Frontier) -> None:
    for cost in MOVING_COSTS:
        found = [point.train_disparity for point in front.points if point.l2 == cost]
        assert (np.diff(found) < 0).all()


def test_validation_clicks_may_be_given(log: ClickLog) -> None:
    data = datasets.synthetic(queries=80, features=10, seed=0)
    found = sweep(log, fairness_weights=[0.0, 10.0], l2=0.01, valid=data.valid)
    single = FairRanker(10.0, l2=0.01).fit(log, valid=data.valid)
    assert found.chosen[1].valid_utility == pytest.approx(validation_of(single)["dcg"], abs=2e-3)
    assert found.chosen[1].train_utility == pytest.approx(single.training_utility_, abs=2e-3)


def test_settings_come_from_a_ranker_or_by_name(log: ClickLog) -> None:
    base = FairRanker(7.0, l2=0.01, seed=3, position_bias=BIAS)
    found = sweep(log, fairness_weights=[0.0], ranker=base, top_k=5)
    ranker = found.ranker(found.points[0])
    assert (ranker.fairness_weight, ranker.top_k, ranker.l2, ranker.position_bias) == (0.0, 5, 0.01, BIAS)
    assert base.get_params()["fairness_weight"] == 7.0
    assert base.top_k is None


def test_the_papers_protocol_can_be_swept(log: ClickLog, monkeypatch: pytest.MonkeyPatch) -> None:
    short = PaperSettings(validate_every=20, patience=1, most_steps=40)
    monkeypatch.setattr(fair_ranker, "PAPER", short)
    found = sweep(log, fairness_weights=[0.0, 1.0], l2=[0.0, 0.1], protocol="paper")
    assert len(found.points) == 4
    assert len(found.chosen) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"fairness_weights": []},
        {"fairness_weights": [-1.0]},
        {"fairness_weights": [np.nan]},
        {"fairness_weights": ["1"]},
        {"seeds": []},
        {"fairness": []},
        {"fairness": ["training", "magic"]},
        {"fairness": "offsets", "group_blind": True},
        {"l2": [-1.0]},
        {"max_disparity": 0.1},
    ],
    ids=str,
)
def test_wrong_sweeps_are_refused(log: ClickLog, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"column '{next(iter(wrong))}'"):
        sweep(log, **wrong)


# --- choosing ---


def test_the_most_useful_below_a_limit(front: Frontier, log: ClickLog) -> None:
    ordered = sorted(front.points, key=lambda point: point.valid_disparity)
    limit = ordered[3].valid_disparity
    best = max(ordered[:4], key=lambda point: point.valid_utility)
    ranker = front.select(max_disparity=limit)
    assert ranker.fairness_weight == best.fairness_weight
    assert abs(validation_of(ranker)["disparity"]) <= limit + 2e-3
    np.testing.assert_array_equal(ranker.predict(log.data), front.ranker(best).predict(log.data))
    with pytest.raises(InputError, match=f"the lowest is {ordered[0].valid_disparity:.6g}"):
        front.select(max_disparity=ordered[0].valid_disparity / 2)


def test_the_fairest_that_keeps_a_share(front: Frontier) -> None:
    highest = max(point.valid_utility for point in front.points)
    for share in (1.0, 0.97, 0.9, 0.01):
        allowed = [point for point in front.points if point.valid_utility >= share * highest]
        fairest = min(allowed, key=lambda point: point.valid_disparity)
        assert front.select(min_utility=share).fairness_weight == fairest.fairness_weight


def test_limits_that_training_refuses_are_not_selected(log: ClickLog) -> None:
    dropped = sweep(log.drop_empties(), fairness_weights=[0.0, 1.0], l2=0.1, folds=0)
    with pytest.raises(InputError, match="only up to a factor"):
        dropped.select(max_disparity=10.0)
    one_group = replace(log, data=replace(log.data, group=np.zeros_like(log.data.group)))
    with pytest.raises(InputError, match="no two groups"):
        sweep(one_group, fairness_weights=[0.0], l2=0.1, folds=0).select(max_disparity=10.0)


def test_monotone_trees_are_for_utility_alone_in_a_sweep_too(log: ClickLog) -> None:
    trees = TreeSettings(monotone={log.data.feature_names[0] or "1": 1})
    with pytest.raises(InputError, match="monotone"):
        sweep(log, fairness_weights=[0.0, 1.0], model="trees", trees=trees)


def test_selections_that_make_no_sense_are_refused(front: Frontier) -> None:
    senseless: list[dict[str, float]] = [{}, {"max_disparity": 0.1, "min_utility": 0.9}]
    for wrong in (*senseless, {"min_utility": 1.5}, {"max_disparity": -1.0}):
        with pytest.raises(InputError):
            front.select(**wrong)
    for wrong in ({"max_disparity": np.nan}, {"min_utility": np.nan}, {"min_utility": 0.0}):
        with pytest.raises(InputError, match=f"column '{next(iter(wrong))}'"):
            front.select(**wrong)


def test_dominated_policies_are_left_out() -> None:
    found = made((0, 1.0, 0.5), (1, 0.9, 0.6), (2, 0.9, 0.3), (3, 0.9, 0.3), (4, 0.8, 0.3), (5, 0.7, 0.1))
    assert [point.fairness_weight for point in found.non_dominated] == [0, 2, 5]
    assert [point.fairness_weight for point in made((0, 1.0, 0.0), (1, 0.9, 0.1)).non_dominated] == [0]


@pytest.fixture(scope="module")
def both(log: ClickLog) -> Frontier:
    return sweep(log, fairness_weights=[0.0, 10.0], l2=[0.003, 0.1], fairness=["training", "offsets"])


def test_the_envelope_is_over_all_candidates(both: Frontier) -> None:
    """No candidate, of whatever cost or kind, beats one of the envelope; all others are beaten."""
    envelope = both.non_dominated
    assert {point.fairness for point in both.points} == {"training", "offsets"}
    for point in both.points:
        rivals = [other for other in both.points if other.valid_utility >= point.valid_utility]
        is_beaten = any(other.valid_disparity < point.valid_disparity for other in rivals)
        assert (point in envelope) <= (not is_beaten)
        assert is_beaten or any(
            (point.valid_utility, point.valid_disparity) == (other.valid_utility, other.valid_disparity)
            for other in envelope
        )
    assert (np.diff([point.valid_disparity for point in envelope]) < 0).all()
    assert (np.diff([point.valid_utility for point in envelope]) <= 0).all()
    assert [row["non_dominated"] for row in both.rows()] == [point in envelope for point in both.points]


def test_offsets_can_be_swept(both: Frontier, log: ClickLog) -> None:
    fair = next(point for point in both.points if point.fairness == "offsets" and point.fairness_weight == 10)
    useful = FairRanker(0.0, l2=[0.003, 0.1]).fit(log)
    ranker = both.ranker(fair)
    assert ranker.fairness == "offsets"
    np.testing.assert_allclose(ranker.coef_, useful.coef_)
    assert ranker.training_disparity_ == pytest.approx(fair.train_disparity, abs=1e-3)
    assert validation_of(ranker)["dcg"] == pytest.approx(fair.valid_utility, abs=1e-4)
    single = FairRanker(10.0, l2=[0.003, 0.1], fairness="offsets").fit(log)
    assert ranker.offsets_ == pytest.approx(single.offsets_, abs=1e-6)


def test_the_temperature_is_the_best_one_for_each_weight(log: ClickLog) -> None:
    """Of all temperatures, by U - lambda D^2 on left-out clicks; those of a larger weight may differ."""
    base = FairRanker(10.0, l2=[0.003, 0.1])
    fit = CrossFit(base, base.prepare(log.compact(), None), nothing_kept, None)
    start = fit.start()
    weights = np.full(start.costs.size, 10.0)
    plain, best = fit.trained(start, weights, start.costs), fit.priced(start, weights, start.costs)
    for number in range(len(best)):
        scores = plain.scores(number)
        temperatures = spread_within(fit.folds.judged.data, scores) / np.array(SHARPNESS)
        measured = stacked(measure_scores(fit.folds.judged, scores / one) for one in temperatures)
        values = measured.utility - 10.0 * squared(measured.disparity)
        judged = best.judge()
        assert judged.utility[number] - 10.0 * squared(judged.disparity)[number] == pytest.approx(max(values))
        choice = best.choice(number)
        assert choice.scorer.temperature == pytest.approx(best.total_temperature(number))
    ranker = base.fit(log)
    assert ranker.scorer_.temperature in [
        pytest.approx(best.total_temperature(number)) for number in range(len(best))
    ]


# --- writing ---


def test_tables_hold_all_policies(front: Frontier, tmp_path: Path) -> None:
    rows = front.rows()
    assert len(rows) == 4 * len(MOVING_COSTS)
    flags = {"chosen", "non_dominated"}
    assert json.loads(front.to_json(tmp_path / "front.json").read_text()) == rows
    with front.to_csv(tmp_path / "front.csv").open() as file:
        for found, row in zip(csv.DictReader(file), rows, strict=True):
            assert {name: type(row[name])(value) for name, value in found.items() if name not in flags} == {
                name: value for name, value in row.items() if name not in flags
            }
            assert [found[name] for name in flags] == [str(row[name]) for name in flags]
    frame = front.to_frame()
    assert frame.to_dicts() == rows
    assert repr(front) == "<Frontier: 12 policies, 4 fairness weights>"


def test_plots_are_written_and_the_same_each_time(front: Frontier, tmp_path: Path) -> None:
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for kind, start in starts.items():
        path = front.plot(tmp_path / f"front.{kind}")
        assert path.read_bytes().startswith(start)
        assert path.stat().st_size > 3000
    assert front.plot(tmp_path / "again.png").read_bytes() == (tmp_path / "front.png").read_bytes()
    assert front.plot(tmp_path / "again.svg").read_bytes() == (tmp_path / "front.svg").read_bytes()
    assert "validation clicks" in (tmp_path / "front.svg").read_text()
    with pytest.raises(InputError, match="a picture ends in"):
        front.plot(tmp_path / "front.gif")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".pdf", ".png", ".png", ".svg", ".svg"]


def test_plots_take_single_policies_and_marks(tmp_path: Path) -> None:
    one = made((1, 0.9, 0.1)).rows()
    mark = [{"name": "today's ranking", "utility": 0.8, "disparity": 0.4}]
    assert draw_frontier(one, tmp_path / "one.png", mark).exists()
    assert draw_frontier([], tmp_path / "none.svg").exists()
