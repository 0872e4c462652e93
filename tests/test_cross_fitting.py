"""Policies that are judged on clicks they were not trained on: folds, temperature, offsets, promises."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import fultr
from fultr import FairRanker, InputError, PositionBias, RandomRanking, RankingDataset
from fultr.cli.main import run
from fultr.policy import MLPScorer
from fultr.training import UnsupportedLimitError, cross_fitting
from fultr.training.checkpoints import nothing_kept
from fultr.training.cross_fitting import CrossFit
from fultr.training.folds import folds_of
from fultr.training.models import CentredModel, LinearModel, ModuleModel
from fultr.training.objective import Objective
from fultr.training.offset_search import best_temperature
from fultr.training.preparation import prepare
from fultr.training.scaling import Scaling
from fultr.training.task import Task, Weighing

pytestmark = pytest.mark.slow

BIAS = PositionBias.power(1.0)


def lists(count: int, seed: int, length: int = 6, groups: int = 2, advantage: float = 1.0) -> RankingDataset:
    """Return lists of items whose groups differ in relevance, and in a feature that favours the first."""
    rng = np.random.default_rng(seed)
    rows = count * length
    group = rng.integers(0, groups, size=rows)
    features = rng.normal(size=(rows, 4))
    features[:, 3] = (group == 0) + 0.3 * rng.normal(size=rows)
    chance = 1 / (1 + np.exp(1.0 - 0.7 * features[:, 0] - 0.3 * features[:, 1] - advantage * (group == 0)))
    return RankingDataset(
        features.astype(np.float32),
        np.arange(0, rows + 1, length),
        group=group,
        group_names=[f"g{code}" for code in range(groups)],
        relevance=(rng.random(rows) < chance).astype(np.float64),
        query_id=np.arange(count),
        doc_id=np.tile(np.arange(length), count),
    )


def clicks_on(data: RankingDataset, each: int, seed: int) -> fultr.ClickLog:
    return fultr.simulate_clicks(data, RandomRanking(), BIAS, impressions=each * len(data), seed=seed)


def shared_people(count: int, people: int, seed: int) -> RankingDataset:
    """Return lists that draw their items from few people, as German Credit's do."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(people, 3)).astype(np.float32)
    chosen = np.stack([rng.choice(people, 5, replace=False) for _ in range(count)]).reshape(-1)
    return RankingDataset(
        table[chosen],
        np.arange(0, chosen.size + 1, 5),
        group=(table[chosen, 0] > 0).astype(int),
        group_names=["a", "b"],
        relevance=(table[chosen, 1] > 0.5).astype(np.float64),
        query_id=np.arange(count),
        doc_id=chosen,
    )


# folds


def test_folds_keep_queries_together_and_are_of_equal_size() -> None:
    data = lists(41, seed=0)
    twice = fultr.data.concatenate([data, data])  # every query has two lists
    fold = folds_of(twice, 4, seed=0)
    query = twice.query_codes[twice.list_of_row]
    assert all(np.unique(fold[query == one]).size == 1 for one in range(41))
    sizes = np.bincount([fold[query == one][0] for one in range(41)])
    assert sizes.tolist() == [11, 10, 10, 10]
    assert (folds_of(twice, 4, seed=0) == fold).all()
    assert (folds_of(twice, 4, seed=1) != fold).any()


def test_folds_keep_people_together_where_lists_share_them() -> None:
    data = shared_people(100, people=40, seed=0)
    fold = folds_of(data, 4, seed=0)
    people = np.asarray(data.doc_id)
    assert all(np.unique(fold[people == one]).size == 1 for one in np.unique(people))
    assert (np.diff(fold.reshape(-1, 5), axis=1) != 0).any()  # a list has people of several folds


def test_too_few_queries_for_the_folds_are_refused() -> None:
    with pytest.raises(InputError, match=r"column 'folds': there are only 3 independent queries .*got 4"):
        folds_of(lists(3, seed=0), 4, seed=0)


