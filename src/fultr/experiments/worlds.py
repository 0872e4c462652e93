"""Where methods compete: labelled data, and clicks simulated on it as in the paper."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks import Planting, estimate_noise, simulate_clicks
from fultr.data import ClickLog, DataSplits, RankingDataset, Source, merge
from fultr.datasets import german_credit, mslr, synthetic
from fultr.errors import InputError
from fultr.policy import RankingSVM

BIAS = PositionBias.power(1.0)
"""v_k = 1/k."""

LISTS_A_QUERY = 10
"""Lists that are drawn from each query of a folder of MSLR with few queries."""

FEW_QUERIES = 2_000

FIRST_PART = 1 << 16
"""How many bytes of a file tell it from others of the same name and size."""

PLANTED = 3_600
"""Impressions with an item known to be irrelevant, by which noise is measured: the paper's 1% at its size."""


@dataclass(frozen=True)
class World:
    """Clicks to learn from and labelled lists to judge by.

    Parameters
    ----------
    log, valid
        Clicks to train on and to validate on.
    position_bias
        The examination probabilities.
    noise
        The click noise as it is known or was estimated; None if clicks have none.
    train, test
        Labelled lists: those of the training clicks, whose relevance no method may see, and new ones. A
        world of a user's own log has no labels for the former.
    train_valid
        Labelled lists of the validation clicks, for methods that are given full information.
    seed
        Of everything random that a method does.
    l2
        Costs of large parameters to choose from on validation clicks; None leaves that to each method.
    always_corrected
        Whether all kinds of FULTR take the noise off, as `FairRanker` does by itself; or only the one that is
        called so, as in the paper's figures.
    top_k
        Positions beyond have no utility; by default all have some.
    whole
        The training and validation clicks together, for methods that leave out one part after the other;
        None if users gave the validation clicks themselves.
    """

    log: Source
    valid: Source
    position_bias: PositionBias
    noise: ClickNoise | None
    train: RankingDataset | None
    train_valid: RankingDataset | None
    test: RankingDataset
    seed: int = 0
    l2: tuple[float, ...] | None = None
    always_corrected: bool = False
    top_k: int | None = None
    whole: Source | None = None


@dataclass(frozen=True)
class Conditions:
    """What a world is made of: the data set, the clicks and one of several independent splits.

    Parameters
    ----------
    data
        "german", "synthetic", or "mslr:FOLDER".
    clicks
        Impressions with a click, as a multiple of the training lists.
    eps_minus
        How often an irrelevant item that was looked at is clicked.
    groups
        Number of groups.
    split
        Number of the split, which decides the queries, the logging policy and the clicks.
    lists
        Training lists of synthetic data.
    """

    data: str
    clicks: float
    eps_minus: float = 0.0
    groups: int = 2
    split: int = 0
    lists: int = 1_200

    def to_dict(self) -> dict[str, Any]:
        """Return the conditions as plain values; a folder counts by what it holds, not by where it is."""
        name, _, folder = self.data.partition(":")
        values = {
            "data": name,
            "clicks": self.clicks,
            "eps_minus": self.eps_minus,
            "groups": self.groups,
            "split": self.split,
            "lists": self.lists if self.data == "synthetic" else None,
        }
        return {**values, "files": fingerprint(folder)} if folder else values


@cache
def fingerprint(folder: str) -> str:
    """Return what tells the text files of a folder from others: their names, sizes and first parts."""
    digest = hashlib.blake2b(digest_size=4)
    for file in sorted(Path(folder).rglob("*.txt")):
        digest.update(f"{file.relative_to(folder)} {file.stat().st_size} ".encode())
        with file.open("rb") as content:
            digest.update(content.read(FIRST_PART))
    return digest.hexdigest()


def splits_of(conditions: Conditions) -> DataSplits:
    """Return the labelled data of a split."""
    name, _, folder = conditions.data.partition(":")
    if name == "german":
        if conditions.groups != 2:
            raise InputError("German Credit has two groups here", column="groups", value=conditions.groups)
        return german_credit(seed=conditions.split)
    if name == "synthetic":
        return synthetic(queries=conditions.lists, groups=conditions.groups, seed=conditions.split)
    check_data(conditions.data)
    settings: dict[str, Any] = {"groups": conditions.groups, "seed": conditions.split}
    data = mslr(folder, resplit=conditions.split, **settings)
    if len(data.train) >= FEW_QUERIES:
        return data
    return mslr(folder, resplit=conditions.split, lists_per_query=LISTS_A_QUERY, **settings)


def make_world(conditions: Conditions) -> World:
    """Simulate the clicks of users who look at position k with probability 1/k.

    They see rankings of a Ranking SVM that was trained on 1% of the labelled training data. Impressions
    without a click stay in the log. Validation clicks are the same multiple of their lists. Noise is
    estimated from planted items in impressions of their own, as many as the paper has: it is a property of
    the users, and a smaller data set does not make it harder to measure.
    """
    data, seed = splits_of(conditions), conditions.split
    logging = RankingSVM.train(data.train, seed=seed)
    noisy = conditions.eps_minus > 0
    noise = ClickNoise(1.0, conditions.eps_minus) if noisy else None

    def clicks_on(lists: RankingDataset, part: int) -> ClickLog:
        count = max(20, round(conditions.clicks * len(lists)))
        rng = np.random.default_rng([seed, part])
        return simulate_clicks(lists, logging, BIAS, noise, clicks=count, seed=rng)

    noise_estimate = None
    if noisy:
        planting, rng = Planting(share=1.0), np.random.default_rng([seed, 2])
        measured = simulate_clicks(
            data.train, logging, BIAS, noise, impressions=PLANTED, planting=planting, seed=rng
        )
        noise_estimate = ClickNoise(1.0, estimate_noise(measured, BIAS).eps_minus)
    log, valid = clicks_on(data.train, 0), clicks_on(data.valid, 1)
    every_click = merge(*(clicks.compact() for clicks in (log, valid)))
    return World(log, valid, BIAS, noise_estimate, data.train, data.valid, data.test, seed, whole=every_click)


def check_data(name: str) -> None:
    """Refuse data that there is not, before anything is run on it."""
    kind, _, folder = name.partition(":")
    if name not in ("german", "synthetic") and not (kind == "mslr" and folder):
        raise InputError("must be german, synthetic or mslr:FOLDER", column="data", value=name)
    if folder and not Path(folder).is_dir():
        raise InputError("no such folder", file=folder)
