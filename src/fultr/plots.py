"""Pictures from results; matplotlib is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from fultr.errors import InputError
from fultr.files import atomic_write

FORMATS = (".png", ".svg", ".pdf")
INK, TRAINING, VALIDATION, MARKED = "#222222", "#0072b2", "#d55e00", "#009e73"
"""Colours that people who are colour-blind can tell apart (Okabe and Ito)."""


PALETTE = (
    *(TRAINING, VALIDATION, MARKED, "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#666666", "#b8a900"),
    INK,
)
MARKERS = "osD^vPX*<>"
CHARACTERS_ACROSS, LINE_BESIDE_LABEL = 85, 8
"""How much text a legend has room for beneath a panel, and what the line beside a label takes of it."""


@dataclass(frozen=True)
class Curve:
    """A line of a picture: places with the intervals around them, where they have any.

    `across_bounds` and `up_bounds` are the lows and the highs; a `level` line has one place that holds
    everywhere; `ends` are written at the first and the last place.
    """

    label: str
    across: Sequence[float]
    up: Sequence[float]
    across_bounds: tuple[Sequence[float], Sequence[float]] | None = None
    up_bounds: tuple[Sequence[float], Sequence[float]] | None = None
    level: bool = False
    style: int | None = None
    ends: tuple[str, str] | None = None


@dataclass(frozen=True)
class Panel:
    """One of the pictures that stand side by side."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve] = field(default_factory=tuple)
    logarithmic: bool = False


class CurveWithIntervals(Protocol):
    """Values by position, from the first, with their intervals: an estimate of position bias."""

    @property
    def values(self) -> Sequence[float]:
        """The values; NaN where there is none."""
        ...

    @property
    def low(self) -> Sequence[float]:
        """The low ends of the intervals."""
        ...

    @property
    def high(self) -> Sequence[float]:
        """The high ends of the intervals."""
        ...


