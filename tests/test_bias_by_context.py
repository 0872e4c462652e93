"""A position bias for each context, and estimates, wherever a position bias is taken."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import fultr
from fultr import (
    BiasEstimate,
    Counts,
    FairRanker,
    FultrWarning,
    InputError,
    PositionBias,
    PositionBiasByContext,
    RandomRanking,
    count,
    estimate_bias,
    read_position_bias,
    write_bias,
)
from fultr.audits import audit
from fultr.clicks import judge_readiness
from fultr.clicks.examination import with_examination
from fultr.data.merging import merge_contexts
from tests.commands import json_of, refusal, result_of
from tests.device_log import CANDIDATES, device_log, jobs_of

Array = NDArray[np.float64]

DESK, PHONE = PositionBias.power(0.7), PositionBias.power(1.6)
CURVES = {"desk": DESK, "phone": PHONE}
BY_DEVICE = PositionBiasByContext("device", CURVES)
HABIT = 0.9
"""How much a search is made on one of the devices."""


@cache
def board(impressions: int = 3_000, seed: int = 0) -> Counts:
    return count(device_log(CURVES, impressions, habit=HABIT, seed=seed), context="device")


def written_log(path: Path, impressions: int = 1_500, seed: int = 0) -> Path:
    pq.write_table(device_log(CURVES, impressions, habit=HABIT, searches=20, seed=seed), path)
    return path


# the curves


def test_the_mean_curve_is_weighted_by_impressions() -> None:
    weighed = board().with_bias_by_context(BY_DEVICE)
    phones = board().impressions[board().context == 1].sum() / board().impressions.sum()
    positions = np.arange(1, CANDIDATES + 1)
    expected = phones * PHONE.at(positions) + (1 - phones) * DESK.at(positions)
    assert weighed.position_bias is not None
    np.testing.assert_allclose(weighed.position_bias.at(positions), expected)
    # it goes on as steeply as it ends
    further = phones * PHONE.at([55]) + (1 - phones) * DESK.at([55])
    np.testing.assert_allclose(weighed.position_bias.at([55]), further, rtol=0.01)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (PositionBias([1, 0.5]), PositionBias([1, 0.5, 0.3]), PositionBias([1, 0.5, 0.15])),
        (
            PositionBias([1, 0.5, 0.4]),
            PositionBias.power(1),
            PositionBias([1, 0.5, (0.4 + 1 / 3) / 2, 1 / 8], beyond=1.0),
        ),
        (
            PositionBias([1, 0.5], beyond="zero"),
            PositionBias([1, 0.4, 0.2], beyond="zero"),
            PositionBias([1, 0.45, 0.1, 0], beyond="zero"),
        ),
        (
            PositionBias([1, 0.5], beyond="zero"),
            PositionBias.power(2),
            PositionBias([1, 0.375, 1 / 18, 1 / 32], beyond=2.0),
        ),
    ],
)
def test_curves_that_end_differently_have_a_mean(
    one: PositionBias, other: PositionBias, expected: PositionBias
) -> None:
    mean = PositionBiasByContext("device", {"a": one, "b": other}).mean({"a": 5, "b": 5}, longest=4)
    assert mean.values == pytest.approx(expected.values)
    assert mean.beyond == expected.beyond


def test_each_cell_has_the_propensity_of_its_context_and_logged_ones_stay() -> None:
    weighed = board().with_bias_by_context(BY_DEVICE)
    cells, context = weighed.cells, weighed.context
    assert cells.propensity is not None
    assert context is not None
    device = context[weighed.data.list_of_row[cells.row]]
    for code, curve in enumerate(CURVES.values()):
        np.testing.assert_allclose(cells.propensity[device == code], curve.at(cells.position[device == code]))
    logged = replace(cells, propensity=np.full(cells.row.size, 0.5))
    again = replace(board(), cells=logged).with_bias_by_context(BY_DEVICE)
    assert again.cells.propensity is not None
    assert (again.cells.propensity == 0.5).all()


def test_a_short_page_needs_no_longer_curve() -> None:
    both = fultr.merge(
        count(device_log({"phone": PHONE}, 50, shown=(5, 5)), context="device"),
        count(device_log({"desk": DESK}, 50, shown=(9, 9), seed=1), context="device"),
    )
    bias = PositionBiasByContext("device", {"phone": PositionBias([1, 0.5, 0.3, 0.2, 0.1]), "desk": DESK})
    both.with_bias_by_context(bias)
    shorter = PositionBiasByContext("device", {**bias.curves, "phone": PositionBias([1, 0.5])}, file="b.json")
    with pytest.raises(
        InputError, match=r"b.json, column 'device': position 5 lies beyond .* \(got 'phone'\)"
    ):
        both.with_bias_by_context(shorter)


def test_values_and_columns_that_do_not_match_are_named() -> None:
    lacking = PositionBiasByContext("device", {"desk": DESK}, file="bias.json")
    with pytest.raises(InputError, match=r"bias.json, column 'device': .* no curve .* \(got 'phone'\)"):
        board().with_bias_by_context(lacking)
    with pytest.raises(InputError, match="column 'browser': .* was not counted by it"):
        board().with_bias_by_context(PositionBiasByContext("browser", CURVES))
    none: list[Any] = [{}, None, [DESK]]
    for curves in none:
        with pytest.raises(InputError, match="needs a curve for each value"):
            PositionBiasByContext("device", curves)
    with pytest.raises(InputError, match="name of a column"):
        PositionBiasByContext("", CURVES)


def test_it_comes_back_from_its_dictionary_and_its_file(tmp_path: Path) -> None:
    assert PositionBiasByContext.from_dict(BY_DEVICE.to_dict()) == BY_DEVICE
    path = tmp_path / "bias.json"
    path.write_text(json.dumps(BY_DEVICE.to_dict()))
    assert read_position_bias(path) == BY_DEVICE
    path.write_text(json.dumps({"values": [1, 0.5]}))
    assert read_position_bias(path) == PositionBias([1, 0.5])
    one: dict[str, Any] = {"column": "device", "curves": {"desk": {}}}
    wrongs: list[dict[str, Any]] = [{"curves": []}, one, {"column": 1, "curves": {}}]
    for wrong in wrongs:
        path.write_text(json.dumps(wrong))
        with pytest.raises(InputError, match="bias.json"):
            read_position_bias(path)


def test_estimates_of_contexts_go_to_one_file_and_come_back(tmp_path: Path) -> None:
    found = estimate_bias(board(), "harvest", randomised=True, context="device", resamples=100)
    write_bias(found, tmp_path / "bias.json")
    assert repr(read_position_bias(tmp_path / "bias.json")) == repr(
        PositionBiasByContext("device", found, file=str(tmp_path / "bias.json"))
    )
    one = found["desk"]
    with pytest.raises(InputError, match="must name one column"):
        write_bias({"desk": replace(one, context=None)}, tmp_path / "other.json")


def test_values_of_an_estimate_that_someone_changed_count(tmp_path: Path) -> None:
    found = estimate_bias(board(), "harvest", randomised=True, resamples=100).with_tail()
    write_bias(found, tmp_path / "bias.json")
    read = read_position_bias(tmp_path / "bias.json")
    assert isinstance(read, BiasEstimate)
    content = json.loads((tmp_path / "bias.json").read_text())
    for changed in ({"values": [1.0, 0.9]}, {"beyond": "zero"}, {"beyond": 3.0}):
        (tmp_path / "bias.json").write_text(json.dumps({**content, **changed}))
        expected = PositionBias.from_dict({**content, **changed})
        assert read_position_bias(tmp_path / "bias.json") == expected


# what they are for


def error_of(counts: Counts, weights: Array) -> float:
    """Return by how much the weights of jobs in phone searches exceed their relevance, relative to that."""
    jobs = jobs_of(30)
    true = dict(zip(jobs.doc_id.ravel().tolist(), jobs.attraction.ravel().tolist(), strict=True))
    names = np.asarray(counts.data.doc_id).tolist()
    expected = counts.shown() * np.array([true[str(name)] for name in names])
    of_phones = np.array([int(str(name)[2:5]) % 2 == 1 for name in names])
    return float((weights - expected)[of_phones].sum() / expected[of_phones].sum())


@pytest.mark.statistical
def test_weights_by_device_are_unbiased_where_one_curve_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Phones have a steeper curve: under one curve, what is searched on phones seems less relevant."""
    by_device, pooled, estimated = [], [], []
    for seed in range(20):
        log, bias = tmp_path / "log.parquet", tmp_path / "bias.json"
        pq.write_table(device_log(CURVES, 2_000, habit=HABIT, seed=seed), log)
        counts = count(log, context="device")
        weighed = counts.with_bias_by_context(BY_DEVICE)
        by_device.append(error_of(counts, weighed.ips_weights()))
        pooled.append(error_of(counts, counts.ips_weights(weighed.position_bias)))
        json_of(
            capsys,
            *("propensity", log, "--by", "device", "--method", "harvest", "--randomised", "--tail", "power"),
            *("--out", bias),
        )
        file = read_position_bias(bias)
        assert isinstance(file, PositionBiasByContext)
        estimated.append(error_of(counts, counts.with_bias_by_context(file).ips_weights()))

    def standard_errors(errors: list[float]) -> float:
        return float(np.mean(errors) / (np.std(errors, ddof=1) / np.sqrt(len(errors))))

    assert abs(standard_errors(by_device)) < 3
    assert standard_errors(pooled) < -10
    assert np.mean(pooled) < -0.2
    assert abs(standard_errors(estimated)) < 3
    assert abs(np.mean(estimated)) < abs(np.mean(pooled)) / 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["by device", "estimates by device", "estimate"])
