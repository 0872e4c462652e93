"""Run the fast tests with exactly the lowest versions that pyproject.toml allows.

An environment of its own, .venv-lowest, holds them; test tools are the newest. Arguments go to
pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv-lowest"
TOOLS = ("hypothesis", "ir-measures", "pandas", "pytest", "pytest-xdist")
PYTEST = ("-q", "--numprocesses", "auto", "--dist", "loadfile", "--ignore", "tests/test_documentation.py")
LEFT_OUT = "not (browser or slow or statistical)"
"""Markers of tests that take long or need a browser."""


def lowest() -> list[str]:
    """Return each dependency at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = []
    for dependency in project["dependencies"]:
        bound = re.fullmatch(r"([\w-]+)>=([\w.]+)", dependency)
        if bound is None:
            raise ValueError(f"{dependency} has no lower bound")
        pins.append(f"{bound[1]}=={bound[2]}")
    return pins


def main() -> None:
    """Make the environment, and run the tests."""
    venv.create(FOLDER, with_pip=True)
    python = str(FOLDER / ("Scripts" if os.name == "nt" else "bin") / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *lowest(), *TOOLS], cwd=ROOT, check=True)
    subprocess.run([*install, "--no-deps", "--editable", "."], cwd=ROOT, check=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    tests = [python, "-m", "pytest", *PYTEST, "-m", LEFT_OUT, *sys.argv[1:]]
    sys.exit(subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
