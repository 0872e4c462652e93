"""Any methods on any log, judged on labelled lists: one protocol for own comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fultr.click_model import ClickNoise, PositionBias
from fultr.data import ClickLog, Counts, RankingDataset
from fultr.errors import InputError
from fultr.evaluation import evaluate
from fultr.experiments.methods import LEARN_FROM_CLICKS, METHODS, method_called
from fultr.experiments.runs import Row, measures
from fultr.experiments.worlds import World
from fultr.plots import Curve, Panel, draw_panels
from fultr.results import Displayed, Tables, frame_of, to_plain
from fultr.training.ranker import TrainableRanker
from fultr.training.sources import lists_with_groups, noise_of, position_bias_of, with_validation


class Comparison(list[Row], Displayed):
    """The policies of several methods, a row for each; see `compare`."""

    def tables(self) -> Tables:
        """Return the policies, and what was measured of them."""
        return {"policies": list(self)}

    def to_frame(self) -> pl.DataFrame:
        """Return the policies as a polars frame."""
        return frame_of(self.tables())

    def to_dict(self) -> dict[str, Any]:
        """Return the policies as plain values for JSON."""
        content: dict[str, Any] = to_plain({"policies": list(self)})
        return content

    def plot(self, path: str | Path) -> Path:
        """Draw DCG against disparity on the test lists, a curve for each method, into a file."""
        return draw_comparison(self, path)

    def __repr__(self) -> str:
        methods = ", ".join(dict.fromkeys(row["method"] for row in self))
        return f"<Comparison: {len(self)} policies of {methods}>"


def compare(
    log: ClickLog | Counts,
    test: RankingDataset,
    methods: Sequence[str],
    *,
    valid: ClickLog | Counts | None = None,
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    top_k: int | None = None,
    depth: int | None = None,
    valid_share: float = 0.2,
    seed: int = 0,
    say: Callable[[str], None] = lambda _line: None,
) -> Comparison:
    """Train methods on the same clicks, each for all its trade-offs, and measure them on labelled lists.

    Parameters
    ----------
    log
        Clicks to train on: single impressions, or counts where all methods learn from counts.
    test
        Lists with relevance, of the same features and groups.
    methods
        Names of methods, such as "fultr" and "fair-pg-rank"; see `METHODS`.
    valid
        Validation clicks; by default a share of the queries of the log.
    position_bias, noise, depth
        By default those of the log; `depth` is how many positions a page has.
    top_k
        Positions beyond have no utility: DCG is cut for all methods, and FULTR is trained for it.
    valid_share, seed
        How much is put aside for validation, and all randomness.
    say
        Told what is going on.

    Returns
    -------
    Comparison
        A list. For each trained policy its method, trade-off, and what `fultr.evaluate` says of it, with
        intervals: DCG, disparity (with its sign for two groups, else the root of the sum of squares, which
        has none), exposure ratio (of two groups) and exposure to move. DCG for each relevant item stands
        beside them.
    """
    if test.relevance is None:
        raise InputError("methods are compared on lists with relevance", column="relevance")
    if not methods:
        raise InputError("name at least one method", column="methods")
    for name in methods:
        if method_called(name, LEARN_FROM_CLICKS).trained_on_labels:
            problem = "is trained on the true relevance of the lists, which a log does not have"
            raise InputError(problem, column="methods", value=name)
    if (log.data.group >= 0).any() and not (test.group >= 0).any():
        problem = (
            "has no groups, though the log has, so that no disparity can be seen ({group_by()} makes them)"
        )
        raise InputError(problem, column="test", options=["group_by()"])
    bias, known_noise = position_bias_of(position_bias, log, depth), noise_of(noise, log)
    train, checked = with_validation(log, valid, valid_share, seed)
    lists = lists_with_groups(test, log.data.group_names)
    every_click = log if valid is None else None
    world = World(
        train,
        checked,
        bias,
        known_noise,
        None,
        None,
        lists,
        seed,
        always_corrected=True,
        top_k=top_k,
        whole=every_click,
    )
    rows = []
    for name in dict.fromkeys(methods):
        method = METHODS[name]
        say(f"training {method.title} ...")
        for trade_off, policy in method.train(world, method.trade_offs):
            row = {"method": name, "knob": method.knob, "trade_off": float(trade_off)}
            rows.append({**row, **measures(policy, lists, world, "test"), **_measured(policy, world, seed)})
    return Comparison(rows)


def _measured(policy: TrainableRanker, world: World, seed: int) -> Row:
    """Return the measures of an evaluation on the test lists, each with low and high."""
    evaluation = evaluate(policy, world.test, position_bias=world.position_bias, at=world.top_k, seed=seed)
    values: dict[str, Any] = {"dcg": evaluation.dcg, "disparity": evaluation.disparity_squared**0.5}
    if len(evaluation.groups) == 2:
        values |= {"disparity": evaluation.disparity, "exposure_ratio": evaluation.exposure_ratio}
    row: Row = {}
    for name, value in {**values, "exposure_to_move": evaluation.exposure_to_move}.items():
        low, high = evaluation.intervals.get(name, (None, None))
        row |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return row


def draw_comparison(rows: Sequence[Row], path: str | Path) -> Path:
    """Draw DCG against disparity on the test lists, a curve for each method."""
    curves = []
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        across = [row["disparity"] for row in own]
        curves.append(Curve(METHODS[name].title, across, [row["dcg"] for row in own]))
    panel = Panel("test lists", "disparity D  (0: exposure follows merit)", "DCG", curves)
    return draw_panels("Utility and disparity", [panel], path)
