"""Draw the pictures of the concept pages: `python -m tools.concept_pictures`, half a minute or so.

Every picture is computed with fultr, with fixed seeds, so that it shows what the pages say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray

import fultr
from fultr import estimators
from fultr.expectation import examination_weights, expected_weights
from fultr.experiments.example import run_example

FOLDER = Path(__file__).parent.parent / "docs" / "images"
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#999999"
BIAS = fultr.PositionBias.power(1.0)


def added_up(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Score items by the sum of their features: a ranker that knows nothing of clicks or groups."""
    return np.asarray(features.sum(axis=1))


def save(name: str) -> None:
    """Write the picture as SVG, the same bytes each time."""
    plt.gcf().tight_layout()
    plt.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    plt.close()


def panels(count: int, width: float = 8.0) -> Any:
    """Return axes beside each other without frames at the top and the right."""
    _, axes = plt.subplots(1, count, figsize=(width, 3.2), squeeze=False)
    for one in axes[0]:
        one.spines[["top", "right"]].set_visible(False)
    return axes[0] if count > 1 else axes[0][0]


def inverse_propensity() -> None:
    """Draw clicks on ten equally good items, as they are and weighted."""
    items, impressions = 10, 2_000
    data = fultr.RankingDataset(np.zeros((items, 1)), [0, items], relevance=np.full(items, 0.5))
    order = -np.arange(items, dtype=float)  # of the scores: the ranking is always the same
    policy = fultr.FixedScorer(lambda _: order * 50)
    log = fultr.simulate_clicks(data, policy, BIAS, impressions=impressions, seed=0)
    clicks = np.bincount(log.position[log.click.astype(bool)], minlength=items + 1)[1:]
    rate = clicks / impressions
    error = np.sqrt(rate * (1 - rate) / impressions)
    examination = BIAS.curve(items)[1:]
    position = np.arange(1, items + 1)
    left, right = panels(2)
    left.bar(position, rate, color=ORANGE)
    left.set_title("clicks for each impression")
    right.bar(
        position, rate / examination, yerr=1.96 * error / examination, color=BLUE, ecolor="black", capsize=2
    )
    right.set_title("the same, each click divided by its propensity")
    for axes in (left, right):
        axes.axhline(0.5, color="black", linestyle="--", linewidth=1)
        axes.set(xlabel="position at which the item was shown", ylim=(0, 0.7), xticks=position)
    left.text(10.4, 0.52, "relevance of every item", ha="right")
    save("concept-inverse-propensity")


def exposure_and_merit() -> None:
    """Draw merit and exposure of three studios under two policies."""
    data = fultr.datasets.studios()
    names = data.group_names
    relevance = np.asarray(data.relevance)
    merit = np.array([relevance[data.group == code].sum() for code in range(3)])
    by_relevance, fair = (np.array([row[f"exposure of {name}"] for name in names]) for row in run_example())
    across = np.arange(3)
    axes = panels(1, 6.0)
    shares = (
        ("merit", merit, GREY),
        ("exposure, ranked by relevance", by_relevance, ORANGE),
        ("exposure, fair policy", fair, BLUE),
    )
    for number, (label, values, colour) in enumerate(shares):
        axes.bar(across + 0.27 * (number - 1), values / values.sum(), 0.25, label=label, color=colour)
    axes.set(xticks=across, xticklabels=names, ylabel="share")
    axes.legend(frameon=False)
    save("concept-exposure-and-merit")


