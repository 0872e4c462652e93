"""What commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

SEVERITY_STYLE = {"note": "dim", "warning": "yellow", "severe": "bold red"}


def results() -> Console:
    """Return where results go: standard output, as wide as needed when it is piped."""
    width = None if sys.stdout.isatty() else 110
    return Console(file=sys.stdout, width=width, highlight=False, soft_wrap=True)


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object, on one line when it is piped."""
    sys.stdout.write(json.dumps(content, indent=2 if sys.stdout.isatty() else None, allow_nan=False) + "\n")


def say(line: str) -> None:
    """Write a line about what is going on to standard error."""
    sys.stderr.write(line + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Make a table whose first column is text and whose others are numbers."""
    made = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2)
    )
    for number, name in enumerate(columns):
        made.add_column(name, justify="right" if number else "left", style="" if number else "cyan")
    for row in rows:
        made.add_row(*row)
    return made


def facts(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """Make a table of names and what is to be said of them."""
    made = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2)
    )
    made.show_header = False
    made.add_column(style="cyan")
    made.add_column()
    for row in rows:
        made.add_row(*row)
    return made


def print_findings(console: Console, findings: Sequence[dict[str, str]]) -> None:
    """Print what is suspicious, the worst first."""
    if not findings:
        console.print("Nothing suspicious.")
        return
    console.print("[bold]What to know[/bold]")
    for finding in sorted(findings, key=lambda found: -list(SEVERITY_STYLE).index(found["severity"])):
        style = SEVERITY_STYLE[finding["severity"]]
        console.print(f"  [{style}]{finding['severity']:8}[/{style}] ", finding["sentence"], sep="")


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error if it is a terminal; gives a function of what is done and the total."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
