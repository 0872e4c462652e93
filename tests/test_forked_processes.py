"""Servers that load a policy and then fork: what the parent's threads did is no concern of the children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import os, sys, time
import torch
import fultr

torch.set_num_threads(2)
data = fultr.datasets.synthetic(queries=400, seed=0).train
bias = fultr.PositionBias.power(1.0)
ranker = fultr.FairRanker(1.0, model="mlp", hidden=[64], l2=0.1, folds=0, position_bias=bias)
ranker.fit(data[:20])

def work():
    ranker.predict(data)
    return fultr.evaluate(ranker, data, position_bias=bias, intervals=None).dcg

torch.randn(1000, 1000) @ torch.randn(1000, 1000)  # starts all threads of torch
before = work()
child = os.fork()
if child == 0:
    os._exit(7 if work() == before else 8)
for _ in range(600):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        sys.exit(0 if os.waitstatus_to_exitcode(status) == 7 and work() == before else 1)
    time.sleep(0.1)
os.kill(child, 9)
sys.exit("the child hangs")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_predicts_after_its_parent_did_on_two_threads() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


PARENT = """
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from fultr.experiments.runs import _in_one_thread

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_in_one_thread)
    pool.submit(time.sleep, 0).result()
    print("ready", flush=True)
    pool.submit(time.sleep, 3600).result()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_workers_of_reproduce_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, "-W", "ignore", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.send_signal(number)
        # the worker holds the other end of the pipe, too: there is no end of it before the worker has ended
        rest, _ = parent.communicate(timeout=600)
    assert not rest
    assert parent.returncode == -number
