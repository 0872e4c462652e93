"""Build wheel and sdist, check them, install each into a fresh environment outside the clone, and try it.

All versions are those of constraints.txt, torch's CPU build included.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
TRY = """
import fultr
from pathlib import Path

assert "site-packages" in fultr.__file__, fultr.__file__
package = Path(fultr.__file__).parent
assert (package / "py.typed").exists()
data = fultr.datasets.german_credit(seed=0)
bias = fultr.PositionBias.power(1.0)
log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=500, seed=0)
ranker = fultr.FairRanker(1.0, l2=0.1, folds=0).fit(log)
fultr.save(ranker, "policy.safetensors")
assert fultr.load("policy.safetensors").predict(data.test).shape == (data.test.rows,)
"""
COMMANDS = (
    "simulate german --clicked-impressions 500 --eta 1 --out clicks.parquet",
    "train clicks.parquet --lambda 1 --l2 0.1 --folds 0 --out run",
    "report run --out report.html",
)


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in a folder that knows nothing of the clone; return its standard output."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    print("$", *command, flush=True)
    environment = {**kept, "PIP_CONSTRAINT": str(CONSTRAINTS), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Return the wheel and the sdist of the clone, checked."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, folder=folder)
    return wheel, sdist


def try_out(package: Path, examples: Path, folder: Path) -> None:
    """Install a package into a fresh environment and use it: library, commands, data, page and examples."""
    folder.mkdir()
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(scripts / "python", "-m", "pip", "install", "--quiet", package, folder=folder)
    version = run(scripts / "fultr", "--version", folder=folder)
    assert version.split()[1] in package.name, (version, package.name)
    run(scripts / "python", "-c", TRY, folder=folder)
    for command in COMMANDS:
        run(scripts / "fultr", *command.split(), folder=folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    # the page draws its pictures itself, by the script that it holds
    assert "createElementNS" in page, "the page cannot draw its picture"
    assert 'src="http' not in page, "the page asks another host for something"
    for example in sorted(examples.glob("*.py")):
        assert run(scripts / "python", example, folder=folder)
    print(f"{package.name} works", flush=True)
    shutil.rmtree(folder)


def main() -> None:
    """Build both packages, and try each."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel, sdist = build(folder)
        with tarfile.open(sdist) as packed:
            packed.extractall(folder / "sdist", filter="data")
        (source,) = (folder / "sdist").iterdir()
        for name, package in (("from-wheel", wheel), ("from-sdist", sdist)):
            try_out(package, source / "examples", folder / name)


if __name__ == "__main__":
    main()
