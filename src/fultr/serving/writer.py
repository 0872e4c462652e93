"""Group commit: one thread records the events of all requests, as many in a transaction as are waiting."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fultr.serving.events import Answer, Event, Impression
from fultr.serving.stores import BUSY_SECONDS, Store, StoreError

LARGEST_BATCH = 512
"""Events of one transaction."""

GATHERING_SECONDS = 0.001
"""How long events gather for one transaction while several come at a time: each transaction, and each time
that the threads take turns, costs more than an event."""

MOST_WAITING = 20_000
"""Events that wait to be recorded; with more the service says that it is overloaded."""


class Waiting(NamedTuple):
    """An event, and who waits for it to be recorded: nobody, if `future` is None."""

    event: Event
    future: asyncio.Future[Answer] | None


class EventWriter:
    """Records events on a thread of its own, in the order in which they come.

    Parameters
    ----------
    store
        Where to record them; used by this thread only.
    on_error
        Called on that thread with what went wrong when events that nobody waits for are lost.
    clock
        The time in microseconds since 1970.
    expire_every
        How often to remove what is older than the retention, in microseconds.
    """

    def __init__(
        self,
        store: Store,
        on_error: Callable[[StoreError, int], None],
        clock: Callable[[], int],
        expire_every: int = 3_600_000_000,
    ) -> None:
        self.store, self.on_error, self.clock = store, on_error, clock
        self.expire_every, self.expired = expire_every, 0
        self.is_healthy = True
        self.waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=self._work, name="fultr-events", daemon=True)

    def start(self) -> None:
        """Start the thread; answers go to the running loop."""
        self.loop = asyncio.get_running_loop()
        self.thread.start()

    async def record(self, event: Event) -> Answer:
        """Record an event, and return when it is recorded; raise `StoreError` if it cannot be soon."""
        self._check_room()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting.put(Waiting(event, future))
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                return await future
        except TimeoutError:
            raise StoreError(f"the event is not recorded after {BUSY_SECONDS:g} seconds") from None

    def record_later(self, event: Event) -> None:
        """Record an event some time soon; it is lost if the process is killed before."""
        self._check_room()
        self.waiting.put(Waiting(event, None))

    def _check_room(self) -> None:
        if self.waiting.qsize() >= MOST_WAITING:
            raise StoreError(f"{MOST_WAITING} events are waiting to be recorded already")

    async def drain(self) -> None:
        """Record all that is waiting, and end the thread."""
        self.waiting.put(None)
        await asyncio.to_thread(self.thread.join)

    def _work(self) -> None:
        open_for_more, is_busy = True, False
        while open_for_more:
            first = self.waiting.get()
            if is_busy:
                time.sleep(GATHERING_SECONDS)
            batch, open_for_more = self._batch(first)
            if batch:
                self._record(batch)
            is_busy = len(batch) > 1
            self._expire()
        self.store.close()

    def _batch(self, first: Waiting | None) -> tuple[list[Waiting], bool]:
        """Return what is waiting now, and whether there may be more."""
        batch: list[Waiting] = []
        one = first
        while one is not None:
            batch.append(one)
            if len(batch) == LARGEST_BATCH:
                return batch, True
            try:
                one = self.waiting.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _record(self, batch: list[Waiting]) -> None:
        answers: Sequence[Answer | StoreError]
        try:
            answers = self.store.write([one.event for one in batch])
        except Exception as error:
            problem = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            answers = [StoreError(problem)] * len(batch)
            self.is_healthy = False
        failed = [pair for pair in zip(batch, answers, strict=True) if isinstance(pair[1], StoreError)]
        if any(isinstance(one.event, Impression) for one, _ in failed):
            self.is_healthy = False  # clicks alone may fail because of the file of a day that is past
        elif len(failed) < len(batch):
            self.is_healthy = True
        if failed:
            self.on_error(StoreError(str(failed[0][1])), sum(one.future is None for one, _ in failed))
        waited_for = [one.future for one in batch]
        assert self.loop is not None  # noqa: S101 - started
        if any(future is not None for future in waited_for) and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_answer, waited_for, answers)

    def _expire(self) -> None:
        now = self.clock()
        if now - self.expired >= self.expire_every:
            self.expired = now
            try:
                self.store.expire(now)
            except Exception as error:
                self.on_error(StoreError(f"old events cannot be removed: {error}"), 0)


def _answer(futures: list[asyncio.Future[Answer] | None], answers: Sequence[Answer | StoreError]) -> None:
    """Give each that waits its answer; some may have gone away."""
    for future, answer in zip(futures, answers, strict=True):
        if future is None or future.done():
            continue
        if isinstance(answer, StoreError):
            future.set_exception(StoreError(str(answer)))
        else:
            future.set_result(answer)
