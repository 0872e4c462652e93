"""FairRanker: what it takes, what it refuses, and what its settings change."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import fultr
from fultr import ClickLog, ClickNoise, FairRanker, InputError, PositionBias, RankingDataset
from fultr.estimators import utility
from fultr.expectation import dcg_weights, expected_weights
from fultr.training import fair_ranker
from fultr.training.offset_search import best_temperature
from fultr.training.overlap import query_digests
from fultr.training.paper_steps import PaperSettings
from fultr.training.preparation import prepare
from fultr.training.solving import StepReached
from fultr.training.task import ESTIMATORS
from tests.ranker_contract import lists as learnable
from tests.training_tasks import BIAS, random_lists, random_log, small_log, validation_of

PLAIN: dict[str, Any] = {"l2": 0.01, "folds": 0, "position_bias": BIAS}


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return random_log(learnable(), impressions=400)


def scores(source: Any, *more: Any, **settings: Any) -> NDArray[np.float64]:
    """Scores of other lists by a ranker trained on a source; arrays of `fit` come as a dictionary."""
    arrays = more[0] if more else {}
    return np.asarray(FairRanker(**{**PLAIN, **settings}).fit(source, **arrays).predict(learnable(seed=9)))


# --- scikit-learn's conventions ---


def test_settings_are_those_of_the_constructor() -> None:
    names = set(inspect.signature(FairRanker.__init__).parameters) - {"self"}
    ranker = FairRanker(3.0, model="mlp", l2=[0.1, 0.2], position_bias=BIAS)
    assert set(ranker.get_params()) == names
    assert ranker.set_params(fairness_weight=None, max_disparity=0.1).max_disparity == 0.1
    with pytest.raises(ValueError, match="Invalid parameter"):
        ranker.set_params(lamda=3)
    copied = clone(FairRanker(5.0, seed=7, hidden=(3,), utility=np.ones(6)))
    assert (copied.fairness_weight, copied.seed, copied.hidden) == (5.0, 7, (3,))
    assert "fairness_weight=5.0" in repr(FairRanker(5.0))


def test_settings_are_taken_as_they_are_and_never_changed(log: ClickLog) -> None:
    module = nn.Linear(4, 1)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    settings: dict[str, Any] = {**PLAIN, "fairness_weight": 2.0, "model": module, "utility": np.ones(6)}
    ranker = FairRanker(**settings)
    ranker.fit(log)
    for name, value in settings.items():
        assert getattr(ranker, name) is value
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_clones_are_untrained_and_train_alike(log: ClickLog) -> None:
    ranker = FairRanker(2.0, **PLAIN).fit(log)
    copied = clone(ranker)
    with pytest.raises(NotFittedError, match="call fit first"):
        copied.predict(learnable())
    np.testing.assert_array_equal(copied.fit(log).predict(log.data), ranker.predict(log.data))


def test_what_training_learned_ends_in_an_underscore(log: ClickLog) -> None:
    ranker = FairRanker(2.0)
    before = set(vars(ranker))
    assert ranker.fit(log) is ranker
    assert all(name.endswith("_") for name in set(vars(ranker)) - before)
    assert ranker.n_features_in_ == 4
    assert ranker.feature_names_in_.tolist() == list(log.data.feature_names)
    assert ranker.group_names_ == ("group 0", "group 1")
    assert ranker.multiplier_ == 0.0  # these clicks show no disparity, so that none was taken away


# --- the same clicks in any form give the same policy ---


def shown_rows(log: ClickLog) -> dict[str, Any]:
    row = log.row_of_entry
    return {
        "features": log.data.features[row],
        "query_id": log.data.list_of_row[row],
        "doc_id": row,
        "impression_id": log.impression_of_entry,
        "position": np.where(log.position > 0, log.position, np.nan),
        "click": log.click.astype(int),
        "group": np.array(log.data.group_names)[log.data.group[row]],
    }


@pytest.mark.parametrize("form", ["compact", "arrays", "pandas", "polars", "arrow", "text ids"])
def test_the_form_of_the_clicks_does_not_matter(log: ClickLog, form: str) -> None:
    expected = scores(log, fairness_weight=3.0)
    rows = shown_rows(log)
    features = rows.pop("features")
    if form == "compact":
        found = scores(log.compact(), fairness_weight=3.0)
    elif form == "arrays":
        arrays = {
            "y": rows["click"],
            "qid": rows["query_id"],
            "impression": rows["impression_id"],
            "position": rows["position"],
            "sensitive_features": rows["group"],
        }
        found = scores(features, arrays, fairness_weight=3.0)
        propensity = np.where(rows["position"] > 0, 1 / rows["position"], np.nan)
        weighted = scores(features, {**arrays, "propensity": propensity}, fairness_weight=3.0)
        np.testing.assert_allclose(weighted, expected, atol=2e-3)
    else:
        frame = {**rows, **{f"feature_{number}": column for number, column in enumerate(features.T)}}
        if form == "text ids":
            frame["query_id"] = np.array([f"query {code}" for code in rows["query_id"]])
        make: Any = {"pandas": pandas.DataFrame, "arrow": dict}.get(form, polars.DataFrame)
        found = scores(make(frame), fairness_weight=3.0)
    # lists stand in another order, so that sums differ in their last digits
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_labelled_lists_are_full_information() -> None:
    data = learnable()
    ranker = FairRanker(3.0, **PLAIN).fit(data)
    many = random_log(data, impressions=60_000)
    assert np.corrcoef(ranker.predict(data), FairRanker(3.0, **PLAIN).fit(many).predict(data))[0, 1] > 0.99
    found = ranker.evaluate(data, intervals=None)
    assert ranker.training_utility_ == pytest.approx(found.dcg, abs=1e-8)
    assert ranker.training_disparity_ == pytest.approx(abs(found.disparity), abs=1e-8)


def test_training_measures_are_those_of_the_evaluation(log: ClickLog) -> None:
    ranker = FairRanker(3.0, **PLAIN).fit(log)
    found = fultr.evaluate(ranker, log, intervals=None)
    assert ranker.training_utility_ == pytest.approx(found.dcg, abs=1e-8)
    assert ranker.training_disparity_ == pytest.approx(abs(found.disparity), abs=1e-8)


def test_a_larger_weight_is_fairer_and_less_useful() -> None:
    log = small_log()
    found = [FairRanker(weight, **PLAIN).fit(log) for weight in (0.0, 0.3, 10.0)]
    assert (np.diff([ranker.training_disparity_ for ranker in found]) < 0).all()
    assert (np.diff([ranker.training_utility_ for ranker in found]) < 0).all()
    np.testing.assert_array_equal(
        FairRanker(**PLAIN).fit(log).predict(log.data), FairRanker(1.0, **PLAIN).fit(log).predict(log.data)
    )


# --- position bias and noise ---


def test_the_position_bias_comes_from_the_settings_the_log_or_propensities(log: ClickLog) -> None:
    other = PositionBias.power(0.3)
    free: dict[str, Any] = {"l2": 0.01, "folds": 0}
    assert FairRanker(1.0, position_bias=other, **free).fit(log).position_bias_ == other
    assert FairRanker(1.0, **free).fit(log).position_bias_ == BIAS
    bare = replace(log, position_bias=None)
    with pytest.raises(InputError, match="column 'position_bias'.*give them .position_bias="):
        FairRanker(1.0, **free).fit(bare)
    page = random_log(random_lists(), top_k=4)
    shown = np.where(page.position > 0, BIAS.at(page.position), np.nan)
    ranker = FairRanker(1.0, **free).fit(replace(page, position_bias=None, propensity=shown))
    np.testing.assert_allclose(ranker.position_bias_.at([1, 2, 4, 5]), [1, 0.5, 0.25, 0])


def test_logged_propensities_weigh_clicks_before_any_bias(log: ClickLog) -> None:
    steep = replace(log, propensity=np.where(log.position > 0, 1 / np.maximum(log.position, 1) ** 2, np.nan))
    ranker = FairRanker(0.0, **PLAIN).fit(steep)
    expected = fultr.evaluate(ranker, steep, position_bias=BIAS, intervals=None).dcg
    assert ranker.training_utility_ == pytest.approx(expected, abs=1e-8)
    assert ranker.training_utility_ != pytest.approx(
        FairRanker(0.0, **PLAIN).fit(log).training_utility_, rel=0.01
    )


def test_noise_comes_from_the_settings_or_the_log() -> None:
    noise = ClickNoise(0.9, 0.2)
    log = random_log(learnable(), impressions=2000, noise=noise)
    assert log.noise == noise
    ranker = FairRanker(1.0, **PLAIN).fit(log)
    assert ranker.noise_ == noise
    found = fultr.evaluate(ranker, log, noise=noise, intervals=None)
    assert ranker.training_disparity_ == pytest.approx(abs(found.disparity), abs=1e-8)
    other = ClickNoise(1.0, 0.1)
    assert FairRanker(1.0, noise=other, **PLAIN).fit(log).noise_ == other
    assert FairRanker(1.0, noise=ClickNoise(), **PLAIN).fit(log).noise_ is None
    assert FairRanker(1.0, noise=noise, **PLAIN).fit(learnable()).noise_ is None
    with pytest.raises(InputError, match="noise cannot be corrected"):
        FairRanker(1.0, **PLAIN).fit(log.drop_empties())


# --- validation ---


def test_disparity_within_its_noise_is_not_chased(log: ClickLog) -> None:
    useful = FairRanker(0.0).fit(log)
    limit = useful.training_disparity_ / 2
    given: list[dict[str, Any]] = [{"fairness_weight": 2.0}, {"min_utility": 0.9}, {"max_disparity": limit}]
    for settings in given:
        with pytest.warns(fultr.FultrWarning, match="on left-out clicks.*is within its noise"):
            kept = FairRanker(**settings).fit(log)
        np.testing.assert_array_equal(kept.predict(log.data), useful.predict(log.data))
    # one cost of large parameters asks for the best of an objective
    assert FairRanker(2.0, l2=0.01).fit(log).multiplier_ == 2.0
    assert FairRanker(max_disparity=limit, l2=0.01).fit(log).training_disparity_ <= limit


def test_policies_are_judged_on_clicks_given_or_left_out(
    log: ClickLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_ranker, "PAPER", PaperSettings(validate_every=20, most_steps=100))
    valid = random_log(learnable(seed=3), impressions=300, seed=1)
    given = FairRanker(1.0, l2=0.01).fit(log, valid=valid)
    np.testing.assert_array_equal(
        given.predict(log.data), FairRanker(1.0, **PLAIN).fit(log).predict(log.data)
    )
    assert validation_of(given)["queries"] == 24
    interval = validation_of(given)["intervals"]["disparity"]
    assert interval[0] <= validation_of(given)["disparity"] <= interval[1]
    folded = FairRanker(1.0, l2=0.01, folds=3).fit(log)
    np.testing.assert_array_equal(folded.predict(log.data), given.predict(log.data))
    assert validation_of(folded)["queries"] == 24
    assert validation_of(folded)["dcg"] < folded.training_utility_
    split = FairRanker(1.0, l2=0.01, valid_share=0.25, protocol="paper").fit(log)
    assert validation_of(split)["queries"] == 6
    # an audit must recognise the queries of both parts
    np.testing.assert_array_equal(split.training_queries_, query_digests(log.data))
    assert FairRanker(1.0, l2=0.01, folds=0).fit(log).validation_ is None
    labelled = FairRanker(1.0, l2=0.01).fit(log, valid=learnable(seed=3))
    assert validation_of(labelled)["ndcg"] is not None


def test_networks_stop_where_validation_is_best(log: ClickLog) -> None:
    valid = random_log(learnable(seed=3), impressions=300, seed=1)
    costs = [1e-4, 1e-2]
    stopped = FairRanker(0.0, model="mlp", l2=costs).fit(log, valid=valid)
    ends = [FairRanker(0.0, model="mlp", l2=cost).fit(log, valid=valid) for cost in costs]
    # a single cost asks for the best on the training clicks; a choice is made by validation clicks
    assert validation_of(stopped)["dcg"] > max(validation_of(end)["dcg"] for end in ends)
    assert stopped.training_utility_ < max(end.training_utility_ for end in ends)
    swept = fultr.sweep(log, valid=valid, model="mlp", l2=costs, fairness_weights=[0.0])
    np.testing.assert_array_equal(swept.ranker(swept.chosen[0]).predict(log.data), stopped.predict(log.data))


def test_validation_clicks_may_name_groups_in_another_order(log: ClickLog) -> None:
    data = learnable(seed=3)
    swapped = replace(data, group=1 - data.group, group_names=("group 1", "group 0"))
    found = [
        validation_of(FairRanker(5.0).fit(log, valid=random_log(one)))["disparity"] for one in (data, swapped)
    ]
    assert found[0] == pytest.approx(found[1])
    with pytest.raises(InputError, match="no such group"):
        FairRanker(5.0).fit(log, valid=random_log(replace(data, group_names=("group 0", "x"))))


def test_validation_clicks_must_have_the_same_features(log: ClickLog) -> None:
    with pytest.raises(InputError, match="column 'valid'"):
        FairRanker(1.0).fit(log, valid=random_log(random_lists(width=3)))
    valid = learnable(seed=3)
    turned = replace(valid, features=valid.features[:, ::-1], feature_names=valid.feature_names[::-1])
    found = [validation_of(FairRanker(1.0).fit(log, valid=random_log(one)))["dcg"] for one in (valid, turned)]
    assert found[0] == found[1]
    # names that the training clicks do not have may be the same features, as long as they have numbers only
    named = random_log(replace(learnable(), feature_names=("a", "b", "c", "d")))
    with pytest.raises(InputError, match="column 'valid'.*column 'd': the column is missing"):
        FairRanker(1.0).fit(named, valid=random_log(replace(valid, feature_names=("a", "b", "c", "e"))))


def test_the_cost_of_large_parameters_is_chosen_on_validation_clicks(log: ClickLog) -> None:
    valid = random_log(learnable(seed=3), impressions=3000, seed=1)
    costs = [0.001, 0.1, 3.0]
    chosen = FairRanker(0.0, l2=costs).fit(log, valid=valid)
    ready = prepare(chosen, log.compact(), valid.compact())
    value = {}
    for cost in costs:
        scores = FairRanker(0.0, l2=cost).fit(log, valid=valid).predict(ready.valid.data)
        value[cost] = best_temperature(ready.valid_task, scores)[1]
    assert chosen.l2_ == max(value, key=lambda cost: value[cost])
    assert validation_of(chosen)["dcg"] == pytest.approx(max(value.values()), rel=1e-3)


def test_without_left_out_clicks_there_is_nothing_to_choose(log: ClickLog) -> None:
    promised = {"l2": 0.1, "max_disparity": 1.0, "fairness": "offsets"}
    given: list[dict[str, Any]] = [{}, {"l2": [0.1, 0.2]}, promised]
    for settings in given:
        with pytest.raises(InputError, match="column 'folds'"):
            FairRanker(folds=0, **settings).fit(log)
    with pytest.raises(InputError, match="column 'valid_share'"):
        FairRanker(1.0, protocol="paper", valid_share=0).fit(log)
    with pytest.raises(InputError, match="column 'valid_share'.*is for the paper's protocol.*folds"):
        FairRanker(1.0, valid_share=0.2).fit(log)


# --- models ---


class Twice(nn.Module):
    """Two layers that return a column; dropout is to be left out in training."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator)
        self.dropout = nn.Dropout(0.5)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.second(self.dropout(torch.tanh(self.first(features))))  # type: ignore[no-any-return]


