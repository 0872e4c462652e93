"""How fast gradients are, and how near the truth: lists of 20 items, 136 features, a linear scorer, one core.

python -m benchmarks.bench_gradients [--quick]

The objective is DCG plus the disparity of two groups, from clicks with inverse propensity weights. The
yardstick is the textbook implementation in `textbook.py`, at batches of 64. All ratios are within this run.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.textbook import textbook_gradient
from fultr.compiled import compiled, compiled_fused
from fultr.expectation import dcg_weights, expected_weights, value_and_gradient

BATCH, ITEMS, FEATURES, SAMPLES = 64, 20, 136, 32
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Lists of one length, their weights, and the gradient with respect to their scores."""

    features: torch.Tensor
    weights: torch.Tensor
    tables: Array
    item_weights: Array
    items: int

    @property
    def lists(self) -> int:
        """Number of lists."""
        return self.features.shape[0] // self.items

    @property
    def scores(self) -> torch.Tensor:
        """Scores of all items."""
        return self.features @ self.weights

    def offsets(self, lists: int) -> NDArray[np.int64]:
        """Offsets of so many lists."""
        return np.arange(0, lists * self.items + 1, self.items)

    def batches(self) -> list[slice]:
        """Rows of the batches."""
        size = BATCH * self.items
        return [slice(start, start + size) for start in range(0, self.lists * self.items, size)]


def make_problem(lists: int, items: int = ITEMS, spread: float | None = None, seed: int = 0) -> Problem:
    """Make lists with clicks, weighted as the objective does; scores have the given range, or are normal."""
    rng = np.random.default_rng(seed)
    rows = lists * items
    features = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    weights = (rng.normal(size=FEATURES) / np.sqrt(FEATURES)).astype(np.float32)
    if spread is not None:
        features[:, 0] = rng.uniform(0, spread, size=rows)
        weights[:] = 0
        weights[0] = 1
    position = np.tile(np.arange(1, items + 1), lists)
    click = (rng.random(rows) < 0.5 / position) & (rng.random(rows) < 0.4)
    ips, group = click * position, rng.integers(0, 2, size=rows)
    merit = [
        np.bincount(np.repeat(np.arange(lists), items), weights=ips * (group == code), minlength=lists)
        for code in (0, 1)
    ]
    own, other = np.where(group == 0, merit[1].repeat(items), -merit[0].repeat(items)), 0.8
    tables = np.stack([dcg_weights(items), 1 / np.arange(1, items + 1)])
    return Problem(
        torch.from_numpy(features), torch.from_numpy(weights), tables, np.stack([ips, -other * own]), items
    )


def main() -> None:
    """Print one table; each ratio is within this run."""
    parser = argparse.ArgumentParser(description="Speed and error of policy gradients.")
    parser.add_argument("--quick", action="store_true", help="fewer lists")
    quick = parser.parse_known_args()[0].quick
    torch.set_num_threads(1)
    problem = make_problem(BATCH * (4 if quick else 40))
    truth = value_and_gradient(
        problem.scores.numpy(), problem.tables, problem.item_weights, problem.offsets(problem.lists), "double"
    )[1]
    shape = f"{problem.lists} lists of {ITEMS} items, {FEATURES} features, batches of {BATCH}"
    print(f"gradients: {shape}, one core")
    print(f"{'':<46}{'lists/s':>10}{'x textbook':>12}{'gradient error':>16}")
    yardstick = None
    for name, method in METHODS.items():
        few = Problem(
            problem.features[: 2 * BATCH * ITEMS],
            problem.weights,
            problem.tables,
            problem.item_weights[:, : 2 * BATCH * ITEMS],
            ITEMS,
        )
        work = few if name.startswith("textbook") else problem
        method(few, few.batches()[0])  # compile
        seconds, found = fastest(partial(all_batches, method, work), 2 if quick else 5)
        known = truth[: found.size]
        error = float(np.linalg.norm(found - known) / np.linalg.norm(known))
        speed = work.lists / seconds
        yardstick = yardstick or speed
        print(f"{name:<46}{speed:>10.0f}{speed / yardstick:>12.1f}{error:>16.1e}", flush=True)
    print()
    for line in (
        threads_line(quick),
        *length_lines(quick),
        *counting_lines(quick),
        configurations_line(),
        *memory_lines(quick),
        *compilation_lines(),
    ):
        print(line, flush=True)


