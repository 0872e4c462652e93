"""What a policy costs at work: one ranking, a request to the service, and faults.

    python -m benchmarks.bench_serving                  one ranking, memory, and requests
    python -m benchmarks.bench_serving --kills 100      kill -9 under load
    python -m benchmarks.bench_serving --requests 1000000   memory over many requests
    python -m benchmarks.bench_serving --watch 100      false alarms of 200 fair days, and delays of true ones

Times are the least of several rounds of processor time, ours and theirs in turn, so that the ratios hold on a
busy machine too. Services listen on this machine only and end with the measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.serving_processes import (
    BARE,
    compare,
    free_port,
    kill_under_load,
    process,
    request_of,
    service,
)
from fultr.serving import load_policy
from fultr.training.policy_files import write_policy_file

ITEMS, FEATURES = 50, 136
CALLS, ROUNDS = 2_000, 9

MEMORY = "import sys, {imports}\n{work}\nprint(open('/proc/self/statm').read().split()[1])"
"""Prints the resident memory of a process, in pages."""


def main() -> None:
    """Print one table of all measurements, or of those that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, help="how often to kill a service under load")
    parser.add_argument("--requests", type=int, help="how many requests to watch the memory for")
    parser.add_argument("--watch", type=int, help="how often to repeat 200 days")
    arguments, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy = linear_policy(folder / "policy.safetensors")
        if arguments.kills:
            print_kills(linear_policy(folder / "small.safetensors", 5), folder / "events", arguments.kills)
        if arguments.requests:
            print_growth(linear_policy(folder / "small.safetensors", 5), folder, arguments.requests)
        if arguments.watch:
            print_alarms(arguments.watch)
        if not (arguments.kills or arguments.requests or arguments.watch):
            print_times(policy)
            print_memory(policy)
            print_requests(policy, folder)


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


def print_requests(policy: Path, folder: Path, requests: int = 2_000, rounds: int = 3) -> None:
    """Print what a request costs the service, against a bare endpoint of the same framework."""
    body = json.dumps(request_of(ITEMS, FEATURES)).encode()
    named = json.dumps(by_name(request_of(ITEMS, FEATURES))).encode()
    core = min(os.sched_getaffinity(0))
    bare, ours = free_port(), free_port()
    events = folder / "events"
    with (
        process(["-c", BARE, str(bare)], bare, core) as plain,
        process(service(policy, events, ours), ours, core) as served,
    ):
        found: dict[str, list[Load]] = {
            "bare endpoint": [],
            "POST /rank": [],
            "bare, by name": [],
            "by name": [],
        }
        cases = ((plain, bare, body), (served, ours, body), (plain, bare, named), (served, ours, named))
        for _ in range(rounds):
            for loads, (running, port, content) in zip(found.values(), cases, strict=True):
                loads.append(asyncio.run(loaded(running.pid, port, content, requests)))
    best = {name: min(loads, key=lambda load: load.processor) for name, loads in found.items()}
    for name, load in best.items():
        print(
            f"{name:42} {1e6 * load.processor:6.0f} us of processor time, {load.rate:6.0f} a second,"
            f" p50 {1e3 * load.median:.1f} ms, p99 {1e3 * load.slowest:.1f} ms"
        )
    for name, base in (("POST /rank", "bare endpoint"), ("by name", "bare, by name")):
        ratio = best[base].processor / best[name].processor
        print(f"{name + ' against the ' + base:42} {ratio:6.2f} x as many a second, to be at least 0.5")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


class Load(NamedTuple):
    """What requests cost: seconds of processor time of each, how many a second, and how long they took."""

    processor: float
    rate: float
    median: float
    slowest: float


CLIENTS = 8


async def loaded(pid: int, port: int, body: bytes, requests: int) -> Load:
    """Ask as fast as a few clients can, and measure."""
    head = f"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    seconds: list[float] = []

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(number):
            start = time.perf_counter()
            writer.write(head + body)
            status = await reader.readline()
            assert b" 200 " in status, status
            length = 0
            while (line := await reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            await reader.readexactly(length)
            seconds.append(time.perf_counter() - start)
        writer.close()

    await client(50)
    seconds.clear()
    before, start = processor_time_of(pid), time.perf_counter()
    await asyncio.gather(*(client(requests // CLIENTS) for _ in range(CLIENTS)))
    number, wall = len(seconds), time.perf_counter() - start
    used = processor_time_of(pid) - before
    return Load(used / number, number / wall, float(np.median(seconds)), float(np.quantile(seconds, 0.99)))


def processor_time_of(pid: int) -> float:
    """Return the user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_name(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request with features by name."""
    named = [
        {**one, "features": {f"f{at}": value for at, value in enumerate(one["features"])}}
        for one in request["candidates"]
    ]
    return {**request, "candidates": named}


def print_kills(policy: Path, events: Path, kills: int) -> None:
    """Print what kill -9 at random moments under load has lost or doubled."""
    acknowledged = kill_under_load(policy, events, kills)
    kept = compare(acknowledged, events)
    print(
        f"kill -9, {acknowledged.kills} times: {len(acknowledged.rankings)} rankings and"
        f" {len(acknowledged.clicks)} clicks acknowledged; lost {kept.lost_rankings} and {kept.lost_clicks},"
        f" doubled {kept.doubled}"
    )


def print_growth(policy: Path, folder: Path, requests: int) -> None:
    """Print the resident memory of a service after a tenth of many requests, and after all."""
    body = json.dumps(request_of(10, 5)).encode()
    port = free_port()
    options = ("--durability", "none", "--no-log-features")
    with process(service(policy, folder / "many", port, *options), port) as running:

        def memory() -> float:
            pages = int(Path(f"/proc/{running.pid}/statm").read_text().split()[1])
            return pages * 4096 / 1e6

        asyncio.run(loaded(running.pid, port, body, requests // 10))
        early = memory()
        for _ in range(9):
            asyncio.run(loaded(running.pid, port, body, requests // 10))
        print(
            f"memory after {requests // 10:,} requests {early:.1f} MB, after {requests:,} {memory():.1f} MB"
        )


def print_alarms(repeats: int) -> None:
    """Print how many of repeated fair 200 days raised an alarm, and how soon a shift did."""
    from tests.test_monitor import fair_day, first_alarm

    wrong, delays = 0, []
    for seed in range(repeats):
        rng = np.random.default_rng(1000 + seed)
        days = [fair_day(rng) for _ in range(200)]
        wrong += first_alarm(days, 0.0) is not None
        for merit in (0.6, 0.8):
            shifted = [*days[:60], *(fair_day(rng, merit=merit) for _ in range(140))]
            found = first_alarm(shifted, 0.0)
            if found is None or found > 60:
                delays.append((merit, math.inf if found is None else found - 60))
    print(f"200 fair days, {repeats} times: {wrong} with a false alarm, at a level of 95%")
    for merit in (0.6, 0.8):
        own = [delay for of, delay in delays if of == merit]
        print(f"merit of a group from 0.4 to {merit}: noticed after {np.median(own):.0f} days (median)")


if __name__ == "__main__":
    main()
