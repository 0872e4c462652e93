"""Offsets beside full training: utility and disparity on new queries, by their true relevance.

    python -m benchmarks.frontiers german synthetic mslr:FOLDER --rows rows.jsonl --out docs/frontiers
    python -m benchmarks.frontiers german synthetic --noise --clicks 0.3 --rows few.jsonl --out few-clicks

For each split: the policies of several fairness weights, trained further or made fair by offsets, and of
limits without and with confidence. Clicks are those of figure 2 (ten a list on German Credit, one elsewhere),
logged by a weak ranker. What each policy reaches is written at once, and no split is done twice.

With --noise, what a fairness weight and a limit do to the true disparity where the clicks cannot show any:
as the rankers are, which then change nothing, and with that rule off, so that noise is chased.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from fultr import FairRanker, UnsupportedLimitError
from fultr.errors import FultrWarning
from fultr.experiments.reproduction import write_table
from fultr.experiments.runs import measures
from fultr.experiments.worlds import Conditions, World, make_world
from fultr.plots import Curve, Panel, draw_panels
from fultr.training.limits import UnreachableLimitError

WEIGHTS = (0.0, 1.0, 10.0, 100.0)
LIMIT, PROMISED_LIMIT = 0.2, 1.0
"""Limits without and with confidence: few logs of this size support a lower one."""

L2 = (0.01, 0.1, 1.0)
NOISE_RULE = "fultr.training.cross_fitting.is_within_noise"
"""What says whether the disparity is within its noise."""

LISTS = 200
"""Lists of synthetic data."""

LOOKS = {"training": "trained for fairness", "offsets": "offsets"}

Tensors = Mapping[str, NDArray[Any]]
Row = dict[str, Any]


class StagesInMemory:
    """Finished stages of training in memory: the most useful policy is trained once for all settings."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, NDArray[Any]]] = {}

    def load(self, stage: str) -> dict[str, NDArray[Any]] | None:
        """Return a finished stage of the most useful policy."""
        tensors = self.stages.get(stage)
        return None if tensors is None else dict(tensors)

    def save(self, stage: str, state: Callable[[], Tensors], *, finished: bool) -> None:
        """Keep a finished stage of the most useful policy; others are of one setting only."""
        if finished and "useful" in stage:
            self.stages[stage] = dict(state())


def settings(noise: bool) -> Iterator[dict[str, Any]]:
    """Yield what is trained, of each kind of fairness."""
    for fairness in LOOKS:
        if noise:
            yield {"fairness": fairness, "fairness_weight": 0.0}
            for chased in (False, True):
                yield {"fairness": fairness, "fairness_weight": 10.0, "chased": chased}
                yield {"fairness": fairness, "max_disparity": LIMIT, "chased": chased}
            continue
        for weight in WEIGHTS:
            yield {"fairness": fairness, "fairness_weight": weight}
        yield {"fairness": fairness, "max_disparity": LIMIT}
        yield {"fairness": fairness, "max_disparity": PROMISED_LIMIT, "confidence": 0.95}


def rows_of(data: str, split: int, clicks: float | None = None, noise: bool = False) -> list[Row]:
    """Return what each policy of a split reaches on test queries."""
    name = data.partition(":")[0]
    usual = 10.0 if name == "german" else 1.0
    world = make_world(Conditions(data, clicks or usual, split=split, lists=LISTS))
    stages, rows = StagesInMemory(), []
    for setting in settings(noise):
        row: Row = {"data": name, "split": split, "clicks": clicks or usual, **setting}
        arguments = {argument: value for argument, value in setting.items() if argument != "chased"}
        ranker = FairRanker(position_bias=world.position_bias, l2=L2, seed=split, **arguments)
        chasing = patch(NOISE_RULE, return_value=False) if setting.get("chased") else nullcontext()
        try:
            with chasing:
                ranker.learn(world.whole or world.log, None, checkpoints=stages)
        except (UnsupportedLimitError, UnreachableLimitError):
            rows.append({**row, "made": False})
            continue
        rows.append({**row, "made": True, **_reached(ranker, world)})
    return rows