def test_any_module_can_be_trained(log: ClickLog) -> None:
    module = Twice()
    ranker = FairRanker(1.0, model=module, **PLAIN).fit(log)
    again = FairRanker(1.0, model=module, **PLAIN).fit(log)
    np.testing.assert_array_equal(ranker.predict(log.data), again.predict(log.data))
    assert (
        ranker.training_utility_ > 1.02 * FairRanker(1.0, **{**PLAIN, "l2": 1e4}).fit(log).training_utility_
    )
    assert isinstance(ranker.scorer_.scorer, Twice)
    assert ranker.scorer_.scorer is not module


def test_a_linear_module_is_trained_like_the_linear_model(log: ClickLog) -> None:
    module = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        module.weight.zero_()
    found, expected = scores(log, model=module), scores(log)
    # the module sees the mean taken off, which shifts all scores of a list alike
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=5e-3)


@pytest.mark.parametrize(
    "module", [nn.Linear(3, 1), nn.Linear(4, 2), nn.Linear(4, 1).double(), nn.Identity()]
)
def test_modules_that_do_not_fit_are_refused(log: ClickLog, module: nn.Module) -> None:
    with pytest.raises(InputError, match="column 'model'"):
        FairRanker(1.0, model=module, **PLAIN).fit(log)


def test_networks_have_the_layers_asked_for(log: ClickLog) -> None:
    assert FairRanker(1.0, model="mlp", **PLAIN).fit(log).scorer_.scorer.hidden == (2,)
    assert FairRanker(1.0, model="mlp", hidden=[5, 3], **PLAIN).fit(log).scorer_.scorer.hidden == (5, 3)
    one, other = (scores(log, model="mlp", seed=seed) for seed in (0, 1))
    assert not np.allclose(one, other)


