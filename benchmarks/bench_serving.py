"""What a policy costs at work: one ranking against plain numpy, and memory against importing it.

    python -m benchmarks.bench_serving

Times are the least of several rounds of processor time, ours and theirs in turn, so that the ratios hold on a
busy machine too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fultr.serving import load_policy
from fultr.training.policy_files import write_policy_file

ITEMS, FEATURES = 50, 136
CALLS, ROUNDS = 2_000, 9

MEMORY = "import sys, {imports}\n{work}\nprint(open('/proc/self/statm').read().split()[1])"
"""Prints the resident memory of a process, in pages."""


def main() -> None:
    """Print one table of all measurements."""
    with tempfile.TemporaryDirectory() as name:
        policy = linear_policy(Path(name) / "policy.safetensors")
        print_times(policy)
        print_memory(policy)


def linear_policy(path: Path, features: int = FEATURES) -> Path:
    """Write a linear policy with weights that are as good as any."""
    rng = np.random.default_rng(0)
    tensors = {
        "scaling.mean": rng.normal(size=features).astype(np.float32),
        "scaling.scale": rng.uniform(0.5, 2, size=features).astype(np.float32),
        "scorer.weight": (0.2 * rng.normal(size=features)).astype(np.float32),
    }
    content = {
        "ranker": "FairRanker",
        "model": {"kind": "linear", "features": features},
        "hidden_columns": [],
        "features": [f"f{number}" for number in range(features)],
        "groups": ["a", "b"],
    }
    return write_policy_file(path, tensors, content)


def print_times(path: Path) -> None:
    """Print the time of one ranking against that of a matrix product and a sort of the same size."""
    rng, policy = np.random.default_rng(0), load_policy(path)
    features = rng.normal(size=(ITEMS, FEATURES)).astype(np.float32)
    weight = rng.normal(size=FEATURES).astype(np.float32)
    seeds = [f"session {number}" for number in range(CALLS)]

    def plain(_seed: str) -> object:
        return np.argsort(features @ weight)

    def drawn(seed: str) -> object:
        return policy.rank_one(features, seed=seed)

    def fresh(_seed: str) -> object:
        return policy.rank_one(features)

    seconds = dict.fromkeys((plain, drawn, fresh), np.inf)
    for _ in range(ROUNDS):
        for what in seconds:
            seconds[what] = min(seconds[what], processor_time(what, seeds) / CALLS)
    base = seconds[plain]
    print(f"{ITEMS} items of {FEATURES} features: matrix product and argsort {1e6 * base:.2f} us")
    for what, name in ((drawn, "rank_one with a seed"), (fresh, "rank_one without")):
        ratio = f"{seconds[what] / base:.2f} x, to be at most 5"
        print(f"{name:42} {1e6 * seconds[what]:6.2f} us   {ratio}")


def processor_time(call: Callable[[str], object], given: list[str]) -> float:
    """Return the processor time of calls, one after another."""
    start = time.process_time()
    for one in given:
        call(one)
    return time.process_time() - start


def print_memory(path: Path) -> None:
    """Print the resident memory of a process that ranks against one that imports numpy."""
    ours = resident("numpy", f"from fultr.serving import load_policy\n{RANK.format(path=str(path))}")
    theirs = resident("numpy", "")
    ratio = f"{ours / theirs:.2f} x import numpy ({theirs:.1f} MB), to be at most 2"
    print(f"{'resident memory of a process that ranks':42} {ours:6.1f} MB   {ratio}")


RANK = (
    "policy = load_policy({path!r})\n"
    "policy.rank_one(numpy.zeros((50, len(policy.feature_names)), 'float32'), seed='s')"
)


def resident(imports: str, work: str) -> float:
    """Return the resident memory, in MB, of a process of its own."""
    code = MEMORY.format(imports=imports, work=work)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(done.stdout) * 4096 / 1e6


if __name__ == "__main__":
    main()
