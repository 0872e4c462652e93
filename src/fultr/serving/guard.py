"""What every request passes first: token, rate of its address, limits of its body; and its measurement."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from fultr.errors import FultrError
from fultr.serving.metrics import Metrics
from fultr.serving.settings import ServiceSettings

log = logging.getLogger("fultr.serving")

OPEN = ("/healthz", "/readyz")
"""What needs no token."""

BURST_SECONDS = 2.0
"""An address may send at once what it may send in so many seconds."""

MOST_ADDRESSES = 100_000
"""Addresses whose rate is remembered."""


class TooLargeError(FultrError):
    """The body of a request is larger than the service takes."""


class TooSlowError(FultrError):
    """The body of a request took too long to arrive."""


async def body_of(request: Request, settings: ServiceSettings) -> bytes:
    """Read the body of a request within the limits of size and time."""
    problem = f"a request may have {settings.max_body} bytes"
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > settings.max_body:
        raise TooLargeError(problem)
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > settings.max_body:
                    raise TooLargeError(problem)
                parts.append(part)
    except TimeoutError:
        raise TooSlowError(
            f"the request took more than {settings.body_seconds:g} seconds to arrive"
        ) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Rates:
    """How many requests addresses may send: a bucket for each, that fills with time."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.clock = rate, clock
        self.most = max(1.0, BURST_SECONDS * rate)
        self.buckets: dict[str, tuple[float, float]] = {}

    def admits(self, address: str) -> bool:
        """Say whether a request of an address is within its rate, and count it if so."""
        now = self.clock()
        left, before = self.buckets.get(address, (self.most, now))
        left = min(self.most, left + self.rate * (now - before))
        if address not in self.buckets and len(self.buckets) >= MOST_ADDRESSES:
            self.buckets.clear()
        self.buckets[address] = (left - 1, now) if left >= 1 else (left, now)
        return left >= 1


class Guard:
    """An ASGI application around the service."""

    def __init__(self, app: Any, settings: ServiceSettings, metrics: Metrics, paths: Sequence[str]) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.paths = frozenset(paths)
        self.token = None if settings.token is None else f"Bearer {settings.token}".encode()
        self.rates = None if settings.rate is None else Rates(settings.rate)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or let the service answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        path = scope["path"] if scope["path"] in self.paths else "other"

        async def measured(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            refused = self._refusal(scope, path)
            if refused is None:
                await self.app(scope, receive, measured)
            else:
                await _answer(measured, *refused)
        except ClientDisconnect:
            status = 499  # nobody is there to hear of it
        except Exception:
            log.exception("a request failed", extra={"path": path})
            if status == 500:
                await _answer(measured, 500, "the service failed; its log says where")
        finally:
            self.metrics.answered(path, status, time.perf_counter() - start)

    def _refusal(self, scope: Any, path: str) -> tuple[int, str] | None:
        """Return the status and the text of an answer to a request that is not let through."""
        if path in OPEN:
            return None
        if self.token is not None:
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self.token):
                return 401, "the header Authorization must be 'Bearer' and the token of the service"
        client = scope.get("client")
        if self.rates is not None and not self.rates.admits(client[0] if client else ""):
            return 429, f"at most {self.settings.rate:g} requests a second"
        return None


HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Answers are neither guessed at nor kept: a ranking is drawn for one request."""


async def _answer(send: Any, status: int, text: str) -> None:
    body = msgspec.json.encode({"error": text})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
