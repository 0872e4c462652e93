"""The service as a process: it starts, ends in order, survives kill -9 without a loss, and bad requests."""

from __future__ import annotations

import http.client
import json
import random
import signal
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.served_policies import candidates, linear_policy

pytest.importorskip("starlette")

from benchmarks.serving_processes import compare, free_port, kill_under_load, process, service
from fultr.serving.settings import ServiceSettings
from tests.asgi import Client, with_service

FIVE = tuple(f"f{number}" for number in range(5))


@pytest.mark.slow
def test_kill_9_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    policy = linear_policy(tmp_path / "policy", [1.0, 0.0, 0.5, 0.2, -1.0], FIVE)
    acknowledged = kill_under_load(policy, tmp_path / "events", kills=3)
    kept = compare(acknowledged, tmp_path / "events")
    assert acknowledged.kills == 3
    assert len(acknowledged.rankings) > 10
    assert (kept.lost_rankings, kept.lost_clicks, kept.doubled) == (0, 0, 0)


@pytest.mark.slow
def test_the_service_ends_in_order_and_records_what_was_asked(tmp_path: Path) -> None:
    policy = linear_policy(tmp_path / "policy")
    port = free_port()
    answered: list[int] = []
    with process(service(policy, tmp_path / "events", port, "--durability", "none"), port) as running:

        def ask(number: int) -> None:
            with (
                suppress(OSError, http.client.HTTPException),
                closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection,
            ):
                for at in range(50):
                    asked = {"query_id": f"{number}-{at}", "candidates": candidates()}
                    connection.request("POST", "/rank", json.dumps(asked))
                    answer = connection.getresponse()
                    answer.read()
                    answered.append(answer.status)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while len(answered) < 60:
            threads[0].join(0.01)
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        for thread in threads:
            thread.join()
    assert set(answered) == {200}
    file = next((tmp_path / "events").glob("*.sqlite"))
    with closing(sqlite3.connect(file)) as connection:
        (recorded,) = connection.execute("SELECT count(*) FROM impressions").fetchone()
    assert recorded >= len(answered)
    assert not list((tmp_path / "events").glob("*-wal"))  # closed, and complete by itself


@pytest.mark.slow
def test_a_header_of_the_client_does_not_change_its_address(tmp_path: Path) -> None:
    policy, port = linear_policy(tmp_path / "policy"), free_port()
    statuses = set()
    with (
        process(service(policy, tmp_path / "events", port, "--rate", "0.5"), port),
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection,
    ):
        for number in range(20):
            headers = {"X-Forwarded-For": f"10.0.0.{number}"}
            connection.request("POST", "/rank", b"{}", headers)
            answer = connection.getresponse()
            answer.read()
            statuses.add(answer.status)
    assert statuses == {422, 429}


def test_malformed_requests_are_answered_and_change_nothing(tmp_path: Path) -> None:
    """Requests with bytes changed, cut and doubled, and values of other types in place of each value."""
    policy = linear_policy(tmp_path / "policy")
    good = {"query_id": "q", "candidates": candidates(3), "top_k": 2, "session": "s", "offset": 0}
    rng = random.Random(0)

    async def work(client: Client) -> None:
        shown = await client.rank(good)
        click = {"ranking_id": shown["ranking_id"], "positions": [1], "ids": [shown["ids"][0]]}
        statuses: dict[int, int] = {}
        for path, content in (("/rank", good), ("/clicks", click)):
            for raw in (*bent(content, rng), *_bytes_changed(json.dumps(content).encode(), rng, 5_000)):
                answer = await client.ask("POST", path, raw=raw)
                statuses[answer.status] = statuses.get(answer.status, 0) + 1
                if answer.status != 200:
                    assert set(answer.json) == {"error"}
        assert set(statuses) <= {200, 404, 422}
        assert sum(statuses.values()) > 10_000
        assert statuses[422] > 5_000
        assert await client.rank(good) == shown
        assert (await client.ask("GET", "/readyz")).status == 200

    with_service(ServiceSettings(policies=[policy], events=tmp_path / "events"), work)


ODD: tuple[Any, ...] = (None, True, -1, 0, 2**63, 1e308, "", "x", "\0", "\ud800", [], {}, [[]], "a" * 10_000)


def bent(content: Any, rng: random.Random) -> list[bytes]:
    """Return a request with each of its values in turn replaced by odd ones, left out, and doubled."""
    requests = []

    def visit(inner: Any, rebuild: Any) -> None:
        for odd in ODD:
            requests.append(json.dumps(rebuild(odd)).encode())
        if isinstance(inner, dict):
            for name, value in inner.items():
                without = {other: one for other, one in inner.items() if other != name}
                requests.append(json.dumps(rebuild(without)).encode())
                requests.append(json.dumps(rebuild({**inner, f"{name}x": value})).encode())
                visit(value, lambda odd, name=name: rebuild({**inner, name: odd}))
        elif isinstance(inner, list) and inner:
            at = rng.randrange(len(inner))
            requests.append(json.dumps(rebuild([*inner, inner[at]])).encode())
            visit(inner[at], lambda odd: rebuild([*inner[:at], odd, *inner[at + 1 :]]))

    visit(content, lambda odd: odd)
    return requests


def _bytes_changed(data: bytes, rng: random.Random, number: int) -> list[bytes]:
    changed = []
    for _ in range(number):
        at, end = sorted(rng.randrange(len(data)) for _ in range(2))
        kind = rng.randrange(3)
        middle = bytes(rng.randrange(256) for _ in range(3)) if kind == 0 else data[at:end] * (kind - 1) * 2
        changed.append(data[:at] + middle + data[end if kind else at + 1 :])
    return changed