def test_a_task_without_rows_is_that_of_lists_without_them() -> None:
    data = lists(12, seed=3, groups=3)
    kept = np.random.default_rng(0).random(data.rows) < 0.5
    kept[data.offsets[4] : data.offsets[5]] = False  # a list that keeps none
    weighing = Weighing(position_bias=BIAS)
    rows = np.flatnonzero(kept)
    lengths = np.bincount(data.list_of_row[rows], minlength=12)
    smaller = RankingDataset(
        data.features[rows],
        np.concatenate([[0], np.cumsum(lengths[lengths > 0])]),
        group=data.group[rows],
        group_names=data.group_names,
        relevance=np.asarray(data.relevance)[rows],
    )
    task, expected = Task.of(data, weighing).with_rows(kept), Task.of(smaller, weighing)
    assert len(task.data) == 11
    weights = np.random.default_rng(1).normal(size=(2, 4))
    for measure in (0, 1):
        found, wanted = (
            Objective(one, LinearModel(one.data, Scaling.none(one.data)), np.zeros(2)).measure(weights)
            for one in (task, expected)
        )
        np.testing.assert_allclose(found[measure], wanted[measure], rtol=1e-6)


# scores of what was left out


@pytest.mark.parametrize("data", [lists(40, seed=1), shared_people(60, people=40, seed=1)])
def test_left_out_scores_do_not_depend_on_left_out_clicks(data: RankingDataset) -> None:
    ranker = FairRanker(max_disparity=1.0, fairness="offsets", position_bias=BIAS, l2=0.1)
    fold = folds_of(data, ranker.folds, ranker.seed)
    other = np.where(fold == 2, 1 - np.asarray(data.relevance), np.asarray(data.relevance))
    found = []
    for source in (data, replace(data, relevance=other)):
        fit = CrossFit(ranker, prepare(ranker, source), nothing_kept, None)
        start = fit.most_useful()
        found.append(start.scores * start.models[0].temperature)  # type: ignore[union-attr]
    inside = fold == 2
    np.testing.assert_allclose(found[0][inside], found[1][inside], rtol=1e-12, atol=1e-12)
    assert np.abs(found[0][~inside] - found[1][~inside]).max() > 1e-3


def test_the_most_useful_policy_is_at_least_as_good_as_any_temperature_of_any_l2() -> None:
    log = clicks_on(lists(60, seed=5), 4, seed=5)
    ranker = FairRanker(max_disparity=1.0, fairness="offsets", position_bias=BIAS)
    fit = CrossFit(ranker, prepare(ranker, log.compact()), nothing_kept, None)
    base = fit.most_useful()
    best = fultr.evaluate(fultr.training.ranker.KnownScores(base.scores), log, intervals=None).dcg
    for l2 in (0.001, 0.1, 10.0):
        one = FairRanker(max_disparity=1.0, fairness="offsets", position_bias=BIAS, l2=l2)
        alone = CrossFit(one, prepare(one, log.compact()), nothing_kept, None).most_useful()
        assert best_temperature(fit.folds.judged, alone.scores)[1] <= best + 1e-4


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_centred_model_moves_a_scorer_and_has_its_gradient(kind: str) -> None:
    data = lists(8, seed=2)
    scaling = Scaling.standard(data)
    model: Any = LinearModel(data, scaling)
    if kind == "mlp":
        model = ModuleModel(data, scaling, MLPScorer(4, (3,), seed=1))
    rng = np.random.default_rng(0)
    centre, delta = rng.normal(size=model.size), 0.1 * rng.normal(size=(1, model.size))
    centred = CentredModel(model, centre, temperature=0.5)
    rows = slice(0, data.rows)
    at_centre = centred.scores(np.zeros((1, model.size)), rows)
    np.testing.assert_allclose(at_centre, model.scores(centre[None], rows) / 0.5, rtol=1e-6)
    scorer = centred.scorer(delta[0])
    with torch.no_grad():
        scored = scorer(torch.from_numpy(data.features)).numpy()
    shift = scored - centred.scores(delta, rows)[0]
    np.testing.assert_allclose(shift - shift[0], 0.0, atol=1e-5)  # a linear score is known up to a constant
    slopes = rng.normal(size=(1, data.rows))
    slopes -= slopes.mean()
    gradient = centred.pull_back(delta, rows, slopes)[0]
    for index in (0, model.size - 1):
        step = np.zeros_like(delta)
        step[0, index] = 1e-2
        change = centred.scores(delta + step, rows) - centred.scores(delta - step, rows)
        assert (change * slopes).sum() / 2e-2 == pytest.approx(gradient[index], rel=2e-2, abs=2e-3)


