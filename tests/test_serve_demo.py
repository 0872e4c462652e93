"""The service with simulated users: what `fultr demo --serve` shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fultr
from tests.commands import json_of

pytest.importorskip("starlette")

from benchmarks.serving_processes import free_port
from tests.ranker_contract import lists as learnable

CODE = """
import sys
from pathlib import Path
import fultr
from fultr.serving import serve_demo
folder = Path(sys.argv[1])
data = fultr.read_dataset(folder / "lists.arrow")
serve_demo(folder / "policy", folder / "events", data, fultr.PositionBias.power(1.0), port=int(sys.argv[2]),
           max_disparity=0.1, visits=60, say=lambda line: print(line, flush=True))
"""


@pytest.mark.slow
def test_simulated_users_search_and_click(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = learnable()
    ranker = fultr.FairRanker(1.0, l2=0.01, position_bias=fultr.PositionBias.power(1.0)).fit(data)
    fultr.save(ranker, tmp_path / "policy")
    fultr.write_dataset(data, tmp_path / "lists.arrow")
    port = str(free_port())
    done = subprocess.run(
        [sys.executable, "-c", CODE, tmp_path, port], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"127.0.0.1:{port}/monitor" in done.stdout
    assert all(json.loads(line)["level"] == "info" for line in done.stderr.splitlines())
    counts = json_of(capsys, "count", tmp_path / "events", "--out", tmp_path / "counts.parquet")
    assert counts["impressions"] == 60
    assert counts["clicks"] > 5