def all_batches(method: Callable[[Problem, slice], Array], problem: Problem) -> Array:
    """Return the gradient of all batches, one after another."""
    return np.concatenate([method(problem, rows) for rows in problem.batches()])


def fused(problem: Problem, rows: slice) -> Array:
    """Value and gradient for known item weights in one pass, scorer and its gradient included."""
    features = problem.features[rows]
    scores = (features @ problem.weights).numpy()
    offsets = problem.offsets(scores.size // problem.items)
    slope = value_and_gradient(scores, problem.tables, problem.item_weights[:, rows], offsets)[1]
    features.T @ torch.from_numpy(slope.astype(np.float32))
    return slope


def operation(estimator: Any) -> Callable[[Problem, slice], Array]:
    """Run the torch operation forward and backward, scorer included."""

    def gradient(problem: Problem, rows: slice) -> Array:
        weights = problem.weights.detach().requires_grad_()
        scores = problem.features[rows] @ weights
        scores.retain_grad()
        offsets = problem.offsets(scores.numel() // problem.items)
        expected = expected_weights(
            scores, problem.tables, offsets=offsets, estimator=estimator, samples=SAMPLES, seed=rows.start
        )
        known = torch.from_numpy(problem.item_weights[:, rows].astype(np.float32))
        (expected * known).sum().backward()  # type: ignore[no-untyped-call]
        assert scores.grad is not None
        return scores.grad.double().numpy()

    return gradient


def textbook(problem: Problem, rows: slice) -> Array:
    """Run the textbook implementation, scorer included."""
    features = problem.features[rows]
    scores = (features @ problem.weights).reshape(-1, problem.items)
    known = torch.from_numpy(problem.item_weights[:, rows].astype(np.float32)).reshape(2, *scores.shape)
    generator = torch.Generator().manual_seed(rows.start)
    slope = textbook_gradient(
        scores, torch.from_numpy(problem.tables.astype(np.float32)), known, SAMPLES, generator
    )
    features.T @ slope.reshape(-1)
    return slope.reshape(-1).double().numpy()


METHODS: dict[str, Callable[[Problem, slice], Array]] = {
    f"textbook, S = {SAMPLES}": textbook,
    f"reinforce, S = {SAMPLES}": operation("reinforce"),
    f"plrank, S = {SAMPLES}": operation("plrank"),
    "exact, forward and backward": operation("exact"),
    "exact, fused": fused,
}


def threads_line(quick: bool) -> str:
    """Compare how two threads speed up the fused pass with how they speed up loops that share nothing.

    Of these, one keeps the vector units busy, as the fused pass does: where two threads share a core, they
    share those. The other waits for its own last result, which any number of threads can do at once.
    """
    problem = make_problem(2_000 if quick else 20_000)
    scores, offsets = problem.scores.numpy(), problem.offsets(problem.lists)
    busy_vectors(np.full(VECTORS, 0.5, np.float32), 1)
    busy_scalar(10)
    with ThreadPoolExecutor(2) as pool:

        def both(work: Callable[[int], object], threads: int) -> None:
            list(pool.map(work, [4 // threads] * threads))

        kinds: tuple[Callable[[int], object], ...] = (
            lambda _: value_and_gradient(scores, problem.tables, problem.item_weights, offsets),
            lambda threads: both(
                lambda share: busy_vectors(np.full(VECTORS, 0.5, np.float32), 50_000 * share), threads
            ),
            lambda threads: both(lambda share: busy_scalar(2_000_000 * share), threads),
        )
        times = np.empty((3 if quick else 60, len(kinds), 2))
        # often, and what is compared next to each other, since other work on the machine comes and goes
        for turn, (number, kind) in itertools.product(range(len(times)), enumerate(kinds)):
            for threads in (1, 2):
                torch.set_num_threads(threads)
                times[turn, number, threads - 1] = fastest(partial(kind, threads), 2)[0]
    torch.set_num_threads(1)
    ours, vectors, scalar = np.median(times[..., 0] / times[..., 1], axis=0)
    ratio = f"a loop over vectors that shares nothing: {vectors:.2f} ({ours / vectors:.2f} of it)"
    return f"two threads: {ours:.2f} times as fast; {ratio}; a loop over one number: {scalar:.2f}"


VECTORS = 4_096
"""Numbers that fit into the nearest cache of a core."""


@compiled_fused
def busy_vectors(values: Any, rounds: int) -> None:
    """Compute something in the nearest cache that fills the vector units."""
    for _ in range(rounds):
        for k in range(values.size):
            values[k] = np.float32(3.7) * values[k] * (np.float32(1.0) - values[k])


@compiled
def busy_scalar(rounds: int) -> float:
    """Compute something that needs no memory, one step after another."""
    x = 0.5
    for _ in range(rounds):
        x = 3.7 * x * (1.0 - x)
    return x


def length_lines(quick: bool) -> list[str]:
    """Compare the cost of an item in long and in short lists."""
    lines = []
    for spread in (5.0, 100.0):
        costs = [cost_of_item(items, spread, quick) for items in (20, 1000)]
        ratio = f"{costs[1] / costs[0]:.2f} times that at n = 1000"
        lines.append(f"range {spread:g}: an item costs {costs[0] * 1e9:.0f} ns at n = 20, {ratio}")
    return lines


def counting_lines(quick: bool) -> list[str]:
    """Compare counting, for a cut after 10 positions, with sums of exponentials, and at two lengths."""
    kinds: tuple[tuple[int, int | None], ...] = ((20, None), (20, 10), (1000, 10))
    # in turns, since a shared machine's speed changes from one second to the next
    rounds = [[cost_of_item(items, 5.0, quick, top_k) for items, top_k in kinds] for _ in range(3)]
    smooth, short, long = np.min(rounds, axis=0)
    return [
        f"counting, K = 10: {short / smooth:.2f} times the cost of exponentials at n = 20",
        f"counting, K = 10: an item costs {long / short:.2f} times as much at n = 1000 as at n = 20",
    ]


def cost_of_item(items: int, spread: float, quick: bool, top_k: int | None = None) -> float:
    """Return the time that the fused pass takes for an item."""
    problem = make_problem(max(64, (5_000 if quick else 40_000) // items), items, spread)
    tables = problem.tables if top_k is None else np.where(np.arange(items) < top_k, problem.tables, 0.0)
    scores, offsets = problem.scores.numpy(), problem.offsets(problem.lists)
    run = partial(value_and_gradient, scores, tables, problem.item_weights, offsets)
    run()  # compile
    return fastest(run, 20)[0] / scores.size


def configurations_line() -> str:
    """Compare a step of 60 configurations together with 60 steps."""
    problem = make_problem(BATCH)
    weights = torch.randn(60, FEATURES, generator=torch.Generator().manual_seed(0)) / FEATURES**0.5
    offsets, known = problem.offsets(BATCH), torch.from_numpy(problem.item_weights.astype(np.float32))

    def step(some: torch.Tensor) -> torch.Tensor | None:
        leaf = some.detach().requires_grad_()
        expected = expected_weights(leaf @ problem.features.T, problem.tables, offsets=offsets)
        (expected * known[:, None]).sum().backward()  # type: ignore[no-untyped-call]
        return leaf.grad

    step(weights)
    together = fastest(lambda: step(weights), 5)[0]
    apart = fastest(lambda: [step(weights[number : number + 1]) for number in range(60)], 3)[0]
    return f"60 configurations together cost {together / apart:.2f} of 60 steps, batch {BATCH}"


PEAK = """
import sys
import numpy as np, torch
from pathlib import Path
from benchmarks.bench_gradients import FEATURES, make_problem
from fultr.expectation import expected_weights, value_and_gradient
torch.set_num_threads(1)
lists, configurations, fused = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "fused"

def peak():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])

def step(problem):
    offsets = problem.offsets(problem.lists)
    if fused:
        value_and_gradient(problem.scores.numpy(), problem.tables, problem.item_weights, offsets)
        return
    leaf = torch.zeros(configurations, FEATURES, requires_grad=True)
    expected = expected_weights(leaf @ problem.features.T, problem.tables, offsets=offsets)
    (expected * torch.from_numpy(problem.item_weights.astype(np.float32))[:, None]).sum().backward()

step(make_problem(64))
problem = make_problem(lists)
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = peak()
step(problem)
print(peak() - before)
"""


def memory_lines(quick: bool) -> list[str]:
    """Measure how much memory a step takes beyond the data, by the number of lists and of configurations."""
    if not Path("/proc/self/clear_refs").exists():
        return ["peak memory: measured on Linux only"]
    lines = []
    for name, kind, configurations in (("fused", "fused", 1), ("forward and backward", "operation", 1)):
        sizes = (20_000, 40_000) if quick else (40_000, 160_000)
        bytes_of_item = [peak_memory(lists, configurations, kind) / lists / ITEMS for lists in sizes]
        lines.append(
            f"peak memory, {name}: {bytes_of_item[0]:.0f} bytes an item in a batch of {sizes[0]} lists, "
            f"{bytes_of_item[1]:.0f} in one of {sizes[1]}"
        )
    together = peak_memory(640, 60, "operation") / 640 / 60 / ITEMS
    lines.append(f"peak memory, 60 configurations, batch 640: {together:.0f} bytes for an item of each")
    return lines


def peak_memory(lists: int, configurations: int, kind: str) -> int:
    """Return by how many bytes a step of a fresh process raises its peak."""
    command = [sys.executable, "-c", PEAK, str(lists), str(configurations), kind]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


FIRST_CALL = """
import time, numpy as np
start = time.perf_counter()
from fultr.expectation import dcg_weights, value_and_gradient, expected_position_weights
import torch
from fultr.expectation import expected_weights
loaded = time.perf_counter()
scores, offsets = np.linspace(0, 30, 100), np.array([0, 20, 100])
smooth = np.stack([dcg_weights(80), 1 / np.arange(1, 81)])
cut, linear = dcg_weights(80, top_k=5)[None], np.arange(1.0, 81.0)[None]
leaf = torch.zeros(100, requires_grad=True)
far = torch.linspace(0, 300, 100, requires_grad=True)
for tables in (smooth, cut, linear):
    value_and_gradient(scores, tables, np.ones((len(tables), 100)), offsets)
    for given in (leaf, far):
        for estimator in ("exact", "reinforce", "plrank"):
            expected_weights(given, tables, offsets=offsets, estimator=estimator).sum().backward()
expected_position_weights(scores[None, :20], dcg_weights(20))
print(time.perf_counter() - loaded)
"""


def compilation_lines() -> list[str]:
    """Measure the first call of everything after install, and the same in a second process."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        command = [sys.executable, "-c", FIRST_CALL]
        seconds = []
        for _ in range(2):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            seconds.append(float(done.stdout))
    first, second = seconds
    return [
        f"first call of everything, compilation included: {first:.1f} s; in a second process {second:.1f} s"
    ]


def fastest(action: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Return the shortest of some times, and the result."""
    best, result = np.inf, None
    for _ in range(times):
        start = time.perf_counter()
        result = action()
        best = min(best, time.perf_counter() - start)
    return float(best), result


if __name__ == "__main__":
    main()