@pytest.mark.parametrize("model", ["linear", "mlp", "module"])
def test_group_blind_scorers_see_no_group(log: ClickLog, model: str) -> None:
    chosen = Twice() if model == "module" else model
    ranker = FairRanker(1.0, model=chosen, group_blind=True, **PLAIN).fit(log)
    test = learnable(seed=9)
    other = test.features.copy()
    other[:, 3] = 1e6
    np.testing.assert_array_equal(ranker.predict(test), ranker.predict(replace(test, features=other)))
    seeing = FairRanker(1.0, model=chosen, **PLAIN).fit(log)
    assert not np.array_equal(seeing.predict(test), seeing.predict(replace(test, features=other)))


def test_features_far_from_zero_are_learned_as_well(log: ClickLog) -> None:
    ranker = FairRanker(3.0, scale_features=True, **PLAIN).fit(log)
    for shift, scale in ((1e4, 1.0), (0.0, 1e4), (-300.0, 1e-3)):
        moved = replace(
            log, data=replace(log.data, features=log.data.features * np.float32(scale) + np.float32(shift))
        )
        found = FairRanker(3.0, scale_features=True, **PLAIN).fit(moved)
        tolerance = 0.02 if shift and scale < 1 else 2e-3  # what float32 left of the features
        assert found.training_utility_ == pytest.approx(ranker.training_utility_, rel=tolerance)


