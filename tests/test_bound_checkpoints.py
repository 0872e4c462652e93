"""A checkpoint belongs to the problem it was kept of: other settings or other data may not go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from fultr import ClickLog, ClickNoise, FairRanker, InputError, PositionBias
from fultr.training import fair_ranker
from fultr.training.checkpoints import digest_of
from fultr.training.paper_steps import PaperSettings
from fultr.training.policy_files import read_policy_file, write_policy_file
from fultr.training.run_folder import RunFolder
from tests.ranker_contract import clicks_on, lists
from tests.training_tasks import BIAS

PLAIN: dict[str, Any] = {"l2": 0.1, "folds": 0, "position_bias": BIAS}
SHORT = PaperSettings(validate_every=8, patience=1, most_steps=16, samples=2, window=4)
OTHERS: dict[str, dict[str, Any]] = {
    "lambda": {"fairness_weight": 2.0},
    "l2": {"l2": 0.2},
    "utility": {"utility": "average_rank"},
    "bias": {"position_bias": PositionBias.power(0.5)},
    "noise": {"noise": ClickNoise(0.9, 0.1)},
    "clip": {"clip": 1.5},
    "scale": {"scale_features": True},
    "blind": {"group_blind": True},
    "bonus": {"entropy_weight": 0.5},
}


def begun(folder: Path, log: ClickLog, **settings: Any) -> None:
    """Train into a folder and leave all stages as checkpoints."""
    with RunFolder.open(folder, {}, resume=True, checkpoint_every=0) as run:
        FairRanker(**{**PLAIN, "fairness_weight": 1.0, **settings}).fit(log, checkpoints=run)


def gone_on(folder: Path, log: ClickLog, **settings: Any) -> FairRanker:
    with RunFolder.open(folder, {}, resume=True) as run:
        return FairRanker(**{**PLAIN, "fairness_weight": 1.0, **settings}).fit(log, checkpoints=run)


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return clicks_on(lists(count=10))


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path, log: ClickLog, what: str) -> None:
    begun(tmp_path, log)
    gone_on(tmp_path, log)
    with pytest.raises(InputError, match="penalised-0-0.*of another training, with other settings or data"):
        gone_on(tmp_path, log, **OTHERS[what])


@pytest.mark.parametrize("what", ["features", "clicks"])
def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path, log: ClickLog, what: str) -> None:
    begun(tmp_path, log)
    other = clicks_on(lists(count=10), seed=1)
    if what == "features":
        other = replace(log, data=replace(log.data, features=log.data.features * np.float32(1.25)))
    with pytest.raises(InputError, match="of another training"):
        gone_on(tmp_path, other)


@pytest.mark.parametrize(
    "more", [{"fairness_weight": 2.0}, {"seed": 1}, {"l2": 0.2}, {"scale_features": True}]
)
def test_a_checkpoint_of_the_papers_protocol_is_bound_to_its_settings(
    tmp_path: Path, log: ClickLog, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_ranker, "PAPER", SHORT)
    settings: dict[str, Any] = {"protocol": "paper", "folds": 4}
    begun(tmp_path, log, **settings)
    gone_on(tmp_path, log, **settings)
    with pytest.raises(InputError, match="paper-0.*of another training"):
        gone_on(tmp_path, log, **settings, **more)


@pytest.mark.parametrize("name", ["point", "marks", "running", "problem"])
def test_a_resealed_checkpoint_with_other_tensors_is_refused_in_a_line(
    tmp_path: Path, log: ClickLog, name: str
) -> None:
    begun(tmp_path, log)
    (kept,) = (tmp_path / "checkpoints").iterdir()
    file = read_policy_file(kept)
    write_policy_file(kept, {**file.tensors, name: np.zeros((3, 3))}, file.content)
    with pytest.raises(InputError, match="what was kept is"):
        gone_on(tmp_path, log)


@pytest.mark.parametrize("lines", ["many", -1, 1.5, None, True, 10**400])
def test_a_resealed_checkpoint_with_another_number_of_lines_is_refused(
    tmp_path: Path, log: ClickLog, lines: Any
) -> None:
    begun(tmp_path, log)
    (kept,) = (tmp_path / "checkpoints").iterdir()
    file = read_policy_file(kept)
    content: Mapping[str, Any] = {**file.content, "lines": lines}
    try:
        write_policy_file(kept, file.tensors, content)
    except InputError:  # cannot be written at all
        return
    with pytest.raises(InputError, match="is damaged"):
        gone_on(tmp_path, log)


def test_digests_differ_where_anything_does() -> None:
    parts: list[Any] = [
        None,
        0,
        0.0,
        False,
        "",
        "0",
        [],
        [[]],
        [0, [1]],
        [[0], 1],
        {"a": 1},
        {"b": 1},
        ["ab", "c"],
        ["a", "bc"],
        np.zeros(2),
        np.zeros((2, 1)),
        np.zeros(2, np.float32),
        np.zeros(2, np.int64),
        PositionBias.power(1.0),
        PositionBias.power(2.0),
        nn.Linear(1, 1),
        nn.Linear(2, 1),
    ]
    assert len({digest_of(part) for part in parts}) == len(parts)
    assert digest_of(np.arange(4)[::2]) == digest_of(np.array([0, 2]))
    with pytest.raises(TypeError, match="no digest of a set"):
        digest_of(set())
