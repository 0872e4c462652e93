"""Estimates of position bias as values and as files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fultr import InputError, PositionBias, RandomRanking, datasets, simulate_clicks
from fultr.cli.options import position_bias
from fultr.clicks import BiasEstimate, GoodnessOfFit, estimate_bias_harvest, read_bias, write_bias
from fultr.clicks.bias_estimate import Tail

NAN = math.nan


def estimate(*values: float, eta: float = 1.0) -> BiasEstimate:
    size = len(values)
    return BiasEstimate(
        method="swap",
        values=values,
        low=tuple(value * 0.9 for value in values),
        high=tuple(value * 1.1 for value in values),
        raw=values,
        standard_error=(0.0, *(value * 0.05 for value in values[1:])),
        shape="monotone",
        level=0.95,
        impressions=(100,) * size,
        clicks=(20,) * size,
        pairs=(10,) * size,
        insufficient=tuple(place for place, value in enumerate(values, start=1) if math.isnan(value)),
        eta=eta,
        eta_low=eta - 0.1,
        eta_high=eta + 0.1,
        fit=GoodnessOfFit(2.0, 3.0, 0.5),
        power_fit=None,
        queries=30,
        resamples=1000,
        deepest=size,
        context=("device", "phone"),
        notes=("A note.",),
    )


def test_the_curve_ends_before_the_first_gap() -> None:
    assert estimate(1.0, 0.5, 0.3).to_position_bias() == PositionBias([1.0, 0.5, 0.3])
    alone = estimate(1.0, NAN, NAN)
    assert alone.usable_tail == "error"
    with pytest.raises(InputError, match="only one position has enough data"):
        alone.to_position_bias("power")
    cut = estimate(1.0, 0.5, NAN, 0.2).to_position_bias()
    assert cut == PositionBias([1.0, 0.5])
    with pytest.raises(InputError, match="lies beyond the position bias"):
        cut.at([3])


def test_a_power_law_fills_gaps_and_goes_on_if_asked_for() -> None:
    curve = estimate(1.0, 1 / 4, NAN, 1 / 16, NAN).to_position_bias("power")
    assert curve.at([1, 2, 3, 4, 5, 8]) == pytest.approx([1, 1 / 4, 1 / 9, 1 / 16, 1 / 25, 1 / 64])
    assert curve.beyond == pytest.approx(2.0)
    assert len(curve.values) == 4


def test_nothing_is_examined_beyond_the_deepest_position_shown_if_asked_for() -> None:
    whole = estimate(1.0, 0.6, 0.3, eta=-1.0).to_position_bias("zero")
    assert whole == PositionBias([1.0, 0.6, 0.3], beyond="zero")
    curve = replace(estimate(1.0, 1 / 2, NAN, 1 / 4, NAN), deepest=7).to_position_bias("zero")
    assert curve.at(range(1, 9)) == pytest.approx([*(1 / k for k in range(1, 8)), 0.0])


def test_one_imprecise_position_does_not_move_the_tail() -> None:
    exact = estimate(*(1 / k for k in range(1, 21)))
    raw = (*exact.values[:-1], 0.155)
    error = (*exact.standard_error[:-1], 0.155 * 0.27)
    found = replace(exact, raw=raw, values=raw, standard_error=error, shape="free")
    curve = found.to_position_bias("power")
    assert curve.at([50])[0] == pytest.approx(1 / 50, rel=0.2)
    assert curve.at([20])[0] == pytest.approx(1 / 20, rel=0.25)
    assert curve.values[:10] == pytest.approx(exact.values[:10], rel=0.03)
    # what is known well stays as it is, whatever the power law says of it
    known = replace(found, standard_error=(0.0, *(value * 0.001 for value in raw[1:])))
    assert known.to_position_bias("power").values == pytest.approx(raw, rel=0.001)


def test_wrong_tails_are_refused() -> None:
    with pytest.raises(InputError, match="column 'tail'"):
        estimate(1.0, 0.5).to_position_bias("cliff")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no power law"):
        estimate(1.0, 1.2, eta=-0.3).to_position_bias("power")


@pytest.mark.parametrize("tail", ["error", "power", "zero"])
def test_a_file_is_a_position_bias_and_the_whole_estimate(tmp_path: Path, tail: Tail) -> None:
    path = tmp_path / "bias.json"
    found = estimate(1.0, 0.5, NAN, 0.2, eta=0.8).with_tail(tail)
    write_bias(found, path)
    assert position_bias(None, path) == found.to_position_bias()
    assert read_bias(path).tail == tail
    assert read_bias(path).to_dict() == found.to_dict()
    content = json.loads(path.read_text())
    assert content["positions"][2] == {
        "position": 3,
        **dict.fromkeys(("value", "low", "high", "raw", "standard_error")),
        "impressions": 100,
        "clicks": 20,
        "pairs": 10,
    }
    assert content["context"] == {"name": "device", "value": "phone"}


def test_an_estimate_comes_back_from_its_file(tmp_path: Path) -> None:
    data = datasets.synthetic(queries=50, list_length=4, features=2, relevant=2).train
    log = simulate_clicks(data, RandomRanking(), PositionBias.power(1.0), impressions=3_000)
    found = estimate_bias_harvest(log, randomised=True)
    write_bias(found, tmp_path / "bias.json")
    assert read_bias(tmp_path / "bias.json") == found
    assert repr(found).startswith("<BiasEstimate: harvest, 4 positions, eta ")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"values": [1.0, 0.5]}',
        json.dumps({**estimate(1.0, 0.5).to_dict(), "method": "guess"}),
        json.dumps({**estimate(1.0, 0.5).to_dict(), "positions": []}),
        json.dumps({**estimate(1.0, 0.5).to_dict(), "insufficient": [2]}),
        json.dumps({**estimate(1.0, 0.5).to_dict(), "eta": None}),
        json.dumps({**estimate(1.0, 0.5).to_dict(), "shape": "round"}),
        json.dumps({**estimate(1.0, 0.5).to_dict(), "beyond": "cliff"}),
        json.dumps({**estimate(1.0, 0.5).to_dict(), "fit": {"statistic": "x"}}),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bias.json"
    path.write_text(text)
    with pytest.raises(InputError, match="bias.json"):
        read_bias(path)


def test_equal_estimates_are_equal() -> None:
    assert estimate(1.0, 0.5) == estimate(1.0, 0.5)
    assert replace(estimate(1.0, 0.5), context=None) != estimate(1.0, 0.5)
