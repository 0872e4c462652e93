"""Offsets beside full training: utility and disparity on new queries, by their true relevance.

    python -m benchmarks.frontiers german synthetic mslr:FOLDER --kept kept.jsonl --out docs/frontiers

For each split: the policies of several fairness weights, trained further or made fair by offsets, and of
several limits without and with confidence. Clicks are those of figure 2 (ten a list on German Credit, one
elsewhere), logged by a weak ranker. What each policy reaches is kept as it comes, and no split is done twice.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fultr import ClickLog, FairRanker, UnsupportedLimitError, merge
from fultr.errors import FultrWarning
from fultr.experiments.reproduction import write_table
from fultr.experiments.runs import measures
from fultr.experiments.worlds import Conditions, World, make_world
from fultr.plots import Curve, Panel, draw_panels
from fultr.training.limits import UnreachableLimitError

WEIGHTS = (0.0, 1.0, 10.0, 100.0)
LIMITS = (0.5,)
L2 = (0.01, 0.1, 1.0)
LISTS = 200
"""Lists of synthetic data."""

LOOKS = {"training": "trained for fairness", "offsets": "offsets"}

Tensors = Mapping[str, NDArray[Any]]
Row = dict[str, Any]


class Kept:
    """Finished stages of training in memory: the most useful policy is trained once for all of them."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, NDArray[Any]]] = {}

    def load(self, stage: str) -> dict[str, NDArray[Any]] | None:
        """Return a finished stage of the most useful policy."""
        found = self.stages.get(stage)
        return None if found is None else dict(found)

    def save(self, stage: str, state: Callable[[], Tensors], *, finished: bool) -> None:
        """Keep a finished stage of the most useful policy; others are of one setting only."""
        if finished and "useful" in stage:
            self.stages[stage] = dict(state())


def settings() -> Iterator[dict[str, Any]]:
    """Yield what is trained, of each kind of fairness."""
    for fairness in LOOKS:
        for weight in WEIGHTS:
            yield {"fairness": fairness, "fairness_weight": weight}
        for limit in LIMITS:
            yield {"fairness": fairness, "max_disparity": limit}
            yield {"fairness": fairness, "max_disparity": limit, "confidence": 0.95}


def rows_of(data: str, split: int) -> list[Row]:
    """Return what each policy of a split reaches on test queries."""
    name = data.partition(":")[0]
    world = make_world(Conditions(data, 10.0 if name == "german" else 1.0, split=split, lists=LISTS))
    parts = [part.compact() for part in (world.log, world.valid) if isinstance(part, ClickLog)]
    log, kept, rows = merge(*parts), Kept(), []
    for setting in settings():
        row: Row = {"data": name, "split": split, **setting}
        ranker = FairRanker(position_bias=world.position_bias, l2=L2, seed=split, **setting)
        try:
            ranker.learn(log, None, checkpoints=kept)
        except (UnsupportedLimitError, UnreachableLimitError):
            rows.append({**row, "made": False})
            continue
        rows.append({**row, "made": True, **_reached(ranker, world)})
    return rows


def _reached(ranker: FairRanker, world: World) -> Row:
    found = measures(ranker, world.test, world, "test")
    return {name: found[f"test_{name}"] for name in ("dcg", "disparity_squared")}


def table_of(rows: list[Row]) -> list[Row]:
    """Return means over splits with their standard errors, and how often limits held on new queries."""
    kinds: dict[tuple[Any, ...], list[Row]] = {}
    names = ("data", "fairness", "fairness_weight", "max_disparity", "confidence")
    for row in rows:
        kinds.setdefault(tuple(row.get(name, "") for name in names), []).append(row)
    return [_summary(dict(zip(names, kind, strict=True)), some) for kind, some in kinds.items()]


def _summary(kind: Row, rows: list[Row]) -> Row:
    made = [row for row in rows if row["made"]]
    found: Row = {**kind, "splits": len(rows), "made": len(made)}
    if kind["max_disparity"] != "":
        held = [row["disparity_squared"] <= kind["max_disparity"] ** 2 for row in made]
        found["held"] = int(sum(held))
    for name in ("dcg", "disparity_squared"):
        values = np.array([row[name] for row in made])
        if values.size:
            found[name] = float(values.mean())
        if values.size > 1:
            found[f"{name}, standard error"] = float(values.std(ddof=1) / np.sqrt(values.size))
    return found


def draw(table: list[Row], path: Path) -> Path:
    """Draw mean utility against mean squared disparity for each data set."""
    panels = []
    for data in dict.fromkeys(row["data"] for row in table):
        curves = []
        for fairness, title in LOOKS.items():
            some = [
                row
                for row in table
                if row["data"] == data and row["fairness"] == fairness and row["fairness_weight"] != ""
            ]
            across = [row["disparity_squared"] for row in some]
            curves.append(Curve(title, across, [row["dcg"] for row in some]))
        panels.append(Panel(data, "squared disparity, new queries", "DCG for each relevant item", curves))
    return draw_panels("Offsets beside training, on new queries", panels, path, "means over splits")


def main() -> None:
    """Do the splits that were not done, and write the table and the picture."""
    parser = argparse.ArgumentParser(description="Offsets beside full training, on new queries.")
    parser.add_argument("data", nargs="+", help="german, synthetic or mslr:FOLDER")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--kept", type=Path, default=Path("frontiers.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("frontiers"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FultrWarning)
    for split in range(given.splits):
        for data in given.data:
            rows = _read(given.kept)
            if not any(row["data"] == data.partition(":")[0] and row["split"] == split for row in rows):
                text = "".join(json.dumps(row) + "\n" for row in rows_of(data, split))
                with given.kept.open("a", encoding="utf-8") as file:
                    file.write(text)
    table = table_of(_read(given.kept))
    print(write_table(given.out.with_suffix(".csv"), table))
    print(draw(table, given.out.with_suffix(".png")))


def _read(kept: Path) -> list[Row]:
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    main()