# rankers


@pytest.fixture(scope="module")
def log() -> fultr.Counts:
    return clicks_on(lists(150, seed=7), 6, seed=7).compact()


@pytest.fixture(scope="module")
def with_offsets(log: fultr.Counts) -> FairRanker:
    return FairRanker(max_disparity=0.6, confidence=0.9, fairness="offsets").fit(log)


def test_a_promised_limit_is_above_the_bound_on_new_queries(with_offsets: FairRanker) -> None:
    expected = with_offsets.new_queries_
    assert expected is not None
    assert expected["confidence"] == 0.9
    value, low, high = expected["disparity"]
    assert 0 <= low <= value <= high <= 0.6
    found = fultr.evaluate(with_offsets, lists(2_000, seed=8), position_bias=BIAS, intervals=None)
    assert abs(float(found.disparity)) <= 0.6
    low, high = expected["utility"][1:]
    assert low - 0.05 <= found.dcg <= high + 0.05
    assert with_offsets.validation_ is not None
    assert with_offsets.validation_["dcg"] == pytest.approx(expected["utility"][0], rel=1e-5)


def test_training_under_a_limit_with_confidence_keeps_it(log: fultr.Counts) -> None:
    ranker = FairRanker(max_disparity=0.8, confidence=0.9).fit(log)
    assert ranker.offsets_ == {}
    assert ranker.new_queries_ is not None
    assert ranker.new_queries_["disparity"][2] <= 0.8
    found = fultr.evaluate(ranker, lists(2_000, seed=8), position_bias=BIAS, intervals=None)
    assert abs(float(found.disparity)) <= 0.8


@pytest.mark.parametrize("fairness", ["training", "offsets"])
def test_a_limit_that_cannot_be_promised_is_refused_with_what_can(log: fultr.Counts, fairness: str) -> None:
    with pytest.raises(UnsupportedLimitError, match="cannot be promised with 0.95 confidence") as refused:
        FairRanker(max_disparity=0.01, confidence=0.95, fairness=fairness).fit(log)
    assert refused.value.lowest > 0.01
    assert refused.value.times == pytest.approx((refused.value.lowest / 0.01) ** 2)
    # what it says can be promised, can be
    again = FairRanker(max_disparity=1.001 * refused.value.lowest, confidence=0.95, fairness=fairness).fit(
        log
    )
    assert again.new_queries_ is not None


@pytest.mark.parametrize(
    "goal", [{"fairness_weight": 10.0}, {"max_disparity": 0.05}, {"min_utility": 0.95}], ids=str
)
def test_offsets_serve_every_goal(goal: dict[str, float]) -> None:
    data = fultr.datasets.synthetic(queries=100, features=6, seed=0).train
    log = fultr.simulate_clicks(data, RandomRanking(), BIAS, clicks=1_500, seed=0).compact()
    useful = FairRanker(fairness_weight=0.0, fairness="offsets").fit(log)
    fair = FairRanker(**goal, fairness="offsets").fit(log)  # type: ignore[arg-type]
    assert fair.new_queries_ is not None
    assert useful.new_queries_ is not None
    assert fair.new_queries_["disparity"][0] < useful.new_queries_["disparity"][0]
    if "max_disparity" in goal:
        assert fair.new_queries_["disparity"][0] <= 0.05 + 1e-6
    if "min_utility" in goal:
        assert fair.new_queries_["utility"][0] >= 0.95 * useful.new_queries_["utility"][0] - 1e-6
    np.testing.assert_allclose(fair.coef_, useful.coef_)  # the scorer is the same


