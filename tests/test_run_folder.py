from __future__ import annotations

import errno
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fultr import (
    ClickLog,
    FairRanker,
    InputError,
    PositionBias,
    RandomRanking,
    TreeSettings,
    WriteError,
    datasets,
)
from fultr import simulate_clicks as simulate
from fultr.training import fair_ranker
from fultr.training.checkpoints import Tensors
from fultr.training.paper_steps import PaperSettings
from fultr.training.run_folder import RunFolder, results_of_run
from fultr.training.solving import StepReached

CONFIG = {
    "command": "train",
    "inputs": {"log": {"path": "a.parquet", "size": 3}},
    "settings": {"l2": (1.0, 2.0)},
}


@pytest.fixture(scope="module")
def log() -> ClickLog:
    data = datasets.synthetic(queries=12, features=5, list_length=(3, 6), relevant=1, seed=0).train
    return simulate(data, RandomRanking(), PositionBias.power(1.0), clicks=80, seed=0)


def reached(stage: str, iterations: int) -> StepReached:
    return StepReached(stage, iterations, value=0.0, utility=1.0 + iterations, disparity=0.5)


def state(*values: float) -> dict[str, NDArray[Any]]:
    return {"point": np.array(values), "steps": np.arange(3)}


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_what_is_kept_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG) as folder:
        assert folder.load("stage-1") is None
        folder.save("stage-1", lambda: state(1 / 3, -np.inf), finished=True)
    with RunFolder.open(tmp_path / "run", CONFIG, resume=True) as folder:
        known = folder.load("stage-1")
    assert known is not None
    assert known["point"].tobytes() == np.array([1 / 3, -np.inf]).tobytes()
    assert folder.stages_done == 1


def test_state_is_asked_for_only_when_it_is_written(tmp_path: Path) -> None:
    asked = []

    def counted() -> Tensors:
        asked.append(1)
        return state(1.0)

    with RunFolder.open(tmp_path / "rarely", CONFIG, checkpoint_every=3600) as folder:
        for _ in range(5):
            folder.save("stage", counted, finished=False)
        assert not asked
        assert folder.load("stage") is None
        folder.save("stage", counted, finished=True)
        assert len(asked) == 1
    with RunFolder.open(tmp_path / "always", CONFIG, checkpoint_every=0) as folder:
        for _ in range(5):
            folder.save("stage", counted, finished=False)
    assert len(asked) == 6


def test_a_folder_that_holds_a_run_is_refused_unless_it_is_resumed(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", CONFIG).close()
    with pytest.raises(InputError, match=r"holds a run already; go on with it \(resume=\)"):
        RunFolder.open(tmp_path / "run", CONFIG)
    RunFolder.open(tmp_path / "run", CONFIG, resume=True).close()


def test_resuming_what_is_not_there_begins_it(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "deep/run", CONFIG, resume=True).close()
    assert json.loads((tmp_path / "deep/run/config.json").read_text())["settings"] == {"l2": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({**CONFIG, "command": "sweep"}, "command"),
        ({**CONFIG, "settings": {"l2": [1.0]}}, "settings.l2"),
        ({**CONFIG, "settings": {"l2": (1.0, 2.0), "clip": 3}}, "settings.clip"),
        ({**CONFIG, "inputs": {"log": None}}, "inputs.log.size"),
        ({**CONFIG, "inputs": {"log": {"path": "a.parquet", "size": 4}}}, "inputs.log.size"),
    ],
)
def test_a_run_goes_on_only_with_the_same_settings(tmp_path: Path, other: dict[str, Any], name: str) -> None:
    RunFolder.open(tmp_path, CONFIG).close()
    with pytest.raises(InputError, match=f"the run was started with {name} = "):
        results_of_run(tmp_path, other, resume=True)


def test_inputs_may_have_moved(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, CONFIG).close()
    moved = {**CONFIG, "inputs": {"log": {"path": "elsewhere/b.parquet", "size": 3}}}
    assert results_of_run(tmp_path, moved, resume=True) is None


