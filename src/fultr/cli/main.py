"""The `fultr` command."""

from __future__ import annotations

import errno
import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fultr import __version__
from fultr.cli.option_names import OPTIONS, in_option_names
from fultr.cli.options import finite_option
from fultr.cli.output import say
from fultr.errors import FultrError, FultrWarning, InputError, WriteError

INTERRUPTED = 130
"""The exit code after Ctrl-C, which typer turns the interrupt into."""

COMMANDS = {
    "demo": "Learn a fair ranking from simulated clicks, start to end.",
    "simulate": "Simulate clicks on labelled data, as a click log.",
    "count": "Count impressions and clicks of logs of any size.",
    "inspect": "Say what a file holds, and everything suspicious in it.",
    "convert": "Convert labelled data or a click log to another format.",
    "split": "Split a log in two, by query or by time.",
    "propensity": "Estimate the position bias from a click log.",
    "noise": "Estimate how often irrelevant items are clicked.",
    "train": "Train a ranking policy from clicks, fair within a limit.",
    "sweep": "Train policies for many fairness weights, and compare them.",
    "evaluate": "Measure how useful and how fair a saved policy is.",
    "audit": "Measure how fair the logged ranking is, from its clicks.",
    "rank": "Rank items with a saved policy.",
    "export": "Write a saved policy as an ONNX model.",
    "serve": "Rank over HTTP, and record what was shown and clicked.",
    "monitor": "Watch exposure and merit of what was shown.",
    "compare": "Train several methods on one click log, and compare them.",
    "reproduce": "Rerun the paper, with a verdict on each of its claims.",
    "report": "Write what a run or an audit found as one HTML page.",
}
"""What each command does, in a line. A command is the function of its name in the module of its name."""

APP_OPTIONS: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


class Command(TyperCommand):
    """A command whose numbers are finite, and small enough for all that works with them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and refuse numbers that no option means."""
        unparsed = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, (int, float)):
                finite_option(value, parameter.opts[0])
        return unparsed


class CommandsByName(Mapping[str, Any]):
    """The commands by name; the module of one is imported when it is looked up, and no other."""

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all commands."""
        return iter(COMMANDS)

    def __len__(self) -> int:
        """Return how many commands there are."""
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        """Say whether there is a command of that name, without importing it."""
        return name in COMMANDS

    def __getitem__(self, name: str) -> Any:
        """Return a command."""
        if name not in COMMANDS:
            raise KeyError(name)
        return command_of(name)


@functools.cache
def command_of(name: str) -> Any:
    """Import a command and return it with its options; once, since that takes longer than a small run."""
    module = import_module(f"fultr.cli.{name}")
    single_command = typer.Typer(add_completion=False, **APP_OPTIONS)
    single_command.command(name, cls=Command)(getattr(module, name))
    return typer.main.get_command(single_command)


class Commands(TyperGroup):
    """The group of all commands, which lists them without importing them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = CommandsByName()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is typer's
        """Return the names of all commands."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the signature is typer's
        """Write a line for each command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(cls=Commands, **APP_OPTIONS)


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
            check_streams()
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
        discard_output()  # whoever read our output has seen enough
        return 1
    except MemoryError as error:
        say(f"fultr: there is not enough memory for this{f': {error}' if str(error) else ''}")
        return 1
    except OSError as error:
        # without a buffer, nothing is left to be written again
        is_full = error.errno == errno.ENOSPC and error.filename is None
        if not (is_full or is_output_broken()):
            return internal(error)
        discard_output()
        say(f"fultr: standard output cannot be written: {error.strerror or error}")
        return WriteError.exit_code
    except Exception as error:
        return internal(error)
    return int(code or 0)


@functools.cache
def command_line() -> Callable[..., Any]:
    """Return the group of all commands, made once."""
    return typer.main.get_command(app)


def check_streams() -> None:
    """Refuse to work for nobody; what nobody wants to hear is not said."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends
    if sys.stdout is None:
        raise InputError("standard output is closed; send it to /dev/null if it is not wanted")


def is_output_broken() -> bool:
    """Say whether what was printed cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def discard_output() -> None:
    """Keep Python from complaining at exit about output that could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def internal(error: Exception) -> int:
    """Say in a line what should not have happened, unless a traceback is asked for; return the exit code."""
    if os.environ.get("FULTR_TRACEBACK"):
        traceback.print_exception(error)
    hint = "FULTR_TRACEBACK=1 shows where; please report it"
    say(" ".join(f"fultr: internal error: {type(error).__name__}: {error} ({hint})".split()))
    return 1


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

        def show(message: Warning | str, category: type[Warning], *location: Any, **options: Any) -> None:
            if not issubclass(category, FultrWarning):
                usual(message, category, *location, **options)
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
