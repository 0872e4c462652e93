"""What the documentation shows is what happens."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import itertools
import os
import pkgutil
import random
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch

import fultr
from tests.commands import result_of

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
MODULES = sorted(module.name for module in pkgutil.walk_packages(fultr.__path__, "fultr."))


def blocks(language: str) -> list[tuple[Path, str]]:
    return [
        (page, code)
        for page in PAGES
        for code in re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]


COMMANDS = [(page, code) for page, code in blocks("sh") if code.startswith("fultr ")]


def named(examples: list[tuple[Path, str]]) -> list[Any]:
    """Return the arguments of a test for each block, named by its page and where it starts."""
    return [pytest.param(page, code, id=f"{page.name}-{line_of(page, code)}") for page, code in examples]


def line_of(page: Path, code: str) -> int:
    text = page.read_text(encoding="utf-8")
    return text[: text.index(code)].count("\n") + 1


def state_of_process() -> dict[str, Any]:
    """What an example could change for those that run after it."""
    return {
        "environment": {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        "path": list(sys.path),
        "random": random.getstate(),
        "numpy": repr(np.random.get_state()),  # noqa: NPY002
        "errors": np.geterr(),
        "torch": (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()),
        "matplotlib": dict(matplotlib.rcParams),
    }


@pytest.fixture(scope="module")
def everything_loaded() -> None:
    """Load every module: libraries set variables of the process when they are loaded."""
    for name in MODULES:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    fultr.FairRanker(l2=1.0, folds=0, position_bias=fultr.PositionBias.power(1.0)).fit(
        fultr.datasets.studios()
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything_loaded: None) -> Iterator[Path]:
    """Work in a new folder, in a process that examples leave as it was; layers of torch are drawn alike."""
    monkeypatch.chdir(tmp_path)
    before = state_of_process()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield tmp_path
    assert state_of_process() == before
    assert Path.cwd() == tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("page", "code"), named(blocks("python")))
def test_python_examples_run_and_print_what_they_say(
    folder: Path, capsys: pytest.CaptureFixture[str], page: Path, code: str
) -> None:
    """Warnings are errors, as in all tests."""
    exec(compile(code, page.name, "exec", dont_inherit=True), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    for line in re.findall(r"^print\(.*#\s*(<.*>)$", code, re.MULTILINE):
        assert line in printed, f"{page} says {line}, but it printed {printed}"


def attributes_of_fultr(tree: ast.AST) -> Iterator[list[str]]:
    """Yield the names behind `fultr` wherever an attribute of it is used, the first one first."""
    for node in ast.walk(tree):
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if names and isinstance(node, ast.Name) and node.id == "fultr":
            yield names


@pytest.mark.parametrize(
    ("page", "code"),
    named([*blocks("python"), *((script, script.read_text(encoding="utf-8")) for script in SCRIPTS)]),
)
def test_examples_use_public_names_that_need_no_import_elsewhere(page: Path, code: str) -> None:
    """Where much has been imported before, `fultr.x` works even if `import fultr` does not bring it."""
    for names in attributes_of_fultr(ast.parse(code)):
        owner: Any = fultr
        for name in names:
            assert name in owner.__all__, f"{page}: {owner.__name__}.{name}"
            owner = getattr(owner, name)
            if not inspect.ismodule(owner):
                break


@pytest.mark.slow
def test_public_names_come_with_the_import() -> None:
    code = "import fultr\nfor name in fultr.__all__: getattr(fultr, name)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def words_of(line: str) -> list[str]:
    """Split a line as a shell does, without its comment; operators are words of their own."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def is_one_command(line: str) -> bool:
    """Whether a line calls `fultr` and asks nothing of the shell: no pipe, file, variable or pattern."""
    return line.startswith("fultr ") and not set("|&;<>()$`*?") & set("".join(words_of(line)))


@pytest.mark.slow
@pytest.mark.parametrize(("page", "code"), named(COMMANDS))
def test_shell_examples_run(folder: Path, capsys: pytest.CaptureFixture[str], page: Path, code: str) -> None:
    """Plain commands run in this process, and what needs a shell in one."""
    lines = [line for line in code.splitlines() if words_of(line)]
    for plain, group in itertools.groupby(lines, is_one_command):
        if plain:
            for line in group:
                exit_code, _, error = result_of(capsys, *words_of(line)[1:])
                assert exit_code == 0, f"{page}: {line}: {error}"
        else:
            run_in_shell(folder, "\n".join(group))


def run_in_shell(folder: Path, code: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{code}: {done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_example_scripts_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_are_right(name: str) -> None:
    if name != "fultr.__main__":
        assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_public_name_is_explained() -> None:
    for name in fultr.__all__:
        assert getattr(fultr, name).__doc__, name