def draw_panels(
    title: str, panels: Sequence[Panel], path: str | Path, note: str = "", *, same_axes: bool = False
) -> Path:
    """Draw curves side by side, with a legend beneath; `note` says how to read them."""
    figure, all_axes = canvas_of(path, len(panels), same_axes=same_axes)
    labels: dict[str, Any] = {}
    for axes, panel in zip(all_axes, panels, strict=True):
        looks = cycle(range(len(PALETTE)))
        for curve in panel.curves:
            look = next(looks) if curve.style is None else curve.style
            labels.setdefault(curve.label, _draw_curve(axes, curve, look % len(PALETTE)))
        axes.set_title(panel.title, loc="left", fontsize=10, color=INK)
        axes.set_xlabel(panel.across)
        axes.set_ylabel(panel.up)
        if panel.logarithmic:
            axes.set_xscale("log")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    longest = max(map(len, labels), default=0)
    figure.legend(
        list(labels.values()),
        list(labels),
        loc="outside lower center",
        ncols=max(1, min(4, len(labels), CHARACTERS_ACROSS * len(panels) // (longest + LINE_BESIDE_LABEL))),
        frameon=False,
        fontsize=8,
        title=note or None,
        title_fontsize=8,
    )
    return save_picture(figure, path)


def draw_bars(
    title: str, places: Sequence[str], bars: Mapping[str, Sequence[float]], up: str, path: str | Path
) -> Path:
    """Draw groups of bars, one of each kind at every place, with their values on top."""
    figure, (axes,) = canvas_of(path)
    width = 0.8 / len(bars)
    for number, (name, heights) in enumerate(bars.items()):
        left = [place + (number - (len(bars) - 1) / 2) * width for place in range(len(places))]
        drawn = axes.bar(left, heights, width, label=name, color=PALETTE[number % len(PALETTE)])
        axes.bar_label(drawn, fmt="%.2f", fontsize=8)
    axes.set_xticks(range(len(places)), places)
    axes.set_ylabel(up)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.legend(frameon=False, fontsize=8)
    return save_picture(figure, path)


def _draw_curve(axes: Any, curve: Curve, look: int) -> Any:
    colour, marker = PALETTE[look], MARKERS[look]
    if curve.level:
        line = axes.axhline(curve.up[0], color=colour, linestyle="--", linewidth=1.2)
        if curve.up_bounds is not None:
            axes.axhspan(curve.up_bounds[0][0], curve.up_bounds[1][0], color=colour, alpha=0.12, linewidth=0)
        return line
    (line,) = axes.plot(curve.across, curve.up, marker=marker, color=colour, markersize=4.5, linewidth=1.3)
    if curve.up_bounds is not None and curve.across_bounds is None:
        axes.fill_between(curve.across, *curve.up_bounds, color=colour, alpha=0.15, linewidth=0)
    elif curve.up_bounds is not None and curve.across_bounds is not None and len(curve.up) > 1:
        # from the better end of each interval, less disparity and more utility, to the worse end
        (left, right), (below, above) = curve.across_bounds, curve.up_bounds
        axes.fill([*left, *right[::-1]], [*above, *below[::-1]], color=colour, alpha=0.13, linewidth=0)
    elif curve.up_bounds is not None and curve.across_bounds is not None:
        crosses = {
            "xerr": distances_to_ends(curve.across, curve.across_bounds),
            "yerr": distances_to_ends(curve.up, curve.up_bounds),
        }
        axes.errorbar(curve.across, curve.up, **crosses, fmt="none", ecolor=colour, alpha=0.5, elinewidth=0.9)
    for text, place in zip(curve.ends or (), (0, -1), strict=False):
        axes.annotate(
            text,
            (curve.across[place], curve.up[place]),
            textcoords="offset points",
            xytext=(5, 5) if place == 0 else (5, -11),
            fontsize=7,
            color=colour,
        )
    return line


def distances_to_ends(
    values: Sequence[float], bounds: tuple[Sequence[float], Sequence[float]]
) -> tuple[list[float], list[float]]:
    """Return how far the ends of intervals are below and above the values."""
    lows, highs = bounds
    below = [max(value - low, 0.0) for value, low in zip(values, lows, strict=True)]
    return below, [max(high - value, 0.0) for value, high in zip(values, highs, strict=True)]


def draw_frontier(
    points: Sequence[Mapping[str, Any]], path: str | Path, marked: Sequence[Mapping[str, Any]] = ()
) -> Path:
    """Draw utility against disparity of the policies of a sweep: their envelope on validation clicks.

    The policies of the envelope are also drawn with what they reach on training clicks, and the others as
    dots. `marked` are policies of other kinds, each with a name, drawn on top.
    """
    figure, (axes,) = canvas_of(path)
    frontier_on(axes, points, marked)
    return save_picture(figure, path)


def frontier_on(
    axes: Any, points: Sequence[Mapping[str, Any]], marked: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Draw the same on axes of matplotlib."""
    dominated = [point for point in points if not point["non_dominated"]]
    if dominated:
        across = [float(point["valid_disparity"]) for point in dominated]
        up = [float(point["valid_utility"]) for point in dominated]
        axes.plot(across, up, "s", color=VALIDATION, alpha=0.25, markersize=3, label="other candidates")
    for part, colour, style, name, beside in (
        ("train", TRAINING, "o-", "envelope, training clicks", (6, 6)),
        ("valid", VALIDATION, "s--", "envelope, validation clicks", (6, -12)),
    ):
        line = sorted(
            (point for point in points if point["non_dominated"]),
            key=lambda point: -float(point["valid_utility"]),
        )
        across = [float(point[f"{part}_disparity"]) for point in line]
        up = [float(point[f"{part}_utility"]) for point in line]
        axes.plot(across, up, style, color=colour, label=name, markersize=5, linewidth=1.2)
        for place in sorted({0, len(line) - 1}) if line else ():
            axes.annotate(
                f"λ = {float(line[place]['fairness_weight']):g}",
                (across[place], up[place]),
                textcoords="offset points",
                xytext=beside,
                fontsize=8,
                color=colour,
            )
    for mark in marked:
        axes.plot(
            [mark["disparity"]], [mark["utility"]], "*", color=MARKED, markersize=13, label=str(mark["name"])
        )
    axes.set_xlabel("disparity, √ΣD²  (0: exposure follows merit)")
    axes.set_ylabel("utility")
    axes.set_title("What fairness costs", loc="left", fontsize=11, color=INK)
    axes.legend(frameon=False, fontsize=8)


def draw_bias(
    panels: Mapping[str, Mapping[str, CurveWithIntervals]],
    path: str | Path,
    disputed: Mapping[str, Collection[int]] | None = None,
) -> Path:
    """Draw examination by position with its intervals: a panel for each title, a curve for each name in it.

    Positions without enough data are gaps. `disputed` are the positions of a panel that are shaded, since
    the curves disagree there.
    """
    figure, all_axes = canvas_of(path, len(panels))
    looks: dict[str, int] = {}
    drawn: dict[str, Any] = {}
    for axes, (title, estimates) in zip(all_axes, panels.items(), strict=True):
        for name, found in estimates.items():
            look = looks.setdefault(name, len(looks)) % len(PALETTE)
            drawn.setdefault(name.replace("$", r"\$"), bias_on(axes, found, name, look))
        for position in (disputed or {}).get(title, ()):
            shade = axes.axvspan(position - 0.4, position + 0.4, color=INK, alpha=0.12, linewidth=0)
            drawn.setdefault("intervals do not meet", shade)
        # names from data are no formulas
        axes.set_title(title.replace("$", r"\$"), loc="left", fontsize=10, color=INK)
    figure.legend(
        list(drawn.values()),
        list(drawn),
        loc="outside lower center",
        ncols=min(4, len(drawn)),
        frameon=False,
        fontsize=8,
    )
    return save_picture(figure, path)


def bias_on(axes: Any, estimate: CurveWithIntervals, name: str, look: int = 0) -> Any:
    """Draw examination by position with its intervals on axes of matplotlib; returns the line."""
    positions = range(1, len(estimate.values) + 1)
    line = _draw_curve(
        axes, Curve(name, positions, estimate.values, up_bounds=(estimate.low, estimate.high)), look
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("position k")
    axes.set_ylabel("examination v_k, relative to position 1")
    return line


def new_axes() -> Any:
    """Return the axes of a new figure."""
    return _figure(1, same_axes=False)[1][0]


def canvas_of(path: str | Path, panels: int = 1, *, same_axes: bool = False) -> tuple[Any, list[Any]]:
    """Return an empty figure with panels side by side, for a file of a format that can be drawn."""
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"a picture ends in one of {', '.join(FORMATS)}", file=path)
    return _figure(panels, same_axes=same_axes)


def _figure(panels: int, *, same_axes: bool) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    # a figure of its own, without the global state of pyplot, which would look for a display
    figure = Figure(figsize=(6.4, 4.2) if panels == 1 else (5.2 * panels, 5.0), layout="constrained")
    all_axes = list(figure.subplots(1, panels, squeeze=False, sharex=same_axes, sharey=same_axes)[0])
    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure, all_axes


def save_picture(figure: Any, path: str | Path) -> Path:
    """Write a figure, the same bytes for the same results, and return its path."""
    target = Path(path)
    # without dates and random names, so that the same results give the same file
    about = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    kind = target.suffix.lower()
    from matplotlib import rc_context

    with atomic_write(target) as temporary, rc_context({"svg.hashsalt": "fultr"}):
        figure.savefig(temporary, format=kind[1:], dpi=160, metadata=about[kind])
    return target