def disparity() -> None:
    """Draw the disparity of single queries under a useful and under a fair policy, with the means."""
    data = fultr.datasets.synthetic(queries=600, seed=0)
    relevant = estimators.evidence_from_relevance(data.test)
    axes = panels(2)
    policies = (("useful", 0.0, ORANGE), ("fair", 3.0, BLUE))
    for one, (name, weight, colour) in zip(axes, policies, strict=True):
        ranker = fultr.FairRanker(weight, position_bias=BIAS, l2=0.001, folds=0).fit(data.train)
        scores = torch.from_numpy(ranker.predict(data.test))
        table = examination_weights(BIAS, int(np.diff(data.test.offsets).max()))[None]
        exposure = expected_weights(scores, table, offsets=data.test.offsets)[0]
        contributions = estimators.list_disparity(exposure, relevant, first=0, second=1).numpy()
        one.hist(contributions, bins=np.linspace(-6, 6, 31), color=colour, alpha=0.8)
        one.axvline(contributions.mean(), color="black")
        one.set(
            title=f"{name} policy: the mean is {contributions.mean():.2f}",
            xlabel="disparity of one query",
            ylabel="queries",
        )
    save("concept-disparity")


def stochastic_policy() -> None:
    """Draw the exposure of two items against the difference of their scores."""
    difference = np.linspace(0, 6, 121)
    scores = torch.from_numpy(np.stack([difference, np.zeros_like(difference)], axis=1).reshape(-1))
    offsets = np.arange(0, scores.numel() + 1, 2)
    weights = examination_weights(BIAS, 2)[None]
    exposure = expected_weights(scores, weights, offsets=offsets)[0].numpy().reshape(-1, 2)
    axes = panels(1, 6.0)
    axes.plot(difference, exposure[:, 0], color=BLUE, label="first item")
    axes.plot(difference, exposure[:, 1], color=ORANGE, label="second item")
    axes.axhline(1.0, color=GREY, linestyle=":", linewidth=1)
    axes.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    axes.text(6, 1.01, "always first", ha="right")
    axes.text(6, 0.45, "always second", ha="right")
    axes.set(xlabel="difference of the two scores", ylabel="exposure", ylim=(0.4, 1.1))
    axes.legend(frameon=False, loc="center right")
    save("concept-stochastic-policy")


def limits() -> None:
    """Draw the true disparity on new queries under a limit, with and without a promise."""
    limit, logs, queries = 0.7, 10, 120
    data = fultr.datasets.synthetic(queries=1_000, seed=0)
    rng = np.random.default_rng(0)
    shown: dict[float | None, list[float]] = {None: [], 0.95: []}
    for seed in range(logs):
        lists = data.train[rng.choice(len(data.train), queries, replace=False)]
        log = fultr.simulate_clicks(lists, fultr.RandomRanking(), BIAS, clicks=1_200, seed=seed)
        for confidence, disparities in shown.items():
            try:
                policy = fultr.fair_offsets(added_up, log, max_disparity=limit, confidence=confidence)
            except fultr.UnsupportedLimitError:
                continue
            truth = fultr.evaluate(policy, data.test, position_bias=BIAS, intervals=None)
            disparities.append(abs(float(truth.disparity)))
    axes: Axes = panels(1, 6.0)
    labels = []
    for row, (confidence, disparities) in enumerate(shown.items()):
        broken = sum(value > limit for value in disparities)
        height = row + np.linspace(-0.25, 0.25, len(disparities))
        axes.plot(disparities, height, "o", color=BLUE if confidence else ORANGE, alpha=0.7)
        name = f"with confidence={confidence}" if confidence else f"max_disparity={limit}"
        labels.append(f"{name}\n{broken} of {len(disparities)} above\n{logs - len(disparities)} refused")
    axes.axvline(limit, color="black", linestyle="--", linewidth=1)
    axes.set(yticks=[0, 1], yticklabels=labels, ylim=(-0.5, 1.5), xlim=(0, None))
    axes.set_xlabel("true |D| on new queries, one dot for each simulated log")
    save("concept-limits")


def main() -> None:
    """Draw all pictures."""
    mpl.use("svg")
    font: Any = {"font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 9}
    plt.rcParams.update({**font, "svg.hashsalt": "fultr"})
    for draw in (inverse_propensity, exposure_and_merit, disparity, stochastic_policy, limits):
        draw()


if __name__ == "__main__":
    main()
