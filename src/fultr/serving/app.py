"""The service: rankings and clicks over HTTP, on Starlette."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from fultr.errors import FultrError, InputError
from fultr.serving.events import FALLBACK, ClickEvent, Impression, Outcome, PolicyLoaded, day_of, fallback_of
from fultr.serving.guard import Guard, TooLargeError, TooSlowError, body_of
from fultr.serving.metrics import Metrics
from fultr.serving.openapi import openapi
from fultr.serving.pages import monitor_page, openapi_page
from fultr.serving.policies import Features, ServedPolicies, Slot
from fultr.serving.requests import (
    ClickAnswer,
    Problem,
    RankAnswer,
    RankRequest,
    click_request,
    rank_request,
)
from fultr.serving.settings import Fallback, ServiceSettings
from fultr.serving.stores import Durability, StoreError, open_store
from fultr.serving.watching import Watch
from fultr.serving.writer import EventWriter

log = logging.getLogger("fultr.serving")

JSON = "application/json"
HOUR = 3_600_000_000
"""Microseconds."""

STATUS = {Outcome.UNKNOWN: 404, Outcome.LATE: 410, Outcome.NOT_SHOWN: 422}
"""What is answered to clicks that are not recorded."""

_encode = msgspec.json.Encoder().encode


def microseconds() -> int:
    """Return the time since 1970, UTC."""
    return time.time_ns() // 1000


class Service:
    """What the service holds while it runs; its methods answer requests."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], int] = microseconds) -> None:
        self.settings, self.clock = settings, clock
        self.metrics = Metrics()
        self.policies = ServedPolicies(settings.policies, settings.shares, settings.shadows, settings.items)
        store = open_store(
            settings.events,
            int(settings.accept_clicks * HOUR),
            settings.retention,
            settings.durability,
        )
        self.writer = EventWriter(store, self._store_failed, clock)
        self.watch = Watch(settings, self.policies, clock)
        self.is_announced = self.is_draining = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Record events and look after policy files, until the service ends; then record what is left."""
        self.writer.start()
        self._announce_policies()
        tasks = [asyncio.create_task(self._reload()), asyncio.create_task(self._watch())]
        log.info("started", extra={"policies": [slot.policy.version for slot in self.policies.slots]})
        try:
            yield
        finally:
            self.is_draining = True
            for task in tasks:
                task.cancel()
            await self.writer.drain()
            log.info("stopped")

    def _announce_policies(self) -> None:
        """Record what the policies are, so that their features have names in the events."""
        now = self.clock()
        for slot in self.policies.slots:
            of = slot.policy
            for version in (of.version, fallback_of(of.version)):
                self.writer.record_later(
                    PolicyLoaded(version, now, of.feature_names, of.group_names, slot.recorded_names)
                )
        self.is_announced = True

    async def _reload(self) -> None:
        while self.settings.reload_seconds > 0:
            await asyncio.sleep(self.settings.reload_seconds)
            try:
                await self._reload_once()
            except FultrError as error:
                log.warning("policy files cannot be looked after", extra={"problem": str(error)})
            except Exception:
                log.exception("looking after policy files failed")

    async def _reload_once(self) -> None:
        changes = await asyncio.to_thread(self.policies.replaced)
        if changes:
            self.policies.apply(changes)
            self.is_announced = False
        for change in changes:
            self.metrics.reloads.labels("loaded" if change.new else "refused").inc()
            about = {"file": str(change.slot.path), "before": change.before.version}
            if change.new is None:
                log.error("a new policy was refused", extra={**about, "problem": change.problem})
            else:
                log.info("a new policy was loaded", extra={**about, "now": change.new.version})
        if not self.is_announced:
            self._announce_policies()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.watch.seconds)
            try:
                await asyncio.to_thread(self.watch.refresh, self.metrics)
            except FultrError as error:
                self.watch.failed(str(error))
                log.warning("events cannot be watched", extra={"problem": str(error)})
            except Exception:
                self.watch.failed("see the log of the service")
                log.exception("the watch over events failed")

    def _store_failed(self, error: StoreError, lost: int) -> None:
        self.metrics.store_errors.inc()
        self.metrics.lost.inc(lost)
        log.error("events cannot be recorded", extra={"problem": str(error), "lost": lost})

    async def rank(self, request: Request) -> Response:
        """Answer `POST /rank`."""
        asked = rank_request(await body_of(request, self.settings))
        ids = [one.id for one in asked.candidates]
        if asked.offset and (asked.session is None or asked.offset >= len(ids)):
            rule = "a further page needs the session of the first one, and candidates that are left"
            raise InputError(rule, column="offset", value=asked.offset)
        features, groups = self._items(asked, ids)
        now = self.clock()
        day = day_of(now)
        seed = None
        if asked.session is not None:
            # lengths keep the parts apart
            seed = f"{len(asked.session)}|{asked.session}|{len(asked.query_id)}|{asked.query_id}|{day}"
        slot = self.policies.choose(asked.session)
        version, order = self._ranking(slot, features, groups, ids, seed)
        ranked = [ids[at] for at in order]
        shown = len(ids) if asked.top_k is None else min(asked.offset + asked.top_k, len(ids))
        event = Impression(
            _ranking_id(day, version, seed, ranked),
            now,
            asked.query_id,
            fallback_of(slot.policy.version) if version == FALLBACK else version,
            _encode(ranked).decode(),
            _encode([groups[at] for at in order]).decode() if any(groups) else None,
            shown,
            self._logged(slot, features, order),
            self._shadows(features, groups, ids, seed),
        )
        recorded = await self._record(event)
        self.metrics.rankings.labels(version).inc()
        answer = RankAnswer(event.ranking_id, ranked[asked.offset : shown], version, asked.offset, recorded)
        return Response(_encode(answer), media_type=JSON)

    def _items(self, asked: RankRequest, ids: list[str]) -> tuple[Features, Sequence[str | None]]:
        """Return the features and the groups of candidates: of the request, or of the table of items."""
        given = [one.group for one in asked.candidates]
        if self.policies.items is None or any(one.features is not None for one in asked.candidates):
            return self.policies.reader.rows(asked.candidates), given
        features, groups = self.policies.items.find(asked.query_id, ids)
        return features, [own or known for own, known in zip(given, groups, strict=True)]

    def _ranking(
        self,
        slot: Slot,
        features: Features,
        groups: Sequence[str | None],
        ids: list[str],
        seed: str | None,
    ) -> tuple[str, NDArray[np.intp]]:
        """Return which policy ranks, and its ranking; the order of the request if it fails."""
        try:
            return slot.policy.version, slot.ranking(features, groups, ids, seed)
        except Exception as error:
            self.metrics.failures.inc()
            log.exception("scoring failed", extra={"policy": slot.policy.version})
            if self.settings.fallback is Fallback.ERROR:
                raise FultrError("the policy could not rank the candidates") from error
            return FALLBACK, np.arange(len(ids))

    def _logged(self, slot: Slot, features: Features, order: NDArray[np.intp]) -> bytes | None:
        """Return the features to be recorded, in the order of the ranking."""
        if not self.settings.log_features or self.policies.items is not None:
            return None
        return slot.recorded(features[order]).tobytes()

    def _shadows(
        self, features: Features, groups: Sequence[str | None], ids: list[str], seed: str | None
    ) -> tuple[tuple[str, str], ...]:
        """Return what the shadow policies would have shown; one that fails shows nothing."""
        made = []
        for slot in self.policies.shadows:
            try:
                order = slot.ranking(features, groups, ids, seed)
            except Exception:
                self.metrics.failures.inc()
                log.exception("a shadow policy failed", extra={"policy": slot.policy.version})
                continue
            made.append((slot.policy.version, _encode([ids[at] for at in order]).decode()))
        return tuple(made)

    async def _record(self, event: Impression) -> bool:
        """Record an impression; say whether that is done, as durably as the service was told."""
        try:
            if self.settings.durability is Durability.NONE:
                self.writer.record_later(event)
                return False
            await self.writer.record(event)
        except StoreError:
            self.metrics.lost.inc()
            return False
        return True

    async def clicks(self, request: Request) -> Response:
        """Answer `POST /clicks`."""
        asked = click_request(await body_of(request, self.settings))
        event = ClickEvent(
            asked.ranking_id, self.clock(), tuple(asked.ids), tuple(asked.positions), asked.click_id
        )
        answer = await self.writer.record(event)
        self.metrics.clicks.labels(str(answer.outcome)).inc()
        if answer.outcome in STATUS:
            problems = {
                Outcome.UNKNOWN: f"no ranking has the id {asked.ranking_id}",
                Outcome.LATE: f"clicks are accepted for {self.settings.accept_clicks:g} hours",
                Outcome.NOT_SHOWN: f"the ranking did not show {answer.wrong!r}",
            }
            return problem(problems[answer.outcome], STATUS[answer.outcome])
        return Response(_encode(ClickAnswer(asked.ranking_id, answer.new)), media_type=JSON)

    async def show_metrics(self, _request: Request) -> Response:
        """Answer `GET /metrics`."""
        self.metrics.waiting.set(self.writer.waiting.qsize())
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def healthz(self, _request: Request) -> Response:
        """Answer `GET /healthz`: the process is alive."""
        return Response(b'{"status":"ok"}', media_type=JSON)

    async def readyz(self, _request: Request) -> Response:
        """Answer `GET /readyz`: requests are welcome, and events are being recorded."""
        if self.is_draining or not self.writer.thread.is_alive():
            return problem("the service is ending", 503)
        if not self.writer.is_healthy:
            return problem("events cannot be recorded", 503)
        return Response(b'{"status":"ready"}', media_type=JSON)

    async def page(self, _request: Request) -> Response:
        """Answer `GET /monitor`: what the watch over events found last."""
        return HTMLResponse(monitor_page(*self.watch.for_page()))

    async def schema(self, _request: Request) -> Response:
        """Answer `GET /openapi.json`."""
        return Response(json.dumps(openapi(self.settings.token is not None)), media_type=JSON)

    async def docs(self, _request: Request) -> Response:
        """Answer `GET /docs`: what can be asked, for people."""
        return HTMLResponse(openapi_page(openapi(self.settings.token is not None)))

    def app(self) -> Starlette:
        """Return the application."""

        @asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            async with self.running():
                yield

        def answered(handle: Callable[[Request], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
            async def endpoint(request: Request) -> Response:
                try:
                    return await handle(request)
                except InputError as error:
                    return problem(str(error), 422)
                except TooLargeError as error:
                    return problem(str(error), 413)
                except TooSlowError as error:
                    return problem(str(error), 408)
                except StoreError:
                    return problem("events cannot be recorded now; send it again later", 503)
                except FultrError as error:
                    return problem(str(error), 500)

            return endpoint

        routes = [
            Route("/rank", answered(self.rank), methods=["POST"]),
            Route("/clicks", answered(self.clicks), methods=["POST"]),
            Route("/metrics", self.show_metrics),
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/monitor", self.page),
            Route("/openapi.json", self.schema),
            Route("/docs", self.docs),
        ]
        app = Starlette(routes=routes, lifespan=lifespan)
        app.add_middleware(
            Guard, settings=self.settings, metrics=self.metrics, paths=[r.path for r in routes]
        )
        return app


def problem(text: str, status: int) -> Response:
    """Return an answer that says what is wrong."""
    return Response(_encode(Problem(text)), status, media_type=JSON)


def _ranking_id(day: str, version: str, seed: str | None, ranked: list[str]) -> str:
    """Return an id that starts with the day; a ranking that is shown again to a session has the same one."""
    if seed is None:
        return f"{day}-{secrets.token_hex(10)}"
    content = _encode([version, seed, ranked])
    return f"{day}-{hashlib.blake2b(content, digest_size=10).hexdigest()}"
