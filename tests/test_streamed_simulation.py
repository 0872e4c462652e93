from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fultr import (
    ClickNoise,
    InputError,
    PlackettLuce,
    Planting,
    PositionBias,
    RandomRanking,
    RankingDataset,
    read_log,
    simulate_clicks,
    write_log,
)
from fultr.clicks import drawing, streamed_simulation
from fultr.clicks.streamed_simulation import simulate_log
from tests.comparison import same_logs
from tests.test_counting import some_data

FORMS = [("log.parquet", "table"), ("log.parquet", "list"), ("log.csv", "table"), ("log.csv", "columns")]

OPTIONS: list[dict[str, Any]] = [
    {"impressions": 700},
    {"impressions": 4},
    {"clicks": 300},
    {"clicks": 150, "keep_empty": False},
    {"impressions": 500, "planting": Planting(0.4), "noise": ClickNoise(0.9, 0.2)},
    {"impressions": 3, "planting": Planting(0.001), "noise": ClickNoise(1.0, 0.9)},
    {"impressions": 400, "top_k": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("name", "form"), [*FORMS, ("log.parquet", "none")])
def test_a_streamed_simulation_is_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], name: str, form: Any
) -> None:
    for module in (drawing, streamed_simulation):
        monkeypatch.setattr(module, "IMPRESSIONS_A_STEP", 64)
    data, policy = some_data(), PlackettLuce(lambda features: features[:, 0])
    arguments: dict[str, Any] = {"seed": 5, **options}
    log = simulate_clicks(data, policy, PositionBias.power(1.0), **arguments)
    told: list[tuple[int, int]] = []
    made = simulate_log(
        tmp_path / name,
        data,
        policy,
        PositionBias.power(1.0),
        features=form,
        progress=lambda done, total: told.append((done, total)),
        **arguments,
    )
    assert sorted(tmp_path.iterdir()) == sorted(made.files)
    again = read_log(tmp_path / name)
    write_log(log, tmp_path / f"other.{name}", features=form)
    assert same_logs(again, read_log(tmp_path / f"other.{name}"))
    assert made.summary == log.describe()
    assert told[-1][0] == told[-1][1]


def test_a_simulation_without_clicks_leaves_nothing(tmp_path: Path) -> None:
    data = RankingDataset([[0.0], [1.0]], [0, 2], relevance=[0, 0])
    bias = PositionBias.power(1.0)
    with pytest.raises(InputError, match="not one click in 50 impressions"):
        simulate_log(tmp_path / "log.parquet", data, RandomRanking(), bias, impressions=50)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "either"),
        ({"clicks": 1, "impressions": 1}, "either"),
        ({"clicks": 0}, "1 or more"),
        ({"clicks": 1, "features": "list"}, "CSV file cannot hold lists"),
        ({"clicks": 1, "features": "some"}, "must be 'table'"),
    ]
    for options, problem in wrong:
        with pytest.raises(InputError, match=problem):
            simulate_log(tmp_path / "log.csv", data, RandomRanking(), bias, **options)
    with pytest.raises(InputError, match="no lists"):
        simulate_log(tmp_path / "log.csv", data[:0], RandomRanking(), bias, clicks=1)
    assert not list(tmp_path.iterdir())
