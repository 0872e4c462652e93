"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fultr

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(module.name for module in pkgutil.walk_packages(fultr.__path__, "fultr."))


def blocks(language: str) -> list[tuple[Path, str]]:
    return [
        (page, code)
        for page in PAGES
        for code in re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]


FEW_CLICKS = "ignore:the disparity of the most useful policy"
"""Logs of examples are small, and training says so."""


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_examples_run_and_print_what_they_say(tmp_path: Path, page: Path, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", FEW_CLICKS, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"
    for line in re.findall(r"^print\(.*#\s*(<.*>)$", code, re.MULTILINE):
        assert line in done.stdout, f"{page} says {line}, but it printed {done.stdout}"


@pytest.mark.parametrize(("page", "code"), [found for found in blocks("sh") if found[1].startswith("fultr ")])
def test_shell_examples_run(tmp_path: Path, page: Path, code: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_example_scripts_run(tmp_path: Path, script: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


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