def test_rankers_sweeps_evaluations_and_audits_take_any_kind(kind: str) -> None:
    bias: Any = BY_DEVICE
    if kind == "estimate":
        bias = estimate_bias(board(), "harvest", randomised=True, resamples=100).with_tail()
    elif kind == "estimates by device":
        found = estimate_bias(board(), "harvest", randomised=True, context="device", resamples=100)
        bias = PositionBiasByContext("device", {name: one.with_tail() for name, one in found.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FultrWarning)
        weighed, curve = with_examination(board(), bias)
        ranker = FairRanker(1.0, position_bias=bias, l2=0.1).fit(board())
        evaluated = fultr.evaluate(RandomRanking(), board(), position_bias=bias, intervals=None)
        swept = fultr.sweep(board(), fairness_weights=[1.0], position_bias=bias, l2=[0.1])
        audited = audit(board(), position_bias=bias, resamples=50)
        readiness = judge_readiness(board(), bias)
    assert curve is not None
    assert ranker.position_bias_ == board().on_page(curve)
    expected = FairRanker(1.0, position_bias=curve, l2=0.1).fit(weighed)
    np.testing.assert_allclose(ranker.predict(board().data), expected.predict(board().data), atol=1e-9)
    plain = fultr.evaluate(RandomRanking(), weighed, position_bias=curve, intervals=None)
    assert repr(evaluated.to_dict()) == repr(plain.to_dict())
    assert swept.points[0].train_utility == pytest.approx(ranker.training_utility_, rel=1e-4)
    assert audited.position_bias == board().on_page(curve)
    expected_utility = audit(weighed, position_bias=curve, resamples=50).logged.utility.value
    assert audited.logged.utility.value == pytest.approx(expected_utility)
    assert curve is not None
    assert readiness.facts["examination"] == {
        "source": "given",
        "position_bias": curve.to_dict(),
        "context": None if kind == "estimate" else "device",
        "problem": None,
    }
    weights = None if kind != "estimate" else curve
    assert readiness.facts["weights"] == judge_readiness(weighed, weights).facts["weights"]
    with pytest.raises(InputError, match="column 'position_bias': must be a PositionBias, a BiasEstimate or"):
        FairRanker(position_bias={"device": DESK}).fit(board())  # type: ignore[arg-type]


def test_validation_clicks_are_weighed_by_their_context_too() -> None:
    valid = count(device_log(CURVES, 800, habit=HABIT, seed=9), context="device")
    ranker = FairRanker(1.0, position_bias=BY_DEVICE, l2=[0.01, 0.1]).fit(board(), valid=valid)
    weighed = merge_contexts(valid.with_bias_by_context(BY_DEVICE))
    found = fultr.evaluate(ranker, weighed, position_bias=ranker.position_bias_)
    assert ranker.validation_ is not None
    assert ranker.validation_["dcg"] == pytest.approx(found.dcg)


def test_what_does_not_tell_contexts_apart_is_refused() -> None:
    table = device_log(CURVES, 100)
    with pytest.raises(InputError, match="column 'device': .* was not counted by it"):
        FairRanker(position_bias=BY_DEVICE, l2=0.1).fit(count(table))
    lists = fultr.datasets.synthetic(queries=10).train
    with pytest.raises(InputError, match="column 'position_bias': has a curve for each device"):
        fultr.evaluate(RandomRanking(), lists, position_bias=BY_DEVICE)
    with pytest.raises(InputError, match="single impressions and labelled lists do not tell apart"):
        FairRanker(1.0, position_bias=BY_DEVICE, protocol="paper").fit(fultr.read_log(table))


@pytest.mark.slow
def test_a_policy_says_that_it_keeps_only_the_mean_of_its_curves(tmp_path: Path) -> None:
    ranker = FairRanker(1.0, position_bias=BY_DEVICE, l2=0.1).fit(board())
    fultr.save(ranker, tmp_path / "policy.safetensors")
    loaded = fultr.load(tmp_path / "policy.safetensors")
    assert loaded.bias_context_ == "device"
    other = count(device_log(CURVES, 300, seed=5), context="device")
    with pytest.warns(FultrWarning, match="each device, and clicks are weighed by the mean"):
        loaded.evaluate(other, intervals=None)
    with pytest.warns(FultrWarning, match="a position bias for each device"):
        audit(other, {"policy": loaded}, resamples=50)
    loaded.evaluate(other, position_bias=BY_DEVICE, intervals=None)
    loaded.evaluate(other.with_bias_by_context(BY_DEVICE), intervals=None)
    plain = FairRanker(1.0, position_bias=DESK, l2=0.1).fit(board())
    assert plain.bias_context_ is None
    plain.evaluate(other, intervals=None)


# few clicks


@cache
def few_clicks(tail: str = "power") -> BiasEstimate:
    counts = count(device_log({"any": PositionBias.power(1.0)}, 500))
    found = estimate_bias(counts, "harvest", randomised=True, resamples=200)
    return found.with_tail(tail)  # type: ignore[arg-type]


def test_positions_that_rest_on_few_clicks_are_warned_of() -> None:
    found = few_clicks()
    imprecise = found.imprecise_positions(found.deepest)
    assert imprecise
    # beyond the log, a power law rests on nothing
    beyond = tuple(range(found.deepest + 1, CANDIDATES + 1))
    assert found.imprecise_positions(CANDIDATES) == (*imprecise, *beyond)
    assert set(found.insufficient) < set(imprecise)
    for position in set(imprecise) - set(found.insufficient):
        assert found.high[position - 1] - found.low[position - 1] > found.values[position - 1]
    assert not found.imprecise_positions(1)
    with pytest.warns(FultrWarning, match=f"is imprecise at position.* {imprecise[-1]} .*clicks at each"):
        with_examination(board(), found)
    with pytest.warns(FultrWarning, match="the position bias of device phone is imprecise"):
        with_examination(board(), PositionBiasByContext("device", {"phone": found, "desk": DESK}))
    short = board().data
    lists = fultr.RankingDataset(short.features[:2], [0, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_examination(lists, found)  # short lists do not reach them
        with_examination(board(), found.to_position_bias())
    # without intervals, it is the number of clicks that counts
    unknown = (np.nan,) * len(found.values)
    blind = replace(found, low=unknown, high=unknown, standard_error=unknown)
    assert set(blind.imprecise_positions(found.deepest)) <= {
        position for position, clicks in enumerate(found.clicks, start=1) if clicks < 16
    }


# commands


@pytest.mark.slow
def test_commands_take_one_file_for_all_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, bias, run = written_log(tmp_path / "log.parquet"), tmp_path / "bias.json", tmp_path / "run"
    bias.write_text(json.dumps(BY_DEVICE.to_dict()))
    trained = json_of(capsys, "train", log, "--bias", bias, "--lambda", 1, "--l2", 0.1, "--out", run)
    counts = count(log, context="device")
    expected = FairRanker(1.0, position_bias=BY_DEVICE, l2=0.1).fit(counts)
    assert trained["training"]["utility"] == pytest.approx(expected.training_utility_)
    assert json.loads((run / "config.json").read_text())["settings"]["position_bias"] == BY_DEVICE.to_dict()
    evaluated = json_of(capsys, "evaluate", run, log, "--bias", bias)
    assert evaluated["dcg"] == pytest.approx(fultr.evaluate(expected, counts, position_bias=BY_DEVICE).dcg)
    audited = json_of(capsys, "audit", log, "--bias", bias)
    weighed = counts.with_bias_by_context(BY_DEVICE)
    assert weighed.position_bias is not None
    assert audited["position_bias"]["values"] == list(weighed.position_bias.values[:20])
    later = written_log(tmp_path / "later.parquet", seed=5)
    of_policy = json_of(capsys, "audit", later, "--policy", run, "--bias", bias)["rankings"]
    policy = next(one for one in of_policy if one["name"] != "logged")
    other = count(later, context="device")
    alone = audit(other, {"policy": expected}, position_bias=BY_DEVICE).rankings["policy"]
    assert policy["recurring_queries"] == alone.recurring_queries
    assert policy["disparity"]["value"] == pytest.approx(alone.disparity.value)
    inspected = json_of(capsys, "inspect", log, "--bias", bias)
    assert inspected["facts"]["examination"]["context"] == "device"
    assert (
        "a curve for each device; their mean is 1, " in result_of(capsys, "inspect", log, "--bias", bias)[1]
    )
    swept = ("sweep", log, "--bias", bias, "--lambdas", "1", "--l2", 0.1, "--out", tmp_path / "sweep")
    (policy,) = json_of(capsys, *swept)["policies"]
    assert policy["train_utility"] == pytest.approx(expected.training_utility_, rel=1e-4)
    code, _, err = result_of(capsys, "report", run, "--out", tmp_path / "report.html")
    assert code == 0
    assert "cannot be" not in err
    assert "differ" not in err
    assert "a curve for each device" in (tmp_path / "report.html").read_text()
    # a file of counts by device will do as well
    json_of(capsys, "count", log, "--context", "device", "--out", tmp_path / "counts.parquet")
    again = json_of(capsys, "evaluate", run, tmp_path / "counts.parquet", "--bias", bias)
    assert again["dcg"] == pytest.approx(evaluated["dcg"])


def test_commands_name_what_the_file_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, bias = written_log(tmp_path / "log.parquet", 200), tmp_path / "bias.json"
    bias.write_text(json.dumps({"column": "device", "curves": {"desk": DESK.to_dict()}}))
    for command in (("audit", log), ("inspect", log), ("train", log, "--out", tmp_path / "run")):
        line = refusal(capsys, *command, "--bias", bias)
        assert line.startswith(
            f"fultr: {bias}, column 'device': the position bias has no curve for this value"
        )
        assert "(got 'phone')" in line
    bias.write_text(json.dumps({"column": "browser", "curves": {"desk": DESK.to_dict()}}))
    assert "column 'browser': the column is missing" in refusal(capsys, "audit", log, "--bias", bias)
    json_of(capsys, "count", log, "--out", tmp_path / "counts.parquet")
    line = refusal(capsys, "audit", tmp_path / "counts.parquet", "--bias", bias)
    assert "counts.parquet, column 'browser'" in line
    assert "--context 'browser'" in line
    simulate = ("simulate", "german", "--clicks", 10, "--out", tmp_path / "s.parquet")
    for other in (("noise", log), simulate):
        assert f"{bias}: has a curve for each browser" in refusal(capsys, *other, "--bias", bias)
    line = refusal(capsys, "train", log, "--bias", bias, "--protocol", "paper", "--out", tmp_path / "run")
    assert "browser" in line


@pytest.mark.slow
def test_commands_warn_of_an_imprecise_file_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, bias = written_log(tmp_path / "log.parquet", 400), tmp_path / "bias.json"
    write_bias(few_clicks(), bias)
    train = ("train", log, "--lambda", 1, "--l2", 0.1, "--out", tmp_path / "run")
    sweep = ("sweep", log, "--lambdas", "1", "--l2", 0.1, "--out", tmp_path / "sweep")
    for command in (train, ("evaluate", tmp_path / "run", log), ("audit", log), ("inspect", log), sweep):
        code, _, err = result_of(capsys, *command, "--bias", bias)
        assert code == 0
        lines = [line for line in err.splitlines() if "is imprecise at position" in line]
        assert len(lines) == 1
        assert lines[0].startswith("fultr: warning: the position bias is imprecise")
