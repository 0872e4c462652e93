from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fultr import ClickNoise, InputError, PositionBias


@given(st.floats(0, 3))
def test_power_law_is_the_papers(eta: float) -> None:
    positions = np.arange(1, 50)
    np.testing.assert_allclose(PositionBias.power(eta).at(positions), (1 / positions) ** eta, rtol=1e-12)


def test_values_are_normalised_to_the_first_and_zero_means_not_shown() -> None:
    bias = PositionBias([0.5, 0.25, 0.0])
    assert bias.at([0, 1, 2, 3]).tolist() == [0, 1, 0.5, 0]
    assert bias.curve(2).tolist() == [0, 1, 0.5]


def test_beyond_the_values() -> None:
    with pytest.raises(InputError, match="position 4 lies beyond the position bias, which has 3 values"):
        PositionBias([1, 0.5, 0.4]).at([4])
    assert PositionBias([1, 0.5, 0.4], beyond="zero").at([3, 4, 9]).tolist() == [0.4, 0, 0]
    tail = PositionBias([1, 0.5, 0.4], beyond=2.0)
    np.testing.assert_allclose(tail.at([3, 6, 12]), [0.4, 0.1, 0.025])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.sampled_from(["error", "zero", 0.7]))
def test_survives_plain_values(values: list[float], beyond: Any) -> None:
    bias = PositionBias([1.0, *values], beyond=beyond)
    assert PositionBias.from_dict(bias.to_dict()) == bias
    assert hash(PositionBias.from_dict(bias.to_dict())) == hash(bias)


def test_repr_is_short() -> None:
    assert repr(PositionBias.power(1)) == "PositionBias.power(eta=1)"
    assert repr(PositionBias([2, 1])) == "PositionBias([1, 0.5], beyond='error')"


@pytest.mark.parametrize(
    ("values", "beyond", "problem"),
    [
        ([], "error", "at least one position"),
        ([0.0, 1.0], "error", "column 'v_1': examination must be finite and above 0"),
        ([1.0, -0.1], "error", "column 'v_2': .*got -0.1"),
        ([1.0, float("nan")], "error", "column 'v_2': .*got nan"),
        (["a"], "error", "needs one number for each position"),
        (3, "error", "needs one number for each position"),
        ([1.0], "nothing", "must be 'error', 'zero' or the power"),
        ([1.0], float("inf"), "power of the tail"),
        ([1.0], -1.0, "power of the tail"),
        ([1.0], None, "must be 'error', 'zero' or the power"),
        ([1.0], [2], "power of the tail"),
        ("421", "error", "needs one number for each position"),
        ({"1": 1.0}, "error", "needs one number for each position"),
        ([[1.0]], "error", "needs one number for each position"),
        ([1e-320, 1.0], "error", "column 'v_2': is too large"),
    ],
)
def test_wrong_position_bias_is_refused(values: Any, beyond: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        PositionBias(values, beyond=beyond)


def test_wrong_power_and_content_are_refused() -> None:
    with pytest.raises(InputError, match="column 'eta'"):
        PositionBias.power(-1)
    with pytest.raises(InputError, match="column 'eta'"):
        PositionBias.power("1")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs 'values'"):
        PositionBias.from_dict({"eta": 1})
    with pytest.raises(InputError, match="one number for each position"):
        PositionBias.from_dict({"values": {"1": 1}})
    with pytest.raises(InputError, match="'eps_plus' and 'eps_minus'"):
        ClickNoise.from_dict({"eps_plus": 1})


@pytest.mark.parametrize("positions", [[-1], [1.0], ["1"], [1, None]])
def test_wrong_positions_are_refused(positions: Any) -> None:
    with pytest.raises(InputError, match="column 'position'"):
        PositionBias.power(1).at(positions)


def test_numbers_of_numpy_are_numbers() -> None:
    assert PositionBias(np.array([2, 1], dtype=np.float32)) == PositionBias([2, 1])  # type: ignore[arg-type]
    noise = ClickNoise(1, np.float32(0.25))  # type: ignore[arg-type]
    assert noise.to_dict() == {"eps_plus": 1.0, "eps_minus": 0.25}
    assert type(noise.eps_minus) is float
    assert ClickNoise.from_dict(noise.to_dict()) == noise


@pytest.mark.parametrize(
    ("plus", "minus", "problem"),
    [
        (1.1, 0.0, "column 'eps_plus': must be a probability"),
        (0.5, -0.1, "column 'eps_minus': must be a probability"),
        (float("nan"), 0.0, "eps_plus"),
        (0.3, 0.3, "must be above that of irrelevant items"),
        (0.1, 0.3, "must be above that of irrelevant items"),
        ("1", 0.3, "eps_plus"),
        ([], 0.0, "column 'eps_plus': must be a probability, from 0 to 1, or one for each position"),
        (1.0, [0.1, -0.1], "column 'eps_minus': must be a probability"),
        (1.0, [0.1, "0"], "column 'eps_minus': must be a probability"),
        (1.0, [[0.1]], "column 'eps_minus': must be a probability"),
        (1.0, {1: 0.1}, "column 'eps_minus': must be a probability"),
        (1.0, np.array(0.1) > 0, "column 'eps_minus': must be a probability"),
        ([1.0, 0.3], [0.2, 0.2, 0.3], "must be above that of irrelevant items at position 3, 0.3.*got 0.3"),
    ],
)
def test_wrong_noise_is_refused(plus: Any, minus: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        ClickNoise(eps_plus=plus, eps_minus=minus)


def test_noise_may_depend_on_the_position() -> None:
    noise = ClickNoise(np.array([0.9, 0.8]), [0.4, 0.2, 0.1, 0.1])  # type: ignore[arg-type]
    assert noise.by_position
    assert noise.to_dict() == {"eps_plus": [0.9, 0.8], "eps_minus": [0.4, 0.2, 0.1]}
    assert ClickNoise.from_dict(noise.to_dict()) == noise
    assert [noise.at(k) for k in (1, 2, 3, 9)] == [(0.9, 0.4), (0.8, 0.2), (0.8, 0.1), (0.8, 0.1)]
    assert [curve.tolist() for curve in noise.curves(3)] == [[0.9, 0.9, 0.8, 0.8], [0.4, 0.4, 0.2, 0.1]]
    assert noise.describe() == "eps_plus 0.9,0.8, eps_minus 0.4,0.2,0.1"
    assert noise.most() == ClickNoise(0.9, 0.4)


def test_noise_that_is_the_same_everywhere_is_a_number() -> None:
    noise = ClickNoise([0.9, 0.9], (0.1,))
    assert noise == ClickNoise(0.9, 0.1) == noise.most()
    assert not noise.by_position
    assert hash(noise) == hash(ClickNoise(0.9, 0.1))
    assert noise.describe() == "eps_plus 0.9, eps_minus 0.1"


def test_noise_defaults_to_none() -> None:
    assert ClickNoise().to_dict() == {"eps_plus": 1.0, "eps_minus": 0.0}
