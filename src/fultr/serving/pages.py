"""The pages of the service, made of templates that escape whatever comes from data; they load nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from fultr.files import write_text
from fultr.serving.watching import Watched, Window

WIDTH, HEIGHT = 640, 160
"""Of a picture."""


def monitor_page(found: Watched, refresh: int | None = None) -> str:
    """Return the page of the watch; `refresh` is after how many seconds a browser asks again."""
    pairs = found.history[0].disparity if found.history else ()
    pictures = [_picture(found.history, pair, found.max_disparity) for pair in pairs]
    return _filled(
        "monitor.html",
        found=found,
        refresh=refresh,
        pictures=[one for one in pictures if one is not None],
        width=WIDTH,
        height=HEIGHT,
    )


def write_monitor_page(found: Watched, path: str | Path) -> Path:
    """Write the page of the watch to a file."""
    return write_text(path, monitor_page(found))


def openapi_page(about: dict[str, Any]) -> str:
    """Return the page that says to people what an OpenAPI description says."""
    return _filled("openapi.html", about=about)


def _filled(name: str, **parts: Any) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"shown": _shown, "schema": _schema_name}
    return environment.from_string(_resource(name)).render(style=_resource("page.css"), **parts)


def _resource(name: str) -> str:
    return files("fultr.serving").joinpath(name).read_text(encoding="utf-8")


def _shown(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "?"


def _schema_name(part: dict[str, Any]) -> str:
    content = part.get("content", {}).get("application/json", {})
    return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]


class Picture(NamedTuple):
    """The disparity of a pair of groups over windows, by the day they start on, as points of a picture."""

    pair: str
    first: date
    last: date
    largest: float
    band: str
    line: str
    zero: float
    limits: list[float]


def _picture(history: Sequence[Window], pair: str, limit: float | None) -> Picture | None:
    shown = [(one.start, one.disparity[pair]) for one in history if math.isfinite(one.disparity[pair].high)]
    if len(shown) < 2:
        return None
    largest = max(max(abs(one.low), abs(one.high)) for _, one in shown)
    largest = max(largest, limit or 0.0) * 1.05 or 1.0

    def height(value: float) -> float:
        return round(HEIGHT / 2 * (1 - value / largest), 1)

    across = [round(WIDTH * at / (len(shown) - 1), 1) for at in range(len(shown))]

    def points(values: list[float]) -> list[str]:
        return [f"{x},{height(value)}" for x, value in zip(across, values, strict=True)]

    upper, lower = (points([one[bound] for _, one in shown]) for bound in (2, 1))
    return Picture(
        pair,
        shown[0][0],
        shown[-1][0],
        largest,
        " ".join([*upper, *lower[::-1]]),
        " ".join(points([one.value for _, one in shown])),
        height(0.0),
        [] if limit is None else [height(limit), height(-limit)],
    )
