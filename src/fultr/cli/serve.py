"""`fultr serve`: a policy at work."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fultr.serving
from fultr.cli.policy_file import policy_file
from fultr.errors import InputError

TOKEN = "FULTR_TOKEN"  # noqa: S105 - the name of a variable


class DurabilityName(StrEnum):
    """When a ranking is answered."""

    DISK = "disk"
    PROCESS = "process"
    NONE = "none"


class FallbackName(StrEnum):
    """What is answered if scoring fails."""

    REQUEST = "request"
    ERROR = "error"


def serve(
    policies: Annotated[list[Path], typer.Argument(help="Saved policies, or folders of runs.")],
    events: Annotated[str, typer.Option(help="Where events go: a folder, or a postgresql:// address.")],
    share: Annotated[
        list[float] | None, typer.Option(help="The share of sessions of each policy. [default: equal]")
    ] = None,
    shadow: Annotated[
        list[Path] | None, typer.Option(help="A policy that is scored and recorded, but not shown.")
    ] = None,
    items: Annotated[
        Path | None, typer.Option(help="A table of items, so that requests need no more than ids.")
    ] = None,
    durability: Annotated[
        DurabilityName,
        typer.Option(help="Answer when the impression is on disk, in the system's hands, or at once."),
    ] = DurabilityName.PROCESS,
    log_features: Annotated[
        bool, typer.Option(help="Record the features of candidates, so that events can be trained on.")
    ] = True,
    accept_clicks: Annotated[
        float, typer.Option(min=0, help="Hours after a ranking in which its clicks are accepted.")
    ] = 24.0,
    retention: Annotated[
        int | None, typer.Option(min=1, help="Days for which events are kept. [default: for ever]")
    ] = None,
    fallback: Annotated[
        FallbackName, typer.Option(help="If scoring fails: the order of the request, or an error.")
    ] = FallbackName.REQUEST,
    token_file: Annotated[
        Path | None, typer.Option(help=f"A file with the token requests must bring; or set {TOKEN}.")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of the largest request.")] = 4 << 20,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Requests a second that one address may send.")
    ] = None,
    max_disparity: Annotated[
        float | None, typer.Option(min=0, help="The limit that the watch over events compares with.")
    ] = None,
    eta: Annotated[float | None, typer.Option(help="Position bias v_k = (1/k)^eta of the watch.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8000,
) -> None:
    """Rank over HTTP with saved policies, and record what was shown and clicked.

    POST /rank draws a ranking, POST /clicks records clicks on it, and fultr count makes counts of what was
    recorded. Policy files that are replaced are loaded while the service runs. GET /docs says what can be
    asked. The service listens on this machine only, unless --host says otherwise.

    \b
    Example:
      fultr serve run --events events
      fultr serve new.safetensors old.safetensors --share 0.1 --share 0.9 --events events --retention 90
    """
    settings = fultr.serving.ServiceSettings(
        policies=[policy_file(path) for path in policies],
        events=events,
        shares=share or (),
        shadows=[policy_file(path) for path in shadow or []],
        items=items,
        durability=fultr.serving.Durability(durability.value),
        log_features=log_features,
        accept_clicks=accept_clicks,
        retention=retention,
        fallback=fultr.serving.Fallback(fallback.value),
        token=_token(token_file),
        max_body=max_body,
        rate=rate,
        max_disparity=max_disparity,
        eta=eta,
    )
    fultr.serving.serve(settings, host, port)


def _token(file: Path | None) -> str | None:
    """Return the token: never an argument, which others could read in the list of processes."""
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot be read: {error}", file=file) from None