def test_folders_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/love.txt").write_text("dear")
    (tmp_path / "old/checkpoints").mkdir(parents=True)
    (tmp_path / "old/checkpoints/stage.safetensors").write_text("x")
    for name in ("letters", "old"):
        for resume in (False, True):
            with pytest.raises(InputError, match="is not empty .* holds no run"):
                RunFolder.open(tmp_path / name, CONFIG, resume=resume)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        RunFolder.open(tmp_path / "file", CONFIG)


def test_what_was_killed_before_it_began_can_begin(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / ".config.json.x7.part").write_text('{"comm')
    RunFolder.open(tmp_path, CONFIG).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "config.json", "metrics.jsonl"]


def test_damage_is_named(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as folder:
        folder.save("stage", lambda: state(1.0), finished=True)
    kept = tmp_path / "checkpoints/stage.safetensors"
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(InputError, match="stage.safetensors: is damaged; remove it, and its stage"):
        RunFolder.open(tmp_path, CONFIG, resume=True)
    kept.unlink()
    RunFolder.open(tmp_path, CONFIG, resume=True).close()
    for damaged in ("{", "[]", ""):
        (tmp_path / "config.json").write_text(damaged)
        with pytest.raises(InputError, match="config.json: is damaged"):
            RunFolder.open(tmp_path, CONFIG, resume=True)


@pytest.mark.parametrize("stage", ["", "../x", "a/b", ".hidden"])
def test_a_stage_cannot_lie_outside_of_the_folder(tmp_path: Path, stage: str) -> None:
    with RunFolder.open(tmp_path, CONFIG) as folder, pytest.raises(InputError, match="stage"):
        folder.load(stage)


def test_a_finished_run_has_results_and_no_checkpoints(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as folder:
        folder.save("stage", lambda: state(1.0), finished=True)
        assert folder.results is None
        folder.finish({"utility": 1.5})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "metrics.jsonl",
        "results.json",
    ]
    assert results_of_run(tmp_path, CONFIG, resume=True) == {"utility": 1.5}
    with pytest.raises(InputError, match="holds a run already"):
        results_of_run(tmp_path, CONFIG, resume=False)
    with RunFolder.open(tmp_path, CONFIG, resume=True) as folder:
        assert folder.results == {"utility": 1.5}


def test_metrics_go_on_after_the_last_step_that_was_kept(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG, checkpoint_every=0) as folder:
        for step in (1, 2):
            folder.save("first", lambda: state(1.0), finished=step == 2)
            folder.record(reached("first", step))
        folder._every, folder._due = 3600.0, np.inf
        for step in (1, 2, 3):
            folder.save("second", lambda: state(1.0), finished=False)
            folder.record(reached("second", step))
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"stage": "second", "itera')
    kept = metrics_of(tmp_path)[:2]
    with RunFolder.open(tmp_path, CONFIG, resume=True) as folder:
        folder.record(reached("second", 1))
    found = metrics(tmp_path)
    assert [(line["stage"], line["iterations"]) for line in found] == [
        ("first", 1),
        ("first", 2),
        ("second", 1),
    ]
    assert found[:2] == kept
    assert found[2]["seconds"] >= kept[1]["seconds"]
    assert set(found[0]) == {"stage", "iterations", "utility", "disparity", "seconds"}


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """Read all lines but a torn last one."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().split("\n")[:-1]]


def test_nobody_else_trains_into_the_folder(tmp_path: Path) -> None:
    problem = "another process is training into this folder"
    with RunFolder.open(tmp_path, CONFIG), pytest.raises(InputError, match=problem):
        RunFolder.open(tmp_path, CONFIG, resume=True)
    RunFolder.open(tmp_path, CONFIG, resume=True).close()


def test_what_cannot_be_done_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bad"), RunFolder.open(tmp_path / "run", CONFIG):
        raise InputError("bad")
    assert not (tmp_path / "run").exists()
    with pytest.raises(RuntimeError), RunFolder.open(tmp_path / "run", CONFIG):
        raise RuntimeError
    with pytest.raises(InputError), RunFolder.open(tmp_path / "run", CONFIG, resume=True) as folder:
        folder.save("stage", lambda: state(1.0), finished=True)
        raise InputError("bad, but late")
    assert (tmp_path / "run/checkpoints/stage.safetensors").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_what_cannot_be_written_leaves_the_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "not today")

    with RunFolder.open(tmp_path, CONFIG, checkpoint_every=0) as folder:
        folder.save("stage", lambda: state(1.0), finished=False)
        for broken in ("fultr.files.os.open", "fultr.files.os.fsync"):
            with monkeypatch.context() as patch:
                patch.setattr(broken, refuse)
                with pytest.raises(WriteError, match="cannot be written: not today"):
                    folder.save("stage", lambda: state(2.0), finished=False)
                with pytest.raises(WriteError, match="cannot be written: not today"):
                    folder.finish({})
        known = folder.load("stage")
        assert known is not None
        assert known["point"] == [1.0]
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["stage.safetensors"]
    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(WriteError, match="cannot be written: not today"):
        RunFolder.open(tmp_path / "new", CONFIG)


class CrashError(Exception):
    pass


class Crashing(RunFolder):
    """Dies at some save, before or after it is written."""

    left = 0
    before = True

    def save(self, stage: str, state: Callable[[], Tensors], *, finished: bool) -> None:
        self.left -= 1
        if self.left == 0 and self.before:
            raise CrashError
        super().save(stage, state, finished=finished)
        if self.left == 0:
            raise CrashError


SHORT = PaperSettings(validate_every=8, patience=2, most_steps=48, samples=4, window=8)
TREES = TreeSettings(rounds=25, min_rows=5, leaves=4, column_share=0.7, row_share=0.7)
RANKERS: dict[str, Callable[[], FairRanker]] = {
    "linear": partial(FairRanker, max_disparity=0.25, l2=[0.01, 0.1]),
    "mlp": partial(FairRanker, fairness_weight=1.0, model="mlp", hidden=(2,), l2=[0.1, 0.3]),
    "trees": partial(FairRanker, fairness_weight=1.0, model="trees", trees=TREES),
    "linear+trees": partial(
        FairRanker, max_disparity=0.25, model="linear+trees", l2=[0.01, 0.1], trees=TREES
    ),
    "fairest": partial(FairRanker, min_utility=0.9, l2=0.1, entropy_weight=0.01),
    "paper": partial(FairRanker, fairness_weight=1.0, protocol="paper", l2=[0.0, 0.01]),
    "paper mlp": partial(FairRanker, protocol="paper", model="mlp", hidden=(2,), l2=[0.0, 0.01]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RANKERS)
def test_training_that_dies_at_any_save_ends_with_the_same_weights(
    tmp_path: Path, log: ClickLog, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_ranker, "PAPER", SHORT)
    with RunFolder.open(tmp_path / "whole", CONFIG) as folder:
        whole = RANKERS[kind]().fit(log, checkpoints=folder, watch=folder.record)
    steps = [(line["stage"], line["iterations"]) for line in metrics(tmp_path / "whole")]
    assert len(steps) > 4

    deaths = np.random.default_rng(0).integers(1, max(3, len(steps) // 6), size=400)
    for number, left in enumerate(deaths):
        with Crashing.open(tmp_path / "torn", CONFIG, resume=True, checkpoint_every=0) as folder:
            assert isinstance(folder, Crashing)
            folder.left, folder.before = int(left), bool(number % 2)
            try:
                torn = RANKERS[kind]().fit(log, checkpoints=folder, watch=folder.record)
            except CrashError:
                continue
            break
    assert number > 4
    for name, tensor in whole.scorer_.state_dict().items():
        assert tensor.numpy().tobytes() == torn.scorer_.state_dict()[name].numpy().tobytes(), name
    assert (torn.multiplier_, torn.l2_) == (whole.multiplier_, whole.l2_)
    # a step whose state was kept may lack its line, but none has two
    again = [(line["stage"], line["iterations"]) for line in metrics(tmp_path / "torn")]
    left_over = iter(steps)
    assert all(step in left_over for step in again)
    assert len(steps) - len(again) <= number


def test_checkpoints_of_a_finished_run_are_removed_later(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", {"command": "train"}, resume=False) as folder:
        folder.finish({"done": True})
    left = tmp_path / "run" / "checkpoints"
    left.mkdir()
    (left / "stage.safetensors").write_bytes(b"killed before it was removed")
    assert results_of_run(tmp_path / "run", {"command": "train"}, resume=True) == {"done": True}
    assert not left.exists()