def test_features_are_left_as_they_are_if_asked(log: ClickLog) -> None:
    ranker = FairRanker(3.0, scale_features=False, **PLAIN).fit(log)
    assert ranker.scorer_.mean.tolist() == [0.0] * 4
    weight = ranker.scorer_.scorer.state_dict()["weight"].double().numpy()
    test = learnable(seed=9)
    np.testing.assert_allclose(ranker.predict(test), test.features.astype(np.float64) @ weight, atol=1e-5)


# --- what is maximised ---


def test_utilities_other_than_dcg(log: ClickLog) -> None:
    ranks = FairRanker(0.0, utility="average_rank", **PLAIN).fit(log)
    own = FairRanker(0.0, utility=-np.arange(1.0, 7.0), **PLAIN).fit(log)
    # average rank is the weight -k, up to a constant
    one, other = ranks.predict(log.data), own.predict(log.data)
    np.testing.assert_allclose(one, other, atol=1e-3)
    assert not np.allclose(one, FairRanker(0.0, **PLAIN).fit(log).predict(log.data), atol=0.05)
    first = FairRanker(0.0, top_k=1, **PLAIN).fit(log)
    weights = np.array([1.0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(
        first.predict(log.data),
        FairRanker(0.0, utility=weights, **PLAIN).fit(log).predict(log.data),
        atol=1e-3,
    )
    with pytest.raises(InputError, match="weights for 2 positions only"):
        FairRanker(0.0, utility=np.ones(2), **PLAIN).fit(log)


def test_clicks_can_be_left_unweighted(log: ClickLog) -> None:
    # a log that says that everything was seen weighs every click as one, exactly
    seen = replace(log, propensity=(log.position > 0).astype(np.float64))
    flat = FairRanker(1.0, **PLAIN).fit(seen)
    naive = FairRanker(1.0, utility_ips=False, disparity_ips=False, **PLAIN).fit(log)
    np.testing.assert_array_equal(naive.predict(log.data), flat.predict(log.data))
    assert naive.training_utility_ == flat.training_utility_
    assert naive.training_disparity_ == flat.training_disparity_
    assert not np.allclose(naive.predict(log.data), FairRanker(1.0, **PLAIN).fit(log).predict(log.data))
    # for the disparity alone: utility is the weighted one, exposure that of the bias
    mixed = FairRanker(0.0, disparity_ips=False, **PLAIN).fit(log)
    whole = FairRanker(0.0, **PLAIN).fit(log)
    np.testing.assert_array_equal(mixed.predict(log.data), whole.predict(log.data))
    assert mixed.training_utility_ == whole.training_utility_
    assert mixed.training_disparity_ != pytest.approx(whole.training_disparity_, rel=0.01)
    clipped = FairRanker(1.0, clip=1.0, **PLAIN).fit(log)
    assert clipped.training_utility_ == pytest.approx(naive.training_utility_, rel=1e-3)


def test_merit_is_estimated_as_asked_for() -> None:
    few = random_log(learnable(), impressions=30)
    found = {}
    for name, estimate in ESTIMATORS.items():
        ranker = FairRanker(1.0, evidence=name, **PLAIN).fit(few)
        evidence, data = estimate(few.compact(), ranker.position_bias_), few.compact().data
        tables = dcg_weights(int(data.lengths.max()), None)[None]
        scores = torch.from_numpy(ranker.predict(data).astype(np.float64))
        (value,) = expected_weights(scores, tables, offsets=data.offsets, accuracy="double")
        assert ranker.training_utility_ == pytest.approx(float(utility(value, evidence)), rel=1e-5)
        found[name] = ranker.training_utility_
    assert len({round(one, 6) for one in found.values()}) == 3
    np.testing.assert_array_equal(FairRanker(1.0, **PLAIN).fit(few).training_utility_, found["ips"])


def test_an_entropy_bonus_fades_out(log: ClickLog) -> None:
    stages: list[StepReached] = []
    ranker = FairRanker(1.0, entropy_weight=1.0, **PLAIN).fit(log, watch=stages.append)
    plain = FairRanker(1.0, **PLAIN).fit(log)
    assert ranker.training_utility_ == pytest.approx(plain.training_utility_, rel=2e-3)
    assert {stage.stage for stage in stages} == {f"penalised-0-{turn}" for turn in range(8)}
    assert all(stage.iterations > 0 and stage.disparity >= 0 for stage in stages)


# --- what is refused ---


@pytest.mark.parametrize(
    "settings",
    [
        {"fairness_weight": -1.0},
        {"fairness_weight": np.nan},
        {"fairness_weight": "1"},
        {"fairness_weight": True},
        {"max_disparity": -1},
        {"min_utility": 0.0},
        {"min_utility": 1.5},
        {"model": "svm"},
        {"model": 3},
        {"model": "mlp", "hidden": []},
        {"model": "mlp", "hidden": [0]},
        {"model": "mlp", "hidden": 5},
        {"model": "mlp", "hidden": "ab"},
        {"position_bias": 1.0},
        {"noise": 0.1},
        {"utility": "precision"},
        {"utility": [1.0, np.nan, 0, 0, 0, 0]},
        {"top_k": 0},
        {"top_k": 2.5},
        {"clip": 0.0},
        {"clip": "1"},
        {"evidence": "magic"},
        {"evidence": ["ips"]},
        {"evidence": None},
        {"protocol": "paper", "evidence": "pooled"},
        {"group_blind": "no"},
        {"utility_ips": 1},
        {"disparity_ips": None},
        {"scale_features": "no"},
        {"l2": -1.0},
        {"l2": []},
        {"l2": [0.1, np.inf]},
        {"l2": "0.1"},
        {"l2": [[0.1]]},
        {"entropy_weight": -1.0},
        {"protocol": "adam"},
        {"valid_share": 1.0},
        {"valid_share": -0.1},
        {"valid_share": "a fifth"},
        {"folds": 1},
        {"seed": -1},
        {"seed": 0.5},
    ],
    ids=str,
)
def test_bad_settings_are_refused_by_name(log: ClickLog, settings: dict[str, Any]) -> None:
    wrong = list(settings)[-1]
    with pytest.raises(InputError, match=f"column '{wrong}'") as caught:
        FairRanker(**{**PLAIN, "folds": 4, **settings}).fit(log)
    assert "\n" not in str(caught.value)


def test_only_one_goal_can_be_given(log: ClickLog) -> None:
    for goals in (("fairness_weight", "max_disparity"), ("max_disparity", "min_utility")):
        with pytest.raises(InputError, match="give only one of"):
            FairRanker(**{**PLAIN, **dict.fromkeys(goals, 0.5)}).fit(log)
    with pytest.raises(InputError, match="column 'max_disparity'.*fairness weight only .fairness_weight="):
        FairRanker(max_disparity=0.1, protocol="paper").fit(log)


def test_a_log_without_its_empty_impressions_cannot_be_limited(log: ClickLog) -> None:
    dropped = log.drop_empties()
    for source in (dropped, dropped.compact()):
        with pytest.raises(InputError, match="column 'max_disparity'.*only up to a factor"):
            FairRanker(max_disparity=0.1, **PLAIN).fit(source)
    for goal in ({"fairness_weight": 1.0}, {"min_utility": 0.95}):
        assert np.isfinite(FairRanker(**{**PLAIN, **goal}).fit(dropped).training_disparity_)


def test_the_paper_needs_single_impressions(log: ClickLog) -> None:
    with pytest.raises(InputError, match="needs single impressions"):
        FairRanker(1.0, protocol="paper", position_bias=BIAS, l2=0.0).fit(log.compact())


def test_lists_without_features_or_relevance_are_refused() -> None:
    data = learnable()
    with pytest.raises(InputError, match="no relevance"):
        FairRanker(1.0, **PLAIN).fit(replace(data, relevance=None))
    bare = RankingDataset(np.empty((data.rows, 0)), data.offsets, relevance=data.relevance)
    with pytest.raises(InputError, match="no features"):
        FairRanker(1.0, **PLAIN).fit(bare)


def test_features_can_be_scored_without_lists(log: ClickLog) -> None:
    ranker, test = FairRanker(1.0, **PLAIN).fit(log), learnable(seed=9)
    expected = ranker.predict(test)
    names = list(log.data.feature_names)
    frame = pandas.DataFrame(test.features, columns=names)
    for given in (test.features, test.features.tolist(), frame, polars.from_pandas(frame)):
        np.testing.assert_allclose(ranker.predict(given), expected, atol=1e-6)
    np.testing.assert_allclose(ranker.predict(frame[names[::-1]]), expected, atol=1e-6)
    for wrong in (test.features[:, :3], test.features[0], "features"):
        with pytest.raises(InputError):
            ranker.predict(wrong)


def test_evaluation_uses_the_bias_of_the_training(log: ClickLog) -> None:
    ranker, test = FairRanker(1.0, **PLAIN).fit(log), learnable(seed=9)
    found = ranker.evaluate(test, intervals=None)
    assert found.disparity == fultr.evaluate(ranker, test, position_bias=BIAS, intervals=None).disparity
    with pytest.raises(NotFittedError):
        FairRanker(1.0).evaluate(test)


def test_bare_features_are_one_list(log: ClickLog) -> None:
    ranker = FairRanker(1.0, l2=0.1).fit(log)
    rows = log.data.features[:5]
    positions = ranker.rank(rows)
    assert np.argsort(positions).tolist() == np.argsort(-ranker.predict(rows), kind="stable").tolist()
    assert ranker.sample_rankings(rows, 3, seed=1).shape == (3, 5)
    with pytest.raises(InputError, match=r"column 'n': must be an integer, 1 or more \(got 1.5\)"):
        ranker.sample_rankings(rows, 1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="column 'seed'"):
        ranker.sample_rankings(rows, seed=-1)
    with pytest.raises(InputError, match="give its lists"):
        ranker.predict(log)
