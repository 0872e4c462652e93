"""The `fultr` command."""

from __future__ import annotations

import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from fultr import __version__
from fultr.cli.audit import audit
from fultr.cli.compare import compare
from fultr.cli.convert import convert
from fultr.cli.count import count
from fultr.cli.demo import demo
from fultr.cli.evaluate import evaluate
from fultr.cli.inspect import inspect
from fultr.cli.noise import noise
from fultr.cli.option_names import OPTIONS, in_option_names
from fultr.cli.output import say
from fultr.cli.propensity import propensity
from fultr.cli.rank import rank
from fultr.cli.report import report
from fultr.cli.reproduce import reproduce
from fultr.cli.simulate import simulate
from fultr.cli.split import split
from fultr.cli.sweep import sweep
from fultr.cli.train import train
from fultr.errors import FultrError, FultrWarning, InputError

INTERRUPTED = 130
"""The exit code after Ctrl-C, which typer turns the interrupt into."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
for command in (
    demo,
    simulate,
    count,
    inspect,
    convert,
    split,
    propensity,
    noise,
    train,
    sweep,
    evaluate,
    audit,
    rank,
    compare,
    reproduce,
    report,
):
    app.command()(command)


@app.callback(invoke_without_command=True)
def overview(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Learn rankings from clicks that are useful to searchers and fair to the items ranked.

    Start with: fultr demo
    """
    if version:
        typer.echo(f"fultr {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 success, 2 bad input, 1 a failure of our own."""
    try:
        with warnings_as_lines():
            code = command_line()(
                args=None if arguments is None else list(arguments), prog_name="fultr", standalone_mode=False
            )
        sys.stdout.flush()
        if code == INTERRUPTED:
            return interrupted()
    except KeyboardInterrupt:
        # before a command has begun, typer does not catch it
        return interrupted()
    except typer.TyperException as error:
        say(f"fultr: {error.format_message()} (see --help)")
        return 2
    except InputError as error:
        own = options_of(arguments)
        say(f"fultr: {in_option_names(error, own).in_shell({**OPTIONS, **own})}")
        return 2
    except FultrError as error:
        say(f"fultr: {error}")
        return error.exit_code
    except BrokenPipeError:
        # whoever read our output has seen enough; keep Python from complaining about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        # the last resort: a line instead of a traceback, unless one is asked for
        if os.environ.get("FULTR_TRACEBACK"):
            traceback.print_exc()
        hint = "FULTR_TRACEBACK=1 shows where; please report it"
        say(f"fultr: internal error: {type(error).__name__}: {error} ({hint})")
        return 1
    return int(code or 0)


@functools.cache
def command_line() -> Callable[..., Any]:
    """Return all commands with their options, made once: that takes longer than to refuse a small file."""
    return typer.main.get_command(app)


def options_of(arguments: Sequence[str] | None) -> dict[str, str]:
    """Return the options of the command that was called, by the names of its arguments."""
    given = sys.argv[1:] if arguments is None else arguments
    commands = getattr(command_line(), "commands", {})
    called = next((commands[name] for name in given if name in commands), None)
    parameters = [] if called is None else called.params
    return {one.name: one.opts[0] for one in parameters if one.name and one.opts[0].startswith("--")}


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Say each warning of ours in a line on standard error, once."""
    said: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", FultrWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if not issubclass(category, FultrWarning):
                usual(message, category, *place, **options)
            elif str(message) not in said:
                said.add(str(message))
                say(f"fultr: warning: {message}")

        warnings.showwarning = show
        yield


def interrupted() -> int:
    """Say what Ctrl-C left, and return the exit code."""
    say("fultr: interrupted; nothing was written")
    return INTERRUPTED


def main() -> None:
    """Run as a console command."""
    sys.exit(run())