@pytest.mark.parametrize(
    "goal", [{"fairness_weight": 10.0}, {"max_disparity": 0.01}, {"min_utility": 0.9}], ids=str
)
def test_offsets_do_not_chase_noise(log: fultr.Counts, goal: dict[str, float]) -> None:
    with pytest.warns(fultr.FultrWarning, match="is within its noise"):
        ranker = FairRanker(**goal, fairness="offsets").fit(log)  # type: ignore[arg-type]
    assert set(ranker.offsets_.values()) == {0.0}


def test_offsets_of_given_scores_do_not_chase_noise() -> None:
    log = clicks_on(lists(60, seed=3, advantage=0.0), 1, seed=3).compact()
    scores = log.data.features[:, 0].astype(np.float64)
    with pytest.warns(fultr.FultrWarning, match="is within its noise"):
        policy = fultr.fair_offsets(scores, log, max_disparity=0.01)
    assert set(policy.offsets.values()) == {0.0}


@pytest.mark.statistical
def test_few_clicks_raise_no_disparity(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 0.3 clicks a list, no goal has more true disparity than lambda 0; chasing the noise would have."""
    truth = lists(1_000, seed=1_000, advantage=0.0)
    goals = [{"fairness_weight": 10.0}, {"max_disparity": 0.1}]
    change: dict[tuple[str, str], list[float]] = {}

    def disparity_of(log: fultr.ClickLog, **settings: Any) -> float:
        ranker = FairRanker(l2=[0.1, 1.0], **settings).fit(log)
        return float(fultr.evaluate(ranker, truth, position_bias=BIAS, intervals=None).disparity_squared)

    for seed in range(12):
        data = lists(60, seed=seed, advantage=0.0)
        log = fultr.simulate_clicks(data, RandomRanking(), BIAS, clicks=18, seed=seed)
        useful = disparity_of(log, fairness_weight=0.0)
        for fairness in ("training", "offsets"):
            for goal in goals:
                difference = disparity_of(log, fairness=fairness, **goal) - useful
                change.setdefault((fairness, next(iter(goal))), []).append(difference)
        with monkeypatch.context() as patched:
            patched.setattr(cross_fitting, "is_within_noise", lambda _task, _scores: False)
            chased = disparity_of(log, fairness="offsets", **goals[0]) - useful
            change.setdefault(("chased", "fairness_weight"), []).append(chased)
    bound = {name: np.mean(values) - 2 * np.std(values, ddof=1) / 12**0.5 for name, values in change.items()}
    assert bound.pop(("chased", "fairness_weight")) > 0
    assert len(bound) == 4
    assert max(bound.values()) <= 0


def test_one_query_promises_nothing(log: fultr.Counts) -> None:
    one = log[[0]]
    with pytest.raises(InputError, match="two independent queries"):
        FairRanker(max_disparity=9.0, confidence=0.9, fairness="offsets", l2=0.1).fit(log, valid=one)
    assert FairRanker(1.0, l2=0.1).fit(log, valid=one).new_queries_ is None


def test_validation_clicks_take_the_place_of_folds(log: fultr.Counts) -> None:
    valid = clicks_on(lists(100, seed=9), 6, seed=9).compact()
    ranker = FairRanker(max_disparity=0.7, confidence=0.9, fairness="offsets", l2=0.1).fit(log, valid=valid)
    found = fultr.evaluate(ranker, valid, intervals=None)
    assert ranker.new_queries_ is not None
    assert found.dcg == pytest.approx(ranker.new_queries_["utility"][0], rel=1e-5)
    assert abs(float(found.disparity)) == pytest.approx(ranker.new_queries_["disparity"][0], abs=1e-5)


def test_networks_choose_where_to_stop_and_their_temperature() -> None:
    log = clicks_on(lists(60, seed=11), 4, seed=11)
    ranker = FairRanker(fairness_weight=1.0, fairness="offsets", model="mlp", hidden=[4]).fit(log)
    assert ranker.scorer_.temperature != 1.0
    assert ranker.evaluate(lists(300, seed=12), intervals=None).dcg > 1.0


def test_a_saved_policy_keeps_temperature_offsets_and_promise(
    with_offsets: FairRanker, tmp_path: Path
) -> None:
    fultr.save(with_offsets, tmp_path / "policy.safetensors")
    loaded = fultr.load(tmp_path / "policy.safetensors")
    data = lists(5, seed=13)
    assert (loaded.predict(data) == with_offsets.predict(data)).all()
    assert loaded.new_queries_ == with_offsets.new_queries_
    assert loaded.offsets_ == with_offsets.offsets_
    assert loaded.get_params()["confidence"] == 0.9


def test_a_score_is_that_of_the_features_and_the_offset_of_the_group(with_offsets: FairRanker) -> None:
    data = lists(5, seed=13)
    offsets = np.array([with_offsets.offsets_[name] for name in data.group_names])
    shift = with_offsets.predict(data) - data.features @ with_offsets.coef_ - offsets[data.group]
    np.testing.assert_allclose(shift - shift[0], 0.0, atol=1e-5)
    unknown = replace(data, group=np.full(data.rows, -1))
    np.testing.assert_allclose(
        with_offsets.predict(unknown), with_offsets.predict(data) - offsets[data.group], atol=1e-12
    )


def test_offsets_need_the_groups_of_items(with_offsets: FairRanker) -> None:
    data = lists(2, seed=14)
    with pytest.raises(
        InputError, match="column 'group': the policy adds a number to the scores of each group"
    ):
        with_offsets.predict(data.features)
    frame = pl.DataFrame(data.features, schema=[str(name) for name in with_offsets.feature_names_in_])
    frame = frame.with_columns(group=pl.Series([data.group_names[code] for code in data.group]))
    np.testing.assert_allclose(with_offsets.predict(frame), with_offsets.predict(data))
    with pytest.raises(InputError, match=r"column 'group': the training clicks have no such group.*'other'"):
        with_offsets.predict(frame.with_columns(group=pl.lit("other")))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"confidence": 0.95}, "column 'confidence': is how sure a limit must hold; give one"),
        ({"confidence": 1.0, "max_disparity": 1.0}, "column 'confidence': must lie between 0 and 1"),
        ({"fairness": "magic"}, "column 'fairness': must be 'training' or 'offsets'"),
        ({"fairness": "offsets", "group_blind": True}, "column 'fairness': offsets use the group of an item"),
        (
            {"fairness": "offsets", "protocol": "paper"},
            "column 'fairness': the paper's protocol knows neither",
        ),
        ({"folds": 1, "fairness": "offsets"}, "column 'folds': must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    log: fultr.Counts, settings: dict[str, Any], line: str
) -> None:
    with pytest.raises(InputError, match=line):
        FairRanker(**settings).fit(log)


def test_a_log_without_groups_has_no_offsets() -> None:
    data = replace(lists(20, seed=0), group=np.zeros(120, dtype=np.int32))
    with pytest.raises(InputError, match="column 'fairness': there are no two groups"):
        FairRanker(fairness="offsets", position_bias=BIAS).fit(data)


@pytest.mark.statistical
def test_promises_are_kept_on_new_queries() -> None:
    """Of limits promised with 90% confidence at most 10% are broken, up to the error of the count."""
    truth = lists(3_000, seed=1_000)
    made = broken = 0
    for seed in range(30):
        clicks = clicks_on(lists(250, seed=seed), 5, seed=seed)
        ranker = FairRanker(max_disparity=0.3, confidence=0.9, fairness="offsets", l2=0.1, seed=seed)
        try:
            ranker.fit(clicks)
        except UnsupportedLimitError:
            continue
        found = fultr.evaluate(ranker, truth, position_bias=BIAS, intervals=None)
        made, broken = made + 1, broken + (abs(float(found.disparity)) > 0.3)
    assert made >= 10
    assert broken <= 0.1 * made + 3 * np.sqrt(0.09 * made)


# the command


def test_the_command_promises_or_refuses(
    log: fultr.Counts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "counts.parquet"
    fultr.write_counts(log, file)
    common = ["train", str(file), "--l2", "0.1", "--fairness", "offsets", "--confidence", "0.9"]
    assert run([*common, "--max-disparity", "0.6", "--out", str(tmp_path / "run")]) == 0
    assert "the limit of 0.6 is kept" in " ".join(capsys.readouterr().out.split())
    kept = json.loads((tmp_path / "run" / "results.json").read_text())
    assert kept["new_queries"]["disparity"][2] <= 0.6
    assert set(kept["offsets"]) == {"g0", "g1"}
    items = lists(3, seed=20)
    fultr.write_dataset(items, tmp_path / "items.parquet")
    ranked = tmp_path / "ranked.csv"
    assert (
        run(
            [
                "rank",
                str(tmp_path / "run"),
                str(tmp_path / "items.parquet"),
                "--deterministic",
                "--out",
                str(ranked),
            ]
        )
        == 0
    )
    loaded = fultr.load(tmp_path / "run" / "policy.safetensors")
    first = [np.flatnonzero(loaded.rank(items)[rows] == 1)[0] for rows in np.arange(18).reshape(3, 6)]
    table = pl.read_csv(ranked).filter(pl.col("position") == 1)
    assert table["doc_id"].to_list() == [
        np.asarray(items.doc_id)[6 * number + one] for number, one in enumerate(first)
    ]
    without = RankingDataset(items.features, items.offsets, query_id=items.query_id, doc_id=items.doc_id)
    fultr.write_dataset(without, tmp_path / "without.parquet")
    capsys.readouterr()
    assert run(["rank", str(tmp_path / "run"), str(tmp_path / "without.parquet")]) == 2
    assert "without.parquet, column 'group': the policy adds a number" in capsys.readouterr().err
    assert run(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "On new queries the disparity is at most" in page
    assert "which keeps the limit of 0.6 that was asked for" in page
    capsys.readouterr()
    refused = [*common, "--max-disparity", "0.01", "--out", str(tmp_path / "refused"), "--json"]
    assert run(refused) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["refused"]["lowest_limit"] > 0.01
    assert err.startswith("fultr: a disparity of at most 0.01 on new queries cannot be promised")
    assert not (tmp_path / "refused").exists()
    assert run([*common, "--max-disparity", "0.6", "--valid-share", "0.1", "--out", "x"]) == 2
    assert "--valid-share is for --protocol paper; see --folds" in capsys.readouterr().err


def test_inspect_says_which_limit_can_be_promised(
    log: fultr.Counts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    floors = []
    for share, name in ((1, "all"), (4, "quarter")):
        fultr.write_counts(log[np.arange(0, len(log.data), share)], tmp_path / f"{name}.parquet")
        assert run(["inspect", str(tmp_path / f"{name}.parquet"), "--json"]) == 0
        findings = json.loads(capsys.readouterr().out)["findings"]
        sentence = next(one["sentence"] for one in findings if "can be promised" in one["sentence"])
        floors.append(float(sentence.split("from about ")[1].split(" on;")[0]))
    assert 1.5 < floors[1] / floors[0] < 2.7  # a quarter of the queries: twice the error
    with pytest.raises(UnsupportedLimitError) as refused:
        FairRanker(max_disparity=0.001, confidence=0.95, fairness="offsets", l2=0.1).fit(log)
    assert 0.5 < refused.value.lowest / floors[0] < 2
