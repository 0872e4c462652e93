"""Several services and one PostgreSQL database: what one shows, another hears clicks on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import fultr
from fultr import PositionBias
from fultr.serving.settings import ServiceSettings
from tests.asgi import running
from tests.commands import json_of
from tests.postgres import Server, postgres_server
from tests.served_policies import candidates, linear_policy


@pytest.fixture
def server() -> Iterator[Server]:
    with postgres_server() as started:
        yield started


@pytest.mark.slow
def test_services_share_a_database_that_may_go_and_come_back(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = linear_policy(tmp_path / "policy", position_bias=PositionBias.power(1.0).to_dict())
    asked = {"query_id": "nurse", "candidates": candidates(), "top_k": 4}
    settings = ServiceSettings(policies=[policy], events=server.url)

    async def work() -> None:
        async with running(settings) as one, running(settings) as other:
            shown = await one.rank({**asked, "session": "s"})
            assert (await other.rank({**asked, "session": "s"})) == shown
            click = {"ranking_id": shown["ranking_id"], "positions": [1]}
            assert [(await each.click(click)).json["new"] for each in (other, one)] == [1, 0]
            await asyncio.to_thread(server.stop)
            try:
                lost = await one.rank(asked)
                assert not lost["recorded"]
                assert len(lost["ids"]) == 4
                assert (await one.click(click)).status == 503
                assert (await one.ask("GET", "/readyz")).status == 503
            finally:
                await asyncio.to_thread(server.start)
            assert (await one.rank({**asked, "session": "t"}))["recorded"]
            assert (await one.ask("GET", "/readyz")).status == 200

    asyncio.run(work())
    counts = fultr.count(server.url)
    assert counts.impressions.sum() == 2
    assert counts.clicks().sum() == 1
    content = json_of(capsys, "monitor", server.url, "--policy", policy)
    assert content["windows"][-1]["impressions"] == 2
