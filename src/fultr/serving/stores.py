"""Where events are kept: SQLite, one file a day, or a PostgreSQL database that many services share.

A store is used by one thread. `write` records a batch of events in one transaction (of each day): when it
returns all of them are recorded, and when it raises none.
"""

from __future__ import annotations

import re
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from fultr.errors import FultrError, InputError
from fultr.files import make_folder
from fultr.serving.events import (
    DAY,
    Answer,
    ClickEvent,
    Event,
    Impression,
    Outcome,
    PolicyLoaded,
    day_of,
    judge_clicks,
)
from fultr.serving.schema import (
    MIGRATIONS,
    OLDEST,
    POSTGRES,
    REMOVALS,
    SQLITE,
    VERSION_TABLE,
    Dialect,
    migration,
    statements,
    version_statement,
)

FILE_NAME = re.compile(r"events-(\d{4})-(\d{2})-(\d{2})\.sqlite")
RANKING_ID = re.compile(r"(\d{8})-[0-9a-f]{20}")
"""A ranking id starts with its day, which says in which file it is."""

OPEN_FILES = 8
"""Days whose files stay open; clicks on older rankings open theirs again."""

BUSY_SECONDS = 10.0
"""How long to wait for another process that writes the same file, or for an answer of PostgreSQL."""

PAGE_BYTES, PAGES_A_CHECKPOINT = 16_384, 1_000
"""Impressions with features are large: on pages of 4 kB writing them takes a fifth longer."""

Execute = Callable[..., Any]

PEER_IS_GONE = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": int(1000 * BUSY_SECONDS),
}
"""When a connection to PostgreSQL has broken without a word: after 11 seconds at most."""

EXPIRED_AT_ONCE = 5_000
"""Impressions that one transaction removes, so that it is done before `BUSY_SECONDS`."""

LOCK = 0x66756C74
"""The advisory lock of PostgreSQL under which one service at a time changes the schema."""


class StoreError(FultrError):
    """Events cannot be recorded now; the message says why."""


class Durability(StrEnum):
    """When a ranking is answered."""

    DISK = "disk"
    PROCESS = "process"
    NONE = "none"


class Store(ABC):
    """A place for events.

    Parameters
    ----------
    accepted_for
        How long after its ranking a click is accepted, in microseconds.
    retention
        How long events are kept, in days; None for ever.
    """

    def __init__(self, accepted_for: int, retention: int | None) -> None:
        self.accepted_for, self.retention = accepted_for, retention

    @abstractmethod
    def write(self, events: Sequence[Event]) -> Sequence[Answer | StoreError]:
        """Record events, those of a day all or none; return what became of each, or why it failed."""

    @abstractmethod
    def expire(self, now: int) -> None:
        """Remove what is older than the retention."""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""


