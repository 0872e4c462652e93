"""A service with simulated users: they search, look from the top, and click what is relevant."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from fultr.click_model import PositionBias
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.serving.running import HOST, serve
from fultr.serving.settings import ServiceSettings

PAUSE_SECONDS = 0.02
"""Between two visits."""

TOP_K = 10


class Users:
    """People who search the lists of labelled data.

    Parameters
    ----------
    data
        Lists with relevance.
    bias
        How likely each position is looked at.
    port
        Where the service listens, on this machine.
    seed
        Decides who searches what, and clicks what.
    """

    def __init__(self, data: RankingDataset, bias: PositionBias, port: int, seed: int = 0) -> None:
        if data.relevance is None:
            raise InputError("simulated users need to know what is relevant", column="relevance")
        self.data, self.relevance, self.looked = data, data.relevance, bias.curve(TOP_K)[1:]
        self.port, self.rng = port, np.random.default_rng(seed)

    def visit(self, connection: http.client.HTTPConnection, number: int) -> None:
        """Search once, and click."""
        query = int(self.rng.integers(len(self.data)))
        rows = range(int(self.data.offsets[query]), int(self.data.offsets[query + 1]))
        names = self.data.group_names
        candidates = [
            {
                "id": f"{query}-{row}",
                "features": self.data.features[row].tolist(),
                **({"group": names[self.data.group[row]]} if self.data.group[row] >= 0 else {}),
            }
            for row in rows
        ]
        asked = {
            "query_id": f"query {query}",
            "candidates": candidates,
            "top_k": TOP_K,
            "session": f"{number}",
        }
        shown = _ask(connection, "/rank", asked)
        ids = [int(one.split("-")[1]) for one in shown["ids"]]
        chances = self.looked[: len(ids)] * self.relevance[ids]
        clicked = self.rng.random(len(ids)) < chances
        positions = (np.flatnonzero(clicked) + 1).tolist()
        if positions:
            _ask(connection, "/clicks", {"ranking_id": shown["ranking_id"], "positions": positions})


def _ask(connection: http.client.HTTPConnection, path: str, content: object) -> dict[str, list[str]]:
    connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json"})
    answer: dict[str, list[str]] = json.loads(connection.getresponse().read())
    return answer


def serve_demo(
    policy: Path,
    events: Path,
    data: RankingDataset,
    bias: PositionBias,
    *,
    port: int,
    max_disparity: float,
    visits: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a policy to simulated users, until it is interrupted or there were so many visits."""
    settings = ServiceSettings([policy], events, max_disparity=max_disparity, watch_seconds=5.0)
    users, ended = Users(data, bias, port, seed), threading.Event()

    def work() -> None:
        number = 0
        while not ended.is_set() and number != visits:
            with (
                suppress(OSError, http.client.HTTPException),
                closing(http.client.HTTPConnection(HOST, port, timeout=10)) as connection,
            ):
                while not ended.is_set() and number != visits:
                    users.visit(connection, number)
                    number += 1
                    time.sleep(PAUSE_SECONDS)
            time.sleep(PAUSE_SECONDS)
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    at = f"http://{HOST}:{port}"
    say(f"people search at {at}; watch them on {at}/monitor (Ctrl-C ends it)")
    thread = threading.Thread(target=work, name="fultr-users", daemon=True)
    thread.start()
    try:
        serve(settings, port=port)
    finally:
        ended.set()
        thread.join()
