"""What is imported when: a command loads what it uses, and a mistake in its arguments loads nothing heavy."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fultr
from fultr.cli.main import COMMANDS
from fultr.data import RankingDataset
from fultr.experiments import FIGURES, LEARN_FROM_CLICKS
from fultr.training import CHECKPOINT_EVERY

HEAVY = ("matplotlib", "numba", "numpy", "pandas", "polars", "pyarrow", "scipy", "sklearn", "torch")
LOGS = {"numpy", "polars", "pyarrow"}

AUDIT = LOGS | {"scipy"}
"""Clusters of queries need a graph."""

PROPENSITY = LOGS | {"scipy"}

REPORT = """
import atexit, json, sys
def report():
    loaded = [name for name in {heavy!r} if name in sys.modules]
    sys.stderr.write("\\n@" + json.dumps(loaded) + "\\n")
atexit.register(report)
"""


def loaded_by(code: str, *arguments: object) -> tuple[int, set[str], str]:
    """Run Python code in a process of its own; return its exit code, what it loaded, and what it said."""
    report = REPORT.format(heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", report + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COMP_WORDS": "fultr in", "COMP_CWORD": "1"},
    )
    said, _, loaded = done.stderr.rpartition("@")
    return done.returncode, set(json.loads(loaded)), done.stdout + said


def command(*arguments: object) -> tuple[int, set[str], str]:
    return loaded_by("from fultr.cli.main import main; main()", *arguments)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small click log in which the positions of documents vary, and its groups."""
    data = fultr.datasets.synthetic(queries=40, seed=0).train
    bias = fultr.PositionBias.power(1.0)
    clicks = fultr.simulate_clicks(data, fultr.RandomRanking(), bias, impressions=800, seed=0)
    path = tmp_path_factory.mktemp("start") / "clicks.parquet"
    fultr.write_log(clicks, path)
    return path


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import fultr; assert fultr.__version__; assert 'FairRanker' in dir(fultr)")[1] == set()


def test_every_public_name_can_be_reached_after_importing_the_package() -> None:
    for name in fultr.__all__:
        assert getattr(fultr, name) is not None
    assert set(fultr.__all__) <= set(dir(fultr))
    names: dict[str, object] = {}
    exec("from fultr import *", names)
    assert set(fultr.__all__) <= set(names)
    with pytest.raises(AttributeError):
        _ = fultr.nonsense  # type: ignore[attr-defined]


def test_no_public_function_is_hidden_by_a_module_of_its_name() -> None:
    importlib.import_module("fultr.datasets.mslr")
    importlib.import_module("fultr.datasets.synthetic")
    assert isinstance(fultr.datasets.synthetic(queries=6).train, RankingDataset)
    assert callable(fultr.datasets.mslr)
    assert callable(fultr.audit)


def test_help_version_and_mistakes_load_nothing_heavy() -> None:
    mistakes: list[tuple[str, ...]] = [("nonsense",), ("--nonsense",)]
    calls = "; ".join(
        f"run({list(arguments)!r})"
        for arguments in [
            ("--help",),
            ("--version",),
            *mistakes,
            *(part for name in COMMANDS for part in ((name, "--nonsense"), (name, "--help"))),
            *((name,) for name in COMMANDS if name not in ("demo",)),
        ]
    )
    _, loaded, said = loaded_by(f"from fultr.cli.main import run; {calls}")
    assert loaded == set()
    assert "internal error" not in said
    assert said.count("(see --help)") == 2 + len(COMMANDS) + len(COMMANDS) - 1


def test_completion_loads_nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FULTR_COMPLETE", "complete_bash")
    _, loaded, said = command()
    assert loaded == set()
    assert "inspect" in said


@pytest.mark.slow
def test_commands_on_logs_load_what_they_use(log: Path, tmp_path: Path) -> None:
    allowed = {
        ("inspect", log): LOGS,
        ("count", log, "--out", tmp_path / "counts.parquet"): LOGS,
        ("convert", log, tmp_path / "clicks.csv"): LOGS,
        ("propensity", log, "--out", tmp_path / "bias.json"): PROPENSITY,
        ("audit", log, "--eta", 1): AUDIT,
    }
    for arguments, most in allowed.items():
        code, loaded, said = command(*arguments)
        assert code == 0, said
        assert loaded <= most, arguments


def test_what_is_told_without_loading_is_right() -> None:
    for name, line in COMMANDS.items():
        module = importlib.import_module(f"fultr.cli.{name}")
        assert callable(getattr(module, name))
        assert line.endswith(".")
        assert len(line) <= 66
    compare = importlib.import_module("fultr.cli.compare")
    reproduce = importlib.import_module("fultr.cli.reproduce")
    assert ", ".join(LEARN_FROM_CLICKS) == compare.NAMES
    assert ", ".join([*FIGURES, "example"]) == reproduce.FIGURES
    options = importlib.import_module("fultr.cli.training_options")
    assert options.DEFAULT_CHECKPOINT_EVERY == CHECKPOINT_EVERY


def test_what_commands_do_python_does_by_one_function(log: Path, tmp_path: Path) -> None:
    clicks = fultr.read_log(log)
    bias = fultr.PositionBias.power(1.0)
    inspection = fultr.inspect(clicks, position_bias=bias)
    assert inspection.summary["impressions"] == 800
    assert inspection.facts
    code, _, said = command("inspect", log, "--eta", 1, "--json")
    assert code == 0
    assert json.loads(said)["findings"][: len(inspection.findings)] == inspection.to_dict()["findings"]
    with pytest.raises(fultr.InputError, match="labelled data"):
        fultr.inspect(fultr.datasets.studios(), depth=3)
    audited = fultr.audit(clicks, position_bias=bias, resamples=50)
    report = fultr.report(audited, tmp_path / "audit.html")
    assert (tmp_path / "audit.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [one.key for one in report.rankings]
    with pytest.raises(fultr.InputError, match=r"\.html"):
        fultr.report(audited, tmp_path / "audit.txt")
    with pytest.raises(fultr.InputError, match="no such figure"):
        fultr.reproduce(["fig7"], tmp_path)
    assert fultr.baselines.PGRank is importlib.import_module("fultr.baselines.pg_rank").PGRank