def _reached(ranker: FairRanker, world: World) -> Row:
    reached = measures(ranker, world.test, world, "test")
    return {name: float(reached[f"test_{name}"]) for name in ("dcg", "disparity_squared")}


def table_of(rows: list[Row]) -> list[Row]:
    """Return means over splits with their standard errors, and how often limits held on new queries."""
    by_setting: dict[tuple[Any, ...], list[Row]] = {}
    names = ("data", "clicks", "fairness", "fairness_weight", "max_disparity", "confidence", "chased")
    for row in rows:
        by_setting.setdefault(tuple(row.get(name, "") for name in names), []).append(row)
    return [
        _summary(dict(zip(names, values, strict=True)), of_setting)
        for values, of_setting in by_setting.items()
    ]


def _summary(setting: Row, rows: list[Row]) -> Row:
    made = [row for row in rows if row["made"]]
    summary: Row = {**setting, "splits": len(rows), "made": len(made)}
    if setting["max_disparity"] != "":
        held = [row["disparity_squared"] <= setting["max_disparity"] ** 2 for row in made]
        summary["held"] = int(sum(held))
    for name in ("dcg", "disparity_squared"):
        values = np.array([row[name] for row in made])
        if values.size:
            summary[name] = float(values.mean())
        if values.size > 1:
            summary[f"{name}, standard error"] = float(values.std(ddof=1) / np.sqrt(values.size))
    return summary


def draw(table: list[Row], path: Path) -> Path:
    """Draw mean utility against mean squared disparity for each data set, with standard errors."""
    panels = []
    for data in dict.fromkeys(row["data"] for row in table):
        curves = []
        for fairness, title in LOOKS.items():
            line = [
                row
                for row in table
                if row["data"] == data and row["fairness"] == fairness and row["fairness_weight"] != ""
            ]
            (up, up_bounds), (across, across_bounds) = (
                _with_errors(line, name) for name in ("dcg", "disparity_squared")
            )
            curves.append(Curve(title, across, up, up_bounds=up_bounds, across_bounds=across_bounds))
        panels.append(Panel(data, "squared disparity, new queries", "DCG for each relevant item", curves))
    return draw_panels(
        "Offsets beside training, on new queries", panels, path, "means over splits, with a standard error"
    )


def _with_errors(line: list[Row], name: str) -> tuple[list[float], tuple[list[float], list[float]]]:
    """Return the means of a measure, and a standard error below and above them."""
    means = [row[name] for row in line]
    errors = [row.get(f"{name}, standard error", 0.0) for row in line]
    low, high = ([mean + sign * error for mean, error in zip(means, errors, strict=True)] for sign in (-1, 1))
    return means, (low, high)


def main() -> None:
    """Do the splits that were not done, and write the table and the picture."""
    parser = argparse.ArgumentParser(description="Offsets beside full training, on new queries.")
    parser.add_argument("data", nargs="+", help="german, synthetic or mslr:FOLDER")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--clicks", type=float, help="for each list; by default those of figure 2")
    parser.add_argument("--noise", action="store_true", help="what chasing noise does")
    parser.add_argument("--rows", type=Path, default=Path("frontiers.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("frontiers"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FultrWarning)
    for split in range(given.splits):
        for data in given.data:
            rows = _read(given.rows)
            if not any(row["data"] == data.partition(":")[0] and row["split"] == split for row in rows):
                text = "".join(
                    json.dumps(row) + "\n" for row in rows_of(data, split, given.clicks, given.noise)
                )
                with given.rows.open("a", encoding="utf-8") as file:
                    file.write(text)
    table = table_of(_read(given.rows))
    print(write_table(given.out.with_suffix(".csv"), table))
    if not given.noise:
        print(draw(table, given.out.with_suffix(".png")))


def _read(file: Path) -> list[Row]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    main()
