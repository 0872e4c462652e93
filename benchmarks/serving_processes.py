"""Services in processes of their own, and clients that ask them; on this machine only, and never for long."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
STARTING_SECONDS = 300.0
"""On a busy machine."""

BARE = """
import sys, msgspec, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from fultr.serving.requests import RankRequest
decoder = msgspec.json.Decoder(RankRequest)
async def rank(request):
    asked = decoder.decode(await request.body())
    return Response(msgspec.json.encode([one.id for one in asked.candidates]), media_type="application/json")
async def readyz(request):
    return Response(b"{}")
app = Starlette(routes=[Route("/rank", rank, methods=["POST"]), Route("/readyz", readyz)])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="error",
            access_log=False)
"""
"""A bare endpoint of the same framework, which parses the same request and returns its ids."""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


@contextmanager
def process(
    arguments: Sequence[str | Path], port: int, core: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service until the block ends; give it when it is ready."""
    running = subprocess.Popen([sys.executable, *map(str, arguments)], stderr=subprocess.DEVNULL)
    try:
        if core is not None:
            os.sched_setaffinity(running.pid, {core})
        _wait_until_ready(port, running)
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
        try:
            running.wait(60)
        finally:
            running.kill()


def _wait_until_ready(port: int, running: subprocess.Popen[bytes] | None = None) -> None:
    end = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < end and (running is None or running.poll() is None):
        with (
            suppress(OSError, http.client.HTTPException),
            closing(http.client.HTTPConnection(HOST, port, timeout=5)) as connection,
        ):
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.02)
    raise RuntimeError("the service does not start")


def service(policy: Path, events: str | Path, port: int, *more: str) -> list[str | Path]:
    """Return the arguments of a service."""
    return ["-m", "fultr", "serve", policy, "--events", str(events), "--port", str(port), *more]


def request_of(items: int, features: int, seed: int = 0) -> dict[str, Any]:
    """Return a request."""
    rng = random.Random(seed)
    candidates = [
        {
            "id": f"d{at}",
            "group": "ab"[at % 2],
            "features": [round(rng.gauss(0, 1), 6) for _ in range(features)],
        }
        for at in range(items)
    ]
    return {"query_id": "query", "candidates": candidates, "top_k": 10}


@dataclass
class Acknowledged:
    """What a service said it has recorded."""

    rankings: set[str] = field(default_factory=set)
    clicks: set[tuple[str, str]] = field(default_factory=set)
    sent_clicks: set[tuple[str, str]] = field(default_factory=set)
    kills: int = 0


FORKING = """
import os, signal, sys
import httptools, uvicorn, uvloop
import fultr.serving.app
from fultr.serving import ServiceSettings, serve
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        serve(ServiceSettings([sys.argv[1]], sys.argv[2]), port=int(line))
        os._exit(0)
    print(pid, flush=True)
"""
"""Starts services by forking, which spares them the imports; all of them have the same files."""


@contextmanager
def forking(policy: Path, events: Path) -> Iterator[Callable[[int], int]]:
    """Give a function that starts a service at a port and returns its process; the last one ends with it."""
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKING, str(policy), str(events)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    writing, reading = parent.stdin, parent.stdout

    def start(port: int) -> int:
        writing.write(f"{port}\n")
        writing.flush()
        return int(reading.readline())

    try:
        yield start
    finally:
        writing.close()
        parent.wait(STARTING_SECONDS)
        reading.close()


def kill_under_load(policy: Path, events: Path, kills: int, clients: int = 4, seed: int = 0) -> Acknowledged:
    """Kill a service at random moments under load, start it again each time, and return what it promised."""
    acknowledged, lock, rng = Acknowledged(), threading.Lock(), random.Random(seed)
    with forking(policy, events) as start:
        for number in range(kills):
            port = free_port()
            running = start(port)
            try:
                _wait_until_ready(port)
            except RuntimeError:
                os.kill(running, signal.SIGKILL)
                raise
            stop = threading.Event()
            work = (acknowledged, lock, port, stop)
            threads = [
                threading.Thread(target=_visit, args=(*work, f"{number}-{client}"))
                for client in range(clients)
            ]
            for thread in threads:
                thread.start()
            time.sleep(rng.uniform(0.05, 0.5))
            os.kill(running, signal.SIGKILL)
            stop.set()
            for thread in threads:
                thread.join()
            acknowledged.kills += 1
    return acknowledged


def _visit(
    acknowledged: Acknowledged, lock: threading.Lock, port: int, stop: threading.Event, name: str
) -> None:
    """Ask for rankings and click on them, until the service is gone."""
    asked = request_of(10, 5)
    for number in range(100_000):
        if stop.is_set():
            return
        with (
            suppress(OSError, http.client.HTTPException, ValueError),
            closing(http.client.HTTPConnection(HOST, port, timeout=10)) as connection,
        ):
            shown = _ask(connection, "/rank", {**asked, "session": f"{name}-{number}"})
            key = (shown["ranking_id"], shown["ids"][0])
            with lock:
                acknowledged.rankings.add(key[0])
                acknowledged.sent_clicks.add(key)
            _ask(connection, "/clicks", {"ranking_id": key[0], "ids": [key[1]]})
            with lock:
                acknowledged.clicks.add(key)


def _ask(connection: http.client.HTTPConnection, path: str, content: object) -> Any:
    connection.request("POST", path, json.dumps(content))
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise ValueError(body)
    found = json.loads(body)
    if not found.get("recorded", True):
        raise ValueError("not recorded")
    return found


@dataclass
class Kept:
    """What is in the store of what was promised."""

    rankings: int
    clicks: int
    lost_rankings: int
    lost_clicks: int
    doubled: int


def compare(acknowledged: Acknowledged, events: Path) -> Kept:
    """Compare what was acknowledged with what the files of events hold."""
    rankings: list[str] = []
    clicks: list[tuple[str, str]] = []
    for file in sorted(events.glob("*.sqlite")):
        connection = sqlite3.connect(file)
        rankings += [one for (one,) in connection.execute("SELECT ranking_id FROM impressions")]
        clicks += connection.execute("SELECT ranking_id, doc_id FROM clicks").fetchall()
        connection.close()
    return Kept(
        len(rankings),
        len(clicks),
        len(acknowledged.rankings - set(rankings)),
        len(acknowledged.clicks - set(clicks)),
        len(rankings)
        - len(set(rankings))
        + len(clicks)
        - len(set(clicks))
        + len(set(clicks) - acknowledged.sent_clicks),
    )
