"""Any methods on any log, judged on labelled lists: one protocol for own comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fultr.click_model import ClickNoise, PositionBias
from fultr.data import ClickLog, Counts, RankingDataset
from fultr.errors import InputError
from fultr.experiments.figures import DCG
from fultr.experiments.methods import METHODS, method_called
from fultr.experiments.runs import Row, measures
from fultr.experiments.worlds import World
from fultr.plots import Curve, Panel, draw_panels
from fultr.training.sources import lists_with_groups, noise_of, position_bias_of, with_validation


def compare(
    log: ClickLog | Counts,
    test: RankingDataset,
    methods: Sequence[str],
    *,
    valid: ClickLog | Counts | None = None,
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    valid_share: float = 0.2,
    seed: int = 0,
    say: Callable[[str], None] = lambda _line: None,
) -> list[Row]:
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
    position_bias, noise
        By default those of the log.
    valid_share, seed
        How much is put aside for validation, and all randomness.
    say
        Told what is going on.

    Returns
    -------
    list of dict
        For each trained policy its method, trade-off, DCG for each relevant item, and squared disparity.
    """
    if test.relevance is None:
        raise InputError("methods are compared on lists with relevance", column="relevance")
    if not methods:
        raise InputError("name at least one method", column="methods")
    for name in methods:
        if method_called(name).needs_labels and not name.endswith("-true"):
            problem = "is trained on the true relevance of the lists, which a log does not have"
            raise InputError(problem, column="methods", value=name)
    bias, known = position_bias_of(position_bias, log), noise_of(noise, log)
    train, checked = with_validation(log, valid, valid_share, seed)
    lists = lists_with_groups(test, log.data.group_names)
    world = World(train, checked, bias, known, None, None, lists, seed)
    if known is not None and "fultr-corrected" not in methods:
        say("only fultr-corrected takes the click noise off; name it too")
    rows = []
    for name in dict.fromkeys(methods):
        method = METHODS[name]
        say(f"training {method.title} ...")
        for trade_off, policy in method.train(world, method.trade_offs):
            row = {"method": name, "knob": method.knob, "trade_off": float(trade_off)}
            rows.append({**row, **measures(policy, lists, world, "test")})
    return rows


def draw_comparison(rows: Sequence[Row], path: str | Path) -> Path:
    """Draw DCG against disparity on the test lists, a curve for each method."""
    curves = []
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        across = [row["test_disparity_squared"] ** 0.5 for row in own]
        curves.append(Curve(METHODS[name].title, across, [row["test_dcg"] for row in own]))
    panel = Panel("test lists", "disparity, √ΣD²  (0: exposure follows merit)", DCG, curves)
    return draw_panels("Utility and disparity", [panel], path)
