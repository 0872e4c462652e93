"""Starting and stopping the service: its server, its log, and its end."""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys
from datetime import UTC, datetime
from typing import Any

from fultr.errors import FultrError, InputError, visible
from fultr.serving.settings import ServiceSettings

HOST, PORT = "127.0.0.1", 8000

DRAIN_SECONDS = 30
"""How long requests that have begun may take when the service ends."""

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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("fultr", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    if settings.token is None and host not in ("127.0.0.1", "::1", "localhost"):
        logging.getLogger("fultr").warning("anyone who can reach the port may ask: there is no token")
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
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = uvicorn.Server(config)

    def end(_number: int, _frame: Any) -> None:
        # before the server listens to signals itself, and when it raises the one that ended it once more
        server.should_exit = True

    usual = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run()
    except SystemExit as error:  # what uvicorn raises if it cannot listen
        raise InputError(f"the service cannot listen on {host}, port {port}; is it in use?") from error
    finally:
        for number, handler_before in usual.items():
            signal.signal(number, handler_before)
