"""Run the fast tests with exactly the lowest versions that pyproject.toml allows.

    python -m tools.lowest_versions [--folder FOLDER] [--as-pinned NAME ...] [arguments of pytest]

An environment of its own holds them; test tools are the newest. `--as-pinned torch` is for a machine that has
no build of the lowest torch: the version of constraints.txt is installed, and the lower bound is not tested.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("hypothesis", "ir-measures", "pandas", "pytest", "pytest-xdist")
PYTEST = ("-q", "--numprocesses", "auto", "--dist", "loadfile", "--ignore", "tests/test_documentation.py")
EXCLUDED = "not (browser or slow or statistical)"
"""Markers of tests that take long or need a browser."""


def lowest(as_pinned: Collection[str] = ()) -> list[str]:
    """Return each dependency at its lower bound, or at the version of constraints.txt if it is named."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = []
    for dependency in project["dependencies"]:
        bound = re.fullmatch(r"([\w-]+)>=([\w.]+)", dependency)
        if bound is None:
            raise ValueError(f"{dependency} has no lower bound")
        version = bound[2]
        if bound[1] in as_pinned:
            pinned = re.search(rf"^{re.escape(bound[1])}==(\S+)$", constraints, re.MULTILINE)
            if pinned is None:
                raise ValueError(f"constraints.txt has no version of {bound[1]}")
            version = pinned[1]
            print(
                f"{bound[1]} {version} is installed; its lower bound, {bound[2]}, is not tested", flush=True
            )
        pins.append(f"{bound[1]}=={version}")
    return pins


def main() -> None:
    """Make the environment, and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-lowest", help="the environment's folder")
    parser.add_argument("--as-pinned", action="append", default=[], metavar="NAME")
    arguments, for_pytest = parser.parse_known_args()
    venv.create(arguments.folder, with_pip=True)
    python = str(arguments.folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    # constraints of the caller would ask for other versions than the lowest
    variables = ("PIP_CONSTRAINT", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for packages in ((*lowest(arguments.as_pinned), *TOOLS), ("--no-deps", "--editable", ".")):
        subprocess.run([*install, *packages], cwd=ROOT, env=environment, check=True)
    tests = [python, "-m", "pytest", *PYTEST, "-m", EXCLUDED, *for_pytest]
    # kernels compiled by another numba stay where they are
    environment |= {"OMP_NUM_THREADS": "1", "NUMBA_CACHE_DIR": str(arguments.folder / "kernels")}
    sys.exit(subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
