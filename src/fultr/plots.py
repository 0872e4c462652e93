"""Pictures from results; matplotlib is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fultr.errors import InputError
from fultr.files import atomic_write

FORMATS = (".png", ".svg", ".pdf")
INK, TRAINING, VALIDATION, MARKED = "#222222", "#0072b2", "#d55e00", "#009e73"
"""Colours that people who are colour-blind can tell apart (Okabe and Ito)."""


def draw_frontier(
    points: Sequence[Mapping[str, Any]], path: str | Path, marked: Sequence[Mapping[str, Any]] = ()
) -> Path:
    """Draw utility against disparity of the policies of a sweep, on training and on validation clicks.

    `marked` are policies of other kinds, each with a name, drawn on top.
    """
    figure, axes = _canvas(path)
    for part, colour, style, name, beside in (
        ("train", TRAINING, "o-", "training clicks", (6, 6)),
        ("valid", VALIDATION, "s--", "validation clicks", (6, -12)),
    ):
        line = sorted(points, key=lambda point: float(point["fairness_weight"]))
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
    return _save(figure, path)


def _canvas(path: str | Path) -> tuple[Any, Any]:
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"a picture ends in one of {', '.join(FORMATS)}", file=path)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'fultr[plots]'") from None
    # a figure of its own, without the global state of pyplot, which would look for a display
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def _save(figure: Any, path: str | Path) -> Path:
    target = Path(path)
    # without dates and random names, so that the same results give the same file
    about = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    kind = target.suffix.lower()
    from matplotlib import rc_context

    with atomic_write(target) as temporary, rc_context({"svg.hashsalt": "fultr"}):
        figure.savefig(temporary, format=kind[1:], dpi=160, metadata=about[kind])
    return target
