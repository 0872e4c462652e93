"""What commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

from fultr.errors import visible

WIDER_THAN_ANY_LINE = 1 << 16
SPEED_PERIOD = 3600.0
SECONDS_BETWEEN_LINES = 60.0
SEVERITY_STYLE = {"note": "dim", "warning": "yellow", "severe": "bold red"}


def results() -> Console:
    """Return where results go: standard output, as wide as needed when it is piped.

    Names from data are printed as they are, but for what would steer the terminal: nothing in them is markup
    or the name of a picture.
    """
    from fultr.cli.visible_console import VisibleConsole

    width = None if sys.stdout.isatty() else WIDER_THAN_ANY_LINE
    return VisibleConsole(
        file=sys.stdout, width=width, highlight=False, soft_wrap=True, markup=False, emoji=False
    )


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object, on one line when it is piped."""
    sys.stdout.write(json.dumps(content, indent=2 if sys.stdout.isatty() else None, allow_nan=False) + "\n")


def say(line: str) -> None:
    """Write a line about what is going on to standard error."""
    sys.stderr.write(visible(line) + "\n")


def print_table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column is text and whose others are numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2))
    # a long name goes over several lines of a narrow terminal; it is never cut, and neither is a number
    made.add_column(_in_a_line(columns[0]), style="cyan", overflow="fold")
    for name in map(_in_a_line, columns[1:]):
        made.add_column(name, justify="right", no_wrap=True)
    _print_filled(console, title, made, rows)


def print_facts(console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and what is to be said of them."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(overflow="fold")
    _print_filled(console, title, made, rows)


def print_findings(console: Console, findings: Sequence[dict[str, str]]) -> None:
    """Print what is suspicious, the worst first."""
    from rich.text import Text

    if not findings:
        console.print("Nothing suspicious.")
        return
    console.print("What to know", style="bold")
    for finding in sorted(findings, key=lambda finding: -list(SEVERITY_STYLE).index(finding["severity"])):
        severity = Text(f"  {finding['severity']:8} ", style=SEVERITY_STYLE[finding["severity"]])
        console.print(severity, finding["sentence"], sep="")


def print_statements(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table of words: its first two columns stay whole, and the others go over several lines."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2))
    for number, name in enumerate(columns):
        made.add_column(name, style="cyan" if number == 0 else None, no_wrap=number < 2, overflow="fold")
    _print_filled(console, title, made, rows)


def _print_filled(console: Console, title: str, made: Table, rows: Sequence[Sequence[str]]) -> None:
    for row in rows:
        made.add_row(*(_in_a_line(cell) for cell in row))
    console.print(title, style="bold")
    console.print(made)


def _in_a_line(text: str) -> str:
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


@contextmanager
def progress(what: str, *, lines: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error if it is a terminal; gives a function of what is done and the total.

    With `lines`, for work of many minutes, a line is written now and then if it is none.
    """
    from rich.console import Console

    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield _line_writer(what) if lines else lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True, speed_estimate_period=SPEED_PERIOD) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def _line_writer(what: str) -> Callable[[int, int], None]:
    """Return a function that writes what is done, and about how long the rest takes, once a minute."""
    start = said = time.monotonic()
    before: int | None = None

    def report(done: int, total: int) -> None:
        nonlocal said, before
        now = time.monotonic()
        if before is None:
            before = done
        if now - said >= SECONDS_BETWEEN_LINES:
            said = now
            left = (now - start) * (total - done) / max(done - before, 1) / 60
            say(f"{what}: {done:,} of {total:,}" + (f", about {left:.0f} min left" if done > before else ""))

    return report
