"""Starting and stopping the service: its server, its log, and its end."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fultr.errors import FultrError, InputError, visible
from fultr.serving.settings import ServiceSettings

if TYPE_CHECKING:
    import uvicorn

log = logging.getLogger("fultr.serving")

HOST, PORT = "127.0.0.1", 8000

DRAIN_SECONDS = 30
"""How long requests that have begun may take when the service ends."""

KEEP_ALIVE_SECONDS = 15
"""How long a connection may be idle."""

MOST_CONNECTIONS = 2_000
"""Further connections are answered 503."""

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    """A log of one JSON object in each line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _USUAL},
        }
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return visible(json.dumps(content, default=str))


def serve(
    settings: ServiceSettings, host: str = HOST, port: int = PORT, *, socket: int | None = None
) -> None:
    """Run the service until it is told to end (SIGINT or SIGTERM); requests that have begun are answered.

    Parameters
    ----------
    settings
        What to serve, and how.
    host, port
        Where to listen; other machines are not heard unless the host says so.
    socket
        A file descriptor of a socket to listen on instead, such as one of systemd.
    """
    try:
        import uvicorn

        from fultr.serving.app import Service
    except ImportError as error:
        raise FultrError(f"the service needs {error.name}: pip install 'fultr[serve]'") from error
    with _logged():
        if settings.token is None and host not in ("127.0.0.1", "::1", "localhost"):
            log.warning("anyone who can reach the port may ask: there is no token")
        app = Service(settings).app()
        # what is there now stays, so that the collector of garbage need not look at it again
        gc.collect()
        gc.freeze()
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            fd=socket,
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            # a header names the address of a client only where the environment says whom to trust with it
            proxy_headers=bool(os.environ.get("FORWARDED_ALLOW_IPS")),
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        server = uvicorn.Server(config)
        with _ended_by_signals(server):
            try:
                server.run()
            except SystemExit as error:  # what uvicorn raises if it cannot listen
                problem = f"the service cannot listen on {host}, port {port}; is it in use?"
                raise InputError(problem) from error


@contextmanager
def _logged() -> Iterator[None]:
    """Write the log of the service and of its server to standard error, until the block ends."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    loggers = [logging.getLogger(name) for name in ("fultr", "uvicorn.error")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)


@contextmanager
def _ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the server: also before it listens to them itself.

    When it has ended it raises the signal once more, which is no reason to end with an error.
    """

    def end(_number: int, _frame: Any) -> None:
        server.should_exit = True

    usual = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