class SQLiteStore(Store):
    """Events in a folder, one file a day: `events-2026-11-19.sqlite`, in the mode WAL.

    With the durability "disk" each transaction is on the disk when `write` returns, and so survives a loss of
    power; else the system has it, and it survives a killed process.
    """

    def __init__(
        self,
        folder: Path,
        accepted_for: int = DAY,
        retention: int | None = None,
        durability: Durability = Durability.PROCESS,
    ) -> None:
        super().__init__(accepted_for, retention)
        self.folder = make_folder(folder)
        self.synchronous = "FULL" if durability is Durability.DISK else "NORMAL"
        self.files: dict[str, sqlite3.Connection] = {}
        self.policies: dict[str, PolicyLoaded] = {}

    def write(self, events: Sequence[Event]) -> list[Answer | StoreError]:
        """Record events, those of a day in one transaction; a day that fails holds back no other."""
        answers: list[Answer | StoreError] = [Answer()] * len(events)
        days: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            if isinstance(event, PolicyLoaded):
                self._add_policy(event)
            else:
                days.setdefault(event.ranking_id[:8], []).append(index)
        for day, chosen in days.items():
            try:
                made: Sequence[Answer | StoreError] = self._write_day(day, [events[at] for at in chosen])
            except (StoreError, InputError) as error:
                made = [StoreError(str(error))] * len(chosen)
            for at, answer in zip(chosen, made, strict=True):
                answers[at] = answer
        return answers

    def _add_policy(self, policy: PolicyLoaded) -> None:
        """Record a policy in the open files; one that fails gets it when it is opened again."""
        self.policies[policy.version] = policy
        for day, file in list(self.files.items()):
            try:
                with file:
                    file.execute(STATEMENTS.policy, policy.row)
            except sqlite3.Error:
                self.files.pop(day).close()

    def _write_day(self, day: str, events: Sequence[Event]) -> list[Answer]:
        # only a ranking makes a file: the days of clicks come from outside
        connection = self._connection(day, make=any(isinstance(one, Impression) for one in events))
        if connection is None:
            return [Answer(Outcome.UNKNOWN)] * len(events)
        with _sqlite_errors(), connection:
            connection.execute("BEGIN IMMEDIATE")
            return [_record(connection.execute, one, STATEMENTS, self.accepted_for) for one in events]

    def _connection(self, day: str, *, make: bool) -> sqlite3.Connection | None:
        if day in self.files:
            return self.files[day]
        path = self.folder / f"events-{day[:4]}-{day[4:6]}-{day[6:]}.sqlite"
        if not make and not path.exists():
            return None
        with _sqlite_errors():
            connection = sqlite3.connect(path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                _set_wal(connection)
                connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_A_CHECKPOINT}")
                connection.execute(f"PRAGMA synchronous = {self.synchronous}")
                _migrate(connection.execute, SQLITE, "BEGIN IMMEDIATE", "COMMIT")
                for policy in self.policies.values():
                    connection.execute(STATEMENTS.policy, policy.row)
            except BaseException:
                connection.close()
                raise
        self.files[day] = connection
        while len(self.files) > OPEN_FILES:
            self.files.pop(min(one for one in self.files if one != day)).close()
        return connection

    def expire(self, now: int) -> None:
        """Delete the files of days that are older than the retention."""
        if self.retention is None:
            return
        oldest = day_of(now - self.retention * DAY)
        for path in self.folder.iterdir():
            name = FILE_NAME.fullmatch(path.name)
            day = "".join(name.groups()) if name else oldest
            if day < oldest:
                if day in self.files:
                    self.files.pop(day).close()
                for ending in ("", "-wal", "-shm"):
                    path.with_name(path.name + ending).unlink(missing_ok=True)

    def close(self) -> None:
        """Close all files; each is then complete by itself, without its -wal."""
        for connection in self.files.values():
            with suppress(sqlite3.Error):
                connection.close()
        self.files.clear()


