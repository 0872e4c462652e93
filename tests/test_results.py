"""What results become: plain values and back, frames, and tables on a terminal and in a notebook."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from rich.console import Console

import fultr
from fultr import FairRanker, InputError, PositionBias, RandomRanking, evaluate, sweep
from fultr.experiments import compare
from fultr.results import PlainValues, Result, Tables, html_of, to_plain
from tests.training_tasks import BIAS, random_lists, random_log

HOSTILE = "<script>alert('[bold]')</script>\x1b[2J"


@dataclass(frozen=True)
class Inner(PlainValues):
    number: float
    ends: tuple[float, float] = (0.0, 1.0)

    derived = ("double",)

    @property
    def double(self) -> float:
        return 2 * self.number


@dataclass(frozen=True, eq=False)
class Outer(Result):
    name: str
    count: int
    inner: dict[str, Inner]
    table: NDArray[np.float64]
    bias: PositionBias | None = None
    more: tuple[Inner, ...] = ()

    def tables(self) -> Tables:
        return {"first": [{"name": self.name, "count": self.count}], "second": [{"double": 2.0}]}


RESULT = Outer(
    "a",
    3,
    {"x": Inner(math.nan), "y": Inner(1.5, (math.inf, 2.0))},
    np.array([[1.0, math.nan]]),
    BIAS,
    (Inner(2.0),),
)


def test_results_become_plain_values_and_come_back() -> None:
    plain = RESULT.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["inner"] == {
        "x": {"number": None, "ends": [0.0, 1.0], "double": None},
        "y": {"number": 1.5, "ends": [None, 2.0], "double": 3.0},
    }
    assert plain["table"] == [[1.0, None]]
    assert plain["bias"] == BIAS.to_dict()
    again = Outer.from_dict(plain)
    assert again.to_dict() == plain
    assert (again.bias, again.more) == (BIAS, RESULT.more)
    assert math.isnan(again.inner["x"].number)
    del plain["bias"], plain["more"]  # what has a default may be missing
    assert Outer.from_dict(plain).more == ()


@pytest.mark.parametrize(
    "change",
    [
        {"count": "many"},
        {"inner": []},
        {"inner": {"x": {}}},
        {"name": None, "count": None},
        {"bias": {"values": 3}},
    ],
)
def test_values_of_something_else_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Outer.from_dict({**RESULT.to_dict(), **change})


def test_numbers_of_numpy_become_those_of_python() -> None:
    plain = to_plain({"a": np.float64(1.5), "b": np.int64(2), "c": np.bool_(True), "d": (np.nan, 1)})
    assert json.dumps(plain) == '{"a": 1.5, "b": 2, "c": true, "d": [null, 1]}'


def test_text_from_data_is_neither_html_nor_markup() -> None:
    page = html_of(HOSTILE, {HOSTILE: [{HOSTILE: HOSTILE, "empty": None, "number": 1234567}], "nothing": []})
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 4
    assert "1,234,567" in page
    assert "nothing" not in page
    out = io.StringIO()
    made = Outer(HOSTILE, 1, {}, np.zeros((0, 0)))
    Console(file=out, width=200, force_terminal=False).print(made)
    assert "[bold]" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()


def test_frames_are_the_tables() -> None:
    assert RESULT.to_frame().to_dicts() == [{"name": "a", "count": 3}]
    assert RESULT.to_frame("second").columns == ["double"]
    with pytest.raises(InputError, match="no such table; there are: first, second"):
        RESULT.to_frame("third")


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """One of each: data, logs, and results."""
    data = random_lists(groups=3)
    log = random_log(data, impressions=300)
    ranker = FairRanker(1.0, l2=0.1, folds=0, position_bias=BIAS).fit(log)
    return {
        "data": data,
        "log": log,
        "counts": log.compact(),
        "evaluation": evaluate(ranker, log, position_bias=BIAS),
        "audit": fultr.audit(log, {HOSTILE: RandomRanking()}, position_bias=BIAS, resamples=100),
        "inspection": fultr.inspect(log, position_bias=BIAS),
        "frontier": sweep(log, fairness_weights=[0.0, 1.0], l2=0.1, folds=0, position_bias=BIAS),
        "comparison": compare(log, data, ["fultr"], position_bias=BIAS),
    }


KINDS = ("data", "log", "counts", "evaluation", "audit", "inspection", "frontier", "comparison")


@pytest.mark.parametrize("kind", KINDS)
def test_notebooks_and_terminals_show_tables(shown: dict[str, Any], kind: str) -> None:
    page = shown[kind]._repr_html_()
    assert page.count("<table>") == page.count("</table>") >= 1
    assert "<script>" not in page
    out = io.StringIO()
    Console(file=out, width=300).print(shown[kind])
    first = next(iter(shown[kind].tables()))
    assert first in out.getvalue()


@pytest.mark.parametrize("kind", ["evaluation", "audit", "frontier", "comparison"])
def test_results_are_json_and_frames_in_one_way(shown: dict[str, Any], kind: str) -> None:
    result = shown[kind]
    json.dumps(result.to_dict(), allow_nan=False)
    frame = result.to_frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame.height >= 1


def test_evaluations_and_audits_come_back_from_json(shown: dict[str, Any]) -> None:
    for kind in ("evaluation", "audit"):
        plain = json.loads(json.dumps(shown[kind].to_dict()))
        again = type(shown[kind]).from_dict(plain)
        assert again.to_dict() == plain
    evaluation = shown["evaluation"]
    assert math.isnan(evaluation.disparity)  # of three groups
    assert evaluation.disparities.shape == (3, 3)
    assert evaluation.pair_intervals["disparities"][0].shape == (3, 3)
