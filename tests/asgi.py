"""Requests to the service within the process of a test: no port, no threads but its own, any clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from fultr.serving.app import Service
from fultr.serving.settings import ServiceSettings

NOON = 1_795_000_000_000_000
"""A moment, in microseconds."""


class Clock:
    """A clock that goes as a test says."""

    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def __call__(self) -> int:
        """Return the time."""
        return self.now


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks an application."""

    def __init__(self, service: Service) -> None:
        self.service, self.app = service, service.app()

    async def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
        parts: Callable[[], AsyncIterator[bytes]] | None = None,
        address: str = "127.0.0.1",
    ) -> Answer:
        body = raw if raw is not None else b"" if content is None else json.dumps(content).encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "client": (address, 1),
            "server": ("127.0.0.1", 80),
        }
        sent: list[MutableMapping[str, Any]] = []
        source = parts() if parts is not None else _whole(body)

        async def receive() -> MutableMapping[str, Any]:
            async for part in source:
                return {"type": "http.request", "body": part, "more_body": True}
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        given = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], given, b"".join(one.get("body", b"") for one in sent[1:]))

    async def rank(self, content: Any, **options: Any) -> Any:
        answer = await self.ask("POST", "/rank", content, **options)
        assert answer.status == 200, answer.body
        return answer.json

    async def click(self, content: Any, **options: Any) -> Answer:
        return await self.ask("POST", "/clicks", content, **options)


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


@asynccontextmanager
async def running(settings: ServiceSettings, clock: Callable[[], int] | None = None) -> AsyncIterator[Client]:
    """Run a service until the block ends."""
    service = Service(settings, clock or Clock())
    async with service.running():
        yield Client(service)


def with_service(
    settings: ServiceSettings, work: Callable[[Client], Any], clock: Callable[[], int] | None = None
) -> Any:
    """Run a service, let `work` ask it, and return what that returns."""

    async def whole() -> Any:
        async with running(settings, clock) as client:
            return await work(client)

    return asyncio.run(whole())