def _set_wal(connection: sqlite3.Connection) -> None:
    """Set the mode WAL; SQLite itself does not wait for others that set it at the same time."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


STATEMENTS = statements(SQLITE)


class PostgresStore(Store):
    """Events in a PostgreSQL database, which many services may share.

    They are on its disk when `write` returns. With the durability "none" a server that fails may lose its
    last moments.
    """

    def __init__(
        self,
        url: str,
        accepted_for: int = DAY,
        retention: int | None = None,
        durability: Durability = Durability.PROCESS,
    ) -> None:
        super().__init__(accepted_for, retention)
        self.url, self.synchronous = url, "off" if durability is Durability.NONE else "on"
        self.connection: Any = None
        self.policies: dict[str, PolicyLoaded] = {}
        self._connected()

    def _connected(self) -> Any:
        if self.connection is not None and not self.connection.closed:
            return self.connection
        psycopg = _psycopg()
        with _postgres_errors():
            # without prepared statements on the server, so that poolers work
            connection = psycopg.connect(
                self.url,
                connect_timeout=int(BUSY_SECONDS),
                prepare_threshold=None,
                autocommit=True,
                **PEER_IS_GONE,
            )
            try:
                self._set_up(connection.execute)
            except BaseException:
                connection.close()
                raise
        self.connection = connection
        return connection

    def _set_up(self, execute: Execute) -> None:
        execute(f"SET synchronous_commit = {self.synchronous}")
        # a large database may take longer to become a new one
        execute("SET statement_timeout = 0")
        _migrate(execute, POSTGRES, f"BEGIN; SELECT pg_advisory_xact_lock({LOCK})", "COMMIT")
        execute(f"SET statement_timeout = {int(1000 * BUSY_SECONDS)}")
        for policy in self.policies.values():
            execute(OF_POSTGRES.policy, policy.row)

    def write(self, events: Sequence[Event]) -> list[Answer]:
        """Record events in one transaction; if the connection breaks, once more on a new one."""
        for event in events:
            if isinstance(event, PolicyLoaded):
                self.policies[event.version] = event
        was_connected = self.connection is not None
        try:
            return self._write(events)
        except StoreError:
            if not was_connected or self.connection is not None:
                raise
            return self._write(events)

    def _write(self, events: Sequence[Event]) -> list[Answer]:
        connection = self._connected()
        try:
            with _postgres_errors(), connection.transaction():
                return [_record(connection.execute, one, OF_POSTGRES, self.accepted_for) for one in events]
        except StoreError:
            if connection.closed or connection.broken:
                self.connection = None
            raise

    def expire(self, now: int) -> None:
        """Delete events that are older than the retention."""
        if self.retention is None:
            return
        connection, number = self._connected(), EXPIRED_AT_ONCE
        while number == EXPIRED_AT_ONCE:
            with _postgres_errors(), connection.transaction():
                oldest = connection.execute(OLDEST, (now - self.retention * DAY, EXPIRED_AT_ONCE)).fetchall()
                number = len(oldest)
                for statement in REMOVALS:
                    connection.execute(statement, ([one for (one,) in oldest],))

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            self.connection.close()


OF_POSTGRES = statements(POSTGRES)


def open_store(
    events: str | Path,
    accepted_for: int = DAY,
    retention: int | None = None,
    durability: Durability = Durability.PROCESS,
) -> Store:
    """Open a folder of SQLite files, or a PostgreSQL database by its URL."""
    if str(events).startswith(("postgresql://", "postgres://")):
        return PostgresStore(str(events), accepted_for, retention, durability)
    if "://" in str(events):
        raise InputError("events go to a folder, or to a postgresql:// address", value=str(events))
    return SQLiteStore(Path(events), accepted_for, retention, durability)


def _record(execute: Execute, event: Event, of: Any, accepted_for: int) -> Answer:
    """Record one event within a transaction."""
    if isinstance(event, PolicyLoaded):
        execute(of.policy, event.row)
        return Answer()
    if isinstance(event, Impression):
        execute(of.impression, event.row)
        for version, order in event.shadows:
            execute(of.shadow, (event.ranking_id, version, order))
        return Answer()
    return _record_clicks(execute, event, of, accepted_for)


def _record_clicks(execute: Execute, clicks: ClickEvent, of: Any, accepted_for: int) -> Answer:
    shown = execute(of.shown, (clicks.ranking_id,)).fetchone()
    problem, clicked = judge_clicks(clicks, shown, accepted_for)
    if problem is not None:
        return problem
    new = 0
    for doc_id in clicked:
        made = execute(of.click, (clicks.ranking_id, doc_id, clicks.click_id, clicks.time))
        new += max(made.rowcount, 0)
    return Answer(Outcome.RECORDED if new else Outcome.REPEATED, new)


def _migrate(execute: Execute, dialect: Dialect, begin: str, commit: str) -> None:
    """Bring a database to the current version of the schema, one service at a time."""
    execute(begin)
    try:
        execute(VERSION_TABLE)
        found = execute("SELECT max(version) FROM fultr_events").fetchone()[0] or 0
        if found > len(MIGRATIONS):
            problem = f"has version {found} of the tables of events, which only a newer fultr knows"
            raise InputError(problem, column="fultr_events")  # noqa: TRY301
        for version in range(found + 1, len(MIGRATIONS) + 1):
            for statement in migration(version, dialect):
                execute(statement)
            execute(version_statement(dialect), (version,))
    except BaseException:
        with suppress(Exception):
            execute("ROLLBACK")
        raise
    execute(commit)


@contextmanager
def _sqlite_errors() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"events cannot be written: {error}") from error


@contextmanager
def _postgres_errors() -> Iterator[None]:
    psycopg = _psycopg()
    try:
        yield
    except psycopg.Error as error:
        raise StoreError(f"events cannot be written: {' '.join(str(error).split())}") from error


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise FultrError("a PostgreSQL database needs psycopg: pip install 'fultr[serve]'") from error
    return psycopg
