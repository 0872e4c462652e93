"""The page of the watch: tables and pictures that need nothing else, with all names escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape as escaped
from pathlib import Path

from fultr.files import write_text
from fultr.serving.openapi import STYLE
from fultr.serving.watching import Watched, WatchedInterval, Window

WIDTH, HEIGHT = 640, 160

COLOURS = ".alarm{color:#b00020;font-weight:600}.band{fill:#9ecae1}.line{fill:none;stroke:#08519c}"
MORE_STYLE = f"{COLOURS}.limit{{stroke:#b00020;stroke-dasharray:4}}.zero{{stroke:#999}}"


def write_monitor_page(found: Watched, path: str | Path) -> Path:
    """Write the page to a file."""
    return write_text(path, monitor_page(found))


def monitor_page(found: Watched, refresh: int | None = None) -> str:
    """Return the page; `refresh` is after how many seconds a browser asks again."""
    again = "" if refresh is None else f'<meta http-equiv=refresh content="{refresh}">'
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8>{again}<title>fultr monitor</title>",
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<style>{STYLE}{MORE_STYLE}</style><h1>What was shown</h1>",
        *(f"<p class=alarm>{escaped(one)}</p>" for one in found.alarms),
        *(f"<p>{escaped(one)}</p>" for one in found.notes),
    ]
    if not found.alarms:
        parts.append("<p>No alarm.</p>")
    parts.append(
        f"<p>Intervals hold at all times at once, with a probability of {found.level:.0%}: of each value by"
        " itself, and of the disparities of all pairs together.</p>"
    )
    for window in found.windows:
        parts.append(_window(window, found.max_disparity))
    if found.history:
        parts += [_picture(found.history, pair, found.max_disparity) for pair in found.history[0].disparity]
    if found.drift:
        rows = [[name, *_cells(one)] for name, one in found.drift.items()]
        parts.append("<h2>Features of the last week, in standard deviations from what they were</h2>")
        parts.append(_table(["feature", "mean", "interval"], rows))
    return "\n".join(parts) + "\n"


def _window(window: Window, limit: float | None) -> str:
    title = f"<h2>{window.days} days, from {window.start}: {window.impressions:,} impressions</h2>"
    rows = [
        [
            name,
            *_cells(window.exposure[name]),
            *_cells(window.merit[name]),
            *_cells(window.exposure_per_merit[name]),
        ]
        for name in window.exposure
    ]
    names = ["exposure", "interval", "merit", "interval", "exposure per merit", "interval"]
    pairs = [[name, *_cells(one)] for name, one in window.disparity.items()]
    pairs.append(["root of the sum of squares", *_cells(window.root)])
    most = "" if limit is None else f", to be at most {limit:g}"
    unknown = " ".join(_cells(window.unknown))
    return (
        title
        + _table(["group", *names], rows)
        + _table(["groups", f"disparity{most}", "interval"], pairs)
        + f"<p>Share of items of unknown groups: {unknown}</p>"
    )


def _cells(interval: WatchedInterval) -> list[str]:
    low, high = (f"{one:.3g}" if math.isfinite(one) else "?" for one in interval[1:])
    return [f"{interval.value:.3g}" if math.isfinite(interval.value) else "?", f"[{low}, {high}]"]


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escaped(name)}" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escaped(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def _picture(history: Sequence[Window], pair: str, limit: float | None) -> str:
    """Return a picture of the disparity of a pair over all windows, by the day they start on."""
    shown = [(one.start, one.disparity[pair]) for one in history if math.isfinite(one.disparity[pair].high)]
    if len(shown) < 2:
        return ""
    largest = max(max(abs(one.low), abs(one.high)) for _, one in shown)
    largest = max(largest, limit or 0.0) * 1.05 or 1.0

    def x(index: int) -> float:
        return round(WIDTH * index / (len(shown) - 1), 1)

    def y(value: float) -> float:
        return round(HEIGHT / 2 * (1 - value / largest), 1)

    upper = [f"{x(at)},{y(one.high)}" for at, (_, one) in enumerate(shown)]
    lower = [f"{x(at)},{y(one.low)}" for at, (_, one) in enumerate(shown)]
    line = [f"{x(at)},{y(one.value)}" for at, (_, one) in enumerate(shown)]
    limits = "" if limit is None else "".join(_level(y(one), "limit") for one in (limit, -limit))
    return (
        f"<h2>Disparity of {escaped(pair)}: windows from each day to now</h2>"
        f"<p>From {shown[0][0]} (left) to {shown[-1][0]}; top and bottom are {largest:.3g}.</p>"
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' width={WIDTH} height={HEIGHT} role=img>"
        f"<polygon class=band points='{' '.join([*upper, *lower[::-1]])}'/>"
        f"{_level(y(0.0), 'zero')}{limits}<polyline class=line points='{' '.join(line)}'/></svg>"
    )


def _level(height: float, kind: str) -> str:
    return f"<line class={kind} x1=0 x2={WIDTH} y1={height} y2={height} />"
