"""What is killed while it writes leaves the old result or the new: 20 kills each, or FULTR_KILLS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kills import KINDS

KILLS = int(os.environ.get("FULTR_KILLS", "20"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_sees_the_old_or_the_new_after_any_kill(tmp_path: Path, kind: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kills", kind, str(tmp_path), str(KILLS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *seen, left = done.stdout.splitlines()
    assert len(seen) == KILLS
    assert 1 <= len(set(seen)) <= 2
    # of what killed writers left, each removes what the one before it did
    assert len([name for name in left.split() if name.startswith(".")]) <= 6
